use crate::{
    chain::{testing::*, *},
    failure::{FailureType::AppError, Phase},
    record::{Action, NodeCounts, ProofVerdict, QueueReason, Substate},
    sync::ReportBody,
};

fn silent(world: &mut World, replica: Option<usize>) {
    let input = Input::Silent {
        task_id: world.task(),
        replica: replica.map(|index| world.name(index)),
        since: world.now,
    };
    world.give(input);
}

#[test]
fn agents_that_are_not_heard_make_the_state_unknown_and_nothing_restarts_s15() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10);
    silent(&mut world, Some(0));
    silent(&mut world, Some(1));
    world.after(119.0);
    assert_eq!(world.chain.summary(world.now).tail, "step 10 of 200");
    world.after(1.0);
    assert_eq!(world.chain.summary(world.now).tail, "last heard 2 min ago");
    assert_eq!(world.state(), (State::Running, None));
    world.after(480.0);
    assert_eq!(world.state(), (State::Running, Some(Substate::Unknown)));
    assert!(world.chain.summary(world.now).needs_attention);
    assert!(world.events().iter().any(|event| event.text.contains("the state is unknown")));
    world.after(100_000.0);
    assert!(world.incidents().is_empty() && world.attempts().len() == 1);
    world.give(Input::Heard { task_id: world.task(), replica: Some(world.name(1)) });
    assert_eq!(world.state(), (State::Running, None));
}

#[test]
fn one_silent_agent_among_others_that_are_heard_is_not_unknown() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10);
    silent(&mut world, Some(1));
    world.after(1000.0);
    assert_eq!(world.state(), (State::Running, None));
}

#[test]
fn a_rank_that_finished_and_then_falls_silent_is_no_failure_s18() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10).exit(1, 0, vec![]).report(1, ReportBody::Stopped);
    silent(&mut world, Some(1));
    world.after(1000.0);
    assert!(world.incidents().is_empty());
    world.exit(0, 0, vec![]);
    assert_eq!(world.state().0, State::Succeeded);
}

#[test]
fn processes_that_we_ended_are_no_failures_s19() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10);
    let asked = ReportBody::Exited {
        rank: 1,
        exit: Exit::from_code(143),
        asked: true,
        step: Some(10),
        phase: Phase::Training,
        evidence: vec![],
    };
    world.report(1, asked.clone());
    assert!(world.incidents().is_empty());
    assert_eq!(world.state().0, State::Running);
    world.ask(Request::Stop { force: false });
    world.report(1, asked).exit(0, 137, vec![]).all(&ReportBody::Stopped);
    world.placed(&[(0, EndReason::Lost("killed".to_owned()))]);
    assert!(world.incidents().is_empty());
    world.observe(Observation::Absent);
    assert_eq!(world.state().0, State::Stopped);
}

#[test]
fn a_report_is_taken_once_and_one_of_another_launch_only_acknowledged() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10);
    let (task, name) = (world.task(), world.name(0));
    assert_eq!(world.chain.acknowledged(&task, &name), 3);
    let report = Report {
        sequence: 3,
        at: world.now,
        launch: 0,
        body: ReportBody::StartFailed { text: "no such file".to_owned() },
    };
    let input = |report: &Report| Input::Report {
        task_id: task.clone(),
        replica: name.clone(),
        report: report.clone(),
    };
    world.give(input(&report));
    assert_eq!(world.state().0, State::Running);
    world.give(input(&Report { sequence: 4, launch: 7, ..report }));
    assert_eq!(world.state().0, State::Running);
    assert_eq!(world.chain.acknowledged(&task, &name), 4);
    let other = TaskId::new("other").unwrap();
    assert_eq!(world.chain.desired(&other, &name, None), Desired::Exit);
}

#[test]
fn a_rank_that_is_not_of_the_replica_is_not_believed() {
    let mut world = World::new(full(2, 2));
    world.up();
    let forged = ReportBody::Exited {
        rank: 0,
        exit: Exit::from_code(1),
        asked: false,
        step: None,
        phase: Phase::Training,
        evidence: vec![],
    };
    world.report(1, forged);
    assert_eq!(world.state().0, State::Running);
}

#[test]
fn a_server_that_was_away_at_any_step_gives_its_pending_effects_again_s17() {
    let mut world = World::new(full(2, 2));
    let first = world.effects.clone();
    assert_eq!(world.chain.pending_effects(), first);
    let task_id = world.task();
    world.give(Input::Created { task_id: task_id.clone() }).give(Input::Created { task_id });
    assert!(world.chain.pending_effects().is_empty());
    world.up().crash(0, crate::failure::FailureType::HwNode);
    let delete = world.chain.pending_effects();
    assert!(matches!(delete.as_slice(), [Effect::Delete { .. }]));
    world.after(5.0);
    assert_eq!(world.chain.pending_effects(), delete, "until it is seen to be gone");
    assert_eq!(world.attempts().len(), 1);
    world.observe(Observation::Absent);
    assert_eq!(world.attempts().len(), 2, "a restart of the server is none of the job");
}

