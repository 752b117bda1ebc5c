//! Pasted manifests on a real cluster: they run as they are, below the agent.

use serde_json::json;

use crate::{
    harness::World,
    jobs::{incidents, steps_of},
};

/// A manifest as one finds it: retries left to the operator, a sidecar, an init container, other words for master and worker.
fn manifest(shared: &str) -> String {
    let replica = |replicas: u32, said: &str| {
        format!(
            r#"
      replicas: {replicas}
      restartPolicy: OnFailure
      template:
        metadata:
          labels: {{ said: {said} }}
        spec:
          initContainers:
            - name: prepare
              image: localhost/train:1
              imagePullPolicy: Never
              command: [sh, -c, "echo {said} > /work/said"]
              volumeMounts: [{{ name: work, mountPath: /work }}]
          containers:
            - name: sidecar
              image: localhost/train:1
              imagePullPolicy: Never
              command: [sleep, "3600"]
            - name: pytorch
              image: localhost/train:1
              imagePullPolicy: Never
              command: [sh, -c, 'test "$(cat /work/said)" = {said} && exec python3 "$0" "$@"']
              args: ["{shared}/train.py", "--steps", "$(STEPS)", "--checkpoint-dir", "{shared}/checkpoints-pasted"]
              env:
                - name: STEPS
                  value: "80"
                - name: FAIL_AT
                  value: "30"
              volumeMounts:
                - {{ name: work, mountPath: /work }}
                - {{ name: shared, mountPath: {shared} }}
          volumes:
            - {{ name: work, emptyDir: {{}} }}
            - {{ name: shared, hostPath: {{ path: {shared} }} }}"#
        )
    };
    format!(
        r"apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: pasted
  labels: {{ team: speech }}
spec:
  runPolicy: {{ backoffLimit: 3, cleanPodPolicy: All, ttlSecondsAfterFinished: 5 }}
  pytorchReplicaSpecs:
    Master:{}
    Worker:{}
",
        replica(1, "master"),
        replica(1, "worker")
    )
}

#[tokio::test]
async fn a_pasted_manifest_runs_as_it_is_and_its_failure_is_holdfasts_to_answer() {
    let Some(world) = World::start("pasted").await else { return };
    let shared = world.shared.to_str().unwrap();
    let job = world
        .post(
            "/jobs:import",
            &json!({
                "manifest": manifest(shared),
                "checkpoint_dir": format!("{shared}/checkpoints-pasted"),
                "fault_tolerance": { "auto_failover": true, "max_task_restarts": 1, "policy": { "enabled": true } },
            }),
        )
        .await;
    assert!(!job["overridden"].as_array().unwrap().is_empty(), "{job:#}");
    let id = job["job_id"].as_str().unwrap();
    world.until(id, "running", |chain| steps_of(chain, 0, 0)).await;
    // The operator and the API server keep what they were given.
    let task = format!("pasted-{id}-1");
    let made = |path: &str| world.get(&format!("pytorchjobs/{task}"), path);
    assert_eq!(made("{.metadata.labels.team}"), "speech");
    assert_eq!(made("{.spec.runPolicy.backoffLimit}"), "0");
    assert_eq!(made("{.spec.runPolicy.ttlSecondsAfterFinished}"), "");
    assert_eq!(world.get("pods", "{.items[*].metadata.labels.said}").split(' ').count(), 2);
    let given = world.read(&format!("/tasks/{task}/manifest")).await;
    assert!(given.as_str().is_some_and(|text| text.contains("holdfast-install")), "{given:#}");

    let chain = world.until_state(id, "succeeded").await;
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    let attempt = &chain["attempts"][0];
    let [incident] = &incidents(attempt)[..] else { panic!("{attempt:#}") };
    assert_eq!(incident["decision"]["action"], "restart_in_place", "{attempt:#}");
    assert_eq!(attempt["launches"][1]["proof"]["verdict"], "resumed", "{attempt:#}");
    world.until_nothing_is_left().await;
}

