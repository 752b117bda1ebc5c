//! Nodes with what runs on them and what is held against them.

use std::collections::BTreeMap;

use app::{
    console::{Caller, CapView, ClusterNodes, NodeJob, NodePage, NodeView, StrikeView},
    error::AppError,
};
use engine::{
    ids::{NodeName, TaskId},
    nodes::{
        forecast::{Forecast, Room, forecast},
        standing::{self, Mark, Marks, NodeRules, Tally, Ward},
    },
    record::NodeCounts,
    time::Time,
};
use futures::future::join_all;
use sqlx::AnyConnection;

use super::{Service, Wish, failed, may};
use crate::{
    clusters::{Node, count_of, nodes_of},
    keeper,
    store::{
        StoreError, jobs,
        nodes::{self, KeptStrike},
        wards,
    },
};

impl Service {
    /// The nodes of each cluster, in the order of the configuration. One that does not answer keeps no other from being shown.
    pub(super) async fn list_nodes(&self, caller: &Caller) -> Result<Vec<ClusterNodes>, AppError> {
        may(caller, Wish::See)?;
        let known =
            self.site.clusters.iter().filter_map(|cluster| self.clusters.get_key_value(&cluster.name));
        let asked = known.map(|(name, cluster)| async move { (name, nodes_of(cluster.as_ref()).await) });
        let (rules, now) = (self.site.nodes, self.clock.now());
        let mut all = Vec::new();
        for (name, found) in join_all(asked).await {
            let mut conn = self.store.read().await.map_err(failed)?;
            let ward = ward(&mut conn, name, &rules, now).await.map_err(failed)?;
            let total = found.as_ref().ok().map(|found| count_of(found));
            let (nodes, trouble) = match found {
                Ok(found) => {
                    let marks = Marks::of(&ward.marks);
                    let held = Held { rules, ward: &ward, tally: Tally::new(&rules, &marks, now) };
                    (of_cluster(&mut conn, name, found, held).await.map_err(failed)?, None)
                }
                Err(why) => (Vec::new(), Some(why)),
            };
            let history = wards::history(&mut conn, name, None).await.map_err(failed)?;
            let cap = CapView { history, ..cap_view(name, &rules, &ward, total) };
            all.push(ClusterNodes { cluster: name.clone(), nodes, trouble, cap });
        }
        Ok(all)
    }

    /// One node with its history and what would follow if it were put out.
    pub(super) async fn view_node(
        &self,
        caller: &Caller,
        cluster: Option<&str>,
        name: &NodeName,
    ) -> Result<NodePage, AppError> {
        let all = self.list_nodes(caller).await?;
        let (found, node) = find(all, cluster, name)?;
        let mut conn = self.store.read().await.map_err(failed)?;
        let history = wards::history(&mut conn, &found.cluster, Some(name)).await.map_err(failed)?;
        let forecast = self.forecast(&mut conn, &found, name).await.map_err(failed)?;
        Ok(NodePage { node, history, forecast, cap: found.cap })
    }

    /// What would follow if a node were put out.
    pub(super) async fn forecast(
        &self,
        conn: &mut AnyConnection,
        cluster: &ClusterNodes,
        name: &NodeName,
    ) -> Result<Forecast, StoreError> {
        let rooms: Vec<_> = cluster
            .nodes
            .iter()
            .map(|node| Room {
                name: node.name.clone(),
                slots: node.slots,
                used: node.used,
                out: node.quarantine.is_some(),
            })
            .collect();
        let mut needs = nodes::needs(conn, &cluster.cluster).await?;
        for node in &cluster.nodes {
            for job in &node.avoided_by {
                for need in needs.iter_mut().filter(|need| need.job_id == job.job_id) {
                    need.avoid.insert(node.name.clone());
                }
            }
        }
        Ok(forecast(&rooms, &needs, name))
    }
}

/// How the nodes of a cluster stand, with the strikes that may count.
async fn ward(
    conn: &mut AnyConnection,
    cluster: &str,
    rules: &NodeRules,
    now: Time,
) -> Result<Ward, StoreError> {
    Ok(wards::read(conn, cluster, keeper::since(rules, now)).await?.ward)
}

