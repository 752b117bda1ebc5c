//! Health checks before training: which launches begin with them, when they are over, and what a failed one is.
//!
//! All replicas check at once; a launch starts when all have told that nothing is wrong. Choices:
//! - They are made before the first launch of every attempt, since its nodes are new, and before one that a queue gave other
//!   resources. After an in-place restart only where the failure was the node's or the network's, since those outlive the
//!   processes, or where the checks had not passed: nothing else on the node has changed since, and a restart is to take no longer
//!   than it must.
//! - Failed findings are not acted on before all replicas have told, or the gathering window is over: one node with a fault and
//!   all nodes with the same one are different things, and the second is not the nodes' fault (R33).
//! - They are levels like the rest: what an agent tells twice counts once, and an agent that starts processes all the same, since it
//!   is too old to know of checks, counts as one that has checked.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    Chain,
    attempt::{Attempt, Launch, Stage},
    incident::Sign,
    limits,
    turn::Turn,
};
use crate::{
    checks::{Check, CheckFinding, CheckOrder, CheckOutcome},
    classify::{MAX_EVIDENCE, MAX_LINE_CHARS},
    failure::{Confidence, Evidence, FailureType, Role, Root, Verdict},
    ids::{NodeName, ReplicaName},
    job::JobSpec,
    record::{CheckFailure, ChecksState, EventKind, LaunchChecks},
    time::Time,
    words,
};

/// What the rules of such verdicts begin with; the name of the check follows.
pub(super) const RULE: &str = "check-";

/// Which failed check says most: what is broken on a node before what is in its way.
const WEIGHT: [Check; 7] = [
    Check::Devices,
    Check::KernelLog,
    Check::Rendezvous,
    Check::CheckpointDir,
    Check::Shm,
    Check::Clock,
    Check::Command,
];

/// The checks of a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Checks {
    order: CheckOrder,
    pub record: LaunchChecks,
    /// When the first failed finding was told.
    failed_at: Option<Time>,
}

impl Checks {
    /// Those of a launch on nodes that are new to the job.
    pub fn of(spec: &JobSpec) -> Option<Self> {
        let order = CheckOrder::of(spec)?;
        Some(Self { order, record: LaunchChecks::new(spec.starting_replicas()), failed_at: None })
    }

    /// Those of an in-place restart after this launch.
    pub fn of_restart(spec: &JobSpec, before: &Launch, failure_type: FailureType) -> Option<Self> {
        let outlives = matches!(failure_type, FailureType::HwNode | FailureType::NetFabric);
        let passed = before.checks.as_ref().is_none_or(|checks| checks.record.state == ChecksState::Passed);
        if outlives || !passed { Self::of(spec) } else { None }
    }

    /// Not all replicas have passed them.
    pub fn is_pending(&self) -> bool {
        self.record.state == ChecksState::Running
    }

    /// What the agents are asked for.
    pub fn order(&self) -> CheckOrder {
        self.order.clone()
    }
}

/// When failed checks are acted on, though not all replicas have told.
pub(super) fn due(chain: &Chain) -> Option<Time> {
    let checks = chain.attempt.launch.checks.as_ref().filter(|checks| checks.is_pending())?;
    let failed_at = checks.failed_at.filter(|_| chain.attempt.stage == Stage::Starting)?;
    Some(failed_at.plus_millis(limits::GATHER_MILLIS))
}

impl Turn {
    /// A replica tells what it found. What comes after the checks are over means nothing.
    pub fn take_checked(&mut self, index: usize, name: &ReplicaName, findings: &[CheckFinding]) {
        let now = self.now;
        let attempt = &mut self.chain.attempt;
        if !attempt.is_wanted() {
            return;
        }
        let replica = &mut attempt.replicas[index];
        let Some(checks) = attempt.launch.checks.as_mut().filter(|checks| checks.is_pending()) else {
            return;
        };
        if std::mem::replace(&mut replica.run.checked, true) {
            return;
        }
        replica.ready = true;
        checks.record.take(name, replica.node.as_ref(), findings);
        for finding in findings.iter().filter(|finding| finding.outcome.is_bad()) {
            replica.run.failed_checks |= bit(finding.check);
        }
        if replica.run.failed_checks != 0 {
            checks.failed_at.get_or_insert(now);
            self.touch_launch();
        }
    }

    /// Lets the launch start, or fails the attempt, once enough is known.
    pub fn settle_checks(&mut self) {
        let now = self.now;
        let attempt = &mut self.chain.attempt;
        let Some(ordered_at) = attempt.launch.ordered_at else { return };
        let all = attempt.starting().iter().all(|replica| replica.run.checked || replica.run.started);
        let Some(checks) = attempt.launch.checks.as_mut().filter(|checks| checks.is_pending()) else {
            return;
        };
        checks.record.began_at.get_or_insert(ordered_at);
        let is_due = checks.failed_at.is_some_and(|at| now >= at.plus_millis(limits::GATHER_MILLIS));
        if !all && !is_due {
            return;
        }
        let failed = checks.failed_at.is_some();
        checks.record.state = if failed { ChecksState::Failed } else { ChecksState::Passed };
        checks.record.ended_at = Some(now);
        let text = (!failed).then(|| passed_words(attempt.launch.number, &checks.record));
        let verdict = failed.then(|| verdict(attempt)).flatten();
        self.touch_launch();
        if let Some(text) = text {
            self.event(EventKind::State, "holdfast", &text);
        }
        if let Some(verdict) = verdict {
            self.take_signs(now, vec![Sign::Checks { verdict: Box::new(verdict) }]);
        }
    }
}

