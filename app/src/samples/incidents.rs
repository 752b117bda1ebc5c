//! The incidents of the sample chains.

use engine::{
    failure::{Confidence, Evidence, FailureType, Phase, Role, Root, Signal},
    hang::{HangRecord, HangWitness, OddRank, RankGroup, Strength},
    ids::IncidentId,
    record::{Action, Budget, Clock, Cost, DecisionRecord, IncidentRecord},
    sync::{StackKey, WitnessKind},
    time::Time,
};

use super::{at, minute, node, replica, task};

/// An incident of the first attempt that was restarted in place.
pub fn incident(number: u32, seconds: i64) -> IncidentRecord {
    incident_of(1, number, seconds)
}

pub(super) fn incident_of(attempt: u32, number: u32, seconds: i64) -> IncidentRecord {
    IncidentRecord {
        id: IncidentId::of_attempt(&task(attempt), number),
        at: at(seconds),
        launch: number - 1,
        failure_type: FailureType::AppError,
        confidence: Confidence::High,
        phase: Phase::Training,
        step: Some(100),
        cascade_ranks: 0,
        root: None,
        fault: "RuntimeError in rank 0".to_owned(),
        hint: None,
        evidence: Vec::new(),
        hang: None,
        fingerprint: "app-error".to_owned(),
        repeats: false,
        decision: DecisionRecord {
            action: Action::RestartInPlace,
            rule: "app-error-in-place".to_owned(),
            policy_version: 1,
            reason: "The program failed; another start may do.".to_owned(),
            charged: Budget::InPlaceRestarts,
            before: 0,
            after: 1,
            allowed: Some(3),
            avoid: Vec::new(),
            next_at: None,
            next_task_id: None,
        },
        diagnosed: None,
        clock: Clock {
            noticed_at: at(seconds),
            submitted_at: Some(at(seconds + 1)),
            resources_at: None,
            first_step_at: None,
        },
        cost: Cost::default(),
        right: None,
    }
}

pub(super) fn line(
    rank: u32,
    n: u64,
    role: Role,
    text: &str,
    signature: &str,
    kind: FailureType,
    at: Time,
) -> Evidence {
    Evidence {
        replica: replica("worker-0"),
        rank: Some(rank),
        line: text.to_owned(),
        line_number: n,
        at,
        signature: signature.to_owned(),
        role,
        failure_type: kind,
    }
}

pub(super) fn hang(attempt: u32, step: u64, minutes: f64, next: f64) -> IncidentRecord {
    let mut i = incident_of(attempt, 1, (minutes * 60.0) as i64);
    i.failure_type = FailureType::CommHang;
    i.step = Some(step);
    i.confidence = Confidence::Medium;
    i.cascade_ranks = 31;
    i.fault = "No progress for 720 s; rank 5 was one collective behind".to_owned();
    i.root = Some(Root {
        replica: replica("master-0"),
        rank: Some(5),
        node: Some(node(3)),
        line: None,
        exit_code: None,
        signal: None,
    });
    i.decision.rule = "comm-hang-in-place".to_owned();
    i.decision.policy_version = 12;
    i.decision.reason = "Restarted in place; this creates no new task.".to_owned();
    i.decision.charged = Budget::HangRestarts;
    i.decision.allowed = Some(1);
    i.clock.resources_at = Some(minute(next));
    i.clock.first_step_at = Some(minute(next + 4.0));
    i.cost = Cost {
        detect_seconds: Some(15.0 * 60.0),
        start_seconds: Some(8.0),
        load_seconds: Some(240.0),
        redo_seconds: Some(48.0),
        redone_steps: Some(step % 1000),
        accelerator_seconds: Some(9.6 * 3600.0),
        ..Cost::default()
    };
    i
}

/// The first hang, as Job Hang Detection found it.
pub fn stood_still() -> IncidentRecord {
    let mut i = hang(1, 15_120, 120.2, 120.3);
    let since = minute(108.0);
    let witness = |kind, unchanged, unknown, words: &str| HangWitness {
        kind,
        unchanged,
        changed: 0,
        unknown,
        since: (unchanged > 0).then_some(since),
        words: words.to_owned(),
    };
    let group = |ranks: Vec<u32>, place: &str, odd| RankGroup {
        count: ranks.len() as u32,
        nodes: if odd { vec![node(3)] } else { vec![node(1), node(2), node(4)] },
        stack: Some(StackKey {
            hash: place.to_owned(),
            top: vec![format!("{place} (train.py)"), "<module> (train.py)".to_owned()],
        }),
        ranks,
        place: place.to_owned(),
        odd,
    };
    i.fault = "no progress for 12 min: rank 5 on node-03 in read_batch, 31 others in all_reduce".to_owned();
    i.hang = Some(Box::new(HangRecord {
        since,
        until: minute(120.0),
        allowed_seconds: 600,
        phase: Phase::Training,
        witnesses: vec![
            witness(WitnessKind::Stack, 32, 0, "32 ranks in the same functions"),
            witness(WitnessKind::Output, 32, 0, "32 ranks printed nothing"),
            witness(WitnessKind::Cpu, 0, 32, "not known of 32 ranks (no /proc)"),
            witness(WitnessKind::Step, 32, 0, "no step after 15,120"),
        ],
        groups: vec![
            group((0..32).filter(|rank| *rank != 5).collect(), "all_reduce", false),
            group(vec![5], "read_batch", true),
        ],
        odd: Some(OddRank {
            ranks: vec![5],
            node: Some(node(3)),
            strength: Strength::Strong,
            why: "not where 31 ranks wait for it".to_owned(),
        }),
        words: i.fault.clone(),
    }));
    i
}

