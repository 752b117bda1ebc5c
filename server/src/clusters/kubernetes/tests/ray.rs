use std::time::Duration;

use engine::chain::Observation;
use serde_json::{Value, json};

use super::*;
use crate::clusters::kubernetes::{
    facts::Known,
    fake::{self, node, ray_job, ray_pod, running, terminated, with_main},
    seen::PodSeen,
};

fn known(seen: PodSeen) -> PodKnown {
    PodKnown { seen, gone: false, waited: Duration::ZERO, withdrawn: false, making: None }
}

fn gone(seen: PodSeen) -> PodKnown {
    PodKnown { gone: true, ..known(seen) }
}

fn head(status: Value) -> PodSeen {
    ray_pod("head", "h-1", "n1", status)
}

fn worker(uid: &str, node: &str, status: Value) -> PodSeen {
    ray_pod("worker", uid, node, status)
}

fn status(deployment: &str, job: &str, reason: &str, message: &str) -> Value {
    json!({
        "jobDeploymentStatus": deployment,
        "jobStatus": job,
        "reason": reason,
        "message": message,
        "rayClusterName": "demo-x",
    })
}

fn nodes() -> Nodes {
    [node("n1", "True", None), node("n2", "True", None)].into()
}

fn observe(replicas: u32, status: Value, pods: Vec<PodKnown>) -> Observation {
    facts::observe(
        &Known { job: Some(ray_job(replicas, status)), pods, trouble: None, ..Known::default() },
        &nodes(),
    )
}

/// Replica, node and state, as words.
fn placed(observation: Observation) -> Vec<String> {
    let Observation::Placed { replicas } = observation else { panic!("{observation:?}") };
    let word = |status: &ReplicaStatus| match status {
        ReplicaStatus::Pending(_) => "pending".to_owned(),
        ReplicaStatus::Blocked(_) => "blocked".to_owned(),
        ReplicaStatus::Running => "running".to_owned(),
        ReplicaStatus::Ended { exit, reason } => format!("{exit:?} {reason:?}"),
    };
    let node = |one: &ReplicaObservation| one.node.as_ref().map_or("nowhere".to_owned(), ToString::to_string);
    replicas.iter().map(|(name, one)| format!("{name} {} {}", node(one), word(&one.status))).collect()
}

fn waiting(observation: Observation) -> String {
    let Observation::Waiting(queue) = observation else { panic!("{observation:?}") };
    queue.text
}

#[test]
fn both_statuses_together_say_how_the_driver_ended() {
    let failed =
        "Job entrypoint command failed with exit code 3, last available logs (truncated to 20,000 chars):\nx";
    let killed = "Job entrypoint command failed with exit code 137, last available logs";
    let deadline = "The RayJob has passed the activeDeadlineSeconds.";
    for (case, given, want) in [
        ("it is running", status("Running", "RUNNING", "", "Job is currently running."), "running"),
        ("not submitted", status("Running", "", "", ""), "running"),
        ("no status yet", json!({}), "running"),
        (
            "it succeeded",
            status("Complete", "SUCCEEDED", "", "Job finished successfully."),
            "Some(Code(0)) Exited",
        ),
        ("the driver's word without KubeRay's", status("Running", "SUCCEEDED", "", ""), "running"),
        ("KubeRay's word without the driver's", status("Complete", "RUNNING", "", ""), "running"),
        (
            "it was stopped",
            status("Complete", "STOPPED", "", ""),
            "None Lost(\"the Ray job was stopped by someone else\")",
        ),
        ("exit 3", status("Failed", "FAILED", "AppFailed", failed), "Some(Code(3)) Exited"),
        ("killed", status("Failed", "FAILED", "AppFailed", killed), "Some(Signal(Signal(9))) Exited"),
        ("no code", status("Failed", "FAILED", "AppFailed", "gone"), "None Lost(\"AppFailed: gone\")"),
        (
            "its deadline",
            status("Failed", "", "DeadlineExceeded", deadline),
            "None Lost(\"DeadlineExceeded: The RayJob has passed the activeDeadlineSeconds.\")",
        ),
        (
            "not submitted for good",
            status("Failed", "", "SubmissionFailed", "no"),
            "None StartError(\"SubmissionFailed: no\")",
        ),
        (
            "not valid",
            status("ValidationFailed", "", "ValidationFailed", "no"),
            "None StartError(\"ValidationFailed: no\")",
        ),
        ("a word of a newer KubeRay", status("Pondering", "", "", ""), "running"),
        ("another of a newer Ray", status("Complete", "VANISHED", "", ""), "running"),
        ("KubeRay tries again", status("Retrying", "FAILED", "", ""), "running"),
    ] {
        assert_eq!(
            placed(observe(1, given, vec![known(head(running()))])),
            [format!("head-0 n1 {want}")],
            "{case}"
        );
    }
}

