//! Accounts, their sessions and API tokens.

use engine::time::Time;
use sqlx::AnyConnection;

use super::{StoreError, sql::Doing};

/// Tokens that are named to somebody who names another.
const TOKENS_NAMED: i64 = 20;
/// Accounts and tokens that are listed. They are made one by one in a shell, so nobody has as many.
const LISTED: i64 = 10_000;

/// Why a row could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The name is in use.
    #[error("there is an account named {name} already")]
    Taken {
        /// The name.
        name: String,
    },
    /// The name is no name.
    #[error("`{name}` is no account name: use 1 to 64 letters, digits and . _ @ -")]
    Name {
        /// What was given.
        name: String,
    },
    /// No such account.
    #[error("there is no account named {name} (capitals count); `holdfast user add {name}` makes one")]
    Missing {
        /// The name.
        name: String,
    },
    /// No such token of an account.
    #[error("account {account} has no token named {name}; it has{}", listed(known))]
    NoToken {
        /// The account.
        account: String,
        /// The name.
        name: String,
        /// Names of those that it has, some of them where there are many.
        known: Vec<String>,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { " none".to_owned() } else { format!(": {}", names.join(", ")) }
}

/// Adds an account.
///
/// # Errors
/// A name that is taken or not allowed.
pub async fn add(
    db: &mut AnyConnection,
    name: &str,
    password_hash: &str,
    now: Time,
) -> Result<(), AccountError> {
    let good = (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'@' | b'-'));
    if !good {
        return Err(AccountError::Name { name: name.chars().take(80).collect() });
    }
    let done = sqlx::query(
        "INSERT INTO account (name, password_hash, created_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING",
    )
    .bind(name.to_owned())
    .bind(password_hash.to_owned())
    .bind(now.micros())
    .execute(db)
    .await
    .doing("adding an account")?;
    if done.rows_affected() == 1 { Ok(()) } else { Err(AccountError::Taken { name: name.to_owned() }) }
}

/// Removes an account. Its sessions and tokens go with it, by the tables' own rule; its jobs stay.
///
/// # Errors
/// No such account.
pub async fn remove(db: &mut AnyConnection, name: &str) -> Result<(), AccountError> {
    let done = sqlx::query("DELETE FROM account WHERE name = $1").bind(name.to_owned()).execute(db).await;
    match done.doing("removing an account")?.rows_affected() {
        0 => Err(AccountError::Missing { name: name.to_owned() }),
        _ => Ok(()),
    }
}

/// Gives an account another password and ends its sessions: whoever knew the old one may have begun them.
///
/// # Errors
/// No such account.
pub async fn set_password(
    db: &mut AnyConnection,
    name: &str,
    password_hash: &str,
) -> Result<(), AccountError> {
    let done = sqlx::query("UPDATE account SET password_hash = $1 WHERE name = $2")
        .bind(password_hash.to_owned())
        .bind(name.to_owned())
        .execute(&mut *db)
        .await
        .doing("changing a password")?;
    if done.rows_affected() == 0 {
        return Err(AccountError::Missing { name: name.to_owned() });
    }
    let ended = sqlx::query("DELETE FROM session WHERE account = $1").bind(name.to_owned()).execute(db).await;
    ended.doing("ending the sessions of an account")?;
    Ok(())
}

/// An account as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Since when it is there.
    pub created_at: Time,
    /// The names of its API tokens, each as often as it was given.
    pub tokens: Vec<String>,
}

/// The accounts by name, as far as they and their tokens are [`LISTED`].
///
/// # Errors
/// The database failed.
pub async fn list(db: &mut AnyConnection) -> Result<Vec<Listed>, StoreError> {
    let rows: Vec<(String, i64, Option<String>)> = sqlx::query_as(
        "SELECT account.name, account.created_at, api_token.name
         FROM account LEFT JOIN api_token ON api_token.account = account.name
         ORDER BY account.name, api_token.name LIMIT $1",
    )
    .bind(LISTED)
    .fetch_all(db)
    .await
    .doing("listing accounts")?;
    let mut accounts: Vec<Listed> = Vec::new();
    for (name, created_at, token) in rows {
        match accounts.last_mut().filter(|last| last.name == name) {
            Some(last) => last.tokens.extend(token),
            None => accounts.push(Listed {
                name,
                created_at: Time(created_at),
                tokens: token.into_iter().collect(),
            }),
        }
    }
    Ok(accounts)
}

