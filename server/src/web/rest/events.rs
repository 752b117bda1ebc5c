//! A job's history.

use app::console::{Console, EventsPage, EventsQuery};
use axum::{Json, extract::State};
use engine::ids::JobId;

use super::Refusals;
use crate::web::{
    WebState,
    extract::ApiPath,
    limits,
    problem::Problem,
    query::{ApiQuery, Parameters},
    sessions::Asks,
};

impl Parameters for EventsQuery {
    const NUMBERS: &'static [(&'static str, u64, u64)] = &[("limit", 1, limits::PAGE_ITEMS as u64)];
}

/// Decisions, scheduling, exclusions, people's actions; newest first.
#[utoipa::path(get, operation_id = "list_job_events", path = "/api/v1/jobs/{job_id}/events", tag = "jobs", params(("job_id" = String, Path), EventsQuery),
    responses((status = 200, body = EventsPage), Refusals))]
pub async fn of_job(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    ApiQuery(query): ApiQuery<EventsQuery>,
) -> Result<Json<EventsPage>, Problem> {
    Ok(Json(state.service.events(&caller, &id, &query).await?))
}
