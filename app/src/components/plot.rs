//! From the points of a curve to what is drawn: pure geometry, so that every rule of the chart is tested without a page.
//!
//! Kept steps are one line that never runs backwards; steps that a later launch made again are ghost branches that leave
//! the line where their launch does. Values that are no numbers are left out.

use engine::time::Time;

use crate::console::{MetricPoint, MetricsAxis};

/// Most points a chart draws; more are thinned to the lowest and highest of each bucket (ui.md §8).
pub const MAX_POINTS: usize = 2_000;
/// Width of the drawing in its own units; it is stretched to whatever room there is.
pub const WIDTH: f64 = 1_000.0;

/// A range of numbers with round ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// The lower end.
    pub low: f64,
    /// The upper end; always above `low`.
    pub high: f64,
    /// Round numbers between them, in order.
    pub ticks: Vec<f64>,
}

impl Scale {
    /// A scale over `low..=high` whose ends are ticks, with about `wanted` of them.
    pub fn round(low: f64, high: f64, wanted: u32) -> Self {
        let (low, high) = if high > low { (low, high) } else { (low - 0.5, low + 0.5) };
        let step = round_step((high - low) / f64::from(wanted.max(1)));
        let first = (low / step).floor();
        let last = (high / step).ceil();
        let ticks: Vec<f64> = (0..=(last - first) as u32).map(|i| (first + f64::from(i)) * step).collect();
        Self { low: first * step, high: last * step, ticks }
    }

    /// A scale that fits its ends exactly and has no ticks.
    pub fn exact(low: f64, high: f64) -> Self {
        let (low, high) = if high > low { (low, high) } else { (low - 0.5, low + 0.5) };
        Self { low, high, ticks: Vec::new() }
    }

    /// Where a value lies, 0 at the lower end and 1 at the upper.
    pub fn share(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// The next of 1, 2, 5, 10 … times a power of ten.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let step = match rough / power {
        r if r <= 1.0 => 1.0,
        r if r <= 2.0 => 2.0,
        r if r <= 5.0 => 5.0,
        _ => 10.0,
    };
    step * power
}

/// A round number of seconds for ticks of a clock, so that they fall on full minutes and hours.
fn round_seconds(rough: f64) -> f64 {
    const STEPS: [f64; 14] = [
        1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0, 86_400.0,
        604_800.0,
    ];
    STEPS.into_iter().find(|step| *step >= rough).unwrap_or_else(|| round_step(rough))
}

/// One line to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Steps that count; false is a ghost.
    pub kept: bool,
    /// `d` of an SVG path, in units of [`WIDTH`] and the height that was asked for.
    pub path: String,
}

/// A value beyond the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// Where on the horizontal axis.
    pub x: f64,
    /// Above the upper end; false is below the lower.
    pub above: bool,
}

/// A horizontal axis, which knows where points and moments lie on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    kind: MetricsAxis,
    /// When each launch made steps, in seconds since 1970: only the active axis needs them.
    spans: Vec<(f64, f64)>,
}

impl Axis {
    /// The axis of these points.
    pub fn of(kind: MetricsAxis, points: &[MetricPoint]) -> Self {
        let mut spans: Vec<(f64, f64)> = Vec::new();
        if kind == MetricsAxis::Active {
            for launch in points.chunk_by(same_launch) {
                spans.extend(ends(launch.iter().map(|p| seconds(p.at))));
            }
        }
        Self { kind, spans }
    }

    /// What it measures.
    pub const fn kind(&self) -> MetricsAxis {
        self.kind
    }

    /// Where a point lies.
    pub fn point(&self, point: &MetricPoint) -> f64 {
        self.place(point.step, point.at)
    }

    /// Where a step that was made at a time lies.
    pub fn place(&self, step: u64, at: Time) -> f64 {
        match self.kind {
            MetricsAxis::Step => step as f64,
            MetricsAxis::Clock | MetricsAxis::Active => self.moment(at),
        }
    }

    /// Where a moment lies on an axis of time.
    pub fn moment(&self, at: Time) -> f64 {
        let at = seconds(at);
        match self.kind {
            MetricsAxis::Active => self.spans.iter().map(|(from, to)| at.clamp(*from, *to) - from).sum(),
            MetricsAxis::Step | MetricsAxis::Clock => at,
        }
    }

