//! A pasted manifest on a real cluster: it runs as it is, below the agent.

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
