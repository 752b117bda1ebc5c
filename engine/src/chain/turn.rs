//! One step in the making: the chain being changed, and what is collected on the way.

use std::collections::BTreeSet;

use super::{
    Chain, Course, Effect, Step,
    attempt::{Attempt, Presence, Stage},
    limits,
    standstill::Standstill,
    summary,
};
use crate::{
    ledger::Use,
    policy::Refusal,
    progress::Milestones,
    record::{AttemptCause, AttemptResult, EventKind, EventReason, EventRecord, Record, State, Substate},
    time::Time,
    words,
};

/// The step being made.
pub(super) struct Turn {
    pub chain: Chain,
    pub now: Time,
    effects: Vec<Effect>,
    records: Vec<Record>,
    /// Whether the record of the attempt, of the launch, of the incident has to be written.
    touched: Touched,
}

#[derive(Default)]
struct Touched {
    attempt: bool,
    launch: bool,
    incident: bool,
}

impl Turn {
    pub fn new(chain: &Chain, now: Time) -> Self {
        let mut chain = chain.clone();
        let now = now.max(chain.at);
        chain.meter.add(summary::spends(&chain), chain.at, now);
        chain.at = now;
        Self { chain, now, effects: Vec::new(), records: Vec::new(), touched: Touched::default() }
    }

    /// The first step of a new chain.
    pub fn begin(chain: Chain) -> Step {
        let mut turn = Self::new(&chain, chain.at);
        turn.touch_attempt();
        turn.effects.push(Effect::Create(turn.chain.plan()));
        let text = format!("Attempt 1 was submitted.{}", turn.keeping_off());
        turn.tell(EventReason::AttemptSubmitted, "holdfast", &text);
        turn.finish(&chain)
    }

    /// Ends the step: what was touched becomes records, changed states become events.
    pub fn finish(mut self, before: &Chain) -> Step {
        self.flush();
        let (old, new) = (summary::state(before), summary::state(&self.chain));
        if old != new {
            let text = format!("The job went from {} to {}.", old.as_str(), new.as_str());
            self.event(EventKind::State, "holdfast", &text);
        }
        self.tell_silence(before);
        Step { chain: self.chain, effects: self.effects, records: self.records }
    }

    /// Says when the state became unknown, and when it is known again.
    fn tell_silence(&mut self, before: &Chain) {
        let unknown = |chain: &Chain| summary::substate(chain, chain.at) == Some(Substate::Unknown);
        match (unknown(before), unknown(&self.chain)) {
            (false, true) => {
                let limit = words::duration(limits::SILENCE_UNKNOWN_SECONDS as f64);
                let text =
                    format!("Not heard for {limit}: the state is unknown. Nothing is restarted for that.");
                self.event(EventKind::Warning, "holdfast", &text);
            }
            (true, false) => self.event(EventKind::Warning, "holdfast", "Heard again."),
            _ => {}
        }
    }

    /// Writes the records of what was touched so far, before the newest attempt is replaced.
    fn flush(&mut self) {
        let Touched { attempt, launch, incident } = std::mem::take(&mut self.touched);
        let newest = &self.chain.attempt;
        if attempt {
            self.records.push(Record::Attempt(newest.record()));
        }
        if launch && newest.launch.ordered_at.is_some() {
            self.records.push(Record::Launch(newest.task_id.clone(), newest.launch.record(self.now)));
        }
        if let Some(live) = self.chain.incident.as_ref().filter(|_| incident) {
            self.records.push(Record::Incident(live.task_id.clone(), live.record.clone()));
        }
    }

    /// Writes the incident's record now and lets go of it.
    pub fn close_incident(&mut self) {
        if let Some(live) = self.chain.incident.take() {
            self.touched.incident = false;
            self.records.push(Record::Incident(live.task_id, live.record));
        }
    }

    pub fn touch_attempt(&mut self) {
        self.touched.attempt = true;
    }

    pub fn touch_launch(&mut self) {
        self.touched.launch = true;
    }

    pub fn touch_incident(&mut self) {
        self.touched.incident = true;
    }

