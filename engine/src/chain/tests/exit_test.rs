//! A test of Exit ckpt Notification: what it comes to, what ends it, and that a program which ends because of it costs nothing.

use crate::{
    chain::{testing::*, *},
    failure::FailureType,
    record::{
        Action, AttemptCause, Budget, ExitTestRecord, ExitTestVerdict, LaunchCause, SaveOutcome, State,
        Substate,
    },
    sync::{ExitTestOrder, ExitTestReport, ReportBody},
};

const WAIT: u64 = 60;

/// A job that runs, with two task restarts and Exit ckpt Notification.
fn saver(replicas: u32, change: impl FnOnce(&mut JobSpec)) -> World {
    let mut spec = full(replicas, 2);
    spec.fault_tolerance.exit_checkpoint.enabled = true;
    spec.fault_tolerance.exit_checkpoint.max_wait_seconds = WAIT as u32;
    change(&mut spec);
    let mut world = World::new(spec);
    world.up().steps(1, 10);
    world
}

impl World {
    fn test(&mut self) -> &mut Self {
        self.ask(Request::TestExit)
    }

    fn tells(&mut self, index: usize, outcome: SaveOutcome, step: Option<u64>, millis: u64) -> &mut Self {
        let is_over = outcome != SaveOutcome::Saving;
        let number = self.tested().number;
        let test = ExitTestReport {
            number,
            received_millis: (outcome != SaveOutcome::NoAnswer).then_some(20),
            outcome,
            step,
            path: step.map(|step| format!("/ckpt/{step}")),
            message: (outcome == SaveOutcome::WrongAnswer).then(|| "answers 500".to_owned()),
            took_millis: is_over.then_some(millis),
        };
        self.report(index, ReportBody::ExitTest { test })
    }

    fn tested(&self) -> ExitTestRecord {
        *self.attempts().last().unwrap().exit_test.clone().unwrap()
    }

    fn order(&self, index: usize) -> Option<ExitTestOrder> {
        match self.desired(index) {
            Desired::Run { launch } => launch.exit_test,
            _ => None,
        }
    }

    fn refusal(&self) -> String {
        self.chain.refuses_exit_test().unwrap_or_default()
    }
}

#[test]
fn all_replicas_are_told_while_they_run_and_the_answers_are_kept() {
    let mut world = saver(2, |_| {});
    assert_eq!(world.refusal(), "");
    let began = world.now;
    world.test();
    let deadline_at = began.plus_seconds(WAIT);
    for index in 0..2 {
        assert_eq!(world.order(index), Some(ExitTestOrder { number: 1, deadline_at }));
    }
    assert_eq!(world.state().0, State::Running);
    assert_eq!(world.refusal(), "user-1 tests it already; one test at a time.");
    world.after(1.0).tells(0, SaveOutcome::Saving, None, 0).tells(1, SaveOutcome::Saving, None, 0);
    assert_eq!(world.tested().verdict, ExitTestVerdict::Running);
    assert_eq!(world.tested().replicas[0].received_at, Some(world.now));
    world.after(4.0).tells(0, SaveOutcome::Saved, Some(12), 5_020).tells(
        1,
        SaveOutcome::Saved,
        Some(12),
        4_000,
    );
    let test = world.tested();
    assert_eq!(
        (test.verdict, test.by.as_str(), test.ended_at),
        (ExitTestVerdict::Passed, "user-1", Some(world.now))
    );
    assert_eq!(test.text, "The test passed: 2 of 2 replicas saved, the slowest within 5 s.");
    assert_eq!(test.warnings, Vec::<String>::new());
    assert_eq!(test.replicas[0].seconds, Some(5.02));
    assert_eq!(test.replicas[0].path.as_deref(), Some("/ckpt/12"));
    assert_eq!((world.order(0), world.refusal().as_str()), (None, ""));
    assert_eq!(world.chain.summary(world.now).saved_step, Some(12), "it really saved");
    world.test();
    assert_eq!(world.order(0).unwrap().number, 2, "and it can be asked again");
}

