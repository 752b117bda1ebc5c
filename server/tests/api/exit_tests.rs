//! `…/test-exit`: refusals with their reasons, and what is shown.

use engine::{
    ids::JobId,
    record::{ExitTestRecord, ExitTestVerdict},
    time::Time,
};
use http::StatusCode;
use server::store::{self, attempts};

use crate::support::Server;

const SAVER: &str =
    r#"{"name":"a","command":["true"],"fault_tolerance":{"exit_checkpoint":{"enabled":true}}}"#;

#[tokio::test]
async fn a_test_is_refused_with_the_reason_and_changes_nothing() {
    let server = Server::new().await;
    let off = server.job(r#"{"name":"a","command":["true"]}"#).await;
    let queued = server.job(SAVER).await;
    for (id, why) in [(&off, "is off for this job"), (&queued, "It is queued. Only a program that runs")] {
        let answer = server.post(&format!("/api/v1/jobs/{id}/test-exit"), "").await;
        assert_eq!(answer.status, StatusCode::CONFLICT);
        assert!(answer.text.contains(why), "{}", answer.text);
        let view = server.get(&format!("/api/v1/jobs/{id}/test-exit")).await.json();
        assert!(view["test"].is_null() && view["refusal"].as_str().unwrap().contains(why), "{view:#}");
        let job = server.get(&format!("/api/v1/jobs/{id}")).await.json();
        assert_eq!(job["may"]["test_exit"], view["refusal"]);
        let mut conn = server.store.read().await.unwrap();
        let job = JobId::new(id.clone()).unwrap();
        assert!(store::inbox::take(&mut conn, &job).await.unwrap().is_empty());
    }
    let unknown = server.post("/api/v1/jobs/jabcdefghij2/test-exit", "").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    let page = server.get(&format!("/jobs/{queued}")).await.text;
    assert!(page.contains("Exit ckpt Notification") && page.contains("It is queued. Only"), "{page}");
}

#[tokio::test]
async fn the_newest_test_is_shown_and_nobody_asks_without_a_session() {
    let server = Server::new().await;
    let id = server.job(SAVER).await;
    let job = JobId::new(id.clone()).unwrap();
    let mut tx = server.store.write().await.unwrap();
    let mut attempt = attempts::page(&mut tx, &job, 1, 1).await.unwrap().remove(0);
    attempt.exit_test = Some(Box::new(ExitTestRecord {
        number: 1,
        launch: 0,
        by: "ada".to_owned(),
        asked_at: Time(0),
        deadline_at: Time(60_000_000),
        max_wait_seconds: 60,
        ended_at: Some(Time(5_000_000)),
        verdict: ExitTestVerdict::Passed,
        text: "The test passed.".to_owned(),
        warnings: Vec::new(),
        replicas_total: 1,
        replicas: Vec::new(),
    }));
    attempts::keep(&mut tx, &job, &attempt).await.unwrap();
    store::commit(tx).await.unwrap();
    let view = server.get(&format!("/api/v1/jobs/{id}/test-exit")).await.json();
    assert_eq!((&view["test"]["verdict"], &view["test"]["by"]), (&"passed".into(), &"ada".into()));
    assert_eq!(view["task_id"], attempt.task_id.as_str());
    let page = server.get(&format!("/jobs/{id}")).await.text;
    assert!(page.contains("The test passed.") && page.contains("Answers to the test by replica"), "{page}");
    server.account("ada").await;
    let answer = server.post(&format!("/api/v1/jobs/{id}/test-exit"), "").await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}
