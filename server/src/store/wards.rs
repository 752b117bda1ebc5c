//! How the nodes of a cluster stand beyond any one job: quarantines, trials, the cap, and who changed them.

use std::collections::{BTreeMap, BTreeSet};

use app::console::NodeEvent;
use engine::{
    ids::NodeName,
    nodes::standing::{Cap, Mark, NodeRecord, Ward},
    time::Time,
};
use sqlx::AnyConnection;

use super::{
    StoreError, Write,
    sql::{Doing, from_doc, from_word, get, to_doc},
};

/// Most nodes of one cluster of which something is kept and read at once; clusters of Kubernetes have at most 5,000 nodes.
pub const RECORDS_LIMIT: i64 = 10_000;
/// Most strikes of one cluster that are counted at once, the newest.
pub const MARKS_LIMIT: i64 = 5_000;
/// Most entries of a node's history in one answer.
pub const EVENTS_LIMIT: i64 = 100;

/// The nodes of a cluster as they are kept, and the generation of each; 0 where nothing is kept yet.
#[derive(Debug, Default)]
pub struct KeptWard {
    /// What is kept; how many nodes there are is the cluster's to say.
    pub ward: Ward,
    generations: BTreeMap<NodeName, i64>,
    cap_generation: i64,
}

/// Who changes something, why and when.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// `holdfast`, or a person's name.
    pub by: &'a str,
    /// What happened, a sentence.
    pub text: &'a str,
    /// When.
    pub at: Time,
}

/// The nodes of a cluster with strikes since `since`.
///
/// # Errors
/// The database failed.
pub async fn read(conn: &mut AnyConnection, cluster: &str, since: Time) -> Result<KeptWard, StoreError> {
    let mut kept = KeptWard::default();
    let rows = sqlx::query(
        "SELECT node, generation, doc FROM node_record WHERE cluster = $1 ORDER BY node LIMIT $2",
    )
    .bind(cluster.to_owned())
    .bind(RECORDS_LIMIT)
    .fetch_all(&mut *conn)
    .await
    .doing("reading how nodes stand")?;
    for row in &rows {
        let node: NodeName = from_word("node name", get(row, "node")?)?;
        kept.ward.records.insert(node.clone(), from_doc("record of node", &node, get(row, "doc")?)?);
        kept.generations.insert(node, get(row, "generation")?);
    }
    let rows = sqlx::query("SELECT generation, doc FROM node_cap WHERE cluster = $1")
        .bind(cluster.to_owned())
        .fetch_all(&mut *conn)
        .await
        .doing("reading the cap on quarantined nodes")?;
    if let Some(row) = rows.first() {
        kept.ward.cap = from_doc("cap of cluster", cluster, get(row, "doc")?)?;
        kept.cap_generation = get(row, "generation")?;
    }
    kept.ward.marks = marks(conn, cluster, since).await?;
    Ok(kept)
}

async fn marks(conn: &mut AnyConnection, cluster: &str, since: Time) -> Result<Vec<Mark>, StoreError> {
    let rows = sqlx::query(
        "SELECT strike.node, strike.incident_id, strike.job_id, strike.at FROM strike JOIN job ON job.job_id = strike.job_id
         WHERE strike.at > $1 AND job.cluster IN ($2, '') ORDER BY strike.at DESC, strike.incident_id DESC LIMIT $3",
    )
    .bind(since.micros())
    .bind(cluster.to_owned())
    .bind(MARKS_LIMIT)
    .fetch_all(conn)
    .await
    .doing("reading strikes that count")?;
    rows.iter()
        .map(|row| {
            Ok(Mark {
                node: from_word("node name", get(row, "node")?)?,
                job: from_word("job id", get(row, "job_id")?)?,
                incident: from_word("incident id", get(row, "incident_id")?)?,
                at: Time(get(row, "at")?),
            })
        })
        .collect()
}

/// The nodes of a cluster that are quarantined.
///
/// # Errors
/// The database failed.
pub async fn quarantined(conn: &mut AnyConnection, cluster: &str) -> Result<BTreeSet<NodeName>, StoreError> {
    let rows = sqlx::query(
        "SELECT node FROM node_record WHERE cluster = $1 AND quarantined = 1 ORDER BY node LIMIT $2",
    )
    .bind(cluster.to_owned())
    .bind(RECORDS_LIMIT)
    .fetch_all(conn)
    .await
    .doing("reading quarantined nodes")?;
    rows.iter().map(|row| from_word("node name", get(row, "node")?)).collect()
}

