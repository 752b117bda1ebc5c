//! Runs of Bisect Diagnose.

use engine::{
    bisect::{self, Cost, Outcome, RoundKind, Verdict},
    ids::{JobId, NodeName, TaskId},
    nodes::standing::Held,
    time::Time,
};
use serde::{Deserialize, Serialize};

/// A diagnosis, on the chain and in lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiagnosisView {
    /// Its id.
    pub run_id: String,
    /// Counts the diagnoses of its job, from 1.
    pub number: u32,
    /// Its job.
    pub job_id: JobId,
    /// The job's name.
    pub job_name: String,
    /// The attempt whose nodes it tests.
    pub task_id: Option<TaskId>,
    /// Who began it: a person's name, or `policy`.
    pub by: String,
    /// The rule of the policy that asked for it; none: a person did.
    #[serde(default)]
    pub rule: Option<String>,
    /// The cluster of its nodes.
    pub cluster: String,
    /// The nodes.
    pub nodes: Vec<NodeName>,
    /// When it began.
    pub started_at: Time,
    /// When it ended; none while it goes on.
    pub ended_at: Option<Time>,
    /// How it ended; none while it goes on.
    pub verdict: Option<Verdict>,
    /// The same in words.
    pub text: Option<String>,
    /// Confirmed suspects.
    pub suspects: Vec<NodeName>,
    /// What became of each of them beyond this job.
    #[serde(default)]
    pub held: Vec<Held>,
    /// What it takes at most.
    pub plan: Cost,
    /// Accelerator-seconds used.
    pub accelerator_seconds: f64,
}

/// What to diagnose, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagnosisDraft {
    /// The nodes; none: those of the newest attempt.
    pub nodes: Option<Vec<NodeName>>,
    /// The test; none: the built-in one.
    pub command: Option<Vec<String>>,
    /// Time limit of one test, seconds; none: 120.
    pub limit_seconds: Option<i64>,
}

/// What a diagnosis would do, before it is begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiagnosisPlan {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub job_name: String,
    /// Its newest attempt.
    pub task_id: Option<TaskId>,
    /// The cluster of the nodes.
    pub cluster: String,
    /// The nodes to be tested.
    pub nodes: Vec<NodeName>,
    /// All nodes that could be.
    pub candidates: Vec<NodeName>,
    /// The command of each node.
    pub command: Vec<String>,
    /// What it takes at most.
    pub plan: Cost,
    /// Why it cannot be begun now; none: it can.
    pub refusal: Option<String>,
}

/// One diagnosis with its rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiagnosisDetail {
    /// The diagnosis.
    #[serde(flatten)]
    pub diagnosis: DiagnosisView,
    /// The command of each node.
    pub command: Vec<String>,
    /// Its rounds so far.
    pub rounds: Vec<DiagnosisRound>,
    /// What it found; none while it goes on.
    pub finding: Option<bisect::Finding>,
    /// Who asked to stop it, until it has.
    pub stopping: Option<String>,
    /// When this was read.
    pub now: Time,
}

/// A round: groups that are tested at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiagnosisRound {
    /// From 1.
    pub number: u32,
    /// What it is for.
    pub kind: RoundKind,
    /// Its groups.
    pub groups: Vec<DiagnosisGroup>,
}

/// Nodes that are tested together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiagnosisGroup {
    /// Those under test.
    pub nodes: Vec<NodeName>,
    /// One that passed before and makes up the numbers.
    pub partner: Option<NodeName>,
    /// It checks a suspicion.
    pub check: bool,
    /// When it had its nodes.
    pub started_at: Option<Time>,
    /// When it was over.
    pub ended_at: Option<Time>,
    /// What became of it.
    pub outcome: Option<Outcome>,
    /// The job that it runs as, which has its logs.
    pub job_id: Option<JobId>,
}
