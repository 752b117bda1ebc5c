//! Nodes with what runs on them and what is held against them.

use std::{collections::BTreeMap, time::Duration};

use app::{
    console::{Caller, ClusterNodes, NodeJob, NodeView},
    error::AppError,
};
use engine::{ids::TaskId, record::NodeCounts};
use futures::future::join_all;
use sqlx::AnyConnection;

use super::{Service, Wish, failed, may};
use crate::{
    clusters::{Cluster, Node},
    store::{StoreError, jobs, nodes},
};

/// A cluster that has not listed its nodes by then is told to be out of reach.
const CLUSTER_TIME: Duration = Duration::from_secs(10);

impl Service {
    /// The nodes of each cluster, in the order of the configuration. One that does not answer keeps no other from being shown.
    pub(super) async fn list_nodes(&self, caller: &Caller) -> Result<Vec<ClusterNodes>, AppError> {
        may(caller, Wish::See)?;
        let known =
            self.site.clusters.iter().filter_map(|cluster| self.clusters.get_key_value(&cluster.name));
        let asked = known.map(|(name, cluster)| async move { (name, nodes_of(cluster.as_ref()).await) });
        let mut all = Vec::new();
        for (name, found) in join_all(asked).await {
            let (nodes, trouble) = match found {
                Ok(found) => {
                    let mut conn = self.store.read().await.map_err(failed)?;
                    (of_cluster(&mut conn, name, found).await.map_err(failed)?, None)
                }
                Err(why) => (Vec::new(), Some(why)),
            };
            all.push(ClusterNodes { cluster: name.clone(), nodes, trouble });
        }
        Ok(all)
    }
}

/// What a cluster says of its nodes, or why it does not.
async fn nodes_of(cluster: &dyn Cluster) -> Result<Vec<Node>, String> {
    let found = tokio::time::timeout(CLUSTER_TIME, cluster.nodes()).await;
    let found = found.map_err(|_| format!("no answer in {} s", CLUSTER_TIME.as_secs()))?;
    found.map_err(|why| format!("{:#}", anyhow::Error::from(why)))
}

async fn of_cluster(
    conn: &mut AnyConnection,
    cluster: &str,
    found: Vec<Node>,
) -> Result<Vec<NodeView>, StoreError> {
    let mut avoided: BTreeMap<_, Vec<NodeJob>> = BTreeMap::new();
    for (node, job) in nodes::avoided(conn, cluster).await? {
        avoided.entry(node).or_default().push(job);
    }
    let mut counts =
        NodeCounts { total: u32::try_from(found.len()).unwrap_or(u32::MAX), ..NodeCounts::default() };
    for node in &found {
        match (node.used > 0, avoided.contains_key(&node.name)) {
            (true, _) => counts.busy += 1,
            (false, true) => counts.avoided += 1,
            (false, false) => counts.free += 1,
        }
    }
    let mut views = Vec::with_capacity(found.len());
    for node in found {
        views.push(NodeView {
            cluster: cluster.to_owned(),
            slots: node.slots,
            used: node.used,
            jobs: running(conn, &node.tasks).await?,
            avoided_by: avoided.remove(&node.name).unwrap_or_default(),
            strikes: nodes::strikes(conn, cluster, &node.name).await?,
            name: node.name,
            counts,
        });
    }
    Ok(views)
}

/// The jobs of attempts; one that is being forgotten has no name any more and is left out.
async fn running(conn: &mut AnyConnection, tasks: &[TaskId]) -> Result<Vec<NodeJob>, StoreError> {
    let mut running = Vec::new();
    for task_id in tasks {
        let Some(job_id) = task_id.job_id() else { continue };
        if let Some(head) = jobs::head(conn, &job_id).await? {
            running.push(NodeJob { job_id, name: head.name, task_id: task_id.clone() });
        }
    }
    Ok(running)
}
