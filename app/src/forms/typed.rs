//! The create form as it was typed: names are the dotted paths of the API's body, so an error finds its field by itself.

use engine::{
    job::{ClusterKind, HEALTH_CHECKS, JobDraft, JobKind, Site},
    time::Time,
};

use super::{lines, pasted, pods};

/// Names of the fields.
pub mod name {
    /// Shown name.
    pub const NAME: &str = "name";
    /// PyTorchJob or RayJob.
    pub const KIND: &str = "kind";
    /// The cluster.
    pub const CLUSTER: &str = "cluster";
    /// Container image.
    pub const IMAGE: &str = "image";
    /// Program and arguments as one line of a shell, as [`super::lines`] reads it.
    pub const COMMAND: &str = "command";
    /// `NAME=value`, a line each, as [`super::lines`] reads it.
    pub const ENV: &str = "env";
    /// All replicas.
    pub const REPLICAS: &str = "replicas";
    /// Processes in each.
    pub const PROCESSES: &str = "processes_per_replica";
    /// Accelerators in each.
    pub const ACCELERATORS: &str = "accelerators_per_replica";
    /// Where the program starts.
    pub const WORKING_DIR: &str = "working_dir";
    /// Where it saves.
    pub const CHECKPOINT_DIR: &str = "checkpoint_dir";
    /// CPU of each replica, on Kubernetes as all that follows.
    pub const CPU: &str = "kubernetes.cpu";
    /// Memory of each replica.
    pub const MEMORY: &str = "kubernetes.memory";
    /// What counts accelerators.
    pub const ACCELERATOR_RESOURCE: &str = "kubernetes.accelerator";
    /// Size of `/dev/shm`.
    pub const SHM_SIZE: &str = "kubernetes.shm_size";
    /// Namespace of the job's objects.
    pub const NAMESPACE: &str = "kubernetes.namespace";
    /// PriorityClass.
    pub const PRIORITY_CLASS: &str = "kubernetes.priority_class";
    /// ServiceAccount.
    pub const SERVICE_ACCOUNT: &str = "kubernetes.service_account";
    /// Secrets to pull the image with, a line each.
    pub const PULL_SECRETS: &str = "kubernetes.pull_secrets";
    /// Labels a node must have, a line each.
    pub const NODE_SELECTOR: &str = "kubernetes.node_selector";
    /// Taints the pods bear, a line each.
    pub const TOLERATIONS: &str = "kubernetes.tolerations";
    /// LocalQueue of Kueue.
    pub const KUEUE_QUEUE: &str = "kubernetes.kueue_queue";
    /// Queue of Volcano.
    pub const VOLCANO_QUEUE: &str = "kubernetes.volcano_queue";
    /// Scheduler of the pods.
    pub const SCHEDULER: &str = "kubernetes.scheduler";
    /// Labels of the job and its pods, a line each.
    pub const POD_LABELS: &str = "kubernetes.labels";
    /// What is mounted, a line each.
    pub const VOLUMES: &str = "kubernetes.volumes";
    /// Variables from Secrets, a line each.
    pub const SECRETS: &str = "kubernetes.secrets";
    /// A pasted object, which stands for everything that is read from it.
    pub const MANIFEST: &str = "kubernetes.manifest";
    /// Auto Failover.
    pub const FAILOVER: &str = "fault_tolerance.auto_failover";
    /// Maximum Task Restart Attempts.
    pub const TASK_RESTARTS: &str = "fault_tolerance.max_task_restarts";
    /// Fault Tolerance Policy.
    pub const POLICY: &str = "fault_tolerance.policy.enabled";
    /// Policy Type.
    pub const POLICY_TYPE: &str = "fault_tolerance.policy.type";
    /// In-place restarts.
    pub const IN_PLACE: &str = "fault_tolerance.policy.max_in_place_restarts";
    /// Job Hang Detection.
    pub const HANG: &str = "fault_tolerance.hang_detection.enabled";
    /// Hang Detection Interval.
    pub const INTERVAL: &str = "fault_tolerance.hang_detection.interval_seconds";
    /// Hang Determination Duration.
    pub const WINDOW: &str = "fault_tolerance.hang_detection.window_seconds";
    /// Detection starts after.
    pub const START_AFTER: &str = "fault_tolerance.hang_detection.start_after_seconds";
    /// Maximum Restart Count for Communication Hang.
    pub const HANG_RESTARTS: &str = "fault_tolerance.hang_detection.max_in_place_restarts";
    /// Diagnose the nodes before a resubmission after a hang.
    pub const DIAGNOSE: &str = "fault_tolerance.hang_detection.diagnose";
    /// Exit ckpt Notification.
    pub const EXIT: &str = "fault_tolerance.exit_checkpoint.enabled";
    /// Program Listening Port.
    pub const PORT: &str = "fault_tolerance.exit_checkpoint.port";
    /// Maximum wait for the save.
    pub const WAIT: &str = "fault_tolerance.exit_checkpoint.max_wait_seconds";
    /// Health checks before training.
    pub const HEALTH: &str = "fault_tolerance.health_checks.enabled";
    /// Which of them, each a field of its own, in the order of [`HEALTH_CHECKS`](engine::job::HEALTH_CHECKS).
    pub const CHECKS: [&str; 6] = [
        "fault_tolerance.health_checks.checks.checkpoint_dir",
        "fault_tolerance.health_checks.checks.shm",
        "fault_tolerance.health_checks.checks.rendezvous",
        "fault_tolerance.health_checks.checks.clock",
        "fault_tolerance.health_checks.checks.devices",
        "fault_tolerance.health_checks.checks.kernel_log",
    ];
    /// A check of the job's own.
    pub const CHECK_COMMAND: &str = "fault_tolerance.health_checks.command";
    /// The mode cards, which set switches and are no part of the body.
    pub const MODE: &str = "mode";
    /// Asks for a view of the form instead of creating the job.
    pub const SHOW: &str = "show";
}

