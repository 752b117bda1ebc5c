//! The save before the end (spec.md §5): a program that asks for it is told before a stop, a deletion or a preemption ends it.
//!
//! Choices:
//! - All replicas are told at once, whichever of them heard of the end first, and also where one is gone already. What was to happen goes
//!   on once each of them has said how its save ended, or is gone, or the time is over.
//! - The clock begins with the first word of the end: a signal that an agent got counts from when it got it. Neither a second
//!   signal nor a person's order begins it anew.
//! - An agent that was told to end says so itself, and the end is called a preemption. Whether it is one is the cluster's word afterwards:
//!   a node that is lost or short of memory is the failure that it would be without the save.
//! - What a failing launch would save is as broken as the launch: recovery does not ask for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    EndReason,
    attempt::{self, Attempt, Ended, Presence, Stage},
    incident::Sign,
    limits,
    turn::{Turn, bounded},
};
use crate::{
    record::{EventReason, ExitCheckpointRecord, ExitReason, SaveOutcome},
    sync::{CheckpointEvent, ExitNotice, SaveReport},
    time::Time,
    words,
};

/// A save that is under way, or over while the cluster has yet to say what it was for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Saving {
    pub reason: ExitReason,
    /// What the program is told.
    pub deadline_at: Time,
    /// When those that have said nothing are given up; later than the deadline, as their word has to get here.
    pub given_up_at: Time,
    /// What follows.
    pub then: Then,
    /// What replicas said, by index; the first end of each.
    pub said: BTreeMap<u32, SaveReport>,
    /// Since when all is said.
    pub over_at: Option<Time>,
}

/// What follows a save.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Then {
    /// The end that a person wants.
    Stop,
    /// The end of a preempted attempt.
    Preempt,
    /// Another wait in the queue, which took the resources.
    Requeue { text: String },
}

impl Saving {
    /// It is not over.
    pub fn goes_on(&self) -> bool {
        self.over_at.is_none()
    }

    pub fn notice(&self) -> ExitNotice {
        ExitNotice { reason: self.reason, deadline_at: self.deadline_at }
    }

    fn has_ended(&self, index: usize) -> bool {
        self.said.get(&(index as u32)).is_some_and(|save| save.outcome != SaveOutcome::Saving)
    }
}

/// Whether replica `index` may still save.
pub(super) fn may_save(attempt: &Attempt, index: usize) -> bool {
    let replica = &attempt.replicas[index];
    replica.run.started && !replica.is_quiet()
}

/// The replica with the least says how it went as a whole.
pub(super) fn weight(outcome: SaveOutcome) -> u32 {
    match outcome {
        SaveOutcome::Failed => 0,
        SaveOutcome::TimedOut => 1,
        SaveOutcome::WrongAnswer => 2,
        SaveOutcome::Saved => 3,
        SaveOutcome::NoAnswer | SaveOutcome::Saving | SaveOutcome::Forced => 4,
    }
}

/// How the save went as a whole.
fn combine(saving: &Saving, attempt: &Attempt, name: impl Fn(usize) -> String) -> SaveReport {
    let mut all = Vec::new();
    for index in 0..attempt.starting().len() {
        let said = saving.said.get(&(index as u32));
        let (outcome, message) = match said {
            Some(save) if save.outcome != SaveOutcome::Saving => (save.outcome, save.message.clone()),
            Some(_) if attempt.replicas[index].is_quiet() => {
                (SaveOutcome::Failed, Some("it ended while it saved".to_owned()))
            }
            Some(_) => (SaveOutcome::TimedOut, None),
            None if may_save(attempt, index) => {
                (SaveOutcome::NoAnswer, Some("its agent was not heard".to_owned()))
            }
            // It was gone before.
            None => continue,
        };
        all.push((index, outcome, message, said));
    }
    let outcome = all.iter().map(|(_, outcome, ..)| *outcome).min_by_key(|outcome| weight(*outcome));
    let outcome = outcome.unwrap_or(SaveOutcome::NoAnswer);
    let saved = all.iter().filter_map(|(.., said)| said.filter(|save| save.outcome == SaveOutcome::Saved));
    // Those that name no step have saved no less.
    let newest =
        saved.min_by_key(|save| save.step.unwrap_or(u64::MAX)).filter(|_| outcome == SaveOutcome::Saved);
    let mut words: Vec<String> = Vec::new();
    for (index, one, message, _) in &all {
        if *one != SaveOutcome::Saved || (all.len() == 1 && message.is_some()) {
            let message = message.as_deref().unwrap_or(one.plain());
            words.push(if all.len() == 1 {
                message.to_owned()
            } else {
                format!("{}: {message}", name(*index))
            });
        }
        if words.len() >= limits::SAVES_TOLD {
            break;
        }
    }
    SaveReport {
        reason: saving.reason,
        signalled: false,
        outcome,
        step: newest.and_then(|save| save.step),
        path: newest.and_then(|save| save.path.clone()),
        message: (!words.is_empty()).then(|| bounded(&words.join("; "))),
    }
}

