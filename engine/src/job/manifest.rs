//! An object that somebody pasted, as a job keeps it, and what is not taken over from it.
//!
//! A job made of a manifest keeps the whole object as the base of every attempt; what Holdfast does not know stays in it as it is. The
//! fields that everything else needs (image, command, counts) are read from it when the job is validated, and said nowhere else.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    JobKind,
    pods::{is_within, plain_path},
};

/// What `kubectl` notes of the last object it applied: a copy of the whole.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What the API server and controllers write into an object's metadata.
const SET_BY_THE_CLUSTER: [&str; 9] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
    "finalizers",
];
/// Roles of a PyTorchJob's replicas.
pub(super) const ROLES: [&str; 2] = ["Master", "Worker"];

/// Fields of a RayJob that choose how much of the cluster the driver takes; with any of them Ray puts it on any node that has so much.
const DRIVER_TAKES: [&str; 3] = ["entrypointNumCpus", "entrypointNumGpus", "entrypointResources"];

/// How long a Ray cluster whose driver has ended stays for its output to be fetched, where nobody removes it, seconds.
pub const RAY_KEPT_SECONDS: u32 = 600;

/// A group of workers of a Ray cluster: what it says of how many they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkerGroup {
    /// How many there are to be; none: 0.
    pub replicas: Option<u32>,
    /// Fewest.
    pub min_replicas: Option<u32>,
    /// Most.
    pub max_replicas: Option<u32>,
    /// Pods that each of them is made of; none: 1.
    pub num_of_hosts: Option<u32>,
    /// There are to be none for now.
    pub suspend: Option<bool>,
}

impl WorkerGroup {
    /// Pods that KubeRay makes of it with its cluster. Where Ray scales them, they come and go later.
    pub fn pods(&self) -> u32 {
        let least = self.replicas.unwrap_or(0).max(self.min_replicas.unwrap_or(0));
        let replicas = least.min(self.max_replicas.unwrap_or(u32::MAX));
        if self.suspend == Some(true) { 0 } else { replicas.saturating_mul(self.num_of_hosts.unwrap_or(1)) }
    }
}

/// A pasted object. Copies share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest(Arc<Value>);

impl Serialize for Manifest {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Manifest {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(Self::from)
    }
}

impl From<Value> for Manifest {
    fn from(object: Value) -> Self {
        Self(Arc::new(object))
    }
}

/// Something that a job of Holdfast has in another way than its manifest says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Override {
    /// Its path in the manifest.
    pub field: String,
    /// What becomes of it and why, a sentence.
    pub why: String,
}

/// A volume of the master's pod and where its program sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted<'a> {
    /// The volume's name.
    pub name: &'a str,
    /// What it is: `persistentVolumeClaim`, `emptyDir` ...
    pub source: &'a str,
    /// Details of that.
    pub details: &'a Value,
    /// Whether the program cannot write there.
    pub read_only: bool,
}

impl Manifest {
    /// The object.
    pub fn object(&self) -> &Value {
        &self.0
    }

