//! Where the time of a job went, and what each incident cost.

use serde::{Deserialize, Serialize};

use crate::{
    job::JobSpec,
    record::{Clock, Cost, Ledger},
    time::Time,
};

/// What the time of a job is spent on at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// Steps that were not made before.
    Kept,
    /// Standing still: an incident is open, processes are being stopped.
    Stalled,
    /// Starting and loading.
    Starting,
    /// Steps made a second time.
    Redone,
    /// Waiting for resources or for the back-off; holds no accelerator.
    Queued,
    /// Nothing is held, or nobody knows: the clock stops.
    Nothing,
}

/// The newest stretches that a meter remembers: a launch has few uses one after the other, and what is older than a launch is not
/// changed any more.
const STRETCHES: usize = 8;

/// Time with one use: what, from, to (microseconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stretch(Use, i64, i64);

/// Sums up microseconds of the whole job. Integers, so that a stored meter is the same meter.
///
/// While the server is away nobody counts, and afterwards the agents tell when things happened. So the meter counts on as
/// before, and is [revised](Meter::revise) when something turns out to have changed earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    kept: i64,
    stalled: i64,
    starting: i64,
    redone: i64,
    queued: i64,
    /// Oldest first.
    newest: Vec<Stretch>,
}

impl Meter {
    /// Adds the time from `from` to `to`.
    pub fn add(&mut self, what: Use, from: Time, to: Time) {
        let (from, to) = (from.micros(), to.micros());
        if to <= from {
            return;
        }
        self.count(what, to.saturating_sub(from));
        self.remember(what, from, to);
        self.forget_old();
    }

    /// From `from` to `to` the time was spent on `what`, as is known only now. The time that is held stays as much as it was,
    /// but for what turns out to have been held no more; what was waited for resources stays that.
    pub fn revise(&mut self, what: Use, from: Time, to: Time) {
        for Stretch(was, begin, end) in std::mem::take(&mut self.newest) {
            let from = from.micros().clamp(begin, end);
            let to = to.micros().clamp(from, end);
            let is_held = !matches!(was, Use::Queued | Use::Nothing);
            let now = if is_held { what } else { was };
            self.count(was, from - to);
            self.count(now, to - from);
            self.remember(was, begin, from);
            self.remember(now, from, to);
            self.remember(was, to, end);
        }
        self.forget_old();
    }

    /// A stretch is as long as its use: pieces of it would push out what may still be revised.
    fn remember(&mut self, what: Use, from: i64, to: i64) {
        if to <= from {
            return;
        }
        match self.newest.last_mut() {
            Some(last) if last.0 == what && last.2 == from => last.2 = to,
            _ => self.newest.push(Stretch(what, from, to)),
        }
    }

    fn count(&mut self, what: Use, micros: i64) {
        let sum = match what {
            Use::Kept => &mut self.kept,
            Use::Stalled => &mut self.stalled,
            Use::Starting => &mut self.starting,
            Use::Redone => &mut self.redone,
            Use::Queued => &mut self.queued,
            Use::Nothing => return,
        };
        *sum = sum.saturating_add(micros);
    }

    fn forget_old(&mut self) {
        let old = self.newest.len().saturating_sub(STRETCHES);
        self.newest.drain(..old);
    }

    /// The ledger in accelerator-seconds.
    pub fn ledger(&self, spec: &JobSpec) -> Ledger {
        let held = accelerators(spec);
        let seconds = |micros: i64| micros as f64 / 1e6;
        let all = self.kept.saturating_add(self.stalled).saturating_add(self.starting + self.redone);
        Ledger {
            kept: held * seconds(self.kept),
            stalled: held * seconds(self.stalled),
            starting: held * seconds(self.starting),
            redone: held * seconds(self.redone),
            diagnosing: 0.0,
            queued_seconds: seconds(self.queued),
            ettr: (all > 0).then(|| self.kept as f64 / all as f64),
        }
    }
}

/// Ledgers as one, with the share that was kept of all that was held.
pub fn together(all: impl IntoIterator<Item = Ledger>) -> Ledger {
    let sum = all.into_iter().fold(Ledger::default(), |sum, one| Ledger {
        kept: sum.kept + one.kept,
        stalled: sum.stalled + one.stalled,
        starting: sum.starting + one.starting,
        redone: sum.redone + one.redone,
        diagnosing: sum.diagnosing + one.diagnosing,
        queued_seconds: sum.queued_seconds + one.queued_seconds,
        ettr: None,
    });
    let held = sum.kept + sum.stalled + sum.starting + sum.redone + sum.diagnosing;
    Ledger { ettr: (held > 0.0).then(|| sum.kept / held), ..sum }
}

