//! The create form of a pasted manifest. Its text is YAML, which the server alone reads; the browser works with what the server
//! read, for as long as the text is the same.
//!
//! What was read is kept among the fields as JSON, under names that no page has a field for and that the server never takes from a
//! post.

use std::collections::BTreeSet;

use engine::job::{ClusterKind, FieldError, JobDraft, JobKind, JobSpec, Manifest, PodOptions, Site};
use serde_json::Value;

use super::{
    lines, manifest,
    typed::{Typed, name},
};

/// What the server read of the text, as JSON.
const READ: &str = "read.manifest";
/// Why it could not.
const UNREAD: &str = "unread.manifest";
/// Said of a text that the server has not seen yet.
const NOT_YET: &str = "has not been read yet; press Check";

/// Whether this is the form of a manifest.
pub fn is_pasted(typed: &Typed) -> bool {
    typed.text(name::MANIFEST).is_some()
}

/// Keeps what a reader makes of the text, in place of anything that was there under these names.
pub fn keep(typed: &mut Typed, read: impl FnOnce(&str) -> Result<Value, String>) {
    forget(typed);
    let Some(text) = typed.text(name::MANIFEST) else { return };
    match read(text) {
        Ok(object) => set_read(typed, &object),
        Err(why) => typed.set(UNREAD, why),
    }
}

/// Notes what was read, and with it the kind, which decides over switches.
fn set_read(typed: &mut Typed, object: &Value) {
    let is_ray = object["kind"] == "RayJob";
    let kind = if is_ray { JobKind::RayJob } else { JobKind::PyTorchJob };
    typed.set(READ, object.to_string());
    typed.set(name::KIND, kind.as_str());
}

/// Forgets what was read: the text is another one.
pub fn forget(typed: &mut Typed) {
    typed.remove(READ);
    typed.remove(UNREAD);
}

/// Takes over what was read of the same text, which a browser may give back with other line breaks.
pub fn carry_over(from: &Typed, to: &mut Typed) {
    let plain = |typed: &Typed| typed.get(name::MANIFEST).replace('\r', "");
    if plain(from) == plain(to) {
        for field in [READ, UNREAD, name::KIND] {
            if let Some(text) = from.text(field).filter(|_| is_read(from)) {
                to.set(field, text);
            }
        }
    }
}

/// Whether the server has read the text as it is now.
pub fn is_read(typed: &Typed) -> bool {
    typed.text(READ).or_else(|| typed.text(UNREAD)).is_some()
}

/// What was read; none where nothing was, or the text could not be.
pub fn object(typed: &Typed) -> Option<Manifest> {
    serde_json::from_str::<Value>(typed.text(READ)?).ok().map(Manifest::from)
}

/// What the form says beside the Advanced Options, and what is wrong with the text.
pub(super) fn draft(typed: &Typed) -> (JobDraft, Option<FieldError>) {
    let text = |field: &str| Some(typed.get(field).trim().to_owned()).filter(|text| !text.is_empty());
    let mut draft = JobDraft {
        name: text(name::NAME).unwrap_or_default(),
        cluster: text(name::CLUSTER),
        checkpoint_dir: text(name::CHECKPOINT_DIR),
        ..JobDraft::default()
    };
    let Some(manifest) = object(typed) else {
        // Nothing is known of its replicas, so nothing is held against settings that need accelerators.
        draft.accelerators_per_replica = Some(1);
        let why = match (typed.text(UNREAD), typed.get(name::MANIFEST).trim()) {
            (Some(why), _) => why,
            (None, "") => "is missing; paste a PyTorchJob or a RayJob as YAML or JSON",
            (None, _) => NOT_YET,
        };
        return (draft, Some(FieldError::new(name::MANIFEST, why)));
    };
    draft.kubernetes = PodOptions { manifest: Some(manifest), ..PodOptions::default() };
    (draft, None)
}

/// Whether an error is about something that this form has. While the text is not read, what would come from it is missing everywhere.
pub(super) fn has_field(error: &FieldError) -> bool {
    let fields = [name::MANIFEST, name::CLUSTER, name::CHECKPOINT_DIR];
    fields.iter().any(|field| error.field.starts_with(field)) || error.field.starts_with("fault_tolerance.")
}

/// Whether all that is wrong is that the server has not read the text yet: it will when the form is sent.
pub fn only_unread(errors: &[FieldError]) -> bool {
    errors.iter().all(|error| error.field == name::MANIFEST && error.message == NOT_YET)
}

/// The empty form's own fields.
pub(super) fn prefilled(site: &Site) -> JobDraft {
    let cluster = site.clusters.iter().find(|cluster| cluster.kind == ClusterKind::Kubernetes);
    let cluster = cluster.map(|cluster| cluster.name.clone());
    JobDraft { cluster, ..JobDraft::default() }
}

/// The fields of a manifest in a form; an empty text where there is none yet.
pub(super) fn write(typed: &mut Typed, manifest: Option<&Manifest>) {
    typed
        .set(name::MANIFEST, manifest.map(|manifest| manifest::write(manifest.object())).unwrap_or_default());
    if let Some(manifest) = manifest {
        set_read(typed, manifest.object());
    }
}

/// The text as it counts: what was read of it, else the text itself.
pub(super) fn meaning(typed: &Typed) -> String {
    typed.text(READ).unwrap_or(typed.get(name::MANIFEST)).to_owned()
}

/// What a job takes from its manifest, and the namespace it has without one: labels and values.
pub fn read_from(spec: &JobSpec) -> Vec<(&'static str, String)> {
    let (kind, first) = match spec.kind {
        JobKind::PyTorchJob => ("PyTorchJob", "master"),
        JobKind::RayJob => ("RayJob", "head"),
    };
    let mut read = vec![
        ("Kind", kind.to_owned()),
        ("Name", spec.name.clone()),
        ("Image", spec.image.clone().unwrap_or_default()),
        ("Command", lines::write_command(&spec.command)),
        ("Replicas", format!("{}, the {first} included", spec.replicas)),
        ("GPUs in each replica", gpus(spec)),
    ];
    let options = &spec.kubernetes;
    let texts = [
        ("Accelerator resource", &options.accelerator),
        ("Namespace", &options.namespace),
        ("Working directory", &spec.working_dir),
    ];
    read.extend(texts.into_iter().filter_map(|(label, text)| Some((label, text.clone()?))));
    let variables: BTreeSet<_> = spec.env.keys().map(String::as_str).collect();
    if !variables.is_empty() {
        read.push(("Variables with a value", variables.into_iter().collect::<Vec<_>>().join(", ")));
    }
    read
}

/// Groups of a Ray cluster often differ: the largest replica's are counted for all.
fn gpus(spec: &JobSpec) -> String {
    let most = if spec.kind == JobKind::RayJob { "at most " } else { "" };
    format!("{most}{}", spec.accelerators_per_replica)
}

#[cfg(test)]
mod tests;
