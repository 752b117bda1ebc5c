//! A RayJob: its driver, and what would take it or its cluster out of Holdfast's hands.

use serde_json::{Map, Value};

use super::{At, Checker, OBJECT, Work, all_replicas, count, deadline, managed_by, pod, work};
use crate::{
    job::{JobKind, limits, manifest::WorkerGroup},
    words,
};

/// Who makes Ray clusters.
const KUBERAY: &str = "ray.io/kuberay-operator";

pub(super) fn read(spec: &At<'_>, host_paths: bool, check: &mut Checker) -> Option<Work> {
    let cluster = spec.get("rayClusterSpec");
    ours_to_drive(spec, &cluster, check);
    deadline(spec, check);
    let command = driver(spec, check);
    let head = cluster.get("headGroupSpec");
    for part in [&cluster, &head] {
        if part.fields().is_none() {
            check.refuse(&part.path, "is missing; every attempt makes a Ray cluster of its own by it");
            return None;
        }
    }
    let groups = cluster.get("workerGroupSpecs");
    let workers = check.list(&groups).iter().map(|group| pods_of(group, check)).fold(0, u32::saturating_add);
    let replicas = all_replicas(&groups.path, "the head", 1, workers, check);
    let mut work = work(spec, JobKind::RayJob, replicas, host_paths, check)?;
    pod::beside_the_head(&cluster.get("autoscalerOptions"), host_paths, check);
    on_the_head(spec, &head, work.first.accelerators.0, check);
    work.first.command = command;
    Some(work)
}

/// Pods of a group of workers when its cluster is made.
fn pods_of(group: &At<'_>, check: &mut Checker) -> u32 {
    let mut number = |name, absent| Some(count(&group.get(name), absent, check));
    let group = WorkerGroup {
        replicas: number("replicas", 0),
        min_replicas: number("minReplicas", 0),
        max_replicas: number("maxReplicas", u32::MAX),
        num_of_hosts: number("numOfHosts", 1),
        suspend: group.get("suspend").value.as_bool(),
    };
    group.pods()
}

/// Nobody else starts, keeps or ends what an attempt is made of.
fn ours_to_drive(spec: &At<'_>, cluster: &At<'_>, check: &mut Checker) {
    let selector = spec.get("clusterSelector");
    if selector.fields().is_none_or(|labels| !labels.is_empty()) && !selector.is_absent() {
        check.refuse(
            &selector.path,
            "would choose a cluster that runs already; every attempt has one of its own: leave it out and give rayClusterSpec",
        );
    }
    let mode = spec.get("submissionMode");
    if mode.text() == Some("InteractiveMode") {
        check.refuse(
            &mode.path,
            "would have the driver submitted by somebody else; leave it out and give the entrypoint",
        );
    }
    let submitter = spec.get("submitterPodTemplate").get("spec").get("containers");
    for command in submitter.items().flat_map(|one| ["command", "args"].map(|name| one.get(name))) {
        if !command.is_absent() {
            check.refuse(
                &command.path,
                "would start the driver where no agent is; write what it runs as the entrypoint and leave submitterPodTemplate out",
            );
        }
    }
    for part in [spec, cluster] {
        let suspend = part.get("suspend");
        if *suspend.value == true {
            check.refuse(
                &suspend.path,
                "would have every attempt wait for somebody who lets it run; leave it out: a queue such as Kueue sets it by itself",
            );
        }
        managed_by(part, KUBERAY, "KubeRay", check);
    }
}

/// The driver's command: Ray has a shell start the entrypoint, and so has the agent.
fn driver(spec: &At<'_>, check: &mut Checker) -> Vec<String> {
    let at = spec.get("entrypoint");
    let entrypoint = check.text_of(&at).unwrap_or_default();
    let command = ["/bin/sh", "-c", entrypoint].map(str::to_owned);
    if entrypoint.trim().is_empty() && (at.is_absent() || at.text().is_some()) {
        check.refuse(&at.path, "is missing; write the driver's command");
    } else if entrypoint.contains("holdfast-agent") {
        check.refuse(
            &at.path,
            "starts Holdfast's agent, which is added by itself; paste the manifest that the job was made of",
        );
    } else if words::shell_line(&command).len() > limits::RAY_COMMAND_BYTES {
        let most = limits::RAY_COMMAND_BYTES;
        check.refuse(&at.path, format!("is too long: at most {most} bytes as a quoted word of a shell"));
    }
    let environment = spec.get("runtimeEnvYAML");
    if check.text_of(&environment).is_some_and(|text| text.contains("HOLDFAST_")) {
        check.refuse(&environment.path, "holds a variable of Holdfast's; remove what begins with HOLDFAST_");
    }
    command.into()
}

/// What the driver asks for has to be on the head.
fn on_the_head(spec: &At<'_>, head: &At<'_>, accelerators: u32, check: &mut Checker) {
    let resources = spec.get("entrypointResources");
    if let Some(text) = check.text_of(&resources).filter(|text| !text.trim().is_empty())
        && serde_json::from_str::<Map<String, Value>>(text).is_err()
    {
        check.refuse(&resources.path, format!("{OBJECT}, as a text of JSON such as '{{\"name\": 1}}'"));
    }
    let parameters = head.get("rayStartParams");
    for (name, counted, on_nodes) in
        [("entrypointNumCpus", "num-cpus", 1), ("entrypointNumGpus", "num-gpus", accelerators)]
    {
        let (wanted, given) = (spec.get(name), parameters.get(counted));
        let has_none = given.text().map_or(on_nodes == 0, |text| text.trim() == "0");
        if has_none && wanted.value.as_f64().is_some_and(|wanted| wanted > 0.0) {
            check.refuse(
                &wanted.path,
                format!("cannot be had: the driver runs on the head, which gives Ray no {counted}"),
            );
        }
    }
}

#[cfg(test)]
mod tests;
