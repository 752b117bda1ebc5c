//! One attempt by its task ID.

use std::collections::{BTreeMap, BTreeSet};

use app::{
    console::{AttemptView, Caller},
    error::AppError,
    forms::manifest::write,
};
use engine::{
    chain::Plan,
    ids::{JobId, TaskId},
    job::{ClusterKind, SiteCluster},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Service, Wish, chain::with_details, failed, may, no_attempt};
use crate::{
    clusters::Order,
    store::{attempts, jobs},
};

/// One attempt with its neighbours.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TaskView {
    /// Its job.
    pub job_id: JobId,
    /// The attempt before it.
    pub previous_task_id: Option<TaskId>,
    /// The attempt after it.
    pub next_task_id: Option<TaskId>,
    /// The attempt.
    #[serde(flatten)]
    pub attempt: AttemptView,
}

impl Service {
    /// One attempt with its neighbours.
    ///
    /// # Errors
    /// There is no such attempt.
    pub async fn task(&self, caller: &Caller, id: &TaskId) -> Result<TaskView, AppError> {
        may(caller, Wish::See)?;
        let missing = || no_attempt(id);
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        let (job_id, record) = attempts::find(&mut conn, id).await.map_err(failed)?.ok_or_else(missing)?;
        let before = record.number.saturating_sub(1).max(1);
        let around = attempts::task_ids(&mut conn, &job_id, before, 3).await.map_err(failed)?;
        let place = around.iter().position(|task| task == id).ok_or_else(missing)?;
        let previous_task_id = place.checked_sub(1).and_then(|index| around.get(index)).cloned();
        let next_task_id = around.get(place + 1).cloned();
        let views = with_details(&mut conn, &job_id, vec![record]).await.map_err(failed)?;
        let attempt = views.into_iter().next().ok_or_else(missing)?;
        Ok(TaskView { job_id, previous_task_id, next_task_id, attempt })
    }

    /// The object of one attempt as YAML, as it is made with this server's settings of now. Of every attempt, whether its object is there or
    /// not; the tokens of its agents are in another object.
    ///
    /// # Errors
    /// There is no such attempt, or its cluster makes no objects.
    pub async fn task_manifest(&self, caller: &Caller, id: &TaskId) -> Result<String, AppError> {
        may(caller, Wish::See)?;
        let missing = || no_attempt(id);
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        let (job_id, record) = attempts::find(&mut conn, id).await.map_err(failed)?.ok_or_else(missing)?;
        let chain = jobs::chain(&mut conn, &job_id).await.map_err(failed)?.ok_or_else(missing)?.chain;
        drop(conn);
        let (spec, number) = (chain.spec(), record.number);
        let name = &spec.cluster;
        let is_local = |known: &SiteCluster| known.name == *name && known.kind == ClusterKind::Local;
        if self.site.clusters.iter().any(is_local) {
            let what = format!("manifest (cluster {name} runs programs of this machine) of attempt");
            return Err(AppError::NotFound { what, id: id.to_string() });
        }
        let before = number.checked_sub(1).filter(|before| *before > 0);
        let plan = Plan {
            task_id: id.clone(),
            number,
            previous_task_id: before.map(|before| TaskId::of_attempt(&spec.name, &job_id, before)),
            avoid: record.avoided_nodes.into_iter().collect(),
            only: BTreeSet::new(),
            quarantined: record.quarantined_nodes.into_iter().collect(),
        };
        let order = Order { job_id, spec: spec.clone(), plan, tokens: BTreeMap::new() };
        let cluster = self.clusters.get(name).ok_or_else(|| AppError::Conflict {
            why: format!(
                "Cluster {name} is not configured on this server, so nothing is known of its objects."
            ),
        })?;
        let refused = |why| AppError::Conflict { why: format!("Its manifest cannot be made: {why}.") };
        let object = cluster.manifest(&order).map_err(refused)?;
        Ok(format!(
            "# Attempt {number} of job {}, as Holdfast makes it with its settings of now.\n\
             # The tokens of its agents are in the Secret {id}-agents and not here.\n{}",
            order.job_id,
            write(&object)
        ))
    }
}
