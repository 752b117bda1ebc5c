//! An action that asks first, without script: the button opens a panel with the facts and the form that posts.

use leptos::prelude::*;

use super::button::Look;

/// A button that opens its question. Where the action is refused it is disabled and the reason stands beside it.
#[component]
pub fn Confirm(
    /// The verb of the button, without "…".
    verb: &'static str,
    /// The question.
    #[prop(into)]
    title: String,
    /// Where it is posted to.
    #[prop(into)]
    action: String,
    /// Why it is not possible now; none is possible.
    #[prop(optional_no_strip)]
    refusal: Option<String>,
    /// The facts: what happens, what does not, how long it may take. Fields of the form may be among them.
    children: Children,
) -> impl IntoView {
    match refusal {
        Some(why) => view! { <Refused verb why/> }.into_any(),
        None => view! {
            <details class="group relative" name="confirm">
                <summary class=format!("bare-summary {}", Look::Plain.class())>{verb}"…"</summary>
                <form
                    method="post"
                    action=action
                    class="absolute z-(--z-over) right-0 max-sm:left-0 mt-1.5 w-80 max-w-[calc(100vw-2rem)] p-4 rounded-lg bg-raised shadow-over text-left whitespace-normal"
                >
                    <p class="font-semibold">{title}</p>
                    <div class="mt-2 text-ink-2 grid gap-2">{children()}</div>
                    <button type="submit" class=format!("mt-3 {}", Look::Primary.class())>{verb}</button>
                </form>
            </details>
        }
        .into_any(),
    }
}

/// The button of an action that is not possible now, with the reason beside it.
#[component]
pub fn Refused(
    /// The verb of the button, without "…".
    verb: &'static str,
    /// Why it is not possible.
    why: String,
) -> impl IntoView {
    view! {
        <span class="inline-flex flex-wrap items-center gap-2">
            <button type="button" class=Look::Plain.class() disabled>{verb}"…"</button>
            <span class="text-xs text-ink-3">{why}</span>
        </span>
    }
}
