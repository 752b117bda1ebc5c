//! Runs of Bisect Diagnose, driven. A group of a run is a job of its own that lists leave out: the driver runs it as any other. So
//! everything that a step of a run wants is written in one transaction with it: new jobs, requests to stop some, and the suspects for the
//! job that the run is about. Nothing is done outside the store, nothing is done twice, and a server that comes back goes on.

mod confirmed;
pub mod policy;
mod untested;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use app::console::LogQuery;
use engine::{
    bisect::{self, Effect, Finding, Group, Input, Nodes, Outcome, Run},
    chain::{Chain, Request, limits::RETURN_SECONDS},
    ids::{JobId, ReplicaName, TaskId},
    job::{ClusterKind, FaultTolerance, HealthChecks, JobKind, JobSpec},
    nodes::standing::NodeRules,
    record::State,
    time::Time,
};
use sha2::{Digest, Sha256};
use sqlx::AnyConnection;
use tokio_util::sync::CancellationToken;

use self::{
    confirmed::hold,
    untested::{closed_to, lost, untested},
};
use crate::{
    clock::{self, Clock},
    clusters::{Cluster, nodes_of},
    driver::Driver,
    logs::LogReader,
    store::{
        self, Store, StoreError, Write, attempts,
        diagnoses::{self, Diagnosis, Kept},
        inbox, incidents, jobs,
        steps::{self, Head, Origin},
    },
};

/// How often runs are looked at; a test takes seconds at least.
const LOOK_MILLIS: u64 = 500;
/// Runs that are looked at; each job has one at a time.
const RUNS: u32 = 1_000;
/// How often groups of runs that are gone are looked for: once in so many looks.
const ORPHANS_EVERY: u32 = 60;
/// Groups that are removed at a time.
const ORPHANS: u32 = 100;
/// Lines of a group's output that are read for what it says.
const LINES: u32 = 200;
/// Characters of a group's words that are kept.
const WORDS: usize = 300;
/// How long a cluster may take to bring what a group printed. Without it the words of its failure are told.
const FETCH: Duration = Duration::from_secs(5);

/// The test that is built in, with its time limit.
pub fn probe(limit_seconds: u32) -> Vec<String> {
    ["holdfast-agent", "probe", "--limit-seconds", &limit_seconds.to_string()].map(str::to_owned).to_vec()
}

/// A time in which this server leads.
#[derive(Clone, Copy, Debug)]
struct Term {
    epoch: i64,
    /// Since when it looks at diagnoses.
    since: Time,
}

impl Term {
    /// Whether a limit of the run has passed. What was ordered before this server led may have ended in time while nobody could take that:
    /// its nodes and agents have [`RETURN_SECONDS`] to speak first.
    fn is_late(self, run: &Run, now: Time) -> bool {
        let is_older = run.live().any(|group| group.ordered_at < self.since);
        let is_heard = !is_older || now >= self.since.plus_seconds(RETURN_SECONDS);
        is_heard && run.wake_at().is_some_and(|at| at <= now)
    }
}

/// Drives the runs of diagnoses while this server leads.
pub struct Diagnoses {
    /// Where everything is kept.
    pub store: Store,
    /// Who runs the groups.
    pub driver: Driver,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What groups printed.
    pub logs: Arc<LogReader>,
    /// Where groups run, by name.
    pub clusters: BTreeMap<String, Arc<dyn Cluster>>,
    /// When nodes are put out, and how many.
    pub rules: NodeRules,
    /// The test that each node runs where a policy asks for a run; none: the one that is built in.
    pub test: Option<Vec<String>>,
}

