//! What the tabs read: the job once for all of them, and the chain where a tab needs it.

use std::{future::IntoFuture, time::Duration};

use engine::ids::{JobId, TaskId};
use leptos::prelude::*;
use leptos_router::hooks::{use_params_map, use_query_map};

use crate::{
    components::{
        failed::FailedPart,
        story::{HEAD, WHOLE},
    },
    console::{ChainPage, ChainView, JobView},
    error::AppError,
    live::use_live,
    server_fns::jobs::{get_chain, get_job},
};

/// Large readings are this far apart.
const SLOW: Duration = Duration::from_secs(5);
/// Attempts that are read at once, the most the backend gives.
const READ: u32 = 200;

/// The job that the frame has read, shared with its tabs.
pub type JobResource = Resource<Result<JobView, AppError>>;

/// The id in the address; what is no id names no job.
pub fn use_job_id() -> Memo<Result<JobId, AppError>> {
    let params = use_params_map();
    Memo::new(move |_| {
        let text = params.read().get("id").unwrap_or_default();
        JobId::new(text.clone())
            .map_err(|_| AppError::NotFound { what: "job".to_owned(), id: clipped(&text) })
    })
}

fn clipped(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Reads the job and gives it to the tabs.
pub fn provide_job() -> JobResource {
    let (id, live) = (use_job_id(), use_live());
    let job =
        Resource::new_blocking(move || (id.get(), live.ticks()), |(id, _)| async move { get_job(id?).await });
    provide_context(job);
    job
}

/// The job as the frame reads it; outside a frame there is none.
pub fn use_job() -> JobResource {
    use_context::<JobResource>().unwrap_or_else(provide_job)
}

/// The job with its chain, each read once however many parts of a page show it.
#[derive(Clone, Copy)]
pub struct Whole {
    job: JobResource,
    chain: Resource<Result<ChainView, AppError>>,
}

impl Whole {
    /// Waits for both.
    pub async fn read(self) -> Result<(JobView, ChainView), AppError> {
        let job = self.job.await?;
        Ok((job, self.chain.await?))
    }

    /// A tab: drawn once the job, its chain and what the tab reads beside them are there, or why they are not.
    pub fn show<T: 'static>(
        self,
        own: impl IntoFuture<Output = T, IntoFuture: Send> + Send + 'static,
        draw: impl FnOnce(JobView, ChainView, T) -> AnyView + Send + 'static,
    ) -> impl IntoView {
        Suspend::new(async move {
            match self.read().await {
                Ok((job, chain)) => draw(job, chain, own.await),
                Err(error) => unread(error),
            }
        })
    }

    /// Waits for the chain.
    pub async fn chain(self) -> Result<ChainView, AppError> {
        self.chain.await
    }
}

/// The job and its chain, read again when something changes.
pub fn use_whole() -> Whole {
    let (id, live) = (use_job_id(), use_live());
    let from = use_query("from");
    let chain = Resource::new_blocking(
        move || (id.get(), from.get(), live.ticks()),
        |(id, from, _)| async move { whole_chain(id?, from.and_then(|from| from.parse().ok())).await },
    );
    Whole { job: use_job(), chain }
}

/// The chain as it was when the page was opened, for a page that must not be drawn anew while it is read.
pub fn use_chain_once() -> Resource<Result<ChainView, AppError>> {
    let id = use_job_id();
    Resource::new_blocking(move || id.get(), |id| async move { whole_chain(id?, None).await })
}

/// Goes up when something changed, at most every [`SLOW`]: for what is large to read, such as curves.
pub fn use_slow_ticks() -> RwSignal<u64> {
    let live = use_live();
    let slow = RwSignal::new(0);
    let waiting = StoredValue::new(false);
    Effect::new(move |_| {
        if live.ticks() == 0 || waiting.get_value() {
            return;
        }
        waiting.set_value(true);
        // The page may be gone when the time is over; then there is nothing to set.
        let over = move || {
            waiting.try_set_value(false);
            slow.try_update(|ticks| *ticks += 1);
        };
        set_timeout(over, SLOW);
    });
    slow
}

/// The chain as far as a page shows it: all of it up to [`READ`] attempts; of a longer one the beginning and either its end or
/// the part that begins at `from`.
async fn whole_chain(id: JobId, from: Option<u32>) -> Result<ChainView, AppError> {
    let mut chain = get_chain(id.clone(), ChainPage { from: None, limit: Some(READ) }).await?;
    let total = chain.attempts_total;
    if total <= READ {
        return Ok(chain);
    }
    let begin = from.unwrap_or(total - READ / 2).clamp(1, total);
    let rest = get_chain(id, ChainPage { from: Some(begin), limit: Some(READ / 2) }).await?;
    chain.attempts.truncate(HEAD.max(WHOLE));
    let known = chain.attempts.last().map_or(0, |a| a.attempt.number);
    chain.attempts.extend(rest.attempts.into_iter().filter(|a| a.attempt.number > known));
    Ok(chain)
}

/// What a tab shows where its part could not be read. Of a job that is not there the frame says it already.
pub fn unread(error: AppError) -> AnyView {
    match error {
        AppError::NotFound { .. } | AppError::SignIn | AppError::Forbidden { .. } => ().into_any(),
        error => view! { <div class="mt-5"><FailedPart error /></div> }.into_any(),
    }
}

/// One value of the query string; an empty one is none.
pub fn use_query(name: &'static str) -> Memo<Option<String>> {
    let query = use_query_map();
    Memo::new(move |_| query.read().get(name).filter(|text| !text.is_empty()))
}

/// The attempt that a page is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Selected {
    /// Its number.
    pub number: u32,
    /// Its task.
    pub task: TaskId,
    /// What the address asked for, where there is no such attempt.
    pub unknown: Option<String>,
}

/// Reads `?task=`: an unknown one gives the newest with a notice.
pub fn selected(chain: &ChainView, asked: Option<&str>) -> Selected {
    let found = asked.and_then(|asked| chain.attempts.iter().find(|a| a.attempt.task_id.as_str() == asked));
    match found {
        Some(view) => {
            Selected { number: view.attempt.number, task: view.attempt.task_id.clone(), unknown: None }
        }
        None => Selected {
            number: chain.attempts_total,
            task: chain.latest_task_id.clone(),
            unknown: asked.map(clipped),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn an_unknown_attempt_gives_the_newest_and_says_so() {
        let chain = samples::chain();
        let known = selected(&chain, Some(samples::task(2).as_str()));
        assert_eq!((known.number, known.unknown), (2, None));
        let unknown = selected(&chain, Some("<b>nobody</b>"));
        assert_eq!((unknown.number, unknown.unknown.as_deref()), (3, Some("<b>nobody</b>")));
        assert_eq!(selected(&chain, None).unknown, None);
    }
}
