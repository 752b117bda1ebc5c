//! Job Hang Detection with real programs: slow ones that work raise nothing, those that stand still are found and go on.
//!
//! All programs of a suite run at once, so that it takes as long as its slowest.

use std::time::Instant;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::harness::{World, attempts, launches};

/// Seconds between samples, and that a standstill must last.
const INTERVAL: u32 = 1;
const WINDOW: u32 = 4;

/// A job of `examples/hangs.py` with 3 ranks that is looked at every second.
fn program(name: &str, steps: u32, env: &[(&str, &str)]) -> Value {
    let env: serde_json::Map<_, _> =
        env.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    json!({
        "name": name, "cluster": "local", "env": env,
        "command": ["python3", "examples/hangs.py", "--steps", steps.to_string()],
        "replicas": 3, "accelerators_per_replica": 1, "checkpoint_dir": format!("checkpoints/{name}"),
        "fault_tolerance": {
            "auto_failover": true, "max_task_restarts": 1, "policy": {"enabled": true},
            "hang_detection": {
                "enabled": true, "interval_seconds": INTERVAL, "window_seconds": WINDOW, "start_after_seconds": 2,
            },
        },
    })
}

async fn world() -> World {
    World::with(&["--local-nodes", "8", "--local-slots", "4"]).await
}

/// One suite after the other: samples that come late prove nothing.
static TURN: Mutex<()> = Mutex::const_new(());

fn seconds(from: &Value, to: &Value) -> f64 {
    let at = |value: &Value| chrono::DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap();
    (at(to) - at(from)).num_milliseconds() as f64 / 1_000.0
}

/// What is slow, how many steps it makes, and its environment.
type Case = (&'static str, u32, &'static [(&'static str, &'static str)]);

/// Suite A. Each program is quiet for longer than the window, or looks as if it were.
#[tokio::test]
async fn programs_that_work_slowly_raise_nothing() {
    let _turn = TURN.lock().await;
    let world = world().await;
    let cases: &[Case] = &[
        ("a long load", 12, &[("SLOW", "load"), ("SLOW_SECONDS", "8")]),
        ("a long evaluation", 12, &[("SLOW", "evaluation"), ("SLOW_SECONDS", "8")]),
        ("rank 1 alone evaluates", 12, &[("SLOW", "evaluation"), ("SLOW_SECONDS", "8"), ("SLOW_RANK", "1")]),
        ("a slow save", 12, &[("SLOW", "save"), ("SLOW_SECONDS", "8")]),
        (
            "a slow save that nobody marked",
            12,
            &[("SLOW", "save"), ("SLOW_SECONDS", "8"), ("SLOW_QUIET", "1")],
        ),
        ("a loader that stalls", 40, &[("SLOW", "loader_stall"), ("SLOW_SECONDS", "2"), ("SLOW_RANK", "1")]),
        ("nothing but a progress bar", 80, &[("SLOW", "tqdm")]),
        ("an idle processor and long steps", 6, &[("SLOW", "idle_gpu"), ("SLOW_SECONDS", "2")]),
        ("a debugger", 12, &[("SLOW", "debugger"), ("SLOW_SECONDS", "8")]),
    ];
    let runs = cases.iter().map(|(what, steps, env)| {
        let world = &world;
        async move {
            let name = what.replace(' ', "-");
            let job = world.create(&program(&name, *steps, env)).await;
            let chain = world
                .until(&job, what, |chain| {
                    ["succeeded", "failed", "stopped"].contains(&chain["state"].as_str().unwrap())
                })
                .await;
            assert_eq!(chain["state"], "succeeded", "{what}: {chain:#}");
            let [attempt] = attempts(&chain).as_slice() else { panic!("{what}: {chain:#}") };
            assert_eq!(attempt["incidents"], json!([]), "{what}: {chain:#}");
            assert_eq!(launches(attempt).len(), 1, "{what}: {chain:#}");
            let took = seconds(&attempt["started_at"], &attempt["ended_at"]);
            eprintln!("{what}: {took:.1} s, no alarm");
            assert!(took > f64::from(WINDOW), "{what} took {took} s, so that it shows nothing");
        }
    });
    join_all(runs).await;
    world.until_no_process().await;
}

