//! The save before the end (spec.md §5) in pods: what ends them × how the program answers, each with what is recorded.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::{harness::World, jobs::last_step};

/// A resource of which one node has as many as there are jobs that more urgent pods take it from.
const SEAT: &str = "holdfast.test/seat";
/// How long a save may take to be recorded: the longest wait of the programs, the agent's grace, and a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// What ends a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A person stops the job.
    Stop,
    /// A person deletes it.
    Delete,
    /// The pod is evicted, as a drain does.
    Evict,
    /// Somebody deletes the pod.
    DeletePod,
    /// A pod of a higher priority takes its place.
    Preempt,
}

impl End {
    const ALL: [Self; 5] = [Self::Stop, Self::Delete, Self::Evict, Self::DeletePod, Self::Preempt];

    fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Delete => "delete",
            Self::Evict => "evict",
            Self::DeletePod => "pod",
            Self::Preempt => "preempt",
        }
    }

    /// The reason that the program is told.
    fn reason(self) -> &'static str {
        match self {
            Self::Stop => "stopped",
            Self::Delete => "deleted",
            Self::Evict | Self::DeletePod | Self::Preempt => "preempted",
        }
    }

    /// Whether the job goes on with another attempt.
    fn goes_on(self) -> bool {
        !matches!(self, Self::Stop | Self::Delete)
    }
}

/// Behaviour, its limit in seconds, the outcome, and words of its message.
const MATRIX: [(&str, u32, &str, &str); 4] = [
    ("saves", 60, "saved", ""),
    ("fails", 60, "failed", "no space left on device"),
    ("never_saves", 2, "timed_out", "1 of 2 files"),
    ("closed_port", 60, "no_answer", "nobody listens on port"),
];

struct Case {
    name: String,
    end: End,
    outcome: &'static str,
    words: &'static str,
    job: String,
}

async fn create(
    world: &World,
    end: End,
    (behaviour, limit, outcome, words): (&str, u32, &'static str, &'static str),
) -> Case {
    let name = format!("{}-{}", behaviour.replace('_', "-"), end.word());
    let goes_on = end.goes_on();
    let shared = &world.shared;
    let mut changes = json!({
        "replicas": 1, "checkpoint_dir": null,
        "command": ["python3", shared.join("exit_behaviours.py")],
        "fault_tolerance": {
            "auto_failover": goes_on, "max_task_restarts": if goes_on { 1 } else { 0 },
            "policy": { "enabled": goes_on }, "health_checks": { "enabled": false },
            "exit_checkpoint": { "enabled": true, "max_wait_seconds": limit },
        },
    });
    if end == End::Preempt {
        changes["accelerators_per_replica"] = json!(1);
        changes["kubernetes"] = json!({
            "accelerator": SEAT, "volumes": [{ "mount_path": shared, "source": { "host_path": shared } }],
        });
    }
    let mut env = vec![("EXIT_BEHAVIOUR", behaviour)];
    if end == End::Delete {
        // What is deleted is forgotten as soon as it has ended, so it takes its time.
        env.push(("EXIT_IGNORES_TERM", "1"));
    }
    let job = world.train(&name, 1, &env, changes).await;
    Case { name, end, outcome, words, job }
}

/// A pod that is more urgent than those of jobs, and needs what one of them has.
fn urgent(class: &str, number: usize) -> Value {
    let amount = json!({ SEAT: "1" });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": format!("urgent-{number}") },
        "spec": {
            "priorityClassName": class, "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": "localhost/train:1", "imagePullPolicy": "Never", "command": ["sleep", "3600"],
                "resources": { "limits": amount, "requests": amount },
            }],
        },
    })
}

