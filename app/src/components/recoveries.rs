//! The recoveries of a chain as marks on its curve: where it broke, where it came back, and how many steps lie between.

use engine::{record::Action, time::Time};

use super::{plot::Axis, story};
use crate::{
    console::{ChainView, MetricsAxis},
    format::{count, plural},
};

/// One recovery, or one that is under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    /// The incident's round number.
    pub number: u32,
    /// In the same attempt; else by a new one.
    pub in_place: bool,
    /// When it was noticed.
    pub at: Time,
    /// The step that had been reached.
    pub reached: Option<u64>,
    /// The step it came back at.
    pub back: Option<u64>,
    /// The step it should come back at, while it has not.
    pub expected: Option<u64>,
    /// It ended before it came back.
    pub over: bool,
}

/// All recoveries of a chain, in order.
pub fn recoveries(chain: &ChainView) -> Vec<Recovery> {
    story::incidents(chain)
        .iter()
        .filter(|n| matches!(n.incident.decision.action, Action::RestartInPlace | Action::Resubmit))
        .map(|n| {
            let launch = story::launch_after(chain, n);
            let proof = launch.map(|l| &l.proof);
            let began = launch.and_then(|l| l.steps).map(|s| s.first.saturating_sub(1));
            let loaded = proof.and_then(|p| p.checkpoint.step);
            Recovery {
                number: n.number,
                in_place: n.incident.decision.action == Action::RestartInPlace,
                at: n.incident.at,
                reached: n.incident.step,
                back: loaded.filter(|_| began.is_some()).or(began),
                expected: proof.and_then(|p| p.checkpoint.expected),
                over: launch.map_or(chain.state.is_terminal(), |l| l.ended_at.is_some()),
            }
        })
        .collect()
}

impl Recovery {
    /// The step it came back at, or should, or broke at.
    pub fn returns(&self) -> Option<u64> {
        self.back.or(self.expected).or(self.reached)
    }

    /// Where its mark stands on an axis; none where no step is known.
    pub fn position(&self, axis: &Axis) -> Option<f64> {
        match axis.kind() {
            MetricsAxis::Step => self.returns().map(|s| s as f64),
            MetricsAxis::Clock | MetricsAxis::Active => Some(axis.moment(self.at)),
        }
    }

    /// Steps between where it broke and where it came back, or should.
    pub fn lost(&self) -> Option<u64> {
        Some(self.reached?.saturating_sub(self.back.or(self.expected)?))
    }

    /// `In place`, `Resubmitted`.
    pub const fn title(&self) -> &'static str {
        if self.in_place { "In place" } else { "Resubmitted" }
    }

    /// `came back at 15,000, 120 steps redone`.
    pub fn words(&self) -> String {
        let lost = |word: &str| {
            self.lost().map(|n| format!(", {} {word}", plural(n, "step", "steps"))).unwrap_or_default()
        };
        match (self.back, self.expected) {
            (Some(back), _) => format!("came back at {}{}", count(back), lost("redone")),
            (None, _) if self.over => "did not come back".to_owned(),
            (None, Some(expected)) => format!("expected at {}{}", count(expected), lost("to redo")),
            (None, None) => "not back yet".to_owned(),
        }
    }
}

/// Steps that a lens shows: the same for all, three times the longest loss among them, at least 30.
pub fn lens_width(recoveries: &[Recovery]) -> f64 {
    let longest = recoveries.iter().filter_map(Recovery::lost).max().unwrap_or(0);
    (longest.saturating_mul(3)).max(30) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn each_recovery_knows_where_it_came_back() {
        let all = recoveries(&samples::chain());
        let words: Vec<String> = all.iter().map(Recovery::words).collect();
        assert_eq!(
            words,
            [
                "came back at 15,000, 120 steps redone",
                "came back at 24,000, 300 steps redone",
                "came back at 39,000, 150 steps redone",
                "expected at 40,000, 400 steps to redo",
            ]
        );
        assert_eq!(lens_width(&all), 1_200.0);
    }
}
