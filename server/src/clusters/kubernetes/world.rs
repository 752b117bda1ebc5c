//! What the watches have shown so far. Filled by [`super::watch`], read by the cluster's observations.
//!
//! The last state of each pod is kept when the pod goes, until its attempt is gone: a preempted pod vanishes within seconds, and
//! nothing else says what became of it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use engine::{
    ids::{NodeName, ReplicaName, TaskId},
    job::JobKind,
};
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use super::{
    capacity::{self, Held},
    events::Place,
    facts::{Known, Nodes, PodKnown},
    health::{Health, Watched},
    names,
    queues::Queues,
    seen::{ContainerSeen, JobSeen, NodeSeen, PodSeen, Said},
};

/// Pods of one attempt that are remembered: as many as it has replicas at most, and as many that were made again.
const PODS: usize = 2_048;
/// Troubles that are remembered of jobs that are not known yet. Other people's jobs have troubles too, and are never known.
const EARLY_TROUBLES: usize = 1_024;
/// A kubelet says again at least so often that it cannot make a container: it tries after two minutes at most. What it does not say any
/// more is over, though the container may not run yet as its image is pulled.
const SAID_AGAIN: Duration = Duration::from_secs(150);
/// Pods for which a kubelet's trouble is remembered.
const TROUBLES: usize = 4_096;
/// Attempts whose place is remembered after their object is gone: what is told of them last comes about then.
const PLACES: usize = 4_096;

#[derive(Clone, Debug)]
struct PodEntry {
    seen: PodSeen,
    namespace: String,
    gone: bool,
    /// Somebody deleted it, at whatever time: `seen` says so only where that may have ended its program.
    deleting: bool,
    /// It went, or goes, because the job was suspended.
    withdrawn: bool,
    /// The trouble it waits in, and since when.
    waits: Option<(Said, Instant)>,
}

/// What a kubelet said of making a pod's containers.
struct Making {
    said: Said,
    /// The version of the event, which changes each time that it says so.
    version: String,
    since: Instant,
    last: Instant,
}

#[derive(Default)]
struct State {
    jobs: BTreeMap<TaskId, JobSeen>,
    pods: BTreeMap<TaskId, Vec<PodEntry>>,
    /// Shared with whoever looks at attempts, which is far more often than it changes.
    nodes: Arc<Nodes>,
    /// Whose events are about what: see [`JobSeen::events_of`].
    events_of: BTreeMap<String, TaskId>,
    /// Whose job objects and whose pods bear which UID, so that what is about one of them finds it at once.
    of_job: BTreeMap<String, TaskId>,
    of_pod: BTreeMap<String, TaskId>,
    /// Why operators could not make pods, by what those events are about. As many as jobs, and some that came before theirs.
    troubles: BTreeMap<String, String>,
    early: BTreeMap<String, String>,
    /// What kubelets say of making the containers of pods, by their UID.
    making: BTreeMap<String, Making>,
    /// Attempts with pods that end or are about to, until somebody looks at them.
    ending: BTreeSet<TaskId>,
    queues: Queues,
    places: Places,
}

/// Where objects are that no watch shows: those that went last.
#[derive(Default)]
struct Places {
    of: BTreeMap<TaskId, Place>,
    /// The oldest first.
    order: VecDeque<TaskId>,
}

impl Places {
    fn set(&mut self, task: &TaskId, place: Place) {
        if self.of.insert(task.clone(), place).is_none() {
            self.order.push_back(task.clone());
        }
        if self.order.len() > PLACES {
            self.order.pop_front().iter().for_each(|oldest| drop(self.of.remove(oldest)));
        }
    }
}

/// A replica whose container has printed, or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Printing {
    pub task: TaskId,
    pub replica: ReplicaName,
    pub namespace: String,
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    pub container: String,
    /// Its pod is being deleted: soon nothing can be fetched any more.
    pub ending: bool,
    /// Its container has ended.
    pub over: bool,
}

impl Printing {
    /// It is the first replica of its attempt: the master, the head.
    pub(super) fn is_first(&self) -> bool {
        names::KINDS.iter().any(|kind| ReplicaName::of_index(*kind, 0) == self.replica)
    }
}

/// What is known of one cluster.
pub(super) struct World {
    pub health: Health,
    state: Mutex<State>,
    hint: mpsc::Sender<TaskId>,
    ends: Notify,
}

