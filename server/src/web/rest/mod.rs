//! REST, version 1: one file per area. Handlers parse, call the service, answer; rules live below them.

pub mod bundle;
pub mod diagnoses;
pub mod events;
mod exit_tests;
pub mod import;
pub mod incidents;
pub mod jobs;
pub mod metrics;
pub mod nodes;
pub mod operations;
pub mod site;
pub mod tasks;
pub mod usage;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Uri, header};
use utoipa::{
    IntoResponses, Modify, OpenApi,
    openapi::{
        ContentBuilder, Ref, RefOr, Response as ApiResponse, ResponseBuilder,
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{WebState, problem::Problem, sse};

/// The description's own words; paths and schemas come from the handlers.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdfast",
        description = "Keeps training jobs running. Times are RFC 3339 in UTC, durations are seconds with the unit in the name, ids are opaque texts. \
            Every POST takes an `Idempotency-Key`: a repeated request gets the first one's answer for 24 hours. Every refusal is `application/problem+json`. \
            Bodies have at most 1 MiB, lists at most 200 items, logs at most 5,000 lines an answer, but for the file of a whole log."
    ),
    components(schemas(super::problem::ProblemBody)),
    modifiers(&Security),
    security(("token" = []), ("session" = []))
)]
struct Description;

struct Security;

impl Modify for Security {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let components = api.components.get_or_insert_with(Default::default);
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "A token of `holdfast token create`. On loopback without any account neither is needed.",
            ))
            .build();
        components.add_security_scheme("token", SecurityScheme::Http(token));
        let cookie = ApiKey::Cookie(ApiKeyValue::new("holdfast"));
        components.add_security_scheme("session", SecurityScheme::ApiKey(cookie));
    }
}

/// Every refusal of every call.
pub struct Refusals;

impl IntoResponses for Refusals {
    fn responses() -> std::collections::BTreeMap<String, RefOr<ApiResponse>> {
        let body = ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemBody"))).build();
        let refusal = ResponseBuilder::new()
            .description(
                "Refused or failed: 400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 500, 503 or 507",
            )
            .content("application/problem+json", body)
            .build();
        [("default".to_owned(), RefOr::T(refusal))].into()
    }
}

/// The calls of version 1 and their description.
pub fn router() -> OpenApiRouter<WebState> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(jobs::list, jobs::create))
        .routes(routes!(jobs::check))
        .routes(routes!(import::create))
        .routes(routes!(jobs::get, jobs::delete))
        .routes(routes!(jobs::stop))
        .routes(routes!(jobs::resubmit))
        .routes(routes!(jobs::debug))
        .routes(routes!(jobs::acknowledge))
        .routes(routes!(exit_tests::begin, exit_tests::get))
        .routes(routes!(bundle::get))
        .routes(routes!(jobs::chain))
        .routes(routes!(metrics::get))
        .routes(routes!(events::of_job))
        .routes(routes!(sse::of_job))
        .routes(routes!(sse::of_all))
        .routes(routes!(tasks::get))
        .routes(routes!(tasks::logs))
        .routes(routes!(tasks::file))
        .routes(routes!(tasks::events))
        .routes(routes!(tasks::manifest))
        .routes(routes!(incidents::feedback))
        .routes(routes!(incidents::stacks))
        .routes(routes!(diagnoses::begin))
        .routes(routes!(diagnoses::list))
        .routes(routes!(diagnoses::get))
        .routes(routes!(diagnoses::stop))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::get))
        .routes(routes!(nodes::quarantine))
        .routes(routes!(nodes::release))
        .routes(routes!(nodes::reset_cap))
        .routes(routes!(usage::get))
        .routes(routes!(site::policies))
        .routes(routes!(site::settings))
        .routes(routes!(site::version))
}

/// The answer where no call has this path.
pub async fn unknown(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::not_found(format!("There is nothing at {path}. /api/v1/openapi.json lists every call."))
}

/// The answer where the path has no such method.
pub async fn wrong_method(method: http::Method, uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::new(
        http::StatusCode::METHOD_NOT_ALLOWED,
        "wrong-method",
        "Not with this method",
        format!("{path} does not take {method}. The header `Allow` lists what it takes."),
    )
}

/// Whether the client wants `kind` rather than JSON: by `?format=` or by the first known type of `Accept`.
pub fn wants(headers: &HeaderMap, format: Option<bool>, kind: &str) -> bool {
    format.unwrap_or_else(|| {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let types = accept.split(',').map(|item| item.split(';').next().unwrap_or_default().trim());
        types.into_iter().find(|item| *item == kind || *item == "application/json" || *item == "*/*")
            == Some(kind)
    })
}

/// A text answer.
pub fn text(kind: &'static str, body: String) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], body).into_response()
}
