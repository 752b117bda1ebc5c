//! Which node takes which replica, and why an attempt still waits. Pure.

use std::collections::{BTreeMap, BTreeSet};

use engine::{
    chain::Plan,
    ids::{NodeName, ReplicaName},
    job::JobSpec,
    record::{NodeCounts, Queue, QueueReason},
};

/// Slots a replica of the job takes: one for each accelerator, at least one.
pub(super) fn slots_of(spec: &JobSpec) -> u32 {
    spec.accelerators_per_replica.max(1)
}

/// What an attempt needs.
pub(super) struct Wanted {
    /// Its replicas, the first first.
    pub replicas: Vec<ReplicaName>,
    /// Slots of each.
    pub slots: u32,
    /// Nodes it keeps off.
    pub avoid: BTreeSet<NodeName>,
    /// The only nodes it may run on, one replica on each; empty: any.
    pub only: BTreeSet<NodeName>,
}

impl Wanted {
    /// What an attempt needs while `kept_out` are kept out for every job; none: that is not known now, so its own plan counts.
    pub(super) fn of(spec: &JobSpec, plan: &Plan, kept_out: Option<&BTreeSet<NodeName>>) -> Self {
        let own = plan.avoid.difference(&plan.quarantined);
        let avoid = match kept_out {
            // Bound to its nodes it goes there, whatever is held against them: to test them.
            _ if !plan.only.is_empty() => BTreeSet::new(),
            None => plan.avoid.clone(),
            Some(kept_out) => own.chain(kept_out).cloned().collect(),
        };
        Self {
            replicas: (0..spec.replicas).map(|index| ReplicaName::of_index(spec.kind, index)).collect(),
            slots: slots_of(spec),
            only: plan.only.clone(),
            avoid,
        }
    }
}

/// Free slots of every node.
#[derive(Clone)]
pub(super) struct Slots {
    each: u32,
    free: BTreeMap<NodeName, u32>,
}

impl Slots {
    pub(super) fn new(nodes: &[NodeName], each: u32) -> Self {
        Self { each, free: nodes.iter().map(|node| (node.clone(), each)).collect() }
    }

    pub(super) fn take(&mut self, node: &NodeName, slots: u32) {
        if let Some(free) = self.free.get_mut(node) {
            *free = free.saturating_sub(slots);
        }
    }

    /// Takes back what [`Self::take`] took.
    pub(super) fn give(&mut self, node: &NodeName, slots: u32) {
        if let Some(free) = self.free.get_mut(node) {
            *free = free.saturating_add(slots).min(self.each);
        }
    }

    pub(super) fn free_on(&self, node: &NodeName) -> u32 {
        self.free.get(node).copied().unwrap_or(0)
    }

    /// Takes slots for all replicas, or for none. Replicas spread: each goes to the node with the most free slots, so that one bad
    /// node costs as few of them as possible; ties go by name, so that the same attempt lands on the same nodes.
    pub(super) fn place(&mut self, wanted: &Wanted) -> Option<Vec<NodeName>> {
        if !wanted.only.is_empty() {
            return self.place_on(wanted);
        }
        let mut left = self.clone();
        let mut placement = Vec::with_capacity(wanted.replicas.len());
        for _ in &wanted.replicas {
            let (node, _) = left
                .free
                .iter()
                .filter(|(node, free)| **free >= wanted.slots && !wanted.avoid.contains(*node))
                .max_by(|a, b| a.1.cmp(b.1).then_with(|| natural(b.0).cmp(&natural(a.0))))?;
            let node = node.clone();
            left.take(&node, wanted.slots);
            placement.push(node);
        }
        *self = left;
        Some(placement)
    }

    /// One replica on each of the nodes it is bound to.
    fn place_on(&mut self, wanted: &Wanted) -> Option<Vec<NodeName>> {
        let is_free = |node: &NodeName| self.free_on(node) >= wanted.slots && !wanted.avoid.contains(node);
        if wanted.only.len() != wanted.replicas.len() || !wanted.only.iter().all(is_free) {
            return None;
        }
        for node in &wanted.only {
            self.take(node, wanted.slots);
        }
        Some(wanted.only.iter().cloned().collect())
    }

