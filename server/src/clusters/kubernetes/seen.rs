//! What the API server's objects say, reduced to what matters here. The only place that reads their fields; what a newer cluster adds
//! is passed over.

use std::collections::{BTreeMap, BTreeSet};

use engine::ids::{NodeName, ReplicaName, TaskId};
use k8s_openapi::api::core::v1::{self as core, ContainerStatus};
use kube::{ResourceExt, core::DynamicObject};
use serde::Deserialize;

use super::{
    names::{self, CONTAINER},
    quantity,
};

/// Longest message that is kept of each object.
const MESSAGE_CHARS: usize = 1_000;

/// Amounts by resource name.
pub(super) type Amounts = BTreeMap<String, f64>;

/// A job object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JobSeen {
    pub uid: String,
    pub namespace: String,
    pub task: TaskId,
    /// Replicas it asks for, the master included.
    pub replicas: u32,
    /// Nodes it keeps off.
    pub avoid: BTreeSet<NodeName>,
    /// Conditions that are true, with their messages.
    pub conditions: BTreeMap<String, String>,
}

impl JobSeen {
    /// The object of an attempt; none where it does not carry our marks.
    pub(super) fn of(object: &DynamicObject) -> Option<Self> {
        let task = task_of(object.labels())?;
        let data: JobData = serde_json::from_value(object.data.clone()).unwrap_or_default();
        let count = |specs: &ReplicaSpecs| {
            let count =
                |spec: &Option<ReplicaSpec>| spec.as_ref().map_or(0, |spec| spec.replicas.unwrap_or(1));
            count(&specs.master).saturating_add(count(&specs.worker))
        };
        let avoided = object.annotations().get(names::AVOIDED);
        Some(Self {
            uid: object.uid().unwrap_or_default(),
            namespace: object.namespace().unwrap_or_default(),
            task,
            replicas: count(&data.spec.replicas),
            avoid: avoided
                .into_iter()
                .flat_map(|names| names.split(','))
                .filter_map(|name| NodeName::new(name).ok())
                .collect(),
            conditions: data
                .status
                .conditions
                .into_iter()
                .filter(|condition| condition.status == "True")
                .map(|condition| (condition.kind, bounded(condition.message)))
                .collect(),
        })
    }

