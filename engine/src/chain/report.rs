//! What the agents report. Each report is taken once; what is about another launch is only acknowledged.

use super::{
    EndReason,
    attempt::{Presence, Stage},
    incident::{Process, Sign},
    turn::{Turn, bounded},
};
use crate::{
    failure::{Evidence, Phase},
    ids::{ReplicaName, TaskId},
    progress::{as_point, as_step},
    record::{EventKind, EventReason, PointsRecord, ProofVerdict, Record},
    sync::{CheckpointEvent, Point, Report, ReportBody},
    time::Time,
};

impl Turn {
    pub fn take_report(&mut self, task: &TaskId, name: &ReplicaName, report: &Report) {
        if self.chain.attempt.task_id != *task {
            return;
        }
        let Some(index) = self.chain.attempt.replica(name) else { return };
        let replica = &mut self.chain.attempt.replicas[index];
        if report.sequence <= replica.taken {
            return;
        }
        replica.taken = report.sequence;
        replica.silent = None;
        if matches!(self.chain.attempt.presence, Presence::Ordered | Presence::Exists { .. }) {
            // Whoever reports exists, though the cluster may not have said so yet.
            self.see();
        }
        if report.launch != self.chain.attempt.launch.number
            && !matches!(report.body, ReportBody::Ready | ReportBody::LogLost { .. })
        {
            return;
        }
        self.take_body(index, name, report);
    }

    fn take_body(&mut self, index: usize, name: &ReplicaName, report: &Report) {
        let at = self.real(report.at);
        match &report.body {
            ReportBody::Ready => self.take_ready(index),
            ReportBody::Started => self.take_started(index, at),
            ReportBody::StartFailed { text } => {
                let reason = EndReason::StartError(bounded(text));
                self.take_signs(at, vec![Sign::Fact { replica: index, reason }]);
            }
            ReportBody::Exited { rank, exit, asked, step, phase, evidence } => {
                let step = step.and_then(as_step);
                let process = Process { rank: *rank, exit: *exit, asked: *asked, step, phase: *phase };
                self.take_exit(index, at, process, evidence);
            }
            ReportBody::Stopped => self.take_stopped(index, at),
            ReportBody::Progress { points } => self.take_points(index, name, points),
            ReportBody::Checkpoint { event } => {
                self.take_checkpoint(&CheckpointEvent {
                    step: event.step.and_then(as_step),
                    ..event.clone()
                });
            }
            ReportBody::Save { save } => self.take_save(index, at, save),
            ReportBody::Checked { findings } => self.take_checked(index, name, findings),
            ReportBody::ExitTest { test } => self.take_exit_test(index, at, test),
            ReportBody::Phase { phase } => {
                self.take_movement(report.at);
                self.chain.attempt.launch.phase = *phase;
            }
            ReportBody::Still { ranks } => self.take_still(index, ranks),
            ReportBody::Moved { ranks } => self.take_moved(index, ranks),
            ReportBody::Stacks { stacks } => self.take_stacks(index, stacks),
            ReportBody::LogLost { text } => {
                let text = format!("{name}: {}", bounded(text));
                self.event(EventKind::Warning, "holdfast", &text);
            }
        }
    }

    /// An agent without a process. If it had some in this launch, they are gone with the agent before it.
    fn take_ready(&mut self, index: usize) {
        let replica = &mut self.chain.attempt.replicas[index];
        let lost = replica.run.started && !replica.run.stopped;
        replica.ready = true;
        if lost && matches!(self.chain.attempt.stage, Stage::Saving(_)) {
            self.chain.attempt.replicas[index].run.stopped = true;
        }
        let failing = matches!(self.chain.attempt.stage, Stage::Failing(_));
        if !failing && !self.chain.attempt.is_wanted() {
            return;
        }
        // While one of them waits, the attempt does not have its resources, whatever the others have.
        if !failing && self.chain.attempt.replicas.iter().all(|replica| replica.ready) {
            self.place();
        }
        let lost = lost && !self.is_finished(index);
        self.chain.attempt.replicas[index].run.stopped |= failing || lost;
        if lost {
            // Others may have noticed that already and told it first.
            let reason = EndReason::Lost("its agent started anew, without its processes".to_owned());
            self.take_signs(self.now, vec![Sign::Fact { replica: index, reason }]);
        }
    }

    /// Its processes run, or did before another replica told of the failure.
    fn take_started(&mut self, index: usize, at: Time) {
        let is_wanted = self.chain.attempt.is_wanted();
        if !is_wanted && !matches!(self.chain.attempt.stage, Stage::Failing(_) | Stage::Saving(_)) {
            return;
        }
        if is_wanted {
            self.place();
            self.chain.attempt.replicas[index].ready = true;
        }
        let attempt = &mut self.chain.attempt;
        attempt.replicas[index].run.started = true;
        attempt.launch.started_by = attempt.launch.started_by.max(Some(at));
    }

    fn is_finished(&self, index: usize) -> bool {
        self.chain.attempt.replicas[index].is_finished(self.chain.spec.processes_per_replica)
    }

