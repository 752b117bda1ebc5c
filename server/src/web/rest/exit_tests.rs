//! Tests of Exit ckpt Notification.

use app::console::Console;
use axum::{Json, extract::State};
use engine::ids::JobId;
use http::StatusCode;

use super::Refusals;
use crate::{
    service::exit_tests::ExitTestView,
    web::{WebState, extract::ApiPath, problem::Problem, sessions::Asks},
};

/// Tests Exit ckpt Notification on a job that runs: its program is really told to save, in every replica, and goes on. One that ends because of
/// that is started again, which is not charged. `GET` of the same address tells what came of it.
#[utoipa::path(post, operation_id = "test_exit", path = "/api/v1/jobs/{job_id}/test-exit", tag = "jobs", params(("job_id" = String, Path)),
    responses((status = 202, body = ExitTestView, description = "The program is told"), Refusals))]
pub async fn begin(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
) -> Result<(StatusCode, Json<ExitTestView>), Problem> {
    state.service.test_exit(&caller, &id).await?;
    Ok((StatusCode::ACCEPTED, Json(state.service.exit_test(&caller, &id).await?)))
}

/// The newest test of Exit ckpt Notification, and why none can be made now. Looked for in the newest 20 attempts.
#[utoipa::path(get, operation_id = "get_exit_test", path = "/api/v1/jobs/{job_id}/test-exit", tag = "jobs", params(("job_id" = String, Path)),
    responses((status = 200, body = ExitTestView), Refusals))]
pub async fn get(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
) -> Result<Json<ExitTestView>, Problem> {
    Ok(Json(state.service.exit_test(&caller, &id).await?))
}
