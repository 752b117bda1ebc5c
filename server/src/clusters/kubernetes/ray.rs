//! What KubeRay and the pods of a Ray cluster say of an attempt. Pure.
//!
//! The job's command is the driver; it runs on the head, under the agent. So the head is the replica that counts: its first pod's end
//! is the attempt's, whatever KubeRay does then, which does not notice a lost head at all. A worker that ends is Ray's and
//! KubeRay's to replace, and the driver says whether the work went on without it.
//!
//! `jobDeploymentStatus` says how KubeRay does, `jobStatus` how the driver did; neither says enough by itself. Words that are not
//! known leave everything as it was.

use std::collections::BTreeMap;

use engine::{
    chain::{EndReason, ReplicaObservation, ReplicaStatus},
    failure::Exit,
    ids::ReplicaName,
    job::{JobKind, manifest::WorkerGroup},
};
use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::Value;

use super::{
    facts::{self, Nodes, PodKnown},
    seen::{JobSeen, bounded},
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct RayJob {
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    ray_cluster_spec: ClusterSpec,
    suspend: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClusterSpec {
    worker_group_specs: Vec<WorkerGroup>,
}

/// Pods that KubeRay makes at first of a group of workers.
pub(super) fn pods_of(group: &Value) -> u32 {
    WorkerGroup::deserialize(group).map_or(0, |group| group.pods())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    job_status: String,
    job_deployment_status: String,
    ray_cluster_name: String,
    reason: String,
    message: String,
}

const SUSPENDED: (&str, &str) = ("Suspended", "the RayJob is suspended on the cluster");

/// Reads a RayJob into what is the same of all kinds; `seen` has what its metadata says.
pub(super) fn read(object: &DynamicObject, seen: JobSeen) -> JobSeen {
    let RayJob { spec, status } = serde_json::from_value(object.data.clone()).unwrap_or_default();
    let workers = spec.ray_cluster_spec.worker_group_specs.iter();
    let workers = workers.map(WorkerGroup::pods).fold(0, u32::saturating_add);
    let condition = match status.job_deployment_status.as_str() {
        // On its way there its pods go; that is no failure either.
        "Suspending" | "Suspended" => Some(SUSPENDED),
        word if spec.suspend && !matches!(word, "Complete" | "Failed" | "ValidationFailed") => {
            Some(SUSPENDED)
        }
        "" => None,
        word => Some((word, status.message.as_str())),
    };
    JobSeen {
        replicas: workers.saturating_add(1),
        conditions: condition
            .into_iter()
            .map(|(word, text)| (word.to_owned(), bounded(text.to_owned())))
            .collect(),
        driver: driver(&status),
        submitted: !status.job_status.is_empty(),
        events_of: status.ray_cluster_name,
        ..seen
    }
}

/// How the driver ended, in KubeRay's words; none while it may run, or where the words are not known.
fn driver(status: &Status) -> Option<ReplicaStatus> {
    let reason = match (status.job_deployment_status.as_str(), status.job_status.as_str()) {
        ("Complete", "SUCCEEDED") => {
            return Some(ReplicaStatus::Ended { exit: Some(Exit::from_code(0)), reason: EndReason::Exited });
        }
        ("Complete", "STOPPED") => EndReason::Lost("the Ray job was stopped by someone else".to_owned()),
        ("Complete" | "Failed", "FAILED") => match exit_of(&status.message) {
            Some(code) => {
                let exit = Some(Exit::from_code(code));
                return Some(ReplicaStatus::Ended { exit, reason: EndReason::Exited });
            }
            None => EndReason::Lost(words(status)),
        },
        ("ValidationFailed", _) => EndReason::StartError(words(status)),
        ("Failed", _) => match status.reason.as_str() {
            "SubmissionFailed" | "PreRunningDeadlineExceeded" => EndReason::StartError(words(status)),
            _ => EndReason::Lost(words(status)),
        },
        _ => return None,
    };
    Some(ReplicaStatus::Ended { exit: None, reason })
}

fn words(status: &Status) -> String {
    match (status.reason.as_str(), status.message.as_str()) {
        ("", "") => "KubeRay says that the job failed and not why".to_owned(),
        ("", message) => bounded(message.to_owned()),
        (reason, "") => reason.to_owned(),
        (reason, message) => bounded(format!("{reason}: {message}")),
    }
}

/// The exit code in Ray's words `Job entrypoint command failed with exit code 3, last available logs ...`; of a death by a signal it
/// may be negative.
fn exit_of(message: &str) -> Option<i64> {
    let rest = message.split_once("failed with exit code ")?.1;
    let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(rest.len());
    // With 0 nothing failed.
    rest[..digits].parse().ok().filter(|code| *code != 0)
}

/// The replicas of a Ray cluster. Workers have no numbers of their own: they get them in the order in which they were made.
pub(super) fn replicas(
    pods: &[&PodKnown],
    nodes: &Nodes,
    job: Option<&JobSeen>,
) -> BTreeMap<ReplicaName, ReplicaObservation> {
    let mut replicas = BTreeMap::new();
    let mut workers = 0;
    for pod in pods {
        let status = facts::status(pod, nodes);
        let node = pod.seen.node.clone();
        if let Some(head) = &pod.seen.replica {
            let status = head_status(pod, status, || facts::taken_from(pod, nodes));
            facts::put(&mut replicas, head.clone(), ReplicaObservation { node, status });
        } else if matters(&status, job) {
            workers += 1;
            let name = ReplicaName::of_index(JobKind::RayJob, workers);
            replicas.insert(name, ReplicaObservation { node, status });
        }
    }
    if let Some(end) = job.and_then(|job| job.driver.clone()) {
        let head = ReplicaName::of_index(JobKind::RayJob, 0);
        let seen = replicas.get(&head);
        if !seen.is_some_and(|seen| explains(&seen.status, &end)) {
            let node = seen.and_then(|seen| seen.node.clone());
            replicas.insert(head, ReplicaObservation { node, status: end });
        }
    }
    replicas
}

/// The head's container is Ray's own process: that it ended well is no success of the job.
fn head_status(pod: &PodKnown, status: ReplicaStatus, taken: impl Fn() -> EndReason) -> ReplicaStatus {
    let ReplicaStatus::Ended { exit, reason: EndReason::Exited } = status else { return status };
    let reason = match exit {
        _ if pod.seen.deleting || pod.gone && pod.seen.disruption.is_some() => taken(),
        Some(exit) => EndReason::Lost(format!("the head of the Ray cluster ended: {exit}")),
        None => EndReason::Lost("the head of the Ray cluster ended".to_owned()),
    };
    ReplicaStatus::Ended { exit: None, reason }
}

/// Whether a worker is one: one that is over has been, or will be, replaced. Where it cannot start, the driver is never submitted.
fn matters(status: &ReplicaStatus, job: Option<&JobSeen>) -> bool {
    match status {
        ReplicaStatus::Ended { reason: EndReason::StartError(_), .. } => {
            job.is_some_and(|job| !job.submitted)
        }
        ReplicaStatus::Ended { .. } => false,
        ReplicaStatus::Pending(_) | ReplicaStatus::Blocked(_) | ReplicaStatus::Running => true,
    }
}

/// Whether the head's end says more than the driver's: what befell the pod is why the driver failed.
fn explains(head: &ReplicaStatus, driver: &ReplicaStatus) -> bool {
    let succeeded = matches!(driver, ReplicaStatus::Ended { exit: Some(exit), .. } if exit.is_success());
    let befell = matches!(
        head,
        ReplicaStatus::Ended {
            reason: EndReason::OomKilled
                | EndReason::Preempted(_)
                | EndReason::Evicted(_)
                | EndReason::NodeLost(_)
                | EndReason::StartError(_),
            ..
        }
    );
    befell && !succeeded
}

#[cfg(test)]
#[path = "tests/ray.rs"]
mod tests;
