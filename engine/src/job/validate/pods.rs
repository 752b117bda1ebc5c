//! The options of a job's pods: nothing on the local cluster; on Kubernetes what its API server would take, so that a
//! job is not refused after it has queued.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use super::{Checker, NAMESPACE, names};
use crate::job::{
    ClusterKind, PodOptions, SecretVariable, SiteCluster, Toleration, Volume, VolumeSource, limits,
    pods::{OVER_OURS, is_over_ours, is_within, plain_path},
    quantity::Quantity,
};

/// Where `shm_size` mounts memory.
const SHM_DIR: &str = "/dev/shm";
/// Domains of labels that Holdfast, Kubernetes and the operators set; domains below Kubernetes' own, as of
/// `app.kubernetes.io/name` or `kueue.x-k8s.io/queue-name`, are people's.
const RESERVED_DOMAINS: [&str; 5] =
    ["holdfast.dev", "kubernetes.io", "k8s.io", "training.kubeflow.org", "ray.io"];
/// The label that [`PodOptions::kueue_queue`] becomes.
const KUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

const NAME_RULE: &str =
    "must be 1 to 253 of a-z, 0-9, - and ., with a letter or digit at both ends, as Kubernetes names it";
const QUEUE_RULE: &str =
    "must be 1 to 63 of a-z, 0-9, - and ., with a letter or digit at both ends, as Kubernetes names it";
const KEY_RULE: &str = "must be up to 63 letters, digits, -, _ and ., with a letter or digit at both ends; a domain and / may stand before it";
const VALUE_RULE: &str =
    "must be empty or up to 63 letters, digits, -, _ and ., with a letter or digit at both ends";

/// Where a job is that names no namespace. Told in its spec, so that its later attempts are where the first is, and all are looked for there.
pub(super) fn default_namespace(cluster: Option<&SiteCluster>) -> Option<String> {
    cluster?.default_namespace().map(str::to_owned)
}

impl PodOptions {
    /// The options in force: texts trimmed, empty ones left out.
    pub(super) fn check(
        &self,
        env: &BTreeMap<String, String>,
        cluster: Option<&SiteCluster>,
        check: &mut Checker,
    ) -> Self {
        let mut options = self.trimmed();
        match cluster.map(|cluster| cluster.kind) {
            // The cluster's own error says more.
            None => {}
            Some(ClusterKind::Local) => options.refuse_all(check),
            Some(ClusterKind::Kubernetes) => {
                options.resources(check);
                options.placement(check);
                options.names(cluster, check);
                options.queues(check);
                options.secrets(env, check);
                options.volumes(cluster.is_some_and(|cluster| cluster.allows_host_paths), check);
                options.namespace = options.namespace.or_else(|| default_namespace(cluster));
            }
        }
        options
    }

    fn trimmed(&self) -> Self {
        let text = |given: &Option<String>| {
            given.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        Self {
            namespace: text(&self.namespace),
            cpu: text(&self.cpu),
            memory: text(&self.memory),
            accelerator: text(&self.accelerator),
            shm_size: text(&self.shm_size),
            priority_class: text(&self.priority_class),
            service_account: text(&self.service_account),
            kueue_queue: text(&self.kueue_queue),
            volcano_queue: text(&self.volcano_queue),
            scheduler: text(&self.scheduler),
            ..self.clone()
        }
    }

    fn refuse_all(&self, check: &mut Checker) {
        for field in self.set_fields() {
            check.refuse(
                field,
                "is not used by the local cluster, which runs programs of this machine; leave it out",
            );
        }
    }

    /// The fields that are set.
    pub(super) fn set_fields(&self) -> impl Iterator<Item = &'static str> {
        let Self {
            namespace,
            cpu,
            memory,
            accelerator,
            shm_size,
            secrets,
            volumes,
            node_selector,
            tolerations,
            priority_class,
            service_account,
            pull_secrets,
            labels,
            kueue_queue,
            volcano_queue,
            scheduler,
            manifest,
        } = self;
        [
            (NAMESPACE, namespace.is_some()),
            ("kubernetes.cpu", cpu.is_some()),
            ("kubernetes.memory", memory.is_some()),
            ("kubernetes.accelerator", accelerator.is_some()),
            ("kubernetes.shm_size", shm_size.is_some()),
            ("kubernetes.secrets", !secrets.is_empty()),
            ("kubernetes.volumes", !volumes.is_empty()),
            ("kubernetes.node_selector", !node_selector.is_empty()),
            ("kubernetes.tolerations", !tolerations.is_empty()),
            ("kubernetes.priority_class", priority_class.is_some()),
            ("kubernetes.service_account", service_account.is_some()),
            ("kubernetes.pull_secrets", !pull_secrets.is_empty()),
            ("kubernetes.labels", !labels.is_empty()),
            ("kubernetes.kueue_queue", kueue_queue.is_some()),
            ("kubernetes.volcano_queue", volcano_queue.is_some()),
            ("kubernetes.scheduler", scheduler.is_some()),
            ("kubernetes.manifest", manifest.is_some()),
        ]
        .into_iter()
        .filter_map(|(field, is_set)| is_set.then_some(field))
    }

