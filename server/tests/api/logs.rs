//! Logs through the API.

use axum::body::Body;
use engine::{
    ids::{JobId, TaskId},
    record::{LaunchCause, LaunchRecord, Proof, ProofVerdict},
    time::Time,
};
use http::StatusCode;
use server::store::{self, launches};

use crate::support::{Server, request};

/// A job whose first attempt printed `lines` in launch 0.
async fn printed(server: &Server, lines: &[&str]) -> (JobId, TaskId) {
    let id = server.job(r#"{"name":"demo","command":["true"]}"#).await;
    let job = JobId::new(id).unwrap();
    let task = TaskId::of_attempt("demo", &job, 1);
    let dir = server.data().join("jobs").join(job.as_str()).join(task.as_str()).join("master-0");
    std::fs::create_dir_all(&dir).unwrap();
    let text: String = lines.iter().map(|line| format!("1000000 0 o {line}\n")).collect();
    std::fs::write(dir.join("launch-0.log"), text).unwrap();
    (job, task)
}

#[tokio::test]
async fn a_whole_log_is_downloaded_however_long_it_is() {
    let server = Server::new().await;
    let (_, task) = printed(&server, &["a line"; 20_000]).await;
    let page = server.get(&format!("/api/v1/tasks/{task}/logs?format=text&tail=5000")).await;
    assert_eq!(page.text.lines().count(), 5_000);
    let whole = server.get(&format!("/api/v1/tasks/{task}/logs/file")).await;
    assert_eq!(whole.status, StatusCode::OK);
    assert_eq!(whole.header("content-type"), "text/plain; charset=utf-8");
    let name = format!("attachment; filename=\"{task}-master-0-launch-0.log\"");
    assert_eq!(whole.header("content-disposition"), name);
    assert_eq!(whole.text, "a line\n".repeat(20_000));
    for (query, status) in [("replica=worker-9", 404), ("launch=7", 404), ("launch=-1", 422)] {
        let refused = server.get(&format!("/api/v1/tasks/{task}/logs/file?{query}")).await;
        assert_eq!(refused.status, status, "{}", refused.problem());
    }
    let stranger = server.get("/api/v1/tasks/demo-jabcdefghij2-1/logs/file").await;
    assert_eq!(stranger.problem(), "404 not-found: There is no attempt demo-jabcdefghij2-1.");
}

#[tokio::test]
async fn somebody_who_is_not_signed_in_gets_no_log() {
    let server = Server::new().await;
    let (_, task) = printed(&server, &["secret"]).await;
    server.account("ann").await;
    let path = format!("/api/v1/tasks/{task}/logs/file");
    let answer = server.send(request("GET", &path).body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn whoever_follows_a_launch_that_has_ended_is_told_that_nothing_is_to_come() {
    let server = Server::new().await;
    let (job, task) = printed(&server, &["first", "last"]).await;
    let next = async |query: &str| {
        server.get(&format!("/api/v1/tasks/{task}/logs?{query}")).await.json()["next"].clone()
    };
    let keep = async |number: u32, ended_at: Option<Time>| {
        let mut tx = server.store.write().await.unwrap();
        let proof = Proof {
            resources: Default::default(),
            checkpoint: Default::default(),
            progress: Default::default(),
            new_checkpoint: Default::default(),
            verdict: ProofVerdict::Pending,
        };
        let record = LaunchRecord {
            number,
            cause: LaunchCause::Initial,
            started_at: Some(Time(1)),
            ended_at,
            steps: None,
            proof,
        };
        launches::keep(&mut tx, &job, &task, &record).await.unwrap();
        store::commit(tx).await.unwrap();
    };
    keep(0, None).await;
    assert_eq!(next("from=3").await, 3, "it runs");
    keep(0, Some(Time(2))).await;
    assert_eq!(next("from=1").await, 3, "what was read is read on");
    assert!(next("from=3").await.is_null() && next("launch=0").await.is_null());
}
