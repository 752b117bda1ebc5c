//! Parts of the browser's program that come when a page of theirs is opened, so that the first page need not wait for the code
//! of all others. `cargo leptos build --split` cuts them out, and what several of them need.

use std::future::pending;

use leptos::{prelude::*, wasm_split::SplitLoaderError};
use leptos_router::LazyRoute;

/// One part: a route for each of its pages.
macro_rules! part {
    ($(#[$about:meta])* $part:ident: $($(#[$doc:meta])* $route:ident = $page:path),* $(,)?) => {
        $(#[$about])*
        pub mod $part {
            use super::*;

            #[derive(Clone, Copy)]
            enum Page {
                $($route),*
            }

            #[leptos::wasm_split::wasm_split($part, wasm_split_path = leptos::wasm_split, preload(load), fallible)]
            fn draw(page: Page) -> Result<AnyView, SplitLoaderError> {
                Ok(match page {
                    $(Page::$route => $page().into_any()),*
                })
            }

            $(
                $(#[$doc])*
                pub struct $route;

                impl LazyRoute for $route {
                    fn data() -> Self {
                        Self
                    }

                    async fn view(_: Self) -> AnyView {
                        // The document asks for the part along with the rest.
                        leptos::prefetch_lazy_fn_on_server(stringify!($part));
                        match draw(Page::$route).await {
                            Ok(view) => view,
                            // The page stays as the server drew it, and says that it is not interactive.
                            Err(_) => pending().await,
                        }
                    }

                    async fn preload() {
                        if load().await.is_err() {
                            open_anew().await;
                        }
                    }
                }
            )*
        }
    };
}

part! {
    /// A job and its chain.
    job:
    /// What stands around every tab.
    Frame = crate::pages::job::JobFrame,
    /// The tab by the same name.
    Overview = crate::pages::job::overview::Overview,
    /// The tab by the same name.
    FaultTolerance = crate::pages::job::fault_tolerance::FaultToleranceDetail,
}

part! {
    /// What a job left behind and what it was made of.
    records:
    /// The tab by the same name.
    Logs = crate::pages::job::logs::Logs,
    /// The tab by the same name.
    Events = crate::pages::job::events::Events,
    /// The tab by the same name.
    Metrics = crate::pages::job::metrics::Metrics,
    /// The tab by the same name.
    Spec = crate::pages::job::spec::Spec,
}

part! {
    /// The create form.
    create:
    /// Its page.
    NewJob = crate::pages::new_job::NewJob,
}

part! {
    /// What jobs run on, and how the console is set.
    site:
    /// The page by the same name.
    Nodes = crate::pages::nodes::Nodes,
    /// Runs of Bisect Diagnose.
    Diagnoses = crate::pages::diagnose::Diagnoses,
    /// One run.
    Diagnosis = crate::pages::diagnose::Diagnosis,
    /// The form that begins one.
    NewDiagnosis = crate::pages::diagnose::NewDiagnosis,
    /// The page of one of them.
    Node = crate::pages::node::Node,
    /// The page by the same name.
    Settings = crate::pages::settings::Settings,
}

/// Room for the parts' constants. What cuts the parts out lays every part's constants out anew, and where alignment makes that
/// longer than the whole was, by as little as 8 bytes, it gives up and leaves all of them to the first page: 82 kB. Nothing
/// refers to these bytes, so they are in no part, and their room is there for the others.
#[cfg(feature = "hydrate")]
#[used]
static ROOM: [u8; 2048] = [b'-'; 2048];

/// The path of the document that the browser loaded.
#[cfg(feature = "hydrate")]
static DOCUMENT: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Keeps where the document is from, before anything changes the browser's address.
#[cfg(feature = "hydrate")]
pub fn keep_document_path() {
    if let Ok(path) = window().location().pathname() {
        DOCUMENT.get_or_init(|| path);
    }
}

/// Leads the browser to the page that was asked for as if its address had been typed: the part of it could not be had, as
/// after an update of the server, whose parts have other names. The page that is shown stays until then. Where that very page is
/// the document already, its part is really missing: the page stays as the server drew it, and the browser follows its links.
async fn open_anew() {
    #[cfg(feature = "hydrate")]
    {
        let to = leptos_router::hooks::use_location();
        let path = to.pathname.get_untracked();
        if DOCUMENT.get() == Some(&path) {
            let _ = leave_to_browser();
        } else {
            let search = match to.search.get_untracked() {
                search if search.is_empty() => search,
                search => format!("?{search}"),
            };
            let address = format!("{path}{search}{}", to.hash.get_untracked());
            // Fails on what is no address only.
            let _ = window().location().set_href(&address);
        }
    }
    pending().await
}

/// Keeps clicks and forms from the router, which would wait for what will never be drawn.
#[cfg(feature = "hydrate")]
fn leave_to_browser() -> Result<(), wasm_bindgen::JsValue> {
    use wasm_bindgen::{JsCast, closure::Closure};

    let aside = Closure::<dyn Fn(web_sys::Event)>::new(|event: web_sys::Event| event.stop_propagation());
    for what in ["click", "submit"] {
        // On its way down to what was clicked, before anything that listens on the way up.
        window().add_event_listener_with_callback_and_bool(what, aside.as_ref().unchecked_ref(), true)?;
    }
    aside.forget();
    Ok(())
}