    fn resources(&self, check: &mut Checker) {
        if let Some(cpu) = &self.cpu {
            cores("kubernetes.cpu", cpu, check);
        }
        for (field, size) in [("kubernetes.memory", &self.memory), ("kubernetes.shm_size", &self.shm_size)] {
            if let Some(size) = size {
                bytes(field, size, limits::POD_BYTES, check);
            }
        }
        if let Some(accelerator) = &self.accelerator {
            check.must(
                "kubernetes.accelerator",
                names::is_device_resource(accelerator),
                "must be a resource of the nodes with its domain, such as nvidia.com/gpu",
            );
        }
    }

    fn placement(&self, check: &mut Checker) {
        at_most("kubernetes.node_selector", self.node_selector.len(), limits::NODE_LABELS, "labels", check);
        labels("kubernetes.node_selector", &self.node_selector, check);
        at_most("kubernetes.tolerations", self.tolerations.len(), limits::TOLERATIONS, "entries", check);
        for (at, toleration) in self.tolerations.iter().enumerate() {
            toleration.check(&format!("kubernetes.tolerations[{at}]"), check);
        }
        at_most("kubernetes.labels", self.labels.len(), limits::POD_LABELS, "labels", check);
        labels("kubernetes.labels", &self.labels, check);
        for key in self.labels.keys() {
            let domain = key.split_once('/').map_or("", |(domain, _)| domain);
            check.must(
                &entry("kubernetes.labels", key),
                !RESERVED_DOMAINS.contains(&domain) && !domain.ends_with(".holdfast.dev"),
                "is set by Holdfast, Kubernetes or the operator; use a domain of your own or none",
            );
        }
    }

    fn names(&self, cluster: Option<&SiteCluster>, check: &mut Checker) {
        if let Some(namespace) = &self.namespace {
            check.namespace(NAMESPACE, namespace, cluster);
        }
        for (field, name) in [
            ("kubernetes.priority_class", &self.priority_class),
            ("kubernetes.service_account", &self.service_account),
        ] {
            if let Some(name) = name {
                check.must(field, names::is_dns_subdomain(name), NAME_RULE);
            }
        }
        at_most("kubernetes.pull_secrets", self.pull_secrets.len(), limits::PULL_SECRETS, "names", check);
        for (at, name) in self.pull_secrets.iter().enumerate() {
            check.must(&format!("kubernetes.pull_secrets[{at}]"), names::is_dns_subdomain(name), NAME_RULE);
        }
    }

    fn queues(&self, check: &mut Checker) {
        // Both are written into labels of the job.
        for (field, name) in
            [("kubernetes.kueue_queue", &self.kueue_queue), ("kubernetes.volcano_queue", &self.volcano_queue)]
        {
            if let Some(name) = name {
                let is_good = names::is_dns_subdomain(name) && names::is_label_value(name);
                check.must(field, is_good, QUEUE_RULE);
            }
        }
        if self.kueue_queue.is_some() && self.labels.contains_key(KUEUE_LABEL) {
            check.refuse("kubernetes.kueue_queue", "is also set in the labels; keep one of them");
        }
        if let Some(name) = &self.scheduler {
            check.must("kubernetes.scheduler", names::is_dns_subdomain(name), NAME_RULE);
        }
    }

    fn secrets(&self, env: &BTreeMap<String, String>, check: &mut Checker) {
        at_most("kubernetes.secrets", self.secrets.len(), limits::SECRET_VARIABLES, "variables", check);
        let mut seen = BTreeSet::new();
        for (at, SecretVariable { name, secret, key }) in self.secrets.iter().enumerate() {
            let field = |part: &str| format!("kubernetes.secrets[{at}].{part}");
            if env.contains_key(name) {
                check.refuse(&field("name"), "is also set in the environment; keep one of them");
            } else if seen.insert(name) {
                check.variable(&field("name"), name);
            } else {
                check.refuse(&field("name"), "is set twice; keep one of them");
            }
            check.must(&field("secret"), names::is_dns_subdomain(secret), NAME_RULE);
            check.must(
                &field("key"),
                names::is_data_key(key),
                "must be 1 to 253 letters, digits, -, _ and ., and not begin with two dots",
            );
        }
    }

    fn volumes(&self, host_paths: bool, check: &mut Checker) {
        at_most("kubernetes.volumes", self.volumes.len(), limits::VOLUMES, "entries", check);
        let mut mounted = BTreeSet::new();
        for (at, Volume { mount_path, source, read_only: _ }) in self.volumes.iter().enumerate() {
            let field = format!("kubernetes.volumes[{at}].mount_path");
            let plain = plain_path(mount_path);
            if self.mount_path(&field, mount_path, &plain, check) && !mounted.insert(plain) {
                check.refuse(&field, "is mounted twice; keep one of them");
            }
            let field = format!("kubernetes.volumes[{at}].source");
            match source {
                VolumeSource::Claim(name) | VolumeSource::ConfigMap(name) | VolumeSource::Secret(name) => {
                    check.must(&field, names::is_dns_subdomain(name), NAME_RULE);
                }
                VolumeSource::HostPath(_) if !host_paths => check.refuse(
                    &field,
                    "is a directory of the node, which this cluster does not allow; use a claim",
                ),
                VolumeSource::HostPath(path) => {
                    absolute(&field, path, check);
                }
            }
        }
    }

