//! The Fault Tolerance Detail as data.

use std::collections::{BTreeMap, BTreeSet};

use app::{
    console::{AttemptView, Caller, ChainPage, ChainView, DiagnosisView, ExcludedNode},
    error::AppError,
};
use engine::{
    ids::{JobId, NodeName},
    record::{AttemptRecord, IncidentRecord},
};
use sqlx::AnyConnection;

use super::{Service, Wish, diagnoses::with_runs, failed, may, no_job};
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
        let ledger = with_runs(summary.ledger, &diagnostics);
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
            excluded: excluded(chain.own_avoided(), &blaming, &diagnostics),
            diagnostics,
            ledger,
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

/// Each node that the next attempt keeps off, with the newest incident that blamed it or diagnosis that found it.
fn excluded(
    avoided: BTreeSet<NodeName>,
    blaming: &[IncidentRecord],
    diagnoses: &[DiagnosisView],
) -> Vec<ExcludedNode> {
    let with_reason = |node: NodeName| {
        let incident = blaming.iter().rev().find(|incident| incident.decision.avoid.contains(&node));
        let found = diagnoses.iter().find(|run| run.ended_at.is_some() && run.suspects.contains(&node));
        // The newer of the two tells why.
        let found = found.filter(|run| incident.is_none_or(|incident| run.ended_at > Some(incident.at)));
        let incident = incident.filter(|_| found.is_none());
        ExcludedNode {
            incident: incident.map(|incident| incident.id.clone()),
            failure_type: incident.map(|incident| incident.failure_type),
            diagnosis: found.map(|run| run.run_id.clone()),
            at: incident.map(|incident| incident.at).or_else(|| found.and_then(|run| run.ended_at)),
            node,
        }
    };
    avoided.into_iter().map(with_reason).collect()
}

#[cfg(test)]
mod tests {
    use engine::{
        bisect,
        failure::{Confidence, FailureType, Phase},
        ids::{IncidentId, TaskId},
        record::{Action, Budget, Clock, Cost, DecisionRecord},
        time::Time,
    };

    use super::*;

    fn nodes<const N: usize>(names: [&str; N]) -> [NodeName; N] {
        names.map(|name| NodeName::new(name).unwrap())
    }

    fn job() -> JobId {
        JobId::new("jabcdefghij2").unwrap()
    }

    fn blaming(number: u32, seconds: u64, avoid: &[NodeName]) -> IncidentRecord {
        IncidentRecord {
            id: IncidentId::of_attempt(&TaskId::of_attempt("demo", &job(), 1), number),
            at: Time(0).plus_seconds(seconds),
            launch: 0,
            failure_type: FailureType::HwNode,
            confidence: Confidence::High,
            phase: Phase::Training,
            step: None,
            cascade_ranks: 0,
            root: None,
            fault: String::new(),
            hint: None,
            evidence: Vec::new(),
            hang: None,
            fingerprint: String::new(),
            repeats: false,
            decision: DecisionRecord {
                action: Action::Resubmit,
                rule: String::new(),
                policy_version: 1,
                reason: String::new(),
                charged: Budget::TaskRestarts,
                before: 0,
                after: 1,
                allowed: None,
                avoid: avoid.to_vec(),
                next_at: None,
                next_task_id: None,
            },
            diagnosed: None,
            clock: Clock { noticed_at: Time(0), submitted_at: None, resources_at: None, first_step_at: None },
            cost: Cost::default(),
            right: None,
        }
    }

    fn found(run_id: &str, seconds: u64, suspects: &[NodeName]) -> DiagnosisView {
        DiagnosisView {
            run_id: run_id.to_owned(),
            number: 1,
            job_id: job(),
            job_name: "demo".to_owned(),
            task_id: None,
            by: "ann".to_owned(),
            rule: None,
            held: Vec::new(),
            cluster: "local".to_owned(),
            nodes: Vec::new(),
            started_at: Time(0),
            ended_at: Some(Time(0).plus_seconds(seconds)),
            verdict: None,
            text: None,
            suspects: suspects.to_vec(),
            plan: bisect::Cost {
                rounds: 0,
                checks: 0,
                extra_rounds: 0,
                probe_seconds: 0,
                seconds: 0,
                accelerator_seconds: 0,
            },
            accelerator_seconds: 0.0,
        }
    }

    #[test]
    fn what_is_excluded_is_what_the_next_attempt_keeps_off_with_the_newest_reason() {
        let [incident, diagnosis, both, again, released, unknown] =
            nodes(["n1", "n2", "n3", "n4", "n5", "n6"]);
        let blaming = [
            blaming(1, 10, &[incident.clone(), both.clone(), released.clone()]),
            blaming(2, 30, &[incident.clone(), again.clone()]),
        ];
        // As they are listed: the newest first.
        let runs = [
            found("d2", 20, &[both.clone(), again.clone(), released.clone()]),
            found("d1", 5, &[diagnosis.clone(), incident.clone()]),
        ];
        let avoided = BTreeSet::from([incident, diagnosis, both, again, unknown]);
        let told: Vec<_> = excluded(avoided, &blaming, &runs)
            .into_iter()
            .map(|one| {
                let by = one.incident.and_then(|id| id.number()).map(|number| format!("i{number}"));
                let at = one.at.map(|at| at.seconds_since(Time(0)) as u64);
                assert_eq!(one.failure_type.is_some(), by.is_some());
                (one.node.to_string(), by.or(one.diagnosis).unwrap_or_default(), at)
            })
            .collect();
        let want = [
            ("n1", "i2", Some(30)),
            ("n2", "d1", Some(5)),
            ("n3", "d2", Some(20)),
            ("n4", "i2", Some(30)),
            ("n6", "", None),
        ];
        assert_eq!(told, want.map(|(node, by, at)| (node.to_owned(), by.to_owned(), at)));
    }
}
