use serde_json::{Value, json};

use crate::job::{FieldError, JobDraft, JobKind, JobSpec, Manifest, Site, SiteCluster};

fn site() -> Site {
    let mut site = Site::default();
    site.clusters
        .push(SiteCluster { namespaces: vec!["speech".to_owned()], ..SiteCluster::kubernetes("k8s") });
    site
}

fn group(name: &str, replicas: Value, gpus: u32) -> Value {
    json!({
        "groupName": name, "replicas": replicas, "minReplicas": 1, "maxReplicas": 4,
        "rayStartParams": { "block": "true" },
        "template": { "spec": { "containers": [{
            "name": "worker", "image": "registry.example/ray:2",
            "env": [{ "name": "RANK", "value": "of its own" }],
            "resources": { "limits": { "nvidia.com/gpu": gpus } },
        }] } },
    })
}

/// A RayJob as one finds it, with two groups of workers.
fn pasted() -> Value {
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": { "name": "tune", "namespace": "speech" },
        "spec": {
            "entrypoint": "python tune.py --lr $LR && echo 'it''s done'",
            "runtimeEnvYAML": "pip: [tqdm]\nenv_vars: {A: b}\n",
            "metadata": { "team": "asr" },
            "backoffLimit": 2,
            "rayClusterSpec": {
                "rayVersion": "2.46.0",
                "enableInTreeAutoscaling": true,
                "headGroupSpec": {
                    "rayStartParams": { "num-cpus": "0" },
                    "template": { "spec": { "containers": [
                        {
                            "name": "ray-head", "image": "registry.example/ray:2", "workingDir": "/home/ray",
                            "env": [{ "name": "LR", "value": "0.1" }],
                        },
                        { "name": "sidecar", "image": "log:2" },
                    ] } },
                },
                "workerGroupSpecs": [group("small", json!(2), 1), group("large", json!(null), 8)],
            },
        },
    })
}

fn draft(object: Value) -> JobDraft {
    let mut draft = JobDraft { cluster: Some("k8s".to_owned()), ..JobDraft::default() };
    draft.kubernetes.manifest = Some(Manifest::from(object));
    draft
}

fn valid(object: Value) -> JobSpec {
    draft(object).validate(&site()).unwrap()
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let mut place = &mut object;
    for key in pointer.split('/').skip(1) {
        place = match key.parse::<usize>() {
            Ok(at) => &mut place[at],
            Err(_) => &mut place[key],
        };
    }
    *place = value;
    object
}

fn refused(pointer: &str, value: Value) -> Vec<String> {
    let short = |error: FieldError| {
        format!("{}: {}", error.field.trim_start_matches("kubernetes.manifest.spec."), error.message)
    };
    let found = draft(with(pasted(), pointer, value)).validate(&site());
    found.err().unwrap_or_default().into_iter().map(short).collect()
}

const CLUSTER: &str = "/spec/rayClusterSpec";

#[test]
fn a_job_is_its_driver_and_its_cluster() {
    let spec = valid(pasted());
    assert_eq!((spec.name.as_str(), spec.kind), ("tune", JobKind::RayJob));
    assert_eq!(spec.image.as_deref(), Some("registry.example/ray:2"));
    assert_eq!(spec.command, ["/bin/sh", "-c", "python tune.py --lr $LR && echo 'it''s done'"]);
    assert_eq!(spec.env, [("LR".to_owned(), "0.1".to_owned())].into(), "what the head has");
    assert_eq!((spec.replicas, spec.starting_replicas(), spec.world_size()), (4, 1, 1));
    assert_eq!(spec.accelerators_per_replica, 8, "the largest pod's");
    assert_eq!(spec.working_dir, None, "Ray starts the driver in a directory of its own");
    assert_eq!(spec.kubernetes.namespace.as_deref(), Some("speech"));
    assert_eq!(spec.kubernetes.manifest.as_ref().unwrap().object(), &pasted());
    let again = JobDraft::from(&spec);
    assert_eq!(again.validate(&site()).unwrap(), spec);
}

#[test]
fn a_group_has_as_many_pods_as_kuberay_makes_at_first() {
    for (replicas, least, most, hosts, want) in [
        (json!(2), json!(0), json!(4), json!(null), 2),
        (json!(null), json!(3), json!(4), json!(1), 3),
        (json!(9), json!(0), json!(4), json!(2), 8),
        (json!(0), json!(null), json!(null), json!(null), 0),
    ] {
        let mut group = group("only", replicas, 0);
        (group["minReplicas"], group["maxReplicas"], group["numOfHosts"]) = (least, most, hosts);
        let object = with(pasted(), &format!("{CLUSTER}/workerGroupSpecs"), json!([group]));
        assert_eq!(valid(object).replicas, 1 + want, "{group}");
        group["suspend"] = json!(true);
        let object = with(pasted(), &format!("{CLUSTER}/workerGroupSpecs"), json!([group]));
        assert_eq!(valid(object).replicas, 1, "KubeRay makes no pods of {group}");
    }
    let alone = with(pasted(), &format!("{CLUSTER}/workerGroupSpecs"), json!(null));
    assert_eq!(valid(alone).replicas, 1);
}

