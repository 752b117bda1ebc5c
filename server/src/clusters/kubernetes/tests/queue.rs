use engine::ids::NodeName;
use serde_json::{Value, json};

use super::*;
use crate::clusters::kubernetes::{
    fake::{job, node, pod},
    queues::InQueue,
};

const CREATED: (&str, &str, &str) = ("Created", "True", "created");

fn nodes(names: &[&str]) -> Nodes {
    names.iter().map(|name| node(name, "True", None)).collect()
}

fn waits_for(reason: &str, message: &str) -> PodKnown {
    let condition =
        json!({ "type": "PodScheduled", "status": "False", "reason": reason, "message": message });
    let seen = pod("master-0", "m-1", "", json!({ "phase": "Pending", "conditions": [condition] }));
    PodKnown { seen, gone: false, waited: std::time::Duration::ZERO, withdrawn: false, making: None }
}

#[test]
fn the_schedulers_words_are_kept_and_read() {
    let short = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    let mixed = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/2";
    let affinity =
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. preemption: 0/2";
    let tainted =
        "0/2 nodes are available: 1 node(s) had untolerated taint {a: b}, 1 node(s) were unschedulable.";
    let volume = "0/2 nodes are available: persistentvolumeclaim \"data\" not found.";
    for (case, message, avoid, wants, want) in [
        ("others have them", short, &[][..], 4.0, QueueReason::Busy),
        ("no node is large enough", short, &[], 64.0, QueueReason::Unschedulable),
        ("others have the one that is left", mixed, &["n1"], 4.0, QueueReason::Busy),
        ("all are kept off", affinity, &["n1", "n2"], 4.0, QueueReason::AvoidedNodes),
        (
            "the free one is kept off, the other does not match",
            affinity,
            &["n1"],
            4.0,
            QueueReason::AvoidedNodes,
        ),
        ("the job's own selector", affinity, &[], 4.0, QueueReason::Constraints),
        ("taints and cordons", tainted, &[], 4.0, QueueReason::Constraints),
        ("a volume", volume, &[], 4.0, QueueReason::Constraints),
    ] {
        let mut waiting = waits_for("Unschedulable", message);
        waiting.seen.requests.insert("nvidia.com/gpu".to_owned(), wants);
        let mut job = job(1, &[CREATED]);
        job.avoid = avoid.iter().map(|name| NodeName::new(*name).unwrap()).collect();
        let known = Known { job: Some(job.clone()), pods: vec![waiting], trouble: None, ..Known::default() };
        let queue = why(&job, &known, &nodes(&["n1", "n2"]));
        assert_eq!(queue.reason, want, "{case}");
        assert!(
            message.starts_with(&queue.text) && !queue.text.contains("preemption"),
            "{case}: {}",
            queue.text
        );
        let counts = queue.nodes.unwrap();
        assert_eq!(counts.total, 2, "{case}");
        assert_eq!(counts.busy + counts.avoided + counts.free, counts.total, "{case}");
    }
}

/// A Workload of the job with this status.
fn held(status: Value) -> InQueue {
    let object = json!({
        "metadata": { "name": "pytorchjob-demo", "labels": { "kueue.x-k8s.io/job-uid": "job-1" } },
        "spec": { "queueName": "team-a" },
        "status": status,
    });
    let (_, workload) = kueue::WorkloadSeen::of(&serde_json::from_value(object).unwrap()).unwrap();
    InQueue { workload: Some(workload), position: Some(3), ..InQueue::default() }
}

#[test]
fn what_holds_a_suspended_job_is_not_called_a_pause() {
    let suspended =
        JobSeen { queue: Some("team-a".to_owned()), ..job(1, &[("Suspended", "True", "is suspended")]) };
    let none = json!({ "type": "QuotaReserved", "status": "False", "reason": "Pending",
        "message": "couldn't assign flavors to pod set master: insufficient unused quota for cpu in flavor a, 3 more needed" });
    let known = Known { queued: held(json!({ "conditions": [none] })), ..Known::default() };
    let queue = why(&suspended, &known, &nodes(&["n1"]));
    assert_eq!((queue.reason, queue.position), (QueueReason::Quota, Some(3)), "{}", queue.text);
    let queue = why(&suspended, &Known::default(), &nodes(&["n1"]));
    assert_eq!(queue.reason, QueueReason::Suspended);
    assert!(queue.text.contains("until Kueue admits it in LocalQueue team-a"), "{}", queue.text);
    // Once it runs, Kueue has nothing to say.
    let known = Known { job: Some(job(1, &[CREATED])), queued: held(json!({})), ..Known::default() };
    assert_eq!(
        why(&job(1, &[CREATED]), &known, &nodes(&["n1"])).text,
        "the training operator makes its pods"
    );
}

#[test]
fn a_group_that_volcano_holds_is_why_there_are_no_pods() {
    let group = |phase: &str| gang::GroupSeen {
        scheduler: gang::Scheduler::Volcano,
        phase: phase.to_owned(),
        queue: "research".to_owned(),
        members: 2,
        unschedulable: None,
    };
    let known = |phase| Known {
        queued: InQueue { group: Some(group(phase)), ..InQueue::default() },
        trouble: Some("exceeded quota: few".to_owned()),
        ..Known::default()
    };
    let queue = why(&job(2, &[CREATED]), &known("Pending"), &nodes(&["n1"]));
    assert_eq!(queue.reason, QueueReason::Gang);
    assert!(queue.text.contains("has not let it into queue research"), "{}", queue.text);
    assert_eq!(why(&job(2, &[CREATED]), &known("Inqueue"), &nodes(&["n1"])).reason, QueueReason::Quota);
}

#[test]
fn what_comes_before_the_scheduler_is_told_too() {
    let quota =
        "Error creating: pods \"demo-master-0\" is forbidden: exceeded quota: compute, requested: cpu=2";
    let security = "Error creating: pods \"demo-master-0\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"pytorch\" must set securityContext.allowPrivilegeEscalation=false)";
    let told = format!(
        "the namespace's Pod Security level does not allow it; change the job or the level: {security}"
    );
    let gated = PodKnown { ..waits_for("SchedulingGated", "gated by kueue") };
    for (case, conditions, pods, trouble, want) in [
        (
            "suspended",
            &[CREATED, ("Suspended", "True", "is suspended")][..],
            vec![],
            None,
            (QueueReason::Suspended, "is suspended"),
        ),
        ("gated", &[CREATED], vec![gated], None, (QueueReason::Constraints, "gated by kueue")),
        ("a quota", &[CREATED], vec![], Some(quota), (QueueReason::Quota, quota)),
        ("a webhook", &[CREATED], vec![], Some("denied"), (QueueReason::Constraints, "denied")),
        ("Pod Security", &[CREATED], vec![], Some(security), (QueueReason::Inadmissible, &told)),
        (
            "no operator",
            &[],
            vec![],
            None,
            (
                QueueReason::Constraints,
                "the training operator has not taken the job up; if that lasts, see whether it runs",
            ),
        ),
        (
            "the operator is at it",
            &[CREATED],
            vec![],
            None,
            (QueueReason::Busy, "the training operator makes its pods"),
        ),
    ] {
        let job = job(1, conditions);
        let known =
            Known { job: Some(job.clone()), pods, trouble: trouble.map(str::to_owned), ..Known::default() };
        let queue = why(&job, &known, &nodes(&["n1"]));
        assert_eq!((queue.reason, queue.text.as_str()), want, "{case}");
    }
}
