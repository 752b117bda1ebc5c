//! Tests of Exit ckpt Notification (R18): asking for one, and what the newest came to.

use app::{console::Caller, error::AppError};
use engine::{
    chain::Request,
    ids::{JobId, TaskId},
    record::ExitTestRecord,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Service, Wish, failed, may, no_job};
use crate::store::{attempts, jobs};

/// The newest test of a job, and whether another can be made.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExitTestView {
    /// The job.
    job_id: JobId,
    /// The attempt that was tested; null where none was.
    task_id: Option<TaskId>,
    /// The newest test; null where none was made.
    test: Option<ExitTestRecord>,
    /// Why none can be made now; null where one can.
    refusal: Option<String>,
}

impl Service {
    /// Has the program of a job told to save in every replica while it runs.
    pub(super) async fn test_exit_of(&self, caller: &Caller, id: &JobId) -> Result<(), AppError> {
        may(caller, Wish::Act)?;
        match self.chain_of(id).await?.refuses_exit_test() {
            Some(why) => Err(AppError::Conflict { why }),
            None => self.request(caller, id, Request::TestExit).await,
        }
    }

    /// The newest test of Exit ckpt Notification.
    ///
    /// # Errors
    /// There is no such job, or the caller may not see it.
    pub async fn exit_test(&self, caller: &Caller, id: &JobId) -> Result<ExitTestView, AppError> {
        may(caller, Wish::See)?;
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        let chain = jobs::chain(&mut conn, id).await.map_err(failed)?.ok_or_else(|| no_job(id))?.chain;
        let newest = attempts::newest_exit_test(&mut conn, id).await.map_err(failed)?;
        let (task_id, test) = newest.unzip();
        Ok(ExitTestView { job_id: id.clone(), task_id, test, refusal: chain.refuses_exit_test() })
    }
}
