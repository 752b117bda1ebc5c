//! A diagnosis between two attempts: when there is one, what follows, and what ends it.

use crate::{
    bisect::limits::WAIT_SECONDS,
    chain::{diagnosing::longest_seconds, testing::*, *},
    failure::FailureType::{AppError, CommHang},
    record::{Action, AttemptResult, Budget, EventReason, Substate},
};

/// Full mode without a restart in place after a hang, where nodes are diagnosed.
fn diagnosed(replicas: u32, restarts: u32) -> JobSpec {
    let mut spec = full(replicas, restarts);
    spec.fault_tolerance.hang_detection.max_in_place_restarts = 0;
    spec.fault_tolerance.hang_detection.diagnose = true;
    spec
}

/// A job that hung on three nodes and waits for their diagnosis.
fn waiting() -> World {
    let mut world = World::new(diagnosed(3, 2));
    world.up().steps(1, 10).crash(0, CommHang).observe(Observation::Absent);
    assert_eq!(world.state(), (State::Recovering, Some(Substate::Diagnosing)));
    world
}

fn over(world: &World, suspects: &[usize]) -> Request {
    Request::Diagnosed {
        run_id: "d1".to_owned(),
        text: "It is over.".to_owned(),
        suspects: suspects.iter().map(|number| node(*number)).collect(),
        task_id: Some(world.task()),
    }
}

fn avoided(world: &World) -> Vec<NodeName> {
    world.attempts().last().unwrap().avoided_nodes.clone()
}

#[test]
fn a_hang_is_diagnosed_and_then_resubmitted_off_what_was_confirmed() {
    let mut world = World::new(diagnosed(3, 2));
    world.up().steps(1, 10).crash(0, CommHang);
    let first = world.task();
    assert_eq!(world.state(), (State::Recovering, Some(Substate::Diagnosing)));
    assert_eq!(world.chain.summary(world.now).tail, "diagnosing 3 nodes");
    assert!(!world.chain.awaited().unwrap().ready, "its processes may still be on the nodes");
    world.observe(Observation::Absent);
    let awaited = world.chain.awaited().unwrap();
    assert!(awaited.ready);
    assert_eq!((&awaited.task_id, awaited.rule.as_str()), (&first, "comm-hang-bisect"));
    assert_eq!(awaited.nodes, BTreeSet::from([node(1), node(2), node(3)]));
    let decision = world.incidents()[0].decision.clone();
    assert_eq!((decision.action, decision.charged), (Action::Diagnose, Budget::None));
    assert!(decision.reason.starts_with("Not in place: Maximum Restart Count"), "{}", decision.reason);
    assert_eq!(world.chain.summary(world.now).budgets.task_restarts.used, 0, "nothing is charged so far");
    world.after(600.0);
    assert_eq!(world.attempts().len(), 1, "no attempt begins beside the test");

    let request = over(&world, &[3]);
    world.ask(request);
    assert_eq!(world.state(), (State::Recovering, Some(Substate::BackOff)));
    assert_eq!(world.chain.awaited(), None);
    let incident = world.incidents()[0].clone();
    assert_eq!(
        (incident.decision.action, incident.decision.charged),
        (Action::Resubmit, Budget::TaskRestarts)
    );
    assert_eq!((incident.decision.before, incident.decision.after), (0, 1));
    assert_eq!(incident.decision.rule, "comm-hang-resubmit");
    assert!(incident.decision.avoid.contains(&node(3)), "{:?}", incident.decision);
    assert!(
        incident.decision.reason.starts_with("Diagnosis d1 is over. It is over. Resubmitted, keeping off ")
    );
    assert_eq!(*incident.diagnosed.unwrap(), decision, "both decisions stay on the incident");
    world.after(60.0);
    assert_eq!(world.attempts().len(), 2);
    assert!(avoided(&world).contains(&node(3)));
    let told: Vec<_> = world.events().iter().filter_map(|event| event.reason).collect();
    let asked = told.iter().position(|reason| *reason == EventReason::Diagnose).unwrap();
    assert!(told[asked..].contains(&EventReason::Resubmit), "{told:?}");
    // What the job waited for held no accelerator of its own.
    assert!(world.chain.summary(world.now).ledger.queued_seconds > 600.0);
    world.up().after(1.0).steps(8, 12);
    let cost = world.incidents()[0].cost;
    assert!(cost.queue_seconds.unwrap() > 600.0 && cost.start_seconds.unwrap() < 60.0, "{cost:?}");
}

