//! The watches of a cluster. Each is a task that lists, follows, and begins again from a full list after every failure: so a watch that
//! works again says so at once, and what was missed meanwhile is found.
//!
//! An API server that comes back is not met by everything at once: lists come in pages, a few at a time, and no two begin again at the
//! same moment.

use std::{collections::BTreeSet, fmt::Debug, pin::pin, sync::Arc, time::Duration};

use engine::{ids::NodeName, job::JobKind};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event as CoreEvent, Node, Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::DynamicObject,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    answers::{self, CallError},
    client::limited,
    names, optional,
    seen::{self, JobSeen, NodeSeen, PodSeen},
    settings::KubernetesSettings,
    world::{FAILING, Watched, World},
};
use crate::clock;

/// Objects in a page of a list: a few megabytes, so that neither side holds a whole cluster's pods at once.
const PAGE: u32 = 500;
/// Lists that are read at a time. Those of one namespace, five and the nodes, need not wait for each other.
const LISTS: usize = 8;
/// Lists of what nothing waits for that are read at a time, beside the others: whoever serves them may be slow by himself.
const OPTIONAL_LISTS: usize = 4;
/// The first pause after a failure; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause: a cluster that comes back is seen within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long a list may take.
const LIST: Duration = Duration::from_secs(60);
/// How long one request of a watch may last before the next is made, seconds: a connection that died without a word is found by then.
const REQUEST_SECONDS: u32 = 60;
/// How long at most until a watch begins again from a full list though nothing failed. So whatever it may have missed, or whatever it hangs in, is
/// over after this time.
const RELIST: Duration = Duration::from_secs(600);
/// How often the API server is asked whether it is there: a watch alone cannot tell silence from quiet.
const PROBE: Duration = Duration::from_secs(5);

/// Begins all watches of a cluster; they end with `stop`.
pub(super) fn begin(
    client: &Client,
    settings: &KubernetesSettings,
    world: &Arc<World>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    tasks.spawn(probe(client.clone(), Arc::clone(world), stop.clone()));
    let any = watcher::Config::default().timeout(REQUEST_SECONDS).page_size(PAGE);
    let ours = any.clone().labels(&names::of_cluster(settings));
    let [lists, optional_lists] = [LISTS, OPTIONAL_LISTS].map(|room| Arc::new(Semaphore::new(room)));
    let keeper_of = |lists: &Arc<Semaphore>| Keeper {
        world: Arc::clone(world),
        stop: stop.clone(),
        tasks: tasks.clone(),
        lists: Arc::clone(lists),
    };
    let keeper = || keeper_of(&lists);
    optional::begin(client, settings, &any, || keeper_of(&optional_lists));
    for namespace in &settings.namespaces {
        for kind in names::KINDS {
            let api = Api::namespaced_with(client.clone(), namespace, &names::resource(kind));
            let watched = Watched::Jobs(kind, namespace.clone());
            keeper().keep(watched, api, ours.clone(), jobs(kind, namespace.clone(), settings.clone()));
            // Events carry no labels of ours.
            let about = match kind {
                JobKind::PyTorchJob => "involvedObject.kind=PyTorchJob,reason=FailedCreatePod",
                JobKind::RayJob => "involvedObject.kind=RayCluster,type=Warning",
            };
            let api = Api::namespaced(client.clone(), namespace);
            let watched = Watched::Events(kind, namespace.clone());
            keeper().keep(watched, api, any.clone().fields(about), events);
        }
        let api = Api::namespaced(client.clone(), namespace);
        let take = pods(namespace.clone(), settings.clone());
        keeper().keep(Watched::Pods(namespace.clone()), api, ours.clone(), take);
        for reason in seen::START_TROUBLES {
            let api = Api::namespaced(client.clone(), namespace);
            let about = format!("involvedObject.kind=Pod,reason={reason}");
            let watched = Watched::PodEvents(reason, namespace.clone());
            keeper().keep(watched, api, any.clone().fields(&about), pod_events);
        }
    }
    keeper().keep(Watched::Nodes, Api::all(client.clone()), any, nodes());
}

/// Asks again and again whether the API server is there.
async fn probe(client: Client, world: Arc<World>, stop: CancellationToken) {
    loop {
        let asked = async {
            let answer = limited(client.apiserver_version()).await;
            note(&world, &Watched::Server, answer.map(|_| true).map_err(|error| said(error, None)));
            tokio::time::sleep(PROBE).await;
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = asked => {}
        }
    }
}

