//! Jobs that queueing systems hold. The test plays Kueue and Volcano: it keeps their objects through a real API server, and does to jobs
//! and pods what they do.

use std::process::Command;

use serde_json::{Value, json};

use crate::{
    harness::World,
    jobs::{incidents, last_step, steps_of},
};

/// Definitions of foreign objects, as far as a server needs them to keep anything; they go with the test.
struct Definitions(Vec<String>);

impl Definitions {
    /// `kinds`: plural, kind, scope.
    fn install(world: &World, group: &str, versions: &[&str], kinds: &[(&str, &str, &str)]) -> Self {
        let mut names = Vec::new();
        for (plural, kind, scope) in kinds {
            let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
            let version = |(at, name): (usize, &&str)| {
                json!({
                    "name": name,
                    "served": true,
                    "storage": at == 0,
                    "schema": { "openAPIV3Schema": schema },
                    "subresources": { "status": {} },
                })
            };
            let name = format!("{plural}.{group}");
            world.create(&json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": { "name": name },
                "spec": {
                    "group": group,
                    "scope": scope,
                    "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind },
                    "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
                },
            }));
            world.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &format!("crd/{name}")]);
            names.push(name);
        }
        Self(names)
    }
}

impl Drop for Definitions {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("kubectl").args(["delete", "crd", name]).output();
        }
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let at = "2026-11-30T04:00:00Z";
    json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at })
}

/// Replaces the conditions of an object, as its system would.
fn set_status(world: &World, object: &str, status: &Value) {
    let patch = json!({ "status": status }).to_string();
    let namespace = world.namespace();
    world.kubectl(&["-n", namespace, "patch", object, "--subresource=status", "--type=merge", "-p", &patch]);
}

fn suspend(world: &World, task: &str, suspended: bool) {
    let patch = json!({ "spec": { "runPolicy": { "suspend": suspended } } }).to_string();
    let (namespace, job) = (world.namespace(), format!("pytorchjob/{task}"));
    world.kubectl(&["-n", namespace, "patch", &job, "--type=merge", "-p", &patch]);
}

/// A PyTorchJob in a queue of Kueue, which suspends it from the beginning.
fn suspended_manifest(shared: &str) -> Value {
    let command = json!([
        "python3",
        format!("{shared}/train.py"),
        "--steps",
        "200",
        "--checkpoint-dir",
        format!("{shared}/checkpoints"),
    ]);
    let container = json!({
        "name": "pytorch",
        "image": "localhost/train:1",
        "imagePullPolicy": "Never",
        "command": command,
        "volumeMounts": [{ "name": "shared", "mountPath": shared }],
    });
    let volumes = json!([{ "name": "shared", "hostPath": { "path": shared } }]);
    let replica = json!({
        "replicas": 1,
        "restartPolicy": "Never",
        "template": { "spec": { "containers": [container], "volumes": volumes } },
    });
    json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": { "name": "held", "labels": { "kueue.x-k8s.io/queue-name": "team-a" } },
        "spec": {
            "runPolicy": { "suspend": true },
            "pytorchReplicaSpecs": { "Master": replica, "Worker": replica },
        },
    })
}

/// Waits until the newest attempt waits for this reason, with these words.
async fn until_waits(world: &World, job: &str, reason: &str, words: &str) -> Value {
    let is_told = |chain: &Value| {
        let queue = &chain["attempts"].as_array().unwrap().last().unwrap()["queue"];
        queue["reason"] == reason && queue["text"].as_str().is_some_and(|text| text.contains(words))
    };
    world.until(job, &format!("waiting: {reason}, {words}"), is_told).await
}

