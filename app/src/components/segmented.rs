//! A choice between views of the same thing, as links.

use leptos::prelude::*;

/// A row of links, one of them current.
#[component]
pub fn Segmented(
    /// What is chosen.
    label: &'static str,
    /// Name, address and whether it is current.
    choices: Vec<(&'static str, String, bool)>,
) -> impl IntoView {
    let links = choices.into_iter().map(|(name, href, current)| {
        view! {
            <a
                href=href
                class="flex items-center h-6 max-sm:h-10 px-2.5 rounded-sm text-xs text-ink-2 no-underline whitespace-nowrap hover:text-ink aria-[current]:bg-raised aria-[current]:text-ink aria-[current]:font-medium aria-[current]:outline-1 aria-[current]:outline-edge"
                aria-current=current.then_some("true")
            >
                {name}
            </a>
        }
    });
    view! {
        <nav class="inline-flex flex-wrap p-0.5 rounded-md bg-hover border border-rule" aria-label=label>
            {links.collect_view()}
        </nav>
    }
}
