//! How Holdfast's objects on a cluster are named and marked.

use engine::{ids::TaskId, job::JobKind};
use kube::core::{ApiResource, GroupVersionKind};

use super::settings::KubernetesSettings;

/// The installation that made an object.
pub(super) const INSTANCE: &str = "holdfast.dev/instance";
/// The configured cluster whose it is: two that are the same namespaces of the same API server never touch each other's objects.
pub(super) const CLUSTER: &str = "holdfast.dev/cluster";
/// The job.
pub(super) const JOB: &str = "holdfast.dev/job";
/// The attempt's task ID.
pub(super) const TASK: &str = "holdfast.dev/task";
/// The attempt's number.
pub(super) const ATTEMPT: &str = "holdfast.dev/attempt";
/// What was ordered, as a hash.
pub(super) const SPEC_HASH: &str = "holdfast.dev/spec-hash";
/// Nodes that the attempt keeps off, with commas between.
pub(super) const AVOIDED: &str = "holdfast.dev/avoided-nodes";
/// The job's name as its owner wrote it.
pub(super) const JOB_NAME: &str = "holdfast.dev/job-name";
/// Of a pod: the container that is the replica, where it is not called as usual.
pub(super) const MAIN: &str = "holdfast.dev/container";

/// The training operator's label: `master` or `worker`.
pub(super) const REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";
/// The training operator's label: from 0 in each type.
pub(super) const REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";

/// KubeRay's label: `head` or `worker`.
pub(super) const RAY_NODE_TYPE: &str = "ray.io/node-type";

/// The container of the program; the training operator asks for this name.
pub(super) const CONTAINER: &str = "pytorch";
/// The container of a Ray cluster's pod, where a job is made of its fields. KubeRay takes the first one, whatever its name.
pub(super) const RAY_CONTAINER: &str = "ray";
/// Keeps a RayJob until KubeRay has stopped its driver.
pub(super) const RAY_FINALIZER: &str = "ray.io/rayjob-finalizer";

/// Kinds of jobs, each an operator's.
pub(super) const KINDS: [JobKind; 2] = [JobKind::PyTorchJob, JobKind::RayJob];

/// The operator's object of a job: `kubeflow.org/v1 PyTorchJob`, `ray.io/v1 RayJob`.
pub(super) fn resource(kind: JobKind) -> ApiResource {
    let (group, name, plural) = match kind {
        JobKind::PyTorchJob => ("kubeflow.org", "PyTorchJob", "pytorchjobs"),
        JobKind::RayJob => ("ray.io", "RayJob", "rayjobs"),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", name), plural)
}

/// Who makes the pods of a job.
pub(super) fn operator(kind: JobKind) -> &'static str {
    match kind {
        JobKind::PyTorchJob => "the training operator",
        JobKind::RayJob => "KubeRay",
    }
}

/// The event of an entry of an attempt's history: the same one whoever tells it.
pub(super) fn event_of(task: &TaskId, (generation, n): (i64, i64)) -> String {
    format!("{task}.{generation}-{n}")
}

/// The event of an attempt's removal.
pub(super) fn removal_of(task: &TaskId, force: bool) -> String {
    format!("{task}.removed{}", if force { "-by-force" } else { "" })
}

/// The Secret with the tokens of an attempt's agents.
pub(super) fn secret_of(task: &TaskId) -> String {
    format!("{task}-agents")
}

/// A label selector for all objects of a configured cluster.
pub(super) fn of_cluster(settings: &KubernetesSettings) -> String {
    format!("{INSTANCE}={},{CLUSTER}={}", settings.instance, settings.name)
}

/// A label selector for the objects of one attempt.
pub(super) fn of_task(settings: &KubernetesSettings, task: &TaskId) -> String {
    format!("{},{TASK}={task}", of_cluster(settings))
}