    /// Why `wanted` does not fit now.
    pub(super) fn why(&self, wanted: &Wanted, position: u32) -> Queue {
        if !wanted.only.is_empty() {
            return self.why_not_on(wanted, position);
        }
        let everything = Self::new(&self.free.keys().cloned().collect::<Vec<_>>(), self.each);
        let unrestricted = Wanted {
            replicas: wanted.replicas.clone(),
            slots: wanted.slots,
            avoid: BTreeSet::new(),
            only: BTreeSet::new(),
        };
        let known = |node: &&NodeName| self.free.contains_key(*node);
        let avoided = wanted.avoid.iter().filter(known).count() as u32;
        let total = self.free.len() as u32;
        let free = self
            .free
            .iter()
            .filter(|(node, free)| **free >= wanted.slots && !wanted.avoid.contains(*node))
            .count() as u32;
        let per_node = (self.each / wanted.slots).max(1);
        let needs_nodes = (wanted.replicas.len() as u32).div_ceil(per_node);
        let need = format!("{} replicas with {} slots each", wanted.replicas.len(), wanted.slots);
        let names = || wanted.avoid.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ");
        let (reason, text) = if everything.clone().place(&unrestricted).is_none() {
            (
                QueueReason::Unschedulable,
                format!("needs {need}; {total} nodes with {} slots never hold them", self.each),
            )
        } else if everything.clone().place(wanted).is_none() {
            let left = total - avoided;
            let text = format!(
                "needs {need}; without {}, {left} of {total} nodes are left and never hold them",
                names()
            );
            (QueueReason::AvoidedNodes, text)
        } else if self.clone().place(&unrestricted).is_some() {
            (
                QueueReason::AvoidedNodes,
                format!("needs {need}; the free slots are on {}, which it keeps off", names()),
            )
        } else {
            let slots: u32 = self
                .free
                .iter()
                .filter(|(node, _)| !wanted.avoid.contains(*node))
                .map(|(_, free)| free)
                .sum();
            (QueueReason::Busy, format!("needs {need}; {slots} slots are free for it"))
        };
        Queue {
            reason,
            text,
            position: Some(position),
            needs_nodes: Some(needs_nodes),
            nodes: Some(NodeCounts { total, busy: total - avoided - free, avoided, free }),
        }
    }
}

impl Slots {
    /// Why an attempt that is bound to its nodes does not fit now.
    fn why_not_on(&self, wanted: &Wanted, position: u32) -> Queue {
        let total = self.free.len() as u32;
        let unknown = wanted.only.iter().find(|node| !self.free.contains_key(*node));
        let busy = wanted.only.iter().filter(|node| self.free_on(node) < wanted.slots);
        let busy: Vec<_> = busy.map(NodeName::as_str).collect();
        let (reason, text) = match unknown {
            Some(node) => (QueueReason::Unschedulable, format!("needs node {node}, and there is none")),
            None => {
                let why = if busy.is_empty() {
                    "waits behind others".to_owned()
                } else {
                    format!("busy: {}", busy.join(", "))
                };
                (QueueReason::Busy, format!("needs {} slots on each of its nodes; {why}", wanted.slots))
            }
        };
        let free = self.free.values().filter(|free| **free >= wanted.slots).count() as u32;
        Queue {
            reason,
            text,
            position: Some(position),
            needs_nodes: Some(wanted.only.len() as u32),
            nodes: Some(NodeCounts { total, busy: total - free, avoided: 0, free }),
        }
    }
}

