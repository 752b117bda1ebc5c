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

#[cfg(test)]
pub(super) mod tests {
    use engine::{bisect, ids::NodeName, nodes::standing::Held};

    use super::*;
    use crate::samples;

    /// A run over the first attempt of the sample chain that has found a node.
    pub fn run(number: u32, rule: Option<&str>) -> DiagnosisView {
        let node = NodeName::new("node-3").unwrap();
        let cost = bisect::Cost {
            rounds: 1,
            checks: 2,
            extra_rounds: 0,
            probe_seconds: 120,
            seconds: 0,
            accelerator_seconds: 0,
        };
        DiagnosisView {
            run_id: format!("d{number}"),
            number,
            job_id: samples::job_id(),
            job_name: "pretrain".to_owned(),
            task_id: Some(samples::task(1)),
            by: if rule.is_some() { "policy" } else { "ann" }.to_owned(),
            rule: rule.map(str::to_owned),
            cluster: "local".to_owned(),
            nodes: vec![node.clone()],
            started_at: samples::at(60),
            ended_at: Some(samples::at(90)),
            verdict: Some(bisect::Verdict::Suspects),
            text: Some("node-3 failed every test.".to_owned()),
            suspects: vec![node.clone()],
            held: vec![Held {
                node,
                quarantined: true,
                text: "node-3 is quarantined for 1 d 0 h: <b>.".to_owned(),
            }],
            plan: cost,
            accelerator_seconds: 60.0,
        }
    }

    #[test]
    fn a_run_is_told_in_words_while_it_goes_on_and_once_it_is_over() {
        let mut run = run(1, None);
        assert_eq!(
            (result_words(&run), by_words(&run)),
            ("node-3 suspected".to_owned(), "by ann".to_owned())
        );
        run.suspects.clear();
        run.held.clear();
        assert_eq!((result_words(&run), held_words(&run)), ("node-3 failed every test".to_owned(), None));
        run.text = None;
        assert_eq!(result_words(&run), "goes on");
    }
}
