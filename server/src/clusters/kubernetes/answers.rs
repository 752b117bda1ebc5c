//! What an answer of the API server means for whoever asked. Pure.

use std::time::Duration;

use engine::{job::JobKind, record::QueueReason};
use kube::core::Status;

use super::{queue, settings::KubernetesSettings};
use crate::clusters::ClusterError;

/// Why a call brought nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The API server's own words.
    #[error("the API server says {}: {}", .0.code, .0.message)]
    Api(Box<Status>),
    /// Nothing came back, or nothing that could be read. In words, as each error of a connection repeats the ones below it.
    #[error("the API server did not answer: {0}")]
    Transport(String),
    /// Not in time.
    #[error("the API server did not answer within {} s", .0.as_secs())]
    TooLong(Duration),
    /// It answers and does not know yet what it will know.
    #[error("the API server is not ready: {0}")]
    NotReady(String),
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Api(status),
            other => Self::Transport(in_words(&other)),
        }
    }
}

/// What an error and those below it say, each thing once.
fn in_words(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        below = error.source();
    }
    text
}

impl CallError {
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Api(status) if status.code == 404)
    }

    /// What an API server that has just started says of anything, until it has read who may what and what there is.
    pub(super) fn may_be_early(&self) -> bool {
        matches!(self, Self::Api(status) if matches!(status.code, 403 | 404) && !queue::is_quota(&status.message))
    }

    /// A 409 because there is one of this name.
    pub(super) fn is_already_exists(&self) -> bool {
        matches!(self, Self::Api(status) if status.code == 409)
    }

    /// What follows for an attempt of this kind of job that should be made. Where there was one before, the cluster has taken the job
    /// once: rights and kinds that are missing now may come back.
    pub(super) fn of_creation(
        self,
        settings: &KubernetesSettings,
        kind: JobKind,
        number: u32,
        doing: &'static str,
    ) -> ClusterError {
        match &self {
            Self::Api(status) if number > 1 && may_pass(status) => {
                let text = with_advice(self.to_string(), status, kind);
                ClusterError::Delayed { reason: QueueReason::Constraints, text }
            }
            Self::Api(status) => match (refusal(status, kind), hindrance(status)) {
                (Some(text), _) => ClusterError::Refused { text },
                (None, Some(reason)) => {
                    ClusterError::Delayed { reason, text: with_advice(self.to_string(), status, kind) }
                }
                (None, None) => self.unreachable(settings, kind, doing),
            },
            Self::Transport(_) | Self::TooLong(_) | Self::NotReady(_) => {
                self.unreachable(settings, kind, doing)
            }
        }
    }

    pub(super) fn unreachable(
        self,
        settings: &KubernetesSettings,
        kind: JobKind,
        doing: &'static str,
    ) -> ClusterError {
        let hint = match &self {
            Self::Api(status) => advice(status, Some(kind)),
            _ => None,
        };
        let error = anyhow::Error::from(self);
        let source = match hint {
            Some(hint) => anyhow::anyhow!("{error:#}; {hint}"),
            None => error,
        };
        ClusterError::Unreachable { cluster: settings.name.clone(), doing, source }
    }
}

/// Whether a refusal is about the cluster and not about the job: a right or a kind that is missing, as while somebody changes them.
fn may_pass(status: &Status) -> bool {
    let words = &status.message;
    match status.code {
        403 => words.contains(" is forbidden: User ") || is_of_ending_kind(words),
        404 => !words.starts_with("namespaces "),
        _ => false,
    }
}

/// Whether nothing of its kind is taken as the kind itself is being removed.
fn is_of_ending_kind(words: &str) -> bool {
    words.contains("custom resource definition is terminating")
}

/// What kind of reason keeps a cluster that works from taking something for now; none where the cluster itself does not do well, of which
/// nothing follows for the job.
fn hindrance(status: &Status) -> Option<QueueReason> {
    let words = &status.message;
    if queue::is_quota(words) {
        Some(QueueReason::Quota)
    } else if status.code >= 500 && words.contains("webhook") {
        Some(QueueReason::Constraints)
    } else {
        None
    }
}

fn with_advice(words: String, status: &Status, kind: JobKind) -> String {
    match advice(status, Some(kind)) {
        Some(advice) => format!("{words}; {advice}"),
        None => words,
    }
}

/// Why the API server will never take this, in its words and with what to do; none where it may take it later.
fn refusal(status: &Status, kind: JobKind) -> Option<String> {
    let words = &status.message;
    let is_final = match status.code {
        400 | 404 | 405 | 413 | 415 | 422 => true,
        403 => !queue::is_quota(words),
        _ => false,
    };
    is_final.then(|| with_advice(words.clone(), status, kind))
}

