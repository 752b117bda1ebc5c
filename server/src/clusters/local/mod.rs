//! The local cluster: virtual nodes with slots on this machine, replicas as real processes under the agent.
//!
//! Its truth is on disk and in the process table, not in the server's memory: an attempt is a directory with an
//! `attempt.json` (the order, its place in the queue, where each replica runs, what has ended), and a replica that runs is an agent
//! process that carries the names of its attempt and replica in its environment. So replicas keep running while the server is away and are adopted
//! when it comes back.
//!
//! [`start`] places attempts and starts their replicas, [`end`] sees to their end.
//!
//! ```text
//! <data>/jobs/<job>/checkpoint_dir                   the directory its program saves in
//! <data>/jobs/<job>/<task>/attempt.json              while the attempt exists on the cluster
//! <data>/jobs/<job>/<task>/<replica>/agent.log       what the agent says
//! <data>/jobs/<job>/<task>/<replica>/agent.process   which process it is
//! <data>/jobs/<job>/<task>/<replica>/launch-<n>.log  what the program printed; the agent writes it
//! <data>/trash                                       directories of forgotten jobs, until they are removed
//! ```

mod disk;
mod end;
mod place;
mod processes;
mod replica;
mod start;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use engine::{
    chain::{EndReason, Observation, ReplicaObservation, ReplicaStatus},
    ids::{JobId, NodeName, ReplicaName, TaskId},
    job::{ClusterKind, JobKind, JobSpec, SiteCluster},
};
use tokio::sync::{Mutex, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    disk::{Attempt, Layout},
    processes::Process,
};
use super::{Cluster, ClusterError, Node, Order};

/// Attempts that may wait or run at once; far above what one machine can run.
const MAX_ATTEMPTS: usize = 10_000;
/// Hints that wait to be read; one that finds no room is dropped, as the driver also looks by itself.
const HINTS: usize = 1024;

/// What the local cluster is made of.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Its configured name.
    pub name: String,
    /// The server's data directory, absolute.
    pub data_dir: PathBuf,
    /// How many nodes: `node-1` and up.
    pub nodes: u32,
    /// Slots of each; a replica takes one for each accelerator, at least one.
    pub slots_per_node: u32,
    /// The agent's program.
    pub agent_program: PathBuf,
    /// The file that holds the server's address; agents read it again whenever they connect.
    pub server_file: PathBuf,
}

impl LocalConfig {
    /// What validation needs to know of this cluster.
    pub fn site(&self) -> SiteCluster {
        SiteCluster {
            name: self.name.clone(),
            kind: ClusterKind::Local,
            max_slots_per_node: Some(self.slots_per_node),
            total_slots: Some(self.slots_per_node.saturating_mul(self.nodes)),
            allows_host_paths: false,
            namespaces: Vec::new(),
        }
    }
}

/// Why the local cluster could not start.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A file or directory of the cluster could not be read or written.
    #[error("could not {doing} {path}")]
    Disk {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path} does not describe an attempt; move it away if it is not Holdfast's")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The node names could not be made.
    #[error("cannot name the nodes of the local cluster")]
    Names(#[source] engine::ids::InvalidId),
}

/// The local cluster.
pub struct LocalCluster {
    config: LocalConfig,
    layout: Layout,
    nodes: Vec<NodeName>,
    state: Mutex<State>,
    hint: mpsc::Sender<TaskId>,
    hints: std::sync::Mutex<Option<mpsc::Receiver<TaskId>>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

#[derive(Default)]
struct State {
    /// Attempts that exist on this cluster.
    attempts: BTreeMap<TaskId, Entry>,
    /// The next place in the queue.
    next_ordinal: u64,
    /// Nodes that are kept out for every job; none until that was told, and then each attempt keeps off what it was made to.
    kept_out: Option<BTreeSet<NodeName>>,
    /// An attempt was placed and that could not be written down: it is placed again at the next look.
    unwritten: bool,
}

struct Entry {
    attempt: Attempt,
    /// Agents that run now.
    agents: HashMap<ReplicaName, Process>,
    /// Processes of replicas that are over which nothing could end. They hold the replica's slots until they are gone.
    leftovers: HashMap<ReplicaName, Vec<Process>>,
    /// Its removal is under way.
    deleting: bool,
}

impl LocalCluster {
    /// Opens the cluster and adopts the replicas that an earlier server left running. From `shutdown` on it begins nothing and leaves
    /// what runs as it is.
    ///
    /// # Errors
    /// Where the data directory cannot be read or written.
    pub async fn new(config: LocalConfig, shutdown: CancellationToken) -> Result<Arc<Self>, LocalError> {
        let nodes = (1..=config.nodes)
            .map(|number| NodeName::new(format!("node-{number}")))
            .collect::<Result<Vec<_>, _>>()
            .map_err(LocalError::Names)?;
        let layout = Layout::new(config.data_dir.clone());
        let (hint, hints) = mpsc::channel(HINTS);
        let cluster = Arc::new(Self {
            config,
            layout,
            nodes,
            state: Mutex::new(State::default()),
            hint,
            hints: std::sync::Mutex::new(Some(hints)),
            tasks: TaskTracker::new(),
            shutdown: shutdown.clone(),
        });
        let trash = cluster.layout.trash().await?;
        cluster.tasks.spawn(disk::empty(trash));
        cluster.adopt().await?;
        cluster.tasks.spawn(end::look_again(Arc::downgrade(&cluster), shutdown));
        Ok(cluster)
    }

