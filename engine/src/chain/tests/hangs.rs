//! Job Hang Detection on a chain: from what agents say of processes that do not move to the launch that follows.

use crate::{
    chain::{testing::*, *},
    failure::{Confidence, Phase},
    record::{Action, AttemptResult, Budget, LaunchCause, Substate},
    sync::{
        HangWatch, ProcessState, RankStack, ReportBody, RunState, StackKey, StillRank, Witness, WitnessKind,
        WitnessSays,
    },
};

/// Full mode with a window of 60 s, looked at every 10 s from the start.
fn watched(replicas: u32, restarts: u32) -> JobSpec {
    let mut spec = full(replicas, restarts);
    let hang = &mut spec.fault_tolerance.hang_detection;
    hang.interval_seconds = 10;
    hang.window_seconds = 60;
    hang.start_after_seconds = 0;
    spec
}

pub(super) fn still(rank: u32, function: &str, since: Time, until: Time) -> StillRank {
    let witness =
        |kind| Witness { kind, says: WitnessSays::Unchanged, since: Some(since), detail: String::new() };
    StillRank {
        rank,
        since,
        until,
        samples: 7,
        witnesses: vec![witness(WitnessKind::Stack), witness(WitnessKind::Output), witness(WitnessKind::Cpu)],
        stack: Some(StackKey { hash: function.to_owned(), top: vec![format!("{function} (train.py)")] }),
        state: Some(ProcessState { is: RunState::Sleeping, waits_in: None }),
        phase: None,
        collective: None,
    }
}

impl World {
    /// Replica `index` says that its only process has been in `function` for the last `seconds`.
    fn stands(&mut self, index: usize, function: &str, seconds: u64) -> &mut Self {
        let since = Time(self.now.0 - (seconds * 1_000_000) as i64);
        let ranks = vec![still(index as u32, function, since, self.now)];
        self.report(index, ReportBody::Still { ranks })
    }

    /// All but replica 1 wait in a collective, and it reads, for so long.
    fn hangs(&mut self, seconds: u64) -> &mut Self {
        for index in 0..self.chain.attempt.replicas.len() {
            self.stands(index, if index == 1 { "read_batch" } else { "all_reduce" }, seconds);
        }
        self
    }
}

#[test]
fn a_hang_is_suspected_then_found_and_restarted_in_place() {
    let mut world = World::new(watched(3, 2));
    world.up();
    let Desired::Run { launch } = world.desired(2) else { panic!("{:?}", world.desired(2)) };
    let watch = HangWatch { interval_seconds: 10, window_seconds: 60, start_after_seconds: 0 };
    assert_eq!(launch.watch, Some(watch), "agents are told how to watch");
    world.after(5.0).steps(1, 41).checkpoint(false, 40).after(30.0).hangs(30);
    assert_eq!(world.state(), (State::Running, Some(Substate::SuspectedHang)));
    assert_eq!(world.chain.summary(world.now).tail, "stack unchanged 30 of 60 s");
    world.after(30.0).hangs(60);
    assert_eq!(world.state().0, State::Running, "what others say in the same instant is waited for");
    let due = world.chain.wake_at().unwrap().seconds_since(world.now);
    assert!((due - 2.0).abs() < 1e-6, "{due}");
    world.after(2.0);
    assert!(matches!(world.desired(0), Desired::Stop { .. }), "everyone is stopped at once");
    world.after(1.0).all(&ReportBody::Stopped);
    assert_eq!(world.state(), (State::Recovering, Some(Substate::InPlaceRestart)));
    assert_eq!(world.chain.summary(world.now).tail, "in place 1 of 1");
    let incident = &world.incidents()[0];
    assert_eq!(incident.fault, "no progress for 1 min: rank 1 on n2 in read_batch, 2 others in all_reduce");
    assert_eq!((incident.failure_type, incident.confidence), (FailureType::CommHang, Confidence::High));
    assert_eq!((incident.step, incident.cascade_ranks), (Some(41), 2));
    let root = incident.root.as_ref().unwrap();
    assert_eq!((root.rank, root.replica.as_str()), (Some(1), "worker-0"));
    assert_eq!(root.node, Some(node(2)));
    assert_eq!(incident.hang.as_ref().unwrap().groups.len(), 2);
    assert_eq!(
        (incident.decision.charged, incident.decision.before, incident.decision.after),
        (Budget::HangRestarts, 0, 1)
    );
    assert_eq!(incident.cost.detect_seconds, Some(62.0), "it has stood still since the step");
    let launches = world.launches(&world.task());
    assert_eq!(launches[1].cause, LaunchCause::Hang);
    // The next launch is watched anew, and proves that it resumed.
    world.all(&ReportBody::Started).after(2.0).checkpoint(true, 40).after(1.0).steps(41, 45);
    assert_eq!(world.state(), (State::Running, None));
}