/// Suite B. Each program stands still at step 5 of rank 1, is found, restarted in place, and ends.
#[tokio::test]
async fn programs_that_stand_still_are_found_and_go_on() {
    let _turn = TURN.lock().await;
    let world = world().await;
    let begin = Instant::now();
    let runs = ["deadlock", "loader", "loop", "stopped", "rank_gone"].map(|kind| {
        let world = &world;
        async move {
            let env = [("HANG", kind), ("HANG_AT", "5"), ("HANG_RANK", "1")];
            let job = world.create(&program(kind, 12, &env)).await;
            let chain = world
                .until(&job, kind, |chain| {
                    ["succeeded", "failed", "stopped"].contains(&chain["state"].as_str().unwrap())
                })
                .await;
            assert_eq!(chain["state"], "succeeded", "{kind}: {chain:#}");
            let [attempt] = attempts(&chain).as_slice() else { panic!("{kind}: {chain:#}") };
            let [first, second] = launches(attempt).as_slice() else { panic!("{kind}: {chain:#}") };
            assert_eq!((&first["steps"]["last"], &second["cause"]), (&json!(4), &json!("hang")), "{chain:#}");
            assert_eq!(attempt["hang_restarts"], 1, "{chain:#}");
            let [incident] = attempt["incidents"].as_array().unwrap().as_slice() else {
                panic!("{kind}: {chain:#}")
            };
            assert_eq!(incident["failure_type"], "COMM_HANG", "{incident:#}");
            assert_eq!(incident["decision"]["charged"], "hang_restarts", "{incident:#}");
            assert_eq!(incident["hang"]["odd"]["ranks"], json!([1]), "{kind}: {incident:#}");
            let kinds = incident["hang"]["witnesses"].as_array().unwrap().iter();
            let kinds: Vec<_> = kinds.map(|witness| witness["kind"].as_str().unwrap()).collect();
            assert!(["stack", "output", "cpu", "step"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");

            // With room for a machine that is too busy to take each sample in time.
            let found = seconds(&incident["hang"]["since"], &incident["hang"]["until"]);
            let limit = f64::from(WINDOW + 2 * INTERVAL);
            let noticed = seconds(&incident["hang"]["since"], &incident["clock"]["noticed_at"]);
            eprintln!(
                "{kind}: {found:.1} s by the samples, noticed after {noticed:.1} s: {}",
                incident["fault"]
            );
            assert!(noticed <= limit + 5.0, "{kind}: noticed after {noticed} s: {incident:#}");
            stacks(world, incident, kind).await;
        }
    });
    join_all(runs).await;
    eprintln!("all within {:.0} s", begin.elapsed().as_secs_f64());
    world.until_no_process().await;
}

/// The stacks that are kept: of every rank that was there, readable as a file.
async fn stacks(world: &World, incident: &Value, kind: &str) {
    let path = format!("/api/v1/incidents/{}/stacks", incident["id"].as_str().unwrap());
    let (status, stacks) = world.get(&path).await;
    assert_eq!(status, 200, "{stacks}");
    let ranks: Vec<_> =
        stacks["processes"].as_array().unwrap().iter().map(|process| &process["rank"]).collect();
    let there = if kind == "rank_gone" { vec![0, 2] } else { vec![0, 1, 2] };
    assert_eq!(json!(ranks), json!(there), "{kind}: {stacks:#}");
    let (status, text) = world.get(&format!("{path}?format=text")).await;
    assert_eq!(status, 200, "{text}");
    let text = text.as_str().unwrap();
    assert!(text.contains("rank 0 (master-0), read at"), "{text}");
    if stacks["processes"][0]["missing"].is_null() {
        assert!(text.contains("receive (") && text.contains("peers.py"), "{kind}: {text}");
    }
}
