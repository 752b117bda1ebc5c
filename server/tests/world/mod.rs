//! A driver in a world that a test plays by hand: a fast clock, a cluster with faults, and agents that say what they are told to.

pub mod cluster;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use engine::{
    chain::{Chain, Effect, Input, Request},
    failure::{Exit, Phase},
    ids::{JobId, ReplicaName, TaskId},
    job::{FaultToleranceDraft, JobDraft, JobKind, Site},
    sync::{Desired, PortOffer, Report, ReportBody},
    time::Time,
};
use futures::future::BoxFuture;
use server::{
    clock::Clock,
    clusters::Cluster,
    driver::{Driver, DriverError, DriverParts},
    store::{Store, commit, inbox, jobs, steps},
    tokens::Tokens,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Longest wait for something that has to happen.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// How much faster than the machine's the clock of the tests runs.
const SPEED: u32 = 100;
/// The driver's own tasks sleep for less.
const LONG_MICROS: u64 = 30_000_000;

/// A clock that runs a hundred times faster, so that back-offs and leases are waited for and not faked.
pub struct FastClock {
    begun: Instant,
    speed: u32,
    skipped: AtomicI64,
    breaks: AtomicBool,
}

impl FastClock {
    pub fn new() -> Arc<Self> {
        Self::with(SPEED)
    }

    /// Ten times faster, where a lead must be kept beside a server that waits for it: its lease is a second and a half then, and a
    /// machine that is busy holds up its renewal by more than the hundredth part of the fifteen.
    pub fn steady() -> Arc<Self> {
        Self::with(SPEED / 10)
    }

    /// As fast as the machine's, for what has to happen within some time.
    pub fn slow() -> Arc<Self> {
        Self::with(1)
    }

    fn with(speed: u32) -> Arc<Self> {
        let (skipped, breaks) = (AtomicI64::new(0), AtomicBool::new(false));
        Arc::new(Self { begun: Instant::now(), speed, skipped, breaks })
    }

    /// Time passes at once. Whoever sleeps already is not woken.
    pub fn skip(&self, seconds: i64) {
        self.skipped.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }

    /// The next task that means to sleep for long panics: only those of jobs that wait do.
    pub fn break_next_job(&self) {
        self.breaks.store(true, Ordering::SeqCst);
    }

    /// No task has panicked since.
    pub fn is_to_break(&self) -> bool {
        self.breaks.load(Ordering::SeqCst)
    }
}

impl Clock for FastClock {
    fn now(&self) -> Time {
        let micros = self.begun.elapsed().as_micros() as i64 * i64::from(self.speed);
        Time(1_767_225_600_000_000 + micros + self.skipped.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        let micros = at.micros().saturating_sub(self.now().micros()).max(0) as u64;
        assert!(micros < LONG_MICROS || !self.breaks.swap(false, Ordering::SeqCst), "a task of a job breaks");
        Box::pin(tokio::time::sleep(Duration::from_micros(micros) / self.speed))
    }
}

/// The id of the job that tests have.
pub fn job_id() -> JobId {
    JobId::new("jabcdefghij2").unwrap()
}

/// The id of its attempt `number`.
pub fn task(number: u32) -> TaskId {
    TaskId::of_attempt("demo", &job_id(), number)
}

pub fn master() -> ReplicaName {
    ReplicaName::of_index(JobKind::PyTorchJob, 0)
}

/// The database of a test.
pub async fn open(dir: &Path) -> Store {
    Store::open(&format!("sqlite://{}/holdfast.db", dir.display())).await.unwrap()
}

/// What a driver of a test works with.
pub fn parts(store: &Store, clock: &Arc<FastClock>, cluster: Arc<dyn Cluster>) -> DriverParts {
    DriverParts {
        store: store.clone(),
        clusters: BTreeMap::from([("local".to_owned(), cluster)]),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        tokens: Tokens::new(&[7; 32]),
    }
}

/// Starts a driver and waits until it leads.
pub async fn drive(
    store: &Store,
    clock: &Arc<FastClock>,
    cluster: Arc<dyn Cluster>,
) -> (Driver, CancellationToken) {
    let shutdown = CancellationToken::new();
    let driver = Driver::start(parts(store, clock, cluster), shutdown.clone());
    tokio::time::timeout(DEADLINE, driver.until_leading()).await.expect("the driver leads");
    (driver, shutdown)
}

/// Makes the job: one replica, basic mode, this many task restarts.
pub async fn create(store: &Store, clock: &FastClock, restarts: i64) {
    create_on("local", job_id(), store, clock, restarts).await;
}

/// Makes a job like it on a cluster.
pub async fn create_on(cluster: &str, job_id: JobId, store: &Store, clock: &FastClock, restarts: i64) {
    let draft = JobDraft {
        name: "demo".to_owned(),
        command: vec!["true".to_owned()],
        fault_tolerance: FaultToleranceDraft {
            auto_failover: Some(true),
            max_task_restarts: Some(restarts),
            ..FaultToleranceDraft::default()
        },
        ..JobDraft::default()
    };
    let now = clock.now();
    let mut spec = draft.validate(&Site::default()).unwrap();
    spec.cluster = cluster.to_owned();
    let step = Chain::start(job_id, spec, now);
    let head = steps::Head::of(&step.chain, now);
    let kept = steps::Kept { chain: &step.chain, head: &head, records: &step.records, now };
    let mut tx = store.write().await.unwrap();
    steps::create(&mut tx, steps::Origin { owner: "ann", copied_from: None }, kept).await.unwrap();
    commit(tx).await.unwrap();
}

/// Asks for something as a person does; false where there is no job any more.
pub async fn ask(store: &Store, clock: &FastClock, request: &Request) -> bool {
    let mut tx = store.write().await.unwrap();
    let id = server::clock::new_id().unwrap();
    let kept = inbox::add(&mut tx, &job_id(), &id, request, "ann", clock.now()).await.unwrap();
    commit(tx).await.unwrap();
    kept
}

/// How often the job was written; none where it is forgotten.
pub async fn generation(store: &Store) -> Option<i64> {
    let mut conn = store.read().await.unwrap();
    jobs::head(&mut conn, &job_id()).await.unwrap().map(|head| head.generation)
}

/// What a replica says, one thing after the other.
pub fn life(exit: u8) -> [ReportBody; 4] {
    [
        ReportBody::Ready,
        ReportBody::Started,
        ReportBody::Exited {
            rank: 0,
            exit: Exit::Code(exit),
            asked: false,
            step: None,
            phase: Phase::Training,
            evidence: Vec::new(),
        },
        ReportBody::Stopped,
    ]
}

/// The report with which a replica of an attempt says this.
pub fn report(task: &TaskId, sequence: u64, at: Time, body: ReportBody) -> Input {
    let report = Report { sequence, at, launch: 0, body };
    Input::Report { task_id: task.clone(), replica: master(), report }
}

/// Plays the agent of an attempt: says what is left of `life(exit)`, each once the chain wants what comes before it.
pub async fn play(driver: &Driver, clock: &FastClock, task: &TaskId, exit: u8) -> Result<(), DriverError> {
    let mut chain = driver.subscribe(&job_id()).await?;
    until(&mut chain, "the attempt exists", |chain| is_over(chain, task) || exists(chain)).await?;
    for (body, sequence) in life(exit).into_iter().zip(1..) {
        let began = body == ReportBody::Started;
        until(&mut chain, "the launch is wanted", |chain| {
            !began || is_over(chain, task) || runs(chain, task)
        })
        .await?;
        if chain.borrow().acknowledged(task, &master()) < sequence {
            driver.input(&job_id(), vec![report(task, sequence, clock.now(), body)]).await?;
        }
    }
    Ok(())
}

/// Nothing is still to be made.
pub fn exists(chain: &Chain) -> bool {
    !chain.pending_effects().iter().any(|effect| matches!(effect, Effect::Create(_)))
}

fn runs(chain: &Chain, task: &TaskId) -> bool {
    let offer = PortOffer { launch: chain.launch_number(), port: 29_500 };
    matches!(chain.desired(task, &master(), Some(("127.0.0.1", offer))), Desired::Run { .. })
}

/// The chain has gone on without this attempt.
pub fn is_over(chain: &Chain, task: &TaskId) -> bool {
    chain.desired(task, &master(), None) == Desired::Exit
}

/// Waits until the chain is as wanted.
pub async fn until(
    chain: &mut watch::Receiver<Arc<Chain>>,
    what: &str,
    wanted: impl Fn(&Chain) -> bool,
) -> Result<Arc<Chain>, DriverError> {
    let wait = async { chain.wait_for(|chain| wanted(chain)).await.map(|chain| Arc::clone(&chain)) };
    match tokio::time::timeout(DEADLINE, wait).await {
        Ok(Ok(chain)) => Ok(chain),
        Ok(Err(_)) => Err(DriverError::NotFound { job_id: job_id() }),
        Err(_) => panic!("not in time: {what}; the chain is {:?}", chain.borrow()),
    }
}