    /// Writes the launch's record now, before the next launch takes its place.
    pub fn flush_launch(&mut self) {
        self.touched.launch = true;
        self.flush();
    }

    pub fn record(&mut self, record: Record) {
        self.records.push(record);
    }

    /// An entry of the history about the newest attempt, which only accompanies others.
    pub fn event(&mut self, kind: EventKind, by: &str, text: &str) {
        self.entry(kind, None, by, text);
    }

    /// An entry that says what happened for programs too, and where people look at the cluster's own objects.
    pub fn tell(&mut self, reason: EventReason, by: &str, text: &str) {
        self.entry(reason.kind(), Some(reason), by, text);
    }

    pub fn entry(&mut self, kind: EventKind, reason: Option<EventReason>, by: &str, text: &str) {
        let task_id = Some(self.chain.attempt.task_id.clone());
        self.records.push(Record::Event(EventRecord {
            at: self.now,
            kind,
            reason,
            task_id,
            by: by.to_owned(),
            text: text.to_owned(),
        }));
    }

    /// Orders the next attempt. The one before must be gone.
    pub fn order_next(&mut self, cause: AttemptCause) {
        self.flush();
        let chain = &mut self.chain;
        let number = chain.attempt.number.saturating_add(1);
        let only = std::mem::take(&mut chain.attempt.only);
        // One that is bound to its nodes stays bound to them, whatever is held against them.
        let (own, kept_out) = if only.is_empty() {
            (chain.avoided.nodes(), chain.kept_out.clone())
        } else {
            (BTreeSet::new(), BTreeSet::new())
        };
        let next = Attempt::order(
            &chain.job_id,
            &chain.spec,
            number,
            cause,
            (own, &kept_out),
            &chain.history,
            self.now,
        );
        chain.attempt = Attempt { only, ..next };
        chain.course = Course::Attempt;
        if matches!(cause, AttemptCause::Failure | AttemptCause::ExitTest) {
            let next = chain.attempt.task_id.clone();
            let now = self.now;
            self.change_incident(|live| {
                live.record.decision.next_task_id = Some(next);
                live.times.submitted_at = Some(now);
            });
        }
        self.effects.push(Effect::Create(self.chain.plan()));
        self.touch_attempt();
        let failure = self.chain.incident.as_ref().map(|live| &live.record);
        let why = match (cause, failure) {
            (AttemptCause::Initial, _) => String::new(),
            (AttemptCause::Failure, Some(record)) => {
                format!(" after a failure ({}: {})", record.failure_type, record.fault)
            }
            (AttemptCause::Failure, None) => " after a failure".to_owned(),
            (AttemptCause::Preemption, _) => " after a preemption; that is not charged".to_owned(),
            (AttemptCause::Manual, _) => " by hand; that is not charged".to_owned(),
            (AttemptCause::ExitTest, _) => {
                " after a test of the exit notification; that is not charged".to_owned()
            }
        };
        let avoiding = self.keeping_off();
        let text = format!("Attempt {number} was submitted{why}.{avoiding}");
        self.tell(EventReason::AttemptSubmitted, "holdfast", &text);
    }

    /// Which nodes the newest attempt keeps off, as a sentence.
    fn keeping_off(&self) -> String {
        let attempt = &self.chain.attempt;
        let own: Vec<_> = attempt.avoid.difference(&attempt.quarantined).map(|node| node.as_str()).collect();
        let out: Vec<_> = attempt.quarantined.iter().map(|node| node.as_str()).collect();
        match (own.as_slice(), out.as_slice()) {
            ([], []) => String::new(),
            (own, []) => format!(" It keeps off {}.", words::list(own)),
            ([], out) => format!(" It keeps off {}, quarantined for every job.", words::list(out)),
            (own, out) => {
                format!(
                    " It keeps off {}, and off {}, quarantined for every job.",
                    words::list(own),
                    words::list(out)
                )
            }
        }
    }

