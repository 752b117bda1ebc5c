//! 500 jobs of 8 replicas on a real API server with simulated nodes (`end2end/cluster`, KWOK): what one server needs for them, and how
//! late it is. A console that asks for each attempt again and again, as many do, is measured beside it.
//!
//! The cluster runs in namespaces of its own: this program starts it, starts itself again within it, and ends it.

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::Command,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{
    StreamExt,
    future::join_all,
    stream::{self, FuturesUnordered},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    unistd::Uid,
};
use serde_json::Value;

use crate::{
    kubernetes::{World, http_client},
    simulated::{
        Simulation,
        audit::{Audit, Counts, sums},
        placed, worker,
    },
    support::{Outcome, Samples},
};

/// The argument that makes this program measure within the cluster.
pub const INSIDE: &str = "measure-scale";
/// Jobs that run, and replicas of each.
const JOBS: usize = 500;
const REPLICAS: u32 = 8;
const PODS: u64 = JOBS as u64 * REPLICAS as u64;
/// Nodes: room for all pods, and for attempts that begin while others are being removed.
const NODES: u32 = 80;
/// First replicas tell a step so often.
const EACH: Duration = Duration::from_secs(5);
/// Jobs that are created at a time.
const CREATED_AT_A_TIME: usize = 8;
/// How long nothing happens but training, for the costs of that.
const STEADY: Duration = Duration::from_secs(90);
/// Pods that fail one after the other, without a rival and beside it.
const ALONE: usize = 100;
const BESIDE: usize = 30;
/// Pods that fail at once.
const AT_ONCE: usize = 100;
/// How often the rival asks for each attempt.
const RIVAL_EACH: Duration = Duration::from_secs(5);
/// Requests of the rival at a time.
const RIVAL_AT_A_TIME: usize = 32;
/// Requests of the list of jobs.
const LISTS: usize = 100;
/// How often it is looked for what is timed, and for one of many.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_AT_MANY: Duration = Duration::from_millis(100);
/// How often what the API server wrote down is read: that is long while many jobs are made.
const LOOK_AT_LOG: Duration = Duration::from_secs(1);
/// Longest wait for one.
const PATIENCE: Duration = Duration::from_secs(900);

/// Starts the cluster, measures within it, and ends it; says why where that cannot be.
pub fn run() -> Outcome<()> {
    let mut out = stdout();
    if let Some(why) = missing() {
        return Ok(writeln!(out, "scale: not measured, {why}")?);
    }
    let cluster = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../end2end/cluster");
    let script = |name: &str, args: &[&str]| -> Outcome<()> {
        let status = Command::new(cluster.join(name)).args(args).status()?;
        if status.success() { Ok(()) } else { Err(format!("end2end/cluster/{name} failed: {status}").into()) }
    };
    script("prepare", &[])?;
    // The server under test inherits it: a poll is a connection.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let program = std::env::current_exe()?;
    let program = program.to_str().ok_or("this program's path is no text")?;
    let measured = script("up", &[]).and_then(|()| script("in", &[program, INSIDE]));
    script("down", &[])?;
    measured
}

fn missing() -> Option<&'static str> {
    if !cfg!(target_os = "linux") || !Uid::effective().is_root() {
        return Some("the cluster needs Linux and root (sudo -E make bench)");
    }
    let lacks =
        |program| !Command::new(program).arg("version").output().is_ok_and(|answer| answer.status.success());
    if lacks("go") {
        return Some("the cluster is compiled with Go, which is missing");
    }
    lacks("helm").then_some("the server's rights are those of the chart, and Helm is missing")
}

/// Measures and prints, within the cluster.
pub fn inside() -> Outcome<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut world = World::start("scale").await.ok_or("there is no cluster here")?;
        let mut run = Run::start(&world).await;
        let mut out = stdout();
        writeln!(
            out,
            "scale: {JOBS} jobs of {REPLICAS} replicas on a real API server, {NODES} simulated nodes:"
        )?;
        run.create(&world, &mut out).await?;
        run.steady(&world, &mut out).await?;
        run.reconcile(&world, &mut out).await?;
        run.at_once(&world, &mut out).await?;
        run.api_server_restart(&world, &mut out).await?;
        let seconds = run.restart(&mut world).await;
        writeln!(out, "  the server starts anew: {PODS} pods are known {seconds:.1} s after its start")?;
        run.simulation.end().await;
        Ok(())
    })
}

