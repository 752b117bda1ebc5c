use engine::job::{Manifest, PodOptions, SecretVariable, Volume};
use serde_json::json;

use super::*;
use crate::clusters::kubernetes::fake::{ray_spec, settings, spec};

fn volume(mount_path: &str, source: VolumeSource) -> Volume {
    Volume { mount_path: mount_path.to_owned(), source, read_only: false }
}

fn named(wants: &Wants) -> Vec<(Kind, &str, &str)> {
    wants.named.iter().map(|one| (one.kind, one.name.as_str(), one.field.as_str())).collect()
}

#[test]
fn what_fields_name_is_found_at_them() {
    let options = PodOptions {
        cpu: Some("4".to_owned()),
        memory: Some("1Gi".to_owned()),
        secrets: vec![SecretVariable {
            name: "K".to_owned(),
            secret: "keys".to_owned(),
            key: "k".to_owned(),
        }],
        volumes: vec![
            volume("/scratch", VolumeSource::Secret("certificates".to_owned())),
            volume("/data", VolumeSource::Claim("data".to_owned())),
            volume("/conf", VolumeSource::ConfigMap("conf".to_owned())),
        ],
        priority_class: Some("high".to_owned()),
        service_account: Some("trainer".to_owned()),
        pull_secrets: vec!["registry".to_owned()],
        labels: [(QUEUE.to_owned(), "team-a".to_owned())].into(),
        ..PodOptions::default()
    };
    let spec = JobSpec { kubernetes: options, accelerators_per_replica: 8, ..spec(3) };
    let wants = of(&spec, &settings()).unwrap();
    assert_eq!(
        named(&wants),
        [
            (Kind::Queue, "team-a", "kubernetes.labels"),
            (Kind::Claim, "data", "kubernetes.volumes[1].source"),
            (Kind::ConfigMap, "conf", "kubernetes.volumes[2].source"),
            (Kind::ServiceAccount, "trainer", "kubernetes.service_account"),
            (Kind::PriorityClass, "high", "kubernetes.priority_class"),
        ]
    );
    assert_eq!(
        wants.secrets.iter().map(String::as_str).collect::<Vec<_>>(),
        ["certificates", "keys", "registry"]
    );
    let parts: Vec<_> = wants.parts.iter().map(|part| (part.name.as_str(), part.replicas)).collect();
    assert_eq!(parts, [("master", 1), ("worker", 2)]);
    let want = [("cpu", 4.0), ("memory", 1_073_741_824.0), ("nvidia.com/gpu", 8.0)];
    for part in &wants.parts {
        assert_eq!(part.asked.requests, want.map(|(name, amount)| (name.to_owned(), amount)).into());
        assert_eq!((part.asked.requests == part.asked.limits, part.asked.unsaid.is_empty()), (true, true));
    }
}

#[test]
fn what_a_job_leaves_to_the_cluster_is_known() {
    let wants = of(&spec(1), &settings()).unwrap();
    assert_eq!(named(&wants), []);
    let unsaid: Vec<_> = wants.parts[0].asked.unsaid.iter().copied().collect();
    assert_eq!(unsaid, ["limits.cpu", "limits.memory", "requests.cpu", "requests.memory"]);
    // The agent's init container has its own.
    assert_eq!(wants.parts[0].asked.requests["cpu"], 0.05);
}

#[test]
fn a_ray_cluster_has_a_head_and_workers() {
    let wants = of(&ray_spec(3), &settings()).unwrap();
    let parts: Vec<_> = wants.parts.iter().map(|part| (part.name.as_str(), part.replicas)).collect();
    assert_eq!(parts, [("head", 1), ("worker", 2)]);
}

