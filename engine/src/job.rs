//! What a person asks for: the job with its fault tolerance settings, its limits and its defaults.
//!
//! [`JobDraft`] is the shape of the API's create body and of the form, unchecked; [`JobDraft::validate`]
//! makes a [`JobSpec`] of it or names every field that is wrong. Browser, API and driver use this one function.
//! Sources: the published parameters of automatic fault tolerance (labels, ranges, prefilled values); limits
//! without such a source are Holdfast's own and are listed in [`limits`].

mod debug;
mod finding;
pub mod manifest;
mod pods;
pub mod quantity;
mod validate;

pub use self::debug::DEBUG_SECONDS;
pub use self::finding::{Finding, Fit};
pub use self::manifest::{Manifest, Override};
pub use self::pods::{PodOptions, SecretVariable, Toleration, Volume, VolumeSource};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::nodes::standing::NodeRules;

/// Limits of everything a person can type. Counts are inclusive.
pub mod limits {
    /// Characters of a job's name.
    pub const NAME_CHARS: usize = 63;
    /// Characters of an image reference, a path or a single argument of the command list's neighbours.
    pub const TEXT_CHARS: usize = 4096;
    /// Arguments of a command, the program included.
    pub const COMMAND_ARGS: usize = 512;
    /// Bytes of one argument and of one environment value.
    pub const ARG_BYTES: usize = 32 * 1024;
    /// Bytes of a RayJob's command as the line of a shell: Ray gives it to one as a single argument, of at most 128 KiB.
    pub const RAY_COMMAND_BYTES: usize = 120 * 1024;
    /// Bytes of a command or of an environment in total; Linux takes 128 KiB in one string and about 2 MiB in all.
    pub const TOTAL_BYTES: usize = 256 * 1024;
    /// Variables of an environment.
    pub const ENV_VARS: usize = 512;
    /// Replicas of a job.
    pub const REPLICAS: i64 = 4096;
    /// Processes of a replica.
    pub const PROCESSES: i64 = 64;
    /// Accelerators of a replica.
    pub const ACCELERATORS: i64 = 64;
    /// Maximum Task Restart Attempts.
    pub const TASK_RESTARTS: i64 = 50;
    /// In-place restarts in one attempt, after hangs and after other failures alike.
    pub const IN_PLACE_RESTARTS: i64 = 1000;
    /// Hang Detection Interval, seconds.
    pub const HANG_INTERVAL_SECONDS: std::ops::RangeInclusive<i64> = 1..=3600;
    /// Hang Determination Duration, seconds; also never below the interval.
    pub const HANG_WINDOW_SECONDS: i64 = 86_400;
    /// Seconds from a launch until hang detection starts.
    pub const HANG_START_AFTER_SECONDS: i64 = 86_400;
    /// Program Listening Port.
    pub const EXIT_PORT: std::ops::RangeInclusive<i64> = 9000..=9999;
    /// Maximum wait for the save, seconds.
    pub const EXIT_WAIT_SECONDS: std::ops::RangeInclusive<i64> = 1..=600;
    /// CPU of a replica on Kubernetes, in thousandths of a core: nothing finer exists there, and no machine has more.
    pub const CPU_THOUSANDTHS: std::ops::RangeInclusive<u128> = 1..=4_096_000;
    /// Bytes of a replica's memory and of its `/dev/shm` on Kubernetes: 4 MiB, since less is a forgotten unit, to 1 PiB.
    pub const POD_BYTES: std::ops::RangeInclusive<u128> = 4 << 20..=1 << 50;
    /// Volumes of a replica.
    pub const VOLUMES: usize = 64;
    /// Variables from Secrets.
    pub const SECRET_VARIABLES: usize = 128;
    /// Labels a node must have.
    pub const NODE_LABELS: usize = 64;
    /// Taints that pods bear.
    pub const TOLERATIONS: usize = 64;
    /// Secrets to pull the image with.
    pub const PULL_SECRETS: usize = 16;
    /// Labels of a job's pods.
    pub const POD_LABELS: usize = 64;
    /// Bytes of a pasted manifest, as text and as the JSON that is kept of it; the API server takes 1.5 MiB for an object with all that
    /// is added to it.
    pub const MANIFEST_BYTES: usize = 256 * 1024;
    /// How deep a manifest may be nested. A pod of every kind of volume is 14 deep.
    pub const MANIFEST_DEPTH: usize = 64;
}

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum JobKind {
    /// PyTorch: a master and workers that meet at a rendezvous address.
    #[serde(rename = "pytorchjob")]
    PyTorchJob,
    /// Ray: a cluster with a driver; basic mode only.
    #[serde(rename = "rayjob")]
    RayJob,
}

