//! What is told late, after the server was away, and what an agent's clock may do to it.

use crate::{
    chain::{testing::*, *},
    failure::{FailureType::AppError, Phase},
    record::{Action, AttemptResult, Cost, Ledger, ProofVerdict},
    sync::{Point, ReportBody},
};

/// A job of one replica that printed a step each second for 10 s, after which the server was away for an hour.
fn away(spec: JobSpec) -> (World, Time) {
    let mut world = World::new(spec);
    world.up();
    let left_at = later(world.now, 10);
    world.report(0, points(world.now, 1, 10));
    world.now = left_at;
    world.give(Input::Tick);
    world.after(3600.0);
    (world, left_at)
}

fn later(at: Time, seconds: i64) -> Time {
    Time(at.0 + seconds * 1_000_000)
}

/// A step each second, the first of them a second after `at`.
fn points(at: Time, first: u64, last: u64) -> ReportBody {
    let point = |step: u64| Point {
        step,
        at: later(at, (step - first + 1) as i64),
        loss: Some(1.0),
        samples: None,
        total: None,
    };
    ReportBody::Progress { points: (first..=last).map(point).collect() }
}

fn exit(code: i64) -> ReportBody {
    ReportBody::Exited {
        rank: 0,
        exit: Exit::from_code(code),
        asked: false,
        step: None,
        phase: Phase::Training,
        evidence: vec![],
    }
}

fn ledger(world: &World) -> Ledger {
    world.chain.summary(world.now).ledger
}

#[test]
fn what_failed_while_the_server_was_away_stood_still_since_then() {
    let (mut world, left_at) = away(full(1, 2));
    let failed_at = later(left_at, 600);
    let now = world.now;
    world
        .report_of(later(left_at, 599), 0, points(left_at, 11, 600))
        .report_of(failed_at, 0, exit(1))
        .report_of(later(failed_at, 1), 0, ReportBody::Stopped);
    let incident = &world.incidents()[0];
    assert_eq!(incident.clock.noticed_at, now);
    assert_eq!(incident.cost.detect_seconds, Some(3000.0));
    let ledger = ledger(&world);
    assert_eq!((ledger.kept, ledger.stalled, ledger.starting), (610.0, 3000.0, 0.0));
    let launch = &world.launches(&world.task())[0];
    assert_eq!(launch.ended_at, Some(later(failed_at, 1)));
}

#[test]
fn an_attempt_ended_when_its_last_process_did() {
    for (code, result) in [(0, AttemptResult::Succeeded), (1, AttemptResult::AutoFailoverOff)] {
        let (mut world, left_at) = away(spec(1));
        let ended_at = later(left_at, 600);
        world.report_of(ended_at, 0, exit(code)).report_of(ended_at, 0, ReportBody::Stopped);
        let attempt = world.attempts().pop().unwrap();
        assert_eq!((attempt.result, attempt.ended_at), (Some(result), Some(ended_at)));
        let ledger = ledger(&world);
        assert_eq!(ledger.kept, 610.0, "{ledger:?}");
        assert_eq!(ledger.stalled, if code == 0 { 0.0 } else { 3000.0 }, "a failure was to be noticed");
    }
}

#[test]
fn a_failure_that_is_noticed_at_once_costs_no_more_than_before() {
    let mut world = World::new(full(1, 2));
    world.up().steps(1, 10).after(5.0).crash(0, AppError);
    let ledger = ledger(&world);
    assert_eq!((ledger.kept, ledger.stalled), (5.0, 0.0));
}

#[test]
fn a_clock_that_is_off_moves_nothing_beyond_the_launch_and_now() {
    for (off, detect, kept) in [(7200, 0.0, 3610.0), (-7200, 3610.0, 0.0)] {
        let (mut world, _) = away(full(1, 2));
        world.report_of(later(world.now, off), 0, exit(1)).report(0, ReportBody::Stopped);
        assert_eq!(world.incidents()[0].cost.detect_seconds, Some(detect));
        assert_eq!(ledger(&world).kept, kept);
    }
}

#[test]
fn steps_that_are_told_late_count_from_when_they_were_made() {
    let mut world = World::new(full(1, 2));
    world.up();
    let started_at = world.now;
    world.report(0, points(started_at, 1, 10)).checkpoint(false, 4).after(10.0).crash(0, AppError);
    world.report(0, ReportBody::Started);
    let restarted_at = world.now;
    world.after(3600.0);
    // It loaded for 20 s, made steps 5 to 10 again, and then new ones.
    world.report(0, points(later(restarted_at, 20), 5, 100));
    let ledger = ledger(&world);
    assert_eq!((ledger.starting, ledger.redone, ledger.kept), (20.0, 6.0, 10.0 + 3600.0 - 26.0));
    let cost = world.incidents()[0].cost;
    assert_eq!((cost.load_seconds, cost.redo_seconds, cost.redone_steps), (Some(20.0), Some(6.0), Some(6)));
}

