use serde_json::Value;

use super::{
    fake::{client, job_object, list, pod_object, refusal, running, settings, task, terminated},
    *,
};
use engine::{
    ids::ReplicaName,
    record::{EventReason, EventRecord},
    time::Time,
};

/// An API server with these objects; watches stay silent.
fn server(jobs: Vec<Value>, pods: Vec<Value>) -> impl Fn(&str, &Value) -> Option<(u16, Value)> {
    move |what, _| {
        let here = what.contains("/namespaces/train/");
        match what {
            what if what.contains("/version") => fake::version(),
            what if what.contains("watch=") => None,
            what if what.contains("/nodes") => list(Vec::new()),
            what if what.contains("/pytorchjobs?") && here => list(jobs.clone()),
            what if what.contains("/pods?") && here => list(pods.clone()),
            what if what.contains('?') && what.starts_with("GET") => list(Vec::new()),
            _ => refusal(404, "NotFound", "not found"),
        }
    }
}

fn start(client: Client) -> (Arc<Kubernetes>, CancellationToken) {
    let stop = CancellationToken::new();
    (Kubernetes::with_client(client, settings(), &stop), stop)
}

/// What is observed once the lists are there.
async fn observed(cluster: &Arc<Kubernetes>, kind: JobKind) -> Observation {
    for _ in 0..500 {
        if let Ok(seen) = cluster.observe(&task(), kind, None).await {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}", cluster.observe(&task(), kind, None).await)
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_seen_with_the_first_lists_and_hinted_at() {
    let pods = vec![pod_object("master-0", "m-1", "n1", running())];
    let (client, _) = client(server(vec![job_object(1, &[("Running", "True", "runs")])], pods));
    let (cluster, stop) = start(client);
    assert!(
        cluster.world.health.blind(JobKind::PyTorchJob, "train", Instant::now()).is_some(),
        "nothing is known before"
    );
    let mut hints = cluster.hints().unwrap();
    assert!(cluster.hints().is_none(), "taken once");
    assert_eq!(hints.recv().await.unwrap(), task());
    let Observation::Placed { replicas } = observed(&cluster, JobKind::PyTorchJob).await else { panic!() };
    assert!(replicas.contains_key(&ReplicaName::new("master-0").unwrap()));
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), cluster.stopped()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn watches_show_what_was_made_before_there_were_several_clusters_and_nothing_of_another() {
    for (label, is_seen) in [(None, true), (Some("gpu-a"), false)] {
        let mut job = job_object(1, &[("Running", "True", "runs")]);
        let mut pod = pod_object("master-0", "m-1", "n1", running());
        for object in [&mut job, &mut pod] {
            let labels = object["metadata"]["labels"].as_object_mut().unwrap();
            match label {
                Some(cluster) => labels[names::CLUSTER] = cluster.into(),
                None => drop(labels.remove(names::CLUSTER)),
            }
        }
        let (client, _) = client(server(vec![job], vec![pod]));
        let (cluster, _stop) = start(client);
        let seen = observed(&cluster, JobKind::PyTorchJob).await;
        assert_eq!(matches!(seen, Observation::Placed { .. }), is_seen, "{label:?}: {seen:?}");
        assert_eq!(seen == Observation::Absent, !is_seen, "{label:?}: {seen:?}");
        assert_eq!(cluster.present().await.unwrap().len(), usize::from(is_seen), "{label:?}");
        assert_eq!(cluster.world.nodes().1.len(), usize::from(is_seen), "{label:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn absence_is_asked_for_and_not_concluded() {
    let (client, asked) = client(server(Vec::new(), Vec::new()));
    let (cluster, _stop) = start(client);
    assert_eq!(observed(&cluster, JobKind::PyTorchJob).await, Observation::Absent);
    let path = format!("/namespaces/train/pytorchjobs/{}", task());
    assert!(asked.lock().unwrap().iter().any(|(what, _)| what.contains(&path)), "{path}");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_was_taken_out_is_missing_for_the_jobs_that_are_in_it() {
    let (client, _) = client(|_, _| None);
    let (cluster, _stop) = start(client);
    let mut spec = fake::spec(1);
    for (namespace, want) in [(None, None), (Some("eval"), None), (Some("research"), Some("research"))] {
        spec.kubernetes.namespace = namespace.map(str::to_owned);
        assert_eq!(cluster.missing_namespace(&spec).as_deref(), want, "{namespace:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_seen_says_nothing_of_jobs_in_another() {
    let there = server(Vec::new(), Vec::new());
    let (client, asked) = client(move |what, body| match what {
        // It was deleted, and the right to look into it with it.
        what if what.contains("/namespaces/eval/") => refusal(403, "Forbidden", "forbidden"),
        what => there(what, body),
    });
    let (cluster, _stop) = start(client);
    let kind = JobKind::PyTorchJob;
    for namespace in [Some("train"), None] {
        assert_eq!(cluster.observe(&task(), kind, namespace).await.unwrap(), Observation::Absent);
        assert_eq!(cluster.delete(&task(), kind, namespace, true).await.unwrap(), None);
    }
    let told = |error| format!("{:#}", anyhow::Error::from(error));
    let error = told(cluster.observe(&task(), kind, Some("eval")).await.unwrap_err());
    assert!(error.contains("PyTorchJobs of namespace eval cannot be watched"), "{error}");
    assert!(cluster.delete(&task(), kind, Some("eval"), true).await.is_err());
    asked.lock().unwrap().clear();
    let error = told(cluster.observe(&task(), kind, Some("research")).await.unwrap_err());
    assert!(error.contains("namespace research is not one that jobs may use"), "{error}");
    assert!(cluster.delete(&task(), kind, Some("research"), true).await.is_err());
    assert!(asked.lock().unwrap().is_empty(), "nothing is concluded of it, and nothing asked");
    // Where it was seen it is, whatever its job names.
    cluster.world.set_job(fake::job(1, &[]));
    assert!(matches!(cluster.observe(&task(), kind, Some("eval")).await, Ok(Observation::Waiting(_))));
}

#[tokio::test(start_paused = true)]
async fn a_suspension_is_asked_for_before_pods_that_go_are_a_failure() {
    let mut pod = pod_object("master-0", "m-1", "n1", terminated("Failed", 143, "Error"));
    pod["metadata"]["deletionTimestamp"] = "2026-11-29T19:26:47Z".into();
    // What the watch of the jobs has shown so far.
    let shown = server(vec![job_object(1, &[("Running", "True", "runs")])], vec![pod]);
    let suspended = job_object(1, &[("Suspended", "True", "suspended")]);
    let (client, _) = client(move |what, body| match what {
        what if what.contains("/namespaces/train/pytorchjobs/") => Some((200, suspended.clone())),
        _ => shown(what, body),
    });
    let (cluster, _stop) = start(client);
    let seen = observed(&cluster, JobKind::PyTorchJob).await;
    assert!(matches!(seen, Observation::Suspended(_)), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_the_operator_says_what_to_install() {
    let (client, _) = client(|what, _| match what {
        what if what.contains("/pytorchjobs") => {
            refusal(404, "NotFound", "the server could not find the requested resource")
        }
        what if what.contains("/version") => fake::version(),
        what if what.contains("watch=") => None,
        _ => list(Vec::new()),
    });
    let (cluster, _stop) = start(client);
    for _ in 0..500 {
        let error =
            anyhow::Error::from(cluster.observe(&task(), JobKind::PyTorchJob, None).await.unwrap_err());
        let text = format!("{error:#}");
        if text.contains("install the Kubeflow training operator") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not say what is missing");
}

#[tokio::test(start_paused = true)]
async fn pytorchjobs_do_not_wait_for_kuberay_nor_rayjobs_for_the_training_operator() {
    for (absent, there) in [("/rayjobs", JobKind::PyTorchJob), ("/pytorchjobs", JobKind::RayJob)] {
        let (client, _) = client(move |what, _| match what {
            what if what.contains(absent) => refusal(404, "NotFound", "404 page not found"),
            what if what.contains("/rayjobs/") || what.contains("/pytorchjobs/") => {
                refusal(404, "NotFound", "not found")
            }
            what if what.contains("/version") => fake::version(),
            what if what.contains("watch=") => None,
            _ => list(Vec::new()),
        });
        let (cluster, _stop) = start(client);
        assert_eq!(observed(&cluster, there).await, Observation::Absent);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_is_asked_for_once_and_where_its_job_was() {
    let (client, asked) = client(server(Vec::new(), Vec::new()));
    let (cluster, _stop) = start(client);
    let event = EventRecord {
        at: Time(0),
        kind: EventReason::Resubmit.kind(),
        reason: Some(EventReason::Resubmit),
        task_id: Some(task()),
        by: "holdfast".to_owned(),
        text: "It is resubmitted.".to_owned(),
    };
    let namespace = Some("eval".to_owned());
    let note = Note { task_id: task(), kind: JobKind::PyTorchJob, namespace, place: (12, 3), event };
    for _ in 0..3 {
        let gone = Place { namespace: "eval".to_owned(), uid: None };
        assert_eq!(cluster.place(&note).await.unwrap(), gone);
    }
    let path = format!("/pytorchjobs/{}", task());
    let asked: Vec<_> = asked.lock().unwrap().iter().map(|(what, _)| what.clone()).collect();
    let [one] = asked.iter().filter(|what| what.contains(&path)).collect::<Vec<_>>()[..] else {
        panic!("{asked:?}")
    };
    assert!(one.contains("/namespaces/eval/"), "{one}");
    cluster.world.set_job(fake::job(1, &[]));
    let seen = cluster.place(&note).await.unwrap();
    assert_eq!((seen.namespace.as_str(), seen.uid.as_deref()), ("train", Some("job-1")));
}

#[tokio::test(start_paused = true)]
async fn files_of_a_job_go_when_its_attempts_have_gone() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("jobs/jabcdefghij2/a");
    std::fs::create_dir_all(&files).unwrap();
    let (client, _) = client(|_, _| None);
    let settings = KubernetesSettings { data_dir: dir.path().to_owned(), ..settings() };
    let cluster = Kubernetes::with_client(client, settings, &CancellationToken::new());
    let (job, spec) = (JobId::new("jabcdefghij2").unwrap(), fake::spec(1));
    cluster.world.set_job(fake::job(1, &[]));
    cluster.forget(&job, &spec, &[task()]).await.unwrap_err();
    cluster.world.remove_job(&task(), "job-1");
    for _ in 0..2 {
        cluster.forget(&job, &spec, &[task()]).await.unwrap();
        assert!(!files.exists());
    }
}
