//! What the output of a launch has told and nobody has reported yet. Bounded by what it keeps, so the thread that reads output
//! never waits for the one that reports.

use std::{collections::BTreeMap, mem};

use engine::{
    classify::{EvidenceLog, Line, Progress},
    failure::{Evidence, Phase},
    ids::ReplicaName,
    sync::{CheckpointEvent, Collective, Point, ReportBody, limits},
    time::Time,
};

use crate::watch::Activity;

/// Points kept of a fast program: one in this time, microseconds (20 a second), and always the last.
const POINT_INTERVAL: i64 = 50_000;
/// Checkpoint events kept between two reports; a program that says more keeps the newest.
const CHECKPOINTS: usize = 64;

/// Bytes of a checkpoint's path; what is longer is none.
const PATH_BYTES: usize = 4096;

/// News of one launch.
#[derive(Debug, Default)]
pub struct Findings {
    ranks: BTreeMap<u32, RankState>,
    points: Points,
    checkpoints: Vec<CheckpointEvent>,
    phase: Option<Phase>,
    phase_told: Option<Phase>,
    losses: Vec<String>,
    /// By local rank: what the watch for standstills compares.
    activities: BTreeMap<u32, Activity>,
}

/// How far a process has got, by what it printed on both its outputs.
#[derive(Debug)]
struct RankState {
    step: Option<u64>,
    phase: Phase,
    evidence: EvidenceLog,
}

impl Default for RankState {
    fn default() -> Self {
        Self { step: None, phase: Phase::Starting, evidence: EvidenceLog::default() }
    }
}

/// How far a process got, by what it printed.
#[derive(Debug, PartialEq)]
pub struct LastWords {
    /// Its last step.
    pub step: Option<u64>,
    /// What it was doing.
    pub phase: Phase,
    /// Lines that matched a signature, oldest first.
    pub evidence: Vec<Evidence>,
}

impl Findings {
    /// Takes a line that the process of this rank printed. True if it has the launch's first step, which is worth a
    /// report at once.
    pub fn see(&mut self, process: u32, line: &Line<'_>, replica: &ReplicaName, at: Time) -> bool {
        if line.matched.is_none() && line.progress.is_none() {
            return false;
        }
        self.ranks.entry(process).or_default().evidence.see(line, replica, at);
        match line.progress.clone() {
            Some(Progress::Step { step, total, loss, samples }) => {
                let point = Point { step, at, loss, samples, total };
                self.step(process, line.rank.unwrap_or(process), point)
            }
            Some(Progress::Checkpoint { loaded, step, path }) => {
                let path = path.filter(|path| path.len() <= PATH_BYTES);
                self.activity(process).checkpoint(at);
                self.checkpoint(CheckpointEvent { at, loaded, step, path });
                false
            }
            Some(Progress::Phase(phase)) => {
                self.phase(process, phase);
                false
            }
            None => false,
        }
    }

    /// A process made a step; `printed` is the rank that the line names.
    fn step(&mut self, process: u32, printed: u32, point: Point) -> bool {
        self.activity(process).step(point.step, point.at);
        let state = self.ranks.entry(process).or_default();
        state.step = Some(point.step);
        state.phase = Phase::Training;
        let first = self.points.rank.is_none();
        if self.points.take_from(printed) {
            self.points.add(point);
            self.phase = Some(Phase::Training);
        }
        first
    }

    fn checkpoint(&mut self, event: CheckpointEvent) {
        if self.checkpoints.len() == CHECKPOINTS {
            self.checkpoints.remove(0);
        }
        self.checkpoints.push(event);
    }

    fn phase(&mut self, process: u32, phase: Phase) {
        self.activity(process).phase(phase);
        self.ranks.entry(process).or_default().phase = phase;
        self.phase = Some(phase);
    }

    /// A process printed something.
    pub fn output(&mut self, process: u32, at: Time) {
        self.activity(process).output(at);
    }

    /// A process said something of its collectives.
    pub fn collective(&mut self, process: u32, said: Collective, at: Time) {
        self.activity(process).collective(said, at);
    }

    /// What each process has shown of its work.
    pub fn activities(&self) -> BTreeMap<u32, Activity> {
        self.activities.clone()
    }

    fn activity(&mut self, process: u32) -> &mut Activity {
        self.activities.entry(process).or_default()
    }

    /// Output was not kept.
    pub fn loss(&mut self, text: String) {
        self.losses.push(text); // two kinds of loss, each said once a launch
    }

    /// How far a process got that has ended.
    pub fn last_words(&mut self, process: u32) -> LastWords {
        let RankState { step, phase, mut evidence } = self.ranks.remove(&process).unwrap_or_default();
        LastWords { step, phase, evidence: evidence.take() }
    }

    /// What is new since the last call, as it happened: a checkpoint that was loaded comes before the steps that follow it.
    pub fn take(&mut self) -> Vec<ReportBody> {
        let mut news = Vec::new();
        if let Some(phase) = self.phase.filter(|now| self.phase_told != Some(*now)) {
            self.phase_told = Some(phase);
            news.push(ReportBody::Phase { phase });
        }
        let points = self.points.take();
        let first_step_at = points.first().map(|point| point.at);
        let is_before = |event: &CheckpointEvent| first_step_at.is_none_or(|at| event.at <= at);
        let (before, after): (Vec<_>, Vec<_>) =
            mem::take(&mut self.checkpoints).into_iter().partition(is_before);
        let report = |event| ReportBody::Checkpoint { event };
        news.extend(before.into_iter().map(report));
        if !points.is_empty() {
            news.push(ReportBody::Progress { points });
        }
        news.extend(after.into_iter().map(report));
        news.extend(self.losses.drain(..).map(|text| ReportBody::LogLost { text }));
        news
    }
}

