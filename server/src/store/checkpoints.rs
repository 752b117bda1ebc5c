//! Checkpoints that were saved, for the marks on the curve.

use app::console::CheckpointMark;
use engine::{
    ids::{JobId, TaskId},
    time::Time,
};
use sqlx::AnyConnection;

use super::{
    StoreError,
    sql::{Doing, attempt_number, big, count, get},
};

/// Most marks in one answer; the newest are given.
pub const LIMIT: i64 = 1_000;

/// Keeps that a launch saved a step. Ranks and replicas that save the same one make one mark.
///
/// # Errors
/// The database failed.
pub async fn keep(
    conn: &mut AnyConnection,
    job_id: &JobId,
    task_id: &TaskId,
    launch: u32,
    mark: &CheckpointMark,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO checkpoint (job_id, attempt, launch, step, at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (job_id, attempt, launch, step) DO NOTHING",
    )
    .bind(job_id.as_str().to_owned())
    .bind(attempt_number(task_id)?)
    .bind(i64::from(launch))
    .bind(big(mark.step))
    .bind(mark.at.micros())
    .execute(conn)
    .await
    .doing("writing a checkpoint")?;
    Ok(())
}

/// Checkpoints of a job in the order they were made. Of more than [`LIMIT`] the newest.
///
/// # Errors
/// The database failed.
pub async fn of_job(conn: &mut AnyConnection, job_id: &JobId) -> Result<Vec<CheckpointMark>, StoreError> {
    let rows = sqlx::query(
        "SELECT step, at FROM checkpoint WHERE job_id = $1
         ORDER BY attempt DESC, launch DESC, step DESC LIMIT $2",
    )
    .bind(job_id.as_str().to_owned())
    .bind(LIMIT)
    .fetch_all(conn)
    .await
    .doing("reading checkpoints")?;
    rows.iter()
        .rev()
        .map(|row| Ok(CheckpointMark { step: count(get(row, "step")?), at: Time(get(row, "at")?) }))
        .collect()
}
