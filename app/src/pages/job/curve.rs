//! The loss curve of a job as its pages show it: drawing, time ledger, a lens on each recovery.

use engine::ids::TaskId;
use leptos::prelude::*;

use crate::{
    components::{
        chart::LossChart, failed::FailedPart, ledger::TimeLedger, lenses::Lenses, recoveries::recoveries,
    },
    console::{ChainView, JobView, MetricsAxis, MetricsView},
    error::AppError,
};

/// The axes of the curve, with their names and their words in addresses.
pub const AXES: [(&str, &str, MetricsAxis); 3] = [
    ("Step", "step", MetricsAxis::Step),
    ("Clock", "clock", MetricsAxis::Clock),
    ("Active time", "active", MetricsAxis::Active),
];

/// The axis in an address.
pub fn read_axis(text: Option<&str>) -> MetricsAxis {
    AXES.into_iter().find(|(_, word, _)| text == Some(*word)).map_or(MetricsAxis::Step, |(_, _, axis)| axis)
}

/// The tasks of a chain in order.
pub fn tasks(chain: &ChainView) -> Vec<TaskId> {
    chain.attempts.iter().map(|a| a.attempt.task_id.clone()).collect()
}

/// The curve with its ledger and its lenses.
#[component]
pub fn CurveFigure(
    /// The job.
    job: JobView,
    /// Its chain.
    chain: ChainView,
    /// Points and checkpoints, or why they could not be read.
    metrics: Result<MetricsView, AppError>,
    /// The horizontal axis.
    axis: MetricsAxis,
) -> impl IntoView {
    let per_gpu = job.spec.accelerators_per_replica > 0;
    let (all, tasks, ended) = (recoveries(&chain), tasks(&chain), chain.state.is_terminal());
    let (chart, lenses) = match metrics {
        Ok(metrics) => {
            let points = metrics.points.clone();
            (
                view! { <LossChart metrics recoveries=all.clone() axis metric="loss" tasks ended /> }
                    .into_any(),
                view! { <Lenses points recoveries=all /> }.into_any(),
            )
        }
        Err(error) => (view! { <div class="p-4"><FailedPart error /></div> }.into_any(), ().into_any()),
    };
    view! {
        <figure class="overflow-hidden rounded-lg border border-hair bg-raised">
            <div class="grid grid-cols-[minmax(0,1fr)_336px] max-xl:grid-cols-1">
                <div class="min-w-0">{chart}</div>
                <div class="border-l border-hair px-5 py-4 max-xl:border-t max-xl:border-l-0 max-sm:p-3">
                    <TimeLedger ledger=chain.ledger per_gpu />
                </div>
            </div>
            {lenses}
        </figure>
    }
}
