//! The curve over all attempts as server-rendered SVG: kept solid, ghosts dashed, a mark for every recovery and a lens on
//! each. Without script it is complete; with it, pointer and arrow keys read values.

use engine::ids::TaskId;
use leptos::{ev, prelude::*, wasm_bindgen::JsCast, web_sys};

use super::{
    incident::IncidentNo,
    plot::{self, Plot, WIDTH},
    recoveries::{Recovery, lens_width},
};
use crate::{
    console::{MetricPoint, MetricsAxis, MetricsView},
    format::{self, Zone},
    preferences::use_zone,
};

/// Height of the curve.
const HEIGHT: f64 = 232.0;
/// Room above it for the marks' numbers.
const ABOVE: f64 = 28.0;
/// Height of the curve in a lens.
const LENS_HEIGHT: f64 = 56.0;
/// Lenses that are drawn: the last ones.
const LENSES: usize = 4;
/// Marks closer than this, in percent, are one line.
const LINE_ROOM: f64 = 0.4;
/// A number needs this much room, in percent.
const MARK_ROOM: f64 = 3.0;
/// A mark's words need this much room, in percent.
const FLAG_ROOM: f64 = 11.0;

/// The curve with its marks.
#[component]
pub fn LossChart(
    /// Points and checkpoints.
    metrics: MetricsView,
    /// What was recovered.
    recoveries: Vec<Recovery>,
    /// The horizontal axis.
    axis: MetricsAxis,
    /// The name of the metric.
    #[prop(into)]
    metric: String,
    /// Task ids in order, to name attempts by number.
    tasks: Vec<TaskId>,
) -> impl IntoView {
    let zone = use_zone();
    let Some(plot) = Plot::whole(&metrics.points, axis, HEIGHT) else {
        return view! {
            <p class="px-5 py-10 text-center text-ink-2">
                {format!("No {metric} was printed so far. Steps are read from usual log formats, or exactly from lines like ")}
                <code class="font-mono text-xs">"holdfast step=120 loss=0.71"</code> "."
            </p>
        }
        .into_any();
    };
    let summary = summary(&metrics.points, &metric);
    let labels = (y_axis(&plot), x_axis(&plot, axis, zone));
    let checkpoints = checkpoints(&plot, &metrics, axis);
    let marks = marks(&plot, &recoveries, axis);
    let height = plot.height;
    let lines = plot.lines.iter().map(|line| curve(line.kept, &line.path)).collect_view();
    let readable: Vec<MetricPoint> = metrics.points.into_iter().filter(|p| p.value.is_finite()).collect();
    let chosen = RwSignal::new(None::<usize>);
    let reader = Reader { points: StoredValue::new(readable), plot: StoredValue::new(plot), axis, chosen };
    let cross = move || reader.cross();
    let tasks = StoredValue::new(tasks);
    let readout = move || reader.words(&tasks.get_value(), &metric, zone);
    view! {
        <div class="px-5 pt-4 pb-3 max-sm:p-3">
            <div
                class="relative"
                role="group"
                tabindex="0"
                aria-label="Curve; arrow keys read values"
                on:keydown=move |event| reader.key(&event)
            >
                <svg class="h-72 w-full overflow-visible" role="img" aria-label=summary>
                    {labels.0}
                    <svg
                        x="0"
                        y=ABOVE
                        width="100%"
                        height=height
                        viewBox=format!("0 0 {WIDTH} {height}")
                        preserveAspectRatio="none"
                        overflow="visible"
                    >
                        {lines}
                    </svg>
                    {labels.1}
                    {checkpoints}
                    {marks}
                    {cross}
                </svg>
                <div
                    class="absolute inset-0"
                    on:pointermove=move |event| reader.point(&event)
                    on:pointerleave=move |_| chosen.set(None)
                ></div>
            </div>
            <p class="mt-1 min-h-4 text-xs text-ink-3" aria-live="polite">
                {readout}
            </p>
        </div>
    }
    .into_any()
}

