//! The save before the end: who is told, until when, what counts, and what follows.

use crate::{
    chain::{testing::*, *},
    failure::FailureType::AppError,
    record::{AttemptCause, AttemptResult, ExitCheckpointRecord, ExitReason, SaveOutcome},
    sync::{ExitNotice, ReportBody, SaveReport},
};

const WAIT: u64 = 600;

/// A job with two task restarts and Exit ckpt Notification, which runs.
fn saver(replicas: u32) -> World {
    let mut spec = full(replicas, 2);
    spec.fault_tolerance.exit_checkpoint.enabled = true;
    let mut world = World::new(spec);
    world.up().steps(1, 10);
    world
}

fn said(outcome: SaveOutcome, step: Option<u64>) -> SaveReport {
    let path = step.map(|step| format!("/ckpt/{step}"));
    SaveReport { reason: ExitReason::Stopped, signalled: false, outcome, step, path, message: None }
}

impl World {
    fn says(&mut self, index: usize, outcome: SaveOutcome, step: Option<u64>) -> &mut Self {
        self.report(index, ReportBody::Save { save: said(outcome, step) })
    }

    /// The agent of a replica is told to end, and tells its program.
    fn signalled(&mut self, index: usize) -> &mut Self {
        let reason = ExitReason::Preempted;
        let save = SaveReport { reason, signalled: true, ..said(SaveOutcome::Saving, None) };
        self.report(index, ReportBody::Save { save })
    }

    fn stop(&mut self) -> &mut Self {
        self.ask(Request::Stop { force: false })
    }

    fn notice(&self, index: usize) -> Option<ExitNotice> {
        match self.desired(index) {
            Desired::Save { launch: 0, notice } => Some(notice),
            _ => None,
        }
    }

    fn save(&self) -> ExitCheckpointRecord {
        self.attempts().last().unwrap().exit_checkpoint.clone().unwrap()
    }

    fn removes(&self, forced: bool) -> bool {
        matches!(self.effects.as_slice(), [Effect::Delete { force, .. }] if *force == forced)
    }
}

#[test]
fn a_stop_tells_all_replicas_at_once_and_waits_until_each_has_saved() {
    let mut world = saver(2);
    let deadline_at = world.now.plus_seconds(WAIT);
    world.stop();
    assert_eq!(world.effects, []);
    assert_eq!(world.state().0, State::Saving);
    assert_eq!(world.chain.summary(world.now).tail, "at most 10 min left");
    assert_eq!(world.chain.summary(world.now).saving_until, Some(deadline_at));
    for index in 0..2 {
        assert_eq!(world.notice(index), Some(ExitNotice { reason: ExitReason::Stopped, deadline_at }));
    }
    assert_eq!((world.save().outcome, world.save().notified_at), (SaveOutcome::Saving, None));
    world.says(0, SaveOutcome::Saving, None).says(1, SaveOutcome::Saving, None);
    assert_eq!(world.save().notified_at, Some(world.now));
    world.after(61.0).says(0, SaveOutcome::Saved, Some(12));
    assert_eq!(world.chain.summary(world.now).tail, "at most 9 min left");
    assert!(world.effects.is_empty() && world.notice(1).is_some(), "one has not saved yet");
    world.says(1, SaveOutcome::Saved, Some(12));
    assert!(world.removes(false));
    assert_eq!((world.state().0, world.desired(0)), (State::Stopping, Desired::Exit));
    let save = world.save();
    assert_eq!(
        (save.outcome, save.step, save.path.as_deref()),
        (SaveOutcome::Saved, Some(12), Some("/ckpt/12"))
    );
    assert_eq!(world.chain.summary(world.now).saved_step, Some(12));
    world.observe(Observation::Absent);
    assert_eq!(world.state().0, State::Stopped);
    assert_eq!(world.save(), save, "it stays");
}

#[test]
fn the_next_attempt_expects_what_was_saved_before_the_end() {
    let mut world = saver(1);
    world.stop().says(0, SaveOutcome::Saved, Some(10)).observe(Observation::Absent);
    world.ask(Request::Resubmit).up();
    assert_eq!(world.launches(&world.task())[0].proof.checkpoint.expected, Some(10));
    assert_eq!(world.attempts()[1].exit_checkpoint, None);
}

