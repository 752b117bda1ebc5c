//! Brings what the containers print into the data directory, where logs are read from wherever a job runs.
//!
//! The API server keeps a container's output as long as its pod is there, and of a long one only the end; so what is new is fetched
//! again and again, at once when a container ends, and before anything of an attempt is removed. Whoever reads a log has it
//! fetched first.

use std::{
    collections::HashMap,
    error::Error,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use engine::ids::{ReplicaName, TaskId};
use futures::{AsyncReadExt, StreamExt, stream};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{Api, Client, api::LogParams};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::world::{Printing, World};
use crate::logs::keep::{Form, KeptLog};

/// Who reads a log often sees what is at most so old.
const FRESH: Duration = Duration::from_secs(1);
/// Without a reader the output of a container that runs is fetched so often. A kubelet keeps 50 MB by default, and starts a new file each
/// 10.
const EACH: Duration = Duration::from_secs(30);
/// How often it is looked for containers whose output is due.
const LOOK: Duration = Duration::from_secs(2);
/// Pause after a failure, as with a node that cannot be reached.
const RETRY: Duration = Duration::from_secs(10);
/// Outputs that are fetched at a time.
const AT_A_TIME: usize = 8;
/// How long fetching one may take; what has come by then is kept, and the rest comes next time.
const FETCH: Duration = Duration::from_secs(20);
/// Bytes that are read at once.
const PIECE: usize = 256 * 1024;
/// How long all outputs of an attempt may take before it is removed.
const LAST: Duration = Duration::from_secs(20);

/// The kept outputs of a cluster's containers.
pub(super) struct Outputs {
    client: Client,
    data_dir: PathBuf,
    known: Mutex<HashMap<(TaskId, ReplicaName), Arc<Output>>>,
}

/// The output of one replica; fetched by one at a time.
#[derive(Default)]
struct Output(tokio::sync::Mutex<Fetched>);

/// How far it is fetched.
#[derive(Default)]
struct Fetched {
    at: Option<Instant>,
    /// It was fetched after its container had ended, so nothing more will come.
    complete: bool,
    /// The last try failed, and that was told.
    failing: bool,
    /// The UID of the pod whose output that is: a job that was suspended gets another of the same name.
    pod: String,
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
        Self { client, data_dir, known: Mutex::default() }
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
        let result = match timeout(FETCH, self.keep(printing)).await {
            // The next one goes on where this one was.
            Err(_) => Ok(false),
            Ok(done) => done.map(|()| true),
        };
        fetched.at = Some(Instant::now());
        fetched.complete = printing.over && matches!(result, Ok(true));
        if let Err(error) = &result
            && !fetched.failing
        {
            tracing::warn!(task = %printing.task, replica = %printing.replica, error = error as &dyn Error, "could not fetch its output; tried again");
        }
        fetched.failing = result.is_err();
        result.map(drop)
    }

    async fn keep(&self, printing: &Printing) -> Result<(), OutputError> {
        let Some(job) = printing.task.job_id() else { return Ok(()) };
        let pod = || printing.pod.clone();
        let dir = self.data_dir.join("jobs").join(job.as_str()).join(printing.task.as_str());
        let dir = dir.join(printing.replica.as_str());
        let kept = |source| OutputError::Kept { pod: pod(), source };
        let mut log = blocking(move || KeptLog::open(dir, Form::Agent)).await.map_err(kept)?;
        let params = LogParams {
            container: Some(printing.container.to_owned()),
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
        let all = stream::iter(world.printing()).filter(|one| std::future::ready(one.task == *task));
        // The program's last words may be a moment old.
        let fetch_all = all.for_each_concurrent(AT_A_TIME, async |one| {
            drop(self.fetch_after(&one, Duration::ZERO).await);
        });
        if timeout(LAST, fetch_all).await.is_err() {
            tracing::warn!(%task, "not all of its output could be kept in time");
        }
    }

    /// Fetches what is due until `stop`.
    pub(super) async fn keep_going(&self, world: &World, stop: CancellationToken) {
        loop {
            let round = async {
                let due = self.due(world.printing());
                stream::iter(due)
                    .for_each_concurrent(AT_A_TIME, async |one| drop(self.fetch(&one).await))
                    .await;
                sleep(LOOK).await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = round => {}
            }
        }
    }

    /// Those that ended, are about to, or were not fetched for long; forgets those that are no more.
    fn due(&self, all: Vec<Printing>) -> Vec<Printing> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(task, replica), _| all.iter().any(|one| one.task == *task && one.replica == *replica));
        let is_due = |one: &Printing| {
            let Some(output) = known.get(&(one.task.clone(), one.replica.clone())) else { return true };
            // One that is being fetched is not due.
            output.0.try_lock().is_ok_and(|fetched| {
                let pause = match (fetched.failing, one.over || one.ending) {
                    (false, true) => Duration::ZERO,
                    (true, true) => RETRY,
                    (_, false) => EACH,
                };
                fetched.pod != one.uid
                    || !fetched.complete && fetched.at.is_none_or(|at| at.elapsed() >= pause)
            })
        };
        all.into_iter().filter(is_due).collect()
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
