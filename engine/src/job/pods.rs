//! What the pods of a job on Kubernetes are made of, beside image, command, environment and counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Manifest;

/// Where the agent and its token are in each replica: a volume over one of these keeps the agent from starting.
const OUR_DIRS: [&str; 2] = ["/holdfast", "/etc/holdfast"];
/// What is said of a volume there, after the field's name.
pub(super) const OVER_OURS: &str = "must not be within /holdfast or /etc/holdfast, where Holdfast's agent is";

/// Options of a job on a Kubernetes cluster. What is absent is left to the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PodOptions {
    /// Namespace of the job's objects; absent: the first that is configured for the cluster. A job keeps it, whatever is the first later.
    pub namespace: Option<String>,
    /// CPU of each replica, requested and limited alike: `4`, `500m`.
    pub cpu: Option<String>,
    /// Memory of each replica, requested and limited alike: `64Gi`.
    pub memory: Option<String>,
    /// Resource that counts accelerators: `nvidia.com/gpu`; absent: the one configured for the cluster.
    pub accelerator: Option<String>,
    /// Size of `/dev/shm`: `8Gi`; absent: the container runtime's, usually 64 MiB.
    pub shm_size: Option<String>,
    /// Variables whose values are in Secrets of the namespace.
    pub secrets: Vec<SecretVariable>,
    /// What is mounted.
    pub volumes: Vec<Volume>,
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods bear.
    pub tolerations: Vec<Toleration>,
    /// PriorityClass of the pods.
    pub priority_class: Option<String>,
    /// ServiceAccount of the pods.
    pub service_account: Option<String>,
    /// Secrets to pull the image with.
    pub pull_secrets: Vec<String>,
    /// Labels of the job object and its pods.
    pub labels: BTreeMap<String, String>,
    /// LocalQueue of Kueue in the namespace that admits the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kueue_queue: Option<String>,
    /// Queue of Volcano that the job's pods are scheduled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volcano_queue: Option<String>,
    /// Scheduler of the pods; absent: `volcano` where a queue of Volcano is named, otherwise the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The object that was pasted; what is read from it is said nowhere else.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub manifest: Option<Manifest>,
}

/// An environment variable by reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SecretVariable {
    /// The variable.
    pub name: String,
    /// The Secret.
    pub secret: String,
    /// The key in it.
    pub key: String,
}

/// Something that is mounted into each replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// Where it appears: an absolute path.
    pub mount_path: String,
    /// What it is.
    pub source: VolumeSource,
    /// Absent: it can be written.
    #[serde(default)]
    pub read_only: bool,
}

/// Where a volume comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum VolumeSource {
    /// A PersistentVolumeClaim by name.
    Claim(String),
    /// A ConfigMap by name.
    ConfigMap(String),
    /// A Secret by name.
    Secret(String),
    /// A directory of the node, where the site allows that.
    HostPath(String),
}

/// A taint that the pods bear.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Toleration {
    /// The taint's key; absent: every key.
    pub key: Option<String>,
    /// The taint's value; absent: every value.
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`; absent: every effect.
    pub effect: Option<String>,
}

impl PodOptions {
    /// Whether nothing is asked for.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The volume that holds an absolute path of the program; none where the path is lost with the pod.
    pub fn volume_of(&self, path: &str) -> Option<&Volume> {
        let path = plain_path(path);
        let holds = |volume: &&Volume| is_within(&path, &plain_path(&volume.mount_path));
        self.volumes.iter().filter(holds).max_by_key(|volume| plain_path(&volume.mount_path).len())
    }
}

/// A path without what says nothing: `//a/./b/` is `/a/b`.
pub(super) fn plain_path(path: &str) -> String {
    path.split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .fold(String::new(), |path, part| path + "/" + part)
}

/// Whether a plain path is another or lies below it.
pub(super) fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a volume at a plain path would lie over what Holdfast brings.
pub(super) fn is_over_ours(path: &str) -> bool {
    OUR_DIRS.iter().any(|dir| is_within(path, dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_names_the_directories_that_it_is_about() {
        for dir in OUR_DIRS {
            assert!(OVER_OURS.contains(&format!(" {dir}")) && is_over_ours(dir), "{dir}");
        }
    }

    #[test]
    fn the_deepest_mount_holds_a_path() {
        let volume = |mount_path: &str| Volume {
            mount_path: mount_path.to_owned(),
            source: VolumeSource::Claim(mount_path.to_owned()),
            read_only: false,
        };
        let options = PodOptions {
            volumes: ["/data", "/data/deep/", "/datasets"].map(volume).to_vec(),
            ..PodOptions::default()
        };
        for (path, want) in [
            ("/data", Some("/data")),
            ("/data/runs/1", Some("/data")),
            ("//data/./deep/x", Some("/data/deep/")),
            ("/dat", None),
            ("/database", None),
            ("/", None),
        ] {
            assert_eq!(options.volume_of(path).map(|volume| volume.mount_path.as_str()), want, "{path}");
        }
    }
}