#[test]
fn what_replicas_say_comes_to_the_worst_that_matters() {
    use SaveOutcome::{Failed, NoAnswer, Saved, TimedOut, WrongAnswer};
    for (case, all, want, step) in [
        ("all saved", vec![(Saved, Some(12)), (Saved, Some(12))], Saved, Some(12)),
        ("the step that both have", vec![(Saved, Some(13)), (Saved, Some(12))], Saved, Some(12)),
        ("only one of them listens", vec![(NoAnswer, None), (Saved, Some(12))], Saved, Some(12)),
        ("saved without a step", vec![(Saved, None), (NoAnswer, None)], Saved, None),
        ("none listens", vec![(NoAnswer, None), (NoAnswer, None)], NoAnswer, None),
        ("one failed", vec![(Saved, Some(12)), (Failed, None)], Failed, None),
        ("one was too slow", vec![(TimedOut, None), (Saved, Some(12))], TimedOut, None),
        ("one answers nonsense", vec![(WrongAnswer, None), (Saved, Some(12))], WrongAnswer, None),
        ("a failure says more than a delay", vec![(TimedOut, None), (Failed, None)], Failed, None),
    ] {
        let mut world = saver(2);
        world.stop();
        for (index, (outcome, step)) in all.into_iter().enumerate() {
            world.says(index, outcome, step);
        }
        assert!(world.removes(false), "{case}");
        assert_eq!((world.save().outcome, world.save().step), (want, step), "{case}");
        assert_eq!(world.chain.summary(world.now).saved_step, step, "{case}");
    }
}

#[test]
fn the_first_end_of_a_replica_counts_and_no_replica_can_force() {
    let mut world = saver(2);
    world.stop().says(0, SaveOutcome::Failed, None).says(0, SaveOutcome::Saved, Some(99));
    world.says(1, SaveOutcome::Forced, None);
    assert_eq!(world.state().0, State::Saving);
    world.says(1, SaveOutcome::Saved, Some(12));
    assert_eq!(world.save().outcome, SaveOutcome::Failed);
    assert_eq!(world.save().message.as_deref(), Some("master-0: not saved"));
}

#[test]
fn time_that_is_over_lets_the_stop_go_on() {
    let mut world = saver(3);
    world.stop().says(0, SaveOutcome::Saving, None).says(1, SaveOutcome::Saved, Some(12));
    let due = world.chain.wake_at().unwrap();
    assert_eq!(due, world.now.plus_seconds(WAIT + limits::SAVE_WORD_SECONDS));
    world.after(WAIT as f64);
    assert_eq!(
        (world.state().0, world.chain.summary(world.now).tail.as_str()),
        (State::Saving, "at most 0 s left")
    );
    world.after(limits::SAVE_WORD_SECONDS as f64);
    assert!(world.removes(false));
    let save = world.save();
    assert_eq!(save.outcome, SaveOutcome::TimedOut);
    assert_eq!(save.message.unwrap(), "master-0: not saved in time; worker-1: its agent was not heard");
}

#[test]
fn force_skips_a_save_and_ends_one_that_goes_on() {
    let mut world = saver(1);
    world.ask(Request::Stop { force: true });
    assert!(world.removes(true));
    assert_eq!((world.save().outcome, world.save().notified_at), (SaveOutcome::Forced, None));

    let mut world = saver(1);
    world.stop().says(0, SaveOutcome::Saving, None).stop();
    assert_eq!(world.state().0, State::Saving, "asked twice, told once");
    world.ask(Request::Stop { force: true });
    assert!(world.removes(true));
    assert_eq!(world.save().outcome, SaveOutcome::Forced);
    assert!(world.save().notified_at.is_some());
    world.says(0, SaveOutcome::Saved, Some(12));
    assert_eq!(world.save().outcome, SaveOutcome::Forced, "what comes later changes nothing");
    world.observe(Observation::Absent);
    assert_eq!(world.state().0, State::Stopped);
}

