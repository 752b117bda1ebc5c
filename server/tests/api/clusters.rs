//! Several clusters: what is said of one that does not answer, and of one that is not configured any more.

use std::time::{Duration, Instant};

use engine::{
    chain::Chain,
    ids::JobId,
    job::{JobDraft, JobSpec, Site, SiteCluster},
    time::Time,
};
use http::StatusCode;
use serde_json::{Value, json};
use server::store::{commit, steps};

use crate::support::{Server, Setup, json as sent};

/// Longest wait for something that has to happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A local cluster, and one of Kubernetes that does not answer.
async fn two() -> Server {
    let server = Server::with(Setup { kubernetes: true, ..Setup::default() }).await;
    let begin = Instant::now();
    while troubles(&server).await.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "it is not found out that a cluster does not answer");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server
}

async fn troubles(server: &Server) -> Vec<Value> {
    server.get("/api/v1/settings").await.json()["troubles"].as_array().unwrap().clone()
}

/// A job on a cluster that this server has not, as an earlier configuration left it.
async fn left_over(server: &Server) -> JobId {
    let draft = JobDraft { name: "old".to_owned(), command: vec!["true".to_owned()], ..JobDraft::default() };
    let mut spec = draft.validate(&Site::default()).unwrap();
    spec.cluster = "gone".to_owned();
    keep(server, spec).await
}

