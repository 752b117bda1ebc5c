//! How nodes stand beyond any one job, and what the keeper makes of their strikes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use engine::{
    chain::{Observation, Request},
    ids::{JobId, NodeName, TaskId},
    job::{ClusterKind, JobKind},
    nodes::standing::{Cap, NodeRecord, NodeRules},
    record::Record,
    time::Time,
};
use server::{
    clock::Clock,
    clusters::{Cluster, ClusterError, Node, Order},
    driver::Change,
    keeper::Keeper,
    service::Drives,
    store::{
        Store, Write, commit, inbox, steps,
        wards::{self, Entry},
    },
};
use tokio::sync::broadcast;

use crate::{
    databases::on_each_database,
    samples::{Sample, at, job_id, strike, task_id},
};

fn node(number: u32) -> NodeName {
    NodeName::new(format!("n{number}")).unwrap()
}

fn entry(text: &str) -> Entry<'_> {
    Entry { by: "ann", text, at: at(1) }
}

/// A cluster of four nodes; job 1 runs on `n1`.
#[derive(Default)]
struct Four(Mutex<Option<BTreeSet<NodeName>>>);

#[async_trait]
impl Cluster for Four {
    fn name(&self) -> &str {
        "local"
    }

    fn kind(&self) -> ClusterKind {
        ClusterKind::Local
    }

    async fn create(&self, _: &Order) -> Result<(), ClusterError> {
        Ok(())
    }

    async fn delete(
        &self,
        _: &TaskId,
        _: JobKind,
        _: Option<&str>,
        _: bool,
    ) -> Result<Option<String>, ClusterError> {
        Ok(None)
    }

    async fn observe(&self, _: &TaskId, _: JobKind, _: Option<&str>) -> Result<Observation, ClusterError> {
        Ok(Observation::Absent)
    }

    async fn nodes(&self) -> Result<Vec<Node>, ClusterError> {
        let tasks = |number| if number == 1 { vec![task_id(1, 1)] } else { vec![] };
        Ok((1..=4)
            .map(|number| Node { name: node(number), slots: 2, used: 0, tasks: tasks(number) })
            .collect())
    }

    async fn keep_out(&self, nodes: &BTreeSet<NodeName>) {
        *self.0.lock().unwrap() = Some(nodes.clone());
    }
}

/// Hears which jobs are told something.
#[derive(Default)]
struct Heard(Mutex<Vec<JobId>>);