/// A job that made 10 steps in 10 s, saved this one, failed, and prints `first` as its first step `seconds` after the restart.
fn first_step_after_restart(
    saved: u64,
    first: u64,
    seconds: i64,
    loaded_after: Option<i64>,
) -> (Option<f64>, Option<f64>) {
    let mut world = World::new(full(1, 2));
    world.up();
    world.report(0, points(world.now, 1, 10)).checkpoint(false, saved).after(10.0).crash(0, AppError);
    world.report(0, ReportBody::Started);
    if let Some(after) = loaded_after {
        world.after(after as f64).checkpoint(true, saved).after((seconds - after) as f64);
    } else {
        world.after(seconds as f64);
    }
    world.steps(first, first);
    let cost = world.incidents()[0].cost;
    (cost.load_seconds, cost.redo_seconds)
}

#[test]
fn the_first_printed_step_took_time_to_make() {
    for (case, saved, first, loaded_after, want) in [
        ("it is the only lost one", 9, 10, None, (Some(29.0), Some(1.0))),
        ("the checkpoint was there long before", 9, 10, Some(5), (Some(29.0), Some(1.0))),
        ("it is beyond the lost ones", 8, 18, Some(5), (Some(20.0), Some(2.0))),
        ("nothing was lost", 10, 20, Some(5), (Some(20.0), Some(0.0))),
        ("more are to be made again", 5, 6, Some(5), (Some(29.0), None)),
    ] {
        assert_eq!(first_step_after_restart(saved, first, 30, loaded_after), want, "{case}");
    }
}

#[test]
fn a_start_that_is_told_late_is_no_launch_without_steps() {
    let mut world = World::new(full(1, 2));
    let task_id = world.task();
    world.give(Input::Created { task_id }).placed(&[]).all(&ReportBody::Ready);
    let started_at = world.now;
    // The server was away for longer than a launch may go without a step.
    world.now = later(started_at, 2400);
    world.report_of(started_at, 0, ReportBody::Started).report(0, points(started_at, 1, 2400));
    let launch = &world.launches(&world.task())[0];
    assert_eq!((launch.started_at, launch.proof.verdict), (Some(started_at), ProofVerdict::StartedFresh));
    assert!(world.events().iter().all(|event| !event.text.contains("no step")));
}

#[test]
fn a_launch_whose_late_start_is_followed_by_nothing_makes_no_step() {
    let mut world = World::new(full(1, 2));
    let task_id = world.task();
    world.give(Input::Created { task_id }).placed(&[]).all(&ReportBody::Ready);
    let started_at = world.now;
    world.now = later(started_at, 2400);
    world.report_of(started_at, 0, ReportBody::Started).after(1799.0);
    let verdict = |world: &World| world.launches(&world.task())[0].proof.verdict;
    assert_eq!(verdict(&world), ProofVerdict::Pending);
    world.after(1.0);
    assert_eq!(verdict(&world), ProofVerdict::NoProgress);
}

/// A restart of two replicas after a failure at step 10, of which nothing is heard for an hour: it trained from 20 s on, had its
/// lost step again at 26 s, and failed at 600 s.
fn told_late(order: [usize; 2], is_started: bool) -> (Ledger, Vec<Cost>, Option<Time>) {
    let mut world = World::new(full(2, 2));
    world.up();
    world.report(0, points(world.now, 1, 10)).checkpoint(false, 4).after(10.0).crash(0, AppError);
    let ordered_at = world.now;
    if is_started {
        world.all(&ReportBody::Started);
    }
    world.now = later(ordered_at, 3600);
    for index in order {
        let started = (!is_started).then_some(ReportBody::Started);
        for body in started.into_iter().chain((index == 0).then(|| points(later(ordered_at, 20), 5, 584))) {
            world.report_of(ordered_at, index, body);
        }
        if index == 1 {
            let ReportBody::Exited { exit, asked, step, phase, evidence, .. } = exit(1) else {
                unreachable!()
            };
            let exited = ReportBody::Exited { rank: 1, exit, asked, step, phase, evidence };
            world.report_of(later(ordered_at, 600), 1, exited);
        }
    }
    let costs = world.incidents().iter().map(|incident| incident.cost).collect();
    let started_at = world.chain.attempt.launch.started_at;
    (ledger(&world), costs, started_at.map(|at| Time(at.0 - ordered_at.0)))
}

#[test]
fn whichever_replica_is_heard_first_the_time_went_to_the_same() {
    for is_started in [true, false] {
        let told = told_late([0, 1], is_started);
        let Ledger { starting, redone, kept, stalled, .. } = told.0;
        // Each on two replicas; the first launch made steps for 10 s.
        let seconds = [starting, redone, kept, stalled].map(|sum| sum / 2.0);
        assert_eq!(seconds, [20.0, 6.0, 10.0 + 574.0, 3000.0], "started before: {is_started}");
        assert_eq!(told, told_late([1, 0], is_started), "started before: {is_started}");
    }
}

/// The server comes back after so many seconds and looks at the cluster.
fn back_after(world: &mut World, seconds: i64) {
    world.now = later(world.now, seconds);
    world.give(Input::Returned).placed(&[]);
}

