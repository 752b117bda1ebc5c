//! What stands out on a curve: recoveries with their numbers, and values that were cut off.

use leptos::prelude::*;

use super::{
    chart::ABOVE,
    plot::{Axis, Cut, Plot},
    recoveries::Recovery,
};

/// Marks closer than this, in percent, are one line.
const LINE_ROOM: f64 = 0.4;
/// A number needs this much room, in percent.
const MARK_ROOM: f64 = 3.0;
/// A mark's words need this much room, in percent.
const FLAG_ROOM: f64 = 11.0;

/// A line for every recovery, with its number and words where there is room.
pub fn of_recoveries(plot: &Plot, recoveries: &[Recovery], axis: &Axis) -> AnyView {
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

/// An arrowhead at the edge that values were cut off at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    /// Where, in percent from the left.
    percent: f64,
    /// At the upper edge; false is the lower.
    above: bool,
}

/// The arrowheads of the values that were cut off, from left to right; those that cannot be told apart are one.
pub fn heads(plot: &Plot) -> Vec<Head> {
    let head = |cut: &Cut| Head { percent: plot.left_percent(cut.x), above: cut.above };
    let mut all: Vec<Head> = plot.cut.iter().map(head).collect();
    all.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    let mut last = [f64::NEG_INFINITY; 2];
    all.retain(|head| {
        let last = &mut last[usize::from(head.above)];
        let is_apart = head.percent - *last >= LINE_ROOM;
        if is_apart {
            *last = head.percent;
        }
        is_apart
    });
    all
}

/// Arrowheads at the edges of a curve that begins `top` units below the top of its drawing.
pub fn of_cuts(plot: &Plot, top: f64) -> AnyView {
    let drawn = heads(plot).into_iter().map(|Head { percent, above }| {
        let (y, d) = if above { (top, "M0 -8 L4 -1 H-4 Z") } else { (top + plot.height, "M0 8 L4 1 H-4 Z") };
        view! {
            <svg x=format!("{percent:.2}%") y=y overflow="visible">
                <path class="fill-red" d=d />
            </svg>
        }
    });
    drawn.collect_view().into_any()
}

#[cfg(test)]
mod tests {
    use super::{super::plot::Scale, *};

    #[test]
    fn a_step_that_was_made_again_has_its_arrowhead_whatever_came_before_it() {
        let cut = |x, above| Cut { x, above };
        let plot = Plot {
            x: Scale::exact(0.0, 100.0),
            y: Scale::exact(0.0, 1.0),
            lines: Vec::new(),
            // In the order of launches: the second went back from 90 to 20.
            cut: vec![cut(90.0, true), cut(20.0, true), cut(20.3, true), cut(20.1, false), cut(90.2, true)],
            height: 1.0,
        };
        let drawn: Vec<_> = heads(&plot).iter().map(|head| (head.percent, head.above)).collect();
        assert_eq!(drawn, [(20.0, true), (20.1, false), (90.0, true)]);
    }

    #[test]
    fn neighbours_make_room_for_each_other() {
        assert_eq!(Flag::place(86.7, 60.0, 2.2), Flag::Left, "the next one is near");
        assert_eq!(Flag::place(88.9, 86.7, 14.1), Flag::Right);
        assert_eq!(Flag::place(1.0, f64::NEG_INFINITY, 2.0), Flag::None, "no words beyond the left edge");
        assert_eq!(Flag::place(40.0, 35.0, 4.0), Flag::Number);
    }
}
