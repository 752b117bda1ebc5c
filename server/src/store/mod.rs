//! Everything that is kept: SQLite in the data directory by default, Postgres where several servers share it.
//!
//! One SQL and one set of migrations serve both (sqlx `Any`); `tests/store.rs` runs every query on both. A file per
//! aggregate; functions take a connection, so the caller owns the transaction; rows never leave this module.

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

use sqlx::{
    Any, AnyConnection, Connection, Executor, Transaction,
    any::{AnyPoolOptions, install_default_drivers},
    migrate::{MigrateError, Migrator},
    pool::PoolConnection,
    sqlite::SqliteConnectOptions,
};

use crate::secrets;

mod sql;

pub mod accounts;
pub mod attempts;
pub mod changes;
pub mod checkpoints;
pub mod diagnoses;
pub mod events;
pub mod idempotency;
pub mod inbox;
pub mod incidents;
pub mod instance;
pub mod jobs;
pub mod launches;
pub mod leader;
pub mod nodes;
pub mod points;
pub mod stacks;
pub mod steps;
pub mod usage;
pub mod wards;

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// Readers of SQLite: its readers never wait for the writer, and more than the cores of a small machine gain nothing.
const SQLITE_READERS: u32 = 4;
/// Connections to Postgres; several servers share its usual limit of 100.
const POSTGRES_CONNECTIONS: u32 = 16;
/// Longest wait for a connection. A queue that is not served in this time is a fault to be reported, not to be sat out.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address is not one of a database Holdfast can use.
    #[error("`{url}` is no database address: use sqlite://<path> or postgres://<user>@<host>/<database>")]
    Address {
        /// The address without its password.
        url: String,
    },
    /// It could not be opened.
    #[error("the database {url} could not be opened: check that it exists and may be written")]
    Open {
        /// The address without its password.
        url: String,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// Its tables could not be brought up to date.
    #[error("the tables of database {url} could not be brought up to date: was it used by a newer version?")]
    Migrate {
        /// The address without its password.
        url: String,
        /// Why.
        #[source]
        source: MigrateError,
    },
    /// A query failed.
    #[error("the database failed while {doing}")]
    Query {
        /// What was tried.
        doing: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// Something that was kept cannot be read.
    #[error("{what} {id} in the database cannot be read")]
    Unreadable {
        /// What.
        what: &'static str,
        /// Which.
        id: String,
        /// Why.
        #[source]
        source: anyhow::Error,
    },
    /// Something cannot be written as it is.
    #[error("{what} cannot be written to the database")]
    Unwritable {
        /// What.
        what: &'static str,
        /// Why.
        #[source]
        source: anyhow::Error,
    },
    /// A cursor that no page gave out.
    #[error("`{cursor}` is no cursor: take `next_cursor` of the page before")]
    Cursor {
        /// What was given.
        cursor: String,
    },
    /// Too many requests of people wait for one job.
    #[error("{limit} requests already wait for this job: try again once they are taken")]
    InboxFull {
        /// How many may wait.
        limit: u32,
    },
}

impl StoreError {
    /// Whether the disk of the database is full: `SQLITE_FULL` (13), Postgres `disk_full` (53100).
    pub fn is_full(&self) -> bool {
        let Self::Query { source, .. } = self else { return false };
        let code = source.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| code == "13" || code == "53100")
    }
}

/// What became of a write that somebody else may have overtaken. Losing is an outcome, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// It was written.
    Done,
    /// The row was changed or deleted since it was read; nothing was written.
    ChangedUnderUs,
    /// Another server leads; nothing was written.
    NotLeader,
}

/// The database.
#[derive(Clone, Debug)]
pub struct Store {
    readers: sqlx::AnyPool,
    writers: sqlx::AnyPool,
    shared: bool,
}

impl Store {
    /// Opens the database, makes it where it is a file that is not there yet, and brings its tables up to date.
    ///
    /// # Errors
    /// The address is wrong, the database cannot be reached or written, or it belongs to a newer version.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        install_default_drivers();
        let shown = without_password(url);
        let shared = url.starts_with("postgres:") || url.starts_with("postgresql:");
        if !shared && !url.starts_with("sqlite:") {
            return Err(StoreError::Address { url: shown });
        }
        let opened = |source| StoreError::Open { url: shown.clone(), source };
        if !shared {
            let file: SqliteConnectOptions = url.parse().map_err(opened)?;
            keep_private(file.get_filename(), makes_file(url)).map_err(|why| opened(why.into()))?;
        }
        // SQLite takes one writer at a time; a pool of one makes the others queue fairly instead of polling its lock.
        let writers = pool(url, if shared { POSTGRES_CONNECTIONS } else { 1 }).await.map_err(opened)?;
        let readers =
            if shared { writers.clone() } else { pool(url, SQLITE_READERS).await.map_err(opened)? };
        MIGRATIONS
            .run(&writers)
            .await
            .map_err(|source| StoreError::Migrate { url: shown.clone(), source })?;
        Ok(Self { readers, writers, shared })
    }

    /// A connection for one query, or for several that need not agree; see [`Self::snapshot`].
    ///
    /// # Errors
    /// None became free in time, or the database cannot be reached.
    pub async fn read(&self) -> Result<PoolConnection<Any>, StoreError> {
        self.readers.acquire().await.map_err(|source| StoreError::Query { doing: "connecting", source })
    }

    /// What several queries read as it was at one moment, so that what they find agrees whatever is written between them. For a short
    /// time only: SQLite's log of changes grows as long as somebody reads what was before them.
    ///
    /// # Errors
    /// None became free in time, or the database cannot be reached.
    pub async fn snapshot(&self) -> Result<Transaction<'static, Any>, StoreError> {
        // A transaction of SQLite sees what there is at its first query until its end, without being asked to.
        let begin = if self.shared { "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY" } else { "BEGIN" };
        self.readers
            .begin_with(begin)
            .await
            .map_err(|source| StoreError::Query { doing: "beginning to read", source })
    }

    /// A transaction to write in. Nothing is kept unless it is committed with [`commit`].
    ///
    /// # Errors
    /// None became free in time, or the database cannot be reached.
    pub async fn write(&self) -> Result<Transaction<'static, Any>, StoreError> {
        // A transaction of SQLite that begins by reading fails when it goes on to write beside another: it must say so at once.
        let begin = if self.shared { "BEGIN" } else { "BEGIN IMMEDIATE" };
        self.writers
            .begin_with(begin)
            .await
            .map_err(|source| StoreError::Query { doing: "beginning a transaction", source })
    }

    /// Several servers may use this database.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let mut conn = self.read().await?;
        conn.ping().await.map_err(|source| StoreError::Query { doing: "asking whether it is there", source })
    }

    /// Closes all connections once they are given back.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writers.close().await;
    }
}

