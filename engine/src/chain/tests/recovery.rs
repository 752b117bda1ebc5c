use crate::{
    chain::{testing::*, *},
    failure::{
        Evidence,
        FailureType::{self, AppError, CommHang, EnvError, HwNode, NetFabric, OomGpu, OomHost, Unknown},
        Phase, Role,
    },
    record::{Action, AttemptResult, Budget, ProofVerdict, QueueReason, Substate},
    sync::{Point, ReportBody},
};

#[test]
fn a_crash_of_the_program_is_restarted_in_place_and_proved_to_have_resumed() {
    let mut world = World::new(full(2, 2));
    assert_eq!(world.state(), (State::Queued, None));
    world.up().steps(1, 40).checkpoint(false, 40).steps(41, 45);
    assert_eq!(world.state(), (State::Running, None));
    world.after(1.0).crash(1, AppError);
    assert_eq!(world.state(), (State::Recovering, Some(Substate::InPlaceRestart)));
    assert_eq!(world.chain.summary(world.now).tail, "in place 1 of 3");
    assert!(world.effects.is_empty(), "no new task: {:?}", world.effects);
    let Desired::Run { launch } = world.desired(1) else { panic!("{:?}", world.desired(1)) };
    assert_eq!((launch.number, launch.first_rank, launch.world_size), (1, 1, 2));
    world.after(0.2).all(&ReportBody::Started);
    assert_eq!(world.state(), (State::Running, None));
    world
        .after(1.0)
        .checkpoint(true, 40)
        .after(1.0)
        .steps(41, 41)
        .after(2.0)
        .steps(42, 46)
        .checkpoint(false, 46);
    let launches = world.launches(&world.task());
    assert_eq!(launches.len(), 2);
    let proof = &launches[1].proof;
    assert_eq!(proof.verdict, ProofVerdict::Resumed, "{proof:?}");
    assert_eq!((proof.checkpoint.step, proof.checkpoint.expected), (Some(40), Some(40)));
    let incident = &world.incidents()[0];
    assert_eq!(incident.decision.reason, "Restarted in place; this creates no new task.");
    assert_eq!(
        (incident.decision.charged, incident.decision.before, incident.decision.after),
        (Budget::InPlaceRestarts, 0, 1)
    );
    assert_eq!((incident.cost.redone_steps, incident.cost.load_seconds), (Some(5), Some(1.0)));
    for index in 0..2 {
        world.exit(index, 0, vec![]);
    }
    assert_eq!(world.state(), (State::Succeeded, None));
    assert_eq!(world.chain.summary(world.now).tail, "after 1 in-place restart");
    assert!(matches!(world.effects.as_slice(), [Effect::Delete { .. }]));
    assert_eq!(world.attempts().len(), 1);
}

#[test]
fn the_parts_of_the_cost_add_up_to_the_gap_s69() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 40).checkpoint(false, 20);
    world.after(10.0).crash(1, HwNode);
    let failed_at = world.now;
    world.after(3.0).observe(Observation::Absent).after(5.0);
    world.up().after(4.0).checkpoint(true, 20).after(1.0).steps(21, 21).after(7.0).steps(22, 40);
    let gap = world.now.seconds_since(failed_at);
    let incident = &world.incidents()[0];
    let cost = incident.cost;
    let parts =
        [cost.detect_seconds, cost.queue_seconds, cost.start_seconds, cost.load_seconds, cost.redo_seconds];
    assert_eq!(parts.map(|part| part.unwrap()), [0.0, 8.0, 0.0, 4.0, 8.0]);
    assert_eq!(parts.into_iter().flatten().sum::<f64>(), gap);
    assert_eq!(cost.redone_steps, Some(20));
    assert_eq!(cost.accelerator_seconds, Some(24.0), "2 slots for 12 s; the queue holds none");
    let ledger = world.chain.summary(world.now).ledger;
    assert_eq!((ledger.kept, ledger.redone, ledger.queued_seconds), (20.0, 16.0, 8.0));
}

