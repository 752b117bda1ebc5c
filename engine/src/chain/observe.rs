//! What the cluster says: accepted, refused, and what it shows. Levels, so that saying it twice changes nothing.

use super::{
    EndReason, Observation, ReplicaObservation, ReplicaStatus,
    attempt::{Ended, Presence, Stage},
    incident::Sign,
    limits,
    saving::Then,
    turn::{Turn, bounded},
};
use crate::{
    failure::Exit,
    ids::{ReplicaName, TaskId},
    policy::Refusal,
    record::{AttemptResult, EventKind, EventReason, ExitReason, ProofVerdict, Queue, QueueReason, State},
    time::Time,
    words,
};
use std::collections::BTreeMap;

impl Turn {
    pub fn take_created(&mut self, task: &TaskId) {
        if self.chain.attempt.task_id != *task {
            return;
        }
        match self.chain.attempt.presence {
            Presence::Ordered => {
                self.chain.attempt.presence = Presence::Exists { since: self.now, seen: false };
            }
            // It was accepted after it was seen to be absent: an old order came through late.
            Presence::Gone => self.remove_again(),
            Presence::Exists { .. } | Presence::Removing { .. } => {}
        }
    }

    pub fn take_refused(&mut self, task: &TaskId, text: &str) {
        if self.chain.attempt.task_id != *task {
            return;
        }
        match self.chain.attempt.presence {
            Presence::Ordered => {
                let refusal = Refusal::Refused { attempt: self.chain.attempt.number };
                self.chain.attempt.presence = Presence::Gone;
                let text = bounded(text);
                self.tell(EventReason::AttemptRefused, "cluster", &text);
                self.event(EventKind::Decision, "holdfast", &refusal.text());
                self.chain.attempt.fault = Some(text);
                self.close_attempt(State::Failed, AttemptResult::Refused);
                self.end(State::Failed, Some(refusal));
            }
            // Only an observation shows that what is being removed is gone.
            Presence::Removing { .. } | Presence::Exists { .. } | Presence::Gone => {}
        }
    }

    /// Its creation stays ordered.
    pub fn take_delayed(&mut self, task: &TaskId, queue: &Queue) {
        if self.chain.attempt.task_id == *task && matches!(self.chain.attempt.presence, Presence::Ordered) {
            self.chain.cluster_silent = None;
            self.take_waiting(queue);
        }
    }

    pub fn take_observation(&mut self, task: &TaskId, observation: &Observation) {
        if self.chain.attempt.task_id != *task {
            return;
        }
        self.chain.cluster_silent = None;
        match observation {
            Observation::Absent => self.take_absent(),
            Observation::Waiting(queue) => {
                self.see();
                self.take_waiting(queue);
            }
            Observation::Suspended(queue) => {
                self.see();
                self.take_suspension(&queue.text);
                self.take_waiting(queue);
            }
            Observation::Placed { replicas } => {
                self.see();
                self.take_placed(replicas);
            }
        }
    }

    /// What keeps an attempt that was to be removed is told once, and shown for as long as it does.
    pub fn take_kept(&mut self, task: &TaskId, text: Option<&str>) {
        if self.chain.attempt.task_id != *task {
            return;
        }
        let Presence::Removing { kept, .. } = &mut self.chain.attempt.presence else { return };
        let text = text.map(bounded);
        if *kept == text {
            return;
        }
        kept.clone_from(&text);
        if let Some(text) = text {
            let text = format!("Attempt {} is still on the cluster: {text}", self.chain.attempt.number);
            self.event(EventKind::Warning, "cluster", &text);
        }
    }

    /// The cluster shows the attempt.
    pub fn see(&mut self) {
        match &mut self.chain.attempt.presence {
            presence @ Presence::Ordered => *presence = Presence::Exists { since: self.now, seen: true },
            Presence::Exists { seen, .. } => *seen = true,
            Presence::Removing { .. } => {}
            Presence::Gone => self.remove_again(),
        }
    }

    fn take_absent(&mut self) {
        match self.chain.attempt.presence {
            // Not made yet, or the order was lost; it is still pending and is given again.
            Presence::Ordered | Presence::Gone => {}
            Presence::Removing { .. } => self.chain.attempt.presence = Presence::Gone,
            Presence::Exists { since, seen } => {
                let vanished = seen || self.now >= since.plus_seconds(limits::UNSEEN_SECONDS);
                if vanished {
                    self.vanish();
                }
            }
        }
    }

