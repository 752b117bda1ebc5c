//! From a draft to a valid job, or to the list of every field that is wrong.

mod manifest;
mod names;
mod pods;

use super::{
    ClusterKind, ExitCheckpoint, FaultTolerance, FaultToleranceDraft, FieldError, HEALTH_CHECKS,
    HangDetection, HealthChecks, JobDraft, JobKind, JobSpec, PodOptions, PolicyChoice, Site, SiteCluster,
    limits,
};
use crate::words;
use std::{collections::BTreeMap, ops::RangeInclusive};

/// Variables that Holdfast sets itself; a job that set them would contradict its own ranks.
const RESERVED: [&str; 6] =
    ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"];

/// The namespace's field, which a manifest gives too.
const NAMESPACE: &str = "kubernetes.namespace";

/// What a job runs, from its fields or from a manifest.
struct Program {
    /// What the manifest is named.
    name: Option<String>,
    kind: JobKind,
    image: Option<String>,
    command: Vec<String>,
    env: BTreeMap<String, String>,
    replicas: u32,
    processes_per_replica: u32,
    accelerators_per_replica: u32,
    working_dir: Option<String>,
    kubernetes: PodOptions,
}

impl Default for Program {
    fn default() -> Self {
        Self {
            name: None,
            kind: JobKind::PyTorchJob,
            image: None,
            command: Vec::new(),
            env: BTreeMap::new(),
            replicas: 1,
            processes_per_replica: 1,
            accelerators_per_replica: 0,
            working_dir: None,
            kubernetes: PodOptions::default(),
        }
    }
}

/// Collects errors; a field that failed gets a harmless value so that the later ones are checked too.
struct Checker {
    errors: Vec<FieldError>,
}

impl Checker {
    fn refuse(&mut self, field: &str, message: impl Into<String>) {
        self.errors.push(FieldError::new(field, message));
    }

    /// A count within `range`, given or prefilled.
    fn count(
        &mut self,
        field: &str,
        given: Option<i64>,
        prefilled: u32,
        range: RangeInclusive<i64>,
        unit: &str,
    ) -> u32 {
        let value = given.unwrap_or(i64::from(prefilled));
        match u32::try_from(value) {
            Ok(count) if range.contains(&value) => count,
            _ => {
                let negative = if value < 0 { " A negative number never means unlimited." } else { "" };
                self.refuse(
                    field,
                    format!(
                        "{value} is not allowed. Use a whole number from {} to {}{unit}.{negative}",
                        range.start(),
                        range.end()
                    ),
                );
                prefilled
            }
        }
    }

    fn text(&mut self, field: &str, text: &str, max_chars: usize) {
        if text.chars().count() > max_chars {
            self.refuse(field, format!("is longer than {max_chars} characters"));
        }
        if let Some(unseen) = words::unseen(text) {
            self.refuse(
                field,
                format!("holds U+{:04X}, a character that cannot be seen; remove it", u32::from(unseen)),
            );
        }
    }

    fn path(&mut self, field: &str, given: Option<&str>, on: Option<ClusterKind>) -> Option<String> {
        let path = given.map(str::trim).filter(|path| !path.is_empty())?;
        self.text(field, path, limits::TEXT_CHARS);
        if path.split('/').any(|part| part == "..") {
            self.refuse(field, "must not go up with `..`; name the directory itself");
        }
        if on == Some(ClusterKind::Kubernetes) && !path.starts_with('/') {
            self.refuse(field, "must be absolute on Kubernetes, such as /data/run-1");
        }
        Some(path.to_owned())
    }

    /// A variable that a job sets. Names that this refuses reach no program.
    fn variable(&mut self, field: &str, name: &str) {
        let mut bytes = name.bytes();
        let good = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && name.len() <= 256;
        if good {
            self.reserved(field, name);
        } else {
            self.refuse(field, "is no variable name; use letters, digits and _, at most 256, no digit first");
        }
    }

