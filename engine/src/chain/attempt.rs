//! The newest attempt: where it is, what its replicas and its launch do.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    EndReason, checks::Checks, exit_test::ExitTest, incident::Gathering, saving::Saving,
    standstill::Standstill,
};
use crate::{
    failure::{Exit, FailureType, Phase},
    ids::{JobId, NodeName, ReplicaName, TaskId},
    job::{JobKind, JobSpec},
    progress::{FIRST_STEP_LIMIT_SECONDS, History, LaunchProgress},
    record::{
        AttemptCause, AttemptRecord, AttemptResult, ExitCheckpointRecord, LaunchCause, LaunchRecord,
        ProofVerdict, Queue, State,
    },
    time::Time,
};

/// Whether the attempt is on the cluster: intent and observation of its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Presence {
    /// Its creation is ordered and not answered.
    Ordered,
    /// It was accepted; `seen` once the cluster has shown it.
    Exists { since: Time, seen: bool },
    /// Its removal is ordered; it was not seen to be gone.
    Removing {
        since: Time,
        force: bool,
        /// What keeps it, where the cluster said that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<String>,
    },
    /// Nothing of it is there.
    Gone,
}

/// What the attempt does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// Waits for resources.
    Queued,
    /// Has resources; the processes of its launch do not all run yet.
    Starting,
    /// They do.
    Running,
    /// An incident is open: everything is being stopped, evidence is gathered.
    Failing(Box<Gathering>),
    /// It is told to save before what was to happen happens.
    Saving(Box<Saving>),
    /// A person stopped it.
    Stopping,
    /// It is over, in this terminal state.
    Over(State),
}

/// One attempt in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub number: u32,
    pub task_id: TaskId,
    pub cause: AttemptCause,
    pub avoid: BTreeSet<NodeName>,
    /// The only nodes it may run on; empty: any.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub only: BTreeSet<NodeName>,
    /// Those of them that only a quarantine keeps it off.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub quarantined: BTreeSet<NodeName>,
    pub presence: Presence,
    pub stage: Stage,
    pub submitted_at: Time,
    /// When it had its resources.
    pub placed_at: Option<Time>,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    pub queue: Option<Queue>,
    /// When the history was last told why it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_told: Option<Time>,
    /// By index: the first is the master.
    pub replicas: Vec<Replica>,
    /// How many of them, the last ones, start no process of the job: the workers of a Ray cluster.
    #[serde(default, skip_serializing_if = "is_none")]
    pub idle: u32,
    pub launch: Launch,
    pub in_place_used: u32,
    pub hang_used: u32,
    pub incidents: u32,
    pub failure_type: Option<FailureType>,
    pub fault: Option<String>,
    pub result: Option<AttemptResult>,
    /// The newest save before an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_checkpoint: Option<ExitCheckpointRecord>,
    /// The newest test of Exit ckpt Notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_test: Option<Box<ExitTest>>,
    /// What the job had reached when the attempt began.
    pub reached_before: Option<u64>,
}

/// One replica of the attempt. What is as at the beginning is not stored, since a job has up to 4,096 of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Replica {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// The newest report taken from it.
    pub taken: u64,
    /// Its agent has reported.
    pub ready: bool,
    /// Since when its agent has not been heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<Time>,
    /// It is over: nothing can be started in it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// What its processes of the current launch do.
    #[serde(skip_serializing_if = "Run::is_new")]
    pub run: Run,
}

/// How a replica ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub exit: Option<Exit>,
    pub reason: EndReason,
}

impl Ended {
    /// Whether a later word of the cluster says why, where the first only said that it ended. What was explained once and
    /// what ended well stays as it is, so that the same end never counts twice.
    pub fn is_explained_by(&self, later: &EndReason) -> bool {
        let vague = |reason: &EndReason| matches!(reason, EndReason::Exited | EndReason::Lost(_));
        vague(&self.reason) && !vague(later) && !self.exit.is_some_and(Exit::is_success)
    }
}

/// The processes of the current launch in one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Run {
    pub started: bool,
    /// Bit n: local process n finished its work with 0. A replica has at most 64 processes.
    #[serde(skip_serializing_if = "is_zero")]
    pub finished: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// It has told what its health checks found.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checked: bool,
    /// Bit n: the n-th of [`Check::ALL`](crate::checks::Check::ALL) failed in it.
    #[serde(skip_serializing_if = "is_zero_byte")]
    pub failed_checks: u8,
}

impl Run {
    fn is_new(&self) -> bool {
        *self == Self::default()
    }
}

