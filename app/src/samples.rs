//! Chains for tests and for looking at pages. Invented; nothing here is part of the console.

use std::collections::BTreeMap;

use engine::{
    failure::{FailureType, Role},
    ids::{IncidentId, JobId, NodeName, ReplicaName, TaskId},
    job::{FaultTolerance, JobKind, JobSpec, PodOptions},
    record::{
        Action, AttemptCause, AttemptRecord, AttemptResult, Budget, Budgets, DecisionRecord, Diagnostics,
        LaunchCause, LaunchRecord, Ledger, NodeCounts, Proof, ProofVerdict, Queue, QueueReason, State,
        StepRange, Substate, Summary, Used, WhyNot,
    },
    time::Time,
};

use crate::console::{
    AttemptView, ChainView, CheckpointMark, ExcludedNode, JobMay, JobView, MetricPoint, MetricsView,
};

#[path = "samples/incidents.rs"]
mod incidents;

use self::incidents::{hang, incident_of, line, lost_gpu, second_hang};
pub use self::incidents::{incident, stood_still};

/// 29 Nov 2026, 08:00:00 UTC.
const START: i64 = 1_795_939_200;

/// So many seconds after the job began.
pub fn at(seconds: i64) -> Time {
    Time((START + seconds) * 1_000_000)
}

/// So many minutes after the job began.
pub fn minute(minutes: f64) -> Time {
    at((minutes * 60.0) as i64)
}

/// The sample job's id.
pub fn job_id() -> JobId {
    JobId::new("jsample00000").expect("a sample id is a DNS label")
}

/// The task of attempt `number`.
pub fn task(number: u32) -> TaskId {
    TaskId::of_attempt("pretrain-7b", &job_id(), number)
}

fn node(n: u32) -> NodeName {
    NodeName::new(format!("node-{n:02}")).expect("a sample name is a node name")
}

/// A replica by its name.
pub fn replica(name: &str) -> ReplicaName {
    ReplicaName::new(name).expect("a sample name is a DNS label")
}

/// What the sample job is made of: full mode, two task restarts.
pub fn spec() -> JobSpec {
    let mut ft = FaultTolerance { auto_failover: true, max_task_restarts: 2, ..FaultTolerance::default() };
    ft.policy.enabled = true;
    ft.hang_detection.enabled = true;
    JobSpec {
        name: "pretrain-7b".to_owned(),
        kind: JobKind::PyTorchJob,
        cluster: "local".to_owned(),
        image: None,
        command: ["python3", "train.py", "--config", "7b.yaml"].map(str::to_owned).to_vec(),
        env: BTreeMap::from([("DATA".to_owned(), "/vol/data".to_owned())]),
        replicas: 4,
        processes_per_replica: 8,
        accelerators_per_replica: 8,
        working_dir: None,
        checkpoint_dir: Some("/vol/ckpt/7b".to_owned()),
        kubernetes: PodOptions::default(),
        fault_tolerance: ft,
    }
}

/// A launch that ran between two moments, in seconds; nothing of it is proven.
pub fn launch(number: u32, from: Option<i64>, to: Option<i64>) -> LaunchRecord {
    LaunchRecord {
        number,
        cause: if number == 0 { LaunchCause::Initial } else { LaunchCause::Failure },
        started_at: from.map(at),
        ended_at: to.map(at),
        steps: None,
        proof: Proof {
            resources: Default::default(),
            checkpoint: Default::default(),
            progress: Default::default(),
            new_checkpoint: Default::default(),
            verdict: ProofVerdict::Pending,
        },
        health_checks: None,
    }
}

