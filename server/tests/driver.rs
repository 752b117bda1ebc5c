//! The driver against a cluster with faults, beside a second driver, and killed at every step.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[cfg(test)]
mod databases;
#[cfg(test)]
mod world;

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, ExitStatus},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use databases::{on_each_database, on_postgres};
use engine::{
    chain::{
        Effect, Input, Request,
        limits::{RETURN_SECONDS, START_SECONDS},
    },
    ids::{JobId, TaskId},
    record::{EventReason, IncidentRecord, State, Substate},
    sync::{CheckpointEvent, ReportBody},
    time::Time,
};
use server::{
    clock::Clock,
    clusters::Note,
    driver::{Driver, DriverError, Failpoint},
    store::{Store, checkpoints, commit, incidents},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use world::{
    DEADLINE, FastClock, ask,
    cluster::{Faults, FileCluster},
    create, create_on, drive, generation, is_over, job_id, life, master, open, parts, play, report, task,
    until,
};

/// A driver, its store and its cluster.
struct World {
    dir: tempfile::TempDir,
    store: Store,
    clock: Arc<FastClock>,
    cluster: Arc<FileCluster>,
    driver: Driver,
    shutdown: CancellationToken,
}

impl World {
    async fn new(faults: Faults, restarts: i64) -> Self {
        Self::by(FastClock::new(), faults, restarts).await
    }

    async fn by(clock: Arc<FastClock>, faults: Faults, restarts: i64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, cluster) = (open(dir.path()).await, FileCluster::new(dir.path()));
        cluster.set(faults);
        create(&store, &clock, restarts).await;
        let (driver, shutdown) = drive(&store, &clock, Arc::clone(&cluster) as _).await;
        Self { dir, store, clock, cluster, driver, shutdown }
    }

    async fn until(
        &self,
        what: &str,
        wanted: impl Fn(&engine::chain::Chain) -> bool,
    ) -> Arc<engine::chain::Chain> {
        let mut chain = self.driver.subscribe(&job_id()).await.unwrap();
        until(&mut chain, what, wanted).await.unwrap()
    }

    async fn until_state(&self, state: State) {
        let clock = Arc::clone(&self.clock);
        self.until(state.as_str(), move |chain| chain.summary(clock.now()).state == state).await;
    }

    /// Waits for so many more calls to the cluster.
    async fn after_calls(&self, more: u64) {
        let made = *self.cluster.calls.borrow();
        self.until_calls(made + more).await;
    }

    async fn until_calls(&self, goal: u64) {
        let mut calls = self.cluster.calls.subscribe();
        let waited = tokio::time::timeout(DEADLINE, calls.wait_for(|calls| *calls >= goal)).await;
        assert!(waited.is_ok(), "the cluster is called again");
    }

    async fn play(&self, number: u32, exit: u8) {
        play(&self.driver, &self.clock, &task(number), exit).await.unwrap();
    }

    /// What the agent of attempt 1 says, with its number.
    async fn tell(&self, sequence: u64, body: ReportBody) {
        let told = report(&task(1), sequence, self.clock.now(), body);
        self.driver.input(&job_id(), vec![told]).await.unwrap();
    }

    /// The server goes, and comes back after so many seconds.
    async fn back_after(mut self, seconds: i64) -> Self {
        self.shutdown.cancel();
        self.driver.stopped().await;
        self.clock.skip(seconds);
        (self.driver, self.shutdown) = drive(&self.store, &self.clock, Arc::clone(&self.cluster) as _).await;
        self
    }

    async fn incidents(&self) -> Vec<IncidentRecord> {
        let mut conn = self.store.read().await.unwrap();
        let incidents = incidents::of_attempts(&mut conn, &job_id(), 1..=9).await.unwrap();
        incidents.into_iter().map(|(_, incident)| incident).collect()
    }

    async fn ask(&self, request: Request) {
        assert!(ask(&self.store, &self.clock, &request).await);
        self.driver.hint(&job_id());
    }

    async fn until_forgotten(&self) {
        let mut changes = self.driver.changes();
        while generation(&self.store).await.is_some() {
            let waited = tokio::time::timeout(DEADLINE, changes.recv()).await;
            assert!(waited.is_ok(), "the job is forgotten");
        }
    }
}

/// What a cluster was told, in order of the history, each once.
fn told(cluster: &FileCluster) -> Vec<(u32, EventReason)> {
    let notes = cluster.told.borrow().clone();
    let places: BTreeMap<_, _> = notes.into_iter().map(|note| (note.place, note)).collect();
    let of = |note: Note| (note.task_id.number().unwrap(), note.event.reason.unwrap());
    places.into_values().map(of).collect()
}

