//! The curve over all attempts as server-rendered SVG: kept solid, ghosts dashed, a mark for every recovery and a lens on
//! each. Without script it is complete; with it, pointer and arrow keys read values.

use engine::ids::TaskId;
use leptos::{ev, prelude::*, wasm_bindgen::JsCast, web_sys};

use super::{
    marks,
    plot::{self, Axis, Plot, WIDTH},
    recoveries::Recovery,
};
use crate::{
    console::{MetricPoint, MetricsAxis, MetricsView},
    format::{self, Zone, so_far},
    preferences::use_zone,
};

/// Height of the curve.
const HEIGHT: f64 = 232.0;
/// Room above it for the marks' numbers.
pub const ABOVE: f64 = 28.0;

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
    /// The job has ended, so nothing more is to come.
    ended: bool,
) -> impl IntoView {
    let zone = use_zone();
    let axis = Axis::of(axis, &metrics.points);
    let Some(plot) = Plot::whole(&metrics.points, &axis, HEIGHT) else {
        return nothing_printed(&metric, ended);
    };
    let summary = summary(&metrics.points, &metric);
    let drawing = drawing(&plot, &metrics, &recoveries, &axis, zone);
    let cut = cut_words(&plot);
    let readable: Vec<MetricPoint> = metrics.points.into_iter().filter(|p| plot::is_drawn(p.value)).collect();
    let chosen = RwSignal::new(None::<usize>);
    let reader = Reader {
        points: StoredValue::new(readable),
        plot: StoredValue::new(plot),
        axis: StoredValue::new(axis),
        chosen,
    };
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
                    {drawing}
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
            {cut.map(|words| view! { <p class="text-xs text-ink-3">{words}</p> })}
        </div>
    }
    .into_any()
}

fn nothing_printed(metric: &str, ended: bool) -> AnyView {
    let nothing = format!("No {metric} was printed{}. ", so_far(ended));
    view! {
        <p class="px-5 py-10 text-center text-ink-2">
            {nothing} "Steps are read from usual log formats, or exactly from lines like "
            <code class="font-mono text-xs">"holdfast step=120 loss=0.71"</code> "."
        </p>
    }
    .into_any()
}

/// All that does not move: axes, lines, checkpoints, marks.
fn drawing(plot: &Plot, metrics: &MetricsView, recoveries: &[Recovery], axis: &Axis, zone: Zone) -> AnyView {
    let height = plot.height;
    view! {
        {y_axis(plot)}
        <svg
            x="0"
            y=ABOVE
            width="100%"
            height=height
            viewBox=format!("0 0 {WIDTH} {height}")
            preserveAspectRatio="none"
            overflow="visible"
        >
            {curves(plot)}
        </svg>
        {x_axis(plot, axis, zone)}
        {checkpoints(plot, metrics, axis)}
        {marks::of_recoveries(plot, recoveries, axis)}
        {marks::of_cuts(plot, ABOVE)}
    }
    .into_any()
}

/// Said where values lie beyond the axis.
fn cut_words(plot: &Plot) -> Option<String> {
    let count = plot.cut.len() as u64;
    // Fewer where some cannot be told apart.
    let heads = marks::heads(plot).len() as u64;
    (count > 0).then(|| {
        format!(
            "{} beyond {} to {}, where {} at the edge.",
            format::plural(count, "value lies", "values lie"),
            number(plot.y.low),
            number(plot.y.high),
            format::plural(heads, "arrowhead is", "arrowheads are"),
        )
    })
}

