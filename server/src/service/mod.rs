//! What people and the API can do. Pages and REST call the same methods; each asks [`may`] first.
//!
//! Nothing here acts on a cluster: a change is written to the store (a new job with its first step, or a request in a job's
//! inbox) and the driver is told to hurry. So a change is safe once a method returns, whatever dies afterwards.

mod actions;
pub mod bundle;
mod chain;
mod clusters;
mod console;
mod diagnoses;
mod events;
pub mod exit_tests;
mod jobs;
mod logs;
mod metrics;
mod nodes;
mod quarantine;
pub mod stacks;
pub mod tasks;
mod usage;

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::broadcast;

use app::{console::Caller, error::AppError};
use engine::{
    ids::{JobId, TaskId},
    job::{BUILT_IN_POLICIES, FieldError, Site},
    policy::Policy,
};

use crate::{
    clock::Clock,
    clusters::Cluster,
    driver::{Change, Driver},
    logs::LogReader,
    request_id,
    store::{Store, StoreError, jobs::JobHead, leader},
};

/// What the service needs of the driver.
pub trait Drives: Send + Sync {
    /// Has a job looked at now. Only hurries: whatever was written is found without it too.
    fn hint(&self, job: &JobId);
    /// Tells of committed steps from now on. Only hints: they may be lost.
    fn changes(&self) -> broadcast::Receiver<Change>;
    /// Whether this server leads and has taken up the jobs that live.
    fn is_ready(&self) -> bool;
}

impl Drives for Driver {
    fn hint(&self, job: &JobId) {
        Self::hint(self, job);
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        Self::changes(self)
    }

    fn is_ready(&self) -> bool {
        Self::is_ready(self)
    }
}

/// The service.
pub struct Service {
    /// What is kept.
    pub store: Store,
    /// Who acts.
    pub driver: Arc<dyn Drives>,
    /// Where jobs run, by name.
    pub clusters: BTreeMap<String, Arc<dyn Cluster>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Clusters, policies and prefilled values as forms and validation see them.
    pub site: Site,
    /// Logs of replicas.
    pub logs: LogReader,
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Look at jobs, logs, nodes, settings.
    See,
    /// Create jobs and act on any.
    Act,
}

/// Whether a caller may do something. Everybody who is let in may do everything; roles will differ here and nowhere else.
///
/// # Errors
/// The rule that forbids it.
pub(crate) fn may(caller: &Caller, wish: Wish) -> Result<(), AppError> {
    match (caller.name.is_empty(), wish) {
        (true, _) => Err(AppError::SignIn),
        (false, Wish::See | Wish::Act) => Ok(()),
    }
}

impl Service {
    /// The decision tables that jobs may name.
    ///
    /// # Errors
    /// The caller may not see them.
    pub fn policies(&self, caller: &Caller) -> Result<Vec<&'static Policy>, AppError> {
        may(caller, Wish::See)?;
        Ok(BUILT_IN_POLICIES.iter().filter_map(|name| Policy::built_in(name)).collect())
    }

    /// Whether the database answers and somebody drives the jobs.
    ///
    /// # Errors
    /// What is missing, fit to be shown.
    pub async fn ready(&self) -> Result<(), &'static str> {
        self.store.ping().await.map_err(|error| {
            tracing::warn!(%error, "not ready");
            "the database does not answer"
        })?;
        if self.driver.is_ready() {
            return Ok(());
        }
        // Several servers on one database: those that do not lead serve pages.
        let held = async {
            let mut conn = self.store.read().await?;
            leader::is_held(&mut conn, self.clock.now()).await
        };
        if self.store.is_shared() && held.await.unwrap_or(false) {
            Ok(())
        } else {
            Err("no server leads yet")
        }
    }

    /// Brings the gauges of `/metrics` up to date.
    ///
    /// # Errors
    /// The database failed.
    pub async fn measure(&self) -> Result<(), StoreError> {
        let mut conn = self.store.snapshot().await?;
        let counts = crate::store::jobs::counts(&mut conn, "").await?;
        let mut live = crate::store::jobs::live_by_cluster(&mut conn).await?;
        let used = usage::of_week(&mut conn, self.clock.now()).await?;
        drop(conn);
        usage::measure(&used, self.site.clusters.iter().map(|cluster| cluster.name.as_str()));
        for (view, count) in [
            ("all", counts.all),
            ("attention", counts.attention),
            ("recovering", counts.recovering),
            ("running", counts.running),
        ] {
            ::metrics::gauge!("holdfast_jobs", "view" => view).set(count as f64);
        }
        let site = self.site_now();
        for cluster in &site.clusters {
            let (name, is_up) = (&cluster.name, clusters::is_up(cluster, &site.troubles));
            ::metrics::gauge!("holdfast_cluster_up", "cluster" => name.clone())
                .set(f64::from(u8::from(is_up)));
            let jobs = live.remove(name).unwrap_or_default();
            ::metrics::gauge!("holdfast_cluster_jobs", "cluster" => name.clone()).set(jobs as f64);
        }
        // Rows from before clusters were kept are not known to be on none.
        live.remove("");
        ::metrics::gauge!("holdfast_jobs_without_cluster").set(live.values().sum::<u64>() as f64);
        ::metrics::gauge!("holdfast_leader").set(if self.driver.is_ready() { 1.0 } else { 0.0 });
        Ok(())
    }

    /// The head of a job.
    async fn head(&self, id: &JobId) -> Result<JobHead, AppError> {
        let mut conn = self.store.read().await.map_err(failed)?;
        crate::store::jobs::head(&mut conn, id).await.map_err(failed)?.ok_or_else(|| no_job(id))
    }
}

/// There is no such job.
fn no_job(id: &JobId) -> AppError {
    AppError::NotFound { what: "job".to_owned(), id: id.to_string() }
}

/// There is no such attempt.
fn no_attempt(id: &TaskId) -> AppError {
    AppError::NotFound { what: "attempt".to_owned(), id: id.to_string() }
}

/// The border between the store's words and people's: what a person can mend is told, all else is logged and hidden.
pub(crate) fn failed(error: StoreError) -> AppError {
    match error {
        StoreError::Cursor { .. } => {
            AppError::Invalid { errors: vec![FieldError::new("cursor", error.to_string())] }
        }
        StoreError::InboxFull { .. } => AppError::TooMuch { why: error.to_string() },
        full if full.is_full() => {
            tracing::error!(error = format!("{:#}", anyhow::Error::from(full)), "the database has no room");
            let why = "The disk of the server's database is full, so nothing was changed. Free some space and try again.";
            AppError::Full { why: why.to_owned() }
        }
        other => internal(&anyhow::Error::from(other)),
    }
}

/// Logs a failure with the request's id and hides its words.
fn internal(error: &anyhow::Error) -> AppError {
    let request_id = request_id::current();
    tracing::error!(request_id, error = format!("{error:#}"), "request {request_id} failed");
    AppError::Internal { request_id }
}
