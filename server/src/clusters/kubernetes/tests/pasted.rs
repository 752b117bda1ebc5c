use engine::{
    ids::NodeName,
    job::{JobDraft, Manifest, Site, SiteCluster},
};

use super::{
    super::{
        fake,
        manifest::{self, of},
        names,
    },
    *,
};

/// A plain object with something in every place that is touched, and some that nobody knows.
fn pasted() -> Value {
    let affinity = json!({
        "podAntiAffinity": { "later": [] },
        "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "pool", "operator": "In", "values": ["a"] }] },
            { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n9"] }] },
            {},
        ] } },
    });
    let program = json!({
        "name": "pytorch",
        "image": "registry.example/asr:7",
        "command": ["torchrun", "--nnodes=$(PET_NNODES)"],
        "args": ["train.py", "--lr", "$(LR)"],
        "env": [
            { "name": "LR", "value": "0.1" },
            { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "hub", "key": "t" } } },
        ],
        "envFrom": [{ "configMapRef": { "name": "settings" } }],
        "resources": { "limits": { "nvidia.com/gpu": 2, "rdma/hca": "1" } },
        "volumeMounts": [{ "name": "runs", "mountPath": "/runs" }],
        "securityContext": { "runAsUser": 1000, "capabilities": { "add": ["IPC_LOCK"], "drop": ["ALL"] } },
        "later": { "unknown": [1, 2.5, null] },
    });
    json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": "whisper", "namespace": "eval", "uid": "7f",
            "labels": { "kueue.x-k8s.io/queue-name": "team" },
            "annotations": { "team": "speech" },
        },
        "spec": {
            "nprocPerNode": "2",
            "later": { "unknown": {} },
            "runPolicy": { "backoffLimit": 3, "ttlSecondsAfterFinished": 60, "activeDeadlineSeconds": 900, "suspend": true },
            "pytorchReplicaSpecs": {
                "Master": { "replicas": 1, "restartPolicy": "OnFailure", "template": {
                    "metadata": { "labels": { "team": "asr" }, "annotations": { "scrape": "yes" } },
                    "spec": {
                        "affinity": affinity,
                        "containers": [{ "name": "sidecar", "image": "log:2" }, program],
                        "initContainers": [{ "name": "fetch", "image": "fetch:1" }],
                        "hostNetwork": true,
                        "priorityClassName": "high",
                        "serviceAccountName": "trainer",
                        "terminationGracePeriodSeconds": 120,
                        "tolerations": [{ "key": "gpu", "operator": "Exists" }],
                        "volumes": [{ "name": "runs", "persistentVolumeClaim": { "claimName": "runs" } }],
                        "schedulerName": "volcano",
                    },
                } },
                "Worker": { "replicas": 3, "template": { "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "containers": [{ "name": "pytorch", "image": "registry.example/asr:8", "command": ["python3", "worker.py"] }],
                } } },
            },
        },
        "later": "unknown",
    })
}

pub(super) fn order_of(object: Value) -> Order {
    let cluster = SiteCluster {
        namespaces: fake::settings().namespaces,
        allows_host_paths: true,
        ..SiteCluster::kubernetes("kubernetes")
    };
    let site = Site { clusters: vec![cluster], ..Site::default() };
    let mut draft = JobDraft { checkpoint_dir: Some("/runs/asr".to_owned()), ..JobDraft::default() };
    draft.kubernetes.manifest = Some(Manifest::from(object));
    fake::order(draft.validate(&site).unwrap())
}

pub(super) fn made(order: &Order) -> Value {
    serde_json::to_value(of(order, &fake::settings()).unwrap().job).unwrap()
}

fn pod<'a>(job: &'a Value, role: &str) -> &'a Value {
    &job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]
}

/// Places where an object is not what another says there. Lists may hold more, and entries with a name are found by it.
pub(super) fn differences(place: &str, wanted: &Value, found: &Value, told: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (key, wanted) in wanted {
                let place = format!("{place}.{key}");
                match found.get(key) {
                    Some(found) => differences(&place, wanted, found, told),
                    None => told.push(place),
                }
            }
        }
        (Value::Array(wanted), Value::Array(found)) => {
            for entry in wanted {
                match found.iter().find(|one| !entry["name"].is_null() && one["name"] == entry["name"]) {
                    Some(one) => differences(&format!("{place}[{}]", entry["name"]), entry, one, told),
                    None if found.contains(entry) => {}
                    None => told.push(format!("{place}: {entry}")),
                }
            }
        }
        _ if wanted == found => {}
        _ => told.push(place.to_owned()),
    }
}

