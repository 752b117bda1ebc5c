//! What the cluster's own tools tell of a job, and what is known of a job before it is made.

use serde_json::{Value, json};

use crate::{harness::World, jobs::steps_of};

/// The reasons of our events about an attempt, in order of their times, with their texts.
fn story(events: &str, task: &str) -> Vec<(String, String)> {
    let events: Value = serde_json::from_str(events).unwrap_or_default();
    let ours =
        |event: &&Value| event["reportingController"] == "holdfast" && event["regarding"]["name"] == task;
    let mut told: Vec<_> = events["items"].as_array().into_iter().flatten().filter(ours).collect();
    told.sort_by_key(|event| event["eventTime"].as_str().unwrap().to_owned());
    let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    told.into_iter().map(|event| (text(event, "reason"), text(event, "note"))).collect()
}

/// The reasons alone, sorted, without those of a removal.
fn reasons(story: &[(String, String)]) -> Vec<&str> {
    let mut reasons: Vec<_> = story.iter().map(|(reason, _)| reason.as_str()).collect();
    reasons.retain(|reason| *reason != "Removed");
    reasons.sort_unstable();
    reasons
}

/// Waits until the events about an attempt have these reasons, each as often as it is named.
async fn until_told(world: &World, task: &str, want: &[&str]) -> Vec<(String, String)> {
    let mut want = want.to_vec();
    want.sort_unstable();
    let args = ["-n", world.namespace(), "get", "events.events.k8s.io", "-o", "json"];
    let events = world.until_answer(&args, |events| reasons(&story(events, task)).len() >= want.len()).await;
    let story = story(&events, task);
    assert_eq!(reasons(&story), want, "{task}: {story:#?}");
    story
}

