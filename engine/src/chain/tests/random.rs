//! Random histories: late, repeated, forged and contradicting inputs in any order. [`World::give`] asserts the invariants after
//! every step; the seed of a failing history is in its message.

use crate::{
    chain::{testing::*, *},
    checks::{Check, CheckOutcome},
    failure::{FailureType, Phase},
    record::{ExitReason, NodeCounts, QueueReason, SaveOutcome},
    sync::{CheckpointEvent, ExitTestReport, Point, ReportBody, SaveReport},
};

/// A small generator (xorshift64*), so that a history is its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % sides
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.roll(items.len() as u64) as usize].clone()
    }
}

fn random_spec(dice: &mut Dice) -> JobSpec {
    let replicas = 1 + dice.roll(3) as u32;
    let mut spec = match dice.roll(4) {
        0 => spec(replicas),
        1 => basic(replicas, dice.roll(4) as u32),
        _ => full(replicas, dice.roll(4) as u32),
    };
    spec.fault_tolerance.health_checks.enabled = dice.chance(25);
    spec.processes_per_replica = 1 + dice.roll(2) as u32;
    spec.fault_tolerance.exit_checkpoint.enabled = dice.chance(50);
    spec.fault_tolerance.exit_checkpoint.max_wait_seconds = dice.pick(&[1, 20, 600]);
    spec.fault_tolerance.policy.max_in_place_restarts = dice.roll(3) as u32;
    let hang = &mut spec.fault_tolerance.hang_detection;
    hang.interval_seconds = 1 + dice.roll(10) as u32;
    hang.window_seconds = hang.interval_seconds + dice.roll(20) as u32;
    hang.start_after_seconds = dice.roll(3) as u32 * 10;
    hang.max_in_place_restarts = dice.roll(2) as u32;
    hang.diagnose = dice.chance(50);
    if dice.chance(30) {
        spec.fault_tolerance.policy.policy_type = "on_any_failure".to_owned();
    }
    spec
}

fn random_body(dice: &mut Dice, world: &World, index: usize) -> ReportBody {
    let processes = world.chain.spec.processes_per_replica;
    let step = dice.roll(60);
    let phase = dice.pick(&[Phase::Starting, Phase::Training, Phase::Saving]);
    match dice.roll(24) {
        16 | 17 => ReportBody::Save {
            save: SaveReport {
                reason: dice.pick(&[ExitReason::Preempted, ExitReason::Stopped]),
                signalled: dice.chance(30),
                outcome: dice.pick(&[
                    SaveOutcome::Saving,
                    SaveOutcome::Saved,
                    SaveOutcome::Failed,
                    SaveOutcome::TimedOut,
                    SaveOutcome::NoAnswer,
                    SaveOutcome::Forced,
                ]),
                step: dice.chance(50).then_some(step),
                path: None,
                message: dice.chance(30).then(|| "it broke".to_owned()),
            },
        },
        14 | 15 => {
            let outcome = if dice.chance(90) { CheckOutcome::Passed } else { CheckOutcome::Failed };
            ReportBody::Checked { findings: vec![super::checks::finding(dice.pick(&Check::ALL), outcome)] }
        }
        18..=20 => random_stillness(dice, world, index),
        21 => ReportBody::Moved { ranks: vec![index as u32 * processes + dice.roll(2) as u32] },
        0 | 1 => ReportBody::Ready,
        2..=4 | 22 | 23 => ReportBody::Started,
        5 => ReportBody::Stopped,
        6 => ReportBody::StartFailed { text: "no such file".to_owned() },
        7 | 8 => {
            let failure_type = dice.pick(&FailureType::ALL);
            let evidence = if dice.chance(60) { world.line(index, failure_type, "it broke") } else { vec![] };
            ReportBody::Exited {
                rank: index as u32 * processes + dice.roll(3) as u32,
                exit: Exit::from_code(dice.pick(&[0, 0, 1, 1, 137, -15])),
                asked: dice.chance(25),
                step: dice.chance(50).then_some(step),
                phase,
                evidence,
            }
        }
        9 | 10 => ReportBody::Progress {
            points: vec![Point {
                step,
                at: Time(world.now.0 + dice.roll(90_000_000) as i64 - 80_000_000),
                loss: dice.pick(&[None, Some(0.1), Some(1.0 / 3.0)]),
                samples: None,
                total: dice.chance(50).then_some(60),
            }],
        },
        11 | 12 => ReportBody::Checkpoint {
            event: CheckpointEvent {
                at: world.now,
                loaded: dice.chance(40),
                step: dice.chance(80).then_some(step),
                path: None,
            },
        },
        _ if step.is_multiple_of(2) => {
            use SaveOutcome::{Failed, Forced, Saved, Saving};
            let outcome = [Saving, Saved, Failed, Forced][step as usize / 2 % 4];
            let (received_millis, took_millis) =
                ((!step.is_multiple_of(3)).then_some(step * 100), (step > 20).then_some(step));
            let (number, step, path, message) = (1 + step as u32 / 50, Some(step), None, None);
            let test = ExitTestReport { number, received_millis, outcome, step, path, message, took_millis };
            ReportBody::ExitTest { test }
        }
        _ => ReportBody::Phase { phase },
    }
}