/// Reads values off the curve.
#[derive(Clone, Copy)]
struct Reader {
    points: StoredValue<Vec<MetricPoint>>,
    plot: StoredValue<Plot>,
    axis: MetricsAxis,
    chosen: RwSignal<Option<usize>>,
}

impl Reader {
    fn key(&self, event: &ev::KeyboardEvent) {
        let last = self.points.with_value(Vec::len).saturating_sub(1);
        let now = self.chosen.get_untracked().unwrap_or(last);
        let next = match event.key().as_str() {
            "ArrowLeft" => now.saturating_sub(1),
            "ArrowRight" => (now + 1).min(last),
            "Home" => 0,
            "End" => last,
            "Escape" => return self.chosen.set(None),
            _ => return,
        };
        event.prevent_default();
        self.chosen.set(Some(next));
    }

    fn point(&self, event: &ev::PointerEvent) {
        let width = event
            .target()
            .and_then(|target| target.dyn_into::<web_sys::HtmlElement>().ok())
            .map_or(0, |element| element.offset_width());
        if width <= 0 {
            return;
        }
        let share = f64::from(event.offset_x()) / f64::from(width);
        let near = self.plot.with_value(|plot| {
            let at = plot.x.low + share * (plot.x.high - plot.x.low);
            self.points.with_value(|points| nearest(points, at, self.axis))
        });
        self.chosen.set(near);
    }

    fn cross(&self) -> Option<AnyView> {
        let chosen = self.chosen.get()?;
        let point = self.points.with_value(|points| points.get(chosen).cloned())?;
        let (x, y) = self.plot.with_value(|plot| {
            (plot.left_percent(plot::position(&point, self.axis)), plot.top(point.value) + ABOVE)
        });
        let x = format!("{x:.2}%");
        Some(
            view! {
                <line class="stroke-edge" x1=x.clone() x2=x.clone() y1=ABOVE y2=ABOVE + HEIGHT />
                <circle class="fill-raised stroke-ink" stroke-width="1.75" cx=x cy=y r="3.5" />
            }
            .into_any(),
        )
    }

    /// The chosen point in words, or the last.
    fn words(&self, tasks: &[TaskId], metric: &str, zone: Zone) -> String {
        let chosen = self.chosen.get();
        let point = self.points.with_value(|points| match chosen {
            Some(i) => points.get(i).cloned(),
            None => points.last().cloned(),
        });
        let Some(point) = point else { return String::new() };
        let attempt = tasks
            .iter()
            .position(|t| *t == point.task_id)
            .map_or(String::new(), |i| format!("attempt {}, ", i + 1));
        let ghost = if point.kept { "" } else { ", made again later" };
        let prefix = if chosen.is_some() { "" } else { "Last: " };
        format!(
            "{prefix}step {}, {metric} {}, {attempt}launch {}, {} {}{ghost}",
            format::count(point.step),
            number(point.value),
            point.launch,
            format::clock(point.at, zone),
            zone.label(),
        )
    }
}

/// The point nearest to a place on the axis; of equals the last.
fn nearest(points: &[MetricPoint], at: f64, axis: MetricsAxis) -> Option<usize> {
    let distance = |p: &MetricPoint| (plot::position(p, axis) - at).abs();
    points.iter().enumerate().rev().min_by(|a, b| distance(a.1).total_cmp(&distance(b.1))).map(|(i, _)| i)
}

fn curve(kept: bool, path: &str) -> AnyView {
    let (class, dash) =
        if kept { ("fill-none stroke-kept", None) } else { ("fill-none stroke-ghost", Some("3 3")) };
    view! {
        <path
            class=class
            d=path.to_owned()
            stroke-width="1.75"
            stroke-dasharray=dash
            stroke-linejoin="round"
            stroke-linecap=kept.then_some("round")
            vector-effect="non-scaling-stroke"
        />
    }
    .into_any()
}

