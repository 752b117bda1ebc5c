//! The time axis of the timeline: to scale, with gaps in which nothing ran folded, so that a job that was taken up again
//! after days still shows its hours.

use engine::time::Time;

/// A gap of more than this share of the whole is folded (ui.md §4).
const FOLD_SHARE: f64 = 0.20;
/// The room a folded gap takes, as a share.
const FOLDED_ROOM: f64 = 0.03;

/// A piece of the axis.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    from: f64,
    to: f64,
    left: f64,
    right: f64,
}

/// From times to percents.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeAxis {
    pieces: Vec<Piece>,
    /// What is drawn to scale, in seconds: all but the folded gaps.
    pub shown: f64,
    /// Folded gaps: where, in percent, and how long, in seconds.
    pub folds: Vec<(f64, f64)>,
    /// Round moments with their place in percent.
    pub ticks: Vec<(Time, f64)>,
}

impl TimeAxis {
    /// An axis over these spans of time, in any order; none without one.
    pub fn over(spans: &[(Time, Time)]) -> Option<Self> {
        let mut spans: Vec<(f64, f64)> =
            spans.iter().map(|(a, b)| (seconds(*a), seconds(*b).max(seconds(*a)))).collect();
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (first, _) = *spans.first()?;
        let last = spans.iter().map(|s| s.1).fold(first, f64::max).max(first + 1.0);
        let busy = joined(&spans, first, last, (last - first) * FOLD_SHARE);
        let folded = (busy.len() - 1) as f64 * FOLDED_ROOM;
        let shown: f64 = busy.iter().map(|(a, b)| b - a).sum::<f64>().max(1e-6);
        let mut left = 0.0;
        let mut folds = Vec::new();
        let pieces: Vec<Piece> = busy
            .iter()
            .enumerate()
            .map(|(i, (from, to))| {
                if i > 0 {
                    folds.push(((left + FOLDED_ROOM / 2.0) * 100.0, from - busy[i - 1].1));
                    left += FOLDED_ROOM;
                }
                let right = left + (to - from) / shown * (1.0 - folded);
                let piece = Piece { from: *from, to: *to, left: left * 100.0, right: right * 100.0 };
                left = right;
                piece
            })
            .collect();
        let mut axis = Self { pieces, shown, folds, ticks: Vec::new() };
        axis.ticks = axis.round_moments();
        Some(axis)
    }

    /// Where a moment lies, in percent; inside a folded gap at its end.
    pub fn percent(&self, at: Time) -> f64 {
        let at = seconds(at);
        let Some(piece) = self.pieces.iter().find(|p| at <= p.to).or(self.pieces.last()) else { return 0.0 };
        let share = ((at - piece.from) / (piece.to - piece.from).max(1e-6)).clamp(0.0, 1.0);
        piece.left + share * (piece.right - piece.left)
    }

    fn round_moments(&self) -> Vec<(Time, f64)> {
        const STEPS: [f64; 13] = [
            1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, 43_200.0, 86_400.0,
        ];
        let step = STEPS
            .into_iter()
            .find(|s| *s >= self.shown / 7.0)
            .unwrap_or((self.shown / 7.0 / 86_400.0).ceil() * 86_400.0);
        let mut ticks: Vec<(Time, f64)> = Vec::new();
        for piece in &self.pieces {
            let mut at = (piece.from / step).ceil() * step;
            while at <= piece.to && ticks.len() < 16 {
                let time = Time((at * 1e6) as i64);
                let percent = self.percent(time);
                // Labels need about a twelfth of the width; a tick just after a fold would touch the one before it.
                if ticks.last().is_none_or(|(_, before)| percent - before >= 8.0) {
                    ticks.push((time, percent));
                }
                at += step;
            }
        }
        ticks
    }
}

/// Joins spans whose distance is at most `gap`.
fn joined(spans: &[(f64, f64)], first: f64, last: f64, gap: f64) -> Vec<(f64, f64)> {
    let mut out: Vec<(f64, f64)> = vec![(first, first)];
    for (from, to) in spans {
        match out.last_mut() {
            Some(piece) if from - piece.1 <= gap => piece.1 = piece.1.max(*to),
            _ => out.push((*from, *to)),
        }
    }
    if let Some(piece) = out.last_mut() {
        piece.1 = piece.1.max(last);
    }
    out
}

fn seconds(at: Time) -> f64 {
    at.micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: i64, to: i64) -> (Time, Time) {
        (Time(from * 1_000_000), Time(to * 1_000_000))
    }

    #[test]
    fn small_gaps_stay_to_scale() {
        let axis = TimeAxis::over(&[span(0, 400), span(500, 1000)]).unwrap();
        assert!(axis.folds.is_empty());
        for (at, want) in [(0, 0.0), (250, 25.0), (1000, 100.0), (5000, 100.0)] {
            assert!((axis.percent(Time(at * 1_000_000)) - want).abs() < 0.01, "{at}");
        }
    }

    #[test]
    fn a_gap_of_days_is_folded() {
        let axis = TimeAxis::over(&[span(0, 3600), span(200_000, 203_600)]).unwrap();
        assert_eq!(axis.folds.len(), 1);
        assert_eq!(axis.folds[0].1, 196_400.0);
        assert_eq!(axis.shown, 7_200.0, "what decides how fine the times are written");
        assert!((axis.percent(Time(3_600_000_000)) - 48.5).abs() < 0.01);
        assert!((axis.percent(Time(200_000_000_000)) - 51.5).abs() < 0.01);
    }

    #[test]
    fn one_moment_and_clocks_that_run_backwards_are_no_trouble() {
        assert!(TimeAxis::over(&[]).is_none());
        let axis = TimeAxis::over(&[span(5, 5), span(9, 2)]).unwrap();
        assert!(axis.percent(Time(7_000_000)).is_finite());
    }

    #[test]
    fn ticks_do_not_touch() {
        let axis = TimeAxis::over(&[span(0, 21_600)]).unwrap();
        assert!(axis.ticks.len() >= 4);
        assert!(axis.ticks.windows(2).all(|w| w[1].1 - w[0].1 >= 8.0));
    }
}
