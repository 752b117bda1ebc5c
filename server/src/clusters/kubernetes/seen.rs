//! What the API server's objects say, reduced to what matters here. The only place that reads their fields; what a newer cluster adds
//! is passed over.

use std::collections::{BTreeMap, BTreeSet};

use engine::{
    chain::ReplicaStatus,
    ids::{NodeName, ReplicaName, TaskId},
    job::JobKind,
};
use k8s_openapi::{
    api::core::v1::{self as core, ContainerStatus, Taint},
    jiff::Timestamp,
};
use kube::{ResourceExt, core::DynamicObject};
use serde::{Deserialize, Deserializer};

use super::{
    kueue,
    names::{self, CONTAINER, RAY_CONTAINER},
    ray,
    requests::{self, Amounts, Asked},
};

/// How long after a suspension was taken back the operator may count pods that it ended: as long as a pod may take to end.
const RESUMING_SECONDS: i64 = 600;

/// Longest message that is kept of each object.
const MESSAGE_CHARS: usize = 1_000;

/// Reasons of events about pods whose containers cannot be made yet; nothing in the pod's status says so.
pub(super) const START_TROUBLES: [&str; 3] = ["FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"];

/// A job object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JobSeen {
    pub kind: JobKind,
    pub uid: String,
    pub namespace: String,
    pub task: TaskId,
    /// Replicas it asks for, the master or head included.
    pub replicas: u32,
    /// Nodes it keeps off.
    pub avoid: BTreeSet<NodeName>,
    /// Conditions that are true, with their messages; of a RayJob its one `jobDeploymentStatus`.
    pub conditions: BTreeMap<String, String>,
    /// How the driver of a RayJob ended, as far as KubeRay says.
    pub driver: Option<ReplicaStatus>,
    /// The driver of a RayJob was given to its cluster.
    pub submitted: bool,
    /// Somebody deleted it; it stays until its pods are gone.
    pub deleting: bool,
    /// What events about its pods are about: the UID of a PyTorchJob, the name of a RayJob's cluster.
    pub events_of: String,
    /// The LocalQueue of Kueue that it names.
    pub queue: Option<String>,
    /// When a suspension last began or was taken back, as the operator says it.
    pub suspension: Option<Timestamp>,
    /// It failed right after a suspension was taken back.
    pub failed_resuming: bool,
}

impl JobSeen {
    /// The object of an attempt; none where it does not carry our marks.
    pub(super) fn of(kind: JobKind, object: &DynamicObject) -> Option<Self> {
        let avoided = object.annotations().get(names::AVOIDED);
        let seen = Self {
            kind,
            uid: object.uid().unwrap_or_default(),
            namespace: object.namespace().unwrap_or_default(),
            task: task_of(object.labels())?,
            replicas: 0,
            avoid: avoided
                .into_iter()
                .flat_map(|names| names.split(','))
                .filter_map(|name| NodeName::new(name).ok())
                .collect(),
            conditions: BTreeMap::new(),
            driver: None,
            submitted: false,
            deleting: object.metadata.deletion_timestamp.is_some(),
            events_of: String::new(),
            queue: object.labels().get(kueue::QUEUE).cloned(),
            suspension: None,
            failed_resuming: false,
        };
        Some(match kind {
            JobKind::PyTorchJob => seen.pytorch(object),
            JobKind::RayJob => ray::read(object, seen),
        })
    }

