//! The task of one job. It waits for whatever is new (reports, requests, hints, the answer of a cluster, a timer), makes one step
//! of all of it, and begins the next call. One call to a cluster at a time: a removal never overtakes the creation before it, which is
//! why a call that is late keeps its job from beginning another.

use std::{sync::Arc, time::Duration};

use engine::{
    chain::{Chain, Effect, Input, Observation},
    ids::{JobId, TaskId},
    time::Time,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    Change, DriverError, Shared,
    effects::{Call, Next, Outcome, connected},
    registry::{Hint, Message, Term},
    step::{self, Draft},
    telling::{self, Notes},
};
use crate::{
    clusters::Note,
    store::{
        StoreError, Write, events,
        inbox::{self, Waiting},
        jobs, wards,
    },
};

/// How often an attempt is looked at where nothing hints at a change.
const OBSERVE_MILLIS: u64 = 5_000;
/// The same while its removal is awaited, which people wait for.
const OBSERVE_REMOVAL_MILLIS: u64 = 1_000;
/// How long a job that has nothing to do stays in memory after it was last used.
const LINGER_SECONDS: u64 = 60;
/// Inputs in one step; what is beyond waits for the next one.
const INPUTS: usize = 4_096;
/// A timer that is due again at once waits for this long, so that no chain can keep a core busy.
const TICK_MILLIS: u64 = 20;
/// Tries to write a step that others overtake. Only a second leader could, so the second try already meets the end of this term.
const OVERTAKEN: u32 = 3;
/// The first pause after a failure of the database; it doubles up to [`LONGEST_STORE_PAUSE`].
const FIRST_STORE_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause: a database that comes back is not met by all jobs at once and used within seconds.
const LONGEST_STORE_PAUSE: Duration = Duration::from_secs(8);

/// The task of one job.
pub(super) struct Job {
    shared: Arc<Shared>,
    term: Arc<Term>,
    job_id: JobId,
    generation: i64,
    publish: watch::Sender<Arc<Chain>>,
    messages: mpsc::Receiver<Message>,
    hint: Arc<Hint>,
    next: Next,
    call: Option<Call>,
    observe_at: Time,
    /// A hint came while a call was under way, which may have looked before what it hints at.
    again: bool,
    tick_after: Time,
    /// The chain was not told yet that this task drives it, or does so again: agents may have been unheard before.
    returned: bool,
    /// What a server that died may not have told is still to be read.
    untold: bool,
    /// Requests may wait in the store.
    inbox: bool,
    /// The chain may still believe that the cluster is silent.
    silent: bool,
    /// Its silence was said aloud.
    warned: bool,
    heard_at: Time,
    used_at: Time,
    /// The registry has forgotten the task already.
    let_go: bool,
    notes: Notes,
}

/// What is new, and who waits for its commit.
#[derive(Default)]
struct News {
    inputs: Vec<Input>,
    waiting: Vec<oneshot::Sender<Result<(), DriverError>>>,
}

/// Whether the task goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    GoOn,
    End,
}

impl Drop for Job {
    /// Forgets the task where it ends, a panic included; the next sweep makes a new one of a job that lives.
    fn drop(&mut self) {
        if !self.let_go {
            self.term.remove(&self.job_id, self.call.take());
        }
    }
}

impl Job {
    pub(super) fn new(
        shared: Arc<Shared>,
        term: Arc<Term>,
        generation: i64,
        publish: watch::Sender<Arc<Chain>>,
        messages: mpsc::Receiver<Message>,
        hint: Arc<Hint>,
        inbox: bool,
    ) -> Self {
        let now = shared.clock.now();
        let job_id = publish.borrow().job_id().clone();
        Self {
            shared,
            term,
            job_id,
            generation,
            publish,
            messages,
            hint,
            next: Next::default(),
            call: None,
            observe_at: now,
            again: false,
            tick_after: now,
            returned: true,
            untold: true,
            inbox,
            silent: true,
            warned: false,
            heard_at: now,
            used_at: now,
            let_go: false,
            notes: Notes::default(),
        }
    }

    /// Goes on with a call that another task of the job began.
    pub(super) fn with_call(mut self, call: Option<Call>) -> Self {
        self.call = call;
        self
    }

