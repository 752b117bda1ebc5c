use serde_json::{Value, json};

use super::*;

fn group(scheduler: Scheduler, owner: Value, status: Value) -> (String, GroupSeen) {
    let object = json!({
        "metadata": { "name": "demo", "namespace": "train", "uid": "g-1", "ownerReferences": [owner] },
        "spec": { "minMember": 2, "queue": "research" },
        "status": status,
    });
    GroupSeen::of(scheduler, &serde_json::from_value(object).unwrap()).unwrap()
}

fn owner(kind: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": kind, "name": "demo-x", "uid": "job-1", "controller": true })
}

fn unschedulable(reason: &str) -> Value {
    let message = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable";
    json!([{ "type": "Unschedulable", "status": "True", "reason": reason, "message": message }])
}

#[test]
fn volcanos_words_are_read() {
    for (case, status, state, want) in [
        ("new", json!({}), None, Some((QueueReason::Gang, "has not let it into queue research"))),
        (
            "pending",
            json!({ "phase": "Pending" }),
            Some("Open"),
            Some((QueueReason::Gang, "has not let it into queue")),
        ),
        (
            "pending, and the queue takes nothing in",
            json!({ "phase": "Pending" }),
            Some("Closed"),
            Some((QueueReason::Inadmissible, "queue research is Closed")),
        ),
        (
            "no room for all",
            json!({ "phase": "Inqueue", "conditions": unschedulable("NotEnoughResources") }),
            Some("Closing"),
            Some((QueueReason::Gang, "NotEnoughResources: 2/2 tasks in gang unschedulable")),
        ),
        ("its pods are made", json!({ "phase": "Inqueue" }), None, None),
        (
            "started, and the words are old",
            json!({ "phase": "Running", "conditions": unschedulable("NotEnoughTasks") }),
            None,
            None,
        ),
        ("a phase of a newer Volcano", json!({ "phase": "Resting" }), None, None),
    ] {
        let (_, seen) = group(Scheduler::Volcano, owner("PyTorchJob"), status);
        let found = why(&seen, state);
        assert_eq!(found.as_ref().map(|queue| queue.reason), want.map(|(reason, _)| reason), "{case}");
        if let (Some(queue), Some((_, words))) = (found, want) {
            assert!(queue.text.contains(words), "{case}: {}", queue.text);
        }
        assert_eq!(turn(&seen), None, "{case}");
    }
}

#[test]
fn a_group_of_the_scheduler_plugins_says_only_how_far_it_is() {
    for (phase, is_told) in
        [("", true), ("Pending", true), ("Scheduling", true), ("Scheduled", false), ("Running", false)]
    {
        let (_, seen) = group(Scheduler::Plugins, owner("PyTorchJob"), json!({ "phase": phase }));
        assert_eq!(why(&seen, None), None);
        assert_eq!(turn(&seen).is_some(), is_told, "{phase}");
    }
}

#[test]
fn a_group_is_the_jobs_or_its_ray_clusters() {
    let of = |kind| group(Scheduler::Volcano, owner(kind), json!({})).0;
    assert_eq!(
        (of("PyTorchJob"), of("RayJob"), of("RayCluster")),
        ("job-1".into(), "job-1".into(), "demo-x".into())
    );
    let alone = json!({ "metadata": { "name": "g" }, "spec": {} });
    assert_eq!(GroupSeen::of(Scheduler::Volcano, &serde_json::from_value(alone).unwrap()), None);
}
