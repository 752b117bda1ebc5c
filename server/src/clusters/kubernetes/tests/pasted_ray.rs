//! Attempts of a pasted RayJob.

use engine::{ids::NodeName, job::Manifest};
use serde_json::{Value, json};

use super::{
    super::{fake, manifest::of, names, pod},
    tests::{differences, made, order_of},
};

/// A RayJob as one finds it: its own names for containers, two groups of workers, a sidecar, a submitter, fields that nobody knows.
fn pasted() -> Value {
    let worker = |image: &str| {
        json!({
            "metadata": { "labels": { "team": "asr" }, "annotations": { "scrape": "yes" } },
            "spec": {
                "containers": [{
                    "name": "ray-worker", "image": image,
                    "env": [{ "name": "RANK", "value": "of its own" }],
                    "resources": { "limits": { "nvidia.com/gpu": 1 } },
                }],
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 5,
                "tolerations": [{ "key": "gpu", "operator": "Exists" }],
            },
        })
    };
    let cluster = json!({
        "rayVersion": "2.46.0",
        "enableInTreeAutoscaling": true,
        "autoscalerOptions": { "idleTimeoutSeconds": 60 },
        "headGroupSpec": {
            "serviceType": "ClusterIP",
            "rayStartParams": { "dashboard-host": "0.0.0.0", "num-cpus": "2" },
            "template": { "spec": {
                "containers": [
                    {
                        "name": "ray-head", "image": "registry.example/ray:2",
                        "ports": [{ "containerPort": 6379, "name": "gcs" }],
                        "env": [{ "name": "LR", "value": "0.1" }],
                        "volumeMounts": [{ "name": "runs", "mountPath": "/runs" }],
                        "securityContext": { "runAsUser": 1000, "capabilities": { "drop": ["ALL"] } },
                    },
                    { "name": "sidecar", "image": "log:2" },
                ],
                "initContainers": [{ "name": "fetch", "image": "fetch:1" }],
                "volumes": [{ "name": "runs", "persistentVolumeClaim": { "claimName": "runs" } }],
            } },
        },
        "workerGroupSpecs": [
            {
                "groupName": "small", "replicas": 1, "minReplicas": 1, "maxReplicas": 5,
                "rayStartParams": {}, "template": worker("registry.example/ray:2"),
            },
            {
                "groupName": "large", "minReplicas": 2, "maxReplicas": 2, "numOfHosts": 2,
                "rayStartParams": { "resources": "'\"{\\\"big\\\": 1}\"'" }, "template": worker("registry.example/ray:3"),
            },
        ],
    });
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": { "name": "tune", "namespace": "eval", "labels": { "kueue.x-k8s.io/queue-name": "team" } },
        "spec": {
            "entrypoint": "python tune.py --lr $LR && echo \"it's done\"",
            "runtimeEnvYAML": "pip: [tqdm]\nworking_dir: https://example.org/a.zip\n",
            "metadata": { "owner": "speech" },
            "entrypointNumCpus": 0.5,
            "entrypointResources": "{\"disk\": 1}",
            "jobId": "mine",
            "submissionMode": "K8sJobMode",
            "submitterPodTemplate": { "spec": { "containers": [{ "name": "submit", "image": "ray:2" }] } },
            "submitterConfig": { "backoffLimit": 2 },
            "backoffLimit": 3,
            "shutdownAfterJobFinishes": false,
            "activeDeadlineSeconds": 900,
            "later": { "unknown": [1, 2.5, null] },
            "rayClusterSpec": cluster,
        },
        "later": "unknown",
    })
}

/// The templates of the head and of each group.
fn templates(job: &Value) -> Vec<&Value> {
    let cluster = &job["spec"]["rayClusterSpec"];
    let workers = cluster["workerGroupSpecs"].as_array().unwrap();
    std::iter::once(&cluster["headGroupSpec"]).chain(workers).map(|group| &group["template"]).collect()
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array().into_iter().flatten().find(|one| one["name"] == name)
}

#[test]
fn a_pasted_rayjob() {
    insta::assert_json_snapshot!("pasted_ray", made(&order_of(pasted())));
}

#[test]
fn all_that_is_not_overridden_is_in_the_attempt() {
    let mut told = Vec::new();
    differences("", &pasted(), &made(&order_of(pasted())), &mut told);
    let overridden = Manifest::from(pasted()).overrides();
    // What holds the agent is another text, as everywhere; lists are told by the names of their entries.
    let known = |place: &String| {
        let fields = overridden.iter().map(|one| format!(".{}", one.field));
        fields.chain([".spec.entrypoint".to_owned()]).any(|field| field == *place)
    };
    told.retain(|place| !known(place));
    let groups: Vec<_> = told.iter().filter(|place| place.contains("workerGroupSpecs")).collect();
    assert_eq!(told.len(), groups.len(), "{told:#?}");
    for (given, found) in templates(&pasted()).into_iter().zip(templates(&made(&order_of(pasted())))) {
        let mut told = Vec::new();
        differences("", given, found, &mut told);
        told.retain(|place| place != ".spec.restartPolicy");
        assert_eq!(told, Vec::<String>::new());
    }
}