impl Turn {
    /// Whether some of the launch could be told to save.
    fn can_save(&self) -> bool {
        let attempt = &self.chain.attempt;
        self.chain.spec.fault_tolerance.exit_checkpoint.enabled
            && matches!(attempt.stage, Stage::Starting | Stage::Running)
            && (0..attempt.starting().len()).any(|index| may_save(attempt, index))
    }

    /// Has the program save first, if it can; what follows waits for that.
    pub fn save_first(&mut self, reason: ExitReason, then: Then) -> bool {
        if let Stage::Saving(saving) = &mut self.chain.attempt.stage
            && saving.goes_on()
        {
            // A person's word stays, and a queue says more than a signal does.
            if saving.then != Then::Stop && then != Then::Preempt {
                saving.then = then;
            }
            return true;
        }
        let can_save = self.can_save();
        if can_save {
            self.begin_save(reason, then, self.now);
        }
        can_save
    }

    fn begin_save(&mut self, reason: ExitReason, then: Then, since: Time) {
        let wait = u64::from(self.chain.spec.fault_tolerance.exit_checkpoint.max_wait_seconds);
        let deadline_at = since.plus_seconds(wait);
        let attempt = &mut self.chain.attempt;
        attempt.queue = None;
        attempt.exit_checkpoint = Some(ExitCheckpointRecord {
            reason,
            notified_at: None,
            deadline_at: Some(deadline_at),
            outcome: SaveOutcome::Saving,
            step: None,
            path: None,
            message: None,
        });
        attempt.stage = Stage::Saving(Box::new(Saving {
            reason,
            deadline_at,
            given_up_at: deadline_at.plus_seconds(limits::SAVE_WORD_SECONDS),
            then,
            said: BTreeMap::new(),
            over_at: None,
        }));
        self.touch_attempt();
        let why = match reason {
            ExitReason::Preempted => "its resources are taken",
            ExitReason::Stopped => "it is stopped",
            ExitReason::Deleted => "it is deleted",
        };
        let text = format!("Told to save before {why}; it has at most {}.", words::duration(wait as f64));
        self.tell(EventReason::SaveAsked, "holdfast", &text);
    }

    /// A replica tells how its save stands.
    pub fn take_save(&mut self, index: usize, at: Time, save: &SaveReport) {
        if save.outcome == SaveOutcome::Forced {
            return;
        }
        if save.signalled && self.can_save() {
            self.begin_save(ExitReason::Preempted, Then::Preempt, at);
        }
        let attempt = &mut self.chain.attempt;
        let Stage::Saving(saving) = &mut attempt.stage else { return };
        let known = saving.said.get(&(index as u32));
        if !saving.goes_on() || known.is_some_and(|known| known.outcome != SaveOutcome::Saving) {
            return;
        }
        let signalled = save.signalled || known.is_some_and(|known| known.signalled);
        let text = |text: &Option<String>| text.as_deref().map(bounded);
        let step = save.step.and_then(crate::progress::as_step);
        let (path, message) = (text(&save.path), text(&save.message));
        saving.said.insert(index as u32, SaveReport { signalled, step, path, message, ..save.clone() });
        if let Some(record) = &mut attempt.exit_checkpoint {
            record.notified_at.get_or_insert(at);
        }
        self.touch_attempt();
    }

    /// Where one is preempted and gone already, the others can still save.
    pub fn save_rest(&mut self) {
        if self.chain.attempt.preempted().is_some() && self.can_save() {
            self.begin_save(ExitReason::Preempted, Then::Preempt, self.now);
        }
    }

    /// A save that is over lets go on what it was for.
    pub fn settle_saving(&mut self) {
        let attempt = &self.chain.attempt;
        let Stage::Saving(saving) = &attempt.stage else { return };
        if saving.goes_on() {
            let left = (0..attempt.starting().len())
                .any(|index| may_save(attempt, index) && !saving.has_ended(index));
            if left && self.now < saving.given_up_at {
                return;
            }
            self.end_save();
        }
        self.follow_save();
    }

