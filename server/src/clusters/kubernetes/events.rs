//! Events about an attempt's object, so that `kubectl describe` tells what was decided about it.
//!
//! They are of `events.k8s.io/v1` and made once, each under a name that follows from what it says: the API server itself tells that
//! one is there already, whoever told it before. An aggregating recorder would count and patch them, which needs more rights.

use engine::{
    ids::TaskId,
    job::JobKind,
    record::{EventReason, EventRecord},
    time::Time,
};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::core::ObjectMeta;

use super::{names, seen::JobSeen};
use crate::{clusters::Note, redact};

/// Who reports, in kubectl's column "From".
const REPORTER: &str = "holdfast";
/// Bytes of a text; the API server takes 1,024.
const NOTE_BYTES: usize = 1_000;

/// The object of an attempt, as events name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub namespace: String,
    /// Where it is known: without it, an event is found by the object's name only.
    pub uid: Option<String>,
}

impl From<&JobSeen> for Place {
    fn from(job: &JobSeen) -> Self {
        Self { namespace: job.namespace.clone(), uid: Some(job.uid.clone()) }
    }
}

/// An event of an entry of the history.
pub(super) fn of(note: &Note, place: &Place, instance: &str) -> Event {
    let EventRecord { at, reason, by, text, .. } = &note.event;
    let by_a_person = !matches!(by.as_str(), "holdfast" | "cluster");
    let text = if by_a_person { format!("{by}: {text}") } else { text.clone() };
    let (word, grave) = reason.map_or(("Noted", false), said);
    let name = names::event_of(&note.task_id, note.place);
    event(name, &note.task_id, note.kind, place, instance, (word, grave, &text), *at)
}

/// The event of an object's removal, which nobody else explains.
pub(super) fn of_removal(
    task: &TaskId,
    kind: JobKind,
    force: bool,
    place: &Place,
    instance: &str,
    now: Time,
) -> Event {
    let text = if force {
        "The attempt is over and its pods do not end: Holdfast removes it with its pods at once."
    } else {
        "The attempt is over: Holdfast removes it with its pods. Its output and its story stay on the job's page until the job is deleted."
    };
    event(names::removal_of(task, force), task, kind, place, instance, ("Removed", force, text), now)
}

fn event(
    name: String,
    task: &TaskId,
    kind: JobKind,
    place: &Place,
    instance: &str,
    (word, grave, text): (&str, bool, &str),
    at: Time,
) -> Event {
    let resource = names::resource(kind);
    let marks = [(names::INSTANCE, instance), (names::TASK, task.as_str())];
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(place.namespace.clone()),
            labels: Some(marks.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        action: Some(word.to_owned()),
        reason: Some(word.to_owned()),
        type_: Some(if grave { "Warning" } else { "Normal" }.to_owned()),
        note: Some(clean(text)),
        // A time outside the range of theirs cannot be said; there is none.
        event_time: Some(MicroTime(Timestamp::from_microsecond(at.micros()).unwrap_or_default())),
        reporting_controller: Some(REPORTER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            name: Some(task.to_string()),
            namespace: Some(place.namespace.clone()),
            uid: place.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Event::default()
    }
}

/// An event's reason, and whether it is a warning: something failed, or ends otherwise than was asked for.
fn said(reason: EventReason) -> (&'static str, bool) {
    match reason {
        EventReason::AttemptSubmitted => ("AttemptSubmitted", false),
        EventReason::AttemptRefused => ("AttemptRefused", true),
        EventReason::AttemptSucceeded => ("AttemptSucceeded", false),
        EventReason::Incident => ("Incident", true),
        EventReason::RestartInPlace => ("RestartInPlace", false),
        EventReason::Resubmit => ("Resubmit", false),
        EventReason::FailFast => ("FailFast", true),
        EventReason::Diagnose => ("Diagnose", true),
        EventReason::BudgetUsed => ("BudgetUsed", true),
        EventReason::AutoFailoverOff => ("AutoFailoverOff", true),
        EventReason::Preempted => ("Preempted", true),
        EventReason::Killed => ("Killed", true),
        EventReason::StartedFresh => ("StartedFresh", false),
        EventReason::Resumed => ("Resumed", false),
        EventReason::NotResumed => ("NotResumed", true),
        EventReason::StopRequested => ("StopRequested", false),
        EventReason::DeleteRequested => ("DeleteRequested", false),
        EventReason::SaveAsked => ("SaveAsked", false),
        EventReason::Saved => ("Saved", false),
        EventReason::NotSaved => ("NotSaved", true),
        EventReason::ExitTestAsked => ("ExitTestAsked", false),
        EventReason::ExitTested => ("ExitTested", false),
    }
}

/// A text as an event takes it: one line, of a size, and without what looks confidential. Lines of a program's output are in it, and
/// more people may read events than its log.
fn clean(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut cleaned = redact::hide(&line);
    if cleaned.len() > NOTE_BYTES {
        let end = (0..=NOTE_BYTES - '…'.len_utf8()).rev().find(|end| cleaned.is_char_boundary(*end));
        cleaned.truncate(end.unwrap_or(0));
        cleaned.push('…');
    }
    cleaned
}

#[cfg(test)]
#[path = "tests/events.rs"]
mod tests;
