//! A job's history.

use app::{
    console::{Caller, EventsPage, EventsQuery},
    error::AppError,
};
use engine::ids::JobId;

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
}