#[test]
fn every_type_gets_the_action_of_the_published_table() {
    for (failure_type, first, then) in [
        (HwNode, Action::Resubmit, Action::Resubmit),
        (NetFabric, Action::RestartInPlace, Action::Resubmit),
        (CommHang, Action::RestartInPlace, Action::Resubmit),
        (OomHost, Action::RestartInPlace, Action::Resubmit),
        (AppError, Action::RestartInPlace, Action::Resubmit),
        (OomGpu, Action::FailFast, Action::FailFast),
        (EnvError, Action::FailFast, Action::FailFast),
        (Unknown, Action::Resubmit, Action::Resubmit),
    ] {
        let mut spec = full(2, 5);
        spec.fault_tolerance.policy.max_in_place_restarts = 1;
        let mut world = World::new(spec);
        world.up().steps(1, 10).crash(0, failure_type);
        assert_eq!(world.actions(), [first], "{failure_type}");
        if world.chain.course.has_ended() {
            continue;
        }
        if first == Action::Resubmit {
            world.gone().up();
        } else {
            world.all(&ReportBody::Started);
        }
        // A new step was made, so that this is no repeat.
        world.steps(11, 20).crash(0, failure_type);
        assert_eq!(world.actions(), [first, then], "{failure_type}");
    }
}

#[test]
fn on_any_failure_restarts_in_place_and_then_resubmits_whatever_the_type() {
    for failure_type in FailureType::ALL {
        let mut spec = full(2, 5);
        spec.fault_tolerance.policy.policy_type = "on_any_failure".to_owned();
        spec.fault_tolerance.policy.max_in_place_restarts = 1;
        let mut world = World::new(spec);
        world.up().steps(1, 10).crash(0, failure_type);
        world.all(&ReportBody::Started).steps(11, 20).crash(0, failure_type);
        assert_eq!(world.actions(), [Action::RestartInPlace, Action::Resubmit], "{failure_type}");
    }
}

#[test]
fn a_hang_and_other_failures_are_counted_apart_s07() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10).crash(0, CommHang);
    world.all(&ReportBody::Started).steps(11, 20).crash(0, AppError);
    let budgets = world.chain.summary(world.now).budgets;
    assert_eq!((budgets.in_place_restarts.used, budgets.hang_restarts.used), (1, 1));
    assert_eq!(budgets.task_restarts.used, 0);
    world.all(&ReportBody::Started).steps(21, 30).crash(0, CommHang);
    let incident = world.incidents().pop().unwrap();
    assert_eq!(incident.decision.action, Action::Resubmit);
    assert!(
        incident
            .decision
            .reason
            .starts_with("Not in place: the 1 restart after a hang in this attempt is used.")
    );
    world.gone();
    let budgets = world.chain.summary(world.now).budgets;
    assert_eq!((budgets.in_place_restarts.used, budgets.hang_restarts.used), (0, 0), "each attempt anew");
    assert_eq!(budgets.task_restarts.used, 1);
}

#[test]
fn budgets_of_0_1_and_2_make_1_2_and_3_runs_s11_s01() {
    for restarts in 0..=2 {
        let mut world = World::new(basic(2, restarts));
        for run in 0..=restarts {
            let step = u64::from(run) * 10;
            world.up().steps(step + 1, step + 10).exit(1, 137, vec![]).all(&ReportBody::Stopped);
            world.gone();
        }
        assert_eq!(world.attempts().len() as u32, restarts + 1);
        assert_eq!(world.state().0, State::Failed);
        let why = match restarts {
            0 => "Maximum Task Restart Attempts is 0.",
            1 => "The 1 task restart is used.",
            _ => "All 2 task restarts are used.",
        };
        assert_eq!(world.why_not(), why);
        assert_eq!(world.attempts().last().unwrap().result, Some(AttemptResult::BudgetUsed));
        assert!(world.chain.live_task().is_none() && world.chain.pending_effects().is_empty());
        assert!(world.chain.summary(world.now).needs_attention);
    }
}

#[test]
fn without_auto_failover_nothing_is_restarted_and_the_reason_is_said_s57() {
    let mut world = World::new(spec(2));
    world.up().steps(1, 10).crash(0, AppError);
    assert_eq!(world.state().0, State::Failed);
    assert_eq!(world.why_not(), "Auto Failover is off.");
    assert_eq!(world.actions(), [Action::None]);
    assert_eq!(world.incidents()[0].decision.reason, "Auto Failover is off.");
}

#[test]
fn out_of_gpu_memory_fails_fast_with_the_rule() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10).crash(0, OomGpu);
    assert_eq!(world.state().0, State::Failed);
    assert_eq!(world.why_not(), "Rule “CUDA out of memory”: another try would fail the same way.");
    assert_eq!(world.attempts()[0].result, Some(AttemptResult::FailFast));
}

