//! The hub with a real chain behind it and no network.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use engine::{
    chain::{Observation, ReplicaObservation, ReplicaStatus, advance},
    checks::{Check, CheckFinding, CheckOutcome},
    failure::{Exit, Phase},
    ids::{NodeName, ReplicaName, TaskId},
    job::{JobDraft, Site},
    record::{Queue, QueueReason},
    sync::{
        Desired, PortOffer, RankStack, Report, ReportBody, StackKey, StillRank, SyncReply, SyncRequest,
        ThreadStack, Witness, WitnessKind, WitnessSays,
    },
    time::Time,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{clock::Clock, tokens::Tokens};

const HOLD: Duration = Duration::from_secs(20);

/// One job whose chain advances at once.
struct OneJob {
    job: JobId,
    chain: watch::Sender<Arc<Chain>>,
    inputs: Mutex<Vec<Input>>,
    now: AtomicI64,
    /// Commits that are still to fail.
    failures: AtomicU32,
    /// Another server leads.
    elsewhere: AtomicBool,
}

impl Clock for OneJob {
    fn now(&self) -> Time {
        Time(self.now.fetch_add(1, Ordering::Relaxed))
    }
}

#[async_trait]
impl Chains for OneJob {
    async fn subscribe(&self, job: &JobId) -> Result<watch::Receiver<Arc<Chain>>, ChainsError> {
        if self.elsewhere.load(Ordering::Relaxed) {
            return Err(ChainsError::Elsewhere);
        }
        if *job == self.job { Ok(self.chain.subscribe()) } else { Err(ChainsError::NoJob(job.clone())) }
    }

    async fn input(&self, _: &JobId, inputs: Vec<Input>) -> Result<(), ChainsError> {
        let fails =
            self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if fails.is_ok() {
            return Err(ChainsError::NotNow(anyhow::anyhow!("the database does not answer")));
        }
        for input in inputs {
            let now = self.now();
            self.chain.send_modify(|chain| *chain = Arc::new(advance(chain, &input, now).chain));
            self.inputs.lock().unwrap().push(input);
        }
        Ok(())
    }
}

struct World {
    one: Arc<OneJob>,
    tokens: Tokens,
    task: TaskId,
}

impl World {
    /// A job of two replicas whose first attempt has its resources.
    async fn new() -> Self {
        let job = JobId::new("jabcdefghij2").unwrap();
        let spec = JobDraft {
            name: "demo".into(),
            command: vec!["true".into()],
            replicas: Some(2),
            ..JobDraft::default()
        }
        .validate(&Site::default())
        .unwrap();
        let task = TaskId::of_attempt("demo", &job, 1);
        let chain = Chain::start(job.clone(), spec, Time(0)).chain;
        let one = Arc::new(OneJob {
            job,
            chain: watch::Sender::new(Arc::new(chain)),
            inputs: Mutex::default(),
            now: AtomicI64::new(1_000_000),
            failures: AtomicU32::new(0),
            elsewhere: AtomicBool::new(false),
        });
        let replicas = ["master-0", "worker-0"].map(|name| {
            let node = NodeName::new(format!("node-of-{name}")).unwrap();
            (
                ReplicaName::new(name).unwrap(),
                ReplicaObservation { node: Some(node), status: ReplicaStatus::Running },
            )
        });
        let observation = Observation::Placed { replicas: BTreeMap::from(replicas) };
        let inputs = vec![
            Input::Created { task_id: task.clone() },
            Input::Observed { task_id: task.clone(), observation },
        ];
        one.input(&one.job, inputs).await.unwrap();
        one.inputs.lock().unwrap().clear();
        Self { one, tokens: Tokens::new(&[1; 32]), task }
    }

    fn hub(&self) -> Arc<Hub> {
        Hub::start(self.one.clone(), self.tokens.clone(), self.one.clone(), CancellationToken::new())
    }

    fn request(&self, replica: &str, seen: u64, reports: Vec<Report>) -> SyncRequest {
        SyncRequest {
            task_id: self.task.clone(),
            replica: ReplicaName::new(replica).unwrap(),
            agent_id: format!("agent-of-{replica}"),
            seen,
            address: "127.0.0.1".into(),
            offer: None,
            current: None,
            sent_at: self.one.now(),
            reports,
        }
    }