/// The points of the lowest rank that prints any.
#[derive(Debug, Default)]
struct Points {
    rank: Option<u32>,
    kept: Vec<Point>,
    /// The newest, where it came too soon after the one before.
    newest: Option<Point>,
    kept_at: Option<Time>,
}

impl Points {
    fn take_from(&mut self, rank: u32) -> bool {
        if self.rank.is_none_or(|known| rank < known) {
            self.rank = Some(rank);
            self.kept.clear();
            self.newest = None;
            self.kept_at = None;
        }
        self.rank == Some(rank)
    }

    fn add(&mut self, point: Point) {
        // Some programs print the loss of a step apart from its number.
        let last = self.newest.as_mut().or(self.kept.last_mut());
        if let Some(same) = last.filter(|last| last.step == point.step) {
            same.loss = point.loss.or(same.loss);
            same.samples = point.samples.or(same.samples);
            same.total = point.total.or(same.total);
            return;
        }
        let soon = self.kept_at.is_some_and(|at| point.at.micros() - at.micros() < POINT_INTERVAL);
        if soon {
            self.newest = Some(point);
            return;
        }
        self.newest = None;
        self.kept_at = Some(point.at);
        self.kept.push(point);
        if self.kept.len() == limits::POINTS {
            thin(&mut self.kept);
        }
    }

    fn take(&mut self) -> Vec<Point> {
        self.kept.extend(self.newest.take());
        mem::take(&mut self.kept)
    }
}

/// Leaves out every other point, but neither the first nor the last.
pub fn thin(points: &mut Vec<Point>) {
    let last = points.len().saturating_sub(1);
    let mut index = 0;
    points.retain(|_| {
        let keep = index % 2 == 0 || index == last;
        index += 1;
        keep
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: u64, millis: i64) -> Point {
        Point { step, at: Time(millis * 1000), loss: None, samples: None, total: None }
    }

    fn points(news: Vec<ReportBody>) -> Vec<Point> {
        let progress = |body| if let ReportBody::Progress { points } = body { Some(points) } else { None };
        news.into_iter().filter_map(progress).flatten().collect()
    }

    fn steps(news: Vec<ReportBody>) -> Vec<u64> {
        points(news).iter().map(|p| p.step).collect()
    }

    #[test]
    fn a_fast_program_keeps_its_first_and_its_last_step() {
        let mut findings = Findings::default();
        for step in 1..=1000 {
            findings.step(0, 0, point(step, step as i64));
        }
        let told = steps(findings.take());
        assert_eq!((told[0], *told.last().unwrap()), (1, 1000));
        assert!(told.len() <= 21, "{}", told.len());
        assert_eq!(findings.last_words(0).step, Some(1000));
    }

    #[test]
    fn what_is_printed_of_one_step_on_two_lines_is_one_point() {
        let mut findings = Findings::default();
        findings.step(0, 0, Point { total: Some(9), ..point(1, 0) });
        findings.step(0, 0, Point { loss: Some(0.5), ..point(1, 1) });
        let one = Point { total: Some(9), loss: Some(0.5), ..point(1, 0) };
        assert_eq!(points(findings.take()), [one]);
    }

    #[test]
    fn points_come_from_the_lowest_rank_that_prints_them() {
        let mut findings = Findings::default();
        assert!(findings.step(3, 3, point(1, 0)));
        assert!(!findings.step(2, 2, point(1, 100)));
        findings.step(3, 3, point(2, 200));
        findings.step(2, 2, point(2, 300));
        assert_eq!(points(findings.take()), [point(1, 100), point(2, 300)]);
        assert_eq!(findings.last_words(3).step, Some(2));
    }

    #[test]
    fn news_is_told_once() {
        let mut findings = Findings::default();
        findings.phase(0, Phase::Loading);
        findings.loss("disk full".to_owned());
        let lost = ReportBody::LogLost { text: "disk full".to_owned() };
        assert_eq!(findings.take(), [ReportBody::Phase { phase: Phase::Loading }, lost]);
        findings.phase(0, Phase::Loading);
        assert_eq!(findings.take(), []);
    }

    #[test]
    fn news_comes_as_it_happened() {
        let mut findings = Findings::default();
        let event =
            |millis: i64, loaded| CheckpointEvent { at: Time(millis * 1000), loaded, step: None, path: None };
        findings.checkpoint(event(1, true));
        findings.step(0, 0, point(7, 2));
        findings.checkpoint(event(3, false));
        let news = findings.take();
        assert_eq!(news[1], ReportBody::Checkpoint { event: event(1, true) });
        assert_eq!(news[2], ReportBody::Progress { points: vec![point(7, 2)] });
        assert_eq!(news[3], ReportBody::Checkpoint { event: event(3, false) });
    }

    #[test]
    fn the_report_stays_within_the_protocols_limit() {
        let mut findings = Findings::default();
        for step in 0..5000 {
            findings.step(0, 0, point(step, step as i64 * 100));
        }
        let told = steps(findings.take());
        assert!(told.len() <= limits::POINTS);
        assert_eq!((told[0], *told.last().unwrap()), (0, 4999));
    }
}
