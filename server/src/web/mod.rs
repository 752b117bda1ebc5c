//! HTTP: the router with everything around it.
//!
//! From outside in: headers for browsers · request id, numbers and time limit · `Host` and origin gates · who asks · then pages,
//! forms, REST and streams. Agents pass beside the last three: they have secrets and limits of their own.

pub mod extract;
mod forms;
mod guard;
mod headers;
mod idempotent;
pub mod limits;
pub mod problem;
mod query;
mod request;
pub mod rest;
pub mod sessions;
mod sse;
mod ssr;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, FromRef},
    middleware::{from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use leptos::config::LeptosOptions;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower_http::{
    catch_panic::CatchPanicLayer,
    compression::{
        CompressionLayer, Predicate,
        predicate::{DefaultPredicate, NotForContentType},
    },
};

pub use self::ssr::NAMES;
use self::{guard::HostRule, idempotent::Answers, problem::Problem, rest::operations, sessions::Access};
use crate::{config::PublicUrl, service::Service};

/// What handlers share.
#[derive(Clone)]
pub struct WebState {
    /// What can be done.
    pub service: Arc<Service>,
    /// Who may.
    pub access: Arc<Access>,
    /// The numbers; none in a server that collects none.
    pub metrics: Option<PrometheusHandle>,
    /// Whether they are for everybody who can reach them.
    pub metrics_open: bool,
    /// The API's description.
    openapi: Arc<str>,
    streams: Arc<Semaphore>,
    log_reads: Arc<Semaphore>,
    stop: CancellationToken,
    site: LeptosOptions,
}

impl FromRef<WebState> for LeptosOptions {
    fn from_ref(state: &WebState) -> Self {
        state.site.clone()
    }
}

/// What the router is made of.
pub struct WebParts {
    /// What can be done.
    pub service: Arc<Service>,
    /// Who may.
    pub access: Arc<Access>,
    /// The numbers.
    pub metrics: Option<PrometheusHandle>,
    /// The agents' end.
    pub agents: Router,
    /// The pages' files and how they are named.
    pub site: LeptosOptions,
    /// Bound to loopback.
    pub loopback: bool,
    /// The address browsers use, where it is another.
    pub public_url: Option<PublicUrl>,
    /// Whether `/metrics` answers those beyond loopback who are not signed in.
    pub metrics_open: bool,
    /// This server's own name among those of its database; it keeps it when it starts again.
    pub server_id: Arc<str>,
    /// Ends live streams.
    pub stop: CancellationToken,
}

/// Everything the server answers.
///
/// # Errors
/// The description cannot be written, or the public address is no origin.
pub fn router(parts: WebParts) -> anyhow::Result<Router> {
    let (api, description) = rest::router().split_for_parts();
    let state = WebState {
        openapi: description.to_pretty_json()?.into(),
        streams: Arc::new(Semaphore::new(limits::STREAMS)),
        log_reads: Arc::new(Semaphore::new(limits::LOG_READS)),
        service: parts.service,
        access: parts.access,
        metrics: parts.metrics,
        metrics_open: parts.metrics_open || (parts.loopback && parts.public_url.is_none()),
        stop: parts.stop,
        site: parts.site,
    };
    let answers = Answers {
        store: state.service.store.clone(),
        clock: Arc::clone(&state.service.clock),
        server: parts.server_id,
    };
    let api = api
        .layer(from_fn_with_state(answers, idempotent::answer_once))
        .route("/api/v1/openapi.json", get(operations::openapi))
        .route("/api/{*rest}", axum::routing::any(rest::unknown))
        .method_not_allowed_fallback(rest::wrong_method);
    let operations = Router::new()
        .route("/healthz", get(operations::healthz))
        .route("/readyz", get(operations::readyz))
        .route("/metrics", get(operations::metrics))
        .method_not_allowed_fallback(rest::wrong_method);
    let people = api
        .merge(operations)
        .merge(forms::router())
        .merge(ssr::router(&state))
        .layer(
            ServiceBuilder::new()
                .layer(from_fn(admit(Arc::new(Semaphore::new(limits::CONCURRENT_REQUESTS)))))
                .layer(compression())
                .layer(from_fn_with_state(Arc::clone(&state.access), sessions::identify))
                .layer(DefaultBodyLimit::max(limits::BODY_BYTES)),
        )
        .with_state(state);
    let rule = HostRule::new(parts.loopback, parts.public_url.as_ref());
    let gates = ServiceBuilder::new()
        .layer(from_fn_with_state(rule, guard::check_host))
        .layer(guard::csrf(parts.public_url.as_ref())?);
    let trusted = parts.public_url.as_ref().map_or(parts.loopback, |public| public.secure);
    Ok(surrounded(people.merge(parts.agents).layer(gates), limits::REQUEST_TIME, trusted))
}

/// What every answer passes. The headers stand outermost, so that also one to a handler that panicked or took too long has them.
fn surrounded(router: Router, time: Duration, trusted: bool) -> Router {
    router.layer(
        ServiceBuilder::new()
            .layer(from_fn_with_state(trusted, headers::add))
            .layer(from_fn(move |request, next| request::surround(time, request, next)))
            .layer(CatchPanicLayer::custom(panicked)),
    )
}

/// Answers at once that the server is busy instead of letting requests pile up.
fn admit(
    places: Arc<Semaphore>,
) -> impl Fn(axum::extract::Request, axum::middleware::Next) -> futures::future::BoxFuture<'static, Response> + Clone
{
    move |request, next| {
        let places = Arc::clone(&places);
        Box::pin(async move {
            match places.try_acquire() {
                Ok(_place) => next.run(request).await,
                Err(_) => Problem::busy("Too many requests are being worked on. Try again in a few seconds.")
                    .into_response(),
            }
        })
    }
}

/// Events go out one by one, and files that are compressed on disk are not compressed again.
fn compression() -> CompressionLayer<impl Predicate> {
    let predicate = DefaultPredicate::new().and(NotForContentType::const_new("text/event-stream"));
    CompressionLayer::new().compress_when(predicate)
}

/// A defect of ours: the log has the place, the client the request's id.
fn panicked(cause: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
    sessions::failed(&std::io::Error::other(format!("a handler panicked: {text}"))).into_response()
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, extract::Request};
    use http::StatusCode;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn an_answer_to_what_went_wrong_has_its_headers_too() {
        let router = Router::new()
            .route("/panics", get(async || -> StatusCode { panic!("a defect") }))
            .route("/hangs", get(async || std::future::pending::<StatusCode>().await));
        let router = surrounded(router, Duration::from_millis(20), true);
        for (path, want) in
            [("/panics", StatusCode::INTERNAL_SERVER_ERROR), ("/hangs", StatusCode::SERVICE_UNAVAILABLE)]
        {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), want, "{path}");
            assert_eq!(answer.headers()["x-content-type-options"], "nosniff", "{path}");
            assert!(answer.headers().contains_key("x-request-id"), "{path}");
        }
    }

    #[tokio::test]
    async fn what_browsers_ignore_with_an_error_is_not_sent_where_they_do() {
        for trusted in [true, false] {
            let router = Router::new().route("/", get(async || ()));
            let router = surrounded(router, Duration::from_secs(1), trusted);
            let answer = router.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.headers().contains_key("cross-origin-opener-policy"), trusted);
        }
    }
}
