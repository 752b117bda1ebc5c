//! Nodes as pages and the API see them.

use engine::{
    ids::{JobId, NodeName, TaskId},
    nodes::{
        forecast::Forecast,
        standing::{NodeState, Quarantine, Trip, Uncounted},
    },
    record::{NodeCounts, StrikeRecord},
    time::Time,
};
use serde::{Deserialize, Serialize};

/// The nodes of one cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterNodes {
    /// Its configured name.
    pub cluster: String,
    /// Its nodes; none where they are not known.
    pub nodes: Vec<NodeView>,
    /// Why they are not known.
    pub trouble: Option<String>,
    /// How many of its nodes are quarantined, and may be.
    pub cap: CapView,
}

/// How many nodes of a cluster are quarantined, and may be by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CapView {
    /// The cluster.
    pub cluster: String,
    /// Nodes that are quarantined now, by whomever.
    pub quarantined: u32,
    /// Those of them that count: all since the cap was last reset.
    pub counted: u32,
    /// How many may count at once; none while it is not known how many nodes there are.
    pub allowed: Option<u32>,
    /// When a person last reset it.
    pub reset_at: Option<Time>,
    /// What it stopped; nothing is quarantined by itself until a person resets it.
    pub tripped: Option<Trip>,
    /// What it stopped and who reset it, newest first, at most 100.
    pub history: Vec<NodeEvent>,
}

/// A node with what is held against it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeView {
    /// Its cluster.
    pub cluster: String,
    /// Its name.
    pub name: NodeName,
    /// How it stands.
    pub state: NodeState,
    /// Slots it has.
    pub slots: u32,
    /// Slots in use.
    pub used: u32,
    /// Jobs that run on it now.
    pub jobs: Vec<NodeJob>,
    /// Jobs that keep off it for reasons of their own with their next attempt; they may have ended.
    pub avoided_by: Vec<NodeJob>,
    /// Suspicions, newest first, at most 100.
    pub strikes: Vec<StrikeView>,
    /// How many of them count.
    pub strikes_counted: u32,
    /// How many may count before it is quarantined; 1 on trial.
    pub strikes_limit: u32,
    /// Why it is kept out for every job, by whom and until when.
    pub quarantine: Option<Quarantine>,
    /// Since when it is on trial: its quarantine ended by its time. Passing health checks does not end that.
    pub trial_since: Option<Time>,
    /// Nodes of its cluster by what they do.
    pub counts: NodeCounts,
}

/// A job on a node's page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeJob {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub name: String,
    /// The attempt.
    pub task_id: TaskId,
}

/// A suspicion with the job it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StrikeView {
    /// The strike.
    #[serde(flatten)]
    pub strike: StrikeRecord,
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub job_name: String,
    /// Why it does not count; none: it does.
    pub uncounted: Option<Uncounted>,
    /// When it counts no more.
    pub expires_at: Time,
}

/// Somebody, or Holdfast itself, changed how a node stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeEvent {
    /// When.
    pub at: Time,
    /// Who: `holdfast`, or a person's name.
    pub by: String,
    /// What, a sentence.
    pub text: String,
}

/// One node with all that is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodePage {
    /// The node.
    #[serde(flatten)]
    pub node: NodeView,
    /// Who changed how it stands, newest first, at most 100.
    pub history: Vec<NodeEvent>,
    /// What would follow if it were quarantined.
    pub forecast: Forecast,
    /// How many nodes of its cluster are quarantined.
    pub cap: CapView,
}

/// Puts a node out for every job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct QuarantineOrder {
    /// Why, 1 to 300 characters.
    pub reason: String,
    /// Until when, at most a year; none: until a person releases it.
    #[serde(default)]
    pub until: Option<Time>,
    /// Its cluster; none: the first that has a node of this name.
    #[serde(default)]
    pub cluster: Option<String>,
    /// Also where that keeps a job from starting.
    #[serde(default)]
    pub confirm: bool,
}
