//! From what was gathered to a verdict: hands names and facts to the classification.

use std::collections::BTreeMap;

use super::{
    EndReason,
    attempt::{self, Attempt},
    incident::{Gathering, SeenFact},
    standstill,
};
use crate::{
    classify::{self, ClusterFact, RankExit, VerdictInput},
    failure::{Confidence, FailureType, Root, Verdict},
    job::JobKind,
};

/// The rule of a verdict that rests on nothing.
const NO_EVIDENCE: &str = "no-evidence";

/// The verdict on a gathered incident. There always is one: the attempt cannot go on, whether anything explains it or not.
pub(super) fn verdict(gathered: &Gathering, attempt: &Attempt, kind: JobKind, processes: u32) -> Verdict {
    // A node that was lost meanwhile says more than what it found before.
    if let Some(verdict) = gathered.checks.as_ref().filter(|_| gathered.facts.is_empty()) {
        return verdict.as_ref().clone();
    }
    // What kills a node or a replica is also what made it stand still.
    let is_cause = |seen: &SeenFact| {
        matches!(seen.reason, EndReason::NodeLost(_) | EndReason::OomKilled | EndReason::Evicted(_))
    };
    if let Some(hang) = gathered.hang.as_ref().filter(|_| !gathered.facts.iter().any(is_cause)) {
        return standstill::verdict(hang, attempt, kind, processes);
    }
    let name = |index: usize| attempt::name(kind, index);
    let placement: BTreeMap<_, _> = attempt
        .replicas
        .iter()
        .enumerate()
        .filter_map(|(index, replica)| Some((name(index), replica.node.clone()?)))
        .collect();
    let exits = gathered
        .exits
        .iter()
        .map(|seen| RankExit {
            replica: name(seen.replica),
            rank: seen.rank,
            exit: seen.exit,
            at: seen.at,
            asked: seen.asked,
        })
        .collect();
    let facts = gathered
        .facts
        .iter()
        .map(|seen| ClusterFact { replica: name(seen.replica), reason: seen.reason.clone() })
        .collect();
    let input = VerdictInput { placement, exits, evidence: gathered.evidence.clone(), facts };
    classify::verdict(&input).unwrap_or_else(|| unexplained(gathered, attempt, kind))
}

/// Processes are gone and nobody says why: something outside ended them.
fn unexplained(gathered: &Gathering, attempt: &Attempt, kind: JobKind) -> Verdict {
    let index = gathered.ended.unwrap_or_default();
    let replica = attempt::name(kind, index);
    Verdict {
        failure_type: FailureType::Unknown,
        confidence: Confidence::Low,
        rule: NO_EVIDENCE.to_owned(),
        fingerprint: format!("{}:{NO_EVIDENCE}:", FailureType::Unknown),
        fault: format!("the processes of {replica} ended without a word"),
        root: Some(Root {
            node: attempt.replicas.get(index).and_then(|replica| replica.node.clone()),
            replica,
            rank: None,
            line: None,
            exit_code: None,
            signal: None,
        }),
        evidence: Vec::new(),
        cascade_ranks: 0,
        suspects: Vec::new(),
        hint: Some("Something outside Holdfast ended the processes: see the cluster's events.".to_owned()),
        link_down: false,
    }
}

/// Whether something from outside befell a node or a replica. That is no error of the program, so that having it twice
/// says nothing about a third time.
pub(super) fn is_from_outside(verdict: &Verdict) -> bool {
    let outside = verdict.rule.starts_with("cluster-")
        || verdict.rule.starts_with(super::checks::RULE)
        || verdict.rule == NO_EVIDENCE
        || verdict.rule == super::exit_test::RULE
        || verdict.rule == "signal-SIGTERM";
    outside && matches!(verdict.failure_type, FailureType::HwNode | FailureType::Unknown)
}

/// The cluster's word in a sentence.
pub(super) fn words(reason: &EndReason) -> String {
    match reason {
        EndReason::Exited => "exited".to_owned(),
        EndReason::OomKilled => "killed for its memory".to_owned(),
        EndReason::Preempted(text) => format!("preempted: {text}"),
        EndReason::Evicted(text) => format!("evicted: {text}"),
        EndReason::NodeLost(text) => format!("node lost: {text}"),
        EndReason::StartError(text) => format!("could not start: {text}"),
        EndReason::Lost(text) => format!("lost: {text}"),
    }
}