    fn scale(&self, points: &[&MetricPoint]) -> Option<Scale> {
        let (first, last) = ends(points.iter().map(|p| self.point(p)))?;
        Some(match self.kind {
            MetricsAxis::Step => Scale::round(0.0, last.max(1.0), 9),
            MetricsAxis::Clock => clock_scale(first, last),
            MetricsAxis::Active => clock_scale(0.0, last.max(1.0)),
        })
    }
}

fn same_launch(a: &MetricPoint, b: &MetricPoint) -> bool {
    a.task_id == b.task_id && a.launch == b.launch
}

/// A curve, ready to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The horizontal axis: steps, seconds since 1970, or seconds in which steps were made.
    pub x: Scale,
    /// The vertical axis.
    pub y: Scale,
    /// Kept lines first: ghosts are dashed, so what lies below them shows through.
    pub lines: Vec<Line>,
    /// Values beyond the vertical axis, drawn at its ends.
    pub cut: Vec<Cut>,
    /// Height of the drawing in its own units.
    pub height: f64,
}

impl Plot {
    /// The whole curve; none where no point has a number.
    pub fn whole(points: &[MetricPoint], axis: &Axis, height: f64) -> Option<Self> {
        let points = finite(points);
        let (low, high) = usual(points.iter().map(|p| p.value).collect())?;
        let x = axis.scale(&points)?;
        let y = Scale::round(low, high, 4);
        Some(Self::of(&points, axis, x, y, height))
    }

    /// The part of the curve between two steps; none where nothing was made there.
    pub fn part(points: &[MetricPoint], from: f64, to: f64, height: f64) -> Option<Self> {
        let points: Vec<&MetricPoint> =
            finite(points).into_iter().filter(|p| (from..=to).contains(&(p.step as f64))).collect();
        let (low, high) = usual(points.iter().map(|p| p.value).collect())?;
        let margin = ((high - low) * 0.12).max(f64::EPSILON);
        let x = Scale::exact(from, to);
        let y = Scale::exact(low - margin, high + margin);
        Some(Self::of(&points, &Axis::of(MetricsAxis::Step, &[]), x, y, height))
    }

    fn of(points: &[&MetricPoint], axis: &Axis, x: Scale, y: Scale, height: f64) -> Self {
        let cut = points
            .iter()
            .filter(|p| p.value > y.high || p.value < y.low)
            .map(|p| Cut { x: axis.point(p), above: p.value > y.high })
            .collect();
        Self { lines: lines(points, axis, &x, &y, height), x, y, cut, height }
    }

    /// Where a value lies on the horizontal axis, in percent.
    pub fn left_percent(&self, x: f64) -> f64 {
        self.x.share(x) * 100.0
    }

    /// Where a value lies from the top, in units of the height.
    pub fn top(&self, y: f64) -> f64 {
        (1.0 - self.y.share(y)) * self.height
    }
}

/// A time as seconds since 1970.
pub fn seconds(at: Time) -> f64 {
    at.micros() as f64 / 1e6
}

fn clock_scale(first: f64, last: f64) -> Scale {
    let (first, last) = if last > first { (first, last) } else { (first - 30.0, first + 30.0) };
    let step = round_seconds((last - first) / 7.0);
    let ticks =
        (1..=20).map(|i| ((first / step).floor() + f64::from(i)) * step).filter(|t| *t <= last).collect();
    Scale { low: first, high: last, ticks }
}

/// Whether a value can be drawn and compared: beyond this size differences overflow.
pub fn is_drawn(value: f64) -> bool {
    value.abs() < 1e300
}

fn finite(points: &[MetricPoint]) -> Vec<&MetricPoint> {
    points.iter().filter(|p| is_drawn(p.value)).collect()
}

