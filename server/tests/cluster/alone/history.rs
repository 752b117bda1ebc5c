//! The history that watches go on from is gone (410): everything is listed anew, and what went meanwhile is found.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    harness::World,
    jobs::{incidents, is_untouched, ray, small, steps_of},
};

/// Longer than one request of a watch lasts.
const WATCH: Duration = Duration::from_secs(65);

/// Has etcd forget all that was before, as it does by itself every five minutes.
async fn forget_the_past() {
    let etcd = reqwest::Client::new();
    let ask = async |path: &str, body: Value| {
        let answer =
            etcd.post(format!("http://127.0.0.1:2379/v3/kv/{path}")).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.json::<Value>().await.unwrap()
    };
    // A key that is not there: `/`.
    let now = ask("range", json!({ "key": "Lw==" })).await["header"]["revision"].clone();
    ask("compaction", json!({ "revision": now, "physical": true })).await;
}

#[tokio::test]
async fn a_server_that_missed_the_history_finds_what_went_and_leaves_the_rest() {
    let Some(world) = World::start("history").await else { return };
    let kept = [
        world.train("kept", 100_000, &[], json!({})).await,
        world.train("kept-ray", 100_000, &[], ray(2, json!({}))).await,
    ];
    let gone = [
        world.train("no-pod", 100_000, &[], small()).await,
        world.train("no-object", 100_000, &[], small()).await,
        world.train("no-rayjob", 100_000, &[], ray(2, json!({}))).await,
    ];
    for job in kept.iter().chain(&gone) {
        world.until(job, "training", |chain| steps_of(chain, 0, 0)).await;
    }
    let namespace = world.namespace();
    world.signal("STOP");
    let paused = Instant::now();
    let of = |name: &str, number: usize| format!("{name}-{}-1", gone[number]);
    world.kubectl(&["-n", namespace, "delete", "pod", &format!("{}-master-0", of("no-pod", 0))]);
    world.kubectl(&["-n", namespace, "delete", "pytorchjob", &of("no-object", 1), "--cascade=foreground"]);
    world.kubectl(&["-n", namespace, "delete", "rayjob", &of("no-rayjob", 2)]);
    forget_the_past().await;
    // The watches end in good order, so that the next request of each asks for what follows; and the API server forgets, too.
    world.until_answer(&["get", "--raw", "/readyz"], |_| paused.elapsed() > WATCH).await;
    world.component(["kill", "kube-apiserver"]);
    world.component(["start", "kube-apiserver"]);
    world.until_answer(&["get", "--raw", "/readyz"], |said| said == "ok").await;
    world.signal("CONT");

    world.until_log("the API server says 410").await;
    for job in &gone {
        let chain = world.until(job, "training again", |chain| steps_of(chain, 1, 0)).await;
        assert_eq!(chain["attempts_total"], 2, "{chain:#}");
        assert_eq!(incidents(&chain["attempts"][0]).len(), 1, "{chain:#}");
    }
    world.until_well().await;
    for job in &kept {
        world.until_steps_more(job, 50).await;
        is_untouched(&world.read(&format!("/jobs/{job}/chain")).await);
    }
    for job in kept.iter().chain(&gone) {
        world.stop(job).await;
    }
    world.until_nothing_is_left().await;
}