/// What to do about an answer about jobs of this kind, or about something else.
pub(super) fn advice(status: &Status, kind: Option<JobKind>) -> Option<&'static str> {
    let words = &status.message;
    match status.code {
        401 => Some("the credentials of its kubeconfig are not valid (any more)"),
        403 if queue::is_quota(words) => None,
        403 if words.contains("denied the request") => {
            Some("an admission webhook of the cluster does not allow it; change the job as it says")
        }
        403 if queue::violates_pod_security(words) => Some(queue::POD_SECURITY),
        403 if words.contains("is being terminated") => Some("use another namespace"),
        403 if is_of_ending_kind(words) => {
            Some("its operator's definitions (CRDs) are being removed; see that they are installed again")
        }
        403 => Some("give Holdfast's account the rights listed in docs/kubernetes.md"),
        404 if words.starts_with("namespaces ") => Some("make the namespace, or name another in the job"),
        404 => match kind? {
            JobKind::PyTorchJob => Some(
                "if the cluster does not know kubeflow.org/v1 PyTorchJob, install the Kubeflow training operator (v1.9); TrainJob (Kubeflow Trainer v2) is not supported yet",
            ),
            JobKind::RayJob => {
                Some("if the cluster does not know ray.io/v1 RayJob, install KubeRay (v1.1 or newer)")
            }
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::kubernetes::fake::settings;

    fn status(code: u16, message: &str) -> Status {
        Status { code, message: message.to_owned(), ..Status::default() }
    }

    #[test]
    fn an_answer_is_final_or_not() {
        for (case, code, words, want) in [
            ("a bad object", 422, "PyTorchJob.kubeflow.org \"a\" is invalid", Some("is invalid")),
            (
                "a webhook",
                403,
                "admission webhook \"v\" denied the request: no",
                Some("change the job as it says"),
            ),
            (
                "no right",
                403,
                "pytorchjobs.kubeflow.org is forbidden: User \"x\" cannot create resource",
                Some("docs/kubernetes.md"),
            ),
            (
                "Pod Security",
                403,
                "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true",
                Some("change the job or the level"),
            ),
            (
                "no CRD any more",
                403,
                "create not allowed while custom resource definition is terminating",
                Some("installed again"),
            ),
            ("no namespace", 404, "namespaces \"train\" not found", Some("make the namespace")),
            (
                "no CRD",
                404,
                "the server could not find the requested resource",
                Some("install the Kubeflow training operator"),
            ),
            ("too large", 413, "Request entity too large", Some("too large")),
            ("a quota", 403, "pytorchjobs \"a\" is forbidden: exceeded quota: q", None),
            ("bad credentials", 401, "Unauthorized", None),
            ("too many", 429, "slow down", None),
            ("a webhook that is away", 500, "failed calling webhook", None),
            ("a server that starts", 503, "apiserver not ready", None),
        ] {
            let found = refusal(&status(code, words), JobKind::PyTorchJob);
            match want {
                None => assert_eq!(found, None, "{case}"),
                Some(part) => {
                    let text = found.unwrap_or_else(|| panic!("{case} is not final"));
                    assert!(text.starts_with(words) && text.contains(part), "{case}: {text}");
                }
            }
        }
    }

    #[test]
    fn an_answer_that_is_not_final_says_why_a_job_waits_and_an_outage_says_nothing() {
        let after = |error: CallError| error.of_creation(&settings(), JobKind::PyTorchJob, 1, "creating");
        let quota = "secrets \"a\" is forbidden: exceeded quota: few, requested: secrets=1";
        let webhook = "Internal error occurred: failed calling webhook \"v\": context deadline exceeded";
        for (code, words, want) in
            [(403, quota, QueueReason::Quota), (500, webhook, QueueReason::Constraints)]
        {
            match after(CallError::Api(Box::new(status(code, words)))) {
                ClusterError::Delayed { reason, text } => {
                    assert_eq!(reason, want);
                    assert!(text.contains(words), "{text}");
                }
                other => panic!("{words}: {other}"),
            }
        }
        let outages = [
            (401, "Unauthorized"),
            (429, "Too many requests, please try again later."),
            (500, "etcdserver: request timed out"),
            (503, "apiserver not ready"),
            (504, "Timeout: request did not complete within the allotted timeout"),
        ];
        let outages = outages.map(|(code, words)| CallError::Api(Box::new(status(code, words))));
        let silence =
            [CallError::Transport("refused".to_owned()), CallError::TooLong(Duration::from_secs(1))];
        for outage in outages.into_iter().chain(silence) {
            let error = after(outage);
            assert!(matches!(error, ClusterError::Unreachable { .. }), "{error}");
        }
    }

    #[test]
    fn what_the_cluster_lacks_for_now_ends_no_job_that_it_had_taken() {
        let denied = "secrets is forbidden: User \"h\" cannot create resource \"secrets\" in API group \"\"";
        for (code, words, passes) in [
            (403, "create not allowed while custom resource definition is terminating", true),
            (403, denied, true),
            (404, "the server could not find the requested resource", true),
            (404, "404 page not found", true),
            (404, "namespaces \"train\" not found", false),
            (403, "admission webhook \"v\" denied the request: no", false),
            (403, "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\"", false),
            (422, "PyTorchJob.kubeflow.org \"a\" is invalid", false),
        ] {
            for number in [1, 2] {
                let error = CallError::Api(Box::new(status(code, words)));
                let error = error.of_creation(&settings(), JobKind::PyTorchJob, number, "creating");
                let waits = matches!(&error, ClusterError::Delayed { reason: QueueReason::Constraints, text } if text.contains(words));
                let is_over = matches!(&error, ClusterError::Refused { text } if text.contains(words));
                let want = passes && number > 1;
                assert_eq!((waits, is_over), (want, !want), "attempt {number}: {error}");
            }
        }
    }

    #[test]
    fn an_absent_kind_says_what_to_install() {
        let absent = status(404, "404 page not found");
        for (kind, want) in
            [(JobKind::PyTorchJob, "Kubeflow training operator"), (JobKind::RayJob, "KubeRay")]
        {
            let text = refusal(&absent, kind).unwrap();
            assert!(text.contains(want), "{text}");
        }
        assert_eq!(advice(&absent, None), None, "other things are not an operator's");
    }
}