#[test]
fn the_same_error_twice_without_progress_fails_fast() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 1200).checkpoint(false, 1100).crash(0, AppError);
    world.all(&ReportBody::Started).checkpoint(true, 1100).steps(1101, 1200).crash(0, AppError);
    assert_eq!(world.actions(), [Action::RestartInPlace, Action::FailFast]);
    assert_eq!(world.why_not(), "Same error at step 1,200 twice, no progress.");
    let incident = world.incidents().pop().unwrap();
    assert!(incident.repeats);
    assert_eq!(incident.decision.rule, "repeat-no-progress");
}

#[test]
fn the_same_error_before_any_step_is_a_repeat_too_and_another_error_is_not() {
    let mut world = World::new(full(2, 2));
    world.up().crash(0, AppError);
    world.all(&ReportBody::Started).crash(0, OomHost);
    world.all(&ReportBody::Started).crash(0, AppError);
    assert_eq!(world.actions(), [Action::RestartInPlace, Action::RestartInPlace, Action::FailFast]);
    assert_eq!(world.why_not(), "Same error before the first step twice, no progress.");
}

#[test]
fn in_basic_mode_a_repeat_is_said_and_the_budget_kept_to() {
    let mut world = World::new(basic(2, 1));
    world.up().steps(1, 10).crash(0, AppError).gone().up().steps(5, 10).crash(0, AppError);
    let incidents = world.incidents();
    assert_eq!((incidents[0].repeats, incidents[1].repeats), (false, true));
    assert_eq!(world.actions(), [Action::Resubmit, Action::None]);
    assert_eq!(world.why_not(), "The 1 task restart is used.");
}

#[test]
fn a_suspected_node_is_kept_off_and_gets_a_strike() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10).crash(1, HwNode);
    assert_eq!(world.state(), (State::Recovering, Some(Substate::BackOff)));
    let incident = &world.incidents()[0];
    assert_eq!(incident.decision.avoid, [node(2)]);
    assert!(incident.decision.reason.contains("keeping off n2"), "{}", incident.decision.reason);
    assert!(
        world.records.iter().any(|record| matches!(record, Record::Strike(strike) if strike.node == node(2)))
    );
    world.gone();
    let [Effect::Create(plan)] = world.effects.as_slice() else { panic!("{:?}", world.effects) };
    assert_eq!(plan.avoid, BTreeSet::from([node(2)]));
    assert_eq!(plan.previous_task_id.as_ref().map(TaskId::as_str), Some("demo-jabcdefghij2-1"));
    assert_eq!(world.state(), (State::Recovering, Some(Substate::Resubmitted)));
    assert_eq!(world.incidents()[0].decision.next_task_id, Some(world.task()));
    world.up();
    assert_eq!(world.state(), (State::Running, Some(Substate::Resubmitted)));
}

#[test]
fn eight_ranks_that_die_of_one_error_are_one_incident_and_one_restart_s04() {
    let mut world = World::new(full(8, 2));
    world.up().steps(1, 10);
    for index in 0..8 {
        let line = if index == 0 { world.line(0, NetFabric, "NCCL WARN NET/IB : error 12") } else { vec![] };
        world.exit(index, 134, line);
    }
    world.all(&ReportBody::Stopped);
    assert_eq!(world.incidents().len(), 1);
    assert_eq!(world.incidents()[0].cascade_ranks, 7);
    assert_eq!(world.chain.summary(world.now).budgets.in_place_restarts.used, 1);
}

#[test]
fn a_thousand_dead_ranks_are_one_decision_and_the_chain_stays_small() {
    let mut world = World::new(full(1024, 2));
    world.up().steps(1, 10);
    for index in 0..1024 {
        let line = if index == 0 { world.line(0, NetFabric, "NCCL WARN NET/IB : error 12") } else { vec![] };
        world.exit(index, 134, line);
    }
    world.all(&ReportBody::Stopped);
    assert_eq!(world.incidents().len(), 1);
    let incident = &world.incidents()[0];
    assert_eq!((incident.cascade_ranks, incident.evidence.len()), (1023, 1));
}

