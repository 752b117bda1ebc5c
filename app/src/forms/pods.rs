//! The options of a job's pods as the form holds them: single texts, and lists with an entry on each line.
//!
//! ```text
//! /data = claim/dataset ro          a volume: claim, config_map, secret or host_path; ro: read only
//! TOKEN = hub/token                 a variable from a key of a Secret
//! pool=a100                         a label of nodes or pods
//! dedicated=train:NoSchedule        a toleration: without value any, without effect all, * for every key
//! ```
//!
//! A path with white space, `=` or a quote in front is a JSON string, as in [`super::lines`]. On a local cluster all of it
//! is kept and not sent, as the settings of a disabled switch are.

use std::collections::BTreeMap;

use engine::job::{
    ClusterKind, FieldError, PodOptions, SecretVariable, Site, SiteCluster, Toleration, Volume, VolumeSource,
};

use super::{
    switches::WAS,
    typed::{Typed, name},
};

/// The fields of one text.
const TEXTS: [&str; 10] = [
    name::NAMESPACE,
    name::CPU,
    name::MEMORY,
    name::ACCELERATOR_RESOURCE,
    name::SHM_SIZE,
    name::PRIORITY_CLASS,
    name::SERVICE_ACCOUNT,
    name::KUEUE_QUEUE,
    name::VOLCANO_QUEUE,
    name::SCHEDULER,
];
/// The fields that hold an entry on each line.
pub const LISTS: [&str; 6] = [
    name::VOLUMES,
    name::SECRETS,
    name::NODE_SELECTOR,
    name::TOLERATIONS,
    name::PULL_SECRETS,
    name::POD_LABELS,
];
/// The prefix of all of them.
const PREFIX: &str = "kubernetes.";
/// What the hidden field says that was rendered while they were not sent.
const UNSENT: &str = "unsent";

/// The chosen cluster.
pub fn cluster<'a>(typed: &Typed, site: &'a Site) -> Option<&'a SiteCluster> {
    let chosen = typed.get(name::CLUSTER).trim();
    match chosen {
        "" => site.clusters.first(),
        chosen => site.clusters.iter().find(|cluster| cluster.name == chosen),
    }
}

/// Whether the chosen cluster is one of Kubernetes.
pub fn on_kubernetes(typed: &Typed, site: &Site) -> bool {
    cluster(typed, site).is_some_and(|cluster| cluster.kind == ClusterKind::Kubernetes)
}

/// Whether options are filled in that the chosen cluster does not use: kept, and not sent.
pub fn unsent(typed: &Typed, site: &Site) -> bool {
    cluster(typed, site).is_some_and(|cluster| cluster.kind == ClusterKind::Local)
        && TEXTS.iter().chain(&LISTS).any(|field| !typed.get(field).trim().is_empty())
}

/// The form as it is sent: without what the chosen cluster does not use.
pub fn as_sent(typed: &Typed, site: &Site) -> Typed {
    let mut sent = typed.clone();
    if unsent(typed, site) {
        TEXTS.iter().chain(&LISTS).for_each(|field| sent.set(field, ""));
    }
    sent
}

/// The name of the hidden field that says whether they were sent when the page was rendered.
pub fn was_field() -> String {
    format!("{WAS}kubernetes")
}

/// What that field holds.
pub fn was_value(typed: &Typed, site: &Site) -> &'static str {
    if unsent(typed, site) { UNSENT } else { "" }
}

/// A sentence where a post holds options that are not sent and the page did not say so yet. Asked before
/// [`super::switches::settle`], which takes the hidden fields out.
pub fn held_back(typed: &Typed, site: &Site) -> Option<String> {
    let told = typed.get(&was_field()) == UNSENT;
    (!told && unsent(typed, site)).then(|| {
        let cluster = typed.get(name::CLUSTER).trim();
        format!(
            "What is filled in for Kubernetes is kept and not sent: cluster {cluster} runs programs of this machine."
        )
    })
}

/// Options as they could be read.
#[derive(Debug, Default)]
pub struct Read {
    /// All that could be read.
    pub options: PodOptions,
    /// What could not.
    pub errors: Vec<FieldError>,
    /// The line of each entry, by its path in the body.
    lines: BTreeMap<String, usize>,
}

impl Read {
    /// The engine's error with the line that it is about; any other as it is.
    pub fn at_line(&self, error: FieldError) -> FieldError {
        let entry = error.field.find(']').map_or(error.field.as_str(), |end| &error.field[..=end]);
        let Some(line) = self.lines.get(entry) else { return error };
        let subject = match &error.field[entry.len()..] {
            ".mount_path" => "the path",
            ".source" => "the source",
            ".name" => "the variable",
            ".secret" => "the Secret",
            ".key" => "the key",
            ".value" => "the value",
            ".effect" => "the effect",
            _ if entry.ends_with(']') => "the name",
            // A label's own key.
            _ => LISTS
                .iter()
                .find_map(|field| entry.strip_prefix(field)?.strip_prefix('.'))
                .unwrap_or_default(),
        };
        let message = format!("Line {line}: {subject} {}", error.message);
        FieldError { message, ..error }
    }

