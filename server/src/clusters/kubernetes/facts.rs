//! From what the cluster shows of an attempt to an observation. Pure.
//!
//! The job object never says why: an exit code, a preemption and a lost node give the same condition. So everything is read from the
//! pods, from the last state of those that are gone too, and a replica is over with the first of its pods that is: the operator makes a
//! new one under the same name where somebody deletes a pod, which is another process with another memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use engine::{
    chain::{EndReason, Observation, ReplicaObservation, ReplicaStatus},
    failure::Exit,
    ids::{NodeName, ReplicaName},
    job::JobKind,
};

use super::{
    queue,
    queues::InQueue,
    ray,
    seen::{ContainerSeen, JobSeen, NodeSeen, Phase, PodSeen, Said},
};

/// How long a container may wait for what is likely to fail for good, such as an image that cannot be pulled: the kubelet tries again
/// after 10, 20, 40, 80 seconds, and a registry's hiccup is over by then.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(180);

/// How long a container may wait for an image of which its registry says that there is none: the kubelet has asked twice by then, and
/// one that is just being pushed may be there.
pub(super) const NO_IMAGE_PATIENCE: Duration = Duration::from_secs(20);

/// A pod and what is remembered of it.
#[derive(Clone, Debug)]
pub(super) struct PodKnown {
    pub seen: PodSeen,
    /// It is not on the cluster any more; `seen` is its last state.
    pub gone: bool,
    /// How long it has been waiting for the same trouble, by our clock.
    pub waited: Duration,
    /// It went, or goes, because the job was suspended: how it ends says nothing about the attempt.
    pub withdrawn: bool,
    /// What the kubelet says of making its containers, and for how long it has said so again and again.
    pub making: Option<(Said, Duration)>,
}

/// All that is known of an attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub job: Option<JobSeen>,
    /// Its pods in the order in which they were made.
    pub pods: Vec<PodKnown>,
    /// Why the operator could not make a pod.
    pub trouble: Option<String>,
    /// What queueing systems say of the job.
    pub queued: InQueue,
}

impl Known {
    /// The pods that tell how the attempt is.
    pub(super) fn telling(&self) -> impl Iterator<Item = &PodKnown> {
        self.pods.iter().filter(|pod| !pod.withdrawn)
    }

    /// Whether pods are taken away and nothing says why. The job may be suspended: that is told by another watch, which may be behind. Those
    /// of a job that is being deleted go with it.
    pub(super) fn is_unexplained(&self) -> bool {
        let is_taken = |pod: &PodKnown| pod.seen.deleting || pod.gone && !pod.seen.is_over();
        // KubeRay takes workers of Ray and makes others, all the time.
        let is_replica = |pod: &PodKnown| pod.seen.replica.is_some();
        let is_silent = |pod: &PodKnown| is_replica(pod) && is_taken(pod) && pod.seen.disruption.is_none();
        let is_to_run = |job: &JobSeen| !job.deleting && !job.is("Suspended");
        self.job.as_ref().is_some_and(is_to_run) && self.telling().any(is_silent)
    }

    /// The same with the job object as it is now.
    pub(super) fn with_job(mut self, job: JobSeen) -> Self {
        for pod in self.pods.iter_mut().filter(|pod| job.withdraws(&pod.seen)) {
            pod.withdrawn |= pod.gone || pod.seen.deleting;
        }
        self.job = Some(job);
        self
    }
}

/// Nodes by name.
pub(super) type Nodes = BTreeMap<NodeName, NodeSeen>;

/// What there is of an attempt.
pub(super) fn observe(known: &Known, nodes: &Nodes) -> Observation {
    let job = &known.job;
    if job.is_none() && known.pods.iter().all(|pod| pod.gone) {
        return Observation::Absent;
    }
    let pods: Vec<_> = known.telling().collect();
    let pods = pods.as_slice();
    if let Some(job) = job.as_ref().filter(|job| is_taken_back(job, known, nodes)) {
        return Observation::Suspended(queue::why(job, known, nodes));
    }
    let kind = job.as_ref().map(|job| job.kind).or_else(|| pods.first().map(|pod| pod.seen.kind));
    let mut replicas = match kind.unwrap_or(JobKind::PyTorchJob) {
        JobKind::PyTorchJob => pytorch(pods, nodes, job.as_ref()),
        JobKind::RayJob => ray::replicas(pods, nodes, job.as_ref()),
    };
    let Some(job) = job else { return Observation::Placed { replicas } };
    let placed = replicas.values().filter(|one| one.node.is_some()).count();
    // Once a Ray driver runs its workers come and go.
    let enough = if job.submitted { 1 } else { u64::from(job.replicas) };
    let any_ended = replicas.values().any(|one| matches!(one.status, ReplicaStatus::Ended { .. }));
    if placed as u64 >= enough || any_ended {
        // One that waits for a node is not placed yet.
        replicas.retain(|_, one| one.node.is_some() || matches!(one.status, ReplicaStatus::Ended { .. }));
        return Observation::Placed { replicas };
    }
    Observation::Waiting(queue::why(job, known, nodes))
}

