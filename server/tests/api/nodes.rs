//! Nodes: who is kept out, what is said before, who may and how.

use axum::body::Body;
use engine::{
    bisect::{self, Alone, Input as BisectInput, Setup as BisectSetup},
    chain::{Input, Request, advance},
    ids::{JobId, NodeName},
    job::PodOptions,
};
use http::{StatusCode, header};
use serde_json::json;
use server::{
    clock::{Clock, SystemClock},
    store::{
        self, Write,
        diagnoses::{self, Diagnosis},
        inbox, jobs, leader,
        steps::{self, Head, Kept},
    },
};

use crate::support::{Answer, Server, Setup, request};

/// A server with its local cluster.
async fn connected() -> Server {
    Server::with(Setup { local: true, ..Setup::default() }).await
}

async fn form(server: &Server, path: &str, body: &str) -> Answer {
    let sent = request("POST", path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    server.send(sent.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test]
async fn a_person_puts_a_node_out_and_lets_it_in_again() {
    let server = connected().await;
    let put_out = server.post("/api/v1/nodes/node-2/quarantine", r#"{"reason":"fan <b>noise</b>"}"#).await;
    assert_eq!(put_out.status, StatusCode::OK, "{}", put_out.text);
    let node = put_out.json();
    assert_eq!((&node["state"], &node["quarantine"]["by"]), (&json!("quarantined"), &json!("local")));
    assert_eq!((&node["quarantine"]["until"], &node["strikes_limit"]), (&json!(null), &json!(3)));
    assert_eq!((&node["counts"]["free"], &node["counts"]["avoided"]), (&json!(3), &json!(1)));
    assert_eq!((&node["cap"]["quarantined"], &node["cap"]["allowed"]), (&json!(1), &json!(1)));
    assert_eq!(
        node["history"][0]["text"],
        "node-2 is quarantined until a person releases it: fan <b>noise</b>."
    );

    let job = server.job(r#"{"name":"demo","command":["true"]}"#).await;
    let chain = server.get(&format!("/api/v1/jobs/{job}/chain")).await.json();
    let attempt = &chain["attempts"][0];
    assert_eq!(attempt["avoided_nodes"], json!(["node-2"]), "{attempt:#}");
    assert_eq!(attempt["quarantined_nodes"], json!(["node-2"]));
    let list = server.get("/api/v1/nodes").await.json();
    assert_eq!(list["items"][1]["avoided_by"], json!([]), "no job holds anything against it");
    assert_eq!(list["caps"][0]["quarantined"], 1);
    for (path, parts) in [
        ("/nodes", ["Quarantined", "fan &lt;b&gt;noise&lt;/b&gt;", "until released"]),
        (
            "/nodes/node-2",
            ["Release node-2?", "fan &lt;b&gt;noise&lt;/b&gt;", "is quarantined until a person"],
        ),
        ("/nodes/node-1", ["Quarantine node-1?", "2 of 4 left, 2 free.", "name=\"reason\""]),
    ] {
        let page = server.get(path).await.text;
        parts.iter().for_each(|part| assert!(page.contains(part), "{path} has no {part}: {page}"));
    }

    let released = server.post("/api/v1/nodes/node-2/release", "{}").await;
    assert_eq!((released.status, &released.json()["node"]["state"]), (StatusCode::OK, &json!("ready")));
    let again = server.post("/api/v1/nodes/node-2/release", "{}").await;
    assert_eq!(again.problem(), "409 conflict: node-2 is not kept out, and nothing counts against it.");
}

/// A step of a job, as its driver takes it.
async fn step(server: &Server, job: &JobId, request: Request) {
    let now = SystemClock.now();
    let mut tx = server.store.write().await.unwrap();
    let epoch = leader::take(&mut tx, "test", now, now.plus_seconds(60), true).await.unwrap().unwrap();
    let kept = jobs::chain(&mut tx, job).await.unwrap().unwrap();
    let step = advance(&kept.chain, &Input::Request { request, by: "holdfast".to_owned() }, now);
    let head = Head::of(&step.chain, now);
    let kept_step = Kept { chain: &step.chain, head: &head, records: &step.records, now };
    assert_eq!(steps::write(&mut tx, epoch, kept.generation, kept_step).await.unwrap(), Write::Done);
    store::commit(tx).await.unwrap();
}

#[tokio::test]
async fn a_node_that_only_a_diagnosis_holds_is_shown_with_its_reason_and_released() {
    let server = connected().await;
    let id = server.job(r#"{"name":"demo","command":["true"]}"#).await;
    let job = JobId::new(id.clone()).unwrap();
    let node = NodeName::new("node-3").unwrap();
    step(&server, &job, Request::Stop { force: true }).await;
    let setup = BisectSetup {
        nodes: [node.clone()].into(),
        alone: Alone::TellsSome,
        probe_seconds: 60,
        accelerators_per_node: 1,
    };
    let begun = bisect::start(setup, SystemClock.now()).run;
    let diagnosis = Diagnosis {
        run_id: "d1".to_owned(),
        job_id: job.clone(),
        task_id: None,
        by: "ann".to_owned(),
        rule: None,
        held: Vec::new(),
        cluster: "local".to_owned(),
        command: vec!["true".to_owned()],
        env: [].into(),
        working_dir: None,
        image: None,
        pods: PodOptions::default(),
        run: bisect::advance(&begun, &BisectInput::Stop { by: "ann".to_owned() }, SystemClock.now()).run,
    };
    let mut tx = server.store.write().await.unwrap();
    assert_eq!(diagnoses::create(&mut tx, &diagnosis).await.unwrap(), Some(1));
    store::commit(tx).await.unwrap();
    let suspects = vec![node.clone()];
    step(
        &server,
        &job,
        Request::Diagnosed { run_id: "d1".to_owned(), text: String::new(), suspects, task_id: None },
    )
    .await;

    let held = server.get("/api/v1/nodes/node-3").await.json();
    assert_eq!((&held["state"], &held["avoided_by"][0]["job_id"]), (&json!("suspected"), &json!(id)));
    let chain = server.get(&format!("/api/v1/jobs/{id}/chain")).await.json();
    assert_eq!(chain["excluded"].as_array().unwrap().len(), 1, "{chain:#}");
    assert_eq!(
        (&chain["excluded"][0]["node"], &chain["excluded"][0]["incident"]),
        (&json!("node-3"), &json!(null))
    );
    let page = server.get(&format!("/jobs/{id}/fault-tolerance")).await.text;
    assert!(page.contains("/nodes/node-3"), "{page}");
    let view = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(view["budgets"]["diagnostics"]["used"], 1, "{view:#}");
    let list = server.get("/api/v1/jobs").await.json();
    assert_eq!(list["items"][0]["budgets"]["diagnostics"]["used"], 1, "{list:#}");

    let released = server.post("/api/v1/nodes/node-3/release", "{}").await;
    assert_eq!(released.status, StatusCode::OK, "{}", released.text);
    let asked = inbox::take(&mut server.store.read().await.unwrap(), &job).await.unwrap();
    let asked: Vec<_> = asked.into_iter().map(|waiting| waiting.request).collect();
    assert_eq!(asked, [Request::Readmit { node: node.clone() }]);
    step(&server, &job, Request::Readmit { node }).await;
    assert_eq!(server.get("/api/v1/nodes/node-3").await.json()["state"], "ready");
    let chain = server.get(&format!("/api/v1/jobs/{id}/chain")).await.json();
    assert_eq!(chain["excluded"], json!([]));
}

#[tokio::test]
async fn chains_are_read_by_as_many_as_like_at_once() {
    let server = connected().await;
    let id = server.job(r#"{"name":"demo","command":["true"]}"#).await;
    let path = format!("/api/v1/jobs/{id}/chain");
    // More than there are connections: each has one and needs no other.
    let read = futures::future::join_all((0..32).map(|_| server.get(&path)));
    let answers = tokio::time::timeout(std::time::Duration::from_secs(20), read).await.unwrap();
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
}

#[tokio::test]
async fn who_could_not_start_is_said_before_and_has_to_be_confirmed() {
    let server = connected().await;
    server.job(r#"{"name":"all-of-it","command":["true"],"replicas":8}"#).await;
    let body = r#"{"reason":"fan"}"#;
    let refused = server.post("/api/v1/nodes/node-1/quarantine", body).await;
    assert_eq!(
        refused.problem(),
        "409 conflict: 3 of 4 left, 3 free: all-of-it needs 4, cannot start. Send it again with `confirm` to quarantine node-1 all the same."
    );
    assert_eq!(server.get("/api/v1/nodes/node-1").await.json()["state"], "ready", "nothing changed");
    let page = form(&server, "/nodes/node-1/quarantine", "reason=fan&hours=24&cluster=local").await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(page.text.contains("all-of-it needs 4, cannot start") && page.text.contains("value=\"fan\""));
    let sent =
        form(&server, "/nodes/node-1/quarantine", "reason=fan&hours=24&cluster=local&confirm=true").await;
    assert_eq!(
        (sent.status, sent.header("location")),
        (StatusCode::SEE_OTHER, "/nodes/node-1?cluster=local"),
        "{}",
        sent.text
    );
    assert!(server.get("/api/v1/nodes/node-1").await.json()["quarantine"]["until"].is_string());
    let sent = form(&server, "/nodes/node-1/release", "cluster=local").await;
    assert_eq!(sent.status, StatusCode::SEE_OTHER);
    assert_eq!(server.get("/api/v1/nodes/node-1").await.json()["state"], "ready");
}

#[tokio::test]
async fn what_is_wrong_is_named_and_changes_nothing() {
    let server = connected().await;
    let mut seen = Vec::new();
    for (path, body) in [
        ("/api/v1/nodes/node-1/quarantine", r#"{"reason":" "}"#),
        ("/api/v1/nodes/node-1/quarantine", r#"{"reason":"fan","until":"2020-01-01T00:00:00Z"}"#),
        ("/api/v1/nodes/node-1/quarantine", r#"{"reason":"fan","force":true}"#),
        ("/api/v1/nodes/node-1/quarantine", r#"{}"#),
        ("/api/v1/nodes/node-9/quarantine", r#"{"reason":"fan"}"#),
        ("/api/v1/nodes/node-1/quarantine", r#"{"reason":"fan","cluster":"gone"}"#),
        ("/api/v1/nodes/node-1/release", r#"{"cluster":"gone"}"#),
        ("/api/v1/nodes:reset-cap", r#"{"cluster":"gone"}"#),
    ] {
        seen.push(format!("{path} {body}\n{}", server.post(path, body).await.problem()));
    }
    insta::assert_snapshot!(seen.join("\n\n"));
    let list = server.get("/api/v1/nodes").await.json();
    assert!(list["items"].as_array().unwrap().iter().all(|node| node["state"] == "ready"));
    let page = form(&server, "/nodes/node-1/quarantine", "reason=&hours=soon").await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.text.contains("has 1 to 300 characters") && page.text.contains("lies in the future"));
    assert_eq!(server.get("/nodes/node%201").await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.get("/nodes/node-9").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_cap_is_reset_by_a_person_and_that_is_kept() {
    let server = connected().await;
    let reset = server.post("/api/v1/nodes:reset-cap", "{}").await;
    assert_eq!(reset.status, StatusCode::OK, "{}", reset.text);
    let cap = reset.json();
    assert_eq!(
        (&cap["cluster"], &cap["allowed"], &cap["tripped"]),
        (&json!("local"), &json!(1), &json!(null))
    );
    assert!(cap["reset_at"].is_string(), "{cap}");
    let sent = form(&server, "/nodes/cap/reset", "cluster=local").await;
    assert_eq!((sent.status, sent.header("location")), (StatusCode::SEE_OTHER, "/nodes"));
    let list = server.get("/api/v1/nodes").await.json();
    assert_eq!(list["caps"][0]["history"].as_array().unwrap().len(), 2, "{list:#}");
    let page = server.get("/nodes").await.text;
    assert!(page.contains("The cap was reset. It had stopped nothing."), "{page}");
}

#[tokio::test]
async fn nobody_changes_nodes_without_signing_in() {
    let server = Server::with(Setup { open: true, ..Setup::default() }).await;
    for path in ["/api/v1/nodes/node-1/quarantine", "/api/v1/nodes/node-1/release", "/api/v1/nodes:reset-cap"]
    {
        assert_eq!(server.post(path, r#"{"reason":"fan"}"#).await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
}