    /// Reads the lines of a field.
    fn entries<T>(
        &mut self,
        typed: &Typed,
        field: &str,
        read: fn(&str) -> Result<T, String>,
    ) -> Vec<(usize, T)> {
        let mut entries = Vec::new();
        let lines = typed.get(field).lines().map(str::trim).enumerate();
        for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
            match read(line) {
                Ok(entry) => entries.push((at + 1, entry)),
                Err(why) => self.errors.push(FieldError::new(field, format!("Line {}{why}", at + 1))),
            }
        }
        entries
    }

    fn list<T>(&mut self, typed: &Typed, field: &str, read: fn(&str) -> Result<T, String>) -> Vec<T> {
        let entries = self.entries(typed, field, read);
        for (at, (line, _)) in entries.iter().enumerate() {
            self.lines.insert(format!("{field}[{at}]"), *line);
        }
        entries.into_iter().map(|(_, entry)| entry).collect()
    }

    fn labels(&mut self, typed: &Typed, field: &str) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        for (line, (key, value)) in self.entries(typed, field, read_label) {
            self.lines.insert(format!("{field}.{key}"), line);
            if labels.contains_key(&key) {
                let why = format!("Line {line} sets {key} a second time. Keep one of them.");
                self.errors.push(FieldError::new(field, why));
            }
            labels.insert(key, value);
        }
        labels
    }
}

/// The options that the form holds, whatever the cluster.
pub fn read(typed: &Typed) -> Read {
    let text = |field: &str| Some(typed.get(field).trim().to_owned()).filter(|text| !text.is_empty());
    let mut read = Read::default();
    read.options = PodOptions {
        namespace: text(name::NAMESPACE),
        cpu: text(name::CPU),
        memory: text(name::MEMORY),
        accelerator: text(name::ACCELERATOR_RESOURCE),
        shm_size: text(name::SHM_SIZE),
        secrets: read.list(typed, name::SECRETS, read_secret),
        volumes: read.list(typed, name::VOLUMES, read_volume),
        node_selector: read.labels(typed, name::NODE_SELECTOR),
        tolerations: read.list(typed, name::TOLERATIONS, |line| Ok(read_toleration(line))),
        priority_class: text(name::PRIORITY_CLASS),
        service_account: text(name::SERVICE_ACCOUNT),
        pull_secrets: read.list(typed, name::PULL_SECRETS, |line| Ok(line.to_owned())),
        labels: read.labels(typed, name::POD_LABELS),
        kueue_queue: text(name::KUEUE_QUEUE),
        volcano_queue: text(name::VOLCANO_QUEUE),
        scheduler: text(name::SCHEDULER),
        manifest: None,
    };
    read
}

