//! Stacks of processes that stood still: one row for each process of a launch, the newest.

use engine::{
    ids::{IncidentId, JobId, ReplicaName, TaskId},
    record::{IncidentRecord, StacksRecord},
    sync::RankStack,
};
use sqlx::{AnyConnection, any::AnyRow};

use super::{
    StoreError,
    sql::{Doing, attempt_number, from_doc, from_word, get, number, to_doc},
};

/// Most processes in one answer. A process takes up to 256 KiB, most take a few.
pub const LIMIT: u32 = 128;
/// Launches of a job whose stacks are kept, the newest. A job whose launches hang more often has older ones that say the same.
pub const LAUNCHES: i64 = 16;

/// Keeps the stacks of one report, in place of older ones of the same processes, and drops those of old launches.
///
/// # Errors
/// The database failed.
pub async fn keep(
    conn: &mut AnyConnection,
    job_id: &JobId,
    task_id: &TaskId,
    record: &StacksRecord,
) -> Result<(), StoreError> {
    let attempt = attempt_number(task_id)?;
    for stack in &record.stacks {
        sqlx::query(
            "INSERT INTO rank_stack (job_id, attempt, launch, process, replica, doc) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (job_id, attempt, launch, process) DO UPDATE SET doc = excluded.doc",
        )
        .bind(job_id.as_str().to_owned())
        .bind(attempt)
        .bind(i64::from(record.launch))
        .bind(i64::from(stack.rank))
        .bind(record.replica.as_str().to_owned())
        .bind(to_doc("a stack", stack)?)
        .execute(&mut *conn)
        .await
        .doing("writing a stack")?;
    }
    forget_old(conn, job_id).await
}

async fn forget_old(conn: &mut AnyConnection, job_id: &JobId) -> Result<(), StoreError> {
    let oldest = sqlx::query(
        "SELECT attempt, launch FROM rank_stack WHERE job_id = $1 GROUP BY attempt, launch
         ORDER BY attempt DESC, launch DESC LIMIT 1 OFFSET $2",
    )
    .bind(job_id.as_str().to_owned())
    .bind(LAUNCHES - 1)
    .fetch_optional(&mut *conn)
    .await
    .doing("reading which launches have stacks")?;
    let Some(oldest) = oldest else { return Ok(()) };
    let (attempt, launch): (i64, i64) = (get(&oldest, "attempt")?, get(&oldest, "launch")?);
    sqlx::query(
        "DELETE FROM rank_stack WHERE job_id = $1 AND (attempt < $2 OR (attempt = $2 AND launch < $3))",
    )
    .bind(job_id.as_str().to_owned())
    .bind(attempt)
    .bind(launch)
    .execute(conn)
    .await
    .doing("removing old stacks")?;
    Ok(())
}

/// An incident by its id, with its attempt's number and its job.
///
/// # Errors
/// The database failed.
pub async fn incident(
    conn: &mut AnyConnection,
    id: &IncidentId,
) -> Result<Option<(JobId, u32, IncidentRecord)>, StoreError> {
    let row = sqlx::query("SELECT job_id, attempt, doc FROM incident WHERE id = $1")
        .bind(id.as_str().to_owned())
        .fetch_optional(conn)
        .await
        .doing("reading an incident")?;
    row.map(|row| {
        let job = from_word("job id", get(&row, "job_id")?)?;
        Ok((job, number(get(&row, "attempt")?), from_doc("incident", id.as_str(), get(&row, "doc")?)?))
    })
    .transpose()
}

/// The stacks of a launch from this process on, by rank, at most [`LIMIT`] and one more, which says that there are more.
///
/// # Errors
/// The database failed.
pub async fn of_launch(
    conn: &mut AnyConnection,
    job_id: &JobId,
    (attempt, launch): (u32, u32),
    from: u32,
) -> Result<Vec<(ReplicaName, RankStack)>, StoreError> {
    let rows = sqlx::query(
        "SELECT process, replica, doc FROM rank_stack
         WHERE job_id = $1 AND attempt = $2 AND launch = $3 AND process >= $4 ORDER BY process LIMIT $5",
    )
    .bind(job_id.as_str().to_owned())
    .bind(i64::from(attempt))
    .bind(i64::from(launch))
    .bind(i64::from(from))
    .bind(i64::from(LIMIT) + 1)
    .fetch_all(conn)
    .await
    .doing("reading stacks")?;
    rows.iter().map(from_row).collect()
}

fn from_row(row: &AnyRow) -> Result<(ReplicaName, RankStack), StoreError> {
    let process = number(get(row, "process")?);
    let replica = from_word("replica", get(row, "replica")?)?;
    Ok((replica, from_doc("stack of rank", process, get(row, "doc")?)?))
}