    pub(super) async fn run(mut self) {
        self.next.renew(&self.chain());
        let mut news = News::default();
        loop {
            if self.step(std::mem::take(&mut news)).await == Flow::End {
                return;
            }
            let now = self.shared.clock.now();
            if self.is_unused(now) && self.term.let_go(&self.job_id, &self.messages, &self.hint) {
                self.let_go = true;
                return;
            }
            self.begin_call(now);
            let timer = self.shared.clock.sleep_until(self.wake_at(now));
            tokio::select! {
                () = self.term.over.cancelled() => return,
                Some(message) = self.messages.recv() => self.collect(message, &mut news),
                () = self.hint.taken() => {
                    self.inbox = true;
                    self.again = self.call.is_some();
                    self.observe_at = now;
                    self.used_at = now;
                }
                outcome = answer(&mut self.call) => {
                    if self.take(outcome, &mut news).await == Flow::End {
                        return;
                    }
                }
                () = timer => {}
            }
        }
    }

    fn chain(&self) -> Arc<Chain> {
        Arc::clone(&self.publish.borrow())
    }

    /// Takes a message and all that wait behind it, so that a burst is one step.
    fn collect(&mut self, message: Message, news: &mut News) {
        self.used_at = self.shared.clock.now();
        let mut message = Some(message);
        while let Some(Message { inputs, done }) = message {
            news.inputs.extend(inputs);
            news.waiting.push(done);
            message = if news.inputs.len() < INPUTS { self.messages.try_recv().ok() } else { None };
        }
    }

    fn begin_call(&mut self, now: Time) {
        if self.call.is_some() {
            return;
        }
        let (shared, chain) = (Arc::clone(&self.shared), self.chain());
        if let Some(effect) = self.next.due(now).cloned() {
            self.call = Some(Call::perform(shared, &self.term, chain, effect));
        } else if self.observe_at <= now
            && let Some(task_id) = self.observed()
        {
            self.call = Some(Call::observe(shared, &self.term, chain, task_id));
        }
    }

    /// The attempt to look at. One that is still to be made is not: that it is absent says nothing.
    fn observed(&self) -> Option<TaskId> {
        self.publish.borrow().live_task().filter(|_| !self.next.is_creation()).cloned()
    }

    fn wake_at(&self, now: Time) -> Time {
        let timer = self.publish.borrow().wake_at().map(|at| at.max(self.tick_after));
        let calls = if self.call.is_some() {
            // Its answer wakes the task, and no other begins before.
            [None, None]
        } else {
            [self.next.at(), self.observed().map(|_| self.observe_at)]
        };
        let idle = Some(now.plus_seconds(LINGER_SECONDS));
        [timer, idle].into_iter().chain(calls).flatten().min().unwrap_or(now)
    }

    /// Nothing is to be done, nobody listens (but the registry), and nobody asked for a while.
    fn is_unused(&self, now: Time) -> bool {
        let chain = self.publish.borrow();
        self.call.is_none()
            && self.next.at().is_none()
            && chain.live_task().is_none()
            && chain.wake_at().is_none()
            && self.publish.receiver_count() <= 1
            && now >= self.used_at.plus_seconds(LINGER_SECONDS)
    }

