//! What is made of a job: a debug job, and what to keep for troubleshooting.

use http::StatusCode;
use serde_json::json;

use crate::support::Server;

const BODY: &str = r#"{"name":"pretrain","command":["python3","a b.py","--hub-token","s3cr3t"],"env":{"WANDB_API_KEY":"0123abcd","LR":"0.1"},
    "replicas":2,"checkpoint_dir":"ckpt","fault_tolerance":{"auto_failover":true,"max_task_restarts":2,"policy":{"enabled":true}}}"#;

#[tokio::test]
async fn a_job_is_looked_into_by_a_new_job_with_a_shell() {
    let server = Server::new().await;
    let original = server.job(BODY).await;
    let made = server.post(&format!("/api/v1/jobs/{original}/debug"), "{}").await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    let job = made.json();
    assert_eq!((&job["name"], &job["copied_from"]), (&json!("pretrain-debug"), &json!(original)));
    let spec = &job["spec"];
    assert_eq!((&spec["replicas"], &spec["command"][0]), (&json!(1), &json!("sh")));
    assert_eq!(spec["fault_tolerance"]["auto_failover"], false);
    assert_eq!(spec["env"]["LR"], "0.1");
    let changed = server
        .post(
            &format!("/api/v1/jobs/{original}/debug"),
            r#"{"changes":{"command":["sleep","9"],"replicas":2}}"#,
        )
        .await
        .json();
    assert_eq!(
        (&changed["spec"]["replicas"], &changed["spec"]["command"]),
        (&json!(2), &json!(["sleep", "9"]))
    );
    let wrong = server.post(&format!("/api/v1/jobs/{original}/debug"), r#"{"changes":{"replicas":0}}"#).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", wrong.text);
    assert_eq!(server.post("/api/v1/jobs/jabcdefghij2/debug", "{}").await.status, StatusCode::NOT_FOUND);
    let form = server.get(&format!("/jobs/new?from={original}&mode=debug")).await.text;
    for part in ["pretrain-debug", "sleep 86400", "A new job with the same inputs", "Debug job"] {
        assert!(form.contains(part), "{part}: {form}");
    }
}

#[tokio::test]
async fn what_to_keep_of_a_job_is_one_file_without_secrets() {
    let server = Server::new().await;
    let id = server.job(BODY).await;
    let bundle = server.get(&format!("/api/v1/jobs/{id}/bundle")).await;
    assert_eq!(bundle.status, StatusCode::OK, "{}", bundle.text);
    assert_eq!(bundle.header("content-disposition"), format!("attachment; filename=\"holdfast-{id}.json\""));
    let kept = bundle.json();
    assert!(kept["about"][0].as_str().unwrap().starts_with(&format!("What to keep of job pretrain ({id})")));
    assert_eq!(kept["job"]["spec"]["env"], json!({"WANDB_API_KEY": "***", "LR": "***"}));
    assert_eq!(kept["job"]["spec"]["command"], json!(["python3", "a b.py", "--hub-token", "***"]));
    assert_eq!(kept["chain"]["attempts"][0]["task_id"], kept["chain"]["latest_task_id"]);
    assert!(!kept["events"].as_array().unwrap().is_empty());
    for secret in ["s3cr3t", "0123abcd"] {
        assert!(!bundle.text.contains(secret), "{secret}: {}", bundle.text);
    }
    assert_eq!(server.get("/api/v1/jobs/jabcdefghij2/bundle").await.status, StatusCode::NOT_FOUND);
    let page = server.get(&format!("/jobs/{id}/fault-tolerance")).await.text;
    assert!(page.contains(&format!("/api/v1/jobs/{id}/bundle")), "{page}");
}
