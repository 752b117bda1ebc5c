//! What people ask for. A stop and a delete work in every state and win over recovery within the step.

use super::{
    Course, Intent, Request,
    attempt::{Presence, Stage},
    saving::Then,
    turn::{Turn, bounded},
};
use crate::{
    ids::NodeName,
    record::{AttemptCause, AttemptResult, EventKind, EventReason, ExitReason},
    words,
};

impl Turn {
    pub fn take_request(&mut self, request: &Request, by: &str) {
        match request {
            Request::Stop { force } => self.stop(*force, by),
            Request::Delete { force } => self.delete(*force, by),
            Request::TestExit => self.test_exit(by),
            Request::Resubmit => self.resubmit_by_hand(by),
            Request::Acknowledge => {
                if !self.chain.acknowledged {
                    self.chain.acknowledged = true;
                    self.event(EventKind::Person, by, "Marked as seen; no attention needed.");
                }
            }
            Request::Diagnosed { run_id, text, suspects, task_id } => {
                let how = format!("Diagnosis {run_id} is over. {text}");
                if !self.diagnosis_over(task_id.as_ref(), &how, suspects) {
                    self.diagnosed(&how, suspects, by);
                }
            }
            Request::Undiagnosed { task_id, why } => {
                self.diagnosis_over(Some(task_id), &format!("Not diagnosed: {why}"), &[]);
            }
            Request::Readmit { node } => {
                if self.chain.avoided.remove(node) {
                    let text = format!("{node} was released; the next attempts keep off it no more.");
                    self.event(EventKind::Node, by, &text);
                }
            }
            Request::Note { text } => self.event(EventKind::Node, by, &bounded(text)),
        }
    }

    fn diagnosed(&mut self, how: &str, suspects: &[NodeName], by: &str) {
        self.event(EventKind::Node, by, &bounded(how));
        let outcome = self.chain.avoided.add(suspects);
        for (nodes, what) in [
            (&outcome.avoided, "The next attempts keep off"),
            (&outcome.spared, "Too many nodes would be kept off with"),
        ] {
            let names: Vec<_> = nodes.iter().map(NodeName::as_str).collect();
            if !names.is_empty() {
                self.event(EventKind::Node, by, &format!("{what} {}.", words::list(&names)));
            }
        }
    }

    fn stop(&mut self, force: bool, by: &str) {
        if self.chain.course.has_ended() {
            return;
        }
        if self.chain.intent == Intent::Run {
            self.chain.intent = Intent::Stop { by: by.to_owned() };
            let text = if force { "Asked to stop at once." } else { "Asked to stop." };
            self.tell(EventReason::StopRequested, by, text);
        }
        self.halt(force, by, ExitReason::Stopped);
    }

    fn delete(&mut self, force: bool, by: &str) {
        if let Intent::Delete { force: forced, .. } = &mut self.chain.intent {
            *forced |= force;
        } else {
            self.chain.intent = Intent::Delete { by: by.to_owned(), force };
            let text = if force { "Asked to delete at once." } else { "Asked to delete." };
            self.tell(EventReason::DeleteRequested, by, text);
        }
        if self.chain.course.has_ended() {
            self.remove(force);
        } else {
            self.halt(force, by, ExitReason::Deleted);
        }
    }

    /// Ends whatever goes on, towards [`Course::Stopping`]; what can save does that first.
    fn halt(&mut self, force: bool, by: &str, reason: ExitReason) {
        self.refuse_for_stop(by);
        if force {
            self.skip_save(reason);
        } else if self.save_first(reason, Then::Stop) {
            self.chain.course = Course::Stopping;
            self.touch_attempt();
            return self.close_incident();
        }
        match self.chain.attempt.stage {
            Stage::Queued | Stage::Starting | Stage::Running | Stage::Failing(_) | Stage::Saving(_) => {
                self.chain.attempt.stage = Stage::Stopping;
                self.chain.attempt.queue = None;
                self.end_launch();
            }
            // The attempt had its own end already; only the next one is called off.
            Stage::Over(_) => self.chain.attempt.result = Some(AttemptResult::Stopped),
            Stage::Stopping => {}
        }
        self.chain.course = Course::Stopping;
        self.touch_attempt();
        self.close_incident();
        self.remove(force);
    }

    fn resubmit_by_hand(&mut self, by: &str) {
        let Course::Ended { .. } = self.chain.course else { return };
        if matches!(self.chain.intent, Intent::Delete { .. }) {
            return;
        }
        self.event(EventKind::Person, by, "Asked to resubmit; that is not charged.");
        self.chain.intent = Intent::Run;
        self.chain.acknowledged = false;
        // The person may have corrected what failed: what came before proves nothing about the next try.
        self.chain.past.clear();
        self.chain.fruitless = 0;
        self.chain.course = Course::Next { cause: AttemptCause::Manual, not_before: self.now };
        if self.chain.attempt.presence != Presence::Gone {
            self.remove(false);
        }
    }
}

impl Course {
    /// Nothing more happens by itself.
    pub(super) const fn has_ended(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Forgetting { .. })
    }
}
