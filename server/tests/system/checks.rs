//! Health checks before training: what fails one keeps the job from starting and says why; what passes costs next to nothing.

use std::fs;

use engine::time::Time;
use serde_json::{Value, json};

use crate::harness::{World, assert_invariants, attempts, launches, train};

/// The health checks of the first launch of the newest attempt.
fn checks(chain: &Value) -> &Value {
    &launches(attempts(chain).last().unwrap())[0]["health_checks"]
}

fn summary<'a>(chain: &'a Value, check: &str) -> &'a Value {
    checks(chain)["checks"].as_array().unwrap().iter().find(|summary| summary["check"] == check).unwrap()
}

fn with_command(name: &str, script: &str) -> Value {
    let mut body = train(name, 20, 0.01, &[]);
    body["fault_tolerance"]["health_checks"] =
        json!({"enabled": true, "checks": ["shm"], "command": ["bash", "-c", script]});
    body
}

#[tokio::test]
async fn a_checkpoint_directory_that_vanished_fails_the_job_before_it_trains() {
    let world = World::with(&["--local-nodes", "1", "--local-slots", "2"]).await;
    let long = world.create(&train("long", 100_000, 0.02, &[])).await;
    world.until_state(&long, "running").await;
    let mut body = train("vanished", 20, 0.01, &[]);
    body["checkpoint_dir"] = json!("mount/deep/ckpt");
    let job = world.create(&body).await;
    world.until(&job, "waiting", |chain| attempts(chain)[0]["queue"]["reason"] == "busy").await;
    // What it is mounted from is away.
    fs::remove_dir_all(world.data().join("mount")).unwrap();
    std::os::unix::fs::symlink("/no-such-mount", world.data().join("mount")).unwrap();
    world.post(&format!("/api/v1/jobs/{long}/stop"), &json!({})).await;

    let chain = world.until_state(&job, "failed").await;
    assert_invariants(&chain);
    let [attempt] = attempts(&chain).as_slice() else { panic!("{chain:#}") };
    assert_eq!(attempt["started_at"], Value::Null, "it began to train: {chain:#}");
    let [incident] = attempt["incidents"].as_array().unwrap().as_slice() else { panic!("{chain:#}") };
    assert_eq!((&incident["failure_type"], &incident["phase"]), (&json!("ENV_ERROR"), &json!("starting")));
    let fault = incident["fault"].as_str().unwrap();
    assert!(fault.starts_with("health check “checkpoint directory” failed in master-0"), "{fault}");
    assert!(fault.contains("mount/deep/ckpt is missing") && fault.contains("1 replica more"), "{fault}");
    assert!(incident["hint"].as_str().unwrap().contains("Mount the volume"), "{incident:#}");
    assert_eq!(incident["decision"]["action"], "fail_fast");
    assert_eq!(chain["why_not"]["next"], incident["hint"]);
    assert_eq!(checks(&chain)["state"], "failed");
    assert_eq!(summary(&chain, "checkpoint_dir")["failed"], 2);
    assert_eq!(chain["budgets"]["task_restarts"]["used"], 0);
    let task = attempt["task_id"].as_str().unwrap();
    let logs = world.data().join("jobs").join(&job).join(task).join("master-0/launch-0.log");
    assert!(!logs.exists(), "the program printed something: {}", logs.display());
    world.until_no_process().await;
}

#[tokio::test]
async fn a_command_that_fails_in_one_replica_names_it_and_its_words() {
    let world = World::start().await;
    let script = "test $RANK != 1 || { echo 'the <b>disk</b> is slow'; exit 3; }";
    let job = world.create(&with_command("own", script)).await;
    let chain = world.until_state(&job, "failed").await;
    assert_invariants(&chain);
    let incident = &attempts(&chain)[0]["incidents"][0];
    assert_eq!(incident["root"]["replica"], "worker-0", "{incident:#}");
    assert!(incident["root"]["node"].is_string());
    let fault = incident["fault"].as_str().unwrap();
    assert!(fault.ends_with("exit 3; it said: the <b>disk</b> is slow"), "{fault}");
    assert_eq!(incident["evidence"][0]["signature"], "check-command");
    let command = summary(&chain, "command");
    assert_eq!((&command["passed"], &command["failed"]), (&json!(1), &json!(1)));
    assert_eq!(checks(&chain)["failures"][0]["replica"], "worker-0");

    let (_, events) = world.get(&format!("/api/v1/jobs/{job}/events")).await;
    let told = events.to_string();
    assert!(told.contains("Training does not begin."), "{told}");
}

