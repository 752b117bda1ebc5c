//! How a launch spent its time, as shares: starting, training, standing still. One reading of the records, used by the
//! strips of the chain and by the lanes of the timeline.

use engine::{
    failure::FailureType,
    record::{IncidentRecord, LaunchRecord},
    time::Time,
};
use leptos::prelude::*;

use crate::format;

/// Spans of a launch, in order and without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    /// Its processes ran.
    pub from: Time,
    /// Its first step.
    pub training_from: Time,
    /// From here on no step was made; equals `to` where it did not stand still.
    pub still_from: Time,
    /// Its end, or now.
    pub to: Time,
}

impl Spans {
    /// Reads a launch; none before its processes ran. Standing still is known of hangs only: from the first sign until
    /// the incident was noticed, `cost.detect_seconds`.
    pub fn of(launch: &LaunchRecord, incident: Option<&IncidentRecord>, now: Time) -> Option<Self> {
        let from = launch.started_at?;
        let to = launch.ended_at.unwrap_or(now).max(from);
        let training_from = launch.proof.progress.at.unwrap_or(to).clamp(from, to);
        let still = incident
            .filter(|incident| incident.failure_type == FailureType::CommHang)
            .and_then(|incident| incident.cost.detect_seconds)
            .filter(|seconds| seconds.is_finite() && *seconds > 0.0)
            .unwrap_or(0.0);
        let still_from = Time(to.micros().saturating_sub((still * 1e6) as i64)).clamp(training_from, to);
        Some(Self { from, training_from, still_from, to })
    }

    /// Seconds of starting, training, standing still.
    pub fn seconds(&self) -> [f64; 3] {
        [
            self.training_from.seconds_since(self.from),
            self.still_from.seconds_since(self.training_from),
            self.to.seconds_since(self.still_from),
        ]
    }

    /// The same in words: `starting 4 min, training 101 min, standing still 15 min`.
    pub fn words(&self) -> String {
        let [start, train, still] = self.seconds();
        let parts: Vec<String> = [("starting", start), ("training", train), ("standing still", still)]
            .into_iter()
            .filter(|(_, seconds)| *seconds > 0.0)
            .map(|(what, seconds)| format!("{what} {}", format::duration(seconds)))
            .collect();
        if parts.is_empty() { "just started".to_owned() } else { parts.join(", ") }
    }
}

/// What a span is filled with; patterns tell them apart without colour.
pub const FILLS: [(&str, &str); 3] = [("fill-start", ""), ("fill-kept", ""), ("", "url(#h-still)")];

/// Parts side by side across the whole width: class, pattern or nothing, and seconds of `total`.
pub fn bar(parts: impl Iterator<Item = (&'static str, &'static str, f64)>, total: f64) -> AnyView {
    let mut left = 0.0;
    parts
        .map(|(class, fill, seconds)| {
            let (x, width) = (left, seconds / total * 100.0);
            left += width;
            view! {
                <rect
                    x=format!("{x:.2}%")
                    width=format!("{width:.2}%")
                    height="100%"
                    class=class
                    fill=(!fill.is_empty()).then_some(fill)
                />
            }
        })
        .collect_view()
        .into_any()
}

/// The strip below a launch.
pub fn strip(spans: Spans) -> AnyView {
    let seconds = spans.seconds();
    let total: f64 = seconds.iter().sum::<f64>().max(1e-6);
    let parts = seconds.into_iter().zip(FILLS).map(|(seconds, (class, fill))| (class, fill, seconds));
    let parts = bar(parts.filter(|(_, _, seconds)| *seconds > 0.0), total);
    view! {
        <svg class="mt-2 h-1.5 w-full overflow-hidden rounded-xs" role="img" aria-label=spans.words()>
            {parts}
        </svg>
    }
    .into_any()
}

/// The patterns that strips, lanes and the ledger are filled with; once a page.
#[component]
pub fn Patterns() -> impl IntoView {
    view! {
        <svg width="0" height="0" class="absolute" aria-hidden="true" focusable="false">
            <defs>
                <pattern id="h-still" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
                    <rect class="fill-still/20" width="6" height="6" />
                    <path class="stroke-still" stroke-width="2.5" d="M1 0V6" />
                </pattern>
                <pattern id="h-ghost" width="5" height="5" patternUnits="userSpaceOnUse">
                    <rect width="5" height="5" class="fill-hover" />
                    <path class="stroke-ghost" stroke-width="2" d="M1.5 0V5" />
                </pattern>
                <pattern id="h-probe" width="4" height="4" patternUnits="userSpaceOnUse">
                    <rect width="4" height="4" class="fill-violet-soft" />
                    <circle cx="2" cy="2" r="1.5" class="fill-probe" />
                </pattern>
            </defs>
        </svg>
    }
}

/// What the fills mean.
pub fn fill_key(queue: bool) -> AnyView {
    let item = |word: &'static str, class: &'static str, fill: &'static str| {
        view! {
            <span class="inline-flex items-center gap-1.5">
                <svg width="16" height="6" aria-hidden="true">
                    <rect width="16" height="6" rx="1.5" class=class fill=(!fill.is_empty()).then_some(fill) />
                </svg>
                {word}
            </span>
        }
    };
    let waiting = queue.then(|| {
        view! {
            <span class="inline-flex items-center gap-1.5">
                <svg width="16" height="6" aria-hidden="true">
                    <rect x="0.5" y="0.5" width="15" height="5" rx="1.5" class="fill-none stroke-edge" stroke-dasharray="3 2" />
                </svg>
                "waiting"
            </span>
        }
    });
    view! {
        <div class="flex flex-wrap gap-x-3.5 gap-y-1 text-xs text-ink-3">
            {waiting} {item("starting", "fill-start", "")} {item("training", "fill-kept", "")}
            {item("standing still", "", "url(#h-still)")}
        </div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn spans_never_overlap_or_leave_the_launch() {
        let mut launch = samples::launch(0, Some(100), Some(400));
        launch.proof.progress.at = Some(samples::at(130));
        let mut incident = samples::incident(1, 400);
        incident.failure_type = FailureType::CommHang;
        for (detect, want) in [
            (None, [30.0, 270.0, 0.0]),
            (Some(60.0), [30.0, 210.0, 60.0]),
            (Some(9e9), [30.0, 0.0, 270.0]),
            (Some(f64::NAN), [30.0, 270.0, 0.0]),
        ] {
            incident.cost.detect_seconds = detect;
            let spans = Spans::of(&launch, Some(&incident), samples::at(999)).unwrap();
            assert_eq!(spans.seconds(), want, "{detect:?}");
        }
        launch.started_at = None;
        assert_eq!(Spans::of(&launch, None, samples::at(999)), None);
    }
}
