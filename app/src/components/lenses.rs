//! A closer look at each of the last recoveries of a curve, since ghosts are short on the whole axis.

use leptos::prelude::*;

use super::{
    chart::curves,
    incident::IncidentNo,
    marks,
    plot::{Plot, WIDTH},
    recoveries::{Recovery, lens_width},
};
use crate::{console::MetricPoint, format};

/// Height of the curve in a lens.
const LENS_HEIGHT: f64 = 56.0;
/// Where the curve begins in its lens.
const LENS_TOP: f64 = 4.0;
/// Lenses that are drawn: the last ones.
const LENSES: usize = 4;

/// A closer look at each of the last recoveries, since ghosts are short on the whole axis.
#[component]
pub fn Lenses(
    /// The points.
    points: Vec<MetricPoint>,
    /// All recoveries.
    recoveries: Vec<Recovery>,
) -> impl IntoView {
    let first = recoveries.len().saturating_sub(LENSES);
    let last = &recoveries[first..];
    if last.is_empty() || points.is_empty() {
        return ().into_any();
    }
    let width = lens_width(last);
    let lenses = last.iter().map(|r| lens(&points, r, width)).collect_view();
    let label = format!("Around each recovery, {} steps", format::count(width as u64));
    view! {
        <ol
            class="grid grid-cols-[repeat(auto-fill,minmax(min(20rem,100%),1fr))] overflow-hidden"
            aria-label=label
        >
            {lenses}
        </ol>
    }
    .into_any()
}

fn lens(points: &[MetricPoint], recovery: &Recovery, width: f64) -> AnyView {
    let back = recovery.returns().unwrap_or(0) as f64;
    let from = (back - width / 3.0).max(0.0);
    let to = from + width;
    let plot = Plot::part(points, from, to, LENS_HEIGHT);
    let percent = |x: f64| (x - from) / width * 100.0;
    let reached = recovery.reached.map(|s| s as f64).filter(|s| *s <= to && *s > back);
    let (class, dash) =
        if recovery.in_place { ("stroke-violet", Some("1.5 3")) } else { ("stroke-ink-2", None) };
    let x = format!("{:.2}%", percent(back));
    let words = recovery.words();
    view! {
        <li class="-ml-px min-w-0 border-t border-l border-hair px-5 pt-3 pb-3.5">
            <h3 class="flex items-center gap-2">
                <IncidentNo number=recovery.number />
                {recovery.title()}
            </h3>
            <p class="text-xs text-ink-3">{words.clone()}</p>
            <svg class="mt-2 h-[84px] w-full overflow-visible" role="img" aria-label=words>
                <line class="stroke-edge" x1="0" x2="100%" y1="64.5" y2="64.5" />
                {reached.map(|to| view! {
                    <rect class="fill-hover" x=x.clone() width=format!("{:.2}%", percent(to) - percent(back)) height="64" />
                })}
                <line class=class stroke-width="1.5" stroke-dasharray=dash x1=x.clone() x2=x.clone() y1="0" y2="64" />
                {plot.map(|plot| view! {
                    <svg y=LENS_TOP width="100%" height=LENS_HEIGHT viewBox=format!("0 0 {WIDTH} {LENS_HEIGHT}") preserveAspectRatio="none" overflow="visible">
                        {curves(&plot)}
                    </svg>
                    {marks::of_cuts(&plot, LENS_TOP)}
                })}
                <text class="fill-ink-3 text-xs" x=x.clone() y="80" text-anchor="middle">
                    {format::count(back as u64)}
                </text>
                {reached.map(|to| view! {
                    <text class="fill-ink-3 text-xs" x=format!("{:.2}%", percent(to)) y="80" text-anchor="start" dx="18">
                        {format::count(to as u64)}
                    </text>
                })}
            </svg>
        </li>
    }
    .into_any()
}
