use serde_json::{Value, json};

use crate::job::{FieldError, JobDraft, JobKind, JobSpec, Manifest, Site, SiteCluster};

fn site(allows_host_paths: bool) -> Site {
    let mut site = Site::default();
    site.clusters.push(SiteCluster {
        allows_host_paths,
        namespaces: vec!["speech".to_owned(), "vision".to_owned()],
        ..SiteCluster::kubernetes("k8s")
    });
    site
}

fn pod(command: Value) -> Value {
    json!({ "replicas": 1, "restartPolicy": "OnFailure", "template": { "spec": { "containers": [
        { "name": "sidecar", "image": "log:2" },
        { "name": "pytorch", "image": "registry.example/asr:7", "command": command, "args": ["--lr", "$(LR)"] },
    ] } } })
}

/// A master and three workers that say something in every place.
fn pasted() -> Value {
    let mut object = json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": { "name": "whisper", "namespace": "vision", "labels": { "team": "asr" } },
        "spec": {
            "nprocPerNode": "2",
            "pytorchReplicaSpecs": { "Master": pod(json!(["python3", "a.py"])), "Worker": pod(json!(["python3", "b.py"])) },
            "later": { "versions": [1, 2.5, null, "x"] },
        },
        "status": { "conditions": [] },
    });
    object["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(3);
    let master = &mut object["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][1];
    master["env"] = json!([
        { "name": "LR", "value": "0.1" },
        { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "hub", "key": "t" } } },
        { "name": "EMPTY" },
    ]);
    master["workingDir"] = json!("/work");
    master["resources"] = json!({ "limits": { "cpu": "8", "nvidia.com/gpu": 2, "rdma/hca": 1 } });
    object
}

fn draft(object: Value) -> JobDraft {
    let mut draft = JobDraft { cluster: Some("k8s".to_owned()), ..JobDraft::default() };
    draft.kubernetes.manifest = Some(Manifest::from(object));
    draft
}

fn valid(object: Value) -> JobSpec {
    draft(object).validate(&site(false)).unwrap()
}

fn told(errors: Vec<FieldError>) -> Vec<String> {
    let short = |error: FieldError| {
        let field = error.field.strip_prefix("kubernetes.manifest").unwrap_or(&error.field).to_owned();
        format!("{field}: {}", error.message)
    };
    errors.into_iter().map(short).collect()
}

