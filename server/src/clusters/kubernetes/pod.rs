//! The pod templates of an attempt. Pure.
//!
//! The user's image stays as it is: an init container copies the agent into an empty directory of the pod, and the agent starts the
//! program. Each pod sees the token of its own replica only. Of a Ray cluster the head alone has an agent, which Ray starts with the
//! job's command; what the containers start with is KubeRay's.

use std::collections::{BTreeMap, BTreeSet};

use engine::{
    chain::limits,
    ids::ReplicaName,
    job::{JobKind, Toleration, Volume, VolumeSource},
    words,
};
use serde_json::{Map, Value, json};

use super::{
    gang, names,
    seen::container_of,
    settings::{AgentSource, KubernetesSettings},
};
use crate::clusters::Order;

/// The init container that brings the agent.
pub(super) const INSTALL: &str = "holdfast-install";
/// Where the agent and what it keeps are in a pod.
const HOME: &str = "/holdfast";
/// The file with the token of the pod's own replica.
const TOKEN_FILE: &str = "/etc/holdfast/token";
/// The key, in the Secret of an attempt, of the authorities that agents trust. No replica is called so.
pub(super) const AUTHORITIES: &str = "ca.crt";
/// The file with them.
const AUTHORITIES_FILE: &str = "/etc/holdfast/ca.crt";
const HOME_VOLUME: &str = "holdfast";
const TOKEN_VOLUME: &str = "holdfast-token";
const SHM_VOLUME: &str = "holdfast-shm";
/// The agent's own time to end a launch, beside the grace that the launch has: KILL, reaping and the last report.
const AGENT_STOP_SECONDS: u32 = 10;
/// What the init container may use: it copies one file.
const INSTALL_CPU: &str = "50m";
const INSTALL_MEMORY: &str = "64Mi";
/// What the agent keeps of each launch's output in the pod, beside what it passes on to the kubelet. A limit of the directory itself
/// would have the kubelet evict the pod.
const LOG_LIMIT_BYTES: u32 = 64 << 20;

/// What a pod is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A replica of a PyTorchJob.
    PyTorch,
    /// The head of a Ray cluster, where the driver runs.
    RayHead,
    /// A worker of one.
    RayWorker,
}

impl Part {
    pub(super) fn kind(self) -> JobKind {
        match self {
            Self::PyTorch => JobKind::PyTorchJob,
            Self::RayHead | Self::RayWorker => JobKind::RayJob,
        }
    }

    fn has_agent(self) -> bool {
        self != Self::RayWorker
    }
}

/// The template of the replicas of one part, or why a job cannot have one here.
pub(super) fn template(
    order: &Order,
    part: Part,
    settings: &KubernetesSettings,
    labels: &BTreeMap<String, String>,
) -> Result<Value, String> {
    let (spec, options) = (&order.spec, &order.spec.kubernetes);
    let image = spec.image.as_ref().ok_or("image is missing; Kubernetes needs one")?;
    let (volumes, mounts) = volumes(order, part, settings)?;
    let mut container = Map::new();
    let mut set = |name: &str, value: Value| drop(container.insert(name.to_owned(), value));
    set("name", json!(container_of(part.kind())));
    set("image", json!(image));
    if part == Part::PyTorch {
        set("command", json!(command(order, settings)));
    }
    set("env", env(order, part, settings)?);
    set("volumeMounts", json!(mounts));
    set("resources", resources(order, settings));
    if let Some(dir) = &spec.working_dir {
        set("workingDir", json!(dir));
    }
    let mut pod = Map::new();
    let mut set = |name: &str, value: Value| drop(pod.insert(name.to_owned(), value));
    set("containers", json!([container]));
    if let AgentSource::Image(image) = &settings.agent
        && part.has_agent()
    {
        set("initContainers", json!([installer(image)]));
    }
    set("volumes", json!(volumes));
    set("restartPolicy", json!("Never"));
    set("terminationGracePeriodSeconds", json!(grace_seconds(order)));
    set("tolerations", json!(tolerations(&options.tolerations, settings)));
    set("affinity", affinity(order));
    if !options.node_selector.is_empty() {
        set("nodeSelector", json!(options.node_selector));
    }
    let volcano = options.volcano_queue.as_ref().map(|_| gang::VOLCANO);
    if let Some(scheduler) = options.scheduler.as_deref().or(volcano) {
        set("schedulerName", json!(scheduler));
    }
    if let Some(class) = &options.priority_class {
        set("priorityClassName", json!(class));
    }
    match &options.service_account {
        Some(account) => set("serviceAccountName", json!(account)),
        // A training program that was given no account needs no way into the cluster.
        None => set("automountServiceAccountToken", json!(false)),
    }
    if !options.pull_secrets.is_empty() {
        let names: Vec<_> = options.pull_secrets.iter().map(|name| json!({ "name": name })).collect();
        set("imagePullSecrets", json!(names));
    }
    pod.retain(|_, value| !value.is_null());
    let mut metadata = json!({ "labels": labels });
    if let Some(queue) = &options.volcano_queue {
        metadata["annotations"] = json!({ (gang::POD_QUEUE): queue });
    }
    Ok(json!({ "metadata": metadata, "spec": pod }))
}