#[test]
fn a_rank_that_moves_again_ends_the_suspicion() {
    let mut world = World::new(watched(2, 2));
    world.up().steps(1, 3).after(30.0).hangs(30);
    assert_eq!(world.state().1, Some(Substate::SuspectedHang));
    world.report(1, ReportBody::Moved { ranks: vec![1] });
    assert_eq!(world.state(), (State::Running, None));
    world.after(100.0).stands(0, "all_reduce", 130);
    assert_eq!(world.state(), (State::Running, None), "the others wait for it");
    assert!(world.incidents().is_empty());
    // A step is as good, whatever was said of the ranks before.
    world.stands(1, "read_batch", 40);
    assert_eq!(world.state().1, Some(Substate::SuspectedHang));
    world.steps(4, 4);
    assert_eq!(world.state(), (State::Running, None));
}

#[test]
fn another_rank_that_moves_in_the_same_instant_stops_the_verdict() {
    let mut world = World::new(watched(2, 2));
    world.up().steps(1, 3).after(60.0).hangs(60);
    assert_eq!(world.state().1, Some(Substate::SuspectedHang));
    world.after(1.0).report(0, ReportBody::Moved { ranks: vec![0] }).after(60.0);
    assert_eq!(world.state(), (State::Running, None));
    assert!(world.incidents().is_empty());
}

#[test]
fn the_time_in_a_debuggers_hands_does_not_count_afterwards() {
    let mut world = World::new(watched(1, 2));
    world.up().steps(1, 3).after(100.0);
    let since = Time(world.now.0 - 100_000_000);
    let told = |world: &mut World, is| {
        let mut still = still(0, "step", since, world.now);
        still.state = Some(ProcessState { is, waits_in: None });
        world.report(0, ReportBody::Still { ranks: vec![still] });
    };
    told(&mut world, RunState::Traced);
    world.after(10.0);
    assert_eq!(world.state(), (State::Running, None));
    told(&mut world, RunState::Sleeping);
    told(&mut world, RunState::Sleeping);
    assert_eq!(world.state(), (State::Running, None), "10 s of 60");
    world.after(50.0);
    told(&mut world, RunState::Sleeping);
    world.after(2.0);
    assert_eq!(world.state().0, State::Recovering);
}

#[test]
fn agents_that_go_on_to_report_put_no_verdict_off() {
    let mut world = World::new(watched(3, 2));
    world.up().steps(1, 41).after(60.0).hangs(60);
    for index in 0..3 {
        world.after(0.7).stands(index, "all_reduce", 62);
    }
    assert!(matches!(world.desired(0), Desired::Stop { .. }), "2 s have passed");
}

#[test]
fn the_same_hang_at_the_same_step_fails_fast_r13() {
    let mut world = World::new(watched(2, 2));
    world.up().steps(1, 41).after(60.0).hangs(60).after(2.0).all(&ReportBody::Stopped);
    world.all(&ReportBody::Started).steps(30, 41).after(60.0).hangs(60).after(2.0).all(&ReportBody::Stopped);
    assert_eq!(world.state().0, State::Failed);
    assert_eq!(world.actions(), [Action::RestartInPlace, Action::FailFast]);
    assert_eq!(world.attempts()[0].result, Some(AttemptResult::FailFast));
    assert_eq!(world.why_not(), "Same error at step 41 twice, no progress.");
}

#[test]
fn where_no_step_is_printed_the_same_place_twice_proves_nothing() {
    let mut world = World::new(watched(2, 2));
    world.up().after(60.0).hangs(60).after(2.0).all(&ReportBody::Stopped);
    world.all(&ReportBody::Started).after(60.0).hangs(60).after(2.0).all(&ReportBody::Stopped).gone();
    assert_eq!(world.actions(), [Action::RestartInPlace, Action::Resubmit]);
}

#[test]
fn a_node_that_is_lost_while_the_launch_is_stopped_explains_the_hang() {
    let mut world = World::new(watched(2, 2));
    world.up().steps(1, 41).after(60.0).hangs(60).after(2.0);
    world
        .placed(&[(0, EndReason::NodeLost("node-1 is gone".to_owned()))])
        .all(&ReportBody::Stopped)
        .after(3.0);
    assert_eq!(world.incidents()[0].failure_type, FailureType::HwNode);
}