/// The range that is worth its room. Values that lie beyond the middle 96 % by more than ten times their range, and by more
/// than four times their size, are cut off, so that one absurd value does not flatten all others. A loss that falls steeply
/// at first is kept whole: from the logarithm of a vocabulary, 11, to 2.5 it is 4.4 times as large.
fn usual(mut values: Vec<f64>) -> Option<(f64, f64)> {
    // Of fewer none can be called unusual.
    const ENOUGH: usize = 8;
    let whole = ends(values.iter().copied())?;
    if values.len() < ENOUGH {
        return Some(whole);
    }
    values.sort_by(f64::total_cmp);
    // Rounded so that at least one value lies outside at each end.
    let outside = (values.len() / 50).max(1);
    let (low, high) = (values[outside], values[values.len() - 1 - outside]);
    let reach = (10.0 * (high - low)).max(4.0 * high.abs().max(low.abs()));
    ends(values.into_iter().filter(|value| (low - reach..=high + reach).contains(value)))
}

/// The lowest and the highest of some numbers.
fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .fold(None, |ends, v| Some(ends.map_or((v, v), |(low, high): (f64, f64)| (low.min(v), high.max(v)))))
}

/// A run of points that belong to one line.
struct Run<'a> {
    kept: bool,
    points: Vec<&'a MetricPoint>,
}

/// Splits the points into lines. A kept line goes on over launches on the step axis, where they meet, and breaks
/// on axes of time, where they do not; it also breaks rather than run backwards.
fn runs<'a>(points: &[&'a MetricPoint], axis: &Axis) -> Vec<Run<'a>> {
    let mut kept: Vec<Run<'a>> = Vec::new();
    let mut ghosts: Vec<Run<'a>> = Vec::new();
    let mut before: Option<&'a MetricPoint> = None;
    for point in points.iter().copied() {
        let same_launch = |p: &MetricPoint| same_launch(p, point);
        let forwards = |p: &MetricPoint| axis.point(p) <= axis.point(point);
        if point.kept {
            let joins = |p: &MetricPoint| forwards(p) && (axis.kind == MetricsAxis::Step || same_launch(p));
            match kept.last_mut().filter(|run| run.points.last().is_some_and(|p| joins(p))) {
                Some(run) => run.points.push(point),
                None => kept.push(Run { kept: true, points: vec![point] }),
            }
        } else {
            let goes_on = before.is_some_and(|p| !p.kept && same_launch(p) && forwards(p));
            match ghosts.last_mut().filter(|_| goes_on) {
                Some(run) => run.points.push(point),
                None => {
                    // A ghost leaves the kept line at the last point that its own launch contributed to it.
                    let stem = before.filter(|p| p.kept && same_launch(p) && forwards(p));
                    ghosts.push(Run { kept: false, points: stem.into_iter().chain([point]).collect() });
                }
            }
        }
        before = Some(point);
    }
    kept.into_iter().chain(ghosts).collect()
}

fn lines(points: &[&MetricPoint], axis: &Axis, x: &Scale, y: &Scale, height: f64) -> Vec<Line> {
    let runs = runs(points, axis);
    let total: usize = runs.iter().map(|run| run.points.len()).sum();
    runs.iter()
        .map(|run| {
            let share = run.points.len() as f64 / total.max(1) as f64;
            let room =
                if total > MAX_POINTS { (MAX_POINTS as f64 * share) as usize } else { run.points.len() };
            Line { kept: run.kept, path: path(&thin(&run.points, room), axis, x, y, height) }
        })
        .collect()
}

/// At most `room` points: of each bucket the lowest and the highest, in their order.
fn thin<'a>(points: &[&'a MetricPoint], room: usize) -> Vec<&'a MetricPoint> {
    if points.len() <= room.max(2) {
        return points.to_vec();
    }
    let buckets = (room / 2).max(1);
    let size = points.len().div_ceil(buckets);
    points
        .chunks(size)
        .flat_map(|bucket| {
            let by_value = |a: &&&MetricPoint, b: &&&MetricPoint| a.value.total_cmp(&b.value);
            let low = bucket.iter().min_by(by_value).copied();
            let high = bucket.iter().max_by(by_value).copied();
            let mut pair: Vec<&'a MetricPoint> = low.into_iter().chain(high).collect();
            pair.sort_by_key(|p| (p.at, p.step));
            pair.dedup_by(|a, b| std::ptr::eq(*a, *b));
            pair
        })
        .collect()
}

