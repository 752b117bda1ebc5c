//! What surrounds every request: its id, its span in the log, its numbers, its time limit.

use std::time::Instant;

use axum::{
    extract::{MatchedPath, Request},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::HeaderValue;
use tracing::Instrument;

use super::{limits, problem::Problem};
use crate::clock;

tokio::task_local! {
    static REQUEST_ID: String;
}

/// The id of the request that is being answered; outside of one a new id, so that a failure can always be found.
pub fn id() -> String {
    REQUEST_ID.try_with(String::clone).unwrap_or_else(|_| new_id())
}

/// A machine without randomness still answers.
fn new_id() -> String {
    clock::new_id().unwrap_or_else(|_| "none".to_owned())
}

/// Gives the request its id and its time limit, and counts it. An id the client sent is not used: it could be anything.
pub async fn surround(request: Request, next: Next) -> Response {
    let id = new_id();
    let method = request.method().clone();
    // The pattern, not the path: a counter for each job id would grow for ever.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "other".to_owned(), |path| path.as_str().to_owned());
    let span = tracing::debug_span!("request", id, %method, path = request.uri().path());
    let begun = Instant::now();
    let answer = REQUEST_ID.scope(id.clone(), async move {
        match tokio::time::timeout(limits::REQUEST_TIME, next.run(request)).await {
            Ok(response) => response,
            Err(_) => Problem::timed_out().into_response(),
        }
    });
    let mut response = answer.instrument(span).await;
    let seconds = begun.elapsed().as_secs_f64();
    let status = response.status().as_u16();
    tracing::debug!(id, %method, route, status, seconds, "answered");
    metrics::counter!("holdfast_http_requests_total", "method" => method.to_string(), "route" => route.clone(), "status" => status.to_string())
        .increment(1);
    metrics::histogram!("holdfast_http_request_seconds", "method" => method.to_string(), "route" => route)
        .record(seconds);
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}