#[tokio::test]
async fn what_was_decided_is_told_on_the_attempt_once_it_is_made_and_again_by_the_next_server() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), FastClock::slow());
    let (store, cluster) = (open(dir.path()).await, FileCluster::new(dir.path()));
    cluster.has_objects.store(true, Ordering::Relaxed);
    let gate = Arc::new(Semaphore::new(0));
    cluster.set(Faults { gate: Some(Arc::clone(&gate)), ..Faults::default() });
    create(&store, &clock, 1).await;
    let (driver, shutdown) = drive(&store, &clock, Arc::clone(&cluster) as _).await;

    // It is being made: there is nothing yet to be told on.
    cluster.calls.subscribe().wait_for(|calls| *calls > 0).await.unwrap();
    assert_eq!(told(&cluster), []);
    gate.add_permits(2);
    cluster.told.subscribe().wait_for(|told| !told.is_empty()).await.unwrap();
    assert_eq!(told(&cluster), [(1, EventReason::AttemptSubmitted)]);

    play(&driver, &clock, &task(1), 1).await.unwrap();
    let mut chain = driver.subscribe(&job_id()).await.unwrap();
    until(&mut chain, "the second attempt is made", |chain| chain.live_task() == Some(&task(2)))
        .await
        .unwrap();
    let second = |told: &Vec<Note>| told.iter().any(|note| note.task_id == task(2));
    cluster.told.subscribe().wait_for(second).await.unwrap();
    let want = [
        (1, EventReason::AttemptSubmitted),
        (1, EventReason::Incident),
        (1, EventReason::Resubmit),
        (2, EventReason::AttemptSubmitted),
    ];
    let before: Vec<_> =
        told(&cluster).into_iter().filter(|(_, reason)| want.iter().any(|one| one.1 == *reason)).collect();
    assert_eq!(before, want);

    // The next server tells the same again, under the same places, whatever the first one did.
    shutdown.cancel();
    driver.stopped().await;
    let all = told(&cluster);
    let first = cluster.told.borrow().len();
    let (driver, shutdown) = drive(&store, &clock, Arc::clone(&cluster) as _).await;
    cluster.told.subscribe().wait_for(|told| told.len() >= first + all.len()).await.unwrap();
    assert_eq!(told(&cluster), all);
    shutdown.cancel();
    driver.stopped().await;
}

#[tokio::test]
async fn a_job_fails_is_resubmitted_succeeds_and_is_forgotten() {
    let world = World::new(Faults::default(), 1).await;
    world.play(1, 1).await;
    world.until("attempt 2", |chain| chain.live_task() == Some(&task(2))).await;
    world.play(2, 0).await;
    world.until_state(State::Succeeded).await;
    let chain = world.until("nothing is left", |chain| chain.live_task().is_none()).await;
    let summary = chain.summary(world.clock.now());
    assert_eq!((summary.budgets.task_restarts.used, summary.attempts_total), (1, 2));
    world.ask(Request::Delete { force: false }).await;
    world.until_forgotten().await;
    let gone = world.driver.subscribe(&job_id()).await.unwrap_err();
    assert!(matches!(gone, DriverError::NotFound { .. }), "{gone}");
    let (one, two, job) = (task(1), task(2), job_id());
    let want = [
        format!("create {one}"),
        format!("delete {one}"),
        format!("create {two}"),
        format!("delete {two}"),
        format!("forget {job} with 2 attempts"),
    ];
    assert_eq!(world.cluster.log(), want);
    let status = world.driver.status();
    assert!(status.done > 5 && status.found >= status.done && status.failed == 0, "{status:?}");
    world.shutdown.cancel();
    world.driver.stopped().await;
    assert_eq!(world.driver.status().epoch, None);
}

#[tokio::test]
async fn a_creation_whose_answer_is_lost_makes_one_attempt() {
    let world = World::new(Faults { lost_answers: 3, ..Faults::default() }, 0).await;
    world.play(1, 0).await;
    world.until_state(State::Succeeded).await;
    let creations = world.cluster.log().iter().filter(|line| line.starts_with("create")).count();
    assert_eq!(creations, 1);
    assert!(world.driver.status().failed > 0, "the lost answers were counted");
}

