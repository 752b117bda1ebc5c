//! What a job needs of its cluster: what its first attempt's objects name and ask for. Pure.
//!
//! It is read from the very objects that would be made, so it is the same for a job's fields and for a pasted manifest.

use std::collections::{BTreeMap, BTreeSet};

use engine::{
    chain::Plan,
    ids::{JobId, TaskId},
    job::{Finding, Fit, JobKind, JobSpec, VolumeSource},
};
use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};
use kube::ResourceExt;
use serde_json::Value;

use super::{kueue::QUEUE, manifest, names, ray, requests::Asked, settings::KubernetesSettings};
use crate::clusters::Order;

/// Objects that are looked for. A job that names more is not wrong; the rest is not looked for.
const NAMED: usize = 64;

/// Fields of a pod that are quantities, or hold some.
const QUANTITIES: [&str; 5] = ["requests", "limits", "overhead", "sizeLimit", "divisor"];

/// What can be named and looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Claim,
    ConfigMap,
    ServiceAccount,
    PriorityClass,
    Queue,
}

impl Kind {
    /// Its name on a cluster.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Claim => "PersistentVolumeClaim",
            Self::ConfigMap => "ConfigMap",
            Self::ServiceAccount => "ServiceAccount",
            Self::PriorityClass => "PriorityClass",
            Self::Queue => "LocalQueue",
        }
    }
}

/// An object that a job names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub kind: Kind,
    pub name: String,
    /// Where the job names it first.
    pub field: String,
}

/// Replicas that are alike.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    /// `master`, `worker`, `head`; of several groups of workers also which.
    pub name: String,
    pub replicas: u32,
    pub asked: Asked,
    pub pod: PodSpec,
}

/// What a job needs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wants {
    pub kind: JobKind,
    pub namespace: String,
    pub named: Vec<Named>,
    /// Secrets that it names.
    pub secrets: BTreeSet<String>,
    /// Images of its containers.
    pub images: BTreeSet<String>,
    pub parts: Vec<Part>,
}

impl Wants {
    /// Replicas that mount a claim.
    pub(super) fn replicas_with_claim(&self, name: &str) -> u32 {
        let is_it = |volume: &Volume| {
            volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.claim_name == name)
        };
        let mounts = |part: &&Part| part.pod.volumes.iter().flatten().any(is_it);
        self.parts.iter().filter(mounts).map(|part| part.replicas).fold(0, u32::saturating_add)
    }
}

/// What a job needs, or the finding that nothing more can be found.
pub(super) fn of(spec: &JobSpec, settings: &KubernetesSettings) -> Result<Wants, Finding> {
    let never = |why: String| Finding::at("kubernetes", Fit::Never, why);
    let unread = |why: String| {
        Finding::whole(
            Fit::NotChecked,
            format!("Nothing was checked on the cluster: the job's pods cannot be read here: {why}."),
        )
    };
    // Any job and attempt will do: what they are called is in none of what is looked for.
    let job_id = JobId::new("jaaaaaaaaaaa").map_err(|why| unread(why.to_string()))?;
    let task_id = TaskId::of_attempt(&spec.name, &job_id, 1);
    let own_secret = names::secret_of(&task_id);
    let plan = Plan {
        task_id,
        number: 1,
        previous_task_id: None,
        avoid: BTreeSet::new(),
        quarantined: BTreeSet::new(),
        only: BTreeSet::new(),
    };
    let order = Order { job_id, spec: spec.clone(), plan, tokens: BTreeMap::new() };
    let made = manifest::of(&order, settings).map_err(never)?;
    let mut reader = Reader { spec, named: Vec::new(), secrets: BTreeSet::new(), images: BTreeSet::new() };
    if let Some(queue) = made.job.labels().get(QUEUE) {
        let own = match spec.kubernetes.kueue_queue {
            Some(_) => "kubernetes.kueue_queue",
            None => "kubernetes.labels",
        };
        let field = reader.field(own, &format!("metadata.labels.{QUEUE}"));
        reader.name(Kind::Queue, queue, field);
    }
    let parts = templates(spec.kind, &made.job.data).map_err(|why| unread(why.to_string()))?;
    let parts = parts.into_iter().map(|template| reader.part(template)).collect();
    reader.named.truncate(NAMED);
    reader.secrets.remove(&own_secret);
    Ok(Wants {
        kind: spec.kind,
        namespace: made.namespace,
        named: reader.named,
        secrets: reader.secrets,
        images: reader.images,
        parts,
    })
}