/// The container that copies the agent. It has limits, as quotas may ask every container for them.
fn installer(image: &str) -> Value {
    let amounts = json!({ "cpu": INSTALL_CPU, "memory": INSTALL_MEMORY });
    json!({
        "name": INSTALL,
        "image": image,
        "args": ["install", HOME],
        "resources": { "requests": amounts, "limits": amounts },
        "volumeMounts": [{ "name": HOME_VOLUME, "mountPath": HOME }],
    })
}

/// The agent's command, up to where the program follows.
fn agent(settings: &KubernetesSettings) -> [String; 3] {
    let agent = match &settings.agent {
        AgentSource::Image(_) => format!("{HOME}/holdfast-agent"),
        AgentSource::InImage(path) => path.clone(),
    };
    [agent, "run".to_owned(), "--".to_owned()]
}

fn command(order: &Order, settings: &KubernetesSettings) -> Vec<String> {
    agent(settings).into_iter().chain(order.spec.command.iter().map(|arg| literal(arg))).collect()
}

/// What Ray has a shell start as the driver, on the head. Ray gives it a working directory of its own, so the job's is said.
pub(super) fn entrypoint(order: &Order, settings: &KubernetesSettings) -> String {
    let start: Vec<_> = agent(settings).into_iter().chain(order.spec.command.iter().cloned()).collect();
    let start = format!("exec {}", words::shell_line(&start));
    match &order.spec.working_dir {
        Some(dir) => format!("cd {} && {start}", words::shell_line(&[dir])),
        None => start,
    }
}

/// A text that the kubelet leaves as it is: it would put variables in the place of `$(NAME)` and make `$$` one `$`.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn field(name: &str, path: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } })
}

fn value(name: &str, value: &str) -> Value {
    json!({ "name": name, "value": value })
}

/// What the agent is told. A variable can only use those before it.
fn agent_env(order: &Order, part: Part, settings: &KubernetesSettings) -> Vec<Value> {
    let label = |name: &str| format!("metadata.labels['{name}']");
    let head = ReplicaName::of_index(JobKind::RayJob, 0);
    let (mut own, replica) = match part {
        Part::PyTorch => (
            vec![
                field("HOLDFAST_AGENT_REPLICA_TYPE", &label(names::REPLICA_TYPE)),
                field("HOLDFAST_AGENT_REPLICA_INDEX", &label(names::REPLICA_INDEX)),
            ],
            "$(HOLDFAST_AGENT_REPLICA_TYPE)-$(HOLDFAST_AGENT_REPLICA_INDEX)",
        ),
        Part::RayHead => (
            vec![
                // Ray keeps a driver's output to itself; where the head's first process prints, the cluster keeps it.
                value("HOLDFAST_AGENT_PASS_THROUGH_FILE", "/proc/1/fd/1"),
                value("HOLDFAST_AGENT_NO_RANKS", "true"),
            ],
            head.as_str(),
        ),
        Part::RayWorker => return Vec::new(),
    };
    own.extend([
        value("HOLDFAST_AGENT_REPLICA", replica),
        field("HOLDFAST_AGENT_ADDRESS", "status.podIP"),
        value("HOLDFAST_AGENT_SERVER", &literal(&settings.server_url)),
        value("HOLDFAST_AGENT_TASK_ID", order.plan.task_id.as_str()),
        value("HOLDFAST_AGENT_TOKEN_FILE", TOKEN_FILE),
        value("HOLDFAST_AGENT_STATE_DIR", &format!("{HOME}/state")),
        value("HOLDFAST_AGENT_LOG_DIR", &format!("{HOME}/logs")),
        value("HOLDFAST_AGENT_LOG_LIMIT_BYTES", &LOG_LIMIT_BYTES.to_string()),
        value("HOLDFAST_AGENT_PASS_THROUGH", "true"),
        value("HOLDFAST_REPLICA", replica),
        field("HOLDFAST_NODE", "spec.nodeName"),
    ]);
    if settings.server_ca.is_some() {
        own.push(value("HOLDFAST_AGENT_SERVER_CA_FILE", AUTHORITIES_FILE));
    }
    own
}

