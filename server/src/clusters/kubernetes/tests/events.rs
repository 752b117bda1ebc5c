use serde_json::json;

use super::*;
use crate::clusters::kubernetes::fake::{settings, task};

const INSTANCE: &str = "0123456789abcdef";

fn place() -> Place {
    Place { namespace: "train".to_owned(), uid: Some("job-1".to_owned()) }
}

fn note(reason: EventReason, by: &str, text: &str) -> Note {
    let event = EventRecord {
        at: Time(1_764_446_400_123_456),
        kind: reason.kind(),
        reason: Some(reason),
        task_id: Some(task()),
        by: by.to_owned(),
        text: text.to_owned(),
    };
    Note { task_id: task(), kind: JobKind::PyTorchJob, namespace: None, place: (12, 3), event }
}

#[test]
fn an_event_is_about_the_object_and_always_the_same() {
    let note =
        note(EventReason::RestartInPlace, "holdfast", "Restart in place. In-place restarts: 1 of 3 used.");
    let event = serde_json::to_value(of(&note, &place(), INSTANCE)).unwrap();
    let want = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": "demo-jabcdefghij2-1.0000000012-0003",
            "namespace": "train",
            "labels": { "holdfast.dev/instance": INSTANCE, "holdfast.dev/task": "demo-jabcdefghij2-1" },
        },
        "action": "RestartInPlace",
        "reason": "RestartInPlace",
        "type": "Normal",
        "note": "Restart in place. In-place restarts: 1 of 3 used.",
        "eventTime": "2025-11-29T20:00:00.123456Z",
        "reportingController": "holdfast",
        "reportingInstance": INSTANCE,
        "regarding": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": "demo-jabcdefghij2-1",
            "namespace": "train",
            "uid": "job-1",
        },
    });
    assert_eq!(event, want);
    assert_eq!(serde_json::to_value(of(&note, &place(), INSTANCE)).unwrap(), event);
}

#[test]
fn a_person_is_named_and_a_failure_is_a_warning() {
    let of = |reason, by| of(&note(reason, by, "Asked to stop."), &place(), INSTANCE);
    let by_ana = of(EventReason::StopRequested, "ana");
    assert_eq!(
        (by_ana.note.as_deref(), by_ana.type_.as_deref()),
        (Some("ana: Asked to stop."), Some("Normal"))
    );
    let by_the_cluster = of(EventReason::Preempted, "cluster");
    assert_eq!(by_the_cluster.note.as_deref(), Some("Asked to stop."));
    assert_eq!(by_the_cluster.type_.as_deref(), Some("Warning"));
}

#[test]
fn a_removal_has_a_name_of_its_own() {
    let (task, at) = (task(), Time(1_764_446_400_000_000));
    let of = |force| of_removal(&task, JobKind::RayJob, force, &place(), &settings().instance, at);
    assert_eq!(of(false).metadata.name.as_deref(), Some("demo-jabcdefghij2-1.removed"));
    assert_eq!(of(true).metadata.name.as_deref(), Some("demo-jabcdefghij2-1.removed-by-force"));
    assert_eq!(of(true).regarding.unwrap().kind.as_deref(), Some("RayJob"));
}

#[test]
fn a_text_is_one_line_of_a_size() {
    assert_eq!(clean("a\r\n\tb\u{1b}[0m"), "a   b [0m");
    let long = clean(&"ü".repeat(2_000));
    assert!(long.len() <= NOTE_BYTES && long.ends_with("ü…"), "{} bytes", long.len());
    assert_eq!(clean(&"a".repeat(NOTE_BYTES)).len(), NOTE_BYTES);
}
