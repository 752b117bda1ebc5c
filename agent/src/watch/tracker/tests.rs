//! Standstills from made-up samples.

use engine::{
    failure::Phase,
    sync::{Collective, RunState},
};

use super::*;
use crate::watch::frames::{Frame, key};

const WATCH: HangWatch = HangWatch { interval_seconds: 10, window_seconds: 60, start_after_seconds: 0 };

fn time(seconds: i64) -> Time {
    Time(seconds * 1_000_000)
}

fn stacks(function: &str, settled: bool) -> Result<Stacks, Missing> {
    let frames = [Frame::new(function, "train.py", None)];
    Ok(Stacks { key: key(&frames), hash: Hash::of(&frames), settled, threads: Vec::new() })
}

/// A process that sleeps in `rest` after step 3 and has a checkpoint directory.
fn asleep(seconds: i64) -> Sample {
    let mut activity = Activity::default();
    activity.step(3, time(-5));
    activity.output(time(-4));
    Sample {
        at: time(seconds),
        activity,
        growth: Growth { detail: "2 files and directories, 9 bytes".to_owned(), ..Growth::default() },
        stacks: stacks("rest", true),
        used: Some(Duration::from_secs(7)),
        state: Some(ProcessState { is: RunState::Sleeping, waits_in: Some("futex_wait".to_owned()) }),
    }
}

/// Takes samples at these seconds; what became of each.
fn run(
    tracker: &mut Tracker,
    seconds: impl IntoIterator<Item = i64>,
    change: impl Fn(i64, &mut Sample),
) -> Vec<Outcome> {
    let take = |at| {
        let mut sample = asleep(at);
        change(at, &mut sample);
        tracker.take(&sample)
    };
    seconds.into_iter().map(take).collect()
}

fn says(still: &StillRank, kind: WitnessKind) -> (WitnessSays, Option<Time>) {
    let witness = still.witnesses.iter().find(|witness| witness.kind == kind).unwrap();
    (witness.says.clone(), witness.since)
}

#[test]
fn all_stacks_are_read_with_the_sample_that_tells_them_however_samples_fall() {
    let watch = HangWatch { interval_seconds: 30, ..WATCH };
    // The one at half the window came 1 µs early, in time, late, or not at all.
    for half in [Some(29_999_999), Some(30_000_000), Some(30_000_001), None] {
        let mut tracker = Tracker::new(watch);
        let mut shown = Vec::new();
        for micros in [Some(0), half, Some(60_000_000), Some(90_000_000)].into_iter().flatten() {
            let at = Time(micros);
            let read = tracker.may_show(at);
            if tracker.take(&Sample { at, ..asleep(0) }).is_full {
                shown.push((micros, read));
            }
        }
        assert_eq!(shown, [(60_000_000, true)], "{half:?}");
    }
}

#[test]
fn it_is_told_at_half_the_window_and_at_each_sample_from_all_of_it_on() {
    let mut tracker = Tracker::new(WATCH);
    let outcomes = run(&mut tracker, (0..=120).step_by(10), |_, _| {});
    let news: Vec<_> =
        outcomes.iter().enumerate().filter(|(_, o)| o.is_news).map(|(n, o)| (n, o.is_full)).collect();
    let lasts = (7..=12).map(|n| (n, false));
    assert_eq!(news, [(3, false), (6, true)].into_iter().chain(lasts).collect::<Vec<_>>());
    let still = outcomes[6].still.as_ref().unwrap();
    assert_eq!((still.since, still.until, still.samples), (time(0), time(60), 7));
    for (kind, since) in [
        (WitnessKind::Stack, Some(time(0))),
        (WitnessKind::Step, Some(time(-5))),
        (WitnessKind::Output, Some(time(-4))),
        (WitnessKind::Checkpoint, None),
        (WitnessKind::Cpu, Some(time(0))),
        (WitnessKind::KernelState, Some(time(0))),
    ] {
        assert_eq!(says(still, kind), (WitnessSays::Unchanged, since), "{kind:?}");
    }
    let nothing = WitnessSays::Unknown("its output says nothing of collectives".to_owned());
    assert_eq!(says(still, WitnessKind::Collective), (nothing, None));
    assert!(outcomes.iter().all(|outcome| !outcome.moved));
}

