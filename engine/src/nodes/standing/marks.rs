//! Strikes as the count asks for them. A cluster may have thousands, and each is looked at beside those of its node and of its job only.

use std::collections::{BTreeMap, BTreeSet};

use super::{CORRELATED_NODES, CORRELATED_SECONDS, Mark};
use crate::{
    ids::{JobId, NodeName},
    time::Time,
};

/// The strikes of a cluster by node and by job.
#[derive(Clone, Debug, Default)]
pub struct Marks<'a> {
    by_node: BTreeMap<&'a NodeName, Vec<&'a Mark>>,
    /// Each job's, oldest first.
    by_job: BTreeMap<&'a JobId, Vec<&'a Mark>>,
}

impl<'a> Marks<'a> {
    /// Of these strikes.
    pub fn of(all: &'a [Mark]) -> Self {
        let mut marks = Self::default();
        for mark in all {
            marks.by_node.entry(&mark.node).or_default().push(mark);
            marks.by_job.entry(&mark.job).or_default().push(mark);
        }
        marks.by_job.values_mut().for_each(|of_job| of_job.sort_by_key(|mark| mark.at));
        marks
    }

    /// Nodes that have any.
    pub fn nodes(&self) -> impl Iterator<Item = &'a NodeName> {
        self.by_node.keys().copied()
    }

    /// Those of a node.
    pub fn of_node(&self, node: &NodeName) -> &[&'a Mark] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// The job struck at least [`CORRELATED_NODES`] nodes within [`CORRELATED_SECONDS`] of this strike, as far as that was known at `known`.
    pub fn is_correlated(&self, mark: &Mark, known: Time) -> bool {
        let of_job = self.by_job.get(&mark.job).map_or(&[] as &[_], Vec::as_slice);
        let earliest = Time(mark.at.micros().saturating_sub(CORRELATED_SECONDS as i64 * 1_000_000));
        let latest = mark.at.plus_seconds(CORRELATED_SECONDS).min(known);
        let first = of_job.partition_point(|other| other.at < earliest);
        let mut nodes = BTreeSet::new();
        of_job[first..].iter().take_while(|other| other.at <= latest).any(|other| {
            nodes.insert(&other.node);
            nodes.len() >= CORRELATED_NODES
        })
    }
}
