//! Bisect Diagnose where a node takes nothing, or has no room yet.

use serde_json::{Value, json};

use super::nodes::accelerators;
use crate::{
    diagnoses::{begin, fails, groups, until, until_end},
    harness::World,
    jobs::steps_of,
};

#[tokio::test]
async fn a_cordoned_node_is_named_as_not_tested_and_a_full_one_is_waited_for() {
    let Some(world) = World::start("bisect-full").await else { return };
    accelerators(&world);
    let mut changes = fails();
    changes["accelerators_per_replica"] = json!(1);
    let job = world.train("broken", 1, &[], changes).await;
    let chain = world.until_state(&job, "failed").await;
    assert_eq!(chain["attempts"][0]["nodes"], json!(["n1", "n2"]), "one accelerator on each: {chain:#}");
    let busy = json!({ "replicas": 1, "accelerators_per_replica": 1,
        "kubernetes": { "node_selector": { "kubernetes.io/hostname": "n1" },
                        "volumes": [{ "mount_path": world.shared, "source": { "host_path": world.shared } }] } });
    let busy = world.train("busy", 100_000, &[], busy).await;
    world.until(&busy, "training", |chain| steps_of(chain, 0, 0)).await;
    world.kubectl(&["cordon", "n2"]);
    // The nodes of the newest attempt, without a word.
    let run = begin(&world, &job, &json!({ "command": ["true"] })).await;
    let is_of = |group: &Value, node: &str| group["nodes"] == json!([node]);
    let lost = |detail: &Value| {
        groups(detail).iter().any(|group| is_of(group, "n2") && group["outcome"]["is"] == "lost")
    };
    let detail = until(&world, &run, "without the cordoned one", lost).await;
    assert!(detail.to_string().contains("n2 is cordoned"), "{detail:#}");
    let waits =
        |group: &&Value| is_of(group, "n1") && group["started_at"].is_null() && group["outcome"].is_null();
    assert!(groups(&detail).iter().any(|group| waits(group)), "its node is full: {detail:#}");
    world.stop(&busy).await;
    let detail = until_end(&world, &run).await;
    assert_eq!(detail["finding"]["untested"], json!(["n2"]), "{detail:#}");
    assert_eq!(detail["suspects"], json!([]), "{detail:#}");
    let passed = |group: &&Value| is_of(group, "n1") && group["outcome"]["is"] == "pass";
    assert!(groups(&detail).iter().any(|group| passed(group)), "{detail:#}");
    world.kubectl(&["uncordon", "n2"]);
    world.until_nothing_is_left().await;
}
