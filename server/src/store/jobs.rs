//! Jobs: lists, counts, heads and the chains themselves.

use std::collections::BTreeMap;

use app::console::{JobRow, JobsCounts, JobsQuery, JobsSort, JobsViewName};
use engine::{chain::Chain, ids::JobId, job::JobKind, record::Summary, time::Time};
use sqlx::{AnyConnection, Row, any::AnyRow};

use super::{
    StoreError,
    sql::{Doing, Sql, anywhere, big, count, from_doc, from_word, get, number},
};

/// Rows of one page of the jobs list where nothing else is asked, and the range that can be asked.
pub const PAGE_DEFAULT: u32 = 50;
/// Fewest rows of a page.
pub const PAGE_MIN: u32 = 1;
/// Most rows of a page.
pub const PAGE_MAX: u32 = 200;
/// Most characters of a search that are looked at.
pub const SEARCH_CHARS: usize = 200;

/// The head of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobHead {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: JobKind,
    /// Its replicas.
    pub replicas: u32,
    /// Accelerators of each replica.
    pub accelerators_per_replica: u32,
    /// Who made it.
    pub owner: String,
    /// The job whose settings it was made from; that one may be gone.
    pub copied_from: Option<JobId>,
    /// When.
    pub created_at: Time,
    /// When its chain was last written.
    pub changed_at: Time,
    /// When it ended; none while it has not, or was reopened.
    pub ended_at: Option<Time>,
    /// Counts its steps, from 1.
    pub generation: i64,
    /// All about its chain, as of its last step.
    pub summary: Summary,
}

/// A chain and the step that it was written by.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Counts the job's steps, from 1.
    pub generation: i64,
    /// The chain.
    pub chain: Chain,
}

/// A page of the jobs list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Its rows.
    pub items: Vec<JobRow>,
    /// All rows that match.
    pub total: u64,
    /// Its number, from 1.
    pub page: u32,
    /// Rows of a page.
    pub size: u32,
}

/// A page of the jobs that match, as `caller` sees them. Sizes outside the limits are brought inside.
///
/// # Errors
/// The database failed.
pub async fn page(conn: &mut AnyConnection, query: &JobsQuery, caller: &str) -> Result<Page, StoreError> {
    let size = query.size.unwrap_or(PAGE_DEFAULT).clamp(PAGE_MIN, PAGE_MAX);
    let page = query.page.unwrap_or(1).max(1);
    let mut counting = Sql::new("SELECT COUNT(*) FROM job WHERE diagnosis IS NULL");
    conditions(&mut counting, query, caller)?;
    let row = counting.build().fetch_one(&mut *conn).await.doing("counting jobs")?;
    let total = count(row.try_get::<i64, _>(0).doing("counting jobs")?);
    let offset = u64::from(page - 1) * u64::from(size);
    if offset >= total {
        return Ok(Page { items: Vec::new(), total, page, size });
    }

    let mut listing = Sql::new(
        "SELECT job_id, name, kind, replicas, accelerators_per_replica, owner, created_at, changed_at, summary,
             (SELECT COUNT(*) FROM diagnosis WHERE diagnosis.job_id = job.job_id) AS runs FROM job WHERE diagnosis IS NULL",
    );
    conditions(&mut listing, query, caller)?;
    listing.push(match query.sort.unwrap_or(JobsSort::Newest) {
        JobsSort::Newest => " ORDER BY created_at DESC, job_id DESC",
        JobsSort::Oldest => " ORDER BY created_at, job_id",
        JobsSort::Name => " ORDER BY name, job_id",
        JobsSort::Restarts => " ORDER BY task_restarts DESC, created_at DESC, job_id DESC",
    });
    listing.bind(" LIMIT ", i64::from(size))?;
    listing.bind(" OFFSET ", big(offset))?;
    let rows = listing.build().fetch_all(conn).await.doing("reading jobs")?;
    let items = rows.iter().map(|row| {
        let mut job = to_job_row(row)?;
        // Runs are counted where they are kept; a chain knows nothing of them.
        job.summary.budgets.diagnostics.used = number(get(row, "runs")?);
        Ok(job)
    });
    let items = items.collect::<Result<_, _>>()?;
    Ok(Page { items, total, page, size })
}