#[test]
fn the_driver_is_started_by_the_agent_and_submitted_by_kuberay_once() {
    let job = made(&order_of(pasted()));
    let spec = &job["spec"];
    assert_eq!(
        spec["entrypoint"],
        r#"exec '/holdfast/holdfast-agent' 'run' '--' '/bin/sh' '-c' 'python tune.py --lr $LR && echo "it'\''s done"'"#
    );
    for (field, want) in [
        ("jobId", json!(fake::TASK)),
        ("submissionMode", json!("HTTPMode")),
        ("backoffLimit", json!(0)),
        ("shutdownAfterJobFinishes", json!(true)),
        ("ttlSecondsAfterFinished", json!(600)),
        ("submitterPodTemplate", Value::Null),
        ("submitterConfig", Value::Null),
        ("activeDeadlineSeconds", json!(900)),
        ("entrypointNumCpus", json!(0.5)),
    ] {
        assert_eq!(spec[field], want, "{field}");
    }
}

#[test]
fn a_driver_that_asks_for_its_share_takes_it_on_the_head() {
    let resources = |object: Value| {
        let job = made(&order_of(object));
        job["spec"]["entrypointResources"].as_str().map(|text| serde_json::from_str::<Value>(text).unwrap())
    };
    assert_eq!(resources(pasted()), Some(json!({ "disk": 1, "node:__internal_head__": 0.001 })));
    let mut plain = pasted();
    plain["spec"]["entrypointResources"] = json!("");
    assert_eq!(resources(plain.clone()), Some(json!({ "node:__internal_head__": 0.001 })));
    let fields = plain["spec"].as_object_mut().unwrap();
    fields.retain(|name, _| name != "entrypointNumCpus" && name != "entrypointResources");
    assert_eq!(resources(plain), None, "Ray puts it on the head by itself");
}

#[test]
fn the_head_alone_gets_the_agent_and_every_pod_is_known() {
    let job = made(&order_of(pasted()));
    let [head, small, large] = &templates(&job)[..] else { panic!() };
    let containers = &head["spec"]["containers"];
    assert!(named(&head["spec"]["initContainers"], pod::INSTALL).is_some());
    assert!(named(&head["spec"]["volumes"], "holdfast-token").is_some());
    assert_eq!(containers[0]["command"], Value::Null, "what a Ray container starts with is KubeRay's");
    assert_eq!(named(&containers[0]["env"], "HOLDFAST_AGENT_NO_RANKS").unwrap()["value"], "true");
    assert_eq!(containers[1], json!({ "name": "sidecar", "image": "log:2" }));
    let context = &head["spec"]["initContainers"][0]["securityContext"];
    assert_eq!(*context, json!({ "runAsUser": 1000, "capabilities": { "drop": ["ALL"] } }));
    assert_eq!(head["metadata"]["annotations"], json!({ names::MAIN: "ray-head" }));
    assert_eq!(head["spec"]["terminationGracePeriodSeconds"], 20);
    for worker in [small, large] {
        let spec = &worker["spec"];
        assert_eq!((&spec["initContainers"], &spec["volumes"]), (&Value::Null, &Value::Null));
        assert_eq!(spec["terminationGracePeriodSeconds"], 5, "no agent needs time there");
        let env = &spec["containers"][0]["env"];
        assert_eq!(named(env, "HOLDFAST_CHECKPOINT_DIR").unwrap()["value"], "/runs/asr");
        assert_eq!(named(env, "HOLDFAST_AGENT_REPLICA"), None);
        assert_eq!(named(env, "RANK").unwrap()["value"], "of its own");
        assert_eq!(worker["metadata"]["annotations"], json!({ "scrape": "yes", names::MAIN: "ray-worker" }));
    }
    for template in [head, small, large] {
        assert_eq!(template["spec"]["restartPolicy"], "Never");
        assert_eq!(template["metadata"]["labels"][names::TASK], fake::TASK);
    }
}

#[test]
fn avoided_nodes_are_out_of_every_group() {
    let mut order = order_of(pasted());
    order.plan.avoid = [NodeName::new("n2").unwrap()].into();
    let job = made(&order);
    for template in templates(&job) {
        let terms = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"]
            .clone();
        let out = json!({ "key": "metadata.name", "operator": "NotIn", "values": ["n2"] });
        assert_eq!(terms, json!([{ "matchFields": [out] }]));
    }
}

#[test]
fn an_object_that_nobody_checked_is_refused_and_not_mended() {
    for (pointer, want) in [
        ("/spec/rayClusterSpec", "rayClusterSpec of the job's manifest is no object"),
        ("/spec/rayClusterSpec/workerGroupSpecs/0", "a group of workers in the job's manifest is no object"),
        ("/spec/entrypointResources", "entrypointResources of the job's manifest is no object in JSON"),
        (
            "/spec/rayClusterSpec/headGroupSpec/template/spec/containers",
            "containers of the job's manifest is no list",
        ),
    ] {
        let mut order = order_of(pasted());
        let mut object = pasted();
        *object.pointer_mut(pointer).unwrap() = json!("x");
        order.spec.kubernetes.manifest = Some(Manifest::from(object));
        let told = of(&order, &fake::settings()).unwrap_err();
        assert!(told.contains(want), "{told}");
    }
}
