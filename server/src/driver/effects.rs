//! Calls to clusters: the effects of a step, and looking at what there is.
//!
//! Each call runs in a task of its own, so that it goes on whatever its job waits for, a database that is away included, and is
//! never dropped half-way because something else is new. A server that has lost the lead drops its calls: what it does not do any
//! more its successor does. One that stops gives them `CALLS_END` of [`super::leadership`] and then drops what is left; what they did
//! is seen by whoever leads next.

use std::{sync::Arc, time::Duration};

use engine::{
    chain::{Chain, Effect, Intent, Observation, Plan},
    ids::{JobId, TaskId},
    record::Queue,
    time::Time,
};
use tokio::sync::{Semaphore, mpsc};

use super::{Connected, Failpoint, Shared, registry::Term};
use crate::{
    clusters::{ClusterError, Order},
    store::{StoreError, attempts, leader},
};

/// A call that takes longer is late: nothing is known of the attempt. Clusters have shorter limits of their own.
const LATE: Duration = Duration::from_secs(60);
/// So often a call may be late before it is given up, so that a faulty cluster does not hold a job and a place for ever.
const LATE_TIMES: u32 = 10;
/// The first pause after a failed effect; it doubles up to [`LONGEST_PAUSE_MILLIS`].
const FIRST_PAUSE_MILLIS: u64 = 250;
/// The longest pause between two tries: a cluster that comes back, or a quota that has room again, is used within this time.
const LONGEST_PAUSE_MILLIS: u64 = 10_000;
/// An effect that was taken but whose outcome does not show is asked for again after this time.
const ASK_AGAIN_MILLIS: u64 = 10_000;
/// Task ids that are read at a time when a job is forgotten.
const TASKS_AT_A_TIME: u32 = 1_000;

/// What a call brought.
pub(super) enum Outcome {
    /// The effect was taken by the cluster; of a removal that is asked for again, what keeps the attempt.
    Done(Option<String>),
    /// The cluster will never take the attempt.
    Refused(String),
    /// The cluster does not take the attempt for now; why.
    Delayed(Queue),
    /// What there is of the attempt.
    Observed(TaskId, Observation),
    /// A person lets go of the attempt, whose cluster or namespace is not configured here: it counts as gone.
    LeftBehind(TaskId),
    /// The cluster did not answer: nothing is known.
    Unreachable(anyhow::Error),
    /// The database did not answer, so the cluster was not asked.
    NotAsked(StoreError),
    /// It takes long and goes on.
    Late,
    /// Another server leads; nothing was done.
    NotLeader,
}

/// A call that is under way: the effect, or none where an attempt is looked at.
pub(super) struct Call {
    pub(super) effect: Option<Effect>,
    outcomes: mpsc::Receiver<Outcome>,
}

impl Call {
    /// Begins to perform an effect of a committed chain.
    pub(super) fn perform(shared: Arc<Shared>, term: &Arc<Term>, chain: Arc<Chain>, effect: Effect) -> Self {
        let wanted = effect.clone();
        let leading = Arc::clone(term);
        Self::begin(term, Some(effect), async move |late| {
            perform(&shared, &leading, &chain, wanted, late).await
        })
    }

    /// Begins to look at an attempt.
    pub(super) fn observe(shared: Arc<Shared>, term: &Arc<Term>, chain: Arc<Chain>, task_id: TaskId) -> Self {
        Self::begin(term, None, async move |late| observe(&shared, &chain, task_id, late).await)
    }

    fn begin<F>(
        term: &Arc<Term>,
        effect: Option<Effect>,
        call: impl FnOnce(mpsc::Sender<Outcome>) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        // One answer, and before it that the call is late; a job that does not listen needs to be told once.
        let (answer, outcomes) = mpsc::channel(2);
        let lost = term.lost.clone();
        term.tasks.spawn(async move {
            let outcome = tokio::select! {
                outcome = call(answer.clone()) => outcome,
                () = lost.cancelled() => Outcome::NotLeader,
            };
            // The job may be gone with its term.
            let _ = answer.send(outcome).await;
        });
        Self { effect, outcomes }
    }

    /// What the call brought, or that it is late.
    pub(super) async fn outcome(&mut self) -> Outcome {
        let broken = || Outcome::Unreachable(anyhow::anyhow!("the call broke off"));
        self.outcomes.recv().await.unwrap_or_else(broken)
    }
}

/// The effect that has to be performed next, and when. Effects are performed in their order: the first must be answered, which
/// shows in the chain, before the next one is begun.
#[derive(Default)]
pub(super) struct Next {
    effect: Option<Effect>,
    tries: u32,
    due: Time,
}

impl Next {
    /// Takes what the chain wants now. The same effect keeps its pause, a new one is due at once.
    pub(super) fn renew(&mut self, chain: &Chain) {
        let effect = chain.pending_effects().into_iter().next();
        if effect != self.effect {
            *self = Self { effect, ..Self::default() };
        }
    }

