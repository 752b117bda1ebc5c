//! A diagnosis of the nodes between two attempts, where the policy asks for one.
//!
//! The chain only waits: whoever drives diagnoses looks whether it does ([`Chain::awaited`]), begins a run of the attempt's nodes, and tells
//! what came of it. The resubmission that follows was chosen before, so whatever becomes of the run, even nothing, there is one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    Chain, Course,
    attempt::Presence,
    decide::standing,
    incident::Judged,
    turn::{Turn, bounded},
};
use crate::{
    bisect::{Alone, Setup, limits},
    ids::{NodeName, TaskId},
    policy::{Diagnosis, May, Need, Refusal, may},
    record::{Action, AttemptResult, Budget, EventReason, State, Used},
    time::Time,
    words,
};

/// A diagnosis that is waited for, and what follows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Diagnosing {
    /// The resubmission follows then, whatever has become of the run. None until the attempt has left its nodes.
    pub until: Option<Time>,
    /// What is tested: the nodes of the attempt, at least two.
    pub nodes: BTreeSet<NodeName>,
    /// The resubmission that follows.
    then: Need,
    /// Nodes that the failure blames.
    suspects: Vec<NodeName>,
    /// The failure repeats another, without progress between.
    repeats: bool,
}

/// A run that a chain waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The attempt whose nodes it tests. An attempt has one at most.
    pub task_id: TaskId,
    /// Nothing of the attempt is left on them, so that the run may begin.
    pub ready: bool,
    /// The nodes, at least two.
    pub nodes: BTreeSet<NodeName>,
    /// The rule that asked for it.
    pub rule: String,
}

/// How long a run over so many nodes is waited for, seconds: as long as its tests may take, and once that its nodes are free.
pub(super) fn longest_seconds(nodes: &BTreeSet<NodeName>) -> u64 {
    let setup = Setup {
        nodes: nodes.clone(),
        alone: Alone::TellsSome,
        probe_seconds: limits::PROBE_SECONDS_DEFAULT,
        accelerators_per_node: 1,
    };
    setup.cost().seconds.saturating_add(limits::WAIT_SECONDS)
}

/// What a chain waits for now.
pub(super) fn awaited(chain: &Chain) -> Option<Awaited> {
    let Course::Diagnosing(diagnosing) = &chain.course else { return None };
    let rule = chain.incident.as_ref().map(|live| live.record.decision.rule.clone());
    Some(Awaited {
        task_id: chain.attempt.task_id.clone(),
        ready: chain.attempt.presence == Presence::Gone,
        nodes: diagnosing.nodes.clone(),
        rule: rule.unwrap_or_default(),
    })
}

impl Turn {
    /// Whether the nodes may be diagnosed before the resubmission that a failure needs.
    pub fn diagnosis(&self, then: &Need) -> Diagnosis {
        let chain = &self.chain;
        let standing = standing(chain);
        let hang = &chain.spec.fault_tolerance.hang_detection;
        let follows = may(then.action, then.budget, &chain.intent, &standing, None, self.now) == May::Yes;
        if !(hang.enabled && hang.diagnose && follows) || then.action != Action::Resubmit {
            Diagnosis::NotAsked
        } else if chain.attempt.nodes().len() < 2 {
            Diagnosis::Impossible(Refusal::OneNode)
        } else {
            Diagnosis::Possible
        }
    }

    /// The attempt is over and its nodes are tested; then it is resubmitted.
    pub fn diagnose(&mut self, need: &Need, then: Need, judged: &Judged) {
        let nodes = self.chain.attempt.nodes();
        let answer = (Action::Diagnose, Some(EventReason::Diagnose));
        let text = super::decide::explain(need, &[]);
        self.write_decision(need, answer, text, Budget::None, Used::default(), &[]);
        self.close_attempt(State::Failed, AttemptResult::Resubmitted);
        self.chain.course = Course::Diagnosing(Box::new(Diagnosing {
            until: None,
            nodes,
            then,
            suspects: judged.verdict.suspects.clone(),
            repeats: judged.repeats,
        }));
    }

    /// The run of this attempt is over, or there is none: `how` says it, a sentence. What it confirmed is kept off before anything else.
    /// False where no such run is waited for.
    pub fn diagnosis_over(&mut self, task: Option<&TaskId>, how: &str, confirmed: &[NodeName]) -> bool {
        if task.is_none_or(|task| *task != self.chain.attempt.task_id) {
            return false;
        }
        let Course::Diagnosing(diagnosing) = &self.chain.course else { return false };
        let Diagnosing { then, suspects, repeats, .. } = diagnosing.as_ref().clone();
        // The decision to diagnose stays on the incident beside the one that is made now.
        self.change_incident(|live| {
            live.record.diagnosed = Some(Box::new(live.record.decision.clone()));
        });
        let blamed = suspects.into_iter().filter(|node| then.avoid && !confirmed.contains(node));
        let nodes: Vec<NodeName> = confirmed.iter().cloned().chain(blamed).collect();
        self.follow(&then, &nodes, repeats, |need, avoided| {
            format!("{} {}", bounded(how), need.reason(avoided))
        });
        true
    }

    /// Nothing of the attempt is left on its nodes: the time for a diagnosis begins, or is over.
    pub fn settle_diagnosis(&mut self) {
        let now = self.now;
        let Course::Diagnosing(diagnosing) = &mut self.chain.course else { return };
        let longest = longest_seconds(&diagnosing.nodes);
        if now < *diagnosing.until.get_or_insert(now.plus_seconds(longest)) {
            return;
        }
        let limit = words::duration(longest as f64);
        let task = self.chain.attempt.task_id.clone();
        let how = format!("The diagnosis was not over within {limit}.");
        self.diagnosis_over(Some(&task), &how, &[]);
    }

    /// Nobody drove the run meanwhile, so its time begins anew. What a run may take is bounded by its own rounds.
    pub fn put_off_diagnosis(&mut self) {
        if let Course::Diagnosing(diagnosing) = &mut self.chain.course {
            diagnosing.until = None;
        }
    }
}