fn conditions(sql: &mut Sql, query: &JobsQuery, caller: &str) -> Result<(), StoreError> {
    match query.view.unwrap_or(JobsViewName::All) {
        JobsViewName::Attention => sql.push(" AND needs_attention = 1"),
        JobsViewName::Running => sql.push(" AND state = 'running'"),
        JobsViewName::Recovering => sql.push(" AND state = 'recovering'"),
        JobsViewName::Mine => sql.bind(" AND owner = ", caller.to_owned())?,
        JobsViewName::All => {}
    }
    if let Some(state) = query.state {
        sql.bind(" AND state = ", state.as_str())?;
    }
    if let Some(kind) = query.kind {
        sql.bind(" AND kind = ", kind.as_str())?;
    }
    if let Some(fault) = query.fault {
        sql.bind(" AND failure_type = ", fault.as_str())?;
    }
    if let Some(owner) = &query.owner {
        sql.bind(" AND owner = ", owner.clone())?;
    }
    if let Some(restarts) = query.restarts {
        sql.bind(" AND task_restarts >= ", i64::from(restarts))?;
    }
    let searched = query.q.as_deref().map(str::trim).filter(|text| !text.is_empty());
    if let Some(text) = searched {
        let text: String = text.to_lowercase().chars().take(SEARCH_CHARS).collect();
        sql.bind(" AND search LIKE ", anywhere(&text))?;
        sql.push(r" ESCAPE '\'");
    }
    Ok(())
}

/// How many jobs each view of the list has.
///
/// # Errors
/// The database failed.
pub async fn counts(conn: &mut AnyConnection, caller: &str) -> Result<JobsCounts, StoreError> {
    // Each is answered from an index of its own, and so are the groups of diagnoses, which are no jobs of people.
    let row = sqlx::query(
        "SELECT (SELECT COUNT(*) FROM job WHERE needs_attention = 1)
                    - (SELECT COUNT(*) FROM job WHERE diagnosis IS NOT NULL AND needs_attention = 1) AS attention,
                (SELECT COUNT(*) FROM job WHERE state = 'running')
                    - (SELECT COUNT(*) FROM job WHERE diagnosis IS NOT NULL AND state = 'running') AS running,
                (SELECT COUNT(*) FROM job WHERE state = 'recovering')
                    - (SELECT COUNT(*) FROM job WHERE diagnosis IS NOT NULL AND state = 'recovering') AS recovering,
                (SELECT COUNT(*) FROM job) - (SELECT COUNT(*) FROM job WHERE diagnosis IS NOT NULL) AS every,
                (SELECT COUNT(*) FROM job WHERE owner = $1)
                    - (SELECT COUNT(*) FROM job WHERE diagnosis IS NOT NULL AND owner = $1) AS mine",
    )
    .bind(caller.to_owned())
    .fetch_one(conn)
    .await
    .doing("counting jobs")?;
    Ok(JobsCounts {
        attention: count(get(&row, "attention")?),
        running: count(get(&row, "running")?),
        recovering: count(get(&row, "recovering")?),
        all: count(get(&row, "every")?),
        mine: count(get(&row, "mine")?),
    })
}

/// How many jobs the driver has to act on or to watch, by cluster.
///
/// # Errors
/// The database failed.
pub async fn live_by_cluster(conn: &mut AnyConnection) -> Result<BTreeMap<String, u64>, StoreError> {
    let rows = sqlx::query("SELECT cluster, COUNT(*) AS jobs FROM job WHERE live = 1 GROUP BY cluster")
        .fetch_all(conn)
        .await
        .doing("counting jobs by cluster")?;
    rows.iter().map(|row| Ok((get(row, "cluster")?, count(get(row, "jobs")?)))).collect()
}

/// The head of one job.
///
/// # Errors
/// The database failed.
pub async fn head(conn: &mut AnyConnection, job_id: &JobId) -> Result<Option<JobHead>, StoreError> {
    let row = sqlx::query(
        "SELECT job_id, name, kind, replicas, accelerators_per_replica, owner, created_at, changed_at, ended_at, generation, copied_from, summary
         FROM job WHERE job_id = $1",
    )
    .bind(job_id.as_str().to_owned())
    .fetch_optional(conn)
    .await
    .doing("reading a job")?;
    row.map(|row| {
        let job = to_job_row(&row)?;
        let copied_from = get::<Option<String>>(&row, "copied_from")?;
        Ok(JobHead {
            job_id: job.job_id,
            name: job.name,
            kind: job.kind,
            replicas: job.replicas,
            accelerators_per_replica: job.accelerators_per_replica,
            owner: job.owner,
            copied_from: copied_from.map(|id| from_word("job id", id)).transpose()?,
            created_at: job.created_at,
            changed_at: job.changed_at,
            ended_at: get::<Option<i64>>(&row, "ended_at")?.map(Time),
            generation: get(&row, "generation")?,
            summary: job.summary,
        })
    })
    .transpose()
}

/// Keeps other writers off a job until the transaction ends, so that what is read of it then stays true. Nothing where there is no such job.
///
/// # Errors
/// The database failed.
pub async fn hold(conn: &mut AnyConnection, job_id: &JobId) -> Result<(), StoreError> {
    sqlx::query("UPDATE job SET diagnosis = diagnosis WHERE job_id = $1")
        .bind(job_id.as_str().to_owned())
        .execute(conn)
        .await
        .doing("keeping others off a job")?;
    Ok(())
}