impl Drives for Heard {
    fn hint(&self, job: &JobId) {
        self.0.lock().unwrap().push(job.clone());
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        broadcast::Sender::new(1).subscribe()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

struct At(Mutex<Time>);

impl Clock for At {
    fn now(&self) -> Time {
        *self.0.lock().unwrap()
    }

    fn sleep_until(&self, _: Time) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// A keeper over a store, at a time of its own.
struct World {
    keeper: Keeper,
    cluster: Four,
    heard: Arc<Heard>,
    clock: Arc<At>,
}

impl World {
    fn new(store: &Store) -> Self {
        let (heard, clock) = (Arc::new(Heard::default()), Arc::new(At(Mutex::new(at(100)))));
        let keeper = Keeper {
            store: store.clone(),
            clusters: BTreeMap::new(),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            driver: Arc::clone(&heard) as Arc<dyn Drives>,
            rules: NodeRules::default(),
        };
        Self { keeper, cluster: Four::default(), heard, clock }
    }

    async fn look(&self) {
        self.keeper.look("local", &self.cluster).await.unwrap();
    }

    fn out(&self) -> Vec<String> {
        self.cluster.0.lock().unwrap().iter().flatten().map(ToString::to_string).collect()
    }
}

/// Job `n` with one strike of each of these nodes.
async fn strikes(store: &Store, n: u32, nodes: &[u32], seconds: u64) {
    let records = nodes.iter().map(|on| Record::Strike(strike(&node(*on), &task_id(n, 1), *on, seconds)));
    let sample = Sample::new(n).records(records.collect());
    let mut tx = store.write().await.unwrap();
    steps::create(&mut tx, sample.origin(), sample.kept()).await.unwrap();
    commit(tx).await.unwrap();
}

async fn history(store: &Store, of: Option<&NodeName>) -> Vec<(String, String)> {
    let mut conn = store.read().await.unwrap();
    let all = wards::history(&mut conn, "local", of).await.unwrap();
    all.into_iter().map(|event| (event.by, event.text)).collect()
}

#[tokio::test]
async fn of_two_who_change_a_node_one_wins_and_every_change_has_its_author() {
    on_each_database(async |store| {
        let mut tx = store.write().await.unwrap();
        let first = wards::read(&mut tx, "local", at(0)).await.unwrap();
        let mut record = NodeRecord::default();
        record.quarantine("ann", "fan", None, at(1));
        for (want, text) in [(Write::Done, "put out"), (Write::ChangedUnderUs, "too late")] {
            let written =
                wards::write(&mut tx, "local", &first, (&node(1), &record), entry(text)).await.unwrap();
            assert_eq!(written, want, "{text}");
        }
        let second = wards::read(&mut tx, "local", at(0)).await.unwrap();
        assert_eq!(second.ward.records[&node(1)], record);
        assert_eq!(wards::quarantined(&mut tx, "local").await.unwrap(), BTreeSet::from([node(1)]));
        assert!(wards::quarantined(&mut tx, "other").await.unwrap().is_empty());
        record.release(at(2));
        for (want, text) in [(Write::Done, "let in"), (Write::ChangedUnderUs, "too late")] {
            let written =
                wards::write(&mut tx, "local", &second, (&node(1), &record), entry(text)).await.unwrap();
            assert_eq!(written, want, "{text}");
        }
        assert!(wards::quarantined(&mut tx, "local").await.unwrap().is_empty());
        let cap = Cap { reset_at: Some(at(3)), tripped: None };
        for want in [Write::Done, Write::ChangedUnderUs] {
            assert_eq!(wards::write_cap(&mut tx, "local", &first, &cap, entry("reset")).await.unwrap(), want);
        }
        commit(tx).await.unwrap();
        let by_ann = |text: &str| ("ann".to_owned(), text.to_owned());
        assert_eq!(history(&store, Some(&node(1))).await, [by_ann("let in"), by_ann("put out")]);
        assert_eq!(history(&store, None).await, [by_ann("reset")]);
    })
    .await;
}

#[tokio::test]
async fn three_strikes_put_a_node_out_whichever_server_looks_and_its_jobs_are_told() {
    on_each_database(async |store| {
        for n in 1..=2 {
            strikes(&store, n, &[1], u64::from(n) * 10).await;
        }
        let world = World::new(&store);
        world.look().await;
        assert_eq!(world.out(), [""; 0], "two are not three");
        // A server that starts anew counts the same two.
        strikes(&store, 3, &[1], 30).await;
        let (one, other) = (World::new(&store), World::new(&store));
        one.look().await;
        other.look().await;
        assert_eq!((one.out(), other.out()), (vec!["n1".to_owned()], vec!["n1".to_owned()]));
        let told = history(&store, Some(&node(1))).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].1, "n1 is quarantined for 1 d 0 h: 3 strikes within 7 d 0 h.");
        assert_eq!(*one.heard.0.lock().unwrap(), [job_id(1)]);
        let waiting = inbox::take(&mut store.read().await.unwrap(), &job_id(1)).await.unwrap();
        assert_eq!(waiting[0].request, Request::Note { text: told[0].1.clone() });

        *one.clock.0.lock().unwrap() = at(100 + 86_400);
        one.look().await;
        assert_eq!(one.out(), [""; 0], "its quarantine is over");
        assert!(history(&store, Some(&node(1))).await[0].1.contains("on trial"));
    })
    .await;
}

#[tokio::test]
async fn the_cap_holds_until_a_person_resets_it_and_a_job_that_fails_everywhere_strikes_nobody() {
    on_each_database(async |store| {
        // One job on three nodes within a second: held against none of them.
        strikes(&store, 9, &[1, 2, 3], 50).await;
        for n in 1..=2 {
            strikes(&store, n, &[1, 2], u64::from(n)).await;
        }
        let world = World::new(&store);
        world.look().await;
        assert_eq!(world.out(), [""; 0]);
        strikes(&store, 3, &[1, 2], 3).await;
        world.look().await;
        world.look().await;
        assert_eq!(world.out(), ["n1"], "one of four is the cap");
        let told = history(&store, None).await;
        assert_eq!(told.len(), 1, "it is said once: {told:?}");
        assert!(told[0].1.starts_with("n2 has 3 strikes and is not quarantined"), "{told:?}");

        let mut tx = store.write().await.unwrap();
        let kept = wards::read(&mut tx, "local", at(0)).await.unwrap();
        assert_eq!(kept.ward.cap.tripped.as_ref().map(|trip| &trip.node), Some(&node(2)));
        let cap = Cap { reset_at: Some(at(100)), tripped: None };
        wards::write_cap(&mut tx, "local", &kept, &cap, entry("The cap was reset.")).await.unwrap();
        commit(tx).await.unwrap();
        *world.clock.0.lock().unwrap() = at(101);
        world.look().await;
        assert_eq!(world.out(), ["n1", "n2"]);
    })
    .await;
}
