//! One attempt by its task ID.

use app::{
    console::{AttemptView, Caller},
    error::AppError,
};
use engine::ids::{JobId, TaskId};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Service, Wish, chain::with_details, failed, may, no_attempt};
use crate::store::attempts;

/// One attempt with its neighbours.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TaskView {
    /// Its job.
    pub job_id: JobId,
    /// The attempt before it.
    pub previous_task_id: Option<TaskId>,
    /// The attempt after it.
    pub next_task_id: Option<TaskId>,
    /// The attempt.
    #[serde(flatten)]
    pub attempt: AttemptView,
}

impl Service {
    /// One attempt with its neighbours.
    ///
    /// # Errors
    /// There is no such attempt.
    pub async fn task(&self, caller: &Caller, id: &TaskId) -> Result<TaskView, AppError> {
        may(caller, Wish::See)?;
        let missing = || no_attempt(id);
        let mut conn = self.store.read().await.map_err(failed)?;
        let (job_id, record) = attempts::find(&mut conn, id).await.map_err(failed)?.ok_or_else(missing)?;
        let before = record.number.saturating_sub(1).max(1);
        let around = attempts::task_ids(&mut conn, &job_id, before, 3).await.map_err(failed)?;
        let place = around.iter().position(|task| task == id).ok_or_else(missing)?;
        let previous_task_id = place.checked_sub(1).and_then(|index| around.get(index)).cloned();
        let next_task_id = around.get(place + 1).cloned();
        let views = with_details(&mut conn, &job_id, vec![record]).await.map_err(failed)?;
        let attempt = views.into_iter().next().ok_or_else(missing)?;
        Ok(TaskView { job_id, previous_task_id, next_task_id, attempt })
    }
}
