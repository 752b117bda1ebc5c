//! Decision tables as data: an ordered list of rules, of which the first that matches says what a failure *needs*.
//! Whether that *may* happen is another question, answered by [`may`].
//!
//! The built-in tables are `policies.json`: `exit_code_and_message` and `on_any_failure` are the two Policy Types; `basic` is
//! what a job without Fault Tolerance Policy gets. What spec.md leaves open and the tables settle: after the last in-place restart
//! of an attempt, APP_ERROR and OOM_HOST are resubmitted, as every other "in place" is.

mod decide;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use decide::{Diagnosis, May, Need, Refusal, Standing, may};

use crate::{
    failure::{FailureType, Phase, Verdict},
    job::FaultTolerance,
    record::{Action, Budget},
};

/// A decision table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The Policy Type's name in the API.
    pub name: String,
    /// Its name in the form.
    pub label: String,
    /// Grows with each change; stored with every decision.
    pub version: u32,
    /// In order; the first that matches decides.
    pub rules: Vec<Rule>,
}

/// One row of a decision table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its id, stored with every decision.
    pub id: String,
    /// Its name in sentences.
    pub label: String,
    /// When it applies.
    pub when: When,
    /// What the failure then needs.
    pub action: Action,
    /// The budget that pays for it.
    pub budget: Budget,
    /// The next attempt keeps off the suspected nodes.
    pub avoid: bool,
    /// The reason in words. `{label}`, `{at}` (at which step) and `{avoiding}` (off which nodes) are filled in.
    pub reason: String,
}

/// The conditions of a rule; what is absent does not matter, all that is there must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// One of these failure types; empty is any.
    pub types: Vec<FailureType>,
    /// In one of these phases; empty is any.
    pub phases: Vec<Phase>,
    /// The root process ended with one of these codes, as a shell shows them; empty is any.
    pub exits: Vec<i32>,
    /// The same error without progress since.
    pub repeat: Option<bool>,
    /// A replica is gone, so that no process can be started in its place.
    pub replica_gone: Option<bool>,
    /// A network link is down.
    pub link_down: Option<bool>,
    /// The in-place budget of the rule is not used up.
    pub in_place_left: Option<bool>,
}

/// What a table is asked: one failure and how things stand.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// What the classification says.
    pub verdict: &'a Verdict,
    /// What the training was doing.
    pub phase: Phase,
    /// The step it had reached.
    pub step: Option<u64>,
    /// The same error without progress since.
    pub repeat: bool,
    /// Why nothing can be started in the place of some replica: it is gone, or it was given up.
    pub replica_gone: Option<Refusal>,
    /// The budgets.
    pub standing: Standing,
    /// Whether the nodes can be diagnosed.
    pub diagnosis: Diagnosis,
}

impl When {
    /// Whether the failure itself is meant, whatever stands in the way of the action.
    fn concerns(&self, question: &Question<'_>) -> bool {
        let exit = question.verdict.root.as_ref().and_then(|root| root.exit_code);
        (self.types.is_empty() || self.types.contains(&question.verdict.failure_type))
            && (self.phases.is_empty() || self.phases.contains(&question.phase))
            && (self.exits.is_empty() || exit.is_some_and(|code| self.exits.contains(&code)))
            && self.repeat.is_none_or(|wanted| wanted == question.repeat)
    }

    /// The first condition that stands in the way of the action. An in-place restart needs its replicas and its budget, and a diagnosis
    /// nodes that can be told apart, whether the rule says so or not.
    fn hindrance(&self, question: &Question<'_>, action: Action, budget: Budget) -> Option<Refusal> {
        let in_place = action == Action::RestartInPlace;
        let replica_gone = self.replica_gone.or(in_place.then_some(false));
        let in_place_left = self.in_place_left.or(in_place.then_some(true));
        if self.link_down.is_some_and(|wanted| wanted != question.verdict.link_down) {
            return Some(Refusal::LinkDown);
        }
        if replica_gone.is_some_and(|wanted| wanted != question.replica_gone.is_some()) {
            return question.replica_gone.clone().or(Some(Refusal::NoReplicaGone));
        }
        let used = question.standing.of(budget);
        if in_place_left.is_some_and(|wanted| wanted != (used.left() > 0)) {
            return Some(Refusal::in_place_used(budget, used.allowed));
        }
        match &question.diagnosis {
            Diagnosis::Impossible(why) if action == Action::Diagnose => Some(why.clone()),
            _ => None,
        }
    }
}

impl Policy {
    /// The built-in table of this name.
    pub fn built_in(name: &str) -> Option<&'static Self> {
        static TABLES: LazyLock<Vec<Policy>> = LazyLock::new(|| {
            #[derive(Deserialize)]
            struct File {
                policies: Vec<Policy>,
            }
            // A test reads the same file, so this cannot fail in a build that passed it.
            serde_json::from_str::<File>(include_str!("../../policies.json"))
                .map(|file| file.policies)
                .unwrap_or_default()
        });
        TABLES.iter().find(|policy| policy.name == name)
    }

    /// The table that answers failures of a job with these settings.
    pub fn of(settings: &FaultTolerance) -> Option<&'static Self> {
        if settings.policy.enabled {
            Self::built_in(&settings.policy.policy_type)
        } else {
            Self::built_in("basic")
        }
    }

    /// What this failure needs: the first rule that matches, with the hindrances of the rules before it that would
    /// have matched otherwise.
    pub fn needs(&self, question: &Question<'_>) -> Need {
        let mut refusals = Vec::new();
        for rule in &self.rules {
            let passed_over = rule.action == Action::Diagnose && question.diagnosis == Diagnosis::NotAsked;
            if passed_over || !rule.when.concerns(question) {
                continue;
            }
            match rule.when.hindrance(question, rule.action, question.standing.payer(rule.budget)) {
                None => return Need::of_rule(rule, self.version, refusals, question),
                Some(refusal) => refusals.push(refusal),
            }
        }
        Need::without_rule(self.version, refusals)
    }
}

#[cfg(test)]
mod tests;
