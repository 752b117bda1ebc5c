//! Jobs: list, create, one, and what a person does with one.

use app::{
    console::{ChainPage, ChainView, Console, JobRow, JobView, JobsQuery, JobsSort, JobsViewName},
    error::AppError,
};
use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse, Response},
};
use engine::{
    failure::FailureType,
    ids::JobId,
    job::{FieldError, Finding, Fit, JobDraft, JobKind},
    record::State as JobState,
};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Refusals;
use crate::web::{
    WebState,
    extract::{self, ApiJson, ApiPath, OptionalJson},
    idempotent::Mark,
    limits,
    problem::Problem,
    query::{ApiQuery, Parameters},
    sessions::Asks,
};

/// Filters of the list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub struct ListQuery {
    /// Only jobs of this view.
    view: Option<JobsViewName>,
    /// Part of a name, an id or an image; at most 200 characters.
    q: Option<String>,
    /// Only this state.
    state: Option<JobState>,
    /// Only this kind.
    kind: Option<JobKind>,
    /// Only jobs whose newest incident has this type.
    fault: Option<FailureType>,
    /// Only this person's.
    owner: Option<String>,
    /// Only with at least so many task restarts.
    restarts: Option<u32>,
    /// Order; newest first where absent.
    sort: Option<JobsSort>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// 1–200 jobs; 50 where absent. A cursor keeps the limit it was made with.
    limit: Option<u32>,
}

impl Parameters for ListQuery {
    const NUMBERS: &'static [(&'static str, u64, u64)] =
        &[("restarts", 0, u32::MAX as u64), ("limit", 1, limits::PAGE_ITEMS as u64)];
}

/// A page of jobs.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobsList {
    /// The jobs.
    items: Vec<JobRow>,
    /// Where the next page begins; null on the last.
    next_cursor: Option<String>,
    /// All that match.
    total: u64,
}

/// Jobs, newest first.
#[utoipa::path(get, operation_id = "list_jobs", path = "/api/v1/jobs", tag = "jobs", params(ListQuery), responses((status = 200, body = JobsList), Refusals))]
pub async fn list(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiQuery(query): ApiQuery<ListQuery>,
) -> Result<Json<JobsList>, Problem> {
    let cursor = query.cursor.as_deref().map(read_cursor).transpose()?;
    let filters = JobsQuery {
        view: query.view,
        q: query.q,
        state: query.state,
        kind: query.kind,
        fault: query.fault,
        owner: query.owner,
        restarts: query.restarts,
        sort: query.sort,
        page: cursor.map(|(page, _)| page),
        size: cursor.map(|(_, size)| size).or(query.limit),
    };
    let found = state.service.jobs(&caller, &filters).await?;
    let more = u64::from(found.page) * u64::from(found.size) < found.total && !found.items.is_empty();
    Ok(Json(JobsList {
        items: found.items,
        next_cursor: more.then(|| format!("{}.{}", found.page + 1, found.size)),
        total: found.total,
    }))
}

/// The page and the size of pages that a cursor stands for.
fn read_cursor(cursor: &str) -> Result<(u32, u32), Problem> {
    let parts =
        cursor.split_once('.').and_then(|(page, size)| Some((page.parse().ok()?, size.parse().ok()?)));
    parts.filter(|(page, size)| *page > 0 && (1..=limits::PAGE_ITEMS).contains(size)).ok_or_else(|| {
        let rule = "is no cursor of this list; use `next_cursor` of the page before";
        Problem::invalid(vec![FieldError::new("cursor", rule)])
    })
}

/// Creates a job; its first attempt is submitted at once.
#[utoipa::path(post, operation_id = "create_job", path = "/api/v1/jobs", tag = "jobs", request_body = JobDraft,
    responses((status = 201, body = JobView, headers(("Location" = String))), Refusals))]
pub async fn create(
    State(state): State<WebState>,
    Asks(caller): Asks,
    mark: Option<Extension<Mark>>,
    ApiJson(draft): ApiJson<JobDraft>,
) -> Result<Response, Problem> {
    let id = state.service.create_job(&caller, &draft, None, mark.map(|Extension(Mark(mark))| mark)).await?;
    created(&state, &caller, &id).await
}

/// What its cluster has of what a job needs.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobCheck {
    /// What was found, the worst first; empty where the cluster has nothing to say. A job with one that is `never` is refused.
    findings: Vec<Finding>,
}

/// Asks the cluster whether a job would find what it needs now. Nothing is made, and a body that is not valid is refused as in `POST /api/v1/jobs`.
#[utoipa::path(post, operation_id = "check_job", path = "/api/v1/jobs:check", tag = "jobs", request_body = JobDraft,
    responses((status = 200, body = JobCheck), Refusals))]
