//! What the local cluster keeps on disk.

use std::{
    collections::BTreeMap,
    io,
    path::{Component, Path, PathBuf},
};

use engine::{
    chain::{Plan, ReplicaStatus},
    ids::{JobId, NodeName, ReplicaName, TaskId},
    job::JobSpec,
    record::Queue,
};
use serde::{Deserialize, Serialize};
use tokio::fs;

use super::{LocalError, below, processes::Process};
use crate::clusters::Order;

/// What an agent says.
pub(super) const AGENT_LOG: &str = "agent.log";
const PROCESS_FILE: &str = "agent.process";
const JOBS: &str = "jobs";
const TRASH: &str = "trash";
/// Directories of the data directory in which only Holdfast writes: what else lies there may be removed at any time.
const OWN: [&str; 2] = [JOBS, TRASH];
/// How what was discarded is called in the trash: the job's id and one of these. Ids hold no point.
const DISCARDED: [&str; 2] = [".files", ".checkpoints"];
const ATTEMPT_FILE: &str = "attempt.json";
const CHECKPOINT_FILE: &str = "checkpoint_dir";

/// An attempt as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub job_id: JobId,
    pub task_id: TaskId,
    /// Its place in the order of arrival.
    pub ordinal: u64,
    pub order: Made,
    /// Where its program saves, absolute.
    pub checkpoint_dir: Option<PathBuf>,
    /// Where its replicas run; empty while it waits.
    pub placement: BTreeMap<ReplicaName, NodeName>,
    /// Why it waits.
    pub queue: Option<Queue>,
    /// Replicas that are over.
    pub ended: BTreeMap<ReplicaName, ReplicaStatus>,
}

/// The order without the tokens, which are secret and in files of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Made {
    pub spec: JobSpec,
    pub plan: Plan,
}

impl Attempt {
    pub(super) fn new(order: &Order, ordinal: u64, checkpoint_dir: Option<PathBuf>) -> Self {
        Self {
            job_id: order.job_id.clone(),
            task_id: order.plan.task_id.clone(),
            ordinal,
            order: Made { spec: order.spec.clone(), plan: order.plan.clone() },
            checkpoint_dir,
            placement: BTreeMap::new(),
            queue: None,
            ended: BTreeMap::new(),
        }
    }
}

/// Why an attempt's directories could not be made.
pub(super) enum Prepare {
    /// The job names a directory that cannot be used.
    Refused(String),
    /// The server's own directory fails.
    Disk(LocalError),
}

/// Where everything is.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    data_dir: PathBuf,
}

impl Layout {
    pub(super) fn new(data_dir: PathBuf) -> Self {
        Self { data_dir }
    }

    pub(super) fn job(&self, job: &JobId) -> PathBuf {
        self.data_dir.join(JOBS).join(job.as_str())
    }

    pub(super) fn attempt(&self, job: &JobId, task: &TaskId) -> PathBuf {
        self.job(job).join(task.as_str())
    }

    pub(super) fn replica(&self, attempt: &Attempt, replica: &ReplicaName) -> PathBuf {
        self.attempt(&attempt.job_id, &attempt.task_id).join(replica.as_str())
    }

    /// Whether an agent of the replica was ever started: its log is opened just before.
    pub(super) async fn was_started(&self, attempt: &Attempt, replica: &ReplicaName) -> bool {
        fs::try_exists(self.replica(attempt, replica).join(AGENT_LOG)).await.unwrap_or(true)
    }

    /// Writes down which process the agent of a replica is.
    pub(super) async fn record(
        &self,
        attempt: &Attempt,
        replica: &ReplicaName,
        process: &Process,
    ) -> Result<(), LocalError> {
        write_whole(&self.replica(attempt, replica).join(PROCESS_FILE), process.to_text().as_bytes()).await
    }

    /// The process that was written down; none where the server died before it came to that.
    pub(super) async fn recorded(&self, attempt: &Attempt, replica: &ReplicaName) -> Option<Process> {
        let text = fs::read_to_string(self.replica(attempt, replica).join(PROCESS_FILE)).await.ok()?;
        Process::of_text(&text)
    }

    /// Makes the directories of an attempt, and its checkpoint directory where that is missing.
    pub(super) async fn prepare(&self, order: &Order) -> Result<Option<PathBuf>, Prepare> {
        if let Some(dir) = &order.spec.working_dir
            && !fs::metadata(dir).await.is_ok_and(|meta| meta.is_dir())
        {
            return Err(Prepare::Refused(format!(
                "working_dir {dir} is no directory of this machine; make it or name another"
            )));
        }
        let checkpoint_dir = match &order.spec.checkpoint_dir {
            None => None,
            Some(path) => Some(self.checkpoint_dir(path).await.map_err(Prepare::Refused)?),
        };
        let dir = self.attempt(&order.job_id, &order.plan.task_id);
        for (replica, token) in &order.tokens {
            let dir = dir.join(replica.as_str());
            make_dir(&dir).await.map_err(Prepare::Disk)?;
            write_secret(&dir.join("token"), token).await.map_err(Prepare::Disk)?;
        }
        if let Some(path) = &checkpoint_dir {
            let file = self.job(&order.job_id).join(CHECKPOINT_FILE);
            write_whole(&file, path.to_string_lossy().as_bytes()).await.map_err(Prepare::Disk)?;
        }
        Ok(checkpoint_dir)
    }

