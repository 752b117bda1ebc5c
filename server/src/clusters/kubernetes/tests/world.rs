use engine::ids::ReplicaName;
use futures::FutureExt;

use super::*;
use crate::clusters::kubernetes::{
    facts,
    fake::{self, job, pod, running, task, terminated, with_main},
};

const PYTORCH: JobKind = JobKind::PyTorchJob;

fn world() -> (World, mpsc::Receiver<TaskId>) {
    let (hint, hints) = mpsc::channel(16);
    (World::new(hint), hints)
}

fn set(world: &World, uid: &str, status: serde_json::Value, now: Instant) {
    world.set_pod("train", pod("master-0", uid, "n1", status), now);
}

fn sync(world: &World) {
    world.health.heard(&Watched::Server, true);
    world.health.heard(&Watched::Jobs(PYTORCH, "train".to_owned()), true);
    world.health.heard(&Watched::Pods("train".to_owned()), true);
}

#[tokio::test]
async fn the_last_state_of_a_pod_stays_until_its_attempt_is_gone() {
    let (world, _hints) = world();
    let now = Instant::now();
    sync(&world);
    world.set_job(job(1, &[]));
    set(&world, "a", running(), now);
    world.remove_pod(&task(), "a");
    let (known, _) = world.known(&task(), now);
    assert!(known.pods.len() == 1 && known.pods[0].gone);
    world.remove_job(&task(), "another");
    assert!(world.known(&task(), now).0.job.is_some(), "not by the end of another of the same name");
    world.remove_job(&task(), "job-1");
    let (known, _) = world.known(&task(), now);
    assert!(known.job.is_none() && known.pods.is_empty());
    assert!(!world.is_there(&task()));
    assert_eq!(
        world.namespace_of(&task()).as_deref(),
        Some("train"),
        "what is told of it last is told there"
    );
}

#[test]
fn only_so_many_places_are_remembered_of_what_is_gone() {
    let mut places = Places::default();
    let task = |number: usize| TaskId::new(format!("demo-jabcdefghij2-{number}")).unwrap();
    let place = |uid: &str| Place { namespace: "train".to_owned(), uid: Some(uid.to_owned()) };
    for number in 1..=PLACES + 1 {
        places.set(&task(number), place("a"));
        places.set(&task(number), place("b"));
    }
    assert_eq!(places.of.get(&task(1)), None);
    assert_eq!(places.of.get(&task(2)), Some(&place("b")));
    assert_eq!((places.of.len(), places.order.len()), (PLACES, PLACES));
}

#[tokio::test]
async fn an_answer_that_comes_after_the_watch_takes_nothing_back() {
    let (world, _hints) = world();
    sync(&world);
    world.set_job(job(1, &[("Failed", "True", "not valid")]));
    world.meet_job(job(1, &[]));
    let is_failed = |world: &World| world.known(&task(), Instant::now()).0.job.unwrap().is("Failed");
    assert!(is_failed(&world), "it was there before its creation was answered");
    world.remove_job(&task(), "job-1");
    world.meet_job(job(1, &[]));
    assert!(!is_failed(&world));
}

