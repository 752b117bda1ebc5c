//! Watches of what a cluster may have beside the operators: Kueue, Volcano, the scheduler plugins. Each begins once the cluster serves
//! such objects, which is asked again and again as they may be installed later, and ends when they are taken off. Nothing waits for
//! them: all that comes from them is why a job waits.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::{
    Api, Client, ResourceExt,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher::{self, Event},
};
use serde::Deserialize;
use tokio::sync::watch::Sender;

use super::{
    answers::CallError,
    client::{limited, within},
    gang::{self, GroupSeen, Scheduler},
    health::Watched,
    kueue::{self, WorkloadSeen},
    queues::{Owned, Queues},
    settings::KubernetesSettings,
    watch::{self, Change, Keeper, listing, uid_of},
    world::World,
};

/// How often is asked whether the cluster serves an object that it did not serve.
const ASK_AGAIN: Duration = Duration::from_secs(20);
/// How often the places in Kueue's queues are asked for.
const POSITIONS: Duration = Duration::from_secs(15);
/// How long one answer about them may take: it is no more than a number on a page.
const POSITIONS_WAIT: Duration = Duration::from_secs(5);
/// Queues of a namespace whose places are asked for at a time.
const QUEUES: usize = 16;
/// Workloads of a queue that are read; who stands behind them has no number yet.
const PLACES: u32 = 1_000;

/// An object that a cluster may know.
struct Optional {
    /// In words.
    what: &'static str,
    group: &'static str,
    /// The newest first; what is read of them is the same.
    versions: &'static [&'static str],
    kind: &'static str,
}

const WORKLOADS: Optional = Optional {
    what: "Kueue's Workloads",
    group: "kueue.x-k8s.io",
    versions: &["v1beta2", "v1beta1"],
    kind: "Workload",
};
const VOLCANO_GROUPS: Optional = Optional {
    what: "Volcano's PodGroups",
    group: "scheduling.volcano.sh",
    versions: &["v1beta1"],
    kind: "PodGroup",
};
const VOLCANO_QUEUES: Optional = Optional {
    what: "Volcano's Queues",
    group: "scheduling.volcano.sh",
    versions: &["v1beta1"],
    kind: "Queue",
};
const PLUGIN_GROUPS: Optional = Optional {
    what: "PodGroups of the scheduler plugins",
    group: "scheduling.x-k8s.io",
    versions: &["v1alpha1"],
    kind: "PodGroup",
};
/// What Kueue tells on request about its queues.
const PENDING: Optional = Optional {
    what: "places in Kueue's queues",
    group: "visibility.kueue.x-k8s.io",
    versions: &["v1beta2", "v1beta1"],
    kind: "PendingWorkloadsSummary",
};

/// Which of an object the cluster serves, as far as is known.
type Served = Sender<Option<ApiResource>>;

/// Begins all of them.
pub(super) fn begin(
    client: &Client,
    settings: &KubernetesSettings,
    config: &watcher::Config,
    keeper: impl Fn() -> Keeper,
) {
    let [kueue, volcano, plugins, volcano_queues] =
        [&WORKLOADS, &VOLCANO_GROUPS, &PLUGIN_GROUPS, &VOLCANO_QUEUES].map(|optional| {
            let served = Arc::new(Served::default());
            let (Keeper { stop, tasks, .. }, client, asked) = (keeper(), client.clone(), Arc::clone(&served));
            let asking = async move { optional.ask(&client, &asked).await };
            tasks.spawn(stop.run_until_cancelled_owned(asking));
            (optional, served)
        });
    for namespace in &settings.namespaces {
        let some = Some(namespace.clone());
        let of_jobs = config.clone().labels(kueue::JOB_UID);
        keep(keeper(), client, &kueue, some.clone(), of_jobs, workloads(namespace.clone()));
        for (optional, scheduler) in [(&volcano, Scheduler::Volcano), (&plugins, Scheduler::Plugins)] {
            let take = groups(scheduler, namespace.clone());
            keep(keeper(), client, optional, some.clone(), config.clone(), take);
        }
        let (Keeper { world, stop, tasks, .. }, client, namespace) =
            (keeper(), client.clone(), namespace.clone());
        let asking = async move { positions(&client, &world, &namespace).await };
        tasks.spawn(stop.run_until_cancelled_owned(asking));
    }
    keep(keeper(), client, &volcano_queues, None, config.clone(), gang_queues());
}

