//! From a pasted object to what a job is made of, or to every place of it that cannot be run. Errors carry the path in the object.
//!
//! Only what Holdfast relies on is judged; all else is kept as it is and left to the API server.

mod pod;
mod ray;

use serde_json::Value;

use super::{Checker, NAMESPACE, Program, is_ours, names, pods::default_namespace};
use crate::{
    ids::is_dns_label,
    job::{
        JobDraft, JobKind, Manifest, PodOptions, SiteCluster, limits,
        manifest::{At, ROLES, groups},
    },
    words,
};

/// Where a draft has the object.
const ROOT: &str = "kubernetes.manifest";
/// The end of the domain of everything that Holdfast marks.
const OUR_DOMAIN: &str = "holdfast.dev";
const OBJECT: &str = "must be an object with named fields";
const LIST: &str = "must be a list";
const TEXT: &str = "must be a text; put it in quotes";
/// What can be pasted.
const KINDS: &str = "paste a PyTorchJob of kubeflow.org/v1 or a RayJob of ray.io/v1";

/// Who makes the pods of PyTorchJobs.
const TRAINING_OPERATOR: &str = "kubeflow.org/training-operator";

/// What the fields of a job are read from.
struct Reading {
    name: Option<String>,
    namespace: Option<String>,
    work: Work,
}

/// What of it depends on the kind.
struct Work {
    replicas: u32,
    /// The pod of the first replica, the master or the head.
    first: pod::Reading,
    /// The largest of all replicas, with what counts it.
    accelerators: (u32, Option<String>),
}

impl JobDraft {
    /// What the job is made of, as the object says it; the draft may say the same and nothing else.
    pub(super) fn pasted(
        &self,
        manifest: &Manifest,
        cluster: Option<&SiteCluster>,
        check: &mut Checker,
    ) -> Program {
        let mut program = Program::default();
        let root = At { path: ROOT.to_owned(), value: manifest.object() };
        let Some(kind) = kind(&root, check) else { return program };
        let before = check.errors.len();
        let Some(Reading { name, namespace, work }) = read(&root, kind, cluster, check) else {
            return program;
        };
        program.kind = kind;
        program.name = name;
        program.image = Some(work.first.image);
        program.command = work.first.command;
        program.env = work.first.env;
        program.replicas = work.replicas;
        // A pod starts its command once; what is more the command starts itself, as torchrun does by `nprocPerNode`.
        program.processes_per_replica = 1;
        let (accelerators, resource) = work.accelerators;
        program.accelerators_per_replica = accelerators;
        program.working_dir = work.first.working_dir;
        program.kubernetes = PodOptions {
            namespace: namespace.or_else(|| default_namespace(cluster)),
            accelerator: resource,
            manifest: Some(manifest.base()),
            ..PodOptions::default()
        };
        if check.errors.len() == before {
            self.repeats(&program, check);
        }
        program
    }

    /// Fields that are said beside the object say the same.
    fn repeats(&self, program: &Program, check: &mut Checker) {
        let count = |given: Option<i64>, read: u32| given.is_some_and(|given| given != i64::from(read));
        let text = |given: &Option<String>, read: &Option<String>| given.is_some() && given != read;
        let options = &self.kubernetes;
        for (field, differs) in [
            ("kind", self.kind.is_some_and(|kind| kind != program.kind)),
            ("image", text(&self.image, &program.image)),
            ("command", !self.command.is_empty() && self.command != program.command),
            ("env", !self.env.is_empty() && self.env != program.env),
            ("replicas", count(self.replicas, program.replicas)),
            ("processes_per_replica", count(self.processes_per_replica, program.processes_per_replica)),
            (
                "accelerators_per_replica",
                count(self.accelerators_per_replica, program.accelerators_per_replica),
            ),
            ("working_dir", text(&self.working_dir, &program.working_dir)),
            (NAMESPACE, text(&options.namespace, &program.kubernetes.namespace)),
            ("kubernetes.accelerator", text(&options.accelerator, &program.kubernetes.accelerator)),
        ] {
            if differs {
                check.refuse(
                    field,
                    "is read from the manifest, which says otherwise; change it there and leave this out",
                );
            }
        }
        let only_there = PodOptions { namespace: None, accelerator: None, manifest: None, ..options.clone() };
        for field in only_there.set_fields() {
            check.refuse(field, "is for jobs without a manifest; write it there and leave this out");
        }
    }
}

