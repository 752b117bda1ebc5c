use engine::job::{Manifest, PodOptions, Volume, VolumeSource};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::clusters::kubernetes::{
    fake::{self, client, list, refusal, settings},
    health::Watched,
};

/// A world that has seen one node of 8 GPUs.
fn world() -> World {
    let world = World::new(mpsc::channel(16).0);
    let (name, node) = fake::node("n1", "True", None);
    world.set_node(name, node);
    world.health.heard(&Watched::Nodes, true);
    world
}

fn questions() -> Semaphore {
    Semaphore::new(QUESTIONS)
}

fn spec() -> JobSpec {
    let source = VolumeSource::Claim("data".to_owned());
    let kubernetes = PodOptions {
        volumes: vec![Volume { mount_path: "/data".to_owned(), source, read_only: false }],
        priority_class: Some("high".to_owned()),
        service_account: Some("trainer".to_owned()),
        pull_secrets: vec!["registry".to_owned()],
        labels: [("kueue.x-k8s.io/queue-name".to_owned(), "team-a".to_owned())].into(),
        ..PodOptions::default()
    };
    JobSpec { kubernetes, ..fake::spec(2) }
}

/// What is found where the API server answers so, as `fit text`.
async fn found(
    spec: &JobSpec,
    answer: impl Fn(&str) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> Vec<String> {
    let (client, _) = client(move |what, _| answer(what));
    let hands = Hands { client, settings: settings() };
    let findings = job(&hands, &world(), &questions(), spec).await;
    findings
        .iter()
        .map(|one| format!("{:?} {} {}", one.fit, one.field.as_deref().unwrap_or("-"), one.text))
        .collect()
}

/// All that the job names is there.
fn all_there(what: &str) -> Option<(u16, Value)> {
    let object = |more: Value| {
        let mut object = json!({ "apiVersion": "v1", "kind": "Any", "metadata": { "name": "any" } });
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Some((200, object))
    };
    match what {
        what if what.contains("/resourcequotas") => list(Vec::new()),
        "GET /apis/kueue.x-k8s.io" => {
            let version = json!({ "groupVersion": "kueue.x-k8s.io/v1beta2", "version": "v1beta2" });
            Some((
                200,
                json!({ "kind": "APIGroup", "apiVersion": "v1", "name": "kueue.x-k8s.io", "versions": [version], "preferredVersion": version }),
            ))
        }
        what if what.contains("/persistentvolumeclaims/") => {
            object(json!({ "kind": "PersistentVolumeClaim", "spec": { "accessModes": ["ReadWriteMany"] } }))
        }
        _ => object(json!({})),
    }
}

#[tokio::test]
async fn what_is_there_is_said_and_secrets_are_not_asked_for() {
    let (client, asked) = client(|what, _| all_there(what));
    let hands = Hands { client, settings: settings() };
    let findings = job(&hands, &world(), &questions(), &spec()).await;
    let fits: Vec<_> = findings.iter().map(|one| one.fit).collect();
    let unasked = [Fit::NotChecked; 2];
    assert_eq!(fits, [&unasked[..], &[Fit::Ok; 5]].concat(), "{findings:?}");
    assert!(findings[0].text.starts_with("Secret registry was not checked"), "{findings:?}");
    let image = "Image registry.example/train:1 was not checked: only nodes pull images, when pods start. The attempt says so where that fails.";
    assert_eq!(findings[1].text, image);
    assert!(findings.last().unwrap().text.contains("All 2 replicas fit now"), "{findings:?}");
    let asked: Vec<_> = asked.lock().unwrap().iter().map(|(what, _)| what.clone()).collect();
    assert!(asked.iter().all(|what| what.starts_with("GET ") && !what.contains("/secrets")), "{asked:?}");
    let queue = "/apis/kueue.x-k8s.io/v1beta2/namespaces/train/localqueues/team-a";
    assert!(asked.iter().any(|what| what.contains(queue)), "{asked:?}");
}

#[tokio::test]
async fn what_is_named_and_not_there_refuses_the_job_at_its_field() {
    let found = found(&spec(), |what| match what {
        what if what.contains("data")
            || what.contains("high")
            || what.contains("trainer")
            || what.contains("team-a") =>
        {
            refusal(404, "NotFound", "not found")
        }
        what => all_there(what),
    })
    .await;
    let want = [
        "Never kubernetes.labels is not there: namespace train has no LocalQueue team-a; make it first, or name another",
        "Never kubernetes.volumes[0].source is not there: namespace train has no PersistentVolumeClaim data; make it first, or name another",
        "Never kubernetes.service_account is not there: namespace train has no ServiceAccount trainer; make it first, or name another",
        "Never kubernetes.priority_class is not there: the cluster has no PriorityClass high; make it first, or name another",
    ];
    assert_eq!(found[..4], want);
}

#[tokio::test]
async fn what_may_not_be_asked_is_no_error() {
    let found = found(&spec(), |_| refusal(403, "Forbidden", "no")).await;
    assert!(found.iter().all(|one| one.starts_with("NotChecked") || one.starts_with("Ok")), "{found:?}");
    assert!(
        found.iter().any(|one| one
            .ends_with("ServiceAccount trainer was not checked: Holdfast's account may not ask for it.")),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_namespace_that_is_not_there_says_all() {
    let found = found(&spec(), |what| match what {
        "GET /api/v1/namespaces/train" => refusal(404, "NotFound", "not found"),
        what => all_there(what),
    })
    .await;
    assert_eq!(
        found,
        [
            "Never kubernetes.namespace is not there: the cluster has no namespace train; make it, or name another"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_answer_is_waited_for_so_long_in_all() {
    let (client, asked) = client(|_, _| None);
    let hands = Hands { client, settings: settings() };
    let volumes = (0..30).map(|n| Volume {
        mount_path: format!("/data-{n}"),
        source: VolumeSource::Claim(format!("data-{n}")),
        read_only: false,
    });
    let kubernetes = PodOptions { volumes: volumes.collect(), ..PodOptions::default() };
    let spec = JobSpec { kubernetes, ..fake::spec(2) };
    let began = Instant::now();
    let found = job(&hands, &world(), &questions(), &spec).await;
    assert_eq!(began.elapsed().as_secs(), WHOLE.as_secs());
    let unanswered = found.iter().filter(|one| one.fit == Fit::NotChecked).count();
    assert_eq!((unanswered, found.len()), (32, 33), "{found:?}");
    // Those that had to wait for room were not begun, or at once given up.
    assert!(asked.lock().unwrap().iter().all(|(what, _)| what.starts_with("GET ")));
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_among_the_questions_of_others_is_not_asked() {
    let (client, asked) = client(|what, _| all_there(what));
    let hands = Hands { client, settings: settings() };
    let found = job(&hands, &world(), &Semaphore::new(0), &spec()).await;
    assert!(asked.lock().unwrap().is_empty());
    let unanswered = found.iter().filter(|one| one.fit == Fit::NotChecked).count();
    assert_eq!((unanswered, found.len()), (7, 8), "{found:?}");
    // One place is enough for one job.
    let one = Semaphore::new(1);
    let found = job(&hands, &world(), &one, &spec()).await;
    assert!(found.iter().filter(|one| one.fit == Fit::Ok).count() == 5, "{found:?}");
    assert_eq!(one.available_permits(), 1);
}

#[tokio::test]
async fn a_cluster_that_is_known_to_be_away_is_not_asked() {
    let (client, asked) = client(|_, _| None);
    let world = world();
    world.health.failed(&Watched::Server, "no route to host", Instant::now());
    let findings = job(&Hands { client, settings: settings() }, &world, &questions(), &spec()).await;
    assert_eq!((findings.len(), findings[0].fit), (1, Fit::NotChecked));
    assert!(findings[0].text.contains("no route to host"), "{findings:?}");
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_claim_is_looked_at_for_who_can_have_it() {
    for (mode, replicas, want) in [
        ("ReadWriteOnce", 2, "Later"),
        ("ReadWriteOnce", 1, "Ok"),
        ("ReadWriteOncePod", 2, "Never"),
        ("ReadWriteMany", 2, "Ok"),
    ] {
        let spec = JobSpec { replicas, ..spec() };
        let found = found(&spec, move |what| match what {
            what if what.contains("/persistentvolumeclaims/") => {
                Some((200, json!({ "metadata": { "name": "data" }, "spec": { "accessModes": [mode] } })))
            }
            what => all_there(what),
        })
        .await;
        let of_claim = found.iter().find(|one| one.contains("kubernetes.volumes[0].source")).unwrap();
        assert!(of_claim.starts_with(want), "{mode} {replicas}: {of_claim}");
    }
}

#[tokio::test]
async fn a_claim_that_one_pod_can_have_is_no_trouble_where_one_pod_mounts_it() {
    let pod = |claims: &[&str]| {
        let volumes: Vec<_> = claims
            .iter()
            .map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } }))
            .collect();
        json!({ "spec": { "containers": [{ "name": "ray", "image": "a" }], "volumes": volumes } })
    };
    let manifest = json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": { "name": "demo" },
        "spec": { "entrypoint": "python a.py", "rayClusterSpec": {
            "headGroupSpec": { "rayStartParams": {}, "template": pod(&["of-head"]) },
            "workerGroupSpecs": [{ "groupName": "w", "replicas": 2, "template": pod(&["of-workers"]) }],
        } },
    });
    let kubernetes = PodOptions { manifest: Some(Manifest::from(manifest)), ..PodOptions::default() };
    let spec = JobSpec { kubernetes, ..fake::ray_spec(3) };
    for (mode, of_workers) in [("ReadWriteOncePod", "Never"), ("ReadWriteOnce", "Later")] {
        let found = found(&spec, move |what| match what {
            what if what.contains("/persistentvolumeclaims/") => {
                Some((200, json!({ "metadata": { "name": "any" }, "spec": { "accessModes": [mode] } })))
            }
            what => all_there(what),
        })
        .await;
        let of = |name: &str| found.iter().find(|one| one.contains(name)).unwrap();
        assert!(of("of-head").starts_with("Ok"), "{found:?}");
        assert!(of("of-workers").starts_with(of_workers), "{found:?}");
    }
}

#[tokio::test]
async fn a_queue_is_asked_for_where_there_are_queues() {
    let spec = spec();
    let of_queue = |found: Vec<String>| found.into_iter().find(|one| one.contains("LocalQueue")).unwrap();
    let without = found(&spec, |what| match what {
        what if what.contains("kueue") => refusal(404, "NotFound", "404 page not found"),
        what => all_there(what),
    });
    assert!(of_queue(without.await).ends_with("the cluster does not know Kueue."));
    let stopped = found(&spec, |what| match what {
        what if what.contains("localqueues") => Some((
            200,
            json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": { "name": "team-a" },
                "status": { "conditions": [{ "type": "Active", "status": "False", "message": "ClusterQueue is stopped" }] } }),
        )),
        what => all_there(what),
    });
    assert_eq!(
        of_queue(stopped.await),
        "Later kubernetes.labels LocalQueue team-a takes no jobs now: ClusterQueue is stopped"
    );
}