#[tokio::test]
async fn a_refused_attempt_fails_the_job_and_charges_nothing() {
    let world = World::new(Faults { refuse: Some("no such queue"), ..Faults::default() }, 2).await;
    world.until_state(State::Failed).await;
    let chain = world.until("it has ended", |chain| chain.pending_effects().is_empty()).await;
    let summary = chain.summary(world.clock.now());
    assert_eq!((summary.budgets.task_restarts.used, summary.attempts_total), (0, 1));
    assert!(world.cluster.log().is_empty(), "nothing ran");
}

#[tokio::test]
async fn an_attempt_that_is_not_taken_yet_waits_in_the_clusters_words_and_is_tried_again() {
    let world = World::new(Faults { delay: Some("the quota is used up"), ..Faults::default() }, 2).await;
    let clock = Arc::clone(&world.clock);
    let waits = move |chain: &engine::chain::Chain| chain.summary(clock.now()).tail == "the quota is used up";
    let chain = world.until("it says why it waits", waits).await;
    assert_eq!(chain.summary(world.clock.now()).state, State::Queued);
    world.cluster.set(Faults::default());
    world.play(1, 0).await;
    world.until_state(State::Succeeded).await;
    assert_eq!(world.cluster.log()[0], format!("create {}", task(1)));
    assert_eq!(world.driver.status().failed, 0, "a cluster that answers is no failure");
}

#[tokio::test]
async fn a_cluster_that_is_away_makes_a_job_unknown_and_never_failed() {
    let world = World::new(Faults { unreachable: true, ..Faults::default() }, 2).await;
    let clock = Arc::clone(&world.clock);
    let unknown =
        move |chain: &engine::chain::Chain| chain.summary(clock.now()).substate == Some(Substate::Unknown);
    let chain = world.until("it is unknown", &unknown).await;
    assert!(!chain.summary(world.clock.now()).state.is_terminal());
    world.cluster.set(Faults::default());
    world.until("it is known again", |chain| !unknown(chain)).await;
    world.play(1, 0).await;
    world.until_state(State::Succeeded).await;
    assert_eq!(world.cluster.log()[0], format!("create {}", task(1)));
}

#[tokio::test]
async fn a_job_of_a_cluster_that_is_not_configured_is_unknown_until_a_person_lets_go_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, clock, cluster) = (open(dir.path()).await, FastClock::new(), FileCluster::new(dir.path()));
    create_on("gone", job_id(), &store, &clock, 2).await;
    let (driver, shutdown) = drive(&store, &clock, Arc::clone(&cluster) as _).await;
    let world = World { dir, store, clock, cluster, driver, shutdown };
    let clock = Arc::clone(&world.clock);
    let chain = world
        .until("it is unknown", |chain| chain.summary(clock.now()).substate == Some(Substate::Unknown))
        .await;
    assert!(!chain.summary(clock.now()).state.is_terminal());

    world.ask(Request::Delete { force: false }).await;
    // After some time the removal is forced; that is no person's word.
    let forced = |chain: &engine::chain::Chain| {
        matches!(chain.pending_effects()[..], [Effect::Delete { force: true, .. }])
    };
    world.until("its removal is forced", forced).await;
    world.driver.hint(&job_id());
    assert!(generation(&world.store).await.is_some(), "it is still there");
    world.ask(Request::Delete { force: true }).await;
    world.until_forgotten().await;
    assert!(world.cluster.log().is_empty(), "no other cluster was asked for anything");
}

#[tokio::test]
async fn an_attempt_in_a_namespace_that_was_taken_out_is_not_taken_for_removed() {
    let taken_out = || Faults { without_namespace: true, ..Faults::default() };
    let world = World::new(Faults::default(), 2).await;
    world.until("it is there", |chain| chain.pending_effects().is_empty()).await;
    world.tell(1, ReportBody::Ready).await;
    world.tell(2, ReportBody::Started).await;
    world.until_state(State::Running).await;
    let asked_again = async || {
        let failed = world.driver.status().failed;
        reached("it is asked for again", || world.driver.status().failed > failed + 2).await;
    };
    world.cluster.set(taken_out());
    asked_again().await;
    // Whoever got through now would be told that it is absent.
    let file = world.dir.path().join("cluster").join(task(1).as_str());
    std::fs::remove_file(&file).unwrap();
    asked_again().await;
    world.until_state(State::Running).await;
    assert!(world.incidents().await.is_empty());

    world.cluster.appear(&task(1));
    world.cluster.set(Faults::default());
    world.after_calls(2).await;
    world.until_state(State::Running).await;
    assert_eq!(world.cluster.log(), [format!("create {}", task(1))]);

    world.cluster.set(taken_out());
    world.ask(Request::Delete { force: false }).await;
    asked_again().await;
    assert!(generation(&world.store).await.is_some(), "it is still there");
    world.ask(Request::Delete { force: true }).await;
    world.until_forgotten().await;
    let log = world.cluster.log();
    assert_eq!(log[1..], [format!("forget {} with 1 attempts", job_id())], "what is kept here is dropped");
    assert_eq!(world.cluster.live(), [task(1).to_string()], "and what is there is left");
}

