use super::*;

fn point(step: u64, loss: Option<f64>) -> Point {
    Point { step, at: Time(step as i64), loss, samples: None, total: None }
}

fn event(loaded: bool, step: u64) -> CheckpointEvent {
    CheckpointEvent { at: Time(step as i64), loaded, step: Some(step), path: None }
}

/// A job that ran to step 1,000 with a loss that falls from 10 to 1, and saved step 900.
fn history() -> History {
    let mut history = History::default();
    let mut launch = LaunchProgress::new(&history);
    for step in 1..=1000 {
        launch.take_point(&mut history, 0, &point(step, Some(10.0 - 9.0 * step as f64 / 1000.0)));
    }
    launch.take_checkpoint(&mut history, &event(false, 900));
    history
}

fn next_launch(history: &mut History, loaded: Option<u64>, points: &[Point]) -> Proof {
    let mut launch = LaunchProgress::new(history);
    launch.take_resources(Time(0), 2);
    if let Some(step) = loaded {
        launch.take_checkpoint(history, &event(true, step));
    }
    for point in points {
        launch.take_point(history, 0, point);
    }
    if let Some(last) = points.last() {
        launch.take_checkpoint(history, &event(false, last.step));
    }
    launch.proof(false)
}

#[test]
fn four_checks_make_a_recovery() {
    let proof = next_launch(&mut history(), Some(900), &[point(901, Some(1.9)), point(950, Some(1.5))]);
    assert_eq!(proof.verdict, ProofVerdict::Resumed);
    assert_eq!((proof.checkpoint.step, proof.checkpoint.expected), (Some(900), Some(900)));
    assert_eq!((proof.progress.step, proof.progress.loss), (Some(901), Some(1.9)));
    assert_eq!(proof.new_checkpoint.step, Some(950));
}

#[test]
fn a_program_that_does_not_say_what_it_loaded_is_known_by_its_first_step() {
    for (first, ok, want) in [
        (901, Some(true), ProofVerdict::Resumed),
        (601, Some(false), ProofVerdict::OlderCheckpoint),
        (1, Some(false), ProofVerdict::RestartedFromZero),
    ] {
        let mut history = history();
        let loss = 10.0 - 9.0 * first as f64 / 1000.0;
        let proof = next_launch(&mut history, None, &[point(first, Some(loss)), point(960, Some(loss))]);
        assert_eq!((proof.checkpoint.ok, proof.verdict), (ok, want), "{first}");
    }
}

#[test]
fn a_loss_that_jumps_or_is_no_number_is_not_healthy() {
    for (loss, want) in [
        (Some(2.3), ProofVerdict::Resumed),
        (Some(9.0), ProofVerdict::LossJumped),
        (Some(0.5), ProofVerdict::Resumed),
        (Some(f64::NAN), ProofVerdict::LossJumped),
        (None, ProofVerdict::LossJumped),
    ] {
        let points: Vec<_> = (901..=910).map(|step| point(step, loss)).collect();
        assert_eq!(next_launch(&mut history(), Some(900), &points).verdict, want, "{loss:?}");
    }
}

#[test]
fn the_first_launch_starts_fresh_and_one_without_a_step_makes_no_progress() {
    let mut history = History::default();
    let mut launch = LaunchProgress::new(&history);
    assert_eq!(launch.proof(false).verdict, ProofVerdict::Pending);
    assert_eq!(launch.proof(true).verdict, ProofVerdict::NoProgress);
    launch.take_resources(Time(0), 2);
    launch.take_point(&mut history, 0, &point(1, None));
    assert_eq!(launch.proof(true).verdict, ProofVerdict::StartedFresh);
    let mut silent = LaunchProgress::new(&history);
    silent.end();
    assert_eq!(silent.proof(false).verdict, ProofVerdict::NoProgress);
}

#[test]
fn the_oldest_checkpoint_that_any_replica_loaded_counts() {
    let mut history = history();
    let mut launch = LaunchProgress::new(&history);
    launch.take_checkpoint(&mut history, &event(true, 900));
    launch.take_checkpoint(&mut history, &event(true, 800));
    assert_eq!(launch.proof(false).checkpoint.ok, Some(false));
}

#[test]
fn absurd_numbers_are_no_points() {
    let absurd = |step, loss, total| as_point(&Point { loss, total, ..point(step, None) });
    for (step, loss, total, want) in [
        (7, Some(0.5), Some(9), Some((7, Some(0.5), Some(9)))),
        (MAX_STEP, Some(-MAX_LOSS), Some(MAX_STEP), Some((MAX_STEP, Some(-MAX_LOSS), Some(MAX_STEP)))),
        (MAX_STEP + 1, Some(0.5), None, None),
        (i64::MAX as u64, Some(0.5), None, None),
        (u64::MAX, None, None, None),
        (7, Some(1e308), Some(0), Some((7, None, None))),
        (7, Some(f64::NAN), Some(u64::MAX), Some((7, None, None))),
        (7, Some(f64::NEG_INFINITY), None, Some((7, None, None))),
    ] {
        let got = absurd(step, loss, total).map(|point| (point.step, point.loss, point.total));
        assert_eq!(got, want, "{step} {loss:?} {total:?}");
    }
}

#[test]
fn what_is_remembered_of_losses_is_bounded_and_keeps_the_newest() {
    let history = history();
    assert!(history.losses.len() <= MAX_LOSSES);
    assert_eq!(history.losses.last().map(|(step, _)| *step), Some(1000));
    assert!(history.losses.windows(2).all(|pair| pair[0].0 < pair[1].0));
}
