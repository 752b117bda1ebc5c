//! What the browser asks the server for, one file per area, each one line deep: rules and SQL live in `server`.

#![expect(missing_docs, reason = "the macro turns arguments into fields, which take no documentation")]

pub mod diagnose;
pub mod encoding;
pub mod jobs;
pub mod new_job;
pub mod nodes;

#[cfg(feature = "ssr")]
use std::sync::Arc;

#[cfg(feature = "ssr")]
use leptos::prelude::*;

#[cfg(feature = "ssr")]
use crate::{
    console::{Caller, Console},
    error::AppError,
};

/// The backend and who asks. The server gives it as context to every page and server function of a signed-in caller.
#[cfg(feature = "ssr")]
#[derive(Clone)]
pub struct Scope {
    /// The backend.
    pub console: Arc<dyn Console>,
    /// Who asks.
    pub caller: Caller,
}

/// The scope of this request.
///
/// # Errors
/// [`AppError::SignIn`] where nobody is signed in.
#[cfg(feature = "ssr")]
pub fn scope() -> Result<Scope, AppError> {
    use_context::<Scope>().ok_or(AppError::SignIn)
}
