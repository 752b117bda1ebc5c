//! Bisect Diagnose over real nodes: a test that fails on some of them, everywhere, nowhere, or never ends.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::World;

/// A diagnosis of eight nodes takes up to a dozen tests with eight processes each, beside whatever else runs.
const PATIENCE: Duration = Duration::from_secs(240);

/// Eight nodes, and a job that has failed on all of them.
async fn failed_job() -> (World, String) {
    let world = World::with(&["--local-nodes", "8", "--local-slots", "1"]).await;
    let job = world
        .create(&json!({
            "name": "broken", "kind": "pytorchjob", "cluster": "local", "replicas": 8,
            "command": ["sh", "-c", "exit 1"], "fault_tolerance": {"auto_failover": false},
        }))
        .await;
    world.until_state(&job, "failed").await;
    world.until_no_process().await;
    (world, job)
}

/// The built-in test, made short, with faults on some nodes.
fn probe(faults: &str) -> Value {
    let mut command =
        "holdfast-agent probe --processor-seconds 0.1 --memory-mib 2 --transfer-mib 4 --limit-seconds 90"
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>();
    if !faults.is_empty() {
        command.extend(["--inject".to_owned(), faults.to_owned()]);
    }
    json!({"command": command, "limit_seconds": 90})
}

async fn begin(world: &World, job: &str, body: &Value) -> Value {
    let (status, run) = world.post(&format!("/api/v1/jobs/{job}/diagnose"), body).await;
    assert_eq!(status, 202, "{run}");
    run
}

