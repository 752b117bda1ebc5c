//! What the time of clusters went to.

use app::console::{Console, UsageView};
use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Refusals;
use crate::web::{
    WebState,
    problem::Problem,
    query::{ApiQuery, Parameters},
    sessions::Asks,
};

/// Which days.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Days up to now, today included: 1, 7 (the default) or 30. They begin at midnight UTC.
    days: u32,
}

impl Default for UsageQuery {
    fn default() -> Self {
        Self { days: 7 }
    }
}

impl Parameters for UsageQuery {}

/// Where the accelerator time of each cluster went, and ETTR: what was kept of all that was held.
#[utoipa::path(get, operation_id = "get_usage", path = "/api/v1/usage", tag = "nodes", params(UsageQuery),
    responses((status = 200, body = UsageView), Refusals))]
pub async fn get(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiQuery(query): ApiQuery<UsageQuery>,
) -> Result<Json<UsageView>, Problem> {
    Ok(Json(state.service.usage(&caller, query.days).await?))
}
