//! What keeps an attempt on the cluster whose removal was asked for. Pure.

use engine::job::JobKind;
use kube::{ResourceExt, core::DynamicObject};

use super::{
    facts::{self, Known, Nodes},
    names,
    seen::PodSeen,
};

/// What the API server itself puts on an object that is being removed, while it removes what belongs to it.
const CASCADE: [&str; 2] = ["foregroundDeletion", "orphan"];

/// Pods that the cluster has given up with their node: nobody is there who could end them in time, and none of them is waited for.
pub(super) fn given_up(known: &Known, nodes: &Nodes) -> Vec<PodSeen> {
    let there = known.pods.iter().filter(|pod| !pod.gone).map(|pod| &pod.seen);
    there.filter(|pod| facts::is_of_lost_node(pod) && is_unheard(pod, nodes)).cloned().collect()
}

fn is_unheard(pod: &PodSeen, nodes: &Nodes) -> bool {
    let node = pod.node.as_ref().and_then(|name| nodes.get(name));
    node.is_some_and(|node| !node.ready)
}

/// Why an attempt is still there that should be gone, and what to do about it. `found` is its job as it was before this request; none
/// where that is gone already. Nothing is said of the first request, which has only just been made.
pub(super) fn kept(
    kind: JobKind,
    found: Option<&DynamicObject>,
    known: &Known,
    nodes: &Nodes,
    force: bool,
) -> Option<String> {
    if found.is_some_and(|job| job.metadata.deletion_timestamp.is_none()) {
        return None;
    }
    let finalizers = found.map(ResourceExt::finalizers).unwrap_or_default();
    let theirs = |name: &&String| !CASCADE.contains(&name.as_str()) && *name != names::RAY_FINALIZER;
    let strangers: Vec<_> = finalizers.iter().filter(theirs).map(String::as_str).collect();
    let what = names::resource(kind).kind;
    let name = found.map(ResourceExt::name_any).unwrap_or_default();
    if !strangers.is_empty() {
        let list = strangers.join(", ");
        return Some(format!(
            "{what} {name} has finalizers ({list}); whoever put them there has to take them off"
        ));
    }
    let mut there = known.pods.iter().filter(|pod| !pod.gone).map(|pod| &pod.seen);
    if let Some(pod) = there.clone().find(|pod| is_unheard(pod, nodes)) {
        let node = pod.node.as_ref().map(ToString::to_string).unwrap_or_default();
        return Some(format!(
            "node {node} is not heard, where pod {} was; unless it comes back, its pods are removed by force",
            pod.name
        ));
    }
    if !force && finalizers.iter().any(|name| name == names::RAY_FINALIZER) {
        return Some(format!(
            "KubeRay has not released {what} {name}; see whether KubeRay runs: its finalizer {} is taken off when the removal is forced",
            names::RAY_FINALIZER
        ));
    }
    let pod = there.next().filter(|_| force)?;
    Some(format!(
        "pod {} is still there, though it was given no time; see its finalizers and the kubelet of its node",
        pod.name
    ))
}

#[cfg(test)]
#[path = "tests/removal.rs"]
mod tests;
