//! Several clusters by name, one of which does not answer: the others work, and what was on one that is not configured any more waits.

use std::fs;

use serde_json::json;

use crate::harness::{World, train};

/// A kubeconfig of an API server that nobody serves.
const NOWHERE: &str = r#"{"apiVersion":"v1","kind":"Config","current-context":"a",
  "contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"users":[{"name":"a","user":{}}],
  "clusters":[{"name":"a","cluster":{"server":"http://127.0.0.1:9"}}]}"#;

const HERE: &str = "[[cluster]]\nname = \"here\"\nkind = \"local\"\nnodes = 2\nslots = 1\n";

#[tokio::test]
async fn a_cluster_that_is_away_keeps_no_other_from_working_and_one_that_is_gone_concludes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (config, kubeconfig) = (dir.path().join("holdfast.toml"), dir.path().join("kubeconfig"));
    fs::write(&kubeconfig, NOWHERE).unwrap();
    let far = format!(
        "[[cluster]]\nname = \"far\"\nkind = \"kubernetes\"\nkubeconfig = {kubeconfig:?}\n\
         agent-image = \"registry.example/agent:1\"\nagent-server-url = \"http://127.0.0.1:1\"\n"
    );
    fs::write(&config, format!("{HERE}{far}")).unwrap();
    let mut world = World::with(&["--config", config.to_str().unwrap()]).await;

    let far_job = json!({ "name": "away", "cluster": "far", "image": "train:1", "command": ["true"] });
    let waiting = world.create(&far_job).await;
    let mut body = train("near", 10, 0.01, &[]);
    body["cluster"] = json!("here");
    let near = world.create(&body).await;
    world.until_state(&near, "succeeded").await;
    let (_, list) = world.get("/api/v1/nodes").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");
    assert_eq!(list["troubles"][0]["cluster"], "far", "{list}");
    let (_, metrics) = world.get("/metrics").await;
    let metrics = metrics.as_str().unwrap();
    for line in [
        "holdfast_cluster_up{cluster=\"far\"} 0",
        "holdfast_cluster_up{cluster=\"here\"} 1",
        "holdfast_cluster_jobs{cluster=\"far\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }

    // The first is for jobs that name none.
    fs::write(&config, HERE).unwrap();
    world.restart(&[]).await;
    let (_, job) = world.get(&format!("/api/v1/jobs/{waiting}")).await;
    assert_eq!((&job["cluster_configured"], &job["state"]), (&json!(false), &json!("queued")), "{job}");
    let mut body = train("again", 5, 0.01, &[]);
    body.as_object_mut().unwrap().remove("cluster");
    let again = world.create(&body).await;
    let chain = world.until_state(&again, "succeeded").await;
    assert!(chain["attempts"][0]["nodes"][0].as_str().unwrap().starts_with("node-"), "{chain}");

    let (status, refused) = world.delete(&format!("/api/v1/jobs/{waiting}")).await;
    assert_eq!(status, 409, "{refused}");
    let (status, accepted) = world.delete(&format!("/api/v1/jobs/{waiting}?force=true")).await;
    assert_eq!(status, 202, "{accepted}");
    world.until_gone(&waiting).await;
}