/// `node-2` before `node-10`.
fn natural(node: &NodeName) -> (usize, &str) {
    (node.as_str().len(), node.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::job::JobKind;

    fn nodes(count: u32) -> Vec<NodeName> {
        (1..=count).map(|n| NodeName::new(format!("node-{n}")).unwrap()).collect()
    }

    fn wanted(replicas: u32, slots: u32, avoid: &[&str]) -> Wanted {
        Wanted {
            replicas: (0..replicas).map(|i| ReplicaName::of_index(JobKind::PyTorchJob, i)).collect(),
            slots,
            avoid: avoid.iter().map(|name| NodeName::new(*name).unwrap()).collect(),
            only: BTreeSet::new(),
        }
    }

    fn placed(slots: &mut Slots, wanted: &Wanted) -> Option<Vec<String>> {
        slots.place(wanted).map(|nodes| nodes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_is_given_back_is_free_again_and_never_more_than_there_is() {
        let node = NodeName::new("node-1").unwrap();
        let mut slots = Slots::new(std::slice::from_ref(&node), 4);
        slots.take(&node, 3);
        slots.give(&node, 2);
        assert_eq!(slots.free_on(&node), 3);
        slots.give(&node, 2);
        assert_eq!(slots.free_on(&node), 4);
    }

    #[test]
    fn replicas_spread_over_the_nodes_in_order() {
        let mut slots = Slots::new(&nodes(11), 2);
        let names = placed(&mut slots, &wanted(12, 1, &[])).unwrap();
        assert_eq!(names[..3], ["node-1", "node-2", "node-3"]);
        assert_eq!(names[9..], ["node-10", "node-11", "node-1"]);
    }

    #[test]
    fn an_avoided_node_gets_nothing() {
        let mut slots = Slots::new(&nodes(3), 2);
        assert_eq!(
            placed(&mut slots, &wanted(4, 1, &["node-1"])).unwrap(),
            ["node-2", "node-3", "node-2", "node-3"]
        );
    }

    #[test]
    fn an_attempt_that_is_bound_to_its_nodes_gets_each_of_them_or_waits_for_it() {
        let mut slots = Slots::new(&nodes(4), 2);
        let only = |names: &[&str]| Wanted {
            only: names.iter().map(|name| NodeName::new(*name).unwrap()).collect(),
            ..wanted(names.len() as u32, 2, &[])
        };
        assert_eq!(placed(&mut slots, &only(&["node-2", "node-4"])).unwrap(), ["node-2", "node-4"]);
        assert_eq!(placed(&mut slots, &only(&["node-1", "node-2"])), None);
        let queue = slots.why(&only(&["node-1", "node-2"]), 1);
        assert_eq!(
            (queue.reason, &*queue.text),
            (QueueReason::Busy, "needs 2 slots on each of its nodes; busy: node-2")
        );
        let queue = slots.why(&only(&["node-1", "node-3"]), 1);
        assert_eq!(queue.text, "needs 2 slots on each of its nodes; waits behind others");
        assert_eq!(slots.why(&only(&["node-9"]), 1).reason, QueueReason::Unschedulable);
        assert_eq!(placed(&mut slots, &only(&["node-1"])).unwrap(), ["node-1"]);
    }

    #[test]
    fn an_attempt_that_waits_follows_what_is_quarantined_now_and_never_its_own_suspects() {
        let names =
            |names: &[&str]| names.iter().map(|n| NodeName::new(*n).unwrap()).collect::<BTreeSet<_>>();
        let draft = engine::job::JobDraft {
            name: "demo".to_owned(),
            command: vec!["true".to_owned()],
            ..engine::job::JobDraft::default()
        };
        let spec = draft.validate(&engine::job::Site::default()).unwrap();
        let plan = Plan {
            task_id: engine::ids::TaskId::new("demo-jabcdefghij2-1").unwrap(),
            number: 1,
            previous_task_id: None,
            avoid: names(&["node-1", "node-2"]),
            quarantined: names(&["node-2"]),
            only: BTreeSet::new(),
        };
        for (case, now, want) in [
            ("not told yet", None, names(&["node-1", "node-2"])),
            ("released", Some(names(&[])), names(&["node-1"])),
            ("another one", Some(names(&["node-3"])), names(&["node-1", "node-3"])),
        ] {
            assert_eq!(Wanted::of(&spec, &plan, now.as_ref()).avoid, want, "{case}");
        }
    }

    #[test]
    fn an_attempt_that_does_not_fit_takes_nothing() {
        let mut slots = Slots::new(&nodes(2), 2);
        assert_eq!(placed(&mut slots, &wanted(5, 1, &[])), None);
        assert_eq!(slots.free_on(&nodes(1)[0]), 2);
    }

    #[test]
    fn the_reason_names_what_binds() {
        let mut slots = Slots::new(&nodes(4), 2);
        for node in &nodes(3) {
            slots.take(node, 2);
        }
        for (case, wanted, reason, counts) in [
            ("others have the slots", wanted(4, 1, &[]), QueueReason::Busy, (3, 0, 1)),
            ("the free node is avoided", wanted(2, 1, &["node-4"]), QueueReason::AvoidedNodes, (3, 1, 0)),
            ("too few nodes left for ever", wanted(8, 1, &["node-1"]), QueueReason::AvoidedNodes, (2, 1, 1)),
            ("larger than the cluster", wanted(9, 1, &[]), QueueReason::Unschedulable, (3, 0, 1)),
            ("larger than a node", wanted(1, 3, &[]), QueueReason::Unschedulable, (4, 0, 0)),
        ] {
            let queue = slots.why(&wanted, 1);
            assert_eq!(queue.reason, reason, "{case}: {}", queue.text);
            let nodes = queue.nodes.unwrap();
            assert_eq!((nodes.busy, nodes.avoided, nodes.free), counts, "{case}");
            assert_eq!(nodes.busy + nodes.avoided + nodes.free, nodes.total, "{case}");
        }
    }
}
