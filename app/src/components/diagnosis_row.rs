//! A diagnosis on the chain: a diamond on the rail between two attempts.

use engine::time::Time;
use leptos::prelude::*;

use super::icon::{Icon, Mark};
use crate::{console::DiagnosisView, paths};

/// Who asked for a run, in words.
pub fn by_words(run: &DiagnosisView) -> String {
    match &run.rule {
        Some(rule) => format!("by the policy, rule {rule}"),
        None => format!("by {}", run.by),
    }
}

/// What came of it so far, in words.
pub fn result_words(run: &DiagnosisView) -> String {
    match (&run.text, run.suspects.as_slice()) {
        (None, _) => "goes on".to_owned(),
        (Some(text), []) => text.trim_end_matches('.').to_owned(),
        (Some(_), suspects) => {
            let names: Vec<_> = suspects.iter().map(|node| node.as_str()).collect();
            format!("{} suspected", engine::words::list(&names))
        }
    }
}

/// What became of its suspects for every job, in words; none where it confirmed none.
pub fn held_words(run: &DiagnosisView) -> Option<String> {
    let all: Vec<_> = run.held.iter().map(|held| held.text.as_str()).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// The row of one run; `short` writes a time as the rest of the chain does.
pub fn diagnosis_row(run: &DiagnosisView, short: impl Fn(Time) -> String) -> AnyView {
    let times = match run.ended_at {
        Some(ended) => format!("{}–{}", short(run.started_at), short(ended)),
        None => format!("since {}", short(run.started_at)),
    };
    let suspects = run
        .suspects
        .iter()
        .enumerate()
        .map(|(n, node)| {
            let before = if n == 0 { ", " } else { " " };
            view! { {before} <a href=paths::node(None, node)>{node.to_string()}</a> }
        })
        .collect_view();
    let result =
        if run.suspects.is_empty() { format!(", {}", result_words(run)) } else { " suspected".to_owned() };
    view! {
        <div class="relative grid grid-cols-[minmax(0,1fr)_auto] gap-x-4 pt-[11px] max-sm:grid-cols-1 max-sm:gap-1">
            <span class="absolute top-2.5 -left-9 grid size-5.5 place-items-center rounded-full border-[1.5px] border-rule bg-page text-ink-2">
                <Icon mark=Mark::Diamond />
            </span>
            <div>
                <p>
                    <b>"Diagnosis"</b> ": " <a href=paths::diagnosis(&run.run_id)>{format!("bisect #{}", run.number)}</a>
                    {suspects} {result}
                </p>
                <p class="text-xs text-ink-3">{times} ", " {by_words(run)}</p>
                {held_words(run).map(|text| view! { <p class="text-xs text-ink-3">{text}</p> })}
            </div>
            <p class="text-right text-xs text-ink-3 max-sm:text-left">"not charged"</p>
        </div>
    }
    .into_any()
}
