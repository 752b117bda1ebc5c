//! What is kept about a chain: attempts, launches, incidents, decisions, events. These are the shapes of
//! `GET /api/v1/jobs/{id}/chain`; a record replaces the one with the same key.

mod checks;
mod exit;
mod exit_test;
mod incident;
mod reason;
mod summary;

use serde::{Deserialize, Serialize};

pub use self::{
    checks::{CheckFailure, CheckSummary, ChecksState, LaunchChecks},
    exit::{ExitCheckpointRecord, ExitReason, SaveOutcome},
    exit_test::{ExitTestRecord, ExitTestVerdict, ReplicaTestRecord},
    incident::{Action, Budget, Clock, Cost, DecisionRecord, IncidentRecord},
    reason::EventReason,
    summary::{Budgets, Diagnostics, Ledger, Summary, Used, WhyNot},
};

use crate::{
    failure::FailureType,
    ids::{IncidentId, NodeName, ReplicaName, TaskId},
    sync::{Point, RankStack},
    time::Time,
};

/// The state of a job, and of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for resources.
    Queued,
    /// Has resources; processes are being started.
    Starting,
    /// Processes run.
    Running,
    /// From an incident until processes run again, queueing included.
    Recovering,
    /// Saves before it exits.
    Saving,
    /// Being stopped.
    Stopping,
    /// All processes finished with 0.
    Succeeded,
    /// Ended by a failure.
    Failed,
    /// Ended by a person; of an attempt also by preemption.
    Stopped,
}

impl State {
    /// Whether nothing more happens by itself.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Stopped)
    }

    /// The state as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Recovering => "recovering",
            Self::Saving => "saving",
            Self::Stopping => "stopping",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }

    /// All states.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::Recovering,
        Self::Saving,
        Self::Stopping,
        Self::Succeeded,
        Self::Failed,
        Self::Stopped,
    ];
}

/// What goes on beside the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Substate {
    /// A new launch in the same attempt is being made.
    InPlaceRestart,
    /// Waits before the next attempt.
    BackOff,
    /// The newest attempt is a resubmission.
    Resubmitted,
    /// A diagnosis runs.
    Diagnosing,
    /// A hang is suspected.
    SuspectedHang,
    /// It waits in vain: no set of nodes, or no quota, can ever hold it, or its queue or its namespace does not take it.
    Unschedulable,
    /// The cluster or the agents cannot be reached.
    Unknown,
}

/// Why an attempt was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttemptCause {
    /// The first run.
    Initial,
    /// A failure of the attempt before.
    Failure,
    /// The attempt before was preempted or drained; not charged.
    Preemption,
    /// A person resubmitted it; not charged.
    Manual,
    /// A test of Exit ckpt Notification, at which the program ended and replicas with it; no failure, not charged.
    ExitTest,
}

/// How an attempt was dealt with at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttemptResult {
    /// It finished its work.
    Succeeded,
    /// Another attempt follows.
    Resubmitted,
    /// A rule stopped the chain.
    FailFast,
    /// The task restarts were used up.
    BudgetUsed,
    /// Auto Failover is off.
    AutoFailoverOff,
    /// The cluster refused it.
    Refused,
    /// A person stopped it.
    Stopped,
}

/// Why a launch was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LaunchCause {
    /// The first of its attempt.
    Initial,
    /// A failure other than a hang.
    Failure,
    /// A hang.
    Hang,
    /// A queue took the attempt's resources and gave it others later; no failure, not charged.
    Requeue,
    /// A test of Exit ckpt Notification, at which the program ended; no failure, not charged.
    ExitTest,
}

impl LaunchCause {
    /// It is started again in place, after a failure or a test.
    pub const fn is_restart(self) -> bool {
        matches!(self, Self::Failure | Self::Hang | Self::ExitTest)
    }
}

