//! Attempts by their task ID: what became of one, its logs, its events.

use std::fmt::Write;

use app::console::{Console, EventsPage, EventsQuery, LogLevel, LogPage, LogQuery};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use engine::{
    ids::{ReplicaName, TaskId},
    record::EventKind,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{Checks, Refusals, text, wants};
use crate::{
    service::tasks::TaskView,
    web::{
        WebState,
        extract::{ApiPath, ApiQuery},
        limits,
        problem::Problem,
        sessions::Asks,
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
    Checks::default()
        .number("tail", params.tail, 1..=limits::LOG_LINES)
        .number("from", params.from, 1..=u64::MAX)
        .text("q", params.q.as_deref())
        .done()?;
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

/// The history of one attempt, newest first.
#[utoipa::path(get, operation_id = "list_task_events", path = "/api/v1/tasks/{task_id}/events", tag = "tasks", params(("task_id" = String, Path), TaskEvents),
    responses((status = 200, body = EventsPage), Refusals))]
pub async fn events(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(params): ApiQuery<TaskEvents>,
) -> Result<Json<EventsPage>, Problem> {
    Checks::default()
        .text("cursor", params.cursor.as_deref())
        .number("limit", params.limit, 1..=limits::PAGE_ITEMS)
        .done()?;
    let job = state.service.task(&caller, &id).await?.job_id;
    let query = EventsQuery { kind: params.kind, task: Some(id), cursor: params.cursor, limit: params.limit };
    Ok(Json(state.service.events(&caller, &job, &query).await?))
}
