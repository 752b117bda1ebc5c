use engine::{
    ids::NodeName,
    job::{JobSpec, PodOptions, SecretVariable, Toleration, Volume, VolumeSource},
};
use serde_json::Value;

use super::*;
use crate::clusters::kubernetes::{
    fake::{order, ray_spec, settings, spec},
    settings::AgentSource,
};

/// An order that asks for everything.
fn full() -> Order {
    let mut spec = spec(4);
    spec.name = "Demo".to_owned();
    spec.accelerators_per_replica = 8;
    spec.env = [("LR".to_owned(), "$(date)".to_owned())].into();
    spec.working_dir = Some("/work".to_owned());
    spec.checkpoint_dir = Some("/ckpt/demo".to_owned());
    spec.fault_tolerance.exit_checkpoint.enabled = true;
    spec.fault_tolerance.exit_checkpoint.max_wait_seconds = 300;
    spec.kubernetes = PodOptions {
        namespace: Some("eval".to_owned()),
        cpu: Some("16".to_owned()),
        memory: Some("64Gi".to_owned()),
        accelerator: Some("amd.com/gpu".to_owned()),
        shm_size: Some("8Gi".to_owned()),
        secrets: vec![SecretVariable {
            name: "HF_TOKEN".to_owned(),
            secret: "hub".to_owned(),
            key: "token".to_owned(),
        }],
        volumes: vec![
            Volume {
                mount_path: "/ckpt".to_owned(),
                source: VolumeSource::Claim("ckpt".to_owned()),
                read_only: false,
            },
            Volume {
                mount_path: "/conf".to_owned(),
                source: VolumeSource::ConfigMap("conf".to_owned()),
                read_only: true,
            },
            Volume {
                mount_path: "/keys".to_owned(),
                source: VolumeSource::Secret("keys".to_owned()),
                read_only: true,
            },
        ],
        node_selector: [("pool".to_owned(), "gpu".to_owned())].into(),
        tolerations: vec![
            Toleration {
                key: Some("gpu".to_owned()),
                value: Some("yes".to_owned()),
                effect: Some("NoSchedule".to_owned()),
            },
            Toleration::default(),
        ],
        priority_class: Some("high".to_owned()),
        service_account: Some("trainer".to_owned()),
        pull_secrets: vec!["registry".to_owned()],
        labels: [
            ("kueue.x-k8s.io/queue-name".to_owned(), "team".to_owned()),
            ("holdfast.dev/instance".to_owned(), "forged".to_owned()),
        ]
        .into(),
        ..PodOptions::default()
    };
    let mut order = order(spec);
    order.plan.number = 2;
    order.plan.previous_task_id = Some(engine::ids::TaskId::new("demo-jabcdefghij2-0").unwrap());
    order.plan.avoid = ["n2", "n7"].map(|name| NodeName::new(name).unwrap()).into();
    order
}

fn job_of(order: &Order) -> Value {
    serde_json::to_value(of(order, &settings()).unwrap().job).unwrap()
}

fn refusal_of(order: &Order) -> String {
    of(order, &settings()).unwrap_err()
}

#[test]
fn a_job_that_asks_for_nothing() {
    insta::assert_json_snapshot!("plain", job_of(&order(spec(1))));
}

#[test]
fn a_job_that_asks_for_everything() {
    insta::assert_json_snapshot!("full", job_of(&full()));
}

#[test]
fn a_rayjob_that_asks_for_everything() {
    let mut order = full();
    order.spec = JobSpec { kind: JobKind::RayJob, ..order.spec };
    order.spec.fault_tolerance.exit_checkpoint.enabled = false;
    order.spec.command.push("it's $HOME".to_owned());
    insta::assert_json_snapshot!("ray", job_of(&order));
}

/// A job in a queue of Kueue and in one of Volcano.
fn queued(spec: JobSpec) -> Order {
    let mut order = order(spec);
    order.spec.kubernetes = PodOptions {
        priority_class: Some("high".to_owned()),
        kueue_queue: Some("team".to_owned()),
        volcano_queue: Some("research".to_owned()),
        ..PodOptions::default()
    };
    order
}

