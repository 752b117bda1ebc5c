//! The stacks of a hang through the API.

use engine::{
    ids::{JobId, TaskId},
    record::{IncidentRecord, StacksRecord},
    sync::RankStack,
};
use http::StatusCode;
use serde_json::json;
use server::store::{self, incidents, stacks};

use crate::support::{Server, request};

const JOB: &str = r#"{"name":"demo","command":["true"]}"#;

fn incident(task: &TaskId, hang: bool) -> IncidentRecord {
    let hang = hang.then(|| {
        json!({
            "since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:10:00Z", "allowed_seconds": 600,
            "phase": "training", "witnesses": [], "words": "no progress for 10 min",
            "groups": [{"ranks": [0], "count": 1, "nodes": [], "place": "<script>", "stack": null, "odd": false}],
            "odd": null,
        })
    });
    serde_json::from_value(json!({
        "id": format!("{task}-i1"), "at": "2026-01-01T00:10:00Z", "launch": 0, "failure_type": "COMM_HANG",
        "confidence": "high", "phase": "training", "step": 41, "cascade_ranks": 1, "root": null,
        "fault": "no progress for 10 min", "hint": null, "evidence": [], "hang": hang, "fingerprint": "f",
        "repeats": false, "right": null, "cost": serde_json::to_value(engine::record::Cost::default()).unwrap(),
        "decision": {
            "action": "none", "rule": "", "policy_version": 0, "reason": "", "charged": "none", "before": 0,
            "after": 0, "allowed": null, "avoid": [], "next_at": null, "next_task_id": null,
        },
        "clock": {
            "noticed_at": "2026-01-01T00:10:00Z", "submitted_at": null, "resources_at": null, "first_step_at": null,
        },
    }))
    .unwrap()
}

/// A job whose first attempt has an incident, with stacks of this many ranks; gives the incident's id.
async fn hung(server: &Server, ranks: u32, hang: bool) -> String {
    let job: JobId = server.job(JOB).await.parse().unwrap();
    let task = TaskId::of_attempt("demo", &job, 1);
    let incident = incident(&task, hang);
    let stack = |rank| RankStack {
        rank,
        at: incident.at,
        threads: Vec::new(),
        omitted_threads: 0,
        missing: Some("not Python\nrank 9 (forged)".to_owned()),
    };
    let kept = StacksRecord {
        launch: 0,
        replica: "master-0".parse().unwrap(),
        stacks: (0..ranks).map(stack).collect(),
    };
    let mut tx = server.store.write().await.unwrap();
    incidents::keep(&mut tx, &job, &task, &incident).await.unwrap();
    stacks::keep(&mut tx, &job, &task, &kept).await.unwrap();
    store::commit(tx).await.unwrap();
    incident.id.to_string()
}

#[tokio::test]
async fn the_stacks_of_a_hang_come_in_parts_and_as_a_file() {
    let server = Server::new().await;
    let path = format!("/api/v1/incidents/{}/stacks", hung(&server, 130, true).await);
    let first = server.get(&path).await.json();
    assert_eq!((first["processes"].as_array().unwrap().len(), &first["next"]), (128, &json!(128)));
    assert_eq!(first["processes"][0]["replica"], "master-0");
    assert_eq!(first["groups"][0]["place"], "<script>");
    let rest = server.get(&format!("{path}?from=128")).await.json();
    assert_eq!((&rest["processes"][1]["rank"], &rest["next"]), (&json!(129), &json!(null)));

    let file = server.get(&format!("{path}?format=text")).await;
    assert_eq!(file.header("content-type"), "text/plain; charset=utf-8");
    assert!(
        file.header("content-disposition").starts_with("attachment; filename=\"demo-"),
        "{:?}",
        file.headers
    );
    assert!(file.text.contains("no stack: not Python\u{fffd}rank 9 (forged)"), "{}", file.text);
    assert!(file.text.ends_with("more with ?format=text&from=128\n"), "{}", file.text);
    let accept =
        request("GET", &path).header("accept", "text/plain").body(axum::body::Body::empty()).unwrap();
    assert_eq!(server.send(accept).await.text, file.text);
}

#[tokio::test]
async fn an_incident_that_is_no_hang_or_is_not_there_has_none() {
    let server = Server::new().await;
    let path = format!("/api/v1/incidents/{}/stacks", hung(&server, 2, false).await);
    let none = server.get(&path).await.json();
    assert_eq!((&none["processes"], &none["since"]), (&json!([]), &json!(null)));
    for (path, status) in [
        ("/api/v1/incidents/demo-jabcdefghij2-1-i9/stacks".to_owned(), StatusCode::NOT_FOUND),
        (format!("{path}?from=-1"), StatusCode::UNPROCESSABLE_ENTITY),
        (format!("{path}?form=text"), StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        assert_eq!(server.get(&path).await.status, status, "{path}");
    }
}