#[test]
fn each_movement_ends_a_standstill_and_says_so_once() {
    type Change = fn(&mut Sample);
    let changes: [(&str, Change); 5] = [
        ("a step", |s| s.activity.step(4, s.at)),
        ("a phase", |s| s.activity.phase(Phase::Evaluation)),
        ("a checkpoint that is told", |s| s.activity.checkpoint(s.at)),
        ("a checkpoint that grows", |s| s.growth.times = 1),
        ("a collective", |s| {
            for number in [1, 2] {
                let said = Collective { last_enqueued: None, last_completed: Some(number), name: None };
                s.activity.collective(said, s.at);
            }
        }),
    ];
    for (what, change) in changes {
        let mut tracker = Tracker::new(WATCH);
        let outcomes = run(&mut tracker, (0..=130).step_by(10), |at, sample| {
            if at >= 70 {
                change(sample);
            }
        });
        let moved: Vec<_> = outcomes.iter().enumerate().filter(|(_, o)| o.moved).map(|(n, _)| n).collect();
        assert_eq!(moved, [7], "{what}");
        assert_eq!(outcomes[10].still.as_ref().unwrap().since, time(70), "{what}");
        assert!(outcomes[13].is_full, "{what}");
    }
}

#[test]
fn what_moves_beside_is_a_witness_and_no_movement() {
    let mut tracker = Tracker::new(WATCH);
    let outcomes = run(&mut tracker, (0..=60).step_by(10), |at, sample| {
        sample.activity.output(sample.at);
        sample.stacks = stacks(&format!("f{at}"), true);
        sample.used = Some(Duration::from_secs(at as u64));
        sample.state = Some(ProcessState {
            is: if at % 20 == 0 { RunState::Running } else { RunState::Sleeping },
            waits_in: None,
        });
    });
    let still = outcomes[6].still.as_ref().unwrap();
    for kind in [WitnessKind::Stack, WitnessKind::Output, WitnessKind::Cpu, WitnessKind::KernelState] {
        assert_eq!(says(still, kind), (WitnessSays::Changed, Some(time(60))), "{kind:?}");
    }
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_news).count(), 2, "one more stack is no news");
}

#[test]
fn a_stack_that_is_not_the_same_at_two_looks_is_never_unchanged() {
    let mut tracker = Tracker::new(WATCH);
    let outcomes = run(&mut tracker, (0..=60).step_by(10), |_, sample| sample.stacks = stacks("busy", false));
    assert_eq!(
        says(outcomes[6].still.as_ref().unwrap(), WitnessKind::Stack),
        (WitnessSays::Changed, Some(time(60)))
    );
}

#[test]
fn a_stack_that_could_not_be_read_once_is_unknown_then_and_the_same_after() {
    let mut tracker = Tracker::new(WATCH);
    let outcomes = run(&mut tracker, (0..=70).step_by(10), |at, sample| {
        if at == 40 {
            sample.stacks = Err(Missing::TimedOut);
        }
    });
    let stack = |n: usize| says(outcomes[n].still.as_ref().unwrap(), WitnessKind::Stack);
    assert_eq!(stack(4), (WitnessSays::Unknown("timed out".to_owned()), None));
    assert_eq!(stack(6), (WitnessSays::Unchanged, Some(time(0))));
    assert!(outcomes[4].is_news && outcomes[5].is_news, "what is said of it has changed");
}

#[test]
fn a_witness_may_be_still_for_longer_or_shorter_than_the_process() {
    let mut tracker = Tracker::new(WATCH);
    // A step at 20 with the same stack, as where the loop is always sampled in one place; another stack from 50 on.
    let outcomes = run(&mut tracker, (0..=90).step_by(10), |at, sample| {
        if at >= 20 {
            sample.activity.step(4, time(20));
        }
        if at >= 50 {
            sample.stacks = stacks("other", true);
        }
    });
    let stack = |n: usize| says(outcomes[n].still.as_ref().unwrap(), WitnessKind::Stack);
    assert_eq!(outcomes[8].still.as_ref().unwrap().since, time(20));
    assert_eq!(stack(8), (WitnessSays::Changed, Some(time(50))));
    let mut tracker = Tracker::new(WATCH);
    let outcomes = run(&mut tracker, (0..=90).step_by(10), |at, sample| {
        if at >= 20 {
            sample.activity.step(4, time(20));
        }
    });
    assert_eq!(
        says(outcomes[8].still.as_ref().unwrap(), WitnessKind::Stack),
        (WitnessSays::Unchanged, Some(time(0)))
    );
}

