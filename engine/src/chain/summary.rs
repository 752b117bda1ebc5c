//! The chain as people see it: states, the words beside them, and why nothing follows.

use super::{
    Chain, Course, Intent,
    attempt::{Presence, Stage},
    decide::standing,
    limits,
};
use crate::{
    hang::Suspicion,
    ids::TaskId,
    ledger::Use,
    policy::Refusal,
    record::{AttemptCause, Budgets, Diagnostics, QueueReason, State, Substate, Summary, WhyNot},
    time::Time,
    words,
};

/// The job's state.
pub(super) fn state(chain: &Chain) -> State {
    let attempt = &chain.attempt;
    match &chain.course {
        Course::Ended { state, .. } | Course::Forgetting { state } => *state,
        Course::Stopping if attempt.state() == State::Saving => State::Saving,
        Course::Stopping => State::Stopping,
        Course::Next { cause: AttemptCause::Failure, .. } | Course::Diagnosing(_) => State::Recovering,
        Course::Next { .. } => State::Queued,
        Course::Attempt => match attempt.stage {
            Stage::Queued | Stage::Starting if attempt.cause == AttemptCause::Failure => State::Recovering,
            _ => attempt.state(),
        },
    }
}

/// What goes on beside the state.
pub(super) fn substate(chain: &Chain, now: Time) -> Option<Substate> {
    let attempt = &chain.attempt;
    let resubmitted = (attempt.number > 1).then_some(Substate::Resubmitted);
    if chain.course.has_ended() || chain.course == Course::Stopping {
        return resubmitted;
    }
    if is_unknown(chain, now) {
        return Some(Substate::Unknown);
    }
    match (&chain.course, &attempt.stage) {
        (Course::Diagnosing(_), _) => Some(Substate::Diagnosing),
        (Course::Next { .. }, _) => Some(Substate::BackOff),
        (_, Stage::Queued) if attempt.queue.as_ref().is_some_and(|queue| queue.reason.is_in_vain()) => {
            Some(Substate::Unschedulable)
        }
        (_, Stage::Starting) if attempt.launch.cause.is_restart() => Some(Substate::InPlaceRestart),
        (_, Stage::Running) if attempt.launch.still.suspicion.is_some() => Some(Substate::SuspectedHang),
        _ => resubmitted,
    }
}

/// Since when nobody has been heard who could tell how the job is.
fn silent_since(chain: &Chain) -> Option<Time> {
    if matches!(chain.course, Course::Diagnosing(_)) {
        // It has nothing there of which anything could be told.
        return None;
    }
    match chain.attempt.stage {
        // Agents that are heard tell more than the cluster.
        Stage::Starting | Stage::Running => chain.attempt.silent_since(),
        Stage::Queued | Stage::Failing(_) | Stage::Saving(_) | Stage::Stopping | Stage::Over(_) => {
            chain.cluster_silent
        }
    }
}

fn is_unknown(chain: &Chain, now: Time) -> bool {
    silent_since(chain).is_some_and(|since| now >= since.plus_seconds(limits::SILENCE_UNKNOWN_SECONDS))
}

/// When a person is asked to look at what is in the way of the start: much of it goes by itself in the first moments.
pub(super) fn hindered_due(chain: &Chain) -> Option<Time> {
    let attempt = &chain.attempt;
    let since = match (&attempt.stage, attempt.queue.as_ref()?.reason) {
        (Stage::Starting, QueueReason::Blocked) => attempt.placed_at?,
        (Stage::Queued, QueueReason::Constraints) => attempt.submitted_at,
        _ => return None,
    };
    Some(since.plus_seconds(limits::HINDERED_SECONDS))
}

/// What the time of the job is spent on now.
pub(super) fn spends(chain: &Chain) -> Use {
    if chain.course.has_ended() || is_unknown(chain, chain.at) {
        return Use::Nothing;
    }
    if matches!(chain.course, Course::Next { .. } | Course::Diagnosing(_)) {
        return Use::Queued;
    }
    match &chain.attempt.stage {
        Stage::Queued => Use::Queued,
        Stage::Failing(_) | Stage::Stopping => Use::Stalled,
        Stage::Over(_) => Use::Nothing,
        // Steps are made by all: a replica that has not said yet that it started has.
        Stage::Starting | Stage::Running | Stage::Saving(_) => {
            match chain.attempt.launch.progress.last_step() {
                None => Use::Starting,
                Some(last) if Some(last) < chain.history.reached => Use::Redone,
                Some(_) => Use::Kept,
            }
        }
    }
}

