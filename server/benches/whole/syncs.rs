//! Syncs of agents a second, over real connections, against the real endpoint, driver and database; and what a held poll costs.
//!
//! The agents are played by this program started a second time, so that their share of the machine is known.

mod client;

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write, stdout},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use axum::{extract::Request, middleware::Next};
use engine::{
    chain::{Chain, Observation, ReplicaObservation, ReplicaStatus},
    ids::{JobId, NodeName, ReplicaName, TaskId},
    job::{ClusterKind, JobDraft, JobKind, Site},
};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use serde::{Deserialize, Serialize};
use server::{
    agents::{self, Hub},
    clock::{Clock, SystemClock},
    clusters::{Cluster, ClusterError, Order},
    store::{
        Store, commit,
        steps::{self, Head, Kept, Origin},
    },
};

pub use self::client::client;
use crate::support::{Outcome, Server, tokens};

/// The argument that makes this program play the agents.
pub const CLIENT: &str = "play-agents";
/// Jobs that run.
const JOBS: u32 = 1_250;
/// Replicas of each.
const REPLICAS: u32 = 8;
/// Files that a process needs beside the connections.
const OTHER_FILES: u64 = 200;
/// Of so many polls one may be between its answer and the next poll.
const HELD_SHARE: usize = 100;
/// Longest wait for the polls to be held.
const HELD_LIMIT: Duration = Duration::from_secs(60);
/// How often it is looked whether all polls have arrived.
const LOOK: Duration = Duration::from_millis(20);

/// What one phase of the client brought.
#[derive(Debug, Serialize, Deserialize)]
struct Phase {
    syncs: u64,
    seconds: f64,
    median_millis: f64,
    p95_millis: f64,
    /// Seconds of processor time that the client took.
    client: f64,
}

/// Measures and prints.
pub fn run() -> Outcome<()> {
    let polls = usable_connections()?.min(u64::from(JOBS * REPLICAS)) as usize;
    let dir = tempfile::tempdir()?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let store = Store::open(&format!("sqlite://{}", dir.path().join("bench.db").display())).await?;
        make_jobs(&store).await?;
        let server = Server::start(store, Some(Arc::new(Roomy))).await;
        let hub =
            Hub::start(Arc::new(server.driver.clone()), tokens(), Arc::new(SystemClock), server.stop.clone());
        let held = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&held);
        let agents =
            agents::router(hub).layer(axum::middleware::from_fn(move |request: Request, next: Next| {
                let counted = Arc::clone(&counted);
                async move {
                    counted.fetch_add(1, Ordering::Relaxed);
                    let response = next.run(request).await;
                    counted.fetch_sub(1, Ordering::Relaxed);
                    response
                }
            }));
        let router = server.router(agents, dir.path())?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving =
            axum::serve(listener, router.into_make_service_with_connect_info::<std::net::SocketAddr>());
        tokio::spawn(serving.with_graceful_shutdown(server.stop.clone().cancelled_owned()).into_future());
        let mut client = Client::start(&address.to_string(), polls)?;
        let measured = tokio::task::block_in_place(|| -> Outcome<_> {
            let reports = client.phase()?;
            let empty = client.phase()?;
            Ok((reports, empty))
        });
        let (reports, empty) = measured?;
        let before = resident_bytes()?;
        client.go_on()?;
        let all = async {
            while held.load(Ordering::Relaxed) < polls - polls / HELD_SHARE {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(HELD_LIMIT, all).await.map_err(|_| "the polls were not held in time")?;
        let poll_bytes = resident_bytes()?.saturating_sub(before) / polls as u64;
        client.end()?;
        server.stop.cancel();
        server.driver.stopped().await;
        let mut out = stdout().lock();
        writeln!(
            out,
            "syncs: {JOBS} jobs of {REPLICAS} replicas, over {} kept connections, into SQLite:",
            client::CONNECTIONS
        )?;
        line(&mut out, "with a report each, until it is committed", &reports)?;
        line(&mut out, "without a report", &empty)?;
        writeln!(
            out,
            "  a held poll takes {:.1} kB of the server's memory (of {polls})",
            poll_bytes as f64 / 1e3
        )?;
        Ok(())
    })
}

/// A phase and what the server took for it, seconds of processor time.
type Measured = (Phase, f64);

