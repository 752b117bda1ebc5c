//! Tests of Exit ckpt Notification (R18): asking for one, and what the newest came to.

use std::time::Duration;

use app::{console::Caller, error::AppError};
use engine::{
    chain::Request,
    ids::{JobId, TaskId},
    record::ExitTestRecord,
};
use serde::Serialize;
use tokio::{sync::broadcast::error::RecvError, time::timeout};
use utoipa::ToSchema;

use super::{Service, Wish, failed, may, no_job};
use crate::store::{attempts, jobs};

/// How long the begin of a test is waited for, so that the page that follows shows it. The request is safe before.
const BEGUN_WITHIN: Duration = Duration::from_secs(1);

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
            None => {
                let mut changes = self.driver.changes();
                self.request(caller, id, Request::TestExit).await?;
                // A program that runs makes steps all the time, and any of them ends the wait of a request.
                let begun = async {
                    while self.chain_of(id).await.is_ok_and(|chain| chain.refuses_exit_test().is_none()) {
                        if let Err(RecvError::Closed) = changes.recv().await {
                            return;
                        }
                    }
                };
                // One that is over already is waited for in vain; it is in the store all the same.
                let _ = timeout(BEGUN_WITHIN, begun).await;
                Ok(())
            }
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
