//! Health checks that fail in pods: training does not begin, and what failed is named with its node.

use serde_json::{Value, json};

use crate::{harness::World, jobs::incidents};

fn with_checks(checks: &[&str], command: Option<&str>) -> Value {
    let command = command.map(|script| json!(["sh", "-c", script]));
    json!({
        "auto_failover": true, "max_task_restarts": 0, "policy": { "enabled": true },
        "health_checks": { "enabled": true, "checks": checks, "command": command },
    })
}

/// The only incident of a job that has failed before it trained.
fn incident(chain: &Value) -> &Value {
    let [attempt] = &chain["attempts"].as_array().unwrap()[..] else { panic!("{chain:#}") };
    assert_eq!(attempt["started_at"], Value::Null, "it began to train: {chain:#}");
    assert_eq!(attempt["launches"][0]["health_checks"]["state"], "failed", "{chain:#}");
    let [incident] = &incidents(attempt)[..] else { panic!("{chain:#}") };
    assert_eq!(incident["phase"], "starting", "{incident:#}");
    incident
}

#[tokio::test]
async fn what_fails_a_check_in_one_pod_keeps_all_from_training_and_names_the_node() {
    let Some(world) = World::start("checks").await else { return };
    let shared = world.shared.to_str().unwrap().to_owned();
    let volume = |path: &str, from: &str| json!({ "mount_path": path, "source": { "host_path": from } });

    let script = "test $RANK != 1 || { echo \"scratch of $HOLDFAST_NODE is full\"; exit 3; }";
    let own =
        world.train("own", 20, &[], json!({ "fault_tolerance": with_checks(&["shm"], Some(script)) })).await;
    let lost = json!({
        "fault_tolerance": with_checks(&["checkpoint_dir"], None), "checkpoint_dir": "/no-such-volume/deep/ckpt",
    });
    let lost = world.train("lost", 20, &[], lost).await;
    // A kernel that tells of a broken GPU, to this pod.
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let record =
        format!("4,1,{:.0},-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n", uptime * 1e6);
    let log = format!("{shared}/kmsg");
    std::fs::write(&log, record).unwrap();
    let broken = json!({
        "replicas": 1, "fault_tolerance": with_checks(&["kernel_log"], None),
        "kubernetes": { "volumes": [volume(&shared, &shared), volume("/dev/kmsg", &log)] },
    });
    let broken = world.train("broken", 20, &[], broken).await;

    let chain = world.until_state(&own, "failed").await;
    let found = incident(&chain);
    let node = found["root"]["node"].as_str().unwrap();
    assert_eq!(
        (&found["root"]["replica"], &found["failure_type"]),
        (&json!("worker-0"), &json!("ENV_ERROR"))
    );
    let said = format!("exit 3; it said: scratch of {node} is full");
    assert!(found["fault"].as_str().unwrap().ends_with(&said), "{found:#}");
    assert_eq!(found["decision"]["avoid"], json!([]), "a command's word is no strike: {found:#}");

    let chain = world.until_state(&lost, "failed").await;
    let found = incident(&chain);
    let fault = found["fault"].as_str().unwrap();
    assert!(
        fault.contains("/no-such-volume/deep/ckpt is missing") && fault.contains("1 replica more"),
        "{fault}"
    );
    assert!(found["hint"].as_str().unwrap().contains("Mount the volume"), "{found:#}");

    let chain = world.until_state(&broken, "failed").await;
    let found = incident(&chain);
    assert_eq!(found["failure_type"], "HW_NODE", "{found:#}");
    assert!(found["fault"].as_str().unwrap().contains("Xid 79"), "{found:#}");
    let node = found["root"]["node"].as_str().unwrap();
    let struck = world.read(&format!("/nodes/{node}")).await;
    let strikes = struck["strikes"].as_array().unwrap();
    assert!(strikes.iter().any(|strike| strike["job_id"] == json!(broken)), "{struck:#}");
    let other = if node == "n1" { "n2" } else { "n1" };
    let other = world.read(&format!("/nodes/{other}")).await;
    assert_eq!(other["strikes"], json!([]), "{other:#}");
    world.until_nothing_is_left().await;
}