#[tokio::test]
async fn a_job_that_has_ended_is_forgotten_without_its_cluster() {
    let mut world = World::new(Faults::default(), 0).await;
    world.play(1, 0).await;
    world.until("nothing is left", |chain| chain.live_task().is_none()).await;
    world.shutdown.cancel();
    world.driver.stopped().await;
    let mut parts = parts(&world.store, &world.clock, Arc::clone(&world.cluster) as _);
    parts.clusters.clear();
    world.shutdown = CancellationToken::new();
    world.driver = Driver::start(parts, world.shutdown.clone());
    assert!(tokio::time::timeout(DEADLINE, world.driver.until_leading()).await.is_ok());
    world.ask(Request::Delete { force: false }).await;
    world.until_forgotten().await;
}

#[tokio::test]
async fn the_next_attempt_waits_until_the_last_is_gone() {
    let world = World::new(Faults { slow_removal: true, ..Faults::default() }, 1).await;
    world.play(1, 1).await;
    world.until("it is removed", |chain| is_over(chain, &task(1))).await;
    // Each of these calls could have been a creation.
    world.after_calls(8).await;
    assert_eq!(world.cluster.live(), [task(1).to_string()]);
    world.cluster.set(Faults::default());
    world.until("attempt 2", |chain| chain.live_task() == Some(&task(2))).await;
    world.until("attempt 2 exists", |chain| chain.pending_effects().is_empty()).await;
    assert_eq!(world.cluster.live(), [task(2).to_string()]);
}

#[tokio::test]
async fn an_attempt_that_is_over_and_appears_again_is_removed_and_an_unknown_one_is_left_alone() {
    let world = World::new(Faults::default(), 1).await;
    world.play(1, 1).await;
    world.until("attempt 2", |chain| chain.live_task() == Some(&task(2))).await;
    world.until("attempt 2 exists", |chain| chain.pending_effects().is_empty()).await;
    let unknown = TaskId::of_attempt("other", &JobId::new("jabcdefghij3").unwrap(), 1);
    world.cluster.appear(&unknown);
    world.cluster.appear(&task(1));
    reached("it is removed", || !world.cluster.live().contains(&task(1).to_string())).await;
    assert_eq!(world.cluster.live(), [task(2).to_string(), unknown.to_string()]);
}

#[tokio::test]
async fn hints_and_looks_that_show_nothing_new_write_nothing() {
    let world = World::new(Faults::default(), 0).await;
    world.until("it exists", |chain| chain.pending_effects().is_empty()).await;
    world.after_calls(3).await;
    let before = generation(&world.store).await;
    for _ in 0..100 {
        world.driver.hint(&job_id());
        world.cluster.hint.send(task(1)).await.unwrap();
    }
    world.after_calls(5).await;
    assert_eq!(generation(&world.store).await, before);
}

#[tokio::test]
async fn a_hint_that_comes_during_a_look_is_followed_at_once() {
    let world = World::by(FastClock::slow(), Faults::default(), 0).await;
    world.until("it exists", |chain| chain.pending_effects().is_empty()).await;
    let looks = Arc::new(Semaphore::new(0));
    world.cluster.set(Faults { looks: Some(Arc::clone(&looks)), ..Faults::default() });
    let made = *world.cluster.calls.borrow();
    world.driver.hint(&job_id());
    world.until_calls(made + 1).await;
    world.driver.hint(&job_id());
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let begin = Instant::now();
    looks.add_permits(2);
    world.until_calls(made + 2).await;
    assert!(begin.elapsed() < Duration::from_secs(4), "it does not wait for the usual look");
}

