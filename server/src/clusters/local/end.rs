//! The end of replicas and attempts: nothing of them may stay behind, and what cannot be ended is kept in sight.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use engine::{
    chain::{EndReason, ReplicaStatus},
    ids::{ReplicaName, TaskId},
};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use super::{
    LocalCluster, State,
    processes::{self, Process},
};

/// How long an agent has to end its processes and itself before it is killed: its own grace of 10 s and some.
const AGENT_STOP_LIMIT: Duration = Duration::from_secs(15);
/// How often is looked for what nobody announces: the end of adopted agents and of leftovers, and room on a disk that was full.
const LOOK: Duration = Duration::from_millis(500);
/// Replicas whose processes are looked for at the same time; each look reads the whole process table.
const LOOKS: usize = 16;

impl LocalCluster {
    /// An agent is gone: nothing of its replica may stay, its slots are free.
    pub(super) async fn ended(self: &Arc<Self>, task: &TaskId, replica: &ReplicaName, status: ReplicaStatus) {
        let left = processes::kill_all_of(task, Some(replica)).await;
        let mut state = self.state.lock().await;
        let Some(entry) = state.attempts.get_mut(task) else { return };
        entry.agents.remove(replica);
        entry.attempt.ended.entry(replica.clone()).or_insert(status);
        if !left.is_empty() {
            entry.leftovers.insert(replica.clone(), left);
        }
        if let Err(error) = self.layout.write(&entry.attempt).await {
            // Not fatal: after a restart the agent is found to be gone just the same.
            tracing::warn!(%task, %replica, %error, "could not write down that a replica ended");
        }
        self.hint(task);
        self.begin(state, Vec::new()).await;
    }

    /// The same for all replicas that an earlier server saw end, or that ended while none looked: what it could not end, or did not
    /// come to end, may still be there. At the same time, so that a start takes no longer than the slowest of them.
    pub(super) async fn end_leftovers(&self, state: &mut State) {
        let ended = state.attempts.iter().flat_map(|(task, entry)| {
            entry.attempt.ended.keys().map(|replica| (task.clone(), replica.clone()))
        });
        let looks = ended.map(|(task, replica)| async move {
            let left = processes::kill_all_of(&task, Some(&replica)).await;
            (task, replica, left)
        });
        let looked: Vec<_> = futures::stream::iter(looks).buffer_unordered(LOOKS).collect().await;
        for (task, replica, left) in looked.into_iter().filter(|(_, _, left)| !left.is_empty()) {
            if let Some(entry) = state.attempts.get_mut(&task) {
                entry.leftovers.insert(replica, left);
            }
        }
    }

    /// Stops all agents of an attempt, removes what is left of it and forgets it.
    pub(super) async fn remove(self: Arc<Self>, task: TaskId, force: bool) {
        let agents: Vec<Process> = {
            let state = self.state.lock().await;
            let entry = state.attempts.get(&task);
            entry.map(|entry| entry.agents.values().cloned().collect()).unwrap_or_default()
        };
        if !force {
            agents.iter().for_each(Process::terminate);
            tokio::select! {
                () = processes::wait_gone(&agents, AGENT_STOP_LIMIT) => {}
                // The next server is asked to remove it again.
                () = self.shutdown.cancelled() => return,
            }
        }
        agents.iter().for_each(Process::kill);
        processes::wait_gone(&agents, AGENT_STOP_LIMIT).await;
        let mut left = processes::kill_all_of(&task, None).await;
        left.extend(agents.into_iter().filter(Process::is_alive));
        self.removed(&task, &left).await;
    }

    /// Forgets an attempt of which nothing is left. One with processes that cannot be ended stays as it is: its slots are not free,
    /// and the next call of delete tries again.
    pub(super) async fn removed(self: &Arc<Self>, task: &TaskId, left: &[Process]) {
        let mut state = self.state.lock().await;
        if let Some(entry) = state.attempts.get_mut(task) {
            if !left.is_empty() {
                tracing::error!(%task, processes = ?left, "an attempt is not removed: some of its processes cannot be ended");
                entry.deleting = false;
                return;
            }
            if let Err(error) = self.layout.remove_attempt(&entry.attempt).await {
                tracing::error!(%task, %error, "could not remove an attempt");
                entry.deleting = false;
                return;
            }
            state.attempts.remove(task);
        }
        self.hint(task);
        self.begin(state, Vec::new()).await;
    }

    async fn look(self: &Arc<Self>) {
        let adopted: Vec<_> = {
            let state = self.state.lock().await;
            let agents = state.attempts.iter().flat_map(|(task, entry)| {
                entry.agents.iter().map(move |(replica, process)| (task, replica, process))
            });
            let adopted = agents.filter(|(_, _, process)| process.adopted);
            adopted.map(|(task, replica, process)| (task.clone(), replica.clone(), process.clone())).collect()
        };
        for (task, replica, _) in adopted.into_iter().filter(|(_, _, process)| !process.is_alive()) {
            let text =
                "its agent ended; its exit code is unknown, as an earlier server had started it".to_owned();
            let status = ReplicaStatus::Ended { exit: None, reason: EndReason::Lost(text) };
            self.ended(&task, &replica, status).await;
        }
        let mut state = self.state.lock().await;
        let mut room = state.unwritten;
        for entry in state.attempts.values_mut() {
            let before = entry.leftovers.len();
            entry.leftovers.retain(|_, processes| processes.iter().any(Process::is_alive));
            room |= entry.leftovers.len() < before;
        }
        if room {
            self.begin(state, Vec::new()).await;
        }
    }
}

/// Looks after what nobody tells of.
pub(super) async fn look_again(cluster: Weak<LocalCluster>, shutdown: CancellationToken) {
    let mut tick = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = tick.tick() => {}
        }
        let Some(cluster) = cluster.upgrade() else { return };
        cluster.look().await;
    }
}