    /// The directory a job saves in, made if it is missing and found to be writable: a job that cannot save is told so before it trains.
    async fn checkpoint_dir(&self, path: &str) -> Result<PathBuf, String> {
        let dir = below(&self.data_dir, path);
        let shown = dir.display().to_string();
        if let Some(own) = self.own_around(&dir).await {
            return Err(format!(
                "checkpoint_dir {shown} is in {}, where Holdfast keeps and removes files of its own; name another, such as checkpoints/NAME",
                own.display()
            ));
        }
        fs::create_dir_all(&dir)
            .await
            .map_err(|why| format!("checkpoint_dir {shown} is missing and cannot be made: {why}"))?;
        let probe = dir.join(".holdfast-write-test");
        fs::write(&probe, b"")
            .await
            .map_err(|why| format!("checkpoint_dir {shown} cannot be written: {why}"))?;
        fs::remove_file(&probe)
            .await
            .map_err(|why| format!("checkpoint_dir {shown} cannot be changed: {why}"))?;
        Ok(dir)
    }

    /// The directory of Holdfast's own that a path is, or is in, whatever links lead there.
    async fn own_around(&self, path: &Path) -> Option<PathBuf> {
        let (data_dir, path) = (real(&self.data_dir).await, real(path).await);
        OWN.into_iter().map(|name| data_dir.join(name)).find(|own| path.starts_with(own))
    }

    pub(super) async fn write(&self, attempt: &Attempt) -> Result<(), LocalError> {
        let dir = self.attempt(&attempt.job_id, &attempt.task_id);
        make_dir(&dir).await?;
        let path = dir.join(ATTEMPT_FILE);
        let text = serde_json::to_vec(attempt)
            .map_err(|source| LocalError::Unreadable { path: path.clone(), source })?;
        write_whole(&path, &text).await
    }

    /// The attempts that exist on this cluster.
    pub(super) async fn read_attempts(&self) -> Result<Vec<Attempt>, LocalError> {
        let mut attempts = Vec::new();
        for job in directories(&self.data_dir.join(JOBS)).await? {
            for task in directories(&job).await? {
                let path = task.join(ATTEMPT_FILE);
                match fs::read(&path).await {
                    Ok(text) => attempts.push(
                        serde_json::from_slice(&text)
                            .map_err(|source| LocalError::Unreadable { path, source })?,
                    ),
                    Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                    Err(source) => return Err(LocalError::Disk { doing: "read", path, source }),
                }
            }
        }
        Ok(attempts)
    }

    /// The attempt is gone from the cluster; its logs stay.
    pub(super) async fn remove_attempt(&self, attempt: &Attempt) -> Result<(), LocalError> {
        let path = self.attempt(&attempt.job_id, &attempt.task_id).join(ATTEMPT_FILE);
        match fs::remove_file(&path).await {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(LocalError::Disk { doing: "remove", path, source })
            }
            _ => Ok(()),
        }
    }

    /// Removes the files of a job. Its checkpoints go too where they are below the data directory, unless another
    /// job saves there; a directory that its owner named absolutely is the owner's and stays.
    pub(super) async fn forget(&self, job: &JobId, spec: &JobSpec) -> Result<(), LocalError> {
        let [files, checkpoints] = DISCARDED.map(|kind| format!("{job}{kind}"));
        self.discard(&self.job(job), &files).await?;
        let Some(path) = spec.checkpoint_dir.as_deref().filter(|path| stays_below(path)) else {
            return Ok(());
        };
        let dir = below(&self.data_dir, path);
        if self.own_around(&dir).await.is_some() {
            // Such a job was refused; the path leads there over a link.
            return Ok(());
        }
        for other in directories(&self.data_dir.join(JOBS)).await? {
            let file = other.join(CHECKPOINT_FILE);
            let used = match fs::read_to_string(&file).await {
                Ok(used) => PathBuf::from(used),
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                // Who saves where is not known: remove nothing.
                Err(source) => return Err(LocalError::Disk { doing: "read", path: file, source }),
            };
            if used.starts_with(&dir) || dir.starts_with(&used) {
                return Ok(());
            }
        }
        self.discard(&dir, &checkpoints).await
    }

    /// Takes a directory away at once, so that a server that dies while it is removed leaves no half of it where it was.
    async fn discard(&self, path: &Path, name: &str) -> Result<(), LocalError> {
        let trash = self.data_dir.join(TRASH);
        make_dir(&trash).await?;
        let aside = trash.join(name);
        // An earlier try may have left it.
        remove_dir(&aside).await?;
        match fs::rename(path, &aside).await {
            Ok(()) => remove_dir(&aside).await,
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
            // A file system of its own is mounted there; it can only be emptied where it is.
            Err(_) => remove_dir(path).await,
        }
    }

    /// What an earlier server had discarded and not removed. Whatever else somebody put there is not ours to remove.
    pub(super) async fn trash(&self) -> Result<Vec<PathBuf>, LocalError> {
        let mut found = directories(&self.data_dir.join(TRASH)).await?;
        found.retain(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_discarded));
        Ok(found)
    }
}