    /// Without what the cluster wrote into it: the base of new objects.
    pub(super) fn base(&self) -> Self {
        let mut object = Value::clone(&self.0);
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                SET_BY_THE_CLUSTER
                    .iter()
                    .chain(&["ownerReferences"])
                    .for_each(|name| drop(metadata.remove(*name)));
                if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                    annotations.remove(LAST_APPLIED);
                }
            }
        }
        Self::from(object)
    }

    /// Processes of a replica that the program itself starts; none where the object gives no number.
    pub fn processes(&self) -> Option<u32> {
        match self.0.pointer("/spec/nprocPerNode")? {
            Value::String(text) => text.parse().ok(),
            number => number.as_u64().and_then(|number| number.try_into().ok()),
        }
        .filter(|each| *each > 0)
    }

    /// What the object says it is; anything that is no RayJob counts as a PyTorchJob.
    fn kind(&self) -> JobKind {
        if self.0["kind"] == "RayJob" { JobKind::RayJob } else { JobKind::PyTorchJob }
    }

    /// Whether the driver of a RayJob asks for a part of the cluster, so that Ray would put it on any node that has it.
    pub fn driver_takes(&self) -> bool {
        DRIVER_TAKES.iter().any(|name| !is_nothing(&self.0["spec"][*name]))
    }

    /// The volume that holds an absolute path of the program of the first replica, the master or the head; none where the path is lost
    /// with the pod's file system.
    pub fn volume_of(&self, path: &str) -> Option<Mounted<'_>> {
        let path = plain_path(path);
        let (kind, root) = (self.kind(), At::root(&self.0));
        let pod = groups(&root.get("spec"), kind).first()?.get("template").get("spec");
        let container = program(&pod, kind)?;
        let mounts = container.get("volumeMounts").items().filter_map(|mount| {
            let at = plain_path(mount.get("mountPath").text()?);
            is_within(&path, &at).then_some((at.len(), mount))
        });
        let (_, mount) = mounts.max_by_key(|(length, _)| *length)?;
        let name = mount.get("name").text()?;
        let volume = pod.get("volumes").items().find(|volume| volume.get("name").text() == Some(name))?;
        let (source, details) = volume.fields()?.iter().find(|(key, _)| *key != "name")?;
        let read_only = *mount.get("readOnly").value == true;
        Some(Mounted { name, source, details, read_only })
    }

    /// What a job of Holdfast has in another way than this object says, and what it must say and does not. What else is added in every attempt is not
    /// among it: labels, annotations, and the agent in each pod.
    pub fn overrides(&self) -> Vec<Override> {
        let root = At::root(&self.0);
        let mut found = Found(Vec::new());
        found.metadata(&root.get("metadata"));
        found.if_set(&root.get("status"), "is what the cluster says about the pasted object; left out");
        let spec = root.get("spec");
        match self.kind() {
            JobKind::PyTorchJob => found.pytorch(&spec),
            JobKind::RayJob => found.ray(&spec, self.driver_takes()),
        }
        found.0
    }
}

/// What asks for nothing: absent, 0, an empty text.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.trim().is_empty(),
        _ => false,
    }
}

/// The parts of a job that have a pod template of their own; the first one starts the job's command.
pub(super) fn groups<'a>(spec: &At<'a>, kind: JobKind) -> Vec<At<'a>> {
    match kind {
        JobKind::PyTorchJob => {
            let replicas = spec.get("pytorchReplicaSpecs");
            ROLES.map(|role| replicas.get(role)).into_iter().filter(|role| !role.is_absent()).collect()
        }
        JobKind::RayJob => {
            let cluster = spec.get("rayClusterSpec");
            let workers = cluster.get("workerGroupSpecs");
            std::iter::once(cluster.get("headGroupSpec")).chain(workers.items()).collect()
        }
    }
}

/// The container of the program: the training operator looks for it by its name, KubeRay takes the first.
pub(super) fn program<'a>(pod: &At<'a>, kind: JobKind) -> Option<At<'a>> {
    let mut containers = pod.get("containers").items();
    match kind {
        JobKind::PyTorchJob => containers.find(|container| container.get("name").text() == Some("pytorch")),
        JobKind::RayJob => containers.next(),
    }
}

/// Collects what is overridden.
struct Found(Vec<Override>);

impl Found {
    fn if_set(&mut self, at: &At<'_>, why: &str) {
        self.unless(at, ABSENT, why);
    }

    fn unless(&mut self, at: &At<'_>, wanted: &Value, why: &str) {
        if !at.is_absent() && at.value != wanted {
            self.0.push(Override { field: at.path.clone(), why: why.to_owned() });
        }
    }

    fn metadata(&mut self, metadata: &At<'_>) {
        for name in ["name", "generateName"] {
            self.if_set(
                &metadata.get(name),
                "is each attempt's task ID, so that no two attempts are one object",
            );
        }
        for name in SET_BY_THE_CLUSTER {
            self.if_set(&metadata.get(name), "is the cluster's own; left out");
        }
        let why = "would tie the attempts to somebody else's object and remove them with it; left out";
        self.if_set(&metadata.get("ownerReferences"), why);
        let why = "is kubectl's copy of the object; left out";
        self.if_set(&metadata.get("annotations").get(LAST_APPLIED), why);
    }

