//! From the queue to running replicas.

use std::sync::Arc;

use engine::{
    chain::{EndReason, ReplicaStatus},
    ids::{ReplicaName, TaskId},
    record::{Queue, QueueReason},
};
use futures::{FutureExt, future::BoxFuture};
use tokio::sync::MutexGuard;

use super::{
    LocalCluster, State,
    disk::Attempt,
    place::{self, Slots},
    replica,
};

impl LocalCluster {
    /// Places what waits and starts it, and the replicas of `unstarted`, which were placed before. Nothing once the server stops: the
    /// next one begins it. All that runs was begun here.
    pub(super) async fn begin(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        mut unstarted: Vec<TaskId>,
    ) {
        if self.shutdown.is_cancelled() {
            return;
        }
        unstarted.extend(self.place_waiting(&mut state).await);
        drop(state);
        self.start_all(unstarted).await;
    }

    /// Gives slots to attempts in the order of the queue and writes that down; their replicas are started afterwards.
    async fn place_waiting(&self, state: &mut State) -> Vec<TaskId> {
        let mut slots = self.free_slots(state);
        let kept_out = state.kept_out.clone();
        state.unwritten = false;
        let mut order: Vec<_> = state
            .attempts
            .values()
            .filter(|entry| entry.waits())
            .map(|e| (e.attempt.ordinal, e.attempt.task_id.clone()))
            .collect();
        order.sort();
        let mut placed = Vec::new();
        let mut position = 0;
        let mut blocked = false;
        for (_, task) in order {
            let Some(entry) = state.attempts.get_mut(&task) else { continue };
            position += 1;
            let order = &entry.attempt.order;
            let wanted = place::Wanted::of(&order.spec, &order.plan, kept_out.as_ref());
            // An attempt that is bound to its nodes can use no others: it holds nobody up for them, and nobody else holds it up.
            let is_bound = !wanted.only.is_empty();
            let placement = if blocked && !is_bound { None } else { slots.place(&wanted) };
            let waited_for = entry.attempt.queue.clone();
            match placement {
                Some(placement) => {
                    entry.attempt.placement = wanted.replicas.iter().cloned().zip(placement).collect();
                    entry.attempt.queue = None;
                }
                None => {
                    let queue = slots.why(&wanted, position);
                    // Others go first only past an attempt whose own exclusions or nodes keep it waiting.
                    blocked |= queue.reason == QueueReason::Busy && !is_bound;
                    if waited_for.as_ref() == Some(&queue) {
                        continue;
                    }
                    entry.attempt.queue = Some(queue);
                    self.hint(&task);
                }
            }
            let written = self.layout.write(&entry.attempt).await;
            let cause = written.err().map(|error| format!("{:#}", anyhow::Error::from(error)));
            match (cause, entry.attempt.placement.is_empty()) {
                (None, true) => {}
                (None, false) => placed.push(task),
                (Some(cause), true) => {
                    tracing::warn!(task_id = %task, error = cause, "could not write down why an attempt waits; a server that starts finds it out again");
                }
                (Some(cause), false) => {
                    // What is not written down must not run: a server that came back would not know it.
                    for node in std::mem::take(&mut entry.attempt.placement).values() {
                        slots.give(node, wanted.slots);
                    }
                    state.unwritten = true;
                    let text = format!("it fits, but {cause}; it is tried again");
                    let queue =
                        Queue { reason: QueueReason::Constraints, text, ..slots.why(&wanted, position) };
                    if waited_for.as_ref() != Some(&queue) {
                        tracing::error!(task_id = %task, error = cause, "could not write an attempt down; it waits");
                        self.hint(&task);
                    }
                    entry.attempt.queue = Some(queue);
                }
            }
        }
        placed
    }

    pub(super) fn free_slots(&self, state: &State) -> Slots {
        let mut slots = Slots::new(&self.nodes, self.config.slots_per_node);
        for entry in state.attempts.values() {
            let each = place::slots_of(&entry.attempt.order.spec);
            for (replica, node) in &entry.attempt.placement {
                let is_over = entry.attempt.ended.contains_key(replica);
                if !is_over || entry.leftovers.contains_key(replica) {
                    slots.take(node, each);
                }
            }
        }
        slots
    }

    /// Starts the replicas of attempts that have just been placed. Boxed, as the end of one replica may start others.
    fn start_all(self: &Arc<Self>, tasks: Vec<TaskId>) -> BoxFuture<'_, ()> {
        async move {
            for task in tasks {
                let (attempt, missing) = {
                    let state = self.state.lock().await;
                    let Some(entry) = state.attempts.get(&task) else { continue };
                    let is_due = |replica: &&ReplicaName| {
                        !entry.agents.contains_key(*replica) && !entry.attempt.ended.contains_key(*replica)
                    };
                    (
                        entry.attempt.clone(),
                        entry.attempt.placement.keys().filter(is_due).cloned().collect::<Vec<_>>(),
                    )
                };
                for replica in missing {
                    // The server may stop meanwhile; what is placed and not started is started by the next one.
                    if self.shutdown.is_cancelled() {
                        return;
                    }
                    self.start(&attempt, &replica).await;
                }
                self.hint(&task);
            }
        }
        .boxed()
    }

    async fn start(self: &Arc<Self>, attempt: &Attempt, replica: &ReplicaName) {
        match replica::spawn(&self.config, &self.layout, attempt, replica).await {
            Ok((process, mut child)) => {
                if let Err(error) = self.layout.record(attempt, replica, &process).await {
                    tracing::warn!(task_id = %attempt.task_id, %replica, %error, "could not write down which process an agent is");
                }
                let mut state = self.state.lock().await;
                match state.attempts.get_mut(&attempt.task_id).filter(|entry| !entry.deleting) {
                    Some(entry) => {
                        entry.agents.insert(replica.clone(), process.clone());
                    }
                    // Removed while it was being started.
                    None => process.kill(),
                }
                drop(state);
                let cluster = Arc::downgrade(self);
                let (task, replica) = (attempt.task_id.clone(), replica.clone());
                let shutdown = self.shutdown.clone();
                self.tasks.spawn(async move {
                    let status = tokio::select! {
                        status = child.wait() => status,
                        // It runs on, and the next server adopts it.
                        () = shutdown.cancelled() => return,
                    };
                    if let Some(cluster) = cluster.upgrade() {
                        cluster.ended(&task, &replica, replica::end_of(status)).await;
                    }
                });
            }
            Err(error) => {
                tracing::error!(task_id = %attempt.task_id, %replica, error = %format!("{error:#}"), "could not start a replica");
                let reason = EndReason::StartError(format!("{error:#}"));
                self.ended(&attempt.task_id, replica, ReplicaStatus::Ended { exit: None, reason }).await;
            }
        }
    }
}
