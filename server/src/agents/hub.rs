//! Keeps what only the agents know (addresses, free ports, when each was heard) and answers their polls.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use engine::{
    chain::{Chain, Input},
    ids::{JobId, ReplicaName, TaskId},
    sync::{Desired, PortOffer, SyncReply, SyncRequest},
    time::Time,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Chains, ChainsError, SyncError, check::check};
use crate::{clock::Clock, tokens::Tokens};

/// A replica that was not heard for so long is reported silent; its long poll asks again every 25 s.
const SILENT_AFTER_SECONDS: u64 = 60;
/// How often that is looked at.
const SILENCE_CHECK: Duration = Duration::from_secs(5);
/// An agent's clock that differs by no more is not corrected: a sync may have been on its way for as long.
const CLOCK_TOLERANCE_MICROS: i64 = 2_000_000;
/// Launches whose ports are remembered for an attempt: the running one, the next one, and one late.
const PORTS: usize = 3;

/// The agents' hub.
pub struct Hub {
    chains: Arc<dyn Chains>,
    tokens: Tokens,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
    attempts: Mutex<HashMap<TaskId, Attempt>>,
    tasks: TaskTracker,
}

/// What is known of the agents of one attempt.
struct Attempt {
    /// Where the ranks meet: changes wake all polls of the attempt.
    rendezvous: watch::Sender<Rendezvous>,
    heard: HashMap<ReplicaName, Heard>,
}

/// Where the ranks of an attempt meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rendezvous {
    /// The first replica's address.
    address: String,
    /// Its agent; another one offers its own ports.
    agent_id: String,
    /// Ports by launch.
    ports: BTreeMap<u32, u16>,
}

struct Heard {
    at: Time,
    /// The chain was told that it is silent.
    silent: bool,
}

impl Hub {
    /// A hub that knows no agent yet; they all ask within seconds. It looks for silence until `shutdown`.
    pub fn start(
        chains: Arc<dyn Chains>,
        tokens: Tokens,
        clock: Arc<dyn Clock>,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let tasks = TaskTracker::new();
        let hub = Arc::new(Self { chains, tokens, clock, shutdown, attempts: Mutex::default(), tasks });
        hub.tasks.spawn(Arc::clone(&hub).watch_silence());
        hub.tasks.close();
        hub
    }

    /// Returns once its tasks have ended after `shutdown`.
    pub async fn stopped(&self) {
        self.tasks.wait().await;
    }

    /// Whether this is the token of that replica.
    pub(super) fn is_token_of(&self, task: &TaskId, replica: &ReplicaName, token: &str) -> bool {
        self.tokens.is_valid(task, replica, token)
    }

    /// The server's time.
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Answers one sync of a replica that has shown its token and began to send at `arrived_at`: takes the reports, then waits at most
    /// `hold` for a desired state that the agent has not seen.
    pub(super) async fn sync(
        &self,
        request: SyncRequest,
        arrived_at: Time,
        hold: Duration,
    ) -> Result<SyncReply, SyncError> {
        let (task, replica) = (&request.task_id, &request.replica);
        let job = task.job_id().ok_or(SyncError::Gone)?;
        let mut chain = self.chains.subscribe(&job).await?;
        let newest = Arc::clone(&chain.borrow());
        check(&request, &newest)?;
        let mut rendezvous = self.note(&request, &newest);
        self.report_heard(&job, task, replica).await?;
        let has_news = self.take_reports(&job, &request, &newest, arrived_at).await?;

        let deadline = tokio::time::sleep(hold);
        tokio::pin!(deadline);
        loop {
            let reply =
                reply(&chain.borrow_and_update(), &request, &rendezvous.borrow_and_update(), self.now());
            if has_news || reply.version != request.seen {
                return Ok(reply);
            }
            tokio::select! {
                // The job was forgotten, or this server no longer drives it: only the next sync can tell. To say that the
                // attempt is gone would end a training that goes on.
                changed = chain.changed() => if changed.is_err() {
                    return Err(SyncError::Elsewhere);
                },
                changed = rendezvous.changed() => if changed.is_err() {
                    return Err(SyncError::NotNow(anyhow::anyhow!("the attempt is no longer known here")));
                },
                () = &mut deadline => return Ok(SyncReply { now: Some(self.now()), ..reply }),
                () = self.shutdown.cancelled() => return Err(SyncError::NotNow(anyhow::anyhow!("the server is stopping"))),
            }
        }
    }