    /// Whether a volume may be mounted there.
    fn mount_path(&self, field: &str, path: &str, plain: &str, check: &mut Checker) -> bool {
        if !absolute(field, path, check) {
            return false;
        }
        let why = if path.contains(':') {
            Some("must hold no colon")
        } else if plain.is_empty() {
            Some("must not be / itself, which is the image's")
        } else if is_over_ours(plain) {
            Some(OVER_OURS)
        } else if self.shm_size.is_some() && is_within(plain, SHM_DIR) {
            Some("must not be within /dev/shm, which shm_size mounts")
        } else {
            None
        };
        if let Some(why) = why {
            check.refuse(field, why);
        }
        why.is_none()
    }
}

impl Toleration {
    fn check(&self, field: &str, check: &mut Checker) {
        let Self { key, value, effect } = self;
        if let Some(key) = key {
            check.must(&format!("{field}.key"), names::is_label_key(key), KEY_RULE);
        }
        match (key, value) {
            (None, Some(_)) => {
                check.refuse(&format!("{field}.value"), "must have a key; name it or leave the value out")
            }
            (_, Some(value)) => {
                check.must(&format!("{field}.value"), names::is_label_value(value), VALUE_RULE)
            }
            (_, None) => {}
        }
        if let Some(effect) = effect {
            check.must(
                &format!("{field}.effect"),
                EFFECTS.contains(&effect.as_str()),
                "must be NoSchedule, PreferNoSchedule or NoExecute, or be left out for all",
            );
        }
    }
}

impl Checker {
    fn must(&mut self, field: &str, good: bool, rule: &str) {
        if !good {
            self.refuse(field, rule);
        }
    }
}

/// The path of an error in a map, as of `env.FOO`.
fn entry(field: &str, key: &str) -> String {
    let key: String = key.chars().take(320).collect();
    format!("{field}.{key}")
}

fn at_most(field: &str, count: usize, most: usize, what: &str, check: &mut Checker) {
    if count > most {
        check.refuse(field, format!("has {count} {what}; at most {most} are allowed"));
    }
}

fn labels(field: &str, labels: &BTreeMap<String, String>, check: &mut Checker) {
    for (key, value) in labels {
        if !names::is_label_key(key) {
            check.refuse(&entry(field, key), KEY_RULE);
        } else if !names::is_label_value(value) {
            check.refuse(
                &entry(field, key),
                format!("must have a value that Kubernetes takes: it {VALUE_RULE}"),
            );
        }
    }
}

fn absolute(field: &str, path: &str, check: &mut Checker) -> bool {
    let before = check.errors.len();
    check.text(field, path, limits::TEXT_CHARS);
    check.must(field, path.starts_with('/'), "must be absolute, such as /data");
    check.must(
        field,
        path.split('/').all(|part| part != ".."),
        "must not go up with `..`; name the directory itself",
    );
    check.errors.len() == before
}

/// An amount as it is shown in an error.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Cores, or thousandths of one; units of sizes are a mistake here.
fn cores(field: &str, text: &str, check: &mut Checker) {
    let plain = text.ends_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | 'm'));
    match Quantity::read(text).filter(|amount| plain && amount.exact) {
        None => check.refuse(
            field,
            format!(
                "`{}` is no number of cores. Use one such as 4, 0.5 or 500m, nothing finer than 1m.",
                shown(text)
            ),
        ),
        Some(amount) if !limits::CPU_THOUSANDTHS.contains(&amount.thousandths) => check.refuse(
            field,
            format!(
                "`{}` is not allowed. Use {}m to {} cores.",
                shown(text),
                limits::CPU_THOUSANDTHS.start(),
                limits::CPU_THOUSANDTHS.end() / 1000
            ),
        ),
        Some(_) => {}
    }
}

fn bytes(field: &str, text: &str, range: RangeInclusive<u128>, check: &mut Checker) {
    match Quantity::read(text) {
        None => {
            check.refuse(field, format!("`{}` is no size. Use one such as 64Gi, 512Mi or 1e9.", shown(text)))
        }
        Some(size) if !range.contains(&size.units()) => {
            let unit = if text.ends_with('m') { " m is a thousandth." } else { "" };
            let bytes = match size.units() {
                1 => "at most 1 byte".to_owned(),
                bytes => format!("{bytes} bytes"),
            };
            check.refuse(
                field,
                format!(
                    "`{}` is {bytes}.{unit} Use {}Mi to {}Pi.",
                    shown(text),
                    range.start() >> 20,
                    range.end() >> 50
                ),
            );
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests;
