//! Where attempts run. One trait for the local machine and for Kubernetes.

pub mod kubernetes;
pub mod local;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use async_trait::async_trait;
use engine::{
    bisect,
    chain::{Observation, Plan},
    ids::{JobId, NodeName, ReplicaName, TaskId},
    job::{ClusterKind, ClusterTrouble, Finding, JobKind, JobSpec, PodOptions},
    record::{EventRecord, QueueReason},
};
use tokio::sync::mpsc;

/// A cluster as the driver uses it. Every call is idempotent and has a time limit of its own.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Its configured name.
    fn name(&self) -> &str;

    /// What it is made of.
    fn kind(&self) -> ClusterKind;

    /// Makes the attempt. One that is there already and is ours is a success.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] is final and nothing runs; any other error leaves it open whether the attempt exists.
    async fn create(&self, order: &Order) -> Result<(), ClusterError>;

    /// Asks for the removal of everything of an attempt of this kind of job, which names this namespace; an observation says when it is done.
    /// One that does not exist is a success. Where an earlier request is not done yet, the answer says what keeps the attempt, if that is
    /// known.
    async fn delete(
        &self,
        task: &TaskId,
        kind: JobKind,
        namespace: Option<&str>,
        force: bool,
    ) -> Result<Option<String>, ClusterError>;

    /// What there is now of an attempt of this kind of job, which names this namespace.
    async fn observe(
        &self,
        task: &TaskId,
        kind: JobKind,
        namespace: Option<&str>,
    ) -> Result<Observation, ClusterError>;

    /// The attempts of this installation that are there, whether anybody knows of them or not, as last seen. A cluster that finds by itself
    /// what is left over has none to tell.
    async fn present(&self) -> Result<Vec<Present>, ClusterError> {
        Ok(Vec::new())
    }

    /// Brings what a replica has printed so far, the first one where none is named, to where logs are read from. A cluster whose logs are
    /// there already, or that does not have this attempt, has nothing to do.
    ///
    /// # Errors
    /// It could not be had; what was brought before can still be read.
    async fn fetch_output(&self, _task: &TaskId, _replica: Option<&ReplicaName>) -> Result<(), ClusterError> {
        Ok(())
    }

    /// The object that an order is made as, without any secret.
    ///
    /// # Errors
    /// Why there is none.
    fn manifest(&self, _order: &Order) -> Result<serde_json::Value, String> {
        Err("this cluster makes no objects".to_owned())
    }

    /// The namespace that the attempts of a job are in, where this cluster is not configured with it: nothing of them can be seen or
    /// removed then, and nothing follows from that.
    fn missing_namespace(&self, _spec: &JobSpec) -> Option<String> {
        None
    }

    /// What it cannot do now, as far as that is known without asking it.
    fn troubles(&self) -> Vec<ClusterTrouble> {
        Vec::new()
    }

    /// Says something about an attempt where people look at the cluster's own objects. Told again it changes nothing. A cluster without
    /// objects has nothing to do.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] is final; any other error leaves it open whether it was said.
    async fn tell(&self, _note: &Note) -> Result<(), ClusterError> {
        Ok(())
    }

    /// What there is now of what a job needs, the worst first. Takes a few seconds at most; what could not be asked is said as that.
    async fn check(&self, _spec: &JobSpec) -> Vec<Finding> {
        Vec::new()
    }

    /// Its nodes. A cluster without nodes of its own has none to tell.
    async fn nodes(&self) -> Result<Vec<Node>, ClusterError> {
        Ok(Vec::new())
    }

    /// The nodes that are kept out for every job now. A cluster that places attempts by itself keeps those that wait off them, and lets
    /// them on a node that was let in again; elsewhere an attempt keeps off what it was made to.
    async fn keep_out(&self, _nodes: &BTreeSet<NodeName>) {}

    /// Removes logs and checkpoints of a job, which has no attempt left. A cluster that keeps none has nothing to do.
    async fn forget(&self, _job: &JobId, _spec: &JobSpec, _tasks: &[TaskId]) -> Result<(), ClusterError> {
        Ok(())
    }

    /// What the tests of a diagnosis of a job's nodes are made of here, beside their command. `own`: that is one of the job's owner, which
    /// runs where the job's program does; the built-in one needs nothing of it.
    ///
    /// # Errors
    /// Why its nodes cannot be tested, or not now.
    fn testing(&self, spec: &JobSpec, _own: bool) -> Result<Testing, Untestable> {
        // A replica takes one slot at least.
        let accelerators = spec.accelerators_per_replica.max(1);
        Ok(Testing { accelerators, most_nodes: bisect::limits::NODES, ..Testing::default() })
    }

    /// Those of these nodes on which nothing new is placed now whatever is free there, each with the reason, as far as that is known.
    fn closed(&self, _nodes: &BTreeSet<NodeName>) -> BTreeMap<NodeName, String> {
        BTreeMap::new()
    }

    /// Attempts that may have changed. Only a hint to look at once: hints may be lost, repeated or late. Taken once. A cluster that has
    /// none is looked at from time to time.
    fn hints(&self) -> Option<mpsc::Receiver<TaskId>> {
        None
    }
}

