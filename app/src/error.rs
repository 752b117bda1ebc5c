//! The one error of pages and server functions: what happened and what to try, never the inside of the server.

use engine::job::FieldError;
use leptos::prelude::{FromServerFnError, ServerFnErrorErr};
use serde::{Deserialize, Serialize};

use crate::server_fns::encoding::Text;

/// Why a page or an action failed, fit to be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum AppError {
    /// There is no such thing.
    #[error("There is no {what} {id}.")]
    NotFound {
        /// `job`, `attempt`, `incident`.
        what: String,
        /// What was asked for.
        id: String,
    },
    /// Fields are wrong.
    #[error("{} need a change.", if .errors.len() == 1 { "1 field".to_owned() } else { format!("{} fields", .errors.len()) })]
    Invalid {
        /// Each field.
        errors: Vec<FieldError>,
    },
    /// The caller is not signed in.
    #[error("Sign in first.")]
    SignIn,
    /// The caller may not do this.
    #[error("{why}")]
    Forbidden {
        /// The rule.
        why: String,
    },
    /// It does not fit the present state: somebody else was quicker, or it has ended.
    #[error("{why}")]
    Conflict {
        /// What changed.
        why: String,
    },
    /// Too much at once.
    #[error("{why}")]
    TooMuch {
        /// The limit.
        why: String,
    },
    /// There is no room left on a disk.
    #[error("{why}")]
    Full {
        /// Which, and what to do.
        why: String,
    },
    /// The server failed; the id finds the cause in its log.
    #[error(
        "Something went wrong on the server. Try again; if it stays, give this id to the operator: {request_id}"
    )]
    Internal {
        /// The request's id.
        request_id: String,
    },
    /// The server could not be reached, or answered something else.
    #[error("The server could not be reached: {why}")]
    Unreachable {
        /// What the transport says.
        why: String,
    },
}

impl AppError {
    /// The HTTP status it is answered with.
    pub const fn status(&self) -> u16 {
        match self {
            Self::NotFound { .. } => 404,
            Self::Invalid { .. } => 422,
            Self::SignIn => 401,
            Self::Forbidden { .. } => 403,
            Self::Conflict { .. } => 409,
            Self::TooMuch { .. } => 429,
            Self::Full { .. } => 507,
            Self::Internal { .. } => 500,
            Self::Unreachable { .. } => 502,
        }
    }
}

impl FromServerFnError for AppError {
    type Encoder = Text;

    fn from_server_fn_error(error: ServerFnErrorErr) -> Self {
        Self::Unreachable { why: error.to_string() }
    }
}