pub(super) fn lost_gpu() -> IncidentRecord {
    let mut i = incident_of(1, 2, 186 * 60 + 2);
    i.failure_type = FailureType::HwNode;
    i.step = Some(24_300);
    i.cascade_ranks = 31;
    i.fault = "Xid 79 on node-07, rank 14".to_owned();
    i.hint = Some(
        "Have node-07 checked: the GPU has left the bus. A reboot brings it back only for a while."
            .to_owned(),
    );
    i.root = Some(Root {
        replica: replica("worker-0"),
        rank: Some(14),
        node: Some(node(7)),
        line: Some("NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.".to_owned()),
        exit_code: Some(134),
        signal: Some(Signal::ABRT),
    });
    i.evidence = lost_gpu_evidence(i.at);
    i.decision = DecisionRecord {
        action: Action::Resubmit,
        rule: "hw-node-avoid".to_owned(),
        policy_version: 12,
        reason: "Not in place: the GPU is gone.".to_owned(),
        charged: Budget::TaskRestarts,
        before: 0,
        after: 1,
        allowed: Some(2),
        avoid: vec![node(7)],
        next_at: Some(i.at),
        next_task_id: Some(task(2)),
    };
    i.clock.resources_at = Some(minute(192.0));
    i.clock.first_step_at = Some(minute(196.0));
    i.cost = Cost {
        queue_seconds: Some(360.0),
        start_seconds: Some(9.0),
        load_seconds: Some(231.0),
        redo_seconds: Some(120.0),
        redone_steps: Some(300),
        accelerator_seconds: Some(3.2 * 3600.0),
        ..Cost::default()
    };
    i.right = Some(true);
    i
}

fn lost_gpu_evidence(at: Time) -> Vec<Evidence> {
    vec![
        line(
            14,
            88_412,
            Role::Root,
            "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', GPU has fallen off the bus.",
            "xid-79",
            FailureType::HwNode,
            at,
        ),
        line(
            8,
            88_421,
            Role::Cascade,
            "[rank8] NCCL WARN NET/IB: Got completion from peer 10.0.7.14 with status=12",
            "nccl-peer-gone",
            FailureType::NetFabric,
            at,
        ),
        line(
            9,
            88_422,
            Role::Cascade,
            "[rank9] NCCL WARN NET/IB: Got completion from peer 10.0.7.14 with status=12",
            "nccl-peer-gone",
            FailureType::NetFabric,
            at,
        ),
        line(
            10,
            88_423,
            Role::Cascade,
            "[rank10] connection closed by remote peer",
            "nccl-peer-gone",
            FailureType::NetFabric,
            at,
        ),
    ]
}

pub(super) fn second_hang() -> IncidentRecord {
    let mut i = hang(2, 40_400, 334.3, 0.0);
    i.id = IncidentId::of_attempt(&task(2), 2);
    i.launch = 1;
    i.fault = "NCCL watchdog after 600 s on rank 9".to_owned();
    i.evidence = vec![line(
        9,
        9_120,
        Role::Root,
        "[Rank 9] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812406, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600043 ms",
        "nccl-watchdog",
        FailureType::CommHang,
        i.at,
    )];
    i.decision.action = Action::Resubmit;
    i.decision.rule = "comm-hang-resubmit".to_owned();
    i.decision.reason = "Not in place: 1 of 1 in-place restarts after hangs is used.".to_owned();
    i.decision.charged = Budget::TaskRestarts;
    (i.decision.before, i.decision.after, i.decision.allowed) = (1, 2, Some(2));
    i.decision.avoid = vec![node(11)];
    i.decision.next_task_id = Some(task(3));
    (i.clock.resources_at, i.clock.first_step_at) = (None, None);
    i.cost = Cost {
        detect_seconds: Some(600.0),
        redone_steps: None,
        accelerator_seconds: Some(6.9 * 3600.0),
        ..Cost::default()
    };
    i
}