#[test]
fn peers_that_hang_in_the_exit_are_stopped_and_given_up_at_the_stop_limit_s22_s33_s62() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10);
    let line = world.line(1, AppError, "ValueError: bad batch");
    world.exit(1, 1, line).report(1, ReportBody::Stopped);
    assert_eq!(world.desired(0), Desired::Stop { launch: 0 });
    world.after(2.0);
    let incident = &world.incidents()[0];
    assert_eq!(incident.failure_type, AppError, "the verdict does not wait longer than the window");
    assert_eq!(incident.decision.reason, "Waits until the processes of 1 replica have stopped.");
    assert_eq!(world.chain.wake_at(), Some(world.now.plus_seconds(28)));
    world.after(28.0);
    let incident = &world.incidents()[0];
    assert_eq!(incident.decision.action, Action::Resubmit);
    assert!(incident.decision.reason.starts_with("Not in place: master-0 did not stop in time."));
    assert_eq!(world.incidents().len(), 1);
}

#[test]
fn a_late_root_cause_within_the_window_beats_an_early_cascade() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10).exit(0, 134, vec![]).report(0, ReportBody::Stopped).after(1.0);
    assert!(world.incidents().is_empty());
    let line = world.line(1, OomGpu, "CUDA out of memory");
    world.exit(1, 1, line).report(1, ReportBody::Stopped);
    assert_eq!(world.incidents()[0].failure_type, OomGpu);
}

/// A line that shows only that a peer is gone.
fn consequence(world: &World, index: usize) -> Vec<Evidence> {
    let mut lines = world.line(index, NetFabric, "RuntimeError: Connection closed by peer");
    lines.iter_mut().for_each(|line| line.role = Role::Cascade);
    lines
}

/// Rank 1 noticed that replica 0 is gone, and stopped.
fn only_noticed() -> World {
    let mut world = World::new(full(2, 2));
    let lines = consequence(world.up().steps(1, 10), 1);
    world.exit(1, 1, lines).after(1.0);
    assert_eq!(world.desired(0), Desired::Stop { launch: 0 });
    world.report(1, ReportBody::Stopped).after(5.0);
    assert!(world.incidents().is_empty(), "nobody has said what happened");
    world
}

#[test]
fn the_verdict_on_a_node_that_fell_silent_waits_for_the_clusters_word() {
    let mut world = only_noticed();
    world.after(80.0).placed(&[(0, EndReason::NodeLost("n1 is not heard".to_owned()))]);
    let incident = &world.incidents()[0];
    assert_eq!(
        (incident.failure_type, incident.fingerprint.as_str()),
        (HwNode, "HW_NODE:cluster-node-lost:")
    );
    assert_eq!((incident.decision.action, &incident.decision.avoid), (Action::Resubmit, &vec![node(1)]));
}

#[test]
fn a_silent_replica_of_which_the_cluster_says_nothing_is_given_up() {
    let mut world = only_noticed();
    assert_eq!(world.chain.wake_at(), Some(world.now.plus_seconds(limits::CAUSE_SECONDS - 6)));
    world.after(limits::CAUSE_SECONDS as f64 - 6.0);
    let incident = &world.incidents()[0];
    assert_eq!((incident.failure_type, incident.decision.action), (NetFabric, Action::Resubmit));
    assert!(incident.decision.reason.contains("master-0 did not stop in time"), "{incident:?}");
}

#[test]
fn a_replica_that_comes_back_without_its_processes_is_what_the_others_noticed() {
    let mut world = only_noticed();
    world.report(0, ReportBody::Ready).after(1.0);
    let incident = &world.incidents()[0];
    let root = incident.root.as_ref().unwrap();
    assert_eq!((root.replica.as_str(), incident.failure_type), ("master-0", Unknown), "{incident:?}");
    assert_eq!(incident.fingerprint, "UNKNOWN:cluster-lost:");
}

#[test]
fn a_replica_that_loses_its_processes_as_they_are_stopped_hides_no_cause() {
    let mut world = World::new(full(2, 2));
    let line = world.up().steps(1, 10).line(1, OomGpu, "CUDA out of memory");
    world.exit(1, 1, line).report(1, ReportBody::Stopped).report(0, ReportBody::Ready);
    assert_eq!(world.incidents()[0].failure_type, OomGpu);
}

#[test]
fn the_verdict_waits_no_longer_than_the_last_replica_takes_to_stop() {
    let mut world = only_noticed();
    let asked = ReportBody::Exited {
        rank: 0,
        exit: Exit::from_code(143),
        asked: true,
        step: Some(10),
        phase: Phase::Training,
        evidence: vec![],
    };
    world.report(0, asked).report(0, ReportBody::Stopped);
    assert_eq!(world.actions(), [Action::RestartInPlace]);
}

