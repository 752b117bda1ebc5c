//! What stands around every page: the bar with its navigation, and the foot.

use leptos::prelude::*;
use leptos_router::{components::Form, hooks::use_location};

use super::icon::{Icon, Mark};
use crate::{paths, preferences::use_frame};

const PAGES: [(&str, &str); 4] = [
    ("Jobs", paths::JOBS),
    ("Nodes", paths::NODES),
    ("Diagnose", paths::DIAGNOSE),
    ("Settings", paths::SETTINGS),
];

/// The bar at the top.
#[component]
pub fn AppBar() -> impl IntoView {
    let frame = use_frame();
    let who = frame.caller.as_ref().map(|caller| {
        let short: String = caller.name.chars().filter(|c| c.is_alphanumeric()).take(2).collect();
        let short = short.to_lowercase();
        // A name that is read out holds the words that are seen.
        let label = format!("{short}, settings of {}", caller.name);
        (short, label)
    });
    view! {
        <header class="border-b border-hair bg-sunken">
            <div class="flex items-center gap-1 h-12 max-w-page mx-auto px-8 max-lg:px-6 max-sm:px-4">
                <a href=paths::JOBS class="flex items-center gap-2 h-8 mr-4 text-md font-semibold tracking-tight no-underline">
                    <Logo/>
                    "Holdfast"
                </a>
                <nav aria-label="Main" class="max-sm:order-last max-sm:ml-2">
                    <ul class="flex gap-0.5 max-sm:hidden"><NavLinks narrow=false/></ul>
                    <details class="group relative sm:hidden">
                        <summary class="bare-summary grid place-items-center size-11 rounded-md" aria-label="Menu">
                            <Icon mark=Mark::Menu class="mark size-4"/>
                        </summary>
                        <ul class="absolute z-(--z-over) right-0 w-44 rounded-md bg-raised shadow-over overflow-hidden">
                            <NavLinks narrow=true/>
                        </ul>
                    </details>
                </nav>
                <Find/>
                {who.map(|(short, label)| view! {
                    <a
                        href=paths::SETTINGS
                        class="grid place-items-center size-7 ml-2 max-sm:hidden rounded-full bg-hover border border-rule text-[11px] font-semibold no-underline"
                        aria-label=label
                    >
                        {short}
                    </a>
                })}
            </div>
        </header>
    }
}

#[component]
fn Logo() -> impl IntoView {
    view! {
        <svg
            width="22" height="22" viewBox="0 0 22 22" fill="none" stroke="currentColor" stroke-width="1.9"
            stroke-linecap="round" aria-hidden="true"
        >
            <path d="M11 2.5v17M11 9.5c0 4-5.7 3.5-6.3 9.5M11 9.5c0 4 5.7 3.5 6.3 9.5M2.5 19.5h17"></path>
        </svg>
    }
}

#[component]
fn NavLinks(narrow: bool) -> impl IntoView {
    let path = use_location().pathname;
    let class = if narrow {
        "flex items-center min-h-11 px-4 no-underline hover:bg-hover aria-[current]:font-medium aria-[current]:bg-hover"
    } else {
        "flex items-center h-7 px-2.5 rounded-md text-ink-2 no-underline hover:bg-hover aria-[current]:bg-hover aria-[current]:text-ink aria-[current]:font-medium"
    };
    PAGES
        .map(|(name, href)| {
            let here = move || path.read().starts_with(href).then_some("page");
            view! { <li><a href=href class=class aria-current=here>{name}</a></li> }
        })
        .collect_view()
}

#[component]
fn Find() -> impl IntoView {
    view! {
        <div class="ml-auto min-w-0" role="search">
            <Form method="GET" action=paths::JOBS>
                <label class="flex items-center gap-2 w-62 max-lg:w-44 max-sm:w-full h-7.5 max-sm:h-11 pl-2.5 pr-1.5 border border-edge rounded-md bg-raised text-ink-3 focus-within:outline-2 focus-within:outline-focus focus-within:outline-offset-1">
                    <Icon mark=Mark::Search/>
                    <span class="unseen">"Find a job by name or id"</span>
                    <input
                        type="search"
                        id="find"
                        name="q"
                        placeholder="Find a job"
                        autocomplete="off"
                        maxlength="200"
                        class="flex-1 min-w-0 p-0 bg-transparent text-ink placeholder:text-ink-3 placeholder:opacity-100 outline-hidden focus-visible:outline-hidden"
                    />
                    <kbd
                        class="grid place-items-center min-w-4.5 h-4.5 px-1 border border-rule rounded-sm bg-page text-[11px] leading-none max-lg:hidden"
                        aria-hidden="true"
                    >
                        "/"
                    </kbd>
                </label>
            </Form>
        </div>
    }
}

/// The foot of every page.
#[component]
pub fn Foot() -> impl IntoView {
    let zone = use_frame().preferences.zone;
    view! {
        <footer class="flex flex-wrap gap-x-4 gap-y-1 max-w-page mx-auto px-8 max-lg:px-6 max-sm:px-4 pt-4 pb-8 text-xs text-ink-3">
            <span>"Times in " {zone.label()} ", " <a href=paths::SETTINGS>"change"</a></span>
            <span class="ml-auto">
                "Holdfast " {env!("CARGO_PKG_VERSION")} " · " <a href=paths::OPENAPI rel="external">"API"</a>
            </span>
        </footer>
    }
}
