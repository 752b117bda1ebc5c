//! What the time of clusters went to, by days.

use std::sync::Arc;

use app::console::ClusterUsage;
use engine::{
    ids::JobId,
    record::{Ledger, State},
    time::Time,
};
use server::{
    accountant::Accountant,
    clock::Clock,
    driver::Change,
    service::Drives,
    store::{Store, Write, commit, diagnoses, steps, usage},
};
use tokio::sync::broadcast;

use crate::{
    create,
    databases::on_each_database,
    lead,
    samples::{Sample, at, job_id},
    write,
};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Leads; nobody listens.
struct Leads;

impl Drives for Leads {
    fn hint(&self, _: &JobId) {}

    fn changes(&self) -> broadcast::Receiver<Change> {
        broadcast::channel(1).1
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// Stands still.
struct Still(Time);

impl Clock for Still {
    fn now(&self) -> Time {
        self.0
    }

    fn sleep_until(&self, _: Time) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// An accountant at the end of a day.
fn accountant(store: &Store, day: u64) -> Accountant {
    let now = at((day + 1) * DAY - 1);
    Accountant { store: store.clone(), driver: Arc::new(Leads), clock: Arc::new(Still(now)) }
}

fn kept(kept: f64, stalled: f64) -> Ledger {
    Ledger { kept, stalled, ..Ledger::default() }
}

async fn since(store: &Store, day: u64) -> Vec<ClusterUsage> {
    let mut conn = store.read().await.unwrap();
    usage::since(&mut conn, usage::day_of(at(day * DAY))).await.unwrap()
}

/// Cluster, jobs, kept, stalled and diagnosing of each.
fn figures(usage: &[ClusterUsage]) -> Vec<(&str, u64, f64, f64, f64)> {
    let one = |of: &ClusterUsage| (of.ledger.kept, of.ledger.stalled, of.ledger.diagnosing);
    usage
        .iter()
        .map(|of| {
            let (kept, stalled, diagnosing) = one(of);
            (of.cluster.as_str(), of.jobs, kept, stalled, diagnosing)
        })
        .collect()
}

#[tokio::test]
async fn a_day_has_what_was_used_in_it_however_often_and_late_it_is_taken() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        create(&store, &Sample::new(1)).await;
        create(&store, &Sample::new(2).used(kept(5.0, 0.0))).await;
        assert!(since(&store, 0).await.is_empty(), "nothing is taken yet");
        let used = |seconds, ledger| Sample::new(1).used(ledger).at(seconds);
        assert_eq!(write(&store, epoch, 1, &used(100, kept(60.0, 10.0))).await, Write::Done);
        let taken = accountant(&store, 0).round(None).await.unwrap();
        assert_eq!(taken, Some(at(100)));
        assert_eq!(write(&store, epoch, 2, &used(DAY - 1, kept(80.0, 20.0))).await, Write::Done);
        let taken = accountant(&store, 0).round(taken).await.unwrap();
        assert_eq!(taken, Some(at(DAY - 1)));
        assert_eq!(figures(&since(&store, 0).await), [("local", 2, 85.0, 20.0, 0.0)]);
        assert_eq!(write(&store, epoch, 3, &used(DAY + 1, kept(81.0, 20.0))).await, Write::Done);
        assert_eq!(write(&store, epoch, 4, &used(2 * DAY + 1, kept(181.0, 25.0))).await, Write::Done);
        // A server that came back knows only what is kept.
        accountant(&store, 2).round(None).await.unwrap();
        accountant(&store, 2).round(None).await.unwrap();
        assert_eq!(figures(&since(&store, 0).await), [("local", 2, 186.0, 25.0, 0.0)]);
        // The day before was not taken apart from it: it counts where it was told.
        assert_eq!(figures(&since(&store, 1).await), [("local", 1, 101.0, 5.0, 0.0)]);
        let today = since(&store, 2).await;
        assert_eq!(figures(&today), [("local", 1, 101.0, 5.0, 0.0)]);
        assert_eq!(today[0].ledger.ettr, Some(101.0 / 106.0));
        assert!(since(&store, 3).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn older_sums_never_replace_newer_ones_of_a_day() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        create(&store, &Sample::new(1)).await;
        write(&store, epoch, 1, &Sample::new(1).used(kept(10.0, 0.0)).at(10)).await;
        let mut conn = store.read().await.unwrap();
        // A server that is held up here...
        let old = usage::changed(&mut conn, (Time(0), ""), 10).await.unwrap();
        drop(conn);
        write(&store, epoch, 2, &Sample::new(1).used(kept(90.0, 0.0)).at(90)).await;
        accountant(&store, 0).round(None).await.unwrap();
        let mut tx = store.write().await.unwrap();
        // ... goes on there.
        usage::keep(&mut tx, &old[0]).await.unwrap();
        commit(tx).await.unwrap();
        assert_eq!(figures(&since(&store, 0).await), [("local", 1, 90.0, 0.0, 0.0)]);
    })
    .await;
}

#[tokio::test]
async fn what_a_deleted_job_had_used_stays_as_of_its_end() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        create(&store, &Sample::new(1)).await;
        write(&store, epoch, 1, &Sample::new(1).used(kept(10.0, 0.0)).at(10)).await;
        accountant(&store, 0).round(None).await.unwrap();
        write(&store, epoch, 2, &Sample::new(1).used(kept(30.0, 1.0)).state(State::Stopped).idle().at(40))
            .await;
        let mut tx = store.write().await.unwrap();
        assert_eq!(steps::forget(&mut tx, epoch, &job_id(1), at(41)).await.unwrap(), Write::Done);
        commit(tx).await.unwrap();
        assert_eq!(figures(&since(&store, 0).await), [("local", 1, 30.0, 1.0, 0.0)]);
    })
    .await;
}