/// One attempt. Key: `task_id`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptRecord {
    /// Its id and the name of its object on the cluster.
    pub task_id: TaskId,
    /// From 1.
    pub number: u32,
    /// Why it was made.
    pub cause: AttemptCause,
    /// Its own state.
    pub state: State,
    /// How it was dealt with; none while it lives.
    pub result: Option<AttemptResult>,
    /// Of its latest incident.
    pub failure_type: Option<FailureType>,
    /// Fault description of its latest incident.
    pub fault: Option<String>,
    /// When it was handed to the cluster.
    pub submitted_at: Option<Time>,
    /// When it had its resources, the last time where they were taken back from it; none of attempts of earlier versions.
    pub placed_at: Option<Time>,
    /// When its first processes ran.
    pub started_at: Option<Time>,
    /// When it ended.
    pub ended_at: Option<Time>,
    /// Where it runs or ran.
    pub nodes: Vec<NodeName>,
    /// Nodes it keeps off.
    pub avoided_nodes: Vec<NodeName>,
    /// Those of them that it keeps off only because they were quarantined for every job.
    #[serde(default)]
    pub quarantined_nodes: Vec<NodeName>,
    /// In-place restarts used after failures other than hangs.
    pub in_place_restarts: u32,
    /// In-place restarts used after hangs.
    pub hang_restarts: u32,
    /// Why it waits; none once it runs.
    pub queue: Option<Queue>,
    /// How the exit notification went.
    pub exit_checkpoint: Option<ExitCheckpointRecord>,
    /// The newest test of Exit ckpt Notification; none where none was made in this attempt.
    #[serde(default)]
    pub exit_test: Option<Box<ExitTestRecord>>,
}

impl AttemptRecord {
    /// When it no longer waited for resources; from then on it starts.
    pub fn waited_until(&self) -> Option<Time> {
        // One whose resources were taken back had others before.
        match (self.placed_at, self.started_at) {
            (Some(placed), Some(started)) => Some(placed.min(started)),
            (placed, started) => placed.or(started),
        }
    }
}

/// Why an attempt still waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Queue {
    /// What binds.
    pub reason: QueueReason,
    /// The same in the cluster's own words.
    pub text: String,
    /// Place in the queue, from 1; none where the cluster does not say.
    pub position: Option<u32>,
    /// Nodes it needs.
    pub needs_nodes: Option<u32>,
    /// Nodes of the cluster by what they do.
    pub nodes: Option<NodeCounts>,
}

impl Queue {
    /// One of which nothing but the reason is known.
    #[must_use]
    pub fn of(reason: QueueReason, text: impl Into<String>) -> Self {
        Self { reason, text: text.into(), position: None, needs_nodes: None, nodes: None }
    }
}

/// What keeps an attempt waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueueReason {
    /// Other jobs have the slots.
    Busy,
    /// It would fit if it did not avoid nodes.
    AvoidedNodes,
    /// It fits no set of nodes, ever.
    Unschedulable,
    /// A quota has no room for it now.
    Quota,
    /// It asks for more than its queue's quota can ever give.
    QuotaTooSmall,
    /// Its queue does not exist, is stopped or does not take it, or its namespace never lets its pods in.
    Inadmissible,
    /// Its queue has given it up; a person must let it in again.
    Deactivated,
    /// There is quota for it; what is to be checked before it may begin is not done.
    AdmissionChecks,
    /// Its queue took its resources and will give it others.
    Requeued,
    /// Its pods start together or not at all, and there is no room for all of them.
    Gang,
    /// It is suspended on the cluster, by its queue or by hand.
    Suspended,
    /// Taints, selectors or other constraints.
    Constraints,
    /// It has its nodes, and its containers wait for their turn.
    Starting,
    /// It has its nodes, and something keeps its containers from starting.
    Blocked,
}

impl QueueReason {
    /// It waits in vain until a person does something about the job, the queue or the cluster.
    pub const fn is_in_vain(self) -> bool {
        match self {
            Self::Unschedulable | Self::QuotaTooSmall | Self::Inadmissible | Self::Deactivated => true,
            Self::Busy
            | Self::AvoidedNodes
            | Self::Quota
            | Self::AdmissionChecks
            | Self::Requeued
            | Self::Gang
            | Self::Suspended
            | Self::Constraints
            | Self::Starting
            | Self::Blocked => false,
        }
    }
}

/// Nodes of a cluster; busy + avoided + free = total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeCounts {
    /// All.
    pub total: u32,
    /// In use.
    pub busy: u32,
    /// Kept off by this job.
    pub avoided: u32,
    /// Free for it.
    pub free: u32,
}

/// One launch. Key: `task_id` (beside it) and `number`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LaunchRecord {
    /// From 0.
    pub number: u32,
    /// Why it was made.
    pub cause: LaunchCause,
    /// When all its processes ran.
    pub started_at: Option<Time>,
    /// When the last of them was gone.
    pub ended_at: Option<Time>,
    /// Steps it made.
    pub steps: Option<StepRange>,
    /// Whether training resumed.
    pub proof: Proof,
    /// The health checks before it; none where it was started without any.
    #[serde(default)]
    pub health_checks: Option<LaunchChecks>,
}