fn y_axis(plot: &Plot) -> AnyView {
    let step = plot.y.ticks.windows(2).map(|pair| pair[1] - pair[0]).next().unwrap_or(1.0);
    plot.y
        .ticks
        .iter()
        .skip(1)
        .map(|tick| {
            let y = (ABOVE + plot.top(*tick)).round() + 0.5;
            view! {
                <line class="stroke-hair" x1="0" x2="100%" y1=y y2=y />
                <text class="fill-ink-3 text-xs" x="100%" y=y - 5.5 text-anchor="end">
                    {tick_label(*tick, step)}
                </text>
            }
        })
        .collect_view()
        .into_any()
}

fn x_axis(plot: &Plot, axis: MetricsAxis, zone: Zone) -> AnyView {
    let bottom = ABOVE + plot.height;
    let ticks = &plot.x.ticks;
    let covers = ticks.last().zip(ticks.first()).map_or(0.0, |(to, from)| to - from);
    let labels = plot
        .x
        .ticks
        .iter()
        .enumerate()
        .map(|(i, tick)| {
            let percent = plot.left_percent(*tick);
            let anchor = if percent < 2.0 {
                "start"
            } else if percent > 98.0 {
                "end"
            } else {
                "middle"
            };
            let class = if i % 3 == 0 { "fill-ink-3 text-xs" } else { "fill-ink-3 text-xs max-sm:hidden" };
            let text = match axis {
                MetricsAxis::Step => thousands(*tick),
                MetricsAxis::Clock => {
                    format::clock_within(covers, engine::time::Time((*tick * 1e6) as i64), zone)
                }
            };
            view! {
                <text class=class x=format!("{percent:.2}%") y=bottom + 20.0 text-anchor=anchor>
                    {text}
                </text>
            }
        })
        .collect_view();
    view! {
        <line class="stroke-edge" x1="0" x2="100%" y1=bottom + 0.5 y2=bottom + 0.5 />
        {labels}
    }
    .into_any()
}

/// `15k` for full thousands from 10,000 on, else the number.
fn thousands(step: f64) -> String {
    let step = step.max(0.0) as u64;
    if step >= 1_000 && step.is_multiple_of(500) {
        let tenths = step / 100;
        if tenths.is_multiple_of(10) {
            format!("{}k", format::count(step / 1_000))
        } else {
            format!("{}.{}k", tenths / 10, tenths % 10)
        }
    } else {
        format::count(step)
    }
}

/// A tick with the digits that its distance to the next one needs, the same for all.
fn tick_label(tick: f64, step: f64) -> String {
    if !(1e-4..1e6).contains(&step) {
        return format!("{tick:.1e}");
    }
    let digits = (-step.log10().floor()).max(0.0) as usize;
    format!("{tick:.digits$}")
}

/// A value with as many digits as help.
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if value == 0.0 => "0".to_owned(),
        s if !(1e-3..1e6).contains(&s) => format!("{value:.2e}"),
        s if s >= 100.0 => format!("{value:.0}"),
        s if s >= 10.0 => format!("{value:.1}"),
        s if s >= 0.1 => format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        _ => format!("{value:.4}"),
    }
}

fn checkpoints(plot: &Plot, metrics: &MetricsView, axis: MetricsAxis) -> AnyView {
    let bottom = ABOVE + plot.height;
    // A tick every half percent is the most that can be told apart.
    let mut last = -1.0;
    let mut ticks = Vec::new();
    for checkpoint in &metrics.checkpoints {
        let at = match axis {
            MetricsAxis::Step => checkpoint.step as f64,
            MetricsAxis::Clock => plot::seconds(checkpoint.at),
        };
        let percent = plot.left_percent(at);
        if (percent - last).abs() < 0.5 || at < plot.x.low || at > plot.x.high {
            continue;
        }
        last = percent;
        let x = format!("{percent:.2}%");
        ticks.push(view! { <line class="stroke-edge" x1=x.clone() x2=x y1=bottom - 4.0 y2=bottom /> });
    }
    ticks.into_iter().collect_view().into_any()
}

