//! From a verdict to a decision, and what the decision does to the chain.

use super::{
    Course, Intent,
    attempt::{self, Launch, Run, Stage},
    checks::Checks,
    exit_test,
    incident::Judged,
    turn::Turn,
};
use crate::{
    failure::FailureType,
    ids::NodeName,
    policy::{Diagnosis, May, Need, Policy, Question, Refusal, Standing, may},
    record::{
        Action, AttemptCause, AttemptResult, Budget, EventKind, EventReason, LaunchCause, Record, State,
        StrikeRecord, Used,
    },
    words,
};

/// How budgets and switches of a chain stand.
pub(super) fn standing(chain: &super::Chain) -> Standing {
    let settings = &chain.spec.fault_tolerance;
    let in_force = settings.auto_failover && settings.policy.enabled;
    let in_place = if in_force { settings.policy.max_in_place_restarts } else { 0 };
    let hangs = settings.hang_detection.enabled && in_force;
    Standing {
        auto_failover: settings.auto_failover,
        task_restarts: Used { used: chain.task_restarts_used, allowed: settings.max_task_restarts },
        in_place_restarts: Used { used: chain.attempt.in_place_used, allowed: in_place },
        hang_restarts: hangs.then_some(Used {
            used: chain.attempt.hang_used,
            allowed: settings.hang_detection.max_in_place_restarts,
        }),
    }
}

impl Turn {
    /// An open incident goes as far as it can now.
    pub fn settle_incident(&mut self) {
        let Stage::Failing(gathering) = &mut self.chain.attempt.stage else { return };
        gathering.end_last_words(self.now);
        let Stage::Failing(gathering) = &self.chain.attempt.stage else { return };
        let quiet = self.chain.attempt.is_quiet();
        let (due, judged) = (gathering.verdict_due(quiet), gathering.judged.is_some());
        let all_said = gathering.is_telling() && quiet;
        let preempted = self.chain.attempt.preempted().map(str::to_owned);
        if let Some(text) = preempted.filter(|_| !judged) {
            return self.preempt(&text);
        }
        if !judged {
            if !all_said && self.now < due {
                return;
            }
            self.judge();
        }
        self.decide();
    }

    fn decide(&mut self) {
        let Stage::Failing(gathering) = &self.chain.attempt.stage else { return };
        let Some(judged) = gathering.judged.clone() else { return };
        let stop_ends = gathering.stop_ends;
        if judged.verdict.rule == exit_test::RULE && !self.is_stopped() {
            return self.go_on_after_test(stop_ends);
        }
        let standing = standing(&self.chain);
        let given_up = self.now >= stop_ends;
        let need = self.needs(&judged, standing, given_up, Diagnosis::NotAsked);
        let restless = self.chain.attempt.starting().iter().filter(|replica| !replica.is_quiet()).count();
        let wait = (need.action == Action::RestartInPlace && restless > 0)
            .then_some((stop_ends, Refusal::StillStopping { replicas: restless as u32 }));
        let may = may(need.action, need.budget, &self.chain.intent, &standing, wait, self.now);
        if !matches!(may, May::NotYet { .. }) {
            self.strike(&judged);
        }
        match may {
            May::NotYet { reason, .. } => self.put_off(&need, &reason),
            May::Never { reason } => self.refuse(&need, reason),
            May::Yes => match need.action {
                Action::RestartInPlace => {
                    let failure_type = judged.verdict.failure_type;
                    let hang = failure_type == FailureType::CommHang;
                    let cause = if hang { LaunchCause::Hang } else { LaunchCause::Failure };
                    self.restart_in_place(&need, cause, failure_type);
                }
                Action::Resubmit => {
                    let diagnosis = self.diagnosis(&need);
                    let first = self.needs(&judged, standing, given_up, diagnosis);
                    if first.action == Action::Diagnose {
                        self.diagnose(&first, need, &judged);
                    } else {
                        self.resubmit(&first, &judged);
                    }
                }
                Action::FailFast | Action::Diagnose | Action::None => {
                    let hint = judged.verdict.hint.clone();
                    let text = explain(&need, &[]);
                    self.refuse(&need, Refusal::FailFast { text, hint });
                }
            },
        }
    }

    fn needs(&self, judged: &Judged, standing: Standing, given_up: bool, diagnosis: Diagnosis) -> Need {
        let attempt = &self.chain.attempt;
        let name = |index: usize| attempt::name(self.chain.spec.kind, index).to_string();
        let gone = attempt.first_ended().map(|index| Refusal::ReplicaGone { replica: name(index) });
        let replica_gone = gone.or_else(|| {
            let restless = attempt.starting().iter().position(|replica| !replica.is_quiet());
            restless.filter(|_| given_up).map(|index| Refusal::NotStopped { replica: name(index) })
        });
        let record = self.chain.incident.as_ref().map(|live| &live.record);
        let question = Question {
            verdict: &judged.verdict,
            phase: record.map_or(attempt.launch.phase, |record| record.phase),
            step: record.and_then(|record| record.step),
            repeat: judged.repeats,
            replica_gone,
            standing,
            diagnosis,
        };
        match Policy::of(&self.chain.spec.fault_tolerance) {
            Some(policy) => policy.needs(&question),
            None => Need::without_rule(0, Vec::new()),
        }
    }

