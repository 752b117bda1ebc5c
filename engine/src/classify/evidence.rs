//! Keeps the few lines of a stream that matter, at the edge, in bounded memory.

use std::collections::VecDeque;

use super::{Line, Progress};
use crate::{failure::Evidence, ids::ReplicaName, time::Time};

/// Lines kept from the beginning of the trouble: roots come first.
const EARLIEST: usize = 16;
/// Lines kept from its end.
const LATEST: usize = 16;
/// Training that makes this many further steps has survived what was printed before. More than one, since another rank that
/// prints into the same stream may finish the step it is in.
const SURVIVED_STEPS: u32 = 3;

/// The evidence of one stream: the earliest and the latest lines since training last went on.
///
/// An error that was caught and retried is followed by further steps; such lines are dropped, so that they cannot be taken for the
/// root of a failure hours later.
#[derive(Debug, Default)]
pub struct EvidenceLog {
    earliest: Vec<Evidence>,
    latest: VecDeque<Evidence>,
    highest_step: Option<u64>,
    steps_since: u32,
}

impl EvidenceLog {
    /// Takes a line that `replica` printed and that was read at `at`.
    pub fn see(&mut self, line: &Line<'_>, replica: &ReplicaName, at: Time) {
        if let Some(Progress::Step { step, .. }) = line.progress {
            self.step(step);
        }
        let Some(evidence) = line.evidence(replica, at) else { return };
        self.steps_since = 0;
        if self.earliest.len() < EARLIEST {
            self.earliest.push(evidence);
        } else {
            if self.latest.len() == LATEST {
                self.latest.pop_front();
            }
            self.latest.push_back(evidence);
        }
    }

    /// The lines, oldest first; the log is empty afterwards.
    pub fn take(&mut self) -> Vec<Evidence> {
        let mut lines = std::mem::take(&mut self.earliest);
        lines.extend(self.latest.drain(..));
        lines
    }

    fn step(&mut self, step: u64) {
        if self.highest_step.is_some_and(|highest| step <= highest) {
            return;
        }
        self.highest_step = Some(step);
        self.steps_since = self.steps_since.saturating_add(1);
        if self.steps_since >= SURVIVED_STEPS {
            self.earliest.clear();
            self.latest.clear();
        }
    }
}
