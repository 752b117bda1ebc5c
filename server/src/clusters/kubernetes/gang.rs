//! What a gang scheduler says of a job: its PodGroup, and what follows from it. Pure.
//!
//! Volcano's and the scheduler plugins' PodGroups are owned by the job, or by the Ray cluster that KubeRay makes for it. The training
//! operator makes pods only once Volcano has let the group into its queue, so that there are none until then is no trouble.

use engine::record::{Queue, QueueReason};
use kube::{ResourceExt, core::DynamicObject};
use serde::Deserialize;

use super::seen::{ConditionData, Said};

/// Labels of a RayJob that have KubeRay make a group in a queue of Volcano.
pub(super) const RAY_SCHEDULER: &str = "ray.io/scheduler-name";
pub(super) const RAY_QUEUE: &str = "volcano.sh/queue-name";
/// The annotation of pods for which Volcano itself makes a group.
pub(super) const POD_QUEUE: &str = "scheduling.volcano.sh/queue-name";
/// Volcano's scheduler, as pods name it.
pub(super) const VOLCANO: &str = "volcano";

/// Whose a PodGroup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheduler {
    Volcano,
    Plugins,
}

/// A group of pods that start together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupSeen {
    pub scheduler: Scheduler,
    pub phase: String,
    /// Volcano's queue; empty where there is none.
    pub queue: String,
    /// How many pods must start together.
    pub members: u32,
    /// Volcano's condition Unschedulable, where it is true.
    pub unschedulable: Option<Said>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodGroup {
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    queue: String,
    min_member: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
    conditions: Vec<ConditionData>,
}

impl GroupSeen {
    /// Whose it is, as [`super::seen::JobSeen::uid`] or [`super::seen::JobSeen::events_of`] have it, and what it says.
    pub(super) fn of(scheduler: Scheduler, object: &DynamicObject) -> Option<(String, Self)> {
        let owners = object.owner_references();
        let owner = owners.iter().find(|owner| owner.controller == Some(true)).or(owners.first())?;
        let owner = if owner.kind == "RayCluster" { &owner.name } else { &owner.uid };
        let PodGroup { spec, status } = serde_json::from_value(object.data.clone()).unwrap_or_default();
        let unschedulable =
            status.conditions.iter().find(|one| one.kind == "Unschedulable" && one.status == "True");
        let seen = Self {
            scheduler,
            phase: status.phase,
            queue: spec.queue,
            members: spec.min_member,
            unschedulable: unschedulable.map(ConditionData::said),
        };
        Some((owner.clone(), seen))
    }

    /// Volcano's queue, which has a default.
    pub(super) fn queue_name(&self) -> &str {
        if self.queue.is_empty() { "default" } else { &self.queue }
    }
}

/// The state of a Volcano queue: `Open`, `Closed`, `Closing`.
pub(super) fn state_of_queue(object: &DynamicObject) -> String {
    object.data.pointer("/status/state").and_then(|state| state.as_str()).unwrap_or_default().to_owned()
}

/// Why a group is not started; none where it is, or where its pods say more. `state`: of its queue.
pub(super) fn why(group: &GroupSeen, state: Option<&str>) -> Option<Queue> {
    match group.scheduler {
        Scheduler::Volcano => volcano(group, state),
        Scheduler::Plugins => None,
    }
}

fn volcano(group: &GroupSeen, state: Option<&str>) -> Option<Queue> {
    let queue = group.queue_name();
    let waits = matches!(group.phase.as_str(), "" | "Pending");
    if waits && let Some(state) = state.filter(|state| matches!(*state, "Closed" | "Closing")) {
        let text = format!("Volcano's queue {queue} is {state} and takes nothing in");
        return Some(Queue::of(QueueReason::Inadmissible, text));
    }
    // Where some of its pods run, or did, the condition may be an old one.
    let said = group.unschedulable.as_ref().filter(|_| waits || group.phase == "Inqueue");
    if let Some(said) = said {
        return Some(Queue::of(QueueReason::Gang, said.text()));
    }
    waits.then(|| {
        let text = format!("Volcano has not let it into queue {queue} yet; its pods are made after that");
        Queue::of(QueueReason::Gang, text)
    })
}

/// What a group of the scheduler plugins waits for, where its pods do not say.
pub(super) fn turn(group: &GroupSeen) -> Option<Queue> {
    let waits = matches!(group.phase.as_str(), "" | "Pending" | "PreScheduling" | "Scheduling");
    (waits && group.scheduler == Scheduler::Plugins).then(|| {
        let phase = if group.phase.is_empty() { "Pending" } else { group.phase.as_str() };
        let text = format!("its pod group is {phase}: {} pods start together or not at all", group.members);
        Queue::of(QueueReason::Gang, text)
    })
}

#[cfg(test)]
#[path = "tests/gang.rs"]
mod tests;
