//! A job's history.

use app::{
    console::{Caller, EventsPage, EventsQuery},
    error::AppError,
};
use engine::ids::JobId;

use super::{Service, Wish, failed, may};
use crate::store::events;

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
        events::page(&mut conn, id, query).await.map_err(failed)
    }
}
