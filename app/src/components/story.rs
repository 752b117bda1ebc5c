//! What a chain says, before it is drawn: which attempts are shown, how incidents are numbered, what follows what, and how it
//! ends. Every sentence about restarting or not is made here, so that all parts of the page use the same words.

use engine::{
    chain::limits,
    ids::{IncidentId, TaskId},
    job::{JobSpec, Mode},
    record::{
        Action, AttemptCause, AttemptRecord, AttemptResult, Budget, DecisionRecord, IncidentRecord,
        LaunchCause, LaunchRecord, QueueReason, State, Substate, Used,
    },
};

use crate::{
    console::{AttemptView, ChainView, JobView},
    format::{self, plural, so_far},
};

/// Attempts that are shown whole; a longer chain shows its first [`HEAD`] and its last [`TAIL`].
pub const WHOLE: usize = 8;
/// First attempts of a folded chain.
pub const HEAD: usize = 2;
/// Last attempts of a folded chain.
pub const TAIL: usize = 5;

/// An entry of the drawn chain.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown<'a> {
    /// An attempt.
    Attempt(&'a AttemptView),
    /// Attempts that are left out.
    Folded {
        /// How many.
        count: u32,
        /// The first of them.
        from: u32,
    },
}

/// Which attempts are drawn: all up to [`WHOLE`], else the first and last ones, or with `from` a window that begins there.
pub fn shown(chain: &ChainView, from: Option<u32>) -> Vec<Shown<'_>> {
    let all = &chain.attempts;
    if chain.attempts_total as usize <= WHOLE && from.is_none_or(|from| from <= 1) {
        return all.iter().map(Shown::Attempt).collect();
    }
    let kept: Vec<&AttemptView> = match from {
        Some(from) => all.iter().filter(|a| a.attempt.number >= from).take(WHOLE).collect(),
        None => {
            let tail = all.len().saturating_sub(TAIL);
            all.iter().enumerate().filter(|(i, _)| *i < HEAD || *i >= tail).map(|(_, a)| a).collect()
        }
    };
    let mut shown = Vec::with_capacity(kept.len() + 2);
    let mut next = 1;
    for attempt in kept {
        let number = attempt.attempt.number;
        if number > next {
            shown.push(Shown::Folded { count: number - next, from: next });
        }
        shown.push(Shown::Attempt(attempt));
        next = number + 1;
    }
    if chain.attempts_total >= next {
        shown.push(Shown::Folded { count: chain.attempts_total + 1 - next, from: next });
    }
    shown
}

/// The attempts among the entries.
pub fn attempts<'a>(shown: &[Shown<'a>]) -> Vec<&'a AttemptView> {
    shown.iter().filter_map(|s| if let Shown::Attempt(a) = s { Some(*a) } else { None }).collect()
}

/// One incident with where it belongs.
#[derive(Clone, Copy, Debug)]
pub struct Numbered<'a> {
    /// From 1, over all attempts in order; the round number in chain, records and chart.
    pub number: u32,
    /// The attempt it struck.
    pub attempt: &'a AttemptView,
    /// The incident.
    pub incident: &'a IncidentRecord,
}

/// All incidents of the chain, numbered in order.
pub fn incidents(chain: &ChainView) -> Vec<Numbered<'_>> {
    chain
        .attempts
        .iter()
        .flat_map(|attempt| attempt.incidents.iter().map(move |incident| (attempt, incident)))
        .zip(1..)
        .map(|((attempt, incident), number)| Numbered { number, attempt, incident })
        .collect()
}

/// The round number of an incident.
pub fn number_of(all: &[Numbered<'_>], id: &IncidentId) -> Option<u32> {
    all.iter().find(|n| n.incident.id == *id).map(|n| n.number)
}

/// The launch that an incident led to, in its own attempt or as the first of the next.
pub fn launch_after<'a>(chain: &'a ChainView, of: &Numbered<'_>) -> Option<&'a LaunchRecord> {
    match of.incident.decision.action {
        Action::RestartInPlace => {
            let same = chain.attempts.iter().find(|a| a.attempt.task_id == of.attempt.attempt.task_id)?;
            same.launches.iter().find(|l| l.number == of.incident.launch + 1)
        }
        _ => {
            let next = of.incident.decision.next_task_id.as_ref()?;
            chain.attempts.iter().find(|a| a.attempt.task_id == *next)?.launches.first()
        }
    }
}

/// `0 of 1 used, 1 left`, also at 0.
pub fn used(budget: Used) -> String {
    format!("{} of {} used, {} left", budget.used, budget.allowed, budget.left())
}

/// An answer at the head of the page: the word, a sentence, and smaller print.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The answer.
    pub word: String,
    /// Why.
    pub text: String,
    /// What more there is to know.
    pub note: String,
}