#[test]
fn it_is_waited_for_from_when_the_nodes_are_free() {
    let mut world = World::new(diagnosed(3, 2));
    world.up().steps(1, 10).crash(0, CommHang);
    let removal = 2.0 * 86_400.0;
    world.after(removal);
    assert_eq!(world.state().1, Some(Substate::Diagnosing), "what is left of the attempt takes its time");
    assert!(!world.chain.awaited().unwrap().ready);
    world.observe(Observation::Absent);
    assert!(world.chain.awaited().unwrap().ready);
    let left = world.chain.wake_at().unwrap().seconds_since(world.now);
    assert!(left > 600.0, "{left}");
    world.after(left - 1.0);
    assert_eq!(world.state().1, Some(Substate::Diagnosing));
    world.after(1.0);
    assert_eq!(world.state().1, Some(Substate::BackOff));
}

#[test]
fn it_is_resubmitted_whatever_becomes_of_the_diagnosis() {
    let mut nothing_found = waiting();
    let request = over(&nothing_found, &[]);
    nothing_found.ask(request);
    let mut not_begun = waiting();
    let request = Request::Undiagnosed { task_id: not_begun.task(), why: "n2 is gone.".to_owned() };
    not_begun.ask(request);
    let mut never_heard = waiting();
    let until = never_heard.chain.wake_at().unwrap().seconds_since(never_heard.now);
    never_heard.after(until - 1.0);
    assert_eq!(never_heard.state().1, Some(Substate::Diagnosing));
    never_heard.after(1.0);
    for (world, says) in [
        (&mut nothing_found, "Diagnosis d1 is over. It is over. Resubmitted"),
        (&mut not_begun, "Not diagnosed: n2 is gone. Resubmitted"),
        (&mut never_heard, "The diagnosis was not over within "),
    ] {
        let decision = world.incidents()[0].decision.clone();
        assert_eq!((decision.action, decision.after), (Action::Resubmit, 1));
        assert!(decision.reason.starts_with(says), "{}", decision.reason);
        world.after(60.0);
        assert_eq!(world.attempts().len(), 2);
    }
    // A run that ends late says what it found, and resubmits nothing twice.
    let first = TaskId::of_attempt("demo", never_heard.chain.job_id(), 1);
    let request = Request::Diagnosed {
        run_id: "d1".to_owned(),
        text: "It is over.".to_owned(),
        suspects: vec![node(3)],
        task_id: Some(first),
    };
    never_heard.ask(request.clone()).ask(request);
    assert_eq!(never_heard.chain.summary(never_heard.now).budgets.task_restarts.used, 1);
    assert!(never_heard.chain.own_avoided().contains(&node(3)), "the attempt after keeps off it");
}

#[test]
fn a_run_that_ends_twice_and_one_of_another_attempt_change_nothing() {
    let mut world = waiting();
    let other = TaskId::of_attempt("demo", world.chain.job_id(), 7);
    for task_id in [None, Some(other.clone())] {
        let (run_id, text) = ("d0".to_owned(), "Another.".to_owned());
        world.ask(Request::Diagnosed { run_id, text, suspects: Vec::new(), task_id });
        assert_eq!(world.state().1, Some(Substate::Diagnosing));
    }
    world.ask(Request::Undiagnosed { task_id: other, why: "no.".to_owned() });
    assert_eq!(world.state().1, Some(Substate::Diagnosing));
    let request = over(&world, &[2]);
    world.ask(request.clone()).ask(request);
    assert_eq!(world.chain.summary(world.now).budgets.task_restarts.used, 1);
    assert_eq!(world.state().1, Some(Substate::BackOff));
}