#[tokio::test]
async fn pods_that_go_with_a_suspension_say_nothing_and_those_after_it_do() {
    const SUSPENDED: (&str, &str, &str) = ("Suspended", "True", "suspended");
    let (world, _hints) = world();
    let now = Instant::now();
    sync(&world);
    let withdrawn = |world: &World| -> Vec<_> {
        world.known(&task(), now).0.pods.iter().map(|pod| (pod.seen.uid.clone(), pod.withdrawn)).collect()
    };
    let going = |uid: &str, status| {
        let mut seen = pod("master-0", uid, "n1", status);
        seen.deleting = true;
        world.set_pod("train", seen, now);
    };
    world.set_job(job(1, &[]));
    set(&world, "a", running(), now);
    world.set_job(job(1, &[SUSPENDED]));
    assert_eq!(withdrawn(&world), [("a".to_owned(), false)], "it is not told to end yet");
    going("a", running());
    going("a", terminated("Failed", 143, "Error"));
    assert_eq!(withdrawn(&world), [("a".to_owned(), true)]);
    // Resumed while the old pod still ends, which is printing until it is gone.
    world.set_job(job(1, &[]));
    let printing = |world: &World| world.printing().first().map(|one| one.uid.clone());
    assert_eq!(printing(&world), Some("a".to_owned()));
    world.remove_pod(&task(), "a");
    set(&world, "b", running(), now);
    assert_eq!(withdrawn(&world), [("b".to_owned(), false)], "what went is forgotten");
    assert_eq!(printing(&world), Some("b".to_owned()));
    // A server that begins now sees what is being deleted of a suspended job.
    let (later, _hints) = super::tests::world();
    let mut old = pod("master-0", "a", "n1", running());
    old.deleting = true;
    later.set_pod("train", old, now);
    later.set_job(job(1, &[SUSPENDED]));
    assert_eq!(withdrawn(&later), [("a".to_owned(), true)]);
    // Nor does it matter that the suspension was taken back before that.
    let (later, _hints) = super::tests::world();
    let mut old = pod("master-0", "a", "n1", running());
    (old.deleting, old.created) = (true, Some("2026-11-29T19:26:46Z".parse().unwrap()));
    later.set_pod("train", old, now);
    later.set_job(job(1, &[("Suspended", "False", "resumed")]));
    assert_eq!(withdrawn(&later), [("a".to_owned(), true)]);
}

#[tokio::test]
async fn a_suspension_that_has_begun_lasts_until_the_job_goes_on() {
    let (world, mut hints) = world();
    let now = Instant::now();
    sync(&world);
    let is_suspended = |world: &World| {
        let (known, nodes) = world.known(&task(), now);
        matches!(facts::observe(&known, &nodes), engine::chain::Observation::Suspended(_))
    };
    let finished = pod("worker-1", "c", "n1", terminated("Succeeded", 0, "Completed"));
    let goes = |mut seen: crate::clusters::kubernetes::seen::PodSeen| {
        seen.deleting = true;
        world.set_pod("train", seen, now);
    };
    world.set_job(job(3, &[]));
    set(&world, "a", running(), now);
    world.set_pod("train", pod("worker-0", "b", "n1", running()), now);
    world.set_pod("train", finished.clone(), now);
    world.set_job(job(3, &[("Suspended", "True", "suspended")]));
    assert!(!is_suspended(&world), "no pod goes yet");
    while hints.try_recv().is_ok() {}
    goes(finished);
    assert_eq!(hints.try_recv().unwrap(), task());
    assert!(is_suspended(&world), "one that had finished goes with the others");
    let (known, nodes) = world.known(&task(), now);
    let status = facts::status(&known.pods[2], &nodes);
    assert!(format!("{status:?}").contains("Exited"), "that is not how it ended: {status:?}");
    goes(pod("worker-0", "b", "n1", running()));
    world.remove_pod(&task(), "b");
    world.remove_pod(&task(), "c");
    assert!(is_suspended(&world), "the last one follows");
    world.set_job(job(3, &[]));
    let left: Vec<_> = world.known(&task(), now).0.pods.into_iter().map(|pod| pod.seen.uid).collect();
    assert_eq!(left, ["a"], "what went is forgotten");
}

