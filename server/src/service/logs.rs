//! Lines of a replica's log.

use app::{
    console::{Caller, LogPage, LogQuery},
    error::AppError,
};
use engine::ids::{ReplicaName, TaskId};

use super::{Service, Wish, failed, internal, may};
use crate::{logs::LogError, store::attempts};

impl Service {
    pub(super) async fn read_logs(
        &self,
        caller: &Caller,
        task: &TaskId,
        query: &LogQuery,
    ) -> Result<LogPage, AppError> {
        may(caller, Wish::See)?;
        let missing = |what: &str, id: String| AppError::NotFound { what: what.to_owned(), id };
        let mut conn = self.store.read().await.map_err(failed)?;
        let found = attempts::find(&mut conn, task).await.map_err(failed)?;
        drop(conn);
        let (job, attempt) = found.ok_or_else(|| missing("attempt", task.to_string()))?;
        let (reader, asked, of) = (self.logs.clone(), query.clone(), task.clone());
        let read = tokio::task::spawn_blocking(move || reader.page(&job, &of, &asked));
        let mut page = match read.await.map_err(|why| internal(&why.into()))? {
            Ok(page) => page,
            // Nothing was printed yet, or the attempt never ran: an empty log, not a missing one.
            Err(LogError::NotFound { .. }) if query.replica.is_none() && query.launch.is_none() => empty()?,
            Err(LogError::NotFound { what }) => return Err(missing("log of", what)),
            Err(other) => return Err(internal(&other.into())),
        };
        if attempt.state.is_terminal() && (query.from.is_none() || page.lines.is_empty()) {
            page.next = None;
        }
        Ok(page)
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