async fn keep(server: &Server, spec: JobSpec) -> JobId {
    let id = JobId::new("jabcdefghij2").unwrap();
    let step = Chain::start(id.clone(), spec, Time(1));
    let head = steps::Head::of(&step.chain, Time(1));
    let kept = steps::Kept { chain: &step.chain, head: &head, records: &step.records, now: Time(1) };
    let mut tx = server.store.write().await.unwrap();
    steps::create(&mut tx, steps::Origin { owner: "ann", copied_from: None }, kept).await.unwrap();
    commit(tx).await.unwrap();
    id
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_told_before_and_after_a_job_is_sent_there() {
    let server = two().await;
    let told = troubles(&server).await;
    assert_eq!((&told[0]["cluster"], &told[0]["kind"]), (&json!("kubernetes"), &Value::Null));
    assert!(told[0]["text"].as_str().unwrap().starts_with("it cannot be reached: "), "{told:?}");
    for page in ["/jobs/new", "/jobs/new?from=manifest"] {
        let page = server.get(page).await;
        assert!(page.text.contains("What clusters cannot do now") && page.text.contains("cannot be reached"));
    }

    let body = r#"{"name":"there","cluster":"kubernetes","image":"train:1","command":["true"]}"#;
    let there = server.job(body).await;
    let job = server.get(&format!("/api/v1/jobs/{there}")).await.json();
    assert_eq!(job["cluster_configured"], true);
    let text = job["cluster_troubles"][0].as_str().unwrap();
    assert!(text.starts_with("Cluster kubernetes: it cannot be reached: "), "{text}");
    assert!(server.get(&format!("/jobs/{there}")).await.text.contains("Cluster kubernetes: it cannot"));
    let here = server.job(r#"{"name":"here","command":["true"]}"#).await;
    let job = server.get(&format!("/api/v1/jobs/{here}")).await.json();
    assert_eq!((&job["spec"]["cluster"], &job["cluster_troubles"]), (&json!("local"), &json!([])));
}

#[tokio::test]
async fn the_nodes_of_one_cluster_are_shown_though_another_does_not_answer() {
    let server = two().await;
    let list = server.get("/api/v1/nodes").await.json();
    let nodes: Vec<_> = list["items"].as_array().unwrap().iter().map(|node| &node["name"]).collect();
    assert_eq!(nodes, ["node-1", "node-2", "node-3", "node-4"]);
    assert_eq!(list["troubles"][0]["cluster"], "kubernetes");
    assert_eq!(server.get("/api/v1/nodes/node-2?cluster=local").await.json()["cluster"], "local");
    let unknown = server.get("/api/v1/nodes/node-2?cluster=kubernetes").await;
    assert_eq!(unknown.status, StatusCode::SERVICE_UNAVAILABLE, "not listed is not absent: {}", unknown.text);
    assert_eq!(server.get("/api/v1/nodes/node-9?cluster=local").await.status, StatusCode::NOT_FOUND);
    let page = server.get("/nodes").await.text;
    assert!(page.contains("Nodes that are not known now") && page.contains("local/node-1"), "{page}");
}

#[tokio::test]
async fn a_job_of_a_cluster_that_is_not_configured_says_so_and_is_deleted_by_force_alone() {
    let server = Server::new().await;
    let id = left_over(&server).await;
    let job = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!((&job["cluster_configured"], &job["state"]), (&json!(false), &json!("queued")));
    let text = job["cluster_troubles"][0].as_str().unwrap();
    assert!(text.starts_with("Cluster gone is not configured on this server."), "{text}");
    let page = server.get(&format!("/jobs/{id}")).await.text;
    assert!(page.contains("Cluster gone is not configured on this server"), "{page}");
    assert!(page.contains("holdfast.dev/job=jabcdefghij2"), "what is left behind, and how to remove it");

    let refused = server.send(sent("DELETE", &format!("/api/v1/jobs/{id}"), "")).await;
    let problem = refused.problem();
    assert!(problem.starts_with("409 conflict: Cluster gone is not configured on this server."), "{problem}");
    assert!(problem.contains("delete the job with `force`"), "{problem}");
    let accepted = server.send(sent("DELETE", &format!("/api/v1/jobs/{id}?force=true"), "")).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.text);
    assert_eq!(server.driver.hints.lock().unwrap().as_slice(), [id]);
}

#[tokio::test]
async fn a_job_of_a_namespace_that_is_not_configured_says_so_and_is_deleted_by_force_alone() {
    let server = two().await;
    let site = Site { clusters: vec![SiteCluster::kubernetes("kubernetes")], ..Site::default() };
    let body = r#"{"name":"old","command":["true"],"image":"train:1","kubernetes":{"namespace":"research"}}"#;
    let draft: JobDraft = serde_json::from_str(body).unwrap();
    let id = keep(&server, draft.validate(&site).unwrap()).await;
    let job = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!((&job["cluster_configured"], &job["state"]), (&json!(false), &json!("queued")));
    let told = job["cluster_troubles"].as_array().unwrap();
    let want = "Namespace research is not configured for cluster kubernetes on this server. Nothing is known of what the job does there, and nothing is concluded or restarted. Add it to the cluster's namespaces again (--kube-namespace), or delete the job.";
    assert_eq!(told, &[json!(want)]);
    let page = server.get(&format!("/jobs/{id}")).await.text;
    assert!(page.contains("Namespace research is not configured for cluster kubernetes"), "{page}");
    assert!(page.contains("holdfast.dev/job=jabcdefghij2"), "what is left behind, and how to remove it");

    let problem = server.send(sent("DELETE", &format!("/api/v1/jobs/{id}"), "")).await.problem();
    assert!(
        problem.starts_with("409 conflict: Namespace research is not configured for cluster"),
        "{problem}"
    );
    assert!(problem.contains("delete the job with `force`"), "{problem}");
    let accepted = server.send(sent("DELETE", &format!("/api/v1/jobs/{id}?force=true"), "")).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.text);
}

#[tokio::test]
async fn a_job_that_names_no_namespace_keeps_the_clusters_first() {
    let server = Server::with(Setup { kubernetes: true, ..Setup::default() }).await;
    let id = server.job(r#"{"name":"a","cluster":"kubernetes","image":"i","command":["true"]}"#).await;
    let job = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(job["spec"]["kubernetes"]["namespace"], "train");
}

#[tokio::test]
async fn a_train_job_is_told_what_to_use_instead() {
    let server = Server::with(Setup { kubernetes: true, ..Setup::default() }).await;
    let manifest = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\n";
    let body = json!({ "manifest": manifest, "cluster": "kubernetes" }).to_string();
    let problem = server.post("/api/v1/jobs:import", &body).await.problem();
    assert!(problem.contains("is TrainJob, which is not supported yet; use PyTorchJob v1"), "{problem}");
}