    /// Someone else removed the attempt.
    fn vanish(&mut self) {
        self.chain.attempt.presence = Presence::Gone;
        let reason = EndReason::Lost("the attempt was removed from the cluster by someone else".to_owned());
        let mut fresh = Vec::new();
        for (index, replica) in self.chain.attempt.replicas.iter_mut().enumerate() {
            if replica.ended.is_none() {
                replica.ended = Some(Ended { exit: None, reason: reason.clone() });
                fresh.push(index);
            }
        }
        if !fresh.is_empty() {
            self.chain.attempt.launch.lose_processes(self.now);
        }
        // One fact says it all; a thousand replicas would not say more.
        fresh.truncate(1);
        let signs: Vec<_> =
            fresh.into_iter().map(|replica| Sign::Fact { replica, reason: reason.clone() }).collect();
        self.take_signs(self.now, signs);
    }

    fn take_waiting(&mut self, queue: &Queue) {
        if let Some(nodes) = &queue.nodes {
            self.chain.avoided.learn_total(nodes.total);
        }
        let queue = Queue { text: bounded(&queue.text), ..queue.clone() };
        let attempt = &mut self.chain.attempt;
        if attempt.stage != Stage::Queued || attempt.queue.as_ref() == Some(&queue) {
            return;
        }
        let told_at = attempt.wait_told;
        let is_due =
            told_at.is_none_or(|told_at| self.now >= told_at.plus_seconds(limits::WAIT_TOLD_SECONDS));
        let is_news = attempt
            .queue
            .as_ref()
            .is_none_or(|old| old.reason != queue.reason || (is_due && old.text != queue.text));
        let text = format!("Attempt {} waits: {}", attempt.number, queue.text);
        attempt.queue = Some(queue);
        if is_news {
            attempt.wait_told = Some(self.now);
        }
        self.touch_attempt();
        if is_news {
            self.event(EventKind::Scheduling, "cluster", &text);
        }
    }

    /// What the attempt had was taken back from it: it queues again as what it is.
    fn take_suspension(&mut self, text: &str) {
        match &self.chain.attempt.stage {
            _ if self.is_stopped() => {}
            Stage::Queued | Stage::Stopping | Stage::Over(_) => {}
            Stage::Failing(gathering) if gathering.judged.is_some() => self.lose_all(text),
            // Whatever was seen of it is no failure (R14).
            Stage::Starting | Stage::Running | Stage::Failing(_) | Stage::Saving(_) => {
                let then = Then::Requeue { text: bounded(text) };
                if !self.save_first(ExitReason::Preempted, then) {
                    self.requeue(text);
                }
            }
        }
    }

    pub fn requeue(&mut self, text: &str) {
        self.end_launch();
        self.flush_launch();
        let chain = &mut self.chain;
        chain.attempt.requeue(&chain.spec, &chain.history);
        self.touch_attempt();
        let number = self.chain.attempt.number;
        let taken = format!("Attempt {number} lost its resources: {}", bounded(text));
        self.event(EventKind::Scheduling, "cluster", &taken);
        let goes_on = format!("Attempt {number} waits for others; that is no failure and is not charged.");
        self.event(EventKind::Decision, "holdfast", &goes_on);
    }

    /// It had failed before: there are no processes any more in which it could be restarted.
    fn lose_all(&mut self, text: &str) {
        let attempt = &mut self.chain.attempt;
        for replica in attempt.replicas.iter_mut().filter(|replica| replica.ended.is_none()) {
            replica.ended = Some(Ended { exit: None, reason: EndReason::Preempted(bounded(text)) });
        }
        attempt.launch.lose_processes(self.now);
    }

    /// What the containers of an attempt that has its nodes wait for: what keeps one of them from starting, or else whose turn it is.
    fn take_waiting_containers(&mut self, replicas: &BTreeMap<ReplicaName, ReplicaObservation>) {
        if self.chain.attempt.stage != Stage::Starting {
            return;
        }
        let blocked = replicas.iter().find_map(|(name, seen)| match &seen.status {
            ReplicaStatus::Blocked(text) => Some((QueueReason::Blocked, name, text)),
            _ => None,
        });
        let turn = || {
            replicas.iter().find_map(|(name, seen)| match &seen.status {
                ReplicaStatus::Pending(Some(text)) => Some((QueueReason::Starting, name, text)),
                _ => None,
            })
        };
        let queue = blocked
            .or_else(turn)
            .map(|(reason, name, text)| Queue::of(reason, bounded(&format!("{name}: {text}"))));
        if self.chain.attempt.queue != queue {
            self.chain.attempt.queue = queue;
            self.touch_attempt();
        }
    }