    /// The decision waits; the record says for what.
    pub fn put_off(&mut self, need: &Need, reason: &Refusal) {
        let text = reason.text();
        let changed = self.chain.incident.as_ref().is_some_and(|live| live.record.decision.reason != text);
        if changed {
            let (rule, version) = (need.rule.clone(), need.policy_version);
            self.change_incident(|live| {
                live.record.decision.rule = rule;
                live.record.decision.policy_version = version;
                live.record.decision.reason = text;
            });
        }
    }

    /// Nothing follows: the attempt failed and the chain ends with the reason.
    fn refuse(&mut self, need: &Need, reason: Refusal) {
        let (action, result) = match &reason {
            Refusal::FailFast { .. } => (Action::FailFast, AttemptResult::FailFast),
            Refusal::AutoFailoverOff => (Action::None, AttemptResult::AutoFailoverOff),
            Refusal::Stopped { .. } => (Action::None, AttemptResult::Stopped),
            _ => (Action::None, AttemptResult::BudgetUsed),
        };
        let told = match result {
            AttemptResult::FailFast => Some(EventReason::FailFast),
            AttemptResult::AutoFailoverOff => Some(EventReason::AutoFailoverOff),
            // Told when the person asked for it.
            AttemptResult::Stopped => None,
            _ => Some(EventReason::BudgetUsed),
        };
        let text = match &reason {
            Refusal::FailFast { text, .. } => text.clone(),
            refused => sentences(&need.refusals, &refused.text()),
        };
        self.write_decision(need, (action, told), text, Budget::None, Used::default(), &[]);
        self.close_attempt(State::Failed, result);
        self.end(State::Failed, Some(reason));
    }

    /// A person's stop ends an incident whatever it needs: the record says so, and nothing is charged.
    pub fn refuse_for_stop(&mut self, by: &str) {
        let Stage::Failing(gathering) = &self.chain.attempt.stage else { return };
        if gathering.judged.is_none() {
            self.judge();
        }
        let reason = Refusal::Stopped { by: by.to_owned() };
        let now = self.now;
        self.change_incident(|live| {
            live.record.decision.rule = "stopped".to_owned();
            live.record.decision.reason = reason.text();
            live.times.decided_at = Some(now);
        });
        self.close_incident();
    }

    pub fn restart_in_place(&mut self, need: &Need, cause: LaunchCause, failure_type: FailureType) {
        let attempt = &mut self.chain.attempt;
        let used = match need.budget {
            Budget::HangRestarts => Some(&mut attempt.hang_used),
            Budget::InPlaceRestarts | Budget::TaskRestarts => Some(&mut attempt.in_place_used),
            Budget::None => None,
        };
        let mut before = Used::default();
        if let Some(used) = used {
            *used += 1;
            before.used = *used - 1;
            before.allowed = standing(&self.chain).of(need.budget).allowed;
            self.chain.in_place_total += 1;
        }
        let answer = (Action::RestartInPlace, Some(EventReason::RestartInPlace));
        self.write_decision(need, answer, explain(need, &[]), need.budget, before, &[]);
        self.end_launch();
        self.flush_launch();
        let now = self.now;
        let chain = &mut self.chain;
        let number = chain.attempt.launch.number + 1;
        let checks = Checks::of_restart(&chain.spec, &chain.attempt.launch, failure_type);
        chain.attempt.launch = Launch::new(number, cause, Some(now), &chain.history).after(checks);
        for replica in &mut chain.attempt.replicas {
            replica.run = Run::default();
        }
        chain.attempt.stage = Stage::Starting;
        self.change_incident(|live| {
            live.times.submitted_at = Some(now);
            live.times.placed_at = Some(now);
        });
        self.touch_attempt();
        self.touch_launch();
    }

    fn resubmit(&mut self, need: &Need, judged: &Judged) {
        let suspects: &[NodeName] = if need.avoid { &judged.verdict.suspects } else { &[] };
        self.follow(need, suspects, judged.repeats, explain);
    }

