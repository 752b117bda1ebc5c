//! The pod template of one role: what runs in it, and what cannot stay in it beside the agent.

use std::collections::BTreeMap;

use super::{At, Checker, LIST, TEXT};
use crate::job::{
    JobKind, limits, manifest,
    pods::{OVER_OURS, is_over_ours, plain_path},
    quantity::Quantity,
    validate::names,
};

/// Names that Holdfast's own container and volumes have in each pod.
const OUR_CONTAINER: &str = "holdfast-install";
const OUR_VOLUMES: [&str; 2] = ["holdfast", "holdfast-token"];
/// Linux capabilities that open the node to a container.
const OPENS_THE_NODE: [&str; 7] =
    ["ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO", "DAC_READ_SEARCH", "BPF"];
const NOT_ALLOWED: &str =
    "opens the directories of the node to the job, which this cluster does not allow; leave it out";
/// What shares the node's own processes, memory or network with a pod.
const SHARED_WITH_THE_NODE: [(&str, &str); 3] = [
    ("hostPID", NOT_ALLOWED),
    ("hostIPC", "opens the node's shared memory to the job, which this cluster does not allow; leave it out"),
    (
        "hostNetwork",
        "opens the node's own network to the job, which this cluster does not allow; leave it out",
    ),
];

/// What has Ray put a driver elsewhere than on the head.
const DRIVER_ANYWHERE: &str = "RAY_JOB_ALLOW_DRIVER_ON_WORKER_NODES";

/// Which pods a template is for.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub kind: JobKind,
    /// The agent is in them and starts the job's command.
    pub starts: bool,
}

/// What a job is made of, as a template says it.
#[derive(Default)]
pub(super) struct Reading {
    pub image: String,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub accelerators: (u32, Option<String>),
    pub working_dir: Option<String>,
}

pub(super) fn read(replica: &At<'_>, part: Part, host_paths: bool, check: &mut Checker) -> Reading {
    check.object(replica.clone());
    let template = check.object(replica.get("template"));
    let metadata = check.object(template.get("metadata"));
    check.marks(&metadata);
    let pod = check.object(template.get("spec"));
    if !pod.get("nodeName").is_absent() {
        check.refuse(
            &pod.get("nodeName").path,
            "passes the scheduler over, so that no attempt could keep off a node; use nodeSelector",
        );
    }
    names_of_ours(&pod, check);
    if !host_paths {
        closed_node(&pod, check);
    }
    if part.kind == JobKind::RayJob && part.starts {
        own_first_process(&pod, check);
    }
    let containers = pod.get("containers");
    check.list(&containers);
    match manifest::program(&pod, part.kind) {
        Some(program) => container(&program, part, check),
        None => {
            let why = match part.kind {
                JobKind::PyTorchJob => "has no container named pytorch, which the training operator asks for",
                JobKind::RayJob => "has no container; the first one is Ray's",
            };
            check.refuse(&containers.path, why);
            Reading::default()
        }
    }
}

/// The driver's output goes to where the first process of the head's container prints, which has to be that container's own.
fn own_first_process(pod: &At<'_>, check: &mut Checker) {
    for shared in ["shareProcessNamespace", "hostPID"].map(|name| pod.get(name)) {
        if *shared.value == true {
            check.refuse(
                &shared.path,
                "would hide the first process of the head's container, where the driver's output goes; leave it out",
            );
        }
    }
}

/// Names that Holdfast gives to what it adds.
fn names_of_ours(pod: &At<'_>, check: &mut Checker) {
    let mut taken = |list: &str, ours: &[&str]| {
        for entry in pod.get(list).items() {
            let name = entry.get("name");
            if name.text().is_some_and(|name| ours.contains(&name)) {
                check.refuse(
                    &name.path,
                    "is the name of what Holdfast adds; use another, or if this is an attempt's manifest, paste the one that the job was made of",
                );
            }
        }
    };
    taken("volumes", &OUR_VOLUMES);
    taken("initContainers", &[OUR_CONTAINER]);
    taken("containers", &[OUR_CONTAINER]);
}