fn line(out: &mut impl Write, what: &str, (phase, server): &Measured) -> Outcome<()> {
    writeln!(
        out,
        "  {what:<42} {:6.0} /s, median {:5.1} ms, p95 {:5.1} ms; processors: server {:.2}, client {:.2}",
        phase.syncs as f64 / phase.seconds,
        phase.median_millis,
        phase.p95_millis,
        server / phase.seconds,
        phase.client / phase.seconds,
    )?;
    Ok(())
}

/// The process that plays the agents.
struct Client {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    input: std::process::ChildStdin,
}

impl Client {
    fn start(address: &str, polls: usize) -> Outcome<Self> {
        let mut child = Command::new(env::current_exe()?)
            .args([CLIENT, address, &polls.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdout.take().zip(child.stdin.take());
        let (output, input) = pipes.ok_or("the client has no pipes")?;
        Ok(Self { child, lines: BufReader::new(output).lines(), input })
    }

    /// Lets it begin its next phase.
    fn go_on(&mut self) -> Outcome<()> {
        self.line()?;
        self.input.write_all(b"\n")?;
        Ok(self.input.flush()?)
    }

    /// One phase, with the processor time of this process.
    fn phase(&mut self) -> Outcome<Measured> {
        self.go_on()?;
        let before = processor_seconds()?;
        let phase = serde_json::from_str(&self.line()?)?;
        Ok((phase, processor_seconds()? - before))
    }

    fn line(&mut self) -> Outcome<String> {
        Ok(self.lines.next().ok_or("the client ended; it said why above")??)
    }

    fn end(mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// Seconds of processor time that this process has taken.
fn processor_seconds() -> Outcome<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Memory that this process has in use, as Linux tells it.
fn resident_bytes() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

/// Asks for as many open files as may be had; says how many of them can be connections. Processes that are started inherit it.
fn usable_connections() -> Outcome<u64> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    Ok(most.saturating_sub(OTHER_FILES))
}

/// The job with this number.
fn job_id(number: u32) -> Outcome<JobId> {
    Ok(JobId::new(format!("j{number:011}"))?)
}

/// The first attempt of a job.
fn task_id(job: &JobId) -> TaskId {
    TaskId::of_attempt("bench", job, 1)
}

/// The replica with this number.
fn replica(index: u32) -> ReplicaName {
    ReplicaName::of_index(JobKind::PyTorchJob, index)
}

async fn make_jobs(store: &Store) -> Outcome<()> {
    let draft = JobDraft {
        name: "bench".to_owned(),
        command: vec!["true".to_owned()],
        replicas: Some(REPLICAS.into()),
        ..JobDraft::default()
    };
    let spec = draft.validate(&Site::default()).map_err(|errors| format!("{errors:?}"))?;
    let now = SystemClock.now();
    let mut tx = store.write().await?;
    for number in 0..JOBS {
        let step = Chain::start(job_id(number)?, spec.clone(), now);
        let head = Head::of(&step.chain, now);
        let kept = Kept { chain: &step.chain, head: &head, records: &step.records, now };
        steps::create(&mut tx, Origin { owner: "bench", copied_from: None }, kept).await?;
    }
    Ok(commit(tx).await?)
}

/// A cluster that runs everything at once; whoever has a replica's token is that replica.
struct Roomy;

#[async_trait]
impl Cluster for Roomy {
    fn name(&self) -> &str {
        "local"
    }

    fn kind(&self) -> ClusterKind {
        ClusterKind::Local
    }

    async fn create(&self, _: &Order) -> Result<(), ClusterError> {
        Ok(())
    }

    async fn delete(
        &self,
        _: &TaskId,
        _: JobKind,
        _: Option<&str>,
        _: bool,
    ) -> Result<Option<String>, ClusterError> {
        Ok(None)
    }

    async fn observe(&self, _: &TaskId, _: JobKind, _: Option<&str>) -> Result<Observation, ClusterError> {
        let placed = |index| {
            let node = NodeName::new(format!("node-{index}")).ok()?;
            Some((replica(index), ReplicaObservation { node: Some(node), status: ReplicaStatus::Running }))
        };
        let replicas: BTreeMap<_, _> = (0..REPLICAS).filter_map(placed).collect();
        Ok(Observation::Placed { replicas })
    }
}
