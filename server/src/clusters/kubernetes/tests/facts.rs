use serde_json::{Value, json};

use super::*;
use crate::clusters::kubernetes::{
    fake::{job, job_object, node, pod, running, terminated, with_main},
    seen::PodSeen,
};

const NEVER: Duration = Duration::ZERO;

fn known(seen: PodSeen) -> PodKnown {
    PodKnown { seen, gone: false, waited: NEVER, withdrawn: false, making: None }
}

fn there(status: Value) -> PodKnown {
    known(pod("worker-0", "w-1", "n1", status))
}

fn gone(status: Value) -> PodKnown {
    PodKnown { gone: true, ..there(status) }
}

fn deleting(status: Value) -> PodKnown {
    let mut pod = there(status);
    pod.seen.deleting = true;
    pod
}

fn with(mut status: Value, name: &str, value: Value) -> Value {
    status[name] = value;
    status
}

fn disrupted(status: Value, reason: &str) -> Value {
    let condition =
        json!({ "type": "DisruptionTarget", "status": "True", "reason": reason, "message": "words" });
    with(status, "conditions", json!([condition]))
}

fn waiting(reason: &str, seconds: u64) -> PodKnown {
    waiting_with(reason, "words", seconds)
}

fn no_image(reason: &str, seconds: u64) -> PodKnown {
    waiting_with(reason, "demo:1: not found", seconds)
}

fn waiting_with(reason: &str, message: &str, seconds: u64) -> PodKnown {
    let state = json!({ "waiting": { "reason": reason, "message": message } });
    PodKnown { waited: Duration::from_secs(seconds), ..there(with_main("Pending", state)) }
}

fn init(name: &str, state: Value) -> Value {
    json!([{ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state }])
}

fn nodes(ready: &str, taint: Option<&str>) -> Nodes {
    [node("n1", ready, taint), node("n2", "True", None)].into()
}

fn exited(code: i64) -> ReplicaStatus {
    ReplicaStatus::Ended { exit: Some(Exit::from_code(code)), reason: EndReason::Exited }
}

