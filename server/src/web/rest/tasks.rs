//! Attempts by their task ID: what became of one, its logs, its events.

use std::{fmt::Write, io, sync::Arc};

use app::console::{Console, EventsPage, EventsQuery, LogLevel, LogPage, LogQuery};
use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use engine::{
    ids::{ReplicaName, TaskId},
    record::EventKind,
};
use futures::stream;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::Deserialize;
use tokio::sync::Semaphore;
use utoipa::{IntoParams, ToSchema};

use super::{Refusals, text, wants};
use crate::{
    logs::WholeLog,
    service::tasks::TaskView,
    web::{
        WebState,
        extract::ApiPath,
        limits,
        problem::Problem,
        query::{ApiQuery, Parameters},
        sessions::{self, Asks},
    },
};

/// One attempt with its launches and incidents.
#[utoipa::path(get, operation_id = "get_task", path = "/api/v1/tasks/{task_id}", tag = "tasks", params(("task_id" = String, Path)),
    responses((status = 200, body = TaskView), Refusals))]
pub async fn get(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<TaskId>,
) -> Result<Json<TaskView>, Problem> {
    Ok(Json(state.service.task(&caller, &id).await?))
}

/// Which lines of a log, and as what.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub struct LogParams {
    /// The first replica where absent.
    replica: Option<ReplicaName>,
    /// The newest where absent.
    launch: Option<u32>,
    /// The last so many lines, or so many from `from` on: 1–5,000; 200 where absent.
    tail: Option<u32>,
    /// From this line number on; the first is 1.
    from: Option<u64>,
    /// This level and above.
    level: Option<LogLevel>,
    /// Only lines that hold this text, whatever its case; at most 200 characters.
    q: Option<String>,
    /// As what; else `Accept` says it.
    format: Option<Format>,
}

impl Parameters for LogParams {
    const NUMBERS: &'static [(&'static str, u64, u64)] =
        &[LAUNCHES, ("tail", 1, limits::LOG_LINES as u64), ("from", 1, u64::MAX)];
}

/// The numbers a launch may have.
const LAUNCHES: (&str, u64, u64) = ("launch", 0, u32::MAX as u64);

/// Forms of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// JSON.
    Json,
    /// The lines as they were printed.
    Text,
}

/// Lines of a replica's log. As text, the header `x-next-line` is `next` of the JSON form.
#[utoipa::path(get, operation_id = "get_task_logs", path = "/api/v1/tasks/{task_id}/logs", tag = "tasks", params(("task_id" = String, Path), LogParams),
    responses((status = 200, content((LogPage = "application/json"), (String = "text/plain"))), Refusals))]
pub async fn logs(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(params): ApiQuery<LogParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = LogQuery {
        replica: params.replica,
        launch: params.launch,
        tail: params.tail,
        from: params.from,
        level: params.level,
        q: params.q,
    };
    let page = state.service.logs(&caller, &id, &query).await?;
    if !wants(&headers, params.format.map(|format| format == Format::Text), "text/plain") {
        return Ok(Json(page).into_response());
    }
    let mut lines = String::new();
    for line in &page.lines {
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "{}", line.text);
    }
    let mut response = text("text/plain; charset=utf-8", lines);
    if let Some(next) = page.next {
        response.headers_mut().insert(HeaderName::from_static("x-next-line"), HeaderValue::from(next));
    }
    Ok(response)
}

/// Whose log.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub struct FileParams {
    /// The first replica where absent.
    replica: Option<ReplicaName>,
    /// The newest where absent.
    launch: Option<u32>,
}

impl Parameters for FileParams {
    const NUMBERS: &'static [(&'static str, u64, u64)] = &[LAUNCHES];
}

/// The whole log of a launch as a file: every line that is kept, as it was printed, up to the moment of the request. Lines that
/// are not kept any more are named where they would stand.
#[utoipa::path(get, operation_id = "download_task_log", path = "/api/v1/tasks/{task_id}/logs/file", tag = "tasks", params(("task_id" = String, Path), FileParams),
    responses((status = 200, body = String, content_type = "text/plain", headers(("Content-Disposition" = String))), Refusals))]
pub async fn file(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(params): ApiQuery<FileParams>,
) -> Result<Response, Problem> {
    let log = state.service.whole_log(&caller, &id, params.replica, params.launch).await?;
    // Names consist of letters, digits and dashes.
    let name = format!("attachment; filename=\"{id}-{}-launch-{}.log\"", log.replica, log.launch);
    let reads = Arc::clone(&state.log_reads);
    let pieces = stream::try_unfold(log, move |log| next_piece(log, Arc::clone(&reads)));
    let mut response = Body::from_stream(pieces).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// A piece and the rest. A failure breaks the answer off, so that nobody takes a part for the whole.
async fn next_piece(
    mut log: WholeLog,
    reads: Arc<Semaphore>,
) -> Result<Option<(Vec<u8>, WholeLog)>, io::Error> {
    let place = reads.acquire_owned().await.map_err(io::Error::other)?;
    let read = tokio::task::spawn_blocking(move || {
        let piece = log.piece();
        drop(place);
        piece.map(|piece| piece.map(|piece| (piece, log)))
    });
    read.await.map_err(io::Error::other)?.map_err(|error| {
        sessions::failed(&error);
        io::Error::other(error)
    })
}

/// The object that an attempt is made as on its cluster, as a file: of every attempt of a job on Kubernetes, also when the object is gone. It
/// is made of the job and the server's settings of now; the tokens of the agents are in another object.
#[utoipa::path(get, operation_id = "get_task_manifest", path = "/api/v1/tasks/{task_id}/manifest", tag = "tasks", params(("task_id" = String, Path)),
    responses((status = 200, body = String, content_type = "application/yaml", headers(("Content-Disposition" = String))), Refusals))]
pub async fn manifest(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<TaskId>,
) -> Result<Response, Problem> {
    let mut response = text("application/yaml", state.service.task_manifest(&caller, &id).await?);
    // Names consist of letters, digits and dashes.
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{id}.yaml\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// Which events of an attempt.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub struct TaskEvents {
    /// Only this kind.
    kind: Option<EventKind>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// 1–200; 100 where absent.
    limit: Option<u32>,
}

impl Parameters for TaskEvents {
    const NUMBERS: &'static [(&'static str, u64, u64)] = &[("limit", 1, limits::PAGE_ITEMS as u64)];
}

/// The history of one attempt, newest first.
#[utoipa::path(get, operation_id = "list_task_events", path = "/api/v1/tasks/{task_id}/events", tag = "tasks", params(("task_id" = String, Path), TaskEvents),
    responses((status = 200, body = EventsPage), Refusals))]
pub async fn events(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(params): ApiQuery<TaskEvents>,
) -> Result<Json<EventsPage>, Problem> {
    let query = EventsQuery {
        kind: params.kind,
        cursor: params.cursor,
        limit: params.limit,
        ..EventsQuery::default()
    };
    Ok(Json(state.service.events_of_task(&caller, id, query).await?))
}
