//! Reports on their way: numbered without gaps when they are first sent, repeated until acknowledged, bounded meanwhile.

use std::collections::VecDeque;

use engine::{
    sync::{Point, Report, ReportBody, StillRank, limits},
    time::Time,
};
use serde::{Deserialize, Serialize};

use crate::findings::thin;

/// Reports that wait; beyond it the oldest news of progress goes, never an exit.
const WAITING: usize = 4096;
/// Bytes of reports in one sync: room is left for the rest of the body.
const BATCH_BYTES: usize = limits::BODY_BYTES / 2;

/// Characters of a text that was refused before.
const REDUCED_CHARS: usize = 500;

/// A report without a number yet. While the server is away, progress is still merged here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Waiting {
    at: Time,
    launch: u32,
    body: ReportBody,
}

/// The reports of a replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outbox {
    /// The last number given.
    last: u64,
    /// Sent at least once, perhaps taken: they never change again.
    sent: Vec<Report>,
    waiting: VecDeque<Waiting>,
}

impl Outbox {
    /// Adds a report.
    pub fn push(&mut self, at: Time, launch: u32, body: ReportBody) {
        let body = match (body, self.waiting.back_mut()) {
            (
                ReportBody::Progress { points },
                Some(Waiting { launch: same, body: ReportBody::Progress { points: before }, .. }),
            ) if *same == launch => {
                merge(before, points);
                return;
            }
            // The newer one says all that stands still.
            (body @ ReportBody::Still { .. }, Some(before))
                if before.launch == launch && matches!(before.body, ReportBody::Still { .. }) =>
            {
                *before = Waiting { at, launch, body };
                return;
            }
            (ReportBody::Moved { ranks }, _) => ReportBody::Moved { ranks: self.moved_with(launch, ranks) },
            (body, _) => body,
        };
        self.waiting.push_back(Waiting { at, launch, body });
        if self.waiting.len() > WAITING
            && let Some(oldest) = self.waiting.iter().position(|w| is_expendable(&w.body))
        {
            self.waiting.remove(oldest);
        }
    }

    /// These ranks and those that moved before, which nobody has been told: one such report waits at most, as none is dropped. What was
    /// told of a rank afterwards, that it stands still again, holds.
    fn moved_with(&mut self, launch: u32, mut ranks: Vec<u32>) -> Vec<u32> {
        let is_moved = |w: &Waiting| w.launch == launch && matches!(w.body, ReportBody::Moved { .. });
        let Some(place) = self.waiting.iter().rposition(is_moved) else { return ranks };
        let again: Vec<u32> = (self.waiting.iter().skip(place))
            .filter_map(|w| match &w.body {
                ReportBody::Still { ranks } if w.launch == launch => {
                    Some(ranks.iter().map(|still| still.rank))
                }
                _ => None,
            })
            .flatten()
            .collect();
        if let Some(Waiting { body: ReportBody::Moved { ranks: before }, .. }) = self.waiting.remove(place) {
            let news: Vec<_> =
                before.into_iter().filter(|rank| !ranks.contains(rank) && !again.contains(rank)).collect();
            ranks.extend(news);
        }
        ranks
    }

    /// What to send now. The same reports until they are acknowledged: what comes meanwhile waits, and is merged.
    pub fn batch(&mut self) -> Vec<Report> {
        let mut bytes = 0;
        if self.sent.is_empty() {
            while self.sent.len() < limits::REPORTS
                && let Some(Waiting { at, launch, body }) = self.waiting.front()
            {
                bytes += serde_json::to_vec(body).map_or(0, |text| text.len());
                if bytes > BATCH_BYTES && !self.sent.is_empty() {
                    break;
                }
                self.last = self.last.saturating_add(1);
                let report = Report { sequence: self.last, at: *at, launch: *launch, body: body.clone() };
                self.sent.push(report);
                self.waiting.pop_front();
            }
        }
        self.sent.clone()
    }

    /// The server has all reports up to this number. If it knows more than were numbered here, this replica's state was
    /// lost: numbers go on behind the server's, or it would take the new reports for old ones.
    pub fn acknowledge(&mut self, number: u64) {
        if number > self.last {
            self.last = number;
            for report in &mut self.sent {
                self.last = self.last.saturating_add(1);
                report.sequence = self.last;
            }
        } else {
            self.sent.retain(|report| report.sequence > number);
        }
    }

