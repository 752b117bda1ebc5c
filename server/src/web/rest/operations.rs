//! For those who run the server: is it there, can it work, its numbers.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;

use super::text;
use crate::web::{WebState, problem::Problem, sessions::Asks};

/// The process answers. Says nothing about the database, so that a supervisor does not restart what a restart cannot cure.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// The database answers and jobs are being driven, by this server or by the one that leads.
pub async fn readyz(State(state): State<WebState>) -> Response {
    match state.service.ready().await {
        Ok(()) => "ready\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

/// The process's numbers for Prometheus. They tell what runs here, so beyond loopback they are for those who are signed in.
pub async fn metrics(
    State(state): State<WebState>,
    caller: Result<Asks, Problem>,
) -> Result<Response, Problem> {
    if !state.metrics_open {
        caller?;
    }
    let Some(handle) = &state.metrics else {
        return Err(Problem::not_found("This server collects no metrics."));
    };
    state.service.measure().await?;
    Ok(text("text/plain; version=0.0.4; charset=utf-8", handle.render()))
}

/// The description of the API.
pub async fn openapi(State(state): State<WebState>) -> Response {
    text("application/json", state.openapi.to_string())
}