impl World {
    pub(super) fn new(hint: mpsc::Sender<TaskId>) -> Self {
        Self { health: Health::default(), state: Mutex::default(), hint, ends: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change below is whole when it is made, so a panic elsewhere leaves nothing half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that an attempt may have changed.
    pub(super) fn hint(&self, task: &TaskId) {
        if self.hint.try_send(task.clone()).is_err() {
            tracing::debug!(%task, "no room for a hint; the driver looks by itself");
        }
    }

    /// Whether something of an attempt is there, or is remembered as the attempt is not gone yet.
    pub(super) fn is_there(&self, task: &TaskId) -> bool {
        let state = self.state();
        state.jobs.contains_key(task) || state.pods.contains_key(task)
    }

    /// The namespace of an attempt, where it was seen.
    pub(super) fn namespace_of(&self, task: &TaskId) -> Option<String> {
        let of_pod = || Some(self.state().pods.get(task)?.first()?.namespace.clone());
        self.place_of(task).map(|place| place.namespace).or_else(of_pod)
    }

    /// Where an attempt's object is, or was.
    pub(super) fn place_of(&self, task: &TaskId) -> Option<Place> {
        let state = self.state();
        state.jobs.get(task).map(Place::from).or_else(|| state.places.of.get(task).cloned())
    }

    /// Remembers the place of an object that no watch shows, and that it is gone: so that it is asked for once only.
    pub(super) fn set_place(&self, task: &TaskId, place: Place) {
        self.state().places.set(task, place);
    }

    /// All that is known of an attempt, and the nodes.
    pub(super) fn known(&self, task: &TaskId, now: Instant) -> (Known, Arc<Nodes>) {
        let state = self.state();
        let job = state.jobs.get(task).cloned();
        let trouble = job.as_ref().and_then(|job| state.troubles.get(&job.events_of).cloned());
        let queued = job.as_ref().map(|job| state.queues.of(job)).unwrap_or_default();
        let lasting = |making: &Making| (making.said.clone(), making.last.duration_since(making.since));
        let is_said = |making: &&Making| now.duration_since(making.last) < SAID_AGAIN;
        let pods = state.pods.get(task).into_iter().flatten().map(|pod| PodKnown {
            seen: pod.seen.clone(),
            gone: pod.gone,
            waited: pod.waits.as_ref().map_or(Duration::ZERO, |(_, since)| now.duration_since(*since)),
            withdrawn: pod.withdrawn,
            making: state.making.get(&pod.seen.uid).filter(is_said).map(lasting),
        });
        (Known { job, pods: pods.collect(), trouble, queued }, Arc::clone(&state.nodes))
    }

    /// The job objects that are there, of the lists that are whole and kept up to date.
    pub(super) fn present(&self, now: Instant) -> Vec<JobSeen> {
        let state = self.state();
        let jobs = |job: &JobSeen| Watched::Jobs(job.kind, job.namespace.clone());
        let is_seen = |job: &&JobSeen| self.health.blind_to(&jobs(job), now).is_none();
        state.jobs.values().filter(is_seen).cloned().collect()
    }

    /// The nodes, and what our pods hold of them.
    pub(super) fn nodes(&self) -> (Arc<Nodes>, BTreeMap<NodeName, Held>) {
        let state = self.state();
        let pods = state.pods.values().flatten().filter(|pod| !pod.gone && !pod.seen.is_over());
        (Arc::clone(&state.nodes), capacity::held(pods.map(|pod| &pod.seen)))
    }

    /// Whose output can be fetched, of all attempts.
    pub(super) fn printing(&self) -> Vec<Printing> {
        let state = self.state();
        state.pods.values().flat_map(|pods| printing(pods, &state.nodes)).collect()
    }

    /// The same of one attempt.
    pub(super) fn printing_of(&self, task: &TaskId) -> Vec<Printing> {
        let state = self.state();
        state.pods.get(task).map(|pods| printing(pods, &state.nodes)).unwrap_or_default()
    }

    /// A job object is there.
    pub(super) fn set_job(&self, job: JobSeen) {
        let task = job.task.clone();
        let mut state = self.state();
        if state.jobs.get(&task) == Some(&job) {
            return;
        }
        state.set_job(job);
        state.withdraw(&task);
        drop(state);
        self.hint(&task);
    }

    /// An answer had a job object. A watch that has shown it may have been faster than the answer, and knows what became of it since.
    pub(super) fn meet_job(&self, job: JobSeen) {
        let is_known = self.state().jobs.get(&job.task).is_some_and(|known| known.uid == job.uid);
        if !is_known {
            self.set_job(job);
        }
    }

    /// A job object is gone.
    pub(super) fn remove_job(&self, task: &TaskId, uid: &str) {
        let mut state = self.state();
        if state.jobs.get(task).is_some_and(|job| job.uid == uid) {
            state.remove_job(task);
            state.prune(task, &self.health);
            drop(state);
            self.hint(task);
        }
    }

    /// A full list of a namespace's job objects of a kind has ended: whatever is not in it is gone.
    pub(super) fn only_jobs(&self, kind: JobKind, namespace: &str, listed: &BTreeSet<String>) {
        let gone: Vec<_> = {
            let state = self.state();
            let of_list = state.jobs.values().filter(|job| job.kind == kind && job.namespace == namespace);
            let missing = of_list.filter(|job| !listed.contains(&job.uid));
            missing.map(|job| (job.task.clone(), job.uid.clone())).collect()
        };
        for (task, uid) in gone {
            self.remove_job(&task, &uid);
        }
    }

    /// A pod is there.
    pub(super) fn set_pod(&self, namespace: &str, seen: PodSeen, now: Instant) {
        let task = seen.task.clone();
        let ends = seen.deleting || seen.is_over();
        let mut state = self.state();
        let State { pods, of_pod, .. } = &mut *state;
        let pods = pods.entry(task.clone()).or_default();
        let is_full = pods.len() >= PODS;
        match pods.iter_mut().find(|pod| pod.seen.uid == seen.uid) {
            Some(pod) => {
                if !pod.take(seen, now) {
                    return;
                }
            }
            None if is_full => {
                tracing::warn!(%task, pod = seen.name, "too many pods of one attempt; this one is not looked at");
                return;
            }
            None => {
                of_pod.insert(seen.uid.clone(), task.clone());
                pods.push(PodEntry::new(seen, namespace, now));
            }
        }
        state.withdraw(&task);
        if ends {
            state.ending.insert(task.clone());
            self.ends.notify_one();
        }
        drop(state);
        self.hint(&task);
    }

    /// Waits for pods that end or are about to, and tells whose: what they printed can be had for a moment only.
    pub(super) async fn ending(&self) -> BTreeSet<TaskId> {
        loop {
            let ending = std::mem::take(&mut self.state().ending);
            if !ending.is_empty() {
                return ending;
            }
            self.ends.notified().await;
        }
    }

    /// A pod is gone; its last state stays.
    pub(super) fn remove_pod(&self, task: &TaskId, uid: &str) {
        let mut state = self.state();
        let pods = state.pods.get_mut(task).into_iter().flatten();
        let Some(pod) = pods.into_iter().find(|pod| pod.seen.uid == uid && !pod.gone) else { return };
        pod.gone = true;
        state.making.remove(uid);
        state.withdraw(task);
        state.prune(task, &self.health);
        drop(state);
        self.hint(task);
    }

    /// A full list of a namespace's pods has ended: whatever is not in it is gone.
    pub(super) fn only_pods(&self, namespace: &str, listed: &BTreeSet<String>) {
        let gone: Vec<_> = {
            let state = self.state();
            let pods = state.pods.values().flatten();
            let missing =
                pods.filter(|pod| pod.namespace == namespace && !pod.gone && !listed.contains(&pod.seen.uid));
            missing.map(|pod| (pod.seen.task.clone(), pod.seen.uid.clone())).collect()
        };
        for (task, uid) in gone {
            self.remove_pod(&task, &uid);
        }
    }

    /// A node is there. Whoever runs on it is told where that changes what its pods mean.
    pub(super) fn set_node(&self, name: NodeName, node: NodeSeen) {
        let mut state = self.state();
        if state.nodes.get(&name) == Some(&node) {
            return;
        }
        let before = Arc::make_mut(&mut state.nodes).insert(name.clone(), node.clone());
        let changed =
            before.is_none_or(|before| (before.ready, before.driven_out) != (node.ready, node.driven_out));
        let tasks = if changed { state.tasks_on(&name) } else { BTreeSet::new() };
        drop(state);
        tasks.iter().for_each(|task| self.hint(task));
    }

    /// A node is gone.
    pub(super) fn remove_node(&self, name: &NodeName) {
        let mut state = self.state();
        Arc::make_mut(&mut state.nodes).remove(name);
        let tasks = state.tasks_on(name);
        drop(state);
        tasks.iter().for_each(|task| self.hint(task));
    }

    /// A full list of nodes has ended.
    pub(super) fn only_nodes(&self, listed: &BTreeSet<String>) {
        let gone: Vec<_> =
            self.state().nodes.keys().filter(|name| !listed.contains(name.as_str())).cloned().collect();
        for name in gone {
            self.remove_node(&name);
        }
    }

    /// The operator could not make a pod of a job object, whose events are about this.
    pub(super) fn set_trouble(&self, events_of: String, words: String) {
        let mut state = self.state();
        let Some(task) = state.events_of.get(&events_of).cloned() else {
            // What is let go is told again when the events are next listed.
            if state.early.len() >= EARLY_TROUBLES {
                state.early.clear();
            }
            state.early.insert(events_of, words);
            return;
        };
        let is_news = state.troubles.get(&events_of) != Some(&words);
        state.troubles.insert(events_of, words);
        drop(state);
        if is_news {
            self.hint(&task);
        }
    }

    /// A kubelet could not make the containers of a pod; `version` of the event in which it says so.
    pub(super) fn set_making(&self, uid: String, mut said: Said, version: String, now: Instant) {
        let mut state = self.state();
        if state.making.len() >= TROUBLES && !state.making.contains_key(&uid) {
            let State { making, of_pod, .. } = &mut *state;
            making.retain(|uid, _| of_pod.contains_key(uid));
            if making.len() >= TROUBLES {
                return;
            }
        }
        let known = state.making.get(&uid);
        // A list brings events again that were told before.
        if known.is_some_and(|known| known.version == version) {
            return;
        }
        let known = known
            .filter(|known| known.said.reason == said.reason && now.duration_since(known.last) < SAID_AGAIN);
        let since = known.map_or(now, |known| known.since);
        let known = known.map(|known| known.said.clone());
        if let Some(known) = known.as_ref().filter(|_| said.message.starts_with("Unable to attach or mount"))
        {
            // What it says now and then of all volumes together, without why.
            said = known.clone();
        }
        let is_news = known.is_none_or(|known| known != said);
        let task = state.of_pod.get(&uid).filter(|_| is_news).cloned();
        state.making.insert(uid, Making { said, version, since, last: now });
        drop(state);
        task.iter().for_each(|task| self.hint(task));
    }

    /// Changes what is known of queueing systems; `change` answers whose it is about.
    pub(super) fn change_queues(&self, change: impl FnOnce(&mut Queues) -> Vec<String>) {
        let mut state = self.state();
        let State { queues, of_job, events_of, .. } = &mut *state;
        queues.make_room(of_job.len(), |owner| of_job.contains_key(owner) || events_of.contains_key(owner));
        let owners = change(queues);
        let of_owner = |owner: &String| [of_job.get(owner), events_of.get(owner)];
        let tasks: BTreeSet<_> = owners.iter().flat_map(of_owner).flatten().cloned().collect();
        drop(state);
        tasks.iter().for_each(|task| self.hint(task));
    }

    /// Kueue's queues in which jobs of a namespace stand.
    pub(super) fn queues_of(&self, namespace: &str) -> BTreeSet<String> {
        let state = self.state();
        let jobs = state.jobs.values().filter(|job| job.namespace == namespace);
        let workloads = jobs.filter_map(|job| state.queues.workloads.get(&job.uid));
        workloads
            .filter(|seen| seen.is_pending() && !seen.queue.is_empty())
            .map(|seen| seen.queue.clone())
            .collect()
    }
}

/// Of the pods of one attempt, those whose output can be fetched: the first pod of each replica that runs the program, while it is there
/// and once it has had a container. A node that is not heard gives none, and asking it takes as long as one is willing to wait.
fn printing(pods: &[PodEntry], nodes: &Nodes) -> Vec<Printing> {
    let mut first = BTreeSet::new();
    let of_replicas = pods.iter().filter_map(|pod| {
        let replica = pod.seen.replica.as_ref()?;
        first.insert(replica).then_some((pod, replica))
    });
    let has_printed =
        |seen: &PodSeen| matches!(seen.main, ContainerSeen::Running | ContainerSeen::Ended { .. });
    let is_heard = |seen: &PodSeen| {
        let node = seen.node.as_ref().and_then(|name| nodes.get(name));
        node.is_none_or(|node| node.heard)
    };
    of_replicas
        .filter(|(pod, _)| !pod.gone && has_printed(&pod.seen) && is_heard(&pod.seen))
        .map(|(pod, replica)| Printing {
            task: pod.seen.task.clone(),
            replica: replica.clone(),
            namespace: pod.namespace.clone(),
            pod: pod.seen.name.clone(),
            uid: pod.seen.uid.clone(),
            container: pod.seen.container.clone(),
            ending: pod.deleting,
            over: pod.seen.is_over(),
        })
        .collect()
}

impl State {
    /// Takes a job object, and the trouble that was told of it before it was known.
    fn set_job(&mut self, job: JobSeen) {
        let before = self.jobs.get(&job.task);
        let is_same = before.is_some_and(|before| before.events_of == job.events_of && before.uid == job.uid);
        if !is_same {
            self.remove_job(&job.task);
            if let Some(words) = self.early.remove(&job.events_of) {
                self.troubles.insert(job.events_of.clone(), words);
            }
            // That of a Ray job is not known before its cluster is.
            if !job.events_of.is_empty() {
                self.events_of.insert(job.events_of.clone(), job.task.clone());
            }
        }
        self.of_job.insert(job.uid.clone(), job.task.clone());
        self.jobs.insert(job.task.clone(), job);
    }

    fn remove_job(&mut self, task: &TaskId) {
        if let Some(job) = self.jobs.remove(task) {
            self.places.set(task, Place::from(&job));
            self.of_job.remove(&job.uid);
            self.events_of.remove(&job.events_of);
            self.troubles.remove(&job.events_of);
        }
    }

    /// Notes which pods of an attempt go because it is suspended. They are remembered until it goes on, as they tell that others
    /// follow. Those that are made later are not among them. Forgets those that tell nothing any more.
    fn withdraw(&mut self, task: &TaskId) {
        let job = self.jobs.get(task);
        let is_suspended = job.is_some_and(|job| job.is("Suspended"));
        // Ray's workers come and go for as long as the job runs, see `ray::matters`.
        let is_submitted = job.is_some_and(|job| job.submitted);
        let Some(pods) = self.pods.get_mut(task) else { return };
        for pod in pods.iter_mut().filter(|pod| job.is_some_and(|job| job.withdraws(&pod.seen))) {
            pod.withdrawn |= pod.gone || pod.deleting;
        }
        let tells = |pod: &PodEntry| !(pod.withdrawn || is_submitted && pod.seen.replica.is_none());
        self.keep_pods(task, |pod| is_suspended || !pod.gone || tells(pod));
    }

    /// Forgets the pods of an attempt, except those that stay.
    fn keep_pods(&mut self, task: &TaskId, stays: impl Fn(&PodEntry) -> bool) {
        let Some(pods) = self.pods.get_mut(task) else { return };
        for pod in pods.iter().filter(|pod| !stays(pod)) {
            self.of_pod.remove(&pod.seen.uid);
        }
        pods.retain(|pod| stays(pod));
        if pods.is_empty() {
            self.pods.remove(task);
        }
    }

    /// Forgets an attempt of which nothing is left.
    fn prune(&mut self, task: &TaskId, health: &Health) {
        let pods = self.pods.get(task);
        let Some(first) = pods.and_then(|pods| pods.first()) else { return };
        // Before the first full list a job that is not known may well be there.
        let jobs = Watched::Jobs(first.seen.kind, first.namespace.clone());
        let is_empty = pods.into_iter().flatten().all(|pod| pod.gone);
        if health.is_synced(&jobs) && is_empty && !self.jobs.contains_key(task) {
            self.keep_pods(task, |_| false);
        }
    }

    fn tasks_on(&self, node: &NodeName) -> BTreeSet<TaskId> {
        let pods =
            self.pods.values().flatten().filter(|pod| !pod.gone && pod.seen.node.as_ref() == Some(node));
        pods.map(|pod| pod.seen.task.clone()).collect()
    }
}

impl PodEntry {
    fn new(seen: PodSeen, namespace: &str, now: Instant) -> Self {
        let waits = seen.waiting().map(|said| (said.clone(), now));
        let (namespace, deleting) = (namespace.to_owned(), seen.deleting);
        Self { seen, namespace, gone: false, deleting, withdrawn: false, waits }
    }

    /// Takes a newer state; answers whether it is news.
    fn take(&mut self, seen: PodSeen, now: Instant) -> bool {
        let goes = seen.deleting && !self.deleting;
        self.deleting |= goes;
        // How it ended stays, whatever is done with the pod afterwards: a node that is drained later did not end it.
        if self.seen == seen || (self.seen.is_over() && self.seen.disruption.is_none() && !self.seen.deleting)
        {
            return goes;
        }
        // A container alternates between the words for trying and for waiting to try again; that is one trouble.
        self.waits = match (seen.waiting(), self.waits.take()) {
            (Some(said), Some((_, since))) => Some((said.clone(), since)),
            (Some(said), None) => Some((said.clone(), now)),
            (None, _) => None,
        };
        self.seen = seen;
        true
    }
}

#[cfg(test)]
#[path = "tests/world.rs"]
mod tests;