/// Keeps what was written in a transaction.
///
/// # Errors
/// The database failed; whether it was kept is then not known.
pub async fn commit(tx: Transaction<'static, Any>) -> Result<(), StoreError> {
    tx.commit().await.map_err(|source| StoreError::Query { doing: "committing", source })
}

/// Whether the file of SQLite's address is made where it is missing.
fn makes_file(url: &str) -> bool {
    !url.contains(":memory:") && (!url.contains("mode=") || url.contains("mode=rwc"))
}

/// Keeps a database file from all but its owner, whatever its directory lets others do: password hashes and the installation's secret
/// are in it. SQLite gives the files that it makes beside it the same mode.
fn keep_private(file: &Path, make: bool) -> io::Result<()> {
    if make {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
            Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
            _ => {}
        }
    }
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut path = file.as_os_str().to_owned();
        path.push(suffix);
        secrets::keep_from_others(Path::new(&path));
    }
    Ok(())
}

async fn pool(url: &str, connections: u32) -> Result<sqlx::AnyPool, sqlx::Error> {
    let url = if url.starts_with("sqlite:") && !url.contains("mode=") {
        format!("{url}{}mode=rwc", if url.contains('?') { '&' } else { '?' })
    } else {
        url.to_owned()
    };
    AnyPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // The check costs a round trip each time; a connection that died shows it in the query, and every caller tries again.
        .test_before_acquire(false)
        .after_connect(|conn, _| Box::pin(prepare(conn)))
        .after_release(|conn, _| Box::pin(is_clean(conn)))
        .connect(&url)
        .await
}

/// Whether a connection can be used again. SQLite ends a transaction by itself when the disk is full; the driver then believes for
/// ever to be within one and refuses every other. Such a connection is closed.
async fn is_clean(conn: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    if conn.is_in_transaction() {
        // A rollback may be on its way; the answer to this comes after it.
        conn.ping().await?;
    }
    Ok(!conn.is_in_transaction())
}

/// Settings that are kept per connection. SQLite: with WAL and `NORMAL` a crash of the process loses nothing; a power cut may
/// lose the last commits but never their order.
async fn prepare(conn: &mut AnyConnection) -> Result<(), sqlx::Error> {
    if conn.backend_name() == "SQLite" {
        for pragma in [
            "PRAGMA busy_timeout = 10000",
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = NORMAL",
            "PRAGMA foreign_keys = ON",
            "PRAGMA cache_size = -16000",
            "PRAGMA temp_store = MEMORY",
        ] {
            conn.execute(pragma).await?;
        }
    } else {
        // A server that is paused in the middle of a transaction must not keep what it has locked from the one that leads after it. No
        // transaction waits for anything but the database, so none of a server that runs is idle for so long.
        conn.execute("SET idle_in_transaction_session_timeout = '10s'").await?;
    }
    Ok(())
}

fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    match rest.rsplit_once('@') {
        Some((user, place)) => {
            let user = user.split_once(':').map_or(user, |(name, _)| name);
            format!("{scheme}://{user}@{place}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
    };

    use super::*;

    #[tokio::test]
    async fn a_database_file_is_its_owners_alone_whatever_its_directory_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let url = format!("sqlite://{}?mode=rwc", dir.path().join("holdfast.db").display());
        let modes = || {
            let files = fs::read_dir(dir.path()).unwrap().map(|file| {
                let file = file.unwrap();
                let mode = file.metadata().unwrap().permissions().mode() & 0o777;
                (file.file_name().into_string().unwrap(), mode)
            });
            let mut files: Vec<_> = files.collect();
            files.sort();
            files
        };
        let all = ["holdfast.db", "holdfast.db-shm", "holdfast.db-wal"];
        let of_all = |mode: u32| all.map(|name| (name.to_owned(), mode)).to_vec();
        let store = Store::open(&url).await.unwrap();
        assert_eq!(modes(), of_all(0o600));
        // As an earlier version left them.
        for name in all {
            fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o644)).unwrap();
        }
        let again = Store::open(&url).await.unwrap();
        assert_eq!(modes(), of_all(0o600));
        store.close().await;
        again.close().await;
    }

    #[test]
    fn a_password_is_not_shown() {
        for (url, want) in [
            ("postgres://me:secret@db/holdfast", "postgres://me@db/holdfast"),
            ("postgres://me@db/holdfast", "postgres://me@db/holdfast"),
            ("sqlite:///data/holdfast.db", "sqlite:///data/holdfast.db"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(without_password(url), want);
        }
    }
}
