//! The server or the API server dies, pauses or is contradicted.

use serde_json::{Value, json};

use crate::{
    harness::World,
    recovery::{incidents, last_step, steps_of},
};

/// Restarted once in the same pods and once resubmitted, whatever happened meanwhile.
fn is_as_undisturbed(chain: &Value) {
    assert_eq!(chain["attempts_total"], 2, "{chain:#}");
    assert_eq!(chain["budgets"]["task_restarts"]["used"], 1, "{chain:#}");
    let attempts = chain["attempts"].as_array().unwrap();
    assert_eq!(incidents(&attempts[0]).len(), 1, "{chain:#}");
    assert!(incidents(&attempts[1]).is_empty(), "{chain:#}");
}

#[tokio::test]
async fn a_server_killed_at_any_step_loses_and_doubles_nothing() {
    let Some(mut world) = World::start("killed").await else { return };
    for (number, point) in [
        "before_commit:3",
        "after_commit:5",
        "before_create:1",
        "after_create:1",
        "before_create:2",
        "after_create:2",
        "before_delete:1",
        "after_delete:1",
    ]
    .into_iter()
    .enumerate()
    {
        world.kill();
        world.env.push(("HOLDFAST_FAILPOINT", point.to_owned()));
        world.serve().await;
        let changes = json!({ "replicas": 1 });
        let job = world
            .train(&format!("killed-{number}"), 25, &[("FAIL_AT", "12"), ("FAIL_KIND", "UNKNOWN")], changes)
            .await;
        world.until_down().await;
        world.serve().await;
        let chain = world.until_state(&job, "succeeded").await;
        is_as_undisturbed(&chain);
        // What the next server is killed at is then a step of the next job.
        world.until_nothing_is_left().await;
    }
}

#[tokio::test]
async fn an_api_server_that_is_away_restarts_nothing() {
    let Some(world) = World::start("away").await else { return };
    let job = world.train("patient", 100_000, &[], json!({})).await;
    world.until(&job, "running", |chain| steps_of(chain, 0, 0)).await;
    let uids = world.get("pods", "{.items[*].metadata.uid}");
    // Twelve seconds each; the kubelets' leases run out after eight.
    for _ in 0..3 {
        world.component(&["kill", "kube-apiserver"]);
        let chain = world.read(&format!("/jobs/{job}/chain")).await;
        let goal = last_step(&chain).unwrap() + 120;
        world.until(&job, "training on", |chain| last_step(chain).is_some_and(|step| step >= goal)).await;
        world.component(&["start", "kube-apiserver"]);
        world.until_answer(&["get", "--raw", "/readyz"], |said| said == "ok").await;
        world.until_node("n1", "True").await;
        world.until_node("n2", "True").await;
    }
    assert_eq!(world.get("pods", "{.items[*].metadata.uid}"), uids);
    let chain = world.read(&format!("/jobs/{job}/chain")).await;
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    assert!(incidents(&chain["attempts"][0]).is_empty(), "{chain:#}");
    world.post(&format!("/jobs/{job}/stop"), &json!({})).await;
    world.until_state(&job, "stopped").await;
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_paused_server_finds_what_happened_meanwhile_and_charges_it_once() {
    let Some(world) = World::start("paused").await else { return };
    let env = [("FAIL_AT", "60"), ("FAIL_KIND", "UNKNOWN")];
    let job = world.train("paused", 80, &env, json!({ "replicas": 1 })).await;
    world.until(&job, "running", |chain| steps_of(chain, 0, 0)).await;
    world.signal("STOP");
    // The program counts its failure before it fails.
    world.until_file("checkpoints-paused/failures-of-rank-0").await;
    world.signal("CONT");
    let chain = world.until_state(&job, "succeeded").await;
    is_as_undisturbed(&chain);
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn somebody_elses_object_of_the_same_name_is_left_alone_and_told() {
    let Some(mut world) = World::start("taken").await else { return };
    world.kill();
    world.env.push(("HOLDFAST_FAILPOINT", "before_create:1".to_owned()));
    world.serve().await;
    let job = world.train("taken", 10, &[], json!({ "replicas": 1 })).await;
    world.until_down().await;
    let name = format!("taken-{job}-1");
    let container = json!({
        "name": "pytorch", "image": "localhost/train:1", "imagePullPolicy": "Never", "command": ["sleep", "3600"],
    });
    world.create(&json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": { "name": name },
        "spec": { "pytorchReplicaSpecs": { "Master": {
            "replicas": 1, "restartPolicy": "Never", "template": { "spec": { "containers": [container] } },
        } } },
    }));
    world.serve().await;
    let chain = world.until_state(&job, "failed").await;
    let fault = chain["attempts"][0]["fault"].as_str().unwrap_or_default();
    assert!(fault.contains(&name), "{chain:#}");
    assert_eq!(world.get("pytorchjobs", "{.items[*].metadata.name}"), name, "not ours to remove");
    world.kubectl(&["-n", "test-taken", "delete", "pytorchjob", &name]);
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_namespace_that_is_deleted_ends_its_jobs_with_the_reason() {
    let Some(world) = World::start("deleted").await else { return };
    let job = world.train("homeless", 100_000, &[], json!({})).await;
    world.until(&job, "running", |chain| steps_of(chain, 0, 0)).await;
    world.kubectl(&["delete", "namespace", "test-deleted", "--wait=false"]);
    let chain = world.until_state(&job, "failed").await;
    assert!(!incidents(&chain["attempts"][0]).is_empty(), "{chain:#}");
    let why = chain["why_not"]["text"].as_str().unwrap_or_default();
    assert!(!why.is_empty(), "{chain:#}");
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
    world.kubectl(&["-n", world.namespace(), "delete", "pod", &pod, "--grace-period=0", "--force"]);
    // The operator makes another of the same name, which is another process.
    let ask = ["-n", "test-unseen", "get", "pod", &pod, "-o", "jsonpath={.metadata.uid} {.status.phase}"];
    world.until_answer(&ask, |said| !said.starts_with(&uid) && said.ends_with("Running")).await;
    world.serve().await;
    let chain = world.until_state(&job, "succeeded").await;
    // Why the pod went nobody can say any more, so it counts as a failure.
    let attempt = &chain["attempts"][0];
    let [incident] = &incidents(attempt)[..] else { panic!("{chain:#}") };
    assert_eq!(incident["root"]["replica"], "worker-0", "{incident:#}");
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    assert_eq!(attempt["launches"][1]["proof"]["verdict"], "resumed", "{chain:#}");
    world.until_nothing_is_left().await;
}