    /// Takes the answer of a call.
    async fn take(&mut self, (effect, outcome): (Option<Effect>, Outcome), news: &mut News) -> Flow {
        let now = self.shared.clock.now();
        match (effect, outcome) {
            (_, Outcome::NotLeader) => return self.replaced(),
            (None, Outcome::Observed(task_id, observation)) => {
                let pause = match (std::mem::take(&mut self.again), self.next.is_removal()) {
                    (true, _) => 0,
                    (false, true) => OBSERVE_REMOVAL_MILLIS,
                    (false, false) => OBSERVE_MILLIS,
                };
                self.observe_at = now.plus_millis(pause);
                self.heard(&task_id, now, news);
                news.inputs.push(Input::Observed { task_id, observation });
            }
            (Some(effect), Outcome::Done(kept)) => {
                self.next.taken(&effect, now);
                self.observe_at = now;
                match effect {
                    Effect::Create(plan) => {
                        self.heard(&plan.task_id, now, news);
                        news.inputs.push(Input::Created { task_id: plan.task_id });
                    }
                    Effect::Delete { task_id, .. } => {
                        self.heard(&task_id, now, news);
                        news.inputs.push(Input::Kept { task_id, text: kept });
                    }
                    Effect::Forget => return self.forget(now).await,
                }
            }
            (effect, Outcome::LeftBehind(task_id)) => {
                tracing::warn!(job_id = %self.job_id, %task_id, "its cluster or namespace is not configured here; a person deleted the job, and its attempt is left behind there");
                effect.iter().for_each(|effect| self.next.taken(effect, now));
                news.inputs.push(Input::Observed { task_id, observation: Observation::Absent });
            }
            (Some(Effect::Create(plan)), Outcome::Refused(text)) => {
                let task_id = plan.task_id.clone();
                self.next.taken(&Effect::Create(plan), now);
                self.heard(&task_id, now, news);
                news.inputs.push(Input::Refused { task_id, text });
            }
            (Some(Effect::Create(plan)), Outcome::Delayed(queue)) => {
                // Whoever waits is told why; the log would say it again with each try.
                tracing::debug!(job_id = %self.job_id, queue.text, "the cluster does not take an attempt for now");
                let task_id = plan.task_id.clone();
                self.next.failed(&Effect::Create(plan), now);
                self.heard(&task_id, now, news);
                news.inputs.push(Input::Delayed { task_id, queue });
            }
            (effect, Outcome::Late) => {
                self.put_off(None, now, &anyhow::anyhow!("a call has not been answered for long"));
                self.unheard(effect, news);
            }
            (effect, Outcome::NotAsked(error)) => self.put_off(effect.as_ref(), now, &error.into()),
            (effect, Outcome::Unreachable(error)) => {
                self.put_off(effect.as_ref(), now, &error);
                self.unheard(effect, news);
            }
            (effect, Outcome::Refused(text)) => {
                self.put_off(effect.as_ref(), now, &anyhow::anyhow!("the cluster refused: {text}"));
            }
            (effect, Outcome::Done(_) | Outcome::Delayed(_) | Outcome::Observed(..)) => {
                self.put_off(
                    effect.as_ref(),
                    now,
                    &anyhow::anyhow!("the cluster gave another call's answer"),
                );
            }
        }
        Flow::GoOn
    }

    fn put_off(&mut self, effect: Option<&Effect>, now: Time, error: &anyhow::Error) {
        self.shared.counts.failed("cluster call");
        if let Some(effect) = effect {
            self.next.failed(effect, now);
        }
        self.observe_at = now.plus_millis(OBSERVE_MILLIS);
        // The first failure is said aloud, the ones that follow from it are not.
        if std::mem::replace(&mut self.warned, true) {
            tracing::debug!(job_id = %self.job_id, error = %format!("{error:#}"), "a cluster call failed again");
        } else {
            tracing::warn!(job_id = %self.job_id, error = %format!("{error:#}"), "a cluster call failed");
        }
    }

    fn heard(&mut self, task_id: &TaskId, now: Time, news: &mut News) {
        self.heard_at = now;
        self.warned = false;
        if std::mem::take(&mut self.silent) {
            news.inputs.push(Input::Heard { task_id: task_id.clone(), replica: None });
        }
    }

    /// The cluster did not answer. Nothing follows from that but that nothing is known.
    fn unheard(&mut self, effect: Option<Effect>, news: &mut News) {
        self.silent = true;
        let cluster = self.publish.borrow().spec().cluster.clone();
        metrics::counter!("holdfast_cluster_failures_total", "cluster" => cluster).increment(1);
        let task_id = match effect {
            Some(Effect::Create(plan)) => Some(plan.task_id),
            Some(Effect::Delete { task_id, .. }) => Some(task_id),
            Some(Effect::Forget) => None,
            None => self.observed(),
        };
        let since = self.heard_at;
        news.inputs.extend(task_id.map(|task_id| Input::Silent { task_id, replica: None, since }));
    }

    /// Makes one step of all that is new and answers who waits for it.
    async fn step(&mut self, mut news: News) -> Flow {
        let now = self.shared.clock.now();
        let timer = self.publish.borrow().wake_at();
        if timer.is_some_and(|at| at <= now) && self.tick_after <= now {
            self.tick_after = now.plus_millis(TICK_MILLIS);
            // After all else: a report that came in time counts before the time is over.
            news.inputs.push(Input::Tick);
        }
        let result = self.advance(&news.inputs, now).await;
        let flow = match &result {
            Err(DriverError::NotFound { .. } | DriverError::NotLeader) => Flow::End,
            _ => Flow::GoOn,
        };
        let failed = matches!(&result, Err(DriverError::Store { .. }));
        for waiting in news.waiting {
            // Whoever has gone in the meantime needs no answer.
            let _ = waiting.send(result.clone());
        }
        if failed { self.start_over().await } else { flow }
    }