#[tokio::test]
async fn what_a_kubelet_says_of_a_pod_is_kept_with_its_beginning() {
    let (world, mut hints) = world();
    let now = Instant::now();
    let said = |message: &str| Said { reason: "FailedMount".to_owned(), message: message.to_owned() };
    let missing = "secret \"x\" not found";
    let say = |uid: &str, message: &str, version: &str, seconds: u64| {
        let at = now + Duration::from_secs(seconds);
        world.set_making(uid.to_owned(), said(message), version.to_owned(), at);
    };
    let known =
        |seconds: u64| world.known(&task(), now + Duration::from_secs(seconds)).0.pods[0].making.clone();
    let lasting = |seconds: u64| Some((said(missing), Duration::from_secs(seconds)));
    set(&world, "a", with_main("Pending", serde_json::json!({})), now);
    hints.recv().await.unwrap();
    say("a", missing, "1", 0);
    assert_eq!(hints.recv().await.unwrap(), task());
    say("a", "Unable to attach or mount volumes: unmounted volumes=[x]", "7", 100);
    assert_eq!(known(100), lasting(100), "all volumes together say less");
    // A list brings what was told before.
    say("a", missing, "7", 200);
    assert_eq!(known(249), lasting(100));
    assert_eq!(known(250), None, "it is not said any more");
    say("a", missing, "9", 300);
    assert_eq!(known(300), lasting(0), "once more");
    // Of somebody else's pod, before it is known or ever.
    while hints.try_recv().is_ok() {}
    say("z", "of another", "1", 300);
    assert!(hints.try_recv().is_err(), "only our own are hinted at");
}

#[tokio::test]
async fn objects_of_other_peoples_jobs_make_room_for_those_of_our_own() {
    use crate::clusters::kubernetes::{kueue::WorkloadSeen, queues::OBJECTS};
    let (world, _hints) = world();
    world.set_job(job(1, &[]));
    let set = |owner: &str| {
        let (owner, seen) = (owner.to_owned(), WorkloadSeen::default());
        world.change_queues(|queues| queues.workloads.set(owner.clone(), "train", owner, seen));
    };
    let is_known = |world: &World| world.known(&task(), Instant::now()).0.queued.workload.is_some();
    (0..OBJECTS).for_each(|number| set(&format!("another-{number}")));
    assert!(!is_known(&world));
    set("job-1");
    assert!(is_known(&world));
    (0..2 * OBJECTS).for_each(|number| set(&format!("more-{number}")));
    assert!(is_known(&world), "and stays");
}

#[tokio::test]
async fn what_is_about_a_uid_finds_the_attempt_while_it_is_remembered() {
    let (world, mut hints) = world();
    let now = Instant::now();
    sync(&world);
    let uids = |world: &World| {
        let state = world.state();
        let uids: Vec<_> = state.of_job.keys().chain(state.of_pod.keys()).cloned().collect();
        uids
    };
    world.set_job(job(1, &[]));
    set(&world, "a", running(), now);
    set(&world, "b", running(), now);
    assert_eq!(uids(&world), ["job-1", "a", "b"]);
    // Made anew under its name.
    world.set_job(JobSeen { uid: "job-2".to_owned(), ..job(1, &[]) });
    assert_eq!(uids(&world), ["job-2", "a", "b"]);
    while hints.try_recv().is_ok() {}
    let said = Said { reason: "FailedMount".to_owned(), message: "no such claim".to_owned() };
    world.set_making("b".to_owned(), said, "1".to_owned(), now);
    assert_eq!(hints.try_recv().unwrap(), task());
    world.remove_pod(&task(), "a");
    world.remove_pod(&task(), "b");
    world.remove_job(&task(), "job-2");
    assert!(uids(&world).is_empty());
}

#[tokio::test]
async fn news_of_a_queueing_system_hint_at_the_job_that_they_are_about() {
    use crate::clusters::kubernetes::kueue::WorkloadSeen;
    let (world, mut hints) = world();
    world.set_job(job(1, &[]));
    hints.recv().await.unwrap();
    let seen = WorkloadSeen {
        name: "w".to_owned(),
        queue: "team-a".to_owned(),
        active: true,
        ..WorkloadSeen::default()
    };
    for owner in ["job-1", "job-of-another"] {
        let seen = seen.clone();
        world.change_queues(|queues| queues.workloads.set(owner.to_owned(), "train", owner.to_owned(), seen));
    }
    assert_eq!(hints.recv().await.unwrap(), task());
    assert!(hints.try_recv().is_err());
    assert_eq!(world.queues_of("train"), ["team-a".to_owned()].into());
    assert!(world.queues_of("eval").is_empty());
    world.change_queues(|queues| queues.set_positions("train", [("w".to_owned(), 4)].into()));
    let (known, _) = world.known(&task(), Instant::now());
    assert_eq!((known.queued.workload, known.queued.position), (Some(seen), Some(4)));
    assert_eq!(hints.recv().await.unwrap(), task());
}

