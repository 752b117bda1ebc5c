//! Removes what a server keeps of jobs that are deleted. The server that deletes a job removes its own copy with it; each of the others
//! finds here that the job is gone.
//!
//! Only what the database says was deleted goes. What it does not know may be somebody's: it was put back from a copy, or the data directory
//! was used with another one.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use engine::ids::JobId;
use tokio_util::sync::CancellationToken;

use crate::store::{Store, StoreError, jobs};

/// How often it is looked. Nobody waits for it: all that a late round costs is room on the disk.
const EACH: Duration = Duration::from_secs(600);
/// Directories of one round, each a question to the database.
const AT_A_TIME: usize = 256;

/// Why it could not be looked at what is kept.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The directories could not be listed.
    #[error("could not look through {path}")]
    Files {
        /// Where they are.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Whether a job was deleted could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A server's directories of jobs and how far they are looked through.
pub struct Sweep {
    jobs: PathBuf,
    store: Store,
    /// The last one that was looked at; none at the beginning.
    last: Option<JobId>,
}

impl Sweep {
    /// Of a data directory and its database.
    pub fn new(data: &Path, store: Store) -> Self {
        Self { jobs: data.join("jobs"), store, last: None }
    }

    /// Sweeps at once and then from time to time, until `stop`.
    pub async fn keep_going(mut self, stop: CancellationToken) {
        loop {
            let round = async {
                if let Err(error) = self.round().await {
                    tracing::warn!(error = %format!("{:#}", anyhow::Error::from(error)), "copies of deleted jobs' logs stay until the next round");
                }
                tokio::time::sleep(EACH).await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = round => {}
            }
        }
    }

    /// Looks at the next directories, and after the last ones at the first again; names the jobs whose copy it removed. One that cannot be
    /// removed is passed over until it comes round again.
    ///
    /// # Errors
    /// The directories could not be listed, or the database failed. What was removed by then is.
    pub async fn round(&mut self) -> Result<Vec<JobId>, SweepError> {
        let found = self.listed().await?;
        let is_end = found.len() < AT_A_TIME;
        let mut removed = Vec::new();
        for job in found {
            if self.is_forgotten(&job).await? && self.remove(&job).await {
                removed.push(job.clone());
            }
            self.last = Some(job);
        }
        if is_end {
            self.last = None;
        }
        Ok(removed)
    }

    async fn listed(&self) -> Result<Vec<JobId>, SweepError> {
        let (dir, last) = (self.jobs.clone(), self.last.clone());
        let listed = tokio::task::spawn_blocking(move || next(&dir, last.as_ref())).await;
        let failed = |source| SweepError::Files { path: self.jobs.clone(), source };
        listed.map_err(io::Error::other).flatten().map_err(failed)
    }

    async fn is_forgotten(&self, job: &JobId) -> Result<bool, SweepError> {
        let mut conn = self.store.read().await?;
        Ok(jobs::is_forgotten(&mut conn, job).await?)
    }

    /// Whether it could be removed.
    async fn remove(&self, job: &JobId) -> bool {
        let dir = self.jobs.join(job.as_str());
        match tokio::fs::remove_dir_all(&dir).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(job_id = %job, %error, dir = %dir.display(), "could not remove this server's copy of the logs of a deleted job");
                false
            }
            _ => {
                tracing::info!(job_id = %job, "removed this server's copy of the logs of a deleted job");
                true
            }
        }
    }
}

/// Whether a name is of the form of [`crate::clock::new_job_id`]; what has another is not ours to remove.
fn is_job(name: &str) -> bool {
    name.len() == 12 && name.starts_with('j')
}

/// The jobs, in their order, that have a directory and come after the last one.
fn next(dir: &Path, last: Option<&JobId>) -> io::Result<Vec<JobId>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name().into_string().ok();
        let job = name.filter(|name| is_job(name)).and_then(|name| JobId::new(name).ok());
        found.extend(job.filter(|job| last.is_none_or(|last| job > last)));
    }
    found.sort_unstable();
    found.truncate(AT_A_TIME);
    Ok(found)
}
