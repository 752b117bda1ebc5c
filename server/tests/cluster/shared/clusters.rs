//! Several clusters in one server: this machine, and the same API server and namespace twice under two names.

use serde_json::json;

use crate::{harness::World, jobs::steps_of};

/// Tables for this machine and for these names on the test cluster.
fn tables(world: &World, names: &[&str]) -> String {
    let here = "[[cluster]]\nname = \"here\"\nkind = \"local\"\nnodes = 1\nslots = 2\n".to_owned();
    names.iter().fold(here, |tables, name| tables + &world.table(name))
}

#[tokio::test]
async fn clusters_by_name_run_beside_each_other_and_never_touch_what_is_anothers() {
    let Some(mut world) = World::start("clusters").await else { return };
    // On the cluster that flags describe, which is called `kubernetes`.
    let first = world.train("first", 100_000, &[], json!({})).await;
    world.until(&first, "running", |chain| steps_of(chain, 0, 0)).await;
    let object = format!("pytorchjob/first-{first}-1");
    let uid = world.get(&object, "{.metadata.uid}");

    world.kill();
    world.tables = Some(tables(&world, &["one", "two"]));
    world.serve().await;
    let job = world.read(&format!("/jobs/{first}")).await;
    assert_eq!(job["cluster_configured"], false, "{job:#}");
    let script = world.shared.join("train.py");
    let local =
        json!({ "name": "here", "command": ["python3", script, "--steps", "20"], "checkpoint_dir": null });
    let here = world.post("/jobs", &local).await;
    assert_eq!(here["spec"]["cluster"], "here", "the first is for jobs that name none: {here:#}");
    let one = world.train("one", 40, &[], json!({ "cluster": "one", "replicas": 1 })).await;
    let two = world.train("two", 40, &[], json!({ "cluster": "two", "replicas": 1 })).await;
    for job in [here["job_id"].as_str().unwrap(), &one, &two] {
        let chain = world.until_state(job, "succeeded").await;
        assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    }
    // Its agents are heard, its cluster is not: nothing is concluded, and nobody else removed it.
    let chain = world.until(&first, "heard", |chain| chain["state"] == "running").await;
    assert_eq!((&chain["attempts_total"], &chain["attempts"][0]["launches"][1]), (&json!(1), &json!(null)));
    assert_eq!(world.get(&object, "{.metadata.uid}"), uid);
    let of_one =
        ["get", "pytorchjobs", "--all-namespaces", "-l", "holdfast.dev/cluster in (one,two)", "-o", "name"];
    world.until_answer(&of_one, str::is_empty).await;
    let nodes = world.read("/nodes").await;
    let clusters: Vec<_> = nodes["items"].as_array().unwrap().iter().map(|node| &node["cluster"]).collect();
    assert_eq!(clusters, ["here", "one", "one", "two", "two"], "{nodes:#}");

    // Under its old name again the cluster is known again.
    world.kill();
    world.tables = Some(tables(&world, &["kubernetes"]));
    world.serve().await;
    let job = world.read(&format!("/jobs/{first}")).await;
    assert_eq!((&job["cluster_configured"], &job["cluster_troubles"]), (&json!(true), &json!([])), "{job:#}");
    world.post(&format!("/jobs/{first}/stop"), &json!({ "force": true })).await;
    world.until_state(&first, "stopped").await;
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn what_was_deleted_without_its_cluster_is_left_behind_and_its_agents_end() {
    let Some(mut world) = World::start("left").await else { return };
    let job = world.train("left", 100_000, &[], json!({ "replicas": 1 })).await;
    world.until(&job, "running", |chain| steps_of(chain, 0, 0)).await;
    let pod = format!("pod/left-{job}-1-master-0");
    world.kill();
    world.tables = Some(tables(&world, &["one"]));
    world.serve().await;
    let refused = world.delete(&format!("/jobs/{job}")).await;
    assert_eq!(refused.0, 409, "{}", refused.1);
    let accepted = world.delete(&format!("/jobs/{job}?force=true")).await;
    assert_eq!(accepted.0, 202, "{}", accepted.1);
    // The agent is told that the attempt is over; the objects stay for whoever removes them by hand.
    let phase = ["-n", world.namespace(), "get", &pod, "-o", "jsonpath={.status.phase}"];
    world.until_answer(&phase, |phase| phase != "Running").await;
    let by_hand = format!("holdfast.dev/job={job}");
    world.kubectl(&["delete", "pytorchjobs,secrets", "--all-namespaces", "-l", &by_hand]);
    world.until_nothing_is_left().await;
}