#[test]
fn the_end_of_a_pod_is_told_by_its_own_state_and_by_who_took_it_away() {
    use EndReason::{Evicted, Lost, NodeLost, OomKilled, Preempted, StartError};
    let text = |text: &str| text.to_owned();
    let failed =
        |reason: &str, message: &str| json!({ "phase": "Failed", "reason": reason, "message": message });
    let oom = ReplicaStatus::Ended { exit: Some(Exit::from_code(137)), reason: OomKilled };
    let failed_init = json!({ "phase": "Failed", "initContainerStatuses": init("init-pytorch", json!({ "terminated": { "exitCode": 1, "reason": "Error" } })) });
    for (case, pod, want) in [
        ("it finished", there(terminated("Succeeded", 0, "Completed")), exited(0)),
        ("exit 7", there(terminated("Failed", 7, "Error")), exited(7)),
        ("its memory", there(terminated("Failed", 137, "OOMKilled")), oom.clone()),
        (
            "the program cannot be started",
            there(terminated("Failed", 128, "StartError")),
            ended(StartError(text("StartError"))),
        ),
        (
            "still running while it is preempted",
            deleting(disrupted(running(), "PreemptionByScheduler")),
            ReplicaStatus::Running,
        ),
        (
            "preempted, and it answered 0",
            deleting(disrupted(terminated("Succeeded", 0, "Completed"), "PreemptionByScheduler")),
            ended(Preempted(text("PreemptionByScheduler: words"))),
        ),
        (
            "preempted and gone before it said anything",
            gone(disrupted(running(), "PreemptionByScheduler")),
            ended(Preempted(text("PreemptionByScheduler: words"))),
        ),
        (
            "evicted by the API",
            gone(disrupted(terminated("Failed", 143, "Error"), "EvictionByEvictionAPI")),
            ended(Preempted(text("EvictionByEvictionAPI: words"))),
        ),
        (
            "a reason of a newer cluster",
            gone(disrupted(running(), "DeletionByRobot")),
            ended(Preempted(text("DeletionByRobot: words"))),
        ),
        (
            "evicted by the kubelet",
            there(disrupted(failed("Evicted", "low on memory"), "TerminationByKubelet")),
            ended(Evicted(text("Evicted: low on memory"))),
        ),
        (
            "the same without the condition",
            there(failed("Evicted", "low on memory")),
            ended(Evicted(text("low on memory"))),
        ),
        (
            "the node's object was removed",
            gone(disrupted(running(), "DeletionByPodGC")),
            ended(NodeLost(text("DeletionByPodGC: words"))),
        ),
        (
            "deleted by a person",
            gone(running()),
            ended(Lost(text("pod demo-jabcdefghij2-1-worker-0 was deleted by someone else"))),
        ),
        ("deleted, its last state is known", gone(terminated("Failed", 7, "Error")), exited(7)),
        (
            "ended by the deletion",
            deleting(terminated("Failed", 143, "Error")),
            ended(Lost(text("pod demo-jabcdefghij2-1-worker-0 was deleted by someone else"))),
        ),
        ("deleted after it had failed", deleting(terminated("Failed", 1, "Error")), exited(1)),
        (
            "refused by the kubelet",
            there(failed("OutOfcpu", "no room")),
            ended(StartError(text("OutOfcpu: no room"))),
        ),
        (
            "the master's name never came",
            there(failed_init),
            ended(StartError(text(
                "init container init-pytorch ended with 1; it waits for the name of the master in the cluster's DNS",
            ))),
        ),
        (
            "no pull, no image",
            waiting("ErrImageNeverPull", 0),
            ended(StartError(text("ErrImageNeverPull: words"))),
        ),
        (
            "a bad image name",
            waiting("InvalidImageName", 0),
            ended(StartError(text("InvalidImageName: words"))),
        ),
        (
            "an image that may come",
            waiting("ImagePullBackOff", 179),
            ReplicaStatus::Blocked(text("ImagePullBackOff: words")),
        ),
        (
            "an image that did not come",
            waiting("ErrImagePull", 180),
            ended(StartError(text("ErrImagePull: words"))),
        ),
        (
            "an image of which the registry knows nothing, asked for once",
            no_image("ErrImagePull", 19),
            ReplicaStatus::Blocked(text("ErrImagePull: demo:1: not found")),
        ),
        (
            "an image of which the registry knows nothing, asked for twice",
            no_image("ImagePullBackOff", 20),
            ended(StartError(text("ImagePullBackOff: demo:1: not found"))),
        ),
        (
            "a Secret that is missing",
            waiting("CreateContainerConfigError", 200),
            ended(StartError(text("CreateContainerConfigError: words"))),
        ),
        ("being made", waiting("ContainerCreating", 999), ReplicaStatus::Pending(None)),
        ("running", there(running()), ReplicaStatus::Running),
        ("nothing is said yet", there(json!({ "phase": "Pending" })), ReplicaStatus::Pending(None)),
        ("a phase of a newer cluster", there(json!({ "phase": "Resting" })), ReplicaStatus::Pending(None)),
    ] {
        assert_eq!(status(&pod, &nodes("True", None)), want, "{case}");
    }
}

#[test]
fn a_node_that_is_not_heard_ends_only_pods_that_were_given_up() {
    let given_up = deleting(disrupted(running(), "DeletionByTaintManager"));
    let lost = |status: &ReplicaStatus| {
        matches!(status, ReplicaStatus::Ended { reason: EndReason::NodeLost(_), .. })
    };
    // Nobody but its kubelet could say that the pod ended.
    assert!(lost(&status(&given_up, &nodes("Unknown", Some("node.kubernetes.io/unreachable")))));
    assert!(lost(&status(&given_up, &Nodes::new())), "nodes may not be listed");
    // It was drained, and rebooted before its kubelet could say that the pod had ended.
    let drained = deleting(disrupted(running(), "EvictionByEvictionAPI"));
    let text = "EvictionByEvictionAPI: words".to_owned();
    assert_eq!(status(&drained, &nodes("Unknown", None)), ended(EndReason::Preempted(text)));
    // It may come back.
    let unheard = there(running());
    assert_eq!(
        status(&unheard, &nodes("Unknown", Some("node.kubernetes.io/unreachable"))),
        ReplicaStatus::Running
    );
    // It came back and ended the pod.
    let over = deleting(disrupted(terminated("Failed", 143, "Error"), "DeletionByTaintManager"));
    assert!(lost(&status(&over, &nodes("True", None))));
    // Somebody's own taint on a node that is well is maintenance.
    let ReplicaStatus::Ended { reason, .. } = status(&over, &nodes("True", Some("example.org/maintenance")))
    else {
        panic!("it is over")
    };
    assert!(matches!(reason, EndReason::Preempted(_)), "{reason:?}");
}

