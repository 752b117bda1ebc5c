//! The Fault Tolerance Detail as data.

use std::collections::BTreeMap;

use app::{
    console::{AttemptView, Caller, ChainPage, ChainView, ExcludedNode},
    error::AppError,
};
use engine::{
    ids::JobId,
    record::{AttemptRecord, IncidentRecord},
};
use sqlx::AnyConnection;

use super::{Service, Wish, failed, may, no_job};
use crate::store::{StoreError, attempts, diagnoses, incidents, jobs, launches};

/// Attempts of a page where nothing else is asked.
const PAGE_ATTEMPTS: u32 = 100;

impl Service {
    pub(super) async fn view_chain(
        &self,
        caller: &Caller,
        id: &JobId,
        page: ChainPage,
    ) -> Result<ChainView, AppError> {
        may(caller, Wish::See)?;
        let now = self.clock.now();
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        let chain = jobs::chain(&mut conn, id).await.map_err(failed)?.ok_or_else(|| no_job(id))?.chain;
        let mut summary = chain.summary(now);
        // Runs are counted where they are kept; a chain knows nothing of them.
        summary.budgets.diagnostics.used = diagnoses::count_of(&mut conn, id).await.map_err(failed)?;
        let limit = page.limit.unwrap_or(PAGE_ATTEMPTS).clamp(1, attempts::PAGE_LIMIT);
        let records =
            attempts::page(&mut conn, id, page.from.unwrap_or(1).max(1), limit).await.map_err(failed)?;
        let attempts = with_details(&mut conn, id, records).await.map_err(failed)?;
        let diagnostics = self.diagnoses_of(&mut conn, Some(id)).await.map_err(failed)?;
        let blaming = incidents::that_avoid(&mut conn, id).await.map_err(failed)?;
        Ok(ChainView {
            job_id: id.clone(),
            state: summary.state,
            substate: summary.substate,
            mode: summary.mode,
            original_task_id: summary.original_task_id,
            latest_task_id: summary.latest_task_id,
            attempts_total: summary.attempts_total,
            budgets: summary.budgets,
            attempts,
            why_not: summary.why_not,
            diagnostics,
            ledger: summary.ledger,
            excluded: excluded(&blaming),
            now,
        })
    }
}

/// Attempts with their launches and incidents, in as many queries as there are tables.
pub(super) async fn with_details(
    conn: &mut AnyConnection,
    id: &JobId,
    records: Vec<AttemptRecord>,
) -> Result<Vec<AttemptView>, StoreError> {
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(Vec::new()) };
    let range = first.number..=last.number;
    let mut views: BTreeMap<u32, AttemptView> = records
        .into_iter()
        .map(|attempt| (attempt.number, AttemptView { attempt, launches: Vec::new(), incidents: Vec::new() }))
        .collect();
    for (number, launch) in launches::of_attempts(conn, id, range.clone()).await? {
        if let Some(view) = views.get_mut(&number) {
            view.launches.push(launch);
        }
    }
    for (number, incident) in incidents::of_attempts(conn, id, range).await? {
        if let Some(view) = views.get_mut(&number) {
            view.incidents.push(incident);
        }
    }
    Ok(views.into_values().collect())
}

/// Each node once, with the newest incident that blamed it.
fn excluded(blaming: &[IncidentRecord]) -> Vec<ExcludedNode> {
    let mut nodes = BTreeMap::new();
    for incident in blaming {
        for node in &incident.decision.avoid {
            let entry = ExcludedNode {
                node: node.clone(),
                incident: incident.id.clone(),
                failure_type: incident.failure_type,
                at: incident.at,
            };
            nodes.insert(node.clone(), entry);
        }
    }
    nodes.into_values().collect()
}