/// The node of that name and its cluster, or why it is not known.
pub(super) fn find(
    all: Vec<ClusterNodes>,
    cluster: Option<&str>,
    name: &NodeName,
) -> Result<(ClusterNodes, NodeView), AppError> {
    let is_meant = |known: &ClusterNodes| cluster.is_none_or(|wanted| wanted == known.cluster);
    let mut unknown = None;
    for known in all.into_iter().filter(is_meant) {
        if let Some(node) = known.nodes.iter().find(|node| node.name == *name).cloned() {
            return Ok((known, node));
        }
        // Not listed is not absent.
        let trouble = known.trouble.map(|text| format!("cluster {}: {text}", known.cluster));
        unknown = unknown.or(trouble);
    }
    Err(match unknown {
        Some(why) => AppError::Unreachable { why },
        None => AppError::NotFound { what: "node".to_owned(), id: name.to_string() },
    })
}

/// The cap without its history.
pub(super) fn cap_view(cluster: &str, rules: &NodeRules, ward: &Ward, total: Option<u32>) -> CapView {
    let (quarantined, counted) = standing::out_now(&ward.cap, &ward.records);
    CapView {
        cluster: cluster.to_owned(),
        quarantined,
        counted,
        allowed: total.map(|total| rules.cap(total)),
        reset_at: ward.cap.reset_at,
        tripped: ward.cap.tripped.clone(),
        history: Vec::new(),
    }
}

/// What is held against the nodes of a cluster.
#[derive(Clone, Copy)]
struct Held<'a> {
    rules: NodeRules,
    ward: &'a Ward,
    tally: Tally<'a>,
}

async fn of_cluster(
    conn: &mut AnyConnection,
    cluster: &str,
    found: Vec<Node>,
    held: Held<'_>,
) -> Result<Vec<NodeView>, StoreError> {
    let mut avoided: BTreeMap<_, Vec<NodeJob>> = BTreeMap::new();
    for (node, job) in nodes::avoided(conn, cluster).await? {
        avoided.entry(node).or_default().push(job);
    }
    let is_out =
        |name: &NodeName| held.ward.records.get(name).is_some_and(|known| known.quarantine.is_some());
    let mut counts = NodeCounts { total: count_of(&found), ..NodeCounts::default() };
    for node in &found {
        match (node.used > 0, avoided.contains_key(&node.name) || is_out(&node.name)) {
            (true, _) => counts.busy += 1,
            (false, true) => counts.avoided += 1,
            (false, false) => counts.free += 1,
        }
    }
    let mut views = Vec::with_capacity(found.len());
    for node in found {
        let record = held.ward.records.get(&node.name).cloned().unwrap_or_default();
        let counted = held.tally.counted(&record, &node.name);
        let avoided_by = avoided.remove(&node.name).unwrap_or_default();
        let strikes = nodes::strikes(conn, cluster, &node.name).await?;
        views.push(NodeView {
            cluster: cluster.to_owned(),
            state: standing::state(&record, counted, !avoided_by.is_empty()),
            slots: node.slots,
            used: node.used,
            jobs: running(conn, &node.tasks).await?,
            avoided_by,
            strikes: strikes.into_iter().map(|strike| strike_view(strike, &record, held)).collect(),
            strikes_counted: counted,
            strikes_limit: if record.trial_since.is_some() { 1 } else { held.rules.strikes },
            quarantine: record.quarantine,
            trial_since: record.trial_since,
            name: node.name,
            counts,
        });
    }
    Ok(views)
}

fn strike_view(kept: KeptStrike, record: &standing::NodeRecord, held: Held<'_>) -> StrikeView {
    let KeptStrike { strike, job_id, job_name } = kept;
    let mark = Mark {
        node: strike.node.clone(),
        job: job_id.clone(),
        incident: strike.incident.clone(),
        at: strike.at,
    };
    StrikeView {
        uncounted: held.tally.uncounted(record, &mark),
        expires_at: strike.at.plus_seconds(held.rules.strike_seconds),
        strike,
        job_id,
        job_name,
    }
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
