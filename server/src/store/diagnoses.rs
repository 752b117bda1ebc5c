//! Runs of Bisect Diagnose. Each is written on top of the generation that was read, as the leader of an epoch, like a step of a chain.

use engine::{
    bisect::Run,
    ids::{JobId, TaskId},
    job::PodOptions,
    nodes::standing::Held,
};
use serde::{Deserialize, Serialize};
use sqlx::{AnyConnection, Row, any::AnyRow};

use super::{
    StoreError, Write, leader,
    sql::{Doing, count, from_doc, from_word, get, number, to_doc},
};

/// A run with what it is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Its id.
    pub run_id: String,
    /// The job it is about.
    pub job_id: JobId,
    /// The attempt whose nodes it tests.
    pub task_id: Option<TaskId>,
    /// Who began it: a person's name, or `policy`.
    pub by: String,
    /// The rule of the policy that asked for it; none: a person did.
    #[serde(default)]
    pub rule: Option<String>,
    /// The cluster.
    pub cluster: String,
    /// The command that each node runs.
    pub command: Vec<String>,
    /// Its environment beside what every replica has.
    pub env: std::collections::BTreeMap<String, String>,
    /// Where it starts.
    pub working_dir: Option<String>,
    /// The image it runs in; none where there are no images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What its pods are made of, where there are pods.
    #[serde(default, skip_serializing_if = "PodOptions::is_default")]
    pub pods: PodOptions,
    /// What became of the nodes that it confirmed.
    #[serde(default)]
    pub held: Vec<Held>,
    /// The run.
    pub run: Run,
}

/// A run as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Counts the runs of its job, from 1.
    pub number: u32,
    /// Counts its steps, from 1.
    pub generation: i64,
    /// Who asked to stop it and was not heard yet.
    pub stop_by: Option<String>,
    /// The run.
    pub diagnosis: Diagnosis,
}

/// Keeps a new run; gives its number in its job. None where another run of the job goes on.
///
/// # Errors
/// The database failed.
pub async fn create(conn: &mut AnyConnection, diagnosis: &Diagnosis) -> Result<Option<u32>, StoreError> {
    let row = sqlx::query(
        "INSERT INTO diagnosis (run_id, job_id, number, started_at, live, generation, doc)
         VALUES ($1, $2, (SELECT COALESCE(MAX(number), 0) + 1 FROM diagnosis WHERE job_id = $2), $3, $4, 1, $5)
         ON CONFLICT DO NOTHING RETURNING number",
    )
    .bind(diagnosis.run_id.clone())
    .bind(diagnosis.job_id.as_str().to_owned())
    .bind(diagnosis.run.started_at().micros())
    .bind(i64::from(diagnosis.run.finding().is_none()))
    .bind(to_doc("a diagnosis", diagnosis)?)
    .fetch_optional(conn)
    .await
    .doing("making a diagnosis")?;
    row.map(|row| Ok(number(get(&row, "number")?))).transpose()
}

/// Writes a step on top of generation `seen`, as the leader of `epoch`.
///
/// # Errors
/// The database failed.
pub async fn write(
    conn: &mut AnyConnection,
    epoch: i64,
    seen: i64,
    diagnosis: &Diagnosis,
) -> Result<Write, StoreError> {
    let done = sqlx::query(
        "UPDATE diagnosis SET generation = generation + 1, live = $1, doc = $2
         WHERE run_id = $3 AND generation = $4 AND EXISTS (SELECT 1 FROM leader WHERE id = 1 AND epoch = $5)",
    )
    .bind(i64::from(diagnosis.run.finding().is_none()))
    .bind(to_doc("a diagnosis", diagnosis)?)
    .bind(diagnosis.run_id.clone())
    .bind(seen)
    .bind(epoch)
    .execute(&mut *conn)
    .await
    .doing("writing a diagnosis")?;
    if done.rows_affected() == 1 {
        return Ok(Write::Done);
    }
    let leads = leader::is_current(conn, epoch).await?;
    Ok(if leads { Write::ChangedUnderUs } else { Write::NotLeader })
}

/// Asks a run to stop; false where none of this id goes on.
///
/// # Errors
/// The database failed.
pub async fn stop(conn: &mut AnyConnection, run_id: &str, by: &str) -> Result<bool, StoreError> {
    let done =
        sqlx::query("UPDATE diagnosis SET stop_by = COALESCE(stop_by, $1) WHERE run_id = $2 AND live = 1")
            .bind(by.to_owned())
            .bind(run_id.to_owned())
            .execute(conn)
            .await
            .doing("asking a diagnosis to stop")?;
    Ok(done.rows_affected() == 1)
}

