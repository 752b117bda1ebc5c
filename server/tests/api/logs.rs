//! Logs through the API.

use axum::body::Body;
use engine::{
    chain::{Input, Observation, Request, advance},
    ids::{JobId, TaskId},
    record::{AttemptRecord, LaunchCause, LaunchRecord, Proof, ProofVerdict, State},
    time::Time,
};
use http::StatusCode;
use serde_json::json;
use server::{
    clock::{Clock, SystemClock},
    store::{
        self, Write, attempts, jobs, launches, leader,
        steps::{self, Head, Kept},
    },
};

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

/// Launch `number` of the first attempt as the server knows it.
async fn keep(server: &Server, job: &JobId, task: &TaskId, number: u32, times: [Option<i64>; 2]) {
    let [started_at, ended_at] = times.map(|at| at.map(Time));
    let proof = Proof {
        resources: Default::default(),
        checkpoint: Default::default(),
        progress: Default::default(),
        new_checkpoint: Default::default(),
        verdict: ProofVerdict::Pending,
    };
    let cause = LaunchCause::Initial;
    let record =
        LaunchRecord { number, cause, started_at, ended_at, steps: None, proof, health_checks: None };
    let mut tx = server.store.write().await.unwrap();
    launches::keep(&mut tx, job, task, &record).await.unwrap();
    store::commit(tx).await.unwrap();
}

/// What a driver would do with these inputs.
async fn drive(server: &Server, job: &JobId, inputs: &[Input]) {
    let now = SystemClock.now();
    let mut tx = server.store.write().await.unwrap();
    let epoch = leader::take(&mut tx, "test", now, now.plus_seconds(60), true).await.unwrap().unwrap();
    for input in inputs {
        let stored = jobs::chain(&mut tx, job).await.unwrap().unwrap();
        let step = advance(&stored.chain, input, now);
        let head = Head::of(&step.chain, now);
        let kept = Kept { chain: &step.chain, head: &head, records: &step.records, now };
        assert_eq!(steps::write(&mut tx, epoch, stored.generation, kept).await.unwrap(), Write::Done);
    }
    store::commit(tx).await.unwrap();
}

/// The attempt is stopped and nothing of it is left.
async fn remove(server: &Server, job: &JobId, task: &TaskId) {
    let stop = Request::Stop { force: true };
    let observed = |observation| Input::Observed { task_id: task.clone(), observation };
    let inputs = [
        Input::Created { task_id: task.clone() },
        Input::Request { request: stop, by: "ann".into() },
        observed(Observation::Absent),
    ];
    drive(server, job, &inputs).await;
}

#[tokio::test]
async fn whoever_follows_a_launch_is_told_its_end_only_when_nothing_can_print_any_more() {
    let server = Server::new().await;
    let (job, task) = printed(&server, &["first", "last"]).await;
    let next = async |query: &str| {
        server.get(&format!("/api/v1/tasks/{task}/logs?{query}")).await.json()["next"].clone()
    };
    keep(&server, &job, &task, 0, [Some(1), None]).await;
    assert_eq!(next("from=3").await, 3, "it runs");
    keep(&server, &job, &task, 0, [Some(1), Some(2)]).await;
    assert_eq!(next("from=3").await, 3, "it was asked to stop, and says its last words");
    keep(&server, &job, &task, 1, [None, None]).await;
    assert_eq!(next("from=3").await, 3, "the next one has not started");
    keep(&server, &job, &task, 1, [Some(3), None]).await;
    assert_eq!(next("from=1").await, 3, "what was read is read on");
    assert!(next("from=3").await.is_null() && next("launch=0").await.is_null());
}

#[tokio::test]
async fn an_attempt_with_a_result_may_print_until_nothing_of_it_is_left() {
    let server = Server::new().await;
    let (job, task) = printed(&server, &["first", "last"]).await;
    let next = async || server.get(&format!("/api/v1/tasks/{task}/logs?from=3")).await.json()["next"].clone();
    let mut tx = server.store.write().await.unwrap();
    let (_, record) = attempts::find(&mut tx, &task).await.unwrap().unwrap();
    attempts::keep(&mut tx, &job, &AttemptRecord { state: State::Failed, ..record }).await.unwrap();
    store::commit(tx).await.unwrap();
    assert_eq!(next().await, 3);
    remove(&server, &job, &task).await;
    assert!(next().await.is_null());
}

#[tokio::test]
async fn a_replica_that_has_printed_nothing_has_an_empty_log() {
    let server = Server::new().await;
    let id = server.job(r#"{"name":"demo","command":["true"],"replicas":2}"#).await;
    let job = JobId::new(id).unwrap();
    let task = TaskId::of_attempt("demo", &job, 1);
    let ask = async |query: &str| server.get(&format!("/api/v1/tasks/{task}/logs?{query}")).await;
    for query in ["", "replica=worker-0", "replica=worker-0&launch=0", "launch=0&from=1"] {
        let page = ask(query).await.json();
        assert_eq!((&page["lines"], &page["next"]), (&json!([]), &json!(1)), "{query}: {page}");
    }
    let page = ask("replica=worker-0&launch=0").await.json();
    assert_eq!((&page["replica"], &page["launch"]), (&json!("worker-0"), &json!(0)));
    for query in ["replica=worker-1", "replica=head-0", "launch=1"] {
        assert_eq!(ask(query).await.status, StatusCode::NOT_FOUND, "{query}");
    }
    keep(&server, &job, &task, 1, [Some(1), None]).await;
    assert_eq!(ask("replica=worker-0&launch=1").await.json()["next"], 1);
    assert!(ask("replica=worker-0&launch=0").await.json()["next"].is_null());
    remove(&server, &job, &task).await;
    assert!(ask("replica=worker-0&launch=1").await.json()["next"].is_null());
}

#[tokio::test]
async fn the_log_of_an_attempt_that_goes_on_is_read_without_its_chain() {
    let server = Server::new().await;
    let (job, task) = printed(&server, &["first"]).await;
    keep(&server, &job, &task, 0, [Some(1), None]).await;
    let mut tx = server.store.write().await.unwrap();
    sqlx::query("UPDATE chain SET doc = 'not to be read'").execute(&mut *tx).await.unwrap();
    store::commit(tx).await.unwrap();
    for from in [1, 2] {
        let page = server.get(&format!("/api/v1/tasks/{task}/logs?from={from}")).await.json();
        assert_eq!(page["next"], 2, "{page}");
    }
}
