use std::sync::Arc;

use engine::job::JobKind;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::clusters::kubernetes::{
    fake::{client, job, job_object, list, refusal, settings},
    seen::JobSeen,
};

/// What a cluster serves of a group and version.
fn resources(group: &str, names: &[(&str, &str)]) -> Option<(u16, Value)> {
    let resources: Vec<_> = names
        .iter()
        .map(|(name, kind)| json!({ "name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["list"] }))
        .collect();
    Some((
        200,
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources }),
    ))
}

#[tokio::test]
async fn the_newest_version_that_is_served_is_taken() {
    for (case, served, want) in [
        ("not installed", vec![], None),
        ("an old Kueue", vec!["v1beta1"], Some("kueue.x-k8s.io/v1beta1")),
        ("a newer one", vec!["v1beta1", "v1beta2"], Some("kueue.x-k8s.io/v1beta2")),
        ("one too new", vec!["v2"], None),
    ] {
        let (client, _) = client(move |what, _| match what.rsplit_once('/') {
            Some((group, version))
                if group.ends_with("/apis/kueue.x-k8s.io") && served.contains(&version) =>
            {
                resources(
                    &format!("kueue.x-k8s.io/{version}"),
                    &[("workloads/status", "Workload"), ("workloads", "Workload")],
                )
            }
            _ => refusal(404, "NotFound", "the server could not find the requested resource"),
        });
        let found = WORKLOADS.served(&client).await;
        assert_eq!(found.as_ref().map(|found| found.api_version.as_str()), want, "{case}");
        assert!(found.is_none_or(|found| found.plural == "workloads"), "{case}");
    }
    // The group may be there without the kind.
    let (client, _) =
        client(|_, _| resources("scheduling.x-k8s.io/v1alpha1", &[("elasticquotas", "ElasticQuota")]));
    assert!(PLUGIN_GROUPS.served(&client).await.is_none());
}

fn client_of_none() -> (Client, crate::clusters::kubernetes::fake::Asked) {
    client(|_, _| refusal(404, "NotFound", "the server could not find the requested resource"))
}

#[tokio::test]
async fn places_are_read_in_either_version_and_count_from_one() {
    let (client, asked) = client(|what, _| {
        let items = json!([
            { "metadata": { "name": "first" }, "positionInClusterQueue": 0, "positionInLocalQueue": 0 },
            { "metadata": { "name": "second" }, "positionInClusterQueue": 4, "positionInLocalQueue": 1 },
        ]);
        if what.contains("v1beta1") {
            Some((200, json!({ "items": items })))
        } else {
            refusal(404, "NotFound", "no")
        }
    });
    let found = places(&client, "train", "team-a").await.unwrap();
    assert_eq!(found, [("first".to_owned(), 1), ("second".to_owned(), 5)].into());
    let (other, _) = client_of_none();
    assert!(places(&other, "train", "team-a").await.unwrap().is_empty(), "it is not served");
    let path = "/namespaces/train/localqueues/team-a/pendingworkloads?limit=1000";
    assert!(asked.lock().unwrap().iter().all(|(what, _)| what.ends_with(path)));
}

#[test]
fn workloads_of_jobs_that_have_ended_are_not_remembered() {
    let world = World::new(mpsc::channel(16).0);
    let mut take = workloads("train".to_owned());
    let is_remembered = |world: &World| {
        let mut found = false;
        world.change_queues(|queues| {
            found = queues.workloads.get("job-1").is_some();
            Vec::new()
        });
        found
    };
    let object = |value: Value| serde_json::from_value::<DynamicObject>(value).unwrap();
    let mut ended = workload("w-1");
    ended["status"] =
        json!({ "conditions": [{ "type": "Finished", "status": "True", "reason": "Succeeded" }] });
    take(&world, Event::InitApply(object(ended.clone())));
    assert!(!is_remembered(&world), "it had ended before");
    take(&world, Event::Apply(object(workload("w-1"))));
    assert!(is_remembered(&world));
    take(&world, Event::Apply(object(ended)));
    assert!(!is_remembered(&world), "it has ended");
}

fn workload(uid: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": { "name": uid, "uid": uid, "namespace": "train", "labels": { "kueue.x-k8s.io/job-uid": "job-1" } },
        "spec": { "queueName": "team-a" },
    })
}