/// Whether a suspended attempt has lost what it had: with the first of its pods that goes, since a suspension that is taken back before
/// has taken nothing. They go one after the other, and what those that are still there notice of the others is no failure. One that
/// failed before is; one that finished is none. Where the suspension was taken back while they ended, it has lost them no less until
/// others are made.
fn is_taken_back(job: &JobSeen, known: &Known, nodes: &Nodes) -> bool {
    let has_failed = |pod: &PodKnown| match status(pod, nodes) {
        ReplicaStatus::Ended { exit, .. } => !exit.is_some_and(Exit::is_success),
        ReplicaStatus::Pending(_) | ReplicaStatus::Blocked(_) | ReplicaStatus::Running => false,
    };
    let mut telling = known.telling().peekable();
    let any_withdrawn = known.pods.iter().any(|pod| pod.withdrawn);
    let has_none = telling.peek().is_none();
    if !job.is("Suspended") {
        return has_none && any_withdrawn && job.suspension.is_some() && !job.is("Failed");
    }
    (has_none || any_withdrawn) && !telling.any(has_failed)
}

/// The replicas of a PyTorchJob.
fn pytorch(
    pods: &[&PodKnown],
    nodes: &Nodes,
    job: Option<&JobSeen>,
) -> BTreeMap<ReplicaName, ReplicaObservation> {
    let mut replicas = BTreeMap::new();
    for pod in pods {
        let Some(name) = pod.seen.replica.clone() else { continue };
        let status = status(pod, nodes);
        put(&mut replicas, name, ReplicaObservation { node: pod.seen.node.clone(), status });
    }
    let Some(job) = job else { return replicas };
    let expected = (0..job.replicas).map(|index| ReplicaName::of_index(JobKind::PyTorchJob, index));
    let missing: BTreeSet<_> = expected.filter(|name| !replicas.contains_key(name)).collect();
    let any_ended = replicas.values().any(|one| matches!(one.status, ReplicaStatus::Ended { .. }));
    for name in missing {
        if let Some(status) = without_pod(job, replicas.is_empty(), any_ended) {
            replicas.insert(name, ReplicaObservation { node: None, status });
        }
    }
    if let Some(message) = job.conditions.get("Failed").filter(|message| is_deadline(message)) {
        let is_going_on = |one: &&mut ReplicaObservation| !matches!(one.status, ReplicaStatus::Ended { .. });
        for replica in replicas.values_mut().filter(is_going_on) {
            replica.status = ended(EndReason::Lost(message.clone()));
        }
    }
    replicas
}

/// The time that the job's owner has given each attempt is over. Its pods stay, as they do whatever a job of ours comes to.
fn is_deadline(message: &str) -> bool {
    message.contains("active longer than specified deadline")
}

/// Adds what a pod shows of a replica; one that is over stays as it ended.
pub(super) fn put(
    replicas: &mut BTreeMap<ReplicaName, ReplicaObservation>,
    name: ReplicaName,
    observed: ReplicaObservation,
) {
    let is_over = |seen: &ReplicaObservation| matches!(seen.status, ReplicaStatus::Ended { .. });
    if !replicas.get(&name).is_some_and(is_over) {
        replicas.insert(name, observed);
    }
}

