//! Runs of Bisect Diagnose in these tests.

use serde_json::{Value, json};

use crate::harness::World;

/// What makes of a job one that fails wherever it runs, and is not tried again.
pub fn fails() -> Value {
    json!({ "command": ["sh", "-c", "exit 1"], "fault_tolerance": { "auto_failover": false } })
}

/// Begins a run; gives its id.
pub async fn begin(world: &World, job: &str, body: &Value) -> String {
    let run = world.post(&format!("/jobs/{job}/diagnose"), body).await;
    run["run_id"].as_str().unwrap().to_owned()
}

/// Waits until a run looks as wanted.
pub async fn until(world: &World, run: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    world.until_read(&format!("/diagnoses/{run}"), what, wanted).await
}

/// Waits for the end of a run, which has taken no more than was planned.
pub async fn until_end(world: &World, run: &str) -> Value {
    let detail = until(world, run, "over", |detail| detail["verdict"].is_string()).await;
    let plan = &detail["plan"];
    for (kind, most) in [("halves", "rounds"), ("check", "checks"), ("extra", "extra_rounds")] {
        let used = detail["rounds"].as_array().unwrap().iter().filter(|round| round["kind"] == kind).count();
        assert!(used as u64 <= plan[most].as_u64().unwrap(), "{kind}: {detail:#}");
    }
    assert!(detail["accelerator_seconds"].as_f64() <= plan["accelerator_seconds"].as_f64(), "{detail:#}");
    detail
}

/// All groups of a run so far.
pub fn groups(detail: &Value) -> Vec<&Value> {
    let rounds = detail["rounds"].as_array().unwrap().iter();
    rounds.flat_map(|round| round["groups"].as_array().unwrap()).collect()
}

/// Whether a group of a run has its nodes.
pub fn any_runs(detail: &Value) -> bool {
    groups(detail).iter().any(|group| group["started_at"].is_string() && group["outcome"].is_null())
}
