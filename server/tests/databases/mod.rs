//! A database of its own for each test.

use std::sync::atomic::{AtomicU32, Ordering};

use server::store::Store;
use sqlx::{
    AnyConnection, AssertSqlSafe, ConnectOptions, Connection, Executor,
    any::{AnyConnectOptions, install_default_drivers},
};

/// Runs a test on SQLite and, where one is given, on Postgres.
pub async fn on_each_database(test: impl AsyncFn(Store)) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&format!("sqlite://{}/holdfast.db", dir.path().display())).await.unwrap();
    test(store).await;
    on_postgres(test).await;
}

/// Runs a test on Postgres, where one is given.
pub async fn on_postgres(test: impl AsyncFn(Store)) {
    on_new_postgres(async |url| test(Store::open(url).await.unwrap()).await).await;
}

/// Runs a test with the address of an empty database on Postgres, where one is given.
pub async fn on_new_postgres(test: impl AsyncFn(&str)) {
    let Ok(server) = std::env::var("HOLDFAST_TEST_POSTGRES") else {
        println!("Postgres was skipped: HOLDFAST_TEST_POSTGRES names no server");
        return;
    };
    install_default_drivers();
    let name = database_name();
    let mut admin = AnyConnection::connect(&server).await.unwrap();
    admin.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    test(&in_database(&server, &name)).await;
    // A test that fails leaves its database to be looked at.
    admin.execute(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).await.unwrap();
}

fn database_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("holdfast_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The address of a database on the same server.
fn in_database(server: &str, name: &str) -> String {
    let mut url = server.parse::<AnyConnectOptions>().unwrap().to_url_lossy();
    url.set_path(name);
    url.to_string()
}