#[tokio::test]
async fn a_report_that_is_repeated_is_taken_once() {
    let world = World::new(Faults::default(), 3).await;
    world.until("it exists", |chain| chain.pending_effects().is_empty()).await;
    let at = world.clock.now();
    let [ready, started, exited, stopped] = life(1);
    let event = CheckpointEvent { at, loaded: false, step: Some(20), path: None };
    let saved = ReportBody::Checkpoint { event };
    let all: Vec<_> = [ready, started, saved, exited, stopped]
        .into_iter()
        .zip(1..)
        .map(|(body, sequence)| report(&task(1), sequence, at, body))
        .collect();
    let ways = (0..20).map(|_| {
        let (driver, all) = (world.driver.clone(), all.clone());
        tokio::spawn(async move { driver.input(&job_id(), all).await.unwrap() })
    });
    for way in ways.collect::<Vec<_>>() {
        way.await.unwrap();
    }
    world.until("attempt 2", |chain| chain.live_task() == Some(&task(2))).await;
    world.driver.input(&job_id(), all).await.unwrap();
    let charged: Vec<_> = world.incidents().await.iter().map(|incident| incident.decision.after).collect();
    assert_eq!(charged, [1], "one incident, charged once");
    let mut conn = world.store.read().await.unwrap();
    assert_eq!(checkpoints::of_job(&mut conn, &job_id()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_request_is_found_without_a_hint() {
    let world = World::new(Faults::default(), 3).await;
    world.until("it exists", |chain| chain.pending_effects().is_empty()).await;
    assert!(ask(&world.store, &world.clock, &Request::Stop { force: false }).await);
    world.until_state(State::Stopped).await;
    let ended = world.until("nothing is left", |chain| chain.live_task().is_none()).await;
    assert!(ended.summary(world.clock.now()).stopped_by.is_some());
    world.ask(Request::Resubmit).await;
    world.until("a person's attempt", |chain| chain.live_task() == Some(&task(2))).await;
}

#[tokio::test]
async fn a_job_that_another_server_made_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (store, clock, cluster) = (open(dir.path()).await, FastClock::new(), FileCluster::new(dir.path()));
    let (driver, _shutdown) = drive(&store, &clock, Arc::clone(&cluster) as _).await;
    assert!(matches!(driver.subscribe(&job_id()).await, Err(DriverError::NotFound { .. })));
    create(&store, &clock, 0).await;
    let mut calls = cluster.calls.subscribe();
    let called = tokio::time::timeout(DEADLINE, calls.wait_for(|calls| *calls > 0)).await;
    assert!(called.is_ok(), "the job is taken up");
}

#[tokio::test]
async fn a_leader_that_was_paused_can_neither_write_nor_act() {
    let gate = Arc::new(Semaphore::new(0));
    let old = World::new(Faults { gate: Some(Arc::clone(&gate)), ..Faults::default() }, 1).await;
    old.until_calls(1).await;
    // It hangs in its creation. Another server takes over, in the same cluster.
    let cluster = FileCluster::new(old.dir.path());
    let (new, _shutdown) = drive(&old.store, &old.clock, Arc::clone(&cluster) as _).await;
    play(&new, &old.clock, &task(1), 1).await.unwrap();
    let mut chain = new.subscribe(&job_id()).await.unwrap();
    until(&mut chain, "attempt 2", |chain| chain.live_task() == Some(&task(2))).await.unwrap();
    until(&mut chain, "attempt 2 exists", |chain| chain.pending_effects().is_empty()).await.unwrap();
    // What it still believes must change nothing.
    let late = report(&task(1), 1, old.clock.now(), ReportBody::Ready);
    let refused = old.driver.input(&job_id(), vec![late]).await.unwrap_err();
    assert!(matches!(refused, DriverError::NotLeader), "{refused}");
    let before = (old.driver.status().done, cluster.log());
    gate.add_permits(10);
    old.shutdown.cancel();
    old.driver.stopped().await;
    assert_eq!((old.driver.status().done, cluster.log()), before);
    assert!(!cluster.log().iter().any(|line| line.contains("two attempts")), "{:?}", cluster.log());
    play(&new, &old.clock, &task(2), 0).await.unwrap();
    let clock = Arc::clone(&old.clock);
    until(&mut chain, "success", |chain| chain.summary(clock.now()).state == State::Succeeded).await.unwrap();
}

#[tokio::test]
async fn a_call_goes_on_while_the_database_does_not_answer() {
    let gate = Arc::new(Semaphore::new(0));
    let world = World::new(Faults { gate: Some(Arc::clone(&gate)), ..Faults::default() }, 0).await;
    world.until_calls(1).await;
    // Nobody else can write; the job's task waits with what it was told.
    let held = world.store.write().await.unwrap();
    let found = world.driver.status().found;
    let told = {
        let (driver, report) =
            (world.driver.clone(), report(&task(1), 1, world.clock.now(), ReportBody::Ready));
        tokio::spawn(async move { driver.input(&job_id(), vec![report]).await })
    };
    reached("the task is in its step", || world.driver.status().found > found).await;
    gate.add_permits(1);
    reached("the attempt is made", || !world.cluster.live().is_empty()).await;
    drop(held);
    told.await.unwrap().unwrap();
    world.cluster.set(Faults::default());
    world.play(1, 0).await;
    world.until_state(State::Succeeded).await;
}

#[tokio::test]
async fn a_job_whose_task_broke_goes_on_with_the_call_that_is_under_way() {
    let gate = Arc::new(Semaphore::new(0));
    let world = World::new(Faults { gate: Some(Arc::clone(&gate)), ..Faults::default() }, 0).await;
    world.until_calls(1).await;
    world.clock.break_next_job();
    world.driver.hint(&job_id());
    reached("its task has broken", || !world.clock.is_to_break()).await;
    // A new task takes what comes, and begins no call beside the one under way.
    for _ in 0..20 {
        let ready = report(&task(1), 1, world.clock.now(), ReportBody::Ready);
        world.driver.input(&job_id(), vec![ready]).await.unwrap();
    }
    assert_eq!(*world.cluster.calls.borrow(), 1);
    gate.add_permits(1);
    world.play(1, 0).await;
    world.until_state(State::Succeeded).await;
    world.until("nothing is left", |chain| chain.live_task().is_none()).await;
    assert_eq!(world.cluster.log(), [format!("create {}", task(1)), format!("delete {}", task(1))]);
}

#[tokio::test]
async fn a_cluster_that_hangs_keeps_no_job_of_another_from_work() {
    let dir = tempfile::tempdir().unwrap();
    let (store, clock, cluster) = (open(dir.path()).await, FastClock::new(), FileCluster::new(dir.path()));
    let hung = FileCluster::new(&dir.path().join("hung"));
    hung.set(Faults { gate: Some(Arc::new(Semaphore::new(0))), ..Faults::default() });
    // More than there is room for.
    for number in 0..70 {
        let job_id = JobId::new(format!("jabcdefgh{number:03}")).unwrap();
        create_on("hung", job_id, &store, &clock, 0).await;
    }
    let mut parts = parts(&store, &clock, Arc::clone(&cluster) as _);
    parts.clusters.insert("hung".to_owned(), Arc::clone(&hung) as _);
    let _driver = Driver::start(parts, CancellationToken::new());
    let mut calls = hung.calls.subscribe();
    let full = tokio::time::timeout(DEADLINE, calls.wait_for(|calls| *calls >= 64)).await;
    assert!(full.is_ok(), "it hangs in many calls");
    create(&store, &clock, 0).await;
    reached("the other cluster is called", || cluster.live() == [task(1).to_string()]).await;
    assert_eq!(*hung.calls.borrow(), 64);
}

#[tokio::test]
async fn an_absurd_step_is_no_checkpoint() {
    let world = World::new(Faults::default(), 0).await;
    world.until("it exists", |chain| chain.pending_effects().is_empty()).await;
    let at = world.clock.now();
    let saved = |step| ReportBody::Checkpoint {
        event: CheckpointEvent { at, loaded: false, step: Some(step), path: None },
    };
    let [ready, started, ..] = life(0);
    let all = [ready, started, saved(u64::MAX), saved(1_000_000_000_001), saved(20)];
    let inputs = all.into_iter().zip(1..).map(|(body, sequence)| report(&task(1), sequence, at, body));
    world.driver.input(&job_id(), inputs.collect()).await.unwrap();
    let mut conn = world.store.read().await.unwrap();
    let kept = checkpoints::of_job(&mut conn, &job_id()).await.unwrap();
    assert_eq!(kept.iter().map(|mark| mark.step).collect::<Vec<_>>(), [20]);
}

/// A server goes once it has ordered a launch, and comes back when that should long have started; also when it came back.
async fn back_after_an_order(clock: Arc<FastClock>) -> (World, Time) {
    let world = World::by(clock, Faults::default(), 1).await;
    world.until("it exists", |chain| chain.pending_effects().is_empty()).await;
    world.tell(1, ReportBody::Ready).await;
    let back_at = world.clock.now().plus_seconds(START_SECONDS);
    (world.back_after(START_SECONDS as i64).await, back_at)
}

#[tokio::test]
async fn a_start_that_is_told_when_the_server_is_back_is_no_failure() {
    let (world, _) = back_after_an_order(FastClock::slow()).await;
    // All that a hub and a cluster say before the agent is heard.
    world.after_calls(1).await;
    let heard = Input::Heard { task_id: task(1), replica: Some(master()) };
    world.driver.input(&job_id(), vec![heard]).await.unwrap();
    world.ask(Request::Acknowledge).await;
    world.until_state(State::Starting).await;
    world.tell(2, ReportBody::Started).await;
    world.until_state(State::Running).await;
    assert!(world.incidents().await.is_empty());
}

#[tokio::test]
async fn a_start_that_nobody_tells_after_the_server_is_back_fails_the_attempt() {
    let (world, back_at) = back_after_an_order(FastClock::new()).await;
    world.until("attempt 2", |chain| chain.live_task() == Some(&task(2))).await;
    let incidents = world.incidents().await;
    let [incident] = &incidents[..] else { panic!("{incidents:?}") };
    assert!(incident.fault.contains("did not tell of its health checks within 600 s"), "{}", incident.fault);
    assert!(incident.at >= back_at.plus_seconds(RETURN_SECONDS), "its agents had time to speak");
}

#[tokio::test]
async fn a_start_that_is_told_when_the_database_is_back_is_no_failure() {
    let world = World::by(FastClock::slow(), Faults::default(), 1).await;
    world.until("it exists", |chain| chain.pending_effects().is_empty()).await;
    world.tell(1, ReportBody::Ready).await;
    let alter = async |sql: &'static str| {
        let mut tx = world.store.write().await.unwrap();
        sqlx::query(sql).execute(&mut *tx).await.unwrap();
        commit(tx).await.unwrap();
    };
    alter("ALTER TABLE chain RENAME TO away").await;
    let lost = ReportBody::LogLost { text: "no room".to_owned() };
    let told = report(&task(1), 2, world.clock.now(), lost);
    let failed = world.driver.input(&job_id(), vec![told]).await.unwrap_err();
    assert!(matches!(failed, DriverError::Store { .. }), "{failed}");
    world.clock.skip(START_SECONDS as i64);
    alter("ALTER TABLE away RENAME TO chain").await;
    world.after_calls(1).await;
    world.tell(2, ReportBody::Started).await;
    world.until_state(State::Running).await;
    assert!(world.incidents().await.is_empty());
}

#[tokio::test]
async fn a_server_that_stops_lets_its_calls_end() {
    let gate = Arc::new(Semaphore::new(0));
    let world = World::new(Faults { gate: Some(Arc::clone(&gate)), ..Faults::default() }, 0).await;
    world.until_calls(1).await;
    world.shutdown.cancel();
    reached("it takes no more", || world.driver.status().epoch.is_none()).await;
    gate.add_permits(1);
    world.driver.stopped().await;
    assert_eq!(world.cluster.log(), [format!("create {}", task(1))]);
}

/// Waits until something is so that nothing tells of.
async fn reached(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok(), "not in time: {what}");
}