#[test]
fn basic_mode_is_the_only_one() {
    let mut job = draft(pasted());
    job.fault_tolerance.auto_failover = Some(true);
    assert!(job.validate(&site()).is_ok());
    job.fault_tolerance.policy.enabled = Some(true);
    let [error] = &job.validate(&site()).unwrap_err()[..] else { panic!("one error") };
    assert_eq!(error.field, "fault_tolerance.policy.enabled");
}

#[test]
fn what_asks_for_nothing_can_stay() {
    for (pointer, value) in [
        ("/spec/clusterSelector", json!({})),
        ("/spec/suspend", json!(false)),
        ("/spec/managedBy", json!("ray.io/kuberay-operator")),
        ("/spec/submissionMode", json!("K8sJobMode")),
        (
            "/spec/submitterPodTemplate",
            json!({ "spec": { "containers": [{ "name": "submit", "image": "ray:2" }] } }),
        ),
        ("/spec/entrypointNumCpus", json!(0)),
        ("/spec/entrypointResources", json!("{\"accelerator\": 1}")),
        ("/spec/activeDeadlineSeconds", json!(60)),
        (
            "/spec/rayClusterSpec/autoscalerOptions",
            json!({
                "idleTimeoutSeconds": 60, "securityContext": { "runAsUser": 1000 },
                "env": [{ "name": "RANK", "value": "0" }],
                "volumeMounts": [{ "name": "a", "mountPath": "/tmp/a" }],
            }),
        ),
        ("/spec/later", json!({ "unknown": [1, 2.5] })),
    ] {
        assert_eq!(refused(pointer, value), Vec::<String>::new(), "{pointer}");
    }
}