/// The kind of an object that can be looked at further.
fn kind(root: &At<'_>, check: &mut Checker) -> Option<JobKind> {
    let before = check.errors.len();
    if root.fields().is_none() {
        check.refuse(ROOT, "is no object with named fields; paste one PyTorchJob or RayJob as YAML or JSON");
        return None;
    }
    let bytes = root.value.to_string().len();
    if bytes > limits::MANIFEST_BYTES {
        let most = words::grouped(limits::MANIFEST_BYTES as u64);
        check.refuse(
            ROOT,
            format!("has {} bytes as JSON; at most {most} are taken", words::grouped(bytes as u64)),
        );
    }
    match deepest(root.value, limits::MANIFEST_DEPTH) {
        None => check.refuse(ROOT, format!("is nested more than {} deep", limits::MANIFEST_DEPTH)),
        Some(holds_nul) if holds_nul => {
            check.refuse(ROOT, "holds a NUL character, which no program can be given")
        }
        Some(_) => {}
    }
    let text = |name| root.get(name).text().unwrap_or_default();
    let shown: String = text("kind").chars().take(80).collect();
    let (found, version) = match text("kind") {
        "PyTorchJob" => (JobKind::PyTorchJob, "kubeflow.org/v1"),
        "RayJob" => (JobKind::RayJob, "ray.io/v1"),
        other => {
            let why = match other {
                "" => format!("is missing; {KINDS}"),
                "List" => "is List; paste the one job of it that is to be run".to_owned(),
                "TrainJob" => "is TrainJob, which is not supported yet; use PyTorchJob v1".to_owned(),
                _ => format!("is {shown}, which is not run here; {KINDS}"),
            };
            check.refuse(&format!("{ROOT}.kind"), why);
            return None;
        }
    };
    if text("apiVersion") != version {
        check.refuse(&format!("{ROOT}.apiVersion"), format!("must be {version} for a {shown}"));
    }
    (check.errors.len() == before).then_some(found)
}

/// Whether any text holds NUL; none where it is nested deeper than this.
fn deepest(value: &Value, left: usize) -> Option<bool> {
    match value {
        Value::String(text) => Some(text.contains('\0')),
        Value::Array(items) => {
            let left = left.checked_sub(1)?;
            items.iter().try_fold(false, |nul, item| Some(deepest(item, left)? || nul))
        }
        Value::Object(fields) => {
            let left = left.checked_sub(1)?;
            fields
                .iter()
                .try_fold(false, |nul, (key, item)| Some(deepest(item, left)? || nul || key.contains('\0')))
        }
        _ => Some(false),
    }
}

fn read(root: &At<'_>, kind: JobKind, cluster: Option<&SiteCluster>, check: &mut Checker) -> Option<Reading> {
    let metadata = check.object(root.get("metadata"));
    let name = name(&metadata, check);
    let namespace = namespace(&metadata, cluster, check);
    check.marks(&metadata);
    let spec = check.object(root.get("spec"));
    let host_paths = cluster.is_none_or(|cluster| cluster.allows_host_paths);
    let work = match kind {
        JobKind::PyTorchJob => pytorch(&spec, host_paths, check),
        JobKind::RayJob => ray::read(&spec, host_paths, check),
    }?;
    Some(Reading { name, namespace, work })
}

fn pytorch(spec: &At<'_>, host_paths: bool, check: &mut Checker) -> Option<Work> {
    let policy = check.object(spec.get("runPolicy"));
    managed_by(&policy, TRAINING_OPERATOR, "the training operator", check);
    deadline(&policy, check);
    let replicas = spec.get("pytorchReplicaSpecs");
    if replicas.fields().is_none() {
        check.refuse(&replicas.path, "is missing; name the replicas of Master and Worker");
        return None;
    }
    for role in replicas.fields().into_iter().flat_map(serde_json::Map::keys) {
        if !ROLES.contains(&role.as_str()) {
            check.refuse(&replicas.get(role).path, "is no role of a PyTorchJob; use Master and Worker");
        }
    }
    let [master, worker] = ROLES.map(|role| replicas.get(role));
    if master.is_absent() {
        check.refuse(
            &master.path,
            "is missing; Holdfast asks for one replica whose address the others meet at and whose end is the job's: name one of the workers Master",
        );
        return None;
    }
    let masters = count(&master.get("replicas"), 1, check);
    if masters != 1 {
        check.refuse(&master.get("replicas").path, "must be 1");
    }
    let workers = if worker.is_absent() { 0 } else { count(&worker.get("replicas"), 1, check) };
    let replicas = all_replicas(&worker.get("replicas").path, "the master", masters, workers, check);
    elastic(&spec.get("elasticPolicy"), workers, check);
    work(spec, JobKind::PyTorchJob, replicas, host_paths, check)
}

/// Somebody else than the operator would have to take the job up, and its pods would be nowhere here.
fn managed_by(part: &At<'_>, wanted: &str, operator: &str, check: &mut Checker) {
    let manager = part.get("managedBy");
    if !manager.is_absent() && manager.text() != Some(wanted) {
        check.refuse(&manager.path, format!("would have {operator} pass the job over; leave it out"));
    }
}

/// No attempt could run in less.
fn deadline(part: &At<'_>, check: &mut Checker) {
    let at = part.get("activeDeadlineSeconds");
    if at.value.as_f64().is_some_and(|seconds| seconds < 1.0) {
        check.refuse(&at.path, "must be at least 1; leave it out if there is no limit");
    }
}

/// All replicas, of which there may be so many.
fn all_replicas(path: &str, first: &str, firsts: u32, workers: u32, check: &mut Checker) -> u32 {
    let all = firsts.saturating_add(workers);
    if i64::from(all) > limits::REPLICAS {
        let why = format!("makes {all} replicas with {first}; at most {} are allowed", limits::REPLICAS);
        check.refuse(path, why);
    }
    all
}