    pub(super) fn due(&self, now: Time) -> Option<&Effect> {
        self.effect.as_ref().filter(|_| self.due <= now)
    }

    pub(super) fn at(&self) -> Option<Time> {
        self.effect.as_ref().map(|_| self.due)
    }

    pub(super) fn is_creation(&self) -> bool {
        matches!(self.effect, Some(Effect::Create(_)))
    }

    pub(super) fn is_removal(&self) -> bool {
        matches!(self.effect, Some(Effect::Delete { .. }))
    }

    /// The cluster has taken this effect. What the chain wants instead by now is not put off by it.
    pub(super) fn taken(&mut self, effect: &Effect, now: Time) {
        if self.effect.as_ref() == Some(effect) {
            self.tries = 0;
            self.due = now.plus_millis(ASK_AGAIN_MILLIS);
        }
    }

    /// This effect could not be performed; likewise.
    pub(super) fn failed(&mut self, effect: &Effect, now: Time) {
        if self.effect.as_ref() == Some(effect) {
            self.due = now.plus_millis(pause_millis(self.tries));
            self.tries = self.tries.saturating_add(1);
        }
    }
}

fn pause_millis(tries: u32) -> u64 {
    FIRST_PAUSE_MILLIS.saturating_mul(1 << tries.min(16)).min(LONGEST_PAUSE_MILLIS)
}

/// Performs an effect of a committed chain.
async fn perform(
    shared: &Shared,
    term: &Term,
    chain: &Chain,
    effect: Effect,
    late: mpsc::Sender<Outcome>,
) -> Outcome {
    let found = match effect {
        Effect::Create(_) | Effect::Delete { .. } => reached(shared, chain),
        // What a cluster keeps here of a job is there whatever its namespaces are.
        Effect::Forget => connected(shared, chain),
    };
    let Connected { cluster, calls, .. } = match found {
        Ok(connected) => connected,
        Err(error) => return without_cluster(chain, effect).unwrap_or(Outcome::Unreachable(error)),
    };
    let call = async {
        // A leader that was paused must not act on what it once decided: its successor may have moved on.
        if !leads(shared, term).await? {
            return Err(CallError::NotLeader);
        }
        let mut kept = None;
        match effect {
            Effect::Create(plan) => {
                let tokens = shared.tokens.of_attempt(&plan.task_id, chain.spec());
                let order =
                    Order { job_id: chain.job_id().clone(), spec: chain.spec().clone(), plan, tokens };
                Failpoint::BeforeCreate.pass();
                cluster.create(&order).await?;
                Failpoint::AfterCreate.pass();
            }
            Effect::Delete { task_id, force } => {
                let (spec, namespace) = (chain.spec(), chain.spec().kubernetes.namespace.as_deref());
                Failpoint::BeforeDelete.pass();
                kept = cluster.delete(&task_id, spec.kind, namespace, force).await?;
                Failpoint::AfterDelete.pass();
            }
            Effect::Forget => {
                let tasks = all_tasks(shared, chain.job_id()).await?;
                Failpoint::BeforeForget.pass();
                cluster.forget(chain.job_id(), chain.spec(), &tasks).await?;
                Failpoint::AfterForget.pass();
            }
        }
        Ok(kept)
    };
    match limited(calls, call, LATE, &late).await {
        Ok(kept) => Outcome::Done(kept),
        Err(error) => failed(error),
    }
}

/// What can be done where the cluster, or the attempt's namespace, is not configured on this server: forget what a person deleted. An
/// attempt that may be there is given up by a person's force alone, as it is left behind.
fn without_cluster(chain: &Chain, effect: Effect) -> Option<Outcome> {
    let Intent::Delete { force, .. } = chain.intent() else { return None };
    match effect {
        Effect::Forget => Some(Outcome::Done(None)),
        Effect::Create(Plan { task_id, .. }) | Effect::Delete { task_id, .. } => {
            force.then_some(Outcome::LeftBehind(task_id))
        }
    }
}

/// Looks at an attempt.
async fn observe(shared: &Shared, chain: &Chain, task_id: TaskId, late: mpsc::Sender<Outcome>) -> Outcome {
    let Connected { cluster, calls, .. } = match reached(shared, chain) {
        Ok(connected) => connected,
        Err(error) => return Outcome::Unreachable(error),
    };
    let (kind, namespace) = (chain.spec().kind, chain.spec().kubernetes.namespace.as_deref());
    let call = async { Ok(cluster.observe(&task_id, kind, namespace).await?) };
    match limited(calls, call, LATE, &late).await {
        Ok(observation) => Outcome::Observed(task_id, observation),
        Err(error) => failed(error),
    }
}

