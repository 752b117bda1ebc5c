//! The only place that acts. *Decide, then do*: a step reads the chain and what is new, asks the engine, and commits the new
//! chain with its records in one transaction under the leader's epoch. Only then are its effects performed, each
//! idempotent; what they bring comes back as inputs of later steps. No transaction is held across a call to a cluster.
//!
//! Everything is level-triggered. Effects are read from the committed chain, so whatever dies, they are performed again until
//! they are answered; hints only make a job look sooner. A cluster that cannot be reached leaves a job *unknown*, never failed.
//!
//! What was decided is also told on the clusters' objects ([`telling`]), after the commit and beside everything else.
//!
//! One task per live job ([`job`]), one term of leadership ([`leadership`]) that owns them.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use async_trait::async_trait;
use engine::{
    chain::{Chain, Input},
    ids::JobId,
    job::ClusterKind,
};
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    agents::{Chains, ChainsError},
    clock::Clock,
    clusters::{Cluster, Note},
    store::{Store, StoreError},
    tokens::Tokens,
};

mod effects;
mod failpoint;
#[cfg(test)]
mod fake;
mod job;
mod leadership;
mod registry;
mod status;
mod step;
mod strays;
mod telling;

pub use failpoint::Failpoint;
pub use status::Status;

use registry::{Message, Term};
use status::Counts;
use telling::Teller;

/// Calls to one cluster at a time. An API server or a local machine is not helped by more; a job waits its turn.
const CLUSTER_CALLS: usize = 64;
/// Steps at a time. One after the other is what SQLite does anyway; that few wait there means that the lead is kept in time
/// however many jobs have something to write.
const STEPS: usize = 16;
/// Changes that a slow listener may lag behind before it misses some; they are hints, and it then reads again.
const CHANGES: usize = 4_096;
/// How often something is handed to a job's task that has just ended, before it is given up.
const HANDOVERS: usize = 3;

/// What a driver works with.
pub struct DriverParts {
    /// Where everything is kept.
    pub store: Store,
    /// Clusters by their configured name.
    pub clusters: BTreeMap<String, Arc<dyn Cluster>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The secrets of agents.
    pub tokens: Tokens,
}

/// Why a job's chain could not be had or advanced.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DriverError {
    /// There is no such job, or no longer.
    #[error("there is no job {job_id}")]
    NotFound {
        /// Which.
        job_id: JobId,
    },
    /// Another server acts, or this one is only starting or stopping.
    #[error("this server does not lead now")]
    NotLeader,
    /// The job's task ended again and again before it took what it was given.
    #[error("job {job_id} did not take its input; the log says why")]
    NotTaken {
        /// Which.
        job_id: JobId,
    },
    /// The database failed. Whether the step was kept is not known.
    #[error("the chain of job {job_id} could not be kept")]
    Store {
        /// Which.
        job_id: JobId,
        /// Why.
        #[source]
        source: Arc<StoreError>,
    },
}

/// A job was written. Only a hint: some may be missed, some may come twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub job_id: JobId,
    /// Its newest step.
    pub generation: i64,
}

/// A handle to the driver; clones are the same one.
#[derive(Clone)]
pub struct Driver {
    shared: Arc<Shared>,
}

/// What all tasks of the driver share.
struct Shared {
    store: Store,
    clusters: BTreeMap<String, Connected>,
    clock: Arc<dyn Clock>,
    tokens: Tokens,
    counts: Arc<Counts>,
    changes: broadcast::Sender<Change>,
    /// The present term of leadership; none while another server leads.
    term: watch::Sender<Option<Arc<Term>>>,
    steps: Semaphore,
    tasks: TaskTracker,
}

/// A cluster, and room for calls to it: each has its own, so that one that hangs keeps no other from work.
struct Connected {
    cluster: Arc<dyn Cluster>,
    calls: Semaphore,
    /// What is to be said on its objects; none where it has no objects.
    notes: Option<mpsc::Sender<Note>>,
}