fn path(points: &[&MetricPoint], axis: &Axis, x: &Scale, y: &Scale, height: f64) -> String {
    let mut d = String::with_capacity(points.len() * 12 + 8);
    for (i, point) in points.iter().enumerate() {
        let left = x.share(axis.point(point)) * WIDTH;
        let top = (1.0 - y.share(point.value)) * height;
        d.push_str(if i == 0 { "M" } else { " " });
        d.push_str(&format!("{left:.1},{top:.1}"));
    }
    if points.len() == 1 {
        // A line of no length with round ends is a dot.
        d.push_str(" h0.01");
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::ids::TaskId;

    fn point(task: &str, launch: u32, step: u64, at: i64, value: f64, kept: bool) -> MetricPoint {
        MetricPoint {
            task_id: TaskId::new(task).unwrap(),
            launch,
            step,
            at: Time(at * 1_000_000),
            value,
            kept,
        }
    }

    /// Two launches and a second attempt: each goes back to the checkpoint before its failure.
    fn resumed() -> Vec<MetricPoint> {
        let mut points: Vec<_> = (1..=40).map(|s| point("t-1", 0, s, s as i64, 2.0, s <= 30)).collect();
        points.extend((31..=70).map(|s| point("t-1", 1, s, 60 + s as i64, 1.5, s <= 60)));
        points.extend((61..=90).map(|s| point("t-2", 0, s, 200 + s as i64, 1.2, true)));
        points
    }

    fn whole(points: &[MetricPoint], axis: MetricsAxis) -> Option<Plot> {
        Plot::whole(points, &Axis::of(axis, points), 200.0)
    }

    fn coordinates(line: &Line) -> Vec<(f64, f64)> {
        line.path
            .trim_start_matches('M')
            .split(' ')
            .filter_map(|pair| pair.split_once(','))
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect()
    }

    #[test]
    fn no_line_runs_backwards() {
        for axis in [MetricsAxis::Step, MetricsAxis::Clock, MetricsAxis::Active] {
            for line in whole(&resumed(), axis).unwrap().lines {
                let xs: Vec<f64> = coordinates(&line).iter().map(|(x, _)| *x).collect();
                assert!(xs.is_sorted(), "{axis:?} {}", line.path);
            }
        }
    }

    #[test]
    fn steps_that_were_made_again_are_ghosts_that_leave_the_kept_line() {
        let plot = whole(&resumed(), MetricsAxis::Step).unwrap();
        let ghosts: Vec<_> = plot.lines.iter().filter(|line| !line.kept).collect();
        assert_eq!(ghosts.len(), 2);
        // 10 ghost points and the kept one where they leave.
        assert_eq!(coordinates(ghosts[0]).len(), 11);
        assert!((coordinates(ghosts[0])[0].0 - plot.x.share(30.0) * WIDTH).abs() < 0.1);
        assert_eq!(plot.lines.iter().filter(|line| line.kept).count(), 1, "kept steps join over launches");
    }

    #[test]
    fn on_the_clock_launches_do_not_join() {
        let plot = whole(&resumed(), MetricsAxis::Clock).unwrap();
        assert_eq!(plot.lines.iter().filter(|line| line.kept).count(), 3);
    }

    #[test]
    fn ten_resumes_stay_ten_ghosts() {
        let mut points = Vec::new();
        for launch in 0..11u32 {
            let first = u64::from(launch) * 10;
            points.extend((first..first + 15).map(|s| {
                let at = i64::from(launch) * 100 + s as i64;
                point("t-1", launch, s, at, 1.0, s < first + 10 || launch == 10)
            }));
        }
        let plot = whole(&points, MetricsAxis::Step).unwrap();
        assert_eq!(plot.lines.iter().filter(|line| !line.kept).count(), 10);
    }

    #[test]
    fn numbers_that_are_none_are_never_drawn() {
        let mut points = resumed();
        points[3].value = f64::NAN;
        points[8].value = f64::INFINITY;
        for line in whole(&points, MetricsAxis::Step).unwrap().lines {
            assert!(!line.path.contains("NaN") && !line.path.contains("inf"), "{}", line.path);
        }
        assert_eq!(whole(&[point("t-1", 0, 1, 1, f64::NAN, true)], MetricsAxis::Step), None);
    }

    #[test]
    fn nothing_gives_nothing_and_one_point_gives_a_dot() {
        assert_eq!(whole(&[], MetricsAxis::Step), None);
        for axis in [MetricsAxis::Step, MetricsAxis::Clock, MetricsAxis::Active] {
            let plot = whole(&[point("t-1", 0, 7, 9, 0.5, true)], axis).unwrap();
            assert_eq!(plot.lines.len(), 1);
            assert!(plot.lines[0].path.ends_with("h0.01") && !plot.lines[0].path.contains("NaN"));
        }
    }

    #[test]
    fn many_points_are_thinned_and_keep_their_extremes() {
        let mut points: Vec<_> = (0..20_000).map(|s| point("t-1", 0, s, s as i64, 1.0, true)).collect();
        points[777].value = 9.0;
        let plot = whole(&points, MetricsAxis::Step).unwrap();
        let drawn: Vec<_> = plot.lines.iter().flat_map(coordinates).collect();
        assert!(drawn.len() <= MAX_POINTS, "{}", drawn.len());
        let peak = format!("{:.1}", plot.top(9.0)).parse::<f64>().unwrap();
        assert!(drawn.iter().any(|(_, y)| *y == peak));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            Scale::round(0.0, 40_400.0, 9).ticks,
            (0..=9).map(|i| f64::from(i) * 5_000.0).collect::<Vec<_>>()
        );
        let flat = Scale::round(2.0, 2.0, 4);
        assert!(flat.low < flat.high && flat.ticks.len() >= 2);
        let clock = clock_scale(1_000.0, 8_200.0);
        assert!(clock.ticks.iter().all(|t| t % 1_800.0 == 0.0) && !clock.ticks.is_empty());
    }

    #[test]
    fn one_absurd_value_does_not_flatten_the_others() {
        let mut points: Vec<_> =
            (0..200).map(|s| point("t-1", 0, s, s as i64, 4.0 - s as f64 / 100.0, true)).collect();
        let before = whole(&points, MetricsAxis::Step).unwrap();
        points[120].value = 1e12;
        points[121].value = -1e9;
        points[122].value = f64::MAX;
        let plot = whole(&points, MetricsAxis::Step).unwrap();
        assert_eq!(plot.y, before.y);
        assert_eq!(plot.cut, [Cut { x: 120.0, above: true }, Cut { x: 121.0, above: false }]);
        assert_eq!((plot.top(1e12), plot.top(-1e9)), (0.0, 200.0));
        let lens = Plot::part(&points, 100.0, 150.0, 56.0).unwrap();
        assert_eq!(lens.cut, plot.cut, "a closer look marks them too");
    }

    #[test]
    fn a_loss_that_falls_steeply_and_few_values_are_kept_whole() {
        let falling: Vec<_> =
            (1..=500).map(|s| point("t-1", 0, s, s as i64, 2.0 + 9.0 / s as f64, true)).collect();
        assert_eq!(whole(&falling, MetricsAxis::Step).unwrap().cut, []);
        let few: Vec<_> = (1..=5).map(|s| point("t-1", 0, s, s as i64, 10f64.powi(s as i32), true)).collect();
        assert_eq!(whole(&few, MetricsAxis::Step).unwrap().cut, []);
    }

    #[test]
    fn active_time_leaves_out_what_lies_between_launches() {
        let points = resumed();
        let axis = Axis::of(MetricsAxis::Active, &points);
        // Steps from 1 to 40 s, 91 to 130 s and 261 to 290 s: 39, 39 and 29 s.
        for (at, want) in
            [(0, 0.0), (40, 39.0), (60, 39.0), (91, 39.0), (130, 78.0), (290, 107.0), (999, 107.0)]
        {
            assert_eq!(axis.moment(Time(at * 1_000_000)), want, "{at}");
        }
        assert_eq!(whole(&points, MetricsAxis::Active).unwrap().x.high, 107.0);
    }

    #[test]
    fn a_part_shows_only_its_steps() {
        let plot = Plot::part(&resumed(), 25.0, 55.0, 56.0).unwrap();
        assert_eq!((plot.x.low, plot.x.high), (25.0, 55.0));
        assert_eq!(Plot::part(&resumed(), 500.0, 600.0, 56.0), None);
    }
}