#[test]
fn a_rank_that_only_noticed_a_failure_leaves_the_first_one_time_to_say_why() {
    let mut world = World::new(full(2, 2));
    let lines = consequence(world.up().steps(1, 10), 1);
    world.exit(1, 1, lines).report(1, ReportBody::Stopped);
    assert!(matches!(world.desired(0), Desired::Run { launch } if launch.number == 0), "the launch goes on");
    let line = world.line(0, AppError, "ValueError: bad batch");
    world.after(0.2).exit(0, 1, line);
    assert_eq!(world.desired(0), Desired::Stop { launch: 0 });
    world.report(0, ReportBody::Stopped);
    assert_eq!(world.incidents()[0].failure_type, AppError);
}

#[test]
fn a_consequence_that_nobody_explains_stops_everything_all_the_same() {
    let mut world = World::new(full(2, 2));
    let lines = consequence(world.up().steps(1, 10), 1);
    world.exit(1, 1, lines).report(1, ReportBody::Stopped);
    assert_eq!(world.chain.wake_at(), Some(world.now.plus_seconds(1)));
    world.after(1.0);
    assert_eq!(world.desired(0), Desired::Stop { launch: 0 });
    world.report(0, ReportBody::Stopped);
    assert!(world.incidents().is_empty(), "the cluster may say what happened as long as signs are gathered");
    world.after(1.0);
    assert_eq!(world.incidents()[0].failure_type, NetFabric);
}

#[test]
fn a_replica_that_is_gone_cannot_be_restarted_in_place() {
    let mut world = World::new(full(2, 2));
    world.up().steps(1, 10).placed(&[(1, EndReason::OomKilled)]).report(0, ReportBody::Stopped);
    let incident = &world.incidents()[0];
    assert_eq!(incident.failure_type, OomHost);
    assert_eq!(incident.decision.action, Action::Resubmit);
    assert!(incident.decision.reason.starts_with("Not in place: worker-0 is gone."));
}

#[test]
fn a_dead_node_that_is_reported_three_times_is_acted_on_once_s16() {
    let mut world = World::new(full(2, 2));
    let lost = [(1, EndReason::NodeLost("no heartbeat".to_owned()))];
    world.up().steps(1, 10).placed(&lost).placed(&lost).report(0, ReportBody::Stopped).placed(&lost);
    world.give(Input::Silent { task_id: world.task(), replica: Some(world.name(1)), since: world.now });
    assert_eq!(world.incidents().len(), 1);
    assert_eq!(world.chain.summary(world.now).budgets.task_restarts.used, 1);
}

#[test]
fn preemptions_are_no_failures_and_cost_nothing_s06_s61_s64() {
    let mut world = World::new(basic(2, 1));
    for _ in 0..5 {
        world.up().steps(1, 10).exit(1, 137, vec![]);
        world.placed(&[(1, EndReason::Preempted("higher priority".to_owned()))]);
        assert_eq!(world.state(), (State::Queued, Some(Substate::BackOff)));
        world.gone();
    }
    assert!(world.incidents().is_empty());
    assert_eq!(world.chain.summary(world.now).budgets.task_restarts.used, 0);
    let attempts = world.attempts();
    assert_eq!(attempts.len(), 6);
    assert!(attempts[1..].iter().all(|attempt| attempt.cause == AttemptCause::Preemption));
    assert_eq!((attempts[0].state, attempts[0].result), (State::Stopped, Some(AttemptResult::Resubmitted)));
    // A bug of the program still ends after its own budget.
    for _ in 0..2 {
        world.up().steps(11, 20).crash(0, AppError).gone();
    }
    assert_eq!(world.state().0, State::Failed);
    assert_eq!(world.attempts().len(), 7);
}

#[test]
fn a_refused_attempt_fails_the_job_and_nothing_is_tried_again() {
    let mut world = World::new(full(2, 2));
    let task_id = world.task();
    world.give(Input::Refused { task_id, text: "quota of team-a is used up".to_owned() });
    assert_eq!(world.state().0, State::Failed);
    assert_eq!(world.why_not(), "The cluster refused attempt 1; nothing ran.");
    assert!(world.events().iter().any(|event| event.text == "quota of team-a is used up"));
    assert!(world.chain.live_task().is_none() && world.effects.is_empty());
}

