//! `Idempotency-Key` on every POST of the API: a repeated request gets the first one's answer and does nothing again.

use std::sync::Arc;

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use engine::time::Time;
use http::{HeaderValue, Method, StatusCode, header};
use sha2::{Digest, Sha256};

use super::{extract, limits, problem::Problem, sessions};
use crate::{
    clock::Clock,
    secrets,
    store::{
        self, Store, StoreError,
        idempotency::{self, Claim, KeptAnswer, RequestKey},
    },
};

/// Keeps answers.
#[derive(Clone)]
pub struct Answers {
    /// Where.
    pub store: Store,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Which server works on the requests.
    pub server: Arc<str>,
}

impl Answers {
    async fn claim(&self, key: &RequestKey, body_hash: &str) -> Result<Claim, StoreError> {
        let now = self.clock.now();
        let before = |seconds: i64| Time(now.micros().saturating_sub(seconds.saturating_mul(1_000_000)));
        let mut tx = self.store.write().await?;
        let claim = idempotency::claim(
            &mut tx,
            key,
            body_hash,
            &self.server,
            now,
            before(limits::IDEMPOTENCY_SECONDS),
            before(limits::IDEMPOTENCY_ABANDONED_SECONDS),
        )
        .await?;
        store::commit(tx).await?;
        Ok(claim)
    }

    /// Keeps a success or a refusal; a failure of ours is given another chance.
    async fn settle(&self, key: &RequestKey, answer: Option<&KeptAnswer>) -> Result<(), StoreError> {
        let mut tx = self.store.write().await?;
        match answer {
            Some(answer) => idempotency::keep_answer(&mut tx, key, answer).await?,
            None => idempotency::release(&mut tx, key).await?,
        }
        store::commit(tx).await
    }
}

/// Marks a request that carries a key: the same caller, route and key give the same mark. What is made for it is named by it,
/// so that a repeat finds what was made, even where the server died before it could keep its answer.
#[derive(Clone, Debug)]
pub struct Mark(pub [u8; 32]);

/// The middleware.
pub async fn answer_once(State(answers): State<Answers>, request: Request, next: Next) -> Response {
    match run(&answers, request, next).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn run(answers: &Answers, request: Request, next: Next) -> Result<Response, Problem> {
    let Some(value) = request.headers().get("idempotency-key").filter(|_| request.method() == Method::POST)
    else {
        return Ok(next.run(request).await);
    };
    let key = value
        .to_str()
        .ok()
        .filter(|key| (1..=limits::IDEMPOTENCY_KEY_BYTES).contains(&key.len()))
        .ok_or_else(|| Problem::malformed("An Idempotency-Key has 1 to 255 visible ASCII characters."))?;
    let caller = match request.extensions().get::<sessions::Who>() {
        Some(sessions::Who(Some(caller))) => caller.name.clone(),
        _ => return Err(Problem::sign_in()),
    };
    let key = RequestKey { caller, route: request.uri().path().to_owned(), key: key.to_owned() };
    let (mut parts, body) = request.into_parts();
    let text = format!("{}\n{}\n{}", key.caller, key.route, key.key);
    parts.extensions.insert(Mark(Sha256::digest(text.as_bytes()).into()));
    let body = extract::body(Request::from_parts(parts.clone(), body)).await?;
    match answers.claim(&key, &secrets::fingerprint(&body)).await? {
        Claim::Answered(kept) => Ok(replay(kept)),
        Claim::Busy => Err(Problem::new(
            StatusCode::CONFLICT,
            "in-progress",
            "The first request is being worked on",
            "A request with this Idempotency-Key has not been answered yet. Repeat it in a few seconds.",
        )),
        Claim::OtherBody => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "key-reused",
            "The key belongs to another request",
            "This Idempotency-Key was used with another body in the last 24 hours. Use a new key for a new request.",
        )),
        Claim::Mine => {
            let response = next.run(Request::from_parts(parts, Body::from(body))).await;
            keep(answers, &key, response).await
        }
    }
}

async fn keep(answers: &Answers, key: &RequestKey, response: Response) -> Result<Response, Problem> {
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, limits::BODY_BYTES * 2).await.map_err(|error| sessions::failed(&error))?;
    let text =
        |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::to_owned);
    // 401 and 429 pass with time, and a failure of ours says nothing about the request.
    let passing = [StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS].contains(&parts.status);
    let answer = (!parts.status.is_server_error() && !passing).then(|| KeptAnswer {
        status: parts.status.as_u16(),
        content_type: text(header::CONTENT_TYPE).unwrap_or_default(),
        location: text(header::LOCATION),
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    // What was asked is done; that the answer could not be kept must not turn it into a failure.
    if let Err(error) = answers.settle(key, answer.as_ref()).await {
        tracing::error!(%error, "an answer could not be kept for its Idempotency-Key");
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn replay(kept: KeptAnswer) -> Response {
    let mut response = Response::new(Body::from(kept.body));
    *response.status_mut() = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    let mut set = |name, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()).and_then(|value| value.parse().ok()) {
            headers.insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, Some(kept.content_type));
    set(header::LOCATION, kept.location);
    headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    response
}
