//! Many nodes and pods that are not there, with all that a server sees of them: KWOK plays the kubelets, this the agents in the pods.
//! API server, scheduler and training operator are real. Shared by a test and a measurement.

mod agents;
pub mod audit;

use std::{path::PathBuf, time::Duration};

use chrono::SecondsFormat;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use server::clock::{Clock, SystemClock};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Accelerators of a node: more than machines have, because each node has a lease to be renewed by this machine.
const SLOTS: u32 = 64;
/// Marks the nodes for KWOK, and keeps other tests' pods off them.
const MARK: &str = "kwok.x-k8s.io/node";
/// What the program of a simulated pod ends with.
const EXIT_CODE: u32 = 7;
/// How often all containers print a line.
const LINE: Duration = Duration::from_secs(1);

/// The nodes of a run, and the agents of the pods that come there.
pub struct Simulation {
    /// The cluster's administrator.
    pub client: Client,
    namespace: String,
    nodes: u32,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Simulation {
    /// Makes nodes and plays the agents of a namespace's pods, which report to `url` with `http`; first replicas tell a step `each` so
    /// long. `component start kwok` must have been called.
    pub async fn start(
        namespace: &str,
        (http, url): (reqwest::Client, &str),
        nodes: u32,
        each: Duration,
    ) -> Self {
        let client = Client::try_default().await.unwrap();
        let simulation = Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            nodes,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let api: Api<Node> = Api::all(client.clone());
        for number in 0..nodes {
            let node = serde_json::from_value(node(number)).unwrap();
            api.create(&PostParams::default(), &node).await.unwrap();
        }
        let server = agents::Server { http, url: format!("{url}/agent/v1/sync"), each };
        agents::begin(client, namespace, server, &simulation.tasks, &simulation.stop);
        simulation.tasks.spawn(print_lines(simulation.stop.clone()));
        simulation
    }

    /// What a job says besides name and counts to run here and nowhere else: real nodes may have accelerators too.
    pub fn job(name: &str, replicas: u32) -> Value {
        json!({
            "name": name, "image": "localhost/train:1", "command": ["train"],
            "replicas": replicas, "accelerators_per_replica": 1,
            "kubernetes": { "tolerations": [{ "key": MARK }], "node_selector": { MARK: "fake" } },
            "fault_tolerance": { "auto_failover": true, "max_task_restarts": 2 },
        })
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// How many pods run.
    pub async fn running(&self) -> usize {
        let list = ListParams::default().fields("status.phase=Running");
        self.pods().list_metadata(&list).await.unwrap().items.len()
    }

    /// Writes what a kubelet writes when a pod's program has ended badly; its agent says nothing any more.
    pub async fn fail(&self, pod: &str) {
        let now = now();
        let ended = json!({ "exitCode": EXIT_CODE, "reason": "Error", "startedAt": now, "finishedAt": now });
        let status = json!({ "status": { "phase": "Failed", "containerStatuses": [{
            "name": "pytorch", "image": "localhost/train:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": ended },
        }] } });
        let patch = Patch::Merge(&status);
        self.pods().patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Ends the agents and removes the nodes.
    pub async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        let api: Api<Node> = Api::all(self.client.clone());
        for number in 0..self.nodes {
            api.delete(&name(number), &DeleteParams::default()).await.unwrap();
        }
    }
}

fn name(number: u32) -> String {
    format!("simulated-{number:03}")
}

fn node(number: u32) -> Value {
    let has = json!({ "cpu": "512", "memory": "4Ti", "pods": "512", "nvidia.com/gpu": SLOTS.to_string() });
    json!({
        "metadata": { "name": name(number), "annotations": { MARK: "fake" }, "labels": { "kubernetes.io/hostname": name(number), MARK: "fake" } },
        "spec": { "taints": [{ "key": MARK, "value": "fake", "effect": "NoSchedule" }] },
        "status": { "allocatable": has, "capacity": has },
    })
}

fn now() -> String {
    let micros = SystemClock.now().micros();
    let now = chrono::DateTime::from_timestamp_micros(micros).unwrap();
    now.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// The folder of the cluster's state.
fn cluster() -> PathBuf {
    std::env::var_os("HOLDFAST_TEST_CLUSTER").unwrap().into()
}

/// Adds lines to the file that all containers print from.
async fn print_lines(stop: CancellationToken) {
    use std::io::Write;
    let path = cluster().join("simulated.log");
    let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    let mut tick = tokio::time::interval(LINE);
    for step in 0.. {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => writeln!(file, "{} stdout F [rank0]: holdfast step={step} loss=0.5", now()).unwrap(),
        }
    }
}

/// How many pods hold an accelerator, by the REST API's nodes.
pub fn placed(nodes: &Value) -> u64 {
    let nodes = nodes["items"].as_array().into_iter().flatten();
    nodes.filter(|node| node["slots"] == SLOTS).filter_map(|node| node["used"].as_u64()).sum()
}

/// The pod of a worker of a job's newest attempt.
pub fn worker(chain: &Value, number: u32) -> String {
    format!("{}-worker-{number}", chain["latest_task_id"].as_str().unwrap())
}
