use crate::{
    chain::{testing::*, *},
    checks::{Check, CheckFinding, CheckOutcome},
    failure::{FailureType, Phase},
    record::{Action, Budget, ChecksState, LaunchChecks},
    sync::ReportBody,
};

pub(super) fn finding(check: Check, outcome: CheckOutcome) -> CheckFinding {
    let text = match outcome {
        CheckOutcome::Passed => "all is well",
        CheckOutcome::Skipped => "nothing to look at",
        CheckOutcome::Failed | CheckOutcome::TimedOut => "/vol/ckpt is missing",
    };
    CheckFinding {
        check,
        outcome,
        seconds: 0.01,
        text: text.to_owned(),
        remedy: outcome.is_bad().then(|| "Mount the volume.".to_owned()),
        measures: Vec::new(),
    }
}

fn told(check: Check, outcome: CheckOutcome) -> ReportBody {
    let other = if check == Check::Shm { Check::Clock } else { Check::Shm };
    ReportBody::Checked { findings: vec![finding(other, CheckOutcome::Passed), finding(check, outcome)] }
}

fn good() -> ReportBody {
    told(Check::Devices, CheckOutcome::Skipped)
}

fn checking(mut spec: JobSpec) -> JobSpec {
    spec.fault_tolerance.health_checks.enabled = true;
    spec
}

/// A world whose replicas are all ready and are asked to check.
fn asked(spec: JobSpec) -> World {
    let mut world = World::new(checking(spec));
    begin(&mut world);
    world
}

fn begin(world: &mut World) {
    let task_id = world.task();
    world.give(Input::Created { task_id }).placed(&[]).all(&ReportBody::Ready);
    assert!(is_asked(world, 0));
}

/// Whether a replica is to check and to start nothing.
fn is_asked(world: &World, index: usize) -> bool {
    matches!(world.desired(index), Desired::Run { launch } if launch.checks.is_some())
}

fn may_start(world: &World, index: usize) -> bool {
    matches!(world.desired(index), Desired::Run { launch } if launch.checks.is_none())
}

fn checks(world: &World, launch: usize) -> LaunchChecks {
    world.launches(&world.task())[launch].health_checks.clone().unwrap()
}

#[test]
fn training_starts_once_all_replicas_have_passed() {
    let mut world = asked(full(3, 2));
    assert_eq!(world.state().0, State::Starting);
    world.report(2, good()).report(0, good());
    // Told twice, as by an agent that was started again.
    world.report(0, good());
    for index in 0..3 {
        assert!(is_asked(&world, index), "one has not told: {:?}", world.desired(index));
    }
    assert_eq!(world.chain.summary(world.now).tail, "health checks: 2 of 3 replicas done");
    world.after(0.1).report(1, good());
    for index in 0..3 {
        assert!(may_start(&world, index), "{:?}", world.desired(index));
    }
    let record = checks(&world, 0);
    assert_eq!((record.state, record.told, record.failures.len()), (ChecksState::Passed, 3, 0));
    let [shm, devices] = record.checks.as_slice() else { panic!("{record:?}") };
    assert_eq!((shm.check, shm.passed, devices.skipped), (Check::Shm, 3, 3));
    let want = "Health checks of launch 0 passed on 3 replicas: shared memory. Skipped: devices.";
    assert!(world.events().iter().any(|event| event.text == want), "{:#?}", world.events());
    world.all(&ReportBody::Started);
    assert_eq!(world.state().0, State::Running);
}

