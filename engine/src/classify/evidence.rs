//! Keeps the few lines of a stream that matter, at the edge, in bounded memory.

use std::collections::VecDeque;

use super::{Line, Progress};
use crate::{failure::Evidence, ids::ReplicaName, time::Time};

/// Lines kept from the beginning of the trouble: roots come first.
const EARLIEST: usize = 16;
/// Lines kept from its end.
const LATEST: usize = 16;
/// Training that makes this many further steps has survived what was printed before. More than one, since
/// another rank that prints into the same stream may finish the step it is in.
const SURVIVED_STEPS: u32 = 3;

/// The evidence of one stream: the earliest and the latest lines since training last went on.
///
/// An error that was caught and retried is followed by further steps; such lines are dropped, so that they
/// cannot be taken for the root of a failure hours later.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::LineScanner;

    fn kept(log: &str) -> Vec<u64> {
        let replica = ReplicaName::new("worker-0").unwrap();
        let mut kept = EvidenceLog::default();
        let mut keep = |line: Line<'_>| kept.see(&line, &replica, Time::default());
        let mut scanner = LineScanner::new();
        scanner.feed(log.as_bytes(), &mut keep);
        scanner.flush(&mut keep);
        kept.take().into_iter().map(|line| line.line_number).collect()
    }

    #[test]
    fn the_earliest_and_the_latest_lines_are_kept() {
        let lines = kept(&"ValueError: no\n".repeat(1000));
        let want: Vec<u64> = (1..=16).chain(985..=1000).collect();
        assert_eq!(lines, want);
    }

    #[test]
    fn what_training_survived_is_dropped() {
        let error = "ConnectionResetError: [Errno 104] Connection reset by peer\n";
        let steps = |from: u64, to: u64| {
            (from..to).map(|i| format!("holdfast step={i} loss=1.0\n")).collect::<String>()
        };
        assert_eq!(kept(&format!("{}{error}{}", steps(0, 5), steps(5, 8))), Vec::<u64>::new());
        assert_eq!(
            kept(&format!("{}{error}{}", steps(0, 5), steps(5, 7))),
            [6],
            "other ranks may finish a step"
        );
        let again = error.repeat(2);
        assert_eq!(kept(&format!("{error}{}{again}", steps(0, 5))), [7, 8]);
        // The same step again is no progress.
        assert_eq!(kept(&format!("{}{error}{}", steps(0, 5), steps(4, 5).repeat(9))), [6]);
    }
}
