//! An attempt's object from a pasted one: everything stays as it is but for what Holdfast needs to be its only driver. Pure.
//!
//! What is overridden is the list of [`engine::job::Manifest::overrides`]. What is added is what [`super::pod`] gives a job without a
//! manifest: the agent before the program's command, its init container, volumes and variables, the tolerations and the affinity.

use std::collections::BTreeMap;

use engine::job::{JobKind, PodOptions};
use serde_json::{Map, Value, json};

use super::{
    manifest, names,
    pod::{self, Part},
    settings::KubernetesSettings,
};
use crate::clusters::Order;

/// Roles of a PyTorchJob's replicas.
const ROLES: [&str; 2] = ["Master", "Worker"];
/// What an installer in the pod of a restricted user may be as well; what else the program's container may do it does not need.
const SECURITY: [&str; 5] =
    ["runAsUser", "runAsGroup", "runAsNonRoot", "allowPrivilegeEscalation", "seccompProfile"];
/// Fields of a RayJob that say who submits its driver, and when its cluster goes.
const NOT_THEIRS: [&str; 3] = ["submitterPodTemplate", "submitterConfig", "deletionStrategy"];
/// What the node of Ray's head alone has, and as much of it as does not matter.
const HEAD: (&str, f64) = ("node:__internal_head__", 0.001);

type Fields = Map<String, Value>;

/// Labels or annotations.
pub(super) type Marks = BTreeMap<String, String>;

/// What an attempt's object says beside its metadata.
pub(super) fn body(
    base: &Value,
    order: &Order,
    settings: &KubernetesSettings,
    labels: &Marks,
) -> Result<Value, String> {
    let mut body = base.clone();
    let fields = body.as_object_mut().ok_or("the job's manifest is no object")?;
    // The object's own metadata are made anew, and what it is, is said by the caller.
    ["apiVersion", "kind", "metadata"].iter().for_each(|name| drop(fields.remove(*name)));
    let spec = object(fields, "spec")?;
    match order.spec.kind {
        JobKind::PyTorchJob => pytorch(spec, order, settings, labels)?,
        JobKind::RayJob => ray(spec, order, settings, labels)?,
    }
    Ok(body)
}

fn pytorch(
    spec: &mut Fields,
    order: &Order,
    settings: &KubernetesSettings,
    labels: &Marks,
) -> Result<(), String> {
    let ours = ours(order, Part::PyTorch, settings)?;
    let policy = object(spec, "runPolicy")?;
    policy.insert("backoffLimit".to_owned(), json!(0));
    policy.insert("cleanPodPolicy".to_owned(), json!("None"));
    policy.remove("ttlSecondsAfterFinished");
    if let Some(restarts) = spec.get_mut("elasticPolicy").and_then(|policy| policy.get_mut("maxRestarts")) {
        *restarts = json!(0);
    }
    let replicas = object(spec, "pytorchReplicaSpecs")?;
    for role in ROLES {
        if let Some(replica) = replicas.get_mut(role).and_then(Value::as_object_mut) {
            replica.insert("restartPolicy".to_owned(), json!("Never"));
            let count = replica.entry("replicas").or_insert(Value::Null);
            if count.is_null() {
                *count = json!(1);
            }
            template(object(replica, "template")?, Part::PyTorch, &ours, labels)?;
        }
    }
    Ok(())
}

fn ray(
    spec: &mut Fields,
    order: &Order,
    settings: &KubernetesSettings,
    labels: &Marks,
) -> Result<(), String> {
    NOT_THEIRS.iter().for_each(|name| drop(spec.remove(*name)));
    if order.spec.kubernetes.manifest.as_ref().is_some_and(engine::job::Manifest::driver_takes) {
        onto_the_head(spec)?;
    }
    spec.extend(manifest::ray_driver(order, settings));
    let cluster = object(spec, "rayClusterSpec")?;
    let head = object(object(cluster, "headGroupSpec")?, "template")?;
    template(head, Part::RayHead, &ours(order, Part::RayHead, settings)?, labels)?;
    let mut workers = ours(order, Part::RayWorker, settings)?;
    // There is no agent that would need time.
    workers["terminationGracePeriodSeconds"] = Value::Null;
    for group in list(cluster, "workerGroupSpecs")? {
        let group = group.as_object_mut().ok_or("a group of workers in the job's manifest is no object")?;
        template(object(group, "template")?, Part::RayWorker, &workers, labels)?;
    }
    Ok(())
}

/// A driver that asks for a part of the cluster would be put on any node that has it; the agent is on the head.
fn onto_the_head(spec: &mut Fields) -> Result<(), String> {
    let name = "entrypointResources";
    let given = spec.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let mut resources: Fields = given
        .map_or(Ok(Map::new()), serde_json::from_str)
        .map_err(|why| format!("{name} of the job's manifest is no object in JSON: {why}"))?;
    resources.insert(HEAD.0.to_owned(), json!(HEAD.1));
    spec.insert(name.to_owned(), json!(Value::from(resources).to_string()));
    Ok(())
}

/// Labels and annotations of the pasted object.
pub(super) fn marks(base: &Value, name: &str) -> Marks {
    let found = base.get("metadata").and_then(|metadata| metadata.get(name)).and_then(Value::as_object);
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    found.into_iter().flatten().filter_map(text).collect()
}

/// The pod of a job that asks for nothing: all that is in it is what Holdfast adds.
fn ours(order: &Order, part: Part, settings: &KubernetesSettings) -> Result<Value, String> {
    let mut bare = order.clone();
    let spec = &mut bare.spec;
    spec.command.clear();
    spec.env.clear();
    spec.working_dir = None;
    spec.accelerators_per_replica = 0;
    spec.kubernetes = PodOptions::default();
    pod::template(&bare, part, settings, &Marks::new()).map(|mut template| template["spec"].take())
}

