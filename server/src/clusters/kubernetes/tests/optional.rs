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

#[tokio::test]
async fn nothing_is_watched_that_the_cluster_does_not_serve() {
    let (client, asked) = client(|what, _| match what {
        what if what.ends_with("/apis/kueue.x-k8s.io/v1beta2") => {
            resources("kueue.x-k8s.io/v1beta2", &[("workloads", "Workload")])
        }
        what if what.contains("watch=") => None,
        what if what.contains("/workloads?") => list(vec![workload("w-1")]),
        _ => refusal(404, "NotFound", "the server could not find the requested resource"),
    });
    let (hint, mut hints) = mpsc::channel(16);
    let (world, stop, tasks) = (Arc::new(World::new(hint)), CancellationToken::new(), TaskTracker::new());
    world.set_job(job(1, &[]));
    hints.recv().await.unwrap();
    let lists = Arc::new(Semaphore::new(1));
    let keeper = || Keeper {
        world: Arc::clone(&world),
        stop: stop.clone(),
        tasks: tasks.clone(),
        lists: Arc::clone(&lists),
    };
    begin(&client, &settings(), &watcher::Config::default(), keeper);
    hints.recv().await.unwrap();
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    let asked = asked.lock().unwrap();
    assert!(
        asked.iter().any(|(what, _)| what.contains("labelSelector=kueue.x-k8s.io%2Fjob-uid")),
        "{asked:?}"
    );
    assert!(
        asked.iter().all(|(what, _)| !what.contains("podgroups") && !what.contains("/queues?")),
        "{asked:?}"
    );
}
