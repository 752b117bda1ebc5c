//! Requests of people. They are kept before they are answered, and a step takes them in the transaction that acts on them: none
//! is lost or taken twice, whatever dies in between.

use engine::{chain::Request, ids::JobId, time::Time};
use sqlx::AnyConnection;

use super::{
    StoreError,
    sql::{Doing, from_doc, from_word, get, to_doc},
};

/// Requests that may wait for one job.
pub const LIMIT: u32 = 100;

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    at: Time,
    id: String,
    /// What is asked.
    pub request: Request,
    /// Who asks.
    pub by: String,
}

/// Keeps a request; `id` is new. False where there is no such job.
///
/// # Errors
/// [`LIMIT`] requests wait already, or the database failed.
pub async fn add(
    conn: &mut AnyConnection,
    job_id: &JobId,
    id: &str,
    request: &Request,
    by: &str,
    now: Time,
) -> Result<bool, StoreError> {
    if take(conn, job_id).await?.len() >= LIMIT as usize {
        return Err(StoreError::InboxFull { limit: LIMIT });
    }
    let done = sqlx::query(
        "INSERT INTO inbox (job_id, at, id, by_whom, request)
         SELECT job_id, CAST($2 AS BIGINT), $3, $4, $5 FROM job WHERE job_id = $1",
    )
    .bind(job_id.as_str().to_owned())
    .bind(now.micros())
    .bind(id.to_owned())
    .bind(by.to_owned())
    .bind(to_doc("a request", request)?)
    .execute(conn)
    .await
    .doing("keeping a request")?;
    Ok(done.rows_affected() == 1)
}

/// Requests that wait for a job, oldest first, at most [`LIMIT`].
///
/// # Errors
/// The database failed.
pub async fn take(conn: &mut AnyConnection, job_id: &JobId) -> Result<Vec<Waiting>, StoreError> {
    let rows =
        sqlx::query("SELECT at, id, by_whom, request FROM inbox WHERE job_id = $1 ORDER BY at, id LIMIT $2")
            .bind(job_id.as_str().to_owned())
            .bind(i64::from(LIMIT))
            .fetch_all(conn)
            .await
            .doing("reading requests")?;
    rows.iter()
        .map(|row| {
            Ok(Waiting {
                at: Time(get(row, "at")?),
                id: get(row, "id")?,
                request: from_doc("request for job", job_id, get(row, "request")?)?,
                by: get(row, "by_whom")?,
            })
        })
        .collect()
}

/// Removes a request that the same transaction has acted on.
///
/// # Errors
/// The database failed.
pub async fn remove(conn: &mut AnyConnection, job_id: &JobId, taken: &Waiting) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM inbox WHERE job_id = $1 AND at = $2 AND id = $3")
        .bind(job_id.as_str().to_owned())
        .bind(taken.at.micros())
        .bind(taken.id.clone())
        .execute(conn)
        .await
        .doing("removing a request")?;
    Ok(())
}

/// Jobs that requests wait for, at most `limit`.
///
/// # Errors
/// The database failed.
pub async fn jobs(conn: &mut AnyConnection, limit: u32) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query("SELECT DISTINCT job_id FROM inbox ORDER BY job_id LIMIT $1")
        .bind(i64::from(limit))
        .fetch_all(conn)
        .await
        .doing("reading which jobs requests wait for")?;
    rows.iter().map(|row| from_word("job id", get(row, "job_id")?)).collect()
}
