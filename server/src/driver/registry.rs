//! The jobs of one term of leadership: a task and a mailbox for each that lives or is asked for.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use engine::{
    chain::{Chain, Input},
    ids::{JobId, TaskId},
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{DriverError, Shared, effects::Call, job};
use crate::store::jobs::{self, Stored};

/// Messages that may wait for one job; a sender beyond that waits. All are taken in one step, so it is as long as a burst
/// of all replicas of a large job needs.
const MAILBOX: usize = 256;

/// Inputs for a job and who waits for their commit.
pub(super) struct Message {
    pub(super) inputs: Vec<Input>,
    pub(super) done: oneshot::Sender<Result<(), DriverError>>,
}

/// How to reach the task of a job.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) mailbox: mpsc::Sender<Message>,
    pub(super) chain: watch::Receiver<Arc<Chain>>,
    pub(super) hint: Arc<Hint>,
}

/// "Look at once", never lost and never queued twice.
#[derive(Default)]
pub(super) struct Hint {
    given: AtomicBool,
    wake: Notify,
}

impl Hint {
    fn give(&self) {
        self.given.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Waits for a hint and takes it.
    pub(super) async fn taken(&self) {
        while !self.given.swap(false, Ordering::AcqRel) {
            self.wake.notified().await;
        }
    }
}

/// A term of leadership. Its tasks end with it.
pub(super) struct Term {
    pub(super) epoch: i64,
    /// It has ended: nothing is begun any more.
    pub(super) over: CancellationToken,
    /// It has ended because another server leads: what is under way is dropped too.
    pub(super) lost: CancellationToken,
    pub(super) tasks: TaskTracker,
    /// All jobs that lived at its beginning have a task.
    pub(super) taken_up: AtomicBool,
    jobs: Mutex<Jobs>,
}

/// The jobs that have a task, and what tasks left behind that ended by a panic.
#[derive(Default)]
struct Jobs {
    handles: HashMap<JobId, Handle>,
    /// Calls that go on without a task, for the next one of that job.
    calls: HashMap<JobId, Call>,
}

impl Term {
    pub(super) fn new(epoch: i64) -> Self {
        Self {
            epoch,
            over: CancellationToken::new(),
            lost: CancellationToken::new(),
            tasks: TaskTracker::new(),
            taken_up: AtomicBool::new(false),
            jobs: Mutex::default(),
        }
    }

    /// Another server leads.
    pub(super) fn lose(&self) {
        self.over.cancel();
        self.lost.cancel();
    }

    pub(super) fn len(&self) -> usize {
        self.jobs().handles.len()
    }

    pub(super) fn has(&self, job_id: &JobId) -> bool {
        self.jobs().handles.contains_key(job_id)
    }

    /// The task of its job stands for this attempt.
    pub(super) fn drives(&self, attempt: &TaskId) -> bool {
        let Some(job_id) = attempt.job_id() else { return false };
        let chain = self.jobs().handles.get(&job_id).map(|handle| handle.chain.clone());
        chain.is_some_and(|chain| chain.borrow().live_task() == Some(attempt))
    }

    /// Gives a job a task, or the one it has already. `inbox`: requests may wait for it.
    pub(super) fn take_up(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        job_id: &JobId,
        stored: Stored,
        inbox: bool,
    ) -> Handle {
        let mut jobs = self.jobs();
        if let Some(handle) = jobs.handles.get(job_id) {
            return handle.clone();
        }
        let (mailbox, messages) = mpsc::channel(MAILBOX);
        let (publish, chain) = watch::channel(Arc::new(stored.chain));
        let hint = Arc::new(Hint::default());
        let handle = Handle { mailbox, chain, hint: Arc::clone(&hint) };
        jobs.handles.insert(job_id.clone(), handle.clone());
        let task = job::Job::new(
            Arc::clone(shared),
            Arc::clone(self),
            stored.generation,
            publish,
            messages,
            hint,
            inbox,
        )
        .with_call(jobs.calls.remove(job_id));
        // A runtime that ends drops the task at once, which needs the lock.
        drop(jobs);
        self.tasks.spawn(task.run());
        handle
    }

    /// Ends the task of a job, unless something was handed to it in the meantime.
    pub(super) fn let_go(&self, job_id: &JobId, messages: &mpsc::Receiver<Message>, hint: &Hint) -> bool {
        let mut jobs = self.jobs();
        let unused = messages.is_empty() && !hint.given.load(Ordering::Acquire);
        if unused {
            jobs.handles.remove(job_id);
        }
        unused
    }

    /// Forgets a task that has ended, however it ended, but not its call that is under way.
    pub(super) fn remove(&self, job_id: &JobId, call: Option<Call>) {
        let mut jobs = self.jobs();
        jobs.handles.remove(job_id);
        jobs.calls.extend(call.map(|call| (job_id.clone(), call)));
    }

    /// Hints a job that has a task; false where it has none. Under the lock, so that no task ends with a hint unread.
    fn hint(&self, job_id: &JobId) -> bool {
        match self.jobs().handles.get(job_id) {
            Some(handle) => {
                handle.hint.give();
                true
            }
            None => false,
        }
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of a job, made from the store where it has none.
pub(super) async fn find(shared: &Arc<Shared>, job_id: &JobId) -> Result<Handle, DriverError> {
    let term = shared.term.borrow().clone().ok_or(DriverError::NotLeader)?;
    let known = term.jobs().handles.get(job_id).cloned();
    if let Some(handle) = known {
        return Ok(handle);
    }
    let failed = |source| DriverError::Store { job_id: job_id.clone(), source: Arc::new(source) };
    let mut conn = shared.store.read().await.map_err(failed)?;
    let stored = jobs::chain(&mut conn, job_id).await.map_err(failed)?;
    let stored = stored.ok_or_else(|| DriverError::NotFound { job_id: job_id.clone() })?;
    if term.over.is_cancelled() {
        return Err(DriverError::NotLeader);
    }
    Ok(term.take_up(shared, job_id, stored, true))
}

/// Hints a job, and makes its task first where it has none.
pub(super) fn hint(shared: &Arc<Shared>, job_id: &JobId) {
    let Some(term) = shared.term.borrow().clone() else { return };
    if term.hint(job_id) {
        return;
    }
    let (shared, job_id) = (Arc::clone(shared), job_id.clone());
    term.tasks.clone().spawn(async move {
        // A new task begins by looking, so it needs no hint.
        if let Err(error) = find(&shared, &job_id).await {
            tracing::debug!(%job_id, %error, "a hint found no job to wake");
        }
    });
}