/// Fields with their labels, in the order of the form.
pub const LABELS: [(&str, &str); 50] = [
    (name::NAME, "Name"),
    (name::MANIFEST, "Manifest"),
    (name::KIND, "Kind"),
    (name::CLUSTER, "Cluster"),
    (name::IMAGE, "Image"),
    (name::COMMAND, "Command"),
    (name::ENV, "Environment"),
    (name::REPLICAS, "Replicas"),
    (name::ACCELERATORS, "GPUs in each replica"),
    (name::PROCESSES, "Processes in each replica"),
    (name::CPU, "CPU"),
    (name::MEMORY, "Memory"),
    (name::ACCELERATOR_RESOURCE, "Accelerator resource"),
    (name::SHM_SIZE, "/dev/shm size"),
    (name::NAMESPACE, "Namespace"),
    (name::PRIORITY_CLASS, "Priority class"),
    (name::SERVICE_ACCOUNT, "Service account"),
    (name::KUEUE_QUEUE, "Kueue queue"),
    (name::VOLCANO_QUEUE, "Volcano queue"),
    (name::SCHEDULER, "Scheduler"),
    (name::PULL_SECRETS, "Pull secrets"),
    (name::NODE_SELECTOR, "Node selector"),
    (name::TOLERATIONS, "Tolerations"),
    (name::POD_LABELS, "Labels"),
    (name::WORKING_DIR, "Working directory"),
    (name::CHECKPOINT_DIR, "Checkpoint directory"),
    (name::VOLUMES, "Volumes"),
    (name::SECRETS, "Variables from Secrets"),
    (name::FAILOVER, "Auto Failover"),
    (name::TASK_RESTARTS, "Maximum Task Restart Attempts"),
    (name::POLICY, "Fault Tolerance Policy"),
    (name::POLICY_TYPE, "Policy Type"),
    (name::IN_PLACE, "In-place restarts"),
    (name::HANG, "Job Hang Detection"),
    (name::INTERVAL, "Hang Detection Interval"),
    (name::WINDOW, "Hang Determination Duration"),
    (name::HANG_RESTARTS, "Maximum Restart Count for Communication Hang"),
    (name::START_AFTER, "Detection starts after"),
    (name::DIAGNOSE, "Diagnose the nodes before a resubmission after a hang"),
    (name::EXIT, "Exit ckpt Notification"),
    (name::PORT, "Program Listening Port"),
    (name::WAIT, "Maximum wait for the save"),
    (name::HEALTH, "Health checks before training"),
    (name::CHECKS[0], "Checkpoints can be saved"),
    (name::CHECKS[1], "Shared memory"),
    (name::CHECKS[2], "Rendezvous answers"),
    (name::CHECKS[3], "Clock"),
    (name::CHECKS[4], "Devices"),
    (name::CHECKS[5], "Kernel log"),
    (name::CHECK_COMMAND, "Own check command"),
];

