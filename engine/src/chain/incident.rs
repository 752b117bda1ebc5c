//! An incident: from the first sign, through what the replicas say about it, to the record that is kept.

use serde::{Deserialize, Serialize};

use super::{
    EndReason,
    attempt::{self, Attempt, Stage},
    exit_test, judge, limits, standstill,
    turn::Turn,
};
use crate::{
    failure::{Evidence, Exit, Phase, Role, Signal, Verdict},
    hang::HangRecord,
    ids::{IncidentId, TaskId},
    ledger::{Times, Use},
    record::{Action, Budget, Cost, DecisionRecord, EventKind, EventReason, IncidentRecord},
    time::Time,
};

/// One thing that shows a failure.
pub(super) enum Sign {
    /// A process ended.
    Exit { replica: usize, process: Process, evidence: Vec<Evidence> },
    /// The main process of a replica ended, in the cluster's view; no process of it is named.
    ReplicaExit { replica: usize, exit: Exit },
    /// The cluster, or an agent about itself, says what happened.
    Fact { replica: usize, reason: EndReason },
    /// A replica's processes are gone, nobody knows why.
    Ended { replica: usize },
    /// Health checks before the launch failed: what that is was judged with all that was found.
    Checks { verdict: Box<Verdict> },
    /// Nothing moves any more.
    Hang(Box<HangRecord>),
}

/// How one process ended, without its evidence.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub rank: u32,
    pub exit: Exit,
    pub asked: bool,
    pub step: Option<u64>,
    pub phase: Phase,
}

impl Process {
    /// It ended badly and by itself.
    pub fn failed(&self) -> bool {
        !self.asked && !self.exit.is_success()
    }
}

/// An exit as it was reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenExit {
    pub replica: usize,
    /// None where only the replica as a whole is known to have ended.
    pub rank: Option<u32>,
    pub exit: Exit,
    pub asked: bool,
    /// Its lines show only what followed from another failure.
    pub follows: bool,
    pub at: Time,
}

/// What the cluster said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenFact {
    pub replica: usize,
    pub reason: EndReason,
}

/// An open incident: what is known of it, and what it waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Gathering {
    pub noticed_at: Time,
    pub sign_at: Time,
    /// Nothing is stopped until then, while only consequences were seen; none once everything is to stop.
    pub last_words_until: Option<Time>,
    /// The verdict waits for the other replicas until then.
    pub window_ends: Time,
    /// Replicas that have not stopped by then are given up.
    pub stop_ends: Time,
    pub exits: Vec<SeenExit>,
    pub evidence: Vec<Evidence>,
    pub facts: Vec<SeenFact>,
    /// The first replica whose processes were gone without a word.
    pub ended: Option<usize>,
    /// What the health checks before the launch come to, where they failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<Box<Verdict>>,
    /// Nothing moved any more; how its processes end when they are stopped says nothing then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hang: Option<Box<HangRecord>>,
    pub step: Option<u64>,
    pub phase: Option<Phase>,
    /// Once it is made, nothing more is gathered.
    pub judged: Option<Judged>,
}

/// A verdict that waits for its decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Judged {
    pub verdict: Verdict,
    pub repeats: bool,
}

/// The newest incident with its record, as long as its recovery goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LiveIncident {
    pub task_id: TaskId,
    pub record: IncidentRecord,
    pub times: Times,
    /// The newest step of the job when it failed.
    pub reached: Option<u64>,
}

/// What is remembered of a failure to notice its repeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PastFailure {
    pub fingerprint: String,
    /// The newest step of the job when it happened.
    pub reached: Option<u64>,
}

impl Gathering {
    fn new(now: Time) -> Self {
        Self {
            noticed_at: now,
            sign_at: now,
            last_words_until: Some(now.plus_millis(limits::LAST_WORDS_MILLIS)),
            window_ends: now.plus_millis(limits::GATHER_MILLIS),
            stop_ends: now.plus_seconds(limits::STOP_SECONDS),
            exits: Vec::new(),
            evidence: Vec::new(),
            facts: Vec::new(),
            ended: None,
            checks: None,
            hang: None,
            step: None,
            phase: None,
            judged: None,
        }
    }