#[test]
fn what_a_failed_check_is_and_what_follows() {
    use CheckOutcome::{Failed, TimedOut};
    for (check, outcome, failure_type, action) in [
        (Check::CheckpointDir, Failed, FailureType::EnvError, Action::FailFast),
        (Check::CheckpointDir, TimedOut, FailureType::EnvError, Action::FailFast),
        (Check::Shm, Failed, FailureType::EnvError, Action::FailFast),
        (Check::Clock, Failed, FailureType::EnvError, Action::FailFast),
        (Check::Command, Failed, FailureType::EnvError, Action::FailFast),
        (Check::Rendezvous, Failed, FailureType::NetFabric, Action::RestartInPlace),
        (Check::Devices, TimedOut, FailureType::HwNode, Action::Resubmit),
        (Check::KernelLog, Failed, FailureType::HwNode, Action::Resubmit),
    ] {
        let mut world = asked(full(3, 2));
        world.report(0, good()).report(1, told(check, outcome));
        assert!(is_asked(&world, 2), "{check:?}: the third may find the same");
        world.report(2, good());
        assert!(matches!(world.desired(0), Desired::Stop { launch: 0 }), "{check:?}");
        world.all(&ReportBody::Stopped);
        let [incident] = world.incidents().try_into().unwrap();
        assert_eq!((incident.failure_type, incident.decision.action), (failure_type, action), "{check:?}");
        assert_eq!(incident.phase, Phase::Starting);
        assert_eq!(incident.hint.as_deref(), Some("Mount the volume."));
        let root = incident.root.unwrap();
        assert_eq!((root.replica, root.node), (world.name(1), Some(node(2))));
        assert_eq!(incident.evidence[0].line, "/vol/ckpt is missing");
        assert_eq!(incident.evidence[0].signature, format!("check-{}", check.as_str()));
        let label = check.label();
        assert_eq!(
            incident.fault,
            format!("health check “{label}” failed in worker-0 on n2: /vol/ckpt is missing")
        );
        let avoided = if action == Action::Resubmit { vec![node(2)] } else { vec![] };
        assert_eq!(incident.decision.avoid, avoided, "{check:?}");
        let strikes = world.records.iter().filter(|record| matches!(record, Record::Strike(_))).count();
        let blamed = matches!(failure_type, FailureType::HwNode | FailureType::NetFabric);
        assert_eq!(strikes, usize::from(blamed), "{check:?}");
        assert!(!world.records.iter().any(|record| matches!(record, Record::Points(..))));
        assert_eq!(
            world.launches(&world.attempts()[0].task_id)[0].started_at,
            None,
            "training did not begin"
        );
    }
}

#[test]
fn the_same_fault_on_many_nodes_is_not_the_nodes_fault_and_is_charged_once_r33() {
    let mut world = asked(full(4, 2));
    for index in [2, 0, 3, 1] {
        world.report(index, told(Check::Devices, CheckOutcome::Failed));
    }
    world.all(&ReportBody::Stopped);
    let [incident] = world.incidents().try_into().unwrap();
    assert_eq!((incident.failure_type, incident.decision.action), (FailureType::EnvError, Action::FailFast));
    assert!(
        incident.fault.contains("failed in master-0 on n1, and in 3 replicas more"),
        "{}",
        incident.fault
    );
    assert_eq!(incident.evidence[0].replica, world.name(0));
    assert!(incident.hint.unwrap().ends_with("It is the same on 4 nodes, so no node is blamed."));
    assert!(!world.records.iter().any(|record| matches!(record, Record::Strike(_))));
    let mut basic = asked(basic(4, 2));
    for index in 0..4 {
        basic.report(index, told(Check::Devices, CheckOutcome::Failed));
    }
    basic.all(&ReportBody::Stopped);
    let decision = &basic.incidents()[0].decision;
    assert_eq!((decision.charged, decision.after, decision.avoid.len()), (Budget::TaskRestarts, 1, 0));
}

#[test]
fn a_failed_check_waits_for_the_others_no_longer_than_the_gathering_window() {
    let mut world = asked(full(3, 2));
    world.report(0, told(Check::KernelLog, CheckOutcome::Failed)).report(1, good());
    assert_eq!(world.chain.wake_at(), Some(world.now.plus_millis(limits::GATHER_MILLIS)));
    world.after(1.9);
    assert!(is_asked(&world, 2));
    world.after(0.1);
    assert!(matches!(world.desired(2), Desired::Stop { .. }));
    // The last one tells what it found all the same.
    world.report(2, told(Check::Shm, CheckOutcome::Failed)).all(&ReportBody::Stopped);
    let [incident] = world.incidents().try_into().unwrap();
    assert_eq!(incident.failure_type, FailureType::HwNode);
    assert_eq!(checks(&world, 0).state, ChecksState::Failed);
}

#[test]
fn every_attempt_is_checked_and_a_restart_in_place_only_after_what_outlives_processes() {
    for (failure_type, again) in
        [(FailureType::AppError, false), (FailureType::CommHang, false), (FailureType::NetFabric, true)]
    {
        let mut world = asked(full(2, 2));
        world.all(&good()).all(&ReportBody::Started).steps(1, 5).crash(0, failure_type);
        assert_eq!(world.actions(), [Action::RestartInPlace]);
        assert_eq!(is_asked(&world, 0), again, "{failure_type}");
        if again {
            world.all(&good());
        }
        assert!(may_start(&world, 1));
        world.all(&ReportBody::Started).steps(6, 8).crash(1, FailureType::HwNode);
        world.gone();
        begin(&mut world);
        world.all(&good());
        assert!(may_start(&world, 0), "attempt 2 was checked as well");
    }
}

