//! Nodes: who is kept out, what is said before, who may and how.

use axum::body::Body;
use http::{StatusCode, header};
use serde_json::json;

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