#[test]
fn why_it_waits_is_kept_and_said_when_it_changes() {
    let mut world = World::new(full(2, 2));
    let mut queue = Queue {
        reason: QueueReason::Busy,
        text: "2 of 4 slots are free".to_owned(),
        position: Some(1),
        needs_nodes: Some(4),
        nodes: Some(NodeCounts { total: 16, busy: 13, avoided: 0, free: 3 }),
    };
    world.observe(Observation::Waiting(queue.clone())).observe(Observation::Waiting(queue.clone()));
    assert_eq!(world.chain.summary(world.now).tail, "needs 4 nodes, 3 free; position 1");
    let waits = |world: &World| world.events().iter().filter(|event| event.text.contains("waits")).count();
    assert_eq!(waits(&world), 1);
    queue.reason = QueueReason::Unschedulable;
    world.observe(Observation::Waiting(queue));
    assert_eq!(waits(&world), 2);
    assert_eq!(world.state(), (State::Queued, Some(Substate::Unschedulable)));
    assert!(world.chain.summary(world.now).needs_attention);
}

#[test]
fn other_words_for_the_same_wait_are_kept_and_seldom_told() {
    let mut world = World::new(full(2, 2));
    let needs = |more: u32| {
        let text = format!("insufficient unused quota for nvidia.com/gpu, {more} more needed");
        Observation::Waiting(Queue::of(QueueReason::Quota, text))
    };
    let told = |world: &World| world.events().iter().filter(|event| event.text.contains(" waits: ")).count();
    for more in 1..=20 {
        world.after(20.0).observe(needs(more));
    }
    assert_eq!(told(&world), 1, "of other jobs that come and go");
    let kept = world.attempts()[0].queue.clone().unwrap();
    assert!(kept.text.ends_with("20 more needed"), "{}", kept.text);
    world.after(limits::WAIT_TOLD_SECONDS as f64).observe(needs(20));
    assert_eq!(told(&world), 1, "nothing new");
    world.observe(needs(21)).after(1.0).observe(needs(22));
    assert_eq!(told(&world), 2);
    let text = "ClusterQueue is stopped".to_owned();
    world.observe(Observation::Waiting(Queue::of(QueueReason::Inadmissible, text)));
    assert_eq!(told(&world), 3, "another reason is told at once");
}

#[test]
fn a_checkpoint_that_every_rank_loads_is_told_once() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10).checkpoint(false, 10).crash(0, AppError).all(&ReportBody::Started);
    world.checkpoint(true, 10).checkpoint(true, 10);
    let told = |what: &str| world.events().iter().filter(|event| event.text.contains(what)).count();
    assert_eq!((told("Checkpoint of step 10 saved"), told("Checkpoint of step 10 loaded")), (1, 1));
}

#[test]
fn an_agent_that_starts_anew_without_its_processes_has_lost_them() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10).report(1, ReportBody::Ready);
    assert!(matches!(world.desired(0), Desired::Stop { .. }));
    world.report(0, ReportBody::Stopped);
    assert_eq!(world.incidents().len(), 1);
}

#[test]
fn processes_that_are_just_gone_leave_the_cluster_the_window_to_say_why() {
    for preempted in [true, false] {
        let mut world = World::new(full(2, 2));
        world.up().steps(1, 10).all(&ReportBody::Stopped);
        assert!(world.incidents().is_empty(), "nothing explains it yet");
        world.after(0.5);
        if preempted {
            world.placed(&[(0, EndReason::Preempted("drained".to_owned()))]);
        }
        world.after(1.5);
        assert_eq!(world.incidents().is_empty(), preempted);
        assert_eq!(world.chain.summary(world.now).budgets.task_restarts.used, u32::from(!preempted));
    }
}

#[test]
fn a_program_that_prints_no_steps_is_not_said_to_have_made_none() {
    let mut world = World::new(full(1, 2));
    world.up().after(60.0).exit(0, 0, vec![]);
    let launch = world.launches(&world.task()).pop().unwrap();
    assert_eq!(launch.proof.verdict, ProofVerdict::Pending);
    assert_eq!(world.chain.summary(world.now).ledger.ettr, None);
}

#[test]
fn an_absurd_number_does_not_spoil_what_the_job_has_reached() {
    let mut world = World::new(full(1, 2));
    world.up().steps(1, 10);
    for step in [i64::MAX as u64, u64::MAX, 1_000_000_000_000_000_000] {
        world.steps(step, step).checkpoint(false, step);
        let exit = Exit::from_code(0);
        let phase = Phase::Training;
        world.report(
            0,
            ReportBody::Exited { rank: 9, exit, asked: true, step: Some(step), phase, evidence: vec![] },
        );
    }
    let point = crate::sync::Point {
        step: 11,
        at: world.now,
        loss: Some(1e308),
        samples: None,
        total: Some(u64::MAX),
    };
    world.report(0, ReportBody::Progress { points: vec![point] });
    let summary = world.chain.summary(world.now);
    assert_eq!((summary.reached_step, summary.saved_step, summary.total_steps), (Some(11), None, Some(200)));
    let kept: Vec<_> = world
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Points(_, record) => record.points.last().map(|point| (point.step, point.loss)),
            _ => None,
        })
        .collect();
    assert_eq!(kept, [(10, Some(1.0)), (11, None)]);
}

