//! How Holdfast's objects on a cluster are named and marked.

use std::collections::BTreeMap;

use engine::{ids::TaskId, job::JobKind};
use kube::core::{ApiResource, GroupVersionKind};

use super::settings::{CLUSTER_OF_FLAGS, KubernetesSettings};

/// The installation that made an object.
pub(super) const INSTANCE: &str = "holdfast.dev/instance";
/// The configured cluster whose it is: two that are the same namespaces of the same API server never touch each other's objects. Absent on
/// objects from before there could be several.
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

/// The event of an entry of an attempt's history: the same one whoever tells it. kubectl shows events of one object in the order of their
/// names, as those of `events.k8s.io/v1` lack the time by which it would sort: numbers have as many digits as they come to.
pub(super) fn event_of(task: &TaskId, (generation, n): (i64, i64)) -> String {
    format!("{task}.{generation:010}-{n:04}")
}

/// The event of an attempt's removal, after all the others.
pub(super) fn removal_of(task: &TaskId, force: bool) -> String {
    format!("{task}.removed{}", if force { "-by-force" } else { "" })
}

/// The Secret with the tokens of an attempt's agents.
pub(super) fn secret_of(task: &TaskId) -> String {
    format!("{task}-agents")
}

/// A label selector that finds all objects of a configured cluster, and maybe those of others: see [`is_of_cluster`].
pub(super) fn of_cluster(settings: &KubernetesSettings) -> String {
    let instance = of_instance(settings);
    // No selector finds what is absent or equal.
    if owns_nameless(settings) { instance } else { format!("{instance},{}", of_name(settings)) }
}

/// Whether objects with these labels are of a configured cluster.
pub(super) fn is_of_cluster(settings: &KubernetesSettings, labels: &BTreeMap<String, String>) -> bool {
    let cluster = labels.get(CLUSTER).map_or(CLUSTER_OF_FLAGS, String::as_str);
    cluster == settings.name && labels.get(INSTANCE) == Some(&settings.instance)
}

/// A label selector that finds the objects of one attempt, with the same reserve.
pub(super) fn of_task(settings: &KubernetesSettings, task: &TaskId) -> String {
    format!("{},{TASK}={task}", of_cluster(settings))
}

/// Label selectors that together find the objects of one attempt and nothing else: for what is done without looking at them one by one.
pub(super) fn exactly_of_task(settings: &KubernetesSettings, task: &TaskId) -> Vec<String> {
    let nameless = owns_nameless(settings).then(|| format!("!{CLUSTER}"));
    let clusters = std::iter::once(of_name(settings)).chain(nameless);
    clusters.map(|cluster| format!("{},{cluster},{TASK}={task}", of_instance(settings))).collect()
}

fn of_instance(settings: &KubernetesSettings) -> String {
    format!("{INSTANCE}={}", settings.instance)
}

fn of_name(settings: &KubernetesSettings) -> String {
    format!("{CLUSTER}={}", settings.name)
}

/// Objects without [`CLUSTER`] were made when flags described the one cluster that there was, and are its.
fn owns_nameless(settings: &KubernetesSettings) -> bool {
    settings.name == CLUSTER_OF_FLAGS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::kubernetes::fake;

    fn named(name: &str) -> KubernetesSettings {
        KubernetesSettings { name: name.to_owned(), ..fake::settings() }
    }

    #[test]
    fn an_object_without_a_cluster_is_of_the_one_that_flags_describe() {
        for (cluster, label, want) in [
            ("kubernetes", None, true),
            ("kubernetes", Some("kubernetes"), true),
            ("kubernetes", Some("gpu-a"), false),
            ("gpu-a", None, false),
            ("gpu-a", Some("gpu-a"), true),
            ("gpu-a", Some("kubernetes"), false),
        ] {
            let of = |instance: &str| -> BTreeMap<String, String> {
                let marks = [(INSTANCE, Some(instance)), (CLUSTER, label)];
                let marks =
                    marks.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
                marks.collect()
            };
            let settings = named(cluster);
            assert_eq!(is_of_cluster(&settings, &of(&settings.instance)), want, "{cluster}: {label:?}");
            assert!(!is_of_cluster(&settings, &of("another")), "{cluster}: {label:?}");
        }
    }

    #[test]
    fn names_of_events_sort_as_things_happened_and_are_names() {
        let longest = TaskId::new("a".repeat(63)).unwrap();
        let places = [(0, 1), (1, 9), (1, 10), (1, 1_000), (9, 1), (10, 0), (1_000_000, 3), (i64::MAX, 0)];
        let told = places.map(|place| event_of(&longest, place));
        let removals = [false, true].map(|force| removal_of(&longest, force));
        let names: Vec<_> = told.into_iter().chain(removals).collect();
        assert!(names.is_sorted(), "{names:#?}");
        assert!(names.iter().all(|name| name.len() <= 253), "{names:#?}");
    }

    #[test]
    fn selectors_find_all_of_a_cluster_and_what_removes_finds_nothing_else() {
        const OURS: &str = "holdfast.dev/instance=0123456789abcdef";
        let task = fake::task();
        let of_task = format!("holdfast.dev/task={task}");
        let flags = named("kubernetes");
        assert_eq!(of_cluster(&flags), OURS);
        assert_eq!(super::of_task(&flags, &task), format!("{OURS},{of_task}"));
        assert_eq!(
            exactly_of_task(&flags, &task),
            [
                format!("{OURS},holdfast.dev/cluster=kubernetes,{of_task}"),
                format!("{OURS},!holdfast.dev/cluster,{of_task}"),
            ]
        );
        let other = named("gpu-a");
        let selector = format!("{OURS},holdfast.dev/cluster=gpu-a");
        assert_eq!(of_cluster(&other), selector);
        assert_eq!(super::of_task(&other, &task), format!("{selector},{of_task}"));
        assert_eq!(exactly_of_task(&other, &task), [format!("{selector},{of_task}")]);
    }
}