/// One letter for what follows for the head: `.` nothing, `0` success, `e` its exit code, `l` lost, `s` a start error, `q` that the
/// attempt is queued again.
fn letter(deployment: &str, job: &str) -> char {
    let message = if job == "FAILED" { "Job entrypoint command failed with exit code 3, x" } else { "words" };
    let given = status(deployment, job, "Reason", message);
    // Suspended means that its pods are taken away.
    let withdrawn = deployment.starts_with("Suspend");
    let head = PodKnown { withdrawn, ..known(head(running())) };
    let replicas = match observe(1, given, vec![head]) {
        Observation::Placed { replicas } => replicas,
        Observation::Suspended(_) => return 'q',
        other => panic!("{other:?}"),
    };
    match &replicas.values().next().unwrap().status {
        ReplicaStatus::Running => '.',
        ReplicaStatus::Ended { exit: Some(exit), reason: EndReason::Exited } => {
            if exit.is_success() {
                '0'
            } else {
                'e'
            }
        }
        ReplicaStatus::Ended { reason: EndReason::Lost(_), .. } => 'l',
        ReplicaStatus::Ended { reason: EndReason::StartError(_), .. } => 's',
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_pair_of_statuses_is_left_open() {
    let jobs = ["", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED", "VANISHED"];
    for (deployment, want) in [
        ("", "......."),
        ("Initializing", "......."),
        // KubeRay's alone where somebody submits by hand, which no attempt asks for.
        ("Waiting", "......."),
        // Both change together, so the driver's end alone is a moment's.
        ("Running", "......."),
        ("Complete", "...0el."),
        // With a reason of KubeRay's, whatever the driver did: a deadline, a job that was not found.
        ("Failed", "llllell"),
        ("ValidationFailed", "sssssss"),
        ("Suspending", "qqqqqqq"),
        ("Suspended", "qqqqqqq"),
        // It makes another cluster; the head that goes with this one says it.
        ("Retrying", "......."),
        ("Pondering", "......."),
    ] {
        let found: String = jobs.iter().map(|job| letter(deployment, job)).collect();
        assert_eq!(found, want, "{deployment} with each of {jobs:?}");
    }
}

#[test]
fn kuberays_reasons_say_whether_the_driver_ever_began() {
    for (reason, want) in [
        ("SubmissionFailed", "StartError(\"SubmissionFailed: words\")"),
        ("PreRunningDeadlineExceeded", "StartError(\"PreRunningDeadlineExceeded: words\")"),
        ("DeadlineExceeded", "Lost(\"DeadlineExceeded: words\")"),
        ("JobStatusCheckTimeoutExceeded", "Lost(\"JobStatusCheckTimeoutExceeded: words\")"),
        ("", "Lost(\"words\")"),
    ] {
        let found = placed(observe(1, status("Failed", "", reason, "words"), vec![known(head(running()))]));
        assert_eq!(found, [format!("head-0 n1 None {want}")], "{reason}");
    }
    let late = status("Failed", "FAILED", "JobDeploymentStatusTransitionGracePeriodExceeded", "words");
    let found = placed(observe(1, late, vec![known(head(running()))]));
    assert!(found[0].contains("GracePeriodExceeded: words"), "{found:?}");
    let nothing = placed(observe(1, status("Failed", "", "", ""), vec![known(head(running()))]));
    assert!(nothing[0].contains("KubeRay says that the job failed and not why"), "{nothing:?}");
}

#[test]
fn workers_come_and_go_once_the_driver_runs() {
    let runs = || status("Running", "RUNNING", "", "");
    let pending = || known(worker("w-9", "", json!({ "phase": "Pending" })));
    let scaled_down = vec![known(head(running())), gone(worker("w-1", "n2", running()))];
    assert_eq!(placed(observe(3, runs(), scaled_down)), ["head-0 n1 running"]);
    let scaled_up = vec![known(head(running())), known(worker("w-1", "n2", running())), pending()];
    assert_eq!(placed(observe(2, runs(), scaled_up)), ["head-0 n1 running", "worker-0 n2 running"]);
    // Before that all of the first ones are waited for.
    let begins = observe(2, status("Initializing", "", "", ""), vec![known(head(running())), pending()]);
    assert!(matches!(begins, Observation::Waiting(_)), "{begins:?}");
}

#[test]
fn groups_have_as_many_pods_as_kuberay_makes_at_first() {
    for (group, want) in [
        (json!({ "replicas": 2 }), 2),
        (json!({ "replicas": 0, "minReplicas": 3, "maxReplicas": 8 }), 3),
        (json!({ "replicas": 9, "minReplicas": 0, "maxReplicas": 4, "numOfHosts": 2 }), 8),
        (json!({ "replicas": 2, "suspend": true }), 0),
        (json!({}), 0),
    ] {
        let mut object = fake::ray_job_object(2, json!({}));
        object["spec"]["rayClusterSpec"]["workerGroupSpecs"] = json!([group, { "replicas": 1 }]);
        let seen = JobSeen::of(JobKind::RayJob, &serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(seen.replicas, 1 + want + 1, "{group}");
    }
}

#[test]
fn the_container_that_counts_is_the_one_that_the_pod_names() {
    let status = |name: &str, code: i32| json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": { "terminated": { "exitCode": code, "reason": "Error" } } });
    let mut pod = fake::pod_object("any-0", "h-1", "n1", json!({ "phase": "Running" }));
    pod["metadata"]["labels"]["ray.io/node-type"] = json!("head");
    pod["metadata"]["annotations"] = json!({ "holdfast.dev/container": "ray-head" });
    pod["status"]["containerStatuses"] = json!([status("proxy", 5), status("ray-head", 7)]);
    let seen = PodSeen::of(&serde_json::from_value(pod).unwrap()).unwrap();
    assert_eq!(seen.container, "ray-head");
    assert!(matches!(seen.main, crate::clusters::kubernetes::seen::ContainerSeen::Ended { code: 7, .. }));
}

#[test]
fn a_lost_head_is_over_whatever_kuberay_says() {
    let disrupted = |reason: &str| {
        let mut status = running();
        status["conditions"] =
            json!([{ "type": "DisruptionTarget", "status": "True", "reason": reason, "message": "words" }]);
        status
    };
    let runs = || status("Running", "RUNNING", "", "Job is currently running.");
    let deleting = |status: Value| {
        let mut pod = head(status);
        pod.deleting = true;
        known(pod)
    };
    let by_someone = format!("None Lost(\"pod {}-head-h-1 was deleted by someone else\")", fake::TASK);
    for (case, pod, want) in [
        ("deleted", gone(head(running())), by_someone.as_str()),
        ("ended by the deletion", deleting(terminated("Succeeded", 0, "Completed")), &by_someone),
        (
            "its node is lost",
            gone(head(disrupted("DeletionByTaintManager"))),
            "None NodeLost(\"DeletionByTaintManager: words\")",
        ),
        (
            "drained",
            gone(head(disrupted("EvictionByEvictionAPI"))),
            "None Preempted(\"EvictionByEvictionAPI: words\")",
        ),
        (
            "its memory",
            known(head(terminated("Failed", 137, "OOMKilled"))),
            "Some(Signal(Signal(9))) OomKilled",
        ),
        (
            "Ray itself ended, and well",
            known(head(terminated("Succeeded", 0, "Completed"))),
            "None Lost(\"the head of the Ray cluster ended: exit 0\")",
        ),
    ] {
        // KubeRay makes another head.
        let again = known(ray_pod("head", "h-2", "n2", running()));
        let found = placed(observe(1, runs(), vec![pod, again]));
        assert_eq!(found, [format!("head-0 n1 {want}")], "{case}");
    }
}

#[test]
fn what_befell_the_head_explains_the_drivers_failure_and_never_undoes_its_success() {
    let oom = || vec![known(head(terminated("Failed", 137, "OOMKilled")))];
    let failed = status("Failed", "FAILED", "AppFailed", "Job entrypoint command failed with exit code 1, x");
    assert!(placed(observe(1, failed.clone(), oom()))[0].contains("OomKilled"));
    let succeeded = status("Complete", "SUCCEEDED", "", "");
    assert!(placed(observe(1, succeeded, oom()))[0].contains("Code(0)"));
    // After some time KubeRay removes the cluster of a driver that has ended.
    let removed = placed(observe(1, failed, vec![gone(head(running()))]));
    assert_eq!(removed, ["head-0 n1 Some(Code(1)) Exited"]);
}

#[test]
fn workers_are_numbered_and_those_that_end_are_replaced_by_ray() {
    let runs = || status("Running", "RUNNING", "", "");
    let pods = vec![
        known(head(running())),
        gone(worker("w-1", "n1", running())),
        known(worker("w-2", "n2", terminated("Failed", 137, "OOMKilled"))),
        known(worker("w-3", "n2", running())),
        known(worker("w-4", "n1", running())),
    ];
    assert_eq!(
        placed(observe(3, runs(), pods)),
        ["head-0 n1 running", "worker-0 n2 running", "worker-1 n1 running"]
    );
}

#[test]
fn a_worker_that_cannot_start_ends_an_attempt_whose_driver_waits_for_it() {
    let no_image =
        || with_main("Pending", json!({ "waiting": { "reason": "ErrImageNeverPull", "message": "words" } }));
    let pods = || vec![known(head(running())), known(worker("w-1", "n2", no_image()))];
    let found = placed(observe(2, status("Initializing", "", "", ""), pods()));
    assert_eq!(found[1], "worker-0 n2 None StartError(\"ErrImageNeverPull: words\")");
    // Later it is one that Ray would have liked to have back.
    assert_eq!(placed(observe(2, status("Running", "RUNNING", "", ""), pods())), ["head-0 n1 running"]);
}

#[test]
fn a_job_waits_until_all_of_its_cluster_has_nodes() {
    let begins = |deployment: &str| status(deployment, "", "", "");
    assert_eq!(
        waiting(observe(2, json!({}), Vec::new())),
        "KubeRay has not taken the job up; if that lasts, see whether it runs"
    );
    assert_eq!(waiting(observe(2, begins("Initializing"), Vec::new())), "KubeRay makes its pods");
    let pods = vec![known(head(running())), known(worker("w-1", "", json!({ "phase": "Pending" })))];
    assert_eq!(
        waiting(observe(2, begins("Initializing"), pods)),
        "the scheduler has not said anything about its pods yet; if that lasts, see whether it runs"
    );
}

#[test]
fn a_suspended_job_waits_and_how_its_head_ends_says_nothing_s53() {
    for word in ["Suspending", "Suspended"] {
        let text = "the RayJob is suspended on the cluster";
        let withdrawn = PodKnown { withdrawn: true, ..gone(head(running())) };
        for pods in [Vec::new(), vec![withdrawn]] {
            let found = observe(2, status(word, "", "", ""), pods);
            assert!(matches!(&found, Observation::Suspended(queue) if queue.text == text), "{found:?}");
        }
    }
}

#[test]
fn an_exit_code_is_found_in_rays_words_only() {
    for (message, want) in [
        ("Job entrypoint command failed with exit code 3, last", Some(3)),
        ("Job entrypoint command failed with exit code -9", Some(-9)),
        ("Job entrypoint command failed with exit code 0", None),
        ("Job entrypoint command failed with exit code many", None),
        ("exit code 3", None),
        ("", None),
    ] {
        assert_eq!(exit_of(message), want, "{message}");
    }
}

/// An object as KubeRay or the API server gave it, as one of ours.
fn recorded(text: &str) -> Value {
    let mut object: Value = serde_json::from_str(text).unwrap();
    object["metadata"]["labels"][crate::clusters::kubernetes::names::TASK] = json!(fake::TASK);
    object
}

macro_rules! recorded {
    ($name:literal) => {
        recorded(include_str!(concat!("../../../../tests/fixtures/kubernetes/", $name, ".json")))
    };
}

#[test]
fn what_kuberay_said_is_read() {
    let end = |code: i64| {
        Some(ReplicaStatus::Ended { exit: Some(Exit::from_code(code)), reason: EndReason::Exited })
    };
    let lost =
        |text: &str| Some(ReplicaStatus::Ended { exit: None, reason: EndReason::Lost(text.to_owned()) });
    let message = "the RayJob is suspended on the cluster";
    let too_long =
        "ValidationFailed: The RayJob metadata is invalid: RayJob name should be no more than 47 characters";
    let invalid =
        Some(ReplicaStatus::Ended { exit: None, reason: EndReason::StartError(too_long.to_owned()) });
    for (object, condition, text, submitted, driver) in [
        (recorded!("rayjob-initializing"), "Initializing", "", false, None),
        (recorded!("rayjob-running"), "Running", "Job is currently running.", true, None),
        (recorded!("rayjob-succeeded"), "Complete", "Job finished successfully.", true, end(0)),
        (
            recorded!("rayjob-stopped"),
            "Complete",
            "Job was intentionally stopped.",
            true,
            lost("the Ray job was stopped by someone else"),
        ),
        (recorded!("rayjob-head-deleted"), "Running", "Job is currently running.", true, None),
        (recorded!("rayjob-suspended"), "Suspended", message, false, None),
        (
            recorded!("rayjob-invalid"),
            "ValidationFailed",
            &too_long["ValidationFailed: ".len()..],
            false,
            invalid,
        ),
    ] {
        let seen = JobSeen::of(JobKind::RayJob, &serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(seen.replicas, 2);
        assert_eq!(seen.conditions, [(condition.to_owned(), text.to_owned())].into());
        assert_eq!((seen.submitted, seen.driver), (submitted, driver), "{condition}");
    }
    let failed =
        JobSeen::of(JobKind::RayJob, &serde_json::from_value(recorded!("rayjob-exit-3")).unwrap()).unwrap();
    assert_eq!(failed.driver, end(3));
    assert!(failed.events_of.starts_with("broken-"), "its cluster: {}", failed.events_of);
}

#[test]
fn pods_of_a_ray_cluster_are_told_apart() {
    let pod = |object: Value| PodSeen::of(&serde_json::from_value(object).unwrap()).unwrap();
    let head = pod(recorded!("pod-ray-head"));
    assert_eq!((head.kind, head.replica.unwrap().as_str()), (JobKind::RayJob, "head-0"));
    assert_eq!(head.main, crate::clusters::kubernetes::seen::ContainerSeen::Running);
    let worker = pod(recorded!("pod-ray-worker"));
    assert_eq!((worker.kind, worker.replica), (JobKind::RayJob, None));
}
