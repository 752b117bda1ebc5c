//! What the pages need from the backend, as one trait. The server implements it on its service layer and hands it over as
//! context, so pages build and are tested without a database; the REST API answers with the very same view types.

mod diagnoses;
mod nodes;
mod usage;

pub use self::diagnoses::{
    DiagnosisDetail, DiagnosisDraft, DiagnosisGroup, DiagnosisPlan, DiagnosisRound, DiagnosisView,
};
pub use self::nodes::{
    CapView, ClusterNodes, NodeEvent, NodeJob, NodePage, NodeView, QuarantineOrder, StrikeView,
};
pub use self::usage::{ClusterUsage, SPANS, UsageView};

use engine::{
    advice::CheckpointAdvice,
    ids::{IncidentId, JobId, NodeName, ReplicaName, TaskId},
    job::{FieldError, Finding, JobKind, JobSpec, Mode},
    record::{
        AttemptRecord, Budgets, EventKind, EventRecord, IncidentRecord, LaunchRecord, Ledger, State,
        Substate, Summary, WhyNot,
    },
    time::Time,
};
use serde::{Deserialize, Serialize};

#[cfg(feature = "ssr")]
use crate::error::AppError;
#[cfg(feature = "ssr")]
use engine::job::{JobDraft, Site};

/// Who asks. Every method checks what they may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The account's name; `local` in single-user mode.
    pub name: String,
    /// No account exists yet and the server is bound to loopback: whoever reaches it may do everything.
    pub single_user: bool,
}

/// The backend of the pages.
#[cfg(feature = "ssr")]
#[async_trait::async_trait]
pub trait Console: Send + Sync {
    /// One page of the jobs list.
    async fn jobs(&self, caller: &Caller, query: &JobsQuery) -> Result<JobsPage, AppError>;
    /// The head of one job.
    async fn job(&self, caller: &Caller, id: &JobId) -> Result<JobView, AppError>;
    /// The Fault Tolerance Detail: attempts `from` (a number, 1 is the first) and at most `limit` of them.
    async fn chain(&self, caller: &Caller, id: &JobId, page: ChainPage) -> Result<ChainView, AppError>;
    /// Lines of a replica's log.
    async fn logs(&self, caller: &Caller, task: &TaskId, query: &LogQuery) -> Result<LogPage, AppError>;
    /// The job's history, newest first.
    async fn events(&self, caller: &Caller, id: &JobId, query: &EventsQuery) -> Result<EventsPage, AppError>;
    /// The curve of a metric over all attempts.
    async fn metrics(
        &self,
        caller: &Caller,
        id: &JobId,
        query: &MetricsQuery,
    ) -> Result<MetricsView, AppError>;
    /// Checks a draft and creates the job, and remembers which job it was made from.
    async fn create(
        &self,
        caller: &Caller,
        draft: &JobDraft,
        copied_from: Option<&JobId>,
    ) -> Result<JobId, AppError>;
    /// What its cluster has now of what a job needs, the worst first. Nothing is made.
    async fn check(&self, caller: &Caller, draft: &JobDraft) -> Result<Vec<Finding>, AppError>;
    /// Stops a job.
    async fn stop(&self, caller: &Caller, id: &JobId, force: bool) -> Result<(), AppError>;
    /// Stops a job and forgets it with its logs.
    async fn delete(&self, caller: &Caller, id: &JobId, force: bool) -> Result<(), AppError>;
    /// Starts a new attempt of a job that has ended.
    async fn resubmit(&self, caller: &Caller, id: &JobId) -> Result<(), AppError>;
    /// Marks a failed job as seen: no attention needed.
    async fn acknowledge(&self, caller: &Caller, id: &JobId) -> Result<(), AppError>;
    /// Tests Exit ckpt Notification on a job that runs.
    async fn test_exit(&self, caller: &Caller, id: &JobId) -> Result<(), AppError>;
    /// "Was this right?"; none takes the answer back.
    async fn feedback(
        &self,
        caller: &Caller,
        incident: &IncidentId,
        right: Option<bool>,
    ) -> Result<(), AppError>;
    /// All nodes of all clusters.
    async fn nodes(&self, caller: &Caller) -> Result<Vec<ClusterNodes>, AppError>;
    /// What the time of clusters went to in the last `days`, which are one of [`SPANS`].
    async fn usage(&self, caller: &Caller, days: u32) -> Result<UsageView, AppError>;
    /// What a diagnosis of a job would test and take at most. Nothing is begun.
    async fn diagnosis_plan(
        &self,
        caller: &Caller,
        id: &JobId,
        draft: &DiagnosisDraft,
    ) -> Result<DiagnosisPlan, AppError>;
    /// Begins a diagnosis; gives its id.
    async fn diagnose(&self, caller: &Caller, id: &JobId, draft: &DiagnosisDraft)
    -> Result<String, AppError>;
    /// Diagnoses of a job or of all, newest first.
    async fn diagnoses(&self, caller: &Caller, job: Option<&JobId>) -> Result<Vec<DiagnosisView>, AppError>;
    /// One diagnosis with its rounds.
    async fn diagnosis(&self, caller: &Caller, run_id: &str) -> Result<DiagnosisDetail, AppError>;
    /// Stops a diagnosis.
    async fn stop_diagnosis(&self, caller: &Caller, run_id: &str) -> Result<(), AppError>;
    /// One node with its history and what would follow if it were put out. Without a cluster: the first that has a node of this name.
    async fn node(
        &self,
        caller: &Caller,
        cluster: Option<&str>,
        name: &NodeName,
    ) -> Result<NodePage, AppError>;
    /// Puts a node out for every job.
    async fn quarantine(
        &self,
        caller: &Caller,
        name: &NodeName,
        order: &QuarantineOrder,
    ) -> Result<(), AppError>;
    /// Lets a node in again, whatever was held against it.
    async fn release_node(
        &self,
        caller: &Caller,
        cluster: Option<&str>,
        name: &NodeName,
    ) -> Result<(), AppError>;
    /// Lets nodes of a cluster be put out by themselves again. Without a cluster: the only one there is.
    async fn reset_cap(&self, caller: &Caller, cluster: Option<&str>) -> Result<CapView, AppError>;
    /// Clusters, policies and prefilled values.
    async fn site(&self, caller: &Caller) -> Result<Site, AppError>;
    /// The object that an attempt is made as on its cluster, as YAML.
    async fn task_manifest(&self, caller: &Caller, task: &TaskId) -> Result<String, AppError>;
    /// Reads a pasted object, YAML or JSON; what is wrong with the text is a sentence without its subject.
    fn read_manifest(&self, text: &str) -> Result<serde_json::Value, String>;
    /// The server's clock, so that "3 min ago" is the same on the server and in the browser.
    fn now(&self) -> Time;
}