/// A cluster that has not listed its nodes by then does not answer.
const NODES_WITHIN: Duration = Duration::from_secs(10);

/// What a cluster says of its nodes, or why it does not.
///
/// # Errors
/// It cannot, or takes longer than 10 s.
pub async fn nodes_of(cluster: &dyn Cluster) -> Result<Vec<Node>, String> {
    let found = tokio::time::timeout(NODES_WITHIN, cluster.nodes()).await;
    let found = found.map_err(|_| format!("no answer in {} s", NODES_WITHIN.as_secs()))?;
    found.map_err(|why| format!("{:#}", anyhow::Error::from(why)))
}

/// How many nodes these are, as caps count them.
pub fn count_of(nodes: &[Node]) -> u32 {
    u32::try_from(nodes.len()).unwrap_or(u32::MAX)
}

/// Why nodes cannot be tested, a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Untestable {
    /// The cluster cannot be seen well enough at the moment.
    Now(String),
    /// It stays so.
    Ever(String),
}

impl Untestable {
    /// The sentence.
    pub fn into_text(self) -> String {
        match self {
            Self::Now(text) | Self::Ever(text) => text,
        }
    }
}

/// What a test of a diagnosis is made of, one replica on each node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Testing {
    /// The image; none where there are no images.
    pub image: Option<String>,
    /// What its pods are made of, where there are pods.
    pub pods: PodOptions,
    /// Accelerators that it holds on each node: what one replica of the job did, which fits wherever the job was, whoever else is there.
    pub accelerators: u32,
    /// Nodes that can be tested at once.
    pub most_nodes: usize,
}

/// An attempt to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its job.
    pub job_id: JobId,
    /// What the job is made of.
    pub spec: JobSpec,
    /// What this attempt is made of beside that.
    pub plan: Plan,
    /// The secret of each replica's agent.
    pub tokens: BTreeMap<ReplicaName, String>,
}

/// An attempt that a cluster shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Its task.
    pub task: TaskId,
    /// What its job is.
    pub kind: JobKind,
    /// What it is made as and where, for people: `PyTorchJob training/demo-jabcdefghij2-1`.
    pub place: String,
}

/// An entry of a job's history that is told on the object of its attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The attempt.
    pub task_id: TaskId,
    /// The kind of its job.
    pub kind: JobKind,
    /// The namespace that the job names.
    pub namespace: Option<String>,
    /// Where the entry stands: its step and its number there. So the same entry is the same note, whoever tells it.
    pub place: (i64, i64),
    /// The entry.
    pub event: EventRecord,
}

impl Note {
    /// The note of an entry of a job with this spec; none where it is nothing to be told.
    pub fn of(spec: &JobSpec, place: (i64, i64), event: EventRecord) -> Option<Self> {
        event.reason?;
        let task_id = event.task_id.clone()?;
        Some(Self { task_id, kind: spec.kind, namespace: spec.kubernetes.namespace.clone(), place, event })
    }
}

/// A machine of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Slots it has.
    pub slots: u32,
    /// Slots in use.
    pub used: u32,
    /// Attempts on it.
    pub tasks: Vec<TaskId>,
}

/// Why a cluster did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// It will never take this attempt.
    #[error("the cluster refused: {text}")]
    Refused {
        /// Its words.
        text: String,
    },
    /// It does not take this attempt for now; the same may be asked again. Only a creation is answered so.
    #[error("the cluster does not take it for now: {text}")]
    Delayed {
        /// What kind of hindrance it is.
        reason: QueueReason,
        /// Its words.
        text: String,
    },
    /// It did not answer, or not in time: nothing is known.
    #[error("cluster {cluster} could not be reached while {doing}")]
    Unreachable {
        /// Its name.
        cluster: String,
        /// What was tried.
        doing: &'static str,
        /// Why.
        #[source]
        source: anyhow::Error,
    },
}