#[test]
fn a_persons_stop_and_delete_win_over_a_diagnosis() {
    for request in [Request::Stop { force: false }, Request::Delete { force: true }] {
        let mut world = waiting();
        world.ask(request);
        assert_eq!(world.chain.awaited(), None, "the run is ended by whoever drives it");
        assert_eq!(world.state().0, State::Stopped);
        let late = over(&world, &[2]);
        world.ask(late).after(100_000.0);
        assert_eq!((world.state().0, world.attempts().len()), (State::Stopped, 1));
        assert_eq!(world.attempts()[0].result, Some(AttemptResult::Stopped));
        assert_eq!(world.chain.summary(world.now).budgets.task_restarts.used, 0);
    }
    // Also while the attempt is still there.
    let mut world = World::new(diagnosed(2, 1));
    world.up().crash(0, CommHang).ask(Request::Stop { force: true });
    assert_eq!(world.chain.awaited(), None);
    world.observe(Observation::Absent);
    assert_eq!(world.state().0, State::Stopped);
}

#[test]
fn nothing_is_diagnosed_where_nobody_asked_no_resubmission_follows_or_one_node_is_all() {
    let mut off = diagnosed(2, 1);
    off.fault_tolerance.hang_detection.diagnose = false;
    let in_place = {
        let mut spec = diagnosed(2, 1);
        spec.fault_tolerance.hang_detection.max_in_place_restarts = 1;
        spec
    };
    for (spec, failure, action, says) in [
        (off, CommHang, Action::Resubmit, "Resubmitted"),
        (in_place, CommHang, Action::RestartInPlace, "Restarted in place"),
        (diagnosed(2, 0), CommHang, Action::None, "Maximum Task Restart Attempts is 0."),
        (diagnosed(1, 1), CommHang, Action::Resubmit, "Not diagnosed: it ran on one node"),
        (diagnosed(2, 1), AppError, Action::RestartInPlace, "Restarted in place"),
    ] {
        let mut world = World::new(spec);
        world.up().steps(1, 10).crash(0, failure);
        assert_eq!(world.chain.awaited(), None, "{says}");
        let decision = world.incidents()[0].decision.clone();
        assert_eq!(decision.action, action, "{says}");
        assert!(decision.reason.contains(says), "{}", decision.reason);
    }
}

#[test]
fn each_attempt_may_be_diagnosed_once_and_any_failure_does_it_too() {
    let mut spec = diagnosed(2, 2);
    spec.fault_tolerance.policy.policy_type = "on_any_failure".to_owned();
    let mut world = World::new(spec);
    for attempt in 1..=2 {
        world.up().steps(attempt * 10, attempt * 10 + 5).crash(0, CommHang).observe(Observation::Absent);
        assert_eq!(world.chain.awaited().unwrap().rule, "any-hang-bisect");
        let request = over(&world, &[]);
        world.ask(request).after(60.0);
    }
    world.up().steps(30, 35).crash(0, CommHang);
    assert_eq!(world.actions(), [Action::Resubmit, Action::Resubmit, Action::None]);
    assert_eq!(world.why_not(), "All 2 task restarts are used.");
}

#[test]
fn who_drives_it_again_waits_anew_and_a_silent_cluster_changes_nothing() {
    let mut world = waiting();
    let nodes = world.chain.awaited().unwrap().nodes;
    let longest = longest_seconds(&nodes);
    assert!(longest > WAIT_SECONDS && longest < 6 * 3_600, "{longest}");
    world.after(longest as f64 - 10.0).give(Input::Returned).after(20.0);
    assert_eq!(world.state().1, Some(Substate::Diagnosing), "nobody could tell in time");
    world.give(Input::Silent { task_id: world.task(), replica: None, since: world.now }).after(700.0);
    assert_eq!(world.state(), (State::Recovering, Some(Substate::Diagnosing)));
}

#[test]
fn the_cap_holds_and_what_was_confirmed_comes_first() {
    let mut world = waiting();
    world.chain.avoided.learn_total(4);
    let request = over(&world, &[1, 2, 3]);
    world.ask(request);
    let decision = world.incidents()[0].decision.clone();
    assert_eq!(decision.avoid, [node(1), node(2)], "half of four");
    assert!(decision.reason.ends_with("n3 not kept off: the cap is 2 nodes."), "{}", decision.reason);
}