pub(super) fn of(chain: &Chain, now: Time) -> Summary {
    let standing = standing(chain);
    let (state, substate) = (state(chain), substate(chain, now));
    let mut meter = chain.meter.clone();
    meter.add(spends(chain), chain.at, now);
    let mut ledger = meter.ledger(&chain.spec);
    if chain.history.reached.is_none() {
        // A program that prints no steps may be as busy as any: not reported is not 0.
        ledger.ettr = None;
    }
    let attention = state == State::Failed
        || !state.is_terminal()
            && (matches!(substate, Some(Substate::Unknown | Substate::Unschedulable))
                || hindered_due(chain).is_some_and(|due| now >= due));
    Summary {
        state,
        substate,
        tail: tail(chain, state, now),
        mode: chain.spec.fault_tolerance.mode(),
        original_task_id: TaskId::of_attempt(&chain.spec.name, &chain.job_id, 1),
        latest_task_id: chain.attempt.task_id.clone(),
        attempts_total: chain.attempt.number,
        budgets: Budgets {
            task_restarts: standing.task_restarts,
            in_place_restarts: standing.in_place_restarts,
            hang_restarts: standing.hang_restarts.unwrap_or_default(),
            diagnostics: Diagnostics::default(),
        },
        why_not: why_not(chain),
        ledger,
        reached_step: chain.history.reached,
        saved_step: chain.history.saved,
        total_steps: chain.history.total,
        longest_quiet: chain.history.quiet.longest(),
        failure_type: chain.failure_type,
        needs_attention: attention && !chain.acknowledged,
        stopped_by: match &chain.intent {
            Intent::Run => None,
            Intent::Stop { by } | Intent::Delete { by, .. } => Some(by.clone()),
        },
        kept: match &chain.attempt.presence {
            Presence::Removing { kept, .. } => kept.clone(),
            Presence::Ordered | Presence::Exists { .. } | Presence::Gone => None,
        },
        saving_until: saving_until(chain),
    }
}

/// Until when a program that saves before its end may do so.
fn saving_until(chain: &Chain) -> Option<Time> {
    match &chain.attempt.stage {
        Stage::Saving(saving) if saving.goes_on() => Some(saving.deadline_at),
        _ => None,
    }
}

/// Why no restart follows, or would follow.
fn why_not(chain: &Chain) -> Option<WhyNot> {
    let standing = standing(chain);
    match &chain.course {
        Course::Ended { why, .. } => why.as_ref().map(Refusal::why_not),
        Course::Stopping | Course::Forgetting { .. } => match &chain.intent {
            Intent::Run => None,
            Intent::Stop { by } | Intent::Delete { by, .. } => {
                Some(Refusal::Stopped { by: by.clone() }.why_not())
            }
        },
        Course::Next { .. } | Course::Diagnosing(_) => None,
        Course::Attempt => {
            let used = standing.task_restarts;
            let refusal = if !standing.auto_failover {
                Refusal::AutoFailoverOff
            } else if used.left() == 0 && standing.in_place_restarts.left() == 0 {
                Refusal::TaskRestartsUsed { allowed: used.allowed }
            } else {
                return None;
            };
            let next = format!("If attempt {} fails, nothing is restarted.", chain.attempt.number);
            Some(WhyNot { text: refusal.text(), next })
        }
    }
}

/// The words beside the badge.
fn tail(chain: &Chain, state: State, now: Time) -> String {
    let attempt = &chain.attempt;
    if let Some(since) = silent_since(chain).filter(|_| !chain.course.has_ended())
        && now >= since.plus_seconds(limits::SILENCE_SAID_SECONDS)
    {
        return format!("last heard {} ago", words::duration(now.seconds_since(since)));
    }
    if let (State::Running, Some(suspicion)) = (state, &attempt.launch.still.suspicion) {
        return suspected_tail(suspicion, now);
    }
    match state {
        State::Queued | State::Recovering => waiting_tail(chain, now),
        State::Starting => {
            let ready = attempt.starting().iter().filter(|replica| replica.ready).count();
            let ready =
                format!("{ready} of {} ready", words::count(chain.spec.starting_replicas(), "replica"));
            if let Some(checks) = checking(chain) {
                return checks;
            }
            match &attempt.queue {
                Some(queue) => format!("{ready}; {}", queue.text),
                None => ready,
            }
        }
        State::Running => match (
            chain.history.reached.filter(|_| attempt.launch.progress.last_step().is_some()),
            chain.history.total,
        ) {
            (None, _) => "no step yet".to_owned(),
            (Some(_), total) => {
                let last = words::grouped(attempt.launch.progress.last_step().unwrap_or_default());
                match total {
                    Some(total) => format!("step {last} of {}", words::grouped(total)),
                    None => format!("step {last}"),
                }
            }
        },
        State::Saving => {
            saving_until(chain).map(|until| words::time_left(until.seconds_since(now))).unwrap_or_default()
        }
        State::Stopping | State::Stopped => match &chain.intent {
            Intent::Run => String::new(),
            Intent::Stop { by } | Intent::Delete { by, .. } => format!("by {by}"),
        },
        State::Succeeded => succeeded_tail(chain),
        State::Failed => why_not(chain).map(|why| why.text).unwrap_or_default(),
    }
}