    fn end_save(&mut self) {
        let now = self.now;
        let kind = self.chain.spec.kind;
        let attempt = &mut self.chain.attempt;
        let Stage::Saving(saving) = &attempt.stage else { return };
        let whole = combine(saving, attempt, |index| attempt::name(kind, index).to_string());
        if let Stage::Saving(saving) = &mut attempt.stage {
            saving.over_at = Some(now);
        }
        if let Some(record) = &mut attempt.exit_checkpoint {
            record.outcome = whole.outcome;
            record.step = whole.step;
            record.path.clone_from(&whole.path);
            record.message.clone_from(&whole.message);
        }
        self.touch_attempt();
        let step = whole.step.map(|step| format!(" at step {}", words::grouped(step))).unwrap_or_default();
        let why = whole.message.map(|why| format!(": {why}")).unwrap_or_default();
        if whole.outcome == SaveOutcome::Saved {
            self.tell(EventReason::Saved, "holdfast", &format!("Saved{step} before the end{why}."));
            let (step, path) = (whole.step, whole.path);
            self.take_checkpoint(&CheckpointEvent { at: now, loaded: false, step, path });
        } else {
            let what = match whole.outcome {
                SaveOutcome::TimedOut => "It was not saved in time",
                SaveOutcome::NoAnswer => "The program did not answer when it was told to save",
                SaveOutcome::WrongAnswer => "The program's answer to the notification was wrong",
                _ => "It was not saved",
            };
            self.tell(EventReason::NotSaved, "holdfast", &format!("{what}{why}."));
        }
    }

    fn follow_save(&mut self) {
        let Stage::Saving(saving) = &self.chain.attempt.stage else { return };
        let Some(over_at) = saving.over_at else { return };
        let processes = self.chain.spec.processes_per_replica;
        let finished = self.chain.attempt.starting().iter().all(|replica| replica.is_finished(processes));
        match saving.then.clone() {
            Then::Stop => {
                self.chain.attempt.stage = Stage::Stopping;
                self.end_launch();
                self.touch_attempt();
                self.remove(false);
            }
            _ if finished => self.succeed(),
            Then::Requeue { text } if self.chain.attempt.presence != Presence::Gone => self.requeue(&text),
            Then::Requeue { text } => self.preempt(&text),
            Then::Preempt => self.follow_preemption(over_at),
        }
    }

    /// What a preemption was is known once the agents that were told to end are gone.
    fn follow_preemption(&mut self, over_at: Time) {
        let attempt = &self.chain.attempt;
        if let Some(text) = attempt.preempted().map(str::to_owned) {
            return self.preempt(&text);
        }
        let Stage::Saving(saving) = &attempt.stage else { return };
        let told: Vec<usize> =
            saving.said.iter().filter(|(_, save)| save.signalled).map(|(index, _)| *index as usize).collect();
        let ended = told.iter().find_map(|index| Some((*index, attempt.replicas[*index].ended.clone()?)));
        match ended {
            Some((index, Ended { reason: EndReason::Exited, .. })) => {
                let name = attempt::name(self.chain.spec.kind, index);
                self.preempt(&format!("the agent of {name} was told to end"));
            }
            Some((replica, Ended { reason, .. })) => {
                self.chain.attempt.stage = Stage::Running;
                self.take_signs(self.now, vec![Sign::Fact { replica, reason }]);
            }
            None if self.now >= over_at.plus_seconds(limits::STOP_SECONDS) => {
                self.preempt("an agent was told to end, and the cluster does not say why");
            }
            None => {}
        }
    }

    /// A person does not wait for a save that goes on, or that would begin now.
    pub fn skip_save(&mut self, reason: ExitReason) {
        let skipped = match &self.chain.attempt.stage {
            Stage::Saving(saving) => saving.goes_on(),
            _ => self.can_save(),
        };
        if !skipped {
            return;
        }
        let none = ExitCheckpointRecord {
            reason,
            notified_at: None,
            deadline_at: None,
            outcome: SaveOutcome::Forced,
            step: None,
            path: None,
            message: None,
        };
        let goes_on = matches!(self.chain.attempt.stage, Stage::Saving(_));
        let record = self.chain.attempt.exit_checkpoint.take().filter(|_| goes_on);
        let record = ExitCheckpointRecord { outcome: SaveOutcome::Forced, ..record.unwrap_or(none) };
        self.chain.attempt.exit_checkpoint = Some(record);
        self.touch_attempt();
        self.tell(EventReason::NotSaved, "holdfast", "Ended at once, without waiting for a save.");
    }
}

/// When something of a save is over without news.
pub(super) fn due(attempt: &Attempt) -> Option<Time> {
    let Stage::Saving(saving) = &attempt.stage else { return None };
    Some(match saving.over_at {
        None => saving.given_up_at,
        Some(over_at) => over_at.plus_seconds(limits::STOP_SECONDS),
    })
}