#[tokio::test]
async fn a_full_list_shows_what_went_unseen() {
    let (world, mut hints) = world();
    let now = Instant::now();
    sync(&world);
    world.set_job(job(1, &[]));
    set(&world, "a", running(), now);
    while hints.try_recv().is_ok() {}
    world.only_pods("eval", &BTreeSet::new());
    assert!(hints.try_recv().is_err(), "another namespace's list says nothing");
    world.only_pods("train", &BTreeSet::from(["b".to_owned()]));
    assert_eq!(hints.try_recv().unwrap(), task());
    assert!(world.known(&task(), now).0.pods[0].gone);
    world.only_jobs(JobKind::RayJob, "train", &BTreeSet::new());
    assert!(world.known(&task(), now).0.job.is_some(), "another kind's list says nothing either");
    world.only_jobs(PYTORCH, "train", &BTreeSet::new());
    assert!(world.known(&task(), now).0.job.is_none());
}

#[tokio::test]
async fn whose_pod_is_told_to_end_is_waited_for_and_one_that_runs_is_not() {
    let (world, _hints) = world();
    let now = Instant::now();
    set(&world, "a", running(), now);
    assert_eq!(world.ending().now_or_never(), None);
    let told = PodSeen { deleting: true, ..pod("master-0", "a", "n1", running()) };
    world.set_pod("train", told, now);
    assert_eq!(world.ending().now_or_never(), Some([task()].into()));
    assert_eq!(world.ending().now_or_never(), None, "once");
}

