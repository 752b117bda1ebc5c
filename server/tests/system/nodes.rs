//! Nodes that are kept out for every job: by a person, and by three failures of their hardware.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{PATIENCE, World, assert_invariants, attempts, train};

async fn until_node(world: &World, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let (status, node) = world.get(&format!("/api/v1/nodes/{name}")).await;
        assert_eq!(status, 200, "{node}");
        if wanted(&node) {
            return node;
        }
        assert!(begin.elapsed() < PATIENCE, "{name} is not {what}: {node:#}\n{}", world.server_log());
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

async fn post(world: &World, path: &str, body: &Value) -> Value {
    let (status, answer) = world.post(path, body).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

fn names(of: &Value) -> Vec<&str> {
    of.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_node_that_a_person_put_out_is_used_again_once_it_is_released_even_by_who_waits_for_it() {
    let mut world = World::with(&["--local-nodes", "2", "--local-slots", "1"]).await;
    post(&world, "/api/v1/nodes/node-1/quarantine", &json!({"reason": "fan"})).await;
    let mut small = train("small", 20, 0.01, &[]);
    small["replicas"] = json!(1);
    let job = world.create(&small).await;
    let chain = world.until_state(&job, "succeeded").await;
    assert_invariants(&chain);
    assert_eq!(names(&attempts(&chain)[0]["nodes"]), ["node-2"], "{chain:#}");
    assert_eq!(names(&attempts(&chain)[0]["quarantined_nodes"]), ["node-1"]);

    // The quarantine outlives the server, and whoever needs the node waits for it and says so.
    world.restart(&[]).await;
    let job = world.create(&train("both", 20, 0.01, &[])).await;
    let waits = |chain: &Value| attempts(chain)[0]["queue"]["reason"] == "avoided_nodes";
    let chain = world.until(&job, "waiting for the node", waits).await;
    let text = attempts(&chain)[0]["queue"]["text"].as_str().unwrap();
    assert!(text.contains("without node-1, 1 of 2 nodes are left"), "{text}");
    post(&world, "/api/v1/nodes/node-1/release", &json!({})).await;
    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(names(&attempts(&chain)[0]["nodes"]), ["node-1", "node-2"], "{chain:#}");
    world.until_no_process().await;
}

#[tokio::test]
async fn three_failures_of_its_hardware_put_a_node_out_and_a_job_on_it_runs_on() {
    let world = World::with(&["--local-nodes", "4", "--local-slots", "2", "--node-strikes", "3"]).await;
    // Each fails on the node of its only replica, which is the same while nothing else runs.
    for number in 1..=3 {
        let mut body =
            train(&format!("bad-{number}"), 30, 0.01, &[("FAIL_AT", "15"), ("FAIL_KIND", "HW_NODE")]);
        body["replicas"] = json!(1);
        let job = world.create(&body).await;
        let chain = world.until_state(&job, "succeeded").await;
        assert_eq!(names(&attempts(&chain)[0]["nodes"]), ["node-1"], "{chain:#}");
        if number == 2 {
            let node =
                until_node(&world, "node-1", "struck twice", |node| node["strikes_counted"] == 2).await;
            assert_eq!(node["state"], "suspected", "{node:#}");
        }
    }
    let node = until_node(&world, "node-1", "out", |node| node["state"] == "quarantined").await;
    assert_eq!(node["quarantine"]["by"], "holdfast", "{node:#}");
    assert!(node["quarantine"]["until"].is_string(), "{node:#}");
    assert_eq!(node["history"].as_array().unwrap().len(), 1, "{node:#}");
    let mut body = train("good", 20, 0.01, &[]);
    body["replicas"] = json!(1);
    let job = world.create(&body).await;
    let chain = world.until_state(&job, "succeeded").await;
    assert!(!names(&attempts(&chain)[0]["nodes"]).contains(&"node-1"), "{chain:#}");
    assert_eq!(names(&attempts(&chain)[0]["quarantined_nodes"]), ["node-1"]);
    world.until_no_process().await;
}