impl Diagnoses {
    /// Drives until told to stop.
    pub async fn keep_going(self, stop: CancellationToken) {
        let mut looks = 0_u32;
        let mut newest = None;
        loop {
            let again = self.clock.now().plus_millis(LOOK_MILLIS);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep_until(again) => {}
            }
            let Some(epoch) = self.driver.status().epoch.filter(|_| self.driver.is_ready()) else { continue };
            looks = looks.wrapping_add(1);
            let same = newest.filter(|term: &Term| term.epoch == epoch);
            let term = same.unwrap_or_else(|| Term { epoch, since: self.clock.now() });
            newest = Some(term);
            if let Err(error) = self.look(term, looks % ORPHANS_EVERY == 1).await {
                tracing::warn!(
                    error = format!("{:#}", anyhow::Error::from(error)),
                    "could not look at diagnoses"
                );
            }
        }
    }

    async fn look(&self, term: Term, orphans: bool) -> Result<(), StoreError> {
        let mut conn = self.store.read().await?;
        let live = diagnoses::live(&mut conn, RUNS).await?;
        let gone = if orphans { diagnoses::orphans(&mut conn, ORPHANS).await? } else { Vec::new() };
        drop(conn);
        self.follow_policies(&live).await?;
        for kept in live {
            let run_id = kept.diagnosis.run_id.clone();
            // One that fails keeps no other from going on.
            if let Err(error) = self.step(term, kept).await {
                tracing::warn!(
                    run_id,
                    error = format!("{:#}", anyhow::Error::from(error)),
                    "a diagnosis could not go on"
                );
            }
        }
        for job_id in gone {
            let mut tx = self.store.write().await?;
            ask(&mut tx, &job_id, Request::Delete { force: true }, self.clock.now()).await?;
            store::commit(tx).await?;
            self.driver.hint(&job_id);
        }
        Ok(())
    }

    /// Takes what became of the groups of a run, and keeps what follows.
    async fn step(&self, term: Term, kept: Kept) -> Result<(), StoreError> {
        let Kept { number, generation, stop_by, mut diagnosis } = kept;
        let mut inputs = Vec::new();
        if let Some(by) = stop_by {
            inputs.push(Input::Stop { by });
        }
        let live: Vec<Group> = diagnosis.run.live().cloned().collect();
        for group in live {
            inputs.extend(self.news(&diagnosis, &group).await?);
        }
        let now = self.clock.now();
        if term.is_late(&diagnosis.run, now) {
            inputs.push(Input::Tick);
        }
        let before = diagnosis.run.clone();
        let (mut effects, mut records) = (Vec::new(), Vec::new());
        for input in &inputs {
            let step = bisect::advance(&diagnosis.run, input, now);
            diagnosis.run = step.run;
            effects.extend(step.effects);
            records.extend(step.records);
        }
        if diagnosis.run == before {
            return Ok(());
        }
        let confirms = diagnosis.run.finding().is_some_and(|finding| !finding.confirmed.is_empty());
        let nodes = match self.clusters.get(&diagnosis.cluster).filter(|_| confirms) {
            Some(cluster) => nodes_of(cluster.as_ref()).await.ok(),
            None => None,
        };
        if confirms && nodes.is_none() && may_wait(&before, now) {
            return Ok(());
        }
        let mut tx = self.store.write().await?;
        let held = hold(&mut tx, (&diagnosis, number), nodes.as_deref(), &self.rules, now).await?;
        let Some((held, mut hurry)) = held else {
            tracing::debug!(diagnosis.run_id, "how a node stands was changed meanwhile");
            return Ok(());
        };
        diagnosis.held = held;
        if diagnoses::write(&mut tx, term.epoch, generation, &diagnosis).await? != Write::Done {
            tracing::debug!(diagnosis.run_id, "a step of a diagnosis was overtaken");
            return Ok(());
        }
        hurry.extend(perform(&mut tx, &diagnosis, number, &effects, now).await?);
        if let Some(finding) = diagnosis.run.finding()
            && ask(&mut tx, &diagnosis.job_id, found(&diagnosis, finding), now).await?
        {
            hurry.push(diagnosis.job_id.clone());
        }
        store::commit(tx).await?;
        for record in records {
            tracing::info!(run_id = diagnosis.run_id, job_id = %diagnosis.job_id, "{}", record.text);
        }
        hurry.iter().for_each(|job_id| self.driver.hint(job_id));
        Ok(())
    }

    /// What is new of a group.
    async fn news(&self, diagnosis: &Diagnosis, group: &Group) -> Result<Vec<Input>, StoreError> {
        let group_number = group.number;
        let started = Input::Started { group: group_number };
        let ended = |outcome| Ok(vec![Input::Ended { group: group_number, outcome }]);
        let Some(job_id) = group_job(&diagnosis.run_id, group_number) else { return Ok(Vec::new()) };
        let mut conn = self.store.read().await?;
        let Some(head) = jobs::head(&mut conn, &job_id).await? else {
            return ended(lost("its job was deleted"));
        };
        let state = head.summary.state;
        let cluster = self.clusters.get(&diagnosis.cluster);
        if state == State::Queued {
            if group.started_at.is_some() {
                return ended(lost("its nodes were taken from it"));
            }
            let closed = cluster.map(|cluster| cluster.closed(&group.all())).unwrap_or_default();
            return if closed.is_empty() { Ok(Vec::new()) } else { ended(closed_to(closed)) };
        }
        if !state.is_terminal() {
            // What a pod needs before its program runs, an image for instance, is not the test's time.
            let in_pods = cluster.is_some_and(|cluster| cluster.kind() == ClusterKind::Kubernetes);
            let begun = !in_pods || state == State::Running;
            return Ok(begun.then_some(started).into_iter().collect());
        }
        let newest = head.summary.attempts_total.max(1);
        let record = attempts::page(&mut conn, &job_id, newest, 1).await?.into_iter().next();
        let incident = incidents::of_attempts(&mut conn, &job_id, newest..=newest).await?.pop();
        drop(conn);
        let task = head.summary.latest_task_id;
        let said = |word| self.said(&diagnosis.cluster, &job_id, &task, word);
        let outcome = match state {
            State::Succeeded => {
                Outcome::Pass { megabytes_per_second: said("PASS").await.as_deref().and_then(speed) }
            }
            State::Failed => {
                let incident = incident.map(|(_, incident)| incident);
                if let Some(outcome) = untested(record.as_ref(), incident.as_ref()) {
                    return ended(outcome);
                }
                let fault = record.and_then(|record| record.fault);
                let text = said("FAIL").await.or(fault).unwrap_or_else(|| "it failed".to_owned());
                Outcome::Fail { text: text.chars().take(WORDS).collect() }
            }
            _ => return ended(lost("it was stopped")),
        };
        // One that is soon over was never seen to run.
        Ok(vec![started, Input::Ended { group: group_number, outcome }])
    }

    /// The first line of the built-in test that begins with this word, without what stands before it.
    async fn said(&self, cluster: &str, job: &JobId, task: &TaskId, word: &'static str) -> Option<String> {
        if let Some(cluster) = self.clusters.get(cluster) {
            match tokio::time::timeout(FETCH, cluster.fetch_output(task, None)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%task, %error, "what a test printed may not be all there"),
                Err(_) => tracing::debug!(%task, "what a test printed takes its time"),
            }
        }
        let (logs, job, task) = (Arc::clone(&self.logs), job.clone(), task.clone());
        let read = move || {
            let query = LogQuery {
                replica: Some(ReplicaName::of_index(JobKind::PyTorchJob, 0)),
                tail: Some(LINES),
                q: Some("probe:".to_owned()),
                ..LogQuery::default()
            };
            logs.page(&job, &task, &query).ok()
        };
        let page = tokio::task::spawn_blocking(read).await.ok()??;
        let words =
            page.lines.into_iter().filter_map(|line| Some(line.text.strip_prefix("probe: ")?.to_owned()));
        words.into_iter().find_map(|text| {
            let rest = text.strip_prefix(word)?;
            Some(rest.trim_start_matches([' ', ',']).to_owned())
        })
    }
}

