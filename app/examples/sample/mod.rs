//! A console with invented data.

mod chains;
mod jobs;
mod nodes;

use app::{
    console::{
        Caller, CapView, ChainPage, ChainView, ClusterNodes, Console, DiagnosisDetail, DiagnosisDraft,
        DiagnosisPlan, DiagnosisView, EventsPage, EventsQuery, FirstVisit, JobMay, JobView, JobsCounts,
        JobsPage, JobsQuery, JobsViewName, LogPage, LogQuery, MetricsQuery, MetricsView, NodePage,
        QuarantineOrder, UsageView,
    },
    error::AppError,
    forms::jobs_query,
};
use engine::{
    ids::{IncidentId, JobId, NodeName, TaskId},
    job::{
        ClusterKind, Finding, Fit, JobDraft, JobSpec, PodOptions, Site, SiteCluster, Volume, VolumeSource,
    },
    record::State,
    time::Time,
};

/// 29 Nov 2026, 14:02:31 UTC: when the sample was read.
pub const NOW: Time = Time(1_795_960_951_000_000);

/// The sample, or an installation without a job.
pub struct Sample {
    empty: bool,
}

impl Sample {
    /// With or without jobs.
    pub const fn new(empty: bool) -> Self {
        Self { empty }
    }

    fn absent<T>(&self, what: &str, id: &str) -> Result<T, AppError> {
        Err(AppError::NotFound { what: what.to_owned(), id: id.to_owned() })
    }
}

/// The fields of a form as browsers post them.
pub fn fields(body: &[u8]) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            match byte {
                b'+' => bytes.push(b' '),
                b'%' => {
                    let hex: String = rest.by_ref().take(2).map(char::from).collect();
                    bytes.extend(u8::from_str_radix(&hex, 16));
                }
                other => bytes.push(other),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let text = String::from_utf8_lossy(body);
    text.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (decode(k), decode(v))).collect()
}

/// A local cluster and one of Kubernetes.
fn site() -> Site {
    let mut site = Site::default();
    site.clusters.push(SiteCluster {
        max_slots_per_node: Some(8),
        total_slots: Some(128),
        ..SiteCluster::kubernetes("gpu-a")
    });
    site
}

/// What a job's pods are made of on `gpu-a`.
fn pods() -> PodOptions {
    let claim = |mount_path: &str, claim: &str, read_only| Volume {
        mount_path: mount_path.to_owned(),
        source: VolumeSource::Claim(claim.to_owned()),
        read_only,
    };
    PodOptions {
        cpu: Some("16".to_owned()),
        memory: Some("256Gi".to_owned()),
        shm_size: Some("32Gi".to_owned()),
        volumes: vec![claim("/data", "preferences", true), claim("/runs", "runs", false)],
        node_selector: [("pool".to_owned(), "a100".to_owned())].into(),
        labels: [("kueue.x-k8s.io/queue-name".to_owned(), "team-a".to_owned())].into(),
        ..PodOptions::default()
    }
}

fn spec(name: &str) -> Result<JobSpec, AppError> {
    let mut draft = JobDraft {
        name: name.to_owned(),
        command: ["python3", "examples/train.py", "--steps", "90000"].map(str::to_owned).to_vec(),
        replicas: Some(4),
        accelerators_per_replica: Some(2),
        checkpoint_dir: Some(format!("checkpoints/{name}")),
        ..JobDraft::default()
    };
    draft.fault_tolerance.auto_failover = Some(true);
    draft.fault_tolerance.max_task_restarts = Some(2);
    draft.fault_tolerance.policy.enabled = Some(true);
    if name == "dpo-70b" {
        draft.cluster = Some("gpu-a".to_owned());
        draft.image = Some("registry.example.com/team/dpo:2.9".to_owned());
        draft.checkpoint_dir = Some(format!("/runs/{name}"));
        draft.kubernetes = pods();
    }
    draft.validate(&site()).map_err(|errors| AppError::Invalid { errors })
}

