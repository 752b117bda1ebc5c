//! The chain to scale: one lane an attempt, with waiting, starting, training and standing still.

use engine::{ids::JobId, record::Action, time::Time};
use leptos::prelude::*;

use super::{
    badge::StateBadge,
    lanes::TimeAxis,
    story::{self, short_id},
    strip::{FILLS, Spans},
};
use crate::{
    console::{AttemptView, ChainView},
    format::{self, Zone},
    paths,
    preferences::use_zone,
};

/// Lanes of these attempts.
#[component]
pub fn Timeline(
    /// The chain.
    chain: ChainView,
    /// Numbers of the attempts to draw.
    attempts: Vec<u32>,
) -> impl IntoView {
    let zone = use_zone();
    let shown: Vec<&AttemptView> =
        chain.attempts.iter().filter(|a| attempts.contains(&a.attempt.number)).collect();
    let spans: Vec<(Time, Time)> = shown.iter().filter_map(|a| span(a, chain.now)).collect();
    let Some(axis) = TimeAxis::over(&spans) else {
        return view! { <p class="text-ink-3">"No attempt was submitted."</p> }.into_any();
    };
    let lanes = shown.iter().map(|a| lane(&chain.job_id, a, &axis, chain.now, zone)).collect_view();
    let labels = axis
        .ticks
        .iter()
        .enumerate()
        .map(|(i, (at, percent))| {
            let class = if i % 2 == 1 { "fill-ink-3 text-xs max-sm:hidden" } else { "fill-ink-3 text-xs" };
            let anchor = if *percent < 4.0 {
                "start"
            } else if *percent > 96.0 {
                "end"
            } else {
                "middle"
            };
            view! {
                <text x=format!("{percent:.2}%") y="12" text-anchor=anchor class=class>
                    {format::clock_within(axis.shown, *at, zone)}
                </text>
            }
        })
        .collect_view();
    let folds: Vec<String> = axis
        .folds
        .iter()
        .map(|(_, seconds)| format!("{} without an attempt folded", format::duration(*seconds)))
        .collect();
    view! {
        <div class="rounded-lg border border-hair bg-raised p-4 pb-2.5">
            <div class="grid grid-cols-[208px_minmax(0,1fr)] items-center gap-x-4 max-sm:grid-cols-1">
                {lanes} <span class="max-sm:hidden"></span>
                <svg class="h-4 w-full overflow-visible" aria-hidden="true">
                    {labels}
                </svg>
            </div>
            {(!folds.is_empty()).then(|| view! { <p class="mt-1 text-xs text-ink-3">{folds.join("; ")}</p> })}
        </div>
    }
    .into_any()
}

fn span(view: &AttemptView, now: Time) -> Option<(Time, Time)> {
    let from = view.attempt.submitted_at?;
    Some((from, view.attempt.ended_at.unwrap_or(now)))
}

fn lane(job: &JobId, view: &AttemptView, axis: &TimeAxis, now: Time, zone: Zone) -> AnyView {
    let a = &view.attempt;
    let grid = axis
        .ticks
        .iter()
        .map(|(_, percent)| {
            let x = format!("{percent:.2}%");
            view! { <line class="stroke-hair" x1=x.clone() x2=x y1="-6" y2="36" /> }
        })
        .collect_view();
    let folds = axis
        .folds
        .iter()
        .map(|(percent, _)| {
            let x = format!("{percent:.2}%");
            view! { <line class="stroke-edge" stroke-dasharray="1 3" stroke-width="2" x1=x.clone() x2=x y1="-6" y2="36" /> }
        })
        .collect_view();
    let waited = a.submitted_at.map(|from| {
        let to = a.waited_until().or(a.ended_at).unwrap_or(now).max(from);
        let (left, right) = (axis.percent(from), axis.percent(to));
        (right > left).then(|| view! {
            <rect x=format!("{left:.2}%") y="8.5" width=format!("{:.2}%", right - left) height="11" rx="2" class="fill-none stroke-edge" stroke-dasharray="3 3" />
        })
    });
    let starting = a.waited_until().map(|from| {
        let to = a.started_at.or(a.ended_at).unwrap_or(now);
        block(from, to, FILLS[0], axis)
    });
    let runs = view
        .launches
        .iter()
        .filter_map(|launch| {
            let incident = view.incidents.iter().rev().find(|i| i.launch == launch.number);
            Spans::of(launch, incident, now)
        })
        .map(|spans| run(spans, axis))
        .collect_view();
    let restarts = view
        .incidents
        .iter()
        .filter(|i| i.decision.action == Action::RestartInPlace)
        .map(|i| {
            let x = format!("{:.2}%", axis.percent(i.at));
            view! { <line class="stroke-violet" stroke-width="1.5" stroke-dasharray="1.5 3" x1=x.clone() x2=x y1="2" y2="26" /> }
        })
        .collect_view();
    let end = a.ended_at.map(|at| {
        let x = format!("{:.2}%", axis.percent(at));
        view! { <line class="stroke-ink-2" x1=x.clone() x2=x y1="2" y2="26" /> }
    });
    view! {
        <div class="py-1 text-xs">
            <span class="flex items-center gap-2">
                <b class="font-medium">{a.number}</b>
                <a class="max-w-28 truncate font-mono text-ink-3" href=paths::attempt(job, &a.task_id) title=a.task_id.to_string()>
                    {short_id(&a.task_id)}
                </a>
                <StateBadge state=a.state />
            </span>
        </div>
        <svg class="h-7 w-full overflow-visible max-sm:mb-2.5" role="img" aria-label=words(view, now, zone)>
            {grid}
            {folds}
            {waited}
            {starting}
            {runs}
            {restarts}
            {end}
        </svg>
    }
    .into_any()
}

