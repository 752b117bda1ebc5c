//! Who could not start any more if a node were put out, said before it is done (R35).
//!
//! It counts slots alone. What a scheduler knows beside them (other people's pods, taints, quotas) is not in it, so a job that fits here
//! may still wait; one that does not fit never starts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{JobId, NodeName},
    words,
};

/// A node as far as room goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Its name.
    pub name: NodeName,
    /// Slots it has.
    pub slots: u32,
    /// Slots in use.
    pub used: u32,
    /// It is out already.
    pub out: bool,
}

/// What a job needs to start, or to start again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub name: String,
    /// Its replicas.
    pub replicas: u32,
    /// Slots of each.
    pub slots: u32,
    /// Nodes it keeps off for reasons of its own.
    pub avoid: BTreeSet<NodeName>,
    /// It waits for its resources; else it has them and would need others after a failure.
    pub waits: bool,
}

/// What would follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Forecast {
    /// Nodes of the cluster.
    pub total: u32,
    /// Those that would not be out.
    pub left: u32,
    /// Those of them on which nothing runs.
    pub free: u32,
    /// Jobs that it keeps from starting, at most [`MOST_UNABLE`].
    pub unable: Vec<Unable>,
}

/// Jobs named in one forecast; more of them say no more.
pub const MOST_UNABLE: usize = 20;

/// A job that could not start: not at all, or not before others end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Unable {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub name: String,
    /// Nodes it needs at least.
    pub needs_nodes: u32,
    /// It runs now: only a restart elsewhere could not start.
    pub running: bool,
    /// Also where nothing else ran.
    pub ever: bool,
}

/// What would follow if `node` were put out.
pub fn forecast(rooms: &[Room], needs: &[Need], node: &NodeName) -> Forecast {
    let before: Vec<_> = rooms.iter().filter(|room| !room.out).collect();
    let after: Vec<_> = before.iter().copied().filter(|room| room.name != *node).collect();
    let mut unable: Vec<_> = needs
        .iter()
        // One that cannot start anyway, or keeps off the node itself, is not hit.
        .filter(|need| fits(&before, need, |room| room.slots) && !need.avoid.contains(node))
        .filter_map(|need| {
            let ever = !fits(&after, need, |room| room.slots);
            let now = need.waits && !fits(&after, need, |room| room.slots.saturating_sub(room.used));
            (ever || now).then(|| Unable {
                job_id: need.job_id.clone(),
                name: need.name.clone(),
                needs_nodes: needs_nodes(rooms, need),
                running: !need.waits,
                ever,
            })
        })
        .collect();
    // Who waits is hit at once.
    unable.sort_by(|a, b| (a.running, &a.name, &a.job_id).cmp(&(b.running, &b.name, &b.job_id)));
    unable.truncate(MOST_UNABLE);
    let whole = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Forecast {
        total: whole(rooms.len()),
        left: whole(after.len()),
        free: whole(after.iter().filter(|room| room.used == 0).count()),
        unable,
    }
}

fn fits(rooms: &[&Room], need: &Need, slots: impl Fn(&Room) -> u32) -> bool {
    let open = rooms.iter().filter(|room| !need.avoid.contains(&room.name));
    let places: u64 = open.map(|room| u64::from(slots(room) / need.slots.max(1))).sum();
    places >= u64::from(need.replicas)
}

fn needs_nodes(rooms: &[Room], need: &Need) -> u32 {
    let largest = rooms.iter().map(|room| room.slots / need.slots.max(1)).max().unwrap_or(1).max(1);
    need.replicas.div_ceil(largest)
}

impl Forecast {
    /// `13 of 16 left, 2 free: pretrain-7b needs 4, cannot start.`
    pub fn text(&self) -> String {
        let counts = format!("{} of {} left, {} free", self.left, self.total, self.free);
        let jobs: Vec<_> = self
            .unable
            .iter()
            .map(|job| {
                let what = match (job.running, job.ever) {
                    (true, _) => "could not be resubmitted",
                    (false, true) => "cannot start",
                    (false, false) => "cannot start now",
                };
                format!("{} needs {}, {what}", job.name, job.needs_nodes)
            })
            .collect();
        let jobs: Vec<_> = jobs.iter().map(String::as_str).collect();
        if jobs.is_empty() { format!("{counts}.") } else { format!("{counts}: {}.", words::list(&jobs)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(total: u32, out: u32, busy: u32) -> Vec<Room> {
        (1..=total)
            .map(|number| Room {
                name: NodeName::new(format!("n{number}")).unwrap(),
                slots: 8,
                used: if number > total - busy { 8 } else { 0 },
                out: number <= out,
            })
            .collect()
    }

    fn need(name: &str, replicas: u32, waits: bool) -> Need {
        let job_id = JobId::new("jabcdefghij2").unwrap();
        Need { job_id, name: name.to_owned(), replicas, slots: 8, avoid: BTreeSet::new(), waits }
    }

    #[test]
    fn who_could_not_start_is_said_before() {
        let rooms = rooms(16, 2, 11);
        let node = NodeName::new("n3").unwrap();
        let all = [need("pretrain-7b", 4, true), need("small", 2, true), need("huge", 15, true)];
        let seen = forecast(&rooms, &all, &node);
        assert_eq!(seen.text(), "13 of 16 left, 2 free: pretrain-7b needs 4, cannot start now.");
        assert_eq!(seen.unable.len(), 1, "one that cannot start anyway is not hit by it");
        let seen =
            forecast(&rooms, &[need("dpo", 14, false), need("big", 14, true), need("vit", 13, false)], &node);
        assert_eq!(
            seen.text(),
            "13 of 16 left, 2 free: big needs 14, cannot start and dpo needs 14, could not be resubmitted."
        );
        assert_eq!(forecast(&rooms, &[], &node).text(), "13 of 16 left, 2 free.");
    }

    #[test]
    fn what_a_job_keeps_off_itself_counts_and_a_node_that_is_out_takes_nothing() {
        let rooms = rooms(4, 1, 0);
        let node = NodeName::new("n4").unwrap();
        let picky = Need { avoid: BTreeSet::from([NodeName::new("n2").unwrap()]), ..need("picky", 2, true) };
        assert_eq!(forecast(&rooms, std::slice::from_ref(&picky), &node).unable.len(), 1);
        assert_eq!(forecast(&rooms, &[picky], &NodeName::new("n2").unwrap()).unable, []);
        let halves = Need { slots: 4, ..need("halves", 6, true) };
        assert_eq!(forecast(&rooms, std::slice::from_ref(&halves), &node).unable[0].needs_nodes, 3);
        let again = NodeName::new("n1").unwrap();
        assert_eq!(forecast(&rooms, &[halves], &again).unable, []);
    }
}