impl JobKind {
    /// The kind as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PyTorchJob => "pytorchjob",
            Self::RayJob => "rayjob",
        }
    }
}

/// Which capabilities work together, derived from the switches and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Auto Failover is off.
    None,
    /// Auto Failover.
    Basic,
    /// Auto Failover and Fault Tolerance Policy.
    Advanced,
    /// Auto Failover, Fault Tolerance Policy and Job Hang Detection.
    Full,
}

/// A valid job. Only [`JobDraft::validate`] and the store make one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobSpec {
    /// Shown name; need not be unique.
    pub name: String,
    /// PyTorchJob or RayJob.
    pub kind: JobKind,
    /// The configured cluster it runs on.
    pub cluster: String,
    /// Container image; none on the local cluster.
    pub image: Option<String>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment of the program.
    pub env: BTreeMap<String, String>,
    /// All replicas, the master included; at least 1.
    pub replicas: u32,
    /// How many times each replica starts the command; at least 1.
    pub processes_per_replica: u32,
    /// Accelerators of each replica; 0 is none.
    pub accelerators_per_replica: u32,
    /// Where the program starts; none is the server's or the image's own.
    pub working_dir: Option<String>,
    /// Where the program saves; none means that a resubmission starts at step 0.
    pub checkpoint_dir: Option<String>,
    /// What its pods are made of besides; nothing on the local cluster.
    #[serde(default, skip_serializing_if = "PodOptions::is_default")]
    pub kubernetes: PodOptions,
    /// The Advanced Options.
    pub fault_tolerance: FaultTolerance,
}

impl JobSpec {
    /// Replicas that start the command, the first ones: all of a PyTorchJob; of a RayJob the head, where its driver runs. Ray runs the
    /// rest of the work on the others.
    pub fn starting_replicas(&self) -> u32 {
        match self.kind {
            JobKind::PyTorchJob => self.replicas,
            JobKind::RayJob => self.replicas.min(1),
        }
    }

    /// Processes of the job that Holdfast starts.
    pub fn world_size(&self) -> u32 {
        self.starting_replicas() * self.processes_per_replica
    }

    /// What the processes are told as `WORLD_SIZE`. A manifest's `nprocPerNode` counts processes that the program starts itself, as the
    /// training operator counts them.
    pub fn told_world_size(&self) -> u32 {
        let processes = self.kubernetes.manifest.as_ref().and_then(Manifest::processes);
        processes.map_or_else(|| self.world_size(), |each| self.replicas.saturating_mul(each))
    }
}

/// The Advanced Options of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FaultTolerance {
    /// Auto Failover: resubmit a failed job.
    pub auto_failover: bool,
    /// Maximum Task Restart Attempts: runs beyond the first.
    pub max_task_restarts: u32,
    /// Fault Tolerance Policy.
    pub policy: PolicyChoice,
    /// Job Hang Detection.
    pub hang_detection: HangDetection,
    /// Exit ckpt Notification.
    pub exit_checkpoint: ExitCheckpoint,
    /// Health checks before training.
    pub health_checks: HealthChecks,
}

impl FaultTolerance {
    /// The mode these switches make.
    pub const fn mode(&self) -> Mode {
        match (self.auto_failover, self.policy.enabled, self.hang_detection.enabled) {
            (false, _, _) => Mode::None,
            (true, false, _) => Mode::Basic,
            (true, true, false) => Mode::Advanced,
            (true, true, true) => Mode::Full,
        }
    }
}

