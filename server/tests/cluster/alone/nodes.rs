//! Nodes that are lost, taken away or too small.

use serde_json::{Value, json};

use crate::{
    harness::World,
    jobs::{incidents, steps_of},
};

/// Gives each node one accelerator, so that two replicas with one each are spread over both.
pub fn accelerators(world: &World) {
    for node in ["n1", "n2"] {
        let patch = r#"{"status":{"capacity":{"nvidia.com/gpu":"1"}}}"#;
        world.kubectl(&["patch", "node", node, "--subresource=status", "--type=merge", "-p", patch]);
    }
}

fn nodes(attempt: &Value) -> Vec<&str> {
    attempt["nodes"].as_array().unwrap().iter().map(|node| node.as_str().unwrap()).collect()
}

#[tokio::test]
async fn jobs_on_a_lost_node_are_resubmitted_away_from_it_or_wait_with_the_reason() {
    let Some(world) = World::start("node-lost").await else { return };
    accelerators(&world);
    let wide = world.train("wide", 100_000, &[], json!({ "accelerators_per_replica": 1 })).await;
    let chain = world.until(&wide, "running", |chain| steps_of(chain, 0, 0)).await;
    assert_eq!(nodes(&chain["attempts"][0]).len(), 2, "{chain:#}");
    let small = world.train("small", 100_000, &[], json!({ "replicas": 1 })).await;
    let chain = world.until(&small, "running", |chain| steps_of(chain, 0, 0)).await;
    let lost = nodes(&chain["attempts"][0])[0].to_owned();
    world.component(["crash-node", &lost[1..]]);

    let chain = world.until(&small, "running elsewhere", |chain| steps_of(chain, 1, 0)).await;
    let [first, second] = &chain["attempts"].as_array().unwrap()[..] else { panic!("{chain:#}") };
    assert_eq!(
        (&first["failure_type"], &second["avoided_nodes"]),
        (&json!("HW_NODE"), &json!([lost])),
        "{chain:#}"
    );
    assert!(!nodes(second).contains(&lost.as_str()), "{chain:#}");

    // Its other replica noticed only that a peer was gone.
    let chain =
        world.until(&wide, "waiting", |chain| chain["attempts"][1]["queue"]["text"].is_string()).await;
    let incident = &incidents(&chain["attempts"][0])[0];
    assert_eq!(incident["failure_type"], "HW_NODE", "{incident:#}");
    assert_eq!(incident["decision"]["avoid"], json!([lost]), "{incident:#}");
    let scheduler = |chain: &Value| {
        chain["attempts"][1]["queue"]["text"]
            .as_str()
            .is_some_and(|text| text.contains("nodes are available"))
    };
    world.until(&wide, "explained by the scheduler", scheduler).await;

    world.component(["boot-node", &lost[1..]]);
    world.until_node(&lost, "True").await;
    for job in [small, wide] {
        world.post(&format!("/jobs/{job}/stop"), &json!({})).await;
        world.until_state(&job, "stopped").await;
    }
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_job_that_gives_way_to_a_more_urgent_pod_comes_back_and_costs_nothing() {
    let Some(world) = World::start("urgent").await else { return };
    accelerators(&world);
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": { "name": "holdfast-test-urgent" },
        "value": 1000,
    });
    world.create(&class);
    let job = world.train("humble", 150, &[], json!({ "accelerators_per_replica": 1 })).await;
    world.until(&job, "running", |chain| steps_of(chain, 0, 0)).await;
    let amount = json!({ "nvidia.com/gpu": "1" });
    let urgent = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "urgent" },
        "spec": {
            "priorityClassName": "holdfast-test-urgent",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": "localhost/train:1",
                "imagePullPolicy": "Never",
                "command": ["sleep", "3600"],
                "resources": { "limits": amount, "requests": amount },
            }],
        },
    });
    world.create(&urgent);
    let chain =
        world.until(&job, "waiting again", |chain| chain["attempts"][1]["queue"]["text"].is_string()).await;
    assert_eq!(chain["attempts"][1]["cause"], "preemption", "{chain:#}");
    world.kubectl(&["-n", "test-urgent", "delete", "pod", "urgent"]);
    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(chain["attempts_total"], 2, "{chain:#}");
    assert_eq!(chain["budgets"]["task_restarts"]["used"], 0, "{chain:#}");
    world.kubectl(&["delete", "priorityclass", "holdfast-test-urgent"]);
    world.until_nothing_is_left().await;
}