/// The speed that a test that passed says.
fn speed(said: &str) -> Option<f64> {
    let rest = said.strip_prefix("slowest transfer ")?;
    rest.split(' ').next()?.parse().ok().filter(|speed: &f64| speed.is_finite())
}

/// Whether the end of a run that confirmed nodes may wait for its cluster to say how many it has, without which none is quarantined: as
/// long as the tests that ended last could have taken.
fn may_wait(before: &Run, now: Time) -> bool {
    before.wake_at().is_some_and(|limit| now < limit)
}

/// The job that a group of a run is.
pub fn group_job(run_id: &str, group: u32) -> Option<JobId> {
    let mark = Sha256::new()
        .chain_update(b"group of a diagnosis\0")
        .chain_update(run_id)
        .chain_update(group.to_be_bytes());
    clock::job_id_of(&mark.finalize().into()).ok()
}

/// Makes the jobs of new groups and asks those that are over to end; gives those to hurry.
pub async fn perform(
    conn: &mut AnyConnection,
    diagnosis: &Diagnosis,
    number: u32,
    effects: &[Effect],
    now: Time,
) -> Result<Vec<JobId>, StoreError> {
    let mut hurry = Vec::new();
    // A group may have been begun and ended by the same step.
    let ended: BTreeSet<u32> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::End { group } => Some(*group),
            Effect::Start { .. } => None,
        })
        .collect();
    for effect in effects {
        match effect {
            Effect::Start { group, .. } if ended.contains(group) => {}
            Effect::Start { group, nodes } => {
                let Some(job_id) = group_job(&diagnosis.run_id, *group) else { continue };
                let spec = spec_of(diagnosis, number, *group, nodes);
                let step = Chain::start_on(job_id.clone(), spec, nodes.clone(), now);
                let head = Head::of(&step.chain, now);
                let kept = steps::Kept { chain: &step.chain, head: &head, records: &step.records, now };
                steps::create(conn, Origin { owner: &diagnosis.by, copied_from: None }, kept).await?;
                diagnoses::mark(conn, &job_id, &diagnosis.run_id).await?;
                hurry.push(job_id);
            }
            Effect::End { group } => {
                let Some(job_id) = group_job(&diagnosis.run_id, *group) else { continue };
                let head = jobs::head(conn, &job_id).await?;
                if head.is_some_and(|head| !head.summary.state.is_terminal()) {
                    ask(conn, &job_id, Request::Stop { force: true }, now).await?;
                    hurry.push(job_id);
                }
            }
        }
    }
    Ok(hurry)
}

