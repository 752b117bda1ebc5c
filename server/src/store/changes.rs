//! The newest changes of each job, small, for streams that resume where they were cut.

use engine::{
    ids::JobId,
    record::{IncidentRecord, Record, Summary},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::AnyConnection;

use super::{
    StoreError,
    sql::{Doing, from_doc, get, to_doc},
};

/// Generations whose changes are kept. A stream that was away for longer is told to read everything again.
pub const KEPT_GENERATIONS: i64 = 32;
/// Older ones are dropped every so many generations, since each time costs a statement.
pub const DROP_EVERY: i64 = 8;
/// Most changes in one answer.
pub const LIMIT: usize = 500;

/// What a change is about; the name of the event in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The job as a whole.
    Job,
    /// An attempt.
    Attempt,
    /// A launch.
    Launch,
    /// An incident.
    Incident,
    /// The answer to an incident.
    Decision,
    /// Steps.
    Progress,
    /// An entry of the history.
    Event,
}

impl ChangeKind {
    /// The kind as streams and columns write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Attempt => "attempt",
            Self::Launch => "launch",
            Self::Incident => "incident",
            Self::Decision => "decision",
            Self::Progress => "progress",
            Self::Event => "event",
        }
    }
}

/// Where a stream is: after change `n` of the step that made `generation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The step.
    pub generation: i64,
    /// The change in it, from 0.
    pub n: i64,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where it stands.
    pub position: Position,
    /// What it is about.
    pub kind: ChangeKind,
    /// A small JSON object.
    pub doc: String,
}

/// What happened since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Since {
    /// The changes, oldest first, at most [`LIMIT`].
    pub changes: Vec<Change>,
    /// Nothing is missing between the position and the first of them; else everything has to be read again.
    pub complete: bool,
}

/// Writes the changes of one step and drops those that are too old.
///
/// # Errors
/// The database failed.
pub(super) async fn keep(
    conn: &mut AnyConnection,
    job_id: &JobId,
    generation: i64,
    summary: &Summary,
    records: &[Record],
) -> Result<(), StoreError> {
    let job = (ChangeKind::Job, of_job(summary));
    let all: Vec<_> = std::iter::once(job).chain(records.iter().flat_map(of_record)).collect();
    sqlx::query("INSERT INTO change (job_id, generation, doc) VALUES ($1, $2, $3)")
        .bind(job_id.as_str().to_owned())
        .bind(generation)
        .bind(to_doc("changes", &all)?)
        .execute(&mut *conn)
        .await
        .doing("writing changes")?;
    if generation % DROP_EVERY != 0 {
        return Ok(());
    }
    sqlx::query("DELETE FROM change WHERE job_id = $1 AND generation <= $2")
        .bind(job_id.as_str().to_owned())
        .bind(generation - KEPT_GENERATIONS)
        .execute(conn)
        .await
        .doing("dropping old changes")?;
    Ok(())
}

/// What happened to a job after a position.
///
/// # Errors
/// The database failed.
pub async fn since(
    conn: &mut AnyConnection,
    job_id: &JobId,
    position: Position,
) -> Result<Since, StoreError> {
    let row = sqlx::query("SELECT MIN(generation) AS oldest FROM change WHERE job_id = $1")
        .bind(job_id.as_str().to_owned())
        .fetch_one(&mut *conn)
        .await
        .doing("reading the oldest change")?;
    let oldest: Option<i64> = get(&row, "oldest")?;
    let rows = sqlx::query(
        "SELECT generation, doc FROM change WHERE job_id = $1 AND generation >= $2 ORDER BY generation LIMIT $3",
    )
    .bind(job_id.as_str().to_owned())
    .bind(position.generation)
    .bind(KEPT_GENERATIONS + DROP_EVERY)
    .fetch_all(conn)
    .await
    .doing("reading changes")?;
    let mut changes = Vec::new();
    for row in &rows {
        let all: Vec<(ChangeKind, Value)> = from_doc("changes of job", job_id, get(row, "doc")?)?;
        let generation = get(row, "generation")?;
        changes.extend(all.into_iter().zip(0..).map(|((kind, doc), n)| Change {
            position: Position { generation, n },
            kind,
            doc: doc.to_string(),
        }));
    }
    changes.retain(|change| change.position > position);
    changes.truncate(LIMIT);
    // Every generation has at least the change of the job, so a gap shows in the oldest one.
    Ok(Since { changes, complete: oldest.is_some_and(|oldest| oldest <= position.generation + 1) })
}

fn of_job(summary: &Summary) -> Value {
    json!({
        "state": summary.state,
        "substate": summary.substate,
        "tail": summary.tail,
        "latest_task_id": summary.latest_task_id,
        "attempts_total": summary.attempts_total,
        "budgets": summary.budgets,
        "reached_step": summary.reached_step,
        "saved_step": summary.saved_step,
        "total_steps": summary.total_steps,
        "failure_type": summary.failure_type,
        "needs_attention": summary.needs_attention,
    })
}

fn of_record(record: &Record) -> Vec<(ChangeKind, Value)> {
    match record {
        Record::Attempt(attempt) => vec![(
            ChangeKind::Attempt,
            json!({
                "task_id": attempt.task_id,
                "number": attempt.number,
                "cause": attempt.cause,
                "state": attempt.state,
                "result": attempt.result,
                "fault": attempt.fault,
                "nodes": attempt.nodes,
                "queue": attempt.queue.as_ref().map(|queue| json!({"reason": queue.reason, "text": queue.text})),
            }),
        )],
        Record::Launch(task_id, launch) => vec![(
            ChangeKind::Launch,
            json!({
                "task_id": task_id,
                "number": launch.number,
                "cause": launch.cause,
                "started_at": launch.started_at,
                "ended_at": launch.ended_at,
                "steps": launch.steps,
                "verdict": launch.proof.verdict,
            }),
        )],
        Record::Incident(task_id, incident) => of_incident(task_id.as_str(), incident).into(),
        Record::Points(task_id, points) => points
            .points
            .last()
            .map(|last| {
                let doc = json!({
                    "task_id": task_id,
                    "launch": points.launch,
                    "step": last.step,
                    "loss": last.loss,
                    "at": last.at,
                });
                (ChangeKind::Progress, doc)
            })
            .into_iter()
            .collect(),
        Record::Event(event) => vec![(ChangeKind::Event, json!(event))],
        // A node's, not the job's: the incident beside it says the same.
        Record::Strike(_) => Vec::new(),
        // Large, and of use only with the incident beside them.
        Record::Stacks(..) => Vec::new(),
    }
}

fn of_incident(task_id: &str, incident: &IncidentRecord) -> [(ChangeKind, Value); 2] {
    let decision = &incident.decision;
    [
        (
            ChangeKind::Incident,
            json!({
                "task_id": task_id,
                "id": incident.id,
                "launch": incident.launch,
                "failure_type": incident.failure_type,
                "fault": incident.fault,
                "step": incident.step,
            }),
        ),
        (
            ChangeKind::Decision,
            json!({
                "task_id": task_id,
                "incident": incident.id,
                "action": decision.action,
                "rule": decision.rule,
                "reason": decision.reason,
                "charged": decision.charged,
                "before": decision.before,
                "after": decision.after,
                "next_at": decision.next_at,
                "next_task_id": decision.next_task_id,
            }),
        ),
    ]
}