#[test]
fn missed_and_late_samples_and_a_clock_set_back_begin_anew() {
    for (what, seconds) in [
        ("a gap", vec![0, 10, 20, 30, 51, 61, 71, 81]),
        ("a suspended machine", vec![0, 10, 20, 30, 5000, 5010, 5020, 5030]),
        ("a clock set back", vec![0, 10, 20, 30, -100, -90, -80, -70]),
    ] {
        let mut tracker = Tracker::new(WATCH);
        let outcomes = run(&mut tracker, seconds.clone(), |_, _| {});
        assert!(outcomes[3].is_news, "{what}");
        assert!(outcomes[4].moved, "{what}: what was told holds no longer");
        let still = outcomes[7].still.as_ref().unwrap();
        assert_eq!((still.since, still.samples), (time(seconds[4]), 4), "{what}");
        assert_eq!(says(still, WitnessKind::Stack).1, Some(time(seconds[4])), "{what}");
    }
    let mut tracker = Tracker::new(WATCH);
    let outcomes = run(&mut tracker, [0, 20, 40, 60], |_, _| {});
    assert!(outcomes[3].is_full, "two intervals are no gap");
}

#[test]
fn less_than_a_hundredth_of_the_time_is_no_work() {
    for (millis_a_sample, want) in [(99, WitnessSays::Unchanged), (100, WitnessSays::Changed)] {
        let mut tracker = Tracker::new(WATCH);
        let outcomes = run(&mut tracker, (0..=60).step_by(10), |at, sample| {
            sample.used = Some(Duration::from_millis(at as u64 / 10 * millis_a_sample));
        });
        assert_eq!(says(outcomes[6].still.as_ref().unwrap(), WitnessKind::Cpu).0, want);
    }
    // Children that nobody waited for take their time with them.
    let mut tracker = Tracker::new(WATCH);
    let outcomes = run(&mut tracker, (0..=60).step_by(10), |at, sample| {
        sample.used = Some(Duration::from_secs(if at < 30 { 100 } else { 1 }));
    });
    assert_eq!(says(outcomes[6].still.as_ref().unwrap(), WitnessKind::Cpu).0, WitnessSays::Unchanged);
}

#[test]
fn what_is_not_known_says_why_within_the_limits() {
    let mut tracker = Tracker::new(WATCH);
    let outcomes = run(&mut tracker, (0..=60).step_by(10), |_, sample| {
        sample.activity = Activity::default();
        sample.stacks = Err(Missing::Other("x".repeat(1000)));
        sample.growth = Growth { unknown: Some("no checkpoint directory".to_owned()), ..Growth::default() };
        (sample.used, sample.state) = (None, None);
    });
    let still = outcomes[6].still.as_ref().unwrap();
    assert_eq!((still.stack.as_ref(), still.state.as_ref(), still.phase), (None, None, None));
    for witness in &still.witnesses {
        let WitnessSays::Unknown(reason) = &witness.says else { panic!("{witness:?}") };
        assert!(!reason.is_empty() && reason.len() <= WORDS_BYTES, "{witness:?}");
    }
}

#[test]
fn a_process_that_never_prints_is_told_again_when_it_comes_to_rest() {
    let mut tracker = Tracker::new(WATCH);
    // It works in ever other functions and prints no step, and stands still from second 200 on.
    let outcomes = run(&mut tracker, (0..=300).step_by(10), |at, sample| {
        if at < 200 {
            sample.stacks = stacks(&format!("f{at}"), true);
        }
    });
    let news: Vec<_> =
        outcomes.iter().enumerate().filter(|(_, o)| o.is_news).map(|(n, o)| (n * 10, o.is_full)).collect();
    let lasts = [270, 280, 290, 300].map(|at| (at, false));
    assert_eq!(news[..4], [(30, false), (60, false), (230, true), (260, false)]);
    assert_eq!(news[4..], lasts);
    let still = outcomes[26].still.as_ref().unwrap();
    assert_eq!(says(still, WitnessKind::Stack), (WitnessSays::Changed, Some(time(200))));
    assert_eq!(still.until, time(260));
}