#[test]
fn what_was_wrong_is_named_and_what_was_tight_is_warned_of() {
    use SaveOutcome::{Failed, NoAnswer, Saved, TimedOut, WrongAnswer};
    let all: [(_, _, _, &[&str]); 6] = [
        ([Saved, Failed], ExitTestVerdict::Failed, "The test failed. worker-0: not saved.", &[]),
        ([TimedOut, Saved], ExitTestVerdict::Failed, "The test failed. master-0: not saved in time.", &[]),
        (
            [Saved, WrongAnswer],
            ExitTestVerdict::Failed,
            "The test failed. worker-0: wrong answer: answers 500.",
            &[],
        ),
        ([NoAnswer, NoAnswer], ExitTestVerdict::Failed, "The test failed. master-0: no answer.", &[]),
        (
            [Saved, NoAnswer],
            ExitTestVerdict::Passed,
            "The test passed: 1 of 2 replicas saved, the slowest within 40 s.",
            &["The save took 40 s of the 1 min", "1 replica did not answer"],
        ),
        (
            [Saved, Saved],
            ExitTestVerdict::Passed,
            "The test passed: 2 of 2 replicas saved, the slowest within 40 s.",
            &["The save took 40 s of the 1 min", "was not named"],
        ),
    ];
    for (outcomes, verdict, text, warnings) in all {
        let mut world = saver(2, |_| {});
        let without_step = outcomes == [Saved, Saved];
        world.test();
        for (index, outcome) in outcomes.into_iter().enumerate() {
            let step = (outcome == Saved && !without_step).then_some(12);
            world.tells(index, outcome, step, 40_000);
        }
        let test = world.tested();
        assert_eq!((test.verdict, test.text.as_str()), (verdict, text));
        assert_eq!(test.warnings.len(), warnings.len(), "{:?}", test.warnings);
        for (told, want) in test.warnings.iter().zip(warnings) {
            assert!(told.contains(want), "{told}");
        }
        assert_eq!(world.state().0, State::Running, "{text}");
        assert_eq!(world.incidents(), []);
    }
}

#[test]
fn an_agent_that_does_not_begin_is_given_up_and_named() {
    let mut world = saver(2, |_| {});
    world.test().tells(0, SaveOutcome::Saved, Some(11), 900);
    assert_eq!(world.chain.wake_at(), Some(world.now.plus_seconds(limits::EXIT_TEST_BEGIN_SECONDS)));
    world.after(limits::EXIT_TEST_BEGIN_SECONDS as f64);
    let test = world.tested();
    assert_eq!(test.verdict, ExitTestVerdict::Passed);
    let silent = &test.replicas[0];
    assert_eq!((silent.replica.as_str(), silent.outcome), ("worker-0", Some(SaveOutcome::NoAnswer)));
    assert!(silent.message.as_ref().unwrap().contains("older Holdfast"), "{silent:?}");
}

#[test]
fn a_test_is_limited_in_time_and_a_server_that_was_away_gives_it_more() {
    let mut world = saver(1, |_| {});
    world.test().tells(0, SaveOutcome::Saving, None, 0);
    let due = world.now.plus_seconds(WAIT + limits::SAVE_WORD_SECONDS);
    assert_eq!(world.chain.wake_at(), Some(due));
    world.now = due.plus_seconds(100);
    world.give(Input::Returned);
    assert_eq!(world.tested().verdict, ExitTestVerdict::Running, "its agent may know more");
    world.after(limits::RETURN_SECONDS as f64);
    let test = world.tested();
    assert_eq!(test.verdict, ExitTestVerdict::Failed);
    assert_eq!(test.replicas[0].message.as_deref(), Some("it was still saving"));
    // One that was not told yet has all its time from then on.
    let mut untold = saver(1, |_| {});
    untold.test();
    let asked_at = untold.now;
    untold.now = asked_at.plus_seconds(WAIT + 5);
    untold.give(Input::Returned);
    let from = untold.now.plus_seconds(limits::RETURN_SECONDS);
    assert_eq!(untold.order(0).unwrap().deadline_at, from.plus_seconds(WAIT));
    untold.tells(0, SaveOutcome::Saving, None, 0).after(WAIT as f64);
    assert_eq!(untold.tested().verdict, ExitTestVerdict::Running);
}

#[test]
fn it_is_refused_with_the_reason() {
    let off = saver(1, |spec| spec.fault_tolerance.exit_checkpoint.enabled = false);
    assert!(off.refusal().contains("is off for this job"), "{}", off.refusal());
    let mut spec = full(1, 2);
    spec.fault_tolerance.exit_checkpoint.enabled = true;
    let mut queued = World::new(spec);
    assert_eq!(queued.refusal(), "It is queued. Only a program that runs can be told to save.");
    queued.test();
    assert!(queued.attempts()[0].exit_test.is_none());
    assert!(queued.events().last().unwrap().text.contains("It is queued."));
    let mut saving = saver(1, |_| {});
    saving.ask(Request::Stop { force: false });
    assert!(saving.refusal().contains("told to save already"), "{}", saving.refusal());
    let mut silent = saver(2, |_| {});
    let (task_id, replica, since) = (silent.task(), Some(silent.name(1)), silent.now);
    silent.give(Input::Silent { task_id, replica, since });
    assert!(silent.refusal().contains("worker-0 is not heard"), "{}", silent.refusal());
}