/// A launch that resumed: minutes, steps, the checkpoint it loaded and the one it wrote.
fn resumed(number: u32, from: f64, to: f64, steps: (u64, u64), saved: u64) -> LaunchRecord {
    let mut launch = launch(number, Some((from * 60.0) as i64), Some((to * 60.0) as i64));
    launch.steps = Some(StepRange { first: steps.0 + 1, last: steps.1 });
    let proof = &mut launch.proof;
    (proof.resources.ok, proof.resources.at, proof.resources.ready) = (Some(true), Some(minute(from)), 32);
    let expected = (steps.0 > 0).then_some(steps.0);
    (proof.checkpoint.ok, proof.checkpoint.at) = (Some(true), Some(minute(from + 3.5)));
    (proof.checkpoint.step, proof.checkpoint.expected) = (expected, expected);
    proof.checkpoint.path = expected.map(|s| format!("/vol/ckpt/7b/step-{s}"));
    (proof.progress.ok, proof.progress.at) = (Some(true), Some(minute(from + 4.0)));
    (proof.progress.step, proof.progress.loss) = (Some(steps.0 + 1), Some(2.1));
    (proof.new_checkpoint.ok, proof.new_checkpoint.at) = (Some(true), Some(minute(from + 11.0)));
    proof.new_checkpoint.step = Some(saved);
    proof.verdict = if steps.0 == 0 { ProofVerdict::StartedFresh } else { ProofVerdict::Resumed };
    launch
}

/// One attempt by its number, state and result, with nothing in it.
pub fn attempt(number: u32, state: State, result: Option<AttemptResult>) -> AttemptView {
    AttemptView {
        attempt: AttemptRecord {
            task_id: task(number),
            number,
            cause: if number == 1 { AttemptCause::Initial } else { AttemptCause::Failure },
            state,
            result,
            failure_type: None,
            fault: None,
            submitted_at: Some(minute(f64::from(number - 1) * 30.0)),
            placed_at: Some(minute(f64::from(number - 1) * 30.0 + 0.5)),
            started_at: Some(minute(f64::from(number - 1) * 30.0 + 1.0)),
            ended_at: state.is_terminal().then(|| minute(f64::from(number) * 30.0)),
            nodes: vec![node(3), node(9), node(11), node(12)],
            avoided_nodes: Vec::new(),
            quarantined_nodes: Vec::new(),
            in_place_restarts: 0,
            hang_restarts: 0,
            queue: None,
            exit_checkpoint: None,
            exit_test: None,
        },
        launches: Vec::new(),
        incidents: Vec::new(),
    }
}

fn blame(view: &mut AttemptView) {
    if let Some(last) = view.incidents.last() {
        view.attempt.failure_type = Some(last.failure_type);
        view.attempt.fault = Some(last.fault.clone());
    }
}

/// A chain with these attempts and nothing else to say.
pub fn chain_of(attempts: Vec<AttemptView>, state: State, task_restarts: Used) -> ChainView {
    let total = attempts.last().map_or(0, |a| a.attempt.number);
    ChainView {
        job_id: job_id(),
        state,
        substate: None,
        mode: spec().fault_tolerance.mode(),
        original_task_id: task(1),
        latest_task_id: task(total),
        attempts_total: total,
        budgets: Budgets {
            task_restarts,
            in_place_restarts: Used { used: 0, allowed: 3 },
            hang_restarts: Used { used: 0, allowed: 1 },
            diagnostics: Diagnostics::default(),
        },
        attempts,
        why_not: None,
        diagnostics: Vec::new(),
        ledger: Ledger::default(),
        excluded: Vec::new(),
        now: minute(362.5),
    }
}

