//! Nodes with their slots. Pure.

use std::collections::{BTreeMap, BTreeSet};

use engine::ids::{NodeName, TaskId};

use super::{facts::Nodes, requests::Amounts, seen::PodSeen};
use crate::clusters::Node;

const CPU: &str = "cpu";

/// What our pods hold of a node.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub requests: Amounts,
    pub pods: f64,
    tasks: BTreeSet<TaskId>,
}

/// What these pods hold, by node.
pub(super) fn held<'a>(pods: impl IntoIterator<Item = &'a PodSeen>) -> BTreeMap<NodeName, Held> {
    let mut held = BTreeMap::<_, Held>::new();
    for pod in pods {
        let Some(node) = &pod.node else { continue };
        let held = held.entry(node.clone()).or_default();
        held.pods += 1.0;
        held.tasks.insert(pod.task.clone());
        for (name, amount) in &pod.requests {
            *held.requests.entry(name.clone()).or_default() += amount;
        }
    }
    held
}

/// The nodes of a cluster. A slot is an accelerator; where no node has any, it is a whole CPU. What other people's pods use is not known
/// here, so `used` counts ours only.
pub(super) fn nodes(nodes: &Nodes, held: &BTreeMap<NodeName, Held>, accelerator: &str) -> Vec<Node> {
    let has_any =
        nodes.values().any(|node| node.allocatable.get(accelerator).is_some_and(|have| *have >= 1.0));
    let counted = if has_any { accelerator } else { CPU };
    let amount = |amounts: &Amounts| amounts.get(counted).copied().unwrap_or(0.0);
    nodes
        .iter()
        .map(|(name, node)| {
            let held = held.get(name);
            Node {
                name: name.clone(),
                slots: whole(amount(&node.allocatable).floor()),
                used: whole(held.map_or(0.0, |held| amount(&held.requests)).ceil()),
                tasks: held.into_iter().flat_map(|held| held.tasks.iter().cloned()).collect(),
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
    use engine::{ids::ReplicaName, job::JobKind};

    use super::*;
    use crate::clusters::kubernetes::seen::{ContainerSeen, NodeSeen, Phase, Said};

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
            created: None,
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
        let held = held(&[pod("n1", "a", 1.5, 4.0), pod("n1", "a", 1.0, 2.0), pod("n2", "b", 0.5, 0.0)]);
        let with: BTreeMap<_, _> = [node("n1", 32.0, 8.0), node("n2", 4.0, 0.0)].into();
        let without: BTreeMap<_, _> = [node("n1", 31.9, 0.0), node("n2", 4.0, 0.0)].into();
        let gpu = "nvidia.com/gpu";
        assert_eq!(told(&nodes(&with, &held, gpu)), [("n1", 8, 6, 1), ("n2", 0, 0, 1)]);
        assert_eq!(told(&nodes(&without, &held, gpu)), [("n1", 31, 3, 1), ("n2", 4, 1, 1)]);
    }
}