/// Steps of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepRange {
    /// The first that was printed.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// The four checks that training resumed. `ok` is none while it is not known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Proof {
    /// Resources acquired and instances ready.
    pub resources: ResourcesCheck,
    /// The expected checkpoint loaded.
    pub checkpoint: CheckpointCheck,
    /// Steps and loss go on.
    pub progress: ProgressCheck,
    /// A new checkpoint written.
    pub new_checkpoint: NewCheckpointCheck,
    /// What they come to.
    pub verdict: ProofVerdict,
}

/// Check 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResourcesCheck {
    /// Passed.
    pub ok: Option<bool>,
    /// When it was known.
    pub at: Option<Time>,
    /// Processes that run.
    pub ready: u32,
}

/// Check 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckpointCheck {
    /// Passed.
    pub ok: Option<bool>,
    /// When it was known.
    pub at: Option<Time>,
    /// The step of the checkpoint that was loaded.
    pub step: Option<u64>,
    /// The newest step saved before.
    pub expected: Option<u64>,
    /// Where it was loaded from.
    pub path: Option<String>,
}

/// Check 3.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProgressCheck {
    /// Passed: the first step follows the loaded checkpoint and the loss goes on.
    pub ok: Option<bool>,
    /// When it was known.
    pub at: Option<Time>,
    /// The first step printed.
    pub step: Option<u64>,
    /// Its loss.
    pub loss: Option<f64>,
}

/// Check 4.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewCheckpointCheck {
    /// Passed.
    pub ok: Option<bool>,
    /// When it was written.
    pub at: Option<Time>,
    /// Its step.
    pub step: Option<u64>,
}

/// What the proof comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProofVerdict {
    /// All four checks passed.
    Resumed,
    /// The first launch of all, or nothing had been saved: it began at the beginning, as it should.
    StartedFresh,
    /// A checkpoint was there, yet it began at step 0.
    RestartedFromZero,
    /// It loaded an older checkpoint than the newest.
    OlderCheckpoint,
    /// The loss is far from where it was.
    LossJumped,
    /// It ended, or its start limit passed, without a step.
    NoProgress,
    /// Not all checks are known.
    Pending,
}

/// One entry of the job's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventRecord {
    /// When.
    pub at: Time,
    /// What kind.
    pub kind: EventKind,
    /// What it says, in one word; none of an entry that only accompanies others.
    pub reason: Option<EventReason>,
    /// The attempt it is about.
    pub task_id: Option<TaskId>,
    /// Who: `holdfast`, `cluster`, or a person's name.
    pub by: String,
    /// What, a sentence.
    pub text: String,
}

/// Kinds of events, the filter of the Events tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The job or an attempt changed state.
    State,
    /// A failure.
    Incident,
    /// An answer to a failure, refusals included.
    Decision,
    /// Queue and placement.
    Scheduling,
    /// Nodes kept off, strikes.
    Node,
    /// Checkpoints and the recovery check.
    Progress,
    /// Something a person did.
    Person,
    /// A fault of the supervision itself.
    Warning,
}

/// A suspicion recorded against a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StrikeRecord {
    /// The node.
    pub node: NodeName,
    /// When.
    pub at: Time,
    /// The incident that gave it.
    pub incident: IncidentId,
    /// Its type.
    pub failure_type: FailureType,
    /// A sentence.
    pub text: String,
}

/// Points of one launch to be kept, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointsRecord {
    /// The launch.
    pub launch: u32,
    /// Who printed them.
    pub replica: ReplicaName,
    /// The points.
    pub points: Vec<Point>,
}

/// Stacks of processes that stood still, to be kept by launch and rank; newer ones replace older ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StacksRecord {
    /// The launch.
    pub launch: u32,
    /// The replica whose processes they are.
    pub replica: ReplicaName,
    /// The stacks.
    pub stacks: Vec<RankStack>,
}

/// Something to keep.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    target_pointer_width = "64",
    expect(clippy::large_enum_variant, reason = "a step has a handful of records and hands them on at once")
)]
pub enum Record {
    /// An attempt, new or changed.
    Attempt(AttemptRecord),
    /// A launch of an attempt, new or changed.
    Launch(TaskId, LaunchRecord),
    /// An incident of an attempt, new or changed.
    Incident(TaskId, IncidentRecord),
    /// Metric points of an attempt.
    Points(TaskId, PointsRecord),
    /// An entry of the history; never replaced.
    Event(EventRecord),
    /// A suspicion against a node.
    Strike(StrikeRecord),
    /// Stacks of an attempt.
    Stacks(TaskId, StacksRecord),
}