    fn pytorch(self, object: &DynamicObject) -> Self {
        let data: JobData = serde_json::from_value(object.data.clone()).unwrap_or_default();
        let count = |specs: &ReplicaSpecs| {
            let count =
                |spec: &Option<ReplicaSpec>| spec.as_ref().map_or(0, |spec| spec.replicas.unwrap_or(1));
            count(&specs.master).saturating_add(count(&specs.worker))
        };
        let changed_at = |kind: &str| {
            let condition = data.status.conditions.iter().find(|condition| condition.kind == kind)?;
            condition.last_transition_time
        };
        let suspension = changed_at("Suspended");
        let failed_at = changed_at("Failed").map(Timestamp::as_second);
        let failed_after =
            failed_at.zip(suspension).map(|(failed, suspension)| failed - suspension.as_second());
        let failed_resuming = failed_after.is_some_and(|seconds| (0..=RESUMING_SECONDS).contains(&seconds));
        let conditions = data.status.conditions.into_iter().filter(|condition| condition.status == "True");
        let mut conditions: BTreeMap<_, _> =
            conditions.map(|condition| (condition.kind, bounded(condition.message))).collect();
        let is_over = ["Succeeded", "Failed"].iter().any(|over| conditions.contains_key(*over));
        if !data.spec.run_policy.suspend {
            // The operator takes its word back only after it has made the first pods.
            conditions.remove("Suspended");
        } else if !is_over {
            // The operator says so only when it has deleted all pods.
            conditions
                .entry("Suspended".to_owned())
                .or_insert_with(|| "the PyTorchJob is suspended on the cluster".to_owned());
        }
        let (replicas, events_of) = (count(&data.spec.replicas), self.uid.clone());
        Self { replicas, conditions, events_of, suspension, failed_resuming, ..self }
    }