    /// Notes that the replica was heard and where the ranks can meet.
    fn note(&self, request: &SyncRequest, chain: &Chain) -> watch::Receiver<Rendezvous> {
        let now = self.clock.now();
        let mut attempts = self.attempts();
        let attempt = attempts
            .entry(request.task_id.clone())
            .or_insert_with(|| Attempt { rendezvous: watch::Sender::default(), heard: HashMap::new() });
        // What an earlier server told the chain about a replica that is new here is not known: it is told that it is heard.
        let silent = attempt.heard.get(&request.replica).is_none_or(|heard| heard.silent);
        attempt.heard.insert(request.replica.clone(), Heard { at: now, silent });
        if request.replica == ReplicaName::of_index(chain.spec().kind, 0) {
            let launch = chain.launch_number();
            attempt.rendezvous.send_if_modified(|rendezvous| rendezvous.learn(request, launch));
        } else if let Some(current) =
            request.current.filter(|current| current.launch <= chain.launch_number())
        {
            // After a restart of the server any replica can tell where its launch met.
            attempt.rendezvous.send_if_modified(|rendezvous| rendezvous.add(current));
        }
        attempt.rendezvous.subscribe()
    }

    /// Tells the chain that a replica is heard again. It counts as silent until that is committed, so that whatever fails or is cut off
    /// meanwhile, the next sync tells it.
    async fn report_heard(
        &self,
        job: &JobId,
        task: &TaskId,
        replica: &ReplicaName,
    ) -> Result<(), ChainsError> {
        let was_silent = self
            .attempts()
            .get(task)
            .and_then(|attempt| attempt.heard.get(replica))
            .is_some_and(|heard| heard.silent);
        if was_silent {
            let input = Input::Heard { task_id: task.clone(), replica: Some(replica.clone()) };
            self.chains.input(job, vec![input]).await?;
            self.set_silent(task, replica, false);
        }
        Ok(())
    }

    /// Hands over the reports that the chain does not have yet; returns once they are committed.
    async fn take_reports(
        &self,
        job: &JobId,
        request: &SyncRequest,
        chain: &Chain,
        arrived_at: Time,
    ) -> Result<bool, SyncError> {
        let known = chain.acknowledged(&request.task_id, &request.replica);
        let off = arrived_at.micros().saturating_sub(request.sent_at.micros());
        let off = if off.saturating_abs() > CLOCK_TOLERANCE_MICROS { off } else { 0 };
        let inputs: Vec<_> = request
            .reports
            .iter()
            .filter(|report| report.sequence > known)
            .map(|report| Input::Report {
                task_id: request.task_id.clone(),
                replica: request.replica.clone(),
                report: report.clone().moved(off),
            })
            .collect();
        if !inputs.is_empty() {
            self.chains.input(job, inputs).await?;
        }
        Ok(!request.reports.is_empty())
    }

