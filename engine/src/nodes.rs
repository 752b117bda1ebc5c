//! Which nodes a job's next attempt keeps off, and the cap on how many. Beside that, what is held against a node for every job:
//! [`standing`] turns strikes into quarantines and ends them, [`forecast`] says beforehand who could not start any more.

pub mod forecast;
pub mod standing;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::NodeName;

/// Nodes that one job may keep off at most, however large the cluster is.
pub const MAX_AVOIDED: usize = 16;

/// The nodes a job keeps off, in the order they came to be suspected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Avoided {
    nodes: Vec<NodeName>,
    /// Nodes of the cluster, as far as it has said.
    total: Option<u32>,
}

/// What became of the suspects of one incident.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The next attempts keep off these.
    pub avoided: Vec<NodeName>,
    /// These would have passed the cap.
    pub spared: Vec<NodeName>,
}

impl Avoided {
    /// How many nodes may be kept off: at most half of the cluster, so that suspicion alone never starves a job, and
    /// never more than [`MAX_AVOIDED`].
    pub fn cap(&self) -> usize {
        self.total.map_or(MAX_AVOIDED, |total| MAX_AVOIDED.min(total as usize / 2))
    }

    /// The cluster says how many nodes it has.
    pub fn learn_total(&mut self, total: u32) {
        self.total = Some(total);
    }

    /// Takes the suspects of an incident, as far as the cap allows. A node that is kept off already stays so.
    pub fn add(&mut self, suspects: &[NodeName]) -> Outcome {
        let mut outcome = Outcome::default();
        for node in suspects {
            if self.nodes.contains(node) {
                outcome.avoided.push(node.clone());
            } else if self.nodes.len() < self.cap() {
                self.nodes.push(node.clone());
                outcome.avoided.push(node.clone());
            } else {
                outcome.spared.push(node.clone());
            }
        }
        outcome
    }

    /// A person let the node in again; whether it was kept off.
    pub fn remove(&mut self, node: &NodeName) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|kept| kept != node);
        self.nodes.len() < before
    }

    /// The nodes the next attempt keeps off; the cap holds also where the cluster has shrunk since.
    pub fn nodes(&self) -> BTreeSet<NodeName> {
        self.nodes.iter().take(self.cap()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: std::ops::RangeInclusive<u32>) -> Vec<NodeName> {
        numbers.map(|number| NodeName::new(format!("n{number}")).unwrap()).collect()
    }

    #[test]
    fn at_most_half_of_the_cluster_is_kept_off() {
        for (total, suspects, kept, spared) in [(None, 20, 16, 4), (Some(4), 3, 2, 1), (Some(1), 1, 0, 1)] {
            let mut avoided = Avoided { total, ..Avoided::default() };
            let outcome = avoided.add(&nodes(1..=suspects));
            assert_eq!((outcome.avoided.len(), outcome.spared.len()), (kept, spared), "{total:?}");
            assert_eq!(avoided.nodes().len(), kept);
        }
    }

    #[test]
    fn a_node_suspected_twice_counts_once_and_a_smaller_cluster_lowers_the_cap() {
        let mut avoided = Avoided::default();
        avoided.add(&nodes(1..=2));
        assert_eq!(avoided.add(&nodes(2..=2)).avoided, nodes(2..=2));
        assert_eq!(avoided.nodes().len(), 2);
        avoided.learn_total(2);
        assert_eq!(avoided.nodes().len(), 1);
        let first = nodes(1..=1).remove(0);
        assert!(avoided.remove(&first) && !avoided.remove(&first));
        assert_eq!(avoided.nodes(), nodes(2..=2).into_iter().collect());
    }
}
