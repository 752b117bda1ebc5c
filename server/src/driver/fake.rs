//! What tests of the driver's parts stand on: a clock that stands still, a cluster that does as it is told, a job.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use async_trait::async_trait;
use engine::{
    chain::{Chain, Observation, Step},
    ids::{JobId, TaskId},
    job::{ClusterKind, JobDraft, JobKind, Site},
    time::Time,
};
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Driver, DriverParts};
use crate::{
    clock::Clock,
    clusters::{Cluster, ClusterError, Note, Order, Present},
    store::{Store, commit, steps},
    tokens::Tokens,
};

/// A clock that moves when it is told to, and on which whoever sleeps goes on sleeping.
pub(super) struct Still(pub(super) AtomicI64);

impl Default for Still {
    fn default() -> Self {
        Self(AtomicI64::new(1_767_225_600_000_000))
    }
}

impl Clock for Still {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, _: Time) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// A cluster that takes everything.
#[derive(Default)]
pub(super) struct Fake {
    /// The attempts that are there.
    pub(super) present: Mutex<Vec<TaskId>>,
    /// One of them that goes by force only.
    pub(super) stuck: Option<TaskId>,
    /// Which removals were asked for, and whether by force.
    pub(super) removals: Mutex<Vec<(TaskId, bool)>>,
    /// Its answers to the first notes.
    pub(super) answers: Mutex<VecDeque<ClusterError>>,
    /// The notes it was told, by their step.
    pub(super) told: watch::Sender<Vec<i64>>,
}

/// It did not answer.
pub(super) fn unreachable_now(why: &'static str) -> ClusterError {
    ClusterError::Unreachable { cluster: "fake".to_owned(), doing: "asking", source: anyhow::anyhow!(why) }
}

#[async_trait]
impl Cluster for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn kind(&self) -> ClusterKind {
        ClusterKind::Kubernetes
    }

    async fn create(&self, _: &Order) -> Result<(), ClusterError> {
        Ok(())
    }

    async fn delete(
        &self,
        task: &TaskId,
        _: JobKind,
        _: Option<&str>,
        force: bool,
    ) -> Result<Option<String>, ClusterError> {
        self.removals.lock().unwrap().push((task.clone(), force));
        if self.stuck.as_ref() == Some(task) && !force {
            return Err(unreachable_now("its finalizer cannot be taken off"));
        }
        self.present.lock().unwrap().retain(|one| one != task);
        Ok(None)
    }

    async fn observe(&self, _: &TaskId, _: JobKind, _: Option<&str>) -> Result<Observation, ClusterError> {
        Ok(Observation::Absent)
    }

    async fn present(&self) -> Result<Vec<Present>, ClusterError> {
        let present = self.present.lock().unwrap().clone();
        let of = |task: TaskId| Present { place: format!("job {task}"), task, kind: JobKind::PyTorchJob };
        Ok(present.into_iter().map(of).collect())
    }

    async fn tell(&self, note: &Note) -> Result<(), ClusterError> {
        self.told.send_modify(|told| told.push(note.place.0));
        self.answers.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }
}

pub(super) fn job_id() -> JobId {
    JobId::new("jabcdefghij2").unwrap()
}

/// The attempt of this number of the job.
pub(super) fn task(number: u32) -> TaskId {
    TaskId::of_attempt("demo", &job_id(), number)
}

/// The beginning of a job on the cluster.
pub(super) fn start_job(now: Time) -> Step {
    let draft = JobDraft { name: "demo".to_owned(), command: vec!["true".to_owned()], ..JobDraft::default() };
    let mut spec = draft.validate(&Site::default()).unwrap();
    spec.cluster = "fake".to_owned();
    Chain::start(job_id(), spec, now)
}

/// A database, for as long as its directory is there.
pub(super) async fn open() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&format!("sqlite://{}/holdfast.db", dir.path().display())).await.unwrap();
    (dir, store)
}

/// Writes a job down as its first step leaves it.
pub(super) async fn keep(store: &Store, step: &Step, now: Time) {
    let head = steps::Head::of(&step.chain, now);
    let kept = steps::Kept { chain: &step.chain, head: &head, records: &step.records, now };
    let mut tx = store.write().await.unwrap();
    steps::create(&mut tx, steps::Origin { owner: "ann", copied_from: None }, kept).await.unwrap();
    commit(tx).await.unwrap();
}

/// Begins to drive the jobs of the cluster.
pub(super) fn drive(store: &Store, clock: &Arc<Still>, cluster: &Arc<Fake>) -> Driver {
    let parts = DriverParts {
        store: store.clone(),
        clusters: BTreeMap::from([("fake".to_owned(), Arc::clone(cluster) as Arc<dyn Cluster>)]),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        tokens: Tokens::new(&[7; 32]),
    };
    Driver::start(parts, CancellationToken::new())
}
