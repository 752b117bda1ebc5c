//! Bad requests: each a clear problem, nothing changed.

use axum::body::Body;
use engine::{ids::JobId, time::Time};
use http::header;
use server::store::{self, Write, leader, steps};

use crate::support::{Server, json, request};

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_its_field() {
    let server = Server::new().await;
    let long = format!(r#"{{"name":"{}"}}"#, "a".repeat(1024 * 1024));
    let mut seen = Vec::new();
    for body in [
        "{",
        "[]",
        r#"{"name":"a","command":["true"]} trailing"#,
        r#"{"name":1,"command":["true"]}"#,
        r#"{"name":"a","command":["true"],"replica":2}"#,
        r#"{"name":"a","command":["true"],"fault_tolerance":{"policy":{"typ":"x"}}}"#,
        r#"{"name":"a","command":["true"],"replicas":"2"}"#,
        r#"{"name":"a","command":["true"],"fault_tolerance":{"max_task_restarts":-1}}"#,
        r#"{"name":"","command":[],"kind":"rayjob","fault_tolerance":{"auto_failover":false,"hang_detection":{"enabled":true}}}"#,
        long.as_str(),
    ] {
        let answer = server.post("/api/v1/jobs", body).await;
        let shown: String = body.chars().take(60).collect();
        seen.push(format!("{shown}\n{}", answer.problem()));
    }
    insta::assert_snapshot!(seen.join("\n\n"));
    let jobs = server.get("/api/v1/jobs").await.json();
    assert_eq!(jobs["total"], 0, "a refused request changes nothing");
}

#[tokio::test]
async fn wrong_types_paths_methods_and_parameters_are_problems_too() {
    let server = Server::new().await;
    let mut seen = Vec::new();
    for (method, path, kind, body) in [
        ("POST", "/api/v1/jobs", "text/plain", "{}"),
        ("POST", "/api/v1/jobs", "", "{}"),
        ("GET", "/api/v1/job", "", ""),
        ("POST", "/api/v1/jobs:unknown", "application/json", "{}"),
        ("GET", "/api/v1/diagnoses/dunknown", "", ""),
        ("PUT", "/api/v1/jobs", "application/json", "{}"),
        ("POST", "/api/v1/version", "", ""),
        ("GET", "/api/v1/jobs/NOT_AN_ID", "", ""),
        ("GET", "/api/v1/jobs/jabcdefghij2", "", ""),
        ("GET", "/api/v1/jobs/jabcdefghij2/chain", "", ""),
        ("GET", "/api/v1/jobs/jabcdefghij2/stream", "", ""),
        ("GET", "/api/v1/tasks/demo-jabcdefghij2-1", "", ""),
        ("GET", "/api/v1/tasks/demo-jabcdefghij2-1/logs?tail=9999", "", ""),
        ("GET", "/api/v1/nodes/node-9", "", ""),
        ("GET", "/api/v1/jobs?state=exploded", "", ""),
        ("GET", "/api/v1/jobs?colour=red", "", ""),
        ("GET", "/api/v1/jobs?limit=201", "", ""),
        ("GET", "/api/v1/jobs?limit=x", "", ""),
        ("GET", "/api/v1/jobs?page=x", "", ""),
        ("GET", "/api/v1/tasks/demo-jabcdefghij2-1/logs?launch=-1", "", ""),
        ("GET", "/api/v1/tasks/demo-jabcdefghij2-1/logs?tail=99999999999999", "", ""),
        ("GET", "/api/v1/jobs?cursor=nonsense", "", ""),
        ("GET", "/api/v1/jobs/jabcdefghij2/chain?from=0&limit=1000", "", ""),
        ("POST", "/api/v1/jobs/jabcdefghij2/stop", "application/json", r#"{"forse":true}"#),
        ("POST", "/api/v1/jobs/jabcdefghij2/stop", "application/json", r#"{"force":"yes"}"#),
        ("DELETE", "/api/v1/jobs/jabcdefghij2?force=maybe", "", ""),
        ("PUT", "/api/v1/incidents/demo-jabcdefghij2-1-i1/feedback", "application/json", "{}"),
        ("PUT", "/api/v1/incidents/demo-jabcdefghij2-1-i1/feedback", "application/json", r#"{"right":null}"#),
    ] {
        let mut sent = request(method, path);
        if !kind.is_empty() {
            sent = sent.header(header::CONTENT_TYPE, kind);
        }
        let answer = server.send(sent.body(Body::from(body)).unwrap()).await;
        seen.push(format!("{method} {path} {body}\n{}", answer.problem()));
    }
    insta::assert_snapshot!(seen.join("\n\n"));
}

#[tokio::test]
async fn a_long_search_is_refused() {
    let server = Server::new().await;
    let answer = server.get(&format!("/api/v1/jobs?q={}", "a".repeat(201))).await;
    insta::assert_snapshot!(answer.problem());
}

/// Asks for a job with an idempotency key.
fn keyed(key: &str, body: &str) -> axum::extract::Request {
    let mut sent = json("POST", "/api/v1/jobs", body);
    sent.headers_mut().insert("idempotency-key", key.parse().unwrap());
    sent
}

#[tokio::test]
async fn an_idempotency_key_makes_one_job_of_many_requests() {
    let server = Server::new().await;
    let body = r#"{"name":"once","command":["true"]}"#;
    let send = async |key: &str, body: &str| server.send(keyed(key, body)).await;
    let first = send("k1", body).await;
    let again = send("k1", body).await;
    assert_eq!((first.status, &first.text), (again.status, &again.text));
    assert_eq!(first.header("location"), again.header("location"));
    assert_eq!((first.header("idempotency-replayed"), again.header("idempotency-replayed")), ("", "true"));
    let other = send("k2", body).await;
    assert_ne!(first.text, other.text);
    let reused = send("k1", r#"{"name":"twice","command":["true"]}"#).await;
    insta::assert_snapshot!(reused.problem());
    assert_eq!(server.get("/api/v1/jobs").await.json()["total"], 2);
    // A refusal is an answer like others.
    let refused = send("k3", "{}").await;
    assert_eq!(send("k3", "{}").await.text, refused.text);
    assert_eq!(send(&"k".repeat(256), body).await.status, 400);
}

#[tokio::test]
async fn a_key_whose_job_was_deleted_and_that_is_long_over_makes_another_job() {
    let server = Server::new().await;
    let send = async || {
        let answer = server.send(keyed("nightly", r#"{"name":"nightly","command":["true"]}"#)).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        JobId::new(answer.json()["job_id"].as_str().unwrap()).unwrap()
    };
    let is_over = async || {
        let mut tx = server.store.write().await.unwrap();
        sqlx::query("DELETE FROM idempotency").execute(&mut *tx).await.unwrap();
        store::commit(tx).await.unwrap();
    };
    let mut made = vec![send().await];
    for epoch in 1..=2 {
        let mut tx = server.store.write().await.unwrap();
        let led = leader::take(&mut tx, "test", Time(0), Time(0), true).await.unwrap();
        assert_eq!(led, Some(epoch));
        let job = made.last().unwrap();
        assert_eq!(steps::forget(&mut tx, epoch, job, Time(0)).await.unwrap(), Write::Done);
        store::commit(tx).await.unwrap();
        is_over().await;
        let next = send().await;
        assert!(!made.contains(&next), "it would be called as what was deleted: {next} of {made:?}");
        // Where the answer was lost, the job is found again.
        is_over().await;
        assert_eq!(send().await, next);
        made.push(next);
    }
}

#[tokio::test]
async fn a_key_that_a_full_disk_has_no_room_for_is_told_so() {
    let server = Server::new().await;
    let mut tx = server.store.write().await.unwrap();
    // As large as it is now and no page more, until this connection is given up.
    sqlx::query("PRAGMA max_page_count = 1").execute(&mut *tx).await.unwrap();
    store::commit(tx).await.unwrap();
    for number in 0..1_000 {
        // A body that changes nothing, so that only the key takes room.
        let answer = server.send(keyed(&format!("{number:0>200}"), "{}")).await;
        if answer.status != 422 {
            return insta::assert_snapshot!(answer.problem());
        }
    }
    panic!("there is always room");
}

#[tokio::test]
async fn requests_with_one_key_at_the_same_time_make_one_job() {
    let server = Server::new().await;
    let send =
        async || server.send(keyed("same", r#"{"name":"race","command":["true"]}"#)).await.status.as_u16();
    let answers = futures::future::join_all((0..8).map(|_| send())).await;
    assert!(answers.iter().all(|status| [201, 409].contains(status)), "{answers:?}");
    assert!(answers.contains(&201));
    assert_eq!(server.get("/api/v1/jobs").await.json()["total"], 1);
}