/// A RayJob as one finds it: KubeRay's own retries and submitter, its own names for containers, a sidecar and an init container on the
/// head, two groups of workers.
fn rayjob(shared: &str) -> String {
    let worker = |group: &str| {
        format!(
            r#"
        - groupName: {group}
          replicas: 1
          minReplicas: 0
          maxReplicas: 3
          rayStartParams: {{ num-cpus: "1" }}
          template:
            metadata:
              labels: {{ said: {group} }}
            spec:
              containers:
                - name: ray-worker
                  image: localhost/fake-ray:1
                  imagePullPolicy: Never"#
        )
    };
    format!(
        r#"apiVersion: ray.io/v1
kind: RayJob
metadata:
  name: pasted-ray
  labels: {{ team: speech }}
spec:
  entrypoint: test "$(cat /work/said)" = head && python3 {shared}/train.py --steps $STEPS --checkpoint-dir {shared}/checkpoints-ray
  submitterPodTemplate:
    spec:
      restartPolicy: Never
      containers: [{{ name: submit, image: localhost/fake-ray:1 }}]
  submitterConfig: {{ backoffLimit: 4 }}
  backoffLimit: 3
  ttlSecondsAfterFinished: 5
  shutdownAfterJobFinishes: true
  entrypointNumCpus: 0.5
  metadata: {{ owner: speech }}
  runtimeEnvYAML: |
    env_vars:
      LATER: "1"
  rayClusterSpec:
    rayVersion: "2.46.0"
    headGroupSpec:
      rayStartParams: {{ dashboard-host: "0.0.0.0" }}
      template:
        metadata:
          labels: {{ said: head }}
        spec:
          initContainers:
            - name: prepare
              image: localhost/train:1
              imagePullPolicy: Never
              command: [sh, -c, "echo head > /work/said"]
              volumeMounts: [{{ name: work, mountPath: /work }}]
          containers:
            - name: ray-head
              image: localhost/fake-ray:1
              imagePullPolicy: Never
              env:
                - {{ name: STEPS, value: "80" }}
                - {{ name: FAIL_AT, value: "30" }}
              volumeMounts:
                - {{ name: work, mountPath: /work }}
                - {{ name: shared, mountPath: {shared} }}
            - name: sidecar
              image: localhost/train:1
              imagePullPolicy: Never
              command: [sleep, "3600"]
          volumes:
            - {{ name: work, emptyDir: {{}} }}
            - {{ name: shared, hostPath: {{ path: {shared} }} }}
    workerGroupSpecs:{}{}
"#,
        worker("first"),
        worker("second")
    )
}

#[tokio::test]
async fn a_pasted_rayjob_runs_as_it_is_and_its_failure_is_holdfasts_to_answer() {
    let Some(world) = World::start("pasted-ray").await else { return };
    let shared = world.shared.to_str().unwrap();
    let job = world
        .post(
            "/jobs:import",
            &json!({
                "manifest": rayjob(shared),
                "checkpoint_dir": format!("{shared}/checkpoints-ray"),
                "fault_tolerance": { "auto_failover": true, "max_task_restarts": 1 },
            }),
        )
        .await;
    let overridden = job["overridden"].as_array().unwrap();
    for field in ["spec.backoffLimit", "spec.submitterConfig", "spec.entrypointResources"] {
        assert!(overridden.iter().any(|one| one["field"] == field), "{field}: {job:#}");
    }
    let id = job["job_id"].as_str().unwrap();
    world.until(id, "running", |chain| steps_of(chain, 0, 0)).await;
    // KubeRay and the API server keep what they were given.
    let task = format!("pasted-ray-{id}-1");
    let made = |path: &str| world.get(&format!("rayjobs/{task}"), path);
    for (path, want) in [
        ("{.metadata.labels.team}", "speech"),
        ("{.spec.backoffLimit}", "0"),
        ("{.spec.submissionMode}", "HTTPMode"),
        ("{.spec.submitterConfig}", ""),
        ("{.spec.metadata.owner}", "speech"),
        ("{.spec.entrypointNumCpus}", "0.5"),
        ("{.spec.jobId}", &task),
    ] {
        assert_eq!(made(path), want, "{path}");
    }
    let said = world.get("pods", "{.items[*].metadata.labels.said}");
    let mut said: Vec<_> = said.split(' ').collect();
    said.sort_unstable();
    assert_eq!(said, ["first", "head", "second"]);
    assert_eq!(world.get("jobs", "{.items[*].metadata.name}"), "", "no submitter");
    let given = world.read(&format!("/tasks/{task}/manifest")).await;
    assert!(given.as_str().is_some_and(|text| text.contains("holdfast-install")), "{given:#}");

    let chain = world.until_state(id, "succeeded").await;
    assert_eq!(chain["attempts_total"], 2, "{chain:#}");
    let [incident] = &incidents(&chain["attempts"][0])[..] else { panic!("{chain:#}") };
    assert_eq!(incident["root"]["replica"], "head-0", "{incident:#}");
    assert_eq!(chain["attempts"][1]["launches"][0]["proof"]["verdict"], "resumed", "{chain:#}");
    world.until_nothing_is_left().await;
    let log = world.read(&format!("/tasks/{task}/logs?replica=head-0&tail=400")).await;
    assert!(log.to_string().contains("holdfast step=29"), "kept before its cluster went: {log:#}");
}
