//! Which attempt a page is about, with the way to the others.

use leptos::prelude::*;

use super::data::Selected;
use crate::{
    components::{
        badge::{Tag, Tone},
        icon::Mark,
        notice::Notice,
    },
    console::ChainView,
    paths,
    shortcuts::named,
};

/// Said where the address names an attempt that is not there.
pub fn unknown_notice(asked: &str) -> AnyView {
    view! {
        <div class="mt-5">
            <Notice tone=Tone::Amber mark=Mark::Warning>
                {format!("There is no attempt {asked} in this job. This is the newest one.")}
            </Notice>
        </div>
    }
    .into_any()
}

/// `Attempt 2 of 3`, with links to the original and the neighbours.
#[component]
pub fn AttemptHead(
    /// The chain.
    chain: ChainView,
    /// The attempt.
    selected: Selected,
    /// The page's own address, to stay on it.
    page: String,
) -> impl IntoView {
    let total = chain.attempts_total;
    let number = selected.number;
    let link = |number: u32, word: &'static str, key: Option<&'static str>| {
        let key = key.and_then(named);
        let view = chain.attempts.iter().find(|a| a.attempt.number == number)?;
        let href = format!("{page}?task={}", view.attempt.task_id);
        let title = key.map(|key| format!("{word} attempt ({key})"));
        Some(view! { <a href=href title=title aria-keyshortcuts=key>{word}</a> })
    };
    let before = (number > 1).then(|| link(number - 1, "previous", Some("["))).flatten();
    let after = (number < total).then(|| link(number + 1, "next", Some("]"))).flatten();
    let original = (number > 1).then(|| link(1, "original", None)).flatten();
    let newest = (number < total).then(|| link(total, "newest", None)).flatten();
    view! {
        {selected.unknown.as_deref().map(unknown_notice)}
        <nav class="mt-5 flex flex-wrap items-center gap-x-3 gap-y-1" aria-label="Attempts">
            <b>{format!("Attempt {number} of {total}")}</b>
            {(number == 1).then(|| view! { <Tag text="original" /> })}
            {(number == total && total > 1).then(|| view! { <Tag text="newest" /> })}
            {original}
            {before}
            {after}
            {newest}
            <a class="font-mono text-xs text-ink-3" href=paths::attempt(&chain.job_id, &selected.task)>
                {selected.task.to_string()}
            </a>
        </nav>
    }
}