/// Reads values off the curve.
#[derive(Clone, Copy)]
struct Reader {
    points: StoredValue<Vec<MetricPoint>>,
    plot: StoredValue<Plot>,
    axis: StoredValue<Axis>,
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
            self.axis.with_value(|axis| self.points.with_value(|points| nearest(points, at, axis)))
        });
        self.chosen.set(near);
    }

    fn cross(&self) -> Option<AnyView> {
        let chosen = self.chosen.get()?;
        let point = self.points.with_value(|points| points.get(chosen).cloned())?;
        let at = self.axis.with_value(|axis| axis.point(&point));
        let (x, y) = self.plot.with_value(|plot| (plot.left_percent(at), plot.top(point.value) + ABOVE));
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
fn nearest(points: &[MetricPoint], at: f64, axis: &Axis) -> Option<usize> {
    let distance = |p: &MetricPoint| (axis.point(p) - at).abs();
    points.iter().enumerate().rev().min_by(|a, b| distance(a.1).total_cmp(&distance(b.1))).map(|(i, _)| i)
}

/// The lines; each ghost lies on a pale band of its own, so that it is seen where it and the kept line agree.
pub fn curves(plot: &Plot) -> AnyView {
    let bands = plot.lines.iter().filter(|line| !line.kept).map(|line| {
        view! {
            <path
                class="fill-none stroke-ghost"
                d=line.path.clone()
                stroke-width="7"
                stroke-opacity="0.25"
                stroke-linejoin="round"
                vector-effect="non-scaling-stroke"
            />
        }
    });
    let bands = bands.collect_view();
    let lines = plot.lines.iter().map(|line| curve(line.kept, &line.path)).collect_view();
    view! { {bands} {lines} }.into_any()
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

fn x_axis(plot: &Plot, axis: &Axis, zone: Zone) -> AnyView {
    let bottom = ABOVE + plot.height;
    let covers = plot.x.high - plot.x.low;
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
            let text = match axis.kind() {
                MetricsAxis::Step => thousands(*tick),
                MetricsAxis::Active => format::duration(*tick),
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

fn checkpoints(plot: &Plot, metrics: &MetricsView, axis: &Axis) -> AnyView {
    let bottom = ABOVE + plot.height;
    // A tick every half percent is the most that can be told apart.
    let mut last = -1.0;
    let mut ticks = Vec::new();
    for checkpoint in &metrics.checkpoints {
        let at = axis.place(checkpoint.step, checkpoint.at);
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

/// The curve in a sentence, for those who do not see it.
fn summary(points: &[MetricPoint], metric: &str) -> String {
    let mut finite = points.iter().filter(|p| plot::is_drawn(p.value));
    let Some(first) = finite.next() else { return format!("No {metric}") };
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
    view! {
        <span class="inline-flex flex-wrap gap-x-3.5 gap-y-1 text-xs text-ink-3">
            <span class="inline-flex items-center gap-1.5">
                <svg width="20" height="8" aria-hidden="true">
                    <path class="fill-none stroke-kept" stroke-width="1.75" d="M0 4H20" />
                </svg>
                "kept"
            </span>
            <span class="inline-flex items-center gap-1.5">
                <svg width="20" height="8" aria-hidden="true">
                    <path class="fill-none stroke-ghost" stroke-width="7" stroke-opacity="0.25" d="M0 4H20" />
                    <path class="fill-none stroke-ghost" stroke-width="1.75" stroke-dasharray="3 3" d="M0 4H20" />
                </svg>
                "ghost: steps run twice"
            </span>
            <span class="inline-flex items-center gap-1.5">
                <svg width="8" height="12" aria-hidden="true">
                    <path class="stroke-edge" d="M4 3V9" />
                </svg>
                "checkpoint"
            </span>
        </span>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        components::{lenses::Lenses, recoveries::recoveries},
        samples,
    };

    #[test]
    fn the_chart_reads_without_script() {
        let chain = samples::chain();
        let (metrics, recoveries) = (samples::metrics(&chain), recoveries(&chain));
        let points = metrics.points.clone();
        let tasks = chain.attempts.iter().map(|a| a.attempt.task_id.clone()).collect();
        let all = recoveries.clone();
        let html = Owner::new().with(|| {
            view! {
                <LossChart metrics recoveries axis=MetricsAxis::Step metric="loss" tasks ended=false />
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
        for (ended, says) in [(false, "No loss was printed so far. "), (true, "No loss was printed. ")] {
            let metrics = MetricsView { points: Vec::new(), checkpoints: Vec::new(), advice: None };
            let html = Owner::new().with(|| {
                view! { <LossChart metrics recoveries=Vec::new() axis=MetricsAxis::Clock metric="loss" tasks=Vec::new() ended /> }.to_html()
            });
            assert!(html.contains(says) && !html.contains("<path"), "{html}");
        }
    }

    #[test]
    fn cut_values_are_marked_and_told() {
        let chain = samples::chain();
        let mut metrics = samples::metrics(&chain);
        let html = |metrics| {
            Owner::new().with(|| {
                view! { <LossChart metrics recoveries=Vec::new() axis=MetricsAxis::Active metric="loss" tasks=Vec::new() ended=true /> }.to_html()
            })
        };
        metrics.points[5].value = 1e15;
        let one = html(metrics.clone());
        assert!(one.contains("1 value lies beyond") && one.contains("1 arrowhead is at the edge"), "{one}");
        metrics.points[6] = metrics.points[5].clone();
        let two = html(metrics);
        assert!(two.contains("2 values lie beyond") && two.contains("1 arrowhead is at the edge"), "{two}");
        assert_eq!(two.matches("fill-red").count(), 1);
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