    /// Whether a pod that ends does so because the job was suspended. The object says so after the suspension was taken back too,
    /// however little of that was seen: what was made before is of no use to the job any more.
    pub(super) fn withdraws(&self, pod: &PodSeen) -> bool {
        let was_before = |suspension| pod.created.is_some_and(|created| created < suspension);
        self.is("Suspended") || self.suspension.is_some_and(was_before)
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
    #[serde(rename = "runPolicy")]
    run_policy: RunPolicy,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RunPolicy {
    suspend: bool,
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

/// A condition of a foreign object's status.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ConditionData {
    #[serde(rename = "type")]
    pub kind: String,
    /// Whatever cannot be read as a time is none.
    #[serde(deserialize_with = "time")]
    last_transition_time: Option<Timestamp>,
    pub status: String,
    reason: String,
    message: String,
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

impl ConditionData {
    pub(super) fn said(&self) -> Said {
        Said::new(Some(self.reason.clone()), Some(self.message.clone()))
    }
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
    pub kind: JobKind,
    pub uid: String,
    pub name: String,
    pub task: TaskId,
    /// When it was made, to the second.
    pub created: Option<Timestamp>,
    /// None of a Ray cluster's worker, which has no number of its own.
    pub replica: Option<ReplicaName>,
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
    /// Its name.
    pub container: String,
    /// What runs before it, by name.
    pub init: Vec<(String, ContainerSeen)>,
    pub requests: Amounts,
}

impl PodSeen {
    /// A replica's pod; none where it does not carry our marks.
    pub(super) fn of(pod: &core::Pod) -> Option<Self> {
        let task = task_of(pod.labels())?;
        let (kind, replica) = part_of(pod.labels())?;
        let spec = pod.spec.as_ref();
        let status = pod.status.clone().unwrap_or_default();
        let condition = |kind: &str, value: &str| {
            let found = status.conditions.iter().flatten().find(|condition| condition.type_ == kind)?;
            let is_so = found.status == value;
            is_so.then(|| Said::new(found.reason.clone(), found.message.clone()))
        };
        let mains = status.container_statuses.iter().flatten();
        let inits = status.init_container_statuses.iter().flatten();
        let container_name = pod.annotations().get(names::MAIN).map_or(container_of(kind), String::as_str);
        Some(Self {
            kind,
            uid: pod.uid()?,
            name: pod.name_any(),
            task,
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
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
                .filter(|status| status.name == container_name)
                .map(container)
                .next()
                .unwrap_or(ContainerSeen::Unknown),
            container: container_name.to_owned(),
            init: inits.map(|status| (status.name.clone(), container(status))).collect(),
            requests: spec.map(|spec| Asked::of(spec).requests).unwrap_or_default(),
        })
    }

    /// It has ended, by its own account.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
            || matches!(self.main, ContainerSeen::Ended { .. })
    }

    /// None of its containers was made yet.
    pub(super) fn is_being_made(&self) -> bool {
        let is_early = |container: &ContainerSeen| match container {
            ContainerSeen::Unknown => true,
            ContainerSeen::Waiting(said) => !is_trouble(said),
            ContainerSeen::Running | ContainerSeen::Ended { .. } => false,
        };
        let init = self.init.iter().map(|(_, container)| container);
        self.phase == Phase::Pending && init.chain([&self.main]).all(is_early)
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

/// How the container is usually called whose end is the replica's, and whose output is the program's.
pub(super) fn container_of(kind: JobKind) -> &'static str {
    match kind {
        JobKind::PyTorchJob => CONTAINER,
        JobKind::RayJob => RAY_CONTAINER,
    }
}

/// Which replica of which kind of job a pod is, by its operator's labels.
fn part_of(labels: &BTreeMap<String, String>) -> Option<(JobKind, Option<ReplicaName>)> {
    if let Some(part) = labels.get(names::RAY_NODE_TYPE) {
        let head = ReplicaName::of_index(JobKind::RayJob, 0);
        return match part.as_str() {
            "head" => Some((JobKind::RayJob, Some(head))),
            "worker" => Some((JobKind::RayJob, None)),
            _ => None,
        };
    }
    let (part, index) = (labels.get(names::REPLICA_TYPE)?, labels.get(names::REPLICA_INDEX)?);
    Some((JobKind::PyTorchJob, Some(ReplicaName::new(format!("{part}-{index}")).ok()?)))
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

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeSeen {
    /// Its kubelet is heard, and says that it is well.
    pub ready: bool,
    /// Its kubelet is heard, whatever it says.
    pub heard: bool,
    /// A taint that drives pods away, other than those for a kubelet that is not heard.
    pub driven_out: bool,
    /// Somebody keeps new pods off it.
    pub cordoned: bool,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub allocatable: Amounts,
}

impl NodeSeen {
    pub(super) fn of(node: &core::Node) -> Option<(NodeName, Self)> {
        let name = NodeName::new(node.name_any()).ok()?;
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().find(|one| one.type_ == "Ready");
        let ready = ready.map(|one| one.status.as_str());
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let driven_out = taints.into_iter().flatten().any(|taint| {
            taint.effect == "NoExecute"
                && !matches!(
                    taint.key.as_str(),
                    "node.kubernetes.io/unreachable" | "node.kubernetes.io/not-ready"
                )
        });
        Some((
            name,
            Self {
                ready: ready == Some("True"),
                heard: ready != Some("Unknown"),
                driven_out,
                cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false),
                labels: node.labels().clone(),
                taints: taints.cloned().unwrap_or_default(),
                allocatable: requests::amounts(status.and_then(|status| status.allocatable.as_ref())),
            },
        ))
    }
}

/// Why the operator could not make a pod, and what that is about: see [`JobSeen::events_of`].
pub(super) fn trouble_of(event: &core::Event) -> Option<(String, String)> {
    let about = &event.involved_object;
    let of = match (about.kind.as_deref()?, event.reason.as_deref()?) {
        ("PyTorchJob", "FailedCreatePod") => about.uid.clone()?,
        ("RayCluster", "FailedToCreateHeadPod" | "FailedToCreateWorkerPod") => about.name.clone()?,
        _ => return None,
    };
    Some((of, bounded(event.message.clone()?)))
}

/// Why the kubelet cannot start the containers of a pod, and the pod's UID.
pub(super) fn start_trouble_of(event: &core::Event) -> Option<(String, Said)> {
    let reason = event.reason.as_deref().filter(|reason| START_TROUBLES.contains(reason))?;
    let uid = event.involved_object.uid.clone()?;
    Some((uid, Said::new(Some(reason.to_owned()), event.message.clone())))
}

fn task_of(labels: &BTreeMap<String, String>) -> Option<TaskId> {
    TaskId::new(labels.get(names::TASK)?).ok()
}

/// As much of a message as is kept.
pub(super) fn bounded(text: String) -> String {
    match text.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
