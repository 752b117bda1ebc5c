//! What to keep of a job for troubleshooting, as a file.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use engine::ids::JobId;
use http::{HeaderValue, header};

use super::Refusals;
use crate::{
    service::bundle::Bundle,
    web::{WebState, extract::ApiPath, problem::Problem, sessions, sessions::Asks},
};

/// One document to keep for troubleshooting, as a file: task ids, decisions, checkpoints, evidence, the ends of logs, history and what the job
/// is made of. Values that look confidential are hidden. At most 100 attempts, 2,000 entries of the history, 20 logs of 200 lines.
#[utoipa::path(get, operation_id = "get_bundle", path = "/api/v1/jobs/{job_id}/bundle", tag = "jobs", params(("job_id" = String, Path)),
    responses((status = 200, body = Bundle, headers(("Content-Disposition" = String))), Refusals))]
pub async fn get(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
) -> Result<Response, Problem> {
    let bundle = state.service.bundle(&caller, &id).await?;
    let text = serde_json::to_string_pretty(&bundle).map_err(|why| sessions::failed(&why))?;
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    // Ids consist of letters and digits.
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"holdfast-{id}.json\"")) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}