/// Did recovery act? The three counters stay apart.
pub fn did_recovery_act(chain: &ChainView) -> Answer {
    let of = |cause| chain.attempts.iter().filter(|a| a.attempt.cause == cause).count() as u32;
    let (by_hand, by_test) = (of(AttemptCause::Manual), of(AttemptCause::ExitTest));
    let resubmissions = chain.attempts_total.saturating_sub(1 + by_hand + by_test);
    let in_place: u32 = chain.attempts.iter().map(|a| in_place_restarts(a) as u32).sum();
    let incidents: u32 = chain.attempts.iter().map(|a| a.incidents.len() as u32).sum();
    let mut parts = Vec::new();
    if resubmissions > 0 {
        parts.push(plural(u64::from(resubmissions), "resubmission", "resubmissions"));
    }
    if in_place > 0 {
        parts.push(format!("{} in place", format::count(u64::from(in_place))));
    }
    if chain.budgets.diagnostics.used > 0 {
        parts.push(plural(u64::from(chain.budgets.diagnostics.used), "diagnosis", "diagnoses"));
    }
    let counted = |what: Option<String>| {
        let by_hand = (by_hand > 0)
            .then(|| format!("{} by hand", plural(u64::from(by_hand), "resubmission", "resubmissions")));
        let tasks = plural(u64::from(chain.attempts_total), "task", "tasks");
        what.into_iter().chain(by_hand).chain([tasks]).collect::<Vec<_>>().join("; ")
    };
    let failures = plural(u64::from(incidents), "incident", "incidents");
    if !parts.is_empty() {
        let note = counted(Some(format!("for {failures}")));
        return Answer { word: "Yes".to_owned(), text: parts.join(", "), note };
    }
    if incidents == 0 {
        let text = format!("Nothing to recover from{}.", so_far(chain.state.is_terminal()));
        return Answer { word: "Not needed".to_owned(), text, note: counted(None) };
    }
    let why = chain.why_not.as_ref().map(|why| why.text.clone()).unwrap_or_default();
    Answer { word: "No".to_owned(), text: why, note: counted(Some(failures)) }
}

/// Must I act?
pub fn must_i_act(job: &JobView, chain: &ChainView) -> Answer {
    let answer = |word: &str, text: String| Answer { word: word.to_owned(), text, note: String::new() };
    let summary = &job.summary;
    let why = chain.why_not.as_ref().or(summary.why_not.as_ref());
    let why_text =
        || why.map(|why| format!("{} {}", why.text, why.next).trim().to_owned()).unwrap_or_default();
    match (summary.state, chain.substate) {
        (State::Succeeded, _) => answer("No", "It finished its work.".to_owned()),
        (State::Stopped, _) => answer("No", why_text()),
        (State::Failed, _) if summary.needs_attention => answer("Yes", why_text()),
        (State::Failed, _) => answer("No", format!("Marked as seen. {}", why_text()).trim().to_owned()),
        (State::Saving, _) if summary.stopped_by.is_some() => {
            answer("No", "It saves, and is stopped then.".to_owned())
        }
        (State::Saving, _) => answer("No", "It saves before its resources are taken.".to_owned()),
        (State::Stopping, _) => answer("No", "It is being stopped.".to_owned()),
        (_, Some(Substate::Unknown)) => answer(
            "Perhaps",
            "The cluster or its agents cannot be reached, so the state is unknown.".to_owned(),
        ),
        // Whether a restart would follow a failure is not the question where it does not start.
        _ => match hindrance(chain) {
            Some((reason, text)) if reason.is_in_vain() => answer("Yes", text),
            Some((QueueReason::Blocked, text)) => answer("Probably", text),
            Some((_, text)) => answer("Perhaps", text),
            None => {
                let (word, text) = next_failure(job, chain);
                answer(word, text)
            }
        },
    }
}

