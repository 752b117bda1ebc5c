//! A policy that diagnoses the nodes after a hang, with real programs: one node is bad, for the program as for the test.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{World, assert_invariants, attempts};

/// The bad node.
const BAD: &str = "node-2";
/// A hang and a diagnosis of four nodes, beside whatever else runs.
const PATIENCE: Duration = Duration::from_secs(180);

/// Eight nodes, and a job over four of them that stands still on the bad one for ever.
async fn hanging(restarts: u32) -> (World, String) {
    let test = format!(
        "holdfast-agent probe --processor-seconds 0.1 --memory-mib 2 --transfer-mib 4 --limit-seconds 90 --inject cpu@{BAD}"
    );
    let options = ["--local-nodes", "8", "--local-slots", "1", "--diagnose-command", &test];
    let world = World::with(&options).await;
    let program = format!(
        "if [ \"$HOLDFAST_NODE\" = {BAD} ]; then export HANG=loop HANG_AT=5 HANG_TIMES=99 HANG_RANK=$RANK; fi; exec python3 examples/hangs.py --steps 12"
    );
    let job = world
        .create(&json!({
            "name": "hangs", "cluster": "local", "command": ["sh", "-c", program],
            "replicas": 4, "accelerators_per_replica": 1, "checkpoint_dir": "checkpoints/hangs",
            "fault_tolerance": {
                "auto_failover": true, "max_task_restarts": restarts, "policy": {"enabled": true},
                "hang_detection": {
                    "enabled": true, "interval_seconds": 1, "window_seconds": 4, "start_after_seconds": 2,
                    "max_in_place_restarts": 0, "diagnose": true,
                },
            },
        }))
        .await;
    (world, job)
}