/// Ends a job's pod; more urgent pods end those they take the place of.
async fn begin(world: &World, case: &Case, task: &str) {
    let pod = format!("{task}-master-0");
    match case.end {
        End::Stop => drop(world.post(&format!("/jobs/{}/stop", case.job), &json!({})).await),
        End::Delete => assert_eq!(world.delete(&format!("/jobs/{}", case.job)).await.0, 202),
        End::Evict => world.evict(&pod),
        End::DeletePod => {
            world.kubectl(&["-n", world.namespace(), "delete", "pod", &pod, "--wait=false"]);
        }
        End::Preempt => {}
    }
}

/// What is recorded of the first attempt's save.
async fn recorded(world: &World, case: &Case) -> Value {
    let begin = Instant::now();
    loop {
        let (status, chain) = world.look(&format!("/jobs/{}/chain", case.job)).await;
        assert_ne!(status, 404, "{} is forgotten before its save is told", case.name);
        let attempt = &chain["attempts"][0];
        let save = &attempt["exit_checkpoint"];
        if save.is_object() && save["outcome"] != "saving" {
            return chain;
        }
        assert!(begin.elapsed() < PATIENCE, "{} has no outcome: {attempt:#}", case.name);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn every_end_of_a_pod_is_told_and_recorded_as_what_it_was() {
    let Some(world) = World::start("saving").await else { return };
    let capacity = json!({ "status": { "capacity": { SEAT: MATRIX.len().to_string() } } }).to_string();
    world.kubectl(&["patch", "node", "n1", "--subresource=status", "--type=merge", "-p", &capacity]);
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": world.namespace() }, "value": 1000,
    });
    world.create(&class);

    let mut cases = Vec::new();
    for end in End::ALL {
        for row in MATRIX {
            cases.push(create(&world, end, row).await);
        }
    }
    let mut tasks = Vec::new();
    for case in &cases {
        let chain = world.until(&case.job, "running", |chain| last_step(chain) >= Some(3)).await;
        tasks.push(chain["latest_task_id"].as_str().unwrap().to_owned());
    }
    for number in 0..MATRIX.len() {
        world.create(&urgent(world.namespace(), number));
    }
    for (case, task) in cases.iter().zip(&tasks) {
        begin(&world, case, task).await;
    }
    let all = cases.iter().map(|case| recorded(&world, case));
    let all: Vec<_> = stream::iter(all).buffered(cases.len()).collect().await;
    for (case, chain) in cases.iter().zip(&all) {
        let save = &chain["attempts"][0]["exit_checkpoint"];
        let name = &case.name;
        assert_eq!(save["outcome"], case.outcome, "{name}: {save:#}");
        assert_eq!(save["reason"], case.end.reason(), "{name}: {save:#}");
        assert!(save["message"].as_str().unwrap_or_default().contains(case.words), "{name}: {save:#}");
        let is_saved = case.outcome == "saved";
        assert_eq!(save["step"].as_u64().is_some_and(|step| step >= 3), is_saved, "{name}: {save:#}");
    }
    // What the cluster takes away costs nothing, however the save went; a pod that somebody deletes is lost.
    for case in cases.iter().filter(|case| case.end.goes_on()) {
        let chain = world.until(&case.job, "in another attempt", |chain| chain["attempts_total"] == 2).await;
        let (cause, charged) = if case.end == End::DeletePod { ("failure", 1) } else { ("preemption", 0) };
        assert_eq!(chain["attempts"][1]["cause"], cause, "{}: {chain:#}", case.name);
        assert_eq!(chain["budgets"]["task_restarts"]["used"], charged, "{}: {chain:#}", case.name);
        world.post(&format!("/jobs/{}/stop", case.job), &json!({ "force": true })).await;
    }
    for case in cases.iter().filter(|case| case.end != End::Delete) {
        world.until_state(&case.job, "stopped").await;
    }
    for number in 0..MATRIX.len() {
        world.kubectl(&[
            "-n",
            world.namespace(),
            "delete",
            "pod",
            &format!("urgent-{number}"),
            "--wait=false",
        ]);
    }
    world.until_nothing_is_left().await;
}
