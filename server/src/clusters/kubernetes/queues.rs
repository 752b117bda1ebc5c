//! What the objects of queueing systems have shown so far, by whose they are. Part of [`super::world`].

use std::collections::{BTreeMap, BTreeSet};

use super::{gang::GroupSeen, kueue::WorkloadSeen, seen::JobSeen};

/// Objects of one kind that are remembered, some kB each at most. Those of others are among them: nothing on them says whose job it is but
/// its UID, and one may be seen before its job is.
pub(super) const OBJECTS: usize = 32_768;

/// All of a cluster.
#[derive(Default)]
pub(super) struct Queues {
    pub workloads: Owned<WorkloadSeen>,
    pub volcano_groups: Owned<GroupSeen>,
    pub plugin_groups: Owned<GroupSeen>,
    /// States of Volcano's queues by name.
    gang_queues: BTreeMap<String, String>,
    /// Places in Kueue's queues, from 1, by namespace and Workload.
    positions: BTreeMap<(String, String), u32>,
}

/// What there is of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct InQueue {
    pub workload: Option<WorkloadSeen>,
    /// Its place in Kueue's queue, from 1.
    pub position: Option<u32>,
    pub group: Option<GroupSeen>,
    /// The state of that group's queue.
    pub group_queue: Option<String>,
}

impl Queues {
    pub(super) fn of(&self, job: &JobSeen) -> InQueue {
        let workload = self.workloads.get(&job.uid).cloned();
        let position = workload.as_ref().and_then(|workload| {
            self.positions.get(&(job.namespace.clone(), workload.name.clone())).copied()
        });
        let group = [&self.volcano_groups, &self.plugin_groups]
            .into_iter()
            .find_map(|groups| groups.get(&job.uid).or_else(|| groups.get(&job.events_of)))
            .cloned();
        let group_queue = group.as_ref().and_then(|group| self.gang_queues.get(group.queue_name()).cloned());
        InQueue { workload, position, group, group_queue }
    }

    /// Forgets what is of no job that is known, where there is no more room. `jobs`: how many are known.
    pub(super) fn make_room(&mut self, jobs: usize, is_known: impl Fn(&str) -> bool) {
        // With as many jobs there would be no room without the others' either, and each look for them would be in vain.
        if jobs < OBJECTS {
            self.workloads.make_room(&is_known);
            self.volcano_groups.make_room(&is_known);
            self.plugin_groups.make_room(&is_known);
        }
    }

    /// A queue of Volcano is there.
    pub(super) fn set_gang_queue(&mut self, name: String, state: String) {
        if self.gang_queues.len() < OBJECTS || self.gang_queues.contains_key(&name) {
            self.gang_queues.insert(name, state);
        }
    }

    /// A queue of Volcano is gone.
    pub(super) fn remove_gang_queue(&mut self, name: &str) {
        self.gang_queues.remove(name);
    }

    /// A full list of Volcano's queues has ended.
    pub(super) fn only_gang_queues(&mut self, listed: &BTreeSet<String>) {
        self.gang_queues.retain(|name, _| listed.contains(name));
    }

    /// Takes the places of all Workloads of a namespace; answers whose changed.
    pub(super) fn set_positions(&mut self, namespace: &str, found: BTreeMap<String, u32>) -> Vec<String> {
        let found: BTreeMap<_, _> =
            found.into_iter().map(|(name, place)| ((namespace.to_owned(), name), place)).collect();
        let of_namespace = |(known, _): &(&(String, String), &u32)| known.0 == namespace;
        let before: BTreeMap<_, _> =
            self.positions.iter().filter(of_namespace).map(|(at, place)| (at.clone(), *place)).collect();
        if before == found {
            return Vec::new();
        }
        let changed = |name: &str| {
            let at = (namespace.to_owned(), name.to_owned());
            before.get(&at) != found.get(&at)
        };
        let owners = self.workloads.of_namespace(namespace);
        let owners =
            owners.filter(|(_, seen)| changed(&seen.name)).map(|(owner, _)| owner.to_owned()).collect();
        self.positions.retain(|(known, _), _| known != namespace);
        self.positions.extend(found);
        owners
    }
}