#[test]
fn a_deletion_saves_too_and_may_follow_a_stop() {
    let mut world = saver(1);
    world.ask(Request::Delete { force: false });
    assert_eq!(world.notice(0).unwrap().reason, ExitReason::Deleted);
    world.says(0, SaveOutcome::Saved, Some(11)).observe(Observation::Absent);
    assert_eq!(world.effects, [Effect::Forget]);

    let mut world = saver(1);
    let deadline_at = world.now.plus_seconds(WAIT);
    world.stop().after(10.0).ask(Request::Delete { force: false });
    assert_eq!(
        world.notice(0),
        Some(ExitNotice { reason: ExitReason::Stopped, deadline_at }),
        "the first word"
    );
    world.says(0, SaveOutcome::Failed, None).observe(Observation::Absent);
    assert_eq!(world.effects, [Effect::Forget]);
}

#[test]
fn a_signal_begins_the_save_everywhere_and_a_preemption_is_not_charged() {
    let mut world = saver(2);
    let deadline_at = world.now.plus_seconds(WAIT);
    world.signalled(1);
    assert_eq!(world.state().0, State::Saving);
    assert_eq!(world.notice(0), Some(ExitNotice { reason: ExitReason::Preempted, deadline_at }));
    world.after(5.0).signalled(0);
    assert_eq!(world.notice(0).unwrap().deadline_at, deadline_at, "the clock began with the first signal");
    world.says(0, SaveOutcome::Saved, Some(12)).says(1, SaveOutcome::Saved, Some(12));
    assert!(matches!(world.desired(0), Desired::Stop { launch: 0 }));
    assert!(world.effects.is_empty(), "the cluster has yet to say what it was");
    world.all(&ReportBody::Stopped);
    world.placed(&[(1, EndReason::Preempted("node drained".to_owned()))]);
    assert!(world.removes(false));
    assert_eq!(world.attempts()[0].result, Some(AttemptResult::Resubmitted));
    world.gone();
    assert_eq!(world.attempts()[1].cause, AttemptCause::Preemption);
    assert_eq!(world.chain.summary(world.now).budgets.task_restarts.used, 0);
    world.up();
    assert_eq!(world.launches(&world.task())[0].proof.checkpoint.expected, Some(12));
}

#[test]
fn the_cluster_says_afterwards_what_the_signal_was_for() {
    for (case, ended, cause) in [
        ("only its agent ended", Some(EndReason::Exited), AttemptCause::Preemption),
        ("the cluster says nothing", None, AttemptCause::Preemption),
        ("short of memory", Some(EndReason::OomKilled), AttemptCause::Failure),
        ("the node is lost", Some(EndReason::NodeLost("n2".to_owned())), AttemptCause::Failure),
    ] {
        let mut world = saver(2);
        world.signalled(1).says(0, SaveOutcome::Saved, Some(12)).says(1, SaveOutcome::Saved, Some(12));
        world.all(&ReportBody::Stopped);
        match ended {
            Some(reason) => world.placed(&[(1, reason)]).after(3.0),
            None => world.after(limits::STOP_SECONDS as f64),
        };
        world.gone();
        assert_eq!(world.attempts()[1].cause, cause, "{case}");
    }
}

#[test]
fn one_that_is_gone_keeps_nobody_from_saving() {
    let mut world = saver(3);
    world.placed(&[(2, EndReason::Preempted("drained".to_owned()))]);
    assert_eq!(world.state().0, State::Saving);
    assert!(world.notice(0).is_some() && world.notice(1).is_some());
    world.says(0, SaveOutcome::Saved, Some(12)).says(1, SaveOutcome::Saving, None);
    world.placed(&[
        (1, EndReason::Preempted("drained".to_owned())),
        (2, EndReason::Preempted("drained".to_owned())),
    ]);
    assert_eq!(world.save().outcome, SaveOutcome::Failed);
    assert_eq!(world.save().message.as_deref(), Some("worker-0: it ended while it saved"));
    world.gone();
    assert_eq!(world.attempts()[1].cause, AttemptCause::Preemption);
}

