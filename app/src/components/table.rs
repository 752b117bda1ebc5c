//! Tables: a caption for each, a name for the region that scrolls, one look.

use leptos::prelude::*;

/// Classes of a head cell.
pub const HEAD: &str = "px-3 py-1.5 text-xs text-ink-3 whitespace-nowrap bg-sunken border-b border-hair";
/// Classes of a body cell.
pub const CELL: &str = "px-3 py-1.5 align-top border-b border-hair";

/// A bordered panel; tables and drawings stand in one, never one in another.
#[component]
pub fn Panel(
    /// What stands in it.
    children: Children,
) -> impl IntoView {
    view! { <div class="border border-hair rounded-lg bg-raised overflow-hidden">{children()}</div> }
}

/// A table in its own scrolling region. The children are a `<thead>` and a `<tbody>`.
#[component]
pub fn DataTable(
    /// What the table holds; its caption, and the name of its region.
    #[prop(into)]
    caption: String,
    /// More classes of the table, such as a least width.
    #[prop(default = "")]
    class: &'static str,
    /// Head and body.
    children: Children,
) -> impl IntoView {
    let name = caption.clone();
    view! {
        <div class="scroll-hint relative overflow-x-auto focus-visible:-outline-offset-2" role="region" aria-label=name tabindex="0">
            <table class=format!("[&>tbody>tr:last-child>*]:border-b-0 {class}") role="table">
                <caption class="unseen">{caption}</caption>
                {children()}
            </table>
        </div>
    }
}

/// The heading of a section with what stands beside it.
#[component]
pub fn SectionHead(
    /// The id that the section is labelled by.
    id: &'static str,
    /// The heading.
    #[prop(into)]
    title: String,
    /// What stands beside it.
    #[prop(optional)]
    children: Option<Children>,
) -> impl IntoView {
    view! {
        <div class="flex flex-wrap items-center gap-x-3 gap-y-1.5 min-h-7 mb-3">
            <h2 id=id>{title}</h2>
            {children.map(|children| children())}
        </div>
    }
}

/// Said once a page that shows failure types.
#[component]
pub fn DerivedNote() -> impl IntoView {
    view! {
        <p class="mt-2 text-xs text-ink-3">
            "Failure types are derived from logs and messages; not a confirmed root cause."
        </p>
    }
}
