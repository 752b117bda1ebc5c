//! Incidents: one row each, its record as a document. A person's answer is kept beside the document, which the engine
//! writes again whenever it learns more.

use std::ops::RangeInclusive;

use engine::{
    ids::{IncidentId, JobId, TaskId},
    record::IncidentRecord,
};
use sqlx::{AnyConnection, any::AnyRow};

use super::{
    StoreError,
    sql::{Doing, attempt_number, from_doc, from_word, get, number, to_doc},
};

/// Most incidents in one answer; the newest are given.
pub const LIMIT: i64 = 2_000;

/// Writes an incident, new or changed; the answer of a person stays.
///
/// # Errors
/// The database failed.
pub async fn keep(
    conn: &mut AnyConnection,
    job_id: &JobId,
    task_id: &TaskId,
    incident: &IncidentRecord,
) -> Result<(), StoreError> {
    let number = incident.id.number().ok_or_else(|| StoreError::Unwritable {
        what: "an incident",
        source: anyhow::anyhow!("`{}` has no number", incident.id),
    })?;
    sqlx::query(
        "INSERT INTO incident (job_id, attempt, number, id, avoids, doc) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (job_id, attempt, number) DO UPDATE SET avoids = excluded.avoids, doc = excluded.doc",
    )
    .bind(job_id.as_str().to_owned())
    .bind(attempt_number(task_id)?)
    .bind(i64::from(number))
    .bind(incident.id.as_str().to_owned())
    .bind(i64::from(!incident.decision.avoid.is_empty()))
    .bind(to_doc("an incident", incident)?)
    .execute(conn)
    .await
    .doing("writing an incident")?;
    Ok(())
}

/// Incidents of the attempts with these numbers, each with its attempt's number, in order. Of more than [`LIMIT`] the newest.
///
/// # Errors
/// The database failed.
pub async fn of_attempts(
    conn: &mut AnyConnection,
    job_id: &JobId,
    attempts: RangeInclusive<u32>,
) -> Result<Vec<(u32, IncidentRecord)>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, attempt, right_answer, doc FROM incident WHERE job_id = $1 AND attempt >= $2 AND attempt <= $3
         ORDER BY attempt DESC, number DESC LIMIT $4",
    )
    .bind(job_id.as_str().to_owned())
    .bind(i64::from(*attempts.start()))
    .bind(i64::from(*attempts.end()))
    .bind(LIMIT)
    .fetch_all(conn)
    .await
    .doing("reading incidents")?;
    rows.iter().rev().map(|row| Ok((number(get(row, "attempt")?), from_row(row)?))).collect()
}

/// Incidents of a job that made it keep off nodes, oldest first. Of more than [`LIMIT`] the newest.
///
/// # Errors
/// The database failed.
pub async fn that_avoid(conn: &mut AnyConnection, job_id: &JobId) -> Result<Vec<IncidentRecord>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, right_answer, doc FROM incident WHERE job_id = $1 AND avoids = 1
         ORDER BY attempt DESC, number DESC LIMIT $2",
    )
    .bind(job_id.as_str().to_owned())
    .bind(LIMIT)
    .fetch_all(conn)
    .await
    .doing("reading incidents that blame nodes")?;
    rows.iter().rev().map(from_row).collect()
}

/// Keeps a person's answer to "Was this right?"; none takes it back. Gives the incident's job, none where there is no such incident.
///
/// # Errors
/// The database failed.
pub async fn answer(
    conn: &mut AnyConnection,
    id: &IncidentId,
    right: Option<bool>,
) -> Result<Option<JobId>, StoreError> {
    let row = sqlx::query("UPDATE incident SET right_answer = $1 WHERE id = $2 RETURNING job_id")
        .bind(right.map(i64::from))
        .bind(id.as_str().to_owned())
        .fetch_optional(conn)
        .await
        .doing("keeping an answer")?;
    row.map(|row| from_word("job id", get(&row, "job_id")?)).transpose()
}

fn from_row(row: &AnyRow) -> Result<IncidentRecord, StoreError> {
    let mut incident: IncidentRecord = from_doc("incident", get::<&str>(row, "id")?, get(row, "doc")?)?;
    incident.right = get::<Option<i64>>(row, "right_answer")?.map(|answer| answer == 1);
    Ok(incident)
}

/// How many incidents a job has had.
///
/// # Errors
/// The database failed.
pub async fn count(conn: &mut AnyConnection, job_id: &JobId) -> Result<u32, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) AS incidents FROM incident WHERE job_id = $1")
        .bind(job_id.as_str().to_owned())
        .fetch_one(conn)
        .await
        .doing("counting incidents")?;
    Ok(number(get(&row, "incidents")?))
}