fn marks(plot: &Plot, recoveries: &[Recovery], axis: MetricsAxis) -> AnyView {
    let mut places: Vec<(f64, &Recovery)> = recoveries
        .iter()
        .filter_map(|r| Some((r.position(axis)?, r)))
        .filter(|(x, _)| (plot.x.low..=plot.x.high).contains(x))
        .map(|(x, r)| (plot.left_percent(x), r))
        .collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    // A line that cannot be told from the one before adds nothing.
    places.dedup_by(|next, before| next.0 - before.0 < LINE_ROOM);
    let bottom = ABOVE + plot.height;
    let mut taken = f64::NEG_INFINITY;
    let mut drawn = Vec::new();
    for (i, (percent, recovery)) in places.iter().enumerate() {
        let room = places.get(i + 1).map_or(100.0 + MARK_ROOM - percent, |next| next.0 - percent);
        let flag = Flag::place(*percent, taken, room);
        taken = flag.end(*percent).max(taken);
        drawn.push(mark(*percent, recovery, flag, bottom));
    }
    drawn.into_iter().collect_view().into_any()
}

/// What stands above a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flag {
    /// Nothing: its neighbours leave no room.
    None,
    /// Its number, to the right.
    Number,
    /// Its number and words, to the right.
    Right,
    /// Its number and words, to the left.
    Left,
}

impl Flag {
    /// For a mark at `percent` with `room` to the next one, where everything left of `taken` is taken.
    fn place(percent: f64, taken: f64, room: f64) -> Self {
        if percent >= taken && room >= FLAG_ROOM {
            Self::Right
        } else if percent - FLAG_ROOM >= taken.max(0.0) {
            Self::Left
        } else if percent >= taken && room >= MARK_ROOM {
            Self::Number
        } else {
            Self::None
        }
    }

    /// How far it reaches.
    fn end(self, percent: f64) -> f64 {
        match self {
            Self::None | Self::Left => percent,
            Self::Number => percent + MARK_ROOM,
            Self::Right => percent + FLAG_ROOM,
        }
    }
}

fn mark(percent: f64, recovery: &Recovery, flag: Flag, bottom: f64) -> AnyView {
    let x = format!("{percent:.2}%");
    let (class, dash) =
        if recovery.in_place { ("stroke-violet", Some("1.5 3")) } else { ("stroke-ink-2", None) };
    let (cx, text_x, anchor) = if flag == Flag::Left { (-12.0, -25.0, "end") } else { (12.0, 25.0, "start") };
    let words = matches!(flag, Flag::Left | Flag::Right).then(|| {
        view! {
            <text class="fill-ink text-xs max-sm:hidden" x=text_x y="13" text-anchor=anchor>
                {recovery.title().to_lowercase()}
            </text>
        }
    });
    let number = (flag != Flag::None).then(|| {
        view! {
            <svg x=x.clone() overflow="visible">
                <circle class="fill-page stroke-edge" cx=cx cy="9" r="8" />
                <text class="fill-ink text-[11px] font-medium" x=cx y="13" text-anchor="middle">
                    {recovery.number}
                </text>
                {words}
            </svg>
        }
    });
    view! {
        <line class=class stroke-dasharray=dash stroke-width="1.5" x1=x.clone() x2=x y1="22" y2=bottom />
        {number}
    }
    .into_any()
}

/// The curve in a sentence, for those who do not see it.
fn summary(points: &[MetricPoint], metric: &str) -> String {
    let mut finite = points.iter().filter(|p| p.value.is_finite());
    let Some(first) = finite.next() else { return format!("No {metric} yet") };
    let last = finite.next_back().unwrap_or(first);
    let ghosts = points.iter().filter(|p| !p.kept).count() as u64;
    let again = if ghosts == 0 {
        String::new()
    } else {
        format!("; {} made again after a recovery", format::plural(ghosts, "point was", "points were"))
    };
    format!(
        "{metric} from {} at step {} to {} at step {}{again}",
        number(first.value),
        format::count(first.step),
        number(last.value),
        format::count(last.step)
    )
}

