//! What the chain's own state and the time call for, whichever input brought it about.

use super::{
    Chain, Course, EndReason, Intent,
    attempt::{self, Presence, Stage},
    checks::{self, Checks},
    exit_test,
    incident::Sign,
    limits, saving,
    summary::hindered_due,
    turn::Turn,
};
use crate::{
    job::{JobKind, JobSpec},
    ledger::Use,
    policy::Refusal,
    record::{AttemptResult, EventKind, EventReason, Queue, QueueReason, State},
    time::Time,
    words,
};

impl Turn {
    /// Goes as far as is possible now.
    pub fn settle(&mut self) {
        self.settle_saving();
        // Before the next launch: how this one ended is what its test comes to. And after, where something real cut it short.
        self.settle_exit_test();
        self.settle_attempt();
        self.settle_standstill();
        self.settle_incident();
        self.settle_removal();
        self.settle_exit_test();
        self.settle_course();
        self.tell_proof();
    }

    fn settle_attempt(&mut self) {
        if matches!(self.chain.attempt.stage, Stage::Failing(_)) && self.has_started() {
            // Known only after the failure.
            self.take_start();
        }
        if !self.chain.attempt.is_wanted() || self.is_stopped() {
            return;
        }
        if let Some(text) = self.chain.attempt.preempted().map(str::to_owned) {
            return self.preempt(&text);
        }
        let processes = self.chain.spec.processes_per_replica;
        let attempt = &mut self.chain.attempt;
        if attempt.starting().iter().all(|replica| replica.is_finished(processes)) {
            return self.succeed();
        }
        if attempt.stage != Stage::Starting {
            return;
        }
        if attempt.launch.ordered_at.is_none() && attempt.starting().iter().all(|replica| replica.ready) {
            attempt.launch.ordered_at = Some(self.now);
            self.touch_launch();
        }
        self.settle_checks();
        if self.chain.attempt.stage != Stage::Starting {
            return;
        }
        if self.has_started() {
            self.run();
        } else {
            self.check_start_limit();
        }
    }

    /// All processes of the launch run or ran, and that is new.
    fn has_started(&self) -> bool {
        let (attempt, processes) = (&self.chain.attempt, self.chain.spec.processes_per_replica);
        attempt.launch.started_at.is_none()
            && attempt.starting().iter().all(|replica| replica.run.started || replica.is_finished(processes))
    }

    /// All processes of the launch run.
    fn run(&mut self) {
        let attempt = &mut self.chain.attempt;
        attempt.stage = Stage::Running;
        attempt.queue = None;
        let text = format!(
            "Launch {} of attempt {} runs: {}.",
            attempt.launch.number,
            attempt.number,
            words::count(self.chain.spec.world_size(), "process")
        );
        self.event(EventKind::State, "holdfast", &text);
        self.take_start();
    }

    /// Keeps when all processes ran, and what followed from steps that were told before.
    fn take_start(&mut self) {
        let (now, ready) = (self.now, self.chain.spec.world_size());
        let attempt = &mut self.chain.attempt;
        let launch = &mut attempt.launch;
        let started_at = launch.started_by.unwrap_or(now);
        attempt.started_at.get_or_insert(started_at);
        launch.ordered_at.get_or_insert(started_at);
        launch.started_at = Some(started_at);
        launch.known_at = Some(now);
        launch.progress.take_resources(started_at, ready);
        self.recovery_has_resources(started_at);
        self.follow_recovery();
        self.touch_attempt();
        self.touch_launch();
    }

    /// A launch that does not come together fails the attempt. Where the missing agent is silent nothing is known.
    fn check_start_limit(&mut self) {
        let Some(due) = start_due(&self.chain) else { return };
        let replicas = self.chain.attempt.starting();
        // One that was never heard is why the others do not start.
        let unheard = replicas.iter().position(|replica| !replica.ready);
        let checking = self.chain.attempt.launch.checks.as_ref().is_some_and(Checks::is_pending);
        let unchecked = replicas.iter().position(|replica| checking && !replica.run.checked);
        let missing = unheard.or(unchecked);
        let missing = missing.or_else(|| replicas.iter().position(|replica| !replica.run.started));
        if let Some(replica) = missing.filter(|_| self.now >= due) {
            let name = attempt::name(self.chain.spec.kind, replica);
            let what = if checking { "did not tell of its health checks" } else { "started no process" };
            let late = format!("{name} {what} within {} s", limits::START_SECONDS);
            let reason = match &self.chain.attempt.queue {
                Some(Queue { reason: QueueReason::Blocked, text, .. }) => {
                    EndReason::StartError(format!("{late}; {text}"))
                }
                Some(queue) => EndReason::Lost(format!("{late}; {}", queue.text)),
                None if unheard.is_some() => {
                    let look = where_to_look(&self.chain.spec);
                    EndReason::Lost(format!("{late}; its agent was never heard{look}"))
                }
                None => EndReason::Lost(late),
            };
            self.take_signs(self.now, vec![Sign::Fact { replica, reason }]);
        }
    }

