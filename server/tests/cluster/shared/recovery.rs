//! Failures of jobs on pods, and what becomes of them.

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    harness::World,
    jobs::{incidents, last_step, steps_of},
};

#[tokio::test]
async fn a_crash_is_restarted_in_the_same_pods_and_its_log_explains_it() {
    let Some(world) = World::start("in-place").await else { return };
    let job = world.train("crash", 80, &[("FAIL_AT", "30")], json!({})).await;
    world.until(&job, "running", |chain| steps_of(chain, 0, 0)).await;
    let pods = world.get("pods", "{.items[*].metadata.uid}");
    assert_eq!(pods.split(' ').count(), 2, "{pods}");
    let nodes = world.get("pods", "{.items[*].spec.nodeName}");
    world.until(&job, "restarted", |chain| steps_of(chain, 0, 1)).await;
    assert_eq!(world.get("pods", "{.items[*].metadata.uid}"), pods, "no pod is made again");

    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    let attempt = &chain["attempts"][0];
    for node in nodes.split(' ') {
        assert!(attempt["nodes"].as_array().unwrap().contains(&json!(node)), "{attempt:#}");
    }
    assert_eq!(attempt["launches"][1]["proof"]["verdict"], "resumed", "{attempt:#}");
    let [incident] = &incidents(attempt)[..] else { panic!("{attempt:#}") };
    assert_eq!(incident["decision"]["action"], "restart_in_place");
    world.until_nothing_is_left().await;

    // The pods are gone, and what they printed is there, the evidence in its line.
    let evidence = &incident["evidence"][0];
    let task = attempt["task_id"].as_str().unwrap();
    let replica = evidence["replica"].as_str().unwrap();
    let line = evidence["line_number"].as_u64().unwrap();
    let log = world.read(&format!("/tasks/{task}/logs?replica={replica}&launch=0&from={line}&tail=1")).await;
    assert_eq!(
        (&log["lines"][0]["n"], &log["lines"][0]["text"]),
        (&json!(line), &evidence["line"]),
        "{log:#}"
    );
    let log = world.read(&format!("/tasks/{task}/logs?replica=master-0&launch=1&tail=1")).await;
    assert_eq!(log["lines"][0]["text"], "done", "{log:#}");
}

/// A registry that knows no image, where the nodes reach it. It ends with the test.
async fn empty_registry() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = connection.read(&mut request).await;
            let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = connection.write_all(answer).await;
        }
    });
    address.to_string()
}

#[tokio::test]
async fn an_image_that_does_not_exist_fails_fast_with_the_kubelets_words() {
    let Some(world) = World::start("no-image").await else { return };
    let image = format!("{}/there-is-no-such-image:1", empty_registry().await);
    let job = world.train("noimage", 10, &[], json!({ "image": image })).await;
    let chain = world.until(&job, "explained", |chain| !incidents(&chain["attempts"][0]).is_empty()).await;
    let incident = &incidents(&chain["attempts"][0])[0];
    assert_eq!(incident["failure_type"], "ENV_ERROR", "{incident:#}");
    assert!(incident["fault"].as_str().unwrap().contains("there-is-no-such-image"), "{incident:#}");
}

