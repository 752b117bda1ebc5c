//! Rows of the jobs list.

use app::console::JobRow;
use engine::{
    failure::FailureType,
    ids::{JobId, TaskId},
    job::{JobKind, Mode},
    record::{Budgets, Diagnostics, Ledger, State, Substate, Summary, Used},
    time::Time,
};

use super::NOW;

/// The id of the job at this place of the list.
pub fn job_id(index: usize) -> JobId {
    JobId::new(format!("jsample{index:05}")).expect("a sample id is a DNS label")
}

struct Row {
    name: &'static str,
    made_of: (JobKind, u32, u32),
    owner: &'static str,
    state: (State, Option<Substate>, &'static str),
    steps: Option<(u64, u64)>,
    restarts: Option<(u32, u32)>,
    in_place: u32,
    failure: Option<FailureType>,
    seconds_ago: i64,
}

use FailureType::{AppError, CommHang, NetFabric, OomGpu, OomHost};
use JobKind::{PyTorchJob as P, RayJob as R};
use State::{Failed, Queued, Recovering, Running, Saving, Starting, Stopped, Succeeded};

#[rustfmt::skip]
const ROWS: [Row; 15] = [
    Row { name: "pretrain-7b", made_of: (P, 4, 8), owner: "user-1", state: (Recovering, None, "3rd attempt queued, last step 38 min ago"), steps: Some((40_400, 90_000)), restarts: Some((2, 2)), in_place: 2, failure: Some(CommHang), seconds_ago: 1 },
    Row { name: "reward-7b", made_of: (P, 2, 8), owner: "user-1", state: (Saving, None, "at most 9 min left"), steps: Some((88, 100)), restarts: Some((0, 2)), in_place: 0, failure: None, seconds_ago: 2 },
    Row { name: "dpo-70b", made_of: (P, 8, 8), owner: "user-2", state: (Running, None, "step 8,120 of 20,000"), steps: Some((8_120, 20_000)), restarts: Some((0, 2)), in_place: 1, failure: Some(NetFabric), seconds_ago: 4 },
    Row { name: "clip-b32", made_of: (P, 1, 8), owner: "user-5", state: (Starting, None, "8 of 8 processes started"), steps: Some((0, 100)), restarts: Some((0, 2)), in_place: 0, failure: None, seconds_ago: 9 },
    Row { name: "ray-eval", made_of: (R, 1, 8), owner: "user-3", state: (Running, None, "no step reported"), steps: None, restarts: Some((0, 1)), in_place: 0, failure: None, seconds_ago: 11 },
    Row { name: "llama-sft", made_of: (P, 1, 8), owner: "user-4", state: (Recovering, Some(Substate::InPlaceRestart), "in place 1 of 3"), steps: Some((22, 100)), restarts: Some((0, 2)), in_place: 1, failure: Some(OomHost), seconds_ago: 40 },
    Row { name: "vit-l", made_of: (P, 2, 8), owner: "user-1", state: (Running, Some(Substate::SuspectedHang), "stack unchanged 8 of 10 min"), steps: Some((63, 100)), restarts: Some((0, 2)), in_place: 0, failure: None, seconds_ago: 50 },
    Row { name: "asr-base", made_of: (P, 1, 4), owner: "user-3", state: (Running, Some(Substate::Unknown), "last heard 12 min ago; the clock stops"), steps: Some((71, 100)), restarts: Some((0, 2)), in_place: 0, failure: None, seconds_ago: 720 },
    Row { name: "sft-13b", made_of: (P, 4, 8), owner: "user-2", state: (Succeeded, None, "after 1 resubmission"), steps: Some((100, 100)), restarts: Some((1, 2)), in_place: 0, failure: Some(NetFabric), seconds_ago: 4_000 },
    Row { name: "ray-rl", made_of: (R, 2, 8), owner: "user-3", state: (Failed, None, "Auto Failover is off."), steps: None, restarts: None, in_place: 0, failure: Some(AppError), seconds_ago: 4_200 },
    Row { name: "moe-8x7b", made_of: (P, 8, 8), owner: "user-4", state: (Queued, Some(Substate::Unschedulable), "asks for 64 GPUs, pool has 32"), steps: Some((0, 100)), restarts: Some((0, 3)), in_place: 0, failure: None, seconds_ago: 4_400 },
    Row { name: "ablate-lr-3", made_of: (P, 1, 8), owner: "user-2", state: (Failed, None, "Same error at step 1,200 twice, no progress."), steps: Some((6, 100)), restarts: Some((1, 2)), in_place: 0, failure: Some(AppError), seconds_ago: 5_000 },
    Row { name: "whisper-ft", made_of: (P, 1, 8), owner: "user-5", state: (Failed, None, "Rule CUDA out of memory: another try would fail the same way."), steps: Some((2, 100)), restarts: Some((0, 2)), in_place: 0, failure: Some(OomGpu), seconds_ago: 6_000 },
    Row { name: "tokenizer-fit-with-a-name-as-long-as-a-name-may-be-in-this-form", made_of: (P, 1, 0), owner: "user-1", state: (Stopped, None, "by user-1, 12:58"), steps: Some((54, 100)), restarts: Some((0, 2)), in_place: 0, failure: None, seconds_ago: 90_000 },
    Row { name: "sft-7b-v2", made_of: (P, 2, 8), owner: "user-2", state: (Succeeded, None, "no restart needed"), steps: Some((100, 100)), restarts: Some((0, 2)), in_place: 0, failure: None, seconds_ago: 40_000_000 },
];

/// All rows.
pub fn rows() -> Vec<JobRow> {
    ROWS.iter().enumerate().map(|(index, row)| of(index, row)).collect()
}

fn of(index: usize, row: &Row) -> JobRow {
    let job_id = job_id(index);
    let task = |number| TaskId::of_attempt(row.name, &job_id, number);
    let (used, allowed) = row.restarts.unwrap_or_default();
    let at = Time(NOW.0 - row.seconds_ago * 1_000_000);
    JobRow {
        name: row.name.to_owned(),
        kind: row.made_of.0,
        replicas: row.made_of.1,
        accelerators_per_replica: row.made_of.2,
        owner: row.owner.to_owned(),
        created_at: Time(at.0 - 3_600_000_000),
        changed_at: at,
        summary: Summary {
            state: row.state.0,
            substate: row.state.1,
            tail: row.state.2.to_owned(),
            mode: if row.restarts.is_some() { Mode::Full } else { Mode::None },
            original_task_id: task(1),
            latest_task_id: task(used + 1),
            attempts_total: used + 1,
            kept: None,
            saving_until: None,
            budgets: Budgets {
                task_restarts: Used { used, allowed },
                in_place_restarts: Used { used: row.in_place, allowed: 3 },
                hang_restarts: Used { used: 0, allowed: 1 },
                diagnostics: Diagnostics::default(),
            },
            why_not: None,
            ledger: Ledger::default(),
            reached_step: row.steps.map(|(reached, _)| reached),
            saved_step: None,
            total_steps: row.steps.map(|(_, total)| total),
            longest_quiet: None,
            failure_type: row.failure,
            needs_attention: row.state.1 == Some(Substate::Unschedulable)
                || row.state.1 == Some(Substate::Unknown),
            stopped_by: None,
        },
        job_id,
    }
}