#[test]
fn a_real_end_wins_and_its_clock_is_its_own() {
    let mut world = saver(1, |_| {});
    world.test().tells(0, SaveOutcome::Saving, None, 0).after(50.0);
    world.ask(Request::Stop { force: false });
    assert!(world.tested().text.contains("a real end came first"), "{}", world.tested().text);
    assert_eq!(world.tested().verdict, ExitTestVerdict::CutShort);
    let Desired::Save { notice, .. } = world.desired(0) else { panic!("{:?}", world.desired(0)) };
    assert_eq!(notice.deadline_at, world.now.plus_seconds(WAIT));
    let mut forced = saver(1, |_| {});
    forced.test().ask(Request::Stop { force: true });
    assert_eq!(forced.tested().verdict, ExitTestVerdict::CutShort);
    assert_eq!(forced.desired(0), Desired::Exit);
}

#[test]
fn a_program_that_ends_because_of_the_test_is_started_again_and_nothing_is_charged() {
    // Also where nothing else would be restarted.
    for failover in [true, false] {
        for (case, code, saved_first, later) in [
            ("it saves and exits", 0, true, 3.0),
            ("it exits with an error when told", 9, false, 0.0),
            ("it saves and exits with an error", 1, true, 10.0),
        ] {
            let mut world = saver(2, |spec| {
                if !failover {
                    spec.fault_tolerance.auto_failover = false;
                    spec.fault_tolerance.policy.enabled = false;
                    spec.fault_tolerance.hang_detection.enabled = false;
                }
            });
            world.test();
            for index in 0..2 {
                world.tells(index, SaveOutcome::Saving, None, 0);
            }
            if saved_first {
                world.tells(0, SaveOutcome::Saved, Some(10), 900).tells(1, SaveOutcome::Saved, Some(10), 900);
            }
            world.after(later).exit(0, code, Vec::new()).report(0, ReportBody::Stopped);
            assert_eq!(world.desired(1), Desired::Stop { launch: 0 }, "{case}");
            world.exit(1, code, Vec::new()).report(1, ReportBody::Stopped).after(3.0);
            let incident = world.incidents().pop().unwrap();
            assert_eq!(incident.decision.rule, "exit-test", "{case}");
            assert_eq!(
                (incident.decision.action, incident.decision.charged),
                (Action::RestartInPlace, Budget::None),
                "{case}"
            );
            assert!(incident.decision.reason.contains("not charged"), "{}", incident.decision.reason);
            assert!(incident.fault.contains("a test told it to save"), "{}", incident.fault);
            let budgets = world.chain.summary(world.now).budgets;
            assert_eq!((budgets.task_restarts.used, budgets.in_place_restarts.used), (0, 0), "{case}");
            let Desired::Run { launch } = world.desired(0) else { panic!("{case}") };
            assert_eq!((launch.number, launch.exit_test), (1, None), "{case}");
            world.all(&ReportBody::Started);
            assert_eq!(world.launches(&world.task()).last().unwrap().cause, LaunchCause::ExitTest, "{case}");
            assert_eq!(world.attempts().last().unwrap().failure_type, None, "{case}");
            let verdict = if saved_first { ExitTestVerdict::Passed } else { ExitTestVerdict::Failed };
            assert_eq!(world.tested().verdict, verdict, "{case}");
            assert_eq!(world.state().0, State::Running);
        }
    }
}

#[test]
fn what_is_not_the_tests_doing_is_a_failure_as_ever() {
    let told = |world: &mut World| {
        world.test().tells(0, SaveOutcome::Saved, Some(10), 900);
    };
    // Long after it, and by itself.
    let mut later = saver(1, |_| {});
    told(&mut later);
    later.after(limits::EXIT_TEST_AFTER_SECONDS as f64 + 1.0);
    later.exit(0, 1, Vec::new()).all(&ReportBody::Stopped).after(3.0);
    assert_ne!(later.incidents()[0].decision.rule, "exit-test");
    // Its hardware.
    let mut broken = saver(1, |_| {});
    told(&mut broken);
    broken.crash(0, FailureType::HwNode);
    assert_eq!(broken.incidents()[0].failure_type, FailureType::HwNode);
    assert_eq!(broken.incidents()[0].decision.charged, Budget::TaskRestarts);
    // It was not told: nobody listens, or its agent had not begun. What ends well has finished.
    for told in [Some(SaveOutcome::NoAnswer), None] {
        let mut unheard = saver(1, |_| {});
        unheard.test();
        if let Some(outcome) = told {
            unheard.tells(0, outcome, None, 5);
        }
        unheard.after(20.0).exit(0, 0, Vec::new()).report(0, ReportBody::Stopped);
        assert_eq!(unheard.state().0, State::Succeeded, "{told:?}");
        let mut failed = saver(1, |_| {});
        failed.test();
        if let Some(outcome) = told {
            failed.tells(0, outcome, None, 5);
        }
        failed.after(5.0).exit(0, 1, Vec::new()).all(&ReportBody::Stopped).after(3.0);
        assert_ne!(failed.incidents()[0].decision.rule, "exit-test", "{told:?}");
    }
    // Its work is done.
    let mut done = saver(1, |_| {});
    done.steps(11, 200);
    told(&mut done);
    done.exit(0, 0, Vec::new()).report(0, ReportBody::Stopped);
    assert_eq!(done.state().0, State::Succeeded);
}

