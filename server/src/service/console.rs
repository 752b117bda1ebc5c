//! The service as pages and the API see it.

use app::{
    console::{
        Caller, CapView, ChainPage, ChainView, ClusterNodes, Console, DiagnosisDetail, DiagnosisDraft,
        DiagnosisPlan, DiagnosisView, EventsPage, EventsQuery, JobView, JobsPage, JobsQuery, LogPage,
        LogQuery, MetricsQuery, MetricsView, NodePage, QuarantineOrder, UsageView,
    },
    error::AppError,
};
use engine::{
    ids::{IncidentId, JobId, NodeName, TaskId},
    job::{Finding, JobDraft, Site},
    time::Time,
};

use super::{Service, Wish, may};
use crate::yaml;

#[async_trait::async_trait]
impl Console for Service {
    async fn jobs(&self, caller: &Caller, query: &JobsQuery) -> Result<JobsPage, AppError> {
        self.list_jobs(caller, query).await
    }

    async fn job(&self, caller: &Caller, id: &JobId) -> Result<JobView, AppError> {
        self.view_job(caller, id).await
    }

    async fn chain(&self, caller: &Caller, id: &JobId, page: ChainPage) -> Result<ChainView, AppError> {
        self.view_chain(caller, id, page).await
    }

    async fn logs(&self, caller: &Caller, task: &TaskId, query: &LogQuery) -> Result<LogPage, AppError> {
        self.read_logs(caller, task, query).await
    }

    async fn events(&self, caller: &Caller, id: &JobId, query: &EventsQuery) -> Result<EventsPage, AppError> {
        self.list_events(caller, id, query).await
    }

    async fn metrics(
        &self,
        caller: &Caller,
        id: &JobId,
        query: &MetricsQuery,
    ) -> Result<MetricsView, AppError> {
        self.read_metrics(caller, id, query).await
    }

    async fn create(
        &self,
        caller: &Caller,
        draft: &JobDraft,
        copied_from: Option<&JobId>,
    ) -> Result<JobId, AppError> {
        self.create_job(caller, draft, copied_from, None).await
    }

    async fn check(&self, caller: &Caller, draft: &JobDraft) -> Result<Vec<Finding>, AppError> {
        self.check_job(caller, draft).await
    }

    async fn stop(&self, caller: &Caller, id: &JobId, force: bool) -> Result<(), AppError> {
        self.stop_job(caller, id, force).await
    }

    async fn delete(&self, caller: &Caller, id: &JobId, force: bool) -> Result<(), AppError> {
        self.delete_job(caller, id, force).await
    }

    async fn resubmit(&self, caller: &Caller, id: &JobId) -> Result<(), AppError> {
        self.resubmit_job(caller, id).await
    }

    async fn acknowledge(&self, caller: &Caller, id: &JobId) -> Result<(), AppError> {
        self.acknowledge_job(caller, id).await
    }

    async fn test_exit(&self, caller: &Caller, id: &JobId) -> Result<(), AppError> {
        self.test_exit_of(caller, id).await
    }

    async fn feedback(
        &self,
        caller: &Caller,
        incident: &IncidentId,
        right: Option<bool>,
    ) -> Result<(), AppError> {
        self.keep_feedback(caller, incident, right).await
    }

    async fn nodes(&self, caller: &Caller) -> Result<Vec<ClusterNodes>, AppError> {
        self.list_nodes(caller).await
    }

    async fn usage(&self, caller: &Caller, days: u32) -> Result<UsageView, AppError> {
        self.read_usage(caller, days).await
    }

    async fn diagnosis_plan(
        &self,
        caller: &Caller,
        id: &JobId,
        draft: &DiagnosisDraft,
    ) -> Result<DiagnosisPlan, AppError> {
        self.plan_diagnosis(caller, id, draft).await
    }

    async fn diagnose(
        &self,
        caller: &Caller,
        id: &JobId,
        draft: &DiagnosisDraft,
    ) -> Result<String, AppError> {
        self.begin_diagnosis(caller, id, draft).await
    }

    async fn diagnoses(&self, caller: &Caller, job: Option<&JobId>) -> Result<Vec<DiagnosisView>, AppError> {
        self.list_diagnoses(caller, job).await
    }

    async fn diagnosis(&self, caller: &Caller, run_id: &str) -> Result<DiagnosisDetail, AppError> {
        self.view_diagnosis(caller, run_id).await
    }

    async fn stop_diagnosis(&self, caller: &Caller, run_id: &str) -> Result<(), AppError> {
        self.stop_run(caller, run_id).await
    }

    async fn node(
        &self,
        caller: &Caller,
        cluster: Option<&str>,
        name: &NodeName,
    ) -> Result<NodePage, AppError> {
        self.view_node(caller, cluster, name).await
    }

    async fn quarantine(
        &self,
        caller: &Caller,
        name: &NodeName,
        order: &QuarantineOrder,
    ) -> Result<(), AppError> {
        self.quarantine_node(caller, name, order).await
    }

    async fn release_node(
        &self,
        caller: &Caller,
        cluster: Option<&str>,
        name: &NodeName,
    ) -> Result<(), AppError> {
        self.let_in(caller, cluster, name).await
    }

    async fn reset_cap(&self, caller: &Caller, cluster: Option<&str>) -> Result<CapView, AppError> {
        self.reset_node_cap(caller, cluster).await
    }

    async fn site(&self, caller: &Caller) -> Result<Site, AppError> {
        may(caller, Wish::See)?;
        Ok(self.site_now())
    }

    async fn task_manifest(&self, caller: &Caller, task: &TaskId) -> Result<String, AppError> {
        Self::task_manifest(self, caller, task).await
    }

    fn read_manifest(&self, text: &str) -> Result<serde_json::Value, String> {
        yaml::read(text)
    }

    fn now(&self) -> Time {
        self.clock.now()
    }
}