fn task(chain: &Value, attempt: usize) -> String {
    chain["attempts"][attempt]["task_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_story_of_a_job_is_on_its_objects() {
    let Some(world) = World::start("story").await else { return };
    let env = [("FAIL_AT", "15,30"), ("FAIL_KIND", "app_error,unknown")];
    let job = world.train("told", 60, &env, json!({})).await;
    let chain = world.until(&job, "restarted", |chain| steps_of(chain, 0, 1)).await;
    let first = task(&chain, 0);
    let described = ["-n", world.namespace(), "describe", "pytorchjob", &first];
    world.until_answer(&described, |text| text.contains("RestartInPlace")).await;

    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(chain["attempts_total"], 2, "{chain:#}");
    let (first, second) = (task(&chain, 0), task(&chain, 1));
    let of_first =
        ["AttemptSubmitted", "StartedFresh", "Incident", "RestartInPlace", "Resumed", "Incident", "Resubmit"];
    let told = until_told(&world, &first, &of_first).await;
    let of = |reason: &str| {
        let (_, text) = told.iter().find(|(told, _)| told == reason).unwrap();
        text.as_str()
    };
    assert!(of("Incident").starts_with("APP_ERROR: "), "{told:#?}");
    assert!(of("RestartInPlace").ends_with("In-place restarts: 1 of 3 used."), "{told:#?}");
    assert!(of("Resubmit").ends_with("Task restarts: 1 of 2 used."), "{told:#?}");
    let told = until_told(&world, &second, &["AttemptSubmitted", "Resumed", "AttemptSucceeded"]).await;
    assert!(told[0].1.starts_with("Attempt 2 was submitted after a failure (UNKNOWN: "), "{told:#?}");
    world.until_nothing_is_left().await;
    let args = ["-n", world.namespace(), "get", "events.events.k8s.io", "-o", "json"];
    for task in [&first, &second] {
        let is_told =
            |events: &str| story(events, task).iter().filter(|(reason, _)| reason == "Removed").count() == 1;
        world.until_answer(&args, is_told).await;
    }
}

#[tokio::test]
async fn a_server_that_is_killed_between_tells_everything_once() {
    let Some(mut world) = World::start("retold").await else { return };
    for (number, point) in [
        "after_commit:1",
        "after_commit:6",
        "after_commit:12",
        "after_create:1",
        "before_delete:1",
        "before_create:2",
    ]
    .into_iter()
    .enumerate()
    {
        world.kill();
        world.env.push(("HOLDFAST_FAILPOINT", point.to_owned()));
        world.serve().await;
        let env = [("FAIL_AT", "12"), ("FAIL_KIND", "unknown")];
        let name = format!("retold-{number}");
        let job = world.train(&name, 35, &env, json!({ "replicas": 1 })).await;
        world.until_down().await;
        world.serve().await;
        let chain = world.until_state(&job, "succeeded").await;
        until_told(&world, &task(&chain, 0), &["AttemptSubmitted", "StartedFresh", "Incident", "Resubmit"])
            .await;
        until_told(&world, &task(&chain, 1), &["AttemptSubmitted", "Resumed", "AttemptSucceeded"]).await;
        world.until_nothing_is_left().await;
        // What the next server is killed at is then a step of the next job.
        world.until_settled().await;
    }
}

#[tokio::test]
async fn what_a_job_needs_is_looked_for_before_it_is_made() {
    let Some(world) = World::start("looked").await else { return };
    // Room is told once nodes are listed.
    world.until_well().await;
    let claim = json!({ "mount_path": "/data", "source": { "claim": "data" } });
    let body = |options: Value| {
        json!({
            "name": "looked",
            "image": "localhost/train:1",
            "command": ["true"],
            "replicas": 2,
            "kubernetes": options,
        })
    };
    let fits = |answer: &Value| -> Vec<(String, String)> {
        let text = |one: &Value, field: &str| one[field].as_str().unwrap_or("-").to_owned();
        let findings = answer["findings"].as_array().unwrap();
        findings.iter().map(|one| (text(one, "fit"), text(one, "field"))).collect()
    };
    let pair = |fit: &str, field: &str| (fit.to_owned(), field.to_owned());

    // None of it is there.
    let missing = body(json!({
        "volumes": [claim],
        "priority_class": "there-is-none",
        "service_account": "nobody",
        "pull_secrets": ["keys"],
        "cpu": "100m", "memory": "64Mi",
    }));
    let found = world.post("/jobs:check", &missing).await;
    let want = [
        pair("never", "kubernetes.volumes[0].source"),
        pair("never", "kubernetes.service_account"),
        pair("never", "kubernetes.priority_class"),
        pair("not_checked", "-"),
        pair("not_checked", "-"),
        pair("ok", "-"),
    ];
    assert_eq!(fits(&found), want, "{found:#}");
    let (status, problem) = world.ask("/jobs", &missing).await;
    assert_eq!(status, 422, "{problem:#}");
    assert_eq!(problem["errors"][0]["field"], "kubernetes.volumes[0].source", "{problem:#}");

    // All of it is there, and the quota has room for one pod.
    world.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "1Mi" } } },
    }));
    world.create(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "nobody" } }));
    world.create(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "small" }, "spec": { "hard": { "pods": "1" } },
    }));
    let quota =
        ["-n", world.namespace(), "get", "resourcequota", "small", "-o", "jsonpath={.status.hard.pods}"];
    world.until_answer(&quota, |hard| hard == "1").await;
    let there = body(json!({
        "volumes": [claim],
        "priority_class": "system-cluster-critical",
        "service_account": "nobody",
        "cpu": "100m", "memory": "64Mi",
    }));
    let found = world.post("/jobs:check", &there).await;
    let want = [
        pair("later", "-"),
        pair("not_checked", "-"),
        pair("ok", "kubernetes.volumes[0].source"),
        pair("ok", "kubernetes.service_account"),
        pair("ok", "kubernetes.priority_class"),
        pair("ok", "-"),
    ];
    assert_eq!(fits(&found), want, "{found:#}");
    assert!(
        found["findings"][0]["text"].as_str().unwrap().contains("the job asks for 2 of pods"),
        "{found:#}"
    );

    // No node is so large; the job would wait, and is not refused for that.
    let large = body(json!({ "cpu": "4000" }));
    let found = world.post("/jobs:check", &large).await;
    let texts: Vec<_> =
        found["findings"].as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap()).collect();
    assert!(texts.iter().any(|text| text.starts_with("Does not fit: ")), "{texts:#?}");
    assert!(!fits(&found).iter().any(|(fit, _)| fit == "never"), "{found:#}");
    assert_eq!(world.get("pytorchjobs", "{.items[*].metadata.name}"), "", "nothing was made");
}