pub async fn check(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiJson(draft): ApiJson<JobDraft>,
) -> Result<Json<JobCheck>, Problem> {
    let mut findings = state.service.check(&caller, &draft).await?;
    // As an error of a field it may lack its subject, which a form has beside it.
    for finding in findings.iter_mut().filter(|one| one.fit == Fit::Never) {
        let field = finding.field.as_deref().unwrap_or("The job");
        let between = if finding.text.starts_with("is ") { " " } else { ": " };
        finding.text = format!("{field}{between}{}.", finding.text);
    }
    Ok(Json(JobCheck { findings }))
}

async fn created(state: &WebState, caller: &app::console::Caller, id: &JobId) -> Result<Response, Problem> {
    Ok(made(id, state.service.job(caller, id).await?))
}

/// The answer to a request that made a job.
pub(super) fn made(id: &JobId, body: impl Serialize) -> Response {
    let mut response = (StatusCode::CREATED, Json(body)).into_response();
    if let Ok(place) = HeaderValue::from_str(&format!("/api/v1/jobs/{id}")) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

/// One job.
#[utoipa::path(get, operation_id = "get_job", path = "/api/v1/jobs/{job_id}", tag = "jobs", params(("job_id" = String, Path)),
    responses((status = 200, body = JobView), Refusals))]
pub async fn get(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
) -> Result<Json<JobView>, Problem> {
    Ok(Json(state.service.job(&caller, &id).await?))
}

/// How to stop or delete.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub struct Force {
    /// At once, without telling the program to save.
    force: bool,
}

impl Parameters for Force {}

/// Stops a job in any state; a stop wins over recovery.
#[utoipa::path(post, operation_id = "stop_job", path = "/api/v1/jobs/{job_id}/stop", tag = "jobs", params(("job_id" = String, Path)), request_body = Option<Force>,
    responses((status = 202, body = JobView, description = "It will be stopped"), Refusals))]
pub async fn stop(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    OptionalJson(Force { force }): OptionalJson<Force>,
) -> Result<(StatusCode, Json<JobView>), Problem> {
    state.service.stop(&caller, &id, force).await?;
    Ok((StatusCode::ACCEPTED, Json(state.service.job(&caller, &id).await?)))
}

/// What was accepted.
#[derive(Debug, Serialize, ToSchema)]
pub struct Accepted {
    /// The job.
    job_id: JobId,
}

/// Stops a job and forgets it with its logs and checkpoints.
#[utoipa::path(delete, operation_id = "delete_job", path = "/api/v1/jobs/{job_id}", tag = "jobs", params(("job_id" = String, Path), Force),
    responses((status = 202, body = Accepted, description = "It will be deleted"), Refusals))]
pub async fn delete(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    ApiQuery(Force { force }): ApiQuery<Force>,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    state.service.delete(&caller, &id, force).await?;
    Ok((StatusCode::ACCEPTED, Json(Accepted { job_id: id })))
}

/// How to resubmit.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resubmission {
    /// As what.
    #[serde(rename = "as")]
    kind: ResubmissionKind,
    /// With `job`: fields of the create body that differ, as a JSON merge patch (RFC 7396).
    #[schema(value_type = Option<Object>)]
    changes: Option<Value>,
}

/// As what a job is resubmitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResubmissionKind {
    /// A new attempt of this job: not charged, and refills nothing.
    #[default]
    Attempt,
    /// A new job made like this one.
    Job,
}

/// Resubmits by hand.
#[utoipa::path(post, operation_id = "resubmit_job", path = "/api/v1/jobs/{job_id}/resubmit", tag = "jobs", params(("job_id" = String, Path)), request_body = Option<Resubmission>,
    responses(
        (status = 202, body = JobView, description = "A new attempt of this job will be made"),
        (status = 201, body = JobView, description = "The new job", headers(("Location" = String))),
        Refusals))]
pub async fn resubmit(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    mark: Option<Extension<Mark>>,
    OptionalJson(wanted): OptionalJson<Resubmission>,
) -> Result<Response, Problem> {
    match (wanted.kind, wanted.changes) {
        (ResubmissionKind::Attempt, None) => {
            state.service.resubmit(&caller, &id).await?;
            Ok((StatusCode::ACCEPTED, Json(state.service.job(&caller, &id).await?)).into_response())
        }
        (ResubmissionKind::Attempt, Some(_)) => {
            let rule =
                "belong to a new job: an attempt always gets the original inputs. Use \"as\": \"job\".";
            Err(Problem::invalid(vec![FieldError::new("changes", rule)]))
        }
        (ResubmissionKind::Job, changes) => {
            let original = state.service.job(&caller, &id).await?;
            let draft = changed(&JobDraft::from(&original.spec), changes)?;
            let mark = mark.map(|Extension(Mark(mark))| mark);
            let new = state.service.create_job(&caller, &draft, Some(&id), mark).await.map_err(in_changes)?;
            created(&state, &caller, &new).await
        }
    }
}

