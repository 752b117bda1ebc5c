//! Jobs through the API.

use http::StatusCode;
use serde_json::Value;

use crate::support::{Server, json};

const DEMO: &str = r#"{"name":"demo","command":["python3","examples/train.py","--steps","200"],"env":{"FAIL_AT":"40"},"replicas":2,
  "accelerators_per_replica":1,"checkpoint_dir":"checkpoints/demo",
  "fault_tolerance":{"auto_failover":true,"max_task_restarts":2,"policy":{"enabled":true}}}"#;

/// Keys of an object, for shapes whose values differ each time.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn the_list_says_what_to_begin_with_where_there_is_no_job_at_all() {
    let server = Server::new().await;
    let page = async |path: &str| server.get(path).await.text;
    let first = page("/jobs").await;
    assert!(first.contains("No jobs yet") && first.contains("from=demo"), "{first}");
    assert!(!page("/jobs?state=failed").await.contains("No jobs yet"), "something was asked for");
    server.job(DEMO).await;
    assert!(!page("/jobs").await.contains("No jobs yet"));
}

#[tokio::test]
async fn a_created_job_is_there_with_its_first_attempt_and_the_driver_is_told() {
    let server = Server::new().await;
    let answer = server.post("/api/v1/jobs", DEMO).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    let job = answer.json();
    let id = job["job_id"].as_str().unwrap();
    assert_eq!(answer.header("location"), format!("/api/v1/jobs/{id}"));
    assert_eq!(
        (&job["state"], &job["mode"], &job["owner"]),
        (&"queued".into(), &"advanced".into(), &"local".into())
    );
    assert_eq!(job["spec"]["fault_tolerance"]["hang_detection"]["interval_seconds"], 240);
    assert_eq!(server.driver.hints.lock().unwrap()[0].as_str(), id);

    assert_eq!(server.get(&format!("/api/v1/jobs/{id}")).await.json()["job_id"], id);
    let list = server.get("/api/v1/jobs?state=queued&q=DEMO").await.json();
    assert_eq!(keys(&list), ["items", "next_cursor", "total"]);
    assert_eq!((&list["items"][0]["job_id"], &list["total"]), (&id.into(), &1.into()));
    assert_eq!(server.get("/api/v1/jobs?state=failed").await.json()["total"], 0);

    let chain = server.get(&format!("/api/v1/jobs/{id}/chain")).await.json();
    for key in [
        "job_id",
        "state",
        "substate",
        "mode",
        "original_task_id",
        "latest_task_id",
        "attempts_total",
        "budgets",
        "attempts",
        "why_not",
        "diagnostics",
        "ledger",
    ] {
        assert!(chain.get(key).is_some(), "{key}");
    }
    let task = chain["attempts"][0]["task_id"].as_str().unwrap();
    let attempt = server.get(&format!("/api/v1/tasks/{task}")).await.json();
    assert_eq!(
        (&attempt["job_id"], &attempt["number"], &attempt["cause"]),
        (&id.into(), &1.into(), &"initial".into())
    );
    assert!(attempt["previous_task_id"].is_null() && attempt["launches"].is_array());
    let logs = server.get(&format!("/api/v1/tasks/{task}/logs")).await.json();
    assert_eq!(logs["lines"], Value::Array(Vec::new()));
    let events = server.get(&format!("/api/v1/tasks/{task}/events")).await.json();
    assert!(events["items"].is_array());
    let curve = server.get(&format!("/api/v1/jobs/{id}/metrics")).await.json();
    assert_eq!(curve["points"], Value::Array(Vec::new()));
    let csv = server.get(&format!("/api/v1/jobs/{id}/metrics?format=csv")).await;
    assert_eq!(
        (csv.header("content-type"), csv.text.as_str()),
        ("text/csv; charset=utf-8", "task_id,launch,step,at,value,kept\n")
    );
}