    fn take(&mut self, at: Time, sign: Sign) {
        if !matches!(&sign, Sign::Exit { process, .. } if !process.failed()) {
            self.sign_at = self.sign_at.min(at);
        }
        match sign {
            Sign::Exit { replica, process, evidence } => {
                self.step = self.step.max(process.step);
                if process.failed() {
                    self.phase.get_or_insert(process.phase);
                }
                let follows = follows(&evidence);
                let Process { rank, exit, asked, .. } = process;
                self.take_exit(SeenExit { replica, rank: Some(rank), exit, asked, follows, at });
                self.take_evidence(evidence);
            }
            Sign::ReplicaExit { replica, exit } => {
                // Its processes said more than the code of the whole, if they could.
                let known = |seen: &SeenExit| seen.replica == replica && !seen.asked;
                if !self.exits.iter().any(known) {
                    self.take_exit(SeenExit { replica, rank: None, exit, asked: false, follows: false, at });
                }
            }
            Sign::Fact { replica, reason } => {
                if self.facts.len() < limits::EXITS {
                    self.facts.push(SeenFact { replica, reason });
                }
            }
            Sign::Ended { replica } => {
                self.ended.get_or_insert(replica);
            }
            Sign::Checks { verdict } => {
                self.checks.get_or_insert(verdict);
            }
            Sign::Hang(hang) => {
                self.phase.get_or_insert(hang.phase);
                self.hang.get_or_insert(hang);
            }
        }
    }

    /// Something of it says what happened. A SIGTERM that was not ours and processes that are just gone say only that somebody
    /// outside ended them, and what followed from another failure says that there was one: the cluster's word about it may be on its
    /// way.
    pub fn is_telling(&self) -> bool {
        let telling = |seen: &SeenExit| {
            !seen.asked && !seen.follows && !seen.exit.is_success() && seen.exit != Exit::Signal(Signal::TERM)
        };
        !self.facts.is_empty()
            || self.checks.is_some()
            || self.hang.is_some()
            || self.exits.iter().any(telling)
    }

    /// All that was seen followed from another failure.
    fn only_consequences(&self) -> bool {
        self.facts.is_empty()
            && self.hang.is_none()
            && self.ended.is_none()
            && self.checks.is_none()
            && self.exits.iter().all(|seen| seen.asked || seen.follows || seen.exit.is_success())
    }

    /// Ends the wait for last words once somebody has said what happened, or the time for it is over.
    pub fn end_last_words(&mut self, now: Time) {
        if !self.only_consequences() || self.last_words_until.is_some_and(|until| until <= now) {
            self.last_words_until = None;
        }
    }

    /// When the verdict is made with what is known by then; `quiet`: all replicas have stopped. Where only consequences were seen,
    /// a replica that does not stop is the likely cause, and the cluster has yet to say what became of it.
    pub fn verdict_due(&self, quiet: bool) -> Time {
        if self.only_consequences() && !quiet {
            self.window_ends.max(self.noticed_at.plus_seconds(limits::CAUSE_SECONDS))
        } else {
            self.window_ends
        }
    }

    /// Exits that count push out those that were asked for.
    fn take_exit(&mut self, seen: SeenExit) {
        if self.exits.len() < limits::EXITS {
            self.exits.push(seen);
        } else if !seen.asked
            && let Some(other) = self.exits.iter_mut().find(|other| other.asked)
        {
            *other = seen;
        }
    }

    /// Root lines push out the others.
    fn take_evidence(&mut self, lines: Vec<Evidence>) {
        for line in lines {
            if self.evidence.len() < limits::EVIDENCE {
                self.evidence.push(line);
            } else if line.role == Role::Root
                && let Some(other) = self.evidence.iter_mut().find(|other| other.role != Role::Root)
            {
                *other = line;
            }
        }
    }
}

/// Whether lines show a consequence and nothing that could be its cause.
fn follows(evidence: &[Evidence]) -> bool {
    let has = |role: Role| evidence.iter().any(|line| line.role == role);
    has(Role::Cascade) && !has(Role::Root)
}

