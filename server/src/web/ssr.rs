//! Pages and their files.

use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

use app::{
    console::{Console, Posted},
    error::AppError,
    paths,
    server_fns::Scope,
    shell::{App, shell},
};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{Next, from_fn},
    response::{IntoResponse, Redirect, Response},
    routing::any,
};
use http::{HeaderValue, Method, StatusCode, header, request::Parts};
use leptos::{context::provide_context, nonce::use_nonce, prelude::use_context};
use leptos_axum::{
    AxumRouteListing, LeptosRoutes, ResponseOptions, generate_route_list, render_app_async_with_context,
};
use tower::ServiceBuilder;
use tower_http::{
    services::{ServeDir, ServeFile, fs::ServeFileSystemResponseBody},
    set_header::SetResponseHeaderLayer,
};

use super::{WebState, headers, problem::Problem, rest, sessions::Who};

/// The file of a site that tells the names of those that have a hash in theirs; `scripts/pages` leaves it there.
pub const NAMES: &str = "hash.txt";
/// Files whose name changes with their content.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// Files that are asked for again each time, by their ETag.
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("public, no-cache");
/// Pages show the moment and belong to one person.
const OWN: HeaderValue = HeaderValue::from_static("private, no-cache");

/// The pages' paths, made once in a process: leptos makes them by drawing every page without its data, and as long as that
/// takes no page of the process is given any. One that another router draws meanwhile would wait for its data for ever.
static PATHS: LazyLock<Vec<AxumRouteListing>> = LazyLock::new(|| generate_route_list(App));

/// Pages, server functions, and the files that pages load.
pub fn router(state: &WebState) -> Router<WebState> {
    let options = state.site.clone();
    let pages = Router::new()
        .leptos_routes_with_context(state, PATHS.clone(), context(state, None), move || {
            shell(options.clone())
        })
        .layer(from_fn(sign_in_first));
    pages.merge(files(state)).route("/sfn/{*rest}", any(rest::unknown)).fallback(missing)
}

/// What every page and server function finds: the backend and who asks, a refused post, and the headers of its answer.
fn context(state: &WebState, posted: Option<Posted>) -> impl Fn() + Clone + Send + Sync + 'static {
    let console: Arc<dyn Console> = Arc::clone(&state.service) as Arc<dyn Console>;
    move || {
        let caller = use_context::<Parts>()
            .and_then(|parts| parts.extensions.get::<Who>().and_then(|Who(caller)| caller.clone()));
        if let Some(caller) = caller {
            provide_context(Scope { console: Arc::clone(&console), caller });
        }
        if let Some(posted) = &posted {
            provide_context(posted.clone());
        }
        if let Some(response) = use_context::<ResponseOptions>() {
            response.insert_header(header::CACHE_CONTROL, OWN);
            let policy = use_nonce().map(|nonce| headers::page_policy(&nonce.to_string()));
            if let Some(policy) = policy.and_then(|policy| HeaderValue::from_str(&policy).ok()) {
                response.insert_header(header::CONTENT_SECURITY_POLICY, policy);
            }
        }
    }
}

/// Shows the page at `path` to somebody whose post was refused, with what they typed and what is wrong.
pub async fn refused(
    state: &WebState,
    mut request: Parts,
    path: &str,
    posted: Posted,
    status: StatusCode,
) -> Response {
    request.method = Method::GET;
    request.headers.remove(header::CONTENT_LENGTH);
    request.headers.remove(header::CONTENT_TYPE);
    match path.parse() {
        Ok(uri) => request.uri = uri,
        Err(_) => return Problem::malformed("The form's address cannot be read.").into_response(),
    }
    let mut response = page(state, Some(posted), Request::from_parts(request, Body::empty())).await;
    *response.status_mut() = status;
    response
}

/// Shows the page at the request's path.
async fn page(state: &WebState, posted: Option<Posted>, request: Request) -> Response {
    let options = state.site.clone();
    render_app_async_with_context(context(state, posted), move || shell(options.clone()))(request).await
}

/// A page that says that there is nothing here.
async fn missing(State(state): State<WebState>, request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return rest::unknown(request.uri().clone()).await.into_response();
    }
    let mut response = page(&state, None, request).await;
    if response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

/// Leads somebody who is not signed in to the form and back. Server functions answer for themselves.
pub async fn sign_in_first(request: Request, next: Next) -> Response {
    let known = request.extensions().get::<Who>().is_some_and(|Who(caller)| caller.is_some());
    let path = request.uri().path();
    let open = [paths::LOGIN, paths::LOGOUT, paths::THEME].contains(&path) || path.starts_with("/sfn/");
    if known || open {
        return next.run(request).await;
    }
    // A post cannot be repeated after signing in.
    let here = match *request.method() {
        Method::POST => paths::JOBS,
        _ => request.uri().path_and_query().map_or(path, |whole| whole.as_str()),
    };
    Redirect::to(&format!("{}?next={}", paths::LOGIN, paths::encode(here))).into_response()
}

/// The browser's files: the build's own under `/pkg`, and those beside it under their names, known at start-up.
fn files(state: &WebState) -> Router<WebState> {
    let root = Path::new(&*state.site.site_root);
    let pkg = root.join(&*state.site.site_pkg_dir);
    let keep = if state.site.hash_files { FOR_EVER } else { ASK_AGAIN };
    let built = ServiceBuilder::new()
        .layer(SetResponseHeaderLayer::if_not_present(header::CACHE_CONTROL, found(keep)))
        .service(ServeDir::new(pkg).precompressed_br().precompressed_gzip());
    let mut router = Router::new().nest_service("/pkg", built);
    for file in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let path = file.path();
        let name = file.file_name().to_string_lossy().into_owned();
        // A name with a brace would be a pattern; compressed copies are served in place of their originals.
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if path.is_file() && plain && name != NAMES && !name.ends_with(".br") && !name.ends_with(".gz") {
            let file = ServiceBuilder::new()
                .layer(SetResponseHeaderLayer::if_not_present(header::CACHE_CONTROL, found(ASK_AGAIN)))
                .service(ServeFile::new(path).precompressed_br().precompressed_gzip());
            router = router.route_service(&format!("/{name}"), file);
        }
    }
    router
}

/// The header for a file that is there: that one is missing may change with the next build.
fn found(
    keep: HeaderValue,
) -> impl Fn(&http::Response<ServeFileSystemResponseBody>) -> Option<HeaderValue> + Clone {
    move |response| (!response.status().is_client_error()).then(|| keep.clone())
}

/// What a refused post shows: its fields come back to the form, an error without a field stands above it.
pub fn posted(fields: Vec<(String, String)>, error: &AppError) -> Posted {
    let errors = match error {
        AppError::Invalid { errors } => errors.clone(),
        other => vec![engine::job::FieldError::new("", other.to_string())],
    };
    Posted { fields, errors, ..Posted::default() }
}
