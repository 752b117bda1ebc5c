//! What the time of clusters went to, by days. Each job's sums are kept once a day, the newest of the day over older ones, so that taking
//! them twice or late changes nothing.

use app::console::ClusterUsage;
use engine::{
    ids::JobId,
    ledger,
    record::{Ledger, Summary},
    time::Time,
};
use sqlx::{AnyConnection, Row, any::AnyRow};

use super::{
    StoreError,
    sql::{Doing, count, from_doc, from_word, get},
};

/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;

/// What a job had used at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Used {
    /// The job.
    pub job_id: JobId,
    /// When its chain was written.
    pub at: Time,
    /// When it was made.
    created_at: Time,
    /// Its cluster.
    cluster: String,
    /// It has accelerators; else its slots are counted.
    accelerators: bool,
    /// The sums from its start on.
    ledger: Ledger,
}

impl Used {
    /// The same, as if all of it had been used when the job was made; none where that was on the same day. What was used before anything
    /// was kept is on no later day: a span that begins after it leaves it out.
    pub fn at_creation(&self) -> Option<Self> {
        let is_later = day_of(self.created_at) < day_of(self.at);
        is_later.then(|| Self { at: self.created_at, ..self.clone() })
    }
}

/// The day of a time, counted from 1970, in UTC.
pub fn day_of(time: Time) -> i64 {
    time.micros().div_euclid(DAY)
}

/// When a day begins.
pub fn start_of(day: i64) -> Time {
    Time(day.saturating_mul(DAY))
}

const COLUMNS: &str = "job_id, created_at, changed_at, cluster, accelerators_per_replica, diagnosis, summary";

/// Jobs that were written after `after`, in order of that.
///
/// # Errors
/// The database failed.
pub async fn changed(
    conn: &mut AnyConnection,
    after: (Time, &str),
    limit: u32,
) -> Result<Vec<Used>, StoreError> {
    let text = format!(
        "SELECT {COLUMNS} FROM job WHERE changed_at > $1 OR (changed_at = $1 AND job_id > $2)
         ORDER BY changed_at, job_id LIMIT $3"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(after.0.micros())
        .bind(after.1.to_owned())
        .bind(i64::from(limit))
        .fetch_all(conn)
        .await
        .doing("reading what jobs have used")?;
    rows.iter().map(of_row).collect()
}

/// Keeps what a job has used, unless something newer of that day is there.
///
/// # Errors
/// The database failed.
pub async fn keep(conn: &mut AnyConnection, used: &Used) -> Result<(), StoreError> {
    let Ledger { kept, stalled, starting, redone, diagnosing, queued_seconds, .. } = used.ledger;
    if kept + stalled + starting + redone + diagnosing + queued_seconds <= 0.0 {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO job_usage (job_id, day, at, cluster, accelerators, kept, stalled, starting, redone, diagnosing, queued)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
         ON CONFLICT (job_id, day) DO UPDATE SET at = excluded.at, cluster = excluded.cluster,
             accelerators = excluded.accelerators, kept = excluded.kept, stalled = excluded.stalled,
             starting = excluded.starting, redone = excluded.redone, diagnosing = excluded.diagnosing,
             queued = excluded.queued
         WHERE job_usage.at <= excluded.at",
    )
    .bind(used.job_id.as_str().to_owned())
    .bind(day_of(used.at))
    .bind(used.at.micros())
    .bind(used.cluster.clone())
    .bind(i64::from(used.accelerators))
    .bind(kept)
    .bind(stalled)
    .bind(starting)
    .bind(redone)
    .bind(diagnosing)
    .bind(queued_seconds)
    .execute(conn)
    .await
    .doing("keeping what a job has used")?;
    Ok(())
}

/// Keeps what a job has used that is about to be removed.
///
/// # Errors
/// The database failed.
pub(super) async fn keep_last(conn: &mut AnyConnection, job_id: &JobId) -> Result<(), StoreError> {
    let row = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM job WHERE job_id = $1")))
        .bind(job_id.as_str().to_owned())
        .fetch_optional(&mut *conn)
        .await
        .doing("reading what a job has used")?;
    match row {
        Some(row) => keep(conn, &of_row(&row)?).await,
        None => Ok(()),
    }
}

/// When the newest sums are of; none before the first.
///
/// # Errors
/// The database failed.
pub async fn newest(conn: &mut AnyConnection) -> Result<Option<Time>, StoreError> {
    let row = sqlx::query("SELECT MAX(at) AS at FROM job_usage WHERE day = (SELECT MAX(day) FROM job_usage)")
        .fetch_one(conn)
        .await
        .doing("reading since when usage is known")?;
    Ok(get::<Option<i64>>(&row, "at")?.map(Time))
}

/// Removes what is of a day before `day`, but of jobs that still live: their later sums count from it.
///
/// # Errors
/// The database failed.
pub async fn forget_before(conn: &mut AnyConnection, day: i64) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "DELETE FROM job_usage WHERE day < $1
         AND NOT EXISTS (SELECT 1 FROM job WHERE job.job_id = job_usage.job_id AND job.live = 1)",
    )
    .bind(day)
    .execute(conn)
    .await
    .doing("removing old usage")?;
    Ok(done.rows_affected())
}