#[tokio::test]
async fn pages_of_the_list_are_walked_by_cursor() {
    let server = Server::new().await;
    for n in 0..25 {
        server.job(&format!(r#"{{"name":"job-{n}","command":["true"]}}"#)).await;
    }
    let mut names = Vec::new();
    let mut path = "/api/v1/jobs?limit=10".to_owned();
    loop {
        let page = server.get(&path).await.json();
        names.extend(
            page["items"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/api/v1/jobs?limit=10&cursor={cursor}"),
            None => break,
        }
    }
    let want: Vec<_> = (0..25).rev().map(|n| format!("job-{n}")).collect();
    assert_eq!(names, want);
}

#[tokio::test]
async fn stop_and_delete_are_accepted_and_kept_and_resubmit_waits_for_the_end() {
    let server = Server::new().await;
    let id = server.job(DEMO).await;
    let early = server.post(&format!("/api/v1/jobs/{id}/resubmit"), r#"{"as":"attempt"}"#).await;
    insta::assert_snapshot!(early.problem());
    // The body may be left out.
    let sent = crate::support::request("POST", &format!("/api/v1/jobs/{id}/stop"))
        .body(axum::body::Body::empty())
        .unwrap();
    assert_eq!(server.send(sent).await.status, StatusCode::ACCEPTED);
    assert_eq!(
        server.post(&format!("/api/v1/jobs/{id}/stop"), r#"{"force":true}"#).await.status,
        StatusCode::ACCEPTED
    );
    let sent = json("DELETE", &format!("/api/v1/jobs/{id}?force=true"), "");
    let deleted = server.send(sent).await;
    assert_eq!((deleted.status, &deleted.json()["job_id"]), (StatusCode::ACCEPTED, &id.as_str().into()));
    let mut conn = server.store.read().await.unwrap();
    let job = engine::ids::JobId::new(id).unwrap();
    let waiting = server::store::inbox::take(&mut conn, &job).await.unwrap();
    let requests: Vec<_> =
        waiting.iter().map(|waiting| format!("{:?} by {}", waiting.request, waiting.by)).collect();
    assert_eq!(
        requests,
        [
            "Stop { force: false } by local",
            "Stop { force: true } by local",
            "Delete { force: true } by local"
        ]
    );
}

#[tokio::test]
async fn a_job_is_made_like_another_with_changes() {
    let server = Server::new().await;
    let id = server.job(DEMO).await;
    let path = format!("/api/v1/jobs/{id}/resubmit");
    let new = server.post(&path, r#"{"as":"job","changes":{"replicas":1,"env":{"FAIL_AT":null}}}"#).await;
    assert_eq!(new.status, StatusCode::CREATED, "{}", new.text);
    let new = new.json();
    assert_ne!(new["job_id"], id);
    assert_eq!(new["copied_from"], id);
    let first = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(first["copied_from"], serde_json::Value::Null);
    assert_eq!((&new["spec"]["replicas"], &new["spec"]["env"]), (&1.into(), &serde_json::json!({})));
    let mut seen = Vec::new();
    for body in [
        r#"{"as":"job","changes":{"replicas":-1}}"#,
        r#"{"as":"job","changes":{"replicas":"1"}}"#,
        r#"{"as":"job","changes":{"fault_tolerance":{"polcy":{}}}}"#,
        r#"{"as":"job","changes":[]}"#,
        r#"{"as":"attempt","changes":{"replicas":1}}"#,
        r#"{"as":"copy"}"#,
    ] {
        seen.push(format!("{body}\n{}", server.post(&path, body).await.problem()));
    }
    insta::assert_snapshot!(seen.join("\n\n"));
}

#[tokio::test]
async fn hostile_text_is_kept_as_text() {
    let server = Server::new().await;
    let id = server.job(r#"{"name":"<script>alert(1)</script>","command":["true"]}"#).await;
    let job = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(job["name"], "<script>alert(1)</script>");
    let page = server.get("/jobs").await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(!page.text.contains("<script>alert(1)"), "{}", page.text);
}

#[tokio::test]
async fn the_history_of_an_attempt_that_is_not_the_jobs_is_not_found() {
    let server = Server::new().await;
    let (id, other) = (server.job(DEMO).await, server.job(DEMO).await);
    let task = |job: &str| format!("demo-{job}-1");
    let events = async |task: &str| server.get(&format!("/api/v1/jobs/{id}/events?task={task}")).await;
    assert_eq!(events(&task(&id)).await.status, StatusCode::OK);
    for stranger in [task(&other), "unknown".to_owned()] {
        let want = format!("404 not-found: There is no attempt {stranger}.");
        assert_eq!(events(&stranger).await.problem(), want);
    }
}