    async fn advance(&mut self, inputs: &[Input], now: Time) -> Result<(), DriverError> {
        if inputs.is_empty() && !self.inbox && !self.returned {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let Ok(_permit) = shared.steps.acquire().await else { return Err(DriverError::NotLeader) };
        if std::mem::take(&mut self.untold) {
            self.tell_again(now).await;
        }
        let requests = self.requests().await.map_err(|source| self.failed(source))?;
        // Before all else, whatever it is: no limit is judged by what nobody could tell.
        let returned = std::mem::take(&mut self.returned).then_some(Input::Returned);
        if inputs.is_empty() && requests.is_empty() && returned.is_none() {
            return Ok(());
        }
        self.shared.counts.found(inputs.len() + requests.len() + returned.iter().len());
        let asked: Vec<_> = requests
            .iter()
            .map(|waiting| Input::Request { request: waiting.request.clone(), by: waiting.by.clone() })
            .collect();
        let kept_out = self.kept_out(!asked.is_empty()).await.map_err(|source| self.failed(source))?;
        for _ in 0..OVERTAKEN {
            // A person's stop wins over a recovery that the same step would begin.
            let draft =
                Draft::of(&self.chain(), returned.iter().chain(&kept_out).chain(&asked).chain(inputs), now);
            if draft.is_empty() && requests.is_empty() {
                return Ok(());
            }
            let epoch = self.term.epoch;
            let written = draft.keep(&self.shared.store, epoch, self.generation, &requests, now).await;
            match written.map_err(|source| self.failed(source))? {
                Write::Done => {
                    self.notes.extend(draft.notes(self.generation + 1));
                    self.publish(draft.chain, self.generation + 1);
                    self.shared.counts.done();
                    return Ok(());
                }
                Write::NotLeader => {
                    self.replaced();
                    return Err(DriverError::NotLeader);
                }
                Write::ChangedUnderUs => {
                    self.shared.counts.changed_under_us();
                    tracing::debug!(job_id = %self.job_id, "a step was overtaken");
                    self.reload().await?;
                }
            }
        }
        self.returned = returned.is_some();
        Err(DriverError::NotTaken { job_id: self.job_id.clone() })
    }

    /// Which nodes are kept out for every job, where this step may order an attempt and that is news to the chain.
    async fn kept_out(&self, asked: bool) -> Result<Option<Input>, StoreError> {
        let chain = self.chain();
        if !asked && !chain.may_order() {
            return Ok(None);
        }
        let mut conn = self.shared.store.read().await?;
        let nodes = wards::quarantined(&mut conn, &chain.spec().cluster).await?;
        Ok((nodes != *chain.kept_out()).then_some(Input::KeptOut { nodes }))
    }

    async fn requests(&mut self) -> Result<Vec<Waiting>, StoreError> {
        if !self.inbox {
            return Ok(Vec::new());
        }
        let mut conn = self.shared.store.read().await?;
        let requests = inbox::take(&mut conn, &self.job_id).await?;
        // A full answer may not be all of them.
        self.inbox = requests.len() >= inbox::LIMIT as usize;
        Ok(requests)
    }

    fn publish(&mut self, chain: Chain, generation: i64) {
        self.generation = generation;
        self.next.renew(&chain);
        self.publish.send_replace(Arc::new(chain));
        // Nobody may be listening.
        let _ = self.shared.changes.send(Change { job_id: self.job_id.clone(), generation });
        self.tell();
    }

    /// Has the cluster told what the history says. An attempt that is still to be made has no object yet, so that waits.
    fn tell(&mut self) {
        let chain = self.publish.borrow();
        match connected(&self.shared, &chain).ok().and_then(|connected| connected.notes.as_ref()) {
            Some(queue) if !self.next.is_creation() => self.notes.send(queue, &self.shared.counts),
            Some(_) => {}
            None => self.notes = Notes::default(),
        }
    }

    /// Begins with what a server that died may not have told any more, the first step of a new job included.
    async fn tell_again(&mut self, now: Time) {
        let chain = self.chain();
        let tells = connected(&self.shared, &chain).is_ok_and(|connected| connected.notes.is_some());
        if !tells || chain.live_task().is_none() {
            return;
        }
        let since = telling::kept_since(now);
        let recent = async {
            let mut conn = self.shared.store.read().await?;
            events::recent(&mut conn, &self.job_id, since).await
        };
        match recent.await {
            Ok(recent) => {
                self.notes.extend(recent.into_iter().filter_map(
                    |events::Placed { generation, n, event }| Note::of(chain.spec(), (generation, n), event),
                ));
                self.tell();
            }
            // The job goes on without.
            Err(error) => drop(self.failed(error)),
        }
    }

    async fn reload(&mut self) -> Result<(), DriverError> {
        let stored = async {
            let mut conn = self.shared.store.read().await?;
            jobs::chain(&mut conn, &self.job_id).await
        };
        match stored.await {
            Ok(Some(stored)) => {
                self.publish(stored.chain, stored.generation);
                Ok(())
            }
            Ok(None) => Err(DriverError::NotFound { job_id: self.job_id.clone() }),
            Err(source) => Err(self.failed(source)),
        }
    }

    /// After a failure of the database nothing in memory is trusted: the commit may have been kept or not.
    async fn start_over(&mut self) -> Flow {
        let mut pause = FIRST_STORE_PAUSE;
        loop {
            tokio::select! {
                () = self.term.over.cancelled() => return Flow::End,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_STORE_PAUSE);
            match self.reload().await {
                Ok(()) => break,
                Err(DriverError::NotFound { .. }) => return Flow::End,
                Err(_) => {}
            }
        }
        let now = self.shared.clock.now();
        (self.returned, self.inbox, self.silent) = (true, true, true);
        (self.observe_at, self.tick_after) = (now, now);
        Flow::GoOn
    }

    /// The cluster has forgotten the job; now its rows go too.
    async fn forget(&mut self, now: Time) -> Flow {
        match step::forget(&self.shared.store, self.term.epoch, &self.job_id, now).await {
            Ok(Write::Done | Write::ChangedUnderUs) => {
                let change = Change { job_id: self.job_id.clone(), generation: self.generation + 1 };
                let _ = self.shared.changes.send(change);
                tracing::info!(job_id = %self.job_id, "a job was forgotten");
                Flow::End
            }
            Ok(Write::NotLeader) => self.replaced(),
            Err(source) => {
                self.failed(source);
                self.next.failed(&Effect::Forget, now);
                Flow::GoOn
            }
        }
    }

    fn failed(&self, source: StoreError) -> DriverError {
        self.shared.counts.failed("store");
        let error = DriverError::Store { job_id: self.job_id.clone(), source: Arc::new(source) };
        tracing::warn!(job_id = %self.job_id, error = %format!("{:#}", anyhow::Error::from(error.clone())), "a step failed");
        error
    }

    /// Another server leads.
    fn replaced(&self) -> Flow {
        self.term.lose();
        Flow::End
    }
}

/// The answer of the call that is under way; never, if there is none. One that is only late goes on.
async fn answer(call: &mut Option<Call>) -> (Option<Effect>, Outcome) {
    match call {
        None => std::future::pending().await,
        Some(going_on) => match going_on.outcome().await {
            Outcome::Late => (going_on.effect.clone(), Outcome::Late),
            outcome => (call.take().and_then(|call| call.effect), outcome),
        },
    }
}

#[cfg(test)]
mod tests {
    use engine::chain::advance;