/// What is in the way of the newest attempt's start that a person may have to clear, with what can be done; none where it is only a
/// matter of time.
pub fn hindrance(chain: &ChainView) -> Option<(QueueReason, String)> {
    if chain.state.is_terminal() || matches!(chain.state, State::Stopping | State::Saving) {
        return None;
    }
    let newest = &chain.attempts.last()?.attempt;
    let reason = newest.queue.as_ref().filter(|_| newest.ended_at.is_none())?.reason;
    let to_do = match reason {
        QueueReason::Unschedulable => "Stop it and create it again with less, or add nodes.",
        QueueReason::QuotaTooSmall => "Stop it and create it again with less, or raise the quota.",
        QueueReason::Inadmissible => {
            "The cluster says why: correct it there, or stop it and create it again in another queue or namespace."
        }
        QueueReason::Deactivated => "Let it in again on the cluster, or stop it and create it again.",
        QueueReason::Constraints => {
            "The cluster says what it lacks; it waits until there is a place for it or you stop it."
        }
        QueueReason::Blocked => {
            "The cluster says what, such as an image or a Secret that is missing: put it there, or correct it in a new job."
        }
        QueueReason::Busy
        | QueueReason::AvoidedNodes
        | QueueReason::Quota
        | QueueReason::AdmissionChecks
        | QueueReason::Requeued
        | QueueReason::Gang
        | QueueReason::Suspended
        | QueueReason::Starting => return None,
    };
    let mut text = format!("{}. {to_do}", waits_for(reason));
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    if reason == QueueReason::Blocked {
        let within = format::duration(limits::START_SECONDS as f64);
        text.push_str(&format!(
            " If nothing changes, this attempt ends by itself within {within} of having its nodes."
        ));
    }
    Some((reason, text))
}

/// What keeps an attempt waiting, in a few words.
pub const fn waits_for(reason: QueueReason) -> &'static str {
    match reason {
        QueueReason::Busy => "other jobs have the slots",
        QueueReason::AvoidedNodes => "it would fit if it did not avoid nodes",
        QueueReason::Unschedulable => "no set of nodes is large enough for it",
        QueueReason::Quota => "a quota is used up",
        QueueReason::QuotaTooSmall => "it asks for more than its queue's quota can ever give",
        QueueReason::Inadmissible => "its queue or its namespace does not take it",
        QueueReason::Deactivated => "its queue has given it up until a person lets it in again",
        QueueReason::AdmissionChecks => "there is quota for it, and checks come first",
        QueueReason::Requeued => "its queue took its resources back and gives it others later",
        QueueReason::Gang => "its pods start together, and there is no room for all",
        QueueReason::Suspended => "it is suspended on the cluster",
        QueueReason::Constraints => "taints, selectors or other constraints keep it out",
        QueueReason::Starting => "its containers wait for their turn",
        QueueReason::Blocked => "something keeps its containers from starting",
    }
}

/// What would follow if the newest attempt failed now.
fn next_failure(job: &JobView, chain: &ChainView) -> (&'static str, String) {
    let number = chain.attempts_total;
    let left = chain.budgets.task_restarts.left();
    match (chain.mode, chain.budgets.task_restarts.allowed, left) {
        (Mode::None, _, _) => {
            ("Not yet", format!("Auto Failover is off. If attempt {number} fails, nothing is resubmitted."))
        }
        (_, 0, _) => (
            "Not yet",
            format!("Maximum Task Restart Attempts is 0. If attempt {number} fails, nothing is resubmitted."),
        ),
        (_, _, 0) => ("Not yet", format!("If attempt {number} fails, nothing is resubmitted.")),
        _ if job.summary.state == State::Recovering => ("No", "Recovery is under way.".to_owned()),
        _ => (
            "No",
            format!(
                "If attempt {number} fails, {} left.",
                plural(u64::from(left), "task restart is", "task restarts are")
            ),
        ),
    }
}

/// How the chain ends, or would end now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It finished.
    Succeeded,
    /// A person stopped it: a bar.
    Stopped,
    /// No restart is left, or none was allowed: a crossed stub.
    BudgetUsed,
    /// A rule ended it: a stop sign.
    FailFast,
    /// Nothing follows for another reason.
    NoRestart,
    /// Restarts are left: a dotted box.
    Left,
}