/// Removes what was discarded. What cannot be removed is tried again at the next start.
pub(super) async fn empty(trash: Vec<PathBuf>) {
    for path in trash {
        if let Err(error) = remove_dir(&path).await {
            tracing::warn!(error = %format!("{:#}", anyhow::Error::from(error)), "could not remove files of a forgotten job");
        }
    }
}

/// Whether a name is one that [`Layout::forget`] gives to what it discards.
fn is_discarded(name: &str) -> bool {
    DISCARDED.iter().any(|kind| name.strip_suffix(kind).is_some_and(|job| JobId::new(job).is_ok()))
}

/// A path without links as far as it exists. What does not exist yet has none.
async fn real(path: &Path) -> PathBuf {
    for known in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (fs::canonicalize(known).await, path.strip_prefix(known)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}

/// Whether a job's path names something below the data directory that is not one of Holdfast's own: at least two parts, none of them
/// special, the first not one of [`OWN`].
fn stays_below(path: &str) -> bool {
    let parts: Vec<_> = Path::new(path).components().filter(|part| *part != Component::CurDir).collect();
    parts.len() >= 2
        && parts.iter().all(|part| matches!(part, Component::Normal(_)))
        && parts.first().is_some_and(|part| !OWN.contains(&&*part.as_os_str().to_string_lossy()))
}

async fn make_dir(path: &Path) -> Result<(), LocalError> {
    fs::create_dir_all(path).await.map_err(|source| LocalError::Disk {
        doing: "make",
        path: path.to_owned(),
        source,
    })
}

async fn remove_dir(path: &Path) -> Result<(), LocalError> {
    match fs::remove_dir_all(path).await {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(LocalError::Disk { doing: "remove", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

async fn directories(path: &Path) -> Result<Vec<PathBuf>, LocalError> {
    let failed = |source| LocalError::Disk { doing: "list", path: path.to_owned(), source };
    let mut entries = match fs::read_dir(path).await {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let mut found = Vec::new();
    while let Some(entry) = entries.next_entry().await.map_err(failed)? {
        if entry.file_type().await.is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Writes a file so that a reader sees the old one or the new one, never a part.
async fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), LocalError> {
    let failed = |source| LocalError::Disk { doing: "write", path: path.to_owned(), source };
    let new = path.with_extension("new");
    let written = async {
        fs::write(&new, bytes).await?;
        fs::rename(&new, path).await
    };
    match written.await {
        Ok(()) => Ok(()),
        Err(why) => {
            // On a full disk a part would take the room that the next try needs.
            let _ = fs::remove_file(&new).await;
            Err(failed(why))
        }
    }
}

/// Writes a file that only its owner may read.
async fn write_secret(path: &Path, text: &str) -> Result<(), LocalError> {
    use tokio::io::AsyncWriteExt;
    let failed = |source| LocalError::Disk { doing: "write", path: path.to_owned(), source };
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .await
        .map_err(failed)?;
    file.write_all(text.as_bytes()).await.map_err(failed)?;
    file.flush().await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_discarded_is_removed_from_the_trash() {
        for (name, want) in [
            ("jabcdefghij2.files", true),
            ("jabcdefghij2.checkpoints", true),
            ("jabcdefghij2", false),
            ("run1", false),
            (".files", false),
            ("my run.files", false),
        ] {
            assert_eq!(is_discarded(name), want, "{name}");
        }
    }

    #[test]
    fn only_directories_of_its_own_are_removed_with_a_job() {
        for (path, want) in [
            ("checkpoints/demo", true),
            ("./checkpoints/demo", true),
            ("checkpoints", false),
            ("jobs/x", false),
            ("trash/x", false),
            ("/vol/ckpt", false),
            ("a/../../b", false),
            ("", false),
        ] {
            assert_eq!(stays_below(path), want, "{path}");
        }
    }
}