    /// Tells chains which replicas have not been heard.
    async fn watch_silence(self: Arc<Self>) {
        let mut tick = tokio::time::interval(SILENCE_CHECK);
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                _ = tick.tick() => {}
            }
            // What is not told now is told by the next server, so a commit that takes its time keeps nobody from stopping.
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                () = self.report_silence() => {}
            }
        }
    }

    /// Tells each chain once which replicas of its live attempt have not been heard, and forgets attempts that are over. What could not
    /// be told is told by the next look.
    pub(super) async fn report_silence(&self) {
        for (task, untold) in self.overdue() {
            let Some(job) = task.job_id() else { continue };
            let live = match self.chains.subscribe(&job).await {
                Ok(chain) => chain.borrow().live_task() == Some(&task),
                Err(ChainsError::NoJob(_) | ChainsError::Elsewhere) => false,
                Err(ChainsError::NotNow(_)) => continue,
            };
            if !live {
                // Its agents have nothing left to say, or say it to the server that leads: this one knows nothing of them once it leads again.
                self.attempts().remove(&task);
                continue;
            }
            for (replica, since) in untold {
                if let Err(error) = self.report_silent(&job, &task, &replica, since).await {
                    tracing::debug!(%job, %replica, %error, "could not report who is silent");
                }
            }
        }
    }

    async fn report_silent(
        &self,
        job: &JobId,
        task: &TaskId,
        replica: &ReplicaName,
        since: Time,
    ) -> Result<(), ChainsError> {
        self.set_silent(task, replica, true);
        let input = Input::Silent { task_id: task.clone(), replica: Some(replica.clone()), since };
        if let Err(error) = self.chains.input(job, vec![input]).await {
            self.set_silent(task, replica, false);
            return Err(error);
        }
        if self.heard_at(task, replica).is_some_and(|at| at > since) {
            // Heard meanwhile, and that may have been committed first.
            self.set_silent(task, replica, true);
            self.report_heard(job, task, replica).await?;
        }
        Ok(())
    }

    /// Attempts with replicas that were not heard for long, and those of them whose chain does not know it.
    fn overdue(&self) -> Vec<(TaskId, Vec<(ReplicaName, Time)>)> {
        let now = self.clock.now();
        let late = |heard: &Heard| now >= heard.at.plus_seconds(SILENT_AFTER_SECONDS);
        let attempts = self.attempts();
        let overdue = attempts.iter().filter(|(_, attempt)| attempt.heard.values().any(late));
        overdue
            .map(|(task, attempt)| {
                let untold = attempt.heard.iter().filter(|(_, heard)| late(heard) && !heard.silent);
                (task.clone(), untold.map(|(replica, heard)| (replica.clone(), heard.at)).collect())
            })
            .collect()
    }

    /// How many attempts are known.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.attempts().len()
    }

    fn set_silent(&self, task: &TaskId, replica: &ReplicaName, silent: bool) {
        if let Some(heard) = self.attempts().get_mut(task).and_then(|attempt| attempt.heard.get_mut(replica))
        {
            heard.silent = silent;
        }
    }

    fn heard_at(&self, task: &TaskId, replica: &ReplicaName) -> Option<Time> {
        self.attempts().get(task)?.heard.get(replica).map(|heard| heard.at)
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<TaskId, Attempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rendezvous {
    /// Takes what the first replica says; true where something changed. `launch`: the newest of the attempt.
    fn learn(&mut self, request: &SyncRequest, launch: u32) -> bool {
        let before = self.clone();
        if self.agent_id != request.agent_id {
            // What others told before this agent was first heard stays true; the ports of an earlier agent are gone with it.
            if !self.agent_id.is_empty() {
                self.ports.clear();
            }
            self.agent_id.clone_from(&request.agent_id);
        }
        self.address.clone_from(&request.address);
        // An agent in a pod that was made anew knows of no launch before; its port is for the one to come.
        let known_to = if request.current.is_none() { launch } else { 0 };
        let offer = request.offer.map(|offer| PortOffer { launch: offer.launch.max(known_to), ..offer });
        // Nobody can be in a launch that was not ordered, and only the next one is prepared.
        let current = request.current.filter(|current| current.launch <= launch);
        let offer = offer.filter(|offer| offer.launch <= launch.saturating_add(1));
        for offer in [current, offer].into_iter().flatten() {
            self.add(offer);
        }
        *self != before
    }

    /// The first port for a launch stays: a replica may have it already.
    fn add(&mut self, offer: PortOffer) -> bool {
        if self.ports.contains_key(&offer.launch) {
            return false;
        }
        self.ports.insert(offer.launch, offer.port);
        while self.ports.len() > PORTS {
            self.ports.pop_first();
        }
        true
    }
}

/// What a replica shall do, and a version of that which changes with it.
fn reply(chain: &Chain, request: &SyncRequest, rendezvous: &Rendezvous, now: Time) -> SyncReply {
    let launch = chain.launch_number();
    let offer = rendezvous
        .ports
        .get(&launch)
        .map(|port| (rendezvous.address.as_str(), PortOffer { launch, port: *port }));
    let desired =
        chain.desired(&request.task_id, &request.replica, offer.filter(|(address, _)| !address.is_empty()));
    SyncReply {
        acknowledged: chain.acknowledged(&request.task_id, &request.replica),
        version: version(&desired),
        desired,
        now: Some(now),
    }
}

/// Equal states have equal versions; 0 is kept for "none yet".
fn version(desired: &Desired) -> u64 {
    let mut hasher = DefaultHasher::new();
    desired.hash(&mut hasher);
    hasher.finish().max(1)
}