/// Notes how a watch does; a failure and its end are said aloud once.
pub(super) fn note(world: &World, watched: &Watched, outcome: Result<bool, String>) {
    note_since(world, watched, outcome, Instant::now());
}

/// The same of a failure that has lasted since then.
fn note_since(world: &World, watched: &Watched, outcome: Result<bool, String>, since: Instant) {
    match outcome {
        Ok(complete) => {
            if world.heard(watched, complete) {
                tracing::info!(%watched, "watched again");
            }
        }
        Err(words) if world.failed(watched, &words, since) => {
            if matches!(watched, Watched::Jobs(JobKind::RayJob, _)) {
                // Many clusters have no KubeRay and need none.
                tracing::info!(%watched, error = words, "no RayJob can be run here for now; it is tried again");
                return;
            }
            tracing::warn!(%watched, error = words, "a watch failed; it is tried again");
        }
        Err(words) => tracing::debug!(%watched, error = words, "a watch failed again"),
    }
}

fn jobs(
    kind: JobKind,
    namespace: String,
    settings: KubernetesSettings,
) -> impl FnMut(&World, Event<DynamicObject>) + Send + 'static {
    let mut listed = BTreeSet::new();
    let seen = move |object: &DynamicObject| {
        JobSeen::of(kind, object).filter(|_| names::is_of_cluster(&settings, object.labels()))
    };
    move |world, event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.insert(object.uid().unwrap_or_default());
            seen(&object).into_iter().for_each(|job| world.set_job(job));
        }
        Event::InitDone => world.only_jobs(kind, &namespace, &std::mem::take(&mut listed)),
        Event::Apply(object) => seen(&object).into_iter().for_each(|job| world.set_job(job)),
        Event::Delete(object) => {
            seen(&object).into_iter().for_each(|job| world.remove_job(&job.task, &job.uid));
        }
    }
}

fn pods(namespace: String, settings: KubernetesSettings) -> impl FnMut(&World, Event<Pod>) + Send + 'static {
    let mut listed = BTreeSet::new();
    let seen = move |pod: &Pod| PodSeen::of(pod).filter(|_| names::is_of_cluster(&settings, pod.labels()));
    let set = {
        let (namespace, seen) = (namespace.clone(), seen.clone());
        move |world: &World, pod: &Pod| {
            if let Some(seen) = seen(pod) {
                world.set_pod(&namespace, seen, Instant::now());
            }
        }
    };
    move |world, event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(pod) => {
            listed.insert(pod.uid().unwrap_or_default());
            set(world, &pod);
        }
        Event::InitDone => world.only_pods(&namespace, &std::mem::take(&mut listed)),
        Event::Apply(pod) => set(world, &pod),
        Event::Delete(pod) => {
            // Its last words may be in the very event that says it is gone.
            set(world, &pod);
            if let Some(seen) = seen(&pod) {
                world.remove_pod(&seen.task, &seen.uid);
            }
        }
    }
}

fn nodes() -> impl FnMut(&World, Event<Node>) + Send + 'static {
    let mut listed = BTreeSet::<NodeName>::new();
    move |world, event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(node) => {
            if let Some((name, seen)) = NodeSeen::of(&node) {
                listed.insert(name.clone());
                world.set_node(name, seen);
            }
        }
        Event::InitDone => world.only_nodes(&std::mem::take(&mut listed)),
        Event::Apply(node) => {
            NodeSeen::of(&node).into_iter().for_each(|(name, seen)| world.set_node(name, seen))
        }
        Event::Delete(node) => NodeSeen::of(&node).into_iter().for_each(|(name, _)| world.remove_node(&name)),
    }
}

fn events(world: &World, event: Event<CoreEvent>) {
    if let Event::InitApply(event) | Event::Apply(event) = event
        && let Some((uid, words)) = seen::trouble_of(&event)
    {
        world.set_trouble(uid, words);
    }
}

fn pod_events(world: &World, event: Event<CoreEvent>) {
    if let Event::InitApply(event) | Event::Apply(event) = event
        && let Some((uid, said)) = seen::start_trouble_of(&event)
    {
        world.set_making(uid, said, event.resource_version().unwrap_or_default(), Instant::now());
    }
}

/// Keeps one watch going.
pub(super) struct Keeper {
    pub world: Arc<World>,
    pub stop: CancellationToken,
    pub tasks: TaskTracker,
    /// Room for lists.
    pub lists: Arc<Semaphore>,
}