fn placed(known: &Known) -> Vec<(String, Option<String>, String)> {
    let Observation::Placed { replicas } = observe(known, &nodes("True", None)) else {
        panic!("{:?}", observe(known, &nodes("True", None)))
    };
    let word = |status: &ReplicaStatus| match status {
        ReplicaStatus::Pending(_) => "pending".to_owned(),
        ReplicaStatus::Blocked(_) => "blocked".to_owned(),
        ReplicaStatus::Running => "running".to_owned(),
        ReplicaStatus::Ended { exit, reason } => format!("{exit:?} {reason:?}"),
    };
    replicas
        .iter()
        .map(|(name, one)| (name.to_string(), one.node.as_ref().map(ToString::to_string), word(&one.status)))
        .collect()
}

fn queue_text(known: &Known) -> String {
    match observe(known, &nodes("True", None)) {
        Observation::Waiting(queue) => queue.text,
        other => panic!("{other:?}"),
    }
}

const CREATED: (&str, &str, &str) = ("Created", "True", "created");

#[test]
fn an_attempt_is_placed_once_all_pods_have_nodes_or_any_is_over() {
    let both = |master: PodSeen, worker: PodSeen| Known {
        job: Some(job(2, &[CREATED, ("Running", "True", "running")])),
        pods: vec![known(master), known(worker)],
        trouble: None,
        ..Known::default()
    };
    let nowhere = || pod("worker-0", "w-1", "", json!({ "phase": "Pending" }));
    let waits = both(pod("master-0", "m-1", "n1", running()), nowhere());
    assert_eq!(
        queue_text(&waits),
        "the scheduler has not said anything about its pods yet; if that lasts, see whether it runs"
    );

    let all = both(pod("master-0", "m-1", "n1", running()), pod("worker-0", "w-1", "n2", running()));
    let node = |name: &str| Some(name.to_owned());
    let running_on = |replica: &str, name: &str| (replica.to_owned(), node(name), "running".to_owned());
    assert_eq!(placed(&all), [running_on("master-0", "n1"), running_on("worker-0", "n2")]);

    let failed = both(pod("master-0", "m-1", "n1", terminated("Failed", 1, "Error")), nowhere());
    assert_eq!(placed(&failed), [("master-0".to_owned(), node("n1"), "Some(Code(1)) Exited".to_owned())]);
}

#[test]
fn a_pod_that_was_made_again_does_not_undo_the_end_of_the_first() {
    let mut first = known(pod("worker-0", "w-1", "n2", running()));
    first.gone = true;
    let known = Known {
        job: Some(job(2, &[CREATED])),
        pods: vec![
            known(pod("master-0", "m-1", "n1", running())),
            first,
            known(pod("worker-0", "w-2", "n1", running())),
        ],
        trouble: None,
        ..Known::default()
    };
    let found = placed(&known);
    assert_eq!(found[1].1.as_deref(), Some("n2"));
    assert!(found[1].2.contains("was deleted by someone else"), "{found:?}");
}

#[test]
fn a_failed_job_without_a_pod_says_so_of_the_replica() {
    let message = "PyTorchJob demo is failed because 1 Worker replica(s) failed.";
    let failed = job(2, &[CREATED, ("Running", "False", "running"), ("Failed", "True", message)]);
    let master = known(pod("master-0", "m-1", "n1", running()));
    let found =
        placed(&Known { job: Some(failed.clone()), pods: vec![master], trouble: None, ..Known::default() });
    assert_eq!(found[0].2, "running");
    assert_eq!((found[1].0.as_str(), &found[1].1), ("worker-0", &None));
    assert!(
        found[1].2.contains("its pod is gone and nothing says why") && found[1].2.contains(message),
        "{found:?}"
    );
    // One that never had any pod was never started.
    let found = placed(&Known { job: Some(failed), pods: Vec::new(), trouble: None, ..Known::default() });
    assert!(found[0].2.contains("StartError"), "{found:?}");
}

#[test]
fn the_deadline_of_a_job_ends_what_still_runs() {
    let message = "Job demo has failed because it was active longer than specified deadline";
    let failed = job(3, &[CREATED, ("Running", "False", "running"), ("Failed", "True", message)]);
    let worker = known(pod("worker-0", "w-1", "n1", terminated("Succeeded", 0, "Completed")));
    let pods = vec![known(pod("master-0", "m-1", "n1", running())), worker];
    let found = placed(&Known { job: Some(failed), pods, ..Known::default() });
    let lost = format!("None Lost({message:?})");
    let words: Vec<_> = found.iter().map(|one| one.2.as_str()).collect();
    assert_eq!(words, [&lost, "Some(Code(0)) Exited", &lost]);
    assert_eq!(found[0].1.as_deref(), Some("n1"));
}