/// One run.
///
/// # Errors
/// The database failed.
pub async fn get_one(conn: &mut AnyConnection, run_id: &str) -> Result<Option<Kept>, StoreError> {
    let row = sqlx::query("SELECT run_id, number, generation, stop_by, doc FROM diagnosis WHERE run_id = $1")
        .bind(run_id.to_owned())
        .fetch_optional(conn)
        .await
        .doing("reading a diagnosis")?;
    row.as_ref().map(to_kept).transpose()
}

/// Runs, newest first, of one job or of all, at most `limit`.
///
/// # Errors
/// The database failed.
pub async fn newest(
    conn: &mut AnyConnection,
    job_id: Option<&JobId>,
    limit: u32,
) -> Result<Vec<Kept>, StoreError> {
    let rows = sqlx::query(
        "SELECT run_id, number, generation, stop_by, doc FROM diagnosis
         WHERE ($1 = '' OR job_id = $1) ORDER BY started_at DESC, run_id DESC LIMIT $2",
    )
    .bind(job_id.map(|id| id.as_str().to_owned()).unwrap_or_default())
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await
    .doing("reading diagnoses")?;
    rows.iter().map(to_kept).collect()
}

/// How many runs a job has had.
///
/// # Errors
/// The database failed.
pub async fn count_of(conn: &mut AnyConnection, job_id: &JobId) -> Result<u32, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) FROM diagnosis WHERE job_id = $1")
        .bind(job_id.as_str().to_owned())
        .fetch_one(conn)
        .await
        .doing("counting diagnoses")?;
    Ok(count(row.try_get::<i64, _>(0).doing("counting diagnoses")?).try_into().unwrap_or(u32::MAX))
}

/// Runs that go on, at most `limit`.
///
/// # Errors
/// The database failed.
pub async fn live(conn: &mut AnyConnection, limit: u32) -> Result<Vec<Kept>, StoreError> {
    let rows = sqlx::query(
        "SELECT run_id, number, generation, stop_by, doc FROM diagnosis WHERE live = 1 ORDER BY run_id LIMIT $1",
    )
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await
    .doing("reading live diagnoses")?;
    rows.iter().map(to_kept).collect()
}

/// Jobs that may wait for a diagnosis, at most `limit`; their chains say whether they do.
///
/// # Errors
/// The database failed.
pub async fn waiting(conn: &mut AnyConnection, limit: u32) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query(
        "SELECT job_id FROM job WHERE state = 'recovering' AND diagnosis IS NULL AND summary LIKE $1 ORDER BY job_id LIMIT $2",
    )
    // Quotes in a text are escaped, so nothing else in a summary reads like that.
    .bind("%\"substate\":\"diagnosing\"%")
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await
    .doing("reading jobs that wait for a diagnosis")?;
    rows.iter().map(|row| from_word("job id", get(row, "job_id")?)).collect()
}

/// Marks a job as a group of a run, in the transaction that makes it.
///
/// # Errors
/// The database failed.
pub async fn mark(conn: &mut AnyConnection, job_id: &JobId, run_id: &str) -> Result<(), StoreError> {
    sqlx::query("UPDATE job SET diagnosis = $1 WHERE job_id = $2")
        .bind(run_id.to_owned())
        .bind(job_id.as_str().to_owned())
        .execute(conn)
        .await
        .doing("marking a group of a diagnosis")?;
    Ok(())
}

/// The run that a job is a group of; none for a job of people.
///
/// # Errors
/// The database failed.
pub async fn run_of(conn: &mut AnyConnection, job_id: &JobId) -> Result<Option<String>, StoreError> {
    let row = sqlx::query("SELECT diagnosis FROM job WHERE job_id = $1 AND diagnosis IS NOT NULL")
        .bind(job_id.as_str().to_owned())
        .fetch_optional(conn)
        .await
        .doing("reading which diagnosis a job is a group of")?;
    row.map(|row| get(&row, "diagnosis")).transpose()
}

/// Groups whose run is gone, at most `limit`: nobody can see them any more.
///
/// # Errors
/// The database failed.
pub async fn orphans(conn: &mut AnyConnection, limit: u32) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query(
        "SELECT job_id FROM job WHERE diagnosis IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM diagnosis WHERE diagnosis.run_id = job.diagnosis)
         AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.job_id = job.job_id) ORDER BY job_id LIMIT $1",
    )
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await
    .doing("reading groups of diagnoses that are gone")?;
    rows.iter().map(|row| from_word("job id", get(row, "job_id")?)).collect()
}

fn to_kept(row: &AnyRow) -> Result<Kept, StoreError> {
    let run_id: String = get(row, "run_id")?;
    Ok(Kept {
        number: number(get(row, "number")?),
        generation: get(row, "generation")?,
        stop_by: get(row, "stop_by")?,
        diagnosis: from_doc("diagnosis", &run_id, get(row, "doc")?)?,
    })
}
