//! The agents' end of the server: one long poll for each replica, reports up, desired state down.

mod check;
mod door;
mod hub;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, FromRequestParts, Request, State},
    http::{HeaderValue, StatusCode, Version, header, request::Parts},
    response::{IntoResponse, Response},
    routing::post,
};
use engine::{
    chain::{Chain, Input},
    ids::{JobId, ReplicaName, TaskId},
    sync::{headers, limits},
};
use tokio::sync::watch;

use self::door::{Door, Limits};
pub use self::hub::Hub;

/// What the hub needs of the driver.
#[async_trait]
pub trait Chains: Send + Sync {
    /// The newest committed chain of a job, and every later one.
    async fn subscribe(&self, job: &JobId) -> Result<watch::Receiver<Arc<Chain>>, ChainsError>;

    /// Hands inputs to a job's chain; returns once they are committed.
    async fn input(&self, job: &JobId, inputs: Vec<Input>) -> Result<(), ChainsError>;
}

/// Why a chain could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ChainsError {
    /// There is no such job, or no longer.
    #[error("there is no job {0}")]
    NoJob(JobId),
    /// Another server acts, or this one is only starting or stopping.
    #[error("this server does not lead now")]
    Elsewhere,
    /// The database does not answer, or the job's task does not: ask again later.
    #[error("the job's chain cannot be had now")]
    NotNow(#[source] anyhow::Error),
}

/// Why a sync was not answered.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The token is not this replica's.
    #[error("the token is not that of this replica")]
    Token,
    /// The body is no sync, or breaks a limit or a rule of the protocol.
    #[error("{0}")]
    Invalid(String),
    /// The attempt's job does not exist; the agent has nothing left to do.
    #[error("there is no such attempt")]
    Gone,
    /// The body did not arrive in time.
    #[error("the body did not arrive within {} s", .0.as_secs())]
    Slow(Duration),
    /// Another server leads; the agent asks again, and its next connection may reach that one.
    #[error("this server does not lead now; ask again")]
    Elsewhere,
    /// Not now; the agent asks again.
    #[error("the server cannot take this now; ask again")]
    NotNow(#[source] anyhow::Error),
}

impl From<ChainsError> for SyncError {
    fn from(error: ChainsError) -> Self {
        match error {
            ChainsError::NoJob(_) => Self::Gone,
            ChainsError::Elsewhere => Self::Elsewhere,
            ChainsError::NotNow(source) => Self::NotNow(source),
        }
    }
}

impl IntoResponse for SyncError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Token => StatusCode::UNAUTHORIZED,
            Self::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Gone => StatusCode::GONE,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            // Said by each server that does not lead, to each agent that comes to it: nothing to log.
            Self::Elsewhere => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotNow(source) => {
                tracing::warn!(error = %format!("{source:#}"), "could not take a sync");
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        let problem = serde_json::json!({
            "type": "about:blank", "title": status.canonical_reason(), "status": status.as_u16(), "detail": self.to_string(),
        });
        (status, [(header::CONTENT_TYPE, "application/problem+json")], Json(problem)).into_response()
    }
}

/// `POST /agent/v1/sync`.
pub fn router(hub: Arc<Hub>) -> Router {
    routes(Door::new(hub, Limits::USUAL))
}

fn routes(door: Door) -> Router {
    Router::new()
        .route("/agent/v1/sync", post(sync))
        .layer(DefaultBodyLimit::max(limits::BODY_BYTES))
        .with_state(door)
}

/// The replica that a sync is of, proved by its token. Whoever cannot prove it is refused before the body is read.
#[derive(Clone, Debug)]
struct Speaker {
    task: TaskId,
    replica: ReplicaName,
}

impl FromRequestParts<Door> for Speaker {
    type Rejection = SyncError;

    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<Self, SyncError> {
        let text = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let speaker = text(headers::TASK)
            .and_then(|task| TaskId::new(task).ok())
            .zip(text(headers::REPLICA).and_then(|replica| ReplicaName::new(replica).ok()))
            .map(|(task, replica)| Self { task, replica });
        let token = text(header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
        let proved = speaker.zip(token).filter(|(speaker, token)| door.admits(speaker, token));
        proved.map(|(speaker, _)| speaker).ok_or(SyncError::Token)
    }
}

async fn sync(State(door): State<Door>, speaker: Speaker, request: Request) -> Response {
    let may_close = request.version() <= Version::HTTP_11;
    match door.pass(&speaker, request).await {
        Ok(reply) => Json(reply).into_response(),
        // Behind one address the next connection may reach the server that leads; this connection never would.
        Err(error @ (SyncError::Elsewhere | SyncError::NotNow(_))) if may_close => {
            ([(header::CONNECTION, "close")], error).into_response()
        }
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests;