impl Turn {
    /// Takes signs of a failure: they open an incident or add to the one that is open. Afterwards, or where nobody wants the
    /// processes any more, they mean nothing.
    pub fn take_signs(&mut self, at: Time, signs: Vec<Sign>) {
        if signs.is_empty() {
            return;
        }
        if self.chain.attempt.is_wanted() {
            self.open(&signs);
        }
        if let Stage::Failing(gathering) = &mut self.chain.attempt.stage
            && gathering.judged.is_none()
        {
            for sign in signs {
                gathering.take(at, sign);
            }
            self.chain.meter.revise(Use::Stalled, gathering.sign_at, self.now);
        }
    }

    fn open(&mut self, signs: &[Sign]) {
        self.chain.attempt.stage = Stage::Failing(Box::new(Gathering::new(self.now)));
        self.chain.attempt.queue = None;
        self.touch_attempt();
        let name = |index: usize| attempt::name(self.chain.spec.kind, index);
        let text = match signs.first() {
            Some(Sign::Exit { replica, process: Process { rank, exit, .. }, .. }) => {
                format!("Rank {rank} on {} ended: {exit}. The launch is stopped everywhere.", name(*replica))
            }
            Some(Sign::ReplicaExit { replica, exit }) => {
                format!("{} ended: {exit}. The launch is stopped everywhere.", name(*replica))
            }
            Some(Sign::Fact { replica, reason }) => format!("{}: {}.", name(*replica), judge::words(reason)),
            Some(Sign::Ended { replica }) if self.ends_by_test(*replica, self.now) => {
                format!("The processes of {} ended after a test had told them to save.", name(*replica))
            }
            Some(Sign::Ended { replica }) => {
                format!("The processes of {} were ended from outside.", name(*replica))
            }
            Some(Sign::Checks { verdict }) => format!("{}. Training does not begin.", verdict.fault),
            Some(Sign::Hang(hang)) => {
                format!("A hang: {}. The launch is stopped everywhere.", hang.words)
            }
            None => return,
        };
        self.event(EventKind::Incident, "holdfast", &text);
    }

    /// Makes the verdict and opens the record. Nothing is gathered afterwards.
    pub fn judge(&mut self) {
        let Stage::Failing(gathering) = &mut self.chain.attempt.stage else { return };
        let mut gathered = std::mem::replace(gathering, Box::new(Gathering::new(self.now)));
        let attempt = &mut self.chain.attempt;
        let verdict =
            judge::verdict(&gathered, attempt, self.chain.spec.kind, self.chain.spec.processes_per_replica);
        let by_test = exit_test::caused(attempt, &gathered, &verdict);
        let verdict = if by_test { exit_test::verdict(verdict) } else { verdict };
        // No step beyond the newest of all since the same error: it would come again (R13).
        let reached = self.chain.history.reached;
        let repeats = repeats(&verdict, &self.chain.past, reached);
        self.chain.past.retain(|past| past.fingerprint != verdict.fingerprint);
        self.chain.past.push(PastFailure { fingerprint: verdict.fingerprint.clone(), reached });
        if self.chain.past.len() > limits::PAST_FAILURES {
            self.chain.past.remove(0);
        }
        attempt.incidents += 1;
        if !by_test {
            attempt.failure_type = Some(verdict.failure_type);
            attempt.fault = Some(verdict.fault.clone());
            self.chain.failure_type = Some(verdict.failure_type);
        }
        let live = open_record(&gathered, attempt, &verdict, repeats, reached);
        let text = format!("{}: {}.", verdict.failure_type, verdict.fault);
        gathered.judged = Some(Judged { verdict, repeats });
        gathered.exits = Vec::new();
        gathered.evidence = Vec::new();
        gathered.facts = Vec::new();
        attempt.stage = Stage::Failing(gathered);
        self.close_incident();
        self.chain.incident = Some(live);
        self.touch_attempt();
        self.touch_incident();
        self.tell(EventReason::Incident, "holdfast", &text);
    }