    pub fn succeed(&mut self) {
        self.close_attempt(State::Succeeded, AttemptResult::Succeeded);
        if let Some(ended_at) = self.chain.attempt.ended_at {
            self.chain.meter.revise(Use::Nothing, ended_at, self.now);
        }
        self.end(State::Succeeded, None);
        let text = format!("Attempt {} finished its work.", self.chain.attempt.number);
        self.tell(EventReason::AttemptSucceeded, "holdfast", &text);
    }

    /// A removal that takes too long is forced; one that is done lets the chain go on.
    fn settle_removal(&mut self) {
        match self.chain.attempt.presence {
            Presence::Removing { since, force: false, .. }
                if self.now >= since.plus_seconds(limits::STOP_SECONDS) =>
            {
                self.tell(
                    EventReason::Killed,
                    "holdfast",
                    "It is not gone in time; what is left of it is removed by force.",
                );
                self.remove(true);
            }
            Presence::Gone if self.chain.attempt.stage == Stage::Stopping => {
                let attempt = &mut self.chain.attempt;
                attempt.stage = Stage::Over(State::Stopped);
                attempt.result = Some(AttemptResult::Stopped);
                attempt.ended_at = Some(self.now);
                self.touch_attempt();
            }
            _ => {}
        }
    }

    fn settle_course(&mut self) {
        if self.chain.attempt.presence != Presence::Gone {
            return;
        }
        self.settle_diagnosis();
        match (&self.chain.course, &self.chain.intent) {
            (Course::Next { cause, not_before }, Intent::Run) if self.now >= *not_before => {
                self.order_next(*cause);
            }
            (Course::Stopping, Intent::Stop { by } | Intent::Delete { by, .. }) => {
                let why = Some(Refusal::Stopped { by: by.clone() });
                self.chain.course = Course::Ended { state: State::Stopped, why };
            }
            _ => {}
        }
        if let (Course::Ended { state, .. }, Intent::Delete { .. }) = (&self.chain.course, &self.chain.intent)
        {
            self.chain.course = Course::Forgetting { state: *state };
            self.forget();
        }
    }
}

/// When a launch must have started everywhere: counted from its order, and before that from the moment the attempt had its resources,
/// since an agent may never be heard at all. None where an agent that was heard is silent now.
fn start_due(chain: &Chain) -> Option<Time> {
    let attempt = &chain.attempt;
    if attempt.stage != Stage::Starting {
        return None;
    }
    let since = attempt.launch.ordered_at.or(attempt.placed_at)?;
    let heard = attempt.starting().iter().all(|replica| replica.run.started || replica.silent.is_none());
    heard.then(|| attempt.launch.spare(since.plus_seconds(limits::START_SECONDS)))
}

/// What is to be looked at where the agent of a replica was never heard; nothing of a program of the server's own machine.
fn where_to_look(spec: &JobSpec) -> &'static str {
    match (spec.kind, &spec.image) {
        (JobKind::RayJob, _) => {
            ": see whether KubeRay started it, and in its log whether it reaches the server at agent-server-url"
        }
        (JobKind::PyTorchJob, Some(_)) => {
            ": see in the log of its pod whether it reaches the server at agent-server-url"
        }
        (JobKind::PyTorchJob, None) => "",
    }
}

/// The next time at which something happens without news.
pub(super) fn wake_at(chain: &Chain) -> Option<Time> {
    let attempt = &chain.attempt;
    let mut due: Vec<Option<Time>> =
        vec![start_due(chain), hindered_due(chain), saving::due(attempt), checks::due(chain)];
    due.push(exit_test::due(attempt));
    if let Stage::Failing(gathering) = &attempt.stage {
        due.push(gathering.last_words_until);
        let judged = gathering.judged.is_some();
        due.push(Some(if judged { gathering.stop_ends } else { gathering.verdict_due(attempt.is_quiet()) }));
    }
    if attempt.stage == Stage::Running {
        due.push(attempt.launch.still.due);
    }
    if let Course::Next { not_before, .. } = &chain.course {
        due.push(Some(*not_before));
    }
    if let Course::Diagnosing(diagnosing) = &chain.course {
        due.push(diagnosing.until);
    }
    if let Presence::Removing { since, force: false, .. } = &attempt.presence {
        due.push(Some(since.plus_seconds(limits::STOP_SECONDS)));
    }
    if attempt.stage == Stage::Running && attempt.launch.progress.first_step().is_none() {
        due.push(attempt.launch.first_step_due());
    }
    if !chain.course.has_ended() {
        let silences = [attempt.silent_since(), chain.cluster_silent];
        due.extend(
            silences.map(|since| since.map(|since| since.plus_seconds(limits::SILENCE_UNKNOWN_SECONDS))),
        );
    }
    // What was due before the last step was done by it.
    due.into_iter().flatten().filter(|at| *at > chain.at).min()
}