/// Three attempts, two restarts in place, the third waits: the chain of the design.
pub fn chain() -> ChainView {
    let mut first = attempt(1, State::Failed, Some(AttemptResult::Resubmitted));
    first.attempt.nodes = vec![node(3), node(7), node(9), node(12)];
    (first.attempt.started_at, first.attempt.ended_at) = (Some(at(20)), Some(at(186 * 60 + 2)));
    first.attempt.hang_restarts = 1;
    first.launches =
        vec![resumed(0, 0.4, 120.0, (0, 15_120), 1_000), resumed(1, 120.2, 186.0, (15_000, 24_300), 16_000)];
    first.incidents = vec![stood_still(), lost_gpu()];
    blame(&mut first);
    let mut second = attempt(2, State::Failed, Some(AttemptResult::Resubmitted));
    (second.attempt.submitted_at, second.attempt.started_at, second.attempt.ended_at) =
        (Some(at(186 * 60 + 3)), Some(minute(192.0)), Some(minute(334.5)));
    second.attempt.avoided_nodes = vec![node(7)];
    second.attempt.hang_restarts = 1;
    second.launches = vec![
        resumed(0, 192.0, 311.0, (24_000, 39_150), 25_000),
        resumed(1, 311.2, 334.3, (39_000, 40_400), 40_000),
    ];
    second.incidents = vec![hang(2, 39_150, 311.1, 311.3), second_hang()];
    blame(&mut second);
    let mut third = attempt(3, State::Queued, None);
    (third.attempt.submitted_at, third.attempt.started_at) = (Some(minute(345.35)), None);
    third.attempt.nodes = Vec::new();
    third.attempt.avoided_nodes = vec![node(7), node(11)];
    third.attempt.queue = Some(Queue {
        reason: QueueReason::AvoidedNodes,
        text: "0/16 nodes are available: 11 insufficient slots, 2 avoided by this job.".to_owned(),
        position: Some(1),
        needs_nodes: Some(4),
        nodes: Some(NodeCounts { total: 16, busy: 11, avoided: 2, free: 3 }),
    });
    let mut waiting = launch(0, None, None);
    waiting.proof.checkpoint.expected = Some(40_000);
    third.launches = vec![waiting];
    let mut chain = chain_of(vec![first, second, third], State::Recovering, Used { used: 2, allowed: 2 });
    chain.substate = Some(Substate::Resubmitted);
    chain.why_not = Some(WhyNot {
        text: "All 2 task restarts are used.".to_owned(),
        next: "Resubmit by hand if attempt 3 fails.".to_owned(),
    });
    chain.ledger = Ledger {
        kept: 142.2 * 3600.0,
        stalled: 20.9 * 3600.0,
        starting: 8.5 * 3600.0,
        redone: 3.4 * 3600.0,
        diagnosing: 0.0,
        queued_seconds: 1_380.0,
        ettr: Some(0.8126),
    };
    chain.excluded = [(7, 1, 2, FailureType::HwNode, 186), (11, 2, 2, FailureType::CommHang, 334)]
        .map(|(n, attempt, i, failure_type, m)| ExcludedNode {
            node: node(n),
            incident: Some(IncidentId::of_attempt(&task(attempt), i)),
            failure_type: Some(failure_type),
            diagnosis: None,
            at: Some(minute(f64::from(m))),
        })
        .to_vec();
    chain
}

/// One attempt that runs and has met nothing.
pub fn running() -> ChainView {
    let mut only = attempt(1, State::Running, None);
    let mut launch = resumed(0, 1.0, 0.0, (0, 9_200), 9_000);
    launch.ended_at = None;
    only.launches = vec![launch];
    let mut chain = chain_of(vec![only], State::Running, Used { used: 0, allowed: 2 });
    chain.now = minute(64.0);
    chain.ledger =
        Ledger { kept: 32.0 * 3600.0, starting: 1.9 * 3600.0, ettr: Some(0.944), ..Ledger::default() };
    chain
}

/// The same error at the same step twice: a rule ended it.
pub fn fail_fast() -> ChainView {
    let mut only = attempt(1, State::Failed, Some(AttemptResult::FailFast));
    only.launches =
        vec![resumed(0, 1.0, 12.0, (0, 1_200), 1_000), resumed(1, 12.1, 17.0, (1_000, 1_200), 1_100)];
    let mut first = incident(1, 720);
    first.step = Some(1_200);
    let mut second = incident(2, 1_020);
    second.step = Some(1_200);
    second.repeats = true;
    second.evidence = vec![line(
        0,
        412,
        Role::Root,
        "ValueError: <b>shape</b> mismatch: (8, 4096) and (8, 4095)",
        "python-error",
        FailureType::AppError,
        at(1_020),
    )];
    second.decision = DecisionRecord {
        action: Action::FailFast,
        rule: "app-error-repeats".to_owned(),
        reason: "The same error came at the same step twice, so another try would fail the same way."
            .to_owned(),
        charged: Budget::None,
        before: 0,
        after: 0,
        allowed: None,
        ..second.decision
    };
    only.incidents = vec![first, second];
    blame(&mut only);
    let mut chain = chain_of(vec![only], State::Failed, Used { used: 0, allowed: 2 });
    chain.why_not = Some(WhyNot {
        text: "Same error at step 1,200 twice, no progress.".to_owned(),
        next: "Change the program or its input, then resubmit.".to_owned(),
    });
    chain
}