/// The label of a field, or the name itself where it has none.
pub fn label(name: &str) -> &str {
    LABELS.iter().find(|(field, _)| *field == name).map_or(name, |(_, label)| label)
}

/// The form's field that an error's path belongs to: `env.FOO` is shown at `env`, `kubernetes.volumes[0].source` at
/// `kubernetes.volumes`, any place in a manifest at the manifest.
pub fn field_of(path: &str) -> &str {
    let holds = |field: &&&str| path.strip_prefix(**field).is_some_and(|rest| rest.starts_with(['.', '[']));
    [name::ENV, name::MANIFEST].iter().chain(&pods::LISTS).find(holds).map_or(path, |field| *field)
}

/// A policy type in the words of the form; a custom one is chosen by its name.
pub fn policy_words(policy: &str) -> String {
    match policy {
        "exit_code_and_message" => "By exit code and error message".to_owned(),
        "on_any_failure" => "On any failure".to_owned(),
        custom => custom.to_owned(),
    }
}

/// The form as it was typed: names and texts, in order. A switch that is off is absent, as in a posted form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typed(Vec<(String, String)>);

impl Typed {
    /// From the fields of a post.
    pub const fn new(fields: Vec<(String, String)>) -> Self {
        Self(fields)
    }

    /// The fields.
    pub fn into_fields(self) -> Vec<(String, String)> {
        self.0
    }