#[test]
fn an_attempt_that_is_not_taken_yet_waits_with_the_reason_and_stays_ordered() {
    let mut world = World::new(full(2, 2));
    let queue = Queue::of(QueueReason::Quota, "exceeded quota: few".to_owned());
    let delayed = |world: &World| Input::Delayed { task_id: world.task(), queue: queue.clone() };
    let input = delayed(&world);
    world.give(input);
    assert_eq!(world.state().0, State::Queued);
    assert_eq!(world.attempts()[0].queue.as_ref(), Some(&queue));
    assert!(matches!(world.chain.pending_effects().as_slice(), [Effect::Create(_)]));
    // Only once, however often it is tried.
    let events = world.events().len();
    let input = delayed(&world);
    world.after(600.0).give(input);
    assert_eq!(world.events().len(), events);
    // An old answer says nothing about an attempt that is there.
    world.up();
    let before = world.chain.clone();
    let input = delayed(&world);
    world.give(input);
    assert_eq!((world.state().0, world.attempts()[0].queue.as_ref()), (State::Running, None));
    assert_eq!(world.chain.live_task(), before.live_task());
}

#[test]
fn an_attempt_that_someone_else_removed_is_resubmitted() {
    let mut world = World::new(full(2, 2));
    world.observe(Observation::Absent);
    assert!(matches!(world.chain.pending_effects().as_slice(), [Effect::Create(_)]), "ordered, not vanished");
    world.up().steps(1, 10).observe(Observation::Absent);
    assert_eq!(world.actions(), [Action::Resubmit]);
    world.after(2.0);
    assert_eq!(world.attempts().len(), 2);
}

#[test]
fn a_launch_that_does_not_come_together_fails_at_the_start_limit_s34() {
    let mut world = World::new(full(2, 2));
    let task_id = world.task();
    world.give(Input::Created { task_id }).placed(&[]).all(&ReportBody::Ready).report(0, ReportBody::Started);
    assert_eq!(world.chain.wake_at(), Some(world.now.plus_seconds(600)));
    world.after(599.0);
    assert!(world.incidents().is_empty());
    world.after(1.0).all(&ReportBody::Stopped);
    assert_eq!(world.incidents().len(), 1);
    assert_eq!(world.actions(), [Action::Resubmit]);
}

#[test]
fn the_back_off_doubles_only_while_nothing_is_gained() {
    let mut world = World::new(basic(1, 50));
    let mut waits = Vec::new();
    for run in 0..8 {
        world.up();
        if run == 0 || run == 7 {
            world.steps(run * 10 + 1, run * 10 + 5);
        }
        world.exit(0, 1, vec![]).report(0, ReportBody::Stopped);
        let next_at = world.incidents().pop().unwrap().decision.next_at.unwrap();
        waits.push(next_at.seconds_since(world.now));
        world.gone();
    }
    assert_eq!(waits, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 1.0]);
}

#[test]
fn the_cluster_may_explain_an_end_later_and_the_order_of_its_words_does_not_matter_s20() {
    let killed = (1, EndReason::OomKilled);
    let lost = (1, EndReason::Lost("its container is gone".to_owned()));
    for words in [[lost.clone(), killed.clone()], [killed, lost]] {
        let mut world = World::new(full(2, 2));
        world.up().steps(1, 10);
        for word in words {
            world.placed(&[word]);
        }
        world.report(0, ReportBody::Stopped);
        assert_eq!(world.incidents().len(), 1);
        assert_eq!(world.incidents()[0].failure_type, OomHost);
    }
}

#[test]
fn a_blamed_node_gets_its_strike_even_where_the_job_is_not_restarted() {
    let mut world = World::new(spec(2));
    world.up().steps(1, 10).crash(1, HwNode);
    assert_eq!(world.why_not(), "Auto Failover is off.");
    let strikes = world.records.iter().filter(|record| matches!(record, Record::Strike(_)));
    assert_eq!(strikes.count(), 1);
}

#[test]
fn only_the_lowest_rank_that_prints_makes_the_curve() {
    let mut world = World::new(full(2, 2));
    world.up();
    for (index, loss) in [(1, 51.0), (0, 1.0), (1, 51.0)] {
        let at = world.now;
        let point = Point { step: 1, at, loss: Some(loss), samples: None, total: None };
        world.report(index, ReportBody::Progress { points: vec![point] });
    }
    let values: Vec<_> = world
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Points(_, points) => points.points[0].loss,
            _ => None,
        })
        .collect();
    assert_eq!(values, [51.0, 1.0]);
}