#[test]
fn what_a_list_does_not_hold_any_more_is_forgotten() {
    let (hint, _hints) = mpsc::channel(16);
    let world = World::new(hint);
    world.set_job(job(1, &[]));
    let object = |value: Value| serde_json::from_value::<DynamicObject>(value).unwrap();
    let seen: JobSeen = JobSeen::of(JobKind::PyTorchJob, &object(job_object(1, &[]))).unwrap();
    let name = |world: &World| {
        let (known, _) = world.known(&seen.task, tokio::time::Instant::now());
        known.queued.workload.map(|workload| workload.name)
    };
    let mut take = workloads("train".to_owned());
    take(&world, Event::Init);
    take(&world, Event::InitApply(object(workload("w-1"))));
    take(&world, Event::InitDone);
    assert_eq!(name(&world), Some("w-1".to_owned()));
    take(&world, Event::Apply(object(workload("w-2"))));
    take(&world, Event::Delete(object(workload("w-1"))));
    assert_eq!(name(&world), Some("w-2".to_owned()), "it was made anew");
    take(&world, Event::Init);
    take(&world, Event::InitDone);
    assert_eq!(name(&world), None);
}

/// Lets the watches of so many namespaces go on for a while; answers what was asked for.
async fn asked_for(
    namespaces: usize,
    world: &Arc<World>,
    time: Duration,
    answer: impl Fn(&str) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> Vec<String> {
    let (client, asked) = client(move |what, _| answer(what));
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let lists = Arc::new(Semaphore::new(1));
    let keeper = || Keeper {
        world: Arc::clone(world),
        stop: stop.clone(),
        tasks: tasks.clone(),
        lists: Arc::clone(&lists),
    };
    let namespaces = (0..namespaces).map(|n| format!("n{n}")).collect();
    let settings = KubernetesSettings { namespaces, ..settings() };
    begin(&client, &settings, &watcher::Config::default(), keeper);
    tokio::time::sleep(time).await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    let asked = asked.lock().unwrap();
    asked.iter().map(|(what, _)| what.clone()).collect()
}

fn not_served() -> Option<(u16, Value)> {
    refusal(404, "NotFound", "the server could not find the requested resource")
}

#[tokio::test(start_paused = true)]
async fn nothing_is_watched_that_the_cluster_does_not_serve() {
    let (hint, mut hints) = mpsc::channel(16);
    let world = Arc::new(World::new(hint));
    world.set_job(job(1, &[]));
    hints.recv().await.unwrap();
    let asked = asked_for(1, &world, ASK_AGAIN * 3, |what| match what {
        what if what.ends_with("/apis/kueue.x-k8s.io/v1beta2") => {
            resources("kueue.x-k8s.io/v1beta2", &[("workloads", "Workload")])
        }
        what if what.contains("watch=") => None,
        what if what.contains("/workloads?") => list(vec![workload("w-1")]),
        _ => not_served(),
    })
    .await;
    hints.try_recv().expect("what Kueue says is news");
    let has = |part: &str| asked.iter().any(|what| what.contains(part));
    assert!(has("labelSelector=kueue.x-k8s.io%2Fjob-uid"), "{asked:?}");
    assert!(
        has("/apis/scheduling.volcano.sh/v1beta1") && has("/apis/scheduling.x-k8s.io/v1alpha1"),
        "{asked:?}"
    );
    assert!(!has("podgroups") && !has("/queues?"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_cluster_serves_is_asked_once_for_all_namespaces_and_while_it_is_not_served() {
    let world = Arc::new(World::new(mpsc::channel(16).0));
    let time = ASK_AGAIN * 2 + Duration::from_secs(1);
    let asked = asked_for(10, &world, time, |_| not_served()).await;
    // Three times; Kueue in two versions, Volcano for two kinds of objects.
    assert_eq!(asked.len(), 3 * 5, "{asked:?}");
    // It is installed between the first look and the second, taken off at once and installed again.
    let looks = std::sync::atomic::AtomicU32::new(0);
    let asked = asked_for(3, &world, ASK_AGAIN * 4 + Duration::from_secs(1), move |what| match what {
        what if what.ends_with("/apis/kueue.x-k8s.io/v1beta2") => {
            match looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => not_served(),
                _ => resources("kueue.x-k8s.io/v1beta2", &[("workloads", "Workload")]),
            }
        }
        _ => not_served(),
    })
    .await;
    for namespace in 0..3 {
        let path = format!("/namespaces/n{namespace}/workloads?");
        assert!(asked.iter().filter(|what| what.contains(&path)).count() >= 2, "{asked:?}");
    }
}
