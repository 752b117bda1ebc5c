//! What a replica must remember if its agent is started again: reports and their numbers, and the launch that ran.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use engine::sync::{Report, ReportBody};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{clock, outbox::Outbox};

/// Another agent has the directory.
#[derive(Debug, thiserror::Error)]
#[error("another agent supervises this replica: it holds {}", .0.display())]
pub struct Taken(PathBuf);

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the state directory cannot be used: {doing} {path}")]
pub struct StateError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The newest launch this replica knows of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastLaunch {
    /// Its number.
    pub number: u32,
    /// Ranks whose exit is not reported.
    pub running: Vec<u32>,
    /// It was reported that nothing of it is left.
    pub stopped: bool,
}

/// What is written; read back from the slot with the greater version.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Saved {
    version: u64,
    outbox: Outbox,
    launch: Option<LastLaunch>,
}

/// The replica's memory. A change is in the file before anybody is told: it survives the agent, though not a machine
/// that loses its page cache, which takes the replica with it.
#[derive(Debug)]
pub struct State {
    saved: Mutex<Saved>,
    slots: [PathBuf; 2],
    pending: watch::Sender<usize>,
    /// Held as long as the agent lives.
    _lock: Flock<File>,
}

impl State {
    /// Opens the directory of this replica, and makes it if need be.
    ///
    /// # Errors
    /// [`Taken`] where another agent runs, else [`StateError`].
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        let error = |doing, path: &Path, source| StateError { doing, path: path.to_owned(), source };
        fs::create_dir_all(dir).map_err(|why| error("making", dir, why))?;
        let lock_path = dir.join("lock");
        let file = OpenOptions::new().create(true).append(true).open(&lock_path);
        let file = file.map_err(|why| error("opening", &lock_path, why))?;
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, nix::Error::EWOULDBLOCK)) => return Err(Taken(lock_path).into()),
            Err((_, why)) => return Err(error("locking", &lock_path, why.into()).into()),
        };
        let slots = ["state-0.json", "state-1.json"].map(|name| dir.join(name));
        let mut saved = Saved::default();
        for slot in &slots {
            match load(slot).map_err(|why| error("reading", slot, why))? {
                Some(other) if other.version > saved.version => saved = other,
                _ => {}
            }
        }
        let pending = watch::Sender::new(saved.outbox.len());
        Ok(Self { saved: Mutex::new(saved), slots, pending, _lock: lock })
    }

    /// Adds a report; it is sent at once.
    pub fn report(&self, launch: u32, body: ReportBody) {
        self.change(|saved| saved.outbox.push(clock::now(), launch, body));
    }

    /// Remembers the newest launch.
    pub fn remember(&self, launch: LastLaunch) {
        self.change(|saved| saved.launch = Some(launch));
    }

    /// The newest launch that is known.
    pub fn launch(&self) -> Option<LastLaunch> {
        self.lock().launch.clone()
    }

    /// What to send now, in order.
    pub fn batch(&self) -> Vec<Report> {
        self.change(|saved| saved.outbox.batch())
    }

    /// The server has all reports up to this number.
    pub fn acknowledge(&self, number: u64) {
        self.change(|saved| saved.outbox.acknowledge(number));
    }

    /// The server refuses what the batch says: only its bare facts are sent again.
    pub fn reduce(&self) {
        self.change(|saved| saved.outbox.reduce());
    }

    /// The attempt is gone, and with it whoever wanted to know.
    pub fn drop_reports(&self) {
        self.change(|saved| saved.outbox.clear());
    }

    /// Waits until there is something to send.
    pub async fn any_pending(&self) {
        // The sender lives in `self`, so the wait cannot fail.
        let _ = self.pending.subscribe().wait_for(|count| *count > 0).await;
    }

    /// Waits, not longer than `limit`, until all is acknowledged; says whether it is.
    pub async fn all_acknowledged(&self, limit: Duration) -> bool {
        let mut pending = self.pending.subscribe();
        tokio::time::timeout(limit, pending.wait_for(|count| *count == 0)).await.is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, Saved> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Saved) -> T) -> T {
        let mut saved = self.lock();
        let result = change(&mut saved);
        saved.version += 1;
        let slot = &self.slots[usize::from(saved.version % 2 == 1)];
        if let Err(why) = save(slot, &saved) {
            // A full disk must not end the training; the report is in memory and is sent.
            tracing::warn!("{} cannot be written: {why}", slot.display());
        }
        self.pending.send_replace(saved.outbox.len());
        result
    }
}

/// An agent that died while it wrote leaves one slot that cannot be read, and the other with what was before.
fn load(slot: &Path) -> io::Result<Option<Saved>> {
    match fs::read(slot) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why),
    }
}

/// Overwrites the older slot in place: this runs between a crash and the next launch, and to make, rename and
/// allocate a file each time takes twenty times as long.
fn save(slot: &Path, saved: &Saved) -> io::Result<()> {
    let text = serde_json::to_vec(saved)?;
    let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(slot)?;
    file.write_all(&text)?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_and_numbers_survive_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        state.report(0, ReportBody::Ready);
        let batch = state.batch();
        state.report(0, ReportBody::Started);
        state.remember(LastLaunch { number: 0, running: vec![1], stopped: false });
        drop(state);

        let state = State::open(dir.path()).unwrap();
        assert_eq!(state.batch(), batch);
        state.acknowledge(1);
        assert_eq!(state.batch()[0].sequence, 2);
        assert_eq!(state.launch().unwrap().running, [1]);
    }

    #[test]
    fn an_agent_that_dies_while_it_writes_loses_only_that_change() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        for number in 1..=3 {
            state.remember(LastLaunch { number, running: Vec::new(), stopped: true });
        }
        drop(state);
        fs::write(dir.path().join("state-1.json"), b"{\"version\":3,\"outb").unwrap();
        let state = State::open(dir.path()).unwrap();
        assert_eq!(state.launch().unwrap().number, 2);
    }

    #[test]
    fn a_second_agent_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = State::open(dir.path()).unwrap();
        assert!(State::open(dir.path()).unwrap_err().is::<Taken>());
    }
}
