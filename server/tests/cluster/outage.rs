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
    let of_these = format!("holdfast.dev/job in ({patient},{patient_ray},{failing})");
    let pods =
        ["-n", world.namespace(), "get", "pods", "-l", &of_these, "-o", "jsonpath={.items[*].metadata.uid}"];
    let uids = world.kubectl(&pods);
    let mut late = None;
    for time in 0..TIMES {
        world.component(["kill", "kube-apiserver"]);
        let began = Instant::now();
        // A program that fails does not wait for the API server.
        fs::write(world.shared.join("fail"), "").unwrap();
        world.until(&failing, "started again in its place", |chain| steps_of(chain, 0, time + 1)).await;
        assert!(began.elapsed() < AWAY, "the API server was not needed for that");
        // A new job does.
        if late.is_none() {
            late = Some(world.train("late", 1_000_000, &[], small()).await);
        }
        for job in [&patient, &patient_ray, &failing] {
            let step = last_step(&world.read(&format!("/jobs/{job}/chain")).await).unwrap();
            let trained_on =
                |chain: &Value| began.elapsed() >= AWAY && last_step(chain).is_some_and(|last| last > step);
            world.until(job, "training on", trained_on).await;
        }
        world.component(["start", "kube-apiserver"]);
        world.until_well().await;
        for job in [&patient, &patient_ray] {
            world.until_steps_more(job, 50).await;
            is_untouched(&world.read(&format!("/jobs/{job}/chain")).await);
        }
        assert_eq!(world.kubectl(&pods), uids, "no pod was made again");
    }

    let late = late.unwrap();
    world.until(&late, "training", |chain| steps_of(chain, 0, 0)).await;
    is_untouched(&world.stop(&late).await);
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
