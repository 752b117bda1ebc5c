//! Launches: one row each, its record as a document.

use std::ops::RangeInclusive;

use engine::{
    ids::{JobId, TaskId},
    record::LaunchRecord,
};
use sqlx::AnyConnection;

use super::{
    StoreError,
    sql::{Doing, attempt_number, from_doc, get, number, to_doc},
};

/// Most launches in one answer; the newest are given.
pub const LIMIT: i64 = 5_000;

/// Writes a launch, new or changed.
///
/// # Errors
/// The database failed.
pub async fn keep(
    conn: &mut AnyConnection,
    job_id: &JobId,
    task_id: &TaskId,
    launch: &LaunchRecord,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO launch (job_id, attempt, number, doc) VALUES ($1, $2, $3, $4)
         ON CONFLICT (job_id, attempt, number) DO UPDATE SET doc = excluded.doc",
    )
    .bind(job_id.as_str().to_owned())
    .bind(attempt_number(task_id)?)
    .bind(i64::from(launch.number))
    .bind(to_doc("a launch", launch)?)
    .execute(conn)
    .await
    .doing("writing a launch")?;
    Ok(())
}

/// Launches of the attempts with these numbers, each with its attempt's number, in order. Of more than [`LIMIT`] the newest.
///
/// # Errors
/// The database failed.
pub async fn of_attempts(
    conn: &mut AnyConnection,
    job_id: &JobId,
    attempts: RangeInclusive<u32>,
) -> Result<Vec<(u32, LaunchRecord)>, StoreError> {
    let rows = sqlx::query(
        "SELECT attempt, doc FROM launch WHERE job_id = $1 AND attempt >= $2 AND attempt <= $3
         ORDER BY attempt DESC, number DESC LIMIT $4",
    )
    .bind(job_id.as_str().to_owned())
    .bind(i64::from(*attempts.start()))
    .bind(i64::from(*attempts.end()))
    .bind(LIMIT)
    .fetch_all(conn)
    .await
    .doing("reading launches")?;
    rows.iter()
        .rev()
        .map(|row| Ok((number(get(row, "attempt")?), from_doc("launch of job", job_id, get(row, "doc")?)?)))
        .collect()
}

/// The newest launch of an attempt; none before its first.
///
/// # Errors
/// The database failed.
pub async fn newest(
    conn: &mut AnyConnection,
    job_id: &JobId,
    attempt: u32,
) -> Result<Option<LaunchRecord>, StoreError> {
    let row =
        sqlx::query("SELECT doc FROM launch WHERE job_id = $1 AND attempt = $2 ORDER BY number DESC LIMIT 1")
            .bind(job_id.as_str().to_owned())
            .bind(i64::from(attempt))
            .fetch_optional(conn)
            .await
            .doing("reading the newest launch")?;
    row.map(|row| from_doc("launch of job", job_id, get(&row, "doc")?)).transpose()
}