/// Maximum Task Restart Attempts is 0 and it failed.
pub fn budget_zero() -> ChainView {
    let mut only = attempt(1, State::Failed, Some(AttemptResult::BudgetUsed));
    only.launches = vec![resumed(0, 1.0, 12.0, (0, 1_200), 1_000)];
    let mut i = incident(1, 720);
    i.decision.action = Action::None;
    i.decision.charged = Budget::None;
    only.incidents = vec![i];
    blame(&mut only);
    let mut chain = chain_of(vec![only], State::Failed, Used { used: 0, allowed: 0 });
    chain.why_not = Some(WhyNot {
        text: "Maximum Task Restart Attempts is 0.".to_owned(),
        next: "Resubmit by hand, or set it when you create the job.".to_owned(),
    });
    chain
}

/// A person stopped it.
pub fn stopped() -> ChainView {
    let mut only = attempt(1, State::Stopped, Some(AttemptResult::Stopped));
    only.launches = vec![resumed(0, 1.0, 12.0, (0, 1_200), 1_000)];
    let mut chain = chain_of(vec![only], State::Stopped, Used { used: 0, allowed: 2 });
    chain.why_not = Some(WhyNot {
        text: "Stopped by user-1; a manual stop is never resubmitted.".to_owned(),
        next: "Resubmit by hand to go on.".to_owned(),
    });
    chain
}

/// Forty attempts, the last with many launches.
pub fn long() -> ChainView {
    let attempts = (1..=40)
        .map(|n| {
            let last = n == 40;
            let result = (!last).then_some(AttemptResult::Resubmitted);
            let mut view = attempt(n, if last { State::Running } else { State::Failed }, result);
            let from = f64::from(n - 1) * 30.0 + 1.0;
            let steps = u64::from(n - 1) * 500;
            view.launches = vec![resumed(0, from, from + 28.0, (steps, steps + 560), steps + 500)];
            if last {
                view.launches[0].ended_at = Some(minute(from + 2.0));
                view.launches.extend((1..9).map(|l| {
                    let mut one = resumed(
                        l,
                        from + f64::from(l) * 2.0,
                        from + f64::from(l) * 2.0 + 1.9,
                        (steps, steps + 60),
                        steps,
                    );
                    if l == 8 {
                        one.ended_at = None
                    }
                    one
                }));
                view.incidents = (1..9)
                    .map(|i| {
                        let mut one = incident_of(n, i, (from * 60.0) as i64 + i64::from(i) * 120);
                        (one.decision.before, one.decision.after, one.decision.allowed) =
                            (i - 1, i, Some(20));
                        one
                    })
                    .collect();
            } else {
                let mut i = incident_of(n, 1, ((from + 28.0) * 60.0) as i64);
                i.step = Some(steps + 560);
                i.decision.action = Action::Resubmit;
                i.decision.charged = Budget::TaskRestarts;
                (i.decision.before, i.decision.after, i.decision.allowed) = (n - 1, n, Some(50));
                i.decision.next_task_id = Some(task(n + 1));
                view.incidents = vec![i];
            }
            blame(&mut view);
            view
        })
        .collect();
    let mut chain = chain_of(attempts, State::Running, Used { used: 39, allowed: 50 });
    chain.now = minute(40.0 * 30.0 + 20.0);
    chain
}

