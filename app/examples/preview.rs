//! Serves the pages with invented data, to look at them without a server: `cargo run -p app --features ssr --example
//! preview -- 127.0.0.1:3100`. `PREVIEW=first-visit` shows an installation without a job.
//! Styles and scripts come from `target/site` where they have been built.

mod sample;

use std::{net::SocketAddr, sync::Arc};

use app::{
    console::{self, Caller, Posted},
    error::AppError,
    format,
    forms::new_job::{Answer, answer, refused},
    paths,
    preferences::Preferences,
    server_fns::Scope,
    shell::{App, shell},
};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{AppendHeaders, IntoResponse, Redirect, Response},
    routing::{get, post},
};
use leptos::{config::LeptosOptions, prelude::provide_context};
use leptos_axum::{LeptosRoutes, generate_route_list, render_app_async_with_context};
use tower_http::services::ServeDir;

use sample::Sample;

/// Most bytes of a posted form.
const MOST_BYTES: usize = 1 << 20;

#[derive(Clone)]
struct Preview {
    options: LeptosOptions,
    scope: Scope,
}

impl axum::extract::FromRef<Preview> for LeptosOptions {
    fn from_ref(preview: &Preview) -> Self {
        preview.options.clone()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address: SocketAddr =
        std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3100".to_owned()).parse()?;
    let empty = std::env::var("PREVIEW").is_ok_and(|scenario| scenario == "first-visit");
    // Names of files with a hash in them, as `scripts/pages` leaves them.
    let names = std::path::absolute("target/site/hash.txt")?;
    let options = LeptosOptions::builder()
        .hash_files(names.is_file())
        .hash_file(names.display().to_string().into())
        .output_name("holdfast")
        .site_root("target/site")
        .site_pkg_dir("pkg")
        .site_addr(address)
        .build();
    let caller = Caller { name: if empty { "local" } else { "user-1" }.to_owned(), single_user: empty };
    let scope = Scope { console: Arc::new(Sample::new(empty)), caller };
    let preview = Preview { options: options.clone(), scope: scope.clone() };
    let pages = {
        let options = options.clone();
        move || shell(options.clone())
    };
    let router = Router::new()
        .route(paths::STREAM, get(one_event))
        .route(paths::NEW_JOB, post(create))
        .route(paths::SETTINGS, post(prefer))
        .route(paths::THEME, post(prefer))
        .leptos_routes_with_context(
            &preview,
            generate_route_list(App),
            move || provide_context(scope.clone()),
            pages,
        )
        .nest_service("/pkg", ServeDir::new("target/site/pkg"))
        .fallback_service(ServeDir::new("public").fallback(get(missing).with_state(preview.clone())))
        .with_state(preview);
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, router).await?;
    Ok(())
}

/// A stream that tells one change and breaks off, so that pausing and trying again can be looked at.
async fn one_event() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/event-stream")], "event: job\ndata: {}\n\n")
}

/// The page of an address that leads nowhere.
async fn missing(State(preview): State<Preview>, request: Request) -> Response {
    render(&preview, request, None).await
}

async fn render(preview: &Preview, request: Request, posted: Option<Posted>) -> Response {
    let (scope, options) = (preview.scope.clone(), preview.options.clone());
    let context = move || {
        provide_context(scope.clone());
        if let Some(posted) = posted.clone() {
            provide_context(posted);
        }
    };
    render_app_async_with_context(context, move || shell(options.clone()))(request).await
}

/// What the server does with the create form.
async fn create(State(preview): State<Preview>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, MOST_BYTES).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let fields = sample::fields(&bytes);
    let Scope { console, caller } = &preview.scope;
    let site = match console.site(caller).await {
        Ok(site) => site,
        Err(error) => return error.to_string().into_response(),
    };
    let posted = match answer(fields.clone(), &site) {
        Answer::Create(draft) => match console.create(caller, &draft, None).await {
            Ok(id) => return Redirect::to(&paths::job(&id)).into_response(),
            Err(AppError::Invalid { errors }) => refused(fields, errors, &site),
            Err(error) => return error.to_string().into_response(),
        },
        Answer::ShowAgain(posted) => posted,
    };
    render(&preview, Request::from_parts(parts, Body::empty()), Some(posted)).await
}

/// What the server does with the settings form.
async fn prefer(headers: HeaderMap, body: String) -> Response {
    let before = headers.get(header::COOKIE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let fields = sample::fields(body.as_bytes());
    let fields = fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let cookies = Preferences::of_cookies(before).of_form(fields).set_cookies();
    (AppendHeaders(cookies.map(|cookie| (header::SET_COOKIE, cookie))), Redirect::to(paths::SETTINGS))
        .into_response()
}
