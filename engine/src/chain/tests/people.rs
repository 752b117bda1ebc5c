use crate::{
    chain::{testing::*, *},
    failure::FailureType::{AppError, HwNode},
    record::{Action, AttemptResult, EventKind, Substate},
    sync::ReportBody,
};

/// A job brought into each state there is.
fn in_every_state() -> Vec<(&'static str, World)> {
    let mut all = Vec::new();
    let mut add = |name, prepare: fn(&mut World)| {
        let mut world = World::new(full(2, 2));
        prepare(&mut world);
        all.push((name, world));
    };
    add("ordered", |_| {});
    add("queued", |world| {
        let task_id = world.task();
        world.give(Input::Created { task_id });
    });
    add("starting", |world| {
        let task_id = world.task();
        world.give(Input::Created { task_id }).placed(&[]);
    });
    add("running", |world| {
        world.up().steps(1, 10);
    });
    add("gathering", |world| {
        world.up().exit(0, 1, vec![]);
    });
    add("waiting for peers to stop", |world| {
        let line = world.line(0, AppError, "ValueError");
        world.up().exit(0, 1, line).after(2.0);
    });
    add("restarting in place", |world| {
        world.up().crash(0, AppError);
    });
    add("backing off", |world| {
        world.up().crash(0, HwNode);
    });
    add("backing off, the old attempt gone", |world| {
        world.up().crash(0, HwNode).observe(Observation::Absent);
    });
    add("succeeded", |world| {
        world.up().exit(0, 0, vec![]).exit(1, 0, vec![]);
    });
    add("failed", |world| {
        world.up().crash(0, crate::failure::FailureType::OomGpu).observe(Observation::Absent);
    });
    add("stopped", |world| {
        world.up().ask(Request::Stop { force: false }).observe(Observation::Absent);
    });
    all
}

#[test]
fn a_stop_works_in_every_state_and_wins_over_recovery_s77() {
    for (name, mut world) in in_every_state() {
        let ended = world.chain.course.has_ended();
        let before = world.state().0;
        world.ask(Request::Stop { force: false });
        assert!(!world.effects.iter().any(|effect| matches!(effect, Effect::Create(_))), "{name}");
        world.gone().after(100.0);
        let want = if ended { before } else { State::Stopped };
        assert_eq!(world.state().0, want, "{name}");
        if !ended {
            assert_eq!(world.why_not(), "Stopped by user-1; a manual stop is never resubmitted.", "{name}");
            assert_eq!(world.attempts().last().unwrap().result, Some(AttemptResult::Stopped), "{name}");
            assert!(!world.chain.summary(world.now).needs_attention, "{name}");
        }
        assert!(world.chain.live_task().is_none(), "{name}");
        assert!(world.chain.wake_at().is_none(), "{name}");
    }
}

#[test]
fn a_delete_works_in_every_state_and_forgets_once_all_is_gone() {
    for (name, mut world) in in_every_state() {
        world.ask(Request::Delete { force: true });
        if world.chain.live_task().is_some() {
            assert!(
                matches!(world.chain.pending_effects().as_slice(), [Effect::Delete { force: true, .. }]),
                "{name}"
            );
            world.observe(Observation::Absent);
        }
        assert_eq!(world.effects, [Effect::Forget], "{name}");
        assert_eq!(world.chain.pending_effects(), [Effect::Forget], "{name}");
        world.ask(Request::Resubmit);
        assert!(world.effects.is_empty(), "{name}: what is deleted is not resubmitted");
    }
}

#[test]
fn an_incident_that_a_stop_cut_off_is_recorded_with_that_reason() {
    let mut world = World::new(full(2, 2));
    let line = world.line(0, AppError, "ValueError");
    world.up().exit(0, 1, line).ask(Request::Stop { force: false });
    let incident = &world.incidents()[0];
    assert_eq!((incident.failure_type, incident.decision.action), (AppError, Action::None));
    assert_eq!(incident.decision.reason, "Stopped by user-1; a manual stop is never resubmitted.");
    assert_eq!(world.state().0, State::Stopping);
    assert_eq!(world.desired(0), Desired::Exit);
}