/// What a run tells the job that it is about: its history shows it, its next attempts keep off the confirmed suspects, and where it waits for
/// the run it goes on.
fn found(diagnosis: &Diagnosis, finding: &Finding) -> Request {
    Request::Diagnosed {
        run_id: diagnosis.run_id.clone(),
        text: finding.text.clone(),
        suspects: finding.confirmed.clone(),
        task_id: diagnosis.task_id.clone(),
    }
}

async fn ask(
    conn: &mut AnyConnection,
    job_id: &JobId,
    request: Request,
    now: Time,
) -> Result<bool, StoreError> {
    let id = clock::new_id()
        .map_err(|why| StoreError::Unwritable { what: "a request", source: anyhow::Error::from(why) })?;
    inbox::add(conn, job_id, &id, &request, "holdfast", now).await
}

/// What a group runs as.
fn spec_of(diagnosis: &Diagnosis, number: u32, group: u32, nodes: &Nodes) -> JobSpec {
    let mut env = diagnosis.env.clone();
    if let Some(expected) = expected(&diagnosis.run) {
        env.insert("HOLDFAST_PROBE_EXPECT".to_owned(), format!("{expected:.1}"));
    }
    JobSpec {
        name: format!("bisect-{number}-group-{group}"),
        kind: JobKind::PyTorchJob,
        cluster: diagnosis.cluster.clone(),
        image: diagnosis.image.clone(),
        command: diagnosis.command.clone(),
        env,
        replicas: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
        processes_per_replica: 1,
        accelerators_per_replica: diagnosis.run.setup().accelerators_per_node,
        working_dir: diagnosis.working_dir.clone(),
        checkpoint_dir: None,
        kubernetes: diagnosis.pods.clone(),
        // The test is all that is to run there, and it runs once.
        fault_tolerance: FaultTolerance {
            health_checks: HealthChecks { enabled: false, checks: Vec::new(), command: None },
            ..FaultTolerance::default()
        },
    }
}

/// What a transfer should reach: the middle of what groups that passed have reached, so that two nodes alone are compared with something.
fn expected(run: &Run) -> Option<f64> {
    let groups = run.rounds().iter().flat_map(|round| &round.groups);
    let mut speeds: Vec<f64> = groups
        .filter_map(|group| match group.outcome {
            Some(Outcome::Pass { megabytes_per_second }) => megabytes_per_second,
            _ => None,
        })
        .collect();
    speeds.sort_by(f64::total_cmp);
    speeds.get(speeds.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_the_same_job_whenever_it_is_asked_for() {
        let job = |run, group| group_job(run, group).unwrap();
        assert_eq!(job("d1", 1), job("d1", 1));
        assert_ne!(job("d1", 1), job("d1", 2));
        assert_ne!(job("d1", 1), job("d2", 1));
    }

    #[test]
    fn the_speed_is_read_from_what_a_test_says() {
        assert_eq!(speed("slowest transfer 812.4 MB/s, all-reduce 640.2 MB/s"), Some(812.4));
        assert_eq!(speed("slowest transfer inf MB/s"), None);
        assert_eq!(speed(""), None);
    }

    #[test]
    fn a_server_that_takes_up_the_lead_hears_what_ran_before_it_says_that_a_limit_has_passed() {
        let nodes = ["n1", "n2"].map(|name| engine::ids::NodeName::new(name).unwrap());
        let setup = bisect::Setup {
            nodes: nodes.into(),
            alone: bisect::Alone::TellsSome,
            probe_seconds: 60,
            accelerators_per_node: 1,
        };
        let run = bisect::start(setup, Time(0)).run;
        let limit = run.wake_at().unwrap();
        let just_before = |at: Time| Time(at.micros() - 1);
        assert!(may_wait(&run, just_before(limit)), "the end of a run waits for its cluster");
        assert!(!may_wait(&run, limit), "and not for ever");
        let led_all_along = Term { epoch: 1, since: Time(0) };
        assert!(!led_all_along.is_late(&run, just_before(limit)));
        assert!(led_all_along.is_late(&run, limit));
        let came_late = Term { epoch: 2, since: limit.plus_seconds(5) };
        let heard = came_late.since.plus_seconds(RETURN_SECONDS);
        assert!(!came_late.is_late(&run, came_late.since));
        assert!(!came_late.is_late(&run, just_before(heard)));
        assert!(came_late.is_late(&run, heard));
        let came_early = Term { epoch: 2, since: Time(1) };
        assert!(!came_early.is_late(&run, just_before(limit)));
        assert!(came_early.is_late(&run, limit));
    }
}
