//! Tabs are links, each an address of its own; on a narrow screen they fold into a menu that works without script.

use leptos::prelude::*;

use super::icon::{Icon, Mark};
use crate::shortcuts::named;

/// One tab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tab {
    /// Its name.
    pub label: &'static str,
    /// Its address.
    pub href: String,
}

/// A row of tabs; the current one is not a step in the history, so it stays a link to itself.
#[component]
pub fn Tabs(
    /// What they are tabs of.
    label: &'static str,
    /// All of them.
    tabs: Vec<Tab>,
    /// The name of the current one.
    current: &'static str,
) -> impl IntoView {
    let link = move |tab: Tab, key: Option<String>, class: &'static str| {
        let here = (tab.label == current).then_some("page");
        let title = key.as_ref().map(|key| format!("{} ({key})", tab.label));
        view! {
            <li><a href=tab.href class=class title=title aria-keyshortcuts=key aria-current=here>{tab.label}</a></li>
        }
    };
    let wide = tabs.clone().into_iter().enumerate().map(|(at, tab)| {
        link(
            tab,
            named((at + 1).to_string()),
            "block py-2 -mb-px border-b-2 border-transparent text-ink-2 no-underline whitespace-nowrap hover:text-ink hover:border-rule aria-[current]:text-ink aria-[current]:font-medium aria-[current]:border-ink",
        )
    });
    let narrow = tabs.into_iter().map(|tab| {
        link(
            tab,
            None,
            "block px-3 py-3 no-underline hover:bg-hover aria-[current]:font-medium aria-[current]:bg-hover",
        )
    });
    view! {
        <nav aria-label=label class="mt-4">
            <ul class="flex gap-6 border-b border-hair max-sm:hidden">{wide.collect_view()}</ul>
            <details class="group relative sm:hidden">
                <summary class="bare-summary flex items-center justify-between min-h-11 px-3 border border-edge rounded-md bg-raised">
                    {current}<Icon mark=Mark::ChevronDown/>
                </summary>
                <ul class="absolute z-(--z-over) inset-x-0 mt-1 rounded-md bg-raised shadow-over overflow-hidden">
                    {narrow.collect_view()}
                </ul>
            </details>
        </nav>
    }
}