#[test]
fn a_stored_chain_stays_small() {
    for (replicas, limit) in [(8, 8_000), (1024, 120_000)] {
        let mut world = World::new(full(replicas, 2));
        world.up().steps(1, 500).crash(0, AppError);
        let bytes = serde_json::to_string(&world.chain).unwrap().len();
        assert!(bytes < limit, "{replicas} replicas take {bytes} bytes");
    }
}

#[test]
fn a_restart_at_0_is_not_called_a_recovery_s68() {
    for (loaded, first, want) in [
        (None, 1, ProofVerdict::RestartedFromZero),
        (Some(24_000), 24_001, ProofVerdict::Resumed),
        (Some(12_000), 12_001, ProofVerdict::OlderCheckpoint),
    ] {
        let mut world = World::new(full(2, 2));
        world.up().steps(24_290, 24_300).checkpoint(false, 24_000).crash(0, AppError);
        world.all(&ReportBody::Started);
        if let Some(step) = loaded {
            world.checkpoint(true, step);
        }
        world.steps(first, first + 1).checkpoint(false, first + 1);
        let proof = world.launches(&world.task()).pop().unwrap().proof;
        assert_eq!(proof.verdict, want, "{proof:?}");
    }
}

#[test]
fn an_agent_that_is_never_heard_fails_the_attempt_at_the_start_limit() {
    let mut world = World::new(full(2, 2));
    let task_id = world.task();
    world.give(Input::Created { task_id }).placed(&[]).report(0, ReportBody::Ready);
    assert_eq!(world.chain.wake_at(), Some(world.now.plus_seconds(limits::START_SECONDS)));
    world.after(limits::START_SECONDS as f64 - 1.0);
    assert!(world.incidents().is_empty(), "one second early");
    world.after(1.0).after(limits::STOP_SECONDS as f64);
    let incident = &world.incidents()[0];
    assert_eq!(incident.decision.action, Action::Resubmit);
    let want = "worker-0 started no process within 600 s; its agent was never heard";
    assert!(incident.fault.contains(want) && !incident.fault.contains("pod"), "{}", incident.fault);
}

#[test]
fn what_to_look_at_is_said_of_a_pod_whose_agent_is_never_heard() {
    let in_pods = |replicas| JobSpec { image: Some("train:1".to_owned()), ..full(replicas, 2) };
    let reach = "its agent was never heard: see in the log of its pod whether it reaches the server at agent-server-url";
    for (ready, blocked, want) in [
        (0, false, format!("master-0 started no process within 600 s; {reach}")),
        (1, false, format!("worker-0 started no process within 600 s; {reach}")),
        (2, false, "master-0 started no process within 600 s".to_owned()),
        // Nothing of it runs that could be heard.
        (1, true, "worker-0 started no process within 600 s; worker-0: no volume".to_owned()),
    ] {
        let mut world = World::new(in_pods(2));
        world.give(Input::Created { task_id: world.task() }).placed(&[]);
        if blocked {
            let status = ReplicaStatus::Blocked("no volume".to_owned());
            let seen = ReplicaObservation { node: Some(node(1)), status };
            let replicas = [(ReplicaName::new("worker-0").unwrap(), seen)].into();
            world.observe(Observation::Placed { replicas });
        }
        for replica in 0..ready {
            world.report(replica, ReportBody::Ready);
        }
        world.after(limits::START_SECONDS as f64).after(limits::STOP_SECONDS as f64);
        let fault = &world.incidents()[0].fault;
        assert!(fault.contains(&format!("({want})")), "{ready} were ready: {fault}");
    }
}

#[test]
fn an_attempt_of_which_one_replica_waits_has_not_got_its_resources() {
    let mut world = World::new(full(2, 2));
    let text = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.";
    let queue = Queue::of(QueueReason::Busy, text.to_owned());
    world.give(Input::Created { task_id: world.task() }).observe(Observation::Waiting(queue.clone()));
    world.report(0, ReportBody::Ready);
    assert_eq!(world.state(), (State::Queued, None));
    assert_eq!(world.attempts()[0].queue.as_ref().map(|queue| &queue.text), Some(&queue.text));
    world.after(limits::START_SECONDS as f64 + 1.0);
    assert!(world.incidents().is_empty(), "waiting is no failure to start");
    world.report(1, ReportBody::Ready);
    assert_eq!(world.state().0, State::Starting);
}