fn env(order: &Order, part: Part, settings: &KubernetesSettings) -> Result<Value, String> {
    let (spec, plan) = (&order.spec, &order.plan);
    let mut own = agent_env(order, part, settings);
    own.extend([
        value("HOLDFAST_JOB_ID", order.job_id.as_str()),
        value("HOLDFAST_TASK_ID", plan.task_id.as_str()),
        value("HOLDFAST_ATTEMPT", &plan.number.to_string()),
    ]);
    if let Some(previous) = &plan.previous_task_id {
        own.push(value("HOLDFAST_PREVIOUS_TASK_ID", previous.as_str()));
    }
    if let Some(dir) = &spec.checkpoint_dir {
        if !dir.starts_with('/') {
            return Err(format!(
                "checkpoint_dir {dir} is relative; on Kubernetes name an absolute path, in a volume that outlives the pods"
            ));
        }
        own.push(value("HOLDFAST_CHECKPOINT_DIR", &literal(dir)));
    }
    let ours: BTreeSet<_> = own.iter().filter_map(|one| one["name"].as_str().map(str::to_owned)).collect();
    let secrets = &spec.kubernetes.secrets;
    let by_reference = secrets.iter().map(|one| {
        let source = json!({ "secretKeyRef": { "name": one.secret, "key": one.key } });
        (&one.name, json!({ "name": one.name, "valueFrom": source }))
    });
    let plain = spec.env.iter().filter(|(name, _)| secrets.iter().all(|secret| secret.name != **name));
    let plain = plain.map(|(name, text)| (name, value(name, &literal(text))));
    let theirs = plain.chain(by_reference).filter(|(name, _)| !ours.contains(*name)).map(|(_, one)| one);
    Ok(own.iter().cloned().chain(theirs).collect())
}

fn resources(order: &Order, settings: &KubernetesSettings) -> Value {
    let options = &order.spec.kubernetes;
    let mut amounts = BTreeMap::new();
    amounts.extend(options.cpu.as_ref().map(|cpu| ("cpu".to_owned(), cpu.clone())));
    amounts.extend(options.memory.as_ref().map(|memory| ("memory".to_owned(), memory.clone())));
    if order.spec.accelerators_per_replica > 0 {
        let name = options.accelerator.as_ref().unwrap_or(&settings.accelerator);
        amounts.insert(name.clone(), order.spec.accelerators_per_replica.to_string());
    }
    json!({ "requests": amounts, "limits": amounts })
}

