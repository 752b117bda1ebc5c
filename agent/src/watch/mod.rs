//! Watches the processes of a launch for standstills: samples them at an interval, and tells what does not move.
//!
//! A thread of its own samples; other threads look at what may not answer: one for each rank reads stacks, one walks the checkpoint
//! directory. Each has one task at most and is given a limit; one that is stuck is not waited for, and not asked again until it has
//! answered. So neither a process that hangs in the kernel nor a file system that does holds up a sample, the agent, or a launch's end.

mod activity;
mod collective;
mod directory;
mod frames;
mod kernel;
mod lookers;
mod sampler;
mod stacks;
mod tracker;

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Instant,
};

use engine::sync::{HangWatch, ReportBody};
use tokio::sync::Notify;

pub use self::{activity::Activity, collective::Reader as CollectiveReader, directory::from_environment};
use crate::{
    launch::Started,
    tree::{self, Identity, Stat},
    watch::sampler::Sampler,
};

/// What is watched.
pub struct Target {
    /// How.
    pub watch: HangWatch,
    /// The processes.
    pub processes: Vec<Started>,
    /// Where checkpoints are written, where that is known.
    pub checkpoints: Option<PathBuf>,
    /// When they were started.
    pub started_at: Instant,
    /// What their output has shown, by rank.
    pub activities: Box<dyn Fn() -> BTreeMap<u32, Activity> + Send>,
}

/// Reports that nobody has taken yet.
#[derive(Default)]
struct News {
    waiting: Mutex<Vec<ReportBody>>,
    is_there: Notify,
}

/// The watch over one launch; it ends when this is dropped.
pub struct Watch {
    ended: mpsc::Sender<u32>,
    news: Arc<News>,
}

impl Watch {
    /// Starts to watch.
    ///
    /// # Errors
    /// Where no thread can be had.
    pub fn start(target: Target) -> io::Result<Self> {
        let (ended, is_ended) = mpsc::channel();
        let news = Arc::new(News::default());
        let sampler = Sampler::new(target, Arc::clone(&news));
        thread::Builder::new().name("watch".to_owned()).spawn(move || sampler.run(&is_ended))?;
        Ok(Self { ended, news })
    }

    /// The process of this rank has ended.
    pub fn ended(&self, rank: u32) {
        // The thread is gone only where it failed; then there is nothing to tell it.
        let _ = self.ended.send(rank);
    }

    /// Waits until there is something to report.
    pub async fn has_news(&self) {
        self.news.is_there.notified().await;
    }

    /// What is to be reported.
    pub fn take(&self) -> Vec<ReportBody> {
        std::mem::take(&mut *self.news.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl News {
    fn tell(&self, bodies: Vec<ReportBody>) {
        if !bodies.is_empty() {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend(bodies);
            self.is_there.notify_one();
        }
    }
}

/// A process and all that it started and that lives, with their numbers of threads: its own first, then the oldest.
fn family(pid: i32, all: &BTreeMap<i32, Stat>) -> Vec<(Identity, u32)> {
    let mut family: Vec<Identity> = tree::family(pid, all).into_iter().collect();
    family.sort_by_key(|process| (process.pid != pid, process.started, process.pid));
    let threads = |process: &Identity| all.get(&process.pid).map_or(0, |stat| stat.threads);
    family.into_iter().map(|process| (process, threads(&process))).collect()
}