async fn until(world: &World, run: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let (status, detail) = world.get(&format!("/api/v1/diagnoses/{run}")).await;
        assert_eq!(status, 200, "{detail}");
        if wanted(&detail) {
            return detail;
        }
        assert!(begin.elapsed() < PATIENCE, "not {what}: {detail:#}\n{}", world.server_log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn until_end(world: &World, run: &Value) -> Value {
    let id = run["run_id"].as_str().unwrap();
    let detail = until(world, id, "over", |detail| detail["verdict"].is_string()).await;
    let plan = &detail["plan"];
    let used = |kind: &str| {
        detail["rounds"].as_array().unwrap().iter().filter(|round| round["kind"] == kind).count() as u64
    };
    assert!(used("halves") <= plan["rounds"].as_u64().unwrap(), "{detail:#}");
    assert!(used("check") <= plan["checks"].as_u64().unwrap(), "{detail:#}");
    assert!(used("extra") <= plan["extra_rounds"].as_u64().unwrap(), "{detail:#}");
    assert!(detail["accelerator_seconds"].as_f64() <= plan["accelerator_seconds"].as_f64(), "{detail:#}");
    detail
}

#[tokio::test]
async fn one_faulty_node_of_eight_is_found_and_the_next_attempt_keeps_off_it() {
    let (world, job) = failed_job().await;
    let run = begin(&world, &job, &probe("cpu@node-3")).await;
    let detail = until_end(&world, &run).await;
    assert_eq!(
        (&detail["verdict"], &detail["suspects"]),
        (&json!("suspects"), &json!(["node-3"])),
        "{detail:#}"
    );
    assert_eq!(detail["plan"]["rounds"], 3);
    assert_eq!(detail["rounds"].as_array().unwrap().len(), 5, "three rounds and two checks: {detail:#}");
    let text = detail.to_string();
    assert!(text.contains("processor on node-3"), "what the test said is told: {detail:#}");
    assert!(text.contains("megabytes_per_second"), "{detail:#}");

    let chain = world.chain(&job).await;
    assert_eq!(chain["diagnostics"][0]["run_id"], run["run_id"], "{chain:#}");
    assert_eq!(chain["diagnostics"][0]["suspects"], json!(["node-3"]));
    assert_eq!(chain["budgets"]["diagnostics"], json!({"used": 1}));
    let (_, jobs) = world.get("/api/v1/jobs").await;
    assert_eq!(jobs["total"], 1, "the groups are no jobs of people: {jobs}");
    let (_, runs) = world.get("/api/v1/diagnoses").await;
    assert_eq!(runs["items"].as_array().unwrap().len(), 1);

    world.post(&format!("/api/v1/jobs/{job}/resubmit"), &json!({})).await;
    let chain = world.until(&job, "resubmitted", |chain| chain["attempts_total"] == 2).await;
    assert_eq!(chain["attempts"][1]["avoided_nodes"], json!(["node-3"]), "{chain:#}");
}

#[tokio::test]
async fn two_faulty_nodes_of_different_kinds_are_found_though_the_server_is_killed_between() {
    let (mut world, job) = failed_job().await;
    let run = begin(&world, &job, &probe("memory@node-2,corrupt@node-7")).await;
    let id = run["run_id"].as_str().unwrap();
    until(&world, id, "in its second round", |detail| detail["rounds"].as_array().unwrap().len() >= 2).await;
    world.restart(&[]).await;
    let detail = until_end(&world, &run).await;
    assert_eq!(detail["suspects"], json!(["node-2", "node-7"]), "{detail:#}");
}

#[tokio::test]
async fn where_every_node_fails_the_test_is_blamed_and_where_none_does_nobody_is() {
    let (world, job) = failed_job().await;
    let fails = json!({"command": ["sh", "-c", "echo no such library >&2; exit 3"]});
    let detail = until_end(&world, &begin(&world, &job, &fails).await).await;
    assert_eq!((&detail["verdict"], &detail["suspects"]), (&json!("all_fail"), &json!([])), "{detail:#}");
    assert!(detail["text"].as_str().unwrap().contains("the test or the job is at fault"), "{detail:#}");

    let detail = until_end(&world, &begin(&world, &job, &probe("")).await).await;
    assert_eq!((&detail["verdict"], &detail["suspects"]), (&json!("all_pass"), &json!([])), "{detail:#}");
    let (_, nodes) = world.get("/api/v1/nodes").await;
    let marked = |node: &Value| {
        !node["strikes"].as_array().unwrap().is_empty() || !node["avoided_by"].as_array().unwrap().is_empty()
    };
    assert!(!nodes["items"].as_array().unwrap().iter().any(marked), "{nodes:#}");
}

#[tokio::test]
async fn a_run_is_planned_first_refused_with_the_reason_and_stopped() {
    let (world, job) = failed_job().await;
    let path = format!("/api/v1/jobs/{job}/diagnose");
    let (status, plan) = world.post(&path, &json!({"dry_run": true, "limit_seconds": 30})).await;
    assert_eq!(status, 200, "{plan}");
    assert_eq!((plan["nodes"].as_array().unwrap().len(), &plan["plan"]["rounds"]), (8, &json!(3)));
    assert!(plan["plan"]["accelerator_seconds"].as_u64().unwrap() > 0);
    let (_, runs) = world.get("/api/v1/diagnoses").await;
    assert_eq!(runs["items"], json!([]), "a plan begins nothing");

    for (body, field) in [
        (json!({"nodes": ["node-9"]}), "nodes"),
        (json!({"nodes": []}), "nodes"),
        (json!({"limit_seconds": 0}), "limit_seconds"),
        (json!({"command": []}), "command"),
        (json!({"colour": "red"}), "colour"),
    ] {
        let (status, answer) = world.post(&path, &body).await;
        assert_eq!((status, &answer["errors"][0]["field"]), (422, &json!(field)), "{answer}");
    }
    let (status, answer) = world.post(&path, &json!({"cluster": "elsewhere"})).await;
    assert_eq!(status, 409, "{answer}");

    let run =
        begin(&world, &job, &json!({"command": ["sh", "-c", "sleep 600"], "nodes": ["node-1", "node-2"]}))
            .await;
    let id = run["run_id"].as_str().unwrap();
    let runs = |detail: &Value| {
        let groups = detail["rounds"][0]["groups"].as_array().unwrap();
        groups.iter().any(|group| group["started_at"].is_string())
    };
    until(&world, id, "running", runs).await;
    let (status, answer) = world.post(&path, &json!({})).await;
    assert_eq!(status, 409, "one at a time: {answer}");
    let (status, _) = world.post(&format!("/api/v1/diagnoses/{id}/stop"), &json!({})).await;
    assert_eq!(status, 202);
    let detail = until_end(&world, &run).await;
    assert_eq!(detail["verdict"], "stopped", "{detail:#}");
    world.until_no_process().await;
    let (status, answer) = world.post(&format!("/api/v1/diagnoses/{id}/stop"), &json!({})).await;
    assert_eq!(status, 409, "{answer}");
    assert_eq!(world.get("/api/v1/diagnoses/dunknown").await.0, 404);
}
