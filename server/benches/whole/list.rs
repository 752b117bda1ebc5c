//! The list of jobs with three filters, from the request to the whole page: the real queries on a database of 10,000 jobs, and the
//! real rendering. The network is left out.

use std::{
    cell::RefCell,
    io::{Write, stdout},
    time::Instant,
};

use axum::{Router, body::Body};
use engine::{failure::FailureType, job::JobKind, record::State};
use http::{Request, StatusCode, header};
use server::store::{Store, commit, steps};
use tower::ServiceExt;

use crate::{
    databases::on_each_database,
    samples::Sample,
    support::{Outcome, Samples, Server},
};

/// Jobs in the database.
const JOBS: u32 = 10_000;
/// Requests for each set of filters.
const REQUESTS: usize = 100;
/// Longest page that is read, bytes.
const PAGE_BYTES: usize = 10_000_000;
/// Three filters each: a few jobs match, many, and a text that no index helps to find.
const FILTERS: [&str; 4] = [
    "state=failed&fault=HW_NODE&owner=user-3",
    "state=failed&kind=rayjob&restarts=2",
    "state=succeeded&kind=pytorchjob&restarts=1&sort=restarts",
    "q=train-77&state=succeeded&owner=user-1",
];

/// Measures and prints.
pub fn run() -> Outcome<()> {
    let results = RefCell::new(Vec::new());
    tokio::runtime::Runtime::new()?.block_on(on_each_database(async |store| {
        let name = if store.is_shared() { "PostgreSQL" } else { "SQLite" };
        let result = measure(store).await;
        results.borrow_mut().push((name, result));
    }));
    let mut out = stdout().lock();
    writeln!(out, "list: a page of {JOBS} jobs with three filters, rendered:")?;
    for (name, result) in results.into_inner() {
        let millis = result?;
        let (median, p95) = (millis.median(), millis.p95());
        writeln!(out, "  {name:<12} median {median:6.1} ms, p95 {p95:6.1} ms (goal <= 60 ms)")?;
    }
    Ok(())
}

/// Milliseconds of each request.
async fn measure(store: Store) -> Outcome<Samples> {
    fill(&store).await?;
    let dir = tempfile::tempdir()?;
    let server = Server::start(store, None).await;
    let router = server.router(Router::new(), dir.path())?;
    let mut millis = Samples::default();
    for filters in FILTERS {
        // The first is for caches and statements that are prepared once.
        get(&router, filters).await?;
        for _ in 0..REQUESTS {
            let begin = Instant::now();
            get(&router, filters).await?;
            millis.push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    server.stop.cancel();
    server.driver.stopped().await;
    Ok(millis)
}

async fn get(router: &Router, filters: &str) -> Outcome<()> {
    let request =
        Request::get(format!("/jobs?{filters}")).header(header::HOST, "localhost").body(Body::empty())?;
    let response = router.clone().oneshot(request).await?;
    let status = response.status();
    let page = axum::body::to_bytes(response.into_body(), PAGE_BYTES).await?;
    let rows = String::from_utf8_lossy(&page).matches("/jobs/j0").count();
    if status != StatusCode::OK || rows == 0 {
        return Err(format!("{filters}: {status}, {rows} rows; the figure would mean nothing").into());
    }
    Ok(())
}

/// Jobs that have ended in all the ways that the filters ask for.
async fn fill(store: &Store) -> Outcome<()> {
    let mut tx = store.write().await?;
    for n in 0..JOBS {
        let failed = n % 3 == 0;
        let mut sample = Sample::new(n)
            .at(n.into())
            .idle()
            .name(&format!("train-{n}"))
            .owner(&format!("user-{}", n % 7))
            .kind(if n % 5 == 0 { JobKind::RayJob } else { JobKind::PyTorchJob })
            .state(if failed { State::Failed } else { State::Succeeded })
            .restarts(n % 4);
        if failed {
            let all = FailureType::ALL;
            sample = sample.fault(all[n as usize % all.len()]);
        }
        steps::create(&mut tx, sample.origin(), sample.kept()).await?;
    }
    Ok(commit(tx).await?)
}