/// What is told of the object with a value at a pointer; absent parents are made.
fn refused(pointer: &str, value: Value) -> Vec<String> {
    told(draft(with(pasted(), pointer, value)).validate(&site(false)).err().unwrap_or_default())
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

const MASTER: &str = "/spec/pytorchReplicaSpecs/Master";
const POD: &str = "/spec/pytorchReplicaSpecs/Master/template/spec";
const CONTAINER: &str = "/spec/pytorchReplicaSpecs/Master/template/spec/containers/1";

#[test]
fn a_job_is_what_its_manifest_says() {
    let spec = valid(pasted());
    assert_eq!(
        (spec.name.as_str(), spec.kind, spec.cluster.as_str()),
        ("whisper", JobKind::PyTorchJob, "k8s")
    );
    assert_eq!(spec.image.as_deref(), Some("registry.example/asr:7"));
    assert_eq!(spec.command, ["python3", "a.py", "--lr", "$(LR)"]);
    let env: Vec<_> = spec.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(env, [("EMPTY", ""), ("LR", "0.1")]);
    assert_eq!((spec.replicas, spec.processes_per_replica, spec.accelerators_per_replica), (4, 1, 2));
    assert_eq!((spec.world_size(), spec.told_world_size()), (4, 8));
    assert_eq!(spec.working_dir.as_deref(), Some("/work"));
    assert_eq!(spec.kubernetes.namespace.as_deref(), Some("vision"));
    assert_eq!(spec.kubernetes.accelerator.as_deref(), Some("nvidia.com/gpu"));
}

#[test]
fn a_manifest_without_a_namespace_is_run_in_the_clusters_first() {
    let mut object = pasted();
    object["metadata"].as_object_mut().unwrap().remove("namespace");
    let spec = valid(object.clone());
    assert_eq!(spec.kubernetes.namespace.as_deref(), Some("speech"));
    assert_eq!(JobDraft::from(&spec).validate(&site(false)).unwrap(), spec);
    let mut beside = draft(object);
    beside.kubernetes.namespace = Some("vision".to_owned());
    let told = told(beside.validate(&site(false)).unwrap_err());
    assert!(told[0].starts_with("kubernetes.namespace: is read from the manifest"), "{told:?}");
}

#[test]
fn what_is_kept_is_the_object_to_the_last_unknown_field() {
    let spec = valid(pasted());
    let mut wanted = pasted();
    wanted.as_object_mut().unwrap().remove("status");
    assert_eq!(spec.kubernetes.manifest.as_ref().unwrap().object().to_string(), wanted.to_string());
    let kept: JobSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
    assert_eq!(kept, spec);
    let again = JobDraft::from(&spec);
    assert_eq!((again.command.len(), again.replicas), (0, None), "read from the manifest, said nowhere else");
    assert_eq!(again.validate(&site(false)).unwrap(), spec);
}

#[test]
fn a_job_without_a_manifest_is_kept_as_before() {
    let body = r#"{"name":"a","command":["true"],"cluster":"k8s","image":"x","kubernetes":{"cpu":"1"}}"#;
    let spec = serde_json::from_str::<JobDraft>(body).unwrap().validate(&site(false)).unwrap();
    assert!(!serde_json::to_string(&spec).unwrap().contains("manifest"));
}

#[test]
fn the_name_is_the_drafts_own_or_the_objects_or_what_one_is_generated_from() {
    let mut named = draft(pasted());
    named.name = "mine".to_owned();
    assert_eq!(named.validate(&site(false)).unwrap().name, "mine");
    assert_eq!(valid(with(pasted(), "/metadata", json!({ "generateName": "asr-" }))).name, "asr");
    assert_eq!(
        refused("/metadata", json!({})),
        ["name: is missing, in the manifest too; use 1 to 63 characters"]
    );
    let long = refused("/metadata/name", json!("a".repeat(64)));
    assert_eq!(long, [".metadata.name: is longer than 63 characters"]);
}

#[test]
fn counts_are_the_operators_where_they_are_absent_and_the_largest_pod_says_the_accelerators() {
    let mut object = pasted();
    let specs = object["spec"]["pytorchReplicaSpecs"].as_object_mut().unwrap();
    specs["Worker"].as_object_mut().unwrap().remove("replicas");
    specs["Master"].as_object_mut().unwrap().remove("replicas");
    specs["Worker"]["template"]["spec"]["containers"][1]["resources"] =
        json!({ "requests": { "amd.com/gpu": "4" } });
    let spec = valid(object.clone());
    assert_eq!((spec.replicas, spec.accelerators_per_replica), (2, 4));
    assert_eq!(spec.kubernetes.accelerator.as_deref(), Some("amd.com/gpu"));
    object["spec"]["pytorchReplicaSpecs"].as_object_mut().unwrap().remove("Worker");
    assert_eq!(valid(object).replicas, 1);
}

#[test]
fn fields_beside_a_manifest_say_the_same_or_are_refused() {
    let mut same = draft(pasted());
    same.replicas = Some(4);
    same.image = Some("registry.example/asr:7".to_owned());
    same.kubernetes.namespace = Some("vision".to_owned());
    assert!(same.validate(&site(false)).is_ok());
    let mut other = draft(pasted());
    other.replicas = Some(2);
    other.env = [("A".to_owned(), "1".to_owned())].into();
    other.kubernetes.cpu = Some("4".to_owned());
    let found = told(other.validate(&site(false)).unwrap_err());
    let otherwise = "is read from the manifest, which says otherwise; change it there and leave this out";
    let elsewhere = "is for jobs without a manifest; write it there and leave this out";
    assert_eq!(
        found,
        [
            format!("env: {otherwise}"),
            format!("replicas: {otherwise}"),
            format!("kubernetes.cpu: {elsewhere}"),
        ]
    );
}

#[test]
fn a_local_cluster_runs_no_manifest() {
    let mut local = draft(pasted());
    local.cluster = None;
    assert_eq!(
        told(local.validate(&site(false)).unwrap_err()),
        [
            ": needs a Kubernetes cluster, and local runs programs of this machine; create the job by its fields"
        ]
    );
}

#[test]
fn hang_detection_asks_the_manifest_for_accelerators() {
    let mut job = draft(with(pasted(), &format!("{CONTAINER}/resources"), json!({})));
    job.fault_tolerance.auto_failover = Some(true);
    job.fault_tolerance.policy.enabled = Some(true);
    job.fault_tolerance.hang_detection.enabled = Some(true);
    let [error] = &job.validate(&site(false)).unwrap_err()[..] else { panic!("one error") };
    assert_eq!(error.field, "fault_tolerance.hang_detection.enabled");
}

#[test]
fn other_objects_are_refused_with_what_to_paste() {
    for (object, want) in [
        (
            json!([pasted()]),
            ": is no object with named fields; paste one PyTorchJob or RayJob as YAML or JSON",
        ),
        (
            json!("PyTorchJob"),
            ": is no object with named fields; paste one PyTorchJob or RayJob as YAML or JSON",
        ),
        (json!({}), ".kind: is missing; paste a PyTorchJob of kubeflow.org/v1 or a RayJob of ray.io/v1"),
        (
            json!({ "apiVersion": "batch/v1", "kind": "Job" }),
            ".kind: is Job, which is not run here; paste a PyTorchJob of kubeflow.org/v1 or a RayJob of ray.io/v1",
        ),
        (
            json!({ "apiVersion": "ray.io/v1alpha1", "kind": "RayJob" }),
            ".apiVersion: must be ray.io/v1 for a RayJob",
        ),
        (
            json!({ "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob" }),
            ".kind: is TrainJob, which is not supported yet; use PyTorchJob v1",
        ),
        (
            json!({ "apiVersion": "v1", "kind": "List", "items": [pasted()] }),
            ".kind: is List; paste the one job of it that is to be run",
        ),
        (
            json!({ "apiVersion": "kubeflow.org/v2", "kind": "PyTorchJob" }),
            ".apiVersion: must be kubeflow.org/v1 for a PyTorchJob",
        ),
        (
            json!({ "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": { "name": "a" } }),
            ".spec.pytorchReplicaSpecs: is missing; name the replicas of Master and Worker",
        ),
    ] {
        assert_eq!(told(draft(object.clone()).validate(&site(false)).unwrap_err()), [want], "{object}");
    }
}

#[test]
fn what_is_too_large_or_too_deep_or_no_text_is_refused() {
    let large = refused("/spec/later", json!("x".repeat(256 * 1024)));
    assert!(large[0].ends_with("bytes as JSON; at most 262,144 are taken"), "{large:?}");
    let deep = (0..64).fold(json!(1), |inner, _| json!({ "a": inner }));
    assert_eq!(refused("/spec/later", deep), [": is nested more than 64 deep"]);
    assert!(refused("/spec/later", (0..62).fold(json!(1), |inner, _| json!([inner]))).is_empty());
    let nul = [": holds a NUL character, which no program can be given"];
    assert_eq!(refused("/spec/later", json!(["a\0"])), nul);
    assert_eq!(refused("/spec/later", json!({ "a\0": 1 })), nul);
}

#[test]
fn each_place_that_cannot_be_run_is_named() {
    let place = |pointer: &str, more: &str| format!("{pointer}{more}");
    for (pointer, value, want) in [
        (
            "/metadata/namespace".to_owned(),
            json!("kube-system"),
            vec![
                ".metadata.namespace: is not one that jobs may use here; use speech or vision, or have it added to the cluster's namespaces (--kube-namespace)",
            ],
        ),
        (
            "/metadata/namespace".to_owned(),
            json!("A b"),
            vec![
                ".metadata.namespace: must be 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends, as Kubernetes names it",
            ],
        ),
        ("/metadata/name".to_owned(), json!(7), vec![".metadata.name: must be a text; put it in quotes"]),
        (
            "/metadata/labels".to_owned(),
            json!({ "holdfast.dev/task": "x", "sub.holdfast.dev/a": "x", "notholdfast.dev/a": "x", "n": 1 }),
            vec![
                ".metadata.labels.holdfast.dev/task: is set by Holdfast; if this is an attempt's manifest, paste the one that the job was made of",
                ".metadata.labels.n: must be a text; put it in quotes",
                ".metadata.labels.sub.holdfast.dev/a: is set by Holdfast; if this is an attempt's manifest, paste the one that the job was made of",
            ],
        ),
        (
            "/spec/pytorchReplicaSpecs/Chief".to_owned(),
            json!({}),
            vec![".spec.pytorchReplicaSpecs.Chief: is no role of a PyTorchJob; use Master and Worker"],
        ),
        (
            MASTER.to_owned(),
            json!(null),
            vec![
                ".spec.pytorchReplicaSpecs.Master: is missing; Holdfast asks for one replica whose address the others meet at and whose end is the job's: name one of the workers Master",
            ],
        ),
        (place(MASTER, "/replicas"), json!(2), vec![".spec.pytorchReplicaSpecs.Master.replicas: must be 1"]),
        (
            "/spec/pytorchReplicaSpecs/Worker/replicas".to_owned(),
            json!(-1),
            vec![".spec.pytorchReplicaSpecs.Worker.replicas: must be a whole number from 0 to 4096"],
        ),
        (
            "/spec/pytorchReplicaSpecs/Worker/replicas".to_owned(),
            json!(5000),
            vec![
                ".spec.pytorchReplicaSpecs.Worker.replicas: makes 5001 replicas with the master; at most 4096 are allowed",
            ],
        ),
        (
            "/spec/elasticPolicy".to_owned(),
            json!({ "minReplicas": 1, "maxReplicas": 3, "metrics": [{}] }),
            vec![
                ".spec.elasticPolicy.metrics: would have the number of replicas changed while the job runs; Holdfast runs a fixed number: leave it out",
                ".spec.elasticPolicy.minReplicas: must be 3 as the workers are: Holdfast runs a fixed number of replicas",
            ],
        ),
        (
            "/spec/runPolicy".to_owned(),
            json!([]),
            vec![".spec.runPolicy: must be an object with named fields"],
        ),
        (
            "/spec/runPolicy/activeDeadlineSeconds".to_owned(),
            json!(-5),
            vec![
                ".spec.runPolicy.activeDeadlineSeconds: must be at least 1; leave it out if there is no limit",
            ],
        ),
        (
            "/spec/runPolicy/managedBy".to_owned(),
            json!("kueue.x-k8s.io/multikueue"),
            vec![
                ".spec.runPolicy.managedBy: would have the training operator pass the job over; leave it out",
            ],
        ),
        (
            place(POD, "/containers"),
            json!([{ "name": "main" }, 3]),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1]: must be an object with named fields",
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers: has no container named pytorch, which the training operator asks for",
            ],
        ),
        (
            place(POD, "/nodeName"),
            json!("n1"),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.nodeName: passes the scheduler over, so that no attempt could keep off a node; use nodeSelector",
            ],
        ),
        (
            place(POD, "/volumes"),
            json!([{ "name": "holdfast" }, { "name": "a", "hostPath": { "path": "/" } }]),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.volumes[0].name: is the name of what Holdfast adds; use another, or if this is an attempt's manifest, paste the one that the job was made of",
                ".spec.pytorchReplicaSpecs.Master.template.spec.volumes[1].hostPath: is a directory of the node, which this cluster does not allow; use a claim",
            ],
        ),
        (
            place(POD, "/hostPID"),
            json!(true),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.hostPID: opens the directories of the node to the job, which this cluster does not allow; leave it out",
            ],
        ),
        (
            place(POD, "/hostIPC"),
            json!(true),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.hostIPC: opens the node's shared memory to the job, which this cluster does not allow; leave it out",
            ],
        ),
        (
            place(POD, "/hostNetwork"),
            json!(true),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.hostNetwork: opens the node's own network to the job, which this cluster does not allow; leave it out",
            ],
        ),
        (
            place(CONTAINER, "/securityContext"),
            json!({ "privileged": true, "capabilities": { "add": ["IPC_LOCK", "cap_sys_admin"] } }),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].securityContext.privileged: opens the directories of the node to the job, which this cluster does not allow; leave it out",
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].securityContext.capabilities.add[1]: opens the directories of the node to the job, which this cluster does not allow; leave it out",
            ],
        ),
        (
            place(CONTAINER, "/image"),
            json!(null),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].image: is missing; Kubernetes needs one",
            ],
        ),
        (
            place(CONTAINER, "/command"),
            json!(null),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].command: is missing; the agent starts the program, and what the image would start is not known here: write the program, which args follow",
            ],
        ),
        (
            place(CONTAINER, "/command"),
            json!("python3 a.py"),
            vec![".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].command: must be a list"],
        ),
        (
            place(CONTAINER, "/args"),
            json!(["--lr", 0.1]),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].args[1]: must be a text; put it in quotes",
            ],
        ),
        (
            place(CONTAINER, "/command"),
            json!(["/holdfast/holdfast-agent", "run", "--", "python3"]),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].command: starts Holdfast's agent, which is added by itself; paste the manifest that the job was made of",
            ],
        ),
        (
            place(CONTAINER, "/env"),
            json!([{ "name": "RANK", "value": "0" }, { "name": "HOLDFAST_X" }, { "name": "A", "value": 1 }, { "name": "a.b" }]),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].env[0].name: is set by Holdfast for each process; remove it",
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].env[1].name: is set by Holdfast for each process; remove it",
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].env[2].value: must be a text; put it in quotes",
            ],
        ),
        (
            place(CONTAINER, "/volumeMounts"),
            json!([{ "name": "a", "mountPath": "/holdfast/x" }, { "name": "a", "mountPath": "/data" }]),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].volumeMounts[0].mountPath: must not be within /holdfast or /etc/holdfast, where Holdfast's agent is",
            ],
        ),
        (
            place(CONTAINER, "/resources"),
            json!({ "limits": { "nvidia.com/gpu": "many" } }),
            vec![
                ".spec.pytorchReplicaSpecs.Master.template.spec.containers[1].resources.limits.nvidia.com/gpu: must be a whole number from 0 to 64",
            ],
        ),
    ] {
        assert_eq!(refused(&pointer, value.clone()), want, "{pointer} {value}");
    }
}

#[test]
fn the_operator_may_be_named() {
    let object = with(pasted(), "/spec/runPolicy/managedBy", json!("kubeflow.org/training-operator"));
    assert!(draft(object).validate(&site(true)).is_ok());
}

#[test]
fn a_site_may_open_its_nodes() {
    let object =
        with(pasted(), &format!("{POD}/volumes"), json!([{ "name": "a", "hostPath": { "path": "/srv" } }]));
    let object = with(object, &format!("{CONTAINER}/securityContext"), json!({ "privileged": true }));
    let object = with(object, &format!("{POD}/hostIPC"), json!(true));
    let object = with(object, &format!("{POD}/hostNetwork"), json!(true));
    assert!(draft(object).validate(&site(true)).is_ok());
}

#[test]
fn the_workers_own_template_is_judged_too() {
    let found = refused("/spec/pytorchReplicaSpecs/Worker/template/spec/containers/1/command", json!([]));
    assert!(
        found[0]
            .starts_with(".spec.pytorchReplicaSpecs.Worker.template.spec.containers[1].command: is missing")
    );
}
