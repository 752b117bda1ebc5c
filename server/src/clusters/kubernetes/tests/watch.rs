use std::sync::Mutex;

use futures::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::clusters::kubernetes::fake::{client, list, refusal, settings, version};

const SOON: Duration = Duration::from_secs(10);

fn keeper() -> Keeper {
    let (hint, _) = mpsc::channel(16);
    Keeper {
        world: Arc::new(World::new(hint)),
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
        lists: Arc::new(Semaphore::new(1)),
    }
}

fn pods_of_train() -> Watched {
    Watched::Pods("train".to_owned())
}

async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_others_keep_waiting_is_a_failure_from_its_first_moment_on() {
    let (keeper, watched) = (keeper(), pods_of_train());
    let others = Arc::clone(&keeper.lists).acquire_owned().await.unwrap();
    keeper.world.health.heard(&watched, true);
    let mut waiting = pin!(keeper.room(&watched));
    let longer = FAILING + Duration::from_millis(1);
    assert!(tokio::time::timeout(longer, &mut waiting).await.is_err(), "there is no room");
    let failing = keeper.world.health.failing(Instant::now());
    assert_eq!(failing.len(), 1, "it waits for longer than that");
    assert_eq!(failing[0].0, watched);
    drop(others);
    assert!(waiting.await.is_some());
    assert!(keeper.world.health.heard(&watched, true), "it is watched again");
}

#[tokio::test(start_paused = true)]
async fn a_list_without_an_end_is_given_up() {
    let (keeper, most) = (keeper(), Duration::from_millis(100));
    let endless = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Some((Ok(Event::<Pod>::Init), ()))
    });
    let mut take = |_: &World, _: Event<Pod>| {};
    let watched = pods_of_train();
    let follow = keeper.follow(&watched, endless, &mut take, most);
    let followed = tokio::time::timeout(SOON, follow).await.expect("it is given up");
    assert!(!followed.synced);
    assert_eq!(keeper.world.health.failing(Instant::now()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_last_longer_than_its_list() {
    let (keeper, most) = (keeper(), Duration::from_millis(100));
    let listed = stream::iter([Ok(Event::<Pod>::Init), Ok(Event::InitDone)]);
    let later = stream::once(async {
        a_moment().await;
        Ok(Event::Init)
    });
    let mut taken = 0;
    let mut take = |_: &World, _: Event<Pod>| taken += 1;
    let followed = keeper.follow(&pods_of_train(), listed.chain(later), &mut take, most).await;
    assert_eq!((followed.synced, taken), (true, 3));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_late_has_twice_the_time_from_then_on() {
    let begun = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&begun);
    let (client, _) = client(move |_, _| {
        notes.lock().unwrap().push(Instant::now());
        None
    });
    let (keeper, watched) = (keeper(), pods_of_train());
    let api = Api::<Pod>::namespaced(client, "train");
    let config = watcher::Config::default();
    let wanted = |_: &Followed| begun.lock().unwrap().len() < 6;
    keeper.keep_while(&watched, &api, &config, &mut |_: &World, _| {}, wanted).await;
    let begun = begun.lock().unwrap();
    let lasted = begun.windows(2).map(|two| (two[1] - two[0]).as_secs());
    for (lasted, limit) in lasted.zip([60, 120, 240, 240, 240]) {
        assert!((limit..=limit + LONGEST_PAUSE.as_secs()).contains(&lasted), "{lasted} of {limit}");
    }
}

/// What a cluster serves of a group and version.
fn served(name: &str, kind: &str) -> Option<(u16, Value)> {
    let resource =
        json!({ "name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["list"] });
    Some((
        200,
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [resource] }),
    ))
}

#[tokio::test(start_paused = true)]
async fn a_list_that_nothing_waits_for_keeps_no_other_waiting() {
    let (client, asked) = client(|what, _| {
        let is_optional = ["/workloads?", "/podgroups?", "/queues?", "/events?"];
        let is_optional = is_optional.iter().any(|name| what.contains(name));
        match what {
            "GET /version" => version(),
            "GET /apis/kueue.x-k8s.io/v1beta2" => served("workloads", "Workload"),
            "GET /apis/scheduling.volcano.sh/v1beta1" | "GET /apis/scheduling.x-k8s.io/v1alpha1" => {
                served("podgroups", "PodGroup")
            }
            // Their servers are away.
            _ if is_optional => None,
            what if what.contains("/pods?") && what.contains("watch=") => refusal(500, "", "again, please"),
            what if what.contains("watch=") => None,
            what if what.contains("limit=") => list(Vec::new()),
            _ => refusal(404, "NotFound", "not found"),
        }
    });
    let mut settings = settings();
    settings.namespaces = ["a", "b", "c", "d"].map(str::to_owned).into();
    let (hint, _hints) = mpsc::channel(16);
    let (world, stop, tasks) = (Arc::new(World::new(hint)), CancellationToken::new(), TaskTracker::new());
    begin(&client, &settings, &world, &tasks, &stop);
    let lists = || {
        let asked = asked.lock().unwrap();
        asked.iter().filter(|(what, _)| what.contains("/a/pods?") && !what.contains("watch=")).count()
    };
    let listed_again = async {
        while lists() < 3 {
            a_moment().await;
        }
    };
    let in_time = tokio::time::timeout(SOON, listed_again).await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    assert!(in_time.is_ok(), "pods were listed {} times", lists());
}