struct Run {
    simulation: Simulation,
    audit: Audit,
    /// Ids in the order in which they were created.
    jobs: Vec<String>,
}

/// What a process has used, and uses.
struct Usage {
    processor_seconds: f64,
    megabytes: f64,
    /// At most so far.
    peak_megabytes: f64,
}

impl Usage {
    fn of(pid: u32) -> Outcome<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // After the name, which may hold anything: utime and stime are the fields 14 and 15 of all.
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let megabytes = |name: &str| -> Outcome<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line")?;
            Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? * 1024.0 / 1e6)
        };
        // The kernel's ticks are a hundredth of a second wherever Linux runs.
        Ok(Self {
            processor_seconds: ticks / 100.0,
            megabytes: megabytes("VmRSS:")?,
            peak_megabytes: megabytes("VmHWM:")?,
        })
    }
}

impl Run {
    async fn start(world: &World) -> Self {
        world.component(["start", "kwok"]);
        let server = (http_client(), world.agents_url());
        let simulation = Simulation::start(world.namespace(), server, NODES, EACH).await;
        Self { simulation, audit: Audit::of(world.namespace()), jobs: Vec::new() }
    }

    async fn chain(&self, world: &World, number: usize) -> Value {
        world.read(&format!("/jobs/{}/chain", self.jobs[number])).await
    }

    async fn create(&mut self, world: &World, out: &mut impl Write) -> Outcome<()> {
        let (mark, begin) = (self.audit.mark(), Instant::now());
        let created = stream::iter(0..JOBS)
            .map(|number| async move {
                let job = Simulation::job(&format!("scale-{number}"), REPLICAS);
                world.post("/jobs", &job).await["job_id"].as_str().map(str::to_owned)
            })
            .buffered(CREATED_AT_A_TIME);
        let jobs: Vec<Option<String>> = created.collect().await;
        self.jobs = jobs.into_iter().collect::<Option<_>>().ok_or("a job has no id")?;
        let accepted = begin.elapsed();
        let audit = &self.audit;
        let is_made =
            || async move { audit.since(mark).get("create pytorchjobs").copied() == Some(JOBS as u64) };
        until("all PyTorchJobs are made", LOOK_AT_LOG, is_made).await?;
        let made = begin.elapsed();
        until("all jobs run", LOOK_AT_MANY, || async move { running_jobs(world).await == JOBS as u64 })
            .await?;
        let running = begin.elapsed();
        let pods = self.simulation.running().await;
        if pods as u64 != PODS {
            return Err(format!("{pods} pods run instead of {PODS}").into());
        }
        writeln!(
            out,
            "  jobs accepted: {:.0} /s; PyTorchJobs made: {:.1} /s; all pods and agents there after {:.0} s",
            JOBS as f64 / accepted.as_secs_f64(),
            JOBS as f64 / made.as_secs_f64(),
            running.as_secs_f64(),
        )?;
        Ok(writeln!(out, "  asked meanwhile: {}", told(&self.audit.since(mark)))?)
    }

