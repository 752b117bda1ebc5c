//! A job's curves.

use app::{
    console::{Caller, CheckpointMark, MetricPoint, MetricsQuery, MetricsView},
    error::AppError,
};
use engine::{
    advice::{CheckpointAdvice, Measured, Step, advise},
    ids::JobId,
    job::FieldError,
    ledger,
};

use super::{Service, Wish, failed, may};
use crate::store::{checkpoints, incidents, jobs, points};

impl Service {
    pub(super) async fn read_metrics(
        &self,
        caller: &Caller,
        id: &JobId,
        query: &MetricsQuery,
    ) -> Result<MetricsView, AppError> {
        may(caller, Wish::See)?;
        if let Some(other) = query.metric.as_deref().filter(|metric| *metric != "loss") {
            let shown: String = other.chars().take(80).collect();
            let rule = format!("`{shown}` is not recorded; use loss");
            return Err(AppError::Invalid { errors: vec![FieldError::new("metric", rule)] });
        }
        let head = self.head(id).await?;
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        let chain = jobs::chain(&mut conn, id).await.map_err(failed)?;
        let failures = incidents::count(&mut conn, id).await.map_err(failed)?;
        let points = points::loss(&mut conn, id).await.map_err(failed)?;
        let checkpoints = checkpoints::of_job(&mut conn, id).await.map_err(failed)?;
        let advice = chain.map(|stored| {
            let ledger = &head.summary.ledger;
            let running_seconds = (ledger.kept + ledger.redone) / ledger::accelerators(stored.chain.spec());
            advice_of(running_seconds, failures, &points, &checkpoints)
        });
        Ok(MetricsView { points, checkpoints, advice })
    }
}

/// How often the job should save. The points are some of all, which is enough.
fn advice_of(
    running_seconds: f64,
    failures: u32,
    points: &[MetricPoint],
    checkpoints: &[CheckpointMark],
) -> CheckpointAdvice {
    let mut launch = 0;
    let mut steps: Vec<Step> = Vec::with_capacity(points.len());
    for (index, point) in points.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &points[before]);
        if before.is_some_and(|before| (&before.task_id, before.launch) != (&point.task_id, point.launch)) {
            launch += 1;
        }
        steps.push(Step { launch, step: point.step, at: point.at });
    }
    let mut saves: Vec<_> = checkpoints.iter().map(|mark| mark.at).collect();
    saves.sort();
    advise(&Measured { running_seconds, failures, steps: &steps, saves: &saves })
}