    /// The server refuses what these reports say. They are reduced to their bare facts: an exit must arrive, whatever a
    /// program printed before it.
    pub fn reduce(&mut self) {
        for report in &mut self.sent {
            match &mut report.body {
                ReportBody::Exited { evidence, .. } => evidence.clear(),
                ReportBody::Progress { points } => points.clear(),
                ReportBody::Checkpoint { event } => event.path = None,
                ReportBody::Save { save } => (save.path, save.message) = (None, None),
                ReportBody::ExitTest { test } => (test.path, test.message) = (None, None),
                ReportBody::StartFailed { text } | ReportBody::LogLost { text } => {
                    *text = text.chars().filter(char::is_ascii).take(REDUCED_CHARS).collect();
                }
                ReportBody::Checked { findings } => {
                    for finding in findings {
                        finding.text =
                            finding.text.chars().filter(char::is_ascii).take(REDUCED_CHARS).collect();
                        finding.measures.clear();
                    }
                }
                ReportBody::Still { ranks } => ranks.iter_mut().for_each(reduce_still),
                ReportBody::Stacks { stacks } => stacks.clear(),
                ReportBody::Ready
                | ReportBody::Started
                | ReportBody::Stopped
                | ReportBody::Phase { .. }
                | ReportBody::Moved { .. } => {}
            }
        }
    }

    /// Forgets all reports, not their numbers.
    pub fn clear(&mut self) {
        self.sent.clear();
        self.waiting.clear();
    }

    /// Reports that are not acknowledged.
    pub fn len(&self) -> usize {
        self.sent.len() + self.waiting.len()
    }
}

/// That it stands still and since when is the fact; what the program's memory and output hold may be what is refused.
fn reduce_still(still: &mut StillRank) {
    (still.stack, still.state, still.collective) = (None, None, None);
    still.witnesses.clear();
}

fn merge(points: &mut Vec<Point>, more: Vec<Point>) {
    points.extend(more);
    while points.len() > limits::POINTS {
        thin(points);
    }
}

