//! What a part of a page shows when it could not be had: what, why, and what to try. The rest of the page stays.

use leptos::prelude::*;

use super::{
    badge::Tone,
    button::{LinkButton, Look},
    icon::Mark,
    notice::Notice,
};
use crate::{error::AppError, paths};

/// A page whose main part failed: sets the status of the answer and says why.
#[component]
pub fn FailedPage(
    /// Why.
    error: AppError,
) -> impl IntoView {
    answer_with(error.status());
    let title = match &error {
        AppError::NotFound { .. } => "Not found",
        AppError::SignIn => "Sign in first",
        AppError::Forbidden { .. } => "Not allowed",
        _ => "This page could not be shown",
    };
    let sign_in = error == AppError::SignIn;
    view! {
        <leptos_meta::Title text=title/>
        <h1>{title}</h1>
        <div class="mt-5"><FailedPart error/></div>
        <p class="mt-5">
            {if sign_in {
                view! { <LinkButton href=paths::LOGIN look=Look::Primary>"Sign in"</LinkButton> }.into_any()
            } else {
                view! { <LinkButton href=paths::JOBS>"All jobs"</LinkButton> }.into_any()
            }}
        </p>
    }
}

/// A part of a page that failed.
#[component]
pub fn FailedPart(
    /// Why.
    error: AppError,
) -> impl IntoView {
    let again = matches!(
        error,
        AppError::Internal { .. }
            | AppError::Unreachable { .. }
            | AppError::TooMuch { .. }
            | AppError::Full { .. }
    );
    view! {
        <Notice tone=Tone::Red mark=Mark::Failed>
            <p>{error.to_string()}</p>
            // An empty address is this page's own, so this works without script too.
            {again.then(|| view! { <p class="mt-1"><a href="" rel="external">"Try again"</a></p> })}
        </Notice>
    }
}

/// Sets the status of the answer that is being made; in the browser there is none to set.
pub fn answer_with(status: u16) {
    #[cfg(feature = "ssr")]
    if let (Some(response), Ok(status)) =
        (use_context::<leptos_axum::ResponseOptions>(), http::StatusCode::from_u16(status))
    {
        response.set_status(status);
    }
    #[cfg(not(feature = "ssr"))]
    let _ = status;
}