/// The fields with their texts, in the order of the form.
pub fn write(options: &PodOptions) -> [(&'static str, String); 16] {
    let text = |given: &Option<String>| given.clone().unwrap_or_default();
    [
        (name::CPU, text(&options.cpu)),
        (name::MEMORY, text(&options.memory)),
        (name::ACCELERATOR_RESOURCE, text(&options.accelerator)),
        (name::SHM_SIZE, text(&options.shm_size)),
        (name::NAMESPACE, text(&options.namespace)),
        (name::PRIORITY_CLASS, text(&options.priority_class)),
        (name::SERVICE_ACCOUNT, text(&options.service_account)),
        (name::KUEUE_QUEUE, text(&options.kueue_queue)),
        (name::VOLCANO_QUEUE, text(&options.volcano_queue)),
        (name::SCHEDULER, text(&options.scheduler)),
        (name::PULL_SECRETS, options.pull_secrets.join("\n")),
        (name::NODE_SELECTOR, write_labels(&options.node_selector)),
        (name::TOLERATIONS, lines(&options.tolerations, write_toleration)),
        (name::POD_LABELS, write_labels(&options.labels)),
        (name::VOLUMES, lines(&options.volumes, write_volume)),
        (name::SECRETS, lines(&options.secrets, write_secret)),
    ]
}

/// A list as it counts, however its lines are spaced; none where it cannot be read or is none of these.
pub fn meaning(field: &str, text: &str) -> Option<String> {
    if !field.starts_with(PREFIX) {
        return None;
    }
    let mut typed = Typed::default();
    typed.set(field, text);
    let Read { options, errors, .. } = read(&typed);
    let written = || write(&options).into_iter().find(|(written, _)| *written == field);
    errors.is_empty().then(written).flatten().map(|(_, text)| text)
}

fn lines<T>(entries: &[T], write: fn(&T) -> String) -> String {
    entries.iter().map(write).collect::<Vec<_>>().join("\n")
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// A word at the beginning of a line, and what follows it; none where a quote is not closed or holds no JSON string.
fn word(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start();
    if !text.starts_with('"') {
        let end = text.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    }
    let mut escaped = false;
    let closing = text.char_indices().skip(1).find(|(_, c)| {
        let closes = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        closes
    });
    let (text, rest) = text.split_at(closing?.0 + 1);
    Some((serde_json::from_str(text).ok()?, rest))
}

fn quoted(text: String) -> String {
    let plain = !text.is_empty()
        && !text.starts_with('"')
        && !text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '=');
    if plain { text } else { serde_json::Value::from(text).to_string() }
}

fn read_volume(line: &str) -> Result<Volume, String> {
    let no_volume = || {
        format!(
            " is no volume: `{}`. Use PATH = claim/NAME, one a line; ro at its end makes it read only.",
            shown(line)
        )
    };
    let (mount_path, rest) = word(line).ok_or_else(no_volume)?;
    let rest = rest.trim_start().strip_prefix('=').ok_or_else(no_volume)?;
    let (source, rest) = word(rest).ok_or_else(no_volume)?;
    let no_source = || {
        let shown = shown(&source);
        format!(
            ": `{shown}` is no source. Use claim/NAME, config_map/NAME, secret/NAME or host_path/DIRECTORY."
        )
    };
    let (kind, name) = source.split_once('/').ok_or_else(no_source)?;
    let name = name.to_owned();
    let source = match kind {
        "claim" => VolumeSource::Claim(name),
        "config_map" => VolumeSource::ConfigMap(name),
        "secret" => VolumeSource::Secret(name),
        "host_path" => VolumeSource::HostPath(format!("/{name}")),
        _ => return Err(no_source()),
    };
    let read_only = match rest.trim() {
        "" | "rw" => false,
        "ro" => true,
        more => return Err(format!(": after the source stands `{}`; only ro or rw may.", shown(more))),
    };
    Ok(Volume { mount_path, source, read_only })
}

fn write_volume(volume: &Volume) -> String {
    let source = match &volume.source {
        VolumeSource::Claim(name) => format!("claim/{name}"),
        VolumeSource::ConfigMap(name) => format!("config_map/{name}"),
        VolumeSource::Secret(name) => format!("secret/{name}"),
        VolumeSource::HostPath(path) => format!("host_path/{}", path.strip_prefix('/').unwrap_or(path)),
    };
    let read_only = if volume.read_only { " ro" } else { "" };
    format!("{} = {}{read_only}", quoted(volume.mount_path.clone()), quoted(source))
}

fn read_secret(line: &str) -> Result<SecretVariable, String> {
    let parts = line.split_once('=').and_then(|(name, from)| Some((name, from.split_once('/')?)));
    let Some((name, (secret, key))) = parts else {
        return Err(format!(
            " is no variable from a Secret: `{}`. Use VARIABLE = SECRET/KEY, one a line.",
            shown(line)
        ));
    };
    let [name, secret, key] = [name, secret, key].map(|part| part.trim().to_owned());
    Ok(SecretVariable { name, secret, key })
}

fn write_secret(SecretVariable { name, secret, key }: &SecretVariable) -> String {
    format!("{name} = {secret}/{key}")
}

fn read_label(line: &str) -> Result<(String, String), String> {
    let (key, value) = line
        .split_once('=')
        .ok_or_else(|| format!(" is no label: `{}`. Use key=value, one a line.", shown(line)))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

fn write_labels(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("\n")
}

/// Every line is one; whether its parts are good is the engine's to say.
fn read_toleration(line: &str) -> Toleration {
    let text = |part: &str| part.trim().to_owned();
    let (taint, effect) =
        line.rsplit_once(':').map_or((line, None), |(taint, effect)| (taint, Some(text(effect))));
    let (key, value) = taint.split_once('=').map_or((taint, None), |(key, value)| (key, Some(text(value))));
    Toleration { key: Some(text(key)).filter(|key| key != "*"), value, effect }
}

fn write_toleration(Toleration { key, value, effect }: &Toleration) -> String {
    let part = |lead: char, part: &Option<String>| {
        part.as_ref().map(|part| format!("{lead}{part}")).unwrap_or_default()
    };
    format!("{}{}{}", key.as_deref().unwrap_or("*"), part('=', value), part(':', effect))
}

#[cfg(test)]
mod tests;
