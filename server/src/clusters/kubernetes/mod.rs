//! A Kubernetes cluster with the Kubeflow training operator, KubeRay or both: an attempt is a `kubeflow.org/v1 PyTorchJob` or a
//! `ray.io/v1 RayJob`, and a Secret with the tokens of its agents.
//!
//! Its truth is in the cluster. What is remembered here is what the watches have shown, so that looking at ten thousand attempts costs
//! the API server nothing, and the last states of pods that are gone. Before the first full list, and while a watch fails, nothing is
//! concluded; that an attempt is gone is asked for, never concluded from what is remembered.
//!
//! ```text
//! manifest, pod   order + settings -> objects             pure
//! pasted          the same from a pasted object           pure
//! act, answers    create, delete; what an answer means    calls
//! removal         facts -> what keeps a removed attempt   pure
//! events          what kubectl tells about an attempt     pure
//! watch, world    lists and watches; what they showed     calls, memory
//! health          how the watches do                      memory
//! optional        the same of what may not be installed   calls
//! queues          what queueing systems showed            memory
//! output          what containers print                   calls, files
//! seen            the API server's objects -> facts       pure
//! facts, ray      facts -> what there is                  pure
//! queue           facts -> why it waits                   pure
//! kueue, gang     the words of Kueue, of gang schedulers  pure
//! capacity        facts -> nodes and their slots          pure
//! troubles        what fails -> what to tell people       pure
//! wants, room     spec -> what it needs, whether it fits  pure
//! testing         spec -> pods that test its nodes        pure
//! requests        a pod's spec -> what it asks for        pure
//! check           what of that there is now               calls
//! ```
//!
//! The operators' own retries are off (`restartPolicy: Never`, `backoffLimit: 0`): the driver decides. A RayJob is submitted over HTTP by
//! KubeRay itself, so there is no submitter that could try again either, and nothing runs beside the Ray cluster.

mod act;
mod answers;
mod capacity;
mod check;
mod client;
mod events;
mod facts;
#[cfg(test)]
#[path = "tests/fake.rs"]
mod fake;
mod gang;
mod health;
mod kueue;
mod manifest;
mod names;
mod optional;
mod output;
mod pasted;
mod pod;
mod queue;
mod queues;
mod ray;
mod removal;
mod requests;
mod room;
mod seen;
mod settings;
mod testing;
mod troubles;
mod wants;
mod watch;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use engine::{
    chain::Observation,
    ids::{JobId, NodeName, ReplicaName, TaskId},
    job::{ClusterKind, ClusterTrouble, Finding, JobKind, JobSpec},
};
use kube::Client;
use tokio::{
    sync::{Semaphore, mpsc},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    act::Hands, events::Place, facts::Known, health::Watched, output::Outputs, seen::JobSeen, world::World,
};
pub use self::{
    client::KubernetesError,
    settings::{ACCELERATOR, AgentSource, CLUSTER_OF_FLAGS, KubernetesSettings, NODE_LOST_SECONDS},
};
use super::{Cluster, ClusterError, Node, Note, Order, Present, Testing, Untestable};
use crate::clock::{Clock, SystemClock};

/// Hints that wait to be read; one that finds no room is dropped, as the driver also looks by itself.
const HINTS: usize = 4_096;

/// How often is looked whether the first lists have come, and how many times: 5 seconds in all.
const FIRST_LISTS_PAUSE: Duration = Duration::from_millis(50);
const FIRST_LISTS_LOOKS: u32 = 100;

/// A Kubernetes cluster.
pub struct Kubernetes {
    hands: Hands,
    world: Arc<World>,
    outputs: Arc<Outputs>,
    /// Room for questions about jobs that are not made yet.
    questions: Semaphore,
    hints: std::sync::Mutex<Option<mpsc::Receiver<TaskId>>>,
    tasks: TaskTracker,
}