const fn bit(check: Check) -> u8 {
    1 << check as u8
}

/// Which checks passed, and which were skipped, for the history.
fn passed_words(launch: u32, record: &LaunchChecks) -> String {
    let names = |is: fn(CheckOutcome) -> bool| {
        let named = record.checks.iter().filter(|summary| is(summary.worst.outcome));
        named.map(|summary| summary.check.label()).collect::<Vec<_>>()
    };
    let passed = names(|outcome| outcome == CheckOutcome::Passed);
    let skipped = names(|outcome| outcome == CheckOutcome::Skipped);
    let listed = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { words::list(names) };
    let skipped = if skipped.is_empty() { String::new() } else { format!(" Skipped: {}.", listed(&skipped)) };
    format!(
        "Health checks of launch {launch} passed on {}: {}.{skipped}",
        words::count(record.told, "replica"),
        listed(&passed)
    )
}

/// What the failed checks of a launch come to; none where none failed.
fn verdict(attempt: &Attempt) -> Option<Verdict> {
    let record = &attempt.launch.checks.as_ref()?.record;
    let failures =
        |check: Check| record.failures.iter().filter(move |failure| failure.finding.check == check);
    let (check, first) = WEIGHT
        .into_iter()
        .find_map(|check| Some((check, failures(check).min_by_key(|failure| place(failure))?)))?;
    let nodes = failed_nodes(attempt, check);
    let all: BTreeSet<&NodeName> =
        attempt.starting().iter().filter_map(|replica| replica.node.as_ref()).collect();
    let usual = check.failure_type();
    // One fault on many nodes at once is the job's or the cluster's.
    let everywhere =
        nodes.len() > 1 && (nodes.len() == all.len() || (nodes.len() > 2 && nodes.len() * 2 > all.len()));
    let failure_type = if everywhere && usual == FailureType::HwNode { FailureType::EnvError } else { usual };
    let suspects = match failure_type {
        FailureType::HwNode => nodes.clone(),
        // Of two that cannot meet nobody knows which it is.
        FailureType::NetFabric if nodes.len() == 1 && all.len() > 2 => nodes.clone(),
        _ => Vec::new(),
    };
    let replica_count =
        attempt.starting().iter().filter(|replica| replica.run.failed_checks & bit(check) != 0);
    let others = replica_count.count().saturating_sub(1) as u32;
    let more =
        if others > 0 { format!(", and in {} more", words::count(others, "replica")) } else { String::new() };
    let place = first.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    let fault = format!(
        "health check “{}” failed in {}{place}{more}: {}",
        check.label(),
        first.replica,
        first.finding.text.trim_end_matches('.')
    );
    let rule = format!("{RULE}{}", check.as_str());
    let hint = first.finding.remedy.clone();
    let hint = if everywhere {
        let nodes = words::count(nodes.len() as u32, "node");
        let same = format!("It is the same on {nodes}, so no node is blamed.");
        Some(hint.map_or(same.clone(), |hint| format!("{hint} {same}")))
    } else {
        hint
    };
    Some(Verdict {
        failure_type,
        confidence: Confidence::High,
        fingerprint: format!("{failure_type}:{rule}:"),
        rule,
        root: Some(Root {
            replica: first.replica.clone(),
            rank: None,
            node: first.node.clone(),
            line: Some(line_of(&first.finding)),
            exit_code: None,
            signal: None,
        }),
        evidence: evidence(check, record),
        cascade_ranks: 0,
        suspects,
        fault: fault.chars().take(MAX_LINE_CHARS).collect(),
        hint,
        link_down: false,
    })
}

/// The nodes of all replicas in which a check failed.
fn failed_nodes(attempt: &Attempt, check: Check) -> Vec<NodeName> {
    let failed = attempt.starting().iter().filter(|replica| replica.run.failed_checks & bit(check) != 0);
    let nodes: BTreeSet<_> = failed.filter_map(|replica| replica.node.clone()).collect();
    nodes.into_iter().collect()
}

fn line_of(finding: &CheckFinding) -> String {
    finding.text.chars().take(MAX_LINE_CHARS).collect()
}

/// The failed findings as lines that no log has: their number is 0. Those of the check that decided come first.
fn evidence(decided: Check, record: &LaunchChecks) -> Vec<Evidence> {
    let at = record.ended_at.unwrap_or_default();
    let mut failures: Vec<&CheckFailure> = record.failures.iter().collect();
    failures.sort_by(|one, other| {
        let is_other = |failure: &CheckFailure| failure.finding.check != decided;
        (is_other(one), place(one)).cmp(&(is_other(other), place(other)))
    });
    let of = |failure: &CheckFailure| Evidence {
        replica: failure.replica.clone(),
        rank: None,
        line: line_of(&failure.finding),
        line_number: 0,
        at,
        signature: format!("{RULE}{}", failure.finding.check.as_str()),
        role: Role::Root,
        failure_type: failure.finding.check.failure_type(),
    };
    failures.into_iter().take(MAX_EVIDENCE).map(of).collect()
}

/// The order of replicas, whichever of them told first: `master-0`, `worker-2`, `worker-10`.
fn place(failure: &CheckFailure) -> (usize, &str) {
    let name = failure.replica.as_str();
    (name.len(), name)
}