    /// A variable that is not a job's to set.
    fn reserved(&mut self, field: &str, name: &str) {
        if is_ours(name) || RESERVED.contains(&name) {
            self.refuse(field, "is set by Holdfast for each process; remove it");
        }
    }

    fn command(&mut self, field: &str, command: &[String]) {
        if command.len() > limits::COMMAND_ARGS {
            self.refuse(
                field,
                format!("has {} arguments; at most {} are allowed", command.len(), limits::COMMAND_ARGS),
            );
        }
        if command.iter().any(|arg| arg.contains('\0')) {
            self.refuse(field, "holds a NUL character, which no program can be given");
        }
        let longest = command.iter().map(String::len).max().unwrap_or(0);
        let total: usize = command.iter().map(String::len).sum();
        if longest > limits::ARG_BYTES || total > limits::TOTAL_BYTES {
            self.refuse(
                field,
                format!(
                    "is too long: at most {} bytes an argument and {} in all",
                    limits::ARG_BYTES,
                    limits::TOTAL_BYTES
                ),
            );
        }
    }
}

impl JobDraft {
    /// Checks the draft against the rules and against what the site has.
    ///
    /// # Errors
    /// Every field that is wrong, each with its rule and the value allowed; nothing is corrected silently.
    pub fn validate(&self, site: &Site) -> Result<JobSpec, Vec<FieldError>> {
        let mut check = Checker { errors: Vec::new() };
        let name = self.name.trim();
        match name.chars().count() {
            0 if self.kubernetes.manifest.is_some() => {}
            0 => check.refuse("name", "is missing; use 1 to 63 characters"),
            _ => check.text("name", name, limits::NAME_CHARS),
        }
        let (cluster, program) = self.program(site, &mut check);
        let kind = program.kind;
        let name = match (name, &program.name) {
            ("", Some(of_manifest)) => of_manifest,
            (name, _) => name,
        };
        if name.is_empty() && check.errors.is_empty() {
            check.refuse("name", "is missing, in the manifest too; use 1 to 63 characters");
        }
        let on = cluster.map(|cluster| cluster.kind);
        let checkpoint_dir = check.path("checkpoint_dir", self.checkpoint_dir.as_deref(), on);
        let fault_tolerance =
            self.fault_tolerance.check(kind, program.accelerators_per_replica, site, &mut check);
        if !check.errors.is_empty() {
            return Err(check.errors);
        }
        Ok(JobSpec {
            name: name.to_owned(),
            kind,
            cluster: cluster.map(|cluster| cluster.name.clone()).unwrap_or_default(),
            image: program.image,
            command: program.command,
            env: program.env,
            replicas: program.replicas,
            processes_per_replica: program.processes_per_replica,
            accelerators_per_replica: program.accelerators_per_replica,
            working_dir: program.working_dir,
            checkpoint_dir,
            kubernetes: program.kubernetes,
            fault_tolerance,
        })
    }