#[tokio::test]
async fn a_stop_removes_everything_and_resubmits_nothing() {
    let Some(world) = World::start("stop").await else { return };
    let job = world.train("stopped", 100_000, &[], json!({})).await;
    world.until(&job, "running", |chain| steps_of(chain, 0, 0)).await;
    world.post(&format!("/jobs/{job}/stop"), &json!({})).await;
    let chain = world.until_state(&job, "stopped").await;
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_drained_pod_is_resubmitted_and_costs_nothing() {
    let Some(world) = World::start("drain").await else { return };
    let job = world.train("drained", 150, &[], json!({})).await;
    world.until(&job, "running", |chain| steps_of(chain, 0, 0)).await;
    let pod = world.get("pods", "{.items[0].metadata.name}");
    world.evict(&pod);
    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(chain["attempts_total"], 2, "{chain:#}");
    assert_eq!(chain["budgets"]["task_restarts"]["used"], 0, "{chain:#}");
    assert_eq!(chain["attempts"][1]["cause"], "preemption", "{chain:#}");
    world.until_nothing_is_left().await;
}

/// What lets a job of these tests save before its end; it saves seldom by itself.
fn saver(world: &World) -> serde_json::Value {
    let program = world.shared.join("train.py");
    json!({
        "command": ["python3", program, "--steps", "400", "--step-seconds", "0.1", "--save-every", "1000"],
        "fault_tolerance": {
            "auto_failover": true, "max_task_restarts": 1, "policy": { "enabled": true },
            "exit_checkpoint": { "enabled": true, "max_wait_seconds": 120 },
        },
    })
}

#[tokio::test]
async fn a_drained_pod_saves_with_its_peer_and_the_next_attempt_loads_that_step() {
    let Some(world) = World::start("drain-save").await else { return };
    let job = world.train("saver", 400, &[], saver(&world)).await;
    world.until(&job, "training", |chain| last_step(chain) >= Some(5)).await;
    // The worker: the rank that writes the checkpoint is told by the server.
    let pod = world.get("pods", "{.items[1].metadata.name}");
    let grace = world.get("pods", "{.items[1].spec.terminationGracePeriodSeconds}");
    assert_eq!(grace, "140", "the wait, and what the agent needs to end");
    world.evict(&pod);
    let chain = world
        .until(&job, "resumed", |chain| {
            chain["attempts"][1]["launches"][0]["proof"]["checkpoint"]["step"].is_u64()
        })
        .await;
    let save = &chain["attempts"][0]["exit_checkpoint"];
    assert_eq!((&save["reason"], &save["outcome"]), (&json!("preempted"), &json!("saved")), "{save:#}");
    let checkpoint = &chain["attempts"][1]["launches"][0]["proof"]["checkpoint"];
    // Both replicas save for the first that is told, and once more for the other where that one is told a step later.
    assert_eq!(checkpoint["step"], checkpoint["expected"], "{chain:#}");
    assert!(checkpoint["step"].as_u64() >= save["step"].as_u64() && save["step"].is_u64(), "{chain:#}");
    assert_eq!(chain["budgets"]["task_restarts"]["used"], 0, "{chain:#}");
    assert_eq!(chain["attempts"][1]["cause"], "preemption", "{chain:#}");

    // And a stop waits for it too.
    world.until(&job, "training again", |chain| chain["state"] == "running").await;
    world.post(&format!("/jobs/{job}/stop"), &json!({})).await;
    let chain = world.until_state(&job, "stopped").await;
    let save = &chain["attempts"][1]["exit_checkpoint"];
    assert_eq!((&save["reason"], &save["outcome"]), (&json!("stopped"), &json!("saved")), "{save:#}");
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_program_that_takes_too_much_memory_is_told_apart() {
    let Some(world) = World::start("memory").await else { return };
    let shared = world.shared.to_str().unwrap().to_owned();
    let grow = "import time\nheld = []\nwhile True: held.append(b'x' * 10_000_000); time.sleep(0.05)";
    let changes = json!({
        "replicas": 1,
        "command": ["python3", "-c", grow],
        "kubernetes": {
            "memory": "128Mi",
            "volumes": [{ "mount_path": shared, "source": { "host_path": shared } }],
        },
    });
    let job = world.train("hungry", 1, &[], changes).await;
    let chain = world.until(&job, "explained", |chain| !incidents(&chain["attempts"][0]).is_empty()).await;
    let incident = &incidents(&chain["attempts"][0])[0];
    assert_eq!(incident["failure_type"], "OOM_HOST", "{incident:#}");
    world.post(&format!("/jobs/{job}/stop"), &json!({})).await;
    world.until_nothing_is_left().await;
}
