//! The history of a job: entries that are never replaced.

use app::console::{EventsPage, EventsQuery};
use engine::{
    ids::JobId,
    record::{EventKind, EventRecord},
    time::Time,
};
use sqlx::{AnyConnection, Row, any::AnyRow};

use super::{
    StoreError,
    sql::{Doing, Sql, count, from_word, get, to_word},
};

/// Most events in one answer.
pub const PAGE_LIMIT: u32 = 500;
/// Events in one answer where nothing else is asked.
pub const PAGE_DEFAULT: u32 = 100;
/// Entries that are looked at for what is told again after a server was away, so that a long history costs no more than a short one. A story of
/// more than this in an hour is one of restarts that all say the same.
pub const RECENT_LIMIT: i64 = 128;

/// Adds an entry: number `n` of the step that made `generation`.
///
/// # Errors
/// The database failed.
pub async fn add(
    conn: &mut AnyConnection,
    job_id: &JobId,
    (generation, n): (i64, i64),
    event: &EventRecord,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO event (job_id, generation, n, at, kind, reason, task_id, by_whom, text)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(job_id.as_str().to_owned())
    .bind(generation)
    .bind(n)
    .bind(event.at.micros())
    .bind(to_word("an event", &event.kind)?)
    .bind(event.reason.map(|reason| to_word("an event's reason", &reason)).transpose()?)
    .bind(event.task_id.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default())
    .bind(event.by.clone())
    .bind(event.text.clone())
    .execute(conn)
    .await
    .doing("writing an event")?;
    Ok(())
}

/// A page of a job's history, newest first.
///
/// # Errors
/// The cursor is none of ours, or the database failed.
pub async fn page(
    conn: &mut AnyConnection,
    job_id: &JobId,
    query: &EventsQuery,
) -> Result<EventsPage, StoreError> {
    let limit = query.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_LIMIT);
    let mut sql =
        Sql::new("SELECT generation, n, at, kind, reason, task_id, by_whom, text FROM event WHERE job_id = ");
    sql.bind("", job_id.as_str().to_owned())?;
    filter(&mut sql, query)?;
    if let Some(cursor) = &query.cursor {
        let (generation, n) = parse_cursor(cursor)?;
        sql.bind(" AND (generation, n) < (", generation)?;
        sql.bind(", ", n)?;
        sql.push(")");
    }
    // One more than asked tells whether there is a next page.
    sql.bind(" ORDER BY generation DESC, n DESC LIMIT ", i64::from(limit) + 1)?;
    let mut rows = sql.build().fetch_all(&mut *conn).await.doing("reading events")?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_cursor = match rows.last() {
        Some(row) if more => Some(format!("{}.{}", get::<i64>(row, "generation")?, get::<i64>(row, "n")?)),
        _ => None,
    };
    let items = rows.iter().map(from_row).collect::<Result<_, _>>()?;
    Ok(EventsPage { items, next_cursor, total: total(conn, job_id, query).await? })
}

/// An entry of the history with its place: number `n` of the step that made `generation`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The step.
    pub generation: i64,
    /// Its number there.
    pub n: i64,
    /// The entry.
    pub event: EventRecord,
}

/// Which of the newest [`RECENT_LIMIT`] entries are since `since` and have a reason, oldest first.
///
/// # Errors
/// The database failed.
pub async fn recent(
    conn: &mut AnyConnection,
    job_id: &JobId,
    since: Time,
) -> Result<Vec<Placed>, StoreError> {
    let rows = sqlx::query(
        "SELECT generation, n, at, kind, reason, task_id, by_whom, text
         FROM (SELECT generation, n, at, kind, reason, task_id, by_whom, text FROM event
               WHERE job_id = $1 ORDER BY generation DESC, n DESC LIMIT $2) AS newest
         WHERE at >= $3 AND reason IS NOT NULL ORDER BY generation, n",
    )
    .bind(job_id.as_str().to_owned())
    .bind(RECENT_LIMIT)
    .bind(since.micros())
    .fetch_all(conn)
    .await
    .doing("reading recent events")?;
    let placed = |row: &AnyRow| {
        Ok(Placed { generation: get(row, "generation")?, n: get(row, "n")?, event: from_row(row)? })
    };
    rows.iter().map(placed).collect()
}

fn filter(sql: &mut Sql, query: &EventsQuery) -> Result<(), StoreError> {
    if let Some(kind) = &query.kind {
        sql.bind(" AND kind = ", to_word("an event's kind", kind)?)?;
    }
    if query.checkpoints == Some(false) {
        // An entry of progress that says nothing about a launch tells of a checkpoint.
        sql.bind(" AND (reason IS NOT NULL OR kind <> ", to_word("an event's kind", &EventKind::Progress)?)?;
        sql.push(")");
    }
    if let Some(task) = &query.task {
        sql.bind(" AND task_id = ", task.as_str().to_owned())?;
    }
    Ok(())
}

/// All that match, on whatever page.
async fn total(conn: &mut AnyConnection, job_id: &JobId, query: &EventsQuery) -> Result<u64, StoreError> {
    let mut sql = Sql::new("SELECT COUNT(*) FROM event WHERE job_id = ");
    sql.bind("", job_id.as_str().to_owned())?;
    filter(&mut sql, query)?;
    let row = sql.build().fetch_one(conn).await.doing("counting events")?;
    row.try_get::<i64, _>(0).map(count).doing("counting events")
}

fn parse_cursor(cursor: &str) -> Result<(i64, i64), StoreError> {
    let parts =
        cursor.split_once('.').and_then(|(generation, n)| Some((generation.parse().ok()?, n.parse().ok()?)));
    parts.ok_or_else(|| StoreError::Cursor { cursor: cursor.chars().take(80).collect() })
}

fn from_row(row: &AnyRow) -> Result<EventRecord, StoreError> {
    let task_id: String = get(row, "task_id")?;
    Ok(EventRecord {
        at: Time(get(row, "at")?),
        kind: from_word("an event's kind", get(row, "kind")?)?,
        reason: get::<Option<String>>(row, "reason")?
            .map(|word| from_word("an event's reason", word))
            .transpose()?,
        task_id: if task_id.is_empty() { None } else { Some(from_word("task id", task_id)?) },
        by: get(row, "by_whom")?,
        text: get(row, "text")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_of_somebody_else_is_refused() {
        assert_eq!(parse_cursor("12.3").unwrap(), (12, 3));
        for bad in ["", "12", "a.b", "1.2.3", "1.99999999999999999999"] {
            assert!(parse_cursor(bad).is_err(), "{bad}");
        }
    }
}