/// The ending with its words.
pub fn ending(job: &JobView, chain: &ChainView) -> (Ending, Answer) {
    let newest = chain.attempts.last().filter(|a| a.attempt.number == chain.attempts_total);
    let say = |word: &str, text: String| Answer { word: word.to_owned(), text, note: String::new() };
    let why = chain.why_not.as_ref();
    let text = why.map(|w| w.text.clone()).unwrap_or_default();
    let next = why.map(|w| w.next.clone()).unwrap_or_default();
    let explain = |word: &str| Answer { word: word.to_owned(), text: text.clone(), note: next.clone() };
    match newest.and_then(|a| a.attempt.result) {
        Some(AttemptResult::Succeeded) => (Ending::Succeeded, say("Finished", after_restarts(chain))),
        Some(AttemptResult::Stopped) => {
            let word =
                job.summary.stopped_by.as_ref().map_or("Stopped".to_owned(), |by| format!("Stopped by {by}"));
            (Ending::Stopped, explain(&word))
        }
        Some(AttemptResult::BudgetUsed) => (Ending::BudgetUsed, explain("No task restart left")),
        Some(AttemptResult::FailFast) => {
            let rule =
                newest.and_then(|a| a.incidents.last()).map(|i| i.decision.rule.clone()).unwrap_or_default();
            (Ending::FailFast, explain(&format!("Failed fast: rule {rule}")))
        }
        Some(AttemptResult::AutoFailoverOff) => (Ending::NoRestart, explain("Auto Failover is off")),
        Some(AttemptResult::Refused) => (Ending::NoRestart, explain("Refused by the cluster")),
        Some(AttemptResult::Resubmitted) | None => {
            let left = chain.budgets.task_restarts.left();
            let (_, text) = next_failure(job, chain);
            match (chain.mode, left) {
                (Mode::None, _) => (Ending::NoRestart, say("No task restart follows", text)),
                (_, 0) => {
                    let why = if chain.budgets.task_restarts.allowed == 0 {
                        text
                    } else {
                        format!(
                            "All {} are used. If attempt {} fails, the chain ends here.",
                            plural(
                                u64::from(chain.budgets.task_restarts.allowed),
                                "task restart",
                                "task restarts"
                            ),
                            chain.attempts_total
                        )
                    };
                    (Ending::BudgetUsed, say("No task restart left", why))
                }
                (_, left) => (
                    Ending::Left,
                    say(&plural(u64::from(left), "task restart left", "task restarts left"), String::new()),
                ),
            }
        }
    }
}

fn after_restarts(chain: &ChainView) -> String {
    match chain.attempts_total {
        0 | 1 => String::new(),
        total => format!("after {}", plural(u64::from(total - 1), "resubmission", "resubmissions")),
    }
}

/// A task id without the job's name, which the page says already: the job's own id and the attempt's number.
pub fn short_id(task: &TaskId) -> String {
    let parts: Vec<&str> = task.as_str().rsplitn(3, '-').collect();
    match parts[..] {
        [number, job, _] => format!("{job}-{number}"),
        _ => task.to_string(),
    }
}

/// What was done about an incident, in a few words.
pub fn headline(incident: &IncidentRecord) -> String {
    let decision = &incident.decision;
    match (decision.action, &decision.next_task_id) {
        (Action::RestartInPlace, _) => "Restarted in place".to_owned(),
        (Action::Resubmit, Some(task)) => format!("Resubmitted as {}", short_id(task)),
        (Action::Resubmit, None) => "To be resubmitted".to_owned(),
        (Action::FailFast, _) => "Failed fast".to_owned(),
        (Action::Diagnose, _) => "Nodes are diagnosed".to_owned(),
        (Action::None, _) => "Not restarted".to_owned(),
    }
}

/// `Task restarts 0 → 1 of 2; in place not charged.`
pub fn budget_words(decision: &DecisionRecord) -> String {
    let of = decision.allowed.map(|allowed| format!(" of {allowed}")).unwrap_or_default();
    let change = format!("{} → {}{of}", decision.before, decision.after);
    match decision.charged {
        Budget::TaskRestarts => format!("Task restarts {change}; in place not charged"),
        Budget::InPlaceRestarts => format!("In-place restarts {change}; task restarts not charged"),
        Budget::HangRestarts => format!("In-place restarts after hangs {change}; task restarts not charged"),
        Budget::None => "Nothing charged".to_owned(),
    }
}

/// Why an attempt was made, for the line that leads to it.
pub fn cause_words(cause: AttemptCause) -> &'static str {
    match cause {
        AttemptCause::Initial => "First attempt",
        AttemptCause::Failure => "Resubmitted automatically",
        AttemptCause::Preemption => "Resubmitted after preemption",
        AttemptCause::Manual => "Resubmitted by hand",
        AttemptCause::ExitTest => "Resubmitted after a test",
    }
}