/// What gives a pod something of the node itself: its directories, in all their ways, its shared memory, its network.
fn closed_node(pod: &At<'_>, check: &mut Checker) {
    for volume in pod.get("volumes").items() {
        let source = volume.get("hostPath");
        if !source.is_absent() {
            check.refuse(
                &source.path,
                "is a directory of the node, which this cluster does not allow; use a claim",
            );
        }
    }
    for (name, why) in SHARED_WITH_THE_NODE {
        let shared = pod.get(name);
        if shared.value.as_bool() == Some(true) {
            check.refuse(&shared.path, why);
        }
    }
    for container in ["initContainers", "containers"].iter().flat_map(|list| pod.get(list).items()) {
        keeps_node_closed(&container, check);
    }
}

/// What gives a container more of the node than is its own.
fn keeps_node_closed(container: &At<'_>, check: &mut Checker) {
    let context = container.get("securityContext");
    let privileged = context.get("privileged");
    if privileged.value.as_bool() == Some(true) {
        check.refuse(&privileged.path, NOT_ALLOWED);
    }
    for capability in context.get("capabilities").get("add").items() {
        let name = capability.text().unwrap_or_default().to_ascii_uppercase();
        if OPENS_THE_NODE.contains(&name.strip_prefix("CAP_").unwrap_or(&name)) {
            check.refuse(&capability.path, NOT_ALLOWED);
        }
    }
}

/// Options of which KubeRay makes another container of the head. It is in no template, and no less on the node for that.
pub(super) fn beside_the_head(options: &At<'_>, host_paths: bool, check: &mut Checker) {
    check.object(options.clone());
    if !host_paths {
        keeps_node_closed(options, check);
    }
    let head = Part { kind: JobKind::RayJob, starts: true };
    mounts(options, head, check);
    env(&options.get("env"), head, check);
}

/// The program's container.
fn container(container: &At<'_>, part: Part, check: &mut Checker) -> Reading {
    let image = container.get("image");
    let found = check.text_of(&image).map(str::trim).unwrap_or_default();
    if found.is_empty() && (image.is_absent() || image.text().is_some()) {
        check.refuse(&image.path, "is missing; Kubernetes needs one");
    }
    check.text(&image.path, found, 512);
    mounts(container, part, check);
    Reading {
        image: found.to_owned(),
        // That of a Ray container is no job's.
        command: if part.kind == JobKind::PyTorchJob { command(container, check) } else { Vec::new() },
        env: env(&container.get("env"), part, check),
        accelerators: accelerators(&container.get("resources"), check),
        // Ray starts the driver in a directory of its own.
        working_dir: check
            .text_of(&container.get("workingDir"))
            .filter(|dir| !dir.is_empty() && part.kind == JobKind::PyTorchJob)
            .map(str::to_owned),
    }
}

/// Volumes that would lie over what the agent brings.
fn mounts(container: &At<'_>, part: Part, check: &mut Checker) {
    for mount in check.list(&container.get("volumeMounts")) {
        let path = mount.get("mountPath");
        let plain = plain_path(path.text().unwrap_or_default());
        if part.starts && is_over_ours(&plain) {
            check.refuse(&path.path, OVER_OURS);
        }
    }
}

/// The program and all its arguments.
fn command(container: &At<'_>, check: &mut Checker) -> Vec<String> {
    let mut words = |name: &str| {
        let at = container.get(name);
        if !at.value.is_array() && !at.is_absent() {
            check.refuse(&at.path, LIST);
        }
        at.items()
            .map(|item| {
                if item.text().is_none() {
                    check.refuse(&item.path, TEXT);
                }
                item.text().unwrap_or_default().to_owned()
            })
            .collect::<Vec<_>>()
    };
    let (command, args) = (words("command"), words("args"));
    let at = container.get("command");
    if command.is_empty() && (at.is_absent() || at.value.is_array()) {
        check.refuse(
            &at.path,
            "is missing; the agent starts the program, and what the image would start is not known here: write the program, which args follow",
        );
    } else if command.first().is_some_and(|program| program.ends_with("holdfast-agent")) {
        check.refuse(
            &at.path,
            "starts Holdfast's agent, which is added by itself; paste the manifest that the job was made of",
        );
    }
    command.into_iter().chain(args).collect()
}