/// What became of a replica of which no pod was ever seen; none while the operator may still make it.
fn without_pod(job: &JobSeen, is_first: bool, any_ended: bool) -> Option<ReplicaStatus> {
    let message = job.conditions.get("Failed")?;
    let reason = if is_deadline(message) {
        EndReason::Lost(message.clone())
    } else if job.failed_resuming && !any_ended {
        EndReason::Preempted(format!(
            "it was suspended and resumed before its pods had ended, which the training operator counts as a failure; {message}"
        ))
    } else if is_first {
        EndReason::StartError(message.clone())
    } else {
        EndReason::Lost(format!("its pod is gone and nothing says why; {message}"))
    };
    Some(ReplicaStatus::Ended { exit: None, reason })
}

fn ended(reason: EndReason) -> ReplicaStatus {
    ReplicaStatus::Ended { exit: None, reason }
}

/// How a pod's program is.
pub(super) fn status(pod: &PodKnown, nodes: &Nodes) -> ReplicaStatus {
    let seen = &pod.seen;
    let node = seen.node.as_ref().and_then(|name| nodes.get(name));
    let taken = || taken_away(seen, node);
    if let ContainerSeen::Ended { code, said } = &seen.main {
        return of_exit(seen, *code, said, taken);
    }
    match seen.phase {
        Phase::Failed => return of_failure(seen, taken),
        Phase::Succeeded => {
            return match disrupted(seen, node) {
                Some(reason) => ended(reason),
                None => ReplicaStatus::Ended { exit: Some(Exit::from_code(0)), reason: EndReason::Exited },
            };
        }
        Phase::Pending | Phase::Running | Phase::Other => {}
    }
    if pod.gone {
        return ended(taken());
    }
    // Only the kubelet could say that it ended, and that one is not heard.
    if seen.deleting && node.map_or_else(|| is_of_lost_node(seen), |node| !node.ready) {
        // A drain that ends in a reboot is still a drain.
        if let Some(reason) = disrupted(seen, node).filter(|reason| !matches!(reason, EndReason::NodeLost(_)))
        {
            return ended(reason);
        }
        let name = seen.node.as_ref().map_or("its node", NodeName::as_str);
        let words = seen.disruption.as_ref().map_or_else(String::new, |said| format!(" ({})", said.message));
        return ended(EndReason::NodeLost(format!("{name} is not heard{words}")));
    }
    if seen.main == ContainerSeen::Running {
        return ReplicaStatus::Running;
    }
    let making = pod.making.as_ref().filter(|_| seen.is_being_made());
    match seen.waiting().map(|said| (said, pod.waited)).or(making.map(|(said, waited)| (said, *waited))) {
        Some((said, waited)) if is_final(said, waited) => ended(EndReason::StartError(said.text())),
        Some((said, _)) => ReplicaStatus::Blocked(said.text()),
        None => ReplicaStatus::Pending(turn_of(seen)),
    }
}

/// The cluster gave the pod up with its node. Asked where the node itself cannot be seen.
pub(super) fn is_of_lost_node(seen: &PodSeen) -> bool {
    let reason = seen.disruption.as_ref().map(|said| said.reason.as_str());
    matches!(reason, Some("DeletionByTaintManager" | "DeletionByPodGC"))
}

/// Which container runs before the program.
fn turn_of(seen: &PodSeen) -> Option<String> {
    let (name, _) = seen.init.iter().find(|(_, container)| *container == ContainerSeen::Running)?;
    Some(match name.as_str() {
        "init-pytorch" => "waits for the name of the master to be known".to_owned(),
        "wait-gcs-ready" => "waits for the head of the Ray cluster".to_owned(),
        name => format!("init container {name} runs"),
    })
}

/// The program's container ended.
fn of_exit(seen: &PodSeen, code: i32, said: &Said, taken: impl Fn() -> EndReason) -> ReplicaStatus {
    let exit = Some(Exit::from_code(i64::from(code)));
    if seen.disruption.is_some() || seen.said.reason == "Evicted" {
        // Whatever it answered the signal with says nothing about the work, a zero included.
        return ended(taken());
    }
    match said.reason.as_str() {
        "OOMKilled" => return ReplicaStatus::Ended { exit, reason: EndReason::OomKilled },
        "StartError" | "ContainerCannotRun" => return ended(EndReason::StartError(said.text())),
        // The kubelet lost sight of it, with a node that was switched off for instance.
        "ContainerStatusUnknown" => return ended(taken()),
        _ => {}
    }
    // The agent ends with 143 when a signal cut its work short, and is killed where it takes too long.
    if seen.deleting && matches!(code, 137 | 143) {
        return ended(taken());
    }
    ReplicaStatus::Ended { exit, reason: EndReason::Exited }
}