#[tokio::test]
async fn how_a_pod_ended_is_not_changed_by_what_is_done_with_it_later() {
    let (world, mut hints) = world();
    let now = Instant::now();
    set(&world, "a", terminated("Failed", 7, "Error"), now);
    while hints.try_recv().is_ok() {}
    let mut drained = terminated("Failed", 7, "Error");
    drained["conditions"] = serde_json::json!([{ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI" }]);
    set(&world, "a", drained, now);
    assert!(hints.try_recv().is_err(), "no news");
    let (known, nodes) = world.known(&task(), now);
    let engine::chain::Observation::Placed { replicas } = facts::observe(&known, &nodes) else { panic!() };
    let status = &replicas[&ReplicaName::new("master-0").unwrap()].status;
    assert!(format!("{status:?}").contains("Exited"), "{status:?}");
}

#[tokio::test]
async fn waiting_for_an_image_is_one_trouble_whatever_the_words() {
    let (world, _hints) = world();
    let start = Instant::now();
    let waits = |reason: &str| with_main("Pending", serde_json::json!({ "waiting": { "reason": reason } }));
    for (seconds, reason) in
        [(0, "ContainerCreating"), (10, "ErrImagePull"), (20, "ImagePullBackOff"), (40, "ErrImagePull")]
    {
        set(&world, "a", waits(reason), start + Duration::from_secs(seconds));
    }
    let (known, _) = world.known(&task(), start + Duration::from_secs(100));
    assert_eq!(known.pods[0].waited, Duration::from_secs(90));
}

#[tokio::test]
async fn a_node_that_is_lost_hints_at_whoever_runs_there() {
    let (world, mut hints) = world();
    set(&world, "a", running(), Instant::now());
    let set_node = |ready| {
        let (name, node) = fake::node("n1", ready, None);
        world.set_node(name, node);
    };
    set_node("True");
    while hints.try_recv().is_ok() {}
    set_node("True");
    assert!(hints.try_recv().is_err());
    set_node("Unknown");
    assert_eq!(hints.try_recv().unwrap(), task());
}

#[tokio::test]
async fn what_keeps_kuberay_from_making_pods_is_told_of_the_job_of_that_cluster() {
    let (world, mut hints) = world();
    let status = serde_json::json!({ "jobDeploymentStatus": "Initializing", "rayClusterName": "demo-x" });
    world.set_job(fake::ray_job(2, status));
    while hints.try_recv().is_ok() {}
    for other in 0..2 * EARLY_TROUBLES {
        // Of other people's jobs in the namespace; they never become known.
        world.set_trouble(format!("another-{other}"), "exceeded quota".to_owned());
    }
    assert!(hints.try_recv().is_err());
    assert!(world.state().early.len() <= EARLY_TROUBLES);
    world.set_trouble("demo-x".to_owned(), "exceeded quota".to_owned());
    assert_eq!(hints.try_recv().unwrap(), task());
    assert_eq!(world.known(&task(), Instant::now()).0.trouble.as_deref(), Some("exceeded quota"));
}

#[tokio::test]
async fn a_trouble_that_is_told_before_its_job_is_known_is_the_jobs_until_that_goes() {
    let (world, _hints) = world();
    let trouble = |world: &World| world.known(&task(), Instant::now()).0.trouble;
    world.set_trouble("job-1".to_owned(), "exceeded quota".to_owned());
    world.set_job(job(1, &[]));
    assert_eq!(trouble(&world).as_deref(), Some("exceeded quota"));
    world.set_job(job(1, &[("Running", "True", "runs")]));
    assert_eq!(trouble(&world).as_deref(), Some("exceeded quota"), "whatever else becomes of the job");
    world.remove_job(&task(), "job-1");
    world.set_job(job(1, &[]));
    assert_eq!(trouble(&world), None);
}

#[tokio::test]
async fn the_head_of_a_ray_cluster_has_the_drivers_output_and_its_workers_none() {
    let (world, _hints) = world();
    world.set_pod("train", fake::ray_pod("worker", "w", "n1", running()), Instant::now());
    world.set_pod("train", fake::ray_pod("head", "h", "n1", running()), Instant::now());
    let printing = world.printing();
    let [head] = printing.as_slice() else { panic!("{printing:?}") };
    assert_eq!((head.replica.as_str(), head.container.as_str()), ("head-0", "ray"));
    assert!(head.is_first());
}

#[tokio::test]
async fn workers_of_ray_that_are_gone_are_forgotten_once_the_driver_runs() {
    let (world, _hints) = world();
    let now = Instant::now();
    sync(&world);
    let set_job = |status: &str| {
        let status = serde_json::json!({ "jobDeploymentStatus": "Running", "jobStatus": status });
        world.set_job(fake::ray_job(2, status));
    };
    let set = |uid: &str| world.set_pod("train", fake::ray_pod("worker", uid, "n1", running()), now);
    let known = || -> Vec<_> {
        world.known(&task(), now).0.pods.into_iter().map(|pod| (pod.seen.uid, pod.gone)).collect()
    };
    set_job("");
    world.set_pod("train", fake::ray_pod("head", "h", "n1", running()), now);
    set("a");
    world.remove_pod(&task(), "a");
    assert_eq!(
        known(),
        [("h".to_owned(), false), ("a".to_owned(), true)],
        "before that it tells what failed"
    );
    set_job("RUNNING");
    assert_eq!(known(), [("h".to_owned(), false)]);
    for worker in 0..3_000 {
        let uid = worker.to_string();
        set(&uid);
        world.remove_pod(&task(), &uid);
    }
    set("z");
    assert_eq!(known(), [("h".to_owned(), false), ("z".to_owned(), false)]);
    world.remove_pod(&task(), "h");
    assert_eq!(known()[0], ("h".to_owned(), true), "the head's end is the attempt's");
}

#[tokio::test]
async fn a_node_that_is_not_heard_is_not_asked_for_output() {
    let (world, _hints) = world();
    set(&world, "a", running(), Instant::now());
    for (ready, want) in [("True", 1), ("Unknown", 0), ("False", 1)] {
        let (name, node) = fake::node("n1", ready, None);
        world.set_node(name, node);
        assert_eq!((world.printing().len(), world.printing_of(&task()).len()), (want, want), "{ready}");
    }
}
