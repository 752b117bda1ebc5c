//! Every refusal and failure of the API as `application/problem+json` (RFC 9457).

use app::error::AppError;
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use engine::job::FieldError;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::{request_id, service, store::StoreError};

/// A refusal or failure, on its way to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// The last part of `type`, stable for programs.
    pub kind: &'static str,
    /// What kind of problem, in words.
    pub title: &'static str,
    /// What was wrong here and what to do.
    pub detail: String,
    /// Fields that were wrong.
    pub errors: Vec<FieldError>,
}

/// The body of a problem.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ProblemBody {
    /// `urn:holdfast:problem:<kind>`, stable for programs.
    #[serde(rename = "type")]
    #[schema(example = "urn:holdfast:problem:invalid")]
    pub problem_type: String,
    /// What kind of problem, in words.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What was wrong here and what to do.
    pub detail: String,
    /// Finds the request in the server's log.
    pub request_id: String,
    /// Fields that were wrong; empty where none is to blame.
    pub errors: Vec<FieldError>,
}

impl Problem {
    /// A problem without fields.
    pub fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self { status, kind, title, detail: detail.into(), errors: Vec::new() }
    }

    /// Fields are wrong.
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [one] => format!("{}: {}", one.field, one.message),
            many => format!("{} fields need a change.", many.len()),
        };
        let mut problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Fields are wrong", detail);
        problem.errors = errors;
        problem
    }

    /// The body is not JSON, or not whole.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", "The request cannot be read", detail)
    }

    /// There is no such thing.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
    }

    /// The caller is not signed in.
    pub fn sign_in() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "sign-in",
            "Sign in first",
            "Send `Authorization: Bearer <token>` or the cookie of a session.",
        )
    }

    /// The request took too long.
    pub fn timed_out() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "timed-out",
            "It took too long",
            "The server did not finish in time. It may still do what was asked; look before you try again.",
        )
    }

    /// The server is not able to answer now.
    pub fn busy(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "The server is busy", detail)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        service::failed(error).into()
    }
}

impl From<AppError> for Problem {
    fn from(error: AppError) -> Self {
        let detail = error.to_string();
        match error {
            AppError::NotFound { .. } => Self::not_found(detail),
            AppError::Invalid { errors } => Self::invalid(errors),
            AppError::SignIn => Self::sign_in(),
            AppError::Forbidden { .. } => {
                Self::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed", detail)
            }
            AppError::Conflict { .. } => {
                Self::new(StatusCode::CONFLICT, "conflict", "It does not fit the present state", detail)
            }
            AppError::TooMuch { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too-much", "Too much at once", detail)
            }
            AppError::Full { .. } => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk-full", "The disk is full", detail)
            }
            AppError::Unreachable { .. } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unreachable",
                "Something could not be reached",
                detail,
            ),
            AppError::Internal { .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The server failed", detail)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = ProblemBody {
            problem_type: format!("urn:holdfast:problem:{}", self.kind),
            title: self.title.to_owned(),
            status: self.status.as_u16(),
            detail: self.detail,
            request_id: request_id::current(),
            errors: self.errors,
        };
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        response
    }
}