#[test]
fn a_persons_stop_while_it_saves_for_a_preemption_keeps_the_clock_and_ends_the_job() {
    let mut world = saver(2);
    let deadline_at = world.now.plus_seconds(WAIT);
    world.signalled(0).after(30.0).stop();
    assert_eq!(world.notice(1), Some(ExitNotice { reason: ExitReason::Preempted, deadline_at }));
    assert_eq!(world.state().0, State::Saving);
    world.says(0, SaveOutcome::Saved, Some(12)).says(1, SaveOutcome::Saved, Some(12));
    assert!(world.removes(false));
    world.gone();
    assert_eq!((world.state().0, world.attempts().len()), (State::Stopped, 1));
    assert_eq!(world.why_not(), "Stopped by user-1; a manual stop is never resubmitted.");
}

#[test]
fn a_queue_that_takes_the_resources_gets_them_after_the_save() {
    let mut world = saver(2);
    let taken = || Observation::Suspended(Queue::of(crate::record::QueueReason::Requeued, "others first"));
    world.observe(taken());
    assert_eq!(world.state().0, State::Saving);
    world.signalled(0).signalled(1).observe(taken());
    world.says(0, SaveOutcome::Saved, Some(12)).says(1, SaveOutcome::Saved, Some(12));
    assert_eq!(world.state().0, State::Queued);
    assert_eq!(world.save().outcome, SaveOutcome::Saved);
    assert_eq!((world.attempts().len(), world.desired(0)), (1, Desired::Wait));
    let launches = world.launches(&world.task());
    assert_eq!(launches.last().unwrap().steps.unwrap().last, 10);
}

#[test]
fn a_crash_while_it_saves_is_no_failure_of_its_own() {
    let mut world = saver(2);
    world.stop().says(0, SaveOutcome::Saving, None);
    let line = world.line(0, AppError, "ValueError");
    world.exit(0, 1, line).report(0, ReportBody::Stopped).says(1, SaveOutcome::NoAnswer, None);
    assert!(world.removes(false) && world.incidents().is_empty());
    assert_eq!(world.save().outcome, SaveOutcome::Failed);
    assert!(world.attempts()[0].failure_type.is_none());
}

#[test]
fn nobody_is_asked_to_save_where_nothing_could() {
    for (case, prepare) in [
        ("queued", (|_| {}) as fn(&mut World)),
        ("failing", |world| {
            let line = world.line(0, AppError, "ValueError");
            world.up().exit(0, 1, line);
        }),
        ("finished", |world| {
            world.up().report(0, ReportBody::Stopped);
        }),
    ] {
        let mut spec = full(1, 1);
        spec.fault_tolerance.exit_checkpoint.enabled = true;
        let mut world = World::new(spec);
        prepare(&mut world);
        world.stop();
        assert_eq!(world.state().0, State::Stopping, "{case}");
        assert_eq!(world.attempts()[0].exit_checkpoint, None, "{case}");
    }
    // And where the switch is off a signal changes nothing.
    let mut world = World::new(full(1, 1));
    world.up().signalled(0);
    assert_eq!(world.state().0, State::Running);
}

#[test]
fn a_server_that_comes_back_hears_the_agents_before_it_gives_them_up() {
    let mut world = saver(1);
    world.stop().says(0, SaveOutcome::Saving, None);
    world.now = world.now.plus_seconds(WAIT + 60);
    world.give(Input::Returned);
    assert_eq!(world.state().0, State::Saving);
    world.says(0, SaveOutcome::Saved, Some(12));
    assert_eq!(world.save().outcome, SaveOutcome::Saved);

    let mut world = saver(1);
    world.signalled(0).says(0, SaveOutcome::Saved, Some(12));
    world.now = world.now.plus_seconds(WAIT);
    world.give(Input::Returned).placed(&[(0, EndReason::OomKilled)]).after(3.0).gone();
    assert_eq!(world.attempts()[1].cause, AttemptCause::Failure, "the cluster's word came in time");
}
