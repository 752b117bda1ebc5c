//! Stop and delete work in every state and win over recovery.

use std::time::Instant;

use serde_json::json;

use crate::harness::{PATIENCE, World, attempts, basic, train};

#[tokio::test]
async fn a_stop_ends_a_running_job_for_good() {
    let world = World::start().await;
    let job = world.create(&train("running", 100_000, 0.02, &[])).await;
    world.until_step(&job, 5).await;
    let (status, _) = world.post(&format!("/api/v1/jobs/{job}/stop"), &json!({"force": false})).await;
    assert_eq!(status, 202);
    let chain = world.until_state(&job, "stopped").await;
    assert_eq!((attempts(&chain).len(), &attempts(&chain)[0]["result"]), (1, &json!("stopped")));
    assert!(
        chain["why_not"]["text"].as_str().unwrap().contains("a manual stop is never resubmitted"),
        "{chain:#}"
    );
    world.until_no_process().await;
    let (status, answer) = world.post(&format!("/api/v1/jobs/{job}/stop"), &json!({})).await;
    assert!(status == 202 || status == 409, "{status} {answer}");
}

#[tokio::test]
async fn a_stop_wins_over_a_recovery() {
    let world = World::start().await;
    // It fails so often that it is nearly always recovering.
    let mut body = train("recovering", 100, 0.01, &[("FAIL_AT", "2"), ("FAIL_TIMES", "99")]);
    body["fault_tolerance"] = basic(50);
    let job = world.create(&body).await;
    world.until(&job, "recovering", |chain| chain["state"] == "recovering").await;
    world.post(&format!("/api/v1/jobs/{job}/stop"), &json!({})).await;
    let stopped = world.until_state(&job, "stopped").await;
    world.until_no_process().await;
    assert_eq!(world.chain(&job).await["attempts_total"], stopped["attempts_total"]);
}

#[tokio::test]
async fn a_queued_job_is_stopped_without_having_run() {
    let world = World::with(&["--local-nodes", "1", "--local-slots", "2"]).await;
    let first = world.create(&train("first", 100_000, 0.02, &[])).await;
    world.until_state(&first, "running").await;
    let second = world.create(&train("second", 10, 0.02, &[])).await;
    world.until(&second, "waiting", |chain| attempts(chain)[0]["queue"].is_object()).await;
    world.post(&format!("/api/v1/jobs/{second}/stop"), &json!({})).await;
    let chain = world.until_state(&second, "stopped").await;
    assert!(attempts(&chain)[0]["started_at"].is_null());
}

#[tokio::test]
async fn a_program_that_ignores_term_and_forks_is_ended_all_the_same() {
    let world = World::start().await;
    let mut body = train("stubborn", 1, 0.0, &[]);
    body["replicas"] = json!(1);
    body["command"] =
        json!(["sh", "-c", "trap '' TERM; (trap '' TERM; setsid sleep 600) & while :; do sleep 1; done"]);
    let job = world.create(&body).await;
    world.until_state(&job, "running").await;
    world.post(&format!("/api/v1/jobs/{job}/stop"), &json!({"force": true})).await;
    world.until_state(&job, "stopped").await;
    world.until_no_process().await;
}

#[tokio::test]
async fn a_deleted_job_leaves_nothing() {
    let world = World::start().await;
    let running = world.create(&train("running", 100_000, 0.02, &[])).await;
    let finished = world.create(&train("finished", 10, 0.0, &[])).await;
    world.until_step(&running, 12).await;
    world.until_state(&finished, "succeeded").await;
    for job in [&running, &finished] {
        let (status, _) = world.delete(&format!("/api/v1/jobs/{job}")).await;
        assert_eq!(status, 202);
        let begin = Instant::now();
        while world.get(&format!("/api/v1/jobs/{job}")).await.0 != 404 {
            assert!(begin.elapsed() < PATIENCE, "{job} is still there:\n{}", world.server_log());
        }
        assert!(!world.data().join("jobs").join(job).exists());
    }
    world.until_no_process().await;
    assert!(!world.data().join("checkpoints/running").exists());
}

#[tokio::test]
async fn a_person_resubmits_an_ended_job_without_a_charge() {
    let world = World::start().await;
    let mut body = train("again", 30, 0.01, &[("FAIL_AT", "15")]);
    body["fault_tolerance"] = basic(0);
    let job = world.create(&body).await;
    world.until_state(&job, "failed").await;
    let (status, answer) =
        world.post(&format!("/api/v1/jobs/{job}/resubmit"), &json!({"as": "attempt"})).await;
    assert_eq!(status, 202, "{answer}");
    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(attempts(&chain)[1]["cause"], "manual");
    assert_eq!(chain["budgets"]["task_restarts"], json!({"used": 0, "allowed": 0}));
    assert_eq!(attempts(&chain)[1]["launches"][0]["proof"]["verdict"], "resumed", "{chain:#}");
}