#[test]
fn a_suspended_job_waits_and_how_its_pods_end_says_nothing() {
    let message = "PyTorchJob demo is suspended.";
    let suspended = job(1, &[CREATED, ("Suspended", "True", message)]);
    let resumed = job(1, &[CREATED, ("Suspended", "False", message)]);
    let old = PodKnown { withdrawn: true, ..deleting(terminated("Failed", 143, "Error")) };
    let is_suspended = |pods: &[PodKnown]| {
        let known = Known { job: Some(suspended.clone()), pods: pods.to_vec(), ..Known::default() };
        matches!(observe(&known, &Nodes::new()), Observation::Suspended(queue) if queue.text == message)
    };
    assert!(is_suspended(&[]));
    assert!(is_suspended(&[old.clone(), PodKnown { gone: true, ..old.clone() }]));
    assert!(is_suspended(&[there(running()), old.clone()]), "the others go next");
    assert!(!is_suspended(&[there(running())]), "none goes yet, and none may");
    let finished = there(terminated("Succeeded", 0, "Completed"));
    assert!(is_suspended(&[finished, old.clone()]), "what one has finished is no failure");
    assert!(!is_suspended(&[there(terminated("Failed", 1, "Error")), old.clone()]), "it failed before");
    let known = Known { job: Some(resumed), pods: vec![old.clone()], ..Known::default() };
    let makes = "the training operator makes its pods";
    let found = observe(&known, &Nodes::new());
    assert!(matches!(&found, Observation::Suspended(queue) if queue.text == makes), "{found:?}");
    // Its object went meanwhile: as long as a pod is there, something is.
    let known = Known { pods: vec![old], ..Known::default() };
    assert!(placed(&known).is_empty());
}

/// A job of two that was resumed at 19:26:47, as its operator says, and what became of it so many seconds later.
fn resumed(became: &str, seconds: u32) -> JobSeen {
    let said = "Job demo has failed because it has reached the specified backoff limit";
    let mut object = job_object(
        2,
        &[CREATED, ("Suspended", "False", "PyTorchJob demo is resumed."), (became, "True", said)],
    );
    object["status"]["conditions"][2]["lastTransitionTime"] =
        json!(format!("2026-11-29T19:{:02}:47Z", 26 + seconds / 60));
    JobSeen::of(JobKind::PyTorchJob, &serde_json::from_value(object).unwrap()).unwrap()
}

fn made_at(mut pod: PodKnown, time: &str) -> PodKnown {
    pod.seen.created = Some(time.parse().unwrap());
    pod
}

#[test]
fn a_job_that_is_resumed_while_its_pods_end_was_preempted_and_did_not_fail() {
    let before = |pod| made_at(pod, "2026-11-29T19:26:40Z");
    let old = || before(deleting(terminated("Failed", 143, "Error")));
    let gone_meanwhile = || before(gone(running()));
    let know = |job: JobSeen, pods: Vec<PodKnown>| Known { pods, ..Known::default() }.with_job(job);
    let is_preempted = |known: &Known| placed(known).iter().any(|one| one.2.contains("Preempted"));
    for (case, pods) in [
        ("its pods still end", vec![old(), old()]),
        ("they went unseen", vec![gone_meanwhile()]),
        ("a server that begins now sees none", Vec::new()),
    ] {
        let found = placed(&know(resumed("Failed", 0), pods));
        let is_so = |words: &str| words.contains("Preempted") && words.contains("suspended and resumed");
        assert!(found.len() == 2 && found.iter().all(|one| is_so(&one.2)), "{case}: {found:?}");
    }
    let others = know(resumed("Failed", 0), vec![known(pod("master-0", "m-2", "n1", running())), old()]);
    assert!(is_preempted(&others), "{:?}", placed(&others));
    // While it has not failed it may go on with others.
    let waits = know(resumed("Running", 0), vec![gone_meanwhile()]);
    assert!(matches!(observe(&waits, &Nodes::new()), Observation::Suspended(_)));
    for (case, known) in [
        ("long after", know(resumed("Failed", 660), Vec::new())),
        (
            "one failed",
            know(
                resumed("Failed", 0),
                vec![made_at(there(terminated("Failed", 1, "Error")), "2026-11-29T19:26:47Z")],
            ),
        ),
        (
            "one that was made since was deleted",
            know(resumed("Running", 0), vec![made_at(gone(running()), "2026-11-29T19:26:47Z")]),
        ),
        (
            "one that was made before and failed is still there",
            know(resumed("Failed", 0), vec![before(there(terminated("Failed", 1, "Error")))]),
        ),
    ] {
        assert!(!is_preempted(&known), "{case}: {:?}", placed(&known));
    }
}

