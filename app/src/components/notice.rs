//! A sentence that stands out: what is special here and what to do about it.

use leptos::prelude::*;

use super::{
    badge::Tone,
    icon::{Icon, Mark},
};

/// A notice across the page.
#[component]
pub fn Notice(
    /// Its tone.
    tone: Tone,
    /// Its mark.
    mark: Mark,
    /// It came after the page did and is to be announced.
    #[prop(optional)]
    announce: bool,
    /// What it says.
    children: Children,
) -> impl IntoView {
    let class = match tone {
        Tone::Grey => "border-grey-edge bg-sunken",
        Tone::Blue => "border-blue-edge bg-blue-soft/60",
        Tone::Violet => "border-violet-edge bg-violet-soft/60",
        Tone::Amber => "border-amber-edge bg-amber-soft/60",
        Tone::Green => "border-green-edge bg-green-soft/60",
        Tone::Red => "border-red-edge bg-red-soft/60",
    };
    view! {
        <div class=format!("flex gap-2.5 px-3 py-2.5 border rounded-md {class}") role=announce.then_some("status")>
            <span class=format!("mt-1 {}", tone.text())><Icon mark=mark/></span>
            <div class="min-w-0 flex-1">{children()}</div>
        </div>
    }
}

/// A quiet sentence that explains what stands above it.
#[component]
pub fn Says(
    /// What it says.
    children: Children,
) -> impl IntoView {
    view! {
        <p class="px-3 py-2 border-l-2 border-edge rounded-r-sm bg-sunken text-ink-2">{children()}</p>
    }
}

/// Nothing is there, after a successful answer, with the next step.
#[component]
pub fn Empty(
    /// What is not there.
    #[prop(into)]
    title: String,
    /// The next step.
    children: Children,
) -> impl IntoView {
    view! {
        <div class="px-6 py-10 text-center">
            <p class="font-semibold">{title}</p>
            <div class="mt-1 text-ink-2">{children()}</div>
        </div>
    }
}
