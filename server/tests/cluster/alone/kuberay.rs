//! KubeRay is away. Its objects are released without it, and what becomes of its pods is noticed without it.

use serde_json::{Value, json};

use crate::{
    harness::World,
    jobs::{ray, steps_of, waits},
};

#[tokio::test]
async fn a_stop_without_kuberay_says_what_it_waits_for_and_is_done_by_force() {
    let Some(world) = World::start("ray-away").await else { return };
    let job = world.train("ray-kept", 100_000, &[], ray(2, json!({}))).await;
    world.until(&job, "training", |chain| steps_of(chain, 0, 0)).await;
    world.component(["kill", "kuberay"]);
    world.post(&format!("/jobs/{job}/stop"), &json!({})).await;
    let path = format!("/jobs/{job}");
    let view = world.until_read(&path, "told", |view| view["kept"].is_string()).await;
    let why = view["kept"].as_str().unwrap();
    assert!(why.contains("KubeRay has not released RayJob ray-kept-"), "{why}");
    assert_eq!(view["state"], "stopping", "{view:#}");
    let chain = world.until_state(&job, "stopped").await;
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    assert_eq!(world.read(&path).await["kept"], Value::Null);
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_lost_head_is_noticed_without_kuberay_too() {
    let Some(world) = World::start("ray-alone").await else { return };
    let job = world.train("ray-alone", 150, &[], ray(1, json!({}))).await;
    let has_saved =
        |chain: &Value| chain["attempts"][0]["launches"][0]["proof"]["new_checkpoint"]["ok"] == json!(true);
    world.until(&job, "saved", has_saved).await;
    world.component(["kill", "kuberay"]);
    let head = world.get("pods", "{.items[?(@.metadata.labels.ray\\.io/node-type==\"head\")].metadata.name}");
    world.kubectl(&["-n", world.namespace(), "delete", "pod", &head, "--wait=false"]);
    let untaken = |chain: &Value| waits(chain, 1).contains("KubeRay has not taken the job up");
    let chain = world.until(&job, "waiting for KubeRay", untaken).await;
    assert_eq!(chain["attempts"][0]["result"], "resubmitted", "{chain:#}");
    world.component(["start", "kuberay"]);
    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(chain["attempts"][1]["launches"][0]["proof"]["verdict"], "resumed", "{chain:#}");
    world.until_nothing_is_left().await;
}
