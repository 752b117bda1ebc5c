//! The watches of a cluster. Each is a task that lists, follows, and begins again from a full list after every failure: so a watch that
//! works again says so at once, and what was missed meanwhile is found.
//!
//! An API server that comes back is not met by everything at once: lists come in pages, a few at a time, and no two begin again at the
//! same moment.

use std::{collections::BTreeSet, fmt::Debug, pin::pin, sync::Arc, time::Duration};

use engine::job::JobKind;
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
    health::{FAILING, Watched},
    names, optional,
    seen::{self, JobSeen, NodeSeen, PodSeen},
    settings::KubernetesSettings,
    world::World,
};
use crate::clock;

/// Objects in a page of a list: a few megabytes, so that neither side holds a whole cluster's pods at once.
const PAGE: u32 = 500;
/// Lists of jobs, pods and nodes that are read at a time: those of two namespaces need not wait for each other.
const LISTS: usize = 8;
/// Lists of what nothing waits for, events and queueing systems, that are read at a time, beside the others: whoever serves or keeps them
/// may be slow by himself.
const OPTIONAL_LISTS: usize = 4;
/// The first pause after a failure; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause: a cluster that comes back is seen within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long a list may take. One that was late has twice the time from then on, up to [`LONGEST_LIST`]: it may be large rather than stuck.
const LIST: Duration = Duration::from_secs(60);
/// How long a list may take at most.
const LONGEST_LIST: Duration = Duration::from_secs(240);
/// How long one request of a watch may last before the next is made, seconds: a connection that died without a word is found by then.
const REQUEST_SECONDS: u32 = 60;
/// How long after its list a watch begins again from a full list at most, though nothing failed. So whatever it may have missed, or
/// whatever it hangs in, is over after this time.
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
    tasks.spawn(stop.clone().run_until_cancelled_owned(probe(client.clone(), Arc::clone(world))));
    let any = watcher::Config::default().timeout(REQUEST_SECONDS).page_size(PAGE);
    let ours = any.clone().labels(&names::of_cluster(settings));
    let [lists, optional_lists] = [LISTS, OPTIONAL_LISTS].map(|room| Arc::new(Semaphore::new(room)));
    let keeper_of = |lists: &Arc<Semaphore>| Keeper {
        world: Arc::clone(world),
        stop: stop.clone(),
        tasks: tasks.clone(),
        lists: Arc::clone(lists),
    };
    let (keeper, optional_keeper) = (|| keeper_of(&lists), || keeper_of(&optional_lists));
    optional::begin(client, settings, &any, optional_keeper);
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
            optional_keeper().keep(watched, api, any.clone().fields(about), events);
        }
        let api = Api::namespaced(client.clone(), namespace);
        let take = pods(namespace.clone(), settings.clone());
        keeper().keep(Watched::Pods(namespace.clone()), api, ours.clone(), take);
        for reason in seen::START_TROUBLES {
            let api = Api::namespaced(client.clone(), namespace);
            let about = format!("involvedObject.kind=Pod,reason={reason}");
            let watched = Watched::PodEvents(reason, namespace.clone());
            optional_keeper().keep(watched, api, any.clone().fields(&about), pod_events);
        }
    }
    keeper().keep(Watched::Nodes, Api::all(client.clone()), any, nodes());
}

/// Asks again and again whether the API server is there.
async fn probe(client: Client, world: Arc<World>) {
    loop {
        match limited(client.apiserver_version()).await {
            Ok(_) => heard(&world, &Watched::Server, true),
            Err(error) => failed(&world, &Watched::Server, &said(error, None)),
        }
        tokio::time::sleep(PROBE).await;
    }
}

/// Notes that a watch brought something; `complete` at the end of a full list. That it works again is said aloud.
pub(super) fn heard(world: &World, watched: &Watched, complete: bool) {
    if world.health.heard(watched, complete) {
        tracing::info!(%watched, "watched again");
    }
}

/// Notes that a watch fails; new words are said aloud.
pub(super) fn failed(world: &World, watched: &Watched, words: &str) {
    failed_since(world, watched, words, Instant::now());
}

/// The same of a failure that has lasted since then.
fn failed_since(world: &World, watched: &Watched, words: &str, since: Instant) {
    if world.health.failed(watched, words, since) {
        tracing::warn!(%watched, error = words, "a watch failed; it is tried again");
    } else {
        tracing::debug!(%watched, error = words, "a watch failed again");
    }
}

/// What a watch tells of objects, each known by a key.
pub(super) enum Change<K> {
    There(K),
    Gone(K),
    /// A full list has ended: whatever has none of these keys is gone.
    Only(BTreeSet<String>),
}

/// Takes what a watch brings as changes.
pub(super) fn listing<K: 'static>(
    key: fn(&K) -> String,
    mut take: impl FnMut(&World, Change<K>) + Send + 'static,
) -> impl FnMut(&World, Event<K>) + Send + 'static {
    let mut listed = BTreeSet::new();
    move |world, event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.insert(key(&object));
            take(world, Change::There(object));
        }
        Event::InitDone => take(world, Change::Only(std::mem::take(&mut listed))),
        Event::Apply(object) => take(world, Change::There(object)),
        Event::Delete(object) => take(world, Change::Gone(object)),
    }
}