    use super::*;
    use crate::{
        clock::Clock,
        driver::fake::{Fake, Still, drive, job_id, keep, open, start_job, task},
    };

    #[tokio::test]
    async fn what_is_told_again_is_read_in_the_turn_of_a_step() {
        let ((_dir, store), clock) = (open().await, Arc::new(Still::default()));
        let mut step = start_job(clock.now());
        // It was made, so there is something to tell it on.
        step.chain = advance(&step.chain, &Input::Created { task_id: task(1) }, clock.now()).chain;
        keep(&store, &step, clock.now()).await;
        let told = async |steps: bool| {
            let cluster = Arc::new(Fake::default());
            let driver = drive(&store, &clock, &cluster);
            if !steps {
                driver.shared.steps.close();
            }
            driver.until_leading().await;
            let mut chain = driver.subscribe(&job_id()).await.unwrap();
            if steps {
                cluster.told.subscribe().wait_for(|told| !told.is_empty()).await.unwrap();
            } else {
                // Its task ends where no step can be made.
                while chain.changed().await.is_ok() {}
            }
            let queue = driver.shared.clusters["fake"].notes.clone().unwrap();
            cluster.told.borrow().len() + queue.max_capacity() - queue.capacity()
        };
        assert_eq!(told(false).await, 0);
        assert_ne!(told(true).await, 0);
    }
}