/// What a job holds while it runs: its accelerators, or one slot of each replica where it takes none.
pub fn accelerators(spec: &JobSpec) -> f64 {
    f64::from(spec.replicas) * f64::from(spec.accelerators_per_replica.max(1))
}

/// The times of one recovery, in the order they come; those that have not come yet are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The first sign of the failure.
    pub sign_at: Time,
    /// It was noticed.
    pub noticed_at: Time,
    /// It was decided what to do; what was left had stopped, as far as the decision waited for that.
    pub decided_at: Option<Time>,
    /// The next launch was ordered or the next attempt submitted.
    pub submitted_at: Option<Time>,
    /// A new attempt had its resources; of an in-place restart the same as `decided_at`.
    pub placed_at: Option<Time>,
    /// All processes ran.
    pub resources_at: Option<Time>,
    /// Training could go on: see [`training_at`](crate::progress::LaunchProgress::training_at).
    pub training_at: Option<Time>,
    /// The first step was printed.
    pub first_step_at: Option<Time>,
    /// The step that the failure had lost was made again.
    pub caught_up_at: Option<Time>,
}

impl Times {
    /// A failure noticed now, its first sign a little before.
    pub fn new(sign_at: Time, noticed_at: Time) -> Self {
        Self {
            sign_at: sign_at.min(noticed_at),
            noticed_at,
            decided_at: None,
            submitted_at: None,
            placed_at: None,
            resources_at: None,
            training_at: None,
            first_step_at: None,
            caught_up_at: None,
        }
    }

    /// The part that is shown as the incident's clock.
    pub fn clock(&self) -> Clock {
        Clock {
            noticed_at: self.noticed_at,
            submitted_at: self.submitted_at,
            resources_at: self.resources_at,
            first_step_at: self.first_step_at,
        }
    }