/// Watches one kind of objects while the cluster knows it.
fn keep(
    keeper: Keeper,
    client: &Client,
    (optional, served): &(&'static Optional, Arc<Served>),
    namespace: Option<String>,
    config: watcher::Config,
    mut take: impl FnMut(&World, Event<DynamicObject>) + Send + 'static,
) {
    let (client, served) = (client.clone(), Arc::clone(served));
    let watched = Watched::Queueing(optional.what, namespace.clone());
    let (tasks, stop) = (keeper.tasks.clone(), keeper.stop.clone());
    let going = async move {
        let mut known = served.subscribe();
        // It ends with `stop` only: the sender is here.
        while let Ok(Some(resource)) = known.wait_for(Option::is_some).await.map(|known| known.clone()) {
            let api = match &namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            keeper.keep_while(&watched, &api, &config, &mut take, |ended| !ended.absent).await;
            tracing::info!(%watched, "they are not on the cluster any more");
            served.send_replace(None);
            // An empty list: nothing that was known of it holds any more.
            take(&keeper.world, Event::Init);
            take(&keeper.world, Event::InitDone);
        }
    };
    tasks.spawn(stop.run_until_cancelled_owned(going));
}

impl Optional {
    /// Asks again and again for it while the cluster does not serve it: for all who watch it at once.
    async fn ask(&self, client: &Client, served: &Served) {
        loop {
            let is_known = served.borrow().is_some();
            if !is_known && let Some(resource) = self.served(client).await {
                served.send_replace(Some(resource));
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Asks whether the cluster serves it, and in which version.
    async fn served(&self, client: &Client) -> Option<ApiResource> {
        for version in self.versions {
            let group = format!("{}/{version}", self.group);
            match limited(client.list_api_group_resources(&group)).await {
                Ok(list) => {
                    let found = list
                        .resources
                        .into_iter()
                        .find(|one| one.kind == self.kind && !one.name.contains('/'));
                    let named = found.map(|one| {
                        let kind = GroupVersionKind::gvk(self.group, version, self.kind);
                        ApiResource::from_gvk_with_plural(&kind, &one.name)
                    });
                    if named.is_some() {
                        return named;
                    }
                }
                Err(error) if error.is_not_found() => {}
                // Whether the cluster answers at all is told elsewhere.
                Err(error) => {
                    tracing::debug!(%group, %error, "could not ask for what the cluster serves");
                    return None;
                }
            }
        }
        None
    }
}

fn workloads(namespace: String) -> impl FnMut(&World, Event<DynamicObject>) + Send + 'static {
    // Kueue keeps those of jobs that have ended, of everybody and for ever where it is not told otherwise.
    owned(namespace, |queues| &mut queues.workloads, WorkloadSeen::of, |seen| seen.finished)
}

fn groups(
    scheduler: Scheduler,
    namespace: String,
) -> impl FnMut(&World, Event<DynamicObject>) + Send + 'static {
    let of = move |object: &DynamicObject| GroupSeen::of(scheduler, object);
    match scheduler {
        Scheduler::Volcano => owned(namespace, |queues| &mut queues.volcano_groups, of, |_| false),
        Scheduler::Plugins => owned(namespace, |queues| &mut queues.plugin_groups, of, |_| false),
    }
}

/// Takes objects that are each of one job; those that are `over` are not remembered.
fn owned<T: PartialEq + 'static>(
    namespace: String,
    memory: fn(&mut Queues) -> &mut Owned<T>,
    read: impl Fn(&DynamicObject) -> Option<(String, T)> + Send + 'static,
    over: fn(&T) -> bool,
) -> impl FnMut(&World, Event<DynamicObject>) + Send + 'static {
    listing(uid_of, move |world, change| {
        let (object, is_gone) = match change {
            Change::There(object) => (object, false),
            Change::Gone(object) => (object, true),
            Change::Only(listed) => {
                return world.change_queues(|queues| memory(queues).only(&namespace, &listed));
            }
        };
        let Some((owner, seen)) = read(&object) else { return };
        world.change_queues(|queues| {
            let (memory, uid) = (memory(queues), uid_of(&object));
            if is_gone || over(&seen) {
                memory.remove(&owner, &uid)
            } else {
                memory.set(owner, &namespace, uid, seen)
            }
        });
    })
}

/// Nobody is told when one of these changes: the next look at an attempt shows it.
fn gang_queues() -> impl FnMut(&World, Event<DynamicObject>) + Send + 'static {
    listing(DynamicObject::name_any, |world, change| {
        world.change_queues(|queues| {
            match change {
                Change::There(queue) => {
                    queues.set_gang_queue(queue.name_any(), gang::state_of_queue(&queue));
                }
                Change::Gone(queue) => queues.remove_gang_queue(&queue.name_any()),
                Change::Only(listed) => queues.only_gang_queues(&listed),
            }
            Vec::new()
        });
    })
}

/// What Kueue answers about a queue.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Pending {
    items: Vec<PendingWorkload>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PendingWorkload {
    metadata: Named,
    position_in_cluster_queue: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

/// Asks again and again for the places of the jobs that stand in Kueue's queues, where Kueue tells them.
async fn positions(client: &Client, world: &World, namespace: &str) {
    let watched = Watched::Queueing(PENDING.what, Some(namespace.to_owned()));
    loop {
        let queues = world.queues_of(namespace);
        let mut found = BTreeMap::new();
        for queue in queues.iter().take(QUEUES) {
            match places(client, namespace, queue).await {
                Ok(places) => {
                    found.extend(places);
                    watch::heard(world, &watched, true);
                }
                Err(error) => watch::failed(world, &watched, &watch::said(error, None)),
            }
        }
        world.change_queues(|queues| queues.set_positions(namespace, found));
        tokio::time::sleep(POSITIONS).await;
    }
}

/// The places of the Workloads of a queue, from 1; none where Kueue does not tell them.
async fn places(client: &Client, namespace: &str, queue: &str) -> Result<BTreeMap<String, u32>, CallError> {
    for version in PENDING.versions {
        let path = format!(
            "/apis/{}/{version}/namespaces/{namespace}/localqueues/{queue}/pendingworkloads?limit={PLACES}",
            PENDING.group
        );
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|why| CallError::Transport(format!("LocalQueue {queue} has no path: {why}")))?;
        match within(POSITIONS_WAIT, client.request::<Pending>(request)).await {
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
            Ok(pending) => {
                let place = |one: PendingWorkload| {
                    (one.metadata.name, one.position_in_cluster_queue.saturating_add(1))
                };
                return Ok(pending.items.into_iter().map(place).collect());
            }
        }
    }
    Ok(BTreeMap::new())
}

#[cfg(test)]
#[path = "tests/optional.rs"]
mod tests;