    /// Where the job runs and what it is made of.
    fn program<'a>(&self, site: &'a Site, check: &mut Checker) -> (Option<&'a SiteCluster>, Program) {
        let kind = self.kind.unwrap_or(JobKind::PyTorchJob);
        let Some(manifest) = &self.kubernetes.manifest else {
            let cluster = self.cluster(site, kind, check);
            return (cluster, self.fields(cluster, kind, check));
        };
        // A RayJob's cluster says nothing before the manifest has said its kind.
        let cluster = self.cluster(site, JobKind::PyTorchJob, check);
        if let Some(local) = cluster.filter(|cluster| cluster.kind == ClusterKind::Local) {
            check.refuse(
                "kubernetes.manifest",
                format!(
                    "needs a Kubernetes cluster, and {} runs programs of this machine; create the job by its fields",
                    local.name
                ),
            );
            return (cluster, Program::default());
        }
        let program = self.pasted(manifest, cluster, check);
        if let Some(cluster) = cluster {
            fits(cluster, program.replicas, program.accelerators_per_replica, check);
        }
        (cluster, program)
    }

    /// What the draft's own fields say.
    fn fields(&self, cluster: Option<&SiteCluster>, kind: JobKind, check: &mut Checker) -> Program {
        let image = self.image(cluster, check);
        if self.command.first().is_none_or(|program| program.trim().is_empty()) {
            check.refuse("command", "is missing; name the program and its arguments");
        }
        check.command("command", &self.command);
        self.env(check);
        if kind == JobKind::RayJob {
            self.ray(check);
        }
        let replicas = check.count("replicas", self.replicas, 1, 1..=limits::REPLICAS, "");
        let processes_per_replica =
            check.count("processes_per_replica", self.processes_per_replica, 1, 1..=limits::PROCESSES, "");
        let accelerators_per_replica = check.count(
            "accelerators_per_replica",
            self.accelerators_per_replica,
            0,
            0..=limits::ACCELERATORS,
            "",
        );
        if let Some(cluster) = cluster {
            fits(cluster, replicas, accelerators_per_replica, check);
        }
        let on = cluster.map(|cluster| cluster.kind);
        let working_dir = check.path("working_dir", self.working_dir.as_deref(), on);
        let kubernetes = self.kubernetes.check(&self.env, cluster, check);
        Program {
            name: None,
            kind,
            image,
            command: self.command.clone(),
            env: self.env.clone(),
            replicas,
            processes_per_replica,
            accelerators_per_replica,
            working_dir,
            kubernetes,
        }
    }

    /// Ray starts the command once, as its driver, by a shell.
    fn ray(&self, check: &mut Checker) {
        if self.processes_per_replica.is_some_and(|processes| processes > 1) {
            check.refuse(
                "processes_per_replica",
                "must be 1 for a RayJob: its command is the driver, which is started once, on the head",
            );
        }
        if words::shell_line(&self.command).len() > limits::RAY_COMMAND_BYTES {
            check.refuse(
                "command",
                format!(
                    "is too long for a RayJob: at most {} bytes as a line of a shell",
                    limits::RAY_COMMAND_BYTES
                ),
            );
        }
    }

    fn cluster<'a>(&self, site: &'a Site, kind: JobKind, check: &mut Checker) -> Option<&'a SiteCluster> {
        let cluster = match self.cluster.as_deref().map(str::trim).filter(|name| !name.is_empty()) {
            None => site.clusters.first(),
            Some(wanted) => site.clusters.iter().find(|cluster| cluster.name == wanted),
        };
        let Some(cluster) = cluster else {
            let known: Vec<_> = site.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
            check.refuse("cluster", format!("is not configured here; use one of: {}", known.join(", ")));
            return None;
        };
        if cluster.kind == ClusterKind::Local && kind == JobKind::RayJob {
            check.refuse(
                "kind",
                "rayjob does not run on the local cluster; use pytorchjob or a Kubernetes cluster",
            );
        }
        Some(cluster)
    }

    fn image(&self, cluster: Option<&SiteCluster>, check: &mut Checker) -> Option<String> {
        let image = self.image.as_deref().map(str::trim).filter(|image| !image.is_empty()).map(str::to_owned);
        if let Some(image) = &image {
            check.text("image", image, 512);
        }
        match (cluster.map(|cluster| cluster.kind), &image) {
            (Some(ClusterKind::Local), Some(_)) => {
                check.refuse(
                    "image",
                    "is not used by the local cluster, which runs programs of this machine; leave it empty",
                );
            }
            (Some(ClusterKind::Kubernetes), None) => {
                check.refuse("image", "is missing; Kubernetes needs one")
            }
            _ => {}
        }
        image
    }

    fn env(&self, check: &mut Checker) {
        if self.env.len() > limits::ENV_VARS {
            check.refuse(
                "env",
                format!("has {} variables; at most {} are allowed", self.env.len(), limits::ENV_VARS),
            );
        }
        let mut total = 0;
        for (key, value) in &self.env {
            total += key.len() + value.len();
            let field = format!("env.{}", key.chars().take(64).collect::<String>());
            check.variable(&field, key);
            if value.contains('\0') || value.len() > limits::ARG_BYTES {
                check.refuse(&field, format!("must hold no NUL and at most {} bytes", limits::ARG_BYTES));
            }
        }
        if total > limits::TOTAL_BYTES {
            check.refuse("env", format!("has {total} bytes; at most {} are allowed", limits::TOTAL_BYTES));
        }
    }
}