/// Said of an attempt that was not handed to the cluster.
pub fn not_submitted(state: State) -> &'static str {
    if state.is_terminal() { "never submitted" } else { "not submitted yet" }
}

/// How an attempt was dealt with, the last column of the attempts table.
pub fn result_words(attempt: &AttemptRecord, next: Option<&AttemptRecord>) -> String {
    match attempt.result {
        Some(AttemptResult::Succeeded) => "Succeeded".to_owned(),
        Some(AttemptResult::Resubmitted) => match next {
            Some(next) => format!("Resubmitted as {}", short_id(&next.task_id)),
            None => "To be resubmitted".to_owned(),
        },
        Some(AttemptResult::FailFast) => "Failed fast".to_owned(),
        Some(AttemptResult::BudgetUsed) => "No task restart left".to_owned(),
        Some(AttemptResult::AutoFailoverOff) => "Auto Failover is off".to_owned(),
        Some(AttemptResult::Refused) => "Refused by the cluster".to_owned(),
        Some(AttemptResult::Stopped) => "Stopped".to_owned(),
        None if attempt.state.is_terminal() => "none".to_owned(),
        None => "none yet".to_owned(),
    }
}

/// In-place restarts of an attempt: launches that answer a failure. Those after a test, or after a queue took the resources, are none.
fn in_place_restarts(attempt: &AttemptView) -> usize {
    let answers = |launch: &&LaunchRecord| matches!(launch.cause, LaunchCause::Failure | LaunchCause::Hang);
    attempt.launches.iter().filter(answers).count()
}

/// What was done in an attempt, the last column but one: `2 in place, then resubmit`.
pub fn action_words(attempt: &AttemptView) -> String {
    let in_place = in_place_restarts(attempt);
    let newest = attempt.incidents.last();
    let last = newest.map(|i| i.decision.action);
    let diagnosed = newest.is_some_and(|i| i.diagnosed.is_some());
    let end = match last {
        Some(Action::Resubmit) if diagnosed => "diagnose, then resubmit",
        Some(Action::Resubmit) => "resubmit",
        Some(Action::FailFast) => "fail fast",
        Some(Action::Diagnose) => "diagnose",
        _ => "",
    };
    match (in_place, end) {
        (0, "") => "none".to_owned(),
        (0, end) => end.to_owned(),
        (n, "") => format!("{n} in place"),
        (n, end) => format!("{n} in place, then {end}"),
    }
}

/// What frequent restarts have in common (R20); none below three incidents.
pub fn counsel(chain: &ChainView, spec: &JobSpec) -> Vec<String> {
    let all: Vec<&IncidentRecord> = chain.attempts.iter().flat_map(|a| &a.incidents).collect();
    if all.len() < 3 {
        return Vec::new();
    }
    let mut said = Vec::new();
    if let Some((kind, n)) = most(all.iter().map(|i| i.failure_type)) {
        said.push(format!("{n} of {} incidents are {} ({}).", all.len(), kind, kind.plain()));
    }
    if let Some((phase, n)) = most(all.iter().map(|i| phase_words(i.phase))) {
        said.push(format!("{n} of {} came while {phase}.", all.len()));
    }
    let roots = all.iter().filter_map(|i| i.root.as_ref()?.node.clone());
    if let Some((node, n)) = most(roots).filter(|(_, n)| *n > 1) {
        said.push(format!("{n} began on {node}."));
    }
    if all.iter().any(|i| i.repeats) {
        said.push("The same error came at the same step twice, with no progress between: the program or its input has to change.".to_owned());
    }
    said.extend(window_counsel(&all, spec));
    said
}

/// Whether the hang window covers the phases in which hangs were found.
fn window_counsel(all: &[&IncidentRecord], spec: &JobSpec) -> Option<String> {
    use engine::failure::{FailureType, Phase};
    let hangs: Vec<_> = all.iter().filter(|i| i.failure_type == FailureType::CommHang).collect();
    let quiet = hangs.iter().filter(|i| i.phase != Phase::Training).count();
    let window = spec.fault_tolerance.hang_detection.window_seconds;
    let hang_on = spec.fault_tolerance.hang_detection.enabled;
    match (hang_on, quiet, hangs.len()) {
        (_, _, 0) => None,
        (false, _, n) => Some(format!(
            "{n} ended with a communication timeout; Job Hang Detection is off, so a stall is seen only when the program gives up."
        )),
        (true, 0, _) => Some(format!(
            "All hangs came while making steps; the window of {window} s covers the other phases."
        )),
        (true, quiet, n) => Some(format!(
            "{quiet} of {n} hangs came in another phase than training: if that phase is normally longer than {window} s, raise Hang Determination Duration."
        )),
    }
}

