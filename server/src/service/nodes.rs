//! Nodes with what runs on them and what is held against them.

use std::{collections::BTreeMap, time::Duration};

use app::{
    console::{Caller, NodeJob, NodeView},
    error::AppError,
};
use engine::{ids::TaskId, record::NodeCounts};
use sqlx::AnyConnection;

use super::{Service, Wish, failed, may};
use crate::{
    clusters::Node,
    store::{StoreError, jobs, nodes},
};

/// A cluster that has not listed its nodes by then is told to be out of reach.
const CLUSTER_TIME: Duration = Duration::from_secs(10);

impl Service {
    pub(super) async fn list_nodes(&self, caller: &Caller) -> Result<Vec<NodeView>, AppError> {
        may(caller, Wish::See)?;
        let mut views = Vec::new();
        for (name, cluster) in &self.clusters {
            let unreachable = |why: String| AppError::Unreachable { why: format!("cluster {name}: {why}") };
            let found = tokio::time::timeout(CLUSTER_TIME, cluster.nodes())
                .await
                .map_err(|_| unreachable(format!("no answer in {} s", CLUSTER_TIME.as_secs())))?
                .map_err(|why| unreachable(why.to_string()))?;
            let mut conn = self.store.read().await.map_err(failed)?;
            views.extend(of_cluster(&mut conn, name, found).await.map_err(failed)?);
        }
        Ok(views)
    }
}

async fn of_cluster(
    conn: &mut AnyConnection,
    cluster: &str,
    found: Vec<Node>,
) -> Result<Vec<NodeView>, StoreError> {
    let mut avoided: BTreeMap<_, Vec<NodeJob>> = BTreeMap::new();
    for (node, job) in nodes::avoided(conn).await? {
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
            strikes: nodes::strikes(conn, &node.name).await?,
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