    async fn steady(&self, world: &World, out: &mut impl Write) -> Outcome<()> {
        let (mark, begin, before) = (self.audit.mark(), Instant::now(), Usage::of(world.pid())?);
        tokio::time::sleep(STEADY - Duration::from_secs(20)).await;
        let mut millis = Samples::default();
        for _ in 0..LISTS {
            let begin = Instant::now();
            world.read("/jobs?limit=50").await;
            millis.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        tokio::time::sleep_until((begin + STEADY).into()).await;
        let (counts, after) = (self.audit.since(mark), Usage::of(world.pid())?);
        let minutes = begin.elapsed().as_secs_f64() / 60.0;
        let (others, logs) = sums(&counts);
        writeln!(
            out,
            "  while they train: {:.2} requests a job-minute, and {:.1} /s for output; {:.2} processors; {:.0} MB, at most {:.0}",
            others as f64 / minutes / JOBS as f64,
            logs as f64 / minutes / 60.0,
            (after.processor_seconds - before.processor_seconds) / minutes / 60.0,
            after.megabytes,
            after.peak_megabytes,
        )?;
        writeln!(out, "  asked meanwhile: {}", told(&counts))?;
        let (median, p95) = (millis.median(), millis.p95());
        Ok(writeln!(out, "  list of jobs over the API: median {median:.1} ms, p95 {p95:.1} ms")?)
    }

    /// Pods fail one after the other, first without and then beside a rival.
    async fn reconcile(&self, world: &World, out: &mut impl Write) -> Outcome<()> {
        let alone = self.failures(world, 0..ALONE, None).await?;
        line(out, "a pod's phase until it is on the chain", &alone)?;
        let rival = Arc::new(Rival::default());
        let asking = tokio::spawn(
            Arc::clone(&rival).ask(self.simulation.client.clone(), world.namespace().to_owned()),
        );
        let begin = Instant::now();
        let beside = self.failures(world, ALONE..ALONE + BESIDE, Some(&rival)).await?;
        let minutes = begin.elapsed().as_secs_f64() / 60.0;
        asking.abort();
        line(out, "the same beside a console that polls", &beside)?;
        let late = std::mem::take(&mut *open(&rival.late));
        line(out, "that console itself", &late)?;
        let asked = rival.requests.load(Ordering::Relaxed) as f64;
        Ok(writeln!(out, "  that console asks {:.1} times a job-minute", asked / minutes / JOBS as f64)?)
    }

    async fn failures(
        &self,
        world: &World,
        numbers: std::ops::Range<usize>,
        rival: Option<&Rival>,
    ) -> Outcome<Samples> {
        let mut seconds = Samples::default();
        for number in numbers {
            let pod = worker(&self.chain(world, number).await, 3);
            if let Some(rival) = rival {
                open(&rival.wanted).replace((pod.clone(), Instant::now()));
            }
            // From before it is written: the API server's own time is in it.
            let begin = Instant::now();
            self.simulation.fail(&pod).await;
            let shown = || async move { has_incident(&self.chain(world, number).await) };
            until("a failure is on its chain", LOOK, shown).await?;
            seconds.push(begin.elapsed().as_secs_f64());
            if let Some(rival) = rival {
                until("the rival sees it", LOOK_AT_MANY, || async move { open(&rival.wanted).is_none() })
                    .await?;
            }
        }
        Ok(seconds)
    }

    /// Pods of many jobs fail at once: each is decided once, and nothing else is.
    async fn at_once(&self, world: &World, out: &mut impl Write) -> Outcome<()> {
        let numbers: Vec<_> = (ALONE + BESIDE..ALONE + BESIDE + AT_ONCE).collect();
        let mut pods = Vec::new();
        for number in &numbers {
            pods.push(worker(&self.chain(world, *number).await, 3));
        }
        let (mark, begin) = (self.audit.mark(), Instant::now());
        join_all(pods.iter().map(|pod| self.simulation.fail(pod))).await;
        let written = begin.elapsed().as_secs_f64();
        let mut seen = Samples::default();
        let mut waiting: FuturesUnordered<_> = numbers
            .iter()
            .map(|number| async move {
                let shown = || async move { has_incident(&self.chain(world, *number).await) };
                until("a failure is on its chain", LOOK_AT_MANY, shown)
                    .await
                    .map(|()| begin.elapsed().as_secs_f64())
            })
            .collect();
        while let Some(seconds) = waiting.next().await {
            seen.push(seconds?);
        }
        drop(waiting);
        for number in &numbers {
            let trains = || async move {
                let chain = self.chain(world, *number).await;
                chain["attempts"][1]["launches"][0]["steps"].is_object()
            };
            until("a job trains again", LOOK_AT_MANY, trains).await?;
        }
        let again = begin.elapsed().as_secs_f64();
        let mut decisions = 0;
        for number in 0..JOBS {
            let chain = self.chain(world, number).await;
            let attempts = chain["attempts"].as_array().ok_or("no attempts")?;
            decisions +=
                attempts.iter().filter_map(|one| one["incidents"].as_array()).map(Vec::len).sum::<usize>();
        }
        let expected = ALONE + BESIDE + AT_ONCE;
        writeln!(
            out,
            "  {AT_ONCE} pods fail at once (written in {written:.1} s): on all chains after {:.1} s, all train again after {again:.1} s",
            seen.quantile(1.0),
        )?;
        writeln!(out, "  decisions of all jobs so far: {decisions}, failures: {expected}")?;
        Ok(writeln!(out, "  asked meanwhile: {}", told(&self.audit.since(mark)))?)
    }

    async fn api_server_restart(&self, world: &World, out: &mut impl Write) -> Outcome<()> {
        let mark = self.audit.mark();
        world.component(["kill", "kube-apiserver"]);
        world.component(["start", "kube-apiserver"]);
        world.until_answer(&["get", "--raw", "/readyz"], |said| said == "ok").await;
        let begin = Instant::now();
        let lists = |counts: &Counts| {
            counts.iter().filter(|(what, _)| what.starts_with("list ")).map(|(_, n)| n).sum::<u64>()
        };
        let watched = || async move { self.audit.since(mark).contains_key("watch pods") };
        until("the pods are listed and watched again", LOOK_AT_MANY, watched).await?;
        let seconds = begin.elapsed().as_secs_f64();
        let counts = self.audit.since(mark);
        writeln!(
            out,
            "  the API server is killed and starts again: watched again {seconds:.1} s after it is ready, {} pages of lists",
            lists(&counts),
        )?;
        Ok(writeln!(out, "  running then: {} of {JOBS}", running_jobs(world).await)?)
    }

    /// Seconds from the start of a server until it knows all pods again.
    async fn restart(&self, world: &mut World) -> f64 {
        let all = |nodes: &Value| placed(nodes) == PODS;
        world.until_read("/nodes", "placed", all).await;
        world.kill();
        let begin = Instant::now();
        world.serve().await;
        world.until_read("/nodes", "placed", all).await;
        begin.elapsed().as_secs_f64()
    }
}

async fn running_jobs(world: &World) -> u64 {
    world.read("/jobs?state=running&limit=1").await["total"].as_u64().unwrap_or_default()
}

fn has_incident(chain: &Value) -> bool {
    chain["attempts"][0]["incidents"].as_array().is_some_and(|incidents| !incidents.is_empty())
}

async fn until<F: Future<Output = bool>>(what: &str, look: Duration, reached: impl Fn() -> F) -> Outcome<()> {
    let begin = Instant::now();
    while !reached().await {
        if begin.elapsed() > PATIENCE {
            return Err(format!("not within {} s: {what}", PATIENCE.as_secs()).into());
        }
        tokio::time::sleep(look).await;
    }
    Ok(())
}

fn line(out: &mut impl Write, what: &str, seconds: &Samples) -> Outcome<()> {
    let (median, p99) = (seconds.median(), seconds.quantile(0.99));
    Ok(writeln!(out, "  {what:<40} median {median:6.3} s, p99 {p99:6.3} s (of {})", seconds.len())?)
}

fn told(counts: &Counts) -> String {
    counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// A console that asks for the job and the pods of each attempt again and again.
#[derive(Default)]
struct Rival {
    requests: AtomicU64,
    /// The pod that is about to fail, and since when.
    wanted: Mutex<Option<(String, Instant)>>,
    /// How late it noticed.
    late: Mutex<Samples>,
}

impl Rival {
    async fn ask(self: Arc<Self>, client: kube::Client, namespace: String) {
        let kind = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("kubeflow.org", "v1", "PyTorchJob"),
            "pytorchjobs",
        );
        let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
        let pods: Api<Pod> = Api::namespaced(client, &namespace);
        let names: Vec<_> = match jobs.list_metadata(&ListParams::default()).await {
            Ok(list) => list.items.into_iter().filter_map(|job| job.metadata.name).collect(),
            Err(_) => return,
        };
        loop {
            let round = Instant::now();
            stream::iter(&names)
                .for_each_concurrent(RIVAL_AT_A_TIME, async |name: &String| {
                    self.requests.fetch_add(2, Ordering::Relaxed);
                    let list = ListParams::default().labels(&format!("holdfast.dev/task={name}"));
                    let (_, found) = tokio::join!(jobs.get_opt(name), pods.list(&list));
                    found.iter().for_each(|found| self.look(name, &found.items));
                })
                .await;
            tokio::time::sleep_until((round + RIVAL_EACH).into()).await;
        }
    }

    /// The pod has failed, or has gone meanwhile with its attempt.
    fn look(&self, task: &str, pods: &[Pod]) {
        let mut wanted = open(&self.wanted);
        let of_task = wanted.as_ref().filter(|(name, _)| name.starts_with(task));
        let Some((name, since)) = of_task else { return };
        let pod = pods.iter().find(|pod| pod.metadata.name.as_ref() == Some(name));
        let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
        if pod.is_none() || phase == Some("Failed") {
            open(&self.late).push(since.elapsed().as_secs_f64());
            *wanted = None;
        }
    }
}

fn open<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
