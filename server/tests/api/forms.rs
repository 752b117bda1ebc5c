//! What pages do without script: plain posts, answered by a page that shows the effect or by the same page with what is wrong.

use axum::body::Body;
use http::{StatusCode, header};

use crate::{
    import::MANIFEST,
    support::{Answer, Server, Setup, request},
};

async fn post(server: &Server, path: &str, body: &str) -> Answer {
    let sent = request("POST", path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    server.send(sent.body(Body::from(body.to_owned())).unwrap()).await
}

const FORM: &str = "name=demo&kind=pytorchjob&cluster=local&command=python3+train.py&replicas=1&processes_per_replica=1&accelerators_per_replica=0";

#[tokio::test]
async fn the_create_form_makes_a_job_or_comes_back_with_values_and_errors() {
    let server = Server::new().await;
    let refused = post(&server, "/jobs/new", &FORM.replace("replicas=1", "replicas=99")).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.text.contains("value=\"99\""), "what was typed comes back");
    assert!(refused.text.contains("slots never fit"), "with what is wrong");
    assert_eq!(server.get("/api/v1/jobs").await.json()["total"], 0);
    let made = post(&server, "/jobs/new", FORM).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.text);
    let id = made.header("location").strip_prefix("/jobs/").unwrap().to_owned();
    let job = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(
        (&job["name"], &job["spec"]["command"]),
        (&"demo".into(), &serde_json::json!(["python3", "train.py"]))
    );
}

#[tokio::test]
async fn a_copy_remembers_its_original_and_shows_what_differs() {
    let server = Server::new().await;
    let id = server.job(r#"{"name":"demo","command":["python3","train.py"]}"#).await;
    let changed = FORM.replace("replicas=1", "replicas=2");
    let made = post(&server, &format!("/jobs/new?from={id}"), &changed).await;
    let copy = made.header("location").strip_prefix("/jobs/").unwrap().to_owned();
    assert_eq!(server.get(&format!("/api/v1/jobs/{copy}")).await.json()["copied_from"], id);
    let spec = server.get(&format!("/jobs/{copy}/spec")).await.text;
    assert!(spec.contains("Settings that differ") && spec.contains(&format!("href=\"/jobs/{id}/spec\"")));
    assert!(spec.contains(&format!("href=\"/jobs/{id}\"")), "the head of the page leads to the original");
}

/// The form of a manifest as a browser posts it.
fn manifest_form(manifest: &str, more: &[(&str, &str)]) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("cluster", "kubernetes").append_pair("name", "").append_pair("checkpoint_dir", "/ckpt");
    form.append_pair("kubernetes.manifest", manifest).extend_pairs(more).finish()
}

#[tokio::test]
async fn a_pasted_manifest_is_checked_then_made_and_its_objects_can_be_seen() {
    let server = Server::with(Setup { kubernetes: true, ..Setup::default() }).await;
    let page = server.get("/jobs/new?from=manifest").await;
    assert!(page.text.contains("name=\"kubernetes.manifest\"") && !page.text.contains("name=\"command\""));

    let post = async |form: &str| post(&server, "/jobs/new?from=manifest", form).await;
    let broken = "metadata:\n\tname: [";
    let refused = post(&manifest_form(broken, &[("read.manifest", "{}")])).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        refused.text.contains("cannot be read as YAML: line"),
        "what a post says was read counts for nothing"
    );
    let without = MANIFEST.replace("command:", "comand:");
    let checked = post(&manifest_form(&without, &[("show", "check")])).await;
    assert_eq!(checked.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(checked.text.contains("containers[0].command is missing") && checked.text.contains("comand:"));
    let checked = post(&manifest_form(MANIFEST, &[("show", "check")])).await;
    assert_eq!(checked.status, StatusCode::OK, "{}", checked.text);
    assert!(
        checked.text.contains("spec.runPolicy.backoffLimit")
            && checked.text.contains("4, the master included")
    );
    assert_eq!(server.get("/api/v1/jobs").await.json()["total"], 0);

    let made = post(&manifest_form(MANIFEST, &[("fault_tolerance.auto_failover", "on")])).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.text);
    let id = made.header("location").strip_prefix("/jobs/").unwrap().to_owned();
    let job = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!((&job["name"], &job["mode"]), (&"whisper".into(), &"basic".into()));
    assert_eq!(job["spec"]["kubernetes"]["manifest"]["spec"]["neverHeardOf"]["a"][1], 2.5);

    let task = format!("whisper-{id}-1");
    let spec = server.get(&format!("/jobs/{id}/spec?task={task}")).await.text;
    assert!(spec.contains(&format!("href=\"/api/v1/tasks/{task}/manifest\"")), "{spec}");
    assert!(spec.contains("holdfast.dev/spec-hash") && spec.contains("a pasted manifest"));
    let copy = server.get(&format!("/jobs/new?from={id}")).await.text;
    assert!(
        copy.contains("Nothing: it would run the same again.") && copy.contains("neverHeardOf"),
        "{copy}"
    );
}

#[tokio::test]
async fn asking_for_a_view_of_the_form_creates_nothing_and_keeps_what_is_typed() {
    let server = Server::new().await;
    let shown =
        post(&server, "/jobs/new", &format!("{FORM}&show=curl").replace("name=demo", "name=typed")).await;
    assert_eq!(shown.status, StatusCode::OK);
    assert!(shown.text.contains("value=\"typed\"") && shown.text.contains("curl -sS -X POST"));
    let unfinished =
        post(&server, "/jobs/new", &format!("{FORM}&show=yaml").replace("name=demo", "name=")).await;
    assert_eq!(unfinished.status, StatusCode::OK);
    assert!(!unfinished.text.contains("1 field needs a change"));
    assert_eq!(server.get("/api/v1/jobs").await.json()["total"], 0);
}

#[tokio::test]
async fn actions_lead_to_the_page_that_shows_their_effect() {
    let server = Server::new().await;
    let id = server.job(r#"{"name":"a","command":["true"]}"#).await;
    for (path, body, want) in [
        (format!("/jobs/{id}/stop"), "force=true", format!("/jobs/{id}")),
        (format!("/jobs/{id}/acknowledge"), "", format!("/jobs/{id}")),
        (format!("/jobs/{id}/delete"), "", "/jobs".to_owned()),
        ("/theme".to_owned(), "theme=dark&next=%2Fnodes", "/nodes".to_owned()),
        ("/theme".to_owned(), "theme=dark&next=https%3A%2F%2Fevil.example", "/settings".to_owned()),
    ] {
        let answer = post(&server, &path, body).await;
        assert_eq!(
            (answer.status, answer.header("location")),
            (StatusCode::SEE_OTHER, want.as_str()),
            "{path}"
        );
    }
    let refused = post(&server, &format!("/jobs/{id}/resubmit"), "").await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.text.contains("It has not ended. Stop it first."));
    assert_eq!(post(&server, "/jobs/jabcdefghij2/stop", "").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_post_without_a_session_leads_to_signing_in() {
    let server = Server::new().await;
    let id = server.job(r#"{"name":"a","command":["true"]}"#).await;
    server.account("ada").await;
    let answer = post(&server, &format!("/jobs/{id}/stop"), "").await;
    assert_eq!((answer.status, answer.header("location")), (StatusCode::SEE_OTHER, "/login?next=%2Fjobs"));
    let mut conn = server.store.read().await.unwrap();
    let job = engine::ids::JobId::new(id).unwrap();
    assert!(server::store::inbox::take(&mut conn, &job).await.unwrap().is_empty());
}
