//! Confirmed suspects of a run are quarantined for every job, in the transaction that keeps the run's end.

use std::time::Duration;

use engine::{
    chain::Request,
    ids::JobId,
    nodes::standing::{Cap, Change, Held, NodeRules, confirm},
    time::Time,
};
use sqlx::AnyConnection;

use super::ask;
use crate::{
    clusters::{Cluster, Node},
    keeper,
    store::{
        StoreError, Write,
        diagnoses::Diagnosis,
        wards::{self, Entry},
    },
};

/// A cluster that has not listed its nodes by then does not answer.
const CLUSTER_TIME: Duration = Duration::from_secs(10);

/// The nodes of a cluster; none where it does not answer in time.
pub(super) async fn within(cluster: &dyn Cluster) -> Option<Vec<Node>> {
    tokio::time::timeout(CLUSTER_TIME, cluster.nodes()).await.ok()?.ok()
}

/// Puts out what a run confirmed, as far as the cap allows, and has the jobs on those nodes tell it. `nodes` are those of the cluster, where
/// it says them. None where somebody else changed a node meanwhile: nothing of this may be kept then.
///
/// # Errors
/// The database failed.
pub(super) async fn hold(
    conn: &mut AnyConnection,
    (diagnosis, number): (&Diagnosis, u32),
    nodes: Option<&[Node]>,
    rules: &NodeRules,
    now: Time,
) -> Result<Option<(Vec<Held>, Vec<JobId>)>, StoreError> {
    let suspects = diagnosis.run.finding().map(|finding| finding.confirmed.as_slice()).unwrap_or_default();
    let (mut told, mut texts) = (Vec::new(), Vec::new());
    if suspects.is_empty() {
        return Ok(Some((Vec::new(), told)));
    }
    let cluster = &diagnosis.cluster;
    let mut kept = wards::read(conn, cluster, keeper::since(rules, now)).await?;
    kept.ward.total = nodes.map(|nodes| u32::try_from(nodes.len()).unwrap_or(u32::MAX));
    let (held, changes) = confirm(rules, &kept.ward, (&diagnosis.run_id, number), suspects, now);
    for change in &changes {
        let (written, node, text) = match change {
            Change::Node { node, record, text } => {
                let entry = Entry { by: "holdfast", text, at: now };
                (wards::write(conn, cluster, &kept, (node, record), entry).await?, node, text)
            }
            Change::Tripped(trip) => {
                let cap = Cap { tripped: Some(trip.clone()), ..kept.ward.cap.clone() };
                let entry = Entry { by: "holdfast", text: &trip.text, at: now };
                (wards::write_cap(conn, cluster, &kept, &cap, entry).await?, &trip.node, &trip.text)
            }
        };
        if written != Write::Done {
            return Ok(None);
        }
        let on_it = nodes.unwrap_or_default().iter().find(|known| known.name == *node);
        let tasks = on_it.map(|known| known.tasks.as_slice()).unwrap_or_default();
        told.extend(
            keeper::tell_jobs(conn, (cluster, node), tasks, Entry { by: "holdfast", text, at: now }).await?,
        );
    }
    texts.extend(held.iter().map(|held| held.text.as_str()));
    if ask(conn, &diagnosis.job_id, Request::Note { text: texts.join(" ") }, now).await? {
        told.push(diagnosis.job_id.clone());
    }
    Ok(Some((held, told)))
}
