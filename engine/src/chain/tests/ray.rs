//! RayJobs: one driver on the head, in basic mode.

use crate::{
    chain::{testing::*, *},
    failure::FailureType::AppError,
    job::JobKind,
    record::AttemptResult,
    sync::ReportBody,
};

fn job(replicas: u32, restarts: u32) -> JobSpec {
    JobSpec { kind: JobKind::RayJob, ..basic(replicas, restarts) }
}

/// The attempt is placed, and the driver's agent is there and has started it.
fn up(world: &mut World) {
    let task_id = world.task();
    world.give(Input::Created { task_id }).placed(&[]).report(0, ReportBody::Ready);
    let Desired::Run { launch } = world.desired(0) else { panic!("{:?}", world.desired(0)) };
    assert_eq!((launch.world_size, launch.first_rank, launch.local_world_size), (1, 0, 1));
    world.report(0, ReportBody::Started);
    assert_eq!(world.state().0, State::Running);
}

fn fail(world: &mut World) {
    let evidence = world.line(0, AppError, "ValueError: bad");
    world.exit(0, 1, evidence).report(0, ReportBody::Stopped);
}

fn observed(world: &World, reason: EndReason, exit: Option<i64>) -> Observation {
    let head = ReplicaObservation {
        node: Some(node(1)),
        status: ReplicaStatus::Ended { exit: exit.map(Exit::from_code), reason },
    };
    let worker = ReplicaObservation { node: Some(node(2)), status: ReplicaStatus::Running };
    Observation::Placed { replicas: [(world.name(0), head), (world.name(1), worker)].into() }
}

#[test]
fn the_driver_alone_says_how_a_job_goes() {
    let mut world = World::new(job(3, 2));
    up(&mut world);
    world.steps(1, 5).exit(0, 0, vec![]);
    assert_eq!(world.state(), (State::Succeeded, None), "workers have nothing to finish");
    assert_eq!(world.attempts()[0].nodes.len(), 3);
    assert!(matches!(world.effects.as_slice(), [Effect::Delete { .. }]));
}

#[test]
fn a_failure_is_resubmitted_up_to_the_budget_and_never_in_place_s46_s49() {
    let mut world = World::new(job(2, 1));
    up(&mut world);
    fail(&mut world);
    world.gone();
    assert_eq!(world.chain.attempt.number, 2);
    up(&mut world);
    fail(&mut world);
    assert_eq!(world.state().0, State::Failed);
    let results: Vec<_> = world.attempts().iter().map(|attempt| attempt.result).collect();
    assert_eq!(results, [Some(AttemptResult::Resubmitted), Some(AttemptResult::BudgetUsed)]);
    assert!(world.attempts().iter().all(|attempt| attempt.failure_type == Some(AppError)));
    assert_eq!(world.chain.in_place_total, 0);
}

#[test]
fn what_the_operator_says_of_the_driver_counts_where_no_agent_speaks() {
    for (exit, reason, state) in [
        (Some(0), EndReason::Exited, State::Succeeded),
        (Some(3), EndReason::Exited, State::Failed),
        (None, EndReason::Lost("the Ray job was stopped".to_owned()), State::Failed),
    ] {
        let mut world = World::new(job(2, 0));
        up(&mut world);
        let seen = observed(&world, reason, exit);
        world.observe(seen).after(30.0);
        assert_eq!(world.state().0, state, "{exit:?}");
    }
}

#[test]
fn a_driver_that_never_starts_is_given_up_within_the_limit_s35() {
    let mut world = World::new(job(2, 0));
    let task_id = world.task();
    world.give(Input::Created { task_id }).placed(&[]);
    assert_eq!(world.chain.summary(world.now).tail, "0 of 1 replica ready");
    world.after(limits::START_SECONDS as f64 + 1.0).after(30.0);
    assert_eq!(world.state().0, State::Failed);
    let fault = world.attempts()[0].fault.clone().unwrap();
    let want = "head-0 started no process within 600 s; its agent was never heard";
    assert!(fault.contains(want) && fault.contains("whether KubeRay started it"), "{fault}");
}