/// The template of replicas that are alike.
struct Template {
    name: String,
    replicas: u32,
    /// Where the pod stands in the object.
    path: String,
    pod: PodSpec,
}

impl Template {
    fn read(name: &str, replicas: u32, path: &str, part: &Value) -> Result<Self, serde_json::Error> {
        let pod = serde_json::from_value(with_texts(part["template"]["spec"].clone(), false))?;
        Ok(Self { name: name.to_owned(), replicas, path: format!("{path}.template.spec"), pod })
    }
}

fn templates(kind: JobKind, data: &Value) -> Result<Vec<Template>, serde_json::Error> {
    match kind {
        JobKind::PyTorchJob => pytorch(&data["spec"]["pytorchReplicaSpecs"]),
        JobKind::RayJob => ray_cluster(&data["spec"]["rayClusterSpec"]),
    }
}

fn pytorch(roles: &Value) -> Result<Vec<Template>, serde_json::Error> {
    let mut found = Vec::new();
    for (name, role) in [("master", "Master"), ("worker", "Worker")] {
        let Some(part) = roles.get(role).filter(|part| !part.is_null()) else { continue };
        let said = part.get("replicas").and_then(Value::as_u64).unwrap_or(1);
        let replicas = u32::try_from(said).unwrap_or(u32::MAX);
        found.push(Template::read(name, replicas, &format!("spec.pytorchReplicaSpecs.{role}"), part)?);
    }
    Ok(found)
}

fn ray_cluster(cluster: &Value) -> Result<Vec<Template>, serde_json::Error> {
    const PATH: &str = "spec.rayClusterSpec";
    let head = Template::read("head", 1, &format!("{PATH}.headGroupSpec"), &cluster["headGroupSpec"])?;
    let mut found = vec![head];
    let groups = cluster["workerGroupSpecs"].as_array().map_or(&[][..], Vec::as_slice);
    for (at, group) in groups.iter().enumerate() {
        let name = match group["groupName"].as_str() {
            Some(name) if groups.len() > 1 => format!("worker of group {name}"),
            _ => "worker".to_owned(),
        };
        let path = format!("{PATH}.workerGroupSpecs[{at}]");
        found.push(Template::read(&name, ray::pods_of(group), &path, group)?);
    }
    Ok(found)
}

/// The same with quantities as texts: an API server takes numbers too, which its published types do not.
fn with_texts(value: Value, is_quantity: bool) -> Value {
    match value {
        Value::Number(number) if is_quantity => Value::String(number.to_string()),
        Value::Array(items) => items.into_iter().map(|item| with_texts(item, is_quantity)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let is_quantity = is_quantity || QUANTITIES.contains(&name.as_str());
                (name, with_texts(value, is_quantity))
            });
            Value::Object(fields.collect())
        }
        other => other,
    }
}

/// Collects what the templates name.
struct Reader<'a> {
    spec: &'a JobSpec,
    named: Vec<Named>,
    secrets: BTreeSet<String>,
    images: BTreeSet<String>,
}