    /// Changes the live incident's times or record, and what is derived from them.
    pub fn change_incident(&mut self, change: impl FnOnce(&mut LiveIncident)) {
        let began_after = self.chain.attempt.launch.progress.began_after();
        let Some(live) = &mut self.chain.incident else { return };
        change(live);
        let redone = match (live.times.first_step_at, live.reached, began_after) {
            (Some(_), Some(reached), Some(began)) => Some(reached.saturating_sub(began)),
            (Some(_), None, _) => Some(0),
            _ => None,
        };
        live.record.clock = live.times.clock();
        live.record.cost = live.times.cost(&self.chain.spec, redone);
        self.touch_incident();
    }

    /// The processes of the launch all run since `at`: the incident before it has its resources.
    pub fn recovery_has_resources(&mut self, at: Time) {
        self.change_incident(|live| {
            if let Some(placed_at) = live.times.placed_at {
                live.times.resources_at.get_or_insert(at.max(placed_at));
            }
        });
    }

    /// A step was made: the first, or the one that the failure had lost.
    pub fn follow_recovery(&mut self) {
        let progress = &self.chain.attempt.launch.progress;
        let Some(((_, first_at), training_at)) = progress.first_step().zip(progress.training_at()) else {
            return;
        };
        let Some(live) = &self.chain.incident else { return };
        let Some(resources_at) = live.times.resources_at else { return };
        let caught_up = progress.last_step() >= live.reached;
        if live.times.first_step_at.is_some() && !caught_up {
            return;
        }
        let training_at = self.real(training_at).max(resources_at);
        let first_at = self.real(first_at).max(resources_at);
        let caught_up_at = self.real(progress.caught_up_at().unwrap_or(self.now)).max(training_at);
        self.change_incident(|live| {
            live.times.training_at.get_or_insert(training_at);
            live.times.first_step_at.get_or_insert(first_at);
            if caught_up {
                live.times.caught_up_at = Some(caught_up_at);
            }
        });
        if caught_up {
            self.close_incident();
        }
    }
}

/// Whether it is the same error without progress since. What befalls a node or a replica from outside is no error of the
/// program and proves nothing about the next try. Standstills are told apart by their places alone, which are the same for many: that
/// of a program which never printed a step may have trained for days in between.
fn repeats(verdict: &Verdict, past: &[PastFailure], reached: Option<u64>) -> bool {
    !judge::is_from_outside(verdict)
        && (verdict.rule != standstill::RULE || reached.is_some())
        && past.iter().any(|past| past.fingerprint == verdict.fingerprint && reached <= past.reached)
}

fn open_record(
    gathered: &Gathering,
    attempt: &Attempt,
    verdict: &Verdict,
    repeats: bool,
    reached: Option<u64>,
) -> LiveIncident {
    let root_line = verdict.evidence.iter().find(|line| line.role == Role::Root).map(|line| line.at);
    let began = attempt.launch.ordered_at.unwrap_or(attempt.submitted_at);
    let sign_at = root_line.map_or(gathered.sign_at, |line| line.min(gathered.sign_at)).max(began);
    let times = Times::new(sign_at, gathered.noticed_at);
    let phase = gathered.phase.unwrap_or(attempt.launch.phase);
    LiveIncident {
        task_id: attempt.task_id.clone(),
        record: IncidentRecord {
            id: IncidentId::of_attempt(&attempt.task_id, attempt.incidents),
            at: gathered.noticed_at,
            launch: attempt.launch.number,
            failure_type: verdict.failure_type,
            confidence: verdict.confidence,
            phase,
            step: gathered.step.max(attempt.launch.progress.last_step()),
            cascade_ranks: verdict.cascade_ranks,
            root: verdict.root.clone(),
            fault: verdict.fault.clone(),
            hint: verdict.hint.clone(),
            evidence: verdict.evidence.clone(),
            hang: gathered.hang.clone(),
            fingerprint: verdict.fingerprint.clone(),
            repeats,
            decision: undecided(),
            diagnosed: None,
            clock: times.clock(),
            cost: Cost::default(),
            right: None,
        },
        times,
        reached,
    }
}

/// The place of a decision that is not made yet.
fn undecided() -> DecisionRecord {
    DecisionRecord {
        action: Action::None,
        rule: String::new(),
        policy_version: 0,
        reason: String::new(),
        charged: Budget::None,
        before: 0,
        after: 0,
        allowed: None,
        avoid: Vec::new(),
        next_at: None,
        next_task_id: None,
    }
}
