//! "Was this right?", and the stacks of a hang.

use app::console::Console;
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use engine::ids::IncidentId;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Refusals, tasks::Format, text, wants};
use crate::{
    service::stacks::IncidentStacks,
    web::{
        WebState,
        extract::{ApiJson, ApiPath},
        problem::Problem,
        query::{ApiQuery, Parameters},
        sessions::Asks,
    },
};

/// A person's answer.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Feedback {
    /// Whether the verdict and what was done were right; null takes the answer back.
    #[serde(deserialize_with = "required")]
    right: Option<bool>,
}

/// Null is an answer, a missing field is a mistake.
fn required<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    Option::deserialize(deserializer)
}

/// Answers "Was this right?".
#[utoipa::path(put, operation_id = "answer_incident", path = "/api/v1/incidents/{id}/feedback", tag = "incidents", params(("id" = String, Path)), request_body = Feedback,
    responses((status = 204, description = "Kept"), Refusals))]
pub async fn feedback(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<IncidentId>,
    ApiJson(Feedback { right }): ApiJson<Feedback>,
) -> Result<StatusCode, Problem> {
    state.service.feedback(&caller, &id, right).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which stacks, and as what.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub struct StackParams {
    /// From this rank on: `next` of the part before.
    from: Option<u32>,
    /// As what; else `Accept` says it.
    format: Option<Format>,
}

impl Parameters for StackParams {
    const NUMBERS: &'static [(&'static str, u64, u64)] = &[("from", 0, u32::MAX as u64)];
}

/// The stacks of the processes of a launch that hung, as they were read when it did: at most 128 processes in one answer. As text
/// it is a file.
#[utoipa::path(get, operation_id = "get_incident_stacks", path = "/api/v1/incidents/{id}/stacks", tag = "incidents", params(("id" = String, Path), StackParams),
    responses((status = 200, content((IncidentStacks = "application/json"), (String = "text/plain"))), Refusals))]
pub async fn stacks(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<IncidentId>,
    ApiQuery(params): ApiQuery<StackParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let stacks = state.service.incident_stacks(&caller, &id, params.from.unwrap_or_default()).await?;
    if !wants(&headers, params.format.map(|format| format == Format::Text), "text/plain") {
        return Ok(Json(stacks).into_response());
    }
    let mut response = text("text/plain; charset=utf-8", stacks.text());
    // Names consist of letters, digits and dashes.
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{}-stacks.txt\"", stacks.id)) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}