#[test]
fn a_stop_that_takes_too_long_is_forced_and_a_person_can_force_it_at_once() {
    let mut world = World::new(full(2, 2));
    world.up().ask(Request::Stop { force: false });
    assert!(matches!(world.effects.as_slice(), [Effect::Delete { force: false, .. }]));
    world.ask(Request::Stop { force: false });
    assert!(world.effects.is_empty(), "asked twice, done once");
    world.after(30.0);
    assert!(matches!(world.effects.as_slice(), [Effect::Delete { force: true, .. }]));
    let mut world = World::new(full(2, 2));
    world.up().ask(Request::Stop { force: false }).ask(Request::Stop { force: true });
    assert!(matches!(world.effects.as_slice(), [Effect::Delete { force: true, .. }]));
}

#[test]
fn what_is_created_after_a_stop_is_removed_again() {
    let mut world = World::new(full(2, 2));
    world.ask(Request::Stop { force: false }).observe(Observation::Absent);
    assert_eq!(world.state().0, State::Stopped);
    let task_id = world.task();
    world.give(Input::Created { task_id });
    assert!(matches!(world.effects.as_slice(), [Effect::Delete { .. }]));
    assert_eq!(world.state().0, State::Stopped);
    world.observe(Observation::Absent);
    assert!(world.chain.live_task().is_none());
}

#[test]
fn a_person_reopens_an_ended_chain_uncharged_and_nothing_is_refilled() {
    let mut world = World::new(full(2, 1));
    world.up().steps(1, 10).crash(0, HwNode).gone().up().steps(11, 20).crash(0, HwNode);
    assert_eq!(world.state().0, State::Failed);
    world.ask(Request::Resubmit);
    assert_eq!(world.state(), (State::Queued, Some(Substate::BackOff)));
    assert!(world.effects.is_empty(), "not before the old one is gone");
    world.observe(Observation::Absent);
    assert!(matches!(world.effects.as_slice(), [Effect::Create(_)]));
    let attempts = world.attempts();
    assert_eq!((attempts[2].cause, attempts[2].number), (AttemptCause::Manual, 3));
    let budgets = world.chain.summary(world.now).budgets;
    assert_eq!((budgets.task_restarts.used, budgets.task_restarts.allowed), (1, 1));
    world.up().steps(21, 30).crash(0, HwNode);
    assert_eq!(world.why_not(), "The 1 task restart is used.");
}

#[test]
fn a_running_job_is_not_resubmitted() {
    let mut world = World::new(full(2, 1));
    world.up().ask(Request::Resubmit);
    assert!(world.effects.is_empty());
    assert_eq!(world.attempts().len(), 1);
}

#[test]
fn attention_is_needed_until_acknowledged_or_resubmitted() {
    let mut world = World::new(spec(2));
    world.up().crash(0, AppError);
    assert!(world.chain.summary(world.now).needs_attention);
    world.ask(Request::Acknowledge);
    assert!(!world.chain.summary(world.now).needs_attention);
    world.ask(Request::Resubmit).gone().up().crash(0, AppError);
    assert!(world.chain.summary(world.now).needs_attention);
}

#[test]
fn a_save_during_the_stop_is_what_the_next_attempt_expects() {
    let mut world = World::new(full(2, 1));
    world.up().steps(1, 10).checkpoint(false, 5).ask(Request::Stop { force: false });
    world.checkpoint(false, 10).observe(Observation::Absent).ask(Request::Resubmit);
    world.up();
    let launches = world.launches(&world.task());
    assert_eq!(launches[0].proof.checkpoint.expected, Some(10));
    assert_eq!(world.chain.summary(world.now).saved_step, Some(10));
    world.all(&ReportBody::Stopped);
}

