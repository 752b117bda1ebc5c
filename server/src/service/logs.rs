//! Lines of a replica's log.

use app::{
    console::{Caller, LogPage, LogQuery},
    error::AppError,
};
use engine::{
    ids::{JobId, ReplicaName, TaskId},
    record::AttemptRecord,
};

use super::{Service, Wish, failed, internal, may, no_attempt};
use crate::{
    logs::{LogError, WholeLog},
    store::{attempts, launches},
};

impl Service {
    pub(super) async fn read_logs(
        &self,
        caller: &Caller,
        task: &TaskId,
        query: &LogQuery,
    ) -> Result<LogPage, AppError> {
        may(caller, Wish::See)?;
        let (job, attempt) = self.attempt_of(task).await?;
        let (reader, asked, of, owner) = (self.logs.clone(), query.clone(), task.clone(), job.clone());
        let read = tokio::task::spawn_blocking(move || reader.page(&owner, &of, &asked));
        let mut page = match read.await.map_err(|why| internal(&why.into()))? {
            Ok(page) => page,
            // Nothing was printed yet, or the attempt never ran: an empty log, not a missing one.
            Err(LogError::NotFound { .. }) if query.replica.is_none() && query.launch.is_none() => empty()?,
            Err(other) => return Err(refused(other)),
        };
        let at_the_end = query.from.is_none() || page.lines.is_empty();
        if at_the_end && (attempt.state.is_terminal() || self.has_ended(&job, &attempt, page.launch).await?) {
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
        let (job, _) = self.attempt_of(task).await?;
        let (reader, of) = (self.logs.clone(), task.clone());
        let read = tokio::task::spawn_blocking(move || reader.whole(&job, &of, replica.as_ref(), launch));
        read.await.map_err(|why| internal(&why.into()))?.map_err(refused)
    }

    async fn attempt_of(&self, task: &TaskId) -> Result<(JobId, AttemptRecord), AppError> {
        let mut conn = self.store.read().await.map_err(failed)?;
        let found = attempts::find(&mut conn, task).await.map_err(failed)?;
        found.ok_or_else(|| no_attempt(task))
    }

    /// Whether a launch is over, so that nothing is added to its log.
    async fn has_ended(&self, job: &JobId, attempt: &AttemptRecord, launch: u32) -> Result<bool, AppError> {
        let mut conn = self.store.read().await.map_err(failed)?;
        let number = attempt.number;
        let known = launches::of_attempts(&mut conn, job, number..=number).await.map_err(failed)?;
        Ok(known.iter().any(|(_, record)| record.number == launch && record.ended_at.is_some()))
    }
}

fn refused(error: LogError) -> AppError {
    match error {
        LogError::NotFound { what } => AppError::NotFound { what: "log of".to_owned(), id: what },
        other => internal(&other.into()),
    }
}

fn empty() -> Result<LogPage, AppError> {
    let replica = ReplicaName::new("master-0").map_err(|why| internal(&why.into()))?;
    Ok(LogPage {
        replica,
        launch: 0,
        replicas: Vec::new(),
        launches: Vec::new(),
        lines: Vec::new(),
        next: Some(1),
        total: Some(0),
    })
}
