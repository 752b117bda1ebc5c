//! A failure, what is done about it, and what it cost.

use serde::{Deserialize, Serialize};

use crate::{
    failure::{Confidence, Evidence, FailureType, Phase, Root},
    hang::HangRecord,
    ids::{IncidentId, NodeName, TaskId},
    time::Time,
};

/// One failure of an attempt. Key: `id`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IncidentRecord {
    /// Its id.
    pub id: IncidentId,
    /// When it was noticed.
    pub at: Time,
    /// The launch it ended.
    pub launch: u32,
    /// What kind.
    pub failure_type: FailureType,
    /// How sure.
    pub confidence: Confidence,
    /// What the training was doing.
    pub phase: Phase,
    /// The step it had reached.
    pub step: Option<u64>,
    /// Ranks that only followed.
    pub cascade_ranks: u32,
    /// Where it began.
    pub root: Option<Root>,
    /// A sentence: `Xid 79 on n2, rank 1`.
    pub fault: String,
    /// What to look at or change.
    pub hint: Option<String>,
    /// The lines.
    pub evidence: Vec<Evidence>,
    /// Why it was judged to hang; none where the program said so itself, or it is no hang.
    #[serde(default)]
    pub hang: Option<Box<HangRecord>>,
    /// The same root has the same one.
    pub fingerprint: String,
    /// The same error at the same step as the incident before, without progress between.
    pub repeats: bool,
    /// The answer.
    pub decision: DecisionRecord,
    /// The answer before that one, where the nodes were diagnosed first; it charged nothing.
    #[serde(default)]
    pub diagnosed: Option<Box<DecisionRecord>>,
    /// When what happened.
    pub clock: Clock,
    /// What it cost.
    pub cost: Cost,
    /// A person's answer to "Was this right?".
    pub right: Option<bool>,
}

impl IncidentRecord {
    /// The rule of its verdict: `xid-79`, `exit-1`, `cluster-node-lost`.
    pub fn rule(&self) -> Option<&str> {
        self.fingerprint.split(':').nth(1)
    }
}

/// What is done about an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The next launch on the same nodes.
    RestartInPlace,
    /// The next attempt, which queues again.
    Resubmit,
    /// Stop the chain with a reason.
    FailFast,
    /// Start a diagnosis.
    Diagnose,
    /// Nothing.
    None,
}

/// Which budget an action used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// Resubmissions, per job.
    TaskRestarts,
    /// In-place restarts after failures other than hangs, per attempt.
    InPlaceRestarts,
    /// In-place restarts after hangs, per attempt.
    HangRestarts,
    /// Free.
    None,
}

/// The answer to an incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DecisionRecord {
    /// What is done.
    pub action: Action,
    /// The rule that fired.
    pub rule: String,
    /// The version of its policy.
    pub policy_version: u32,
    /// Why, in words, refusals of earlier choices included.
    pub reason: String,
    /// The budget it used.
    pub charged: Budget,
    /// Used before; of no budget 0.
    pub before: u32,
    /// Used after.
    pub after: u32,
    /// What that budget allows; none where nothing was charged.
    pub allowed: Option<u32>,
    /// Nodes the next attempt keeps off because of this incident.
    pub avoid: Vec<NodeName>,
    /// When the action may begin, after the back-off.
    pub next_at: Option<Time>,
    /// The attempt that follows.
    pub next_task_id: Option<TaskId>,
}

/// When what happened in a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Clock {
    /// The failure was noticed.
    pub noticed_at: Time,
    /// The next launch was ordered or the next attempt submitted.
    pub submitted_at: Option<Time>,
    /// It had its resources; all processes ran.
    pub resources_at: Option<Time>,
    /// Its first step was printed.
    pub first_step_at: Option<Time>,
}

/// What an incident cost. Seconds of the whole job; none while not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cost {
    /// From the first sign (the evidence, the exit) until it was noticed.
    pub detect_seconds: Option<f64>,
    /// The notified save before the end.
    pub save_seconds: Option<f64>,
    /// Waiting for resources, the back-off included.
    pub queue_seconds: Option<f64>,
    /// Stopping what was left and starting the processes.
    pub start_seconds: Option<f64>,
    /// From the processes' start until training could go on: the checkpoint was loaded, and by the usual pace the first printed
    /// step was begun.
    pub load_seconds: Option<f64>,
    /// Making again the steps that were lost, the first printed one included.
    pub redo_seconds: Option<f64>,
    /// How many steps those are.
    pub redone_steps: Option<u64>,
    /// All of it in accelerator-seconds, without the queue, which holds none.
    pub accelerator_seconds: Option<f64>,
}
