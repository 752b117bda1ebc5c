//! Which server acts, and what the one that does looks for.
//!
//! On SQLite one process has the database, so it takes the lead at its start without waiting for the end of a lease that a killed
//! one left behind. On Postgres another server takes over when the lease has run out.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use engine::{ids::TaskId, time::Time};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Change, Shared,
    registry::{self, Term},
    strays,
};
use crate::store::{self, StoreError, inbox, jobs, leader};

/// How long a lead lasts without being kept. Longer than a pause of a busy machine, short enough to be waited for.
const LEASE_SECONDS: u64 = 15;
/// How often it is kept: two tries may fail.
const RENEW_SECONDS: u64 = 5;
/// How long calls to clusters may take to end once this server stops. Most are done within a second; a server that is told to stop
/// is killed half a minute later.
const CALLS_END: Duration = Duration::from_secs(10);
/// How often the leader looks for requests and new jobs that no hint told of, and another server for the end of the lease.
const SWEEP_SECONDS: u64 = 1;
/// How often the leader looks for live jobs without a task; there are none unless one has panicked.
const FULL_SWEEP_SECONDS: u64 = 30;
/// A new job is looked for this long after it was made: longer than a transaction lasts and clocks of servers differ.
const NEW_SECONDS: u64 = 60;
/// Chains that are read at a time when a term begins.
const CHAINS_AT_A_TIME: u32 = 200;
/// Ids that are read at a time in a sweep.
const IDS_AT_A_TIME: u32 = 1_000;

/// Leads and follows in turn until `shutdown`.
pub(super) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut at_once = !shared.store.is_shared();
    let mut seen = shared.clock.now();
    while !shutdown.is_cancelled() {
        match take(&shared, at_once).await {
            Ok(Some(epoch)) => {
                at_once = false;
                lead(&shared, epoch, &shutdown).await;
                seen = shared.clock.now();
            }
            Ok(None) => tell_changes(&shared, &mut seen).await,
            Err(error) => failed(&shared, "could not take the lead", error),
        }
        let again = shared.clock.now().plus_seconds(SWEEP_SECONDS);
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = shared.clock.sleep_until(again) => {}
        }
    }
}

/// Hands on a cluster's hints.
pub(super) async fn relay(
    shared: Arc<Shared>,
    mut hints: mpsc::Receiver<TaskId>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            hint = hints.recv() => match hint {
                Some(task_id) => task_id.job_id().iter().for_each(|job_id| registry::hint(&shared, job_id)),
                None => return,
            },
        }
    }
}

async fn take(shared: &Shared, at_once: bool) -> Result<Option<i64>, StoreError> {
    let now = shared.clock.now();
    let holder = format!("process {}", std::process::id());
    let mut tx = shared.store.write().await?;
    let epoch = leader::take(&mut tx, &holder, now, now.plus_seconds(LEASE_SECONDS), at_once).await?;
    store::commit(tx).await?;
    Ok(epoch)
}

/// One term: from taking the lead until it is lost or given up.
async fn lead(shared: &Arc<Shared>, epoch: i64, shutdown: &CancellationToken) {
    tracing::info!(epoch, "this server leads");
    let term = Arc::new(Term::new(epoch));
    shared.term.send_replace(Some(Arc::clone(&term)));
    term.tasks.spawn(take_up(Arc::clone(shared), Arc::clone(&term)));
    term.tasks.spawn(strays::run(Arc::clone(shared), Arc::clone(&term)));
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = term.over.cancelled() => {}
        () = keep(shared, epoch) => term.lose(),
        () = sweep(shared, &term) => {}
    }
    count_jobs(0);
    shared.term.send_replace(None);
    term.over.cancel();
    term.tasks.close();
    // Calls that are under way come to their end, and until then the lead is kept: nobody else may call meanwhile.
    tokio::select! {
        _ = tokio::time::timeout(CALLS_END, term.tasks.wait()) => {}
        () = keep(shared, epoch) => {}
    }
    term.lose();
    term.tasks.wait().await;
    if let Err(error) = release(shared, epoch).await {
        failed(shared, "could not give up the lead; another server waits for its end", error);
    }
    tracing::info!(epoch, "this server leads no more");
}

/// Keeps the lead; returns when it is lost.
async fn keep(shared: &Shared, epoch: i64) {
    let mut until = shared.clock.now().plus_seconds(LEASE_SECONDS);
    loop {
        shared.clock.sleep_until(shared.clock.now().plus_seconds(RENEW_SECONDS)).await;
        let next = shared.clock.now().plus_seconds(LEASE_SECONDS);
        match renew(shared, epoch, next).await {
            Ok(true) => until = next,
            Ok(false) => return,
            Err(error) => {
                failed(shared, "could not keep the lead", error);
                if shared.clock.now() >= until {
                    return;
                }
            }
        }
    }
}

async fn renew(shared: &Shared, epoch: i64, until: Time) -> Result<bool, StoreError> {
    let mut tx = shared.store.write().await?;
    let kept = leader::renew(&mut tx, epoch, until).await?;
    store::commit(tx).await?;
    Ok(kept)
}