/// The samples hold no diagnosis.
fn no_run(id: &str) -> AppError {
    AppError::NotFound { what: "diagnosis".to_owned(), id: id.to_owned() }
}

#[async_trait::async_trait]
impl Console for Sample {
    async fn jobs(&self, _: &Caller, query: &JobsQuery) -> Result<JobsPage, AppError> {
        let all = if self.empty { Vec::new() } else { jobs::rows() };
        let total = all.len() as u64;
        let of = |state: State| all.iter().filter(|row| row.summary.state == state).count() as u64;
        let counts = JobsCounts {
            attention: all.iter().filter(|row| row.summary.needs_attention).count() as u64,
            running: of(State::Running),
            recovering: of(State::Recovering),
            all: if self.empty { 0 } else { 8412 },
            mine: all.iter().filter(|row| row.owner == "user-1").count() as u64,
        };
        let items: Vec<_> = all
            .into_iter()
            .filter(|row| query.q.as_ref().is_none_or(|q| row.name.contains(q.as_str())))
            .filter(|row| query.state.is_none_or(|state| row.summary.state == state))
            .filter(|row| query.fault.is_none_or(|fault| row.summary.failure_type == Some(fault)))
            .filter(|row| match query.view {
                None | Some(JobsViewName::All) => true,
                Some(JobsViewName::Attention) => row.summary.needs_attention,
                Some(JobsViewName::Running) => row.summary.state == State::Running,
                Some(JobsViewName::Recovering) => row.summary.state == State::Recovering,
                Some(JobsViewName::Mine) => row.owner == "user-1",
            })
            .collect();
        let total = if items.len() as u64 == total && !self.empty { 143 } else { items.len() as u64 };
        let is_first = self.empty && !jobs_query::is_filtered(query);
        let first_visit = is_first.then(|| FirstVisit { demo: site().has(ClusterKind::Local) });
        Ok(JobsPage { items, total, page: query.page.unwrap_or(1), size: 15, counts, now: NOW, first_visit })
    }

    async fn job(&self, _: &Caller, id: &JobId) -> Result<JobView, AppError> {
        if let Some(chain) = chains::find(id) {
            return Ok(chains::samples::job(&chain));
        }
        let Some(row) = jobs::rows().into_iter().find(|row| row.job_id == *id) else {
            return self.absent("job", id.as_str());
        };
        Ok(JobView {
            job_id: row.job_id,
            spec: spec(&row.name)?,
            name: row.name,
            owner: row.owner,
            copied_from: None,
            created_at: row.created_at,
            ended_at: None,
            original_state: State::Failed,
            latest_state: row.summary.state,
            summary: row.summary,
            may: JobMay { resubmit: Some("It has not ended.".to_owned()), ..JobMay::default() },
            cluster_configured: true,
            cluster_troubles: Vec::new(),
            now: NOW,
        })
    }

    async fn chain(&self, _: &Caller, id: &JobId, _: ChainPage) -> Result<ChainView, AppError> {
        match chains::find(id) {
            Some(chain) => Ok(chain),
            None => self.absent("chain of job", id.as_str()),
        }
    }

    async fn logs(&self, _: &Caller, _: &TaskId, query: &LogQuery) -> Result<LogPage, AppError> {
        Ok(chains::log(query))
    }

    async fn events(&self, _: &Caller, _: &JobId, _: &EventsQuery) -> Result<EventsPage, AppError> {
        Ok(chains::events())
    }

    async fn metrics(&self, _: &Caller, id: &JobId, _: &MetricsQuery) -> Result<MetricsView, AppError> {
        match chains::find(id) {
            Some(chain) => Ok(chains::samples::metrics(&chain)),
            None => Ok(MetricsView { points: Vec::new(), checkpoints: Vec::new(), advice: None }),
        }
    }

    async fn create(&self, caller: &Caller, draft: &JobDraft, _: Option<&JobId>) -> Result<JobId, AppError> {
        let site = self.site(caller).await?;
        draft.validate(&site).map_err(|errors| AppError::Invalid { errors })?;
        Ok(jobs::job_id(0))
    }

