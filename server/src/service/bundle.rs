//! What to keep of a job for troubleshooting (R23): one document that explains itself, to be attached to a report.
//!
//! Environment variables keep their names alone, and secrets are hidden by their names and beginnings in every text of it; whoever passes it on
//! looks through it all the same.

use app::{
    console::{
        AttemptView, Caller, ChainPage, ChainView, CheckpointMark, EventsQuery, JobView, LogQuery,
        MetricsQuery,
    },
    error::AppError,
};
use engine::{
    ids::{JobId, ReplicaName, TaskId},
    record::EventRecord,
    time::Time,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Service, internal};
use crate::redact;

/// Attempts in a bundle: the newest.
const ATTEMPTS: u32 = 100;
/// Entries of the history, the newest, read so many at a time.
const EVENTS: usize = 2_000;
const EVENTS_AT_A_TIME: u32 = 500;
/// Checkpoints, the newest.
const CHECKPOINTS: usize = 200;
/// Logs: of the replica where each of the newest incidents began, and its last lines.
const LOGS: usize = 20;
const LINES: u32 = 200;

/// What to keep of a job.
#[derive(Debug, Serialize, ToSchema)]
pub struct Bundle {
    /// What this is, for whoever gets it.
    about: Vec<String>,
    /// When it was made.
    made_at: Time,
    /// The version of Holdfast that made it.
    holdfast: String,
    /// The job with all that it is made of; secrets are hidden.
    job: JobView,
    /// Attempts with task ids, launches, incidents, evidence and decisions.
    chain: ChainView,
    /// Checkpoints that were saved, oldest first.
    checkpoints: Vec<CheckpointMark>,
    /// The history, newest first.
    events: Vec<EventRecord>,
    /// The last lines of the replicas where incidents began.
    logs: Vec<BundledLog>,
}

/// The end of one log.
#[derive(Debug, Serialize, ToSchema)]
pub struct BundledLog {
    /// The attempt.
    task_id: TaskId,
    /// Its launch.
    launch: u32,
    /// The replica.
    replica: ReplicaName,
    /// Its last lines; none where they could not be had.
    lines: Vec<String>,
    /// Why there are none.
    trouble: Option<String>,
}

impl Service {
    /// What to keep of a job, with secrets hidden.
    ///
    /// # Errors
    /// There is no such job, or it may not be seen.
    pub async fn bundle(&self, caller: &Caller, id: &JobId) -> Result<Value, AppError> {
        let job = self.view_job(caller, id).await?;
        let total = job.summary.attempts_total;
        let from = total.saturating_sub(ATTEMPTS - 1).max(1);
        let page = ChainPage { from: Some(from), limit: Some(ATTEMPTS) };
        let chain = self.view_chain(caller, id, page).await?;
        let mut checkpoints = self.read_metrics(caller, id, &MetricsQuery::default()).await?.checkpoints;
        let checkpoints = checkpoints.split_off(checkpoints.len().saturating_sub(CHECKPOINTS));
        let (events, all_events) = self.newest_events(caller, id).await?;
        let logs = self.ends_of_logs(caller, &chain.attempts).await?;
        let bundle = Bundle {
            about: about(&job, from, events.len(), all_events),
            made_at: self.clock.now(),
            holdfast: env!("CARGO_PKG_VERSION").to_owned(),
            job,
            chain,
            checkpoints,
            events,
            logs,
        };
        let mut value = serde_json::to_value(&bundle).map_err(|why| internal(&why.into()))?;
        clean(&mut value);
        Ok(value)
    }

    /// The newest entries of the history, and how many there are in all.
    async fn newest_events(&self, caller: &Caller, id: &JobId) -> Result<(Vec<EventRecord>, u64), AppError> {
        let mut query = EventsQuery { limit: Some(EVENTS_AT_A_TIME), ..EventsQuery::default() };
        let mut events = Vec::new();
        loop {
            let page = self.list_events(caller, id, &query).await?;
            events.extend(page.items);
            query.cursor = page.next_cursor;
            if query.cursor.is_none() || events.len() >= EVENTS {
                events.truncate(EVENTS);
                return Ok((events, page.total));
            }
        }
    }

    async fn ends_of_logs(
        &self,
        caller: &Caller,
        attempts: &[AttemptView],
    ) -> Result<Vec<BundledLog>, AppError> {
        // Whole before the first wait: what borrows may not be held over it.
        let mut began: Vec<(TaskId, u32, ReplicaName)> = Vec::new();
        for view in attempts.iter().rev() {
            for incident in view.incidents.iter().rev() {
                let Some(root) = incident.root.as_ref().filter(|_| began.len() < LOGS) else { continue };
                began.push((view.attempt.task_id.clone(), incident.launch, root.replica.clone()));
            }
        }
        let mut logs = Vec::with_capacity(began.len());
        for (task_id, launch, replica) in began {
            let query = LogQuery {
                replica: Some(replica.clone()),
                launch: Some(launch),
                tail: Some(LINES),
                ..LogQuery::default()
            };
            let (lines, trouble) = match self.read_logs(caller, &task_id, &query).await {
                Ok(page) => (page.lines.into_iter().map(|line| line.text).collect(), None),
                // A log that is gone is no reason to have nothing.
                Err(AppError::NotFound { .. }) => {
                    (Vec::new(), Some("there is no such log any more".to_owned()))
                }
                Err(error @ (AppError::TooMuch { .. } | AppError::Unreachable { .. })) => {
                    (Vec::new(), Some(error.to_string()))
                }
                Err(other) => return Err(other),
            };
            logs.push(BundledLog { task_id, launch, replica, lines, trouble });
        }
        Ok(logs)
    }
}