/// Fault Tolerance Policy and the Policy Type's own limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyChoice {
    /// The switch.
    pub enabled: bool,
    /// Policy Type: `exit_code_and_message`, `on_any_failure` or a custom policy's name.
    #[serde(rename = "type")]
    pub policy_type: String,
    /// In-place restarts in each attempt after failures other than hangs.
    pub max_in_place_restarts: u32,
}

/// Job Hang Detection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HangDetection {
    /// The switch.
    pub enabled: bool,
    /// Hang Detection Interval.
    pub interval_seconds: u32,
    /// Hang Determination Duration.
    pub window_seconds: u32,
    /// Detection starts this long after each launch.
    pub start_after_seconds: u32,
    /// Maximum Restart Count for Communication Hang, in each attempt.
    pub max_in_place_restarts: u32,
    /// Diagnose the nodes before a resubmission after a hang.
    #[serde(default)]
    pub diagnose: bool,
}

/// Exit ckpt Notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExitCheckpoint {
    /// The switch.
    pub enabled: bool,
    /// Program Listening Port.
    pub port: u16,
    /// Maximum wait for the save.
    pub max_wait_seconds: u32,
}

/// Health checks before training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HealthChecks {
    /// The switch.
    pub enabled: bool,
    /// Names of the checks, each of [`HEALTH_CHECKS`].
    pub checks: Vec<String>,
    /// A command of the job's own.
    pub command: Option<Vec<String>>,
}

/// Names of the health checks there are.
pub const HEALTH_CHECKS: [&str; 6] =
    ["checkpoint_dir", "shm", "rendezvous", "clock", "devices", "kernel_log"];

/// What a site has: its clusters, its policies and the values that forms are prefilled with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Site {
    /// Configured clusters; the first is the default.
    pub clusters: Vec<SiteCluster>,
    /// What the clusters cannot do now, and what to do about it. It forbids nothing: a job that is created all the same waits or is refused
    /// there.
    #[serde(default)]
    pub troubles: Vec<ClusterTrouble>,
    /// Policy Types a job may name.
    pub policies: Vec<String>,
    /// Values for what is left out, spec.md §2.
    pub defaults: FaultTolerance,
    /// Maximum Task Restart Attempts the form is prefilled with; an API body that leaves it out means 0.
    pub form_max_task_restarts: u32,
    /// When nodes are put out, and how many.
    #[serde(default)]
    pub nodes: NodeRules,
}

/// One configured cluster, as far as validation needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SiteCluster {
    /// Its configured name.
    pub name: String,
    /// Local processes or Kubernetes.
    pub kind: ClusterKind,
    /// Slots of its largest node, where that is known: a replica that takes more never fits.
    pub max_slots_per_node: Option<u32>,
    /// Slots of all nodes, where that is known.
    pub total_slots: Option<u32>,
    /// Whether jobs may mount directories of its nodes; on Kubernetes only.
    pub allows_host_paths: bool,
    /// Namespaces that jobs may use, the first for those that name none; empty: not known here.
    #[serde(default)]
    pub namespaces: Vec<String>,
}

impl SiteCluster {
    /// A Kubernetes cluster that leaves its namespaces to itself and closes its nodes. How large it is changes, so that is left to its
    /// scheduler.
    pub fn kubernetes(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: ClusterKind::Kubernetes,
            max_slots_per_node: None,
            total_slots: None,
            allows_host_paths: false,
            namespaces: Vec::new(),
        }
    }

    /// The namespace of a new job that names none, where that is known here.
    pub fn default_namespace(&self) -> Option<&str> {
        self.namespaces.first().map(String::as_str)
    }
}

impl Site {
    /// Whether it has a cluster of this kind.
    pub fn has(&self, kind: ClusterKind) -> bool {
        self.clusters.iter().any(|cluster| cluster.kind == kind)
    }

    /// What is missing for a job of this kind on a cluster; of a job whose namespace is not known, for any that it may use.
    pub fn troubles_of<'a>(
        &'a self,
        cluster: &'a str,
        kind: JobKind,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = &'a ClusterTrouble> {
        self.troubles.iter().filter(move |trouble| {
            trouble.cluster == cluster
                && trouble.kind.is_none_or(|of| of == kind)
                && trouble.namespace.as_deref().is_none_or(|of| namespace.is_none_or(|wanted| wanted == of))
        })
    }
}

