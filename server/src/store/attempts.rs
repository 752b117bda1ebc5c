//! Attempts: one row each, its record as a document.

use engine::{
    ids::{JobId, TaskId},
    record::{AttemptRecord, ExitTestRecord},
};
use sqlx::AnyConnection;

use super::{
    StoreError,
    sql::{Doing, from_doc, from_word, get, to_doc},
};

/// Most attempts in one answer.
pub const PAGE_LIMIT: u32 = 200;

/// Writes an attempt, new or changed.
///
/// # Errors
/// The database failed.
pub async fn keep(
    conn: &mut AnyConnection,
    job_id: &JobId,
    attempt: &AttemptRecord,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO attempt (task_id, job_id, number, doc) VALUES ($1, $2, $3, $4)
         ON CONFLICT (task_id) DO UPDATE SET doc = excluded.doc",
    )
    .bind(attempt.task_id.as_str().to_owned())
    .bind(job_id.as_str().to_owned())
    .bind(i64::from(attempt.number))
    .bind(to_doc("an attempt", attempt)?)
    .execute(conn)
    .await
    .doing("writing an attempt")?;
    Ok(())
}

/// One attempt and its job.
///
/// # Errors
/// The database failed.
pub async fn find(
    conn: &mut AnyConnection,
    task_id: &TaskId,
) -> Result<Option<(JobId, AttemptRecord)>, StoreError> {
    let row = sqlx::query("SELECT job_id, doc FROM attempt WHERE task_id = $1")
        .bind(task_id.as_str().to_owned())
        .fetch_optional(conn)
        .await
        .doing("reading an attempt")?;
    row.map(|row| {
        let job_id = from_word("job id", get(&row, "job_id")?)?;
        Ok((job_id, from_doc("attempt", task_id, get(&row, "doc")?)?))
    })
    .transpose()
}

/// How many of a job's newest attempts are looked through for a test of the exit notification.
const TESTED_ATTEMPTS: i64 = 20;

/// The newest test of Exit ckpt Notification in a job's newest attempts, and the attempt it was made in.
///
/// # Errors
/// The database failed.
pub async fn newest_exit_test(
    conn: &mut AnyConnection,
    job_id: &JobId,
) -> Result<Option<(TaskId, ExitTestRecord)>, StoreError> {
    let rows =
        sqlx::query("SELECT task_id, doc FROM attempt WHERE job_id = $1 ORDER BY number DESC LIMIT $2")
            .bind(job_id.as_str().to_owned())
            .bind(TESTED_ATTEMPTS)
            .fetch_all(conn)
            .await
            .doing("reading the newest attempts")?;
    for row in &rows {
        let attempt: AttemptRecord = from_doc("attempt", get::<&str>(row, "task_id")?, get(row, "doc")?)?;
        if let Some(test) = attempt.exit_test {
            return Ok(Some((attempt.task_id, *test)));
        }
    }
    Ok(None)
}

/// Attempts of a job in order, from number `from` on, at most `limit` and at most [`PAGE_LIMIT`].
///
/// # Errors
/// The database failed.
pub async fn page(
    conn: &mut AnyConnection,
    job_id: &JobId,
    from: u32,
    limit: u32,
) -> Result<Vec<AttemptRecord>, StoreError> {
    let rows = sqlx::query(
        "SELECT task_id, doc FROM attempt WHERE job_id = $1 AND number >= $2 ORDER BY number LIMIT $3",
    )
    .bind(job_id.as_str().to_owned())
    .bind(i64::from(from))
    .bind(i64::from(limit.min(PAGE_LIMIT)))
    .fetch_all(conn)
    .await
    .doing("reading attempts")?;
    rows.iter().map(|row| from_doc("attempt", get::<&str>(row, "task_id")?, get(row, "doc")?)).collect()
}

/// Task ids of a job in order, from number `from` on, at most `limit`.
///
/// # Errors
/// The database failed.
pub async fn task_ids(
    conn: &mut AnyConnection,
    job_id: &JobId,
    from: u32,
    limit: u32,
) -> Result<Vec<TaskId>, StoreError> {
    let rows = sqlx::query(
        "SELECT task_id FROM attempt WHERE job_id = $1 AND number >= $2 ORDER BY number LIMIT $3",
    )
    .bind(job_id.as_str().to_owned())
    .bind(i64::from(from))
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await
    .doing("reading task ids")?;
    rows.iter().map(|row| from_word("task id", get(row, "task_id")?)).collect()
}