#[test]
fn a_program_that_does_nothing_but_save_does_not_hang_and_is_watched_again_after_it() {
    let mut world = saver(1, |spec| {
        spec.fault_tolerance.exit_checkpoint.max_wait_seconds = 600;
        let hang = &mut spec.fault_tolerance.hang_detection;
        (hang.interval_seconds, hang.window_seconds, hang.start_after_seconds) = (10, 60, 0);
    });
    let stands = |world: &mut World, seconds: i64| {
        let since = Time(world.now.0 - seconds * 1_000_000);
        let ranks = vec![super::hangs::still(0, "write", since, world.now)];
        world.report(0, ReportBody::Still { ranks });
    };
    world.test().tells(0, SaveOutcome::Saving, None, 0).after(180.0);
    stands(&mut world, 180);
    assert!(world.incidents().is_empty(), "it saves");
    world.tells(0, SaveOutcome::Saved, Some(10), 180_000).after(30.0);
    stands(&mut world, 210);
    assert!(world.incidents().is_empty(), "half a window since the save");
    // So long a stretch was come through once: what follows has to be longer than that to be a hang.
    world.steps(11, 12).after(900.0);
    stands(&mut world, 890);
    assert_eq!(world.state().1, Some(Substate::SuspectedHang), "it is looked at again");
}

#[test]
fn an_error_of_the_save_itself_is_the_tests_doing() {
    let mut world = saver(1, |_| {});
    world.test().tells(0, SaveOutcome::Saving, None, 0).crash(0, FailureType::AppError);
    let incident = world.incidents().pop().unwrap();
    assert_eq!((incident.decision.rule.as_str(), incident.decision.charged), ("exit-test", Budget::None));
    assert!(incident.evidence.iter().any(|line| line.line.contains("ValueError")), "its lines are kept");
}

#[test]
fn where_a_replica_does_not_stop_it_is_resubmitted_and_not_charged() {
    let mut world = saver(2, |_| {});
    world.test().tells(0, SaveOutcome::Saving, None, 0).tells(1, SaveOutcome::Saving, None, 0);
    world.exit(0, 9, Vec::new()).report(0, ReportBody::Stopped).after(3.0);
    let decision = world.incidents().pop().unwrap().decision;
    assert_eq!((decision.rule.as_str(), decision.action), ("exit-test", Action::None), "it waits");
    assert!(decision.reason.contains("Waits until"), "{}", decision.reason);
    world.after(limits::STOP_SECONDS as f64).gone();
    let next = world.attempts().pop().unwrap();
    assert_eq!(next.cause, AttemptCause::ExitTest);
    let decision = world.incidents().pop().unwrap().decision;
    assert!(decision.reason.contains("did not stop in time"), "{}", decision.reason);
    assert_eq!(decision.next_task_id, Some(next.task_id), "what is shown leads to it");
    assert_eq!(world.chain.summary(world.now).budgets.task_restarts.used, 0);
}

#[test]
fn a_person_who_stops_a_job_that_ended_by_its_test_stops_it() {
    let mut world = saver(1, |_| {});
    world.test().tells(0, SaveOutcome::Saving, None, 0).exit(0, 9, Vec::new());
    world.ask(Request::Stop { force: false }).report(0, ReportBody::Stopped).observe(Observation::Absent);
    assert_eq!(world.state().0, State::Stopped);
}

#[test]
fn many_replicas_leave_a_bounded_record_with_what_matters_first() {
    let mut world = saver(200, |_| {});
    world.test();
    for index in 0..200 {
        let outcome = if index == 150 { SaveOutcome::Failed } else { SaveOutcome::Saved };
        world.tells(index, outcome, (index != 150).then_some(10), 100);
    }
    let test = world.tested();
    assert_eq!((test.replicas_total, test.replicas.len()), (200, limits::EXIT_TEST_REPLICAS));
    assert_eq!(test.replicas[0].replica.as_str(), "worker-149");
}