impl Kubernetes {
    /// Connects to the cluster and begins to watch it. One that does not answer yet, or lacks the operator or a right, is said in the log
    /// and in the answers until it does. From `shutdown` on nothing is watched; what runs there runs on.
    ///
    /// # Errors
    /// Settings that can never work: see [`KubernetesError`].
    pub async fn start(
        settings: KubernetesSettings,
        shutdown: CancellationToken,
    ) -> Result<Arc<Self>, KubernetesError> {
        let client = client::connect(&settings).await?;
        Ok(Self::with_client(client, settings, &shutdown))
    }

    fn with_client(client: Client, settings: KubernetesSettings, shutdown: &CancellationToken) -> Arc<Self> {
        let (hint, hints) = mpsc::channel(HINTS);
        let (world, tasks) = (Arc::new(World::new(hint)), TaskTracker::new());
        watch::begin(&client, &settings, &world, &tasks, shutdown);
        let outputs = Arc::new(Outputs::new(client.clone(), settings.data_dir.clone()));
        let (keeper, kept, stop) = (Arc::clone(&outputs), Arc::clone(&world), shutdown.clone());
        tasks.spawn(async move { keeper.keep_going(&kept, stop).await });
        let hints = std::sync::Mutex::new(Some(hints));
        let questions = Semaphore::new(check::QUESTIONS);
        Arc::new(Self { hands: Hands { client, settings }, world, outputs, questions, hints, tasks })
    }

    /// Returns once its tasks have ended after `shutdown`.
    pub async fn stopped(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn settings(&self) -> &KubernetesSettings {
        &self.hands.settings
    }

    fn unreachable(&self, doing: &'static str, why: impl Into<anyhow::Error>) -> ClusterError {
        ClusterError::Unreachable { cluster: self.settings().name.clone(), doing, source: why.into() }
    }

    /// Where an attempt was seen, or else is made where its job names this namespace: what goes on in others says nothing about it. An error
    /// where it names one that is not configured.
    fn namespace_of(&self, task: &TaskId, named: Option<&str>) -> Result<String, String> {
        match self.world.namespace_of(task) {
            Some(seen) => Ok(seen),
            None => self.settings().namespace_of(named).map(str::to_owned),
        }
    }

    /// Waits for the first lists of a server that has just begun, so that it does not call its cluster out of reach meanwhile.
    async fn begun(&self, kind: JobKind, namespace: &str) {
        for _ in 0..FIRST_LISTS_LOOKS {
            if !self.world.health.is_beginning(kind, namespace) {
                return;
            }
            tokio::time::sleep(FIRST_LISTS_PAUSE).await;
        }
    }

    /// Where the object is that a note is about. One that is gone, and that this server never saw, has no UID any more.
    async fn place(&self, note: &Note) -> Result<Place, ClusterError> {
        let task = &note.task_id;
        if let Some(known) = self.world.place_of(task) {
            return Ok(known);
        }
        let namespace = self.namespace_of(task, note.namespace.as_deref());
        let namespace = namespace.map_err(|text| ClusterError::Refused { text })?;
        let uid = self.hands.find(&namespace, note.kind, task).await?;
        let place = Place { namespace, uid };
        self.world.set_place(task, place.clone());
        Ok(place)
    }

    /// Tells why an object goes, while it is there. Nobody waits for it.
    fn tell_removal(&self, job: &JobSeen, force: bool) {
        let (kind, instance) = (job.kind, &self.settings().instance);
        let event = events::of_removal(&job.task, kind, force, &job.into(), instance, SystemClock.now());
        let (hands, task) = (self.hands.clone(), job.task.clone());
        self.tasks.spawn(async move {
            if let Err(error) = hands.tell(kind, &event).await {
                tracing::debug!(%task, %error, "the removal of an attempt could not be told");
            }
        });
    }

    /// Where pods are taken away and nothing says why, asks for the job: that it is suspended may not have been shown yet, and to take
    /// it for a failure could not be undone. The watch may be faster than this answer, so it is not remembered.
    async fn explained(&self, known: Known) -> Result<Known, ClusterError> {
        let Some(job) = known.job.as_ref().filter(|_| known.is_unexplained()) else { return Ok(known) };
        let found = self.hands.look_at_job(&job.namespace, job.kind, &job.task).await?;
        Ok(match found.filter(|found| found.uid == job.uid) {
            Some(found) => known.with_job(found),
            None => known,
        })
    }

    /// That the watches show nothing of an attempt is a hint only: they may be behind.
    async fn look(&self, task: &TaskId, kind: JobKind, namespace: &str) -> Result<Observation, ClusterError> {
        let (job, pods) = self.hands.look(namespace, kind, task).await?;
        if job.is_none() && pods.is_empty() {
            return Ok(Observation::Absent);
        }
        job.into_iter().for_each(|job| self.world.meet_job(job));
        let now = Instant::now();
        pods.into_iter().for_each(|pod| self.world.set_pod(namespace, pod, now));
        let (known, nodes) = self.world.known(task, now);
        Ok(facts::observe(&known, &nodes))
    }
}

#[async_trait]
impl Cluster for Arc<Kubernetes> {
    fn name(&self) -> &str {
        &self.settings().name
    }

