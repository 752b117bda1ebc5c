use serde_json::json;

use super::*;

fn manifest() -> Manifest {
    Manifest::from(json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": "whisper",
            "uid": "7f", "resourceVersion": "81", "generation": 2, "creationTimestamp": "2026-11-29T19:26:47Z",
            "finalizers": ["x"], "ownerReferences": [{ "kind": "Workflow" }], "managedFields": [],
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "speech" },
        },
        "spec": {
            "nprocPerNode": "8",
            "runPolicy": { "backoffLimit": 3, "cleanPodPolicy": "All", "ttlSecondsAfterFinished": 60, "activeDeadlineSeconds": 9 },
            "elasticPolicy": { "maxRestarts": 5 },
            "pytorchReplicaSpecs": {
                "Master": { "restartPolicy": "OnFailure", "template": { "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "containers": [{ "name": "log" }, { "name": "pytorch", "volumeMounts": [
                        { "name": "runs", "mountPath": "/runs/" },
                        { "name": "keys", "mountPath": "/runs/keys", "readOnly": true },
                        { "name": "lost", "mountPath": "/elsewhere" },
                    ] }],
                    "volumes": [
                        { "persistentVolumeClaim": { "claimName": "r" }, "name": "runs" },
                        { "name": "keys", "secret": { "secretName": "k" } },
                    ],
                } } },
                "Worker": { "replicas": 3, "restartPolicy": "Never", "template": { "spec": { "restartPolicy": "OnFailure" } } },
            },
        },
        "status": { "conditions": [] },
    }))
}

#[test]
fn the_base_is_without_what_the_cluster_wrote() {
    let base = manifest().base();
    let mut wanted = manifest().object().clone();
    wanted["metadata"] = json!({ "name": "whisper", "annotations": { "team": "speech" } });
    wanted.as_object_mut().unwrap().remove("status");
    assert_eq!(base.object(), &wanted);
    assert_eq!(base.base(), base);
}

#[test]
fn what_becomes_of_something_else_than_it_says_is_named() {
    let fields: Vec<_> = manifest().overrides().into_iter().map(|one| one.field).collect();
    assert_eq!(
        fields,
        [
            "metadata.name",
            "metadata.uid",
            "metadata.resourceVersion",
            "metadata.generation",
            "metadata.creationTimestamp",
            "metadata.managedFields",
            "metadata.finalizers",
            "metadata.ownerReferences",
            "metadata.annotations.kubectl.kubernetes.io/last-applied-configuration",
            "status",
            "spec.runPolicy.backoffLimit",
            "spec.runPolicy.cleanPodPolicy",
            "spec.runPolicy.ttlSecondsAfterFinished",
            "spec.elasticPolicy.maxRestarts",
            "spec.pytorchReplicaSpecs.Master.replicas",
            "spec.pytorchReplicaSpecs.Master.restartPolicy",
            "spec.pytorchReplicaSpecs.Master.template.spec.terminationGracePeriodSeconds",
            "spec.pytorchReplicaSpecs.Worker.template.spec.restartPolicy",
        ]
    );
    let plain =
        json!({ "metadata": {}, "spec": { "runPolicy": { "backoffLimit": 0, "cleanPodPolicy": "None" } } });
    assert_eq!(Manifest::from(plain).overrides(), []);
}

#[test]
fn a_path_is_on_the_deepest_volume_that_holds_it() {
    let manifest = manifest();
    let on = |path| manifest.volume_of(path).map(|one| (one.name, one.source, one.read_only));
    assert_eq!(on("/runs/7b"), Some(("runs", "persistentVolumeClaim", false)));
    assert_eq!(on("/runs/keys/a"), Some(("keys", "secret", true)));
    assert_eq!(on("/elsewhere"), None, "no such volume");
    assert_eq!(on("/run"), None);
    assert_eq!(manifest.volume_of("/runs").unwrap().details["claimName"], "r");
}

#[test]
fn the_programs_own_processes_are_a_number_or_not_known() {
    for (given, want) in [
        (json!("8"), Some(8)),
        (json!(4), Some(4)),
        (json!("auto"), None),
        (json!("0"), None),
        (json!(null), None),
        (json!([1]), None),
    ] {
        let manifest = Manifest::from(json!({ "spec": { "nprocPerNode": given } }));
        assert_eq!(manifest.processes(), want, "{given}");
    }
}

/// A RayJob in which everything that Holdfast decides is set.
fn rayjob() -> Manifest {
    let pod = |name: &str| {
        json!({ "spec": {
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 60,
            "containers": [
                { "name": name, "volumeMounts": [{ "name": "runs", "mountPath": "/runs" }] },
                { "name": "log", "volumeMounts": [{ "name": "log", "mountPath": "/log" }] },
            ],
            "volumes": [{ "name": "runs", "persistentVolumeClaim": { "claimName": "r" } }, { "name": "log", "emptyDir": {} }],
        } })
    };
    Manifest::from(json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": { "name": "tune" },
        "spec": {
            "entrypoint": "python tune.py",
            "entrypointNumCpus": 1,
            "jobId": "mine",
            "submissionMode": "K8sJobMode",
            "submitterPodTemplate": {},
            "submitterConfig": { "backoffLimit": 2 },
            "backoffLimit": 3,
            "shutdownAfterJobFinishes": false,
            "ttlSecondsAfterFinished": 60,
            "deletionStrategy": {},
            "activeDeadlineSeconds": 900,
            "rayClusterSpec": {
                "headGroupSpec": { "template": pod("ray-head") },
                "workerGroupSpecs": [{ "template": pod("a") }, { "template": pod("b") }],
            },
        },
    }))
}

#[test]
fn of_a_rayjob_too() {
    let fields: Vec<_> = rayjob().overrides().into_iter().map(|one| one.field).collect();
    assert_eq!(
        fields,
        [
            "metadata.name",
            "spec.jobId",
            "spec.submissionMode",
            "spec.submitterPodTemplate",
            "spec.submitterConfig",
            "spec.backoffLimit",
            "spec.shutdownAfterJobFinishes",
            "spec.ttlSecondsAfterFinished",
            "spec.deletionStrategy",
            "spec.activeDeadlineSeconds",
            "spec.entrypointResources",
            "spec.rayClusterSpec.headGroupSpec.template.spec.restartPolicy",
            "spec.rayClusterSpec.headGroupSpec.template.spec.terminationGracePeriodSeconds",
            "spec.rayClusterSpec.workerGroupSpecs[0].template.spec.restartPolicy",
            "spec.rayClusterSpec.workerGroupSpecs[1].template.spec.restartPolicy",
        ]
    );
    let plain = json!({ "kind": "RayJob", "spec": {
        "entrypoint": "python tune.py", "entrypointNumCpus": 0, "entrypointResources": "",
        "submissionMode": "HTTPMode", "backoffLimit": 0, "shutdownAfterJobFinishes": true, "ttlSecondsAfterFinished": 600,
    } });
    assert_eq!(Manifest::from(plain).overrides(), []);
}

#[test]
fn the_head_has_the_volumes_that_count() {
    let manifest = rayjob();
    assert_eq!(manifest.volume_of("/runs/7").unwrap().source, "persistentVolumeClaim");
    assert_eq!(manifest.volume_of("/log"), None, "the first container is Ray's");
}