/// How far the health checks are, while a launch waits for them.
fn checking(chain: &Chain) -> Option<String> {
    let launch = &chain.attempt.launch;
    let record = &launch.checks.as_ref().filter(|checks| checks.is_pending())?.record;
    launch.ordered_at?;
    Some(format!("health checks: {} of {} done", record.told, words::count(record.replicas, "replica")))
}

/// `stack unchanged 8 of 10 min`.
fn suspected_tail(suspicion: &Suspicion, now: Time) -> String {
    let (passed, allowed) = (now.seconds_since(suspicion.since), f64::from(suspicion.allowed_seconds));
    let what = if suspicion.stacks { "stack unchanged" } else { "nothing moves" };
    let passed = passed.min(allowed);
    if allowed < 120.0 {
        format!("{what} {} of {} s", passed as u32, allowed as u32)
    } else {
        format!("{what} {} of {} min", (passed / 60.0) as u32, (allowed / 60.0).round() as u32)
    }
}

fn waiting_tail(chain: &Chain, now: Time) -> String {
    let attempt = &chain.attempt;
    match (&chain.course, &attempt.stage) {
        (Course::Next { not_before, .. }, _) => {
            let next = attempt.number.saturating_add(1);
            if now < *not_before {
                let seconds = not_before.seconds_since(now).ceil();
                format!("attempt {next} in {}", words::duration(seconds))
            } else {
                format!("attempt {next} follows")
            }
        }
        (Course::Diagnosing(diagnosing), _) => {
            format!("diagnosing {}", words::count(diagnosing.nodes.len() as u32, "node"))
        }
        (_, Stage::Failing(_)) => "stopping what is left".to_owned(),
        (_, Stage::Starting) if attempt.launch.cause == crate::record::LaunchCause::ExitTest => {
            "in place after a test, not charged".to_owned()
        }
        (_, Stage::Starting) if attempt.launch.cause.is_restart() => {
            let standing = standing(chain);
            let used = if attempt.launch.cause == crate::record::LaunchCause::Hang {
                standing.hang_restarts.unwrap_or(standing.in_place_restarts)
            } else {
                standing.in_place_restarts
            };
            format!("in place {} of {}", used.used, used.allowed)
        }
        (_, Stage::Starting) => format!("attempt {} is starting", attempt.number),
        _ if attempt.number > 1 => format!("attempt {} is queued", attempt.number),
        _ => queue_tail(chain),
    }
}

fn queue_tail(chain: &Chain) -> String {
    let Some(queue) = &chain.attempt.queue else { return "waits for the cluster".to_owned() };
    let mut parts = Vec::new();
    if let (Some(needs), Some(nodes)) = (queue.needs_nodes, &queue.nodes) {
        parts.push(format!("needs {}, {} free", words::count(needs, "node"), nodes.free));
    }
    if let Some(position) = queue.position {
        parts.push(format!("position {position}"));
    }
    if parts.is_empty() { queue.text.clone() } else { parts.join("; ") }
}

fn succeeded_tail(chain: &Chain) -> String {
    let mut parts = Vec::new();
    let resubmissions = chain.attempt.number - 1;
    if resubmissions > 0 {
        parts.push(words::count(resubmissions, "resubmission"));
    }
    if chain.in_place_total > 0 {
        parts.push(words::count(chain.in_place_total, "in-place restart"));
    }
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    if parts.is_empty() { String::new() } else { format!("after {}", words::list(&parts)) }
}