/// The most frequent value, the first of equals.
fn most<T: PartialEq>(values: impl Iterator<Item = T>) -> Option<(T, usize)> {
    let mut counts: Vec<(T, usize)> = Vec::new();
    for value in values {
        match counts.iter_mut().find(|(v, _)| *v == value) {
            Some((_, n)) => *n += 1,
            None => counts.push((value, 1)),
        }
    }
    counts.into_iter().reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// What the training was doing, to follow "while".
pub const fn phase_words(phase: engine::failure::Phase) -> &'static str {
    use engine::failure::Phase;
    match phase {
        Phase::Starting => "starting",
        Phase::Loading => "loading",
        Phase::Data => "preparing data",
        Phase::Communication => "setting up communication",
        Phase::Training => "making steps",
        Phase::Evaluation => "evaluating",
        Phase::Saving => "saving",
    }
}

/// How many incidents each type has, the most frequent first.
pub fn types(chain: &ChainView) -> Vec<(engine::failure::FailureType, usize)> {
    let mut counts: Vec<_> = engine::failure::FailureType::ALL
        .into_iter()
        .map(|kind| {
            (
                kind,
                chain.attempts.iter().flat_map(|a| &a.incidents).filter(|i| i.failure_type == kind).count(),
            )
        })
        .filter(|(_, n)| *n > 0)
        .collect();
    counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn ending_of(chain: &ChainView) -> (Ending, String, String) {
        let (ending, words) = ending(&samples::job(chain), chain);
        (ending, words.word, words.text)
    }

    #[test]
    fn every_ending_says_why() {
        for (chain, want, word, text) in [
            (
                samples::chain(),
                Ending::BudgetUsed,
                "No task restart left",
                "All 2 task restarts are used. If attempt 3 fails, the chain ends here.",
            ),
            (
                samples::budget_zero(),
                Ending::BudgetUsed,
                "No task restart left",
                "Maximum Task Restart Attempts is 0.",
            ),
            (
                samples::fail_fast(),
                Ending::FailFast,
                "Failed fast: rule app-error-repeats",
                "Same error at step 1,200 twice, no progress.",
            ),
            (
                samples::stopped(),
                Ending::Stopped,
                "Stopped by user-1",
                "Stopped by user-1; a manual stop is never resubmitted.",
            ),
            (samples::running(), Ending::Left, "2 task restarts left", ""),
        ] {
            assert_eq!(ending_of(&chain), (want, word.to_owned(), text.to_owned()));
        }
    }

    #[test]
    fn a_live_job_says_what_would_follow_a_failure() {
        let mut chain = samples::running();
        assert_eq!(
            must_i_act(&samples::job(&chain), &chain).text,
            "If attempt 1 fails, 2 task restarts are left."
        );
        chain.budgets.task_restarts.allowed = 0;
        let act = must_i_act(&samples::job(&chain), &chain);
        assert_eq!(
            act.text,
            "Maximum Task Restart Attempts is 0. If attempt 1 fails, nothing is resubmitted."
        );
        chain.mode = Mode::None;
        let act = must_i_act(&samples::job(&chain), &chain);
        assert_eq!(act.text, "Auto Failover is off. If attempt 1 fails, nothing is resubmitted.");
    }

    #[test]
    fn a_start_that_waits_for_a_person_says_what_to_do() {
        let mut chain = samples::running();
        let act = |chain: &ChainView| must_i_act(&samples::job(chain), chain);
        let waits = |chain: &mut ChainView, reason| {
            let newest = &mut chain.attempts.last_mut().unwrap().attempt;
            newest.queue = Some(engine::record::Queue::of(reason, "its words"));
        };
        chain.state = State::Starting;
        for (reason, word, why, to_do) in [
            (
                QueueReason::Blocked,
                "Probably",
                "Something keeps its containers from starting. ",
                "within 10 min",
            ),
            (QueueReason::Constraints, "Perhaps", "Taints, selectors or other ", "or you stop it"),
        ] {
            waits(&mut chain, reason);
            let said = act(&chain);
            assert_eq!(said.word, word);
            assert!(said.text.starts_with(why) && said.text.contains(to_do), "{}", said.text);
        }
        waits(&mut chain, QueueReason::Busy);
        assert_eq!(act(&chain).word, "No", "that is a matter of time");
        for (reason, why, to_do) in [
            (
                QueueReason::Unschedulable,
                "No set of nodes is large enough for it. ",
                "with less, or add nodes",
            ),
            (QueueReason::QuotaTooSmall, "It asks for more than ", "raise the quota"),
            (QueueReason::Inadmissible, "Its queue or its namespace ", "correct it there"),
            (QueueReason::Deactivated, "Its queue has given it up ", "Let it in again"),
        ] {
            waits(&mut chain, reason);
            let said = act(&chain);
            assert_eq!(said.word, "Yes");
            assert!(said.text.starts_with(why) && said.text.contains(to_do), "{}", said.text);
        }
        // What it waited for says nothing of the next one.
        waits(&mut chain, QueueReason::Blocked);
        chain.attempts.last_mut().unwrap().attempt.ended_at = Some(chain.now);
        assert_eq!(act(&chain).word, "No");
    }

    #[test]
    fn the_counters_are_never_summed() {
        let acted = did_recovery_act(&samples::chain());
        assert_eq!((acted.word.as_str(), acted.text.as_str()), ("Yes", "2 resubmissions, 2 in place"));
        assert_eq!(acted.note, "for 4 incidents; 3 tasks");
        assert_eq!(did_recovery_act(&samples::running()).word, "Not needed");
        assert_eq!(did_recovery_act(&samples::budget_zero()).word, "No");
        let mut by_hand = samples::budget_zero();
        let mut second = by_hand.attempts[0].clone();
        second.attempt.number = 2;
        second.attempt.cause = AttemptCause::Manual;
        by_hand.attempts.push(second);
        by_hand.attempts_total = 2;
        let acted = did_recovery_act(&by_hand);
        let why = by_hand.why_not.as_ref().map(|why| why.text.clone()).unwrap();
        let note = "2 incidents; 1 resubmission by hand; 2 tasks".to_owned();
        assert_eq!(acted, Answer { word: "No".to_owned(), text: why, note });
        by_hand.attempts.iter_mut().for_each(|attempt| attempt.incidents.clear());
        let acted = did_recovery_act(&by_hand);
        assert_eq!((&*acted.word, &*acted.note), ("Not needed", "1 resubmission by hand; 2 tasks"));
    }

    #[test]
    fn a_long_chain_shows_its_ends() {
        let chain = samples::long();
        let entries = shown(&chain, None);
        let numbers: Vec<u32> = attempts(&entries).iter().map(|a| a.attempt.number).collect();
        assert_eq!(numbers, [1, 2, 36, 37, 38, 39, 40]);
        assert!(entries.contains(&Shown::Folded { count: 33, from: 3 }));
        let window: Vec<u32> = attempts(&shown(&chain, Some(3))).iter().map(|a| a.attempt.number).collect();
        assert_eq!(window, [3, 4, 5, 6, 7, 8, 9, 10]);
        let entries = shown(&chain, Some(3));
        assert_eq!(entries.first(), Some(&Shown::Folded { count: 2, from: 1 }));
        assert_eq!(entries.last(), Some(&Shown::Folded { count: 30, from: 11 }));
        assert_eq!(shown(&samples::chain(), None).len(), 3);
    }

    #[test]
    fn budgets_are_printed_at_zero_too() {
        assert_eq!(used(Used { used: 0, allowed: 0 }), "0 of 0 used, 0 left");
        assert_eq!(used(Used { used: 0, allowed: 1 }), "0 of 1 used, 1 left");
    }

    #[test]
    fn frequent_restarts_say_what_they_have_in_common() {
        let said = counsel(&samples::chain(), &samples::spec());
        assert_eq!(said[0], "3 of 4 incidents are COMM_HANG (no progress).");
        assert_eq!(said[1], "4 of 4 came while making steps.");
        assert!(said.iter().any(|s| s.contains("window of 600 s")), "{said:?}");
        assert!(counsel(&samples::running(), &samples::spec()).is_empty());
    }
}