#[test]
fn beyond_the_limit_it_is_resubmitted_and_keeps_off_the_odd_node_only_on_strong_evidence() {
    for (replicas, avoid) in [(3, vec![node(2)]), (2, vec![])] {
        let mut world = World::new(watched(replicas, 2));
        world.up().steps(1, 41).after(60.0).hangs(60).after(2.0).all(&ReportBody::Stopped);
        world.all(&ReportBody::Started).steps(30, 50).after(60.0).hangs(60).after(2.0);
        world.all(&ReportBody::Stopped).gone();
        assert_eq!(world.actions(), [Action::RestartInPlace, Action::Resubmit], "{replicas}");
        let incident = &world.incidents()[1];
        assert_eq!(incident.decision.avoid, avoid, "{replicas} ranks: {}", incident.fault);
        let refusal = "Not in place: the 1 restart after a hang in this attempt is used.";
        assert!(incident.decision.reason.starts_with(refusal), "{}", incident.decision.reason);
        assert_eq!(world.chain.attempt.number, 2);
        assert!(world.chain.attempt.launch.still.is_empty());
    }
}

#[test]
fn a_limit_of_0_goes_straight_to_resubmission() {
    let mut spec = watched(2, 1);
    spec.fault_tolerance.hang_detection.max_in_place_restarts = 0;
    let mut world = World::new(spec);
    world.up().steps(1, 41).after(60.0).hangs(60).after(2.0).all(&ReportBody::Stopped);
    assert_eq!(world.actions(), [Action::Resubmit]);
}

#[test]
fn without_job_hang_detection_reports_change_nothing() {
    let mut spec = watched(2, 2);
    spec.fault_tolerance.hang_detection.enabled = false;
    let mut world = World::new(spec);
    world.up().steps(1, 3);
    let Desired::Run { launch } = world.desired(0) else { panic!("{:?}", world.desired(0)) };
    assert_eq!(launch.watch, None);
    let records = world.records.len();
    world.after(600.0).hangs(600);
    let missing = Some("not Python".to_owned());
    let stack = RankStack { rank: 0, at: world.now, threads: vec![], omitted_threads: 0, missing };
    world.report(0, ReportBody::Stacks { stacks: vec![stack] }).after(600.0);
    assert_eq!(world.state(), (State::Running, None));
    assert!(world.chain.attempt.launch.still.is_empty());
    assert_eq!(world.records.len(), records);
}

#[test]
fn a_phase_that_the_job_came_through_before_is_no_hang_the_next_time_s27() {
    let mut world = World::new(watched(2, 2));
    // An evaluation of 50 s, unmarked, and steps after it.
    world.up().steps(1, 10).after(50.0).steps(11, 20);
    let quiet = world.chain.summary(world.now).longest_quiet.unwrap();
    assert_eq!((quiet.phase, quiet.seconds), (Phase::Training, 50));
    world.after(70.0).hangs(70).after(2.0);
    assert_eq!(world.state(), (State::Running, Some(Substate::SuspectedHang)), "75 s are waited for");
    assert_eq!(world.chain.summary(world.now).tail, "stack unchanged 72 of 75 s");
    world.after(3.0).hangs(75).after(2.0);
    assert_eq!(world.state().0, State::Recovering);
    // What it learned outlives the launch; the hang itself taught nothing.
    world.all(&ReportBody::Stopped).all(&ReportBody::Started);
    assert_eq!(world.chain.summary(world.now).longest_quiet.unwrap().seconds, 50);
}

#[test]
fn a_marked_phase_has_its_own_limit_s30() {
    let mut world = World::new(watched(2, 2));
    world.up().steps(1, 10).report(0, ReportBody::Phase { phase: Phase::Saving });
    world.after(1_200.0).hangs(1_200).after(2.0);
    assert_eq!(world.state(), (State::Running, None));
    world.report(0, ReportBody::Moved { ranks: vec![0] }).checkpoint(false, 10).steps(11, 12);
    let quiet = world.chain.summary(world.now).longest_quiet.unwrap();
    assert_eq!((quiet.phase, quiet.seconds), (Phase::Saving, 1_202));
}

#[test]
fn what_is_written_while_processes_are_stopped_teaches_nothing() {
    let mut world = World::new(watched(2, 2));
    world.up().steps(1, 10).after(60.0).hangs(60).after(2.0);
    world.checkpoint(false, 10).all(&ReportBody::Stopped);
    assert_eq!(world.chain.summary(world.now).longest_quiet, None);
}