    fn first(&self, seen: u64, port: u16) -> SyncRequest {
        let offer = Some(PortOffer { launch: 0, port });
        SyncRequest { offer, ..self.request("master-0", seen, vec![ready(1)]) }
    }

    fn token(&self, replica: &str) -> String {
        self.tokens.of(&self.task, &ReplicaName::new(replica).unwrap())
    }

    fn speaker(&self, replica: &str) -> Speaker {
        Speaker { task: self.task.clone(), replica: ReplicaName::new(replica).unwrap() }
    }

    async fn sync(&self, hub: &Hub, request: SyncRequest) -> Result<SyncReply, SyncError> {
        hub.sync(request, hub.now(), HOLD).await
    }

    /// A sync of a replica with this token that announces `length` bytes.
    fn posted(&self, replica: &str, token: &str, length: Option<usize>, body: Body) -> Request {
        let mut request = axum::http::Request::post("/agent/v1/sync")
            .header(headers::TASK, self.task.as_str())
            .header(headers::REPLICA, replica)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(length) = length {
            request = request.header(header::CONTENT_LENGTH, length);
        }
        request.body(body).unwrap()
    }

    fn body(&self, request: &SyncRequest) -> Vec<u8> {
        serde_json::to_vec(request).unwrap()
    }
}

fn report(sequence: u64, body: ReportBody) -> Report {
    Report { sequence, at: Time(1_500_000), launch: 0, body }
}

fn ready(sequence: u64) -> Report {
    report(sequence, ReportBody::Ready)
}

fn exited(sequence: u64, rank: u32) -> Report {
    let exit = Exit::Code(1);
    let phase = Phase::Training;
    report(sequence, ReportBody::Exited { rank, exit, asked: false, step: None, phase, evidence: vec![] })
}