    /// The text of a field; none where it was not there at all.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(field, _)| field == name).map(|(_, text)| text.as_str())
    }

    /// The text of a field; empty where it was not there.
    pub fn get(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    /// Whether a switch is on.
    pub fn is_on(&self, switch: &str) -> bool {
        self.text(switch).is_some_and(|text| text != "off")
    }

    /// Sets the text of a field.
    pub fn set(&mut self, name: &str, text: impl Into<String>) {
        let text = text.into();
        match self.0.iter_mut().rev().find(|(field, _)| field == name) {
            Some(slot) => slot.1 = text,
            None => self.0.push((name.to_owned(), text)),
        }
    }

    /// Takes a field out.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(field, _)| field != name);
    }

    /// Turns a switch.
    pub fn turn(&mut self, switch: &str, on: bool) {
        self.remove(switch);
        if on {
            self.set(switch, "on");
        }
    }

    /// Whether it is a RayJob.
    pub fn is_ray(&self) -> bool {
        self.get(name::KIND) == JobKind::RayJob.as_str()
    }

    /// Takes out the fields whose name starts with `prefix`, without it.
    pub(super) fn take_prefixed(&mut self, prefix: &str) -> Self {
        let (taken, kept) =
            std::mem::take(&mut self.0).into_iter().partition(|(field, _)| field.starts_with(prefix));
        self.0 = kept;
        let taken: Vec<(String, String)> = taken;
        Self(taken.into_iter().map(|(field, text)| (field[prefix.len()..].to_owned(), text)).collect())
    }

    /// Whether there is no field at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An empty form with the site's prefilled values.
    pub fn prefilled(site: &Site) -> Self {
        let mut draft = JobDraft { accelerators_per_replica: Some(1), ..JobDraft::default() };
        draft.fault_tolerance.max_task_restarts = Some(site.form_max_task_restarts.into());
        Self::of_draft(&draft, site)
    }

    /// An empty form for a manifest.
    pub fn for_manifest(site: &Site) -> Self {
        let mut draft = pasted::prefilled(site);
        draft.fault_tolerance.max_task_restarts = Some(site.form_max_task_restarts.into());
        let mut typed = Self::of_common(&draft, site);
        pasted::write(&mut typed, None);
        typed
    }

    /// The demo: two replicas train on this machine, one fails at step 40, and the job recovers from it.
    ///
    /// Its directory is named by `now`: in one that an earlier demo used it would resume after the failure instead of failing.
    pub fn demo(site: &Site, now: Time) -> Self {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        let local = site.clusters.iter().find(|cluster| cluster.kind == ClusterKind::Local);
        let mut draft = JobDraft {
            name: "demo".to_owned(),
            cluster: local.map(|cluster| cluster.name.clone()),
            command: words("python3 examples/train.py --steps 200"),
            env: [("FAIL_AT".to_owned(), "40".to_owned())].into(),
            replicas: Some(2),
            accelerators_per_replica: Some(1),
            checkpoint_dir: Some(format!("checkpoints/demo-{}", now.micros() / 1_000_000)),
            ..JobDraft::default()
        };
        draft.fault_tolerance.auto_failover = Some(true);
        draft.fault_tolerance.max_task_restarts = Some(site.form_max_task_restarts.into());
        draft.fault_tolerance.policy.enabled = Some(true);
        Self::of_draft(&draft, site)
    }

    /// A draft as the form shows it; what it leaves out has the site's values.
    pub fn of_draft(draft: &JobDraft, site: &Site) -> Self {
        let mut typed = Self::of_common(draft, site);
        if let Some(manifest) = &draft.kubernetes.manifest {
            pasted::write(&mut typed, Some(manifest));
            return typed;
        }
        let number = |given: Option<i64>, default: i64| given.unwrap_or(default).to_string();
        for (field, text) in [
            (name::KIND, draft.kind.unwrap_or(JobKind::PyTorchJob).as_str().to_owned()),
            (name::IMAGE, draft.image.clone().unwrap_or_default()),
            (name::COMMAND, lines::write_command(&draft.command)),
            (name::ENV, lines::write_env(&draft.env)),
            (name::REPLICAS, number(draft.replicas, 1)),
            (name::PROCESSES, number(draft.processes_per_replica, 1)),
            (name::ACCELERATORS, number(draft.accelerators_per_replica, 0)),
            (name::WORKING_DIR, draft.working_dir.clone().unwrap_or_default()),
        ] {
            typed.set(field, text);
        }
        for (field, text) in pods::write(&draft.kubernetes) {
            typed.set(field, text);
        }
        typed
    }

    /// What every create form has.
    fn of_common(draft: &JobDraft, site: &Site) -> Self {
        let ft = &draft.fault_tolerance;
        let defaults = &site.defaults;
        let number = |given: Option<i64>, default: u32| given.unwrap_or(default.into()).to_string();
        let cluster =
            draft.cluster.clone().or_else(|| site.clusters.first().map(|cluster| cluster.name.clone()));
        let policy = ft.policy.policy_type.clone().unwrap_or_else(|| defaults.policy.policy_type.clone());
        let hang = (&ft.hang_detection, &defaults.hang_detection);
        let exit = (&ft.exit_checkpoint, &defaults.exit_checkpoint);
        let health = (&ft.health_checks, &defaults.health_checks);
        let checks = health.0.checks.as_ref().unwrap_or(&health.1.checks);
        let check_command = health.0.command.as_deref().or(health.1.command.as_deref()).unwrap_or_default();
        let mut typed = Self::default();
        for (field, text) in [
            (name::NAME, draft.name.clone()),
            (name::CLUSTER, cluster.unwrap_or_default()),
            (name::CHECKPOINT_DIR, draft.checkpoint_dir.clone().unwrap_or_default()),
            (name::TASK_RESTARTS, number(ft.max_task_restarts, 0)),
            (name::POLICY_TYPE, policy),
            (name::IN_PLACE, number(ft.policy.max_in_place_restarts, defaults.policy.max_in_place_restarts)),
            (name::INTERVAL, number(hang.0.interval_seconds, hang.1.interval_seconds)),
            (name::WINDOW, number(hang.0.window_seconds, hang.1.window_seconds)),
            (name::START_AFTER, number(hang.0.start_after_seconds, hang.1.start_after_seconds)),
            (name::HANG_RESTARTS, number(hang.0.max_in_place_restarts, hang.1.max_in_place_restarts)),
            (name::PORT, number(exit.0.port, exit.1.port.into())),
            (name::WAIT, number(exit.0.max_wait_seconds, exit.1.max_wait_seconds)),
            (name::CHECK_COMMAND, lines::write_command(check_command)),
        ] {
            typed.set(field, text);
        }
        for (switch, on) in [
            (name::FAILOVER, ft.auto_failover.unwrap_or(defaults.auto_failover)),
            (name::POLICY, ft.policy.enabled.unwrap_or(defaults.policy.enabled)),
            (name::HANG, hang.0.enabled.unwrap_or(hang.1.enabled)),
            (name::DIAGNOSE, hang.0.diagnose.unwrap_or(hang.1.diagnose)),
            (name::EXIT, exit.0.enabled.unwrap_or(exit.1.enabled)),
            (name::HEALTH, health.0.enabled.unwrap_or(health.1.enabled)),
        ] {
            typed.turn(switch, on);
        }
        for (field, check) in name::CHECKS.into_iter().zip(HEALTH_CHECKS) {
            typed.turn(field, checks.iter().any(|name| name == check));
        }
        typed
    }
}
