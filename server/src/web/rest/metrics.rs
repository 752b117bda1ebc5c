//! A job's curves.

use std::fmt::Write;

use app::console::{Console, MetricsAxis, MetricsQuery, MetricsView};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use engine::ids::JobId;
use http::HeaderMap;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{Refusals, text, wants};
use crate::web::{
    WebState,
    extract::ApiPath,
    problem::Problem,
    query::{ApiQuery, Parameters},
    sessions::Asks,
};

/// Which curve, and as what.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// `loss`; that where absent.
    metric: Option<String>,
    /// The axis; `step` where absent.
    x: Option<MetricsAxis>,
    /// As what; else `Accept` says it.
    format: Option<Format>,
}

impl Parameters for Params {}

/// Forms of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// JSON.
    Json,
    /// Comma-separated, the first line names the columns.
    Csv,
}

/// A curve over all attempts, at most 2,000 points.
#[utoipa::path(get, operation_id = "get_metrics", path = "/api/v1/jobs/{job_id}/metrics", tag = "jobs", params(("job_id" = String, Path), Params),
    responses((status = 200, content((MetricsView = "application/json"), (String = "text/csv"))), Refusals))]
pub async fn get(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    ApiQuery(params): ApiQuery<Params>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = MetricsQuery { metric: params.metric, x: params.x };
    let view = state.service.metrics(&caller, &id, &query).await?;
    if wants(&headers, params.format.map(|format| format == Format::Csv), "text/csv") {
        return Ok(text("text/csv; charset=utf-8", csv(&view)));
    }
    Ok(Json(view).into_response())
}

fn csv(view: &MetricsView) -> String {
    let mut out = "task_id,launch,step,at,value,kept\n".to_owned();
    for point in &view.points {
        // Ids, numbers and times hold neither commas nor quotes. Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{},{},{},{},{},{}",
            point.task_id, point.launch, point.step, point.at, point.value, point.kept
        );
    }
    out
}