/// The head that belongs to a chain.
pub fn job(chain: &ChainView) -> JobView {
    let newest = chain.attempts.last();
    let reached =
        chain.attempts.iter().flat_map(|a| &a.launches).filter_map(|l| l.steps).map(|s| s.last).max();
    let saved =
        chain.attempts.iter().flat_map(|a| &a.launches).filter_map(|l| l.proof.new_checkpoint.step).max();
    let ended = chain.state.is_terminal();
    JobView {
        job_id: chain.job_id.clone(),
        name: "pretrain-7b".to_owned(),
        owner: "user-1".to_owned(),
        copied_from: None,
        created_at: at(0),
        ended_at: newest.filter(|_| ended).and_then(|a| a.attempt.ended_at),
        summary: Summary {
            state: chain.state,
            substate: chain.substate,
            tail: match chain.state {
                State::Recovering => "attempt 3 is queued for 17 min".to_owned(),
                State::Running => format!("step {} of 90,000", crate::format::count(reached.unwrap_or(0))),
                State::Stopped => "by user-1, 08:30".to_owned(),
                _ => chain.why_not.as_ref().map(|w| w.text.clone()).unwrap_or_default(),
            },
            mode: chain.mode,
            original_task_id: chain.original_task_id.clone(),
            latest_task_id: chain.latest_task_id.clone(),
            attempts_total: chain.attempts_total,
            budgets: chain.budgets,
            why_not: chain.why_not.clone(),
            ledger: chain.ledger,
            reached_step: reached,
            saved_step: saved,
            total_steps: Some(90_000),
            longest_quiet: None,
            failure_type: newest.and_then(|a| a.incidents.last()).map(|i| i.failure_type),
            needs_attention: chain.state == State::Failed,
            stopped_by: (chain.state == State::Stopped).then(|| "user-1".to_owned()),
            kept: None,
            saving_until: None,
        },
        original_state: chain.attempts.first().map_or(State::Queued, |a| a.attempt.state),
        latest_state: newest.map_or(State::Queued, |a| a.attempt.state),
        spec: spec(),
        may: JobMay {
            stop: ended.then(|| "It has ended.".to_owned()),
            delete: None,
            resubmit: (!ended).then(|| "It has not ended.".to_owned()),
            test_exit: None,
        },
        cluster_configured: true,
        cluster_troubles: Vec::new(),
        now: chain.now,
    }
}

/// A curve that falls, with a ghost for every loss of the chain.
pub fn metrics(chain: &ChainView) -> MetricsView {
    let mut points = Vec::new();
    let mut checkpoints = Vec::new();
    let launches: Vec<_> =
        chain.attempts.iter().flat_map(|a| a.launches.iter().map(move |l| (a, l))).collect();
    for (i, (view, launch)) in launches.iter().enumerate() {
        let Some((steps, from)) = launch.steps.zip(launch.started_at) else { continue };
        let back = launches[i + 1..]
            .iter()
            .find_map(|(_, l)| l.proof.checkpoint.step.or(l.proof.checkpoint.expected))
            .unwrap_or(u64::MAX);
        // The backend gives at most 2,000 points.
        let stride = ((steps.last - steps.first) * launches.len() as u64 / 1_800).max(1);
        for step in (steps.first..=steps.last).step_by(stride as usize) {
            let wave = ((step * 7919) % 97) as f64 / 97.0;
            points.push(MetricPoint {
                task_id: view.attempt.task_id.clone(),
                launch: launch.number,
                step,
                at: Time(from.micros() + ((step - steps.first) * 400_000) as i64),
                value: 2.0
                    + 6.5 / (1.0 + step as f64 / 2_500.0)
                    + wave * 0.12
                    + if step > back { 0.15 } else { 0.0 },
                kept: step <= back,
            });
        }
        checkpoints.extend((steps.first / 1000 + 1..=steps.last.min(back) / 1000).map(|k| CheckpointMark {
            step: k * 1000,
            at: Time(from.micros() + ((k * 1000 - steps.first) * 400_000) as i64),
        }));
    }
    MetricsView { points, checkpoints, advice: None }
}