#[tokio::test]
async fn a_job_that_kueue_takes_back_queues_again_as_itself_and_goes_on() {
    let Some(world) = World::start("kueue").await else { return };
    let shared = world.shared.to_str().unwrap();
    let body = json!({
        "manifest": suspended_manifest(shared),
        "checkpoint_dir": format!("{shared}/checkpoints"),
        "fault_tolerance": { "auto_failover": true, "max_task_restarts": 1, "policy": { "enabled": true } },
    });
    let job = world.post("/jobs:import", &body).await["job_id"].as_str().unwrap().to_owned();
    let task = format!("held-{job}-1");
    until_waits(&world, &job, "suspended", "until Kueue admits it in LocalQueue team-a").await;

    // Kueue is installed while the server runs.
    let definitions = Definitions::install(
        &world,
        "kueue.x-k8s.io",
        &["v1beta2", "v1beta1"],
        &[("workloads", "Workload", "Namespaced")],
    );
    let uid = world.get(&format!("pytorchjob/{task}"), "{.metadata.uid}");
    world.create(&json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": { "name": "pytorchjob-held", "labels": { "kueue.x-k8s.io/job-uid": uid } },
        "spec": { "queueName": "team-a", "active": true, "podSets": [] },
    }));
    let says = |status: Value| set_status(&world, "workload.kueue.x-k8s.io/pytorchjob-held", &status);
    let pending = |message: &str| condition("QuotaReserved", "False", "Pending", message);
    let never = "couldn't assign flavors to pod set master: insufficient quota for nvidia.com/gpu in flavor a, request > maximum capacity (16 > 8)";
    let unused = "couldn't assign flavors to pod set master: insufficient unused quota for nvidia.com/gpu in flavor a, 4 more needed";
    says(json!({ "conditions": [pending(never)] }));
    let chain = until_waits(&world, &job, "quota_too_small", never).await;
    assert_eq!(chain["substate"], "unschedulable", "{chain:#}");
    says(json!({ "conditions": [pending(unused)] }));
    let chain = until_waits(&world, &job, "quota", unused).await;
    assert_eq!((&chain["state"], &chain["substate"]), (&json!("queued"), &Value::Null), "{chain:#}");
    let page = world.page(&format!("/jobs/{job}/fault-tolerance")).await;
    for words in ["Why still queued", "a quota is used up", "insufficient unused quota for nvidia.com/gpu"] {
        assert!(page.contains(words), "{words} is not in {page}");
    }

    let admitted = [
        condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue a"),
        condition("Admitted", "True", "Admitted", "The workload is admitted"),
    ];
    says(json!({ "conditions": admitted }));
    suspend(&world, &task, false);
    let saved = |chain: &Value| steps_of(chain, 0, 0) && last_step(chain) >= Some(40);
    world.until(&job, "training", saved).await;
    let pods = world.get("pods", "{.items[*].metadata.uid}");

    let preempted =
        "Preempted to accommodate a workload (UID: 7, JobUID: 8) due to prioritization in the ClusterQueue";
    let evicted = [
        pending(preempted),
        condition("Admitted", "False", "NoReservation", "The workload has no reservation"),
        condition("Evicted", "True", "Preempted", preempted),
        condition("Preempted", "True", "InClusterQueue", preempted),
    ];
    says(json!({ "conditions": evicted }));
    suspend(&world, &task, true);
    let chain = until_waits(&world, &job, "requeued", "Preempted, InClusterQueue").await;
    assert_eq!((&chain["state"], &chain["attempts_total"]), (&json!("queued"), &json!(1)), "{chain:#}");
    let namespace = world.namespace();
    world.until_answer(&["-n", namespace, "get", "pods", "-o", "name"], str::is_empty).await;

    says(json!({ "conditions": admitted }));
    suspend(&world, &task, false);
    world.until(&job, "training again", |chain| steps_of(chain, 0, 1)).await;
    assert_ne!(world.get("pods", "{.items[*].metadata.uid}"), pods, "they are others");
    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    let attempt = &chain["attempts"][0];
    assert!(incidents(attempt).is_empty(), "{attempt:#}");
    for budget in ["task_restarts", "in_place_restarts"] {
        assert_eq!(chain["budgets"][budget]["used"], 0, "{chain:#}");
    }
    let launches = attempt["launches"].as_array().unwrap();
    assert_eq!(launches.len(), 2, "{attempt:#}");
    assert_eq!(
        (&launches[1]["cause"], &launches[1]["proof"]["verdict"]),
        (&json!("requeue"), &json!("resumed"))
    );
    assert_eq!(launches[1]["steps"]["last"], 200, "{attempt:#}");
    world.until_nothing_is_left().await;
    // What the pods before printed is kept beside what the later ones did.
    for (launch, words) in [(0, "step"), (1, "done")] {
        let path = format!("/tasks/{task}/logs?replica=master-0&launch={launch}&tail=50");
        let log = world.read(&path).await.to_string();
        assert!(log.contains(words), "{log}");
    }
    drop(definitions);
}