/// Filters of the jobs list, as in its address.
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobsQuery {
    /// `attention`, `running`, `recovering`, `all`, `mine`; none is `all`.
    pub view: Option<JobsViewName>,
    /// Part of a name, an id or an image; at most 200 characters.
    pub q: Option<String>,
    /// Only this state.
    pub state: Option<State>,
    /// Only this kind.
    pub kind: Option<JobKind>,
    /// Only jobs whose newest incident has this type.
    pub fault: Option<engine::failure::FailureType>,
    /// Only this person's.
    pub owner: Option<String>,
    /// Only with at least so many task restarts.
    pub restarts: Option<u32>,
    /// Order; none is newest first.
    pub sort: Option<JobsSort>,
    /// From 1.
    pub page: Option<u32>,
    /// 10–200; none is 50.
    pub size: Option<u32>,
}

/// Views of the jobs list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobsViewName {
    /// Ended badly and neither resubmitted nor acknowledged, unschedulable, kept from starting, or unknown.
    Attention,
    /// Running.
    Running,
    /// Recovering.
    Recovering,
    /// All.
    All,
    /// The caller's own.
    Mine,
}

/// Orders of the jobs list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobsSort {
    /// Newest first.
    Newest,
    /// Oldest first.
    Oldest,
    /// By name.
    Name,
    /// Most task restarts first.
    Restarts,
}

