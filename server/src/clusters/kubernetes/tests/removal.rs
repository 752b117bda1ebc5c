use std::time::Duration;

use serde_json::{Value, json};

use super::{
    super::{
        facts::PodKnown,
        fake::{self, node, ray_job_object, ray_pod, running},
    },
    *,
};

/// A RayJob with these finalizers, being removed or not.
fn rayjob(deleted: bool, finalizers: &[&str]) -> DynamicObject {
    let mut object = ray_job_object(2, json!({}));
    object["metadata"]["finalizers"] = json!(finalizers);
    if deleted {
        object["metadata"]["deletionTimestamp"] = json!("2026-11-29T19:26:47Z");
    }
    serde_json::from_value(object).unwrap()
}

/// A head on node n1, lost with it where `reason` says so.
fn known(reason: Option<&str>, gone: bool) -> Known {
    let mut status: Value = running();
    if let Some(reason) = reason {
        status["conditions"] =
            json!([{ "type": "DisruptionTarget", "status": "True", "reason": reason, "message": "words" }]);
    }
    let seen = ray_pod("head", "h-1", "n1", status);
    Known {
        pods: vec![PodKnown { seen, gone, waited: Duration::ZERO, withdrawn: false, making: None }],
        ..Known::default()
    }
}

fn nodes(ready: &str) -> Nodes {
    [node("n1", ready, None)].into()
}

const KUBERAY: &str = "ray.io/rayjob-finalizer";

#[test]
fn what_keeps_an_attempt_is_told_with_what_to_do() {
    let cases = [
        ("the first request", Some(rayjob(false, &[KUBERAY])), known(None, false), "True", false, None),
        (
            "KubeRay is away",
            Some(rayjob(true, &["foregroundDeletion", KUBERAY])),
            known(None, true),
            "True",
            false,
            Some("KubeRay has not released RayJob"),
        ),
        (
            "and its finalizer is being taken off",
            Some(rayjob(true, &["foregroundDeletion", KUBERAY])),
            known(None, true),
            "True",
            true,
            None,
        ),
        (
            "somebody else's finalizer",
            Some(rayjob(true, &["example.org/backup"])),
            known(None, true),
            "True",
            true,
            Some("has finalizers (example.org/backup); whoever put them there"),
        ),
        ("pods end", Some(rayjob(true, &["foregroundDeletion"])), known(None, false), "True", false, None),
        (
            "a node that is not heard",
            None,
            known(None, false),
            "Unknown",
            false,
            Some("node n1 is not heard, where pod"),
        ),
        ("a pod that stays", None, known(None, false), "True", true, Some("is still there, though")),
        ("nothing", None, known(None, true), "True", true, None),
    ];
    for (case, found, known, ready, force, want) in cases {
        let told = kept(JobKind::RayJob, found.as_ref(), &known, &nodes(ready), force);
        match want {
            None => assert_eq!(told, None, "{case}"),
            Some(words) => {
                assert!(told.as_ref().is_some_and(|text| text.contains(words)), "{case}: {told:?}")
            }
        }
    }
    let told =
        kept(JobKind::RayJob, Some(&rayjob(true, &[KUBERAY])), &known(None, true), &nodes("True"), false);
    assert!(told.unwrap().contains(fake::TASK));
}

#[test]
fn only_pods_that_were_given_up_with_their_node_are_not_waited_for() {
    let lost = || known(Some("DeletionByTaintManager"), false);
    let given_up = |known: &Known, ready| super::given_up(known, &nodes(ready)).len();
    assert_eq!(given_up(&lost(), "Unknown"), 1);
    assert_eq!(given_up(&lost(), "True"), 0, "its kubelet is back and ends it");
    assert_eq!(given_up(&known(None, false), "Unknown"), 0, "the node may come back in time");
    assert_eq!(given_up(&known(Some("EvictionByEvictionAPI"), false), "Unknown"), 0);
    assert_eq!(given_up(&known(Some("DeletionByTaintManager"), true), "Unknown"), 0);
    assert_eq!(super::given_up(&lost(), &Nodes::new()).len(), 0, "no node can be seen");
}
