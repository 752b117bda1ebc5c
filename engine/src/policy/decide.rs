//! Needs and may: what a failure needs, and whether that may happen now. Every refusal carries its reason.

use serde::{Deserialize, Serialize};

use super::{Question, Rule};
use crate::{
    chain::Intent,
    ids::NodeName,
    record::{Action, Budget, Used, WhyNot},
    time::Time,
    words::{count, grouped, list},
};

/// What a rule says that a failure needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// What is to be done.
    pub action: Action,
    /// The budget that pays for it.
    pub budget: Budget,
    /// Keep the next attempt off the suspects.
    pub avoid: bool,
    /// The rule that fired.
    pub rule: String,
    /// The version of its table.
    pub policy_version: u32,
    /// The rule's reason in words, but for `{avoiding}`; see [`Need::reason`].
    reason: String,
    /// Why earlier rules did not fire.
    pub refusals: Vec<Refusal>,
}

impl Need {
    pub(super) fn of_rule(
        rule: &Rule,
        policy_version: u32,
        refusals: Vec<Refusal>,
        question: &Question<'_>,
    ) -> Self {
        let at = match question.step {
            Some(step) => format!("at step {}", grouped(step)),
            None => "before the first step".to_owned(),
        };
        Self {
            action: rule.action,
            budget: question.standing.payer(rule.budget),
            avoid: rule.avoid,
            rule: rule.id.clone(),
            policy_version,
            reason: rule.reason.replace("{label}", &rule.label).replace("{at}", &at),
            refusals,
        }
    }

    /// What Holdfast itself brought about and nothing pays for, whatever the policy.
    pub fn of_holdfast(action: Action, rule: &str, reason: String) -> Self {
        let (budget, refusals) = (Budget::None, Vec::new());
        Self { action, budget, avoid: false, rule: rule.to_owned(), policy_version: 0, reason, refusals }
    }

    /// The reason, once it is known which nodes are really kept off.
    pub fn reason(&self, avoided: &[NodeName]) -> String {
        let names: Vec<_> = avoided.iter().map(NodeName::as_str).collect();
        let avoiding =
            if names.is_empty() { String::new() } else { format!(", keeping off {}", list(&names)) };
        self.reason.replace("{avoiding}", &avoiding)
    }

    /// No rule matched: the same as an unknown failure, so that a table with a hole never loses a job.
    pub fn without_rule(policy_version: u32, refusals: Vec<Refusal>) -> Self {
        Self {
            action: Action::Resubmit,
            budget: Budget::TaskRestarts,
            avoid: false,
            rule: "no-rule".to_owned(),
            policy_version,
            reason: "No rule of the policy matched. Resubmitted.".to_owned(),
            refusals,
        }
    }
}

/// Whether the nodes of an attempt can be diagnosed before it is resubmitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Diagnosis {
    /// Nobody asks for that, or no resubmission would follow: rules that diagnose are passed over.
    NotAsked,
    /// They can.
    Possible,
    /// They cannot, and why.
    Impossible(Refusal),
}

/// How the budgets and the switches of a job stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Auto Failover.
    pub auto_failover: bool,
    /// Resubmissions of the job.
    pub task_restarts: Used,
    /// In-place restarts of the attempt after failures other than hangs.
    pub in_place_restarts: Used,
    /// In-place restarts of the attempt after hangs; none where Job Hang Detection is off, so that its limit
    /// is not in force and a hang that the program itself noticed is a failure like others.
    pub hang_restarts: Option<Used>,
}

impl Standing {
    /// The budget that really pays where a rule names this one.
    pub const fn payer(&self, budget: Budget) -> Budget {
        match (budget, self.hang_restarts) {
            (Budget::HangRestarts, None) => Budget::InPlaceRestarts,
            (budget, _) => budget,
        }
    }

    /// How a budget stands; what costs nothing is never used up.
    pub fn of(&self, budget: Budget) -> Used {
        match budget {
            Budget::TaskRestarts => self.task_restarts,
            Budget::InPlaceRestarts => self.in_place_restarts,
            Budget::HangRestarts => self.hang_restarts.unwrap_or_default(),
            Budget::None => Used { used: 0, allowed: u32::MAX },
        }
    }
}

/// Why something may not be done. [`Refusal::text`] is the sentence, the same everywhere it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Refusal {
    /// A person stopped or deleted the job.
    Stopped {
        /// Who.
        by: String,
    },
    /// Auto Failover is off.
    AutoFailoverOff,
    /// All resubmissions are used, or none was allowed.
    TaskRestartsUsed {
        /// How many there were.
        allowed: u32,
    },
    /// All in-place restarts of the attempt are used.
    InPlaceUsed {
        /// How many there were.
        allowed: u32,
    },
    /// All in-place restarts after hangs of the attempt are used.
    HangRestartsUsed {
        /// How many there were.
        allowed: u32,
    },
    /// A replica is gone, so that nothing can be started in its place.
    ReplicaGone {
        /// Which.
        replica: String,
    },
    /// A replica did not stop in time and is given up.
    NotStopped {
        /// Which.
        replica: String,
    },
    /// A rule wants a replica to be gone, and none is.
    NoReplicaGone,
    /// A network link is down.
    LinkDown,
    /// It ran on one node, which has no other to be compared with.
    OneNode,
    /// Processes of the failed launch are still there.
    StillStopping {
        /// Replicas that have some.
        replicas: u32,
    },
    /// Time between an attempt and the next.
    BackOff,
    /// A rule stopped the chain.
    FailFast {
        /// Its reason.
        text: String,
        /// What to look at or change.
        hint: Option<String>,
    },
    /// The cluster refused the attempt.
    Refused {
        /// Its number.
        attempt: u32,
    },
}

