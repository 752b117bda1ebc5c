//! What the create form starts from.

use engine::{
    hang::QuietPhase,
    ids::JobId,
    job::{Finding, JobDraft, Site},
    time::Time,
};
use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{console::Posted, error::AppError, server_fns::encoding::Json};

#[cfg(feature = "ssr")]
use super::{Scope, scope};

/// What the create form starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewJobStart {
    /// Clusters, policies, prefilled values.
    pub site: Site,
    /// The job it is a copy of.
    pub original: Option<Original>,
    /// What was posted and refused.
    pub posted: Option<Posted>,
    /// The server's clock, which the demo's directory is named by.
    pub now: Time,
}

/// The job that a form is a copy of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// The job.
    pub job_id: JobId,
    /// The body that would create it again.
    pub draft: JobDraft,
    /// The longest stretch without progress that it came through.
    #[serde(default)]
    pub longest_quiet: Option<QuietPhase>,
}

/// What the server reads of a pasted object, or what is wrong with its text.
#[server(prefix = "/sfn", endpoint = "read_manifest", input = Json, output = Json)]
pub async fn read_manifest(text: String) -> Result<Result<serde_json::Value, String>, AppError> {
    let Scope { console, .. } = scope()?;
    Ok(console.read_manifest(&text))
}

/// What the cluster has now of what a job needs.
#[server(prefix = "/sfn", endpoint = "check_job", input = Json, output = Json)]
pub async fn check_job(draft: JobDraft) -> Result<Vec<Finding>, AppError> {
    let Scope { console, caller } = scope()?;
    console.check(&caller, &draft).await
}

/// The site's values and, for a copy, the original. A post that was refused comes along while its page is rendered.
#[server(prefix = "/sfn", endpoint = "start_job", input = Json, output = Json)]
pub async fn start_job(from: Option<JobId>) -> Result<NewJobStart, AppError> {
    let posted = use_context::<Posted>();
    let Scope { console, caller } = scope()?;
    let site = console.site(&caller).await?;
    let original = match from {
        Some(id) => {
            let job = console.job(&caller, &id).await?;
            Some(Original {
                job_id: job.job_id,
                draft: JobDraft::from(&job.spec),
                longest_quiet: job.summary.longest_quiet,
            })
        }
        None => None,
    };
    Ok(NewJobStart { site, original, posted, now: console.now() })
}