async fn until(world: &World, job: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let chain = world.chain(job).await;
        if wanted(&chain) {
            return chain;
        }
        assert!(begin.elapsed() < PATIENCE, "not {what}: {chain:#}\n{}", world.server_log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The chain of the job once it has come through, with all that must be true of it then.
async fn came_through(world: &World, job: &str) -> Value {
    let ends = |chain: &Value| ["succeeded", "failed", "stopped"].contains(&chain["state"].as_str().unwrap());
    let chain = until(world, job, "over", ends).await;
    assert_invariants(&chain);
    assert_eq!(chain["state"], "succeeded", "{chain:#}");
    let [first, second] = attempts(&chain).as_slice() else { panic!("{chain:#}") };
    assert!(first["nodes"].as_array().unwrap().contains(&json!(BAD)), "{chain:#}");
    assert!(!second["nodes"].as_array().unwrap().contains(&json!(BAD)), "{chain:#}");
    let incident = &first["incidents"][0];
    assert_eq!(incident["failure_type"], "COMM_HANG", "{incident:#}");
    let (asked, decision) = (&incident["diagnosed"], &incident["decision"]);
    assert_eq!(
        (&asked["action"], &asked["rule"], &asked["charged"]),
        (&json!("diagnose"), &json!("comm-hang-bisect"), &json!("none")),
        "{incident:#}"
    );
    assert_eq!((&decision["action"], &decision["charged"]), (&json!("resubmit"), &json!("task_restarts")));
    assert!(decision["avoid"].as_array().unwrap().contains(&json!(BAD)), "{incident:#}");

    let [run] = chain["diagnostics"].as_array().unwrap().as_slice() else { panic!("one run: {chain:#}") };
    assert_eq!((&run["by"], &run["rule"]), (&json!("policy"), &json!("comm-hang-bisect")), "{run:#}");
    assert_eq!((&run["verdict"], &run["suspects"]), (&json!("suspects"), &json!([BAD])), "{run:#}");
    assert_eq!(run["task_id"], first["task_id"], "{run:#}");
    assert_eq!(run["held"][0]["quarantined"], true, "{run:#}");
    assert_eq!(chain["budgets"]["diagnostics"], json!({"used": 1}));
    assert_eq!(chain["budgets"]["task_restarts"]["used"], 1);
    let ledger = &chain["ledger"];
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!(number(&ledger["diagnosing"]), number(&run["accelerator_seconds"]), "{ledger:#}");
    assert!(number(&ledger["diagnosing"]) > 0.0, "{ledger:#}");
    let parts = ["kept", "stalled", "starting", "redone", "diagnosing"].map(|part| number(&ledger[part]));
    let share = parts[0] / parts.iter().sum::<f64>();
    assert!((number(&ledger["ettr"]) - share).abs() < 1e-6, "{ledger:#}");
    chain
}

#[tokio::test]
async fn after_a_hang_the_policy_finds_the_bad_node_which_is_quarantined_and_the_job_goes_on_elsewhere() {
    let (world, job) = hanging(1).await;
    let chain = until(&world, &job, "diagnosing", |chain| chain["substate"] == "diagnosing").await;
    assert_eq!(chain["state"], "recovering", "{chain:#}");
    let chain = came_through(&world, &job).await;
    let run = chain["diagnostics"][0]["run_id"].as_str().unwrap();
    let (_, page) = world.get(&format!("/api/v1/nodes/{BAD}")).await;
    let out = &page["quarantine"];
    assert_eq!((&out["diagnosis"], &out["by"]), (&json!(run), &json!("holdfast")), "{page:#}");
    assert!(out["until"].is_string(), "it ends by its time: {page:#}");
    let (_, events) = world.get(&format!("/api/v1/jobs/{job}/events")).await;
    let told = events.to_string();
    for words in
        ["The nodes are diagnosed before", &format!("Diagnosis {run} is over."), "is quarantined for"]
    {
        assert!(told.contains(words), "{words}: {events:#}");
    }
    let (_, jobs) = world.get("/api/v1/jobs").await;
    assert_eq!(jobs["total"], 1, "the groups are no jobs of people: {jobs}");
    world.until_no_process().await;
}

#[tokio::test]
async fn a_server_that_is_killed_in_the_middle_goes_on_with_the_same_run() {
    let (mut world, job) = hanging(1).await;
    until(&world, &job, "diagnosing", |chain| chain["substate"] == "diagnosing").await;
    // Whether or not the run has begun by now.
    world.restart(&[]).await;
    let begun = |chain: &Value| !chain["diagnostics"].as_array().unwrap().is_empty();
    let chain = until(&world, &job, "under test", begun).await;
    let run = chain["diagnostics"][0]["run_id"].clone();
    world.restart(&[]).await;
    let chain = came_through(&world, &job).await;
    assert_eq!(chain["diagnostics"][0]["run_id"], run, "{chain:#}");
    world.until_no_process().await;
}

#[tokio::test]
async fn a_persons_stop_ends_the_run_and_without_a_restart_left_there_is_none() {
    let (world, job) = hanging(1).await;
    let begun = |chain: &Value| !chain["diagnostics"].as_array().unwrap().is_empty();
    until(&world, &job, "under test", begun).await;
    let (status, _) = world.post(&format!("/api/v1/jobs/{job}/stop"), &json!({})).await;
    assert_eq!(status, 202);
    let ended = |chain: &Value| chain["state"] == "stopped" && chain["diagnostics"][0]["verdict"].is_string();
    let chain = until(&world, &job, "stopped with its run", ended).await;
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    assert_eq!(chain["budgets"]["task_restarts"]["used"], 0, "{chain:#}");
    world.until_no_process().await;

    let (world, job) = hanging(0).await;
    let chain = until(&world, &job, "failed", |chain| chain["state"] == "failed").await;
    assert_eq!(chain["diagnostics"], json!([]), "{chain:#}");
    assert_eq!(chain["why_not"]["text"], "Maximum Task Restart Attempts is 0.", "{chain:#}");
}