    fn kind(&self) -> ClusterKind {
        ClusterKind::Kubernetes
    }

    async fn create(&self, order: &Order) -> Result<(), ClusterError> {
        // In a task of its own: whoever stops waiting for it must not leave a Secret without an owner.
        let (hands, world, order) = (self.hands.clone(), Arc::clone(&self.world), order.clone());
        let made = self.tasks.spawn(async move { hands.create(&order, &world).await }).await;
        made.unwrap_or_else(|why| Err(self.unreachable("creating an attempt", why)))
    }

    async fn delete(
        &self,
        task: &TaskId,
        kind: JobKind,
        namespace: Option<&str>,
        force: bool,
    ) -> Result<Option<String>, ClusterError> {
        let failed = |why| self.unreachable("removing an attempt", anyhow::Error::msg(why));
        let namespace = self.namespace_of(task, namespace).map_err(failed)?;
        let (known, _) = self.world.known(task, Instant::now());
        known.job.iter().for_each(|job| self.tell_removal(job, force));
        self.outputs.fetch_all(&self.world, task).await;
        let (known, nodes) = self.world.known(task, Instant::now());
        let removal = self.hands.delete(&namespace, kind, task, force).await?;
        self.hands.end_pods(&namespace, kind, &removal::given_up(&known, &nodes)).await?;
        self.world.hint(task);
        let kept = || removal::kept(kind, removal.found.as_ref(), &known, &nodes, force);
        Ok(removal.not_released.or_else(kept))
    }

    async fn observe(
        &self,
        task: &TaskId,
        kind: JobKind,
        namespace: Option<&str>,
    ) -> Result<Observation, ClusterError> {
        let failed = |why| self.unreachable("looking at an attempt", anyhow::Error::msg(why));
        let namespace = self.namespace_of(task, namespace).map_err(failed)?;
        self.begun(kind, &namespace).await;
        let now = Instant::now();
        if let Some(why) = self.world.health.blind(kind, &namespace, now) {
            return Err(failed(why));
        }
        let (known, nodes) = self.world.known(task, now);
        let known = self.explained(known).await?;
        match facts::observe(&known, &nodes) {
            Observation::Absent => self.look(task, kind, &namespace).await,
            seen => Ok(seen),
        }
    }

    async fn present(&self) -> Result<Vec<Present>, ClusterError> {
        let present = self.world.present(Instant::now()).into_iter().map(|job| {
            let place = format!("{} {}/{}", names::resource(job.kind).kind, job.namespace, job.task);
            Present { task: job.task, kind: job.kind, place }
        });
        Ok(present.collect())
    }

