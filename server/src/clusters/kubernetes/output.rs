//! Brings what the containers print into the data directory, where logs are read from wherever a job runs.
//!
//! The API server keeps a container's output as long as its pod is there, and of a long one only the end; so what is new is fetched
//! again and again, at once when a container ends, and before anything of an attempt is removed. Whoever reads a log has it
//! fetched first.
//!
//! What nobody waits for shares a budget, because each fetch is a request of the API server to a kubelet: where many containers run, those
//! come first that have most to lose, and the others less often. What a kubelet still has when its turn comes is not lost, and
//! what a failure says reaches the server through the agents.

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use engine::ids::{ReplicaName, TaskId};
use futures::{AsyncReadExt, StreamExt, stream};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{Api, Client, api::LogParams};
use tokio::{
    sync::Semaphore,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

use super::world::{Printing, World};
use crate::logs::keep::KeptLog;

/// Who reads a log often sees what is at most so old.
const FRESH: Duration = Duration::from_secs(1);
/// Without a reader the output of a container that runs is fetched so often, as far as the budget goes. A kubelet keeps 50 MB by default,
/// and starts a new file each 10.
const EACH: Duration = Duration::from_secs(30);
/// What a container prints that was told to end is fetched at once, then so often, and at once when it has ended.
const ENDING: Duration = Duration::from_secs(5);
/// How often it is looked for containers whose output is due, at all that there are. At those of an attempt whose pods end it is looked at
/// once.
const LOOK: Duration = Duration::from_secs(2);
/// The budget: containers that run and are fetched after each look at all, five a second at most. All of 150 have their turn every 30 s, all
/// of 4,000 every 13 minutes; one that prints 10 kB/s does so earlier.
const RUNNING: usize = 10;
/// Those that have ended or are about to, after each look. This only keeps the end of very many from holding up the others.
const ENDED: usize = 256;
/// What a container is taken to print at least, bytes a second, so that a quiet one has its turn too.
const QUIET: f64 = 50.0;
/// Pause after a failure, as with a node that cannot be reached; it doubles up to [`LONGEST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(10);
/// The longest pause: nodes that stay away must not use up what the others need.
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// Outputs that are fetched at a time.
const AT_A_TIME: usize = 8;
/// How long fetching one may take; what has come by then is kept, and the rest comes next time.
const FETCH: Duration = Duration::from_secs(20);
/// Bytes that are read at once.
const PIECE: usize = 256 * 1024;
/// Outputs that are fetched at a time before attempts are removed, of all that are: many may fail at the same moment.
const FAREWELLS: usize = 32;
/// How long all outputs of an attempt may take before it is removed.
const LAST: Duration = Duration::from_secs(20);

/// The kept outputs of a cluster's containers.
pub(super) struct Outputs {
    client: Client,
    data_dir: PathBuf,
    known: Mutex<HashMap<(TaskId, ReplicaName), Arc<Output>>>,
    farewells: Semaphore,
}

/// The output of one replica; fetched by one at a time.
#[derive(Default)]
struct Output(tokio::sync::Mutex<Fetched>);

/// How far it is fetched.
#[derive(Default)]
struct Fetched {
    at: Option<Instant>,
    /// When it was first seen that there is something to fetch.
    since: Option<Instant>,
    /// How much came a second, the last time.
    bytes_per_second: f64,
    /// It was fetched after its pod had been told to end.
    ending: bool,
    /// It was fetched after its container had ended, so nothing more will come.
    complete: bool,
    /// The UID of the pod whose output that is: a job that was suspended gets another of the same name.
    pod: String,
    /// Tries that have failed in a row; the first is told.
    failures: u32,
}

/// When an output is to be fetched.
enum Due {
    /// Its container has ended, or is about to: soon nothing can be fetched any more.
    Now,
    /// When there is room, first those of which most may be lost: so many bytes are likely to be new.
    InTurn(f64),
    NotYet,
}

impl Fetched {
    fn due(&self, printing: &Printing, now: Instant) -> Due {
        let is_ending = printing.over || printing.ending;
        let pause = match self.failures {
            0 if printing.over || printing.ending && !self.ending => Duration::ZERO,
            0 if printing.ending => ENDING,
            0 => EACH,
            failures => retry_pause(failures),
        };
        let is_of_it = self.pod == printing.uid;
        if is_of_it && (self.complete || self.at.is_some_and(|at| now.duration_since(at) < pause)) {
            return Due::NotYet;
        }
        if is_ending {
            return Due::Now;
        }
        let since = self.at.or(self.since).unwrap_or(now);
        let seconds = now.duration_since(since).as_secs_f64();
        Due::InTurn(seconds * (self.bytes_per_second + QUIET))
    }

    /// Notes what a try brought.
    fn note(&mut self, bytes: u64, failed: bool, now: Instant) {
        let since = self.at.or(self.since);
        let seconds = since.map_or(EACH, |since| now.duration_since(since)).as_secs_f64();
        self.bytes_per_second = bytes as f64 / seconds.max(1.0);
        self.at = Some(now);
        self.failures = if failed { self.failures.saturating_add(1) } else { 0 };
    }
}

/// How long to wait after so many failures in a row.
fn retry_pause(failures: u32) -> Duration {
    FIRST_RETRY.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(LONGEST_RETRY)
}

/// Why an output could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    #[error("the API server did not give the output of pod {pod}")]
    Api {
        pod: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("the output of pod {pod} broke off")]
    Broken {
        pod: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the output of pod {pod} cannot be kept")]
    Kept {
        pod: String,
        #[source]
        source: std::io::Error,
    },
}

impl Outputs {
    pub(super) fn new(client: Client, data_dir: PathBuf) -> Self {
        Self { client, data_dir, known: Mutex::default(), farewells: Semaphore::new(FAREWELLS) }
    }

    fn output(&self, task: &TaskId, replica: &ReplicaName) -> Arc<Output> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry((task.clone(), replica.clone())).or_default())
    }

    /// Fetches what is new of one replica, unless that was done a moment ago.
    ///
    /// # Errors
    /// The API server or the disk. What was kept stays.
    pub(super) async fn fetch(&self, printing: &Printing) -> Result<(), OutputError> {
        self.fetch_after(printing, FRESH).await
    }

    /// The same, unless that was done so short ago.
    async fn fetch_after(&self, printing: &Printing, fresh: Duration) -> Result<(), OutputError> {
        let output = self.output(&printing.task, &printing.replica);
        let mut fetched = output.0.lock().await;
        if fetched.pod != printing.uid {
            *fetched = Fetched { pod: printing.uid.clone(), ..Fetched::default() };
        }
        let is_fresh = fetched.at.is_some_and(|at| at.elapsed() < fresh) && !printing.over;
        if fetched.complete || is_fresh {
            return Ok(());
        }
        let bytes = AtomicU64::new(0);
        let result = match timeout(FETCH, self.keep(printing, &bytes)).await {
            // The next one goes on where this one was.
            Err(_) => Ok(false),
            Ok(done) => done.map(|()| true),
        };
        let bytes = bytes.into_inner();
        // Where nothing came in all that time its node is not heard, whatever the API server says.
        let is_silent = matches!(result, Ok(false)) && bytes == 0;
        if let Err(error) = &result
            && fetched.failures == 0
        {
            tracing::warn!(task = %printing.task, replica = %printing.replica, error = error as &dyn Error, "could not fetch its output; tried again");
        }
        fetched.note(bytes, result.is_err() || is_silent, Instant::now());
        fetched.ending = printing.ending;
        fetched.complete = printing.over && matches!(result, Ok(true));
        result.map(drop)
    }

    /// Keeps what is new; `bytes` counts what came, also where it breaks off.
    async fn keep(&self, printing: &Printing, bytes: &AtomicU64) -> Result<(), OutputError> {
        let Some(job) = printing.task.job_id() else { return Ok(()) };
        let pod = || printing.pod.clone();
        let dir = self.data_dir.join("jobs").join(job.as_str()).join(printing.task.as_str());
        let dir = dir.join(printing.replica.as_str());
        let kept = |source| OutputError::Kept { pod: pod(), source };
        let mut log = blocking(move || KeptLog::open(dir)).await.map_err(kept)?;
        let params = LogParams {
            container: Some(printing.container.clone()),
            timestamps: true,
            since_time: log.since().and_then(|at| Timestamp::from_second(at.timestamp()).ok()),
            ..LogParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &printing.namespace);
        let mut output = match pods.log_stream(&printing.pod, &params).await {
            Ok(output) => Box::pin(output),
            // Not started yet, or gone with all it printed.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => return Ok(()),
            Err(source) => return Err(OutputError::Api { pod: pod(), source: Box::new(source) }),
        };
        let (mut buffer, mut filled) = (vec![0; PIECE], 0);
        loop {
            let read = output.read(&mut buffer[filled..]).await;
            let read = read.map_err(|source| OutputError::Broken { pod: pod(), source })?;
            if read == 0 {
                return Ok(());
            }
            filled += read;
            bytes.fetch_add(read as u64, Ordering::Relaxed);
            let (given, taken);
            (log, given, taken) = blocking(move || {
                let taken = log.take(&buffer[..filled])?;
                Ok((log, buffer, taken))
            })
            .await
            .map_err(kept)?;
            buffer = given;
            buffer.copy_within(taken..filled, 0);
            filled -= taken;
            // The agent cuts lines at a quarter of a piece; a longer one is not its, and is passed over.
            if filled == buffer.len() {
                filled = 0;
            }
        }
    }

    /// Fetches all that is left of an attempt before it is removed, as far as that goes in time.
    pub(super) async fn fetch_all(&self, world: &World, task: &TaskId) {
        // The program's last words may be a moment old.
        let fetch_all = stream::iter(world.printing_of(task)).for_each_concurrent(AT_A_TIME, async |one| {
            // The semaphore is never closed.
            let _place = self.farewells.acquire().await;
            drop(self.fetch_after(&one, Duration::ZERO).await);
        });
        if timeout(LAST, fetch_all).await.is_err() {
            tracing::warn!(%task, "not all of its output could be kept in time");
        }
    }

    /// Fetches what is due until `stop`.
    pub(super) async fn keep_going(&self, world: &World, stop: CancellationToken) {
        let mut look = interval(LOOK);
        // After a round that took longer the next whole one is not made up for.
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let going = async {
            loop {
                let due = tokio::select! {
                    _ = look.tick() => self.due_of_all(world.printing(), Instant::now()),
                    tasks = world.ending() => {
                        let printing = tasks.iter().flat_map(|task| world.printing_of(task)).collect();
                        self.due(printing, 0, Instant::now())
                    }
                };
                let fetch = async |one| drop(self.fetch_after(&one, Duration::ZERO).await);
                stream::iter(due).for_each_concurrent(AT_A_TIME, fetch).await;
            }
        };
        stop.run_until_cancelled(going).await;
    }

    /// Those that are fetched now of all that there are; forgets those that are no more.
    fn due_of_all(&self, all: Vec<Printing>, now: Instant) -> Vec<Printing> {
        let there: HashSet<_> = all.iter().map(|one| (&one.task, &one.replica)).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(task, replica), _| there.contains(&(task, replica)));
        drop(known);
        self.due(all, RUNNING, now)
    }

    /// Those of them that are fetched now, the most urgent first, and at most so many that run.
    fn due(&self, printing: Vec<Printing>, most: usize, now: Instant) -> Vec<Printing> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut ended, mut running) = (Vec::new(), Vec::new());
        for one in printing {
            let output = known.entry((one.task.clone(), one.replica.clone())).or_default();
            // One that is being fetched is not due.
            let Ok(mut fetched) = output.0.try_lock() else { continue };
            fetched.since.get_or_insert(now);
            match fetched.due(&one, now) {
                Due::Now => ended.push((fetched.failures, one)),
                Due::InTurn(bytes) => running.push((bytes, one)),
                Due::NotYet => {}
            }
        }
        // A node that does not answer keeps the others waiting once.
        ended.sort_by_key(|(failures, _)| *failures);
        running.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let ended = ended.into_iter().map(|(_, one)| one).take(ENDED);
        ended.chain(running.into_iter().map(|(_, one)| one).take(most)).collect()
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}

#[cfg(test)]
#[path = "tests/output.rs"]
mod tests;