/// Something that a cluster cannot do now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClusterTrouble {
    /// The cluster.
    pub cluster: String,
    /// Only jobs of this kind are concerned; none: all.
    pub kind: Option<JobKind>,
    /// Only jobs of this namespace are concerned; none: all.
    pub namespace: Option<String>,
    /// What it is and what to do.
    pub text: String,
}

/// What a cluster is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClusterKind {
    /// Real processes on the server's own machine.
    Local,
    /// A Kubernetes cluster.
    Kubernetes,
}

/// The Policy Types that are built in.
pub const BUILT_IN_POLICIES: [&str; 2] = ["exit_code_and_message", "on_any_failure"];

impl Default for FaultTolerance {
    /// Switches off, but for the health checks, and the published prefilled values beside them.
    fn default() -> Self {
        Self {
            auto_failover: false,
            max_task_restarts: 0,
            policy: PolicyChoice {
                enabled: false,
                policy_type: BUILT_IN_POLICIES[0].to_owned(),
                max_in_place_restarts: 3,
            },
            hang_detection: HangDetection {
                enabled: false,
                interval_seconds: 240,
                window_seconds: 600,
                start_after_seconds: 1800,
                max_in_place_restarts: 1,
                diagnose: false,
            },
            exit_checkpoint: ExitCheckpoint { enabled: false, port: 9000, max_wait_seconds: 600 },
            health_checks: HealthChecks {
                enabled: true,
                checks: HEALTH_CHECKS.map(str::to_owned).to_vec(),
                command: None,
            },
        }
    }
}

impl Default for Site {
    /// The default installation: one local cluster named `local` with 4 nodes of 2 slots.
    fn default() -> Self {
        Self {
            clusters: vec![SiteCluster {
                name: "local".to_owned(),
                kind: ClusterKind::Local,
                max_slots_per_node: Some(2),
                total_slots: Some(8),
                allows_host_paths: false,
                namespaces: Vec::new(),
            }],
            troubles: Vec::new(),
            policies: BUILT_IN_POLICIES.map(str::to_owned).to_vec(),
            defaults: FaultTolerance::default(),
            form_max_task_restarts: 2,
            nodes: NodeRules::default(),
        }
    }
}

/// A job as a body or a form gives it: nothing checked yet. Unknown fields are errors.
/// Counts are signed so that a negative one is answered with its rule instead of a parse error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct JobDraft {
    /// Shown name.
    pub name: String,
    /// Absent: `pytorchjob`.
    pub kind: Option<JobKind>,
    /// Absent: the first configured cluster.
    pub cluster: Option<String>,
    /// Container image.
    pub image: Option<String>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// Absent: 1.
    pub replicas: Option<i64>,
    /// Absent: 1.
    pub processes_per_replica: Option<i64>,
    /// Absent: 0.
    pub accelerators_per_replica: Option<i64>,
    /// Where the program starts.
    pub working_dir: Option<String>,
    /// Where the program saves.
    pub checkpoint_dir: Option<String>,
    /// What its pods are made of besides; on Kubernetes only.
    #[serde(skip_serializing_if = "PodOptions::is_default")]
    pub kubernetes: PodOptions,
    /// The Advanced Options.
    pub fault_tolerance: FaultToleranceDraft,
}

/// The Advanced Options, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct FaultToleranceDraft {
    /// Auto Failover.
    pub auto_failover: Option<bool>,
    /// Maximum Task Restart Attempts.
    pub max_task_restarts: Option<i64>,
    /// Fault Tolerance Policy.
    pub policy: PolicyDraft,
    /// Job Hang Detection.
    pub hang_detection: HangDetectionDraft,
    /// Exit ckpt Notification.
    pub exit_checkpoint: ExitCheckpointDraft,
    /// Health checks before training.
    pub health_checks: HealthChecksDraft,
}

