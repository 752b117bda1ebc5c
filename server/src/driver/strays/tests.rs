use std::sync::{
    Mutex,
    atomic::{AtomicI64, Ordering},
};

use async_trait::async_trait;
use engine::{
    chain::{Chain, Observation},
    ids::JobId,
    job::{ClusterKind, JobDraft, JobKind, JobSpec, Site},
    record::{Record, State},
};
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    clock::Clock,
    clusters::{Cluster, Node, Order},
    driver::{Driver, DriverParts},
    store::{Store, commit, steps},
    tokens::Tokens,
};

/// A clock that moves when it is told to, and on which whoever sleeps goes on sleeping.
struct Still(AtomicI64);

impl Clock for Still {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, _: Time) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// A cluster with these attempts, of which one goes by force only.
#[derive(Default)]
struct Stubborn {
    present: Mutex<Vec<TaskId>>,
    stuck: Option<TaskId>,
    asked: Mutex<Vec<(TaskId, bool)>>,
}

#[async_trait]
impl Cluster for Stubborn {
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
        task: &TaskId,
        _: JobKind,
        _: Option<&str>,
        force: bool,
    ) -> Result<Option<String>, ClusterError> {
        self.asked.lock().unwrap().push((task.clone(), force));
        if self.stuck.as_ref() == Some(task) && !force {
            let source = anyhow::anyhow!("its finalizer cannot be taken off");
            return Err(ClusterError::Unreachable { cluster: "local".to_owned(), doing: "removing", source });
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

    async fn nodes(&self) -> Result<Vec<Node>, ClusterError> {
        Ok(Vec::new())
    }

    async fn forget(&self, _: &JobId, _: &JobSpec, _: &[TaskId]) -> Result<(), ClusterError> {
        Ok(())
    }

    fn hints(&self) -> Option<mpsc::Receiver<TaskId>> {
        None
    }
}

fn task(number: u32) -> TaskId {
    TaskId::of_attempt("demo", &JobId::new("jabcdefghij2").unwrap(), number)
}

/// A driver that leads, with a job whose attempt 1 lives and whose attempts 2 and 3 are over.
struct World {
    clock: Arc<Still>,
    cluster: Arc<Stubborn>,
    store: Store,
    driver: Driver,
    term: Arc<Term>,
    strays: BTreeMap<TaskId, Stray>,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new(cluster: Stubborn) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&format!("sqlite://{}/holdfast.db", dir.path().display())).await.unwrap();
        let clock = Arc::new(Still(AtomicI64::new(1_767_225_600_000_000)));
        let draft =
            JobDraft { name: "demo".to_owned(), command: vec!["true".to_owned()], ..JobDraft::default() };
        let (spec, now) = (draft.validate(&Site::default()).unwrap(), clock.now());
        let mut step = Chain::start(JobId::new("jabcdefghij2").unwrap(), spec, now);
        let first = step.records.iter().find_map(|record| match record {
            Record::Attempt(attempt) => Some(attempt.clone()),
            _ => None,
        });
        for number in [2, 3] {
            let mut over = first.clone().unwrap();
            (over.task_id, over.number, over.state) = (task(number), number, State::Failed);
            step.records.push(Record::Attempt(over));
        }
        let head = steps::Head::of(&step.chain, now);
        let kept = steps::Kept { chain: &step.chain, head: &head, records: &step.records, now };
        let mut tx = store.write().await.unwrap();
        steps::create(&mut tx, steps::Origin { owner: "ann", copied_from: None }, kept).await.unwrap();
        commit(tx).await.unwrap();
        let cluster = Arc::new(cluster);
        let parts = DriverParts {
            store: store.clone(),
            clusters: BTreeMap::from([("local".to_owned(), Arc::clone(&cluster) as Arc<dyn Cluster>)]),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            tokens: Tokens::new(&[7; 32]),
        };
        let driver = Driver::start(parts, CancellationToken::new());
        driver.until_leading().await;
        let term = driver.shared.term.borrow().clone().unwrap();
        Self { clock, cluster, store, driver, term, strays: BTreeMap::new(), _dir: dir }
    }

    async fn look(&mut self) -> Result<(), StrayError> {
        let connected = &self.driver.shared.clusters["local"];
        look(&self.driver.shared, &self.term, "local", connected, &mut self.strays).await
    }

    fn wait(&self, seconds: u64) {
        self.clock.0.fetch_add(seconds as i64 * 1_000_000, Ordering::SeqCst);
    }

    fn asked(&self) -> Vec<(TaskId, bool)> {
        std::mem::take(&mut *self.cluster.asked.lock().unwrap())
    }
}

#[tokio::test]
async fn one_that_cannot_be_removed_keeps_none_behind_it_and_is_forced_at_last() {
    let present = Mutex::new(vec![task(2), task(3)]);
    let mut world = World::new(Stubborn { present, stuck: Some(task(2)), ..Stubborn::default() }).await;
    world.look().await.unwrap();
    world.wait(GRACE_SECONDS - 1);
    world.look().await.unwrap();
    assert!(world.asked().is_empty(), "its removal may be under way");
    world.wait(1);
    world.look().await.unwrap();
    assert_eq!(world.asked(), [(task(2), false), (task(3), false)]);
    let hindrance = world.strays[&task(2)].hindrance.clone().unwrap();
    assert!(hindrance.contains("finalizer"), "{hindrance}");
    for _ in 1..ASKED {
        world.look().await.unwrap();
        assert_eq!(world.asked(), [(task(2), false)]);
    }
    world.look().await.unwrap();
    assert_eq!(world.asked(), [(task(2), true)]);
    world.look().await.unwrap();
    assert!(world.asked().is_empty() && world.strays.is_empty());
}

#[tokio::test]
async fn of_what_the_task_of_its_job_drives_the_database_is_not_asked() {
    let mut world = World::new(Stubborn { present: Mutex::new(vec![task(1)]), ..Stubborn::default() }).await;
    assert!(world.term.drives(&task(1)) && !world.term.drives(&task(2)));
    world.store.close().await;
    world.look().await.unwrap();
    assert!(world.strays.is_empty());
    world.cluster.present.lock().unwrap().push(task(2));
    assert!(matches!(world.look().await, Err(StrayError::Store(_))));
}
