//! Confirmed suspects of a run are quarantined for every job, in the transaction that keeps the run's end.

use engine::{
    chain::Request,
    ids::JobId,
    nodes::standing::{Held, NodeRules, confirm},
    time::Time,
};
use sqlx::AnyConnection;

use super::ask;
use crate::{
    clusters::{Node, count_of},
    keeper::{self, keep_change},
    store::{StoreError, diagnoses::Diagnosis, wards},
};

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
    let mut told = Vec::new();
    if suspects.is_empty() {
        return Ok(Some((Vec::new(), told)));
    }
    let cluster = &diagnosis.cluster;
    let mut kept = wards::read(conn, cluster, keeper::since(rules, now)).await?;
    kept.ward.total = nodes.map(count_of);
    let (held, changes) = confirm(rules, &kept.ward, (&diagnosis.run_id, number), suspects, now);
    for change in &changes {
        let nodes = nodes.unwrap_or_default();
        let Some(jobs) = keep_change(conn, (cluster, &kept), change, nodes, now).await? else {
            return Ok(None);
        };
        told.extend(jobs);
    }
    let text = held.iter().map(|held| held.text.as_str()).collect::<Vec<_>>().join(" ");
    if ask(conn, &diagnosis.job_id, Request::Note { text }, now).await? {
        told.push(diagnosis.job_id.clone());
    }
    Ok(Some((held, told)))
}