    /// The next attempt follows, keeping off the suspects as far as the cap allows. The attempt may be over already.
    pub fn follow(
        &mut self,
        need: &Need,
        suspects: &[NodeName],
        repeats: bool,
        explain: impl FnOnce(&Need, &[NodeName]) -> String,
    ) {
        let before = standing(&self.chain).task_restarts;
        self.chain.task_restarts_used += 1;
        let outcome = self.chain.avoided.add(suspects);
        let mut text = explain(need, &outcome.avoided);
        if !outcome.spared.is_empty() {
            let names: Vec<_> = outcome.spared.iter().map(NodeName::as_str).collect();
            let cap = self.chain.avoided.cap() as u32;
            text = format!(
                "{text} {} not kept off: the cap is {}.",
                words::list(&names),
                words::count(cap, "node")
            );
        }
        if repeats {
            text = format!("{text} Same error as before, no progress between: it will probably come again.");
        }
        let answer = (Action::Resubmit, Some(EventReason::Resubmit));
        self.write_decision(need, answer, text, Budget::TaskRestarts, before, &outcome.avoided);
        if !outcome.avoided.is_empty() {
            let names: Vec<_> = outcome.avoided.iter().map(NodeName::as_str).collect();
            let text = format!("The next attempts keep off {}.", words::list(&names));
            self.event(EventKind::Node, "holdfast", &text);
        }
        if !matches!(self.chain.attempt.stage, Stage::Over(_)) {
            self.close_attempt(State::Failed, AttemptResult::Resubmitted);
        }
        let not_before = self.after_back_off();
        self.change_incident(|live| live.record.decision.next_at = Some(not_before));
        self.chain.course = Course::Next { cause: AttemptCause::Failure, not_before };
    }

    /// Records the suspicion against the nodes that the evidence blames, whatever is done about the job.
    fn strike(&mut self, judged: &Judged) {
        let Some(incident) = self.chain.incident.as_ref().map(|live| live.record.id.clone()) else { return };
        for node in &judged.verdict.suspects {
            let text = format!("{node} is suspected: {}.", judged.verdict.fault);
            self.event(EventKind::Node, "holdfast", &text);
            self.record(Record::Strike(StrikeRecord {
                node: node.clone(),
                at: self.now,
                incident: incident.clone(),
                failure_type: judged.verdict.failure_type,
                text: judged.verdict.fault.clone(),
            }));
        }
    }

    pub fn write_decision(
        &mut self,
        need: &Need,
        (action, told): (Action, Option<EventReason>),
        reason: String,
        charged: Budget,
        before: Used,
        avoid: &[NodeName],
    ) {
        let spends = charged != Budget::None;
        let after = before.used + u32::from(spends);
        let budget = match charged {
            Budget::TaskRestarts => "Task restarts",
            Budget::InPlaceRestarts => "In-place restarts",
            Budget::HangRestarts => "Restarts after a hang",
            Budget::None => "",
        };
        let paid =
            if spends { format!(" {budget}: {after} of {} used.", before.allowed) } else { String::new() };
        self.entry(EventKind::Decision, told, "holdfast", &format!("{reason}{paid}"));
        let now = self.now;
        self.change_incident(|live| {
            let decision = &mut live.record.decision;
            decision.action = action;
            decision.rule.clone_from(&need.rule);
            decision.policy_version = need.policy_version;
            decision.reason = reason;
            decision.charged = charged;
            decision.before = before.used;
            decision.after = after;
            decision.allowed = spends.then_some(before.allowed);
            decision.avoid = avoid.to_vec();
            // A diagnosis that was decided before lies behind that.
            live.times.decided_at.get_or_insert(now);
        });
    }

    /// A preemption shows up: whatever was seen of it is no failure, and costs nothing (R14).
    pub fn preempt(&mut self, text: &str) {
        let goes_on = self.chain.spec.fault_tolerance.auto_failover;
        let result = if goes_on { AttemptResult::Resubmitted } else { AttemptResult::AutoFailoverOff };
        self.close_attempt(State::Stopped, result);
        let attempt = self.chain.attempt.number;
        self.tell(EventReason::Preempted, "cluster", &format!("Attempt {attempt} was preempted: {text}"));
        if goes_on {
            let not_before = self.after_back_off();
            self.chain.course = Course::Next { cause: AttemptCause::Preemption, not_before };
            let text = "It is resubmitted; a preemption is no failure and is not charged.";
            self.tell(EventReason::Resubmit, "holdfast", text);
        } else {
            let refusal = Refusal::AutoFailoverOff;
            self.tell(EventReason::AutoFailoverOff, "holdfast", &refusal.text());
            self.end(State::Failed, Some(refusal));
        }
    }

    /// Whether a person wants the job to end.
    pub fn is_stopped(&self) -> bool {
        self.chain.intent != Intent::Run
    }
}

/// The reason of a rule, after why the rules before it did not fire.
pub(super) fn explain(need: &Need, avoided: &[NodeName]) -> String {
    sentences(&need.refusals, &need.reason(avoided))
}

fn sentences(refusals: &[Refusal], last: &str) -> String {
    let mut all: Vec<String> = refusals.iter().map(Refusal::text).collect();
    all.push(last.to_owned());
    all.join(" ")
}
