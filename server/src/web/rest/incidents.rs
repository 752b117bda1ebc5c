//! "Was this right?"

use app::console::Console;
use axum::extract::State;
use engine::ids::IncidentId;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Refusals;
use crate::web::{
    WebState,
    extract::{ApiJson, ApiPath},
    problem::Problem,
    sessions::Asks,
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
