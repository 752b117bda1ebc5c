//! What changes something: a new job, or a request in a job's inbox. Both are safe when the method returns.

use std::time::Duration;

use app::{console::Caller, error::AppError};
use engine::{
    chain::{Chain, Request},
    ids::{IncidentId, JobId},
    job::{FieldError, Finding, Fit, JobDraft, JobSpec},
    record::Summary,
};
use sha2::{Digest, Sha256};
use sqlx::AnyConnection;

use super::{Service, Wish, diagnoses::forbids, failed, internal, jobs::what_may, may, no_job};
use crate::{
    clock,
    store::{
        self, inbox, incidents, jobs,
        steps::{self, Head, Kept, Origin},
        wards,
    },
};

/// How long a request waits to be taken, so that the page that follows shows its effect. It is safe before.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);

impl Service {
    /// Creates a job. One that was created for the same `mark` before is given back as it is.
    pub async fn create_job(
        &self,
        caller: &Caller,
        draft: &JobDraft,
        copied_from: Option<&JobId>,
        mark: Option<[u8; 32]>,
    ) -> Result<JobId, AppError> {
        may(caller, Wish::Act)?;
        let spec = draft.validate(&self.site).map_err(|errors| AppError::Invalid { errors })?;
        let now = self.clock.now();
        let mut conn = self.store.read().await.map_err(failed)?;
        let id = match mark {
            None => clock::new_job_id().map_err(|why| internal(&why.into()))?,
            Some(mark) => id_of_mark(&mut conn, mark).await?,
        };
        if mark.is_some()
            && let Some(made) = jobs::chain(&mut conn, &id).await.map_err(failed)?
        {
            let why = "This Idempotency-Key made another job before. Use a new key for a new job.";
            return if *made.chain.spec() == spec {
                Ok(id)
            } else {
                Err(AppError::Conflict { why: why.to_owned() })
            };
        }
        drop(conn);
        let never: Vec<_> =
            self.findings(&spec).await.into_iter().filter(|one| one.fit == Fit::Never).collect();
        if !never.is_empty() {
            let error =
                |one: Finding| FieldError::new(one.field.unwrap_or("kubernetes".to_owned()), one.text);
            return Err(AppError::Invalid { errors: never.into_iter().map(error).collect() });
        }
        let mut conn = self.store.read().await.map_err(failed)?;
        let kept_out = wards::quarantined(&mut conn, &spec.cluster).await.map_err(failed)?;
        drop(conn);
        let step = Chain::start_beside(id.clone(), spec, kept_out, now);
        let head = Head::of(&step.chain, now);
        let kept = Kept { chain: &step.chain, head: &head, records: &step.records, now };
        let mut tx = self.store.write().await.map_err(failed)?;
        steps::create(&mut tx, Origin { owner: &caller.name, copied_from }, kept).await.map_err(failed)?;
        store::commit(tx).await.map_err(failed)?;
        tracing::info!(job_id = %id, by = caller.name, "job created");
        // The step's effects are pending in the chain: the driver performs them when it takes the job up.
        self.driver.hint(&id);
        Ok(id)
    }

    /// What its cluster has now of what a job needs. Nothing is made.
    pub(super) async fn check_job(
        &self,
        caller: &Caller,
        draft: &JobDraft,
    ) -> Result<Vec<Finding>, AppError> {
        may(caller, Wish::Act)?;
        let spec = draft.validate(&self.site).map_err(|errors| AppError::Invalid { errors })?;
        Ok(self.findings(&spec).await)
    }

    async fn findings(&self, spec: &JobSpec) -> Vec<Finding> {
        match self.clusters.get(&spec.cluster) {
            Some(cluster) => cluster.check(spec).await,
            None => Vec::new(),
        }
    }

    pub(super) async fn stop_job(&self, caller: &Caller, id: &JobId, force: bool) -> Result<(), AppError> {
        let summary = self.summary(caller, id).await?;
        match what_may(&summary, None).stop {
            Some(why) if summary.state.is_terminal() => Err(AppError::Conflict { why }),
            // Asked again while it stops: only force adds something.
            Some(_) if !force => Ok(()),
            _ => self.request(caller, id, Request::Stop { force }).await,
        }
    }