/// An attempt of two replicas that has its resources, `ready` of them heard, when the server goes for an hour.
fn away_at_the_start(ready: usize) -> World {
    let mut world = World::new(full(2, 2));
    let task_id = world.task();
    world.give(Input::Created { task_id }).placed(&[]);
    for index in 0..ready {
        world.report(index, ReportBody::Ready);
    }
    back_after(&mut world, 3600);
    world
}

#[test]
fn a_start_that_nobody_could_hear_is_no_failure() {
    for ready in 0..=2 {
        let mut world = away_at_the_start(ready);
        for index in ready..2 {
            world.after(20.0).report(index, ReportBody::Ready);
        }
        world.after(19.0).report(0, ReportBody::Started).report(1, ReportBody::Started);
        assert_eq!(world.state().0, State::Running, "{ready} were ready");
        world.steps(1, 10).after(limits::START_SECONDS as f64);
        assert!(world.incidents().is_empty(), "{ready} were ready");
    }
}

#[test]
fn agents_that_are_not_heard_after_a_return_fail_the_start() {
    for ready in 0..=2 {
        let mut world = away_at_the_start(ready);
        assert_eq!(world.chain.wake_at(), Some(world.now.plus_seconds(limits::RETURN_SECONDS)));
        world.after(limits::RETURN_SECONDS as f64 - 1.0);
        assert_eq!(world.state().0, State::Starting, "one second early");
        world.after(1.0).after(limits::STOP_SECONDS as f64);
        let fault = &world.incidents()[0].fault;
        assert!(fault.contains("started no process within 600 s"), "{ready} were ready: {fault}");
        assert_eq!(fault.contains("never heard"), ready < 2, "{ready} were ready: {fault}");
    }
}

#[test]
fn steps_that_nobody_could_hear_were_made() {
    for is_heard in [true, false] {
        let mut world = World::new(full(1, 2));
        world.up();
        let started_at = world.now;
        back_after(&mut world, 2400);
        world.after(59.0);
        if is_heard {
            world.report(0, points(started_at, 1, 2400));
        }
        world.after(1.0);
        let silent = world.events().iter().any(|event| event.text.contains("made no step"));
        assert_eq!(silent, !is_heard);
        // What was said once is not taken back.
        back_after(&mut world, 10);
        let want = if is_heard { ProofVerdict::StartedFresh } else { ProofVerdict::NoProgress };
        let verdict = world.chain.attempt.launch.record(world.now).proof.verdict;
        assert_eq!(verdict, want);
    }
}

#[test]
fn a_stop_that_nobody_could_hear_is_waited_for() {
    for (is_heard, want) in [(true, Action::RestartInPlace), (false, Action::Resubmit)] {
        let mut world = World::new(full(2, 2));
        world.up().steps(1, 10);
        let evidence = world.line(0, AppError, "ValueError: bad batch");
        world.exit(0, 1, evidence).report(0, ReportBody::Stopped);
        back_after(&mut world, 600);
        assert!(world.incidents().is_empty(), "the other's word may be the cause");
        world.after(limits::RETURN_SECONDS as f64 - 1.0);
        if is_heard {
            world.report(1, ReportBody::Stopped);
        }
        world.after(1.0);
        assert_eq!(world.actions(), [want]);
    }
}

#[test]
fn a_removal_that_may_not_have_been_asked_for_is_not_forced_at_once() {
    let mut world = World::new(full(1, 2));
    world.up().ask(Request::Stop { force: false });
    let is_forced =
        |world: &World| matches!(world.chain.pending_effects()[..], [Effect::Delete { force: true, .. }]);
    back_after(&mut world, 3600);
    world.after(limits::STOP_SECONDS as f64 - 1.0);
    assert!(!is_forced(&world), "one second early");
    world.after(1.0);
    assert!(is_forced(&world));
}

#[test]
fn what_keeps_a_removed_attempt_is_told_once_and_shown_while_it_does() {
    let mut world = World::new(full(1, 2));
    world.up();
    let task_id = world.task();
    let kept = |text: &str| Input::Kept { task_id: task_id.clone(), text: Some(text.to_owned()) };
    let shown = |world: &World| world.chain.summary(world.now).kept;
    world.give(kept("an answer that comes too early"));
    assert_eq!(shown(&world), None, "nobody asked for a removal");
    world.ask(Request::Stop { force: false }).give(kept("a finalizer")).give(kept("a finalizer"));
    assert_eq!(shown(&world).as_deref(), Some("a finalizer"));
    let told = |world: &World| {
        world
            .events()
            .iter()
            .filter(|event| event.text.contains("is still on the cluster: a finalizer"))
            .count()
    };
    assert_eq!(told(&world), 1);
    world.give(Input::Kept { task_id: task_id.clone(), text: None });
    assert_eq!((shown(&world), told(&world)), (None, 1), "the finalizer was taken off");
    world.give(kept("a finalizer")).gone();
    assert_eq!((shown(&world), world.state().0), (None, State::Stopped));
}