    async fn check(&self, _: &Caller, _: &JobDraft) -> Result<Vec<Finding>, AppError> {
        Ok(vec![
            Finding::whole(Fit::Later, "4 of 6 replicas fit now, 2 will wait."),
            Finding::at(
                "kubernetes.volumes[0].source",
                Fit::Ok,
                "PersistentVolumeClaim train-data is there.",
            ),
        ])
    }

    async fn stop(&self, _: &Caller, _: &JobId, _: bool) -> Result<(), AppError> {
        Ok(())
    }

    async fn delete(&self, _: &Caller, _: &JobId, _: bool) -> Result<(), AppError> {
        Ok(())
    }

    async fn resubmit(&self, _: &Caller, _: &JobId) -> Result<(), AppError> {
        Ok(())
    }

    async fn acknowledge(&self, _: &Caller, _: &JobId) -> Result<(), AppError> {
        Ok(())
    }

    async fn test_exit(&self, _: &Caller, _: &JobId) -> Result<(), AppError> {
        Ok(())
    }

    async fn feedback(&self, _: &Caller, _: &IncidentId, _: Option<bool>) -> Result<(), AppError> {
        Ok(())
    }

    async fn nodes(&self, _: &Caller) -> Result<Vec<ClusterNodes>, AppError> {
        let (cluster, nodes) = ("gpu-a".to_owned(), nodes::all());
        Ok(vec![ClusterNodes { cluster, nodes, trouble: None, cap: nodes::cap() }])
    }

    async fn usage(&self, _: &Caller, days: u32) -> Result<UsageView, AppError> {
        Ok(nodes::usage(days))
    }

    async fn node(&self, _: &Caller, _: Option<&str>, name: &NodeName) -> Result<NodePage, AppError> {
        match nodes::page(name) {
            Some(page) => Ok(page),
            None => self.absent("node", name.as_str()),
        }
    }

    async fn quarantine(&self, _: &Caller, _: &NodeName, _: &QuarantineOrder) -> Result<(), AppError> {
        Ok(())
    }

    async fn release_node(&self, _: &Caller, _: Option<&str>, _: &NodeName) -> Result<(), AppError> {
        Ok(())
    }

    async fn reset_cap(&self, _: &Caller, _: Option<&str>) -> Result<CapView, AppError> {
        Ok(nodes::cap())
    }

    async fn diagnosis_plan(
        &self,
        _: &Caller,
        id: &JobId,
        _: &DiagnosisDraft,
    ) -> Result<DiagnosisPlan, AppError> {
        Err(no_run(id.as_str()))
    }

    async fn diagnose(&self, _: &Caller, id: &JobId, _: &DiagnosisDraft) -> Result<String, AppError> {
        Err(no_run(id.as_str()))
    }

    async fn diagnoses(&self, _: &Caller, _: Option<&JobId>) -> Result<Vec<DiagnosisView>, AppError> {
        Ok(Vec::new())
    }

    async fn diagnosis(&self, _: &Caller, run_id: &str) -> Result<DiagnosisDetail, AppError> {
        Err(no_run(run_id))
    }

    async fn stop_diagnosis(&self, _: &Caller, run_id: &str) -> Result<(), AppError> {
        Err(no_run(run_id))
    }

    async fn site(&self, _: &Caller) -> Result<Site, AppError> {
        Ok(site())
    }

    async fn task_manifest(&self, _: &Caller, task: &TaskId) -> Result<String, AppError> {
        Ok(format!("apiVersion: \"kubeflow.org/v1\"\nkind: \"PyTorchJob\"\nmetadata:\n  name: \"{task}\"\n"))
    }

    fn read_manifest(&self, text: &str) -> Result<serde_json::Value, String> {
        serde_json::from_str(text).map_err(|why| format!("cannot be read: {why}"))
    }

    fn now(&self) -> Time {
        NOW
    }
}