/// Whether a variable's name is one that Holdfast keeps for itself in every process.
fn is_ours(variable: &str) -> bool {
    variable.starts_with("HOLDFAST_")
}

/// A job that can never be placed is refused at once; one that only has to wait is not.
fn fits(cluster: &SiteCluster, replicas: u32, accelerators: u32, check: &mut Checker) {
    let slots = accelerators.max(1);
    if let Some(most) = cluster.max_slots_per_node.filter(|most| slots > *most) {
        check.refuse(
            "accelerators_per_replica",
            format!("{accelerators} never fit: the largest node of cluster {} has {most}", cluster.name),
        );
    } else if let Some(total) =
        cluster.total_slots.filter(|total| u64::from(slots) * u64::from(replicas) > u64::from(*total))
    {
        check.refuse(
            "replicas",
            format!("{replicas} × {slots} slots never fit: cluster {} has {total} in all", cluster.name),
        );
    }
}

impl FaultToleranceDraft {
    fn check(&self, kind: JobKind, accelerators: u32, site: &Site, check: &mut Checker) -> FaultTolerance {
        const POLICY: &str = "fault_tolerance.policy.enabled";
        const HANG: &str = "fault_tolerance.hang_detection.enabled";
        let defaults = &site.defaults;
        let auto_failover = self.auto_failover.unwrap_or(defaults.auto_failover);
        let max_task_restarts = check.count(
            "fault_tolerance.max_task_restarts",
            self.max_task_restarts,
            0,
            0..=limits::TASK_RESTARTS,
            "",
        );
        let policy = self.policy.check(&defaults.policy, site, check);
        let hang_detection = self.hang_detection.check(&defaults.hang_detection, check);
        let exit_checkpoint = self.exit_checkpoint.check(&defaults.exit_checkpoint, check);
        let health_checks = self.health_checks.check(&defaults.health_checks, check);

        let ray = kind == JobKind::RayJob;
        if ray {
            for (on, field, label) in [
                (policy.enabled, POLICY, "Fault Tolerance Policy"),
                (hang_detection.enabled, HANG, "Job Hang Detection"),
                (
                    exit_checkpoint.enabled,
                    "fault_tolerance.exit_checkpoint.enabled",
                    "Exit ckpt Notification",
                ),
            ] {
                if on {
                    check.refuse(
                        field,
                        format!("RayJob uses basic mode; {label} is for PyTorchJob. Turn it off."),
                    );
                }
            }
        } else {
            if policy.enabled && !auto_failover {
                check.refuse(
                    POLICY,
                    "Fault Tolerance Policy needs Auto Failover. Turn Auto Failover on or this off.",
                );
            }
            if hang_detection.enabled && !auto_failover {
                check.refuse(
                    HANG,
                    "Job Hang Detection needs Auto Failover. Turn Auto Failover on or this off.",
                );
            }
            if hang_detection.enabled && !policy.enabled {
                check.refuse(
                    HANG,
                    "Job Hang Detection needs Fault Tolerance Policy. Turn Fault Tolerance Policy on or this off.",
                );
            }
            if hang_detection.enabled && accelerators == 0 {
                check.refuse(
                    HANG,
                    "Job Hang Detection needs accelerators_per_replica of at least 1; it watches accelerator jobs only.",
                );
            }
        }
        FaultTolerance {
            auto_failover,
            max_task_restarts,
            policy,
            hang_detection,
            exit_checkpoint,
            health_checks,
        }
    }
}