#[test]
fn checks_that_did_not_pass_are_made_again_in_place() {
    let mut spec = full(2, 2);
    spec.fault_tolerance.policy.policy_type = "on_any_failure".to_owned();
    let mut world = asked(spec);
    world.report(0, good()).report(1, told(Check::Shm, CheckOutcome::Failed)).all(&ReportBody::Stopped);
    assert_eq!(world.actions(), [Action::RestartInPlace]);
    assert!(is_asked(&world, 0), "{:?}", world.desired(0));
    world.all(&good()).all(&ReportBody::Started);
    assert_eq!(world.state().0, State::Running);
    let states: Vec<_> = (0..2).map(|launch| checks(&world, launch).state).collect();
    assert_eq!(states, [ChecksState::Failed, ChecksState::Passed]);
}

#[test]
fn an_agent_that_does_not_know_checks_counts_as_checked() {
    let mut world = asked(full(2, 2));
    world.report(0, ReportBody::Started);
    assert!(is_asked(&world, 1));
    world.report(1, good());
    assert!(may_start(&world, 1));
    world.report(1, ReportBody::Started);
    assert_eq!(world.state().0, State::Running);
}

#[test]
fn a_replica_that_never_tells_fails_at_the_start_limit_and_one_that_is_silent_does_not() {
    let mut world = asked(full(2, 2));
    world.report(0, good());
    let mut silent = World::new(checking(full(2, 2)));
    begin(&mut silent);
    silent.report(0, good());
    let (task_id, replica, since) = (silent.task(), Some(silent.name(1)), silent.now);
    silent.give(Input::Silent { task_id, replica, since });
    world.after(limits::START_SECONDS as f64 - 1.0);
    assert_eq!(world.state().0, State::Starting);
    world.after(1.0).all(&ReportBody::Stopped);
    let fault = &world.incidents()[0].fault;
    assert!(fault.contains("worker-0 did not tell of its health checks within 600 s"), "{fault}");
    silent.after(limits::START_SECONDS as f64 + 1.0);
    assert!(silent.incidents().is_empty(), "silence proves nothing");
}

#[test]
fn a_replica_that_is_lost_while_it_checks_is_that_failure() {
    let mut world = asked(full(2, 2));
    world.report(0, good()).placed(&[(1, EndReason::NodeLost("no heartbeat".to_owned()))]);
    world.report(0, ReportBody::Stopped);
    assert_eq!(world.incidents()[0].failure_type, FailureType::HwNode);
    assert_eq!(world.actions(), [Action::Resubmit]);
    let mut stopped = asked(full(2, 2));
    stopped.ask(Request::Stop { force: false });
    assert!(matches!(stopped.desired(0), Desired::Exit));
    stopped.report(0, told(Check::Shm, CheckOutcome::Failed)).observe(Observation::Absent);
    assert_eq!((stopped.state().0, stopped.incidents().len()), (State::Stopped, 0));
}

#[test]
fn resources_that_a_queue_gave_anew_are_checked() {
    let mut world = asked(full(2, 2));
    world.all(&good()).all(&ReportBody::Started);
    let queue = crate::record::Queue::of(crate::record::QueueReason::Requeued, "others come first");
    world.observe(Observation::Suspended(queue)).placed(&[]).all(&ReportBody::Ready);
    assert!(is_asked(&world, 0), "{:?}", world.desired(0));
}

#[test]
fn what_an_agent_says_is_bounded() {
    let mut world = asked(full(1, 0));
    let long = CheckFinding {
        text: "x".repeat(100_000),
        seconds: f64::NAN,
        remedy: Some("y".repeat(100_000)),
        ..finding(Check::Command, CheckOutcome::Failed)
    };
    world.report(0, ReportBody::Checked { findings: vec![long; 1000] }).all(&ReportBody::Stopped);
    let record = checks(&world, 0);
    assert_eq!((record.failures.len(), record.checks[0].failed), (1, 1));
    assert_eq!(record.failures[0].finding.text.len(), crate::checks::limits::TEXT_CHARS);
    assert_eq!(record.failures[0].finding.seconds, 0.0);
    assert!(world.incidents()[0].fault.chars().count() <= crate::classify::MAX_LINE_CHARS);
}

#[test]
fn a_chain_of_before_there_were_checks_starts_without_them() {
    let mut world = asked(full(2, 2));
    let mut stored = serde_json::to_value(&world.chain).unwrap();
    let launch = stored["attempt"]["launch"].as_object_mut().unwrap();
    assert!(launch.remove("checks").is_some());
    world.chain = serde_json::from_value(stored).unwrap();
    assert!(may_start(&world, 0));
    world.all(&ReportBody::Started);
    assert_eq!(world.state().0, State::Running);
}
