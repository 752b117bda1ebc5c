//! Jobs: the list, one job, its chain, logs, events and curve.

use engine::ids::{JobId, TaskId};
use leptos::prelude::*;

use crate::{
    console::{
        ChainPage, ChainView, EventsPage, EventsQuery, JobView, JobsPage, JobsQuery, LogPage, LogQuery,
        MetricsQuery, MetricsView,
    },
    error::AppError,
    server_fns::encoding::Json,
};

#[cfg(feature = "ssr")]
use super::{Scope, scope};

/// One page of the jobs list.
#[server(prefix = "/sfn", endpoint = "list_jobs", input = Json, output = Json)]
pub async fn list_jobs(query: JobsQuery) -> Result<JobsPage, AppError> {
    let Scope { console, caller } = scope()?;
    console.jobs(&caller, &query).await
}

/// The head of one job.
#[server(prefix = "/sfn", endpoint = "get_job", input = Json, output = Json)]
pub async fn get_job(id: JobId) -> Result<JobView, AppError> {
    let Scope { console, caller } = scope()?;
    console.job(&caller, &id).await
}

/// The chain of one job.
#[server(prefix = "/sfn", endpoint = "get_chain", input = Json, output = Json)]
pub async fn get_chain(id: JobId, page: ChainPage) -> Result<ChainView, AppError> {
    let Scope { console, caller } = scope()?;
    console.chain(&caller, &id, page).await
}

/// Lines of a replica's log.
#[server(prefix = "/sfn", endpoint = "get_logs", input = Json, output = Json)]
pub async fn get_logs(task: TaskId, query: LogQuery) -> Result<LogPage, AppError> {
    let Scope { console, caller } = scope()?;
    console.logs(&caller, &task, &query).await
}

/// The object of an attempt, as YAML.
#[server(prefix = "/sfn", endpoint = "get_task_manifest", input = Json, output = Json)]
pub async fn get_task_manifest(task: TaskId) -> Result<String, AppError> {
    let Scope { console, caller } = scope()?;
    console.task_manifest(&caller, &task).await
}

/// The history of one job.
#[server(prefix = "/sfn", endpoint = "get_events", input = Json, output = Json)]
pub async fn get_events(id: JobId, query: EventsQuery) -> Result<EventsPage, AppError> {
    let Scope { console, caller } = scope()?;
    console.events(&caller, &id, &query).await
}

/// A curve of one job.
#[server(prefix = "/sfn", endpoint = "get_metrics", input = Json, output = Json)]
pub async fn get_metrics(id: JobId, query: MetricsQuery) -> Result<MetricsView, AppError> {
    let Scope { console, caller } = scope()?;
    console.metrics(&caller, &id, &query).await
}
