//! A job's history.

use app::{
    console::{Caller, EventsPage, EventsQuery},
    error::AppError,
};
use engine::ids::{JobId, TaskId};

use super::{Service, Wish, failed, may, no_attempt};
use crate::store::{attempts, events};

impl Service {
    pub(super) async fn list_events(
        &self,
        caller: &Caller,
        id: &JobId,
        query: &EventsQuery,
    ) -> Result<EventsPage, AppError> {
        may(caller, Wish::See)?;
        self.head(id).await?;
        let mut conn = self.store.read().await.map_err(failed)?;
        if let Some(task) = &query.task {
            let found = attempts::find(&mut conn, task).await.map_err(failed)?;
            found.filter(|(job, _)| job == id).ok_or_else(|| no_attempt(task))?;
        }
        events::page(&mut conn, id, query).await.map_err(failed)
    }

    /// The history of one attempt; `query` says which part of it.
    ///
    /// # Errors
    /// There is no such attempt.
    pub async fn events_of_task(
        &self,
        caller: &Caller,
        task: TaskId,
        query: EventsQuery,
    ) -> Result<EventsPage, AppError> {
        may(caller, Wish::See)?;
        let mut conn = self.store.read().await.map_err(failed)?;
        let found = attempts::find(&mut conn, &task).await.map_err(failed)?;
        let (job, _) = found.ok_or_else(|| no_attempt(&task))?;
        let query = EventsQuery { task: Some(task), ..query };
        events::page(&mut conn, &job, &query).await.map_err(failed)
    }
}