/// The variables that have a value of their own.
fn env(list: &At<'_>, part: Part, check: &mut Checker) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for variable in check.list(list) {
        let at = variable.get("name");
        let name = check.text_of(&at).unwrap_or_default();
        if part.kind == JobKind::RayJob && name == DRIVER_ANYWHERE {
            check.refuse(&at.path, "would have the driver where no agent is; remove it");
        } else if part.kind == JobKind::PyTorchJob || super::is_ours(name) {
            check.reserved(&at.path, name);
        }
        let value = check.text_of(&variable.get("value"));
        if variable.get("valueFrom").is_absent() && !name.is_empty() {
            env.insert(name.to_owned(), value.unwrap_or_default().to_owned());
        }
    }
    env
}

/// How many accelerators, and what counts them.
fn accelerators(resources: &At<'_>, check: &mut Checker) -> (u32, Option<String>) {
    for kind in ["limits", "requests"] {
        let amounts = check.object(resources.get(kind));
        let keys = amounts.fields().into_iter().flat_map(serde_json::Map::keys);
        let Some(key) = keys.into_iter().find(|key| is_accelerator(key)) else { continue };
        let at = amounts.get(key);
        let amount = match at.value {
            serde_json::Value::String(text) => Quantity::read(text).map(Quantity::units),
            value => value.as_u64().map(u128::from),
        };
        let most = limits::ACCELERATORS.unsigned_abs();
        match amount.and_then(|amount| u32::try_from(amount).ok()).filter(|amount| u64::from(*amount) <= most)
        {
            Some(amount) => return (amount, Some(key.clone())),
            None => check.refuse(&at.path, format!("must be a whole number from 0 to {most}")),
        }
    }
    (0, None)
}

/// Whether a resource counts accelerators: devices have a domain, and those that are none (network cards, parts of a GPU's memory) other
/// names.
fn is_accelerator(resource: &str) -> bool {
    let Some((domain, name)) = resource.split_once('/').filter(|_| names::is_device_resource(resource))
    else {
        return false;
    };
    let name = name.to_ascii_lowercase();
    let is_part = ["mem", "core", "percent"].iter().any(|part| name.contains(part));
    let counts = name.contains("gpu")
        || ["mig-", "tpu", "gaudi", "ascend", "mlu"].iter().any(|start| name.starts_with(start))
        || (domain == "gpu.intel.com" || (domain == "aws.amazon.com" && name.starts_with("neuron")));
    counts && !is_part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_accelerators_is_told_from_other_devices() {
        for (resource, want) in [
            ("nvidia.com/gpu", true),
            ("nvidia.com/gpu.shared", true),
            ("nvidia.com/mig-3g.40gb", true),
            ("amd.com/gpu", true),
            ("gpu.intel.com/xe", true),
            ("habana.ai/gaudi", true),
            ("huawei.com/Ascend910", true),
            ("google.com/tpu", true),
            ("aws.amazon.com/neurondevice", true),
            ("aws.amazon.com/neuroncore", false),
            ("vpc.amazonaws.com/efa", false),
            ("rdma/hca", false),
            ("nvidia.com/gpumem", false),
            ("volcano.sh/vgpu-memory", false),
            ("gpu", false),
            ("cpu", false),
            ("hugepages-2Mi", false),
        ] {
            assert_eq!(is_accelerator(resource), want, "{resource}");
        }
    }
}
