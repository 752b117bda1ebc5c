//! A queue takes an attempt's resources back and gives it others later, and what keeps one that has its nodes from starting.

use crate::{
    chain::{testing::*, *},
    failure::{FailureType, Role},
    record::{Action, LaunchCause, ProofVerdict, QueueReason},
    sync::ReportBody,
};

fn suspended(text: &str) -> Observation {
    Observation::Suspended(Queue::of(QueueReason::Requeued, text.to_owned()))
}

#[test]
fn an_attempt_that_its_queue_takes_back_queues_again_as_itself_and_costs_nothing_s53() {
    for spec in [spec(2), basic(2, 0), full(2, 2)] {
        let mut world = World::new(spec);
        world.up().steps(1, 10).checkpoint(false, 10);
        for round in 1..=3 {
            world.observe(suspended("others come first")).observe(suspended("others come first"));
            assert_eq!(world.state(), (State::Queued, None));
            assert!(matches!(world.desired(0), Desired::Wait), "nothing is started meanwhile");
            assert!(world.effects.is_empty() && world.chain.pending_effects().is_empty());
            let task = world.task();
            world.after(3_600.0).up();
            assert_eq!((world.task(), world.state().0), (task, State::Running));
            assert_eq!(world.chain.launch_number(), round);
            let saved = u64::from(round) * 10;
            world.checkpoint(true, saved).steps(saved + 1, saved + 10).checkpoint(false, saved + 10);
        }
        assert!(world.incidents().is_empty());
        assert_eq!(world.attempts().len(), 1);
        let budgets = world.chain.summary(world.now).budgets;
        assert_eq!((budgets.task_restarts.used, budgets.in_place_restarts.used), (0, 0));
        let launches = world.launches(&world.task());
        let causes: Vec<_> = launches.iter().map(|launch| launch.cause).collect();
        assert_eq!(causes[..2], [LaunchCause::Initial, LaunchCause::Requeue]);
        assert!(launches[..3].iter().all(|launch| launch.ended_at.is_some()));
        assert!(launches[1..].iter().all(|launch| launch.proof.verdict == ProofVerdict::Resumed));
    }
}

#[test]
fn what_the_processes_say_as_their_pods_are_taken_is_no_failure() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10).exit(1, -15, vec![]).report(1, ReportBody::Stopped);
    world.after(0.5).observe(suspended("preempted"));
    // What they still say is about a launch that is over.
    let task_id = world.task();
    let body = ReportBody::Stopped;
    let report = Report { sequence: 1_000, at: world.now, launch: 0, body };
    world.give(Input::Report { task_id, replica: world.name(0), report });
    world.after(60.0);
    assert_eq!(world.state().0, State::Queued);
    assert!(world.incidents().is_empty());
}

#[test]
fn what_one_replica_notices_of_the_end_of_another_as_their_pods_are_taken_is_no_failure() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10);
    let mut lines = world.line(1, FailureType::NetFabric, "RuntimeError: Connection closed by peer");
    lines.iter_mut().for_each(|line| line.role = Role::Cascade);
    world.exit(0, -15, vec![]).report(0, ReportBody::Stopped);
    world.exit(1, 1, lines).report(1, ReportBody::Stopped);
    world.after(0.5).observe(suspended("preempted")).after(60.0);
    assert_eq!(world.state().0, State::Queued);
    assert!(world.incidents().is_empty(), "{:?}", world.incidents());
}

#[test]
fn an_attempt_that_had_failed_before_it_was_taken_back_has_failed() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10);
    let evidence = world.line(1, FailureType::AppError, "ValueError: bad batch");
    // Its other replica does not stop, so the restart in its place has to wait.
    world.exit(1, 1, evidence).report(1, ReportBody::Stopped).after(3.0).observe(suspended("preempted"));
    assert_eq!(world.actions(), [Action::Resubmit], "{:?}", world.incidents());
    assert!(matches!(world.desired(0), Desired::Exit));
}