fn about(job: &JobView, from: u32, events: usize, all_events: u64) -> Vec<String> {
    let mut about = vec![
        format!("What to keep of job {} ({}) for troubleshooting, made by Holdfast.", job.name, job.job_id),
        "`chain.attempts` has the task ids, launches, incidents with their log lines, and each decision with its rule and reason; `chain.diagnostics` the runs that tested its nodes. `job.spec` is what the job is made of.".to_owned(),
        "Failure types are derived from logs and messages; not a confirmed root cause.".to_owned(),
        "Values of environment variables, and whatever else looks confidential, are replaced by ***. Look through it before you pass it on.".to_owned(),
    ];
    match &job.spec.checkpoint_dir {
        Some(directory) => about.push(format!("Checkpoints are saved in {directory}.")),
        None => about.push("The job names no checkpoint directory.".to_owned()),
    }
    if from > 1 {
        about.push(format!("Attempts before number {from} are left out."));
    }
    if (events as u64) < all_events {
        about.push(format!("Of {all_events} entries of the history the newest {events} are here."));
    }
    about
}

/// A manifest as it was applied before, in a text of its own.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Hides what is confidential in every text of a document: every value of an environment, else by the name of its field, and by how it looks.
fn clean(value: &mut Value) {
    match value {
        Value::String(text) => hide(text),
        Value::Array(items) => {
            // `--token VALUE` is two items.
            let mut is_value = false;
            for item in items {
                let flag = item.as_str().and_then(|text| text.strip_prefix("--")).map(str::to_owned);
                if is_value && flag.is_none() && item.is_string() {
                    *item = Value::String(redact::HIDDEN.to_owned());
                } else {
                    clean(item);
                }
                is_value = flag.is_some_and(|flag| redact::is_confidential(&flag));
            }
        }
        Value::Object(fields) => {
            // `{"name": "TOKEN", "value": …}` of a manifest.
            let named = fields.get("name").and_then(Value::as_str).is_some_and(redact::is_confidential);
            for (name, field) in fields {
                let is_hidden =
                    redact::is_confidential(name) || name == APPLIED || (named && name == "value");
                if field.is_string() && is_hidden {
                    *field = Value::String(redact::HIDDEN.to_owned());
                } else if name == "env" {
                    clean_env(field);
                } else {
                    clean(field);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Hides every value of an environment: what a variable is named says too little of what it holds. Names stay, and where a value comes from.
fn clean_env(env: &mut Value) {
    let hide = |value: &mut Value| *value = Value::String(redact::HIDDEN.to_owned());
    match env {
        Value::Object(variables) => variables.values_mut().for_each(hide),
        Value::Array(variables) => {
            variables.iter_mut().filter_map(|variable| variable.get_mut("value")).for_each(hide);
        }
        other => clean(other),
    }
}

fn hide(text: &mut String) {
    let hidden: Vec<_> = text.split('\n').map(redact::hide).collect();
    *text = hidden.join("\n");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_hidden_wherever_they_stand() {
        let mut value = json!({
            "env": {"WANDB_API_KEY": "0123456789abcdef0123", "HARMLESS": "s1-in-env"},
            "command": ["train", "--hub-token", "abc", "--steps", "10", "--token", "--verbose"],
            "manifest": {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "s2-applied"}}, "env": [
                {"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "LR", "value": "s3-in-list"},
                {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "pin"}}}
            ]},
            "params": [{"name": "DB_PWD", "value": "s4-named"}, {"name": "LR", "value": "0.1"}],
            "lines": ["step 1 loss 0.5", "login with password=hunter2"],
            "text": "first\nGITHUB_TOKEN=ghp_0123456789abcdef0123",
            "count": 3,
        });
        clean(&mut value);
        let text = value.to_string();
        let secrets = ["0123456789abcdef0123", "\"abc\"", "hunter2"];
        for secret in secrets.iter().chain(&["s1-in-env", "s2-applied", "s3-in-list", "s4-named"]) {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        let kept =
            ["\"HARMLESS\"", "\"key\":\"pin\"", "\"--verbose\"", "\"value\":\"0.1\"", "step 1 loss 0.5"];
        for kept in kept.iter().chain(&["first\\n"]) {
            assert!(text.contains(kept), "{kept} not in {text}");
        }
    }
}
