//! Lines of a replica's log.

use std::time::Duration;

use app::{
    console::{Caller, LogPage, LogQuery},
    error::AppError,
};
use engine::{
    chain::Chain,
    ids::{JobId, ReplicaName, TaskId},
    job::JobSpec,
    record::AttemptRecord,
};
use sqlx::AnyConnection;

use super::{Service, Wish, failed, internal, may, no_attempt};
use crate::{
    logs::{LogError, Missing, WholeLog},
    store::{attempts, jobs, launches},
};

/// How long a reader of a log waits for its newest lines.
const FETCH: Duration = Duration::from_secs(3);

impl Service {
    pub(super) async fn read_logs(
        &self,
        caller: &Caller,
        task: &TaskId,
        query: &LogQuery,
    ) -> Result<LogPage, AppError> {
        may(caller, Wish::See)?;
        // Before the page: what ends in between is told to be over by the next answer, never ahead of its last lines.
        let known = self.known(task).await?;
        self.fetch_output(task, query.replica.as_ref()).await;
        let (reader, asked, of, owner) = (self.logs.clone(), query.clone(), task.clone(), known.job.clone());
        let read = tokio::task::spawn_blocking(move || reader.page(&owner, &of, &asked));
        let mut page = match read.await.map_err(|why| internal(&why.into()))? {
            Ok(page) => page,
            Err(LogError::NotFound(missing)) => {
                let mut conn = self.store.read().await.map_err(failed)?;
                let chain = chain_of(&mut conn, &known.job, task).await?;
                known.silent(chain.spec(), query, missing)?
            }
            Err(other) => return Err(refused(other)),
        };
        let at_the_end = query.from.is_none() || page.lines.is_empty();
        if at_the_end && known.prints_from.is_none_or(|first| page.launch < first) {
            page.next = None;
        }
        Ok(page)
    }

    /// The whole log of a launch, as far as it is written now; the first replica and the newest launch where none is named.
    ///
    /// # Errors
    /// There is no such log, or it cannot be read.
    pub async fn whole_log(
        &self,
        caller: &Caller,
        task: &TaskId,
        replica: Option<ReplicaName>,
        launch: Option<u32>,
    ) -> Result<WholeLog, AppError> {
        may(caller, Wish::See)?;
        let job = {
            let mut conn = self.store.read().await.map_err(failed)?;
            attempt_of(&mut conn, task).await?.0
        };
        self.fetch_output(task, replica.as_ref()).await;
        let (reader, of) = (self.logs.clone(), task.clone());
        let read = tokio::task::spawn_blocking(move || reader.whole(&job, &of, replica.as_ref(), launch));
        read.await.map_err(|why| internal(&why.into()))?.map_err(refused)
    }

    /// Has the attempt's cluster bring what is new, as far as that goes in a moment; what was brought before is shown in any case.
    async fn fetch_output(&self, task: &TaskId, replica: Option<&ReplicaName>) {
        let fetched = async {
            for cluster in self.clusters.values() {
                if let Err(error) = cluster.fetch_output(task, replica).await {
                    tracing::warn!(%task, error = format!("{:#}", anyhow::Error::from(error)), "a log may not be up to date");
                }
            }
        };
        if tokio::time::timeout(FETCH, fetched).await.is_err() {
            tracing::debug!(%task, "the newest output takes its time; it comes with the next reading");
        }
    }

    async fn known(&self, task: &TaskId) -> Result<Known, AppError> {
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        let (job, attempt) = attempt_of(&mut conn, task).await?;
        // The whole chain is read only where the attempt does not say itself that it goes on.
        let may_run =
            !attempt.state.is_terminal() || chain_of(&mut conn, &job, task).await?.live_task() == Some(task);
        let newest = launches::newest(&mut conn, &job, attempt.number).await.map_err(failed)?;
        let (newest, has_started) =
            newest.map_or((0, false), |launch| (launch.number, launch.started_at.is_some()));
        let first = if has_started { newest } else { newest.saturating_sub(1) };
        Ok(Known { job, newest, prints_from: may_run.then_some(first) })
    }
}

/// What is known of an attempt beside what it printed.
struct Known {
    job: JobId,
    /// Its newest launch.
    newest: u32,
    /// The first launch that may still print; none once nothing of the attempt is left on its cluster. A launch that was asked to stop
    /// prints on, and an attempt's result is known before its last process is gone; only when a later launch has started is an earlier
    /// one gone for sure.
    prints_from: Option<u32>,
}

impl Known {
    /// The empty log of a replica that has printed nothing in a launch; an error where the attempt has no such replica or launch.
    fn silent(&self, spec: &JobSpec, query: &LogQuery, missing: Missing) -> Result<LogPage, AppError> {
        let name = |index| ReplicaName::of_index(spec.kind, index);
        let replica = query.replica.clone().unwrap_or_else(|| name(0));
        let launch = query.launch.unwrap_or(self.newest);
        if launch > self.newest || (0..spec.replicas).all(|index| name(index) != replica) {
            return Err(refused(LogError::NotFound(missing)));
        }
        let Missing { replicas, mut launches, .. } = missing;
        if query.launch.is_some() && !launches.contains(&launch) {
            launches.push(launch);
            launches.sort_unstable();
        }
        let next = Some(query.from.unwrap_or(1).max(1));
        Ok(LogPage { replica, launch, replicas, launches, lines: Vec::new(), next, total: Some(0) })
    }
}

async fn attempt_of(conn: &mut AnyConnection, task: &TaskId) -> Result<(JobId, AttemptRecord), AppError> {
    attempts::find(conn, task).await.map_err(failed)?.ok_or_else(|| no_attempt(task))
}

async fn chain_of(conn: &mut AnyConnection, job: &JobId, task: &TaskId) -> Result<Chain, AppError> {
    let stored = jobs::chain(conn, job).await.map_err(failed)?;
    Ok(stored.ok_or_else(|| no_attempt(task))?.chain)
}

fn refused(error: LogError) -> AppError {
    match error {
        LogError::NotFound(missing) => AppError::NotFound { what: "log of".to_owned(), id: missing.what },
        other => internal(&other.into()),
    }
}