#[test]
fn every_group_of_a_pasted_ray_cluster_counts_with_the_pods_that_kuberay_makes_at_first() {
    let pod = |cpu: &str, claim: &str| {
        json!({ "spec": {
            "containers": [{ "name": "ray", "image": "a", "resources": { "requests": { "cpu": cpu } } }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
        } })
    };
    let manifest = json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": { "name": "demo" },
        "spec": { "entrypoint": "python a.py", "rayClusterSpec": {
            "headGroupSpec": { "rayStartParams": {}, "template": pod("1", "runs") },
            "workerGroupSpecs": [
                { "groupName": "small", "replicas": 3, "template": pod("2", "runs") },
                { "groupName": "large", "minReplicas": 2, "numOfHosts": 2, "template": pod("8", "big") },
            ],
        } },
    });
    let options = PodOptions { manifest: Some(Manifest::from(manifest)), ..PodOptions::default() };
    let wants = of(&JobSpec { kubernetes: options, ..ray_spec(8) }, &settings()).unwrap();
    let cpus = |part: &Part| (part.name.clone(), part.replicas, part.asked.requests["cpu"]);
    assert_eq!(
        wants.parts.iter().map(cpus).collect::<Vec<_>>(),
        [
            ("head".to_owned(), 1, 1.0),
            ("worker of group small".to_owned(), 3, 2.0),
            ("worker of group large".to_owned(), 4, 8.0),
        ]
    );
    let group = "kubernetes.manifest.spec.rayClusterSpec.workerGroupSpecs[1].template.spec";
    let place = format!("{group}.volumes[0].persistentVolumeClaim.claimName");
    assert!(named(&wants).contains(&(Kind::Claim, "big", place.as_str())), "{:?}", wants.named);
}

#[test]
fn a_queue_is_found_at_the_field_that_names_it() {
    let options = PodOptions { kueue_queue: Some("team-a".to_owned()), ..PodOptions::default() };
    let wants = of(&JobSpec { kubernetes: options, ..spec(1) }, &settings()).unwrap();
    assert_eq!(named(&wants), [(Kind::Queue, "team-a", "kubernetes.kueue_queue")]);
}

#[test]
fn what_a_manifest_names_is_found_at_its_place() {
    let pod = json!({
        "serviceAccountName": "trainer",
        "containers": [{
            "name": "pytorch", "image": "a", "command": ["b"],
            "envFrom": [{ "configMapRef": { "name": "more", "optional": true } }, { "configMapRef": { "name": "env" } }],
            "resources": { "limits": { "cpu": 2 } },
        }, { "name": "sidecar", "resources": { "requests": { "cpu": "500m" } } }],
        "initContainers": [{ "name": "before", "resources": { "requests": { "cpu": "9" } } }],
        "volumes": [
            { "name": "a", "emptyDir": {} },
            { "name": "b", "persistentVolumeClaim": { "claimName": "data" } },
            { "name": "c", "projected": { "sources": [{ "secret": { "name": "keys" } }] } },
        ],
    });
    let manifest = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": { "name": "demo", "labels": { QUEUE: "team-a" } },
        "spec": { "pytorchReplicaSpecs": { "Master": { "template": { "spec": pod } }, "Worker": { "replicas": 7, "template": { "spec": pod } } } },
    });
    let options = PodOptions { manifest: Some(Manifest::from(manifest)), ..PodOptions::default() };
    let wants = of(&JobSpec { kubernetes: options, ..spec(8) }, &settings()).unwrap();
    let master = "kubernetes.manifest.spec.pytorchReplicaSpecs.Master.template.spec";
    let fields: Vec<_> = named(&wants).into_iter().map(|(_, name, field)| (name, field.to_owned())).collect();
    assert_eq!(
        fields,
        [
            ("team-a", format!("kubernetes.manifest.metadata.labels.{QUEUE}")),
            ("data", format!("{master}.volumes[1].persistentVolumeClaim.claimName")),
            ("env", format!("{master}.containers[0].envFrom[1].configMapRef")),
            ("trainer", format!("{master}.serviceAccountName")),
        ]
    );
    assert!(wants.secrets.contains("keys"));
    assert_eq!(wants.parts.iter().map(|part| part.replicas).collect::<Vec<_>>(), [1, 7]);
    assert_eq!(wants.parts[0].asked.requests["cpu"], 9.0, "what runs before has its own time");
}

#[test]
fn a_pod_that_cannot_be_read_here_is_not_refused() {
    let manifest = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": { "name": "demo" },
        "spec": { "pytorchReplicaSpecs": { "Master": { "template": { "spec": {
            "containers": [{ "name": "pytorch", "image": "a", "command": ["b"], "tty": "later" }],
        } } } } },
    });
    let options = PodOptions { manifest: Some(Manifest::from(manifest)), ..PodOptions::default() };
    let finding = of(&JobSpec { kubernetes: options, ..spec(1) }, &settings()).unwrap_err();
    assert_eq!((finding.field, finding.fit), (None, Fit::NotChecked));
}