    pub(super) fn is(&self, condition: &str) -> bool {
        self.conditions.contains_key(condition)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobData {
    spec: JobSpecData,
    status: JobStatusData,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobSpecData {
    #[serde(rename = "pytorchReplicaSpecs")]
    replicas: ReplicaSpecs,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ReplicaSpecs {
    master: Option<ReplicaSpec>,
    worker: Option<ReplicaSpec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReplicaSpec {
    replicas: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobStatusData {
    conditions: Vec<ConditionData>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConditionData {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    message: String,
}

/// A reason and the words that came with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub reason: String,
    pub message: String,
}

impl Said {
    fn new(reason: Option<String>, message: Option<String>) -> Self {
        Self { reason: reason.unwrap_or_default(), message: bounded(message.unwrap_or_default()) }
    }

    /// Reason and message, or whichever there is.
    pub(super) fn text(&self) -> String {
        match (self.reason.is_empty(), self.message.is_empty()) {
            (false, false) => format!("{}: {}", self.reason, self.message),
            (false, true) => self.reason.clone(),
            (true, _) => self.message.clone(),
        }
    }
}

/// How far a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    /// Absent, or a word of a newer cluster.
    Other,
}

/// How a container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContainerSeen {
    /// Nothing is said.
    Unknown,
    Waiting(Said),
    Running,
    Ended {
        code: i32,
        said: Said,
    },
}

/// A pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodSeen {
    pub uid: String,
    pub name: String,
    pub task: TaskId,
    pub replica: ReplicaName,
    pub node: Option<NodeName>,
    pub phase: Phase,
    /// Somebody deleted it; it may still run.
    pub deleting: bool,
    /// The condition DisruptionTarget, where it is true.
    pub disruption: Option<Said>,
    /// The condition PodScheduled, where it is false.
    pub unscheduled: Option<Said>,
    /// Why the pod as a whole is as it is.
    pub said: Said,
    /// The program's container.
    pub main: ContainerSeen,
    /// What runs before it, by name.
    pub init: Vec<(String, ContainerSeen)>,
    pub requests: Amounts,
}

impl PodSeen {
    /// A replica's pod; none where it does not carry our marks.
    pub(super) fn of(pod: &core::Pod) -> Option<Self> {
        let task = task_of(pod.labels())?;
        let kind = pod.labels().get(names::REPLICA_TYPE)?;
        let index = pod.labels().get(names::REPLICA_INDEX)?;
        let replica = ReplicaName::new(format!("{kind}-{index}")).ok()?;
        let spec = pod.spec.as_ref();
        let status = pod.status.clone().unwrap_or_default();
        let condition = |kind: &str, value: &str| {
            let found = status.conditions.iter().flatten().find(|condition| condition.type_ == kind)?;
            let is_so = found.status == value;
            is_so.then(|| Said::new(found.reason.clone(), found.message.clone()))
        };
        let mains = status.container_statuses.iter().flatten();
        let inits = status.init_container_statuses.iter().flatten();
        Some(Self {
            uid: pod.uid()?,
            name: pod.name_any(),
            task,
            replica,
            node: spec.and_then(|spec| NodeName::new(spec.node_name.clone()?).ok()),
            phase: match status.phase.as_deref() {
                Some("Pending") => Phase::Pending,
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Other,
            },
            deleting: pod.metadata.deletion_timestamp.is_some(),
            disruption: condition("DisruptionTarget", "True"),
            unscheduled: condition("PodScheduled", "False"),
            said: Said::new(status.reason.clone(), status.message.clone()),
            main: mains
                .filter(|container| container.name == CONTAINER)
                .map(container)
                .next()
                .unwrap_or(ContainerSeen::Unknown),
            init: inits.map(|status| (status.name.clone(), container(status))).collect(),
            requests: spec.map(requests).unwrap_or_default(),
        })
    }

    /// It has ended, by its own account.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
            || matches!(self.main, ContainerSeen::Ended { .. })
    }

    /// What keeps it from running that may not end by itself.
    pub(super) fn waiting(&self) -> Option<&Said> {
        let init = self.init.iter().map(|(_, container)| container);
        init.chain([&self.main]).find_map(|container| match container {
            ContainerSeen::Waiting(said) if is_trouble(said) => Some(said),
            _ => None,
        })
    }
}

/// The words of a container that only waits for its turn say nothing.
fn is_trouble(said: &Said) -> bool {
    !matches!(said.reason.as_str(), "" | "PodInitializing" | "ContainerCreating")
}

fn container(status: &ContainerStatus) -> ContainerSeen {
    let Some(state) = status.state.clone() else { return ContainerSeen::Unknown };
    if let Some(ended) = state.terminated {
        // Some runtimes tell the signal apart from the code.
        let code = ended.signal.filter(|signal| *signal > 0).map_or(ended.exit_code, |signal| 128 + signal);
        return ContainerSeen::Ended { code, said: Said::new(ended.reason, ended.message) };
    }
    if state.running.is_some() {
        return ContainerSeen::Running;
    }
    match state.waiting {
        Some(waiting) => ContainerSeen::Waiting(Said::new(waiting.reason, waiting.message)),
        None => ContainerSeen::Unknown,
    }
}

fn requests(spec: &core::PodSpec) -> Amounts {
    let mut sum = Amounts::new();
    for container in &spec.containers {
        let Some(resources) = &container.resources else { continue };
        for (name, amount) in resources.requests.iter().flatten() {
            *sum.entry(name.clone()).or_default() += quantity::parse(&amount.0).unwrap_or(0.0);
        }
    }
    sum
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeSeen {
    /// Its kubelet is heard.
    pub ready: bool,
    /// A taint that drives pods away, other than those for a kubelet that is not heard.
    pub driven_out: bool,
    pub allocatable: Amounts,
}

impl NodeSeen {
    pub(super) fn of(node: &core::Node) -> Option<(NodeName, Self)> {
        let name = NodeName::new(node.name_any()).ok()?;
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let driven_out = taints.into_iter().flatten().any(|taint| {
            taint.effect == "NoExecute"
                && !matches!(
                    taint.key.as_str(),
                    "node.kubernetes.io/unreachable" | "node.kubernetes.io/not-ready"
                )
        });
        let amounts = status.and_then(|status| status.allocatable.as_ref());
        let allocatable = amounts
            .into_iter()
            .flatten()
            .filter_map(|(name, amount)| Some((name.clone(), quantity::parse(&amount.0)?)))
            .collect();
        Some((name, Self { ready, driven_out, allocatable }))
    }
}

/// Why the operator could not make a pod: the event FailedCreatePod. With the name of the job object.
pub(super) fn trouble_of(event: &core::Event) -> Option<(String, String)> {
    let about = &event.involved_object;
    let fits =
        about.kind.as_deref() == Some("PyTorchJob") && event.reason.as_deref() == Some("FailedCreatePod");
    fits.then(|| Some((about.uid.clone()?, bounded(event.message.clone()?))))?
}

fn task_of(labels: &BTreeMap<String, String>) -> Option<TaskId> {
    TaskId::new(labels.get(names::TASK)?).ok()
}

fn bounded(text: String) -> String {
    match text.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
