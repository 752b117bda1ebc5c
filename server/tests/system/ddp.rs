//! Real PyTorch: an interrupted run ends with the loss of an undisturbed one.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::harness::{World, advanced, attempts, launches, python, repository};

fn ddp(name: &str) -> Value {
    let program = repository().join("examples/ddp.py");
    json!({
        "name": name, "command": [python(), program, "--steps", "60", "--save-every", "10", "--step-seconds", "0.05"],
        "replicas": 2, "checkpoint_dir": format!("checkpoints/{name}"), "fault_tolerance": advanced(2),
    })
}

async fn final_loss(world: &World, job: &str) -> (u64, f64) {
    let (status, metrics) = world.get(&format!("/api/v1/jobs/{job}/metrics?metric=loss")).await;
    assert_eq!(status, 200, "{metrics}");
    let kept = metrics["points"].as_array().unwrap().iter().filter(|point| point["kept"] == true);
    let last = kept.max_by_key(|point| point["step"].as_u64()).unwrap();
    (last["step"].as_u64().unwrap(), last["value"].as_f64().unwrap())
}

#[tokio::test]
async fn a_killed_rank_costs_no_accuracy() {
    let world = World::start().await;
    let calm = world.create(&ddp("calm")).await;
    world.until_state(&calm, "succeeded").await;

    let killed = world.create(&ddp("killed")).await;
    world.until_step(&killed, 25).await;
    kill(Pid::from_raw(world.pid_of_rank(1).await), Signal::SIGKILL).unwrap();
    let chain = world.until_state(&killed, "succeeded").await;
    let [attempt] = attempts(&chain).as_slice() else { panic!("{chain:#}") };
    assert_eq!(launches(attempt).len(), 2, "{chain:#}");
    assert_eq!(launches(attempt)[1]["proof"]["verdict"], "resumed", "{chain:#}");
    assert_eq!(attempt["incidents"][0]["root"]["signal"], "SIGKILL", "{chain:#}");
    assert_eq!(attempt["incidents"][0]["root"]["rank"], 1, "{chain:#}");

    let (want, got) = (final_loss(&world, &calm).await, final_loss(&world, &killed).await);
    assert_eq!(want.0, got.0);
    assert!((want.1 - got.1).abs() <= 1e-6, "{want:?} {got:?}");
}
