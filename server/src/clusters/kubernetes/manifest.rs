//! From an order to the objects of an attempt. Pure.

use std::collections::BTreeMap;

use engine::job::{JobKind, PodOptions, manifest::RAY_KEPT_SECONDS};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    ResourceExt,
    core::{DynamicObject, ObjectMeta},
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    gang, kueue, names, pasted,
    pod::{self, Part},
    settings::KubernetesSettings,
};
use crate::clusters::Order;

/// The objects of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Manifest {
    pub namespace: String,
    /// Tokens of the agents, a key for each replica, and what they trust.
    pub secret: Secret,
    pub job: DynamicObject,
}

/// What an order comes to on a cluster, or why it cannot be made there.
pub(super) fn of(order: &Order, settings: &KubernetesSettings) -> Result<Manifest, String> {
    let (spec, plan) = (&order.spec, &order.plan);
    let name = plan.task_id.as_str();
    let namespace = settings.namespace_of(spec.kubernetes.namespace.as_deref())?;
    let base = spec.kubernetes.manifest.as_ref().map(engine::job::Manifest::object);
    let of_base = |name| base.map(|base| pasted::marks(base, name)).unwrap_or_default();
    let mut labels = spec.kubernetes.labels.clone();
    labels.extend(of_base("labels"));
    // After the job's own, so that none of them can pretend to be another job's.
    let ours = marks(order, settings);
    labels.extend(ours.clone());
    let body = match base {
        // Its pods have labels of their own.
        Some(base) => pasted::body(base, order, settings, &ours)?,
        None => json!({ "spec": match spec.kind {
            JobKind::PyTorchJob => pytorch_job(order, settings, &labels)?,
            JobKind::RayJob => ray_job(order, settings, &labels)?,
        } }),
    };
    let mut annotations = of_base("annotations");
    annotations.extend([
        (names::SPEC_HASH.to_owned(), spec_hash(order)),
        (names::JOB_NAME.to_owned(), spec.name.clone()),
    ]);
    if !plan.avoid.is_empty() {
        let avoid: Vec<_> = plan.avoid.iter().map(|node| node.as_str()).collect();
        annotations.insert(names::AVOIDED.to_owned(), avoid.join(","));
    }
    labels.extend(queue_labels(&spec.kubernetes, spec.kind));
    let mut job = DynamicObject::new(name, &names::resource(spec.kind)).within(namespace).data(body);
    *job.labels_mut() = labels;
    *job.annotations_mut() = annotations;
    Ok(Manifest { namespace: namespace.to_owned(), secret: secret(order, settings, namespace), job })
}

/// What a PyTorchJob says beside its metadata.
fn pytorch_job(
    order: &Order,
    settings: &KubernetesSettings,
    labels: &BTreeMap<String, String>,
) -> Result<Value, String> {
    let template = pod::template(order, Part::PyTorch, settings, labels)?;
    let replica_spec =
        |replicas: u32| json!({ "replicas": replicas, "restartPolicy": "Never", "template": template });
    let mut replica_specs = json!({ "Master": replica_spec(1) });
    if order.spec.replicas > 1 {
        replica_specs["Worker"] = replica_spec(order.spec.replicas - 1);
    }
    let mut policy = json!({ "backoffLimit": 0, "cleanPodPolicy": "None" });
    let options = &order.spec.kubernetes;
    if let Some(queue) = &options.volcano_queue {
        // Of the pod group that the operator makes where it is told to use Volcano.
        policy["schedulingPolicy"] = json!({ "queue": queue });
        if let Some(class) = &options.priority_class {
            policy["schedulingPolicy"]["priorityClass"] = json!(class);
        }
    }
    Ok(json!({ "runPolicy": policy, "pytorchReplicaSpecs": replica_specs }))
}

/// Labels of the job object alone by which a queueing system knows it; its pods are not queued one by one.
fn queue_labels(options: &PodOptions, kind: JobKind) -> impl Iterator<Item = (String, String)> {
    let kueue = options.kueue_queue.iter().map(|queue| (kueue::QUEUE.to_owned(), queue.clone()));
    let volcano = options.volcano_queue.iter().filter(move |_| kind == JobKind::RayJob);
    let volcano = volcano.flat_map(|queue| {
        let scheduler = gang::VOLCANO.to_owned();
        [(gang::RAY_SCHEDULER.to_owned(), scheduler), (gang::RAY_QUEUE.to_owned(), queue.clone())]
    });
    kueue.chain(volcano)
}

/// What a RayJob says beside its metadata: a cluster of its own, and the attempt's task ID as submission ID.
fn ray_job(
    order: &Order,
    settings: &KubernetesSettings,
    labels: &BTreeMap<String, String>,
) -> Result<Value, String> {
    let template = |part| pod::template(order, part, settings, labels);
    let mut cluster = json!({
        "headGroupSpec": {
            "rayStartParams": { "dashboard-host": "0.0.0.0" },
            "template": template(Part::RayHead)?,
        },
    });
    if order.spec.replicas > 1 {
        let workers = order.spec.replicas - 1;
        cluster["workerGroupSpecs"] = json!([{
            "groupName": "workers",
            "replicas": workers,
            "minReplicas": workers,
            "maxReplicas": workers,
            "rayStartParams": {},
            "template": template(Part::RayWorker)?,
        }]);
    }
    let mut spec = ray_driver(order, settings);
    spec.insert("rayClusterSpec".to_owned(), cluster);
    Ok(spec.into())
}

/// What each attempt of a RayJob says of its driver, whatever the job is made of.
pub(super) fn ray_driver(order: &Order, settings: &KubernetesSettings) -> Map<String, Value> {
    [
        ("entrypoint", json!(pod::entrypoint(order, settings))),
        ("jobId", json!(order.plan.task_id)),
        ("submissionMode", json!("HTTPMode")),
        ("backoffLimit", json!(0)),
        // We remove the whole job as soon as its end is known. Where this server is away, the cluster lets go of its nodes by itself.
        ("shutdownAfterJobFinishes", json!(true)),
        ("ttlSecondsAfterFinished", json!(RAY_KEPT_SECONDS)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

/// What makes an object ours, and this attempt's.
pub(super) fn marks(order: &Order, settings: &KubernetesSettings) -> BTreeMap<String, String> {
    [
        (names::INSTANCE, settings.instance.clone()),
        (names::CLUSTER, settings.name.clone()),
        (names::JOB, order.job_id.to_string()),
        (names::TASK, order.plan.task_id.to_string()),
        (names::ATTEMPT, order.plan.number.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn secret(order: &Order, settings: &KubernetesSettings, namespace: &str) -> Secret {
    let tokens = order.tokens.iter().map(|(replica, token)| (replica.to_string(), token));
    let authorities = settings.server_ca.iter().map(|text| (pod::AUTHORITIES.to_owned(), text));
    let data = tokens.chain(authorities).map(|(key, text)| (key, ByteString(text.clone().into_bytes())));
    Secret {
        metadata: ObjectMeta {
            name: Some(names::secret_of(&order.plan.task_id)),
            namespace: Some(namespace.to_owned()),
            labels: Some(marks(order, settings)),
            ..ObjectMeta::default()
        },
        data: Some(data.collect()),
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// What was ordered, as a hash: of the job's spec and the attempt's plan, not of what the site's settings make of them. So an attempt
/// is known again by a server that was started with other settings in the meantime.
fn spec_hash(order: &Order) -> String {
    // Both hold sorted maps and sets only, which makes the text the same whenever it is made.
    let text = json!({ "spec": order.spec, "plan": order.plan }).to_string();
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "tests/manifest.rs"]
mod tests;