impl super::PolicyDraft {
    fn check(&self, defaults: &PolicyChoice, site: &Site, check: &mut Checker) -> PolicyChoice {
        let policy_type = self.policy_type.clone().unwrap_or_else(|| defaults.policy_type.clone());
        if !site.policies.contains(&policy_type) {
            let shown: String = policy_type.chars().take(80).collect();
            check.refuse(
                "fault_tolerance.policy.type",
                format!("`{shown}` is no policy of this site; use one of: {}", site.policies.join(", ")),
            );
        }
        PolicyChoice {
            enabled: self.enabled.unwrap_or(defaults.enabled),
            policy_type,
            max_in_place_restarts: check.count(
                "fault_tolerance.policy.max_in_place_restarts",
                self.max_in_place_restarts,
                defaults.max_in_place_restarts,
                0..=limits::IN_PLACE_RESTARTS,
                "",
            ),
        }
    }
}

impl super::HangDetectionDraft {
    fn check(&self, defaults: &HangDetection, check: &mut Checker) -> HangDetection {
        const WINDOW: &str = "fault_tolerance.hang_detection.window_seconds";
        let errors_before = check.errors.len();
        let interval_seconds = check.count(
            "fault_tolerance.hang_detection.interval_seconds",
            self.interval_seconds,
            defaults.interval_seconds,
            limits::HANG_INTERVAL_SECONDS,
            " seconds",
        );
        let window_seconds = check.count(
            WINDOW,
            self.window_seconds,
            // A longer interval moves the prefilled window along; a window given is never moved.
            defaults.window_seconds.max(interval_seconds),
            1..=limits::HANG_WINDOW_SECONDS,
            " seconds",
        );
        if check.errors.len() == errors_before && window_seconds < interval_seconds {
            check.refuse(
                WINDOW,
                format!(
                    "{window_seconds} is shorter than the interval. Use {interval_seconds} to {} seconds.",
                    limits::HANG_WINDOW_SECONDS
                ),
            );
        }
        HangDetection {
            enabled: self.enabled.unwrap_or(defaults.enabled),
            interval_seconds,
            window_seconds,
            start_after_seconds: check.count(
                "fault_tolerance.hang_detection.start_after_seconds",
                self.start_after_seconds,
                defaults.start_after_seconds,
                0..=limits::HANG_START_AFTER_SECONDS,
                " seconds",
            ),
            max_in_place_restarts: check.count(
                "fault_tolerance.hang_detection.max_in_place_restarts",
                self.max_in_place_restarts,
                defaults.max_in_place_restarts,
                0..=limits::IN_PLACE_RESTARTS,
                "",
            ),
            diagnose: self.diagnose.unwrap_or(defaults.diagnose),
        }
    }
}

impl super::ExitCheckpointDraft {
    fn check(&self, defaults: &ExitCheckpoint, check: &mut Checker) -> ExitCheckpoint {
        let port = check.count(
            "fault_tolerance.exit_checkpoint.port",
            self.port,
            defaults.port.into(),
            limits::EXIT_PORT,
            "",
        );
        ExitCheckpoint {
            enabled: self.enabled.unwrap_or(defaults.enabled),
            port: u16::try_from(port).unwrap_or(defaults.port),
            max_wait_seconds: check.count(
                "fault_tolerance.exit_checkpoint.max_wait_seconds",
                self.max_wait_seconds,
                defaults.max_wait_seconds,
                limits::EXIT_WAIT_SECONDS,
                " seconds",
            ),
        }
    }
}

impl super::HealthChecksDraft {
    fn check(&self, defaults: &HealthChecks, check: &mut Checker) -> HealthChecks {
        let checks = self.checks.clone().unwrap_or_else(|| defaults.checks.clone());
        if let Some(unknown) = checks.iter().find(|name| !HEALTH_CHECKS.contains(&name.as_str())) {
            let shown: String = unknown.chars().take(80).collect();
            check.refuse(
                "fault_tolerance.health_checks.checks",
                format!("`{shown}` is no check; use any of: {}", HEALTH_CHECKS.join(", ")),
            );
        }
        if let Some(command) = &self.command {
            check.command("fault_tolerance.health_checks.command", command);
        }
        HealthChecks {
            enabled: self.enabled.unwrap_or(defaults.enabled),
            checks,
            command: self.command.clone().filter(|command| !command.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests;