    /// Returns once its tasks have ended after `shutdown`. Replicas run on.
    pub async fn stopped(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Reads what is on disk and finds the agents that still run.
    async fn adopt(self: &Arc<Self>) -> Result<(), LocalError> {
        let attempts = self.layout.read_attempts().await?;
        let running = processes::agents().await;
        let mut unstarted = Vec::new();
        let mut state = self.state.lock().await;
        for mut attempt in attempts {
            let mut agents = HashMap::new();
            for replica in attempt.placement.keys() {
                let key = (attempt.task_id.clone(), replica.clone());
                let recorded = self.layout.recorded(&attempt, replica).await;
                let is_it = |process: &&Process| recorded.as_ref().is_none_or(|known| process.is(known));
                match running.get(&key).and_then(|found| found.iter().find(is_it)) {
                    _ if attempt.ended.contains_key(replica) => {}
                    Some(process) => {
                        agents.insert(replica.clone(), process.clone());
                    }
                    // Placed, but the earlier server did not come to start it.
                    None if !self.layout.was_started(&attempt, replica).await => {}
                    None => {
                        let text = "its agent was gone when the server came back".to_owned();
                        attempt.ended.insert(
                            replica.clone(),
                            ReplicaStatus::Ended { exit: None, reason: EndReason::Lost(text) },
                        );
                    }
                }
            }
            if agents.len() + attempt.ended.len() < attempt.placement.len() {
                unstarted.push(attempt.task_id.clone());
            }
            state.next_ordinal = state.next_ordinal.max(attempt.ordinal + 1);
            tracing::info!(task_id = %attempt.task_id, agents = agents.len(), "adopted an attempt");
            state.attempts.insert(attempt.task_id.clone(), Entry::new(attempt, agents));
        }
        self.end_leftovers(&mut state).await;
        self.begin(state, unstarted).await;
        Ok(())
    }

    /// Writes the attempt down and starts it where there is room.
    async fn make(self: &Arc<Self>, order: &Order) -> Result<(), ClusterError> {
        let mut state = self.state.lock().await;
        if state.attempts.contains_key(&order.plan.task_id) {
            return Ok(());
        }
        if state.attempts.len() >= MAX_ATTEMPTS {
            let text = format!(
                "{MAX_ATTEMPTS} attempts wait or run here already; that is the limit of the local cluster"
            );
            return Err(ClusterError::Refused { text });
        }
        let directories = self.layout.prepare(order).await.map_err(|error| match error {
            disk::Prepare::Refused(text) => ClusterError::Refused { text },
            disk::Prepare::Disk(source) => self.unreachable("preparing the attempt's directory", source),
        })?;
        let attempt = Attempt::new(order, state.next_ordinal, directories);
        self.layout
            .write(&attempt)
            .await
            .map_err(|source| self.unreachable("writing the attempt down", source))?;
        state.next_ordinal += 1;
        state.attempts.insert(attempt.task_id.clone(), Entry::new(attempt, HashMap::new()));
        self.begin(state, Vec::new()).await;
        self.hint(&order.plan.task_id);
        Ok(())
    }

    fn hint(&self, task: &TaskId) {
        if self.hint.try_send(task.clone()).is_err() {
            tracing::debug!(%task, "no room for a hint; the driver looks by itself");
        }
    }

    fn unreachable(&self, doing: &'static str, source: impl Into<anyhow::Error>) -> ClusterError {
        ClusterError::Unreachable { cluster: self.config.name.clone(), doing, source: source.into() }
    }
}

impl Entry {
    fn new(attempt: Attempt, agents: HashMap<ReplicaName, Process>) -> Self {
        Self { attempt, agents, leftovers: HashMap::new(), deleting: false }
    }

