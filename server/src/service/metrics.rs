//! A job's curves.

use app::{
    console::{Caller, MetricsQuery, MetricsView},
    error::AppError,
};
use engine::{ids::JobId, job::FieldError};

use super::{Service, Wish, failed, may};
use crate::store::{checkpoints, points};

impl Service {
    pub(super) async fn read_metrics(
        &self,
        caller: &Caller,
        id: &JobId,
        query: &MetricsQuery,
    ) -> Result<MetricsView, AppError> {
        may(caller, Wish::See)?;
        if let Some(other) = query.metric.as_deref().filter(|metric| *metric != "loss") {
            let shown: String = other.chars().take(80).collect();
            let rule = format!("`{shown}` is not recorded; use loss");
            return Err(AppError::Invalid { errors: vec![FieldError::new("metric", rule)] });
        }
        self.head(id).await?;
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        Ok(MetricsView {
            points: points::loss(&mut conn, id).await.map_err(failed)?,
            checkpoints: checkpoints::of_job(&mut conn, id).await.map_err(failed)?,
        })
    }
}