/// All processes of a replica stand still, most often, or some forged ones do.
fn random_stillness(dice: &mut Dice, world: &World, index: usize) -> ReportBody {
    let processes = world.chain.spec.processes_per_replica;
    let first = if dice.chance(95) { index as u32 * processes } else { dice.roll(9) as u32 };
    let ranks = (first..first + processes)
        .map(|rank| {
            let function = dice.pick(&["all_reduce", "read_batch"]);
            let since = Time(world.now.0 - dice.roll(60_000_000) as i64);
            let mut still = super::hangs::still(rank, function, since, world.now);
            if dice.chance(10) {
                still.witnesses.remove(dice.roll(3) as usize);
            }
            still
        })
        .collect();
    ReportBody::Still { ranks }
}

fn random_reason(dice: &mut Dice) -> EndReason {
    let text = || "because".to_owned();
    match dice.roll(8) {
        0 | 1 => EndReason::Exited,
        2 => EndReason::OomKilled,
        3 => EndReason::Preempted(text()),
        4 => EndReason::Evicted(text()),
        5 => EndReason::NodeLost(text()),
        6 => EndReason::StartError(text()),
        _ => EndReason::Lost(text()),
    }
}

fn random_observation(dice: &mut Dice, world: &World) -> Observation {
    match dice.roll(11) {
        0..=2 => Observation::Absent,
        10 => Observation::Suspended(Queue::of(QueueReason::Requeued, "others come first".to_owned())),
        3 => Observation::Waiting(Queue {
            nodes: dice
                .chance(50)
                .then_some(NodeCounts { total: dice.roll(6) as u32, ..NodeCounts::default() }),
            ..Queue::of(dice.pick(&[QueueReason::Busy, QueueReason::Unschedulable]), "busy".to_owned())
        }),
        _ => Observation::Placed {
            replicas: (0..world.chain.spec.replicas as usize)
                .map(|index| {
                    let status = if dice.chance(8) {
                        let exit = dice.pick(&[None, Some(Exit::Code(0)), Some(Exit::Code(1))]);
                        ReplicaStatus::Ended { exit, reason: random_reason(dice) }
                    } else if dice.chance(8) {
                        dice.pick(&[
                            ReplicaStatus::Pending(None),
                            ReplicaStatus::Pending(Some("waits for the master".to_owned())),
                            ReplicaStatus::Blocked("no such volume".to_owned()),
                        ])
                    } else {
                        ReplicaStatus::Running
                    };
                    let node = node(dice.roll(5) as usize);
                    (world.name(index), ReplicaObservation { node: Some(node), status })
                })
                .collect(),
        },
    }
}

fn random_input(dice: &mut Dice, world: &World, sequence: &mut u64) -> Input {
    let number = u64::from(world.chain.attempt.number);
    let number = if dice.chance(6) { 1 + dice.roll(number + 1) } else { number };
    let task_id = TaskId::of_attempt(&world.chain.spec.name, &world.chain.job_id, number as u32);
    let index = dice.roll(u64::from(world.chain.spec.replicas)) as usize;
    match dice.roll(40) {
        0..=3 => Input::Tick,
        4 => {
            let force = dice.chance(30);
            let request = match dice.roll(16) {
                0 | 1 => Request::Stop { force },
                2 => Request::Delete { force },
                3..=9 => Request::Resubmit,
                10 => Request::Undiagnosed { task_id: world.task(), why: "nobody knows it.".to_owned() },
                11..=13 => Request::Diagnosed {
                    run_id: "d1".to_owned(),
                    text: "It is over.".to_owned(),
                    suspects: if dice.chance(50) {
                        vec![node(1 + dice.roll(3) as usize)]
                    } else {
                        Vec::new()
                    },
                    task_id: dice.chance(80).then(|| world.task()),
                },
                14 => Request::TestExit,
                _ => Request::Acknowledge,
            };
            Input::Request { request, by: "user-1".to_owned() }
        }
        5..=7 => Input::Created { task_id },
        8 if dice.chance(20) => Input::Refused { task_id, text: "no".to_owned() },
        8 if dice.chance(50) => {
            Input::Delayed { task_id, queue: Queue::of(QueueReason::Quota, "later".to_owned()) }
        }
        9..=14 => Input::Observed { task_id, observation: random_observation(dice, world) },
        15 => {
            Input::Silent { task_id, replica: dice.chance(80).then(|| world.name(index)), since: world.now }
        }
        16 => Input::Heard { task_id, replica: dice.chance(80).then(|| world.name(index)) },
        17 if dice.chance(50) => Input::Returned,
        _ => {
            // Some are repeated, some come out of order, some are of another launch.
            *sequence += 1;
            let back = if dice.chance(10) { dice.roll(4) } else { 0 };
            let launch = world.chain.launch_number();
            let report = Report {
                sequence: sequence.saturating_sub(back),
                // Late, or by a clock that is off.
                at: Time(world.now.0 + dice.roll(90_000_000) as i64 - 80_000_000),
                launch: if dice.chance(6) { dice.roll(4) as u32 } else { launch },
                body: random_body(dice, world, index),
            };
            Input::Report { task_id, replica: world.name(index), report }
        }
    }
}

