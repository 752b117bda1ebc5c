//! Why an attempt still waits, in the cluster's own words. Pure.

use engine::record::{NodeCounts, Queue, QueueReason};

use super::{
    facts::{Known, Nodes, PodKnown},
    gang, kueue, names,
    requests::Amounts,
    seen::JobSeen,
};

/// What is said of a pod that the Pod Security level of its namespace forbids.
pub(super) const POD_SECURITY: &str =
    "the namespace's Pod Security level does not allow it; change the job or the level";

/// What keeps the attempt from having its resources.
pub(super) fn why(job: &JobSeen, known: &Known, nodes: &Nodes) -> Queue {
    if let Some(message) = job.conditions.get("Suspended") {
        return suspended(job, message, known);
    }
    let there: Vec<_> = known.telling().filter(|pod| !pod.gone).collect();
    let group = known.queued.group.as_ref();
    if let Some(queue) = group.and_then(|group| gang::why(group, known.queued.group_queue.as_deref())) {
        return queue;
    }
    let waits_with = |reason: &str| {
        there.iter().find_map(|pod| {
            let said = pod.seen.unscheduled.as_ref().filter(|said| said.reason == reason)?;
            Some((*pod, said.message.as_str()))
        })
    };
    if let Some((pod, message)) = waits_with("Unschedulable") {
        return unschedulable(job, pod, message, nodes);
    }
    if let Some((_, message)) = waits_with("SchedulingGated") {
        return Queue::of(QueueReason::Constraints, message);
    }
    if (there.len() as u64) < u64::from(job.replicas) {
        return match &known.trouble {
            Some(message) if is_quota(message) => Queue::of(QueueReason::Quota, message),
            // No pod will ever be let in, however often the operator tries. What to do comes first, as such words are long.
            Some(message) if violates_pod_security(message) => {
                Queue::of(QueueReason::Inadmissible, format!("{POD_SECURITY}: {message}"))
            }
            Some(message) => Queue::of(QueueReason::Constraints, message),
            None if job.conditions.is_empty() => Queue::of(
                QueueReason::Constraints,
                format!(
                    "{} has not taken the job up; if that lasts, see whether it runs",
                    names::operator(job.kind)
                ),
            ),
            None => Queue::of(QueueReason::Busy, format!("{} makes its pods", names::operator(job.kind))),
        };
    }
    group.and_then(gang::turn).unwrap_or_else(|| {
        Queue::of(
            QueueReason::Busy,
            "the scheduler has not said anything about its pods yet; if that lasts, see whether it runs",
        )
    })
}

/// Kueue suspends what it holds; nobody paused it.
fn suspended(job: &JobSeen, message: &str, known: &Known) -> Queue {
    match (&known.queued.workload, &job.queue) {
        (Some(workload), _) => kueue::why(workload, known.queued.position),
        (None, Some(queue)) => Queue::of(
            QueueReason::Suspended,
            format!(
                "it is suspended until Kueue admits it in LocalQueue {queue}, and nothing is known of its Workload; if that lasts, see whether Kueue runs"
            ),
        ),
        (None, None) => Queue::of(QueueReason::Suspended, message),
    }
}

/// Whether an API server's refusal is about a quota, which may have room later.
pub(super) fn is_quota(message: &str) -> bool {
    message.contains("exceeded quota")
}

/// Whether an API server's refusal is about the Pod Security level of a namespace.
pub(super) fn violates_pod_security(message: &str) -> bool {
    message.contains("violates PodSecurity")
}

/// The scheduler found no node. Its words count nodes by reason: `0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s)
/// had untolerated taint(s).`
fn unschedulable(job: &JobSeen, pod: &PodKnown, message: &str, nodes: &Nodes) -> Queue {
    // What follows is about preemption.
    let text = message.split(" preemption: ").next().unwrap_or(message);
    let text = text.split(" no new claims to deallocate").next().unwrap_or(text).trim();
    let total = text
        .strip_prefix("0/")
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| u32::try_from(nodes.len()).unwrap_or(u32::MAX));
    let known_avoided = job.avoid.iter().filter(|name| nodes.contains_key(*name)).count();
    let avoided = if nodes.is_empty() { job.avoid.len() } else { known_avoided };
    let avoided = u32::try_from(avoided).unwrap_or(u32::MAX).min(total);
    let is_short = text.contains("Insufficient ") || text.contains("Too many pods");
    let could_hold = |keep_off: bool| {
        nodes.is_empty()
            || nodes
                .iter()
                .filter(|(name, _)| !keep_off || !job.avoid.contains(*name))
                .any(|(_, node)| holds(&node.allocatable, &pod.seen.requests))
    };
    let reason = if !could_hold(false) {
        QueueReason::Unschedulable
    } else if avoided > 0 && (!is_short || !could_hold(true)) {
        QueueReason::AvoidedNodes
    } else if is_short {
        QueueReason::Busy
    } else {
        QueueReason::Constraints
    };
    // None is free for it, or it would not wait.
    let counts = NodeCounts { total, busy: total - avoided, avoided, free: 0 };
    Queue { reason, text: text.to_owned(), position: None, needs_nodes: None, nodes: Some(counts) }
}

/// Whether a node could hold a pod if nothing else were on it.
pub(super) fn holds(allocatable: &Amounts, requests: &Amounts) -> bool {
    requests
        .iter()
        .all(|(name, wanted)| allocatable.get(name).is_some_and(|there| there >= wanted) || *wanted <= 0.0)
}

#[cfg(test)]
#[path = "tests/queue.rs"]
mod tests;
