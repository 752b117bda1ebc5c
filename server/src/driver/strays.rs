//! Attempts in a cluster that no chain stands for any more.
//!
//! What a leader asked for just before it froze may be made after its successor has removed the attempt; a database that was put back
//! from a copy does not know what came after it. The first are removed here. The others might be somebody's work: they are told
//! in the log and counted, and stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use engine::{ids::TaskId, time::Time};
use futures::future::join_all;

use super::{Connected, Shared, effects::leads, registry::Term};
use crate::{
    clusters::{ClusterError, Present},
    store::{StoreError, attempts},
};

/// How often the clusters are looked through. What they show is in memory.
const LOOK_SECONDS: u64 = 20;
/// Removals of one attempt that are asked for before one is forced: two minutes, which is longer than anything needs to end by itself.
const ASKED: u32 = 6;
/// How long an attempt must look like a stray before anything is done: longer than a removal that is under way takes.
const GRACE_SECONDS: u64 = 300;

/// What the database says of an attempt that a cluster shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It goes on.
    Live,
    /// It is over, and should be gone.
    Over,
    /// There is no such attempt.
    Unknown,
}

/// One that is no live attempt.
struct Stray {
    since: Time,
    /// It was told, or its removal was asked for, so many times.
    tries: u32,
    /// What was told of why it is still there.
    hindrance: Option<String>,
}

impl Stray {
    /// It has looked like one for long enough.
    fn is_one(&self, now: Time) -> bool {
        now >= self.since.plus_seconds(GRACE_SECONDS)
    }
}

/// Why a cluster could not be looked through.
#[derive(Debug, thiserror::Error)]
enum StrayError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Looks through the clusters again and again until the term is over.
pub(super) async fn run(shared: Arc<Shared>, term: Arc<Term>) {
    // Each by itself: one that hangs keeps none of the others.
    join_all(shared.clusters.iter().map(|(name, connected)| watch(&shared, &term, name, connected))).await;
}

async fn watch(shared: &Shared, term: &Term, name: &str, connected: &Connected) {
    let mut strays = BTreeMap::new();
    let rounds = async {
        loop {
            shared.clock.sleep_until(shared.clock.now().plus_seconds(LOOK_SECONDS)).await;
            if let Err(error) = look(shared, term, name, connected, &mut strays).await {
                // The driver says that a cluster or the database is away; nothing is concluded here meanwhile.
                let error = anyhow::Error::from(error);
                tracing::debug!(cluster = name, error = format!("{error:#}"), "no look for strays");
            }
        }
    };
    tokio::select! {
        () = term.over.cancelled() => {}
        () = rounds => {}
    }
    // Whoever leads next counts them.
    count(name, 0);
}

/// Tells operators how many there are.
fn count(name: &str, strays: usize) {
    metrics::gauge!("holdfast_stray_attempts", "cluster" => name.to_owned()).set(strays as f64);
}

async fn look(
    shared: &Shared,
    term: &Term,
    name: &str,
    connected: &Connected,
    strays: &mut BTreeMap<TaskId, Stray>,
) -> Result<(), StrayError> {
    // An attempt is written before it is made, so one that is there now and not in the database never was, or is not any more.
    let present = connected.cluster.present().await?;
    let there: BTreeSet<_> = present.iter().map(|one| one.task.clone()).collect();
    strays.retain(|task, _| there.contains(task));
    let now = shared.clock.now();
    for one in present {
        // Most of what is there is driven by the task of its job, which knows best; only of the rest is the database asked.
        let standing =
            if term.drives(&one.task) { Standing::Live } else { standing(shared, &one.task).await? };
        if standing == Standing::Live {
            strays.remove(&one.task);
            continue;
        }
        let fresh = Stray { since: now, tries: 0, hindrance: None };
        let stray = strays.entry(one.task.clone()).or_insert(fresh);
        if !stray.is_one(now) {
            continue;
        }
        match standing {
            Standing::Over => remove(shared, term, connected, &one, stray).await?,
            Standing::Unknown if stray.tries == 0 => {
                stray.tries = 1;
                tracing::warn!(
                    cluster = name, task_id = %one.task,
                    "{} bears the mark of this installation and its database knows no such attempt; it is left alone: remove it if nobody needs it",
                    one.place
                );
            }
            Standing::Unknown | Standing::Live => {}
        }
    }
    count(name, strays.values().filter(|stray| stray.is_one(now)).count());
    Ok(())
}

async fn standing(shared: &Shared, task: &TaskId) -> Result<Standing, StoreError> {
    let mut conn = shared.store.read().await?;
    Ok(match attempts::find(&mut conn, task).await? {
        None => Standing::Unknown,
        Some((_, attempt)) if attempt.state.is_terminal() => Standing::Over,
        Some(_) => Standing::Live,
    })
}

/// Asks for the removal of one. What cannot be removed is told and tried again, and keeps nothing behind it.
async fn remove(
    shared: &Shared,
    term: &Term,
    connected: &Connected,
    one: &Present,
    stray: &mut Stray,
) -> Result<(), StoreError> {
    // It takes its turn among the calls of jobs. The semaphore is never closed.
    let Ok(_place) = connected.calls.acquire().await else { return Ok(()) };
    if !leads(shared, term).await? {
        return Ok(());
    }
    if stray.tries == 0 {
        tracing::info!(task_id = %one.task, "{} is of an attempt that is over; it is removed", one.place);
    }
    // Nothing of it is wanted any more. Its cluster has just shown where it is.
    let force = stray.tries >= ASKED;
    stray.tries = stray.tries.saturating_add(1);
    let hindrance = match connected.cluster.delete(&one.task, one.kind, None, force).await {
        Ok(kept) => kept,
        Err(error) => Some(format!("{:#}", anyhow::Error::from(error))),
    };
    if let Some(why) = hindrance.as_ref().filter(|_| hindrance != stray.hindrance) {
        tracing::warn!(task_id = %one.task, why, "{} is not removed yet", one.place);
    }
    stray.hindrance = hindrance;
    Ok(())
}

#[cfg(test)]
mod tests;
