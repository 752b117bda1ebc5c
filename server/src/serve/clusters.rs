//! The clusters of a server: from what was configured to what runs.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use engine::job::SiteCluster;
use tokio_util::sync::CancellationToken;

use crate::{
    clusters::{
        Cluster,
        kubernetes::{Kubernetes, KubernetesSettings},
        local::{LocalCluster, LocalConfig},
    },
    config::{self, ClusterConfig, ClusterKindConfig, KubernetesConfig, NO_AGENT, Serve},
};

/// Most that a file with authorities may have: it goes into the Secret of each attempt, which may have a MiB with all tokens.
const MAX_AUTHORITIES_BYTES: usize = 256 * 1024;

/// What all clusters of a server share.
pub(super) struct Shared<'a> {
    pub settings: &'a Serve,
    /// The data directory, absolute.
    pub data: &'a Path,
    /// The file that agents of this machine read the server's address from.
    pub server_file: &'a Path,
    /// The installation's mark.
    pub instance: String,
    pub stop: &'a CancellationToken,
}

/// A cluster that is up, and what validation knows of it.
pub(super) enum Running {
    Local(Arc<LocalCluster>, SiteCluster),
    Kubernetes(Arc<Kubernetes>, SiteCluster),
}

impl Running {
    /// Brings all clusters up. One that does not answer yet keeps no other from working; settings that can never work end the start.
    pub(super) async fn start_all(shared: &Shared<'_>) -> anyhow::Result<Vec<Self>> {
        let mut running = Vec::new();
        for config in shared.settings.clusters() {
            let name = config.name.clone();
            let started = Self::start(config, shared).await;
            running.push(started.with_context(|| format!("cluster {name}"))?);
        }
        Ok(running)
    }

    async fn start(config: ClusterConfig, shared: &Shared<'_>) -> anyhow::Result<Self> {
        let ClusterConfig { name, kind } = config;
        match kind {
            ClusterKindConfig::Local(config) => {
                let local = local(name, config, shared)?;
                let site = local.site();
                Ok(Self::Local(LocalCluster::new(local, shared.stop.clone()).await?, site))
            }
            ClusterKindConfig::Kubernetes(config) => {
                let kubernetes = kubernetes(name, config, shared)?;
                let site = kubernetes.site();
                Ok(Self::Kubernetes(Kubernetes::start(kubernetes, shared.stop.clone()).await?, site))
            }
        }
    }

    pub(super) fn site(&self) -> SiteCluster {
        match self {
            Self::Local(_, site) | Self::Kubernetes(_, site) => site.clone(),
        }
    }

    pub(super) fn cluster(&self) -> (String, Arc<dyn Cluster>) {
        let cluster: Arc<dyn Cluster> = match self {
            Self::Local(cluster, _) => Arc::new(Arc::clone(cluster)),
            Self::Kubernetes(cluster, _) => Arc::new(Arc::clone(cluster)),
        };
        (cluster.name().to_owned(), cluster)
    }

    pub(super) async fn stopped(&self) {
        match self {
            Self::Local(cluster, _) => cluster.stopped().await,
            Self::Kubernetes(cluster, _) => cluster.stopped().await,
        }
    }
}

fn local(name: String, config: config::LocalConfig, shared: &Shared<'_>) -> anyhow::Result<LocalConfig> {
    let agent_program = match &shared.settings.agent_program {
        Some(path) => path.clone(),
        None => super::beside_us()?.join("holdfast-agent"),
    };
    let agent_program = agent_program.canonicalize().with_context(|| {
        format!(
            "the agent {} is not there: build it or name it with --agent-program",
            agent_program.display()
        )
    })?;
    Ok(LocalConfig {
        name,
        data_dir: shared.data.to_owned(),
        nodes: config.nodes,
        slots_per_node: config.slots,
        agent_program,
        server_file: PathBuf::from(shared.server_file),
    })
}

fn kubernetes(
    name: String,
    config: KubernetesConfig,
    shared: &Shared<'_>,
) -> anyhow::Result<KubernetesSettings> {
    let agent = config.agent().context(NO_AGENT)?;
    let public = shared.settings.public_url.as_ref().map(|url| url.origin.clone());
    let server_url = config
        .agent_server_url
        .or(public)
        .context("say with agent-server-url, as in http://HOST:PORT, where pods reach this server")?;
    let server_ca = config.agent_ca_file.as_deref().map(|file| authorities(file, &server_url)).transpose()?;
    Ok(KubernetesSettings {
        name,
        instance: shared.instance.clone(),
        data_dir: shared.data.to_owned(),
        kubeconfig: config.kubeconfig,
        context: config.context,
        namespaces: config.namespaces,
        agent,
        server_url,
        server_ca,
        accelerator: config.accelerator,
        node_lost_seconds: config.node_lost_seconds,
        allow_host_paths: config.allow_host_paths,
    })
}

/// What agents are to trust: better refused here than by each of them.
fn authorities(file: &Path, server_url: &str) -> anyhow::Result<String> {
    if !server_url.starts_with("https://") {
        bail!(
            "agent-ca-file is for a server with https, and agents are told {server_url}: see agent-server-url"
        );
    }
    let text = fs::read_to_string(file)
        .with_context(|| format!("cannot read the certificate authorities {}", file.display()))?;
    if text.len() > MAX_AUTHORITIES_BYTES || !text.contains("-----BEGIN CERTIFICATE-----") {
        bail!(
            "{} must hold certificates in PEM form, at most {} KiB: see agent-ca-file",
            file.display(),
            MAX_AUTHORITIES_BYTES / 1024
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_for_https_and_must_be_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.crt");
        let refused = |url| authorities(&file, url).unwrap_err().to_string();
        assert!(refused("https://h").contains("ca.crt"));
        std::fs::write(&file, "a key").unwrap();
        assert!(refused("https://h").contains("certificates in PEM form"));
        let text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(&file, text).unwrap();
        assert!(refused("http://h:1").contains("agent-server-url"));
        assert_eq!(authorities(&file, "https://h").unwrap(), text);
    }
}
