//! What Kueue says of a job: its Workload, and what follows from it. Pure.
//!
//! Kueue suspends the job object until it has quota for it, and again when it takes that back. Its Workload of the same namespace, which
//! carries the job's UID, says why. Versions `v1beta1` and `v1beta2` have the same fields here.

use engine::record::{Queue, QueueReason};
use kube::{ResourceExt, core::DynamicObject};
use serde::Deserialize;

use super::seen::{ConditionData, Said, bounded};

/// The label of a job that names its LocalQueue.
pub(super) const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// The label of a Workload that says whose it is.
pub(super) const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// Checks of one Workload whose words are told.
const CHECKS: usize = 4;

/// What Kueue keeps of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkloadSeen {
    pub name: String,
    /// The LocalQueue.
    pub queue: String,
    /// It may be admitted.
    pub active: bool,
    /// The condition QuotaReserved, where it is false.
    pub unreserved: Option<Said>,
    pub has_quota: bool,
    pub admitted: bool,
    /// Its job has ended: nobody waits for it any more.
    pub finished: bool,
    /// The condition Evicted, where it is true; of a preemption with the words of that condition.
    pub evicted: Option<Said>,
    /// What it waits for before quota is looked for.
    pub gated: Option<Said>,
    /// Admission checks that are not done.
    pub checks: Vec<String>,
    /// When it is tried again after an eviction, in the cluster's words, and how often that was.
    pub requeue: Option<(String, u64)>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Workload {
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    queue_name: String,
    active: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    conditions: Vec<ConditionData>,
    admission_checks: Vec<Check>,
    requeue_state: Option<RequeueState>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Check {
    name: String,
    state: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RequeueState {
    count: u64,
    requeue_at: Option<String>,
}

impl WorkloadSeen {
    /// The UID of the job it is of, and what it says; none where it is of no job.
    pub(super) fn of(object: &DynamicObject) -> Option<(String, Self)> {
        let owner = object.labels().get(JOB_UID)?.clone();
        let Workload { spec, status } = serde_json::from_value(object.data.clone()).unwrap_or_default();
        let condition = |kind: &str, value: &str| {
            status
                .conditions
                .iter()
                .find(|one| one.kind == kind && one.status == value)
                .map(ConditionData::said)
        };
        let preempted = condition("Preempted", "True");
        let evicted = condition("Evicted", "True").map(|evicted| match preempted {
            // The same words, with how.
            Some(how) if evicted.reason == "Preempted" => {
                Said { reason: format!("Preempted, {}", how.reason), message: how.message }
            }
            _ => evicted,
        });
        let checks = status.admission_checks.iter().filter(|check| check.state != "Ready").take(CHECKS);
        let requeue = status.requeue_state.filter(|_| condition("Requeued", "True").is_none());
        Some((
            owner,
            Self {
                name: object.name_any(),
                queue: spec.queue_name,
                active: spec.active != Some(false),
                unreserved: condition("QuotaReserved", "False"),
                has_quota: condition("QuotaReserved", "True").is_some(),
                admitted: condition("Admitted", "True").is_some(),
                finished: condition("Finished", "True").is_some(),
                evicted,
                gated: condition("BlockedOnPreemptionGates", "True"),
                checks: checks.map(Check::words).collect(),
                requeue: requeue.and_then(|state| Some((state.requeue_at?, state.count))),
            },
        ))
    }

    /// It stands in its queue.
    pub(super) fn is_pending(&self) -> bool {
        self.active && !self.has_quota && !self.admitted
    }
}

impl Check {
    fn words(&self) -> String {
        let state = if self.state.is_empty() { "Pending" } else { self.state.as_str() };
        let text = format!("{} is {state}", self.name);
        bounded(if self.message.is_empty() { text } else { format!("{text}: {}", self.message) })
    }
}

/// Why a job that Kueue holds is not let in.
pub(super) fn why(workload: &WorkloadSeen, position: Option<u32>) -> Queue {
    let (reason, text) = binding(workload);
    let text = match &workload.evicted {
        Some(said) if reason != QueueReason::Deactivated => {
            format!("Kueue took its resources back ({}); {text}", said.text())
        }
        _ => text,
    };
    let position = position.filter(|_| workload.is_pending());
    Queue { position, ..Queue::of(reason, bounded(text)) }
}

/// What binds, most final first.
fn binding(workload: &WorkloadSeen) -> (QueueReason, String) {
    let queue = &workload.queue;
    let evicted = workload.evicted.as_ref();
    if !workload.active {
        let said = evicted.map_or_else(String::new, |said| format!(": {}", said.text()));
        let name = &workload.name;
        let text = format!(
            "Kueue has deactivated it{said}; it waits until spec.active of Workload {name} is true again"
        );
        return (QueueReason::Deactivated, text);
    }
    if workload.admitted {
        return (
            QueueReason::Suspended,
            format!("Kueue has admitted it in LocalQueue {queue} and resumes it"),
        );
    }
    if workload.has_quota {
        let text = match workload.checks.as_slice() {
            [] => "Kueue has reserved its quota and is about to admit it".to_owned(),
            checks => format!("its quota is reserved; admission check {}", checks.join(", ")),
        };
        return (QueueReason::AdmissionChecks, text);
    }
    if let Some((at, count)) = workload.requeue.as_ref().filter(|_| evicted.is_some()) {
        return (QueueReason::Requeued, format!("it is queued again at {at}, requeued {count} times so far"));
    }
    if let Some(said) = &workload.gated {
        return (QueueReason::AdmissionChecks, said.text());
    }
    let Some(said) = &workload.unreserved else {
        return (QueueReason::Suspended, format!("Kueue has not looked at it yet in LocalQueue {queue}"));
    };
    let reason = match said.reason.as_str() {
        "Inadmissible" | "Misconfigured" => QueueReason::Inadmissible,
        "AdmissionGated" => QueueReason::AdmissionChecks,
        _ if can_never_fit(&said.message) => QueueReason::QuotaTooSmall,
        // So it is until Kueue looks for quota again.
        _ if evicted.is_some_and(|evicted| evicted.message == said.message) => {
            return (QueueReason::Requeued, format!("it is in LocalQueue {queue} again"));
        }
        _ => QueueReason::Quota,
    };
    (reason, if said.message.is_empty() { said.text() } else { said.message.clone() })
}

/// Kueue's words name each flavor that it tried: where one of them is only in use, it may fit there later.
fn can_never_fit(message: &str) -> bool {
    let never = message.contains("> maximum capacity") || message.contains("unavailable in ClusterQueue");
    never && !message.contains("insufficient unused quota") && !message.contains("borrowing limit")
}

#[cfg(test)]
#[path = "tests/kueue.rs"]
mod tests;