impl Reader<'_> {
    /// A field of the create body, or the place of the same in the job's manifest.
    fn field(&self, own: &str, place: &str) -> String {
        match &self.spec.kubernetes.manifest {
            Some(_) => format!("kubernetes.manifest.{place}"),
            None => own.to_owned(),
        }
    }

    fn name(&mut self, kind: Kind, name: &str, field: String) {
        if !self.named.iter().any(|known| known.kind == kind && known.name == name) {
            self.named.push(Named { kind, name: name.to_owned(), field });
        }
    }

    /// The field of a volume with this source.
    fn volume_field(&self, source: &VolumeSource, place: &str) -> String {
        let at = self.spec.kubernetes.volumes.iter().position(|volume| volume.source == *source);
        let own = at.map_or("kubernetes.volumes".to_owned(), |at| format!("kubernetes.volumes[{at}].source"));
        self.field(&own, place)
    }

    fn part(&mut self, Template { name, replicas, path, pod }: Template) -> Part {
        self.volumes(&path, &pod);
        self.images.extend(pod.containers.iter().filter_map(|container| container.image.clone()));
        for (list, containers) in
            [("containers", Some(&pod.containers)), ("initContainers", pod.init_containers.as_ref())]
        {
            for (at, container) in containers.into_iter().flatten().enumerate() {
                self.variables(&format!("{path}.{list}[{at}]"), container);
            }
        }
        if let Some(account) = &pod.service_account_name {
            let field = self.field("kubernetes.service_account", &format!("{path}.serviceAccountName"));
            self.name(Kind::ServiceAccount, account, field);
        }
        if let Some(class) = &pod.priority_class_name {
            let field = self.field("kubernetes.priority_class", &format!("{path}.priorityClassName"));
            self.name(Kind::PriorityClass, class, field);
        }
        self.secrets.extend(pod.image_pull_secrets.iter().flatten().map(|secret| secret.name.clone()));
        Part { name, replicas, asked: Asked::of(&pod), pod }
    }

    fn volumes(&mut self, path: &str, pod: &PodSpec) {
        for (at, volume) in pod.volumes.iter().flatten().enumerate() {
            let place = format!("{path}.volumes[{at}]");
            if let Some(claim) = &volume.persistent_volume_claim {
                let name = &claim.claim_name;
                let place = format!("{place}.persistentVolumeClaim.claimName");
                let field = self.volume_field(&VolumeSource::Claim(name.clone()), &place);
                self.name(Kind::Claim, name, field);
            }
            if let Some(map) = volume.config_map.as_ref().filter(|map| map.optional != Some(true)) {
                let place = format!("{place}.configMap.name");
                let field = self.volume_field(&VolumeSource::ConfigMap(map.name.clone()), &place);
                self.name(Kind::ConfigMap, &map.name, field);
            }
            self.secrets.extend(volume.secret.iter().filter_map(|secret| secret.secret_name.clone()));
            let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
            for source in sources {
                if let Some(map) = source.config_map.as_ref().filter(|map| map.optional != Some(true)) {
                    let field = self.field("kubernetes.volumes", &place);
                    self.name(Kind::ConfigMap, &map.name, field);
                }
                self.secrets.extend(source.secret.iter().map(|secret| secret.name.clone()));
            }
        }
    }

    fn variables(&mut self, place: &str, container: &Container) {
        for (at, variable) in container.env.iter().flatten().enumerate() {
            let Some(from) = &variable.value_from else { continue };
            if let Some(key) = from.config_map_key_ref.as_ref().filter(|key| key.optional != Some(true)) {
                let field = self.field("kubernetes", &format!("{place}.env[{at}].valueFrom.configMapKeyRef"));
                self.name(Kind::ConfigMap, &key.name, field);
            }
            self.secrets.extend(from.secret_key_ref.iter().map(|key| key.name.clone()));
        }
        for (at, from) in container.env_from.iter().flatten().enumerate() {
            if let Some(map) = from.config_map_ref.as_ref().filter(|map| map.optional != Some(true)) {
                let field = self.field("kubernetes", &format!("{place}.envFrom[{at}].configMapRef"));
                self.name(Kind::ConfigMap, &map.name, field);
            }
            self.secrets.extend(from.secret_ref.iter().map(|secret| secret.name.clone()));
        }
    }
}

#[cfg(test)]
#[path = "tests/wants.rs"]
mod tests;