#[test]
fn a_job_that_is_to_run_is_not_suspended_whatever_its_operator_still_says() {
    let mut object = job_object(1, &[CREATED, ("Suspended", "True", "suspended")]);
    let is_suspended = |object: &Value| {
        let object = serde_json::from_value(object.clone()).unwrap();
        JobSeen::of(JobKind::PyTorchJob, &object).unwrap().is("Suspended")
    };
    assert!(is_suspended(&object));
    object["spec"]["runPolicy"]["suspend"] = json!(false);
    assert!(!is_suspended(&object));
}

#[test]
fn pods_that_are_taken_away_are_explained_by_a_suspension_that_was_not_shown_yet() {
    let unsaid = |pods: Vec<PodKnown>| Known { job: Some(job(1, &[CREATED])), pods, ..Known::default() };
    for (case, pod, want) in [
        ("it runs", there(running()), false),
        ("told to end", deleting(running()), true),
        ("ended by that", deleting(terminated("Failed", 143, "Error")), true),
        ("gone", gone(running()), true),
        ("it ended, and was cleared away", gone(terminated("Failed", 1, "Error")), false),
        ("the cluster says why", deleting(disrupted(running(), "PreemptionByScheduler")), false),
        ("a suspension that is known", PodKnown { withdrawn: true, ..deleting(running()) }, false),
    ] {
        assert_eq!(unsaid(vec![pod]).is_unexplained(), want, "{case}");
    }
    let mut going = job_object(1, &[CREATED]);
    going["metadata"]["deletionTimestamp"] = json!("2026-11-29T19:26:47Z");
    let going = JobSeen::of(JobKind::PyTorchJob, &serde_json::from_value(going).unwrap());
    let known = Known { job: going, ..unsaid(vec![deleting(running())]) };
    assert!(!known.is_unexplained(), "its pods go with it");
    let known = unsaid(vec![deleting(terminated("Failed", 143, "Error"))]);
    assert!(matches!(observe(&known, &Nodes::new()), Observation::Placed { .. }));
    let known = known.with_job(job(1, &[CREATED, ("Suspended", "True", "suspended")]));
    assert!(matches!(observe(&known, &Nodes::new()), Observation::Suspended(_)));
}

#[test]
fn what_keeps_containers_from_being_made_is_told_and_what_is_missing_ends_it() {
    let being_made = |reason: &str, message: &str, seconds: u64| {
        let said = Said { reason: reason.to_owned(), message: message.to_owned() };
        let state = json!({ "waiting": { "reason": "ContainerCreating" } });
        PodKnown { making: Some((said, Duration::from_secs(seconds))), ..there(with_main("Pending", state)) }
    };
    let missing = "MountVolume.SetUp failed for volume \"volume-0\" : secret \"data\" not found";
    let attached = "Multi-Attach error for volume \"pvc-1\" Volume is already used by pod(s) other";
    let patience = START_PATIENCE.as_secs();
    for (case, pod, is_over) in [
        ("not there yet", being_made("FailedMount", missing, patience - 1), false),
        ("not there", being_made("FailedMount", missing, patience), true),
        ("still elsewhere", being_made("FailedAttachVolume", attached, 10 * patience), false),
        ("no address", being_made("FailedCreatePodSandBox", "no IP is available", 10 * patience), false),
    ] {
        let text = pod.making.as_ref().unwrap().0.text();
        let want = if is_over { ended(EndReason::StartError(text)) } else { ReplicaStatus::Blocked(text) };
        assert_eq!(status(&pod, &Nodes::new()), want, "{case}");
    }
    // It was mounted in the end.
    let pod = PodKnown { making: being_made("FailedMount", missing, patience).making, ..there(running()) };
    assert_eq!(status(&pod, &Nodes::new()), ReplicaStatus::Running);
}

#[test]
fn an_attempt_is_gone_when_its_job_and_all_its_pods_are() {
    let mut last = known(pod("master-0", "m-1", "n1", running()));
    let left = Known { pods: vec![last.clone()], ..Known::default() };
    assert_eq!(placed(&left).len(), 1);
    last.gone = true;
    assert_eq!(observe(&Known { pods: vec![last], ..Known::default() }, &Nodes::new()), Observation::Absent);
    assert_eq!(observe(&Known::default(), &Nodes::new()), Observation::Absent);
}