    fn take_exit(&mut self, index: usize, at: Time, process: Process, evidence: &[Evidence]) {
        if let Some(step) = process.step {
            let chain = &mut self.chain;
            chain.attempt.launch.progress.take_last_step(&mut chain.history, step);
        }
        let processes = self.chain.spec.processes_per_replica;
        let local = process.rank.checked_sub(index as u32 * processes).filter(|local| *local < processes);
        // A rank that is not of this replica is a forged or a broken report.
        let Some(local) = local else { return };
        self.chain.attempt.launch.lose_processes(at);
        if process.exit.is_success() && !process.asked && !self.ends_by_test(index, at) {
            self.chain.attempt.replicas[index].run.finished |= 1 << local;
        }
        if process.failed() || matches!(self.chain.attempt.stage, Stage::Failing(_)) {
            let sign = Sign::Exit { replica: index, process, evidence: evidence.to_vec() };
            self.take_signs(at, vec![sign]);
        }
    }

    /// All processes of a replica are gone. Where they had not finished and none of them failed, something outside ended them.
    fn take_stopped(&mut self, index: usize, at: Time) {
        self.chain.attempt.replicas[index].run.stopped = true;
        self.chain.attempt.launch.lose_processes(at);
        if self.chain.attempt.is_wanted() && !self.is_finished(index) {
            self.take_signs(at, vec![Sign::Ended { replica: index }]);
        }
    }

    fn take_points(&mut self, index: usize, name: &ReplicaName, points: &[Point]) {
        let points: Vec<Point> = points.iter().filter_map(as_point).collect();
        if points.is_empty() {
            return;
        }
        let mut speaks = false;
        for point in &points {
            self.take_movement(point.at);
            speaks = self.take_point(index as u32, point);
        }
        let chain = &mut self.chain;
        let launch = &mut chain.attempt.launch;
        if launch.phase == Phase::Starting {
            launch.phase = Phase::Training;
        }
        let record = PointsRecord { launch: launch.number, replica: name.clone(), points };
        let task = chain.attempt.task_id.clone();
        if speaks {
            self.record(Record::Points(task, record));
        }
        self.touch_launch();
    }

    /// One by one, since a late report may tell of more than one change of what the time was for.
    fn take_point(&mut self, replica: u32, point: &Point) -> bool {
        let chain = &mut self.chain;
        let progress = &mut chain.attempt.launch.progress;
        let before = progress.milestones();
        let speaks = progress.take_point(&mut chain.history, replica, point);
        self.follow_use(before);
        self.follow_recovery();
        speaks
    }

    pub fn take_checkpoint(&mut self, event: &CheckpointEvent) {
        self.take_movement(event.at);
        let chain = &mut self.chain;
        let news = chain.attempt.launch.progress.take_checkpoint(&mut chain.history, event);
        let path = event.path.as_deref().map(bounded).map(|path| format!(" ({path})")).unwrap_or_default();
        if let Some(step) = event.step.filter(|_| news) {
            let what = if event.loaded { "loaded" } else { "saved" };
            let step = crate::words::grouped(step);
            let text = format!("Checkpoint of step {step} {what}{path}.");
            self.event(EventKind::Progress, "holdfast", &text);
        }
        self.touch_launch();
    }

    /// Tells the verdict of the recovery check when it is there or has changed.
    pub fn tell_proof(&mut self) {
        let launch = &self.chain.attempt.launch;
        let proof = launch.record(self.now).proof;
        if proof.verdict == launch.told || launch.ordered_at.is_none() {
            return;
        }
        let step = proof.progress.step.map_or("no step".to_owned(), crate::words::grouped);
        let from = proof.checkpoint.step.or(launch.progress.began_after());
        let from = from.map_or("an unknown step".to_owned(), crate::words::grouped);
        let number = launch.number;
        let text = match proof.verdict {
            ProofVerdict::Resumed => format!("Launch {number} resumed at step {from}: 4 of 4 checks passed."),
            ProofVerdict::StartedFresh => {
                format!("Launch {number} started from the beginning; nothing was saved before.")
            }
            ProofVerdict::RestartedFromZero => format!(
                "Launch {number} restarted from 0 although a checkpoint was saved. Check the recovery command, the mount path, \
                 the files and their permissions."
            ),
            ProofVerdict::OlderCheckpoint => {
                format!("Launch {number} went on from step {from}, older than the newest checkpoint.")
            }
            ProofVerdict::LossJumped => {
                format!("Launch {number}: the loss at step {step} is not what it was.")
            }
            ProofVerdict::NoProgress => format!("Launch {number} made no step."),
            ProofVerdict::Pending => return,
        };
        let reason = match proof.verdict {
            ProofVerdict::Resumed => EventReason::Resumed,
            ProofVerdict::StartedFresh => EventReason::StartedFresh,
            _ => EventReason::NotResumed,
        };
        self.chain.attempt.launch.told = proof.verdict;
        self.tell(reason, "holdfast", &text);
        self.touch_launch();
    }
}
