use super::*;
use crate::failure::Signal;

fn replica(index: u32) -> ReplicaName {
    ReplicaName::of_index(crate::job::JobKind::PyTorchJob, index)
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// A line of rank `rank`, which is alone in its replica, at second `at`.
fn line(rank: u32, at: u64, signature: &str, text: &str) -> Evidence {
    let signature = Signatures::builtin().get(signature).unwrap();
    Evidence {
        replica: replica(rank),
        rank: Some(rank),
        line: text.to_owned(),
        line_number: 1,
        at: Time::default().plus_seconds(at),
        signature: signature.id.clone(),
        role: signature.role,
        failure_type: signature.failure_type,
    }
}

fn exit(rank: u32, at: u64, code: i64) -> RankExit {
    RankExit {
        replica: replica(rank),
        rank: Some(rank),
        exit: Exit::from_code(code),
        at: Time::default().plus_seconds(at),
        asked: false,
    }
}

fn fact(rank: u32, reason: EndReason) -> ClusterFact {
    ClusterFact { replica: replica(rank), reason }
}

/// Ranks 0 to `ranks - 1`, each in its own replica on its own node `n0`, `n1`, …
fn input(ranks: u32, exits: Vec<RankExit>, evidence: Vec<Evidence>, facts: Vec<ClusterFact>) -> VerdictInput {
    let placement = (0..ranks).map(|rank| (replica(rank), node(&format!("n{rank}")))).collect();
    VerdictInput { placement, exits, evidence, facts }
}

const XID: &str = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.";
const OOM: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
const TIMEOUT: &str = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)";
const REMOTE: &str = "ncclRemoteError: A call failed possibly due to a network error";

#[test]
fn an_exit_that_nothing_explains_speaks_for_itself() {
    use FailureType::{EnvError, HwNode, OomHost, Unknown};
    for (code, want, rule) in [
        (-9, OomHost, "signal-SIGKILL"),
        (137, OomHost, "signal-SIGKILL"),
        (139, HwNode, "signal-SIGSEGV"),
        (134, Unknown, "signal-SIGABRT"),
        (143, Unknown, "signal-SIGTERM"),
        (127, EnvError, "exit-code-127"),
        (126, EnvError, "exit-code-126"),
        (2, EnvError, "exit-code-2"),
        (247, OomHost, "exit-code-247"),
        (1, Unknown, "exit-code-1"),
    ] {
        let verdict = verdict(&input(2, vec![exit(1, 0, code)], vec![], vec![])).unwrap();
        assert_eq!((verdict.failure_type, verdict.rule.as_str()), (want, rule));
        assert_eq!(verdict.confidence, Confidence::Low);
        assert_eq!(verdict.root.unwrap().rank, Some(1));
    }
}

#[test]
fn nothing_failed_where_all_finished_or_were_asked_to_stop() {
    let mut asked = exit(1, 1, 143);
    asked.asked = true;
    assert_eq!(verdict(&input(2, vec![exit(0, 0, 0), asked], vec![], vec![])), None);
    // Lines of a run that ended well were survived.
    let lines = vec![line(0, 0, "cuda-oom", OOM)];
    assert_eq!(verdict(&input(1, vec![exit(0, 0, 0)], lines, vec![])), None);
    assert_eq!(verdict(&VerdictInput::default()), None);
}

#[test]
fn preemption_is_no_failure() {
    let facts = vec![fact(0, EndReason::Preempted("drained".into()))];
    assert_eq!(verdict(&input(2, vec![exit(0, 0, 143), exit(1, 1, 134)], vec![], facts)), None);
}

#[test]
fn the_cluster_knows_best() {
    let lines = || vec![line(0, 0, "python-code-error", "ValueError: no")];
    for (reason, want, rule) in [
        (EndReason::OomKilled, FailureType::OomHost, "cluster-oom-killed"),
        (EndReason::NodeLost("NotReady".into()), FailureType::HwNode, "cluster-node-lost"),
        (EndReason::StartError("ErrImagePull".into()), FailureType::EnvError, "cluster-start-error"),
        (EndReason::Evicted("low on memory".into()), FailureType::OomHost, "cluster-evicted"),
    ] {
        let verdict = verdict(&input(2, vec![exit(0, 0, 1)], lines(), vec![fact(1, reason)])).unwrap();
        assert_eq!((verdict.failure_type, verdict.rule.as_str()), (want, rule));
        assert_eq!(verdict.confidence, Confidence::High);
        let suspects = if want == FailureType::HwNode { vec![node("n1")] } else { vec![] };
        assert_eq!(verdict.suspects, suspects);
    }
}