#[test]
fn one_that_was_never_started_keeps_its_launch() {
    let mut world = World::new(full(2, 2));
    let task_id = world.task();
    world.give(Input::Created { task_id }).placed(&[]).observe(suspended("pods were not ready in time"));
    assert_eq!(world.state().0, State::Queued);
    world.after(3_600.0);
    assert!(world.incidents().is_empty(), "its time to start is over with the nodes it had");
    world.up();
    assert_eq!((world.chain.launch_number(), world.state().0), (0, State::Running));
}

#[test]
fn agents_that_went_with_their_pods_do_not_hold_the_start_limit() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10).observe(suspended("preempted"));
    for index in 0..2 {
        let silent =
            Input::Silent { task_id: world.task(), replica: Some(world.name(index)), since: world.now };
        world.give(silent);
    }
    world.after(3_600.0).placed(&[]).after(limits::START_SECONDS as f64).after(limits::STOP_SECONDS as f64);
    assert_eq!(world.incidents().len(), 1, "its pods came and no agent did");
}

#[test]
fn agents_that_outlive_a_suspension_stop_what_was_and_go_on_with_the_others() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10).checkpoint(false, 10).observe(suspended("preempted"));
    assert!(matches!(world.desired(0), Desired::Wait), "its pod may go next");
    // It was taken back before the pod of the first went; that of the second was made anew.
    world.placed(&[]).report(1, ReportBody::Ready);
    assert_eq!((world.desired(0), world.desired(1)), (Desired::Stop { launch: 0 }, Desired::Wait));
    world.after(60.0).report(0, ReportBody::Ready);
    for index in 0..2 {
        assert!(matches!(world.desired(index), Desired::Run { launch } if launch.number == 1));
    }
    world.all(&ReportBody::Started).after(60.0);
    assert_eq!((world.state().0, world.chain.launch_number()), (State::Running, 1));
    assert!(world.incidents().is_empty(), "{:?}", world.incidents());
}

#[test]
fn a_person_can_stop_a_job_that_is_suspended() {
    let mut world = World::new(full(2, 2));
    world.up().observe(suspended("preempted")).ask(Request::Stop { force: false });
    world.observe(suspended("preempted")).gone();
    assert_eq!(world.state().0, State::Stopped);
}

fn blocked(world: &World, text: Option<&str>) -> Observation {
    let on = |status| ReplicaObservation { node: Some(node(1)), status };
    let first = match text {
        Some(text) => ReplicaStatus::Blocked(text.to_owned()),
        None => ReplicaStatus::Pending(None),
    };
    let turn = ReplicaStatus::Pending(Some("waits for the master".to_owned()));
    Observation::Placed { replicas: [(world.name(0), on(first)), (world.name(1), on(turn))].into() }
}

#[test]
fn what_keeps_containers_from_starting_is_told_and_is_what_failed_at_the_limit() {
    let missing = "FailedMount: secret \"data\" not found";
    let mut world = World::new(full(2, 2));
    let task_id = world.task();
    world.give(Input::Created { task_id });
    let queue = |world: &World| world.attempts()[0].queue.clone().map(|queue| (queue.reason, queue.text));
    world.observe(blocked(&world, None));
    assert_eq!(queue(&world), Some((QueueReason::Starting, "worker-0: waits for the master".to_owned())));
    world.observe(blocked(&world, Some(missing)));
    assert_eq!(queue(&world), Some((QueueReason::Blocked, format!("master-0: {missing}"))));
    assert!(world.chain.summary(world.now).tail.contains(missing));
    let mut other = World::new(full(2, 2));
    other.up();
    assert_eq!(queue(&other), None, "one that runs waits for nothing");
    world.after(limits::START_SECONDS as f64).after(limits::STOP_SECONDS as f64);
    let attempt = &world.attempts()[0];
    assert_eq!(attempt.failure_type, Some(FailureType::EnvError));
    assert!(attempt.fault.as_ref().unwrap().contains(missing), "{:?}", attempt.fault);
}
