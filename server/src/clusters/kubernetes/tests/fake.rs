//! Objects as an API server returns them, and an API server that answers what a test says.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use engine::{
    chain::Plan,
    ids::{JobId, NodeName, TaskId},
    job::{JobDraft, JobKind, JobSpec, Site, SiteCluster},
};
use http::{Method, Request, Response};
use kube::{
    Client,
    client::Body,
    core::{DynamicObject, Status},
};
use serde_json::{Value, json};

use super::{
    seen::{JobSeen, NodeSeen, PodSeen},
    settings::{ACCELERATOR, AgentSource, KubernetesSettings},
};
use crate::{clusters::Order, tokens::Tokens};

pub(super) const TASK: &str = "demo-jabcdefghij2-1";

pub(super) fn task() -> TaskId {
    TaskId::new(TASK).unwrap()
}

pub(super) fn settings() -> KubernetesSettings {
    KubernetesSettings {
        name: "kubernetes".to_owned(),
        instance: "0123456789abcdef".to_owned(),
        data_dir: "/var/lib/holdfast".into(),
        kubeconfig: None,
        context: None,
        namespaces: vec!["train".to_owned(), "eval".to_owned()],
        agent: AgentSource::Image("registry.example/agent:1".to_owned()),
        server_url: "http://holdfast.holdfast:3000".to_owned(),
        server_ca: None,
        accelerator: ACCELERATOR.to_owned(),
        node_lost_seconds: 60,
        allow_host_paths: false,
    }
}

pub(super) fn spec(replicas: i64) -> JobSpec {
    let cluster = SiteCluster::kubernetes("kubernetes");
    let site = Site { clusters: vec![cluster], ..Site::default() };
    let draft = JobDraft {
        name: "demo".to_owned(),
        kind: Some(JobKind::PyTorchJob),
        image: Some("registry.example/train:1".to_owned()),
        command: vec!["python3".to_owned(), "train.py".to_owned()],
        replicas: Some(replicas),
        ..JobDraft::default()
    };
    draft.validate(&site).unwrap()
}

/// The same as a RayJob, in basic mode.
pub(super) fn ray_spec(replicas: u32) -> JobSpec {
    JobSpec { kind: JobKind::RayJob, ..spec(i64::from(replicas)) }
}

pub(super) fn order(spec: JobSpec) -> Order {
    let tokens = Tokens::new(&[7; 32]).of_attempt(&task(), &spec);
    Order {
        job_id: JobId::new("jabcdefghij2").unwrap(),
        spec,
        plan: Plan {
            task_id: task(),
            number: 1,
            previous_task_id: None,
            avoid: [].into(),
            quarantined: [].into(),
            only: [].into(),
        },
        tokens,
    }
}

fn labels(more: &[(&str, &str)]) -> Value {
    let own = [
        ("holdfast.dev/instance", "0123456789abcdef"),
        ("holdfast.dev/cluster", "kubernetes"),
        ("holdfast.dev/task", TASK),
    ];
    own.iter()
        .chain(more)
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// A job object of `replicas` with these conditions: type, status, message.
pub(super) fn job_object(replicas: u32, conditions: &[(&str, &str, &str)]) -> Value {
    let suspend = conditions.iter().any(|(kind, status, _)| (*kind, *status) == ("Suspended", "True"));
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(kind, status, message)| json!({ "type": kind, "status": status, "reason": format!("PyTorchJob{kind}"), "message": message, "lastTransitionTime": "2026-11-29T19:26:47Z" }))
        .collect();
    json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": { "name": TASK, "namespace": "train", "uid": "job-1", "resourceVersion": "5", "labels": labels(&[]) },
        "spec": {
            "runPolicy": { "suspend": suspend },
            "pytorchReplicaSpecs": { "Master": { "replicas": 1 }, "Worker": { "replicas": replicas - 1 } },
        },
        "status": { "conditions": conditions },
    })
}

pub(super) fn job(replicas: u32, conditions: &[(&str, &str, &str)]) -> JobSeen {
    let object: DynamicObject = serde_json::from_value(job_object(replicas, conditions)).unwrap();
    JobSeen::of(JobKind::PyTorchJob, &object).unwrap()
}

/// A RayJob of `replicas` with this status.
pub(super) fn ray_job_object(replicas: u32, status: Value) -> Value {
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": { "name": TASK, "namespace": "train", "uid": "job-1", "resourceVersion": "5", "labels": labels(&[]) },
        "spec": { "rayClusterSpec": { "headGroupSpec": {}, "workerGroupSpecs": [{ "groupName": "workers", "replicas": replicas - 1 }] } },
        "status": status,
    })
}

pub(super) fn ray_job(replicas: u32, status: Value) -> JobSeen {
    let object: DynamicObject = serde_json::from_value(ray_job_object(replicas, status)).unwrap();
    JobSeen::of(JobKind::RayJob, &object).unwrap()
}

