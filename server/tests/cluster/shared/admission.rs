//! The API server does not take what it is asked for: a quota, a webhook that is away, an object of the same name.

use serde_json::{Value, json};

use crate::{
    harness::World,
    jobs::{is_untouched, ray, small, waits},
};

fn quota(hard: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few" }, "spec": { "hard": hard } })
}

/// A quota is why a job waits; once it is gone the same attempt trains.
async fn waits_for_the_quota(world: &World, jobs: &[String]) {
    for job in jobs {
        let by_quota = |chain: &Value| chain["attempts"][0]["queue"]["reason"] == "quota";
        let chain = world.until(job, "waiting for the quota", by_quota).await;
        assert!(waits(&chain, 0).contains("exceeded quota: few"), "{chain:#}");
    }
    world.kubectl(&["-n", world.namespace(), "delete", "resourcequota", "few"]);
    for job in jobs {
        is_untouched(&world.until_state(job, "succeeded").await);
    }
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_quota_of_pods_is_why_a_job_waits_until_it_is_raised() {
    let Some(world) = World::start("quota").await else { return };
    world.create(&quota(&json!({ "pods": "1" })));
    let job = world.train("counted", 20, &[], json!({})).await;
    waits_for_the_quota(&world, &[job]).await;
}

#[tokio::test]
async fn a_quota_that_lets_nothing_be_made_is_why_jobs_of_both_kinds_wait() {
    let Some(world) = World::start("quota-objects").await else { return };
    world.create(&quota(&json!({ "secrets": "0" })));
    let path =
        ["-n", world.namespace(), "get", "resourcequota", "few", "-o", "jsonpath={.status.hard.secrets}"];
    world.until_answer(&path, |said| said == "0").await;
    let jobs = [
        world.train("nothing", 20, &[], small()).await,
        world.train("nothing-ray", 20, &[], ray(2, json!({}))).await,
    ];
    waits_for_the_quota(&world, &jobs).await;
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_makes_jobs_wait_and_fails_none() {
    let Some(world) = World::start("webhook").await else { return };
    let all = [
        world.train("here", 100_000, &[], small()).await,
        world.train("here-ray", 100_000, &[], ray(2, json!({}))).await,
    ];
    for job in &all {
        world.until(job, "training", |chain| chain["state"] == "running").await;
    }
    world.create(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": world.namespace() },
        "webhooks": [{
            "name": "nobody.example.org",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 1,
            "failurePolicy": "Fail",
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": world.namespace() } },
            // Nobody has this address.
            "clientConfig": { "url": "https://10.99.0.200/" },
            "rules": [{
                "apiGroups": ["*"],
                "apiVersions": ["*"],
                "operations": ["CREATE", "DELETE"],
                "resources": ["pytorchjobs", "rayjobs", "secrets"],
            }],
        }],
    }));
    let new = [
        world.train("late", 20, &[], small()).await,
        world.train("late-ray", 20, &[], ray(2, json!({}))).await,
    ];
    for job in &new {
        let by_webhook = |chain: &Value| waits(chain, 0).contains("nobody.example.org");
        let chain = world.until(job, "waiting for the webhook", by_webhook).await;
        assert_eq!(chain["state"], "queued", "{chain:#}");
    }
    // A removal waits too.
    for job in &all {
        world.post(&format!("/jobs/{job}/stop"), &json!({})).await;
        world.until_state(job, "stopping").await;
    }
    world.kubectl(&["delete", "validatingwebhookconfiguration", world.namespace()]);
    for job in &new {
        is_untouched(&world.until_state(job, "succeeded").await);
    }
    for job in &all {
        is_untouched(&world.until_state(job, "stopped").await);
    }
    world.until_nothing_is_left().await;
}

/// Somebody else has an object of the attempt's name.
async fn is_left_alone(name: &str, changes: Value, kind: &str, object: impl FnOnce(&str) -> Value) {
    let Some(mut world) = World::start(name).await else { return };
    world.kill();
    world.env.push(("HOLDFAST_FAILPOINT", "before_create:1".to_owned()));
    world.serve().await;
    let job = world.train("taken", 10, &[], changes).await;
    world.until_down().await;
    let name = format!("taken-{job}-1");
    world.create(&object(&name));
    world.serve().await;
    let chain = world.until_state(&job, "failed").await;
    let fault = chain["attempts"][0]["fault"].as_str().unwrap_or_default();
    assert!(fault.contains(&name), "{chain:#}");
    let there = world.get(kind, "{.items[*].metadata.name}");
    assert!(there.starts_with(&name), "not ours to remove: {there}");
    world.kubectl(&["-n", world.namespace(), "delete", kind, &there]);
    world.until_nothing_is_left().await;
}

fn container(name: &str) -> Value {
    json!({ "name": name, "image": "localhost/train:1", "imagePullPolicy": "Never", "command": ["sleep", "3600"] })
}

#[tokio::test]
async fn somebody_elses_pytorchjob_of_the_same_name_is_left_alone_and_told() {
    let object = |name: &str| {
        let template =
            json!({ "spec": { "terminationGracePeriodSeconds": 1, "containers": [container("pytorch")] } });
        json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": { "name": name },
            "spec": { "pytorchReplicaSpecs": { "Master": { "replicas": 1, "restartPolicy": "Never", "template": template } } },
        })
    };
    is_left_alone("taken", small(), "pytorchjobs", object).await;
}

#[tokio::test]
async fn somebody_elses_rayjob_of_the_same_name_is_left_alone_and_told() {
    let object = |name: &str| {
        let template =
            json!({ "spec": { "terminationGracePeriodSeconds": 1, "containers": [container("ray")] } });
        json!({
            "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": { "name": name },
            "spec": {
                "entrypoint": "true", "submissionMode": "HTTPMode", "suspend": true, "shutdownAfterJobFinishes": true,
                "rayClusterSpec": { "headGroupSpec": { "rayStartParams": {}, "template": template } },
            },
        })
    };
    is_left_alone("taken-ray", ray(2, json!({})), "rayjobs", object).await;
}

#[tokio::test]
async fn somebody_elses_secret_of_the_same_name_is_left_alone_and_told() {
    let object = |name: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("{name}-agents") } });
    is_left_alone("taken-secret", small(), "secrets", object).await;
}
