//! A part of the cluster is away for a while. Jobs wait and say for what; what trains goes on.

use serde_json::{Value, json};

use crate::{
    harness::World,
    jobs::{incidents, is_untouched, ray, small, steps_of, waits},
};

/// Waits until jobs train.
async fn until_training(world: &World, jobs: &[&String]) {
    for job in jobs {
        world.until(job, "training", |chain| steps_of(chain, 0, 0)).await;
    }
}

/// While a part is down one job is made and another stopped. The new one says what it waits for; `stops` says whether the other one can
/// end meanwhile. Both are as if nothing had been once the part is back.
async fn is_waited_for(name: &str, part: &str, changes: Value, words: &str, stops: bool) {
    let Some(world) = World::start(name).await else { return };
    let old = world.train("old", 100_000, &[], changes.clone()).await;
    until_training(&world, &[&old]).await;
    world.component(["kill", part]);
    let new = world.train("new", 20, &[], changes).await;
    let chain = world.until(&new, "explained", |chain| waits(chain, 0).contains(words)).await;
    assert_eq!(chain["state"], "queued", "{chain:#}");
    world.post(&format!("/jobs/{old}/stop"), &json!({})).await;
    if stops {
        world.until_state(&old, "stopped").await;
    } else {
        world.until_state(&old, "stopping").await;
    }
    world.component(["start", part]);
    is_untouched(&world.until_state(&new, "succeeded").await);
    is_untouched(&world.until_state(&old, "stopped").await);
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn without_a_scheduler_a_new_job_says_so_and_waits() {
    is_waited_for("scheduler", "kube-scheduler", small(), "scheduler", true).await;
}

#[tokio::test]
async fn without_the_training_operator_a_new_job_says_so_and_waits() {
    is_waited_for("operator", "training-operator", small(), "training-operator", true).await;
}

#[tokio::test]
async fn without_kuberay_a_new_job_says_so_and_waits() {
    // KubeRay has to let go of its objects.
    is_waited_for("kuberay", "kuberay", ray(2, json!({})), "KubeRay has not taken the job up", false).await;
}

#[tokio::test]
async fn without_the_controllers_jobs_wait_to_start_and_to_end() {
    let Some(world) = World::start("controllers").await else { return };
    let old = [
        world.train("old", 100_000, &[], small()).await,
        world.train("old-ray", 100_000, &[], ray(2, json!({}))).await,
    ];
    until_training(&world, &[&old[0], &old[1]]).await;
    world.component(["kill", "kube-controller-manager"]);
    let new = [
        world.train("new", 20, &[], json!({})).await,
        world.train("new-ray", 20, &[], ray(2, json!({}))).await,
    ];
    for job in &old {
        world.post(&format!("/jobs/{job}/stop"), &json!({})).await;
        world.until_state(job, "stopping").await;
    }
    // Nobody tells the cluster's names where the first replica is.
    let is_placed = |chain: &Value| chain["state"] == "starting";
    world.until(&new[0], "placed", is_placed).await;
    world.component(["start", "kube-controller-manager"]);
    for job in &new {
        is_untouched(&world.until_state(job, "succeeded").await);
    }
    for job in &old {
        is_untouched(&world.until_state(job, "stopped").await);
    }
    world.until_nothing_is_left().await;
}

/// Jobs of both kinds train while something is away, for longer than the server waits before it says that its cluster is silent.
async fn are_not_noticed(name: &str, parts: &[&str]) {
    let Some(world) = World::start(name).await else { return };
    let jobs = [
        world.train("patient", 100_000, &[], json!({})).await,
        world.train("patient-ray", 100_000, &[], ray(2, json!({}))).await,
    ];
    until_training(&world, &[&jobs[0], &jobs[1]]).await;
    let uids = world.get("pods", "{.items[*].metadata.uid}");
    for part in parts {
        world.component(["kill", part]);
    }
    // Ten steps a second.
    world.until_steps_more(&jobs[0], 200).await;
    for part in parts {
        world.component(["start", part]);
    }
    world.until_well().await;
    for job in &jobs {
        world.until_steps_more(job, 50).await;
        is_untouched(&world.read(&format!("/jobs/{job}/chain")).await);
    }
    assert_eq!(world.get("pods", "{.items[*].metadata.uid}"), uids, "no pod was made again");
    for job in jobs {
        is_untouched(&world.stop(&job).await);
    }
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn an_etcd_that_dies_restarts_nothing() {
    are_not_noticed("etcd", &["etcd"]).await;
}

#[tokio::test]
async fn nodes_without_containerd_or_kubelet_for_a_while_restart_nothing() {
    are_not_noticed("node-parts", &["containerd-1", "kubelet-2"]).await;
}

#[tokio::test]
async fn a_pod_that_goes_while_no_server_looks_is_noticed_by_its_agent() {
    let Some(mut world) = World::start("unseen").await else { return };
    let job = world.train("unseen", 150, &[], json!({})).await;
    let has_saved =
        |chain: &Value| chain["attempts"][0]["launches"][0]["proof"]["new_checkpoint"]["ok"] == json!(true);
    world.until(&job, "saved", has_saved).await;
    world.kill();
    let task = format!("unseen-{job}-1");
    let pod = format!("{task}-worker-0");
    let uid = world.get(&format!("pod/{pod}"), "{.metadata.uid}");
    // The operator gives a job up if it sees how a pod goes. It finds that there is none and makes another of the same name, which is
    // another process.
    world.component(["kill", "training-operator"]);
    world.kubectl(&["-n", world.namespace(), "delete", "pod", &pod, "--grace-period=0", "--force"]);
    world.component(["start", "training-operator"]);
    let ask = ["-n", world.namespace(), "get", "pod", &pod, "-o", "jsonpath={.metadata.uid} {.status.phase}"];
    world.until_answer(&ask, |said| !said.starts_with(&uid) && said.ends_with("Running")).await;
    world.serve().await;
    let chain = world.until_state(&job, "succeeded").await;
    // Why the pod went nobody can say any more, so it counts as a failure.
    let attempt = &chain["attempts"][0];
    let [incident] = &incidents(attempt)[..] else { panic!("{chain:#}") };
    assert_eq!(incident["root"]["replica"], "worker-0", "{incident:#}");
    assert_eq!(incident["decision"]["rule"], "unknown-resubmit", "{incident:#}");
    assert_eq!(chain["attempts_total"], 2, "{chain:#}");
    let next = &chain["attempts"][1]["launches"][0];
    assert_eq!(next["proof"]["verdict"], "resumed", "{chain:#}");
    world.until_nothing_is_left().await;
}
