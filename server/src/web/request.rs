//! What surrounds every request: its id, its span in the log, its numbers, its time limit.

use std::time::{Duration, Instant};

use axum::{
    extract::{MatchedPath, Request},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::HeaderValue;
use tracing::Instrument;

use super::problem::Problem;
use crate::request_id;

/// Gives the request its id and this time, and counts it. An id the client sent is not used: it could be anything.
pub async fn surround(time: Duration, request: Request, next: Next) -> Response {
    let id = request_id::new();
    let method = request.method().clone();
    // The pattern, not the path: a counter for each job id would grow for ever.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "other".to_owned(), |path| path.as_str().to_owned());
    let span = tracing::debug_span!("request", id, %method, path = request.uri().path());
    let begun = Instant::now();
    let answer = request_id::within(id.clone(), async move {
        match tokio::time::timeout(time, next.run(request)).await {
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
