//! Keeps the nodes of clusters: strikes become quarantines, quarantines end by their time, and clusters that place attempts by themselves
//! are told which nodes are out.
//!
//! Every server keeps: what follows from what is kept is the same for all of them, and a generation lets one writer win. So no lead is
//! needed, and whatever dies is made up for by the next look of any of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use engine::{
    chain::Request,
    ids::{JobId, NodeName, TaskId},
    nodes::standing::{Cap, Change, NodeRules, Ward, review},
    time::Time,
};
use futures::future::join_all;
use sqlx::AnyConnection;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    clusters::{Cluster, Node, count_of, nodes_of},
    service::Drives,
    store::{
        self, Store, StoreError, Write, inbox,
        wards::{self, Entry, KeptWard},
    },
};

/// How often each cluster's nodes are looked at. Strikes and ends of quarantines are acted on within this time.
const LOOK_SECONDS: u64 = 2;

/// What keeps nodes.
pub struct Keeper {
    /// Where everything is kept.
    pub store: Store,
    /// Clusters by their configured name.
    pub clusters: BTreeMap<String, Arc<dyn Cluster>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Who drives the jobs that are told.
    pub driver: Arc<dyn Drives>,
    /// When nodes are put out, and how many.
    pub rules: NodeRules,
}

impl Keeper {
    /// Looks again and again until `stop`.
    pub async fn keep_going(self, stop: CancellationToken) {
        // Each by itself: one that hangs keeps none of the others.
        let all = join_all(self.clusters.iter().map(|(name, cluster)| self.keep(name, cluster.as_ref())));
        tokio::select! {
            () = stop.cancelled() => {}
            _ = all => {}
        }
    }

    async fn keep(&self, name: &str, cluster: &dyn Cluster) {
        loop {
            if let Err(error) = self.look(name, cluster).await {
                let error = anyhow::Error::from(error);
                tracing::warn!(
                    cluster = name,
                    error = format!("{error:#}"),
                    "could not keep the nodes of a cluster"
                );
            }
            self.clock.sleep_until(self.clock.now().plus_seconds(LOOK_SECONDS)).await;
        }
    }

    /// One look at the nodes of a cluster.
    ///
    /// # Errors
    /// The database failed.
    pub async fn look(&self, name: &str, cluster: &dyn Cluster) -> Result<(), StoreError> {
        let now = self.clock.now();
        let mut conn = self.store.read().await?;
        let mut kept = wards::read(&mut conn, name, since(&self.rules, now)).await?;
        drop(conn);
        let mut nodes = Vec::new();
        if asks_for_more(&self.rules, &kept.ward, now)
            && let Ok(found) = nodes_of(cluster).await
        {
            kept.ward.total = Some(count_of(&found));
            nodes = found;
        }
        for change in review(&self.rules, &kept.ward, now) {
            let mut tx = self.store.write().await?;
            let (node, text) = change.told();
            let Some(told) = keep_change(&mut tx, (name, &kept), &change, &nodes, now).await? else {
                tracing::debug!(cluster = name, %node, "another server was quicker with a node");
                continue;
            };
            store::commit(tx).await?;
            tracing::warn!(cluster = name, %node, text, "a node stands otherwise");
            told.iter().for_each(|job| self.driver.hint(job));
        }
        let mut conn = self.store.read().await?;
        let out = wards::quarantined(&mut conn, name).await?;
        drop(conn);
        metrics::gauge!("holdfast_nodes_quarantined", "cluster" => name.to_owned()).set(out.len() as f64);
        let tripped = kept.ward.cap.tripped.is_some();
        metrics::gauge!("holdfast_node_cap_tripped", "cluster" => name.to_owned())
            .set(f64::from(u8::from(tripped)));
        cluster.keep_out(&out).await;
        Ok(())
    }
}

/// Since when strikes may count.
pub(crate) fn since(rules: &NodeRules, now: Time) -> Time {
    Time(now.micros().saturating_sub(Time(0).plus_seconds(rules.strike_seconds).micros()))
}

/// Whether a node would be put out if its cluster were large: only then is the cluster asked how many nodes it has.
fn asks_for_more(rules: &NodeRules, ward: &Ward, now: Time) -> bool {
    let large = Ward { total: Some(u32::MAX), ..ward.clone() };
    review(rules, &large, now).len() > review(rules, ward, now).len()
}

/// Keeps a change of what was read, and has the jobs on that node tell it; gives those to hurry. `nodes` are those of the cluster, where it
/// says them. None where somebody else was quicker: nothing of this may be kept then.
///
/// # Errors
/// The database failed.
pub(crate) async fn keep_change(
    conn: &mut AnyConnection,
    (cluster, kept): (&str, &KeptWard),
    change: &Change,
    nodes: &[Node],
    now: Time,
) -> Result<Option<Vec<JobId>>, StoreError> {
    let (node, text) = change.told();
    let entry = Entry { by: "holdfast", text, at: now };
    let written = match change {
        Change::Node { record, .. } => wards::write(conn, cluster, kept, (node, record), entry).await?,
        Change::Tripped(trip) => {
            let cap = Cap { tripped: Some(trip.clone()), ..kept.ward.cap.clone() };
            wards::write_cap(conn, cluster, kept, &cap, entry).await?
        }
    };
    if written != Write::Done {
        return Ok(None);
    }
    let on_it = nodes.iter().find(|known| known.name == *node);
    let tasks = on_it.map(|known| known.tasks.as_slice()).unwrap_or_default();
    tell_jobs(conn, (cluster, node), tasks, entry).await.map(Some)
}

/// Has the jobs of these attempts tell in their history what was done with their node. One whose inbox is full goes without.
///
/// # Errors
/// The database failed.
pub(crate) async fn tell_jobs(
    conn: &mut AnyConnection,
    (cluster, node): (&str, &NodeName),
    tasks: &[TaskId],
    entry: Entry<'_>,
) -> Result<Vec<JobId>, StoreError> {
    let mut told = Vec::new();
    let jobs: BTreeSet<_> = tasks.iter().filter_map(TaskId::job_id).collect();
    for job in jobs {
        let request = Request::Note { text: entry.text.to_owned() };
        // The same words of the same moment are the same note.
        let id = format!("node/{cluster}/{node}");
        match inbox::add(conn, &job, &id, &request, entry.by, entry.at).await {
            Ok(true) => told.push(job),
            Ok(false) => {}
            Err(StoreError::InboxFull { .. }) => tracing::debug!(job_id = %job, "no room for a note"),
            Err(error) => return Err(error),
        }
    }
    Ok(told)
}
