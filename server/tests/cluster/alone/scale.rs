//! Many jobs on simulated nodes: what they cost the API server, and that every failure is decided once. `make bench` has the same with 500
//! jobs, and figures.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::Value;

use crate::{
    harness::{World, http_client},
    jobs::{incidents, last_step, steps_of},
    simulated::{
        Simulation,
        audit::{Audit, Counts, sums},
        placed, worker,
    },
};

const JOBS: usize = 20;
const REPLICAS: u32 = 8;
const NODES: u32 = 3;
/// Jobs that lose a pod at the same moment.
const FAILING: usize = 10;
/// The first replica of each tells a step so often.
const EACH: Duration = Duration::from_secs(1);
/// Watches of a server with one namespace.
const WATCHES: u64 = 9;
/// Events about an attempt that trains: it was submitted, and it started.
const EVENTS: usize = 2;

fn count(counts: &Counts, what: &str) -> usize {
    usize::try_from(counts.get(what).copied().unwrap_or_default()).unwrap()
}

/// What is asked again and again whatever the jobs do.
fn is_usual(what: &str) -> bool {
    // What of queueing systems is there by now is asked, too.
    ["watch ", "get /version", "get /apis/", "get pods/log"].iter().any(|usual| what.starts_with(usual))
}

#[tokio::test]
async fn many_jobs_cost_the_api_server_next_to_nothing_and_each_failure_is_decided_once() {
    let Some(world) = World::start("scale").await else { return };
    world.component(["start", "kwok"]);
    let server = (http_client(), world.agents_url());
    let simulation = Simulation::start(world.namespace(), server, NODES, EACH).await;
    let audit = Audit::of(world.namespace());

    // Three requests make an attempt, one asks for the namespace before, and nobody looks for what the watches show.
    let mark = audit.mark();
    let mut jobs = Vec::new();
    for number in 0..JOBS {
        let job = Simulation::job(&format!("scale-{number}"), REPLICAS);
        jobs.push(world.post("/jobs", &job).await["job_id"].as_str().unwrap().to_owned());
    }
    for job in &jobs {
        world.until(job, "training", |chain| steps_of(chain, 0, 0)).await;
    }
    assert_eq!(simulation.running().await, JOBS * REPLICAS as usize);
    world.until_read("/nodes", "placed", |nodes| placed(nodes) == JOBS as u64 * u64::from(REPLICAS)).await;
    let path = "jsonpath={.items[?(@.reportingController==\"holdfast\")].reason}";
    let events = ["-n", world.namespace(), "get", "events.events.k8s.io", "-o", path];
    world.until_answer(&events, |said| said.split_whitespace().count() >= JOBS * EVENTS).await;
    let made = audit.since(mark);
    for what in ["get namespaces", "create secrets", "create pytorchjobs", "patch secrets"] {
        assert_eq!(count(&made, what), JOBS, "{made:?}");
    }
    assert_eq!(count(&made, "create events"), JOBS * EVENTS, "{made:?}");
    let others = made.keys().filter(|what| !is_usual(what) && !what.starts_with("list "));
    assert_eq!(others.count(), 5, "{made:?}");

    // Nor while they train.
    let (mark, begin) = (audit.mark(), Instant::now());
    trains_on(&world, &jobs[0], 15).await;
    trains_on(&world, &jobs[JOBS - 1], 2).await;
    let (steady, seconds) = (audit.since(mark), begin.elapsed().as_secs());
    assert!(steady.keys().all(|what| is_usual(what)), "{steady:?}");
    let (_, logs) = sums(&steady);
    assert!(logs <= 5 * seconds + 20, "{logs} in {seconds} s");

    // An API server that comes back is listed from a few times, and nothing follows from its absence.
    let mark = audit.mark();
    world.component(["kill", "kube-apiserver"]);
    world.component(["start", "kube-apiserver"]);
    world.until_answer(&["get", "--raw", "/readyz"], |said| said == "ok").await;

    // Of pods that fail at once each is noticed, and each is one decision.
    let mut pods = Vec::new();
    for job in &jobs[..FAILING] {
        pods.push(worker(&world.read(&format!("/jobs/{job}/chain")).await, 3));
    }
    join_all(pods.iter().map(|pod| simulation.fail(pod))).await;
    for job in &jobs[..FAILING] {
        let chain = world.until(job, "training again", |chain| steps_of(chain, 1, 0)).await;
        assert_eq!(chain["attempts_total"], 2, "{chain:#}");
        let [incident] = &incidents(&chain["attempts"][0])[..] else { panic!("{chain:#}") };
        assert_eq!(incident["decision"]["action"], "resubmit", "{incident:#}");
    }
    for job in &jobs[FAILING..] {
        let chain = world.read(&format!("/jobs/{job}/chain")).await;
        assert_eq!(chain["attempts_total"], 1, "{chain:#}");
        assert!(incidents(&chain["attempts"][0]).is_empty(), "{chain:#}");
    }
    let after = audit.since(mark);
    for what in ["create secrets", "create pytorchjobs"] {
        assert_eq!(count(&after, what), FAILING, "{after:?}");
    }
    let lists: u64 = after.iter().filter(|(what, _)| what.starts_with("list ")).map(|(_, count)| count).sum();
    assert!(lists <= 4 * WATCHES + FAILING as u64, "{after:?}");
    simulation.end().await;
}

/// Waits until a job has made so many steps more.
async fn trains_on(world: &World, job: &str, steps: u64) {
    let chain = world.read(&format!("/jobs/{job}/chain")).await;
    let goal = last_step(&chain).unwrap() + steps;
    let is_there = |chain: &Value| last_step(chain).is_some_and(|step| step >= goal);
    world.until(job, "training on", is_there).await;
}