fn port(reply: &SyncReply) -> u16 {
    match &reply.desired {
        Desired::Run { launch } => launch.master_port,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn all_replicas_meet_at_the_port_that_the_first_one_offers() {
    let world = World::new().await;
    let hub = world.hub();
    let worker = world.sync(&hub, world.request("worker-0", 0, vec![ready(1)])).await.unwrap();
    assert_eq!((&worker.desired, worker.acknowledged), (&Desired::Wait, 1));
    // The worker's next poll is held until the first replica offers its port.
    let held = world.sync(&hub, world.request("worker-0", worker.version, vec![]));
    let (worker, master) = tokio::join!(held, world.sync(&hub, world.first(0, 4242)));
    assert_eq!((port(&worker.unwrap()), port(&master.unwrap())), (4242, 4242));
    // A later offer for the same launch does not split the ranks.
    assert_eq!(port(&world.sync(&hub, world.first(0, 4343)).await.unwrap()), 4242);
}

#[tokio::test]
async fn a_hub_that_comes_back_learns_the_port_from_any_replica() {
    let world = World::new().await;
    let hub = world.hub();
    world.sync(&hub, world.request("worker-0", 0, vec![ready(1)])).await.unwrap();
    let reply = world.sync(&hub, world.first(0, 4242)).await.unwrap();
    drop(hub);
    let hub = world.hub();
    let current = Some(PortOffer { launch: 0, port: 4242 });
    world.sync(&hub, SyncRequest { current, ..world.request("worker-0", 0, vec![]) }).await.unwrap();
    let offer = Some(PortOffer { launch: 1, port: 5000 });
    let again =
        world.sync(&hub, SyncRequest { offer, ..world.request("master-0", 0, vec![]) }).await.unwrap();
    assert_eq!((again.version, port(&again)), (reply.version, 4242));
}

#[tokio::test]
async fn a_launch_that_was_not_ordered_has_no_port() {
    let world = World::new().await;
    let hub = world.hub();
    world.sync(&hub, world.first(0, 4242)).await.unwrap();
    for launch in 1..=6 {
        let current = Some(PortOffer { launch, port: 1 });
        world
            .sync(&hub, SyncRequest { current, ..world.request("worker-0", 0, vec![ready(1)]) })
            .await
            .unwrap();
        let offer = Some(PortOffer { launch: launch + 1, port: 1 });
        let forged = SyncRequest { current, offer, ..world.request("master-0", 0, vec![]) };
        world.sync(&hub, forged).await.unwrap();
    }
    for replica in ["master-0", "worker-0"] {
        assert_eq!(port(&world.sync(&hub, world.request(replica, 0, vec![])).await.unwrap()), 4242);
    }
}

#[tokio::test]
async fn agents_in_pods_that_were_made_anew_meet_in_the_launch_to_come() {
    let world = World::new().await;
    let hub = world.hub();
    let started = || vec![ready(1), report(2, ReportBody::Started)];
    world.sync(&hub, world.request("worker-0", 0, started())).await.unwrap();
    world.sync(&hub, SyncRequest { reports: started(), ..world.first(0, 4242) }).await.unwrap();
    let observation = Observation::Suspended(Queue::of(QueueReason::Requeued, "preempted".to_owned()));
    let suspended = vec![Input::Observed { task_id: world.task.clone(), observation }];
    world.one.input(&world.one.job, suspended).await.unwrap();
    // They know of no launch before, and of no report.
    let anew = |request: SyncRequest| SyncRequest {
        agent_id: format!("another-{}", request.replica),
        reports: vec![ready(3)],
        ..request
    };
    let held = world.sync(&hub, anew(world.request("worker-0", 0, vec![]))).await.unwrap();
    assert_eq!(held.desired, Desired::Wait);
    let reply = world.sync(&hub, anew(world.first(0, 4343))).await.unwrap();
    let Desired::Run { launch } = &reply.desired else { panic!("{reply:?}") };
    assert_eq!((launch.number, launch.master_port), (1, 4343));
}

#[tokio::test]
async fn a_crash_wakes_every_poll_with_the_order_to_stop() {
    let world = World::new().await;
    let hub = world.hub();
    world.sync(&hub, world.request("worker-0", 0, vec![ready(1)])).await.unwrap();
    world.sync(&hub, world.first(0, 4242)).await.unwrap();
    let started = |sequence| report(sequence, ReportBody::Started);
    world.sync(&hub, world.request("worker-0", 0, vec![started(2)])).await.unwrap();
    let master = world.sync(&hub, world.request("master-0", 0, vec![started(2)])).await.unwrap();
    let held = world.sync(&hub, world.request("master-0", master.version, vec![]));
    let crash = world.sync(&hub, world.request("worker-0", 0, vec![exited(3, 1)]));
    let (held, crash) = tokio::join!(held, crash);
    for reply in [held.unwrap(), crash.unwrap()] {
        assert_eq!(reply.desired, Desired::Stop { launch: 0 });
    }
}

#[tokio::test]
async fn a_repeated_report_is_acknowledged_and_taken_once() {
    let world = World::new().await;
    let hub = world.hub();
    for _ in 0..3 {
        let reply = world.sync(&hub, world.request("worker-0", 0, vec![ready(1)])).await.unwrap();
        assert_eq!(reply.acknowledged, 1);
    }
    let inputs = world.one.inputs.lock().unwrap();
    assert_eq!(inputs.iter().filter(|input| matches!(input, Input::Report { .. })).count(), 1);
}

fn finding(bytes: usize) -> CheckFinding {
    CheckFinding {
        check: Check::Shm,
        outcome: CheckOutcome::Passed,
        seconds: 0.1,
        text: "x".repeat(bytes),
        remedy: None,
        measures: Vec::new(),
    }
}

#[tokio::test]
async fn health_checks_are_asked_for_with_the_servers_clock_until_all_have_passed() {
    let world = World::new().await;
    let hub = world.hub();
    world.sync(&hub, world.request("worker-0", 0, vec![ready(1)])).await.unwrap();
    let asked = world.sync(&hub, world.first(0, 4242)).await.unwrap();
    assert!(asked.now.is_some());
    let checks = |desired: &Desired| match desired {
        Desired::Run { launch } => launch.checks.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(checks(&asked.desired).map(|order| order.checks.len()), Some(6), "{asked:?}");
    let checked = |sequence| report(sequence, ReportBody::Checked { findings: vec![finding(1)] });
    let held = world.sync(&hub, world.request("master-0", asked.version, vec![]));
    let told = async {
        world.sync(&hub, world.request("master-0", 0, vec![checked(2)])).await.unwrap();
        world.sync(&hub, world.request("worker-0", 0, vec![checked(2)])).await
    };
    let (held, told) = tokio::join!(held, told);
    for reply in [held.unwrap(), told.unwrap()] {
        assert_eq!(checks(&reply.desired), None, "all may start: {reply:?}");
    }
}

#[tokio::test]
async fn what_a_replica_cannot_know_is_refused_and_changes_nothing() {
    let world = World::new().await;
    let hub = world.hub();
    let before = Arc::clone(&world.one.chain.borrow());
    for (case, reports) in [
        ("another replica's rank", vec![exited(1, 0)]),
        ("numbered from 0", vec![ready(0)]),
        ("numbered downwards", vec![ready(2), ready(1)]),
        ("a number that no agent comes to", vec![ready(1), ready(u64::MAX)]),
        ("findings without end", vec![report(1, ReportBody::Checked { findings: vec![finding(1); 17] })]),
        ("a finding without end", vec![report(1, ReportBody::Checked { findings: vec![finding(10_000)] })]),
        ("a text without end", vec![report(1, ReportBody::StartFailed { text: "x".repeat(10_000) })]),
    ] {
        let answer = world.sync(&hub, world.request("worker-0", 0, reports)).await;
        assert!(matches!(answer, Err(SyncError::Invalid(_))), "{case}: {answer:?}");
    }
    let stranger = world.request("worker-7", 0, vec![]);
    assert!(matches!(world.sync(&hub, stranger).await, Err(SyncError::Invalid(_))));
    assert_eq!(*before, **world.one.chain.borrow());
}

#[tokio::test]
async fn what_a_report_of_standstills_may_hold_is_bounded() {
    let world = World::new().await;
    let hub = world.hub();
    let still = |rank: u32, change: &dyn Fn(&mut StillRank)| {
        let mut still = StillRank {
            rank,
            since: Time(1),
            until: Time(2),
            samples: 2,
            witnesses: vec![],
            stack: Some(StackKey { hash: "a".to_owned(), top: vec!["f (a.py)".to_owned()] }),
            state: None,
            phase: None,
            collective: None,
        };
        change(&mut still);
        ReportBody::Still { ranks: vec![still] }
    };
    let witness = |says| Witness { kind: WitnessKind::Stack, says, since: None, detail: String::new() };
    let stack = |threads: usize, frames: usize, bytes: usize| {
        let thread =
            ThreadStack { id: 1, name: None, frames: vec!["x".repeat(bytes); frames], omitted_frames: 0 };
        let stack = RankStack {
            rank: 1,
            at: Time(1),
            threads: vec![thread; threads],
            omitted_threads: 0,
            missing: None,
        };
        ReportBody::Stacks { stacks: vec![stack] }
    };
    for (case, body, fits) in [
        ("a process that stands still", still(1, &|_| {}), true),
        ("another replica's", still(0, &|_| {}), false),
        ("one that ends before it begins", still(1, &|still| still.until = Time(0)), false),
        ("a long hash", still(1, &|still| still.stack.as_mut().unwrap().hash = "a".repeat(33)), false),
        (
            "many frames",
            still(1, &|still| still.stack.as_mut().unwrap().top = vec![String::new(); 13]),
            false,
        ),
        (
            "two of a kind",
            still(1, &|still| {
                still.witnesses = vec![witness(WitnessSays::Unchanged), witness(WitnessSays::Changed)]
            }),
            false,
        ),
        (
            "a long reason",
            still(1, &|still| still.witnesses = vec![witness(WitnessSays::Unknown("x".repeat(201)))]),
            false,
        ),
        ("a rank that moves", ReportBody::Moved { ranks: vec![1] }, true),
        ("another's that moves", ReportBody::Moved { ranks: vec![1, 0] }, false),
        ("one rank twice", ReportBody::Moved { ranks: vec![1, 1] }, false),
        ("stacks", stack(2, 3, 100), true),
        ("5,000 threads", stack(5_000, 1, 1), false),
        ("a stack of 10,000 frames", stack(1, 10_000, 1), false),
        ("a long frame", stack(1, 1, 257), false),
        ("much in all", stack(9, 128, 256), false),
    ] {
        let answer = world.sync(&hub, world.request("worker-0", 0, vec![report(1, body)])).await;
        assert_eq!(answer.is_ok(), fits, "{case}: {answer:?}");
    }
}

#[tokio::test]
async fn the_times_of_an_agent_whose_clock_is_off_are_corrected() {
    for (off_seconds, want_seconds) in [(-3600, 3600), (3600, -3600), (1, 0)] {
        let world = World::new().await;
        let hub = world.hub();
        let mut request = world.request("worker-0", 0, vec![ready(1)]);
        request.sent_at.0 += off_seconds * 1_000_000;
        world.sync(&hub, request).await.unwrap();
        let inputs = world.one.inputs.lock().unwrap();
        let Some(Input::Report { report, .. }) = inputs.last() else { panic!("{inputs:?}") };
        let moved = report.at.0 - ready(1).at.0;
        // The clock of these tests goes on by a microsecond with each look at it.
        assert!((moved - want_seconds * 1_000_000).abs() < 100, "{moved}");
    }
}

#[tokio::test]
async fn the_agent_of_a_job_that_is_gone_is_told_so() {
    let mut world = World::new().await;
    let hub = world.hub();
    world.task = TaskId::of_attempt("demo", &JobId::new("jzzzzzzzzzz2").unwrap(), 1);
    assert!(matches!(world.sync(&hub, world.request("worker-0", 0, vec![])).await, Err(SyncError::Gone)));
}

/// Takes how often the chain was told that a replica is silent, and that it is heard.
fn told(world: &World) -> (usize, usize) {
    let inputs = std::mem::take(&mut *world.one.inputs.lock().unwrap());
    let count = |wanted: fn(&Input) -> bool| inputs.iter().filter(|input| wanted(input)).count();
    (
        count(|input| matches!(input, Input::Silent { .. })),
        count(|input| matches!(input, Input::Heard { .. })),
    )
}

fn pass(world: &World, seconds: i64) {
    world.one.now.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
}

/// It is stopped and seen to be gone.
async fn end(world: &World) {
    let stop = Input::Request { request: engine::chain::Request::Stop { force: true }, by: "ada".into() };
    let absent = Input::Observed { task_id: world.task.clone(), observation: Observation::Absent };
    world.one.input(&world.one.job, vec![stop, absent]).await.unwrap();
    told(world);
}

#[tokio::test]
async fn a_silent_replica_is_told_once_while_its_attempt_lives_and_again_when_it_is_heard() {
    let world = World::new().await;
    let hub = world.hub();
    world.sync(&hub, world.request("worker-0", 0, vec![ready(1)])).await.unwrap();
    assert_eq!(told(&world), (0, 1), "what an earlier server told is not known");
    pass(&world, 59);
    hub.report_silence().await;
    assert_eq!(told(&world), (0, 0), "one second early");
    pass(&world, 1);
    hub.report_silence().await;
    hub.report_silence().await;
    assert_eq!(told(&world), (1, 0));
    world.sync(&hub, world.request("worker-0", 0, vec![])).await.unwrap();
    assert_eq!(told(&world), (0, 1));
    end(&world).await;
    pass(&world, 60);
    hub.report_silence().await;
    assert_eq!(told(&world), (0, 0), "its agent has ended and is missed by nobody");
}

#[tokio::test]
async fn an_attempt_that_is_over_is_forgotten_whatever_was_told_of_its_replicas() {
    for is_told in [false, true] {
        let world = World::new().await;
        let hub = world.hub();
        for replica in ["master-0", "worker-0"] {
            world.sync(&hub, world.request(replica, 0, vec![ready(1)])).await.unwrap();
        }
        told(&world);
        pass(&world, 60);
        if is_told {
            hub.report_silence().await;
            hub.report_silence().await;
            assert_eq!((told(&world), hub.known()), ((2, 0), 1), "it lives, and they may come back");
        }
        end(&world).await;
        hub.report_silence().await;
        assert_eq!((told(&world), hub.known()), ((0, 0), 0), "told: {is_told}");
    }
}

#[tokio::test]
async fn a_server_that_leads_again_knows_nothing_of_when_it_led_before() {
    let world = World::new().await;
    let hub = world.hub();
    world.sync(&hub, world.request("worker-0", 0, vec![])).await.unwrap();
    told(&world);
    world.one.elsewhere.store(true, Ordering::Relaxed);
    let refused = world.sync(&hub, world.request("worker-0", 0, vec![ready(1)])).await;
    assert!(matches!(refused, Err(SyncError::Elsewhere)), "{refused:?}");
    pass(&world, 60);
    hub.report_silence().await;
    world.one.elsewhere.store(false, Ordering::Relaxed);
    hub.report_silence().await;
    assert_eq!((told(&world), hub.known()), ((0, 0), 0), "it spoke to another server meanwhile");
}

#[tokio::test]
async fn who_cannot_be_answered_here_is_to_connect_anew() {
    let world = World::new().await;
    let router = routes(Door::new(world.hub(), Limits::USUAL));
    world.one.elsewhere.store(true, Ordering::Relaxed);
    let body = world.body(&world.request("worker-0", 0, vec![]));
    let request = world.posted("worker-0", &world.token("worker-0"), Some(body.len()), body.into());
    let answer = tower::ServiceExt::<Request>::oneshot(router, request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()["connection"], "close");
}

#[tokio::test]
async fn what_could_not_be_committed_of_a_replica_is_told_by_the_next_occasion() {
    let world = World::new().await;
    let hub = world.hub();
    let fail = || world.one.failures.store(1, Ordering::Relaxed);
    let sync = async || world.sync(&hub, world.request("worker-0", 0, vec![])).await;
    fail();
    assert!(matches!(sync().await, Err(SyncError::NotNow(_))));
    sync().await.unwrap();
    assert_eq!(told(&world), (0, 1));
    sync().await.unwrap();
    assert_eq!(told(&world), (0, 0), "once");
    pass(&world, 60);
    fail();
    hub.report_silence().await;
    assert_eq!(told(&world), (0, 0));
    hub.report_silence().await;
    assert_eq!(told(&world), (1, 0));
    fail();
    assert!(sync().await.is_err());
    sync().await.unwrap();
    assert_eq!(told(&world), (0, 1));
}

/// The rest of it never comes.
fn endless() -> Body {
    Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>())
}

/// Sends a request in a task of its own.
fn send(router: &Router, request: Request) -> tokio::task::JoinHandle<StatusCode> {
    let router = router.clone();
    tokio::spawn(
        async move { tower::ServiceExt::<Request>::oneshot(router, request).await.unwrap().status() },
    )
}

/// Replicas that send slowly, of all kinds, in tasks of their own.
fn slow(world: &World, router: &Router, count: usize) -> Vec<tokio::task::JoinHandle<StatusCode>> {
    let token = world.token("worker-0");
    let lengths = [Some(100), Some(1_000_000), None].into_iter().cycle().take(count);
    lengths.map(|length| send(router, world.posted("worker-0", &token, length, endless()))).collect()
}

#[tokio::test]
async fn many_who_send_slowly_keep_no_one_waiting() {
    let world = World::new().await;
    let limits = Limits {
        small_bytes: 64 * 1024,
        large_bodies: 2,
        body_time: Duration::from_secs(24 * 3600),
        polls: 100,
    };
    let router = routes(Door::new(world.hub(), limits));
    let slow = slow(&world, &router, 600);
    let small = world.body(&world.request("worker-0", 0, vec![ready(1)]));
    let honest = world.posted("worker-0", &world.token("worker-0"), Some(small.len()), Body::from(small));
    // All places for large bodies are taken and 400 wait for one: a sync as they nearly all are passes them.
    let answer = tokio::time::timeout(HOLD, send(&router, honest)).await;
    assert_eq!(answer.expect("it did not wait for them").unwrap(), StatusCode::OK);
    assert!(slow.iter().all(|slow| !slow.is_finished()), "they all still hold what they have");
}

#[tokio::test]
async fn whoever_sends_slowly_loses_its_place() {
    let world = World::new().await;
    let limits =
        Limits { small_bytes: 64 * 1024, large_bodies: 2, body_time: Duration::from_millis(50), polls: 100 };
    let router = routes(Door::new(world.hub(), limits));
    for slow in slow(&world, &router, 12) {
        assert_eq!(slow.await.unwrap(), StatusCode::REQUEST_TIMEOUT);
    }
    // One that does not say its length finds a place again, and is there at once.
    let body = Body::from(world.body(&world.request("worker-0", 0, vec![ready(1)])));
    let unmeasured = world.posted("worker-0", &world.token("worker-0"), None, body);
    assert_eq!(send(&router, unmeasured).await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn nothing_is_read_of_whoever_is_no_agent() {
    let world = World::new().await;
    let limits = Limits { large_bodies: 1, body_time: HOLD, ..Limits::USUAL };
    let router = routes(Door::new(world.hub(), limits));
    let token = world.token("worker-0");
    let mut nameless = world.posted("worker-0", &token, None, endless());
    nameless.headers_mut().remove(headers::REPLICA);
    let strangers = ["", "0", &"0".repeat(64), &world.token("master-0")]
        .map(|token| world.posted("worker-0", token, Some(1_000_000), endless()));
    for stranger in strangers.into_iter().chain([nameless]) {
        let answer = tokio::time::timeout(HOLD / 4, send(&router, stranger)).await;
        assert_eq!(answer.expect("it is answered without its body").unwrap(), StatusCode::UNAUTHORIZED);
    }
    // Its own token, but the body speaks for another.
    let other = Body::from(world.body(&world.first(0, 4242)));
    let forged = world.posted("worker-0", &token, None, other);
    assert_eq!(send(&router, forged).await.unwrap(), StatusCode::UNAUTHORIZED);
    assert!(world.one.inputs.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_time_that_a_body_takes_is_not_taken_for_a_wrong_clock() {
    let world = World::new().await;
    let router = routes(Door::new(world.hub(), Limits::USUAL));
    let bytes = world.body(&world.request("worker-0", 0, vec![ready(1)]));
    let one = Arc::clone(&world.one);
    let late = futures::stream::once(async move {
        one.now.fetch_add(9_000_000, Ordering::Relaxed);
        Ok::<_, std::io::Error>(bytes)
    });
    let token = world.token("worker-0");
    let request = world.posted("worker-0", &token, None, Body::from_stream(late));
    assert_eq!(send(&router, request).await.unwrap(), StatusCode::OK);
    let inputs = world.one.inputs.lock().unwrap();
    let Some(Input::Report { report, .. }) = inputs.last() else { panic!("{inputs:?}") };
    assert_eq!(report.at, ready(1).at);
}

#[tokio::test]
async fn polls_beyond_the_limit_are_asked_to_come_again() {
    let world = World::new().await;
    let limits = Limits { polls: 1, ..Limits::USUAL };
    let door = Door::new(world.hub(), limits);
    let seen = world.sync(&world.hub(), world.request("worker-0", 0, vec![])).await.unwrap().version;
    let (token, speaker) = (world.token("worker-0"), world.speaker("worker-0"));
    let poll = |seen| {
        let body = world.body(&world.request("worker-0", seen, vec![]));
        world.posted("worker-0", &token, None, Body::from(body))
    };
    let held = {
        let (door, speaker, request) = (door.clone(), speaker.clone(), poll(seen));
        tokio::spawn(async move { door.pass(&speaker, request).await })
    };
    let deadline = std::time::Instant::now() + HOLD;
    loop {
        match door.pass(&speaker, poll(0)).await {
            Err(SyncError::NotNow(why)) => break assert!(why.to_string().contains("1 polls"), "{why}"),
            // The poll has not taken its place yet.
            _ => assert!(std::time::Instant::now() < deadline && !held.is_finished()),
        }
    }
    held.abort();
}
