//! What the pods of a job on Kubernetes are made of, beside image, command, environment and counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Options of a job on a Kubernetes cluster. What is absent is left to the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PodOptions {
    /// Namespace of the job's objects; absent: the one configured for the cluster.
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
    /// Labels of the job object and its pods, such as the queue's name.
    pub labels: BTreeMap<String, String>,
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
}
