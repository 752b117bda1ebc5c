//! The row of answers that a page opens with.

use leptos::prelude::*;

/// Up to four answers in a row, two by two where it is narrower.
#[component]
pub fn Answers(
    /// Each an [`Answer`].
    children: Children,
) -> impl IntoView {
    view! {
        <dl class="grid grid-cols-4 max-xl:grid-cols-2 max-sm:grid-cols-1 gap-px mt-5 border border-hair rounded-lg bg-hair overflow-hidden">
            {children()}
        </dl>
    }
}

/// One answer: the question, the answer in a few words, and what it rests on.
#[component]
pub fn Answer(
    /// The question.
    #[prop(into)]
    question: String,
    /// The answer; none where the rest says it.
    #[prop(optional, into)]
    answer: Option<String>,
    /// What it rests on.
    children: Children,
) -> impl IntoView {
    view! {
        <div class="px-5 pt-3.5 pb-4 bg-raised">
            <dt class="text-xs text-ink-3">{question}</dt>
            {answer.map(|answer| view! { <dd class="mt-1 text-lg font-semibold tracking-tight">{answer}</dd> })}
            <dd class="mt-1 text-ink-2">{children()}</dd>
        </div>
    }
}
