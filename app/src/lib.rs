//! Holdfast's pages, rendered on the server and hydrated in the browser.

pub mod components;
pub mod console;
pub mod error;
pub mod format;
pub mod forms;
pub mod live;
pub mod pages;
mod parts;
pub mod paths;
pub mod preferences;
#[cfg(test)]
mod samples;
pub mod server_fns;
pub mod shell;
mod shortcuts;

/// Takes over the page that the server rendered, and tells `late.js` when all of it is interactive.
#[cfg(feature = "hydrate")]
#[wasm_bindgen::prelude::wasm_bindgen]
pub fn hydrate() {
    use leptos::prelude::document;

    console_error_panic_hook::set_once();
    shell::keep_address_of_page();
    parts::keep_document_path();
    wasm_bindgen_futures::spawn_local(async {
        let Some(body) = document().body() else { return };
        leptos::mount::hydrate_from_async(body, shell::App).await.forget();
        leptos::task::tick().await; // effects that listen to the document run then
        if let Some(root) = document().document_element() {
            // Only fails on a malformed name.
            let _ = root.set_attribute("data-interactive", "");
        }
    });
}