#[tokio::test]
async fn a_job_that_volcano_holds_waits_with_its_words_until_its_pods_are_bound() {
    let Some(world) = World::start("volcano").await else { return };
    let kinds = [("podgroups", "PodGroup", "Namespaced"), ("queues", "Queue", "Cluster")];
    let definitions = Definitions::install(&world, "scheduling.volcano.sh", &["v1beta1"], &kinds);
    let shared = world.shared.to_str().unwrap();
    let volumes = json!([{ "mount_path": shared, "source": { "host_path": shared } }]);
    let options = json!({ "volumes": volumes, "volcano_queue": "research" });
    let job = world.train("gang", 20, &[], json!({ "kubernetes": options })).await;
    let task = format!("gang-{job}-1");
    let pods = ["master-0", "worker-0"].map(|replica| format!("{task}-{replica}"));
    for pod in &pods {
        let scheduler = ["-n", world.namespace(), "get", "pod", pod, "-o", "jsonpath={.spec.schedulerName}"];
        world.until_answer(&scheduler, |said| said == "volcano").await;
    }
    assert_eq!(
        world.get(&format!("pytorchjob/{task}"), "{.spec.runPolicy.schedulingPolicy.queue}"),
        "research"
    );

    let uid = world.get(&format!("pytorchjob/{task}"), "{.metadata.uid}");
    let owner = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": task, "uid": uid, "controller": true,
    });
    let api = "scheduling.volcano.sh/v1beta1";
    world.create(
        &json!({ "apiVersion": api, "kind": "Queue", "metadata": { "name": "research" }, "spec": {} }),
    );
    world.create(&json!({
        "apiVersion": api,
        "kind": "PodGroup",
        "metadata": { "name": task, "ownerReferences": [owner] },
        "spec": { "minMember": 2, "queue": "research" },
    }));
    let group = format!("podgroup.scheduling.volcano.sh/{task}");
    set_status(&world, &group, &json!({ "phase": "Pending" }));
    until_waits(&world, &job, "gang", "has not let it into queue research").await;
    set_status(&world, "queue.scheduling.volcano.sh/research", &json!({ "state": "Closed" }));
    until_waits(&world, &job, "inadmissible", "queue research is Closed").await;
    let message = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable";
    let short = condition("Unschedulable", "True", "NotEnoughResources", message);
    set_status(&world, &group, &json!({ "phase": "Inqueue", "conditions": [short] }));
    until_waits(&world, &job, "gang", message).await;

    set_status(&world, &group, &json!({ "phase": "Running" }));
    for pod in &pods {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1" });
        let binding =
            json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod }, "target": node });
        world.create(&binding);
    }
    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    world.until_nothing_is_left().await;
    world.kubectl(&["delete", "queue.scheduling.volcano.sh", "research"]);
    drop(definitions);
}

#[tokio::test]
async fn a_volume_that_is_not_there_yet_is_told_in_the_clusters_words_until_it_is() {
    let Some(world) = World::start("volume").await else { return };
    let shared = world.shared.to_str().unwrap();
    let with = |source: Value| {
        let volumes = json!([
            { "mount_path": shared, "source": { "host_path": shared } },
            { "mount_path": "/data", "source": source },
        ]);
        json!({ "replicas": 1, "kubernetes": { "volumes": volumes } })
    };
    // Nobody makes volumes here.
    world.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "unbound" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } },
    }));
    let job = world.train("unclaimed", 20, &[], with(json!({ "claim": "unbound" }))).await;
    until_waits(&world, &job, "constraints", "unbound immediate PersistentVolumeClaims").await;
    world.post(&format!("/jobs/{job}/stop"), &json!({})).await;
    world.until_state(&job, "stopped").await;

    let job = world.train("unkept", 20, &[], with(json!({ "secret": "absent" }))).await;
    let chain = until_waits(&world, &job, "blocked", "secret \"absent\" not found").await;
    let text = chain["attempts"][0]["queue"]["text"].as_str().unwrap();
    assert!(text.starts_with("master-0: FailedMount"), "{text}");
    world.create(&json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "absent" }, "stringData": { "a": "b" } }));
    let chain = world.until_state(&job, "succeeded").await;
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    assert!(incidents(&chain["attempts"][0]).is_empty(), "{chain:#}");
    world.kubectl(&["-n", world.namespace(), "delete", "secret", "absent"]);
    world.until_nothing_is_left().await;
}
