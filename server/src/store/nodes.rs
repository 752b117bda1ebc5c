//! What is held against nodes: strikes, and jobs that keep off them.

use std::collections::BTreeSet;

use app::console::NodeJob;
use engine::{
    ids::{JobId, NodeName, TaskId},
    nodes::forecast::Need,
    record::StrikeRecord,
};
use sqlx::AnyConnection;

use super::{
    StoreError,
    sql::{Doing, from_doc, from_word, get, number, to_doc},
};

/// Most strikes of one node in one answer.
pub const STRIKES_LIMIT: i64 = 100;
/// Most pairs of a node and a job that keeps off it in one answer.
pub const AVOIDED_LIMIT: i64 = 2_000;

/// A strike with the job it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptStrike {
    /// The strike.
    pub strike: StrikeRecord,
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub job_name: String,
}

/// Keeps a strike. An incident gives a node one strike, however often it is written. A group of a diagnosis strikes nobody: what its
/// failure says about a node is for the diagnosis to tell.
///
/// # Errors
/// The database failed.
pub async fn strike(
    conn: &mut AnyConnection,
    job_id: &JobId,
    strike: &StrikeRecord,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO strike (node, incident_id, job_id, at, doc)
         SELECT $1, $2, job_id, CAST($4 AS BIGINT), $5 FROM job WHERE job_id = $3 AND diagnosis IS NULL
         ON CONFLICT (node, incident_id) DO NOTHING",
    )
    .bind(strike.node.as_str().to_owned())
    .bind(strike.incident.as_str().to_owned())
    .bind(job_id.as_str().to_owned())
    .bind(strike.at.micros())
    .bind(to_doc("a strike", strike)?)
    .execute(conn)
    .await
    .doing("writing a strike")?;
    Ok(())
}

/// Strikes of a node of a cluster, newest first, at most [`STRIKES_LIMIT`].
///
/// # Errors
/// The database failed.
pub async fn strikes(
    conn: &mut AnyConnection,
    cluster: &str,
    node: &NodeName,
) -> Result<Vec<KeptStrike>, StoreError> {
    let rows = sqlx::query(
        "SELECT strike.incident_id, strike.job_id, strike.doc, job.name FROM strike JOIN job ON job.job_id = strike.job_id
         WHERE strike.node = $1 AND job.cluster IN ($3, '') ORDER BY strike.at DESC, strike.incident_id DESC LIMIT $2",
    )
    .bind(node.as_str().to_owned())
    .bind(STRIKES_LIMIT)
    .bind(cluster.to_owned())
    .fetch_all(conn)
    .await
    .doing("reading strikes")?;
    rows.iter()
        .map(|row| {
            Ok(KeptStrike {
                strike: from_doc("strike of incident", get::<&str>(row, "incident_id")?, get(row, "doc")?)?,
                job_id: from_word("job id", get(row, "job_id")?)?,
                job_name: get(row, "name")?,
            })
        })
        .collect()
}

/// Which nodes of a cluster jobs keep off with their next attempt, whether they have ended or not, by node: at most [`AVOIDED_LIMIT`] pairs,
/// those of jobs that live first. A group of a diagnosis is no job of people and keeps off nothing.
///
/// # Errors
/// The database failed.
pub async fn avoided(
    conn: &mut AnyConnection,
    cluster: &str,
) -> Result<Vec<(NodeName, NodeJob)>, StoreError> {
    let rows = sqlx::query(
        "SELECT avoided.node, avoided.job_id, avoided.task_id, job.name FROM avoided JOIN job ON job.job_id = avoided.job_id
         WHERE job.cluster IN ($2, '') AND job.diagnosis IS NULL
         ORDER BY job.live DESC, avoided.node, avoided.job_id LIMIT $1",
    )
    .bind(AVOIDED_LIMIT)
    .bind(cluster.to_owned())
    .fetch_all(conn)
    .await
    .doing("reading avoided nodes")?;
    rows.iter()
        .map(|row| {
            let job = NodeJob {
                job_id: from_word("job id", get(row, "job_id")?)?,
                name: get(row, "name")?,
                task_id: from_word("task id", get(row, "task_id")?)?,
            };
            Ok((from_word("node name", get(row, "node")?)?, job))
        })
        .collect()
}

/// Jobs of a cluster that keep off one node, whether they have ended or not: at most [`AVOIDED_LIMIT`], those that live first.
///
/// # Errors
/// The database failed.
pub async fn keeping_off(
    conn: &mut AnyConnection,
    cluster: &str,
    node: &NodeName,
) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query(
        "SELECT DISTINCT job.live, job.job_id FROM avoided JOIN job ON job.job_id = avoided.job_id
         WHERE avoided.node = $3 AND job.cluster IN ($2, '') AND job.diagnosis IS NULL
         ORDER BY job.live DESC, job.job_id LIMIT $1",
    )
    .bind(AVOIDED_LIMIT)
    .bind(cluster.to_owned())
    .bind(node.as_str().to_owned())
    .fetch_all(conn)
    .await
    .doing("reading who keeps off a node")?;
    rows.iter().map(|row| from_word("job id", get(row, "job_id")?)).collect()
}

/// Replaces which nodes a job keeps off for reasons of its own, with its newest attempt.
pub(super) async fn keep_avoided(
    conn: &mut AnyConnection,
    job_id: &JobId,
    task_id: &TaskId,
    nodes: &BTreeSet<NodeName>,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM avoided WHERE job_id = $1")
        .bind(job_id.as_str().to_owned())
        .execute(&mut *conn)
        .await
        .doing("replacing avoided nodes")?;
    for node in nodes {
        sqlx::query("INSERT INTO avoided (job_id, task_id, node) VALUES ($1, $2, $3)")
            .bind(job_id.as_str().to_owned())
            .bind(task_id.as_str().to_owned())
            .bind(node.as_str().to_owned())
            .execute(&mut *conn)
            .await
            .doing("writing an avoided node")?;
    }
    Ok(())
}

/// Most jobs of a cluster that a forecast looks at, the newest.
pub const NEEDS_LIMIT: i64 = 1_000;

/// What the jobs of a cluster that are not over need to start again, as far as slots go: one for each accelerator, at least one. What they
/// keep off themselves is not in it.
///
/// # Errors
/// The database failed.
pub async fn needs(conn: &mut AnyConnection, cluster: &str) -> Result<Vec<Need>, StoreError> {
    let rows = sqlx::query(
        "SELECT job_id, name, replicas, accelerators_per_replica, state FROM job
         WHERE live = 1 AND diagnosis IS NULL AND cluster IN ($1, '') AND state IN ('queued', 'starting', 'running', 'recovering')
         ORDER BY created_at DESC, job_id LIMIT $2",
    )
    .bind(cluster.to_owned())
    .bind(NEEDS_LIMIT)
    .fetch_all(conn)
    .await
    .doing("reading what jobs need")?;
    rows.iter()
        .map(|row| {
            Ok(Need {
                job_id: from_word("job id", get(row, "job_id")?)?,
                name: get(row, "name")?,
                replicas: number(get(row, "replicas")?),
                slots: number(get(row, "accelerators_per_replica")?).max(1),
                avoid: BTreeSet::new(),
                waits: get::<&str>(row, "state")? == "queued",
            })
        })
        .collect()
}