/// One page of jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobsPage {
    /// Rows.
    pub items: Vec<JobRow>,
    /// All that match.
    pub total: u64,
    /// The page, from 1.
    pub page: u32,
    /// Rows a page.
    pub size: u32,
    /// How many jobs each view has.
    pub counts: JobsCounts,
    /// When this was read.
    pub now: Time,
    /// Where nothing was asked for and there is no job at all: what one can begin with.
    pub first_visit: Option<FirstVisit>,
}

/// What one can begin with before there is a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FirstVisit {
    /// There is a cluster for the demo, which runs on the server's own machine.
    pub demo: bool,
}

/// How many jobs each view has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobsCounts {
    /// Needs attention.
    pub attention: u64,
    /// Running.
    pub running: u64,
    /// Recovering.
    pub recovering: u64,
    /// All.
    pub all: u64,
    /// The caller's own.
    pub mine: u64,
}

/// One row of the jobs list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobRow {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: JobKind,
    /// All its replicas.
    pub replicas: u32,
    /// Accelerators of each.
    pub accelerators_per_replica: u32,
    /// Who made it.
    pub owner: String,
    /// When.
    pub created_at: Time,
    /// When it was last heard of: a step, a state, an event.
    pub changed_at: Time,
    /// All about its chain.
    #[serde(flatten)]
    pub summary: Summary,
}

/// The head of a job's pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobView {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub name: String,
    /// Who made it.
    pub owner: String,
    /// The job whose settings it was made from; that one may be gone.
    pub copied_from: Option<JobId>,
    /// When.
    pub created_at: Time,
    /// When it ended.
    pub ended_at: Option<Time>,
    /// All about its chain.
    #[serde(flatten)]
    pub summary: Summary,
    /// The state of the first attempt, which may differ from the job's.
    pub original_state: State,
    /// The state of the newest attempt.
    pub latest_state: State,
    /// What it is made of.
    pub spec: JobSpec,
    /// What a person may do now, each with the reason where it is refused.
    pub may: JobMay,
    /// Its cluster is configured on this server, with the namespace of the job. Where it is not, nothing is concluded of the job, and
    /// deleting it leaves behind what is on the cluster.
    pub cluster_configured: bool,
    /// What keeps its cluster from working for it now, each with what to do; of a job that has ended only that it is not configured.
    pub cluster_troubles: Vec<String>,
    /// When this was read.
    pub now: Time,
}

/// What a person may do with a job now: none is yes, else the reason why not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobMay {
    /// Stop.
    pub stop: Option<String>,
    /// Delete.
    pub delete: Option<String>,
    /// Resubmit as a new attempt.
    pub resubmit: Option<String>,
    /// Test Exit ckpt Notification.
    #[serde(default)]
    pub test_exit: Option<String>,
}

/// Which part of a chain.
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChainPage {
    /// The first attempt, from 1.
    pub from: Option<u32>,
    /// 1–200 attempts; none is 100.
    pub limit: Option<u32>,
}

/// The Fault Tolerance Detail as data, api.md's chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChainView {
    /// The job.
    pub job_id: JobId,
    /// Its state.
    pub state: State,
    /// What goes on beside it.
    pub substate: Option<Substate>,
    /// Derived from the switches.
    pub mode: Mode,
    /// The first attempt.
    pub original_task_id: TaskId,
    /// The newest attempt.
    pub latest_task_id: TaskId,
    /// All attempts, those outside this page too.
    pub attempts_total: u32,
    /// Used and allowed.
    pub budgets: Budgets,
    /// Attempts in order.
    pub attempts: Vec<AttemptView>,
    /// Why no restart follows.
    pub why_not: Option<WhyNot>,
    /// Diagnoses of this job, newest first.
    pub diagnostics: Vec<DiagnosisView>,
    /// Where the accelerator time went.
    pub ledger: Ledger,
    /// Nodes this job keeps off, with why.
    pub excluded: Vec<ExcludedNode>,
    /// When this was read.
    pub now: Time,
}

/// A node that a job keeps off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExcludedNode {
    /// The node.
    pub node: NodeName,
    /// The newest incident that blamed it; none where no incident did.
    pub incident: Option<IncidentId>,
    /// Its type.
    pub failure_type: Option<engine::failure::FailureType>,
    /// The newest diagnosis that found it, where no incident blamed it since: its run id.
    pub diagnosis: Option<String>,
    /// When.
    pub at: Option<Time>,
}