#[tokio::test]
async fn what_passes_is_told_and_takes_less_than_half_a_second() {
    let world = World::start().await;
    let mut took = Vec::new();
    for number in 0..3 {
        let job = world.create(&train(&format!("healthy-{number}"), 20, 0.01, &[])).await;
        let chain = world.until_state(&job, "succeeded").await;
        let checks = checks(&chain);
        assert_eq!((&checks["state"], &checks["told"]), (&json!("passed"), &json!(2)), "{chain:#}");
        let names: Vec<_> = checks["checks"].as_array().unwrap().iter().map(|one| &one["check"]).collect();
        assert_eq!(names, ["checkpoint_dir", "shm", "rendezvous", "clock", "devices", "kernel_log"]);
        assert_eq!(summary(&chain, "devices")["skipped"], 2);
        for check in ["checkpoint_dir", "shm", "rendezvous", "clock"] {
            assert_eq!(summary(&chain, check)["passed"], 2, "{chain:#}");
        }
        let time = |field: &str| serde_json::from_value::<Time>(checks[field].clone()).unwrap();
        took.push(time("ended_at").seconds_since(time("began_at")));
    }
    println!("health checks of two replicas took {took:?} s");
    let best = took.into_iter().fold(f64::INFINITY, f64::min);
    assert!(best < 0.5, "{best} s");
    let (_, shown) = world.get("/api/v1/settings").await;
    assert_eq!(shown["defaults"]["health_checks"]["enabled"], true, "{shown:#}");
}

#[tokio::test]
async fn a_server_that_is_killed_while_replicas_check_goes_on_when_it_is_back() {
    let mut world = World::start().await;
    let go = world.dir.path().join("go");
    let script = format!("while ! test -e {}; do sleep 0.02; done", go.display());
    let job = world.create(&with_command("crash", &script)).await;
    world.until(&job, "checking", |chain| launches(&attempts(chain)[0]).len() == 1).await;
    world.until_checking(2).await;
    world.restart(&[]).await;
    fs::write(&go, "").unwrap();
    let chain = world.until_state(&job, "succeeded").await;
    assert_invariants(&chain);
    assert_eq!((attempts(&chain).len(), &checks(&chain)["state"]), (1, &json!("passed")));
    assert!(attempts(&chain)[0]["incidents"].as_array().unwrap().is_empty(), "{chain:#}");
    world.until_no_process().await;
}

#[tokio::test]
async fn a_stop_ends_checks_that_hang() {
    let world = World::start().await;
    let job = world.create(&with_command("stopped", "trap '' TERM; sleep 1000; true")).await;
    world.until_checking(2).await;
    let (status, _) = world.post(&format!("/api/v1/jobs/{job}/stop"), &json!({})).await;
    assert_eq!(status, 202);
    let chain = world.until_state(&job, "stopped").await;
    assert!(attempts(&chain)[0]["incidents"].as_array().unwrap().is_empty(), "{chain:#}");
    world.until_no_process().await;
}

#[tokio::test]
async fn a_site_can_turn_them_off() {
    let world = World::with(&["--health-checks", "off"]).await;
    let job = world.create(&train("plain", 20, 0.01, &[])).await;
    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(*checks(&chain), Value::Null);
}

impl World {
    /// Waits until so many own commands of health checks run.
    async fn until_checking(&self, count: usize) {
        let begin = std::time::Instant::now();
        let checking = || {
            let running = self.processes();
            let commands =
                running.iter().filter_map(|(pid, _)| fs::read(format!("/proc/{pid}/cmdline")).ok());
            commands.filter(|line| line.starts_with(b"bash\0")).count()
        };
        while checking() < count {
            assert!(begin.elapsed() < crate::harness::PATIENCE, "no check runs:\n{}", self.server_log());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}