/// Volumes of the pod and where the program's container sees them.
fn volumes(
    order: &Order,
    part: Part,
    settings: &KubernetesSettings,
) -> Result<(Vec<Value>, Vec<Value>), String> {
    let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
    if part.has_agent() {
        let secret = names::secret_of(&order.plan.task_id);
        volumes.push(json!({ "name": HOME_VOLUME, "emptyDir": {} }));
        // Inside the container only: whoever the program runs as must be able to read it.
        volumes
            .push(json!({ "name": TOKEN_VOLUME, "secret": { "secretName": secret, "defaultMode": 0o444 } }));
        mounts.push(json!({ "name": HOME_VOLUME, "mountPath": HOME }));
        mounts.push(json!({
            "name": TOKEN_VOLUME,
            "mountPath": TOKEN_FILE,
            "subPathExpr": "$(HOLDFAST_AGENT_REPLICA)",
            "readOnly": true,
        }));
        if settings.server_ca.is_some() {
            mounts.push(json!({
                "name": TOKEN_VOLUME,
                "mountPath": AUTHORITIES_FILE,
                "subPath": AUTHORITIES,
                "readOnly": true,
            }));
        }
    }
    if let Some(size) = &order.spec.kubernetes.shm_size {
        volumes.push(json!({ "name": SHM_VOLUME, "emptyDir": { "medium": "Memory", "sizeLimit": size } }));
        mounts.push(json!({ "name": SHM_VOLUME, "mountPath": "/dev/shm" }));
    }
    for (number, volume) in order.spec.kubernetes.volumes.iter().enumerate() {
        let name = format!("volume-{number}");
        let mut made = source(volume, settings)?;
        made["name"] = json!(name);
        volumes.push(made);
        let mut mount = json!({ "name": name, "mountPath": volume.mount_path });
        if volume.read_only {
            mount["readOnly"] = json!(true);
        }
        mounts.push(mount);
    }
    Ok((volumes, mounts))
}

fn source(volume: &Volume, settings: &KubernetesSettings) -> Result<Value, String> {
    Ok(match &volume.source {
        VolumeSource::Claim(name) => json!({ "persistentVolumeClaim": { "claimName": name } }),
        VolumeSource::ConfigMap(name) => json!({ "configMap": { "name": name } }),
        VolumeSource::Secret(name) => json!({ "secret": { "secretName": name } }),
        VolumeSource::HostPath(path) if settings.allow_host_paths => json!({ "hostPath": { "path": path } }),
        VolumeSource::HostPath(path) => {
            return Err(format!(
                "{path} is a directory of the nodes, which jobs may not mount here; use a PersistentVolumeClaim, or have the cluster allow host paths (--kube-allow-host-paths)"
            ));
        }
    })
}

/// From TERM to KILL of a pod: what the agent needs to end a launch, after what the program may take to save.
fn grace_seconds(order: &Order) -> u32 {
    let notice = &order.spec.fault_tolerance.exit_checkpoint;
    let saving = if notice.enabled { notice.max_wait_seconds } else { 0 };
    limits::STOP_GRACE_SECONDS + AGENT_STOP_SECONDS + saving
}

/// The job's own, and those that say how soon a lost node is noticed.
fn tolerations(wanted: &[Toleration], settings: &KubernetesSettings) -> Vec<Value> {
    let theirs = wanted.iter().map(|one| {
        let mut toleration = json!({ "operator": if one.value.is_some() { "Equal" } else { "Exists" } });
        for (name, value) in [("key", &one.key), ("value", &one.value), ("effect", &one.effect)] {
            if let Some(value) = value {
                toleration[name] = json!(value);
            }
        }
        toleration
    });
    let lost = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(|key| {
        json!({
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": settings.node_lost_seconds,
        })
    });
    theirs.chain(lost).collect()
}

/// Keeps the pods off the avoided nodes, or has one on each of the nodes that the attempt is bound to. Nodes go by their names: the label
/// `kubernetes.io/hostname` is not the name everywhere, but it tells nodes apart.
fn affinity(order: &Order) -> Value {
    if !order.plan.only.is_empty() {
        // A term takes one name, and one term is enough.
        let term =
            |node| json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] });
        let terms: Vec<_> = order.plan.only.iter().map(term).collect();
        let others = json!({ "matchLabels": { (names::TASK): order.plan.task_id } });
        return json!({
            "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } },
            "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                { "labelSelector": others, "topologyKey": "kubernetes.io/hostname" },
            ] },
        });
    }
    let avoid: Vec<_> = order
        .plan
        .avoid
        .iter()
        .map(|node| json!({ "key": "metadata.name", "operator": "NotIn", "values": [node] }))
        .collect();
    if avoid.is_empty() {
        return Value::Null;
    }
    let terms = json!([{ "matchFields": avoid }]);
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_says_reaches_its_program_as_it_is() {
        for (text, want) in [("echo $(date) $$ $HOME", "echo $$(date) $$$$ $$HOME"), ("plain", "plain")] {
            assert_eq!(literal(text), want);
        }
    }
}
