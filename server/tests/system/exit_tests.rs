//! Tests of Exit ckpt Notification on real programs (R18): what each behaviour comes to, that the job goes on, and what ends a test.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{PATIENCE, World, attempts, launches};

fn program(name: &str, behaviour: &str, replicas: u32, max_wait_seconds: u32) -> Value {
    json!({
        "name": name, "kind": "pytorchjob", "cluster": "local",
        "command": ["python3", "examples/exit_behaviours.py"],
        "env": {"EXIT_BEHAVIOUR": behaviour}, "replicas": replicas,
        "fault_tolerance": {"auto_failover": true, "max_task_restarts": 2, "policy": {"enabled": true},
                            "exit_checkpoint": {"enabled": true, "max_wait_seconds": max_wait_seconds}},
    })
}

impl World {
    async fn test_exit(&self, job: &str) -> Value {
        let (status, view) = self.post(&format!("/api/v1/jobs/{job}/test-exit"), &json!({})).await;
        assert_eq!(status, 202, "{view:#}");
        view
    }

    /// Waits for the end of the newest test.
    async fn tested(&self, job: &str) -> Value {
        let begin = Instant::now();
        loop {
            let (status, view) = self.get(&format!("/api/v1/jobs/{job}/test-exit")).await;
            assert_eq!(status, 200);
            if view["test"]["ended_at"].is_string() {
                return view["test"].clone();
            }
            assert!(begin.elapsed() < PATIENCE, "the test has no end: {view:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn end(&self, job: &str) {
        self.post(&format!("/api/v1/jobs/{job}/stop"), &json!({"force": true})).await;
        self.until_state(job, "stopped").await;
    }
}

/// Behaviour, its limit in seconds, the verdict, the outcome, words of its message; whether the program ends because of it.
const MATRIX: [(&str, u32, &str, &str, &str, bool); 12] = [
    ("saves", 60, "passed", "saved", "", false),
    ("slow", 60, "passed", "saved", "", false),
    ("fails", 60, "failed", "failed", "no space left on device", false),
    ("never_saves", 1, "failed", "timed_out", "1 of 2 files", false),
    ("never_begins", 1, "failed", "timed_out", "did not begin to save", false),
    ("closed_port", 60, "failed", "no_answer", "nobody listens on port", false),
    ("hangs", 1, "failed", "no_answer", "notify was not answered within", false),
    ("500_later", 60, "failed", "wrong_answer", "status answers 500", false),
    ("wrong_word", 60, "failed", "wrong_answer", "unknown variant", false),
    ("dies_when_told", 60, "failed", "failed", "ended before it had saved", true),
    ("dies_while_saving", 60, "failed", "failed", "ended before it had saved", true),
    ("saves_and_exits", 60, "passed", "saved", "", true),
];

#[tokio::test]
async fn every_behaviour_is_named_and_the_job_goes_on_uncharged() {
    let world = World::with(&["--local-nodes", "4", "--local-slots", "4"]).await;
    let mut jobs = Vec::new();
    for (behaviour, limit, ..) in MATRIX {
        jobs.push(world.create(&program(&behaviour.replace('_', "-"), behaviour, 1, limit)).await);
    }
    for job in &jobs {
        world.until_step(job, 3).await;
        let asked = world.test_exit(job).await;
        assert!(asked["test"]["asked_at"].is_string(), "{asked:#}");
    }
    for ((behaviour, _, verdict, outcome, words, ends), job) in MATRIX.iter().zip(&jobs) {
        let test = world.tested(job).await;
        let one = &test["replicas"][0];
        assert_eq!(
            (&test["verdict"], &one["outcome"]),
            (&json!(verdict), &json!(outcome)),
            "{behaviour}: {test:#}"
        );
        assert!(one["message"].as_str().unwrap_or_default().contains(words), "{behaviour}: {test:#}");
        if *ends {
            let again = |chain: &Value| {
                launches(&attempts(chain)[0])
                    .last()
                    .is_some_and(|launch| launch["cause"] == "exit_test" && launch["started_at"].is_string())
            };
            let chain = world.until(job, "started again", again).await;
            let decision = &attempts(&chain)[0]["incidents"][0]["decision"];
            assert_eq!(
                (&decision["rule"], &decision["charged"], &decision["action"]),
                (&json!("exit-test"), &json!("none"), &json!("restart_in_place")),
                "{behaviour}: {chain:#}"
            );
        }
        let chain = world.until_state(job, "running").await;
        let used = |budget: &str| chain["budgets"][budget]["used"].as_u64();
        assert_eq!((used("task_restarts"), used("in_place_restarts")), (Some(0), Some(0)), "{behaviour}");
        assert_eq!(attempts(&chain).len(), 1, "{behaviour}");
        assert_eq!(attempts(&chain)[0]["exit_test"], test, "{behaviour}: the chain has it too");
        world.end(job).await;
    }
    world.until_no_process().await;
}

#[tokio::test]
async fn a_test_survives_a_restart_of_the_server_and_a_real_stop_ends_it() {
    let mut world = World::start().await;
    let job = world.create(&program("away", "never_saves", 2, 600)).await;
    world.until_step(&job, 3).await;
    world.test_exit(&job).await;
    let told = |chain: &Value| {
        let replicas = attempts(chain)[0]["exit_test"]["replicas"].as_array().cloned().unwrap_or_default();
        replicas.len() == 2 && replicas.iter().all(|one| one["received_at"].is_string())
    };
    world.until(&job, "told in both replicas", told).await;
    world.kill();
    world.restart(&[]).await;
    let (_, view) = world.get(&format!("/api/v1/jobs/{job}/test-exit")).await;
    assert_eq!(view["test"]["verdict"], "running", "{view:#}");
    let (status, problem) = world.post(&format!("/api/v1/jobs/{job}/test-exit"), &json!({})).await;
    assert_eq!(
        (status, problem["detail"].as_str()),
        (409, Some("local tests it already; one test at a time."))
    );
    let (status, _) = world.post(&format!("/api/v1/jobs/{job}/stop"), &json!({})).await;
    assert_eq!(status, 202);
    let chain = world.until_state(&job, "saving").await;
    let attempt = &attempts(&chain)[0];
    assert_eq!(attempt["exit_test"]["verdict"], "cut_short", "{attempt:#}");
    assert!(
        attempt["exit_checkpoint"]["deadline_at"].as_str() > attempt["exit_test"]["deadline_at"].as_str(),
        "the real end has its own time: {attempt:#}"
    );
    world.end(&job).await;
    world.until_no_process().await;
}
