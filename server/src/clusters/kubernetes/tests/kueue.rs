use serde_json::{Value, json};

use super::*;

/// A Workload as Kueue keeps it, with this status.
fn workload(status: Value) -> WorkloadSeen {
    of(
        json!({ "queueName": "team-a", "active": true, "podSets": [{ "name": "master", "count": 1 }] }),
        status,
    )
}

fn of(spec: Value, status: Value) -> WorkloadSeen {
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "pytorchjob-demo-1a2b3",
            "namespace": "train",
            "uid": "w-1",
            "labels": { "kueue.x-k8s.io/job-uid": "job-1" },
        },
        "spec": spec,
        "status": status,
    });
    let (owner, seen) = WorkloadSeen::of(&serde_json::from_value(object).unwrap()).unwrap();
    assert_eq!((owner.as_str(), seen.name.as_str()), ("job-1", "pytorchjob-demo-1a2b3"));
    seen
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let at = "2026-11-30T04:00:00Z";
    json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at })
}

fn pending(message: &str) -> Value {
    condition("QuotaReserved", "False", "Pending", message)
}

const UNUSED: &str = "couldn't assign flavors to pod set master: insufficient unused quota for nvidia.com/gpu in flavor a100, 4 more needed";
const NEVER: &str = "couldn't assign flavors to pod set master: insufficient quota for nvidia.com/gpu in flavor a100, request > maximum capacity (16 > 8)";
const PREEMPTED: &str =
    "Preempted to accommodate a workload (UID: 77, JobUID: 78) due to prioritization in the ClusterQueue";

#[test]
fn what_binds_is_told_in_kueues_words() {
    use QueueReason::*;
    let both = format!("{NEVER}, insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed");
    let uncovered = "couldn't assign flavors to pod set master: resource memory unavailable in ClusterQueue";
    let evicted = |reason: &str, message: &str| condition("Evicted", "True", reason, message);
    for (case, status, reason, words) in [
        ("not looked at yet", json!({}), Suspended, vec!["has not looked at it yet in LocalQueue team-a"]),
        ("in use", json!({ "conditions": [pending(UNUSED)] }), Quota, vec![UNUSED]),
        ("too small", json!({ "conditions": [pending(NEVER)] }), QuotaTooSmall, vec![NEVER]),
        ("too small in one flavor", json!({ "conditions": [pending(&both)] }), Quota, vec![&both[..]]),
        ("not covered", json!({ "conditions": [pending(uncovered)] }), QuotaTooSmall, vec![uncovered]),
        (
            "no such queue",
            json!({ "conditions": [condition("QuotaReserved", "False", "Inadmissible", "LocalQueue team-a doesn't exist")] }),
            Inadmissible,
            vec!["LocalQueue team-a doesn't exist"],
        ),
        (
            "checks",
            json!({
                "conditions": [condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue a")],
                "admissionChecks": [
                    { "name": "provision", "state": "Pending", "message": "no capacity yet" },
                    { "name": "budget", "state": "Ready", "message": "" },
                    { "name": "review", "state": "Retry", "message": "" },
                ],
            }),
            AdmissionChecks,
            vec!["provision is Pending: no capacity yet, review is Retry"],
        ),
        (
            "admitted",
            json!({ "conditions": [condition("QuotaReserved", "True", "", ""), condition("Admitted", "True", "Admitted", "")] }),
            Suspended,
            vec!["has admitted it"],
        ),
        (
            "just preempted",
            json!({ "conditions": [
                pending(PREEMPTED),
                evicted("Preempted", PREEMPTED),
                condition("Preempted", "True", "InClusterQueue", PREEMPTED),
                condition("Requeued", "True", "Preempted", PREEMPTED),
            ] }),
            Requeued,
            vec![
                "took its resources back (Preempted, InClusterQueue: Preempted to accommodate",
                "is in LocalQueue team-a again",
            ],
        ),
        (
            "preempted, and there is no room yet",
            json!({ "conditions": [
                pending(UNUSED),
                evicted("Preempted", PREEMPTED),
                condition("Preempted", "True", "InCohortReclamation", PREEMPTED),
            ] }),
            Quota,
            vec!["InCohortReclamation", UNUSED],
        ),
        (
            "its pods were late",
            json!({
                "conditions": [
                    pending("Exceeded the PodsReady timeout train/pytorchjob-demo"),
                    evicted("PodsReadyTimeout", "Exceeded the PodsReady timeout train/pytorchjob-demo"),
                    condition("Requeued", "False", "PodsReadyTimeout", "Exceeded"),
                ],
                "requeueState": { "count": 2, "requeueAt": "2026-11-30T04:05:00Z" },
            }),
            Requeued,
            vec!["PodsReadyTimeout", "queued again at 2026-11-30T04:05:00Z, requeued 2 times"],
        ),
        (
            "gated",
            json!({ "conditions": [condition("BlockedOnPreemptionGates", "True", "Gated", "waits for its turn to preempt")] }),
            AdmissionChecks,
            vec!["waits for its turn to preempt"],
        ),
        (
            "a reason of a newer Kueue",
            json!({ "conditions": [condition("QuotaReserved", "False", "Sulking", "no mood")] }),
            Quota,
            vec!["no mood"],
        ),
    ] {
        let queue = why(&workload(status), None);
        assert_eq!(queue.reason, reason, "{case}: {}", queue.text);
        for words in words {
            assert!(queue.text.contains(words), "{case}: {}", queue.text);
        }
    }
}

#[test]
fn one_that_was_given_up_says_what_a_person_must_do() {
    let status = json!({ "conditions": [
        condition("Evicted", "True", "DeactivatedDueToRequeuingLimitExceeded", "The workload is deactivated due to requeuing limit exceeded"),
        pending("The workload is deactivated"),
    ] });
    let queue = why(&of(json!({ "queueName": "team-a", "active": false }), status), Some(2));
    assert_eq!((queue.reason, queue.position), (QueueReason::Deactivated, None));
    assert!(queue.reason.is_in_vain());
    for words in ["requeuing limit exceeded", "spec.active of Workload pytorchjob-demo-1a2b3"] {
        assert!(queue.text.contains(words), "{}", queue.text);
    }
}

#[test]
fn one_of_a_job_that_has_ended_says_so() {
    let finished =
        |value| workload(json!({ "conditions": [condition("Finished", value, "Succeeded", "")] })).finished;
    assert!(finished("True") && !finished("False"));
}

#[test]
fn a_place_is_told_only_of_one_that_stands_in_its_queue() {
    assert_eq!(why(&workload(json!({ "conditions": [pending(UNUSED)] })), Some(3)).position, Some(3));
    let reserved = json!({ "conditions": [condition("QuotaReserved", "True", "QuotaReserved", "")] });
    assert_eq!(why(&workload(reserved), Some(3)).position, None, "an answer from before");
}

#[test]
fn a_workload_of_no_job_and_one_of_another_shape_are_passed_over() {
    let object = |value: Value| serde_json::from_value::<DynamicObject>(value).unwrap();
    assert_eq!(WorkloadSeen::of(&object(json!({ "metadata": { "name": "other" }, "spec": {} }))), None);
    let strange = json!({
        "metadata": { "name": "w", "labels": { "kueue.x-k8s.io/job-uid": "job-1" } },
        "spec": { "queueName": 7 },
        "status": "new",
    });
    let (_, seen) = WorkloadSeen::of(&object(strange)).unwrap();
    assert_eq!(why(&seen, None).reason, QueueReason::Suspended);
}
