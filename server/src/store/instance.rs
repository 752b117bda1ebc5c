//! What one installation keeps to itself.

use std::fmt;

use engine::time::Time;
use sqlx::AnyConnection;

use super::{
    StoreError,
    sql::{Doing, get},
};

/// The installation's own secret, which agent tokens are derived from.
#[derive(Clone)]
pub struct Instance {
    /// Random.
    pub secret: [u8; 32],
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Instance { secret: … }")
    }
}

/// The installation, made with `new_secret` where this is its first start. Servers that start together get the same one.
///
/// # Errors
/// The database failed.
pub async fn open(conn: &mut AnyConnection, new_secret: [u8; 32], now: Time) -> Result<Instance, StoreError> {
    sqlx::query(
        "INSERT INTO instance (id, secret, created_at) VALUES (1, $1, $2) ON CONFLICT (id) DO NOTHING",
    )
    .bind(to_hex(new_secret))
    .bind(now.micros())
    .execute(&mut *conn)
    .await
    .doing("making the installation's secret")?;
    let row = sqlx::query("SELECT secret FROM instance WHERE id = 1")
        .fetch_one(conn)
        .await
        .doing("reading the installation's secret")?;
    Ok(Instance { secret: from_hex(get(&row, "secret")?)? })
}

fn to_hex(bytes: [u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Result<[u8; 32], StoreError> {
    let unreadable =
        |source| StoreError::Unreadable { what: "secret of the installation", id: "1".to_owned(), source };
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return Err(unreadable(anyhow::anyhow!(
            "it has {} bytes instead of 64 hexadecimal digits",
            text.len()
        )));
    }
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte =
            u8::from_str_radix(&text[2 * n..2 * n + 2], 16).map_err(|source| unreadable(source.into()))?;
    }
    Ok(bytes)
}
