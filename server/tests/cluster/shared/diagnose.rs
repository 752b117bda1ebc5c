//! Bisect Diagnose on both nodes, beside whatever else runs there.

use serde_json::json;

use crate::{
    diagnoses::{any_runs, begin, fails, groups, until, until_end},
    harness::World,
    jobs::ray,
};

#[tokio::test]
async fn a_node_that_fails_a_command_is_found_though_the_server_is_killed_between() {
    let Some(mut world) = World::start("bisect").await else { return };
    let job = world.train("broken", 1, &[], fails()).await;
    world.until_state(&job, "failed").await;
    // The program's volumes are there too.
    let script =
        "test -f $0 && test $HOLDFAST_NODE != n2 || { echo \"bad disk in $HOLDFAST_NODE\"; exit 3; }";
    let file = world.shared.join("train.py");
    let body = json!({ "nodes": ["n1", "n2"], "command": ["sh", "-c", script, file], "limit_seconds": 60 });
    let run = begin(&world, &job, &body).await;
    until(&world, &run, "in its second round", |detail| detail["rounds"].as_array().unwrap().len() >= 2)
        .await;
    world.kill();
    world.serve().await;
    let detail = until_end(&world, &run).await;
    assert_eq!((&detail["verdict"], &detail["suspects"]), (&json!("suspects"), &json!(["n2"])), "{detail:#}");
    for group in groups(&detail) {
        let is_bad = group["nodes"].as_array().unwrap().contains(&json!("n2"));
        assert_eq!(group["outcome"]["is"], if is_bad { "fail" } else { "pass" }, "{detail:#}");
    }
    world.until_nothing_is_left().await;
    assert_eq!(world.read("/jobs").await["total"], 1, "groups are no jobs of people");

    let chain = world.read(&format!("/jobs/{job}/chain")).await;
    assert_eq!(chain["diagnostics"][0]["suspects"], json!(["n2"]), "{chain:#}");
    world.post(&format!("/jobs/{job}/resubmit"), &json!({})).await;
    let chain = world.until(&job, "resubmitted", |chain| chain["attempts_total"] == 2).await;
    assert_eq!(chain["attempts"][1]["avoided_nodes"], json!(["n2"]), "{chain:#}");
    let chain = world.until_state(&job, "failed").await;
    assert_eq!(chain["attempts"][1]["nodes"], json!(["n1"]), "both replicas keep off the suspect");
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn the_built_in_test_of_a_rayjobs_nodes_measures_between_them_and_leaves_nothing_behind() {
    let Some(world) = World::start("bisect-ray").await else { return };
    let mut changes = ray(0, json!({ "command": ["sh", "-c", "exit 1"] }));
    changes["fault_tolerance"] = json!({ "auto_failover": false });
    let job = world.train("driver", 1, &[], changes).await;
    world.until_state(&job, "failed").await;
    let both = json!(["n1", "n2"]);
    let plan = world.post(&format!("/jobs/{job}/diagnose"), &json!({ "dry_run": true, "nodes": both })).await;
    assert_eq!((&plan["nodes"], &plan["refusal"]), (&both, &json!(null)), "{plan:#}");
    let command =
        "holdfast-agent probe --processor-seconds 0.1 --memory-mib 2 --transfer-mib 4 --limit-seconds 50";
    let command: Vec<_> = command.split(' ').collect();
    let body = json!({ "nodes": both, "command": command, "limit_seconds": 60 });
    let run = begin(&world, &job, &body).await;
    let detail = until_end(&world, &run).await;
    assert_eq!((&detail["verdict"], &detail["suspects"]), (&json!("all_pass"), &json!([])), "{detail:#}");
    let measured = |group: &&serde_json::Value| group["outcome"]["megabytes_per_second"].is_number();
    assert!(groups(&detail).iter().any(measured), "{detail:#}");

    // A run that is stopped, and one whose job is deleted, take their pods with them.
    let sleeps = json!({ "nodes": both, "command": ["sleep", "600"] });
    let run = begin(&world, &job, &sleeps).await;
    until(&world, &run, "running", any_runs).await;
    world.post(&format!("/diagnoses/{run}/stop"), &json!({})).await;
    assert_eq!(until_end(&world, &run).await["verdict"], "stopped");
    world.until_nothing_is_left().await;
    let run = begin(&world, &job, &sleeps).await;
    until(&world, &run, "running", any_runs).await;
    assert_eq!(world.delete(&format!("/jobs/{job}")).await.0, 202);
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_group_whose_pod_somebody_deletes_was_not_tested_and_is_tested_again() {
    let Some(world) = World::start("bisect-lost").await else { return };
    let job = world.train("broken", 1, &[], fails()).await;
    world.until_state(&job, "failed").await;
    let go = world.shared.join("go");
    let script = "while ! test -e $0; do sleep 0.1; done; test $HOLDFAST_NODE != n1";
    let body = json!({ "nodes": ["n1", "n2"], "command": ["sh", "-c", script, go], "limit_seconds": 120 });
    let run = begin(&world, &job, &body).await;
    let both_run = |detail: &serde_json::Value| {
        groups(detail).iter().filter(|group| group["started_at"].is_string()).count() == 2
    };
    until(&world, &run, "running on both", both_run).await;
    let on_n2 = "{.items[?(@.spec.nodeName==\"n2\")].metadata.name}";
    // Those of the job itself may still be on their way out.
    let there = world.get("pods", on_n2);
    let pod = there.split_whitespace().find(|name| name.starts_with("bisect-")).unwrap();
    world.kubectl(&["-n", world.namespace(), "delete", "pod", pod, "--wait=false"]);
    let is_lost = |group: &&serde_json::Value| group["outcome"]["is"] == "lost";
    until(&world, &run, "lost", |detail| groups(detail).iter().any(is_lost)).await;
    std::fs::write(&go, "").unwrap();
    let detail = until_end(&world, &run).await;
    assert_eq!((&detail["verdict"], &detail["suspects"]), (&json!("suspects"), &json!(["n1"])), "{detail:#}");
    assert_eq!(groups(&detail).iter().filter(|group| is_lost(group)).count(), 1, "{detail:#}");
    world.until_nothing_is_left().await;
}
