//! What a step of a chain leaves behind, written in the caller's transaction: the chain, its columns for lists, its records and
//! the changes for streams.

use engine::{
    chain::Chain,
    ids::JobId,
    record::{Record, Summary},
    time::Time,
};
use sqlx::AnyConnection;

use super::{
    StoreError, Write, attempts, changes, events, incidents, launches, leader, nodes, points,
    sql::{Doing, to_doc},
    stacks, usage,
};

/// What lists and the driver need to know of a chain without reading it.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// All about the job as a whole.
    pub summary: Summary,
    /// The driver has to act on it or watch it.
    pub live: bool,
}

impl Head {
    /// The head of a chain as it is now.
    pub fn of(chain: &Chain, now: Time) -> Self {
        let live =
            chain.live_task().is_some() || chain.wake_at().is_some() || !chain.pending_effects().is_empty();
        Self { summary: chain.summary(now), live }
    }
}

/// A chain after a step, and what the step wants to be kept.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// The chain.
    pub chain: &'a Chain,
    /// Its head.
    pub head: &'a Head,
    /// The step's records, in order.
    pub records: &'a [Record],
    /// The time of the step.
    pub now: Time,
}

/// Who makes a job, and from what.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Whose job it is.
    pub owner: &'a str,
    /// The job whose settings it was made from; that one may be gone.
    pub copied_from: Option<&'a JobId>,
}

/// Makes a job with its first step, which is generation 1.
///
/// # Errors
/// The database failed.
pub async fn create(conn: &mut AnyConnection, origin: Origin<'_>, kept: Kept<'_>) -> Result<(), StoreError> {
    let Origin { owner, copied_from } = origin;
    let (job_id, spec, summary) = (kept.chain.job_id(), kept.chain.spec(), &kept.head.summary);
    let search = [&spec.name, job_id.as_str(), owner, spec.image.as_deref().unwrap_or_default()]
        .map(str::to_lowercase)
        .join("\n");
    sqlx::query(
        "INSERT INTO job (job_id, name, kind, owner, created_at, changed_at, generation, state, needs_attention,
             failure_type, task_restarts, live, search, summary, replicas, accelerators_per_replica, copied_from, cluster)
         VALUES ($1, $2, $3, $4, $5, $5, 1, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
    )
    .bind(job_id.as_str().to_owned())
    .bind(spec.name.clone())
    .bind(spec.kind.as_str())
    .bind(owner.to_owned())
    .bind(kept.now.micros())
    .bind(summary.state.as_str())
    .bind(i64::from(summary.needs_attention))
    .bind(summary.failure_type.map(|failure_type| failure_type.as_str().to_owned()))
    .bind(i64::from(summary.budgets.task_restarts.used))
    .bind(i64::from(kept.head.live))
    .bind(search)
    .bind(to_doc("a summary", summary)?)
    .bind(i64::from(spec.replicas))
    .bind(i64::from(spec.accelerators_per_replica))
    .bind(copied_from.map(|id| id.as_str().to_owned()))
    .bind(spec.cluster.clone())
    .execute(&mut *conn)
    .await
    .doing("making a job")?;
    sqlx::query("INSERT INTO chain (job_id, doc) VALUES ($1, $2)")
        .bind(job_id.as_str().to_owned())
        .bind(to_doc("a chain", kept.chain)?)
        .execute(&mut *conn)
        .await
        .doing("making a chain")?;
    keep_records(conn, 1, kept).await
}