/// The pod failed and its program did not.
fn of_failure(seen: &PodSeen, taken: impl Fn() -> EndReason) -> ReplicaStatus {
    if seen.disruption.is_some() || seen.said.reason == "Evicted" {
        return ended(taken());
    }
    let failed = seen.init.iter().find_map(|(name, container)| match container {
        ContainerSeen::Ended { code, said } if *code != 0 => Some((name, code, said)),
        _ => None,
    });
    if let Some((name, code, said)) = failed {
        let words = match said.text().as_str() {
            "" | "Error" => String::new(),
            text => format!(": {text}"),
        };
        let hint = match name.as_str() {
            "init-pytorch" => "; it waits for the name of the master in the cluster's DNS",
            super::pod::INSTALL => "; it copies the agent, see agent-image in the configuration",
            _ => "",
        };
        return ended(EndReason::StartError(format!("init container {name} ended with {code}{words}{hint}")));
    }
    match seen.said.reason.as_str() {
        "NodeLost" => ended(EndReason::NodeLost(seen.said.text())),
        "" if seen.deleting => ended(taken()),
        // Refused by the kubelet: OutOfcpu, NodeAffinity, UnexpectedAdmissionError and whatever comes.
        _ => ended(EndReason::StartError(match seen.said.text() {
            text if text.is_empty() => "the pod failed and the cluster does not say why".to_owned(),
            text => text,
        })),
    }
}

/// Why a pod was taken away from its program.
pub(super) fn taken_from(pod: &PodKnown, nodes: &Nodes) -> EndReason {
    let node = pod.seen.node.as_ref().and_then(|name| nodes.get(name));
    taken_away(&pod.seen, node)
}

fn taken_away(seen: &PodSeen, node: Option<&NodeSeen>) -> EndReason {
    if let Some(reason) = disrupted(seen, node) {
        return reason;
    }
    if seen.said.reason == "Evicted" {
        return EndReason::Evicted(seen.said.message.clone());
    }
    EndReason::Lost(format!("pod {} was deleted by someone else", seen.name))
}

/// What the condition DisruptionTarget says.
fn disrupted(seen: &PodSeen, node: Option<&NodeSeen>) -> Option<EndReason> {
    let said = seen.disruption.as_ref()?;
    let text = said.text();
    Some(match said.reason.as_str() {
        // Somebody's own taint on a node that is well is maintenance.
        "DeletionByTaintManager" if node.is_some_and(|node| node.ready && node.driven_out) => {
            EndReason::Preempted(text)
        }
        "DeletionByTaintManager" | "DeletionByPodGC" => EndReason::NodeLost(text),
        "TerminationByKubelet" => EndReason::Evicted(match seen.said.text() {
            words if words.is_empty() => text,
            words => words,
        }),
        // PreemptionByScheduler, EvictionByEvictionAPI, and what newer clusters add: by its definition the condition means that the
        // cluster takes the pod away.
        _ => EndReason::Preempted(text),
    })
}

/// Whether a container will not start any more.
fn is_final(said: &Said, waited: Duration) -> bool {
    match said.reason.as_str() {
        "ErrImageNeverPull" | "InvalidImageName" => true,
        "ErrImagePull" | "ImagePullBackOff" if is_no_image(&said.message) => waited >= NO_IMAGE_PATIENCE,
        "ErrImagePull"
        | "ImagePullBackOff"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "StartError"
        | "CrashLoopBackOff" => waited >= START_PATIENCE,
        // Volumes may take long, to be let go by another node for instance; what does not exist is not on its way.
        "FailedMount" => is_missing(&said.message) && waited >= START_PATIENCE,
        _ => false,
    }
}

/// Whether the registry was reached and has no such image. One that may only lack a right is not meant: the right may come.
fn is_no_image(message: &str) -> bool {
    message.ends_with(": not found") || message.contains("manifest unknown")
}

/// Whether a volume cannot be mounted because what it names is not there.
fn is_missing(message: &str) -> bool {
    message.contains("not found")
        || message.contains("non-existent")
        || message.contains("hostPath type check failed")
}

#[cfg(test)]
#[path = "tests/facts.rs"]
mod tests;
