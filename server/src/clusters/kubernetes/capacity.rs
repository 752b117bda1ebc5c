//! Nodes with their slots. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{facts::Nodes, seen::PodSeen};
use crate::clusters::Node;

const CPU: &str = "cpu";

/// The nodes of a cluster. A slot is an accelerator; where no node has any, it is a whole CPU. What other people's pods use is not known
/// here, so `used` counts ours only.
pub(super) fn nodes(nodes: &Nodes, pods: &[PodSeen], accelerator: &str) -> Vec<Node> {
    let has_any =
        nodes.values().any(|node| node.allocatable.get(accelerator).is_some_and(|have| *have >= 1.0));
    let counted = if has_any { accelerator } else { CPU };
    let mut by_node = BTreeMap::<_, Vec<_>>::new();
    for pod in pods {
        by_node.entry(pod.node.as_ref()).or_default().push(pod);
    }
    nodes
        .iter()
        .map(|(name, node)| {
            let here = by_node.remove(&Some(name)).unwrap_or_default();
            let used: f64 = here.iter().filter_map(|pod| pod.requests.get(counted)).sum();
            let tasks: BTreeSet<_> = here.iter().map(|pod| pod.task.clone()).collect();
            Node {
                name: name.clone(),
                slots: whole(node.allocatable.get(counted).copied().unwrap_or(0.0).floor()),
                used: whole(used.ceil()),
                tasks: tasks.into_iter().collect(),
            }
        })
        .collect()
}

/// Of a number that is whole already; what is out of range becomes the nearest there is.
fn whole(number: f64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use engine::{
        ids::{NodeName, ReplicaName, TaskId},
        job::JobKind,
    };

    use super::*;
    use crate::clusters::kubernetes::seen::{Amounts, ContainerSeen, NodeSeen, Phase, Said};

    fn amounts(cpu: f64, gpu: f64) -> Amounts {
        [("cpu", cpu), ("nvidia.com/gpu", gpu)].map(|(name, amount)| (name.to_owned(), amount)).into()
    }

    fn node(name: &str, cpu: f64, gpu: f64) -> (NodeName, NodeSeen) {
        let seen = NodeSeen {
            ready: true,
            heard: true,
            driven_out: false,
            cordoned: false,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            allocatable: amounts(cpu, gpu),
        };
        (NodeName::new(name).unwrap(), seen)
    }

    fn pod(node: &str, task: &str, cpu: f64, gpu: f64) -> PodSeen {
        PodSeen {
            kind: JobKind::PyTorchJob,
            container: "pytorch".to_owned(),
            uid: String::new(),
            name: String::new(),
            task: TaskId::new(task).unwrap(),
            replica: Some(ReplicaName::new("master-0").unwrap()),
            node: Some(NodeName::new(node).unwrap()),
            phase: Phase::Running,
            deleting: false,
            disruption: None,
            unscheduled: None,
            said: Said::default(),
            main: ContainerSeen::Running,
            init: Vec::new(),
            requests: amounts(cpu, gpu),
        }
    }

    fn told(found: &[Node]) -> Vec<(&str, u32, u32, usize)> {
        found.iter().map(|node| (node.name.as_str(), node.slots, node.used, node.tasks.len())).collect()
    }

    #[test]
    fn slots_are_accelerators_where_there_are_any_and_cpus_elsewhere() {
        let pods = [pod("n1", "a", 1.5, 4.0), pod("n1", "a", 1.0, 2.0), pod("n2", "b", 0.5, 0.0)];
        let with: BTreeMap<_, _> = [node("n1", 32.0, 8.0), node("n2", 4.0, 0.0)].into();
        let without: BTreeMap<_, _> = [node("n1", 31.9, 0.0), node("n2", 4.0, 0.0)].into();
        let gpu = "nvidia.com/gpu";
        assert_eq!(told(&nodes(&with, &pods, gpu)), [("n1", 8, 6, 1), ("n2", 0, 0, 1)]);
        assert_eq!(told(&nodes(&without, &pods, gpu)), [("n1", 31, 3, 1), ("n2", 4, 1, 1)]);
    }
}
