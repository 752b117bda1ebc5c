//! Bisect Diagnose: begin a run, look at runs, stop one.

use app::{
    console::{Console, DiagnosisDetail, DiagnosisDraft, DiagnosisPlan, DiagnosisView},
    error::AppError,
};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use engine::ids::JobId;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Refusals;
use crate::web::{
    WebState,
    extract::{ApiPath, OptionalJson},
    problem::Problem,
    query::{ApiQuery, Parameters},
    sessions::Asks,
};

/// What to diagnose, and how.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiagnoseBody {
    /// The nodes; those of the newest attempt where absent.
    nodes: Option<Vec<engine::ids::NodeName>>,
    /// The test; the built-in one where absent.
    command: Option<Vec<String>>,
    /// Time limit of one test, 5 to 3,600 seconds; 120 where absent.
    limit_seconds: Option<i64>,
    /// The job's cluster, to be sure of it; any other is refused.
    cluster: Option<String>,
    /// Only say what would be done and what it would take.
    dry_run: bool,
}

/// All runs.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiagnosesList {
    /// The newest 200, newest first.
    items: Vec<DiagnosisView>,
    /// Always null.
    next_cursor: Option<String>,
}

/// Which runs.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiagnosesQuery {
    /// Only of this job.
    job_id: Option<String>,
}

impl Parameters for DiagnosesQuery {}

/// Begins Bisect Diagnose of a job that has ended, or with `dry_run` says what it would take.
#[utoipa::path(post, operation_id = "diagnose_job", path = "/api/v1/jobs/{job_id}/diagnose", tag = "diagnoses", params(("job_id" = String, Path)), request_body = Option<DiagnoseBody>,
    responses(
        (status = 200, body = DiagnosisPlan, description = "The plan of a dry run"),
        (status = 202, body = DiagnosisDetail, description = "The run goes on"),
        Refusals))]
pub async fn begin(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    OptionalJson(body): OptionalJson<DiagnoseBody>,
) -> Result<Response, Problem> {
    let draft =
        DiagnosisDraft { nodes: body.nodes, command: body.command, limit_seconds: body.limit_seconds };
    if body.dry_run || body.cluster.is_some() {
        let plan = state.service.diagnosis_plan(&caller, &id, &draft).await?;
        if body.cluster.is_some_and(|cluster| cluster != plan.cluster) {
            let why =
                format!("The nodes of job {id} are those of cluster {}; name that or none.", plan.cluster);
            return Err(AppError::Conflict { why }.into());
        }
        if body.dry_run {
            return Ok(Json(plan).into_response());
        }
    }
    let run = state.service.diagnose(&caller, &id, &draft).await?;
    Ok((StatusCode::ACCEPTED, Json(state.service.diagnosis(&caller, &run).await?)).into_response())
}

/// Runs of Bisect Diagnose, newest first.
#[utoipa::path(get, operation_id = "list_diagnoses", path = "/api/v1/diagnoses", tag = "diagnoses", params(DiagnosesQuery),
    responses((status = 200, body = DiagnosesList), Refusals))]
pub async fn list(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiQuery(query): ApiQuery<DiagnosesQuery>,
) -> Result<Json<DiagnosesList>, Problem> {
    let job = query.job_id.map(JobId::new).transpose();
    let job = job.map_err(|why| Problem::not_found(format!("There is no such job: {why}.")))?;
    let items = state.service.diagnoses(&caller, job.as_ref()).await?;
    Ok(Json(DiagnosesList { items, next_cursor: None }))
}

/// One run with its rounds.
#[utoipa::path(get, operation_id = "get_diagnosis", path = "/api/v1/diagnoses/{run_id}", tag = "diagnoses", params(("run_id" = String, Path)),
    responses((status = 200, body = DiagnosisDetail), Refusals))]
pub async fn get(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(run_id): ApiPath<String>,
) -> Result<Json<DiagnosisDetail>, Problem> {
    Ok(Json(state.service.diagnosis(&caller, &run_id).await?))
}

/// Stops a run; its tests are ended and no node is marked.
#[utoipa::path(post, operation_id = "stop_diagnosis", path = "/api/v1/diagnoses/{run_id}/stop", tag = "diagnoses", params(("run_id" = String, Path)),
    responses((status = 202, body = DiagnosisDetail, description = "It will be stopped"), Refusals))]
pub async fn stop(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(run_id): ApiPath<String>,
) -> Result<(StatusCode, Json<DiagnosisDetail>), Problem> {
    state.service.stop_diagnosis(&caller, &run_id).await?;
    Ok((StatusCode::ACCEPTED, Json(state.service.diagnosis(&caller, &run_id).await?)))
}
