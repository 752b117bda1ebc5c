//! How the API server is reached. Every call but a watch has a time limit.

use std::{path::PathBuf, time::Duration};

use kube::{
    Client, Config,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::{answers::CallError, settings::KubernetesSettings};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a call may take. The API server's own limit is a minute; webhooks in its way have 10 s by default.
pub(super) const CALL: Duration = Duration::from_secs(20);

/// Why a cluster cannot be used at all: its settings are wrong.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    /// The file cannot be read, or names no such context.
    #[error("the kubeconfig {} cannot be used: see kubeconfig and context in the configuration", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The context is not in the file that kubectl would use.
    #[error("the context {context} cannot be used: see context in the configuration")]
    Context {
        /// The context.
        context: String,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "no Kubernetes cluster is known here: name a file with kubeconfig, or run in a pod with a service account"
    )]
    Unknown(#[source] Box<InferConfigError>),
    /// Its certificates or keys cannot be used.
    #[error("the credentials for the Kubernetes cluster cannot be used")]
    Credentials(#[source] Box<kube::Error>),
}

/// A client of the configured cluster. The cluster itself is not asked for anything.
pub(super) async fn connect(settings: &KubernetesSettings) -> Result<Client, KubernetesError> {
    let mut config = config(settings).await?;
    config.connect_timeout = Some(CONNECT);
    // The driver tries again by itself, and tells people meanwhile that the cluster is out of reach.
    config.default_retry = false;
    Client::try_from(config).map_err(|source| KubernetesError::Credentials(Box::new(source)))
}

async fn config(settings: &KubernetesSettings) -> Result<Config, KubernetesError> {
    let options = KubeConfigOptions { context: settings.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &settings.kubeconfig {
        let failed = |source| KubernetesError::Kubeconfig { path: path.clone(), source: Box::new(source) };
        let file = Kubeconfig::read_from(path).map_err(failed)?;
        return Config::from_custom_kubeconfig(file, &options).await.map_err(failed);
    }
    if let Some(context) = &settings.context {
        let failed = |source| KubernetesError::Context { context: context.clone(), source: Box::new(source) };
        return Config::from_kubeconfig(&options).await.map_err(failed);
    }
    Config::infer().await.map_err(|source| KubernetesError::Unknown(Box::new(source)))
}

/// Makes a call that has [`CALL`] to be answered.
pub(super) async fn limited<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    within(CALL, call).await
}

/// Makes a call that has so long to be answered.
pub(super) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CallError::TooLong(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::kubernetes::fake::settings;

    #[tokio::test]
    async fn a_call_that_is_not_answered_is_given_up() {
        let never = std::future::pending::<Result<(), kube::Error>>();
        let error = within(Duration::from_millis(1), never).await.unwrap_err();
        assert!(matches!(error, CallError::TooLong(_)), "{error}");
    }

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let settings = KubernetesSettings { kubeconfig: Some(path.clone()), ..settings() };
        for text in [None, Some("not: [yaml"), Some("clusters: []")] {
            text.into_iter().for_each(|text| std::fs::write(&path, text).unwrap());
            let Err(error) = connect(&settings).await else { panic!("{text:?} is used") };
            assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
        }
    }
}