fn is_zero(bits: &u64) -> bool {
    *bits == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero_byte(bits: &u8) -> bool {
    *bits == 0
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

/// The current launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Launch {
    pub number: u32,
    pub cause: LaunchCause,
    /// When it was ordered to run: at once after an incident, otherwise once every replica is ready.
    pub ordered_at: Option<Time>,
    pub started_at: Option<Time>,
    /// When that became known, which may be long after it.
    pub known_at: Option<Time>,
    /// Its agents could not be heard for a while; none of its limits ends before this.
    pub spared_until: Option<Time>,
    /// The newest report that processes started.
    pub started_by: Option<Time>,
    /// The newest that processes are gone.
    pub gone_by: Option<Time>,
    pub ended_at: Option<Time>,
    pub phase: Phase,
    pub progress: LaunchProgress,
    /// The verdict that was last told.
    pub told: ProofVerdict,
    /// The health checks before it; none where it starts without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<Checks>,
    /// When it was last seen to make progress: a step, a checkpoint, a phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_at: Option<Time>,
    /// Its processes that do not move.
    #[serde(default, skip_serializing_if = "Standstill::is_empty")]
    pub still: Standstill,
}

impl Launch {
    pub fn new(number: u32, cause: LaunchCause, ordered_at: Option<Time>, history: &History) -> Self {
        Self {
            number,
            cause,
            ordered_at,
            started_at: None,
            known_at: None,
            spared_until: None,
            started_by: None,
            gone_by: None,
            ended_at: None,
            phase: Phase::Starting,
            progress: LaunchProgress::new(history),
            told: ProofVerdict::Pending,
            checks: None,
            moved_at: None,
            still: Standstill::default(),
        }
    }

    /// The same, with health checks before it, where there are some.
    pub fn after(mut self, checks: Option<Checks>) -> Self {
        self.checks = checks;
        self
    }

    /// Processes were gone then.
    pub fn lose_processes(&mut self, at: Time) {
        self.gone_by = self.gone_by.max(Some(at));
    }

    /// When a launch without a step is said to make no progress. Counted from when its start was known: where it was told late, its
    /// steps follow in the same breath.
    pub fn first_step_due(&self) -> Option<Time> {
        let due = self.known_at.or(self.started_at)?.plus_seconds(FIRST_STEP_LIMIT_SECONDS);
        Some(self.spare(due))
    }

    /// A limit, or the end of the time for which none of them ends.
    pub fn spare(&self, due: Time) -> Time {
        self.spared_until.map_or(due, |until| until.max(due))
    }

    pub fn record(&self, now: Time) -> LaunchRecord {
        LaunchRecord {
            number: self.number,
            cause: self.cause,
            started_at: self.started_at,
            ended_at: self.ended_at,
            steps: self.progress.steps(),
            proof: self.progress.proof(self.first_step_due().is_some_and(|due| now >= due)),
            health_checks: self.checks.as_ref().map(|checks| checks.record.clone()),
        }
    }
}

impl Attempt {
    /// A new attempt, to be created on the cluster: off the nodes that the job keeps off, and those that are kept out for every job.
    pub fn order(
        job: &JobId,
        spec: &JobSpec,
        number: u32,
        cause: AttemptCause,
        (own, kept_out): (BTreeSet<NodeName>, &BTreeSet<NodeName>),
        history: &History,
        now: Time,
    ) -> Self {
        Self {
            number,
            task_id: TaskId::of_attempt(&spec.name, job, number),
            cause,
            only: BTreeSet::new(),
            quarantined: kept_out.difference(&own).cloned().collect(),
            avoid: own.union(kept_out).cloned().collect(),
            presence: Presence::Ordered,
            stage: Stage::Queued,
            submitted_at: now,
            placed_at: None,
            started_at: None,
            ended_at: None,
            queue: None,
            wait_told: None,
            replicas: vec![Replica::default(); spec.replicas as usize],
            idle: spec.replicas - spec.starting_replicas(),
            launch: Launch::new(0, LaunchCause::Initial, None, history).after(Checks::of(spec)),
            in_place_used: 0,
            hang_used: 0,
            incidents: 0,
            failure_type: None,
            fault: None,
            result: None,
            exit_checkpoint: None,
            exit_test: None,
            reached_before: history.reached,
        }
    }

    /// The index of a replica of this attempt.
    pub fn replica(&self, name: &ReplicaName) -> Option<usize> {
        let index = match name.as_str() {
            "master-0" | "head-0" => 0,
            other => other.strip_prefix("worker-")?.parse::<usize>().ok()?.checked_add(1)?,
        };
        (index < self.replicas.len()).then_some(index)
    }

    /// Waits again, for other resources than it had; a launch that was ordered is over, and none of its replicas is what it was.
    pub fn requeue(&mut self, spec: &JobSpec, history: &History) {
        if self.launch.ordered_at.is_some() {
            let number = self.launch.number.saturating_add(1);
            self.launch = Launch::new(number, LaunchCause::Requeue, None, history).after(Checks::of(spec));
        }
        for replica in &mut self.replicas {
            // Agents count their reports on.
            *replica = Replica { taken: replica.taken, ..Replica::default() };
        }
        self.stage = Stage::Queued;
        self.placed_at = None;
        self.queue = None;
    }

    /// Its processes are wanted: it waits, starts or runs.
    pub fn is_wanted(&self) -> bool {
        matches!(self.stage, Stage::Queued | Stage::Starting | Stage::Running)
    }

    /// Those that start processes of the job, and have an agent.
    pub fn starting(&self) -> &[Replica] {
        &self.replicas[..self.replicas.len().saturating_sub(self.idle as usize)]
    }

    /// No process of the launch is left anywhere.
    pub fn is_quiet(&self) -> bool {
        self.starting().iter().all(Replica::is_quiet)
    }

    /// When its launch ended: when the last process was gone, and `now` while one may be left.
    pub fn launch_ended_at(&self, processes: u32, now: Time) -> Time {
        let launch = &self.launch;
        let over = self.starting().iter().all(|replica| replica.is_quiet() || replica.is_finished(processes));
        let gone = launch.gone_by.filter(|_| over).unwrap_or(now);
        gone.max(launch.started_at.or(launch.ordered_at).unwrap_or(self.submitted_at)).min(now)
    }

    /// The first replica that is over.
    pub fn first_ended(&self) -> Option<usize> {
        self.replicas.iter().position(|replica| replica.ended.is_some())
    }

    /// What the cluster says about a preemption, if there is one.
    pub fn preempted(&self) -> Option<&str> {
        self.replicas.iter().find_map(|replica| match &replica.ended {
            Some(Ended { reason: EndReason::Preempted(text), .. }) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The attempt's own state.
    pub fn state(&self) -> State {
        match self.stage {
            Stage::Queued => State::Queued,
            Stage::Starting if self.launch.cause.is_restart() => State::Recovering,
            Stage::Starting => State::Starting,
            Stage::Running => State::Running,
            Stage::Failing(_) => State::Recovering,
            Stage::Saving(ref saving) if saving.goes_on() => State::Saving,
            Stage::Saving(_) | Stage::Stopping => State::Stopping,
            Stage::Over(state) => state,
        }
    }

    /// Since when none of its agents has been heard; none while one is, or before the first was.
    pub fn silent_since(&self) -> Option<Time> {
        if !matches!(self.stage, Stage::Starting | Stage::Running) {
            return None;
        }
        let mut since = None;
        for replica in self.replicas.iter().filter(|replica| replica.ended.is_none() && replica.ready) {
            since = since.max(Some(replica.silent?));
        }
        since
    }

    /// The nodes it has or had.
    pub fn nodes(&self) -> BTreeSet<NodeName> {
        self.replicas.iter().filter_map(|replica| replica.node.clone()).collect()
    }

    pub fn record(&self) -> AttemptRecord {
        AttemptRecord {
            task_id: self.task_id.clone(),
            number: self.number,
            cause: self.cause,
            state: self.state(),
            result: self.result,
            failure_type: self.failure_type,
            fault: self.fault.clone(),
            submitted_at: Some(self.submitted_at),
            placed_at: self.placed_at,
            started_at: self.started_at,
            ended_at: self.ended_at,
            nodes: self.nodes().into_iter().collect(),
            avoided_nodes: self.avoid.iter().cloned().collect(),
            quarantined_nodes: self.quarantined.iter().cloned().collect(),
            in_place_restarts: self.in_place_used,
            hang_restarts: self.hang_used,
            queue: self.queue.clone(),
            exit_checkpoint: self.exit_checkpoint.clone(),
            exit_test: self.exit_test.as_ref().map(|test| Box::new(test.record())),
        }
    }
}

impl Replica {
    /// No process of the launch is left in it.
    pub fn is_quiet(&self) -> bool {
        self.run.stopped || self.ended.is_some()
    }

    /// All its processes finished their work.
    pub fn is_finished(&self, processes: u32) -> bool {
        let all = u64::MAX >> (64 - processes.clamp(1, 64));
        self.run.finished & all == all
    }

    /// All its processes count as finished: it ended with 0, whatever its last reports were.
    pub fn finish(&mut self) {
        self.run.finished = u64::MAX;
    }
}

/// The name of a replica by its index.
pub(super) fn name(kind: JobKind, index: usize) -> ReplicaName {
    ReplicaName::of_index(kind, u32::try_from(index).unwrap_or(u32::MAX))
}