/// A debug job.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Debugging {
    /// A merge patch (RFC 7396) on the debug job's body.
    #[schema(value_type = Option<Object>)]
    changes: Option<Value>,
}

/// Makes a new job to look into this one: the same inputs in one replica, nothing that restarts or judges it, and a shell that prints the
/// program's command and waits a day in place of the program.
#[utoipa::path(post, operation_id = "debug_job", path = "/api/v1/jobs/{job_id}/debug", tag = "jobs", params(("job_id" = String, Path)), request_body = Option<Debugging>,
    responses((status = 201, body = JobView, description = "The new job", headers(("Location" = String))), Refusals))]
pub async fn debug(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    mark: Option<Extension<Mark>>,
    OptionalJson(wanted): OptionalJson<Debugging>,
) -> Result<Response, Problem> {
    let original = state.service.job(&caller, &id).await?;
    let draft = JobDraft::from(&original.spec).into_debug().map_err(|why| AppError::Conflict { why })?;
    let draft = changed(&draft, wanted.changes)?;
    let mark = mark.map(|Extension(Mark(mark))| mark);
    let new = state.service.create_job(&caller, &draft, Some(&id), mark).await.map_err(in_changes)?;
    created(&state, &caller, &new).await
}

/// The draft with a merge patch applied.
fn changed(draft: &JobDraft, changes: Option<Value>) -> Result<JobDraft, Problem> {
    let Some(changes) = changes else { return Ok(draft.clone()) };
    if !changes.is_object() {
        return Err(Problem::invalid(vec![FieldError::new("changes", "is no object of fields")]));
    }
    let mut body = serde_json::to_value(draft).map_err(|why| crate::web::sessions::failed(&why))?;
    merge(&mut body, changes);
    extract::read_value(body, "changes.")
}

/// RFC 7396: null removes a field, which then has its default.
fn merge(into: &mut Value, patch: Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    into.remove(&key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (into, patch) => *into = patch,
    }
}

/// Fields of the new job's body are named where this request has them.
fn in_changes(error: AppError) -> Problem {
    match error {
        AppError::Invalid { mut errors } => {
            errors.iter_mut().for_each(|error| error.field.insert_str(0, "changes."));
            Problem::invalid(errors)
        }
        other => other.into(),
    }
}

/// No attention needed.
#[utoipa::path(post, operation_id = "acknowledge_job", path = "/api/v1/jobs/{job_id}/acknowledge", tag = "jobs", params(("job_id" = String, Path)),
    responses((status = 202, body = JobView), Refusals))]
pub async fn acknowledge(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
) -> Result<(StatusCode, Json<JobView>), Problem> {
    state.service.acknowledge(&caller, &id).await?;
    Ok((StatusCode::ACCEPTED, Json(state.service.job(&caller, &id).await?)))
}

impl Parameters for ChainPage {
    const NUMBERS: &'static [(&'static str, u64, u64)] =
        &[("from", 1, u32::MAX as u64), ("limit", 1, limits::PAGE_ITEMS as u64)];
}

/// The Fault Tolerance Detail as data.
#[utoipa::path(get, operation_id = "get_chain", path = "/api/v1/jobs/{job_id}/chain", tag = "jobs", params(("job_id" = String, Path), ChainPage),
    responses((status = 200, body = ChainView), Refusals))]
pub async fn chain(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    ApiQuery(page): ApiQuery<ChainPage>,
) -> Result<Json<ChainView>, Problem> {
    Ok(Json(state.service.chain(&caller, &id, page).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> JobDraft {
        serde_json::from_str(r#"{"name":"a","command":["true"],"env":{"A":"1","B":"2"},"replicas":2}"#)
            .unwrap()
    }

    #[test]
    fn changes_are_a_merge_patch() {
        let changes = serde_json::json!({"replicas": 1, "env": {"A": null, "C": "3"}, "fault_tolerance": {"auto_failover": true}});
        let new = changed(&draft(), Some(changes)).unwrap();
        assert_eq!(new.replicas, Some(1));
        assert_eq!(new.env.keys().collect::<Vec<_>>(), ["B", "C"]);
        assert_eq!((new.name.as_str(), new.fault_tolerance.auto_failover), ("a", Some(true)));
    }

    #[test]
    fn a_change_of_an_unknown_field_is_named() {
        for (changes, field) in [
            (serde_json::json!({"replica": 1}), "changes.replica"),
            (serde_json::json!({"replicas": "1"}), "changes.replicas"),
            (serde_json::json!(3), "changes"),
        ] {
            assert_eq!(changed(&draft(), Some(changes)).unwrap_err().errors[0].field, field);
        }
    }
}