    fn waits(&self) -> bool {
        self.attempt.placement.is_empty() && !self.deleting
    }
}

#[async_trait]
impl Cluster for Arc<LocalCluster> {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn kind(&self) -> ClusterKind {
        ClusterKind::Local
    }

    async fn create(&self, order: &Order) -> Result<(), ClusterError> {
        // In a task of its own: whoever stops waiting for it must not leave an attempt that is placed and never started.
        let (cluster, order) = (Arc::clone(self), order.clone());
        let made = self.tasks.spawn(async move { cluster.make(&order).await }).await;
        made.unwrap_or_else(|why| Err(self.unreachable("creating an attempt", why)))
    }

    async fn delete(
        &self,
        task: &TaskId,
        _: JobKind,
        _: Option<&str>,
        force: bool,
    ) -> Result<Option<String>, ClusterError> {
        let mut state = self.state.lock().await;
        match state.attempts.get_mut(task) {
            None => self.hint(task),
            Some(entry) if entry.deleting && !force => {}
            Some(entry) => {
                entry.deleting = true;
                self.tasks.spawn(Arc::clone(self).remove(task.clone(), force));
            }
        }
        Ok(None)
    }

    async fn observe(&self, task: &TaskId, _: JobKind, _: Option<&str>) -> Result<Observation, ClusterError> {
        let state = self.state.lock().await;
        let Some(entry) = state.attempts.get(task) else { return Ok(Observation::Absent) };
        if let Some(queue) = entry.attempt.queue.clone().filter(|_| entry.attempt.placement.is_empty()) {
            return Ok(Observation::Waiting(queue));
        }
        let replicas = entry.attempt.placement.iter().map(|(replica, node)| {
            let status = match entry.attempt.ended.get(replica) {
                Some(ended) => ended.clone(),
                None if entry.agents.contains_key(replica) => ReplicaStatus::Running,
                None => ReplicaStatus::Pending(None),
            };
            (replica.clone(), ReplicaObservation { node: Some(node.clone()), status })
        });
        Ok(Observation::Placed { replicas: replicas.collect() })
    }

    async fn keep_out(&self, nodes: &BTreeSet<NodeName>) {
        let mut state = self.state.lock().await;
        if state.kept_out.as_ref() != Some(nodes) {
            state.kept_out = Some(nodes.clone());
            drop(state);
            // In a task of its own, as a creation is.
            let cluster = Arc::clone(self);
            self.tasks.spawn(async move { cluster.begin(cluster.state.lock().await, Vec::new()).await });
        }
    }

    async fn nodes(&self) -> Result<Vec<Node>, ClusterError> {
        let state = self.state.lock().await;
        let free = self.free_slots(&state);
        Ok(self
            .nodes
            .iter()
            .map(|name| {
                let mut tasks: Vec<_> = state
                    .attempts
                    .values()
                    .filter(|entry| {
                        entry
                            .attempt
                            .placement
                            .iter()
                            .any(|(r, node)| node == name && !entry.attempt.ended.contains_key(r))
                    })
                    .map(|entry| entry.attempt.task_id.clone())
                    .collect();
                tasks.sort();
                let slots = self.config.slots_per_node;
                Node { name: name.clone(), slots, used: slots - free.free_on(name), tasks }
            })
            .collect())
    }

    /// A server that was started with fewer nodes lacks some.
    fn closed(&self, nodes: &BTreeSet<NodeName>) -> BTreeMap<NodeName, String> {
        let lacks = nodes.iter().filter(|node| !self.nodes.contains(node));
        lacks.map(|node| (node.clone(), "is not in the cluster".to_owned())).collect()
    }

    async fn forget(&self, job: &JobId, spec: &JobSpec, tasks: &[TaskId]) -> Result<(), ClusterError> {
        let state = self.state.lock().await;
        if let Some(task) = tasks.iter().find(|task| state.attempts.contains_key(*task)) {
            return Err(
                self.unreachable("forgetting a job", anyhow::anyhow!("attempt {task} is still there"))
            );
        }
        self.layout
            .forget(job, spec)
            .await
            .map_err(|source| self.unreachable("removing a job's files", source))
    }

    fn hints(&self) -> Option<mpsc::Receiver<TaskId>> {
        self.hints.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

/// A path given by a job: absolute as it is, relative below `base`.
fn below(base: &Path, path: &str) -> PathBuf {
    base.join(path)
}

#[cfg(test)]
mod tests;