    pub(super) async fn delete_job(&self, caller: &Caller, id: &JobId, force: bool) -> Result<(), AppError> {
        may(caller, Wish::Act)?;
        let chain = self.chain_of(id).await?;
        if let Some(missing) = self.missing(chain.spec()).filter(|_| !force)
            && let Some(task) = chain.live_task()
        {
            let why = format!(
                "{missing} So attempt {task} cannot be removed there. Configure it again, or delete the job with `force`: then it is forgotten here, and what still is on the cluster stays there until it is removed by hand."
            );
            return Err(AppError::Conflict { why });
        }
        self.request(caller, id, Request::Delete { force }).await
    }

    pub(super) async fn resubmit_job(&self, caller: &Caller, id: &JobId) -> Result<(), AppError> {
        let summary = self.summary(caller, id).await?;
        let chain = self.chain_of(id).await?;
        let mut conn = self.store.read().await.map_err(failed)?;
        let forbidden = forbids(&mut conn, id).await?;
        drop(conn);
        match forbidden.or(what_may(&summary, self.missing(chain.spec()).as_deref()).resubmit) {
            Some(why) => Err(AppError::Conflict { why }),
            None => self.request(caller, id, Request::Resubmit).await,
        }
    }

    pub(super) async fn acknowledge_job(&self, caller: &Caller, id: &JobId) -> Result<(), AppError> {
        let summary = self.summary(caller, id).await?;
        if !summary.needs_attention {
            return Ok(());
        }
        self.request(caller, id, Request::Acknowledge).await
    }

    pub(super) async fn keep_feedback(
        &self,
        caller: &Caller,
        incident: &IncidentId,
        right: Option<bool>,
    ) -> Result<(), AppError> {
        may(caller, Wish::Act)?;
        let mut tx = self.store.write().await.map_err(failed)?;
        let job = incidents::answer(&mut tx, incident, right).await.map_err(failed)?;
        store::commit(tx).await.map_err(failed)?;
        job.map(|_| ())
            .ok_or_else(|| AppError::NotFound { what: "incident".to_owned(), id: incident.to_string() })
    }

    /// The job as it is, for a caller who may act on it.
    async fn summary(&self, caller: &Caller, id: &JobId) -> Result<Summary, AppError> {
        may(caller, Wish::Act)?;
        Ok(self.head(id).await?.summary)
    }

    /// The chain of a job as it was last written.
    pub(super) async fn chain_of(&self, id: &JobId) -> Result<Chain, AppError> {
        let mut conn = self.store.read().await.map_err(failed)?;
        let stored = jobs::chain(&mut conn, id).await.map_err(failed)?;
        stored.map(|stored| stored.chain).ok_or_else(|| no_job(id))
    }

    /// Keeps a request, then waits a moment for the driver to take it.
    pub(super) async fn request(
        &self,
        caller: &Caller,
        id: &JobId,
        request: Request,
    ) -> Result<(), AppError> {
        let mut changes = self.driver.changes();
        let request_id = clock::new_id().map_err(|why| internal(&why.into()))?;
        let mut tx = self.store.write().await.map_err(failed)?;
        if request == Request::Resubmit {
            // A diagnosis may have begun since that was looked at.
            jobs::hold(&mut tx, id).await.map_err(failed)?;
            if let Some(why) = forbids(&mut tx, id).await? {
                return Err(AppError::Conflict { why });
            }
        }
        let kept = inbox::add(&mut tx, id, &request_id, &request, &caller.name, self.clock.now())
            .await
            .map_err(failed)?;
        store::commit(tx).await.map_err(failed)?;
        if !kept {
            return Err(no_job(id));
        }
        tracing::info!(job_id = %id, by = caller.name, ?request, "request kept");
        self.driver.hint(id);
        // A lost hint or a lagging receiver costs the wait, nothing else.
        let taken = async { while changes.recv().await.is_ok_and(|change| change.job_id != *id) {} };
        let _ = tokio::time::timeout(TAKEN_WITHIN, taken).await;
        Ok(())
    }
}

/// The id of the job that belongs to a mark. A job that was deleted keeps its id for ever, as files, objects and agents may still bear it: a
/// key that is used again afterwards makes another.
async fn id_of_mark(conn: &mut AnyConnection, mut mark: [u8; 32]) -> Result<JobId, AppError> {
    loop {
        let id = clock::job_id_of(&mark).map_err(|why| internal(&why.into()))?;
        if !jobs::is_forgotten(conn, &id).await.map_err(failed)? {
            return Ok(id);
        }
        mark = Sha256::digest(mark).into();
    }
}