/// The UID of an object, by which it is told from another of its name.
pub(super) fn uid_of<K: Resource>(object: &K) -> String {
    object.uid().unwrap_or_default()
}

fn jobs(
    kind: JobKind,
    namespace: String,
    settings: KubernetesSettings,
) -> impl FnMut(&World, Event<DynamicObject>) + Send + 'static {
    let seen = move |object: DynamicObject| {
        JobSeen::of(kind, &object).filter(|_| names::is_of_cluster(&settings, object.labels())).into_iter()
    };
    listing(uid_of, move |world, change| match change {
        Change::There(object) => seen(object).for_each(|job| world.set_job(job)),
        Change::Gone(object) => seen(object).for_each(|job| world.remove_job(&job.task, &job.uid)),
        Change::Only(listed) => world.only_jobs(kind, &namespace, &listed),
    })
}

fn pods(namespace: String, settings: KubernetesSettings) -> impl FnMut(&World, Event<Pod>) + Send + 'static {
    listing(uid_of, move |world, change| {
        let (pod, is_gone) = match change {
            Change::There(pod) => (pod, false),
            Change::Gone(pod) => (pod, true),
            Change::Only(listed) => return world.only_pods(&namespace, &listed),
        };
        let seen = PodSeen::of(&pod).filter(|_| names::is_of_cluster(&settings, pod.labels()));
        let Some(seen) = seen else { return };
        let (task, uid) = (seen.task.clone(), seen.uid.clone());
        // Its last words may be in the very event that says it is gone.
        world.set_pod(&namespace, seen, Instant::now());
        if is_gone {
            world.remove_pod(&task, &uid);
        }
    })
}

fn nodes() -> impl FnMut(&World, Event<Node>) + Send + 'static {
    let seen = |node: Node| NodeSeen::of(&node).into_iter();
    listing(Node::name_any, move |world, change| match change {
        Change::There(node) => seen(node).for_each(|(name, seen)| world.set_node(name, seen)),
        Change::Gone(node) => seen(node).for_each(|(name, _)| world.remove_node(&name)),
        Change::Only(listed) => world.only_nodes(&listed),
    })
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
#[derive(Default)]
pub(super) struct Followed {
    /// There was a full list.
    pub synced: bool,
    /// The list was given up.
    late: bool,
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
        let (tasks, stop) = (self.tasks.clone(), self.stop.clone());
        let going = async move { self.keep_while(&watched, &api, &config, &mut take, |_| true).await };
        tasks.spawn(stop.run_until_cancelled_owned(going));
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
        let (mut pause, mut list) = (FIRST_PAUSE, LIST);
        loop {
            let followed = self.follow(watched, watcher(api.clone(), config.clone()), take, list).await;
            if !wanted(&followed) {
                return;
            }
            if followed.late {
                list = (list * 2).min(LONGEST_LIST);
            }
            pause = if followed.synced { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            tokio::time::sleep(clock::spread(pause)).await;
        }
    }

    /// Room for a list. Nothing is seen of what waits longer for it than a watch may fail, so that counts as a failure.
    async fn room(&self, watched: &Watched) -> Option<SemaphorePermit<'_>> {
        let began = Instant::now();
        let mut room = pin!(self.lists.acquire());
        // The semaphore is never closed.
        match tokio::time::timeout(FAILING, &mut room).await {
            Ok(room) => room.ok(),
            Err(_) => {
                let words = "other lists have not ended that are read before this one";
                failed_since(&self.world, watched, words, began);
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
        let mut followed = Followed::default();
        // Given back with the end of the list.
        let mut room = self.room(watched).await;
        // Of the whole list: one that goes on for ever is none.
        let mut end = pin!(tokio::time::sleep(list));
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = &mut end => {
                    followed.late = !followed.synced;
                    if followed.late {
                        failed(&self.world, watched, &format!("no list came within {} s", list.as_secs()));
                    }
                    return followed;
                }
            };
            match event {
                Some(Ok(event)) => {
                    let complete = matches!(event, Event::InitDone);
                    if complete {
                        followed.synced = true;
                        drop(room.take());
                        end.as_mut().reset(Instant::now() + clock::spread(RELIST));
                    }
                    take(&self.world, event);
                    heard(&self.world, watched, complete);
                }
                Some(Err(error)) => {
                    followed.absent = is_absent(&error);
                    let words = words(error, watched);
                    match watched {
                        Watched::Queueing(..) if followed.absent => {}
                        // Many clusters have no KubeRay and need none.
                        Watched::Jobs(JobKind::RayJob, _) if followed.absent => {
                            if self.world.health.failed(watched, &words, Instant::now()) {
                                tracing::info!(%watched, error = words, "no RayJob can be run here for now; it is tried again");
                            }
                        }
                        _ => failed(&self.world, watched, &words),
                    }
                    return followed;
                }
                None => return followed,
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
