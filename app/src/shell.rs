//! The document around the app, and the app with its routes.

use leptos::{config::LeptosOptions, hydration::AutoReload, hydration::HydrationScripts, prelude::*};
use leptos_meta::{HashedStylesheet, MetaTags, Title, provide_meta_context};
use leptos_router::{
    Lazy, SsrMode,
    components::{Redirect, Route, Router, Routes},
    path,
};

use crate::{
    components::frame::{AppBar, Foot},
    live::Live,
    pages::{job::JobRoutes, jobs::Jobs, login::Login, not_found::NotFound},
    parts::{create, site},
    paths,
    preferences::Frame,
    shortcuts::Shortcuts,
};

/// The attribute that names the page which is shown in answer to a post, which may have gone to another address.
#[cfg(feature = "hydrate")]
const PAGE: &str = "data-page";

/// The page that is shown because a post was refused.
#[cfg(feature = "ssr")]
fn page_of_refused_post() -> Option<String> {
    use_context::<crate::console::Posted>()?;
    Some(use_context::<http::request::Parts>()?.uri.path_and_query()?.as_str().to_owned())
}

/// In the browser the document is there already.
#[cfg(not(feature = "ssr"))]
fn page_of_refused_post() -> Option<String> {
    None
}

/// Gives the browser the address of the page that it shows in answer to a refused post: its routes are those of pages, and what a reload
/// brings is the page and not the post.
#[cfg(feature = "hydrate")]
pub fn keep_address_of_page() {
    let page = document().document_element().and_then(|root| root.get_attribute(PAGE));
    if let (Some(page), Ok(history)) = (page, window().history()) {
        // Only fails for an address of another origin.
        let _ = history.replace_state_with_url(&wasm_bindgen::JsValue::NULL, "", Some(&page));
    }
}

/// The document: the theme is on it before anything is painted.
pub fn shell(options: LeptosOptions) -> impl IntoView {
    let theme = Frame::of_request().preferences.theme;
    let page = page_of_refused_post();
    view! {
        <!DOCTYPE html>
        <html lang="en" data-theme=theme.attribute() data-page=page>
            <head>
                <meta charset="utf-8"/>
                <meta name="viewport" content="width=device-width, initial-scale=1"/>
                <meta name="color-scheme" content="light dark"/>
                <link rel="icon" type="image/svg+xml" href="/favicon.svg"/>
                <AutoReload options=options.clone()/>
                <HydrationScripts options=options.clone()/>
                <HashedStylesheet options id="leptos"/>
                <script src="/late.js" defer></script>
                <MetaTags/>
            </head>
            <body>
                <App/>
                <p id="not-interactive" role="status" hidden class="px-4 py-2 text-center bg-sunken border-t border-hair">
                    "Interactive parts did not load; the page still works."
                </p>
            </body>
        </html>
    }
}

/// The text of `<title>`. leptos_meta writes it into the page as it is, so on the server it is escaped here; in the browser it is set as text.
fn page_title(title: String) -> String {
    let title = format!("{title} - Holdfast");
    if cfg!(feature = "ssr") { title.replace('&', "&amp;").replace('<', "&lt;") } else { title }
}

/// The whole console.
#[component]
pub fn App() -> impl IntoView {
    provide_meta_context();
    provide_context(SharedValue::new(Frame::of_request).into_inner());
    provide_context(Live::default());
    view! {
        <Title formatter=page_title/>
        <Router>
            <a
                href="#main"
                rel="external"
                class="absolute left-2 -top-16 z-(--z-skip) px-3 py-2 rounded-md bg-ink text-on-ink focus:top-2"
            >
                "Skip to content"
            </a>
            <AppBar/>
            // As high as the window below the bar, so that the foot does not jump into sight while one page takes another's place.
            <main id="main" tabindex="-1" class="min-h-[calc(100dvh-3rem)] max-w-page mx-auto px-8 max-lg:px-6 max-sm:px-4 pt-5 pb-18 outline-hidden">
                <Routes fallback=NotFound>
                    <Route path=path!("/") view=|| view! { <Redirect path=paths::JOBS/> } ssr=SsrMode::Async/>
                    <Route path=path!("/jobs") view=Jobs ssr=SsrMode::Async/>
                    <Route path=path!("/jobs/new") view={Lazy::<create::NewJob>::new()} ssr=SsrMode::Async/>
                    <JobRoutes/>
                    <Route path=path!("/nodes") view={Lazy::<site::Nodes>::new()} ssr=SsrMode::Async/>
                    <Route path=path!("/diagnose") view={Lazy::<site::Diagnoses>::new()} ssr=SsrMode::Async/>
                    <Route path=path!("/diagnose/new") view={Lazy::<site::NewDiagnosis>::new()} ssr=SsrMode::Async/>
                    <Route path=path!("/diagnose/:run") view={Lazy::<site::Diagnosis>::new()} ssr=SsrMode::Async/>
                    <Route path=path!("/nodes/:name") view={Lazy::<site::Node>::new()} ssr=SsrMode::Async/>
                    <Route path=path!("/settings") view={Lazy::<site::Settings>::new()} ssr=SsrMode::Async/>
                    <Route path=path!("/login") view=Login ssr=SsrMode::Async/>
                </Routes>
            </main>
            <Foot/>
            <Shortcuts/>
        </Router>
    }
}
