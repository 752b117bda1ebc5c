//! Bisect Diagnose where a node takes nothing, or has no room yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::nodes::accelerators;
use crate::{
    diagnoses::{begin, fails, groups, until, until_end},
    harness::{World, http_client},
    jobs::steps_of,
    simulated::{Simulation, worker},
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
    assert!(groups(&detail).iter().any(waits), "its node is full: {detail:#}");
    world.stop(&busy).await;
    let detail = until_end(&world, &run).await;
    assert_eq!(detail["finding"]["untested"], json!(["n2"]), "{detail:#}");
    assert_eq!(detail["suspects"], json!([]), "{detail:#}");
    let passed = |group: &&Value| is_of(group, "n1") && group["outcome"]["is"] == "pass";
    assert!(groups(&detail).iter().any(passed), "{detail:#}");
    world.kubectl(&["uncordon", "n2"]);
    world.until_nothing_is_left().await;
}

/// Faulty ones among the simulated nodes.
const FAULTY: [&str; 2] = ["simulated-002", "simulated-005"];
const NODES: u32 = 8;

/// The nodes that a pod is bound to.
fn bound_to(pod: &Pod) -> BTreeSet<String> {
    let affinity = pod.spec.as_ref().and_then(|pod| pod.affinity.clone()?.node_affinity);
    let required = affinity.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution);
    let terms = required.into_iter().flat_map(|selector| selector.node_selector_terms);
    terms
        .flat_map(|term| term.match_fields.unwrap_or_default())
        .flat_map(|one| one.values.unwrap_or_default())
        .collect()
}

/// Ends the programs of groups that all run: badly on a faulty node, well where no faulty one is among their nodes.
async fn end_programs(simulation: &Simulation, pods: &Api<Pod>) -> u32 {
    let list = ListParams::default().fields("status.phase=Running");
    let mut running: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
    for pod in pods.list(&list).await.unwrap().items {
        running.entry(pod.labels()["holdfast.dev/task"].clone()).or_default().push(pod);
    }
    let mut whole = 0;
    for group in running.into_values() {
        let bound = bound_to(&group[0]);
        // Pods of the job itself, which are on their way out, are bound to none.
        if bound.is_empty() || group.len() < bound.len() {
            continue;
        }
        whole += 1;
        let node = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.clone().unwrap();
        let on: BTreeSet<_> = group.iter().map(node).collect();
        assert_eq!(on, bound, "one replica on each of its nodes");
        let is_faulty = |node: &str| FAULTY.contains(&node);
        let all_well = !on.iter().any(|node| is_faulty(node));
        for pod in group {
            let name = pod.name_any();
            if is_faulty(&node(&pod)) {
                simulation.fail(&name).await;
            } else if all_well {
                let ended = json!({ "exitCode": 0, "reason": "Completed" });
                let status = json!({ "status": { "phase": "Succeeded", "containerStatuses": [{
                    "name": "pytorch", "image": "localhost/train:1", "imageID": "", "ready": false, "restartCount": 0,
                    "state": { "terminated": ended },
                }] } });
                // Once the others have ended it may be removed at any moment.
                let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
            }
        }
    }
    whole
}

#[tokio::test]
async fn of_eight_nodes_the_two_faulty_ones_are_found_one_replica_on_each() {
    let Some(world) = World::start("bisect-wide").await else { return };
    world.component(["start", "kwok"]);
    let server = (http_client(), world.agents_url());
    let simulation = Simulation::start(world.namespace(), server, NODES, Duration::from_secs(1)).await;
    let mut job = Simulation::job("wide", NODES);
    job["fault_tolerance"] = json!({ "auto_failover": false });
    let job = world.post("/jobs", &job).await["job_id"].as_str().unwrap().to_owned();
    let chain = world.until(&job, "training", |chain| steps_of(chain, 0, 0)).await;
    simulation.fail(&worker(&chain, 3)).await;
    world.until_state(&job, "failed").await;

    let nodes: Vec<_> = (0..NODES).map(|number| format!("simulated-{number:03}")).collect();
    let run = begin(&world, &job, &json!({ "nodes": nodes, "command": ["probe"] })).await;
    let pods: Api<Pod> = Api::namespaced(simulation.client.clone(), world.namespace());
    let mut whole = 0;
    let path = format!("/diagnoses/{run}");
    while world.look(&path).await.1["verdict"].is_null() {
        whole += end_programs(&simulation, &pods).await;
    }
    let detail = until_end(&world, &run).await;
    assert_eq!((&detail["verdict"], &detail["suspects"]), (&json!("suspects"), &json!(FAULTY)), "{detail:#}");
    assert_eq!(detail["plan"]["rounds"], 3, "{detail:#}");
    let count = groups(&detail).len();
    assert!(whole as usize >= count, "{whole} of {count} groups: {detail:#}");
    world.until_nothing_is_left().await;
    simulation.end().await;
}