#[tokio::test]
async fn a_driver_that_is_dropped_anywhere_is_followed_by_one_that_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (store, clock, cluster) = (open(dir.path()).await, FastClock::new(), FileCluster::new(dir.path()));
    create(&store, &clock, 1).await;
    let mut rounds = 0;
    for calls in 1.. {
        rounds = calls;
        let before = *cluster.calls.borrow();
        let (driver, shutdown) = drive(&store, &clock, Arc::clone(&cluster) as _).await;
        let mut called = cluster.calls.subscribe();
        let done = tokio::select! {
            done = whole_life(&driver, &store, &clock) => done.is_ok(),
            _ = called.wait_for(|now| *now >= before + calls) => false,
        };
        shutdown.cancel();
        driver.stopped().await;
        if done {
            break;
        }
    }
    assert!(rounds > 3, "it was dropped {rounds} times");
    assert_one_life(&cluster.log());
}

#[tokio::test]
async fn a_whole_life_passes_on_each_database() {
    on_each_database(async |store| {
        let dir = tempfile::tempdir().unwrap();
        let (clock, cluster) = (FastClock::new(), FileCluster::new(dir.path()));
        create(&store, &clock, 1).await;
        let (driver, shutdown) = drive(&store, &clock, Arc::clone(&cluster) as _).await;
        whole_life(&driver, &store, &clock).await.unwrap();
        assert_one_life(&cluster.log());
        shutdown.cancel();
        driver.stopped().await;
    })
    .await;
}

