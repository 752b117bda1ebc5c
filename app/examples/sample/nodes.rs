//! Sixteen nodes of one cluster.

use app::console::{CapView, ClusterUsage, NodeEvent, NodeJob, NodePage, NodeView, StrikeView, UsageView};
use engine::{
    failure::FailureType,
    ids::{IncidentId, NodeName, TaskId},
    ledger,
    nodes::{
        forecast::{Forecast, Unable},
        standing::{NodeState, Quarantine},
    },
    record::{Ledger, NodeCounts, StrikeRecord},
    time::Time,
};

use super::{NOW, jobs::job_id};

fn job(index: usize, name: &str) -> NodeJob {
    let job_id = job_id(index);
    NodeJob { task_id: TaskId::of_attempt(name, &job_id, 1), job_id, name: name.to_owned() }
}

/// All nodes.
pub fn all() -> Vec<NodeView> {
    (1..=16).map(node).collect()
}

/// Where the time of the cluster went.
pub fn usage(days: u32) -> UsageView {
    let days_of = f64::from(days) * 86_400.0;
    let ledger = Ledger {
        kept: 71.2 * days_of,
        stalled: 0.9 * days_of,
        starting: 2.1 * days_of,
        redone: 1.8 * days_of,
        diagnosing: 0.4 * days_of,
        queued_seconds: 0.3 * days_of,
        ettr: None,
    };
    let total = ledger::together([ledger]);
    let item = ClusterUsage { cluster: "gpu-a".to_owned(), jobs: 41, accelerators: true, ledger: total };
    let since = Time(NOW.0 - i64::from(days) * 86_400_000_000);
    UsageView { days, since, items: vec![item], total }
}

/// How many are out.
pub fn cap() -> CapView {
    let cluster = "gpu-a".to_owned();
    CapView { cluster, quarantined: 1, counted: 1, allowed: Some(4), ..CapView::default() }
}

/// One of them.
pub fn page(name: &NodeName) -> Option<NodePage> {
    let node = all().into_iter().find(|node| node.name == *name)?;
    let text = format!("{name} is quarantined for 1 d 0 h: 3 strikes within 7 d 0 h.");
    let history =
        node.quarantine.iter().map(|out| NodeEvent { at: out.since, by: out.by.clone(), text: text.clone() });
    let NodeJob { job_id, name, .. } = job(0, "pretrain-7b");
    let unable = vec![Unable { job_id, name, needs_nodes: 4, running: false, ever: false }];
    let history = history.collect();
    Some(NodePage { forecast: Forecast { total: 16, left: 13, free: 2, unable }, history, cap: cap(), node })
}

fn node(number: u32) -> NodeView {
    let name = NodeName::new(format!("node-{number:02}")).expect("a sample name is plain");
    let runs = match number {
        1 | 2 | 4 | 5 | 6 | 8 | 10 | 13 => Some(job(2, "dpo-70b")),
        14 | 15 => Some(job(6, "vit-l")),
        16 => Some(job(4, "ray-eval")),
        _ => None,
    };
    let strike = |failure_type: FailureType, text: &str, seconds: i64| {
        let owner = job(0, "pretrain-7b");
        StrikeView {
            strike: StrikeRecord {
                node: name.clone(),
                at: Time(NOW.0 - seconds * 1_000_000),
                incident: IncidentId::of_attempt(&owner.task_id, 2),
                failure_type,
                text: text.to_owned(),
            },
            job_id: owner.job_id,
            job_name: owner.name,
            uncounted: None,
            expires_at: Time(NOW.0 + 300_000_000_000),
        }
    };
    let strikes = match number {
        7 => vec![
            strike(FailureType::HwNode, "Xid 79, GPU has fallen off the bus", 10_000),
            strike(FailureType::HwNode, "uncorrectable ECC error", 300_000),
        ],
        11 => vec![strike(FailureType::CommHang, "odd rank out in a hang", 1_200)],
        12 => vec![strike(FailureType::NetFabric, "link flap", 200_000)],
        _ => Vec::new(),
    };
    let avoided_by = if number == 7 || number == 11 { vec![job(0, "pretrain-7b")] } else { Vec::new() };
    NodeView {
        cluster: "gpu-a".to_owned(),
        slots: 8,
        used: if runs.is_some() { 8 } else { 0 },
        jobs: runs.into_iter().collect(),
        avoided_by,
        state: match number {
            7 => NodeState::Quarantined,
            11 | 12 => NodeState::Suspected,
            _ => NodeState::Ready,
        },
        strikes_counted: u32::try_from(strikes.len()).unwrap_or(0),
        strikes_limit: 3,
        quarantine: (number == 7).then(|| Quarantine {
            since: Time(NOW.0 - 10_000_000_000),
            until: Some(Time(NOW.0 + 70_000_000_000)),
            by: "holdfast".to_owned(),
            reason: "3 strikes within 7 d 0 h".to_owned(),
            diagnosis: None,
        }),
        trial_since: None,
        strikes,
        counts: NodeCounts { total: 16, busy: 11, avoided: 2, free: 3 },
        name,
    }
}