    fn pytorch(&mut self, spec: &At<'_>) {
        let policy = spec.get("runPolicy");
        self.unless(&policy.get("backoffLimit"), &0.into(), NO_RETRY);
        let why = "is None: pods stay until Holdfast has their logs, and go with their attempt";
        self.unless(&policy.get("cleanPodPolicy"), &"None".into(), why);
        self.if_set(&policy.get("ttlSecondsAfterFinished"), REMOVED_BY_US);
        let why =
            "is 0: torchrun starts nothing again by itself, since Holdfast decides and counts every restart";
        self.unless(&spec.get("elasticPolicy").get("maxRestarts"), &0.into(), why);
        let never = "is Never: a program that ended is not started again before Holdfast has decided";
        for replica in groups(spec, JobKind::PyTorchJob) {
            let count = replica.get("replicas");
            if count.is_absent() {
                let why = "is 1 where it is not given: the training operator asks for the number".to_owned();
                self.0.push(Override { field: count.path, why });
            }
            self.unless(&replica.get("restartPolicy"), &"Never".into(), never);
            let pod = replica.get("template").get("spec");
            self.unless(&pod.get("restartPolicy"), &"Never".into(), never);
            self.if_set(&pod.get(GRACE), LONG_ENOUGH);
        }
    }

    fn ray(&mut self, spec: &At<'_>, driver_takes: bool) {
        let why = "is each attempt's task ID, so that no two attempts are one job of Ray";
        self.if_set(&spec.get("jobId"), why);
        let why = "is HTTPMode: KubeRay submits the driver itself, without a pod that could try again";
        self.unless(&spec.get("submissionMode"), &"HTTPMode".into(), why);
        for name in ["submitterPodTemplate", "submitterConfig"] {
            self.if_set(&spec.get(name), "is left out: no pod submits the driver, KubeRay does");
        }
        self.unless(&spec.get("backoffLimit"), &0.into(), NO_RETRY);
        let why = format!(
            "is Holdfast's: the Ray cluster goes once its logs are kept, and {} minutes after the driver's end where Holdfast is away",
            RAY_KEPT_SECONDS / 60
        );
        self.unless(&spec.get("shutdownAfterJobFinishes"), &true.into(), &why);
        self.unless(&spec.get("ttlSecondsAfterFinished"), &RAY_KEPT_SECONDS.into(), &why);
        self.if_set(&spec.get("deletionStrategy"), REMOVED_BY_US);
        let why = "counts for each attempt anew; one that it ends has failed as any other";
        self.if_set(&spec.get("activeDeadlineSeconds"), why);
        if driver_takes {
            let field = spec.get("entrypointResources").path;
            let why =
                "also asks for the head, where the agent is: the driver takes its share there".to_owned();
            self.0.push(Override { field, why });
        }
        for (at, group) in groups(spec, JobKind::RayJob).iter().enumerate() {
            let pod = group.get("template").get("spec");
            let why =
                "is Never: nothing that ended is started again in its pod; KubeRay makes another worker";
            self.unless(&pod.get("restartPolicy"), &"Never".into(), why);
            if at == 0 {
                self.if_set(&pod.get(GRACE), LONG_ENOUGH);
            }
        }
    }
}

const NO_RETRY: &str =
    "is 0: the operator tries nothing again by itself, since Holdfast decides and counts every restart";
const REMOVED_BY_US: &str = "is left out: Holdfast removes an attempt once its logs are kept";
const GRACE: &str = "terminationGracePeriodSeconds";
const LONG_ENOUGH: &str = "is as long as the agent needs to end the program where it is shorter: 20 s, and the wait for the save on top";

/// A place in a pasted object. What is absent or null there is null.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    pub path: String,
    pub value: &'a Value,
}

const ABSENT: &Value = &Value::Null;

impl<'a> At<'a> {
    /// The object itself: paths within it begin with a field's name.
    fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    pub(super) fn get(&self, key: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        let path = format!("{}{dot}{}", self.path, key.chars().take(320).collect::<String>());
        Self { path, value: self.value.get(key).unwrap_or(ABSENT) }
    }

    /// What it holds as a list, if it is one.
    pub(super) fn items(&self) -> impl Iterator<Item = Self> + use<'a> {
        let path = self.path.clone();
        let items = self.value.as_array().into_iter().flatten().enumerate();
        items.map(move |(at, value)| Self { path: format!("{path}[{at}]"), value })
    }

    pub(super) fn fields(&self) -> Option<&'a Map<String, Value>> {
        self.value.as_object()
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    pub(super) fn is_absent(&self) -> bool {
        self.value.is_null()
    }
}

#[cfg(test)]
mod tests;