/// Writes how a node stands on top of what was read, and who did it.
///
/// # Errors
/// The database failed.
pub async fn write(
    conn: &mut AnyConnection,
    cluster: &str,
    kept: &KeptWard,
    (node, record): (&NodeName, &NodeRecord),
    entry: Entry<'_>,
) -> Result<Write, StoreError> {
    // Generations only grow, so one below the next is the one that was read.
    let seen = kept.generations.get(node).copied().unwrap_or(0);
    let sql = if seen == 0 {
        "INSERT INTO node_record (cluster, node, generation, quarantined, doc) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (cluster, node) DO NOTHING"
    } else {
        "UPDATE node_record SET generation = $3, quarantined = $4, doc = $5
         WHERE cluster = $1 AND node = $2 AND generation < $3"
    };
    let done = sqlx::query(sql)
        .bind(cluster.to_owned())
        .bind(node.as_str().to_owned())
        .bind(seen + 1)
        .bind(i64::from(record.quarantine.is_some()))
        .bind(to_doc("a node's record", record)?)
        .execute(&mut *conn)
        .await
        .doing("writing how a node stands")?;
    if done.rows_affected() == 0 {
        return Ok(Write::ChangedUnderUs);
    }
    tell(conn, cluster, node.as_str(), seen + 1, entry).await?;
    Ok(Write::Done)
}

/// Writes the cap of a cluster on top of what was read, and who did it.
///
/// # Errors
/// The database failed.
pub async fn write_cap(
    conn: &mut AnyConnection,
    cluster: &str,
    kept: &KeptWard,
    cap: &Cap,
    entry: Entry<'_>,
) -> Result<Write, StoreError> {
    let seen = kept.cap_generation;
    let sql = if seen == 0 {
        "INSERT INTO node_cap (cluster, generation, doc) VALUES ($1, $2, $3) ON CONFLICT (cluster) DO NOTHING"
    } else {
        "UPDATE node_cap SET generation = $2, doc = $3 WHERE cluster = $1 AND generation < $2"
    };
    let done = sqlx::query(sql)
        .bind(cluster.to_owned())
        .bind(seen + 1)
        .bind(to_doc("a cap", cap)?)
        .execute(&mut *conn)
        .await
        .doing("writing the cap on quarantined nodes")?;
    if done.rows_affected() == 0 {
        return Ok(Write::ChangedUnderUs);
    }
    tell(conn, cluster, "", seen + 1, entry).await?;
    Ok(Write::Done)
}

async fn tell(
    conn: &mut AnyConnection,
    cluster: &str,
    node: &str,
    generation: i64,
    entry: Entry<'_>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO node_event (cluster, node, generation, at, by_whom, text) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(cluster.to_owned())
    .bind(node.to_owned())
    .bind(generation)
    .bind(entry.at.micros())
    .bind(entry.by.to_owned())
    .bind(entry.text.to_owned())
    .execute(conn)
    .await
    .doing("writing who changed a node")?;
    Ok(())
}

/// Who changed how a node stands, newest first, at most [`EVENTS_LIMIT`]; of the cluster's cap where no node is named.
///
/// # Errors
/// The database failed.
pub async fn history(
    conn: &mut AnyConnection,
    cluster: &str,
    node: Option<&NodeName>,
) -> Result<Vec<NodeEvent>, StoreError> {
    let rows = sqlx::query(
        "SELECT at, by_whom, text FROM node_event WHERE cluster = $1 AND node = $2 ORDER BY generation DESC LIMIT $3",
    )
    .bind(cluster.to_owned())
    .bind(node.map(|node| node.as_str().to_owned()).unwrap_or_default())
    .bind(EVENTS_LIMIT)
    .fetch_all(conn)
    .await
    .doing("reading who changed a node")?;
    rows.iter()
        .map(|row| {
            Ok(NodeEvent { at: Time(get(row, "at")?), by: get(row, "by_whom")?, text: get(row, "text")? })
        })
        .collect()
}