fn template(template: &mut Fields, part: Part, ours: &Value, labels: &Marks) -> Result<(), String> {
    let metadata = object(template, "metadata")?;
    object(metadata, "labels")?.extend(labels.iter().map(|(key, value)| (key.clone(), json!(value))));
    if part.kind() == JobKind::RayJob {
        // Its name is the owner's to choose, and admission may put another before it.
        let named = template.get("spec").and_then(|pod| pod.pointer("/containers/0/name")).cloned();
        let annotations = object(object(template, "metadata")?, "annotations")?;
        annotations.extend(named.map(|name| (names::MAIN.to_owned(), name)));
    }
    let pod = object(template, "spec")?;
    let context = program(pod, part, ours)?;
    append(pod, "volumes", &ours["volumes"])?;
    append(pod, "tolerations", &ours["tolerations"])?;
    let mut installers = items(&ours["initContainers"]);
    if !context.is_empty() {
        installers.iter_mut().for_each(|installer| installer["securityContext"] = json!(context));
    }
    if !installers.is_empty() {
        // Before the job's own, so that an agent that cannot be had is told at once.
        list(pod, "initContainers")?.splice(0..0, installers);
    }
    pod.insert("restartPolicy".to_owned(), json!("Never"));
    if let Some(least) = ours["terminationGracePeriodSeconds"].as_u64() {
        let theirs = pod.get("terminationGracePeriodSeconds").and_then(Value::as_u64);
        let seconds = theirs.unwrap_or(0).max(least);
        pod.insert("terminationGracePeriodSeconds".to_owned(), json!(seconds));
    }
    keep_off(pod, &ours["affinity"])
}

/// Puts the agent before the program. Gives back what its container is allowed, as far as another that copies a file needs it.
fn program(pod: &mut Fields, part: Part, ours: &Value) -> Result<Fields, String> {
    let own = &ours["containers"][0];
    let mut containers = list(pod, "containers")?.iter_mut();
    let container = match part.kind() {
        JobKind::PyTorchJob => containers.find(|container| container["name"] == names::CONTAINER),
        // KubeRay's own choice.
        JobKind::RayJob => containers.next(),
    };
    let container = container
        .and_then(Value::as_object_mut)
        .ok_or("a pod of the job's manifest has no container of the program")?;
    // What follows the command, `args` included, stays behind it. What a Ray container starts with is KubeRay's.
    let command = items(&own["command"]);
    if !command.is_empty() {
        list(container, "command")?.splice(0..0, command);
    }
    // A variable can only use those before it.
    list(container, "env")?.splice(0..0, items(&own["env"]));
    append(container, "volumeMounts", &own["volumeMounts"])?;
    let context = container.get("securityContext").and_then(Value::as_object);
    let mut context: Map<_, _> = context
        .into_iter()
        .flatten()
        .filter(|(name, value)| SECURITY.contains(&name.as_str()) && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if let Some(dropped) = container.get("securityContext").and_then(|own| own.pointer("/capabilities/drop"))
    {
        context.insert("capabilities".to_owned(), json!({ "drop": dropped }));
    }
    Ok(context)
}

/// Adds an exclusion of nodes to every alternative that the pod names: one of them is enough for the scheduler.
fn keep_off(pod: &mut Fields, ours: &Value) -> Result<(), String> {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let excluded = &ours["nodeAffinity"][REQUIRED]["nodeSelectorTerms"][0]["matchFields"];
    if excluded.is_null() {
        return Ok(());
    }
    let required = object(object(object(pod, "affinity")?, "nodeAffinity")?, REQUIRED)?;
    let terms = list(required, "nodeSelectorTerms")?;
    if terms.is_empty() {
        terms.push(json!({ "matchFields": excluded }));
        return Ok(());
    }
    // A term that names nothing matches no node, and must not begin to match all but a few.
    let names =
        |term: &Fields, key| term.get(key).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let terms = terms.iter_mut().filter_map(Value::as_object_mut);
    for term in terms.filter(|term| names(term, "matchExpressions") || names(term, "matchFields")) {
        append(term, "matchFields", excluded)?;
    }
    Ok(())
}

fn append(fields: &mut Fields, name: &str, more: &Value) -> Result<(), String> {
    let more = items(more);
    if !more.is_empty() {
        list(fields, name)?.extend(more);
    }
    Ok(())
}

fn items(list: &Value) -> Vec<Value> {
    list.as_array().cloned().unwrap_or_default()
}

/// A field that is absent, or null, or an object.
fn object<'a>(fields: &'a mut Fields, name: &str) -> Result<&'a mut Fields, String> {
    let slot = fields.entry(name).or_insert(Value::Null);
    if slot.is_null() {
        *slot = json!({});
    }
    slot.as_object_mut().ok_or_else(|| format!("{name} of the job's manifest is no object"))
}

/// A field that is absent, or null, or a list.
fn list<'a>(fields: &'a mut Fields, name: &str) -> Result<&'a mut Vec<Value>, String> {
    let slot = fields.entry(name).or_insert(Value::Null);
    if slot.is_null() {
        *slot = json!([]);
    }
    slot.as_array_mut().ok_or_else(|| format!("{name} of the job's manifest is no list"))
}

#[cfg(test)]
#[path = "tests/pasted_ray.rs"]
mod ray_tests;
#[cfg(test)]
#[path = "tests/pasted.rs"]
mod tests;