    /// Orders the removal of the attempt, or its forced removal where that was not ordered yet.
    pub fn remove(&mut self, force: bool) {
        let attempt = &mut self.chain.attempt;
        match attempt.presence {
            Presence::Gone => return,
            Presence::Removing { force: forced, .. } if forced || !force => return,
            Presence::Ordered | Presence::Exists { .. } | Presence::Removing { .. } => {}
        }
        attempt.presence = Presence::Removing { since: self.now, force, kept: None };
        self.effects.push(Effect::Delete { task_id: attempt.task_id.clone(), force });
    }

    /// The same where something of an attempt turned up that was thought to be gone.
    pub fn remove_again(&mut self) {
        if self.chain.attempt.presence == Presence::Gone {
            self.chain.attempt.presence = Presence::Exists { since: self.now, seen: true };
            self.remove(false);
        }
    }

    pub fn forget(&mut self) {
        self.effects.push(Effect::Forget);
    }

    /// The attempt is over; what is left of it on the cluster is removed.
    pub fn close_attempt(&mut self, state: State, result: AttemptResult) {
        let ended_at = self.launch_ended_at();
        let attempt = &mut self.chain.attempt;
        attempt.stage = Stage::Over(state);
        attempt.result = Some(result);
        attempt.ended_at = Some(ended_at);
        attempt.queue = None;
        let progressed = self.chain.history.reached > self.chain.attempt.reached_before;
        self.chain.fruitless = if progressed { 0 } else { self.chain.fruitless.saturating_add(1) };
        self.end_launch();
        self.touch_attempt();
        self.remove(false);
    }

    /// The launch is over.
    pub fn end_launch(&mut self) {
        let ended_at = self.launch_ended_at();
        let launch = &mut self.chain.attempt.launch;
        if launch.ended_at.is_none() && launch.ordered_at.is_some() {
            launch.ended_at = Some(ended_at);
            launch.still = Standstill::default();
            // A program that finished without ever printing a step is not one that made none.
            if self.chain.attempt.stage != Stage::Over(State::Succeeded) {
                self.chain.attempt.launch.progress.end();
            }
        }
        self.touch_launch();
    }

    fn launch_ended_at(&self) -> Time {
        self.chain.attempt.launch_ended_at(self.chain.spec.processes_per_replica, self.now)
    }

    /// A time that an agent told, as far as it can be true: its clock may be off, but nothing of a launch was before its order or
    /// is still to come.
    pub fn real(&self, told: Time) -> Time {
        let attempt = &self.chain.attempt;
        let began = attempt.launch.ordered_at.or(attempt.placed_at).unwrap_or(attempt.submitted_at);
        told.clamp(began.min(self.now), self.now)
    }

    /// A point was told, so that the time may have gone to another use than was thought: since the steps were made, however late
    /// that is known, until the first sign of a failure, whichever of the two is told first.
    pub fn follow_use(&mut self, before: Milestones) {
        let until = match &self.chain.attempt.stage {
            Stage::Starting | Stage::Running | Stage::Saving(_) => self.now,
            Stage::Failing(gathering) => gathering.sign_at,
            Stage::Queued | Stage::Stopping | Stage::Over(_) => return,
        };
        let Milestones { training_at, caught_up_at } = self.chain.attempt.launch.progress.milestones();
        let Some(training_at) = training_at else { return };
        if before.training_at.is_none() {
            self.chain.meter.revise(Use::Redone, self.real(training_at), until);
        }
        if let Some(caught_up_at) = caught_up_at.filter(|_| before.caught_up_at.is_none()) {
            self.chain.meter.revise(Use::Kept, self.real(caught_up_at.max(training_at)), until);
        }
    }

    /// The chain ends: nothing more happens by itself.
    pub fn end(&mut self, state: State, why: Option<Refusal>) {
        self.close_incident();
        self.chain.course = Course::Ended { state, why };
    }

    /// When the next attempt may begin.
    pub fn after_back_off(&self) -> Time {
        let seconds = 1u64 << self.chain.fruitless.min(6);
        self.now.plus_seconds(seconds.min(limits::BACK_OFF_MAX_SECONDS))
    }
}

/// A cluster's or agent's own words, bounded.
pub(super) fn bounded(text: &str) -> String {
    text.chars().take(limits::TEXT_CHARS).collect()
}