/// One attempt with what belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptView {
    /// The attempt.
    #[serde(flatten)]
    pub attempt: AttemptRecord,
    /// Its launches.
    pub launches: Vec<LaunchRecord>,
    /// Its incidents.
    pub incidents: Vec<IncidentRecord>,
}

/// Which lines of a log.
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogQuery {
    /// None is the first replica.
    pub replica: Option<ReplicaName>,
    /// None is the newest.
    pub launch: Option<u32>,
    /// The last so many lines, 1–5,000; the default is 200 where `from` is absent.
    pub tail: Option<u32>,
    /// From this line number on, 1 is the first.
    pub from: Option<u64>,
    /// `error`, `warning` or `info` and above.
    pub level: Option<LogLevel>,
    /// Only lines that hold this text, whatever its case; at most 200 characters.
    pub q: Option<String>,
}

/// How grave a log line reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Everything else.
    Info,
    /// It says warning.
    Warning,
    /// It says error, or matched a signature.
    Error,
}

/// Lines of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogPage {
    /// The replica.
    pub replica: ReplicaName,
    /// The launch.
    pub launch: u32,
    /// Replicas there are logs of.
    pub replicas: Vec<ReplicaName>,
    /// Launches there are logs of.
    pub launches: Vec<u32>,
    /// The lines.
    pub lines: Vec<LogLine>,
    /// Where to go on; none while there is no more and nothing is to come.
    pub next: Option<u64>,
    /// Lines in the whole log, where that is known.
    pub total: Option<u64>,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogLine {
    /// Its number, from 1.
    pub n: u64,
    /// When it was read.
    pub at: Time,
    /// The rank that printed it.
    pub rank: Option<u32>,
    /// How grave it reads.
    pub level: LogLevel,
    /// The text.
    pub text: String,
}

/// Which events.
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventsQuery {
    /// Only this kind.
    pub kind: Option<EventKind>,
    /// Only this attempt.
    pub task: Option<TaskId>,
    /// `false`: without checkpoints saved and loaded, of which there may be thousands.
    pub checkpoints: Option<bool>,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// 1–500; none is 100.
    pub limit: Option<u32>,
}

/// Events, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventsPage {
    /// The events.
    pub items: Vec<EventRecord>,
    /// The next page.
    pub next_cursor: Option<String>,
    /// All that match.
    pub total: u64,
}

/// Which curve.
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsQuery {
    /// `loss`; none is that.
    pub metric: Option<String>,
    /// The axis; none is `step`.
    pub x: Option<MetricsAxis>,
}

/// The horizontal axis of a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MetricsAxis {
    /// Training step.
    #[default]
    Step,
    /// Wall clock.
    Clock,
    /// Time in which steps were made: the clock without queues, starts and waits.
    Active,
}

/// A curve, at most 2,000 points (lowest and highest of each bucket).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MetricsView {
    /// In order of time.
    pub points: Vec<MetricPoint>,
    /// Checkpoints that were saved.
    pub checkpoints: Vec<CheckpointMark>,
    /// How often to save; none in a sample without measurements.
    #[serde(default)]
    pub advice: Option<CheckpointAdvice>,
}

/// One point of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MetricPoint {
    /// The attempt.
    pub task_id: TaskId,
    /// Its launch.
    pub launch: u32,
    /// The step.
    pub step: u64,
    /// When.
    pub at: Time,
    /// The value.
    pub value: f64,
    /// It counts; false where a later launch made the step again (the ghost branch).
    pub kept: bool,
}

/// A checkpoint on the curve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckpointMark {
    /// The step.
    pub step: u64,
    /// When.
    pub at: Time,
}

/// What a posted form held and what was wrong with it, for the page that shows it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posted {
    /// The fields as they were typed, in order.
    pub fields: Vec<(String, String)>,
    /// What was wrong.
    pub errors: Vec<FieldError>,
    /// What the form changed by itself (linked switches), each a sentence.
    pub moved: Vec<String>,
    /// What the cluster said about the job, where it was asked.
    pub findings: Option<Vec<Finding>>,
}