impl Driver {
    /// Starts to act, once this server leads, until `shutdown`. Needs a runtime.
    pub fn start(parts: DriverParts, shutdown: CancellationToken) -> Self {
        let DriverParts { store, clusters, clock, tokens } = parts;
        let (counts, tasks) = (Arc::new(Counts::default()), TaskTracker::new());
        let connected = clusters.into_iter().map(|(name, cluster)| {
            let calls = Semaphore::new(CLUSTER_CALLS);
            let notes = (cluster.kind() == ClusterKind::Kubernetes).then(|| {
                let teller = Teller {
                    cluster: Arc::clone(&cluster),
                    clock: Arc::clone(&clock),
                    counts: Arc::clone(&counts),
                };
                telling::begin(teller, &tasks, shutdown.clone())
            });
            (name, Connected { cluster, calls, notes })
        });
        let shared = Arc::new(Shared {
            store,
            clusters: connected.collect(),
            clock: Arc::clone(&clock),
            tokens,
            counts,
            changes: broadcast::Sender::new(CHANGES),
            term: watch::Sender::new(None),
            steps: Semaphore::new(STEPS),
            tasks,
        });
        for connected in shared.clusters.values() {
            if let Some(hints) = connected.cluster.hints() {
                shared.tasks.spawn(leadership::relay(Arc::clone(&shared), hints, shutdown.clone()));
            }
        }
        shared.tasks.spawn(leadership::run(Arc::clone(&shared), shutdown));
        shared.tasks.close();
        Self { shared }
    }

    /// The newest committed chain of a job, and every later one. Ends when the job is forgotten or this server leads no more.
    ///
    /// # Errors
    /// There is no such job, this server does not lead, or the database failed.
    pub async fn subscribe(&self, job_id: &JobId) -> Result<watch::Receiver<Arc<Chain>>, DriverError> {
        Ok(registry::find(&self.shared, job_id).await?.chain)
    }

    /// Hands inputs to a job's chain and returns once they are committed. Until then nothing promises that they are kept: whoever
    /// sends them repeats them.
    ///
    /// # Errors
    /// There is no such job, this server does not lead, or the database failed.
    pub async fn input(&self, job_id: &JobId, inputs: Vec<Input>) -> Result<(), DriverError> {
        for _ in 0..HANDOVERS {
            let handle = registry::find(&self.shared, job_id).await?;
            let (done, answer) = oneshot::channel();
            let message = Message { inputs: inputs.clone(), done };
            if handle.mailbox.send(message).await.is_ok()
                && let Ok(result) = answer.await
            {
                return result;
            }
        }
        Err(DriverError::NotTaken { job_id: job_id.clone() })
    }

    /// Makes a job read its inbox and look at its cluster now. Does nothing where this server does not lead: the leader finds
    /// requests by itself.
    pub fn hint(&self, job_id: &JobId) {
        registry::hint(&self.shared, job_id);
    }

    /// Which jobs were written, as it happens.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.shared.changes.subscribe()
    }

    /// What the driver has done so far and has to do now.
    pub fn status(&self) -> Status {
        let term = self.shared.term.borrow();
        self.shared.counts.status(term.as_ref().map(|term| (term.epoch, term.len())))
    }

    /// Whether this server leads and has taken up the jobs that live.
    pub fn is_ready(&self) -> bool {
        is_ready(self.shared.term.borrow().as_deref())
    }

    /// Returns once this server leads and has taken up the jobs that live.
    pub async fn until_leading(&self) {
        // The sender lives as long as this handle, so there is no end to wait for.
        let _ = self.shared.term.subscribe().wait_for(|term| is_ready(term.as_deref())).await;
    }

    /// Returns once all of its tasks have ended after `shutdown`.
    pub async fn stopped(&self) {
        self.shared.tasks.wait().await;
    }
}

fn is_ready(term: Option<&Term>) -> bool {
    term.is_some_and(|term| term.taken_up.load(Ordering::Acquire))
}

#[async_trait]
impl Chains for Driver {
    async fn subscribe(&self, job: &JobId) -> Result<watch::Receiver<Arc<Chain>>, ChainsError> {
        Ok(Driver::subscribe(self, job).await?)
    }

    async fn input(&self, job: &JobId, inputs: Vec<Input>) -> Result<(), ChainsError> {
        Ok(Driver::input(self, job, inputs).await?)
    }
}

impl From<DriverError> for ChainsError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::NotFound { job_id } => Self::NoJob(job_id),
            DriverError::NotLeader => Self::Elsewhere,
            other => Self::NotNow(other.into()),
        }
    }
}
