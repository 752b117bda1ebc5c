//! Holdfast's pages, rendered on the server and hydrated in the browser.

pub mod components;
pub mod console;
pub mod error;
pub mod format;
pub mod forms;
pub mod live;
pub mod pages;
pub mod paths;
pub mod preferences;
#[cfg(test)]
mod samples;
pub mod server_fns;
pub mod shell;
mod shortcuts;

/// Takes over the page that the server rendered.
#[cfg(feature = "hydrate")]
#[wasm_bindgen::prelude::wasm_bindgen]
pub fn hydrate() {
    console_error_panic_hook::set_once();
    leptos::mount::hydrate_body(shell::App);
}