    /// The cost. The parts follow each other without a gap, so they add up to the time from the first sign until the
    /// lost step was made again.
    pub fn cost(&self, spec: &JobSpec, redone_steps: Option<u64>) -> Cost {
        let span = |from: Option<Time>, to: Option<Time>| Some(to?.seconds_since(from?));
        let stop = span(Some(self.noticed_at), self.decided_at);
        let start = span(self.placed_at, self.resources_at);
        let cost = Cost {
            detect_seconds: Some(self.noticed_at.seconds_since(self.sign_at)),
            save_seconds: None,
            queue_seconds: span(self.decided_at, self.placed_at),
            start_seconds: stop.zip(start).map(|(stop, start)| stop + start),
            load_seconds: span(self.resources_at, self.training_at),
            redo_seconds: span(self.training_at, self.caught_up_at),
            redone_steps,
            accelerator_seconds: None,
        };
        let held: f64 =
            [cost.detect_seconds, cost.start_seconds.or(stop), cost.load_seconds, cost.redo_seconds]
                .into_iter()
                .flatten()
                .sum();
        Cost { accelerator_seconds: Some(held * accelerators(spec)), ..cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_cost_add_up_to_the_gap() {
        let at = |seconds: u64| Some(Time(0).plus_seconds(seconds));
        let times = Times {
            decided_at: at(5),
            submitted_at: at(6),
            placed_at: at(16),
            resources_at: at(19),
            training_at: at(48),
            first_step_at: at(49),
            caught_up_at: at(57),
            ..Times::new(Time(0), Time(0).plus_seconds(2))
        };
        let mut spec = crate::chain::testing::spec(2);
        spec.accelerators_per_replica = 4;
        let cost = times.cost(&spec, Some(21));
        let parts = [
            cost.detect_seconds,
            cost.queue_seconds,
            cost.start_seconds,
            cost.load_seconds,
            cost.redo_seconds,
        ];
        assert_eq!(parts.map(|part| part.unwrap()), [2.0, 11.0, 6.0, 29.0, 9.0]);
        assert_eq!(parts.into_iter().flatten().sum::<f64>(), 57.0);
        // The queue holds nothing: 46 s on 8 accelerators.
        assert_eq!(cost.accelerator_seconds, Some(368.0));
    }

    #[test]
    fn the_share_of_kept_time_is_what_the_accelerators_were_held_for() {
        let mut meter = Meter::default();
        let at = |seconds: u64| Time(0).plus_seconds(seconds);
        for (what, from, to) in [
            (Use::Queued, 0, 5),
            (Use::Starting, 5, 10),
            (Use::Kept, 10, 100),
            (Use::Stalled, 100, 102),
            (Use::Redone, 102, 105),
            (Use::Nothing, 105, 900),
        ] {
            meter.add(what, at(from), at(to));
        }
        let ledger = meter.ledger(&crate::chain::testing::spec(2));
        assert_eq!((ledger.kept, ledger.queued_seconds, ledger.ettr), (180.0, 5.0, Some(0.9)));
    }

    #[test]
    fn what_ledgers_hold_together_is_the_whole_of_which_a_share_was_kept() {
        let one = Ledger { kept: 60.0, stalled: 20.0, ettr: Some(0.75), ..Ledger::default() };
        let other = Ledger {
            kept: 30.0,
            starting: 5.0,
            redone: 2.0,
            diagnosing: 3.0,
            queued_seconds: 7.0,
            ..Ledger::default()
        };
        let all = together([one, other]);
        assert_eq!((all.kept, all.queued_seconds, all.ettr), (90.0, 7.0, Some(0.75)), "90 of 120");
        assert_eq!(together([]), Ledger::default());
    }

    #[test]
    fn what_is_known_late_changes_what_the_time_was_for_and_not_how_much_it_was() {
        let at = |seconds: u64| Time(0).plus_seconds(seconds);
        let mut meter = Meter::default();
        meter.add(Use::Queued, at(0), at(5));
        meter.add(Use::Starting, at(5), at(10));
        meter.add(Use::Kept, at(10), at(60));
        meter.add(Use::Kept, at(60), at(100));
        meter.revise(Use::Stalled, at(70), at(100));
        meter.revise(Use::Stalled, at(90), at(100));
        meter.add(Use::Stalled, at(100), at(101));
        let parts = |meter: &Meter| {
            [meter.queued, meter.starting, meter.kept, meter.redone, meter.stalled].map(|sum| sum / 1_000_000)
        };
        assert_eq!(parts(&meter), [5, 5, 60, 0, 31]);
        meter.revise(Use::Redone, at(8), at(101));
        assert_eq!(parts(&meter), [5, 3, 0, 93, 0]);
        meter.revise(Use::Kept, at(20), at(30));
        assert_eq!(parts(&meter), [5, 3, 10, 83, 0], "what came after is as it was");
        meter.revise(Use::Nothing, at(0), at(101));
        assert_eq!(parts(&meter), [5, 0, 0, 0, 0], "waiting was no use of what was held");
    }

    proptest::proptest! {
        #[test]
        fn the_parts_add_up_to_what_was_held(
            steps in proptest::collection::vec((0usize..6, 0i64..50, proptest::option::of((0usize..4, 0i64..300, 0i64..300))), 0..40),
        ) {
            let uses = [Use::Kept, Use::Stalled, Use::Starting, Use::Redone, Use::Queued, Use::Nothing];
            let (mut meter, mut now, mut held, mut queued) = (Meter::default(), 0, 0, 0);
            for (what, micros, late) in steps {
                meter.add(uses[what], Time(now), Time(now + micros));
                now += micros;
                held += if what < 4 { micros } else { 0 };
                queued += if what == 4 { micros } else { 0 };
                if let Some((what, from, to)) = late {
                    meter.revise(uses[what], Time(from), Time(to));
                }
                let parts = [meter.kept, meter.stalled, meter.starting, meter.redone];
                proptest::prop_assert_eq!(parts.iter().sum::<i64>(), held);
                proptest::prop_assert!(parts.iter().all(|part| *part >= 0));
                proptest::prop_assert_eq!(meter.queued, queued);
                proptest::prop_assert!(meter.newest.len() <= STRETCHES);
                let is_cut = |pair: &[Stretch]| pair[0].0 == pair[1].0 && pair[0].2 == pair[1].1;
                proptest::prop_assert!(!meter.newest.windows(2).any(is_cut), "{:?}", meter.newest);
            }
        }

        /// A thousand ranks may tell of their ends one by one, in any order.
        #[test]
        fn however_many_tell_late_of_the_failure_the_first_counts(
            ends in proptest::collection::vec(20i64..100, 1..40),
        ) {
            let mut meter = Meter::default();
            meter.add(Use::Starting, Time(0), Time(10));
            meter.add(Use::Redone, Time(10), Time(20));
            meter.add(Use::Kept, Time(20), Time(100));
            for end in &ends {
                meter.revise(Use::Stalled, Time(*end), Time(100));
            }
            let first = *ends.iter().min().unwrap();
            proptest::prop_assert_eq!((meter.kept, meter.stalled), (first - 20, 100 - first));
            // And what was before them is still remembered.
            meter.revise(Use::Kept, Time(5), Time(20));
            proptest::prop_assert_eq!((meter.starting, meter.redone, meter.kept), (5, 0, first - 5));
        }
    }
}