fn is_expendable(body: &ReportBody) -> bool {
    match body {
        ReportBody::Progress { .. }
        | ReportBody::Phase { .. }
        | ReportBody::Checkpoint { .. }
        | ReportBody::Still { .. }
        | ReportBody::Stacks { .. } => true,
        ReportBody::Ready
        | ReportBody::Started
        | ReportBody::StartFailed { .. }
        | ReportBody::Exited { .. }
        | ReportBody::Stopped
        // It takes a standstill back that was told.
        | ReportBody::Moved { .. }
        | ReportBody::Save { .. }
        | ReportBody::ExitTest { .. }
        | ReportBody::Checked { .. }
        | ReportBody::LogLost { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use engine::failure::{Exit, Phase};

    use super::*;

    fn progress(steps: std::ops::Range<u64>) -> ReportBody {
        let point = |step| Point { step, at: Time(0), loss: None, samples: None, total: None };
        ReportBody::Progress { points: steps.map(point).collect() }
    }

    fn exited() -> ReportBody {
        ReportBody::Exited {
            rank: 0,
            exit: Exit::Code(1),
            asked: false,
            step: None,
            phase: Phase::Starting,
            evidence: Vec::new(),
        }
    }

    fn numbers(reports: &[Report]) -> Vec<u64> {
        reports.iter().map(|r| r.sequence).collect()
    }

    #[test]
    fn numbers_have_no_gaps_and_a_batch_stays_until_it_is_acknowledged() {
        let mut outbox = Outbox::default();
        outbox.push(Time(0), 0, ReportBody::Ready);
        outbox.push(Time(0), 0, ReportBody::Started);
        let first = outbox.batch();
        assert_eq!(numbers(&first), [1, 2]);
        outbox.push(Time(0), 0, exited());
        assert_eq!(outbox.batch(), first);
        outbox.acknowledge(1);
        assert_eq!(numbers(&outbox.batch()), [2]);
        outbox.acknowledge(2);
        assert_eq!(numbers(&outbox.batch()), [3]);
        outbox.acknowledge(3);
        assert!(outbox.batch().is_empty());
        assert_eq!(outbox.len(), 0);
    }

    #[test]
    fn progress_that_waits_is_merged_and_thinned() {
        let mut outbox = Outbox::default();
        for second in 0..3600 {
            outbox.push(Time(second), 0, progress(second as u64 * 10..second as u64 * 10 + 10));
        }
        outbox.push(Time(0), 0, exited());
        let batch = outbox.batch();
        assert_eq!(batch.len(), 2);
        let ReportBody::Progress { points } = &batch[0].body else { panic!("{batch:?}") };
        assert!(points.len() <= limits::POINTS);
        assert_eq!((points[0].step, points.last().unwrap().step), (0, 35_999));
    }

    #[test]
    fn of_standstills_that_wait_one_after_the_other_the_newest_is_sent() {
        let mut outbox = Outbox::default();
        let still = |ranks| ReportBody::Still { ranks };
        for at in 0..100 {
            outbox.push(Time(at), 0, still(Vec::new()));
        }
        outbox.push(Time(100), 0, ReportBody::Moved { ranks: vec![0] });
        outbox.push(Time(101), 0, still(Vec::new()));
        outbox.push(Time(102), 1, still(Vec::new()));
        let sent: Vec<_> = outbox.batch().iter().map(|report| (report.at, report.launch)).collect();
        assert_eq!(sent, [(Time(99), 0), (Time(100), 0), (Time(101), 0), (Time(102), 1)]);
    }

    #[test]
    fn that_a_process_moved_again_is_never_dropped_and_waits_once() {
        let mut outbox = Outbox::default();
        outbox.push(Time(0), 0, ReportBody::Moved { ranks: vec![0, 1] });
        for number in 0..10_000 {
            outbox.push(Time(number), 0, ReportBody::Phase { phase: Phase::Data });
        }
        outbox.push(Time(10_000), 0, ReportBody::Moved { ranks: vec![2] });
        let moved = |outbox: &Outbox| -> Vec<_> {
            let bodies = outbox.waiting.iter().map(|waiting| &waiting.body);
            bodies.filter(|body| matches!(body, ReportBody::Moved { .. })).cloned().collect()
        };
        assert_eq!(moved(&outbox), [ReportBody::Moved { ranks: vec![2, 0, 1] }]);
        assert_eq!(outbox.len(), WAITING);
    }

    #[test]
    fn an_exit_outlives_any_amount_of_other_news() {
        let mut outbox = Outbox::default();
        outbox.push(Time(0), 0, exited());
        for number in 0..10_000 {
            outbox.push(Time(number), 0, ReportBody::Phase { phase: Phase::Data });
        }
        assert_eq!(outbox.len(), WAITING);
        assert_eq!(outbox.batch()[0].body, exited());
    }

    #[test]
    fn a_batch_fits_into_the_protocols_limits() {
        let mut outbox = Outbox::default();
        for launch in 0..200 {
            outbox.push(Time(0), launch, progress(0..512));
        }
        let mut taken = 0;
        while outbox.len() > 0 {
            let batch = outbox.batch();
            assert!(batch.len() <= limits::REPORTS);
            assert!(serde_json::to_vec(&batch).unwrap().len() < limits::BODY_BYTES);
            taken += batch.len();
            outbox.acknowledge(batch.last().unwrap().sequence);
        }
        assert_eq!(taken, 200);
    }

    #[test]
    fn lost_state_goes_on_behind_what_the_server_knows() {
        let mut outbox = Outbox::default();
        outbox.push(Time(0), 0, ReportBody::Ready);
        outbox.batch();
        outbox.acknowledge(57);
        assert_eq!(numbers(&outbox.batch()), [58]);
        outbox.acknowledge(57);
        assert_eq!(numbers(&outbox.batch()), [58]);
        outbox.acknowledge(58);
        assert_eq!(outbox.len(), 0);
    }

    #[test]
    fn what_is_refused_keeps_its_facts_and_its_number() {
        let mut outbox = Outbox::default();
        outbox.push(Time(0), 0, progress(0..3));
        outbox.push(Time(0), 0, exited());
        outbox.batch();
        outbox.reduce();
        let batch = outbox.batch();
        assert_eq!(numbers(&batch), [1, 2]);
        assert_eq!(batch[0].body, progress(0..0));
        assert_eq!(batch[1].body, exited());
    }

    #[test]
    fn it_survives_being_saved() {
        let mut outbox = Outbox::default();
        outbox.push(Time(1), 0, exited());
        outbox.batch();
        outbox.push(Time(2), 0, progress(0..2));
        let text = serde_json::to_string(&outbox).unwrap();
        assert_eq!(serde_json::from_str::<Outbox>(&text).unwrap(), outbox);
    }
}
