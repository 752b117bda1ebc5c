//! Jobs of these tests, and what they read in their chains.

use serde_json::{Value, json};

/// What makes of a job that trains a RayJob of two replicas in basic mode; `more` replaces further fields.
pub fn ray(max_task_restarts: u32, more: Value) -> Value {
    let mut changes = json!({
        "kind": "rayjob",
        "image": "localhost/fake-ray:1",
        "fault_tolerance": { "auto_failover": true, "max_task_restarts": max_task_restarts },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        changes[field] = value.clone();
    }
    changes
}

/// What makes of a job that trains a PyTorchJob of one replica.
pub fn small() -> Value {
    json!({ "replicas": 1 })
}

pub fn incidents(attempt: &Value) -> &Vec<Value> {
    attempt["incidents"].as_array().unwrap()
}

/// Whether a launch of an attempt has made steps; both count from 0.
pub fn steps_of(chain: &Value, attempt: usize, launch: usize) -> bool {
    chain["attempts"][attempt]["launches"][launch]["steps"].is_object()
}

/// The newest step of the newest launch.
pub fn last_step(chain: &Value) -> Option<u64> {
    chain["attempts"].as_array()?.last()?["launches"].as_array()?.last()?["steps"]["last"].as_u64()
}

/// Why an attempt waits; attempts count from 0.
pub fn waits(chain: &Value, attempt: usize) -> &str {
    chain["attempts"][attempt]["queue"]["text"].as_str().unwrap_or_default()
}

/// Whether nothing at all has happened to a job but that it was made and trains.
pub fn is_untouched(chain: &Value) {
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
    assert_eq!(chain["budgets"]["task_restarts"]["used"], 0, "{chain:#}");
    assert_eq!(chain["budgets"]["in_place_restarts"]["used"], 0, "{chain:#}");
    assert!(incidents(&chain["attempts"][0]).is_empty(), "{chain:#}");
}
