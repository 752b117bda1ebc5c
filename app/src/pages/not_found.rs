//! An address that leads nowhere.

use leptos::prelude::*;
use leptos_router::hooks::use_location;

use crate::{components::failed::FailedPage, error::AppError};

/// Says which address it was, and answers 404.
#[component]
pub fn NotFound() -> impl IntoView {
    let path = use_location().pathname.get_untracked();
    view! { <FailedPage error=AppError::NotFound { what: "page".to_owned(), id: path.chars().take(200).collect() }/> }
}