/// What the lines of the chart mean.
#[component]
pub fn ChartKey() -> impl IntoView {
    let line = |class: &'static str, dash: Option<&'static str>, word: &'static str| {
        view! {
            <span class="inline-flex items-center gap-1.5">
                <svg width="20" height="8" aria-hidden="true">
                    <path class=class stroke-width="1.75" stroke-dasharray=dash d="M0 4H20" />
                </svg>
                {word}
            </span>
        }
    };
    view! {
        <span class="inline-flex flex-wrap gap-x-3.5 gap-y-1 text-xs text-ink-3">
            {line("fill-none stroke-kept", None, "kept")}
            {line("fill-none stroke-ghost", Some("3 3"), "ghost: steps run twice")}
            <span class="inline-flex items-center gap-1.5">
                <svg width="8" height="12" aria-hidden="true">
                    <path class="stroke-edge" d="M4 3V9" />
                </svg>
                "checkpoint"
            </span>
        </span>
    }
}

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
    let back = recovery.position(MetricsAxis::Step).unwrap_or(0.0);
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
                    <svg y="4" width="100%" height=LENS_HEIGHT viewBox=format!("0 0 {WIDTH} {LENS_HEIGHT}") preserveAspectRatio="none" overflow="visible">
                        {plot.lines.iter().map(|line| curve(line.kept, &line.path)).collect_view()}
                    </svg>
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{components::recoveries::recoveries, samples};

    #[test]
    fn the_chart_reads_without_script() {
        let chain = samples::chain();
        let (metrics, recoveries) = (samples::metrics(&chain), recoveries(&chain));
        let points = metrics.points.clone();
        let tasks = chain.attempts.iter().map(|a| a.attempt.task_id.clone()).collect();
        let all = recoveries.clone();
        let html = Owner::new().with(|| {
            view! {
                <LossChart metrics recoveries axis=MetricsAxis::Step metric="loss" tasks />
                <Lenses points recoveries=all />
            }
            .to_html()
        });
        assert!(html.contains("stroke-ghost") && html.contains("stroke-kept"));
        assert!(html.contains("came back at 24,000, 300 steps redone"), "{html}");
        assert!(!html.contains("NaN") && !html.contains("style="));
    }

    #[test]
    fn a_chart_without_a_point_says_what_is_read() {
        let metrics = MetricsView { points: Vec::new(), checkpoints: Vec::new() };
        let html = Owner::new().with(|| {
            view! { <LossChart metrics recoveries=Vec::new() axis=MetricsAxis::Clock metric="loss" tasks=Vec::new() /> }.to_html()
        });
        assert!(html.contains("No loss was printed so far") && !html.contains("<path"), "{html}");
    }

    #[test]
    fn neighbours_make_room_for_each_other() {
        assert_eq!(Flag::place(86.7, 60.0, 2.2), Flag::Left, "the next one is near");
        assert_eq!(Flag::place(88.9, 86.7, 14.1), Flag::Right);
        assert_eq!(Flag::place(1.0, f64::NEG_INFINITY, 2.0), Flag::None, "no words beyond the left edge");
        assert_eq!(Flag::place(40.0, 35.0, 4.0), Flag::Number);
    }

    #[test]
    fn ticks_have_the_same_digits() {
        assert_eq!([4.0, 10.0].map(|t| tick_label(t, 2.0)), ["4", "10"]);
        assert_eq!([0.5, 1.0].map(|t| tick_label(t, 0.5)), ["0.5", "1.0"]);
        assert_eq!(tick_label(0.0002, 0.0002), "0.0002");
    }

    #[test]
    fn numbers_keep_the_digits_that_help() {
        for (value, want) in [
            (0.0, "0"),
            (2.0, "2"),
            (2.114, "2.114"),
            (12.34, "12.3"),
            (0.00004, "4.00e-5"),
            (0.0123, "0.0123"),
        ] {
            assert_eq!(number(value), want);
        }
        assert_eq!([5_000.0, 2_500.0, 150.0, 1_250.0].map(thousands), ["5k", "2.5k", "150", "1,250"]);
    }
}