/// Fault Tolerance Policy, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PolicyDraft {
    /// The switch.
    pub enabled: Option<bool>,
    /// Policy Type.
    #[serde(rename = "type")]
    pub policy_type: Option<String>,
    /// In-place restarts.
    pub max_in_place_restarts: Option<i64>,
}

/// Job Hang Detection, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct HangDetectionDraft {
    /// The switch.
    pub enabled: Option<bool>,
    /// Hang Detection Interval.
    pub interval_seconds: Option<i64>,
    /// Hang Determination Duration.
    pub window_seconds: Option<i64>,
    /// Detection starts this long after each launch.
    pub start_after_seconds: Option<i64>,
    /// Maximum Restart Count for Communication Hang.
    pub max_in_place_restarts: Option<i64>,
    /// Diagnose the nodes before a resubmission after a hang.
    pub diagnose: Option<bool>,
}

/// Exit ckpt Notification, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ExitCheckpointDraft {
    /// The switch.
    pub enabled: Option<bool>,
    /// Program Listening Port.
    pub port: Option<i64>,
    /// Maximum wait for the save.
    pub max_wait_seconds: Option<i64>,
}

/// Health checks, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct HealthChecksDraft {
    /// The switch.
    pub enabled: Option<bool>,
    /// Names of checks.
    pub checks: Option<Vec<String>>,
    /// A command of the job's own.
    pub command: Option<Vec<String>>,
}

/// One field that was refused: which, and the rule with the value allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldError {
    /// Dotted path in the create body: `fault_tolerance.policy.enabled`, `env.FOO`.
    pub field: String,
    /// What is wrong and what is allowed, a sentence.
    pub message: String,
}

impl FieldError {
    /// An error of `field`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl From<&JobSpec> for JobDraft {
    /// The body that would create this very job again.
    fn from(spec: &JobSpec) -> Self {
        let ft = &spec.fault_tolerance;
        let program = match &spec.kubernetes.manifest {
            None => Self {
                kind: Some(spec.kind),
                image: spec.image.clone(),
                command: spec.command.clone(),
                env: spec.env.clone(),
                replicas: Some(spec.replicas.into()),
                processes_per_replica: Some(spec.processes_per_replica.into()),
                accelerators_per_replica: Some(spec.accelerators_per_replica.into()),
                working_dir: spec.working_dir.clone(),
                kubernetes: spec.kubernetes.clone(),
                ..Self::default()
            },
            // All of that is read from it.
            manifest => Self {
                kubernetes: PodOptions { manifest: manifest.clone(), ..PodOptions::default() },
                ..Self::default()
            },
        };
        Self {
            name: spec.name.clone(),
            cluster: Some(spec.cluster.clone()),
            checkpoint_dir: spec.checkpoint_dir.clone(),
            fault_tolerance: FaultToleranceDraft {
                auto_failover: Some(ft.auto_failover),
                max_task_restarts: Some(ft.max_task_restarts.into()),
                policy: PolicyDraft {
                    enabled: Some(ft.policy.enabled),
                    policy_type: Some(ft.policy.policy_type.clone()),
                    max_in_place_restarts: Some(ft.policy.max_in_place_restarts.into()),
                },
                hang_detection: HangDetectionDraft {
                    enabled: Some(ft.hang_detection.enabled),
                    interval_seconds: Some(ft.hang_detection.interval_seconds.into()),
                    window_seconds: Some(ft.hang_detection.window_seconds.into()),
                    start_after_seconds: Some(ft.hang_detection.start_after_seconds.into()),
                    max_in_place_restarts: Some(ft.hang_detection.max_in_place_restarts.into()),
                    diagnose: Some(ft.hang_detection.diagnose),
                },
                exit_checkpoint: ExitCheckpointDraft {
                    enabled: Some(ft.exit_checkpoint.enabled),
                    port: Some(ft.exit_checkpoint.port.into()),
                    max_wait_seconds: Some(ft.exit_checkpoint.max_wait_seconds.into()),
                },
                health_checks: HealthChecksDraft {
                    enabled: Some(ft.health_checks.enabled),
                    checks: Some(ft.health_checks.checks.clone()),
                    command: ft.health_checks.command.clone(),
                },
            },
            ..program
        }
    }
}