/// Whether any account exists; without one a server on loopback runs in single-user mode.
///
/// # Errors
/// The database failed.
pub async fn any(db: &mut AnyConnection) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT name FROM account LIMIT 1").fetch_optional(db).await;
    Ok(row.doing("looking for accounts")?.is_some())
}

/// The hash of an account's password.
///
/// # Errors
/// The database failed.
pub async fn password_hash(db: &mut AnyConnection, name: &str) -> Result<Option<String>, StoreError> {
    sqlx::query_scalar("SELECT password_hash FROM account WHERE name = $1")
        .bind(name.to_owned())
        .fetch_optional(db)
        .await
        .doing("reading an account")
}

/// Keeps a session and drops those that are over.
///
/// # Errors
/// The database failed.
pub async fn add_session(
    db: &mut AnyConnection,
    id_hash: &str,
    account: &str,
    now: Time,
    expires_at: Time,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM session WHERE expires_at <= $1")
        .bind(now.micros())
        .execute(&mut *db)
        .await
        .doing("dropping old sessions")?;
    sqlx::query("INSERT INTO session (id_hash, account, created_at, expires_at) VALUES ($1, $2, $3, $4)")
        .bind(id_hash.to_owned())
        .bind(account.to_owned())
        .bind(now.micros())
        .bind(expires_at.micros())
        .execute(db)
        .await
        .doing("keeping a session")?;
    Ok(())
}

/// The account of a session that is not over.
///
/// # Errors
/// The database failed.
pub async fn session_account(
    db: &mut AnyConnection,
    id_hash: &str,
    now: Time,
) -> Result<Option<String>, StoreError> {
    sqlx::query_scalar("SELECT account FROM session WHERE id_hash = $1 AND expires_at > $2")
        .bind(id_hash.to_owned())
        .bind(now.micros())
        .fetch_optional(db)
        .await
        .doing("reading a session")
}

/// Ends a session; one that does not exist is ended already.
///
/// # Errors
/// The database failed.
pub async fn end_session(db: &mut AnyConnection, id_hash: &str) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM session WHERE id_hash = $1")
        .bind(id_hash.to_owned())
        .execute(db)
        .await
        .doing("ending a session")?;
    Ok(())
}

/// Keeps an API token.
///
/// # Errors
/// No such account.
pub async fn add_token(
    db: &mut AnyConnection,
    token_hash: &str,
    account: &str,
    name: &str,
    now: Time,
) -> Result<(), AccountError> {
    if password_hash(&mut *db, account).await?.is_none() {
        return Err(AccountError::Missing { name: account.to_owned() });
    }
    sqlx::query("INSERT INTO api_token (token_hash, account, name, created_at) VALUES ($1, $2, $3, $4)")
        .bind(token_hash.to_owned())
        .bind(account.to_owned())
        .bind(name.to_owned())
        .bind(now.micros())
        .execute(db)
        .await
        .doing("keeping a token")?;
    Ok(())
}

/// Revokes the tokens of this name of an account, and answers how many those were: names need not differ.
///
/// # Errors
/// No such account, or no such token of it.
pub async fn revoke_tokens(db: &mut AnyConnection, account: &str, name: &str) -> Result<u64, AccountError> {
    let done = sqlx::query("DELETE FROM api_token WHERE account = $1 AND name = $2")
        .bind(account.to_owned())
        .bind(name.to_owned())
        .execute(&mut *db)
        .await
        .doing("revoking a token")?;
    if done.rows_affected() > 0 {
        return Ok(done.rows_affected());
    }
    if password_hash(&mut *db, account).await?.is_none() {
        return Err(AccountError::Missing { name: account.to_owned() });
    }
    let known =
        sqlx::query_scalar("SELECT DISTINCT name FROM api_token WHERE account = $1 ORDER BY name LIMIT $2")
            .bind(account.to_owned())
            .bind(TOKENS_NAMED)
            .fetch_all(db)
            .await
            .doing("listing tokens")?;
    Err(AccountError::NoToken { account: account.to_owned(), name: name.to_owned(), known })
}

/// The account of a token.
///
/// # Errors
/// The database failed.
pub async fn token_account(db: &mut AnyConnection, token_hash: &str) -> Result<Option<String>, StoreError> {
    sqlx::query_scalar("SELECT account FROM api_token WHERE token_hash = $1")
        .bind(token_hash.to_owned())
        .fetch_optional(db)
        .await
        .doing("reading a token")
}