/// Whether there was a job of this id that was removed.
///
/// # Errors
/// The database failed.
pub async fn is_forgotten(conn: &mut AnyConnection, job_id: &JobId) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT job_id FROM forgotten_job WHERE job_id = $1")
        .bind(job_id.as_str().to_owned())
        .fetch_optional(conn)
        .await
        .doing("looking for a removed job")?;
    Ok(row.is_some())
}

/// The chain of one job.
///
/// # Errors
/// The database failed.
pub async fn chain(conn: &mut AnyConnection, job_id: &JobId) -> Result<Option<Stored>, StoreError> {
    let row = sqlx::query(
        "SELECT job.job_id, job.generation, chain.doc FROM job JOIN chain ON chain.job_id = job.job_id WHERE job.job_id = $1",
    )
    .bind(job_id.as_str().to_owned())
    .fetch_optional(conn)
    .await
    .doing("reading a chain")?;
    row.as_ref().map(to_stored).transpose()
}

/// Chains that the driver has to act on or to watch, by id, those after `after`, at most `limit`. One that cannot be read is an
/// error of its own and hides none of the others.
///
/// # Errors
/// The database failed.
pub async fn live(
    conn: &mut AnyConnection,
    after: Option<&JobId>,
    limit: u32,
) -> Result<Vec<(JobId, Result<Stored, StoreError>)>, StoreError> {
    let rows = sqlx::query(
        "SELECT job.job_id, job.generation, chain.doc FROM job JOIN chain ON chain.job_id = job.job_id
         WHERE job.live = 1 AND job.job_id > $1 ORDER BY job.job_id LIMIT $2",
    )
    .bind(after.map(|id| id.as_str().to_owned()).unwrap_or_default())
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await
    .doing("reading live chains")?;
    rows.iter().map(|row| Ok((from_word("job id", get(row, "job_id")?)?, to_stored(row)))).collect()
}

/// The ids of [`live`] alone.
///
/// # Errors
/// The database failed.
pub async fn live_ids(
    conn: &mut AnyConnection,
    after: Option<&JobId>,
    limit: u32,
) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query("SELECT job_id FROM job WHERE live = 1 AND job_id > $1 ORDER BY job_id LIMIT $2")
        .bind(after.map(|id| id.as_str().to_owned()).unwrap_or_default())
        .bind(i64::from(limit))
        .fetch_all(conn)
        .await
        .doing("reading which jobs live")?;
    rows.iter().map(|row| from_word("job id", get(row, "job_id")?)).collect()
}

/// Live jobs that were made at `since` or later, newest first, at most `limit`.
///
/// # Errors
/// The database failed.
pub async fn live_since(conn: &mut AnyConnection, since: Time, limit: u32) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query(
        "SELECT job_id FROM job WHERE created_at >= $1 AND live = 1 ORDER BY created_at DESC LIMIT $2",
    )
    .bind(since.micros())
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await
    .doing("reading which jobs are new")?;
    rows.iter().map(|row| from_word("job id", get(row, "job_id")?)).collect()
}

/// Jobs that were written at `since` or later, in the order they were written, with that time and their generation, at most `limit`.
///
/// # Errors
/// The database failed.
pub async fn changed_since(
    conn: &mut AnyConnection,
    since: Time,
    limit: u32,
) -> Result<Vec<(JobId, i64, Time)>, StoreError> {
    let rows = sqlx::query(
        "SELECT job_id, generation, changed_at FROM job WHERE changed_at >= $1 ORDER BY changed_at, job_id LIMIT $2",
    )
    .bind(since.micros())
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await
    .doing("reading which jobs changed")?;
    rows.iter()
        .map(|row| {
            let job_id = from_word("job id", get(row, "job_id")?)?;
            Ok((job_id, get(row, "generation")?, Time(get(row, "changed_at")?)))
        })
        .collect()
}

fn to_job_row(row: &AnyRow) -> Result<JobRow, StoreError> {
    let job_id: JobId = from_word("job id", get(row, "job_id")?)?;
    let summary = from_doc("summary of job", &job_id, get(row, "summary")?)?;
    Ok(JobRow {
        job_id,
        name: get(row, "name")?,
        kind: from_word("kind of a job", get(row, "kind")?)?,
        replicas: number(get(row, "replicas")?),
        accelerators_per_replica: number(get(row, "accelerators_per_replica")?),
        owner: get(row, "owner")?,
        created_at: Time(get(row, "created_at")?),
        changed_at: Time(get(row, "changed_at")?),
        summary,
    })
}

fn to_stored(row: &AnyRow) -> Result<Stored, StoreError> {
    let chain = from_doc("chain of job", get::<&str>(row, "job_id")?, get(row, "doc")?)?;
    Ok(Stored { generation: get(row, "generation")?, chain })
}