/// A world in which from now on everyone does what is asked: the cluster makes and removes, the agents start, stop and finish.
fn cooperate(world: &mut World) {
    for round in 0..200 {
        if world.chain.course.has_ended() && world.chain.live_task().is_none() {
            return;
        }
        let task_id = world.task();
        world.give(Input::Heard { task_id: task_id.clone(), replica: None });
        match world.chain.pending_effects().first() {
            Some(Effect::Create(_)) => {
                world.give(Input::Created { task_id });
            }
            Some(Effect::Delete { .. }) => {
                world.observe(Observation::Absent);
            }
            Some(Effect::Forget) => return,
            None if world.chain.live_task().is_some() => {
                world.placed(&[]);
                agents(world);
            }
            None => {}
        }
        let due = world.chain.wake_at().map_or(1.0, |at| at.seconds_since(world.now));
        world.after(if round % 2 == 0 { 0.0 } else { due });
    }
    panic!("it does not come to an end: {:?} {:?}", world.state(), world.chain.attempt);
}

fn agents(world: &mut World) {
    for index in 0..world.chain.spec.replicas as usize {
        let processes = world.chain.spec.processes_per_replica;
        match world.desired(index) {
            Desired::Wait => {
                world.report(index, ReportBody::Ready);
            }
            Desired::Stop { .. } => {
                world.report(index, ReportBody::Stopped);
            }
            Desired::Run { .. } if !world.chain.attempt.replicas[index].run.started => {
                world.report(index, ReportBody::Started);
            }
            Desired::Run { .. } => {
                for local in 0..processes {
                    let rank = index as u32 * processes + local;
                    let done = ReportBody::Exited {
                        rank,
                        exit: Exit::Code(0),
                        asked: false,
                        step: None,
                        phase: Phase::Training,
                        evidence: vec![],
                    };
                    world.report(index, done);
                }
            }
            Desired::Save { notice, .. } => {
                let save = SaveReport {
                    reason: notice.reason,
                    signalled: false,
                    outcome: SaveOutcome::Saved,
                    step: None,
                    path: None,
                    message: None,
                };
                world.report(index, ReportBody::Save { save });
            }
            Desired::Exit => {}
        }
    }
}

#[test]
fn whatever_happened_a_world_that_does_as_asked_brings_the_chain_to_its_end() {
    for seed in 1..=200u64 {
        let history = std::panic::catch_unwind(|| {
            let mut dice = Dice(seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
            let mut world = World::new(random_spec(&mut dice));
            let mut sequence = 0;
            for _ in 0..dice.roll(80) {
                world.now = Time(world.now.0 + dice.roll(2_000_000) as i64);
                let input = random_input(&mut dice, &world, &mut sequence);
                world.give(input);
            }
            world.skip_sequences(sequence);
            cooperate(&mut world);
        });
        if let Err(why) = history {
            eprintln!("the seed of this history is {seed}");
            std::panic::resume_unwind(why);
        }
    }
}

#[test]
fn whatever_happens_in_whatever_order_the_invariants_hold() {
    let mut ends = std::collections::BTreeMap::<String, u32>::new();
    for seed in 1..=800u64 {
        let history = std::panic::catch_unwind(|| {
            let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let mut world = World::new(random_spec(&mut dice));
            let mut sequence = 0;
            for _ in 0..120 {
                let micros = match dice.roll(20) {
                    0 => dice.roll(700_000_000),
                    1..=3 => dice.roll(40_000_000),
                    _ => dice.roll(500_000),
                };
                world.now = Time(world.now.0 + micros as i64);
                let input = random_input(&mut dice, &world, &mut sequence);
                world.give(input);
            }
            let hang = world.incidents().iter().any(|incident| incident.hang.is_some());
            let hang = if hang { " after a hang" } else { "" };
            format!("{:?} in place {}{hang}", world.state().0, world.chain.in_place_total.min(1))
        });
        match history {
            Ok(end) => *ends.entry(end).or_default() += 1,
            Err(why) => {
                eprintln!("the seed of this history is {seed}");
                std::panic::resume_unwind(why);
            }
        }
    }
    // The histories reach what they are meant to test.
    for state in ["Succeeded", "Failed", "Stopped", "Running", "Recovering", "Saving"] {
        assert!(ends.keys().any(|end| end.starts_with(state)), "{state} in {ends:?}");
    }
    assert!(ends.keys().any(|end| end.ends_with("in place 1")), "{ends:?}");
    assert!(ends.keys().any(|end| end.ends_with("after a hang")), "{ends:?}");
}