    async fn fetch_output(&self, task: &TaskId, replica: Option<&ReplicaName>) -> Result<(), ClusterError> {
        let printing = self.world.printing_of(task);
        let is_wanted =
            |one: &&world::Printing| replica.map_or_else(|| one.is_first(), |name| one.replica == *name);
        let Some(wanted) = printing.iter().find(is_wanted) else { return Ok(()) };
        self.outputs.fetch(wanted).await.map_err(|why| self.unreachable("fetching output", why))
    }

    async fn tell(&self, note: &Note) -> Result<(), ClusterError> {
        let place = self.place(note).await?;
        self.hands.tell(note.kind, &events::of(note, &place, &self.settings().instance)).await
    }

    fn manifest(&self, order: &Order) -> Result<serde_json::Value, String> {
        // The Secret with the tokens is another object.
        let job = manifest::of(order, self.settings())?.job;
        serde_json::to_value(job).map_err(|why| why.to_string())
    }

    fn missing_namespace(&self, spec: &JobSpec) -> Option<String> {
        let named = spec.kubernetes.namespace.as_deref()?;
        self.settings().namespace_of(Some(named)).err().map(|_| named.to_owned())
    }

    fn troubles(&self) -> Vec<ClusterTrouble> {
        troubles::of(self.world.health.failing(Instant::now()), self.settings())
    }

    async fn check(&self, spec: &JobSpec) -> Vec<Finding> {
        check::job(&self.hands, &self.world, &self.questions, spec).await
    }

    async fn nodes(&self) -> Result<Vec<Node>, ClusterError> {
        if let Some(why) = self.world.health.blind_to(&Watched::Nodes, Instant::now()) {
            return Err(self.unreachable("listing the nodes", anyhow::anyhow!(why)));
        }
        let (nodes, held) = self.world.nodes();
        Ok(capacity::nodes(&nodes, &held, &self.settings().accelerator))
    }

    fn testing(&self, spec: &JobSpec, own: bool) -> Result<Testing, Untestable> {
        let namespace = self.settings().namespace_of(spec.kubernetes.namespace.as_deref());
        let namespace = namespace.map_err(Untestable::Ever)?;
        // Whatever the job is, its nodes are tested by PyTorchJobs.
        if let Some(why) = self.world.health.blind(JobKind::PyTorchJob, namespace, Instant::now()) {
            let name = &self.settings().name;
            return Err(Untestable::Now(format!(
                "Nodes of cluster {name} are tested by PyTorchJobs: {why}."
            )));
        }
        testing::of(spec, self.settings(), own).map_err(Untestable::Ever)
    }

    fn closed(&self, nodes: &BTreeSet<NodeName>) -> BTreeMap<NodeName, String> {
        if self.world.health.blind_to(&Watched::Nodes, Instant::now()).is_some() {
            return BTreeMap::new();
        }
        testing::closed(nodes, &self.world.nodes().0)
    }

    async fn forget(&self, job: &JobId, _: &JobSpec, tasks: &[TaskId]) -> Result<(), ClusterError> {
        if let Some(task) = tasks.iter().find(|task| self.world.is_there(task)) {
            let why = anyhow::anyhow!("attempt {task} is still there");
            return Err(self.unreachable("forgetting a job", why));
        }
        // Its checkpoints are in volumes of its owner, and stay.
        let files = self.settings().data_dir.join("jobs").join(job.as_str());
        match tokio::fs::remove_dir_all(&files).await {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                let why = anyhow::Error::from(why).context(format!("could not remove {}", files.display()));
                Err(self.unreachable("removing a job's files", why))
            }
            _ => Ok(()),
        }
    }

    fn hints(&self) -> Option<mpsc::Receiver<TaskId>> {
        self.hints.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

#[cfg(test)]
#[path = "tests/cluster.rs"]
mod tests;