#[test]
fn one_rank_left_behind_at_the_end_is_a_hang() {
    let mut world = World::new(watched(3, 2));
    world.up().steps(1, 41).exit(0, 0, vec![]).exit(1, 0, vec![]).after(60.0);
    world.stands(2, "destroy_process_group", 60).after(2.0);
    assert!(matches!(world.desired(2), Desired::Stop { .. }));
    world.all(&ReportBody::Stopped);
    let incident = &world.incidents()[0];
    assert_eq!(
        incident.fault,
        "no progress for 1 min: rank 2 on n3 in destroy_process_group, 2 ranks finished"
    );
    assert_eq!(incident.decision.action, Action::RestartInPlace);
}

#[test]
fn nothing_is_judged_while_an_agent_is_not_heard() {
    let mut world = World::new(watched(2, 2));
    world.up().steps(1, 41);
    let (task_id, replica, since) = (world.task(), Some(world.name(1)), world.now);
    world.after(60.0).stands(1, "read_batch", 60);
    world.give(Input::Silent { task_id: task_id.clone(), replica: replica.clone(), since });
    world.stands(0, "all_reduce", 60).after(10.0);
    assert_eq!(world.state().0, State::Running);
    assert!(world.incidents().is_empty());
    world.give(Input::Heard { task_id, replica }).after(2.0);
    assert_eq!(world.state().0, State::Recovering);
}

#[test]
fn a_server_that_comes_back_hears_all_before_it_judges() {
    let mut world = World::new(watched(2, 2));
    world.up().steps(1, 41).after(30.0).stands(0, "all_reduce", 30);
    world.after(30.0).give(Input::Returned).hangs(60).after(10.0);
    assert_eq!(world.state(), (State::Running, Some(Substate::SuspectedHang)));
    world.report(1, ReportBody::Moved { ranks: vec![1] }).after(100.0);
    assert_eq!(world.state(), (State::Running, None));
    world.hangs(70).after(2.0);
    assert_eq!(world.state().0, State::Recovering);
}

#[test]
fn a_persons_stop_wins_over_a_hang_and_ranks_of_others_are_not_believed() {
    let mut world = World::new(watched(2, 2));
    world.up().steps(1, 41).after(60.0);
    let since = Time(world.now.0 - 60_000_000);
    let forged = (0..9).map(|rank| still(rank, "all_reduce", since, world.now)).collect();
    world.report(0, ReportBody::Still { ranks: forged }).after(5.0);
    assert_eq!(world.state(), (State::Running, None), "replica 0 has one rank");
    world.ask(Request::Stop { force: false }).hangs(60).after(5.0);
    assert!(world.incidents().is_empty());
    assert_eq!(world.state().0, State::Stopping);
}

#[test]
fn stacks_are_kept_beside_the_chain() {
    let mut world = World::new(watched(2, 2));
    world.up().steps(1, 41).after(60.0);
    world.hangs(60);
    let stack = |rank| RankStack {
        rank,
        at: Time(1),
        threads: vec![],
        omitted_threads: 0,
        missing: Some("no permission to see it".to_owned()),
    };
    world.report(1, ReportBody::Stacks { stacks: vec![stack(1), stack(0)] });
    let kept: Vec<_> = world
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Stacks(task, stacks) => Some((task, stacks)),
            _ => None,
        })
        .collect();
    let [(task, stacks)] = kept.as_slice() else { panic!("{kept:?}") };
    assert_eq!((*task, stacks.launch, stacks.replica.as_str()), (&world.task(), 0, "worker-0"));
    assert_eq!(stacks.stacks, [stack(1)], "rank 0 is of another replica");
    let stored = serde_json::to_string(&world.chain).unwrap();
    assert!(!stored.contains("to see it"), "{stored}");
}

/// What a thousand ranks in two places add to a chain that is stored with every step.
#[test]
fn a_thousand_ranks_stay_small() {
    let mut world = World::new(watched(512, 2));
    world.up();
    let before = serde_json::to_string(&world.chain).unwrap().len();
    world.after(60.0).hangs(60);
    let added = serde_json::to_string(&world.chain).unwrap().len() - before;
    assert!(added < 512 * 400, "{added} bytes");
    world.after(2.0).all(&ReportBody::Stopped);
    assert_eq!(world.incidents().len(), 1);
    assert!(world.chain.attempt.launch.still.is_empty());
}