#[test]
fn each_place_that_cannot_be_run_is_named() {
    let cluster = |more: &str| format!("{CLUSTER}{more}");
    let head = |more: &str| format!("{CLUSTER}/headGroupSpec/template/spec{more}");
    let worker = |more: &str| format!("{CLUSTER}/workerGroupSpecs/1/template/spec{more}");
    for (pointer, value, want) in [
        ("/spec/entrypoint".to_owned(), json!(null), "entrypoint: is missing; write the driver's command"),
        ("/spec/entrypoint".to_owned(), json!(["python"]), "entrypoint: must be a text; put it in quotes"),
        (
            "/spec/entrypoint".to_owned(),
            json!("exec '/holdfast/holdfast-agent' 'run' '--' 'python'"),
            "entrypoint: starts Holdfast's agent, which is added by itself; paste the manifest that the job was made of",
        ),
        (
            "/spec/entrypoint".to_owned(),
            json!("x".repeat(120 * 1024)),
            "entrypoint: is too long: at most 122880 bytes as a quoted word of a shell",
        ),
        (
            "/spec/clusterSelector".to_owned(),
            json!({ "ray.io/cluster": "shared" }),
            "clusterSelector: would choose a cluster that runs already; every attempt has one of its own: leave it out and give rayClusterSpec",
        ),
        (
            "/spec/submissionMode".to_owned(),
            json!("InteractiveMode"),
            "submissionMode: would have the driver submitted by somebody else; leave it out and give the entrypoint",
        ),
        (
            "/spec/submitterPodTemplate".to_owned(),
            json!({ "spec": { "containers": [{ "command": ["my-submit"] }] } }),
            "submitterPodTemplate.spec.containers[0].command: would start the driver where no agent is; write what it runs as the entrypoint and leave submitterPodTemplate out",
        ),
        (
            "/spec/suspend".to_owned(),
            json!(true),
            "suspend: would have every attempt wait for somebody who lets it run; leave it out: a queue such as Kueue sets it by itself",
        ),
        (
            "/spec/activeDeadlineSeconds".to_owned(),
            json!(0),
            "activeDeadlineSeconds: must be at least 1; leave it out if there is no limit",
        ),
        (
            cluster("/managedBy"),
            json!("kueue.x-k8s.io/multikueue"),
            "rayClusterSpec.managedBy: would have KubeRay pass the job over; leave it out",
        ),
        (
            cluster(""),
            json!(null),
            "rayClusterSpec: is missing; every attempt makes a Ray cluster of its own by it",
        ),
        (
            cluster("/headGroupSpec"),
            json!([]),
            "rayClusterSpec.headGroupSpec: is missing; every attempt makes a Ray cluster of its own by it",
        ),
        (
            cluster("/workerGroupSpecs/0/replicas"),
            json!(-1),
            "rayClusterSpec.workerGroupSpecs[0].replicas: must be a whole number from 0 to 4096",
        ),
        (
            cluster("/workerGroupSpecs/0/numOfHosts"),
            json!(3000),
            "rayClusterSpec.workerGroupSpecs: makes 6002 replicas with the head; at most 4096 are allowed",
        ),
        (
            "/spec/runtimeEnvYAML".to_owned(),
            json!("env_vars: {HOLDFAST_AGENT_SERVER: x}"),
            "runtimeEnvYAML: holds a variable of Holdfast's; remove what begins with HOLDFAST_",
        ),
        (
            "/spec/entrypointNumCpus".to_owned(),
            json!(0.5),
            "entrypointNumCpus: cannot be had: the driver runs on the head, which gives Ray no num-cpus",
        ),
        (
            "/spec/entrypointNumGpus".to_owned(),
            json!(1),
            "entrypointNumGpus: cannot be had: the driver runs on the head, which gives Ray no num-gpus",
        ),
        (
            "/spec/entrypointResources".to_owned(),
            json!("accelerator: 1"),
            "entrypointResources: must be an object with named fields, as a text of JSON such as '{\"name\": 1}'",
        ),
        (
            cluster("/autoscalerOptions"),
            json!({ "securityContext": { "privileged": true } }),
            "rayClusterSpec.autoscalerOptions.securityContext.privileged: opens the directories of the node to the job, which this cluster does not allow; leave it out",
        ),
        (
            cluster("/autoscalerOptions"),
            json!({ "securityContext": { "capabilities": { "add": ["CHOWN", "sys_admin"] } } }),
            "rayClusterSpec.autoscalerOptions.securityContext.capabilities.add[1]: opens the directories of the node to the job, which this cluster does not allow; leave it out",
        ),
        (
            cluster("/autoscalerOptions"),
            json!({ "env": [{ "name": "A", "value": "b" }, { "name": "HOLDFAST_X", "value": "c" }] }),
            "rayClusterSpec.autoscalerOptions.env[1].name: is set by Holdfast for each process; remove it",
        ),
        (
            cluster("/autoscalerOptions"),
            json!({ "volumeMounts": [{ "name": "a", "mountPath": "/holdfast/x" }] }),
            "rayClusterSpec.autoscalerOptions.volumeMounts[0].mountPath: must not be within /holdfast or /etc/holdfast, where Holdfast's agent is",
        ),
        (
            cluster("/autoscalerOptions"),
            json!("fast"),
            "rayClusterSpec.autoscalerOptions: must be an object with named fields",
        ),
        (
            head("/shareProcessNamespace"),
            json!(true),
            "rayClusterSpec.headGroupSpec.template.spec.shareProcessNamespace: would hide the first process of the head's container, where the driver's output goes; leave it out",
        ),
        (
            head("/containers"),
            json!([]),
            "rayClusterSpec.headGroupSpec.template.spec.containers: has no container; the first one is Ray's",
        ),
        (
            head("/containers/0/env"),
            json!([{ "name": "RAY_JOB_ALLOW_DRIVER_ON_WORKER_NODES", "value": "1" }]),
            "rayClusterSpec.headGroupSpec.template.spec.containers[0].env[0].name: would have the driver where no agent is; remove it",
        ),
        (
            head("/containers/0/volumeMounts"),
            json!([{ "name": "a", "mountPath": "/holdfast" }]),
            "rayClusterSpec.headGroupSpec.template.spec.containers[0].volumeMounts[0].mountPath: must not be within /holdfast or /etc/holdfast, where Holdfast's agent is",
        ),
        (
            worker("/containers/0/env"),
            json!([{ "name": "HOLDFAST_X" }]),
            "rayClusterSpec.workerGroupSpecs[1].template.spec.containers[0].env[0].name: is set by Holdfast for each process; remove it",
        ),
        (
            worker("/volumes"),
            json!([{ "name": "a", "hostPath": { "path": "/" } }]),
            "rayClusterSpec.workerGroupSpecs[1].template.spec.volumes[0].hostPath: is a directory of the node, which this cluster does not allow; use a claim",
        ),
    ] {
        assert_eq!(refused(&pointer, value.clone()), [want], "{pointer} {value}");
    }
}
