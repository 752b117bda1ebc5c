//! Which server acts. Taking the lead begins a new epoch; every step is written only while its epoch is the newest.
//!
//! `expires_at` compares clocks of two machines, so it only decides when another server may try. Safety does not rest on it: a
//! leader that was paused past its time finds a newer epoch and can neither write a step nor begin an effect.

use engine::time::Time;
use sqlx::AnyConnection;

use super::{
    StoreError,
    sql::{Doing, get},
};

/// Takes the lead where it is free, or where `at_once` says that no other server can be there. Gives the new epoch.
///
/// # Errors
/// The database failed.
pub async fn take(
    conn: &mut AnyConnection,
    holder: &str,
    now: Time,
    expires_at: Time,
    at_once: bool,
) -> Result<Option<i64>, StoreError> {
    let row = sqlx::query(
        "UPDATE leader SET epoch = epoch + 1, holder = $1, expires_at = $2
         WHERE id = 1 AND (expires_at <= $3 OR $4 = 1) RETURNING epoch",
    )
    .bind(holder.to_owned())
    .bind(expires_at.micros())
    .bind(now.micros())
    .bind(i64::from(at_once))
    .fetch_optional(conn)
    .await
    .doing("taking the lead")?;
    row.map(|row| get(&row, "epoch")).transpose()
}

/// Keeps the lead for longer; false where another server has it.
///
/// # Errors
/// The database failed.
pub async fn renew(conn: &mut AnyConnection, epoch: i64, expires_at: Time) -> Result<bool, StoreError> {
    let done = sqlx::query("UPDATE leader SET expires_at = $1 WHERE id = 1 AND epoch = $2")
        .bind(expires_at.micros())
        .bind(epoch)
        .execute(conn)
        .await
        .doing("keeping the lead")?;
    Ok(done.rows_affected() == 1)
}

/// Gives the lead up, so that another server need not wait for its end.
///
/// # Errors
/// The database failed.
pub async fn release(conn: &mut AnyConnection, epoch: i64) -> Result<(), StoreError> {
    renew(conn, epoch, Time(0)).await.map(|_| ())
}

/// Whether some server leads, as far as the time tells.
///
/// # Errors
/// The database failed.
pub async fn is_held(conn: &mut AnyConnection, now: Time) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT expires_at FROM leader WHERE id = 1")
        .fetch_one(conn)
        .await
        .doing("reading who leads")?;
    Ok(get::<i64>(&row, "expires_at")? > now.micros())
}

/// Whether this epoch is still the newest.
///
/// # Errors
/// The database failed.
pub async fn is_current(conn: &mut AnyConnection, epoch: i64) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT epoch FROM leader WHERE id = 1")
        .fetch_one(conn)
        .await
        .doing("reading who leads")?;
    Ok(get::<i64>(&row, "epoch")? == epoch)
}