/// Writes a step on top of generation `seen`, as the leader of `epoch`. Nothing is written where either has moved on.
///
/// On Postgres a new epoch may begin between the check and the commit. That is a step of the old leader just before it
/// was replaced: the new one finds the generation moved, reads again and goes on from there.
///
/// # Errors
/// The database failed.
pub async fn write(
    conn: &mut AnyConnection,
    epoch: i64,
    seen: i64,
    kept: Kept<'_>,
) -> Result<Write, StoreError> {
    let (job_id, summary) = (kept.chain.job_id(), &kept.head.summary);
    let done = sqlx::query(
        "UPDATE job SET generation = generation + 1, changed_at = $1, state = $2, needs_attention = $3,
             failure_type = $4, task_restarts = $5, live = $6, summary = $7, cluster = $12,
             ended_at = CASE WHEN $8 = 1 THEN COALESCE(ended_at, $1) END
         WHERE job_id = $9 AND generation = $10 AND EXISTS (SELECT 1 FROM leader WHERE id = 1 AND epoch = $11)",
    )
    .bind(kept.now.micros())
    .bind(summary.state.as_str())
    .bind(i64::from(summary.needs_attention))
    .bind(summary.failure_type.map(|failure_type| failure_type.as_str().to_owned()))
    .bind(i64::from(summary.budgets.task_restarts.used))
    .bind(i64::from(kept.head.live))
    .bind(to_doc("a summary", summary)?)
    .bind(i64::from(summary.state.is_terminal()))
    .bind(job_id.as_str().to_owned())
    .bind(seen)
    .bind(epoch)
    .bind(kept.chain.spec().cluster.clone())
    .execute(&mut *conn)
    .await
    .doing("writing a step")?;
    if done.rows_affected() == 0 {
        return lost(conn, epoch).await;
    }
    sqlx::query("UPDATE chain SET doc = $1 WHERE job_id = $2")
        .bind(to_doc("a chain", kept.chain)?)
        .bind(job_id.as_str().to_owned())
        .execute(&mut *conn)
        .await
        .doing("writing a chain")?;
    keep_records(conn, seen + 1, kept).await?;
    Ok(Write::Done)
}

/// Removes a job with everything that was kept of it, as the leader of `epoch`. What stays is that it was.
///
/// # Errors
/// The database failed.
pub async fn forget(
    conn: &mut AnyConnection,
    epoch: i64,
    job_id: &JobId,
    now: Time,
) -> Result<Write, StoreError> {
    usage::keep_last(conn, job_id).await?;
    let done = sqlx::query(
        "DELETE FROM job WHERE job_id = $1 AND EXISTS (SELECT 1 FROM leader WHERE id = 1 AND epoch = $2)",
    )
    .bind(job_id.as_str().to_owned())
    .bind(epoch)
    .execute(&mut *conn)
    .await
    .doing("removing a job")?;
    if done.rows_affected() == 0 {
        return lost(conn, epoch).await;
    }
    sqlx::query("INSERT INTO forgotten_job (job_id, at) VALUES ($1, $2)")
        .bind(job_id.as_str().to_owned())
        .bind(now.micros())
        .execute(conn)
        .await
        .doing("noting that a job was removed")?;
    Ok(Write::Done)
}

/// Why nothing was written.
async fn lost(conn: &mut AnyConnection, epoch: i64) -> Result<Write, StoreError> {
    let leads = leader::is_current(conn, epoch).await?;
    Ok(if leads { Write::ChangedUnderUs } else { Write::NotLeader })
}

async fn keep_records(conn: &mut AnyConnection, generation: i64, kept: Kept<'_>) -> Result<(), StoreError> {
    let job_id = kept.chain.job_id();
    let newest = &kept.head.summary.latest_task_id;
    nodes::keep_avoided(conn, job_id, newest, &kept.chain.own_avoided()).await?;
    for (n, record) in kept.records.iter().enumerate() {
        match record {
            Record::Attempt(attempt) => attempts::keep(conn, job_id, attempt).await?,
            Record::Launch(task_id, launch) => launches::keep(conn, job_id, task_id, launch).await?,
            Record::Incident(task_id, incident) => {
                incidents::keep(conn, job_id, task_id, incident).await?;
            }
            Record::Points(task_id, record) => points::keep(conn, job_id, task_id, record).await?,
            Record::Event(event) => events::add(conn, job_id, (generation, n as i64), event).await?,
            Record::Strike(strike) => nodes::strike(conn, job_id, strike).await?,
            Record::Stacks(task_id, record) => stacks::keep(conn, job_id, task_id, record).await?,
        }
    }
    changes::keep(conn, job_id, generation, &kept.head.summary, kept.records).await
}
