use engine::ids::ReplicaName;

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

fn namespaces() -> Vec<String> {
    vec!["train".to_owned()]
}

fn sync(world: &World) {
    world.heard(&Watched::Server, true);
    world.heard(&Watched::Jobs(PYTORCH, "train".to_owned()), true);
    world.heard(&Watched::Pods("train".to_owned()), true);
}

#[tokio::test]
async fn nothing_is_concluded_before_full_lists_and_while_a_watch_fails() {
    let (world, _hints) = world();
    let now = Instant::now();
    assert!(world.blind(PYTORCH, &namespaces(), now).unwrap().contains("has not answered yet"));
    world.heard(&Watched::Server, true);
    assert!(world.blind(PYTORCH, &namespaces(), now).unwrap().contains("are not listed yet"));
    let pods = Watched::Pods("train".to_owned());
    assert!(world.failed(&pods, "refused", now), "new words are said");
    assert!(!world.failed(&pods, "refused", now), "once");
    sync(&world);
    assert_eq!(world.blind(PYTORCH, &namespaces(), now), None);

    assert!(world.failed(&pods, "away", now));
    world.failed(&pods, "away", now + Duration::from_secs(14));
    assert_eq!(
        world.blind(PYTORCH, &namespaces(), now + Duration::from_secs(14)),
        None,
        "a restart of the API server"
    );
    let why = world.blind(PYTORCH, &namespaces(), now + Duration::from_secs(15)).unwrap();
    assert!(why.contains("pods of namespace train") && why.contains("away"), "{why}");
    assert!(world.heard(&pods, true), "and it is said when it is over");
    assert_eq!(world.blind(PYTORCH, &namespaces(), now + Duration::from_secs(15)), None);
    // Events and nodes bring words only.
    world.failed(&Watched::Nodes, "forbidden", now);
    assert_eq!(world.blind(PYTORCH, &namespaces(), now + Duration::from_secs(60)), None);
    assert!(world.blind_to_nodes(now).unwrap().contains("forbidden"));
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
    assert_eq!(world.namespace_of(&task()), None);
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
async fn a_node_that_is_not_heard_is_not_asked_for_output() {
    let (world, _hints) = world();
    set(&world, "a", running(), Instant::now());
    for (ready, want) in [("True", 1), ("Unknown", 0), ("False", 1)] {
        let (name, node) = fake::node("n1", ready, None);
        world.set_node(name, node);
        assert_eq!((world.printing().len(), world.printing_of(&task()).len()), (want, want), "{ready}");
    }
}