#[test]
fn a_pasted_object() {
    insta::assert_json_snapshot!("pasted", made(&order_of(pasted())));
}

#[test]
fn all_that_is_not_overridden_is_in_the_attempt() {
    let mut told = Vec::new();
    differences("", &pasted(), &made(&order_of(pasted())), &mut told);
    let overridden = Manifest::from(pasted()).overrides();
    let known = |place: &String| overridden.iter().any(|one| format!(".{}", one.field) == *place);
    told.retain(|place| !known(place));
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn a_number_of_replicas_that_is_not_given_is_written_down() {
    let mut object = pasted();
    object["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = Value::Null;
    object["spec"]["pytorchReplicaSpecs"]["Master"].as_object_mut().unwrap().remove("replicas");
    let job = made(&order_of(object));
    for role in ["Master", "Worker"] {
        assert_eq!(job["spec"]["pytorchReplicaSpecs"][role]["replicas"], 1, "{role}");
    }
}

#[test]
fn everything_of_a_job_without_a_manifest_is_added_to_each_pod() {
    let own = made(&fake::order(fake::spec(2)));
    let job = made(&order_of(pasted()));
    for role in ["Master", "Worker"] {
        let (mut own, found) = (pod(&own, "Master").clone(), pod(&job, role));
        // The program, and what only a job that names no account of its own gets.
        own["containers"][0]
            .as_object_mut()
            .unwrap()
            .retain(|name, _| ["env", "volumeMounts", "name"].contains(&name.as_str()));
        own["containers"][0]["env"]
            .as_array_mut()
            .unwrap()
            .retain(|one| one["name"] != "HOLDFAST_CHECKPOINT_DIR");
        own.as_object_mut().unwrap().remove("automountServiceAccountToken");
        own.as_object_mut().unwrap().remove("terminationGracePeriodSeconds");
        let mut told = Vec::new();
        differences("", &own, found, &mut told);
        assert_eq!(told, Vec::<String>::new(), "{role}");
    }
}

#[test]
fn each_role_keeps_its_own_command_behind_the_agent() {
    let job = made(&order_of(pasted()));
    let agent = ["/holdfast/holdfast-agent", "run", "--"];
    let master = &pod(&job, "Master")["containers"][1];
    assert_eq!(
        master["command"],
        json!([agent[0], agent[1], agent[2], "torchrun", "--nnodes=$(PET_NNODES)"])
    );
    assert_eq!(
        master["args"],
        pasted()["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][1]["args"]
    );
    let worker = &pod(&job, "Worker")["containers"][0];
    assert_eq!(worker["command"], json!([agent[0], agent[1], agent[2], "python3", "worker.py"]));
    let names: Vec<_> =
        master["env"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(&names[names.len() - 2..], ["LR", "TOKEN"], "after the agent's, which they may use");
    assert!(names.contains(&"HOLDFAST_CHECKPOINT_DIR"));
}

#[test]
fn the_operator_and_the_kubelet_try_nothing_again() {
    let job = made(&order_of(pasted()));
    assert_eq!(
        job["spec"]["runPolicy"],
        json!({ "backoffLimit": 0, "cleanPodPolicy": "None", "activeDeadlineSeconds": 900, "suspend": true })
    );
    for role in ["Master", "Worker"] {
        assert_eq!(job["spec"]["pytorchReplicaSpecs"][role]["restartPolicy"], "Never");
        assert_eq!(pod(&job, role)["restartPolicy"], "Never");
    }
    assert_eq!(pod(&job, "Master")["terminationGracePeriodSeconds"], 120);
    assert_eq!(pod(&job, "Worker")["terminationGracePeriodSeconds"], 20, "as long as the agent needs");
    let mut object = pasted();
    object["spec"]["elasticPolicy"] = json!({ "rdzvBackend": "c10d", "maxRestarts": 9 });
    assert_eq!(
        made(&order_of(object))["spec"]["elasticPolicy"],
        json!({ "rdzvBackend": "c10d", "maxRestarts": 0 })
    );
}

#[test]
fn avoided_nodes_are_out_of_every_alternative() {
    let mut order = order_of(pasted());
    order.plan.avoid = ["n2", "n7"].map(|name| NodeName::new(name).unwrap()).into();
    let job = made(&order);
    let required = |role| {
        pod(&job, role)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            .clone()
    };
    let out = |node: &str| json!({ "key": "metadata.name", "operator": "NotIn", "values": [node] });
    assert_eq!(
        required("Master"),
        json!([
            {
                "matchExpressions": [{ "key": "pool", "operator": "In", "values": ["a"] }],
                "matchFields": [out("n2"), out("n7")],
            },
            { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n9"] }, out("n2"), out("n7")] },
            {},
        ]),
        "a term that names nothing matches no node and stays so"
    );
    assert_eq!(required("Worker"), json!([{ "matchFields": [out("n2"), out("n7")] }]));
    assert_eq!(job["metadata"]["annotations"][names::AVOIDED], "n2,n7");
}

#[test]
fn the_attempts_marks_are_on_the_object_and_its_pods_beside_the_owners() {
    let job = made(&order_of(pasted()));
    assert_eq!(job["metadata"]["name"], fake::TASK);
    assert_eq!(job["metadata"]["namespace"], "eval");
    assert_eq!(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team");
    assert_eq!(job["metadata"]["annotations"]["team"], "speech");
    assert_eq!(job["metadata"]["annotations"][names::JOB_NAME], "whisper");
    assert_eq!(job["metadata"]["uid"], Value::Null);
    let template = &job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["metadata"];
    assert_eq!(template["labels"]["team"], "asr");
    assert_eq!(template["annotations"]["scrape"], "yes");
    for labels in [&job["metadata"]["labels"], &template["labels"]] {
        assert_eq!(labels[names::TASK], fake::TASK);
        assert_eq!(labels[names::INSTANCE], fake::settings().instance);
    }
    // Nobody can pretend to be another job, even past validation.
    let mut order = order_of(pasted());
    let mut forged = pasted();
    forged["metadata"]["labels"] = json!({ names::TASK: "other" });
    order.spec.kubernetes.manifest = Some(Manifest::from(forged));
    assert_eq!(made(&order)["metadata"]["labels"][names::TASK], fake::TASK);
}

#[test]
fn the_installer_is_no_more_than_the_program_and_comes_first() {
    let job = made(&order_of(pasted()));
    let names: Vec<_> =
        pod(&job, "Master")["initContainers"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, [pod::INSTALL, "fetch"]);
    let context = &pod(&job, "Master")["initContainers"][0]["securityContext"];
    assert_eq!(*context, json!({ "runAsUser": 1000, "capabilities": { "drop": ["ALL"] } }));
    assert_eq!(pod(&job, "Worker")["initContainers"][0]["securityContext"], Value::Null);
}

#[test]
fn the_hash_is_of_the_object_too() {
    let hash = |object| {
        let job = made(&order_of(object));
        job["metadata"]["annotations"][names::SPEC_HASH].as_str().unwrap().to_owned()
    };
    let mut other = pasted();
    other["later"] = json!("known");
    assert_eq!(hash(pasted()), hash(pasted()));
    assert_ne!(hash(pasted()), hash(other));
}

#[test]
fn an_object_that_nobody_checked_is_refused_and_not_mended() {
    for (pointer, want) in [
        ("/spec/runPolicy", "runPolicy of the job's manifest is no object"),
        (
            "/spec/pytorchReplicaSpecs/Master/template/spec/volumes",
            "volumes of the job's manifest is no list",
        ),
        ("/spec/pytorchReplicaSpecs/Worker/template/spec/containers/0/name", "no container of the program"),
    ] {
        let mut order = order_of(pasted());
        let mut object = pasted();
        *object.pointer_mut(pointer).unwrap() = json!("x");
        order.spec.kubernetes.manifest = Some(Manifest::from(object));
        let told = manifest::of(&order, &fake::settings()).unwrap_err();
        assert!(told.contains(want), "{told}");
    }
}