#[tokio::test]
async fn what_a_group_of_a_diagnosis_holds_is_diagnosing_and_nothing_else() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        create(&store, &Sample::new(1)).await;
        let told = Ledger { diagnosing: 8.0, ..kept(10.0, 0.0) };
        write(&store, epoch, 1, &Sample::new(1).used(told).at(10)).await;
        create(&store, &Sample::new(2)).await;
        let mut tx = store.write().await.unwrap();
        diagnoses::mark(&mut tx, &job_id(2), "d1").await.unwrap();
        commit(tx).await.unwrap();
        write(&store, epoch, 1, &Sample::new(2).used(kept(6.0, 2.0)).at(10)).await;
        accountant(&store, 0).round(None).await.unwrap();
        let usage = since(&store, 0).await;
        assert_eq!(figures(&usage), [("local", 2, 10.0, 0.0, 8.0)]);
        assert_eq!(usage[0].ledger.ettr, Some(10.0 / 18.0));
    })
    .await;
}

#[tokio::test]
async fn a_live_job_counts_from_what_it_had_also_when_that_is_old() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        create(&store, &Sample::new(1)).await;
        create(&store, &Sample::new(2)).await;
        write(&store, epoch, 1, &Sample::new(1).used(kept(100.0, 0.0)).at(10)).await;
        write(&store, epoch, 1, &Sample::new(2).used(kept(7.0, 0.0)).state(State::Succeeded).idle().at(10))
            .await;
        let taken = accountant(&store, 0).round(None).await.unwrap();
        write(&store, epoch, 2, &Sample::new(1).used(kept(103.0, 0.0)).at(200 * DAY)).await;
        accountant(&store, 200).round(taken).await.unwrap();
        accountant(&store, 200).forget_old().await.unwrap();
        assert_eq!(figures(&since(&store, 171).await), [("local", 1, 3.0, 0.0, 0.0)]);
        // What ended so long ago is gone; what it was before counts no more.
        assert_eq!(figures(&since(&store, 0).await), [("local", 1, 103.0, 0.0, 0.0)]);
    })
    .await;
}

#[tokio::test]
async fn what_was_used_before_anything_was_kept_is_on_the_day_the_job_was_made() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        create(&store, &Sample::new(1)).await;
        write(&store, epoch, 1, &Sample::new(1).used(kept(500.0, 0.0)).at(9 * DAY)).await;
        let taken = accountant(&store, 9).round(None).await.unwrap();
        assert_eq!(figures(&since(&store, 9).await), [("local", 1, 0.0, 0.0, 0.0)], "not all of it today");
        write(&store, epoch, 2, &Sample::new(1).used(kept(560.0, 0.0)).at(9 * DAY + 60)).await;
        accountant(&store, 9).round(taken).await.unwrap();
        assert_eq!(figures(&since(&store, 9).await), [("local", 1, 60.0, 0.0, 0.0)]);
        assert_eq!(figures(&since(&store, 3).await), [("local", 1, 60.0, 0.0, 0.0)]);
        assert_eq!(figures(&since(&store, 0).await), [("local", 1, 560.0, 0.0, 0.0)]);
    })
    .await;
}