fn run(spans: Spans, axis: &TimeAxis) -> AnyView {
    let ends = [spans.from, spans.training_from, spans.still_from, spans.to];
    (0..3).map(|i| block(ends[i], ends[i + 1], FILLS[i], axis)).collect_view().into_any()
}

fn block(
    from: Time,
    to: Time,
    (class, fill): (&'static str, &'static str),
    axis: &TimeAxis,
) -> Option<AnyView> {
    (to > from).then(|| {
        let (left, right) = (axis.percent(from), axis.percent(to));
        view! {
            <rect
                x=format!("{left:.2}%")
                y="8"
                width=format!("{:.2}%", (right - left).max(0.1))
                height="12"
                rx="2"
                class=class
                fill=(!fill.is_empty()).then_some(fill)
            />
        }
        .into_any()
    })
}

fn words(view: &AttemptView, now: Time, zone: Zone) -> String {
    let a = &view.attempt;
    let covers = a.submitted_at.map_or(0.0, |from| a.ended_at.unwrap_or(now).seconds_since(from));
    let clock = |at: Time| format::clock_within(covers, at, zone);
    let mut parts = Vec::new();
    match (a.submitted_at, a.waited_until()) {
        (Some(from), Some(to)) => parts.push(format!("waited {}", format::duration(to.seconds_since(from)))),
        (Some(from), None) => parts.push(format!("queued since {}", clock(from))),
        _ => parts.push(story::not_submitted(a.state).to_owned()),
    }
    if let Some(from) = a.waited_until().filter(|_| a.started_at.is_none() && a.ended_at.is_none()) {
        parts.push(format!("starting since {}", clock(from)));
    }
    if let Some(from) = a.started_at {
        let to = a.ended_at.map_or_else(|| "now".to_owned(), clock);
        parts.push(format!("ran {} to {to}", clock(from)));
    }
    for incident in view.incidents.iter().filter(|i| i.decision.action == Action::RestartInPlace) {
        parts.push(format!("in place at {}", clock(incident.at)));
    }
    format!("Attempt {}: {}", a.number, parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn an_attempt_waits_until_it_has_its_resources_and_starts_from_then() {
        let mut chain = samples::running();
        let now = chain.now;
        let said = |view: &AttemptView| words(view, now, Zone::default());
        let view = &mut chain.attempts[0];
        assert!(said(view).contains("waited 30 s, ran "), "{}", said(view));
        // Its resources were taken back and given again while it ran.
        let placed_at = view.attempt.placed_at.replace(now);
        assert!(said(view).contains("waited 1 min, ran "), "{}", said(view));
        view.attempt.placed_at = placed_at;
        view.attempt.started_at = None;
        assert!(said(view).contains("waited 30 s, starting since "), "{}", said(view));
        view.attempt.placed_at = None;
        assert!(said(view).contains("queued since "), "{}", said(view));
    }
}
