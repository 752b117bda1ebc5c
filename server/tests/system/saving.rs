//! The save before the end (spec.md §5): behaviours of programs × stop, deletion and preemption, each with what is recorded.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::harness::{PATIENCE, World, assert_invariants, attempts, launches, python, repository, train};

/// Local nodes and slots of the matrix: its jobs run at once.
const NODES: &str = "16";
/// Ends that go on at the same time, so that each is seen soon.
const AT_ONCE: usize = 16;

/// A job of one process that answers like this.
fn program(name: &str, behaviour: &str, max_wait_seconds: u32) -> Value {
    json!({
        "name": name, "kind": "pytorchjob", "cluster": "local",
        "command": ["python3", "examples/exit_behaviours.py"],
        "env": {"EXIT_BEHAVIOUR": behaviour}, "replicas": 1,
        "fault_tolerance": saving(max_wait_seconds),
    })
}

/// Advanced mode with a save before the end.
fn saving(max_wait_seconds: u32) -> Value {
    json!({"auto_failover": true, "max_task_restarts": 2, "policy": {"enabled": true},
           "exit_checkpoint": {"enabled": true, "max_wait_seconds": max_wait_seconds}})
}

/// A training job that saves seldom by itself.
fn trainer(name: &str) -> Value {
    let mut body = train(name, 100_000, 0.02, &[]);
    let command = body["command"].as_array_mut().unwrap();
    let every = command.iter().position(|word| word == "--save-every").unwrap();
    command[every + 1] = json!("100000");
    body["fault_tolerance"] = saving(600);
    body
}

/// What ends a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stop,
    Delete,
    Preempt,
}

impl End {
    const ALL: [Self; 3] = [Self::Stop, Self::Delete, Self::Preempt];

    fn reason(self) -> &'static str {
        match self {
            Self::Stop => "stopped",
            Self::Delete => "deleted",
            Self::Preempt => "preempted",
        }
    }
}

impl World {
    async fn begin(&self, job: &str, end: End) {
        let status = match end {
            End::Stop => self.post(&format!("/api/v1/jobs/{job}/stop"), &json!({})).await.0,
            End::Delete => self.delete(&format!("/api/v1/jobs/{job}")).await.0,
            End::Preempt => {
                self.signal_agent(job, "master-0");
                202
            }
        };
        assert_eq!(status, 202);
    }