/// Objects of one kind by the job that they are of.
pub(super) struct Owned<T>(BTreeMap<String, Entry<T>>);

struct Entry<T> {
    namespace: String,
    uid: String,
    seen: T,
}

impl<T> Default for Owned<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: PartialEq> Owned<T> {
    pub(super) fn get(&self, owner: &str) -> Option<&T> {
        self.0.get(owner).map(|entry| &entry.seen)
    }

    pub(super) fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = (&str, &T)> {
        let entries = self.0.iter().filter(move |(_, entry)| entry.namespace == namespace);
        entries.map(|(owner, entry)| (owner.as_str(), &entry.seen))
    }

    fn make_room(&mut self, is_known: impl Fn(&str) -> bool) {
        if self.0.len() >= OBJECTS {
            self.0.retain(|owner, _| is_known(owner));
        }
    }

    /// An object is there; answers whose it is where that is news.
    pub(super) fn set(&mut self, owner: String, namespace: &str, uid: String, seen: T) -> Vec<String> {
        let known = self.0.get(&owner);
        if known.is_some_and(|known| known.uid == uid && known.seen == seen) {
            return Vec::new();
        }
        if known.is_none() && self.0.len() >= OBJECTS {
            tracing::debug!(owner, "too many objects of a queueing system; this one is not looked at");
            return Vec::new();
        }
        self.0.insert(owner.clone(), Entry { namespace: namespace.to_owned(), uid, seen });
        vec![owner]
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, owner: &str, uid: &str) -> Vec<String> {
        if self.0.get(owner).is_none_or(|known| known.uid != uid) {
            return Vec::new();
        }
        self.0.remove(owner);
        vec![owner.to_owned()]
    }

    /// A full list of a namespace has ended: whatever is not in it is gone.
    pub(super) fn only(&mut self, namespace: &str, listed: &BTreeSet<String>) -> Vec<String> {
        let is_gone = |entry: &Entry<T>| entry.namespace == namespace && !listed.contains(&entry.uid);
        let gone: Vec<_> =
            self.0.iter().filter(|(_, entry)| is_gone(entry)).map(|(owner, _)| owner.clone()).collect();
        gone.iter().for_each(|owner| drop(self.0.remove(owner)));
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uids(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn news_are_told_once_and_only_of_what_changed() {
        let mut owned = Owned::default();
        let set = |owned: &mut Owned<u32>, owner: &str, space: &str, uid: &str, value| {
            owned.set(owner.to_owned(), space, uid.to_owned(), value)
        };
        assert_eq!(set(&mut owned, "job-1", "a", "w-1", 1), ["job-1"]);
        assert!(set(&mut owned, "job-1", "a", "w-1", 1).is_empty());
        assert_eq!(set(&mut owned, "job-1", "a", "w-2", 2), ["job-1"], "made anew");
        assert!(owned.remove("job-1", "w-1").is_empty(), "the older one went");
        assert_eq!(owned.get("job-1"), Some(&2));
        set(&mut owned, "job-2", "b", "w-3", 3);
        assert_eq!(owned.only("a", &uids(&[])), ["job-1"]);
        assert_eq!(owned.get("job-2"), Some(&3), "of another namespace");
        assert!(owned.only("b", &uids(&["w-3"])).is_empty());
    }

    #[test]
    fn a_full_memory_takes_nothing_in_and_loses_nothing() {
        let mut owned = Owned::default();
        for number in 0..=OBJECTS {
            owned.set(format!("job-{number}"), "a", format!("w-{number}"), number);
        }
        assert_eq!(owned.get("job-0"), Some(&0));
        assert_eq!(owned.get(&format!("job-{OBJECTS}")), None);
        assert_eq!(owned.set("job-0".to_owned(), "a", "w-0".to_owned(), 7), ["job-0"]);
    }
}