#[tokio::test]
async fn a_second_server_follows_until_the_first_is_gone() {
    on_postgres(async |store| {
        let dir = tempfile::tempdir().unwrap();
        let (clock, cluster) = (FastClock::steady(), FileCluster::new(dir.path()));
        create(&store, &clock, 1).await;
        let (first, first_ends) = drive(&store, &clock, Arc::clone(&cluster) as _).await;
        let second_ends = CancellationToken::new();
        let second = Driver::start(parts(&store, &clock, Arc::clone(&cluster) as _), second_ends.clone());
        let mut changes = second.changes();
        let refused = second.subscribe(&job_id()).await.unwrap_err();
        assert!(matches!(refused, DriverError::NotLeader), "{refused}");
        play(&first, &clock, &task(1), 1).await.unwrap();
        let told = tokio::time::timeout(DEADLINE, changes.recv()).await.unwrap().unwrap();
        assert_eq!(told.job_id, job_id(), "the second tells what the first wrote");
        first_ends.cancel();
        first.stopped().await;
        tokio::time::timeout(DEADLINE, second.until_leading()).await.unwrap();
        whole_life(&second, &store, &clock).await.unwrap();
        assert_one_life(&cluster.log());
        second_ends.cancel();
        second.stopped().await;
    })
    .await;
}

