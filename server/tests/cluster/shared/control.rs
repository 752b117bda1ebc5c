//! The server dies or pauses at any time, or its namespace goes.

use serde_json::{Value, json};

use crate::{
    harness::World,
    jobs::{incidents, ray, small, steps_of},
};

/// Fails once with a failure that a PyTorchJob, too, is resubmitted after.
const FAILS: [(&str, &str); 2] = [("FAIL_AT", "12"), ("FAIL_KIND", "UNKNOWN")];

/// Failed once and resubmitted once, whatever happened meanwhile.
fn is_as_undisturbed(chain: &Value) {
    assert_eq!(chain["attempts_total"], 2, "{chain:#}");
    assert_eq!(chain["budgets"]["task_restarts"]["used"], 1, "{chain:#}");
    let attempts = chain["attempts"].as_array().unwrap();
    assert_eq!(incidents(&attempts[0]).len(), 1, "{chain:#}");
    assert!(incidents(&attempts[1]).is_empty(), "{chain:#}");
}

/// The server is killed at each of these points of a job of its own and started again.
async fn loses_and_doubles_nothing(name: &str, points: &[&str], changes: Value) {
    let Some(mut world) = World::start(name).await else { return };
    for (number, point) in points.iter().enumerate() {
        world.kill();
        world.env.push(("HOLDFAST_FAILPOINT", (*point).to_owned()));
        world.serve().await;
        let job = world.train(&format!("killed-{number}"), 25, &FAILS, changes.clone()).await;
        world.until_down().await;
        world.serve().await;
        let chain = world.until_state(&job, "succeeded").await;
        is_as_undisturbed(&chain);
        world.until_nothing_is_left().await;
        // What the next server is killed at is then a step of the next job.
        world.until_settled().await;
    }
}

const COMMITS: [&str; 4] = ["before_commit:2", "after_commit:3", "before_commit:5", "after_commit:8"];
const CREATIONS: [&str; 4] = ["before_create:1", "after_create:1", "before_create:2", "after_create:2"];
const REMOVALS: [&str; 4] = ["before_delete:1", "after_delete:1", "before_delete:2", "after_delete:2"];

#[tokio::test]
async fn a_server_killed_as_it_commits_loses_and_doubles_nothing() {
    loses_and_doubles_nothing("killed-commit", &COMMITS, small()).await;
}

#[tokio::test]
async fn a_server_killed_as_it_makes_an_attempt_loses_and_doubles_nothing() {
    loses_and_doubles_nothing("killed-create", &CREATIONS, small()).await;
}

#[tokio::test]
async fn a_server_killed_as_it_removes_an_attempt_loses_and_doubles_nothing() {
    loses_and_doubles_nothing("killed-delete", &REMOVALS, small()).await;
}

#[tokio::test]
async fn a_server_of_rayjobs_killed_as_it_commits_loses_and_doubles_nothing() {
    loses_and_doubles_nothing("killed-ray-commit", &COMMITS, ray(2, json!({}))).await;
}

#[tokio::test]
async fn a_server_of_rayjobs_killed_as_it_makes_an_attempt_loses_and_doubles_nothing() {
    loses_and_doubles_nothing("killed-ray-create", &CREATIONS, ray(2, json!({}))).await;
}

#[tokio::test]
async fn a_server_of_rayjobs_killed_as_it_removes_an_attempt_loses_and_doubles_nothing() {
    loses_and_doubles_nothing("killed-ray-delete", &REMOVALS, ray(2, json!({}))).await;
}

#[tokio::test]
async fn a_paused_server_finds_what_happened_meanwhile_and_charges_it_once() {
    let Some(world) = World::start("paused").await else { return };
    let env = [("FAIL_AT", "60"), ("FAIL_KIND", "UNKNOWN")];
    let job = world.train("paused", 80, &env, small()).await;
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
async fn a_namespace_that_is_deleted_ends_its_jobs_with_the_reason() {
    let Some(world) = World::start("deleted").await else { return };
    let jobs = [
        world.train("homeless", 100_000, &[], json!({})).await,
        world.train("homeless-ray", 100_000, &[], ray(2, json!({}))).await,
    ];
    for job in &jobs {
        world.until(job, "running", |chain| steps_of(chain, 0, 0)).await;
    }
    world.kubectl(&["delete", "namespace", world.namespace(), "--wait=false"]);
    for job in &jobs {
        let chain = world.until_state(job, "failed").await;
        assert!(!incidents(&chain["attempts"][0]).is_empty(), "{chain:#}");
        let why = chain["why_not"]["text"].as_str().unwrap_or_default();
        assert!(!why.is_empty(), "{chain:#}");
    }
}
