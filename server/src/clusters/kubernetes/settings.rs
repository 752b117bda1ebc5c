//! What one Kubernetes cluster is configured with.

use std::path::PathBuf;

use engine::job::SiteCluster;

/// The name of the cluster that flags describe.
pub const CLUSTER_OF_FLAGS: &str = "kubernetes";
/// The resource that counts accelerators where neither job nor site names another.
pub const ACCELERATOR: &str = "nvidia.com/gpu";
/// How long a node may be out of reach before its pods are given up, seconds.
pub const NODE_LOST_SECONDS: u32 = 60;

/// How the agent gets into the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentSource {
    /// An image whose entrypoint is `holdfast-agent`; an init container has it copy itself.
    Image(String),
    /// A path in every job's own image.
    InImage(String),
}

/// One Kubernetes cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesSettings {
    /// Its configured name.
    pub name: String,
    /// The installation's mark on all objects, a label value. Two installations never touch each other's.
    pub instance: String,
    /// The server's data directory, absolute.
    pub data_dir: PathBuf,
    /// File that says where the cluster is; absent: as kubectl finds it, or from within a pod.
    pub kubeconfig: Option<PathBuf>,
    /// Context in that file; absent: its current one.
    pub context: Option<String>,
    /// Namespaces that jobs may use; the first is for those that name none. At least one.
    pub namespaces: Vec<String>,
    /// How the agent gets into the pods.
    pub agent: AgentSource,
    /// Where pods reach this server: `http://HOST:PORT` or `https://HOST`.
    pub server_url: String,
    /// Certificate authorities (PEM) that vouch for it, where they are not those of the jobs' images.
    pub server_ca: Option<String>,
    /// Resource that counts accelerators.
    pub accelerator: String,
    /// How long a node may be out of reach before its pods are given up.
    pub node_lost_seconds: u32,
    /// Jobs may mount directories of nodes.
    pub allow_host_paths: bool,
}

impl KubernetesSettings {
    /// What validation needs to know of this cluster.
    pub fn site(&self) -> SiteCluster {
        SiteCluster {
            allows_host_paths: self.allow_host_paths,
            namespaces: self.namespaces.clone(),
            ..SiteCluster::kubernetes(&self.name)
        }
    }

    /// The namespace of a job, or why it may not use the one it names.
    pub(super) fn namespace_of<'a>(&'a self, wanted: Option<&'a str>) -> Result<&'a str, String> {
        let known = || self.namespaces.iter().map(String::as_str);
        match wanted {
            None => {
                known().next().ok_or_else(|| "no namespace is configured: see --kube-namespace".to_owned())
            }
            Some(name) if known().any(|one| one == name) => Ok(name),
            Some(name) => Err(format!(
                "namespace {name} is not one that jobs may use here; use {}, or have it added to the cluster's namespaces (--kube-namespace)",
                known().collect::<Vec<_>>().join(" or ")
            )),
        }
    }
}
