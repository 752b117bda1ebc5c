//! Holdfast's pages, rendered on the server and hydrated in the browser.

pub mod console;
pub mod error;