/// Why a call brought nothing.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the call took longer than {} s and was given up", LATE_TIMES * LATE.as_secs() as u32)]
    TooLong,
    #[error("another server leads")]
    NotLeader,
}

/// Makes a call once its cluster has room for it; it is late `after` this time, and again each such time. The wait for room counts:
/// behind calls that hang nothing is known either.
async fn limited<T>(
    calls: &Semaphore,
    call: impl Future<Output = Result<T, CallError>>,
    after: Duration,
    late: &mpsc::Sender<Outcome>,
) -> Result<T, CallError> {
    let call = async {
        let _permit = calls.acquire().await.map_err(|_| CallError::NotLeader)?;
        call.await
    };
    tokio::pin!(call);
    for _ in 0..LATE_TIMES {
        match tokio::time::timeout(after, &mut call).await {
            Ok(done) => return done,
            // Where the job was told and has not listened yet, once is enough.
            Err(_) => drop(late.try_send(Outcome::Late)),
        }
    }
    Err(CallError::TooLong)
}

fn failed(error: CallError) -> Outcome {
    match error {
        CallError::Cluster(ClusterError::Refused { text }) => Outcome::Refused(text),
        CallError::Cluster(ClusterError::Delayed { reason, text }) => {
            Outcome::Delayed(Queue::of(reason, text))
        }
        CallError::Store(error) => Outcome::NotAsked(error),
        CallError::NotLeader => Outcome::NotLeader,
        other => Outcome::Unreachable(other.into()),
    }
}

pub(super) fn connected<'a>(shared: &'a Shared, chain: &Chain) -> Result<&'a Connected, anyhow::Error> {
    let name = &chain.spec().cluster;
    shared
        .clusters
        .get(name)
        .ok_or_else(|| anyhow::anyhow!("cluster {name} is not configured on this server"))
}

/// The cluster, where it can be asked about this job's attempts: of one in a namespace that is not configured any more it would say that
/// nothing is there.
fn reached<'a>(shared: &'a Shared, chain: &Chain) -> Result<&'a Connected, anyhow::Error> {
    let found = connected(shared, chain)?;
    match found.cluster.missing_namespace(chain.spec()) {
        Some(namespace) => Err(anyhow::anyhow!(
            "namespace {namespace} is not configured for cluster {} on this server; add it to the cluster's namespaces again (--kube-namespace)",
            chain.spec().cluster
        )),
        None => Ok(found),
    }
}

pub(super) async fn leads(shared: &Shared, term: &Term) -> Result<bool, StoreError> {
    let mut conn = shared.store.read().await?;
    leader::is_current(&mut conn, term.epoch).await
}

async fn all_tasks(shared: &Shared, job_id: &JobId) -> Result<Vec<TaskId>, StoreError> {
    let mut tasks = Vec::new();
    loop {
        let from = tasks.last().and_then(TaskId::number).map_or(1, |last| last + 1);
        let mut conn = shared.store.read().await?;
        let page = attempts::task_ids(&mut conn, job_id, from, TASKS_AT_A_TIME).await?;
        let is_last = page.len() < TASKS_AT_A_TIME as usize;
        tasks.extend(page);
        if is_last {
            return Ok(tasks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit() {
        let pauses: Vec<_> = [0, 1, 2, 5, 6, u32::MAX].map(pause_millis).into();
        assert_eq!(pauses, [250, 500, 1_000, 8_000, 10_000, 10_000]);
    }

    #[test]
    fn an_effect_is_put_off_by_its_own_call_only() {
        let removal = |force| Effect::Delete { task_id: TaskId::new("demo-jabcdefghij2-1").unwrap(), force };
        let now = Time(0);
        // A forced stop was asked for while the removal was under way.
        let mut next = Next { effect: Some(removal(true)), ..Next::default() };
        next.taken(&removal(false), now);
        next.failed(&removal(false), now);
        assert_eq!(next.due(now), Some(&removal(true)));
        next.failed(&removal(true), now);
        assert_eq!((next.due(now), next.at()), (None, Some(now.plus_millis(FIRST_PAUSE_MILLIS))));
        next.taken(&removal(true), now);
        assert_eq!(next.at(), Some(now.plus_millis(ASK_AGAIN_MILLIS)));
    }

    #[tokio::test]
    async fn a_call_that_waits_for_room_is_late_and_given_up_like_any_other() {
        let (full, (late, mut told)) = (Semaphore::new(0), mpsc::channel(1));
        let call = async { Ok(()) };
        let result = limited(&full, call, Duration::from_millis(1), &late).await;
        assert!(matches!(result, Err(CallError::TooLong)));
        assert!(matches!(told.recv().await, Some(Outcome::Late)));
        let room = Semaphore::new(1);
        let result = limited(&room, async { Ok(1) }, LATE, &late).await;
        assert!(matches!(result, Ok(1)) && room.available_permits() == 1 && told.try_recv().is_err());
    }
}
