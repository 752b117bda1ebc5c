//! RayJobs under the real KubeRay. Ray itself is a stand-in (`end2end/cluster/parts/fake_ray`): its command, as far as KubeRay needs it.

use serde_json::{Value, json};

use crate::{harness::World, jobs::ray};

/// The Ray clusters that KubeRay made, also those that are gone.
fn clusters(world: &World) -> Vec<String> {
    let path = "{range .items[?(@.reason==\"CreatedRayCluster\")]}{.message}{\"\\n\"}{end}";
    let mut made: Vec<_> = world.get("events", path).lines().map(str::to_owned).collect();
    made.sort();
    made.dedup();
    made
}

fn is_training(chain: &Value) -> bool {
    chain["state"] == "running"
        && chain["attempts"].as_array().unwrap().last().unwrap()["launches"][0]["steps"].is_object()
}

#[tokio::test]
async fn a_rayjob_trains_to_its_end_and_its_drivers_log_is_kept() {
    let Some(world) = World::start("ray-success").await else { return };
    let job = world.train("ray-good", 40, &[], ray(0, json!({}))).await;
    world.until(&job, "training", is_training).await;
    let task = world.read(&format!("/jobs/{job}/chain")).await["latest_task_id"].as_str().unwrap().to_owned();
    assert_eq!(world.get("rayjobs", "{.items[*].spec.jobId}"), task, "the submission ID is the attempt's");
    let parts = world.get("pods", "{.items[*].metadata.labels.ray\\.io/node-type}");
    let mut parts: Vec<_> = parts.split(' ').collect();
    parts.sort_unstable();
    assert_eq!(parts, ["head", "worker"]);

    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!((&chain["attempts_total"], &chain["mode"]), (&json!(1), &json!("basic")), "{chain:#}");
    assert_eq!(chain["attempts"][0]["launches"][0]["steps"]["last"], 40, "{chain:#}");
    world.until_nothing_is_left().await;
    assert_eq!(clusters(&world).len(), 1);
    let log = world.read(&format!("/tasks/{task}/logs?replica=head-0&tail=1")).await;
    assert_eq!(log["lines"][0]["text"], "done", "{log:#}");
}

#[tokio::test]
async fn a_failing_driver_is_resubmitted_with_a_new_cluster_up_to_the_budget() {
    let Some(world) = World::start("ray-failure").await else { return };
    let program = "import time; print('it begins', flush=True); time.sleep(1); raise ValueError('bad input')";
    let command = json!({ "command": ["python3", "-c", program] });
    let job = world.train("ray-bad", 1, &[], ray(2, command)).await;
    let chain = world.until_state(&job, "failed").await;
    world.until_nothing_is_left().await;
    assert_eq!(chain["attempts_total"], 3, "{chain:#}");
    assert_eq!(chain["budgets"]["task_restarts"], json!({ "used": 2, "allowed": 2 }), "{chain:#}");
    let attempts = chain["attempts"].as_array().unwrap();
    for attempt in attempts {
        assert_eq!(attempt["failure_type"], "APP_ERROR", "{attempt:#}");
        assert_eq!(attempt["in_place_restarts"], 0, "{attempt:#}");
        let incident = &attempt["incidents"][0];
        assert_eq!(incident["root"]["replica"], "head-0", "{incident:#}");
        let line = incident["evidence"][0]["line"].as_str().unwrap();
        assert!(line.contains("ValueError: bad input"), "{line}");
        let task = attempt["task_id"].as_str().unwrap();
        let number = &incident["evidence"][0]["line_number"];
        let log = world.read(&format!("/tasks/{task}/logs?replica=head-0&from={number}&tail=1")).await;
        assert_eq!(log["lines"][0]["text"], line, "kept before its cluster went: {log:#}");
    }
    let made = clusters(&world);
    assert_eq!(made.len(), 3, "a new cluster for each attempt: {made:?}");
    for attempt in attempts {
        let task = attempt["task_id"].as_str().unwrap();
        assert!(made.iter().any(|cluster| cluster.contains(task)), "{task}: {made:?}");
    }
}

#[tokio::test]
async fn a_stop_takes_the_cluster_along() {
    let Some(world) = World::start("ray-stop").await else { return };
    let job = world.train("ray-stopped", 100_000, &[], ray(2, json!({}))).await;
    world.until(&job, "training", is_training).await;
    world.post(&format!("/jobs/{job}/stop"), &json!({})).await;
    let chain = world.until_state(&job, "stopped").await;
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_lost_head_is_noticed_though_kuberay_does_not() {
    let Some(world) = World::start("ray-head").await else { return };
    let job = world.train("ray-headless", 150, &[], ray(1, json!({}))).await;
    let has_saved =
        |chain: &Value| chain["attempts"][0]["launches"][0]["proof"]["new_checkpoint"]["ok"] == json!(true);
    world.until(&job, "saved", has_saved).await;
    let head = world.get("pods", "{.items[?(@.metadata.labels.ray\\.io/node-type==\"head\")].metadata.name}");
    world.kubectl(&["-n", world.namespace(), "delete", "pod", &head, "--wait=false"]);
    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(chain["attempts_total"], 2, "{chain:#}");
    let first = &chain["attempts"][0];
    assert_eq!(first["result"], "resubmitted", "{first:#}");
    assert_eq!(chain["attempts"][1]["launches"][0]["proof"]["verdict"], "resumed", "{chain:#}");
    world.until_nothing_is_left().await;
    assert_eq!(clusters(&world).len(), 2);
}

#[tokio::test]
async fn what_kuberay_will_not_run_fails_with_its_words() {
    let Some(world) = World::start("ray-invalid").await else { return };
    let head = json!({ "rayStartParams": { "labels": "a=b" }, "template": { "spec": { "containers": [
        { "name": "ray-head", "image": "localhost/fake-ray:1", "imagePullPolicy": "Never" },
    ] } } });
    let manifest = json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": { "name": "invalid" },
        "spec": { "entrypoint": "true", "rayClusterSpec": { "headGroupSpec": head } },
    });
    let job = world.post("/jobs:import", &json!({ "manifest": manifest })).await;
    let chain = world.until_state(job["job_id"].as_str().unwrap(), "failed").await;
    let incident = &chain["attempts"][0]["incidents"][0];
    assert_eq!(incident["failure_type"], "ENV_ERROR", "{incident:#}");
    let fault = incident["fault"].as_str().unwrap();
    assert!(fault.contains("rayStartParams['labels'] is not supported"), "{fault}");
    world.until_nothing_is_left().await;
}
