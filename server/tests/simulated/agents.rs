//! The agents: each polls for what it shall do and reports, as `holdfast-agent` does.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use engine::{
    ids::{ReplicaName, TaskId},
    sync::{
        Desired, Point, PortOffer, Report, ReportBody, SyncReply, SyncRequest, headers, limits::POLL_SECONDS,
    },
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use server::clock::{Clock, SystemClock};
use tokio::time::MissedTickBehavior;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(POLL_SECONDS + 10);
/// Before a server that did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// Whom they report to.
pub struct Server {
    /// With what.
    pub http: reqwest::Client,
    /// Of syncs.
    pub url: String,
    /// How often a first replica tells a step.
    pub each: Duration,
}

/// What all agents of a namespace share.
struct Shared {
    secrets: Api<Secret>,
    /// Those of attempts, by replica.
    tokens: Mutex<HashMap<TaskId, Arc<HashMap<String, String>>>>,
    server: Server,
}

/// Plays the agents of all pods that run in a namespace, until they do not.
pub fn begin(client: Client, namespace: &str, server: Server, tasks: &TaskTracker, stop: &CancellationToken) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let shared =
        Arc::new(Shared { secrets: Api::namespaced(client, namespace), tokens: Mutex::default(), server });
    let (tasks, stop) = (tasks.clone(), stop.clone());
    tasks.clone().spawn(async move {
        let mut running: HashMap<String, CancellationToken> = HashMap::new();
        let events = watcher(pods, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event.unwrap(),
            };
            let (pod, is_there) = match event {
                Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => (pod, true),
                Ok(watcher::Event::Delete(pod)) => (pod, false),
                // It begins again by itself.
                Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => continue,
            };
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let runs = is_there && phase == Some("Running");
            let uid = pod.uid().unwrap();
            if runs && !running.contains_key(&uid) {
                let Some((task, replica)) = who(&pod) else { continue };
                let agent =
                    Agent { shared: Arc::clone(&shared), task, replica, uid: uid.clone(), sequence: 0 };
                let end = stop.child_token();
                running.insert(uid, end.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = end.cancelled() => {}
                        () = agent.play() => {}
                    }
                });
            } else if !runs && let Some(end) = running.remove(&uid) {
                end.cancel();
            }
        }
    });
}

fn who(pod: &Pod) -> Option<(TaskId, ReplicaName)> {
    let label = |name: &str| pod.labels().get(name);
    let task = TaskId::new(label("holdfast.dev/task")?).ok()?;
    let kind = label("training.kubeflow.org/replica-type")?;
    let index = label("training.kubeflow.org/replica-index")?;
    Some((task, ReplicaName::new(format!("{kind}-{index}")).ok()?))
}

impl Shared {
    async fn token(&self, task: &TaskId, replica: &ReplicaName) -> String {
        if let Some(tokens) = self.tokens.lock().unwrap().get(task) {
            return tokens[replica.as_str()].clone();
        }
        let secret = loop {
            match self.secrets.get(&format!("{task}-agents")).await {
                Ok(secret) => break secret,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        };
        let text = |value: k8s_openapi::ByteString| String::from_utf8(value.0).unwrap();
        let tokens: HashMap<_, _> =
            secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, text(value))).collect();
        let tokens = Arc::new(tokens);
        self.tokens.lock().unwrap().insert(task.clone(), Arc::clone(&tokens));
        tokens[replica.as_str()].clone()
    }

    /// Asks until it is answered. None: there is nothing left to do for this agent.
    async fn sync(self: Arc<Self>, request: SyncRequest, token: String) -> Option<SyncReply> {
        loop {
            let sent = self
                .server
                .http
                .post(&self.server.url)
                .bearer_auth(&token)
                .header(headers::TASK, request.task_id.as_str())
                .header(headers::REPLICA, request.replica.as_str())
                .timeout(ANSWER)
                .json(&SyncRequest { sent_at: SystemClock.now(), ..request.clone() });
            match sent.send().await {
                Ok(answer) if answer.status() == 410 => return None,
                Ok(answer) if answer.status().is_success() => {
                    if let Ok(reply) = answer.json().await {
                        return Some(reply);
                    }
                }
                _ => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

struct Agent {
    shared: Arc<Shared>,
    task: TaskId,
    replica: ReplicaName,
    uid: String,
    sequence: u64,
}

impl Agent {
    fn request(&self, seen: u64, reports: Vec<Report>) -> SyncRequest {
        SyncRequest {
            task_id: self.task.clone(),
            replica: self.replica.clone(),
            agent_id: self.uid.clone(),
            seen,
            address: "10.88.0.1".to_owned(),
            offer: Some(PortOffer { launch: 0, port: 29_500 }),
            current: None,
            sent_at: SystemClock.now(),
            reports,
        }
    }

    async fn report(&mut self, token: &str, body: ReportBody) -> Option<()> {
        self.sequence += 1;
        let report = Report { sequence: self.sequence, at: SystemClock.now(), launch: 0, body };
        let request = self.request(0, vec![report]);
        Arc::clone(&self.shared).sync(request, token.to_owned()).await.map(drop)
    }

    /// Until the attempt is over. Launches are not played: whatever ends an attempt ends this.
    async fn play(mut self) {
        let token = self.shared.token(&self.task, &self.replica).await;
        let _ = self.play_with(&token).await;
    }

    async fn play_with(&mut self, token: &str) -> Option<()> {
        self.report(token, ReportBody::Ready).await?;
        let tells = self.replica.as_str() == "master-0";
        let (mut started, mut steps) = (false, 0);
        let mut tick = tokio::time::interval(self.shared.server.each);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let poll = |agent: &Self, seen| {
            Box::pin(Arc::clone(&agent.shared).sync(agent.request(seen, Vec::new()), token.to_owned()))
        };
        let mut polled = poll(self, 0);
        loop {
            tokio::select! {
                reply = &mut polled => {
                    let reply = reply?;
                    match reply.desired {
                        Desired::Run { .. } if !started => {
                            self.report(token, ReportBody::Started).await?;
                            started = true;
                        }
                        Desired::Stop { .. } if started => {
                            self.report(token, ReportBody::Stopped).await?;
                            started = false;
                        }
                        Desired::Exit => return None,
                        _ => {}
                    }
                    polled = poll(self, reply.version);
                }
                _ = tick.tick(), if tells && started => {
                    steps += 1;
                    let point = Point { step: steps, at: SystemClock.now(), loss: Some(0.5), samples: None, total: Some(1_000_000) };
                    self.report(token, ReportBody::Progress { points: vec![point] }).await?;
                }
            }
        }
    }
}