/// What was used since the beginning of `day`, by cluster: each job's newest sums without those it had before.
///
/// # Errors
/// The database failed.
pub async fn since(conn: &mut AnyConnection, day: i64) -> Result<Vec<ClusterUsage>, StoreError> {
    let rows = sqlx::query(
        "SELECT now.cluster AS cluster, COUNT(*) AS jobs, MAX(now.accelerators) AS accelerators,
             SUM(now.kept - COALESCE(was.kept, 0.0)) AS kept,
             SUM(now.stalled - COALESCE(was.stalled, 0.0)) AS stalled,
             SUM(now.starting - COALESCE(was.starting, 0.0)) AS starting,
             SUM(now.redone - COALESCE(was.redone, 0.0)) AS redone,
             SUM(now.diagnosing - COALESCE(was.diagnosing, 0.0)) AS diagnosing,
             SUM(now.queued - COALESCE(was.queued, 0.0)) AS queued
         FROM job_usage now
         LEFT JOIN job_usage was ON was.job_id = now.job_id
             AND was.day = (SELECT MAX(day) FROM job_usage WHERE job_id = now.job_id AND day < $1)
         WHERE now.day >= $1
             AND now.day = (SELECT MAX(day) FROM job_usage WHERE job_id = now.job_id)
         GROUP BY now.cluster ORDER BY now.cluster",
    )
    .bind(day)
    .fetch_all(conn)
    .await
    .doing("reading what clusters have used")?;
    rows.iter().map(cluster_of).collect()
}

fn cluster_of(row: &AnyRow) -> Result<ClusterUsage, StoreError> {
    // What is known only afterwards may take time back from an earlier day.
    let seconds = |column| get::<f64>(row, column).map(|seconds| seconds.max(0.0));
    let ledger = Ledger {
        kept: seconds("kept")?,
        stalled: seconds("stalled")?,
        starting: seconds("starting")?,
        redone: seconds("redone")?,
        diagnosing: seconds("diagnosing")?,
        queued_seconds: seconds("queued")?,
        ettr: None,
    };
    Ok(ClusterUsage {
        cluster: get(row, "cluster")?,
        jobs: count(get(row, "jobs")?),
        accelerators: get::<i64>(row, "accelerators")? == 1,
        ledger: ledger::together([ledger]),
    })
}

fn of_row(row: &AnyRow) -> Result<Used, StoreError> {
    let job_id: String = get(row, "job_id")?;
    let summary: Summary = from_doc("a summary", &job_id, &get::<String>(row, "summary")?)?;
    let told = summary.ledger;
    // What a diagnosis holds is counted where it is held: by its groups, which train nothing.
    let is_group = row.try_get::<Option<String>, _>("diagnosis").doing("reading a column")?.is_some();
    let held = told.kept + told.stalled + told.starting + told.redone;
    let ledger = if is_group {
        Ledger { diagnosing: held, queued_seconds: told.queued_seconds, ..Ledger::default() }
    } else {
        Ledger { diagnosing: 0.0, ..told }
    };
    Ok(Used {
        job_id: from_word("a job id", job_id)?,
        at: Time(get(row, "changed_at")?),
        created_at: Time(get(row, "created_at")?),
        cluster: get(row, "cluster")?,
        accelerators: get::<i64>(row, "accelerators_per_replica")? > 0,
        ledger,
    })
}
