//! The API server is away for two minutes, five times. It takes eleven minutes and has a cluster of its own.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    harness::World,
    jobs::{incidents, is_untouched, last_step, ray, small, steps_of},
};

const TIMES: usize = 5;
const AWAY: Duration = Duration::from_secs(120);

/// What makes of a job that trains one that fails whenever a file appears.
fn fails_on_request(world: &World) -> Value {
    let shared = world.shared.display();
    let program = format!(
        "import os, sys, threading, time, traceback
sys.path.insert(0, '{shared}')
import train
def fail():
    while not os.path.exists('{shared}/fail'):
        time.sleep(0.1)
    os.remove('{shared}/fail')
    try:
        raise ValueError('on request')
    except ValueError:
        traceback.print_exc()
        os._exit(1)
threading.Thread(target=fail, daemon=True).start()
train.main()
"
    );
    json!({
        "replicas": 1,
        "command": ["python3", "-c", program, "--steps", "1000000"],
        "fault_tolerance": {
            "auto_failover": true,
            "max_task_restarts": 2,
            "policy": { "enabled": true, "max_in_place_restarts": TIMES },
        },
    })
}

#[tokio::test]
async fn an_api_server_that_is_away_restarts_nothing_and_keeps_no_failed_program_waiting() {
    let Some(world) = World::start("outage").await else { return };
    let patient = world.train("patient", 1_000_000, &[], json!({})).await;
    let patient_ray = world.train("patient-ray", 1_000_000, &[], ray(2, json!({}))).await;
    let failing = world.train("failing", 1_000_000, &[], fails_on_request(&world)).await;
    for job in [&patient, &patient_ray, &failing] {
        world.until(job, "training", |chain| steps_of(chain, 0, 0)).await;
    }
    let uids = world.get("pods", "{.items[*].metadata.uid}");
    for time in 0..TIMES {
        world.component(&["kill", "kube-apiserver"]);
        let began = Instant::now();
        // One that ends and one that is new wait for the API server; one that fails does not.
        let ends = world.train("ends", 1_000_000, &[], small()).await;
        fs::write(world.shared.join("fail"), "").unwrap();
        world.until(&failing, "started again in its place", |chain| steps_of(chain, 0, time + 1)).await;
        assert!(began.elapsed() < AWAY, "the API server was not needed for that");
        for job in [&patient, &patient_ray, &failing] {
            let step = last_step(&world.read(&format!("/jobs/{job}/chain")).await).unwrap();
            let trained_on =
                |chain: &Value| began.elapsed() >= AWAY && last_step(chain).is_some_and(|last| last > step);
            world.until(job, "training on", trained_on).await;
        }
        let chain = world.read(&format!("/jobs/{ends}/chain")).await;
        assert_eq!((&chain["state"], &chain["attempts_total"]), (&json!("queued"), &json!(1)), "{chain:#}");

        world.component(&["start", "kube-apiserver"]);
        world.until_well().await;
        // Whatever follows from the return has been concluded once the new one trains and is gone.
        world.until(&ends, "training", |chain| steps_of(chain, 0, 0)).await;
        is_untouched(&world.stop(&ends).await);
        for job in [&patient, &patient_ray] {
            is_untouched(&world.read(&format!("/jobs/{job}/chain")).await);
        }
        let of_ends = |pod: &str| pod.contains(&ends);
        let names = ["-n", world.namespace(), "get", "pods", "-o", "jsonpath={.items[*].metadata.name}"];
        world.until_answer(&names, |said| !said.split(' ').any(of_ends)).await;
        assert_eq!(world.get("pods", "{.items[*].metadata.uid}"), uids, "no pod was made again");
    }

    let chain = world.read(&format!("/jobs/{failing}/chain")).await;
    assert_eq!(
        (&chain["attempts_total"], &chain["budgets"]["task_restarts"]["used"]),
        (&json!(1), &json!(0))
    );
    let found = incidents(&chain["attempts"][0]);
    assert_eq!(found.len(), TIMES, "{chain:#}");
    for incident in found {
        assert_eq!(incident["decision"]["action"], "restart_in_place", "{incident:#}");
    }
    for job in [patient, patient_ray, failing] {
        world.stop(&job).await;
    }
    world.until_nothing_is_left().await;
}
