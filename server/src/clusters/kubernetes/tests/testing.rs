use engine::job::{SecretVariable, Volume, VolumeSource};
use serde_json::json;

use super::*;
use crate::clusters::kubernetes::{
    fake::{node, order, ray_spec, settings, spec},
    manifest,
};

/// A job that names whatever leads its pods to nodes, and what only its program needs.
fn job() -> JobSpec {
    let mut job = spec(2);
    job.accelerators_per_replica = 4;
    job.kubernetes = PodOptions {
        namespace: Some("eval".to_owned()),
        cpu: Some("16".to_owned()),
        memory: Some("64Gi".to_owned()),
        shm_size: Some("8Gi".to_owned()),
        secrets: vec![SecretVariable { name: "A".to_owned(), secret: "b".to_owned(), key: "c".to_owned() }],
        volumes: vec![Volume {
            mount_path: "/data".to_owned(),
            source: VolumeSource::Claim("data".to_owned()),
            read_only: false,
        }],
        node_selector: [("pool".to_owned(), "gpu".to_owned())].into(),
        tolerations: vec![Toleration { key: Some("gpu".to_owned()), ..Toleration::default() }],
        priority_class: Some("high".to_owned()),
        service_account: Some("trainer".to_owned()),
        pull_secrets: vec!["registry".to_owned()],
        labels: [("team".to_owned(), "vision".to_owned()), (KUEUE_PRIORITY.to_owned(), "high".to_owned())]
            .into(),
        ..PodOptions::default()
    };
    job
}

#[test]
fn the_built_in_test_has_the_jobs_ways_to_its_nodes_and_nothing_of_its_program() {
    let job = job();
    let tests = of(&job, &settings(), false).unwrap();
    assert_eq!((tests.image, tests.accelerators), (job.image.clone(), 4));
    let wanted = PodOptions {
        shm_size: None,
        secrets: Vec::new(),
        volumes: Vec::new(),
        node_selector: BTreeMap::new(),
        priority_class: None,
        labels: [("team".to_owned(), "vision".to_owned())].into(),
        ..job.kubernetes
    };
    assert_eq!(tests.pods, wanted);
}

#[test]
fn a_command_of_ones_own_has_the_programs_volumes_too_and_kueue_its_selector() {
    let mut job = job();
    job.kubernetes.kueue_queue = Some("team".to_owned());
    // What is kept of all of it is not how urgent it is.
    job.kubernetes.priority_class = None;
    job.kubernetes.labels.remove(KUEUE_PRIORITY);
    assert_eq!(of(&job, &settings(), true).unwrap().pods, job.kubernetes);
    let of_ray = JobSpec { kubernetes: job.kubernetes.clone(), ..ray_spec(3) };
    assert_eq!(of(&of_ray, &settings(), true).unwrap().pods, job.kubernetes);
}

/// A pasted object whose workers are larger than its master.
fn pasted_job() -> JobSpec {
    let pod = |gpus: u32, more: Value| {
        let amounts = json!({ "nvidia.com/gpu": gpus, "memory": "1Gi", "cpu": "1500m" });
        let mut pod = json!({
            "containers": [{ "name": "pytorch", "image": "registry.example/train:1", "command": ["true"],
                             "resources": { "limits": amounts } }],
        });
        for (name, value) in more.as_object().unwrap() {
            pod[name] = value.clone();
        }
        json!({ "replicas": 1, "template": { "spec": pod } })
    };
    let tolerations = json!([
        { "key": "gpu", "operator": "Exists", "effect": "NoSchedule" },
        { "key": "team", "operator": "Equal", "value": "vision" },
    ]);
    let object = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": { "name": "pasted", "labels": { "kueue.x-k8s.io/queue-name": "team", "owner": "ann" } },
        "spec": {
            "runPolicy": { "schedulingPolicy": { "queue": "research" } },
            "pytorchReplicaSpecs": {
                "Master": pod(2, json!({ "tolerations": tolerations, "serviceAccountName": "trainer" })),
                "Worker": pod(8, json!({ "priorityClassName": "high", "imagePullSecrets": [{ "name": "keys" }],
                                         "tolerations": tolerations })),
            },
        },
    });
    let mut job = spec(2);
    job.kubernetes = PodOptions { manifest: Some(object.into()), ..PodOptions::default() };
    job
}

#[test]
fn of_a_pasted_object_the_smallest_pod_and_all_that_leads_to_nodes_is_read() {
    let job = pasted_job();
    let tests = of(&job, &settings(), false).unwrap();
    assert_eq!((tests.image, tests.accelerators), (job.image.clone(), 2));
    let toleration = |key: &str, value: Option<&str>, effect: Option<&str>| Toleration {
        key: Some(key.to_owned()),
        value: value.map(str::to_owned),
        effect: effect.map(str::to_owned),
    };
    let wanted = PodOptions {
        namespace: Some("train".to_owned()),
        cpu: Some("1500m".to_owned()),
        memory: Some((1_u64 << 30).to_string()),
        tolerations: vec![
            toleration("gpu", None, Some("NoSchedule")),
            toleration("team", Some("vision"), None),
        ],
        service_account: Some("trainer".to_owned()),
        pull_secrets: vec!["keys".to_owned()],
        labels: [("owner".to_owned(), "ann".to_owned())].into(),
        kueue_queue: Some("team".to_owned()),
        volcano_queue: Some("research".to_owned()),
        ..PodOptions::default()
    };
    assert_eq!(tests.pods, wanted);
    assert!(of(&job, &settings(), true).unwrap_err().contains("pasted object"));
}

#[test]
fn a_test_is_bound_to_its_nodes_one_replica_on_each() {
    let mut order = order(spec(2));
    order.plan.only = ["n2", "n7"].map(|name| NodeName::new(name).unwrap()).into();
    let job = manifest::of(&order, &settings()).unwrap().job;
    let roles = &job.data["spec"]["pytorchReplicaSpecs"];
    let affinity = &roles["Worker"]["template"]["spec"]["affinity"];
    assert_eq!(affinity, &roles["Master"]["template"]["spec"]["affinity"]);
    let named = |name: &str| json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] });
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    assert_eq!(affinity["nodeAffinity"][required]["nodeSelectorTerms"], json!([named("n2"), named("n7")]));
    let apart = &affinity["podAntiAffinity"][required][0];
    let labels = &roles["Worker"]["template"]["metadata"]["labels"];
    for (name, value) in apart["labelSelector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&labels[name], value, "it keeps off its own group's pods only");
    }
    assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
}

#[test]
fn nodes_that_take_nothing_are_told_apart() {
    let mut nodes: Nodes =
        [node("well", "True", None), node("away", "Unknown", None), node("cordoned", "True", None)].into();
    let name = |name: &str| NodeName::new(name).unwrap();
    nodes.get_mut(&name("cordoned")).unwrap().cordoned = true;
    let wanted = ["well", "cordoned", "away", "gone"].map(name).into();
    let found = closed(&wanted, &nodes);
    let told: Vec<_> = found.iter().map(|(node, why)| (node.as_str(), why.as_str())).collect();
    assert_eq!(
        told,
        [("away", "is not ready"), ("cordoned", "is cordoned"), ("gone", "is not in the cluster")]
    );
}