    fn take_placed(&mut self, replicas: &BTreeMap<ReplicaName, ReplicaObservation>) {
        let mut signs = Vec::new();
        let (mut moved, mut gone) = (false, false);
        let processes = self.chain.spec.processes_per_replica;
        for (name, seen) in replicas {
            let Some(index) = self.chain.attempt.replica(name) else { continue };
            let replica = &mut self.chain.attempt.replicas[index];
            if seen.node.is_some() && replica.node != seen.node {
                replica.node.clone_from(&seen.node);
                moved = true;
            }
            let ReplicaStatus::Ended { exit, reason } = &seen.status else { continue };
            if replica.ended.as_ref().is_some_and(|known| !known.is_explained_by(reason)) {
                continue;
            }
            if !replica.is_quiet() && !replica.is_finished(processes) {
                gone = true;
            }
            replica.ended = Some(Ended { exit: *exit, reason: reason.clone() });
            match (exit, reason) {
                // It finished and its last report did not get through.
                (Some(exit), EndReason::Exited) if exit.is_success() => replica.finish(),
                (exit, reason) => signs.extend(signs_of(index, *exit, reason)),
            }
        }
        if gone {
            self.chain.attempt.launch.lose_processes(self.now);
        }
        if self.chain.attempt.is_wanted() {
            self.place();
            self.take_waiting_containers(replicas);
            if moved {
                self.touch_attempt();
            }
        }
        self.save_rest();
        self.take_signs(self.now, signs);
    }

    /// The attempt has its resources.
    pub fn place(&mut self) {
        if self.chain.attempt.stage != Stage::Queued {
            return;
        }
        self.chain.attempt.stage = Stage::Starting;
        self.chain.attempt.placed_at = Some(self.now);
        self.chain.attempt.queue = None;
        self.touch_attempt();
        let now = self.now;
        if self.chain.attempt.number > 1 {
            self.change_incident(|live| {
                live.times.placed_at.get_or_insert(now);
            });
        }
        let record = self.chain.attempt.record();
        let nodes: Vec<_> = record.nodes.iter().map(|node| node.as_str()).collect();
        let at = if nodes.is_empty() { String::new() } else { format!(" on {}", words::list(&nodes)) };
        let text = format!("Attempt {} has its resources{at}.", record.number);
        self.event(EventKind::Scheduling, "cluster", &text);
    }

    /// Whatever limit passed meanwhile, nobody could tell in time. What is told already stays told, and a back-off is over when it is.
    pub fn take_return(&mut self) {
        self.put_off_diagnosis();
        let until = self.now.plus_seconds(limits::RETURN_SECONDS);
        let attempt = &mut self.chain.attempt;
        let launch = &mut attempt.launch;
        launch.still.put_off(until);
        if let Some(test) = &mut attempt.exit_test {
            test.put_off(until);
        }
        match &mut attempt.stage {
            Stage::Starting => launch.spared_until = Some(until),
            Stage::Running
                if launch.progress.first_step().is_none() && launch.told != ProofVerdict::NoProgress =>
            {
                launch.spared_until = Some(until);
            }
            Stage::Failing(gathering) => {
                gathering.window_ends = gathering.window_ends.max(until);
                gathering.stop_ends = gathering.stop_ends.max(until);
            }
            Stage::Saving(saving) => {
                saving.given_up_at = saving.given_up_at.max(until);
                // The cluster has yet to say what it was for.
                saving.over_at = saving.over_at.map(|_| self.now);
            }
            Stage::Queued | Stage::Running | Stage::Stopping | Stage::Over(_) => {}
        }
        // It may never have been asked to end by itself.
        if let Presence::Removing { since, force: false, .. } = &mut attempt.presence {
            *since = self.now;
        }
    }

    /// `since` none: it is heard again.
    pub fn take_silence(&mut self, task: &TaskId, replica: Option<&ReplicaName>, since: Option<Time>) {
        if self.chain.attempt.task_id != *task {
            return;
        }
        let Some(name) = replica else {
            self.chain.cluster_silent = since;
            return;
        };
        let attempt = &mut self.chain.attempt;
        if let Some(index) = attempt.replica(name) {
            // The agents of an attempt that was taken back are gone with their pods.
            let is_there = attempt.stage != Stage::Queued || attempt.replicas[index].ready;
            attempt.replicas[index].silent = since.filter(|_| is_there);
        }
    }
}

/// What the end of a replica says about a failure. A plain exit is told by its code, everything else by the cluster's word.
fn signs_of(replica: usize, exit: Option<Exit>, reason: &EndReason) -> Vec<Sign> {
    let mut signs = Vec::new();
    if let Some(exit) = exit.filter(|exit| !exit.is_success()) {
        signs.push(Sign::ReplicaExit { replica, exit });
    }
    if *reason != EndReason::Exited || exit.is_none() {
        signs.push(Sign::Fact { replica, reason: reason.clone() });
    }
    signs
}