/// How following a watch ended.
pub(super) struct Followed {
    /// There was a full list.
    pub synced: bool,
    /// The cluster does not know such objects.
    pub absent: bool,
}

impl Keeper {
    fn keep<K>(
        self,
        watched: Watched,
        api: Api<K>,
        config: watcher::Config,
        mut take: impl FnMut(&World, Event<K>) + Send + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        self.tasks.clone().spawn(async move {
            let going = async { self.keep_while(&watched, &api, &config, &mut take, |_| true).await };
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = going => {}
            }
        });
    }

    /// Follows a watch again and again, as long as `wanted` says so of how it ended.
    pub(super) async fn keep_while<K>(
        &self,
        watched: &Watched,
        api: &Api<K>,
        config: &watcher::Config,
        take: &mut (impl FnMut(&World, Event<K>) + Send),
        wanted: impl Fn(&Followed) -> bool + Send,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut pause = FIRST_PAUSE;
        loop {
            let followed = self.follow(watched, watcher(api.clone(), config.clone()), take, LIST).await;
            if !wanted(&followed) {
                return;
            }
            pause = if followed.synced { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            tokio::time::sleep(clock::spread(pause)).await;
        }
    }

    /// Room for a list. Nothing is seen of what waits longer for it than a watch may fail, so that counts as a failure.
    async fn room(&self, watched: &Watched, patience: Duration) -> Option<SemaphorePermit<'_>> {
        let began = Instant::now();
        let mut room = pin!(self.lists.acquire());
        // The semaphore is never closed.
        match tokio::time::timeout(patience, &mut room).await {
            Ok(room) => room.ok(),
            Err(_) => {
                let words = "other lists have not ended that are read before this one".to_owned();
                note_since(&self.world, watched, Err(words), began);
                room.await.ok()
            }
        }
    }

    /// Follows one watch until it fails or has lasted long. Its list has to be whole within `list`.
    async fn follow<K: Debug>(
        &self,
        watched: &Watched,
        events: impl futures::Stream<Item = watcher::Result<Event<K>>>,
        take: &mut impl FnMut(&World, Event<K>),
        list: Duration,
    ) -> Followed {
        let mut events = pin!(events);
        let mut synced = false;
        let ended = |synced| Followed { synced, absent: false };
        // Given back with the end of the list.
        let mut room = self.room(watched, FAILING).await;
        let mut relist = pin!(tokio::time::sleep(clock::spread(RELIST)));
        // Of the whole list: one that goes on for ever is none.
        let mut late = pin!(tokio::time::sleep(list));
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = &mut relist => return ended(synced),
                () = &mut late, if !synced => {
                    let words = format!("no list came within {} s", list.as_secs());
                    note(&self.world, watched, Err(words));
                    return ended(synced);
                }
            };
            match event {
                Some(Ok(event)) => {
                    let complete = matches!(event, Event::InitDone);
                    synced |= complete;
                    if complete {
                        drop(room.take());
                    }
                    take(&self.world, event);
                    note(&self.world, watched, Ok(complete));
                }
                Some(Err(error)) => {
                    let absent = is_absent(&error);
                    if !(absent && matches!(watched, Watched::Queueing(..))) {
                        note(&self.world, watched, Err(words(error, watched)));
                    }
                    return Followed { synced, absent };
                }
                None => return ended(synced),
            }
        }
    }
}

/// What failed, and what to do about it.
fn words(error: watcher::Error, watched: &Watched) -> String {
    let kind = match watched {
        Watched::Jobs(kind, _) => Some(*kind),
        Watched::Server
        | Watched::Pods(_)
        | Watched::Events(..)
        | Watched::PodEvents(..)
        | Watched::Nodes
        | Watched::Queueing(..) => None,
    };
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => said(CallError::from(error), kind),
        watcher::Error::WatchError(status) => said(CallError::Api(status), kind),
        other => other.to_string(),
    }
}

/// Whether the cluster does not know what is watched.
fn is_absent(error: &watcher::Error) -> bool {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status,
        _ => return false,
    };
    status.code == 404
}

pub(super) fn said(error: CallError, kind: Option<JobKind>) -> String {
    let advice = match &error {
        CallError::Api(status) => answers::advice(status, kind),
        _ => None,
    };
    let text = format!("{:#}", anyhow::Error::from(error));
    match advice {
        Some(advice) => format!("{text}; {advice}"),
        None => text,
    }
}

#[cfg(test)]
#[path = "tests/watch.rs"]
mod tests;