/// The whole of a job: fails once, is resubmitted, succeeds, is deleted and forgotten; whatever of that is still to come.
async fn whole_life(driver: &Driver, store: &Store, clock: &Arc<FastClock>) -> Result<(), DriverError> {
    let end = async {
        let mut chain = driver.subscribe(&job_id()).await?;
        play(driver, clock, &task(1), 1).await?;
        until(&mut chain, "attempt 2", |chain| {
            is_over(chain, &task(1)) && chain.summary(clock.now()).attempts_total == 2
        })
        .await?;
        play(driver, clock, &task(2), 0).await?;
        let ended =
            until(&mut chain, "success", |chain| chain.summary(clock.now()).state == State::Succeeded)
                .await?;
        assert_eq!(ended.summary(clock.now()).budgets.task_restarts.used, 1);
        assert_eq!(ended.acknowledged(&task(2), &master()), 4);
        ask(store, clock, &Request::Delete { force: false }).await;
        driver.hint(&job_id());
        until(&mut chain, "the end", |_| false).await.map(|_| ())
    };
    match end.await {
        // It is forgotten, and that is the end.
        Err(DriverError::NotFound { .. }) if generation(store).await.is_none() => Ok(()),
        other => other,
    }
}

/// Each attempt was made once and removed once, one after the other, and the job was forgotten.
fn assert_one_life(log: &[String]) {
    let mut log = log.to_vec();
    // Forgetting twice is the same as once.
    log.dedup();
    let (one, two, job) = (task(1), task(2), job_id());
    let want = [
        format!("create {one}"),
        format!("delete {one}"),
        format!("create {two}"),
        format!("delete {two}"),
        format!("forget {job} with 2 attempts"),
    ];
    assert_eq!(log, want);
}

/// Runs [`child`] in a process of its own, which dies at a fail point.
fn run_child(dir: &Path, failpoint: Option<String>) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child", "--ignored"])
        .env("HOLDFAST_TEST_DIR", dir)
        .env_remove("HOLDFAST_FAILPOINT");
    if let Some(failpoint) = failpoint {
        command.env("HOLDFAST_FAILPOINT", failpoint);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() || output.status.signal() == Some(9), "{text}");
    output.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of the test below"]
async fn child() {
    let Ok(dir) = std::env::var("HOLDFAST_TEST_DIR") else { return };
    let dir = Path::new(&dir);
    let (store, clock, cluster) = (open(dir).await, FastClock::new(), FileCluster::new(dir));
    if !dir.join("created").exists() {
        create(&store, &clock, 1).await;
        std::fs::write(dir.join("created"), "").unwrap();
    }
    if generation(&store).await.is_none() {
        return;
    }
    let (driver, _shutdown) = drive(&store, &clock, cluster).await;
    whole_life(&driver, &store, &clock).await.unwrap();
}

#[test]
fn a_server_that_is_killed_at_any_step_is_followed_by_one_that_finishes_it() {
    for failpoint in Failpoint::ALL {
        for count in 1..100 {
            let dir = tempfile::tempdir().unwrap();
            let killed = run_child(dir.path(), Some(format!("{}:{count}", failpoint.as_str())));
            if killed.success() {
                assert!(count > 1, "{failpoint:?} is never passed");
                break;
            }
            assert!(run_child(dir.path(), None).success(), "{failpoint:?}:{count}");
            assert_one_life(&FileCluster::new(dir.path()).log());
        }
    }
}