impl Refusal {
    /// The refusal of an in-place restart whose budget is used up.
    pub fn in_place_used(budget: Budget, allowed: u32) -> Self {
        match budget {
            Budget::HangRestarts => Self::HangRestartsUsed { allowed },
            Budget::TaskRestarts => Self::TaskRestartsUsed { allowed },
            Budget::InPlaceRestarts | Budget::None => Self::InPlaceUsed { allowed },
        }
    }

    /// The sentence that is stored and shown.
    pub fn text(&self) -> String {
        match self {
            Self::Stopped { by } => format!("Stopped by {by}; a manual stop is never resubmitted."),
            Self::AutoFailoverOff => "Auto Failover is off.".to_owned(),
            Self::TaskRestartsUsed { allowed: 0 } => "Maximum Task Restart Attempts is 0.".to_owned(),
            Self::TaskRestartsUsed { allowed: 1 } => "The 1 task restart is used.".to_owned(),
            Self::TaskRestartsUsed { allowed } => format!("All {allowed} task restarts are used."),
            Self::InPlaceUsed { allowed: 0 } => "Not in place: no in-place restart is allowed.".to_owned(),
            Self::InPlaceUsed { allowed } => {
                format!("Not in place: {} used.", all(*allowed, "in-place restart", "of this attempt"))
            }
            Self::HangRestartsUsed { allowed: 0 } => {
                "Not in place: Maximum Restart Count for Communication Hang is 0.".to_owned()
            }
            Self::HangRestartsUsed { allowed } => {
                format!("Not in place: {} used.", all(*allowed, "restart", "after a hang in this attempt"))
            }
            Self::ReplicaGone { replica } => format!("Not in place: {replica} is gone."),
            Self::NotStopped { replica } => format!("Not in place: {replica} did not stop in time."),
            Self::NoReplicaGone => "Every replica is still there.".to_owned(),
            Self::LinkDown => "Not in place: the network link is down.".to_owned(),
            Self::OneNode => {
                "Not diagnosed: it ran on one node, and there is no other to compare it with.".to_owned()
            }
            Self::StillStopping { replicas } => {
                format!("Waits until the processes of {} have stopped.", count(*replicas, "replica"))
            }
            Self::BackOff => "Waits before the next attempt.".to_owned(),
            Self::FailFast { text, .. } => text.clone(),
            Self::Refused { attempt } => format!("The cluster refused attempt {attempt}; nothing ran."),
        }
    }

    /// What a person can do about it.
    pub fn next(&self) -> String {
        match self {
            Self::Stopped { .. } => "Resubmit it by hand to go on from its newest checkpoint.",
            Self::AutoFailoverOff => {
                "Resubmit it by hand, or turn Auto Failover on in a new job so that failures are resubmitted."
            }
            Self::TaskRestartsUsed { allowed: 0 } => {
                "Resubmit it by hand, or allow task restarts in a new job."
            }
            Self::TaskRestartsUsed { .. } => {
                "Look at what the incidents have in common, then resubmit it by hand; that is not charged."
            }
            Self::FailFast { hint: Some(hint), .. } => return hint.clone(),
            Self::FailFast { hint: None, .. } => "Correct what the evidence shows, then resubmit it by hand.",
            Self::Refused { .. } => "Correct what the cluster names in Events, then resubmit it by hand.",
            Self::InPlaceUsed { .. }
            | Self::HangRestartsUsed { .. }
            | Self::ReplicaGone { .. }
            | Self::NotStopped { .. }
            | Self::NoReplicaGone
            | Self::LinkDown
            | Self::OneNode => "It is resubmitted where the task restarts allow it.",
            Self::StillStopping { .. } | Self::BackOff => "Nothing to do; it goes on by itself.",
        }
        .to_owned()
    }

    /// Sentence and next step together.
    pub fn why_not(&self) -> WhyNot {
        WhyNot { text: self.text(), next: self.next() }
    }
}

/// `the 1 restart of this attempt is`, `all 3 restarts of this attempt are`.
fn all(number: u32, noun: &str, of: &str) -> String {
    let (all, are) = if number == 1 { ("the", "is") } else { ("all", "are") };
    format!("{all} {} {of} {are}", count(number, noun))
}

/// Whether an action may be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum May {
    /// Now.
    Yes,
    /// Not before then.
    NotYet {
        /// When to ask again at the latest.
        until: Time,
        /// Why it waits.
        reason: Refusal,
    },
    /// Not at all.
    Never {
        /// Why.
        reason: Refusal,
    },
}

/// Whether an action that a failure needs may be taken now. A person's stop wins over everything; budgets are checked
/// against the one that pays. `not_before` is the end of a wait (the back-off, the stop limit) and why it is waited for.
pub fn may(
    action: Action,
    budget: Budget,
    intent: &Intent,
    standing: &Standing,
    not_before: Option<(Time, Refusal)>,
    now: Time,
) -> May {
    let spends = match action {
        Action::RestartInPlace | Action::Resubmit => true,
        Action::FailFast | Action::Diagnose | Action::None => false,
    };
    if let Intent::Stop { by } | Intent::Delete { by, .. } = intent {
        return May::Never { reason: Refusal::Stopped { by: by.clone() } };
    }
    if spends && !standing.auto_failover {
        return May::Never { reason: Refusal::AutoFailoverOff };
    }
    let used = standing.of(budget);
    if spends && used.left() == 0 {
        return May::Never { reason: Refusal::in_place_used(budget, used.allowed) };
    }
    match not_before {
        Some((until, reason)) if now < until => May::NotYet { until, reason },
        _ => May::Yes,
    }
}