#[test]
fn a_pytorchjob_names_its_queues_where_each_system_looks() {
    let job = job_of(&queued(spec(2)));
    assert_eq!(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team");
    assert_eq!(
        job["spec"]["runPolicy"]["schedulingPolicy"],
        json!({ "queue": "research", "priorityClass": "high" })
    );
    for role in ["Master", "Worker"] {
        let template = &job["spec"]["pytorchReplicaSpecs"][role]["template"];
        assert_eq!(template["spec"]["schedulerName"], "volcano", "{role}");
        let annotations = json!({ "scheduling.volcano.sh/queue-name": "research" });
        assert_eq!(template["metadata"]["annotations"], annotations, "{role}");
        // Kueue counts the job and not its pods besides.
        assert_eq!(template["metadata"]["labels"].get("kueue.x-k8s.io/queue-name"), None, "{role}");
    }
}

#[test]
fn a_rayjob_names_its_queues_where_each_system_looks() {
    let job = job_of(&queued(ray_spec(2)));
    let labels = &job["metadata"]["labels"];
    assert_eq!(labels["kueue.x-k8s.io/queue-name"], "team");
    assert_eq!(labels["ray.io/scheduler-name"], "volcano");
    assert_eq!(labels["volcano.sh/queue-name"], "research");
    let head = &job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"];
    assert_eq!(head["spec"]["schedulerName"], "volcano");
    assert_eq!(head["metadata"]["labels"].get("volcano.sh/queue-name"), None);
}

#[test]
fn a_scheduler_that_is_named_is_taken() {
    let mut order = queued(spec(1));
    order.spec.kubernetes.scheduler = Some("volcano-large".to_owned());
    let scheduler = "/spec/pytorchReplicaSpecs/Master/template/spec/schedulerName";
    assert_eq!(job_of(&order).pointer(scheduler), Some(&json!("volcano-large")));
    order.spec.kubernetes =
        PodOptions { scheduler: order.spec.kubernetes.scheduler, ..PodOptions::default() };
    let job = job_of(&order);
    assert_eq!(job.pointer(scheduler), Some(&json!("volcano-large")));
    assert_eq!(job.pointer("/spec/runPolicy/schedulingPolicy"), None);
    assert_eq!(job.pointer("/spec/pytorchReplicaSpecs/Master/template/metadata/annotations"), None);
}

#[test]
fn a_rayjob_of_one_replica_has_no_workers_and_its_head_alone_an_agent() {
    let job = job_of(&order(ray_spec(1)));
    assert_eq!(job["spec"]["rayClusterSpec"]["workerGroupSpecs"], Value::Null);
    let two = order(ray_spec(2));
    let job = job_of(&two).to_string();
    assert_eq!(job.matches("HOLDFAST_AGENT_TOKEN_FILE").count(), 1);
    let secret = serde_json::to_value(of(&two, &settings()).unwrap().secret).unwrap();
    let keys: Vec<_> = secret["data"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["head-0"]);
}

#[test]
fn the_secret_holds_a_key_for_each_replica() {
    let secret = serde_json::to_value(of(&order(spec(2)), &settings()).unwrap().secret).unwrap();
    let keys: Vec<_> = secret["data"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["master-0", "worker-0"]);
    assert_eq!(secret["metadata"]["labels"]["holdfast.dev/instance"], settings().instance);
    assert_eq!(secret["immutable"], true);
}

#[test]
fn an_agent_in_the_jobs_image_needs_no_init_container() {
    let settings = KubernetesSettings { agent: AgentSource::InImage("/opt/agent".to_owned()), ..settings() };
    let job = serde_json::to_value(of(&order(spec(1)), &settings).unwrap().job).unwrap();
    let pod = &job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"];
    assert_eq!(pod["initContainers"], Value::Null);
    assert_eq!(pod["containers"][0]["command"], json!(["/opt/agent", "run", "--", "python3", "train.py"]));
}

#[test]
fn the_hash_is_of_what_was_ordered_and_not_of_the_sites_settings() {
    let hash = |order: &Order, settings: &KubernetesSettings| {
        of(order, settings).unwrap().job.annotations()[names::SPEC_HASH].clone()
    };
    let (one, mut other) = (order(spec(1)), order(spec(1)));
    let elsewhere = KubernetesSettings { server_url: "http://h:1".to_owned(), ..settings() };
    assert_eq!(hash(&one, &settings()), hash(&one, &elsewhere));
    other.spec.command.push("--fast".to_owned());
    assert_ne!(hash(&one, &settings()), hash(&other, &settings()));
}

#[test]
fn what_cannot_be_made_is_refused_with_what_to_do() {
    let host_path = Volume {
        mount_path: "/x".to_owned(),
        source: VolumeSource::HostPath("/srv".to_owned()),
        read_only: false,
    };
    let changed = |change: &dyn Fn(&mut Order)| {
        let mut order = order(spec(1));
        change(&mut order);
        order
    };
    for (order, want) in [
        (
            changed(&|order| order.spec.kubernetes.namespace = Some("kube-system".to_owned())),
            "use train or eval",
        ),
        (changed(&|order| order.spec.checkpoint_dir = Some("ckpt/demo".to_owned())), "absolute path"),
        (
            changed(&|order| order.spec.kubernetes.volumes = vec![host_path.clone()]),
            "--kube-allow-host-paths",
        ),
        (changed(&|order| order.spec.image = None), "image is missing"),
    ] {
        let text = refusal_of(&order);
        assert!(text.contains(want), "{text}");
    }
    let allowed = KubernetesSettings { allow_host_paths: true, ..settings() };
    let order = changed(&|order| order.spec.kubernetes.volumes = vec![host_path.clone()]);
    assert!(of(&order, &allowed).is_ok());
}

#[test]
fn agents_are_given_the_authorities_that_they_are_to_trust() {
    let text = "-----BEGIN CERTIFICATE-----";
    let settings = KubernetesSettings {
        server_url: "https://holdfast.example.org".to_owned(),
        server_ca: Some(text.to_owned()),
        ..settings()
    };
    let (made, without) =
        (of(&order(spec(2)), &settings).unwrap(), of(&order(spec(2)), &self::settings()).unwrap());
    let data = made.secret.data.unwrap();
    assert_eq!(data["ca.crt"].0, text.as_bytes());
    assert_eq!(data.len(), without.secret.data.unwrap().len() + 1);
    for kind in ["Master", "Worker"] {
        let container = |made: &DynamicObject| {
            made.data["spec"]["pytorchReplicaSpecs"][kind]["template"]["spec"]["containers"][0].clone()
        };
        let (with, without) = (container(&made.job), container(&without.job));
        let variable = json!({ "name": "HOLDFAST_AGENT_SERVER_CA_FILE", "value": "/etc/holdfast/ca.crt" });
        assert!(with["env"].as_array().unwrap().contains(&variable), "{with:#}");
        assert!(!without["env"].as_array().unwrap().contains(&variable));
        let mount = json!({ "name": "holdfast-token", "mountPath": "/etc/holdfast/ca.crt", "subPath": "ca.crt", "readOnly": true });
        assert!(with["volumeMounts"].as_array().unwrap().contains(&mount), "{with:#}");
    }
}