async fn release(shared: &Shared, epoch: i64) -> Result<(), StoreError> {
    let mut tx = shared.store.write().await?;
    leader::release(&mut tx, epoch).await?;
    store::commit(tx).await
}

/// Gives every job that lives a task.
async fn take_up(shared: Arc<Shared>, term: Arc<Term>) {
    let mut after = None;
    loop {
        let page = async {
            let mut conn = shared.store.read().await?;
            jobs::live(&mut conn, after.as_ref(), CHAINS_AT_A_TIME).await
        };
        let page = tokio::select! {
            () = term.over.cancelled() => return,
            page = page => page,
        };
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                failed(&shared, "could not read the jobs that live", error);
                let again = shared.clock.now().plus_seconds(SWEEP_SECONDS);
                tokio::select! {
                    () = term.over.cancelled() => return,
                    () = shared.clock.sleep_until(again) => continue,
                }
            }
        };
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        for (job_id, stored) in page {
            match stored {
                // The first sweep finds the requests of all of them in one query.
                Ok(stored) => drop(term.take_up(&shared, &job_id, stored, false)),
                Err(error) => failed(&shared, "a job cannot be taken up", error),
            }
        }
    }
    term.taken_up.store(true, Ordering::Release);
    shared.term.send_modify(|_| {});
}

/// Looks for what no hint told of: requests and jobs that other servers took in, and jobs whose task is gone.
async fn sweep(shared: &Arc<Shared>, term: &Arc<Term>) {
    let mut full_at = shared.clock.now().plus_seconds(FULL_SWEEP_SECONDS);
    loop {
        let now = shared.clock.now();
        shared.clock.sleep_until(now.plus_seconds(SWEEP_SECONDS)).await;
        let is_full = now >= full_at;
        if is_full {
            full_at = now.plus_seconds(FULL_SWEEP_SECONDS);
        }
        if let Err(error) = sweep_once(shared, term, now, is_full).await {
            failed(shared, "could not look for what is new", error);
        }
    }
}

async fn sweep_once(
    shared: &Arc<Shared>,
    term: &Arc<Term>,
    now: Time,
    is_full: bool,
) -> Result<(), StoreError> {
    count_jobs(term.len());
    let mut conn = shared.store.read().await?;
    for job_id in inbox::jobs(&mut conn, IDS_AT_A_TIME).await? {
        registry::hint(shared, &job_id);
    }
    let since = Time(now.micros() - Time(0).plus_seconds(NEW_SECONDS).micros());
    let new = jobs::live_since(&mut conn, since, IDS_AT_A_TIME).await?;
    new.iter().filter(|job_id| !term.has(job_id)).for_each(|job_id| registry::hint(shared, job_id));
    if !is_full {
        return Ok(());
    }
    let mut after = None;
    loop {
        let page = jobs::live_ids(&mut conn, after.as_ref(), IDS_AT_A_TIME).await?;
        page.iter().filter(|job_id| !term.has(job_id)).for_each(|job_id| registry::hint(shared, job_id));
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.clone());
    }
}

/// Tells operators how many jobs this server drives.
fn count_jobs(jobs: usize) {
    metrics::gauge!("holdfast_driver_jobs").set(jobs as f64);
}

/// Tells listeners of this server what the leader wrote.
async fn tell_changes(shared: &Shared, seen: &mut Time) {
    let changed = async {
        let mut conn = shared.store.read().await?;
        jobs::changed_since(&mut conn, *seen, IDS_AT_A_TIME).await
    };
    match changed.await {
        Ok(changed) => {
            for (job_id, generation, at) in changed {
                *seen = (*seen).max(at);
                // Nobody may be listening.
                let _ = shared.changes.send(Change { job_id, generation });
            }
        }
        Err(error) => failed(shared, "could not read what the leader wrote", error),
    }
}

fn failed(shared: &Shared, what: &'static str, error: StoreError) {
    shared.counts.failed("store");
    tracing::warn!(error = %format!("{:#}", anyhow::Error::from(error)), "{what}");
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::{
        clock::Clock,
        driver::fake::{Fake, Still, drive, keep, open, start_job},
    };

    #[tokio::test]
    async fn a_server_that_leads_no_more_drives_no_jobs() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        let _guard = metrics::set_default_local_recorder(&recorder);
        let ((_dir, store), clock) = (open().await, Arc::new(Still::default()));
        let now = clock.now();
        keep(&store, &start_job(now), now).await;
        let driver = drive(&store, &clock, &Arc::new(Fake::default()));
        driver.until_leading().await;
        let shared = &driver.shared;
        let term = shared.term.borrow().clone().unwrap();
        sweep_once(shared, &term, now, false).await.unwrap();
        assert!(metrics.render().contains("holdfast_driver_jobs 1"), "{}", metrics.render());
        term.lose();
        shared.term.subscribe().wait_for(Option::is_none).await.unwrap();
        assert!(metrics.render().contains("holdfast_driver_jobs 0"), "{}", metrics.render());
    }
}
