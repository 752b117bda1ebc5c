//! What the tests of a diagnosis are made of: PyTorchJobs that get to the same nodes as the job does, by the same ways. Pure.
//!
//! Each test is bound to its nodes by name, one replica on each, so a node selector is only kept where Kueue chooses by it. Namespace,
//! queues, tolerations and account stay: a diagnosis is let in where its job is. The job's priority does not: a test waits for nodes that
//! others use, and takes them from nobody. Volumes and variables are only for a command of the job's owner; the built-in test runs without
//! them, on nodes whose storage is what fails, too. On each node it asks for what one replica of the job did, which fits wherever the job was.

use std::collections::{BTreeMap, BTreeSet};

use engine::{
    ids::NodeName,
    job::{JobKind, JobSpec, Manifest, PodOptions, Toleration},
};
use k8s_openapi::api::core::v1;
use serde_json::Value;

use super::{
    facts::Nodes,
    gang::{RAY_QUEUE, RAY_SCHEDULER},
    kueue::QUEUE,
    pasted,
    settings::KubernetesSettings,
    wants::{self, Part},
};
use crate::clusters::Testing;

/// Nodes of a diagnosis. Each pod of a group names all nodes of its group, so that what the API server keeps of a group grows with the
/// square of its nodes: some 30 MB here.
const NODES: usize = 512;
/// The label by which Kueue knows how urgent a job is.
const KUEUE_PRIORITY: &str = "kueue.x-k8s.io/priority-class";
/// Taints that every pod of ours bears for a while.
const LOST: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The tests of a job's nodes, or why there can be none.
pub(super) fn of(spec: &JobSpec, settings: &KubernetesSettings, own: bool) -> Result<Testing, String> {
    let Some(manifest) = &spec.kubernetes.manifest else {
        let pods = of_options(&spec.kubernetes, own);
        let accelerators = spec.accelerators_per_replica;
        return Ok(Testing { image: spec.image.clone(), pods, accelerators, most_nodes: NODES });
    };
    if own {
        return Err("The job was made from a pasted object, whose volumes and variables a command of your own would not have. Use the built-in test.".to_owned());
    }
    let wants = wants::of(spec, settings)
        .map_err(|finding| format!("What its pods are made of cannot be read: {}", finding.text))?;
    // What the smallest of its pods asks for fits on the node of each.
    let least = |name: &str| {
        let asked = wants.parts.iter().map(|part| part.asked.requests.get(name).copied().unwrap_or(0.0));
        asked.reduce(f64::min).filter(|amount| *amount > 0.0)
    };
    let mut pods = of_parts(&wants.parts);
    pods.namespace = Some(wants.namespace.clone());
    pods.cpu = least("cpu").map(|cpu| format!("{:.0}m", (cpu * 1_000.0).floor()));
    pods.memory = least("memory").map(|bytes| format!("{:.0}", bytes.floor()));
    of_object(&mut pods, manifest, spec.kind);
    // Of a number that is whole already; what is out of range becomes the nearest there is.
    let accelerators = least(&settings.accelerator).map_or(0, |count| count.floor() as u32);
    Ok(Testing { image: spec.image.clone(), pods, accelerators, most_nodes: NODES })
}

/// Those of a job that was made of fields.
fn of_options(job: &PodOptions, own: bool) -> PodOptions {
    let mut pods = job.clone();
    pods.priority_class = None;
    pods.labels.remove(KUEUE_PRIORITY);
    if pods.kueue_queue.is_none() && !pods.labels.contains_key(QUEUE) {
        pods.node_selector.clear();
    }
    if !own {
        pods.shm_size = None;
        pods.secrets.clear();
        pods.volumes.clear();
    }
    pods
}

/// What leads the pods of a pasted object to their nodes.
fn of_parts(parts: &[Part]) -> PodOptions {
    let pods = || parts.iter().map(|part| &part.pod);
    let mut tolerations: Vec<Toleration> = Vec::new();
    for one in pods().flat_map(|pod| pod.tolerations.iter().flatten()) {
        let one = toleration(one);
        let is_ours = one.key.as_deref().is_some_and(|key| LOST.contains(&key));
        if !is_ours && !tolerations.contains(&one) {
            tolerations.push(one);
        }
    }
    let mut pull_secrets: Vec<String> = Vec::new();
    for secret in pods().flat_map(|pod| pod.image_pull_secrets.iter().flatten()) {
        if !pull_secrets.contains(&secret.name) {
            pull_secrets.push(secret.name.clone());
        }
    }
    PodOptions {
        tolerations,
        pull_secrets,
        service_account: pods().find_map(|pod| pod.service_account_name.clone()),
        scheduler: pods().find_map(|pod| pod.scheduler_name.clone()),
        ..PodOptions::default()
    }
}

/// What the pasted object itself says of its queues, and its labels.
fn of_object(pods: &mut PodOptions, manifest: &Manifest, kind: JobKind) {
    let base = manifest.object();
    let mut labels = pasted::marks(base, "labels");
    pods.kueue_queue = labels.remove(QUEUE);
    labels.remove(KUEUE_PRIORITY);
    pods.volcano_queue = match kind {
        JobKind::PyTorchJob => {
            let queue = base.pointer("/spec/runPolicy/schedulingPolicy/queue").and_then(Value::as_str);
            queue.filter(|queue| !queue.is_empty()).map(str::to_owned)
        }
        JobKind::RayJob => {
            labels.remove(RAY_SCHEDULER);
            labels.remove(RAY_QUEUE)
        }
    };
    pods.labels = labels;
}

fn toleration(one: &v1::Toleration) -> Toleration {
    let exists = one.operator.as_deref() == Some("Exists");
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    Toleration {
        key: said(&one.key),
        value: (!exists).then(|| one.value.clone().unwrap_or_default()),
        effect: said(&one.effect),
    }
}

/// Those of these nodes on which nothing new is placed now, each with the reason.
pub(super) fn closed(wanted: &BTreeSet<NodeName>, nodes: &Nodes) -> BTreeMap<NodeName, String> {
    let why = |name: &NodeName| match nodes.get(name) {
        None => Some("is not in the cluster"),
        Some(node) if node.cordoned => Some("is cordoned"),
        Some(node) if !node.ready => Some("is not ready"),
        Some(_) => None,
    };
    wanted.iter().filter_map(|name| Some((name.clone(), why(name)?.to_owned()))).collect()
}

#[cfg(test)]
#[path = "tests/testing.rs"]
mod tests;
