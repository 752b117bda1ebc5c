//! Answers kept for POSTs that carry an `Idempotency-Key`, so that a repeated request gets the first one's answer.

use engine::time::Time;
use sqlx::AnyConnection;

use super::{
    StoreError,
    sql::{Doing, get},
};

/// What a repeated request is recognised by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// Who asks.
    pub caller: String,
    /// Method and path.
    pub route: String,
    /// The header's value.
    pub key: String,
}

/// An answer as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`; empty where there is no body.
    pub content_type: String,
    /// `Location`.
    pub location: Option<String>,
    /// The body.
    pub body: String,
}

/// What is known of a request key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is new and now belongs to this request.
    Mine,
    /// The first request with it is being worked on.
    Busy,
    /// It was answered.
    Answered(KeptAnswer),
    /// It was used with another body.
    OtherBody,
}

/// Claims a request key for a request that `server` works on: only one gets [`Claim::Mine`]. Keys from before `forget_before` are
/// dropped first, and a request from before `abandoned_before` that was never answered (its server died) is given to this one.
///
/// # Errors
/// The database failed.
pub async fn claim(
    db: &mut AnyConnection,
    request: &RequestKey,
    body_hash: &str,
    server: &str,
    now: Time,
    forget_before: Time,
    abandoned_before: Time,
) -> Result<Claim, StoreError> {
    const DOING: &str = "claiming a request key";
    sqlx::query("DELETE FROM idempotency WHERE at < $1 OR (status = 0 AND at < $2)")
        .bind(forget_before.micros())
        .bind(abandoned_before.micros())
        .execute(&mut *db)
        .await
        .doing("dropping old request keys")?;
    let done = sqlx::query(
        "INSERT INTO idempotency (caller, route, idempotency_key, body_hash, status, content_type, body, at, server)
         VALUES ($1, $2, $3, $4, 0, '', '', $5, $6) ON CONFLICT (caller, route, idempotency_key) DO NOTHING",
    )
    .bind(request.caller.clone())
    .bind(request.route.clone())
    .bind(request.key.clone())
    .bind(body_hash.to_owned())
    .bind(now.micros())
    .bind(server.to_owned())
    .execute(&mut *db)
    .await
    .doing(DOING)?;
    if done.rows_affected() == 1 {
        return Ok(Claim::Mine);
    }
    let row = sqlx::query(
        "SELECT body_hash, status, content_type, location, body FROM idempotency
         WHERE caller = $1 AND route = $2 AND idempotency_key = $3",
    )
    .bind(request.caller.clone())
    .bind(request.route.clone())
    .bind(request.key.clone())
    .fetch_optional(db)
    .await
    .doing(DOING)?;
    // Gone between the two statements: the first request failed and gave it back.
    let Some(row) = row else { return Ok(Claim::Busy) };
    if get::<&str>(&row, "body_hash")? != body_hash {
        return Ok(Claim::OtherBody);
    }
    match u16::try_from(get::<i64>(&row, "status")?).unwrap_or(0) {
        0 => Ok(Claim::Busy),
        status => Ok(Claim::Answered(KeptAnswer {
            status,
            content_type: get(&row, "content_type")?,
            location: get(&row, "location")?,
            body: get(&row, "body")?,
        })),
    }
}

/// Keeps the answer to a claimed request.
///
/// # Errors
/// The database failed.
pub async fn keep_answer(
    db: &mut AnyConnection,
    request: &RequestKey,
    answer: &KeptAnswer,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE idempotency SET status = $1, content_type = $2, location = $3, body = $4
         WHERE caller = $5 AND route = $6 AND idempotency_key = $7",
    )
    .bind(i64::from(answer.status))
    .bind(answer.content_type.clone())
    .bind(answer.location.clone())
    .bind(answer.body.clone())
    .bind(request.caller.clone())
    .bind(request.route.clone())
    .bind(request.key.clone())
    .execute(db)
    .await
    .doing("keeping an answer")?;
    Ok(())
}

/// Gives a claimed key back: the request failed on our side, so the next try does the work.
///
/// # Errors
/// The database failed.
pub async fn release(db: &mut AnyConnection, request: &RequestKey) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM idempotency WHERE caller = $1 AND route = $2 AND idempotency_key = $3 AND status = 0",
    )
    .bind(request.caller.clone())
    .bind(request.route.clone())
    .bind(request.key.clone())
    .execute(db)
    .await
    .doing("releasing a request key")?;
    Ok(())
}

/// Gives back what servers that are gone had claimed and not answered: those of `server`, which begins anew, or of all where no other
/// server can be at work.
///
/// # Errors
/// The database failed.
pub async fn release_unanswered(db: &mut AnyConnection, server: Option<&str>) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM idempotency WHERE status = 0 AND ($1 = 1 OR server = $2)")
        .bind(i64::from(server.is_none()))
        .bind(server.unwrap_or_default().to_owned())
        .execute(db)
        .await
        .doing("releasing the request keys of a server that is gone")?;
    Ok(())
}
