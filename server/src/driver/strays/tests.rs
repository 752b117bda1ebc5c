use std::sync::{Mutex, atomic::Ordering};

use engine::record::{Record, State};
use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;
use crate::{
    clock::Clock,
    driver::{
        Driver,
        fake::{Fake, Still, drive, keep, open, start_job, task},
    },
    store::Store,
};

/// A driver that leads, with a job whose attempt 1 lives and whose attempts 2 and 3 are over.
struct World {
    clock: Arc<Still>,
    cluster: Arc<Fake>,
    store: Store,
    driver: Driver,
    term: Arc<Term>,
    strays: BTreeMap<TaskId, Stray>,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new(cluster: Fake) -> Self {
        let (dir, store) = open().await;
        let clock = Arc::new(Still::default());
        let mut step = start_job(clock.now());
        let first = step.records.iter().find_map(|record| match record {
            Record::Attempt(attempt) => Some(attempt.clone()),
            _ => None,
        });
        for number in [2, 3] {
            let mut over = first.clone().unwrap();
            (over.task_id, over.number, over.state) = (task(number), number, State::Failed);
            step.records.push(Record::Attempt(over));
        }
        keep(&store, &step, clock.now()).await;
        let cluster = Arc::new(cluster);
        let driver = drive(&store, &clock, &cluster);
        driver.until_leading().await;
        let term = driver.shared.term.borrow().clone().unwrap();
        Self { clock, cluster, store, driver, term, strays: BTreeMap::new(), _dir: dir }
    }

    async fn look(&mut self) -> Result<(), StrayError> {
        let connected = &self.driver.shared.clusters["fake"];
        look(&self.driver.shared, &self.term, "fake", connected, &mut self.strays).await
    }

    fn wait(&self, seconds: u64) {
        self.clock.0.fetch_add(seconds as i64 * 1_000_000, Ordering::SeqCst);
    }

    fn asked(&self) -> Vec<(TaskId, bool)> {
        std::mem::take(&mut *self.cluster.removals.lock().unwrap())
    }
}

#[tokio::test]
async fn one_that_cannot_be_removed_keeps_none_behind_it_and_is_forced_at_last() {
    let present = Mutex::new(vec![task(2), task(3)]);
    let mut world = World::new(Fake { present, stuck: Some(task(2)), ..Fake::default() }).await;
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
async fn those_past_their_grace_are_counted_by_whoever_leads() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let counted = |strays| {
        metrics.render().contains(&format!("holdfast_stray_attempts{{cluster=\"fake\"}} {strays}\n"))
    };
    let present = Mutex::new(vec![task(2), task(3)]);
    let mut world = World::new(Fake { present, stuck: Some(task(2)), ..Fake::default() }).await;
    world.look().await.unwrap();
    assert!(counted(0), "their removal may be under way");
    world.wait(GRACE_SECONDS);
    world.look().await.unwrap();
    assert!(counted(2), "{}", metrics.render());
    world.look().await.unwrap();
    assert!(counted(1), "{}", metrics.render());
    world.term.lose();
    run(Arc::clone(&world.driver.shared), Arc::clone(&world.term)).await;
    assert!(counted(0), "{}", metrics.render());
}

#[tokio::test]
async fn of_what_the_task_of_its_job_drives_the_database_is_not_asked() {
    let mut world = World::new(Fake { present: Mutex::new(vec![task(1)]), ..Fake::default() }).await;
    assert!(world.term.drives(&task(1)) && !world.term.drives(&task(2)));
    world.store.close().await;
    world.look().await.unwrap();
    assert!(world.strays.is_empty());
    world.cluster.present.lock().unwrap().push(task(2));
    assert!(matches!(world.look().await, Err(StrayError::Store(_))));
}