/// What the pods of all parts say.
fn work(spec: &At<'_>, kind: JobKind, replicas: u32, host_paths: bool, check: &mut Checker) -> Option<Work> {
    let mut pods = Vec::new();
    for (at, group) in groups(spec, kind).iter().enumerate() {
        let part = pod::Part { kind, starts: kind == JobKind::PyTorchJob || at == 0 };
        pods.push(pod::read(group, part, host_paths, check));
    }
    // Of equal ones the first.
    let largest = pods.iter().map(|pod| &pod.accelerators).rev().max_by_key(|(count, _)| *count);
    let accelerators = largest.cloned().unwrap_or_default();
    Some(Work { replicas, first: pods.into_iter().next()?, accelerators })
}

/// The object's name, or what a name is generated from.
fn name(metadata: &At<'_>, check: &mut Checker) -> Option<String> {
    let of = |field: &str, check: &mut Checker| {
        let at = metadata.get(field);
        let text = check.text_of(&at)?.trim_end_matches('-');
        check.text(&at.path, text, limits::NAME_CHARS);
        Some(text.to_owned()).filter(|text| !text.is_empty())
    };
    of("name", check).or_else(|| of("generateName", check))
}

fn namespace(metadata: &At<'_>, cluster: Option<&SiteCluster>, check: &mut Checker) -> Option<String> {
    let at = metadata.get("namespace");
    let namespace = check.text_of(&at).filter(|text| !text.is_empty())?;
    check.namespace(&at.path, namespace, cluster);
    Some(namespace.to_owned())
}

/// A number of replicas, or what the operator has where it is absent.
fn count(at: &At<'_>, absent: u32, check: &mut Checker) -> u32 {
    let count = match at.value {
        Value::Null => Some(absent),
        value => value.as_u64().and_then(|count| u32::try_from(count).ok()),
    };
    if count.is_none() {
        check.refuse(&at.path, format!("must be a whole number from 0 to {}", limits::REPLICAS));
    }
    count.unwrap_or(absent)
}

/// Replicas that come and go by themselves would be failures here.
fn elastic(policy: &At<'_>, workers: u32, check: &mut Checker) {
    if check.object(policy.clone()).is_absent() {
        return;
    }
    let why = "would have the number of replicas changed while the job runs; Holdfast runs a fixed number: leave it out";
    if !policy.get("metrics").is_absent() {
        check.refuse(&policy.get("metrics").path, why);
    }
    for bound in ["minReplicas", "maxReplicas"].map(|name| policy.get(name)) {
        if !bound.is_absent() && bound.value.as_u64() != Some(workers.into()) {
            let why =
                format!("must be {workers} as the workers are: Holdfast runs a fixed number of replicas");
            check.refuse(&bound.path, why);
        }
    }
}

impl Checker {
    /// The place, if it is absent or an object.
    fn object<'a>(&mut self, at: At<'a>) -> At<'a> {
        if at.fields().is_none() && !at.is_absent() {
            self.refuse(&at.path, OBJECT);
        }
        at
    }

    /// The entries of a place that is absent or a list, each with named fields.
    fn list<'a>(&mut self, at: &At<'a>) -> Vec<At<'a>> {
        if !at.value.is_array() && !at.is_absent() {
            self.refuse(&at.path, LIST);
        }
        let items: Vec<_> = at.items().collect();
        for item in items.iter().filter(|item| item.fields().is_none()) {
            self.refuse(&item.path, OBJECT);
        }
        items
    }

    /// The text of a place that is absent or a text.
    fn text_of<'a>(&mut self, at: &At<'a>) -> Option<&'a str> {
        if at.text().is_none() && !at.is_absent() {
            self.refuse(&at.path, TEXT);
        }
        at.text()
    }

    /// Labels and annotations that would pretend to be Holdfast's.
    fn marks(&mut self, metadata: &At<'_>) {
        for marks in ["labels", "annotations"].map(|name| metadata.get(name)) {
            for key in self.object(marks.clone()).fields().into_iter().flat_map(serde_json::Map::keys) {
                let domain = key.split_once('/').map_or("", |(domain, _)| domain);
                if domain == OUR_DOMAIN || domain.ends_with(&format!(".{OUR_DOMAIN}")) {
                    self.refuse(
                        &marks.get(key).path,
                        "is set by Holdfast; if this is an attempt's manifest, paste the one that the job was made of",
                    );
                } else {
                    self.text_of(&marks.get(key));
                }
            }
        }
    }

    /// A namespace that jobs may use.
    pub(super) fn namespace(&mut self, field: &str, namespace: &str, cluster: Option<&SiteCluster>) {
        let known = cluster.map(|cluster| cluster.namespaces.as_slice()).unwrap_or_default();
        if !is_dns_label(namespace) {
            self.refuse(field, names::DNS_LABEL_RULE);
        } else if !known.is_empty() && known.iter().all(|one| one != namespace) {
            self.refuse(
                field,
                format!(
                    "is not one that jobs may use here; use {}, or have it added to the cluster's namespaces (--kube-namespace)",
                    known.join(" or ")
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests;
