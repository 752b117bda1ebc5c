//! Jobs with their whole chains, by their ids: the design's own, and one for each way a chain can end.

use app::console::{ChainView, EventsPage, LogLevel, LogLine, LogPage, LogQuery};
use engine::{
    ids::JobId,
    record::{EventKind, EventRecord},
    time::Time,
};

use samples::{at, minute, replica, task};

// The chains are those of the pages' own tests.
#[path = "../../src/samples.rs"]
pub mod samples;

/// The chain of this job.
pub fn find(id: &JobId) -> Option<ChainView> {
    let mut chain = match id.as_str() {
        "jsample00000" => samples::chain(),
        "jrunning" => samples::running(),
        "jfailfast" => samples::fail_fast(),
        "jzero" => samples::budget_zero(),
        "jstopped" => samples::stopped(),
        "jlong" => samples::long(),
        _ => return None,
    };
    chain.job_id = id.clone();
    Some(chain)
}

/// A log whose line 88,412 is the evidence of the lost GPU.
pub fn log(query: &LogQuery) -> LogPage {
    const TOTAL: u64 = 88_427;
    let last = query.from.map_or(TOTAL, |from| (from + 199).min(TOTAL));
    let first = query.from.unwrap_or(TOTAL + 1 - u64::from(query.tail.unwrap_or(200))).max(1);
    let text = |n: u64| {
        match n {
        88_412 => (LogLevel::Error, "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', GPU has fallen off the bus.".to_owned()),
        88_413 => (LogLevel::Error, "terminate called after throwing an instance of 'c10::DistBackendError'".to_owned()),
        88_421..=88_422 => (LogLevel::Warning, "NCCL WARN NET/IB: Got completion from peer 10.0.7.14 with status=12, connection closed by remote peer, and this line goes on for longer than any screen is wide".to_owned()),
        n => (LogLevel::Info, format!("step {} | loss 2.301 | lr 2.91e-04 | <b>8.03e+04</b> tok/s", n % 24_300)),
    }
    };
    let lines = (first..=last)
        .map(|n| {
            let (level, text) = text(n);
            LogLine {
                n,
                at: Time(minute(186.0).micros() + (n as i64 - 88_412) * 71_000),
                rank: Some(14),
                level,
                text,
            }
        })
        .filter(|l| query.level.is_none_or(|level| l.level >= level))
        .filter(|l| query.q.as_ref().is_none_or(|q| l.text.to_lowercase().contains(&q.to_lowercase())))
        .collect();
    LogPage {
        replica: query.replica.clone().unwrap_or_else(|| replica("worker-0")),
        launch: query.launch.unwrap_or(1),
        replicas: ["master-0", "worker-0", "worker-1", "worker-2"].map(replica).to_vec(),
        launches: vec![0, 1],
        lines,
        next: (last < TOTAL).then_some(last + 1),
        total: Some(TOTAL),
    }
}

/// Some history.
pub fn events() -> EventsPage {
    let event = |seconds: i64, kind, attempt, by: &str, text: &str| EventRecord {
        at: at(seconds),
        kind,
        reason: None,
        task_id: Some(task(attempt)),
        by: by.to_owned(),
        text: text.to_owned(),
    };
    let items = vec![
        event(
            20_721,
            EventKind::Decision,
            3,
            "holdfast",
            "Resubmitted as attempt 3; avoids node-07 and node-11. Task restarts 1 to 2 of 2.",
        ),
        event(20_060, EventKind::Incident, 2, "holdfast", "COMM_HANG: NCCL watchdog after 600 s on rank 9"),
        event(
            19_300,
            EventKind::Progress,
            2,
            "holdfast",
            "Checkpoint 40,000 written to /vol/ckpt/7b/step-40000",
        ),
        event(
            18_962,
            EventKind::Progress,
            2,
            "holdfast",
            "Steps advance past 39,150: the in-place restart is a recovery",
        ),
        event(11_163, EventKind::Scheduling, 2, "cluster", "0/16 nodes are available: 12 insufficient slots"),
        event(0, EventKind::Person, 1, "user-1", "Created"),
    ];
    EventsPage { total: 58, next_cursor: Some("20721".to_owned()), items }
}
