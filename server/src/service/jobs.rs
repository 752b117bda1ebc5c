//! The list of jobs, and the head of one.

use app::{
    console::{Caller, FirstVisit, JobMay, JobView, JobsPage, JobsQuery},
    error::AppError,
    forms::jobs_query,
};
use engine::{
    ids::JobId,
    job::ClusterKind,
    record::{State, Summary},
};

use super::{
    Service, Wish,
    diagnoses::{forbids, with_runs},
    failed, internal, may, no_job,
};
use crate::store::{attempts, diagnoses, jobs};

impl Service {
    pub(super) async fn list_jobs(&self, caller: &Caller, query: &JobsQuery) -> Result<JobsPage, AppError> {
        may(caller, Wish::See)?;
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        let page = jobs::page(&mut conn, query, &caller.name).await.map_err(failed)?;
        let counts = jobs::counts(&mut conn, &caller.name).await.map_err(failed)?;
        let is_first = counts.all == 0 && !jobs_query::is_filtered(query);
        Ok(JobsPage {
            items: page.items,
            total: page.total,
            page: page.page,
            size: page.size,
            counts,
            now: self.clock.now(),
            first_visit: is_first.then(|| FirstVisit { demo: self.site.has(ClusterKind::Local) }),
        })
    }

    pub(super) async fn view_job(&self, caller: &Caller, id: &JobId) -> Result<JobView, AppError> {
        may(caller, Wish::See)?;
        let now = self.clock.now();
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        let head = jobs::head(&mut conn, id).await.map_err(failed)?.ok_or_else(|| no_job(id))?;
        let chain = jobs::chain(&mut conn, id).await.map_err(failed)?.ok_or_else(|| no_job(id))?.chain;
        let forbidden = forbids(&mut conn, id).await?;
        // From the chain and not from the last step, so that running clocks in it run.
        let mut summary = chain.summary(now);
        // Runs are counted where they are kept; a chain knows nothing of them.
        summary.budgets.diagnostics.used = diagnoses::count_of(&mut conn, id).await.map_err(failed)?;
        if summary.budgets.diagnostics.used > 0 {
            let runs = self.diagnoses_of(&mut conn, Some(id)).await.map_err(failed)?;
            summary.ledger = with_runs(summary.ledger, &runs);
        }
        let mut state_of = async |number| -> Result<State, AppError> {
            let found = attempts::page(&mut conn, id, number, 1).await.map_err(failed)?;
            let attempt = found.into_iter().next();
            attempt
                .map(|attempt| attempt.state)
                .ok_or_else(|| internal(&anyhow::anyhow!("attempt {number} of job {id} is not in the store")))
        };
        let missing = self.missing(chain.spec());
        let mut may = what_may(&summary, missing.as_deref());
        may.resubmit = forbidden.or(may.resubmit);
        may.test_exit = chain.refuses_exit_test();
        Ok(JobView {
            original_state: state_of(1).await?,
            latest_state: state_of(summary.attempts_total).await?,
            job_id: head.job_id,
            name: head.name,
            owner: head.owner,
            copied_from: head.copied_from,
            created_at: head.created_at,
            ended_at: head.ended_at,
            spec: chain.spec().clone(),
            may,
            cluster_configured: missing.is_none(),
            cluster_troubles: self.shown_troubles(chain.spec(), &summary),
            summary,
            now,
        })
    }
}

/// What a person may do with a job in this state; `missing` where it cannot be reached, as what it runs on is not configured.
pub(super) fn what_may(summary: &Summary, missing: Option<&str>) -> JobMay {
    let ended = summary.state.is_terminal();
    JobMay {
        stop: match summary.state {
            State::Stopping => Some("It is being stopped already.".to_owned()),
            // One that saves because it is preempted can still be stopped for good.
            State::Saving if summary.stopped_by.is_some() => {
                Some("It is being stopped already, and saves first.".to_owned())
            }
            _ if ended => Some("It has ended, so there is nothing to stop.".to_owned()),
            _ => None,
        },
        delete: None,
        resubmit: match missing {
            _ if !ended => Some("It has not ended. Stop it first.".to_owned()),
            Some(why) => Some(why.to_owned()),
            None => None,
        },
        // What it depends on is not in a summary.
        test_exit: None,
    }
}