/// A pod of a Ray cluster: `head` or `worker`.
pub(super) fn ray_pod(part: &str, uid: &str, node: &str, mut status: Value) -> PodSeen {
    if let Some(container) = status.pointer_mut("/containerStatuses/0/name") {
        *container = json!("ray");
    }
    let mut pod = pod_object("any-0", uid, node, status);
    pod["metadata"]["labels"] = labels(&[("ray.io/node-type", part)]);
    pod["metadata"]["name"] = json!(format!("{TASK}-{part}-{uid}"));
    pod["spec"]["containers"][0]["name"] = json!("ray");
    PodSeen::of(&serde_json::from_value(pod).unwrap()).unwrap()
}

/// A pod of `master-0`, `worker-0` ... on a node, or on none where that is empty.
pub(super) fn pod_object(replica: &str, uid: &str, node: &str, status: Value) -> Value {
    let (kind, index) = replica.split_once('-').unwrap();
    let labels = labels(&[
        ("training.kubeflow.org/replica-type", kind),
        ("training.kubeflow.org/replica-index", index),
    ]);
    let requests = json!({ "cpu": "2", "nvidia.com/gpu": "4" });
    let mut pod = json!({
        "metadata": { "name": format!("{TASK}-{replica}"), "namespace": "train", "uid": uid, "resourceVersion": "5", "labels": labels },
        "spec": { "containers": [{ "name": "pytorch", "resources": { "requests": requests, "limits": requests } }] },
        "status": status,
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

pub(super) fn pod(replica: &str, uid: &str, node: &str, status: Value) -> PodSeen {
    let object = serde_json::from_value(pod_object(replica, uid, node, status)).unwrap();
    PodSeen::of(&object).unwrap()
}

/// A status with the program's container in this state.
pub(super) fn with_main(phase: &str, state: Value) -> Value {
    json!({ "phase": phase, "containerStatuses": [{ "name": "pytorch", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state }] })
}

pub(super) fn running() -> Value {
    with_main("Running", json!({ "running": { "startedAt": "2026-11-29T19:26:47Z" } }))
}

pub(super) fn terminated(phase: &str, code: i32, reason: &str) -> Value {
    with_main(phase, json!({ "terminated": { "exitCode": code, "reason": reason } }))
}

pub(super) fn node(name: &str, ready: &str, taint: Option<&str>) -> (NodeName, NodeSeen) {
    let taints: Vec<_> = taint.iter().map(|key| json!({ "key": key, "effect": "NoExecute" })).collect();
    let node = json!({
        "metadata": { "name": name },
        "spec": { "taints": taints },
        "status": {
            "allocatable": { "cpu": "8", "memory": "24581696Ki", "nvidia.com/gpu": "8" },
            "conditions": [{ "type": "Ready", "status": ready }],
        },
    });
    NodeSeen::of(&serde_json::from_value(node).unwrap()).unwrap()
}

/// What was asked: method, path with query, body.
pub(super) type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A client whose API server is `answer`, given `METHOD path` and the body; none: it never answers. A text is sent as it is.
pub(super) fn client(
    answer: impl Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> (Client, Asked) {
    let asked = Asked::default();
    let (notes, answer) = (Arc::clone(&asked), Arc::new(answer));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (notes, answer) = (Arc::clone(&notes), Arc::clone(&answer));
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let method: Method = parts.method;
            let what = format!("{method} {}", parts.uri);
            notes.lock().unwrap().push((what.clone(), body.clone()));
            match answer(&what, &body) {
                Some((code, body)) => {
                    let text = match body {
                        Value::String(text) => text.into_bytes(),
                        object => serde_json::to_vec(&object).unwrap(),
                    };
                    Ok::<_, std::io::Error>(Response::builder().status(code).body(Body::from(text)).unwrap())
                }
                None => std::future::pending().await,
            }
        }
    });
    (Client::new(service, "default"), asked)
}

/// An API server's refusal.
pub(super) fn refusal(code: u16, reason: &str, message: &str) -> Option<(u16, Value)> {
    let status = Status { code, reason: reason.to_owned(), message: message.to_owned(), ..Status::default() };
    let mut body = serde_json::to_value(status).unwrap();
    body["status"] = json!("Failure");
    body["kind"] = json!("Status");
    body["apiVersion"] = json!("v1");
    Some((code, body))
}

/// Which version an API server is.
pub(super) fn version() -> Option<(u16, Value)> {
    let names = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    Some((
        200,
        names.iter().map(|name| ((*name).to_owned(), json!("1"))).collect::<serde_json::Map<_, _>>().into(),
    ))
}

/// A list of an API server.
pub(super) fn list(items: Vec<Value>) -> Option<(u16, Value)> {
    Some((
        200,
        json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "7" }, "items": items }),
    ))
}

/// The verbs and kinds that were asked for, in order.
pub(super) fn verbs(asked: &Asked) -> Vec<String> {
    let kinds: BTreeMap<_, _> =
        [("/pytorchjobs", "job"), ("/rayjobs", "rayjob"), ("/secrets", "secret"), ("/pods", "pods")].into();
    let asked = asked.lock().unwrap();
    let short = |what: &str| {
        let verb = what.split(' ').next().unwrap_or_default();
        let kind = kinds.iter().find(|(path, _)| what.contains(*path)).map_or("?", |(_, kind)| kind);
        format!("{verb} {kind}")
    };
    asked.iter().map(|(what, _)| short(what)).collect()
}