#[test]
fn suspects_of_a_diagnosis_are_kept_off_from_the_next_attempt_on_and_the_history_tells_it() {
    let mut world = World::new(spec(2));
    world.up().crash(0, AppError).gone();
    world.ask(Request::Diagnosed {
        run_id: "d1".to_owned(),
        text: "n2 suspected.".to_owned(),
        suspects: vec![node(2)],
        task_id: None,
    });
    let told: Vec<_> = world.events().iter().map(|event| event.text.clone()).collect();
    assert!(told.iter().any(|text| text == "Diagnosis d1 is over. n2 suspected."), "{told:?}");
    assert!(told.iter().any(|text| text.starts_with("The next attempts keep off")), "{told:?}");
    world.ask(Request::Resubmit);
    let avoided: Vec<_> = world
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Create(plan) => Some(plan.avoid.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(avoided.last(), Some(&BTreeSet::from([node(2)])), "{:?}", world.effects);
}

#[test]
fn a_quarantined_node_is_kept_off_by_what_is_ordered_next_and_never_by_what_runs() {
    let out =
        |names: &[&str]| names.iter().map(|name| NodeName::new(*name).unwrap()).collect::<BTreeSet<_>>();
    let step = Chain::start_beside(JobId::new("jabcdefghij2").unwrap(), spec(2), out(&["n9"]), Time(0));
    let Effect::Create(plan) = &step.effects[0] else { panic!("{:?}", step.effects) };
    assert_eq!((&plan.avoid, &plan.quarantined), (&out(&["n9"]), &out(&["n9"])));
    assert!(!step.chain.may_order(), "its attempt is ordered");
    let told = step.records.iter().any(
        |record| matches!(record, Record::Event(event) if event.text.ends_with("It keeps off n9, quarantined for every job.")),
    );
    assert!(told, "{:?}", step.records);

    let later = advance(&step.chain, &Input::KeptOut { nodes: out(&["n1", "n9"]) }, Time(0)).chain;
    assert_eq!(later.pending_effects(), step.effects, "an attempt that was ordered stays as it is");
    let stored: Chain = serde_json::from_str(&serde_json::to_string(&later).unwrap()).unwrap();
    assert!(!stored.is_same_but_for_time(&step.chain) && stored == later);
}

#[test]
fn a_node_that_a_person_released_is_kept_off_no_more() {
    let mut world = World::new(spec(1));
    let node = NodeName::new("n2").unwrap();
    world.chain.avoided.add(std::slice::from_ref(&node));
    world.ask(Request::Readmit { node: node.clone() });
    assert!(world.chain.own_avoided().is_empty());
    let told = world.records.len();
    world.ask(Request::Readmit { node });
    assert_eq!(world.records.len(), told, "asked again it says nothing");
}

#[test]
fn a_note_is_an_entry_of_the_history_and_nothing_else() {
    let mut world = World::new(spec(1));
    let before = world.chain.clone();
    world.ask(Request::Note { text: "n1 was quarantined.".to_owned() });
    assert!(before.is_same_but_for_time(&world.chain));
    let Some(Record::Event(event)) = world.records.last() else { panic!("{:?}", world.records) };
    assert_eq!((event.kind, event.text.as_str()), (EventKind::Node, "n1 was quarantined."));
}

#[test]
fn the_next_attempt_of_a_job_that_is_bound_to_its_nodes_stays_bound_to_them() {
    let mut world = World::new(full(2, 2));
    let only: BTreeSet<_> = [node(1), node(2)].into();
    let (job_id, spec) = (world.chain.job_id.clone(), world.chain.spec.clone());
    world.chain = Chain::start_on(job_id, spec, only.clone(), world.now).chain;
    world.give(Input::KeptOut { nodes: [node(1)].into() });
    world.up().crash(0, crate::failure::FailureType::OomGpu).observe(Observation::Absent);
    world.ask(Request::Resubmit).gone();
    let plan = world.chain.plan();
    assert_eq!((plan.number, &plan.only), (2, &only));
    assert_eq!((plan.avoid, plan.quarantined), (BTreeSet::new(), BTreeSet::new()));
}
