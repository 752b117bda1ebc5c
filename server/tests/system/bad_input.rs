//! Nonsense from people, programs and forgers: a clear error or a correct result, nothing lost.

use std::process::Stdio;

use engine::sync::headers;
use serde_json::{Value, json};

use crate::harness::{World, attempts, train};

#[tokio::test]
async fn wrong_fields_are_named_and_nothing_is_made() {
    let world = World::start().await;
    for (body, field) in [
        (json!({"command": ["true"]}), "name"),
        (
            json!({"name": "a", "command": ["true"], "fault_tolerance": {"max_task_restarts": -1}}),
            "fault_tolerance.max_task_restarts",
        ),
        (
            json!({"name": "a", "command": ["true"], "fault_tolerance": {"policy": {"enabled": true}}}),
            "fault_tolerance.policy.enabled",
        ),
        (json!({"name": "a", "command": ["true"], "replicas": "two"}), "replicas"),
        (json!({"name": "a", "command": ["true"], "retries": 2}), "retries"),
    ] {
        let (status, answer) = world.post("/api/v1/jobs", &body).await;
        assert_eq!(status, 422, "{body} {answer}");
        let fields: Vec<&str> =
            answer["errors"].as_array().unwrap().iter().filter_map(|error| error["field"].as_str()).collect();
        assert!(fields.contains(&field), "{body} {answer}");
    }
    let (_, list) = world.get("/api/v1/jobs").await;
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn html_in_names_and_logs_stays_text() {
    let world = World::start().await;
    let name = "</title><script>alert(1)</script>";
    let mut body = train("html", 1, 0.0, &[]);
    body["name"] = json!(name);
    body["replicas"] = json!(1);
    body["command"] = json!([
        "sh",
        "-c",
        "echo '<b>bold</b>'; echo 'ValueError: <img src=x onerror=alert(2)>' >&2; exit 1"
    ]);
    let job = world.create(&body).await;
    world.until(&job, "failed", |chain| attempts(chain)[0]["incidents"][0].is_object()).await;
    let (_, view) = world.get(&format!("/api/v1/jobs/{job}")).await;
    assert_eq!(view["name"], name);
    for page in ["", "/fault-tolerance", "/logs", "/events", "/spec"] {
        let (status, html) = world.get(&format!("/jobs/{job}{page}")).await;
        let html = html.as_str().unwrap();
        assert_eq!(status, 200, "{page}");
        assert!(!html.contains("<script>alert(1)") && !html.contains("<img src=x"), "{page}: {html}");
    }
    let (_, list) = world.get("/jobs").await;
    assert!(!list.as_str().unwrap().contains("<script>alert(1)"));
}

#[tokio::test]
async fn a_forged_report_changes_nothing() {
    let world = World::start().await;
    let job = world.create(&train("forged", 100_000, 0.02, &[])).await;
    let chain = world.until_step(&job, 5).await;
    let task = chain["latest_task_id"].as_str().unwrap();
    let forged = json!({
        "task_id": task, "replica": "worker-0", "agent_id": "forger", "seen": 0, "address": "127.0.0.1", "offer": null,
        "sent_at": "2026-01-01T00:00:00Z",
        "reports": [{"sequence": 999, "at": "2026-01-01T00:00:00Z", "launch": 0, "body":
            {"kind": "exited", "rank": 1, "exit": {"code": 1}, "asked": false, "step": null, "phase": "training", "evidence": []}}],
    });
    let master =
        std::fs::read_to_string(world.data().join("jobs").join(&job).join(task).join("master-0/token"))
            .unwrap();
    for (speaker, token) in [
        ("worker-0", None),
        ("worker-0", Some("0".repeat(64))),
        ("worker-0", Some(master.clone())),
        // Its own token and name, but the body speaks for another.
        ("master-0", Some(master)),
    ] {
        let request = world.request(reqwest::Method::POST, "/agent/v1/sync").json(&forged);
        let mut request = request.header(headers::TASK, task).header(headers::REPLICA, speaker);
        if let Some(token) = &token {
            request = request.bearer_auth(token);
        }
        assert_eq!(world.send(request).await.0, 401, "{token:?}");
    }
    let later = world.until_step(&job, 10).await;
    assert_eq!(later["state"], "running");
    assert_eq!(attempts(&later)[0]["incidents"], json!([]));
}

#[tokio::test]
async fn two_servers_on_one_data_directory_are_one_too_many() {
    let world = World::start().await;
    let second = world.command().stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert!(!second.status.success());
    let said =
        String::from_utf8_lossy(&second.stderr).into_owned() + &String::from_utf8_lossy(&second.stdout);
    assert!(said.contains(world.data().to_str().unwrap()), "{said}");
}

#[tokio::test]
async fn a_server_whose_log_cannot_be_written_serves_and_recovers() {
    let mut world = World::start().await;
    world.log = "/dev/full".into();
    world.restart(&[]).await;
    let job = world.create(&train("unheard", 20, 0.0, &[("FAIL_AT", "10")])).await;
    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(attempts(&chain)[0]["incidents"].as_array().unwrap().len(), 1, "{chain:#}");
    assert!(world.is_up());
}

#[tokio::test]
async fn a_checkpoint_directory_that_cannot_be_used_is_said_before_training() {
    let world = World::start().await;
    let file = world.dir.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let mut body = train("nowhere", 10, 0.0, &[]);
    body["checkpoint_dir"] = json!(file.join("below"));
    let job = world.create(&body).await;
    let chain = world.until_state(&job, "failed").await;
    assert_eq!((attempts(&chain).len(), &attempts(&chain)[0]["result"]), (1, &json!("refused")), "{chain:#}");
    assert!(chain["why_not"]["text"].as_str().unwrap().contains("refused attempt 1"), "{chain:#}");
    let (_, events) = world.get(&format!("/api/v1/jobs/{job}/events")).await;
    assert!(events.to_string().contains("checkpoint_dir"), "{events}");
}

#[tokio::test]
async fn floods_and_binary_output_do_no_harm() {
    let world = World::start().await;
    let mut jobs = Vec::new();
    for (name, script) in [
        ("one-line", "head -c 300000000 /dev/zero | tr '\\0' x; echo; echo holdfast step=1 loss=0.5"),
        ("binary", "head -c 20000000 /dev/urandom; echo; echo holdfast step=1 loss=0.5"),
        ("lines", "yes 'all is well' | head -n 1000000; echo holdfast step=1 loss=0.5"),
    ] {
        let mut body = train(name, 1, 0.0, &[]);
        body["replicas"] = json!(1);
        body["command"] = json!(["sh", "-c", script]);
        jobs.push(world.create(&body).await);
    }
    for job in &jobs {
        let chain = world.until_state(job, "succeeded").await;
        assert_eq!(attempts(&chain)[0]["launches"][0]["steps"]["last"], 1, "{chain:#}");
        let task = chain["latest_task_id"].as_str().unwrap();
        let (status, page) = world.get(&format!("/api/v1/tasks/{task}/logs?tail=2")).await;
        assert_eq!(status, 200);
        let last: Option<&Value> = page["lines"].as_array().unwrap().last();
        assert_eq!(last.unwrap()["text"], "holdfast step=1 loss=0.5", "{page}");
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_environment_error() {
    let world = World::start().await;
    let mut body = train("typo", 1, 0.0, &[]);
    body["command"] = json!(["no-such-program-anywhere"]);
    let job = world.create(&body).await;
    let chain = world.until_state(&job, "failed").await;
    assert_eq!(attempts(&chain)[0]["failure_type"], "ENV_ERROR", "{chain:#}");
    assert!(attempts(&chain)[0]["fault"].as_str().unwrap().contains("no-such-program-anywhere"), "{chain:#}");
}