#[test]
fn a_replica_that_disappears_explains_no_more_than_the_lines_do() {
    let lost = || vec![fact(1, EndReason::Lost("agent gone".into()))];
    let alone = verdict(&input(2, vec![], vec![], lost())).unwrap();
    assert_eq!((alone.failure_type, alone.rule.as_str()), (FailureType::Unknown, "cluster-lost"));
    assert_eq!(alone.fault, "disappeared (agent gone) on worker-0");
    let told = verdict(&input(2, vec![], vec![line(1, 0, "cuda-oom", OOM)], lost())).unwrap();
    assert_eq!(told.failure_type, FailureType::OomGpu);
}

#[test]
fn the_earliest_root_wins_and_the_others_only_followed() {
    let lines = vec![
        line(0, 5, "python-code-error", "KeyError: 'height'"),
        line(2, 3, "cuda-oom", OOM),
        line(1, 1, "nccl-remote", REMOTE),
    ];
    let exits = vec![exit(0, 5, 1), exit(1, 4, 1), exit(2, 4, 1), exit(3, 5, -6)];
    let verdict = verdict(&input(4, exits, lines, vec![])).unwrap();
    assert_eq!(verdict.failure_type, FailureType::OomGpu);
    assert_eq!(verdict.fault, "CUDA out of memory on rank 2");
    assert_eq!(verdict.cascade_ranks, 2, "ranks 1 and 3; rank 0 has a root of its own");
    let roles: Vec<_> = verdict.evidence.iter().map(|line| line.role).collect();
    assert_eq!(roles, [Role::Root, Role::Root, Role::Cascade]);
    let root = verdict.root.unwrap();
    assert_eq!((root.rank, root.exit_code, root.node), (Some(2), Some(1), Some(node("n2"))));
}

#[test]
fn hardware_beats_a_timeout_that_was_seen_first() {
    let lines = vec![line(0, 0, "nccl-watchdog-timeout", TIMEOUT), line(1, 2, "xid-79", XID)];
    let verdict = verdict(&input(4, vec![exit(0, 1, -6), exit(1, 2, -6)], lines, vec![])).unwrap();
    assert_eq!((verdict.failure_type, verdict.fault.as_str()), (FailureType::HwNode, "Xid 79 on n1, rank 1"));
    assert_eq!(verdict.suspects, [node("n1")]);
    assert_eq!(verdict.cascade_ranks, 0, "rank 0 has a root line too, though it did not decide");
}

#[test]
fn a_killed_rank_explains_the_broken_connections_of_the_others() {
    let lines = vec![line(0, 1, "nccl-remote", REMOTE), line(1, 1, "nccl-remote", REMOTE)];
    let exits = vec![exit(0, 2, -6), exit(1, 2, -6), exit(2, 0, -9)];
    let verdict = verdict(&input(3, exits, lines, vec![])).unwrap();
    assert_eq!(verdict.failure_type, FailureType::OomHost);
    assert_eq!(verdict.fault, "SIGKILL (exit 137) on rank 2");
    assert_eq!(verdict.root.unwrap().signal, Some(Signal::KILL));
    assert_eq!(verdict.cascade_ranks, 2);
}

#[test]
fn the_one_rank_that_failed_without_a_word_is_what_the_others_noticed() {
    let lines = || vec![line(1, 1, "nccl-remote", REMOTE), line(2, 1, "nccl-remote", REMOTE)];
    let alone = vec![exit(0, 0, 113), exit(1, 2, 1), exit(2, 2, 1)];
    let found = verdict(&input(3, alone, lines(), vec![])).unwrap();
    assert_eq!((found.failure_type, found.fault.as_str()), (FailureType::Unknown, "exit 113 on rank 0"));
    assert_eq!(found.cascade_ranks, 2);
    // Where several are silent, as when only some ranks log, none stands out.
    let several = vec![exit(0, 0, 1), exit(1, 2, 1), exit(2, 2, 1), exit(3, 0, 1)];
    let found = verdict(&input(4, several, lines(), vec![])).unwrap();
    assert_eq!(found.failure_type, FailureType::NetFabric);
}

