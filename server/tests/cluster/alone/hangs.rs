//! Job Hang Detection in pods.

use serde_json::json;

use super::nodes::accelerators;
use crate::{
    harness::World,
    jobs::{incidents, steps_of},
};

#[tokio::test]
async fn a_job_that_stands_still_is_restarted_in_the_same_pods() {
    let Some(world) = World::start("hang").await else { return };
    accelerators(&world);
    let program = world.shared.join("hangs.py");
    let changes = json!({
        "command": ["python3", program, "--steps", "20"],
        "accelerators_per_replica": 1,
        "fault_tolerance": {
            "auto_failover": true, "max_task_restarts": 1, "policy": { "enabled": true },
            "hang_detection": { "enabled": true, "interval_seconds": 1, "window_seconds": 5, "start_after_seconds": 2 },
        },
    });
    let env = [("HANG", "loop"), ("HANG_AT", "5"), ("HANG_RANK", "1")];
    let job = world.train("still", 20, &env, changes).await;
    world.until(&job, "running", |chain| steps_of(chain, 0, 0)).await;
    let pods = world.get("pods", "{.items[*].metadata.uid}");
    world.until(&job, "restarted", |chain| steps_of(chain, 0, 1)).await;
    assert_eq!(world.get("pods", "{.items[*].metadata.uid}"), pods, "no pod is made again");

    let chain = world.until_state(&job, "succeeded").await;
    let attempt = &chain["attempts"][0];
    let [incident] = &incidents(attempt)[..] else { panic!("{attempt:#}") };
    assert_eq!(
        (&incident["failure_type"], &incident["decision"]["charged"]),
        (&json!("COMM_HANG"), &json!("hang_restarts")),
        "{incident:#}"
    );
    assert_eq!(incident["hang"]["odd"]["ranks"], json!([1]), "{incident:#}");
    let node = incident["hang"]["odd"]["node"].as_str().unwrap();
    assert_eq!(incident["root"]["node"], node, "{incident:#}");
    world.until_nothing_is_left().await;
}