    /// Ends a job and waits for what is recorded of its save; none where it was forgotten before that could be read.
    async fn outcome(&self, job: &str, end: End) -> Option<Value> {
        self.begin(job, end).await;
        let begin = Instant::now();
        loop {
            let (status, chain) = self.get(&format!("/api/v1/jobs/{job}/chain")).await;
            if status == 404 {
                return None;
            }
            let save = &chain["attempts"][0]["exit_checkpoint"];
            if save.is_object() && save["outcome"] != "saving" {
                return Some(chain);
            }
            assert!(begin.elapsed() < PATIENCE, "job {job} has no outcome: {save:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// SIGTERM to the agent of a replica, as a pod gets that is told to end.
    fn signal_agent(&self, job: &str, replica: &str) {
        let (job, replica) = (format!("HOLDFAST_JOB_ID={job}"), format!("HOLDFAST_AGENT_REPLICA={replica}"));
        let is = |env: &str, wanted: &str| env.split('\0').any(|entry| entry == wanted);
        let found = self.processes().into_iter().find(|(_, env)| is(env, &job) && is(env, &replica));
        kill(Pid::from_raw(found.unwrap().0), Signal::SIGTERM).unwrap();
    }

    /// The newest entry of a job's history that tells how a save went, read while the job is there.
    async fn save_told(&self, job: &str) -> Option<String> {
        let (status, page) = self.get(&format!("/api/v1/jobs/{job}/events")).await;
        if status == 404 {
            return None;
        }
        let reasons = [json!("saved"), json!("not_saved")];
        let told = page["items"].as_array()?.iter().find(|event| reasons.contains(&event["reason"]))?;
        told["text"].as_str().map(str::to_owned)
    }
}

/// Behaviour, its limit in seconds, the outcome, and words of its message.
const MATRIX: [(&str, u32, &str, &str); 21] = [
    ("saves", 60, "saved", ""),
    ("saves_without_step", 60, "saved", ""),
    ("slow", 60, "saved", ""),
    ("fails", 60, "failed", "no space left on device"),
    ("never_saves", 1, "timed_out", "1 of 2 files"),
    ("never_begins", 1, "timed_out", "did not begin to save"),
    ("closed_port", 60, "no_answer", "nobody listens on port"),
    ("hangs", 1, "no_answer", "notify was not answered within"),
    ("hangs_later", 1, "no_answer", "status was not answered within"),
    ("endless_status", 60, "wrong_answer", "more than 65536 bytes"),
    ("big_body", 60, "wrong_answer", "more than 65536 bytes"),
    ("redirect", 60, "wrong_answer", "notify answers with a redirect"),
    ("redirect_later", 60, "wrong_answer", "status answers with a redirect"),
    ("500", 60, "wrong_answer", "notify answers 500"),
    ("500_later", 60, "wrong_answer", "status answers 500"),
    ("not_found", 60, "wrong_answer", "notify answers 404"),
    ("wrong_type", 60, "wrong_answer", "`text/html`"),
    ("wrong_json", 60, "wrong_answer", "is not {\"status\""),
    ("wrong_word", 60, "wrong_answer", "unknown variant"),
    ("dies_when_told", 60, "failed", "ended before it had saved"),
    ("dies_while_saving", 60, "failed", "ended before it had saved"),
];

#[tokio::test]
async fn every_behaviour_at_every_end_is_recorded_as_what_it_was() {
    let world = World::with(&["--local-nodes", NODES, "--local-slots", "8"]).await;
    let mut cases = Vec::new();
    for (behaviour, limit, outcome, words) in MATRIX {
        for end in End::ALL {
            let name = format!("{}-{}", behaviour.replace('_', "-"), end.reason());
            let mut body = program(&name, behaviour, limit);
            let auto = end == End::Preempt;
            body["fault_tolerance"]["auto_failover"] = json!(auto);
            body["fault_tolerance"]["policy"]["enabled"] = json!(auto);
            if end == End::Delete {
                // What is deleted is forgotten as soon as it has ended, so it takes its time.
                body["env"]["EXIT_IGNORES_TERM"] = json!("1");
            }
            let job = world.create(&body).await;
            cases.push((name, end, outcome, words, job));
        }
    }
    for (.., job) in &cases {
        world.until_step(job, 3).await;
    }
    let outcomes = cases.iter().map(|(_, end, .., job)| world.outcome(job, *end));
    let outcomes: Vec<_> = stream::iter(outcomes).buffered(AT_ONCE).collect().await;
    for ((name, end, outcome, words, _), seen) in cases.iter().zip(outcomes) {
        let Some(chain) = seen else {
            // One whose processes are gone already may be forgotten before it was read.
            assert!(*end == End::Delete && name.starts_with("dies"), "{name} is gone");
            continue;
        };
        assert_invariants(&chain);
        let save = &chain["attempts"][0]["exit_checkpoint"];
        assert_eq!(save["outcome"], *outcome, "{name}: {save:#}");
        assert_eq!(save["reason"], end.reason(), "{name}");
        let message = save["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{name}: {message}");
        assert!(save["notified_at"].is_string() && save["deadline_at"].is_string(), "{name}: {save:#}");
        if *outcome == "saved" && !name.contains("without-step") {
            let step = save["step"].as_u64().unwrap();
            assert!(step >= 3, "{name}: {save:#}");
            assert_eq!(save["path"], format!("/checkpoints/{step}"), "{name}");
        } else {
            assert_eq!((&save["step"], &save["path"]), (&Value::Null, &Value::Null), "{name}");
        }
    }
    for (name, end, .., job) in &cases {
        match end {
            End::Stop => {
                let chain = world.until_state(job, "stopped").await;
                assert_eq!(attempts(&chain).len(), 1, "{name}");
            }
            End::Delete => world.until_gone(job).await,
            End::Preempt => {
                // Uncharged, and another attempt, however the save went.
                let chain = world.until(job, "resubmitted", |chain| attempts(chain).len() > 1).await;
                assert_eq!(attempts(&chain)[1]["cause"], "preemption", "{name}");
                assert_eq!(attempts(&chain)[0]["incidents"], json!([]), "{name}");
                assert_eq!(chain["budgets"]["task_restarts"]["used"], 0, "{name}");
                world.post(&format!("/api/v1/jobs/{job}/stop"), &json!({"force": true})).await;
            }
        }
    }
    world.until_no_process().await;
}

#[tokio::test]
async fn what_was_saved_before_a_preemption_is_what_the_next_attempt_loads() {
    let world = World::start().await;
    let job = world.create(&trainer("preempted")).await;
    world.until_step(&job, 10).await;
    world.signal_agent(&job, "worker-0");
    let chain = world
        .until(&job, "resumed", |chain| {
            attempts(chain).len() == 2
                && attempts(chain)[1]["launches"][0]["proof"]["checkpoint"]["ok"] == true
        })
        .await;
    assert_invariants(&chain);
    let save = &attempts(&chain)[0]["exit_checkpoint"];
    assert_eq!((&save["outcome"], &save["reason"]), (&json!("saved"), &json!("preempted")), "{save:#}");
    let step = save["step"].as_u64().unwrap();
    // The step is the lowest of what the replicas tell, and a rank that is told a moment later saves a later one; of them only the first
    // names where.
    let path = save["path"].as_str();
    let is_named = path.is_none_or(|path| path.ends_with(&format!("step-{step:08}.json")));
    assert!(step >= 10 && is_named, "{save:#}");
    let [second, ..] = launches(&attempts(&chain)[1]).as_slice() else { panic!("{chain:#}") };
    let checkpoint = &second["proof"]["checkpoint"];
    assert_eq!(checkpoint["step"], checkpoint["expected"], "{checkpoint:#}");
    assert!(checkpoint["step"].as_u64().unwrap() >= step, "{checkpoint:#}, saved {step}");
    world.post(&format!("/api/v1/jobs/{job}/stop"), &json!({"force": true})).await;
    world.until_state(&job, "stopped").await;
    world.until_no_process().await;
}

#[tokio::test]
async fn ranks_of_real_pytorch_save_together() {
    let world = World::start().await;
    let program = repository().join("examples/ddp.py");
    let command =
        json!([python(), program, "--steps", "100000", "--save-every", "100000", "--step-seconds", "0.05"]);
    let job = world
        .create(&json!({
            "name": "ddp", "command": command, "replicas": 2, "checkpoint_dir": "checkpoints/ddp-exit",
            "fault_tolerance": saving(600),
        }))
        .await;
    world.until_step(&job, 5).await;
    world.begin(&job, End::Stop).await;
    let chain = world.until_state(&job, "stopped").await;
    let save = &attempts(&chain)[0]["exit_checkpoint"];
    assert_eq!((&save["outcome"], &save["message"]), (&json!("saved"), &Value::Null), "{save:#}");
    let step = save["step"].as_u64().unwrap();
    assert!(save["path"].as_str().unwrap().ends_with(&format!("step-{step:08}.pt")), "{save:#}");
    world.until_no_process().await;
}

#[tokio::test]
async fn a_stop_saves_counts_down_and_can_be_forced() {
    let world = World::start().await;
    let job = world.create(&program("forced", "never_saves", 600)).await;
    world.until_step(&job, 3).await;
    world.begin(&job, End::Stop).await;
    let chain = world.until_state(&job, "saving").await;
    let save = &attempts(&chain)[0]["exit_checkpoint"];
    assert_eq!(save["outcome"], "saving", "{save:#}");
    let (_, view) = world.get(&format!("/api/v1/jobs/{job}")).await;
    assert_eq!(
        (&view["state"], &view["tail"]),
        (&json!("saving"), &json!("at most 10 min left")),
        "{view:#}"
    );
    assert_eq!(view["saving_until"], save["deadline_at"]);
    // Asked again it changes nothing; forced it ends.
    world.begin(&job, End::Stop).await;
    assert_eq!(world.chain(&job).await["attempts"][0]["exit_checkpoint"]["deadline_at"], save["deadline_at"]);
    let (status, _) = world.post(&format!("/api/v1/jobs/{job}/stop"), &json!({"force": true})).await;
    assert_eq!(status, 202);
    let chain = world.until_state(&job, "stopped").await;
    assert_eq!(attempts(&chain)[0]["exit_checkpoint"]["outcome"], "forced");
    assert!(world.save_told(&job).await.unwrap().contains("without waiting for a save"));
    world.until_no_process().await;
}

#[tokio::test]
async fn a_save_goes_on_while_the_server_is_away() {
    let mut world = World::start().await;
    let job = world.create(&trainer("away")).await;
    world.until_step(&job, 5).await;
    world.signal_agent(&job, "master-0");
    world.kill();
    // Its agent does not wait for a server that is not there.
    let left = || {
        let master = |env: &str| env.split('\0').any(|entry| entry == "HOLDFAST_AGENT_REPLICA=master-0");
        world.processes().into_iter().any(|(_, env)| master(&env))
    };
    while left() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.restart(&[]).await;
    // Nobody could tell the server; the program saved all the same, and goes on from there.
    let loaded = |chain: &Value| {
        let all = attempts(chain).iter().flat_map(|attempt| launches(attempt).clone());
        all.filter_map(|launch| launch["proof"]["checkpoint"]["step"].as_u64()).max()
    };
    world.until(&job, "resumed", |chain| loaded(chain).is_some_and(|step| step >= 5)).await;
    world.post(&format!("/api/v1/jobs/{job}/stop"), &json!({"force": true})).await;
    world.until_state(&job, "stopped").await;
    world.until_no_process().await;
}
