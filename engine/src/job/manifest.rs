//! An object that somebody pasted, as a job keeps it, and what is not taken over from it.
//!
//! A job made of a manifest keeps the whole object as the base of every attempt; what Holdfast does not know stays in it as it is. The
//! fields that everything else needs (image, command, counts) are read from it when the job is validated, and said nowhere else.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::pods::{is_within, plain_path};

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

    /// The volume that holds an absolute path of the master's program; none where the path is lost with the pod's file system.
    pub fn volume_of(&self, path: &str) -> Option<Mounted<'_>> {
        let path = plain_path(path);
        let pod = self.0.pointer("/spec/pytorchReplicaSpecs/Master/template/spec")?;
        fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
            value.get(name).and_then(Value::as_array).into_iter().flatten()
        }
        let container = list(pod, "containers").find(|container| container["name"] == "pytorch")?;
        let mounts = list(container, "volumeMounts").filter_map(|mount| {
            let at = plain_path(mount.get("mountPath")?.as_str()?);
            is_within(&path, &at).then_some((at.len(), mount))
        });
        let (_, mount) = mounts.max_by_key(|(length, _)| *length)?;
        let name = mount.get("name")?.as_str()?;
        let volume = list(pod, "volumes").find(|volume| volume["name"] == name)?.as_object()?;
        let (source, details) = volume.iter().find(|(key, _)| *key != "name")?;
        let read_only = mount.get("readOnly") == Some(&Value::Bool(true));
        Some(Mounted { name, source, details, read_only })
    }

    /// What a job of Holdfast has in another way than this object says, where it says anything. What is added in every attempt is not
    /// among it: labels, annotations, and the agent in each pod.
    pub fn overrides(&self) -> Vec<Override> {
        let mut found = Found { object: &self.0, list: Vec::new() };
        found.metadata();
        found.if_set(&["status"], "is what the cluster says about the pasted object; left out");
        found.policies();
        for role in ROLES {
            found.role(role);
        }
        found.list
    }
}

/// Collects what is overridden.
struct Found<'a> {
    object: &'a Value,
    list: Vec<Override>,
}

impl<'a> Found<'a> {
    fn at(&self, path: &[&str]) -> Option<&'a Value> {
        path.iter().try_fold(self.object, |value, key| value.get(key)).filter(|value| !value.is_null())
    }

    fn note(&mut self, path: &[&str], why: &str) {
        self.list.push(Override { field: path.join("."), why: why.to_owned() });
    }

    fn if_set(&mut self, path: &[&str], why: &str) {
        if self.at(path).is_some() {
            self.note(path, why);
        }
    }

    fn unless(&mut self, path: &[&str], wanted: &Value, why: &str) {
        if self.at(path).is_some_and(|value| value != wanted) {
            self.note(path, why);
        }
    }

    fn metadata(&mut self) {
        for name in ["name", "generateName"] {
            self.if_set(
                &["metadata", name],
                "is each attempt's task ID, so that no two attempts are one object",
            );
        }
        for name in SET_BY_THE_CLUSTER {
            self.if_set(&["metadata", name], "is the cluster's own; left out");
        }
        let why = "would tie the attempts to somebody else's object and remove them with it; left out";
        self.if_set(&["metadata", "ownerReferences"], why);
        let why = "is kubectl's copy of the object; left out";
        self.if_set(&["metadata", "annotations", LAST_APPLIED], why);
    }

    fn policies(&mut self) {
        let policy = |name| ["spec", "runPolicy", name];
        let why = "is 0: the operator tries nothing again by itself, since Holdfast decides and counts every restart";
        self.unless(&policy("backoffLimit"), &0.into(), why);
        let why = "is None: pods stay until Holdfast has their logs, and go with their attempt";
        self.unless(&policy("cleanPodPolicy"), &"None".into(), why);
        let why = "is left out: Holdfast removes an attempt once its logs are kept";
        self.if_set(&policy("ttlSecondsAfterFinished"), why);
        let why =
            "is 0: torchrun starts nothing again by itself, since Holdfast decides and counts every restart";
        self.unless(&["spec", "elasticPolicy", "maxRestarts"], &0.into(), why);
    }

    fn role(&mut self, role: &str) {
        let never = "is Never: a program that ended is not started again before Holdfast has decided";
        let replica = ["spec", "pytorchReplicaSpecs", role];
        let within = |more: &[&'static str]| -> Vec<&str> { replica.iter().chain(more).copied().collect() };
        self.unless(&within(&["restartPolicy"]), &"Never".into(), never);
        self.unless(&within(&["template", "spec", "restartPolicy"]), &"Never".into(), never);
        let why = "is as long as the agent needs to end the program where it is shorter: 20 s, and the wait for the save on top";
        self.if_set(&within(&["template", "spec", "terminationGracePeriodSeconds"]), why);
    }
}

/// A place in a pasted object. What is absent or null there is null.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    pub path: String,
    pub value: &'a Value,
}

const ABSENT: &Value = &Value::Null;

impl<'a> At<'a> {
    pub(super) fn get(&self, key: &str) -> Self {
        let path = format!("{}.{}", self.path, key.chars().take(320).collect::<String>());
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
