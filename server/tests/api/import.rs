//! Jobs from pasted manifests, and the manifests of attempts.

use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{Server, Setup, json as post};

pub const MANIFEST: &str = r#"
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: whisper
  namespace: train
spec:
  runPolicy: { backoffLimit: 3, cleanPodPolicy: Running }
  pytorchReplicaSpecs:
    Master: &replica
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: registry.example/asr:7
              command: [python3, train.py]
              args: ["--lr", "$(LR)"]
              env: [{ name: LR, value: "0.1" }]
              resources: { limits: { nvidia.com/gpu: 2 } }
          volumes:
            - name: settings
              configMap: { name: settings, defaultMode: 0644 }
    Worker:
      <<: *replica
      replicas: 3
  neverHeardOf: { a: [1, 2.5, null] }
status:
  conditions: []
"#;

async fn server() -> Server {
    Server::with(Setup { kubernetes: true, ..Setup::default() }).await
}

fn body(manifest: &str, more: Value) -> String {
    let mut body = json!({ "manifest": manifest, "cluster": "kubernetes" });
    for (field, value) in more.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    body.to_string()
}

async fn imported(server: &Server, body: &str) -> Value {
    let answer = server.post("/api/v1/jobs:import", body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    let job = answer.json();
    assert_eq!(answer.header("location"), format!("/api/v1/jobs/{}", job["job_id"].as_str().unwrap()));
    job
}

#[tokio::test]
async fn a_pasted_manifest_is_a_job_with_all_its_fields() {
    let server = server().await;
    let more = json!({ "checkpoint_dir": "/ckpt", "fault_tolerance": { "auto_failover": true, "max_task_restarts": 2 } });
    let job = imported(&server, &body(MANIFEST, more)).await;
    let spec = &job["spec"];
    assert_eq!(
        (&job["name"], &job["state"], &job["mode"]),
        (&"whisper".into(), &"queued".into(), &"basic".into())
    );
    assert_eq!((&spec["kind"], &spec["replicas"]), (&"pytorchjob".into(), &4.into()));
    assert_eq!(spec["command"], json!(["python3", "train.py", "--lr", "$(LR)"]));
    assert_eq!(spec["accelerators_per_replica"], 2);
    let kept = &spec["kubernetes"]["manifest"];
    assert_eq!(kept["spec"]["neverHeardOf"], json!({ "a": [1, 2.5, null] }));
    let pod = &kept["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["configMap"]["defaultMode"], 0o644);
    assert_eq!(kept.get("status"), None);
    let overridden: Vec<_> =
        job["overridden"].as_array().unwrap().iter().map(|one| one["field"].as_str().unwrap()).collect();
    assert_eq!(
        overridden,
        [
            "metadata.name",
            "status",
            "spec.runPolicy.backoffLimit",
            "spec.runPolicy.cleanPodPolicy",
            // The manifest leaves it out; the operator's webhook would refuse that.
            "spec.pytorchReplicaSpecs.Master.replicas",
            "spec.pytorchReplicaSpecs.Master.restartPolicy",
            "spec.pytorchReplicaSpecs.Worker.restartPolicy",
        ]
    );
    let again = server.get(&format!("/api/v1/jobs/{}", job["job_id"].as_str().unwrap())).await.json();
    assert_eq!(again["spec"], *spec);
}

/// A RayJob with a retry of KubeRay's own.
const RAYJOB: &str = r#"
apiVersion: ray.io/v1
kind: RayJob
metadata: { name: tune }
spec:
  entrypoint: python tune.py --lr $LR
  backoffLimit: 2
  runtimeEnvYAML: |
    pip: [tqdm]
  neverHeardOf: { a: [1, 2.5, null] }
  rayClusterSpec:
    headGroupSpec:
      rayStartParams: {}
      template: { spec: { containers: [{ name: ray-head, image: "ray:2" }] } }
    workerGroupSpecs:
      - groupName: gpus
        replicas: 2
        minReplicas: 1
        maxReplicas: 4
        rayStartParams: {}
        template:
          spec:
            containers: [{ name: ray-worker, image: "ray:2", resources: { limits: { nvidia.com/gpu: 4 } } }]
"#;

#[tokio::test]
async fn a_pasted_rayjob_is_a_job_in_basic_mode() {
    let server = server().await;
    let failover = json!({ "fault_tolerance": { "auto_failover": true, "max_task_restarts": 2 } });
    let job = imported(&server, &body(RAYJOB, failover)).await;
    let spec = &job["spec"];
    assert_eq!((&spec["kind"], &spec["replicas"]), (&"rayjob".into(), &3.into()));
    assert_eq!(spec["command"], json!(["/bin/sh", "-c", "python tune.py --lr $LR"]));
    assert_eq!((&spec["accelerators_per_replica"], &job["mode"]), (&4.into(), &"basic".into()));
    let kept = &spec["kubernetes"]["manifest"]["spec"];
    assert_eq!(kept["neverHeardOf"], json!({ "a": [1, 2.5, null] }));
    assert_eq!(kept["runtimeEnvYAML"], "pip: [tqdm]\n");
    let overridden = job["overridden"].as_array().unwrap();
    assert!(overridden.iter().any(|one| one["field"] == "spec.backoffLimit"), "{overridden:?}");
    let more = json!({ "fault_tolerance": { "auto_failover": true, "policy": { "enabled": true } } });
    let refused = server.post("/api/v1/jobs:import", &body(RAYJOB, more)).await.problem();
    assert!(refused.contains("RayJob uses basic mode"), "{refused}");
}

#[tokio::test]
async fn an_object_is_taken_as_it_is_and_named_as_asked() {
    let server = server().await;
    let whole = imported(&server, &body(MANIFEST, json!({}))).await;
    let mut body: Value = serde_json::from_str(&body("", json!({ "name": "mine" }))).unwrap();
    body["manifest"] = whole["spec"]["kubernetes"]["manifest"].clone();
    let job = imported(&server, &body.to_string()).await;
    assert_eq!(job["name"], "mine");
    assert_eq!(job["spec"]["kubernetes"], whole["spec"]["kubernetes"]);
}

#[tokio::test]
async fn a_repeated_request_makes_one_job() {
    let server = server().await;
    let send = async || {
        let mut request = post("POST", "/api/v1/jobs:import", &body(MANIFEST, json!({})));
        request.headers_mut().insert("idempotency-key", "once".parse().unwrap());
        server.send(request).await
    };
    let (first, second) = (send().await, send().await);
    assert_eq!((first.status, second.status), (StatusCode::CREATED, StatusCode::CREATED));
    assert_eq!(first.json(), second.json());
    assert_eq!(second.header("idempotency-replayed"), "true");
    assert_eq!(server.get("/api/v1/jobs").await.json()["total"], 1);
}

#[tokio::test]
async fn every_refusal_names_the_place_in_the_manifest() {
    let server = server().await;
    let without =
        |line: &str| MANIFEST.lines().filter(|one| !one.contains(line)).collect::<Vec<_>>().join("\n");
    let mut seen = Vec::new();
    for (case, body) in [
        ("nothing is said", "{}".to_owned()),
        ("a number", json!({ "manifest": 3 }).to_string()),
        ("a list", json!({ "manifest": [{}] }).to_string()),
        ("an empty text", body(" ", json!({}))),
        ("no YAML", body("a: [1", json!({}))),
        ("two documents", body(&format!("{MANIFEST}\n---\n{MANIFEST}"), json!({}))),
        ("another kind", body("apiVersion: batch/v1\nkind: Job\n", json!({}))),
        ("an empty RayJob", body("apiVersion: ray.io/v1\nkind: RayJob\n", json!({}))),
        ("the local cluster", body(MANIFEST, json!({ "cluster": "local" }))),
        (
            "another namespace",
            body(&MANIFEST.replace("namespace: train", "namespace: kube-system"), json!({})),
        ),
        (
            "no command, and a wrong setting",
            body(&without("command:"), json!({ "fault_tolerance": { "max_task_restarts": -1 } })),
        ),
        ("an unknown field", body(MANIFEST, json!({ "image": "x" }))),
        ("a relative checkpoint directory", body(MANIFEST, json!({ "checkpoint_dir": "ckpt" }))),
    ] {
        seen.push(format!("{case}\n{}", server.post("/api/v1/jobs:import", &body).await.problem()));
    }
    insta::assert_snapshot!(seen.join("\n\n"));
    assert_eq!(server.get("/api/v1/jobs").await.json()["total"], 0);
}

#[tokio::test]
async fn a_job_like_an_imported_one_may_have_its_manifest_changed() {
    let server = server().await;
    let job = imported(&server, &body(MANIFEST, json!({}))).await;
    let path = format!("/api/v1/jobs/{}/resubmit", job["job_id"].as_str().unwrap());
    let workers = json!({ "spec": { "pytorchReplicaSpecs": { "Worker": { "replicas": 1 } } } });
    let changes = json!({ "as": "job", "changes": { "kubernetes": { "manifest": workers } } });
    let new = server.post(&path, &changes.to_string()).await;
    assert_eq!(new.status, StatusCode::CREATED, "{}", new.text);
    assert_eq!(new.json()["spec"]["replicas"], 2);
    let refused = server.post(&path, r#"{"as":"job","changes":{"replicas":2}}"#).await;
    assert_eq!(
        refused.problem(),
        "422 invalid: changes.replicas: is read from the manifest, which says otherwise; change it there and leave this out\n  changes.replicas: is read from the manifest, which says otherwise; change it there and leave this out"
    );
}

#[tokio::test]
async fn any_attempts_manifest_can_be_had_without_its_tokens() {
    let server = server().await;
    let job = imported(&server, &body(MANIFEST, json!({ "checkpoint_dir": "/ckpt" }))).await;
    let id = job["job_id"].as_str().unwrap();
    let task = format!("whisper-{id}-1");
    let answer = server.get(&format!("/api/v1/tasks/{task}/manifest")).await;
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, "application/yaml"));
    assert_eq!(answer.header("content-disposition"), format!("attachment; filename=\"{task}.yaml\""));
    let object = server::yaml::read(&answer.text).unwrap();
    assert_eq!((&object["kind"], &object["metadata"]["name"]), (&"PyTorchJob".into(), &task.as_str().into()));
    assert_eq!(object["metadata"]["labels"]["holdfast.dev/attempt"], "1");
    assert_eq!(object["spec"]["neverHeardOf"], json!({ "a": [1, 2.5, null] }));
    assert_eq!(object["spec"]["runPolicy"], json!({ "backoffLimit": 0, "cleanPodPolicy": "None" }));
    let container = &object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], json!(["/holdfast/holdfast-agent", "run", "--", "python3", "train.py"]));
    let keys: Vec<_> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["apiVersion", "kind", "metadata", "spec"], "the Secret is another object");
    assert_eq!(server.get(&format!("/api/v1/tasks/{task}/manifest")).await.text, answer.text);
    // What was made of it is told to be no manifest of a job.
    let pasted = server.post("/api/v1/jobs:import", &body(&answer.text, json!({}))).await;
    assert!(pasted.problem().contains("paste the one that the job was made of"), "{}", pasted.text);

    let plain =
        server.job(r#"{"name":"plain","cluster":"kubernetes","image":"train:1","command":["true"]}"#).await;
    let answer = server.get(&format!("/api/v1/tasks/plain-{plain}-1/manifest")).await;
    assert!(answer.text.contains("image: \"train:1\""), "{}", answer.text);
    let local = server.job(r#"{"name":"here","command":["true"]}"#).await;
    let answer = server.get(&format!("/api/v1/tasks/here-{local}-1/manifest")).await;
    assert_eq!(
        answer.problem(),
        format!(
            "404 not-found: There is no manifest (cluster local runs programs of this machine) of attempt here-{local}-1."
        )
    );
    let answer = server.get("/api/v1/tasks/none-jabcdefghij2-1/manifest").await;
    assert_eq!(answer.problem(), "404 not-found: There is no attempt none-jabcdefghij2-1.");
}

#[tokio::test]
async fn a_job_is_checked_without_being_made_and_a_silent_cluster_refuses_nothing() {
    let server = server().await;
    let body = |cluster: &str, image: Value| {
        json!({ "name": "a", "cluster": cluster, "image": image, "command": ["true"] }).to_string()
    };
    let check = async |body: String| server.post("/api/v1/jobs:check", &body).await;
    let on_kubernetes = check(body("kubernetes", json!("registry.example/a:1"))).await;
    assert_eq!(on_kubernetes.status, StatusCode::OK, "{}", on_kubernetes.text);
    let findings = on_kubernetes.json()["findings"].as_array().unwrap().clone();
    assert!(!findings.is_empty() && findings.iter().all(|one| one["fit"] == "not_checked"), "{findings:#?}");
    let local = check(body("local", Value::Null)).await;
    assert_eq!((local.status, local.json()), (StatusCode::OK, json!({ "findings": [] })));
    let wrong = check(body("kubernetes", Value::Null)).await;
    assert_eq!(
        (wrong.status, wrong.json()["errors"][0]["field"].clone()),
        (StatusCode::UNPROCESSABLE_ENTITY, json!("image"))
    );
    assert_eq!(server.get("/api/v1/jobs").await.json()["total"], 0);
    let made = server.post("/api/v1/jobs", &body("kubernetes", json!("registry.example/a:1"))).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
}