#[test]
fn broken_connections_alone_blame_the_network_but_no_node() {
    let lines = vec![line(0, 1, "nccl-remote", REMOTE)];
    let verdict = verdict(&input(2, vec![exit(0, 2, -6)], lines, vec![])).unwrap();
    assert_eq!((verdict.failure_type, verdict.confidence), (FailureType::NetFabric, Confidence::Medium));
    assert!(verdict.suspects.is_empty());
}

#[test]
fn what_many_nodes_show_at_once_is_the_fault_of_the_job() {
    let crash = |ranks: std::ops::Range<u32>| {
        let exits = ranks.map(|rank| exit(rank, u64::from(rank), -11)).collect();
        verdict(&input(4, exits, vec![], vec![])).unwrap().suspects
    };
    assert_eq!(crash(0..1), [node("n0")]);
    assert_eq!(crash(0..2), [node("n0"), node("n1")]);
    assert!(crash(0..3).is_empty(), "three of four");
    let lines = (0..3).map(|rank| line(rank, 0, "kernel-segfault", "segfault at 7f00 ip 00007f01")).collect();
    let exits = (0..3).map(|rank| exit(rank, 0, -11)).collect();
    assert!(verdict(&input(4, exits, lines, vec![])).unwrap().suspects.is_empty());
}

#[test]
fn an_xid_of_the_program_spares_its_node() {
    let text = "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, MMU Fault";
    let verdict =
        verdict(&input(2, vec![exit(0, 0, -6)], vec![line(0, 0, "xid-application", text)], vec![])).unwrap();
    assert_eq!((verdict.failure_type, verdict.fault.as_str()), (FailureType::HwNode, "Xid 31 on n0, rank 0"));
    assert!(verdict.suspects.is_empty());
}

#[test]
fn a_link_that_is_down_is_said() {
    let text = "mlx5_core 0000:5e:00.0 eth2: Link down";
    let verdict =
        verdict(&input(2, vec![exit(0, 0, 1)], vec![line(0, 0, "ib-port-error", text)], vec![])).unwrap();
    assert!(verdict.link_down);
    assert_eq!(verdict.suspects, [node("n0")]);
}

#[test]
fn a_thousand_dead_ranks_are_one_verdict() {
    let exits =
        (0..1024).map(|rank| exit(rank, u64::from(rank > 0), if rank == 0 { 1 } else { -6 })).collect();
    let mut lines: Vec<_> = (1..1024).map(|rank| line(rank, 1, "nccl-remote", REMOTE)).collect();
    lines.push(line(0, 0, "python-code-error", "ValueError: bad sample 17"));
    let verdict = verdict(&input(1024, exits, lines, vec![])).unwrap();
    assert_eq!((verdict.failure_type, verdict.cascade_ranks), (FailureType::AppError, 1023));
    assert_eq!(verdict.evidence.len(), MAX_EVIDENCE);
    assert_eq!(verdict.evidence[0].rank, Some(0));
    assert_eq!(verdict.fault, "ValueError: bad sample 17 on rank 0");
}

#[test]
fn the_order_of_reports_changes_nothing() {
    let lines = vec![
        line(0, 0, "nccl-watchdog-timeout", TIMEOUT),
        line(1, 2, "xid-79", XID),
        line(2, 3, "nccl-remote", REMOTE),
    ];
    let exits = vec![exit(0, 1, -6), exit(1, 2, -6), exit(2, 3, 1)];
    let straight = verdict(&input(3, exits.clone(), lines.clone(), vec![]));
    let reversed = input(3, exits.into_iter().rev().collect(), lines.into_iter().rev().collect(), vec![]);
    assert_eq!(straight, verdict(&reversed));
}

#[test]
fn an_error_that_a_silent_rank_had_hours_ago_explains_nothing() {
    let refused = line(1, 0, "socket-refused", "ConnectionRefusedError: [Errno 111] Connection refused");
    let died = |at| {
        let lines = vec![refused.clone(), line(0, at, "cuda-oom", OOM)];
        verdict(&input(2, vec![exit(0, at, 1)], lines, vec![])).unwrap()
    };
    let hours_later = died(3 * 3600);
    assert_eq!((hours_later.failure_type, hours_later.evidence.len()), (FailureType::OomGpu, 1));
    let timeout = vec![refused.clone(), line(0, 1800, "nccl-watchdog-timeout", TIMEOUT)];
    let half_an_hour_later = verdict(&input(2, vec![exit(0, 1800, -6)], timeout, vec![])).unwrap();
    assert_eq!(half_an_hour_later.failure_type, FailureType::NetFabric);
}
