//! The curve of a metric over all attempts, as drawing, table and CSV, with the time ledger beside it.

use engine::{
    advice::CheckpointAdvice,
    ids::{JobId, TaskId},
};
use leptos::prelude::*;

use super::{
    curve::{AXES, CurveFigure, read_axis, tasks},
    data::{self, use_query, use_whole},
};
use crate::{
    components::{
        button::Look,
        chart::{self, ChartKey},
        class,
        icon::{Icon, Mark},
        segmented::Segmented,
        table::{DataTable, Panel, SectionHead},
        when::ClockTime,
    },
    console::{ChainView, JobView, MetricPoint, MetricsAxis, MetricsQuery, MetricsView},
    error::AppError,
    format, paths,
    server_fns::jobs::get_metrics,
};

/// Rows of the table; the CSV has all.
const ROWS: usize = 200;

/// Where the curve is had as CSV.
pub fn csv_address(job: &JobId) -> String {
    format!("/api/v1/jobs/{job}/metrics?metric=loss&format=csv")
}

/// The tab.
#[component]
pub fn Metrics() -> impl IntoView {
    let (id, slow, whole) = (data::use_job_id(), data::use_slow_ticks(), use_whole());
    let x = use_query("x");
    let axis = move || read_axis(x.get().as_deref());
    let metrics = Resource::new_blocking(
        move || (id.get(), axis(), slow.get()),
        |(id, axis, _)| async move { get_metrics(id?, MetricsQuery { metric: None, x: Some(axis) }).await },
    );
    view! {
        <Transition>
            {move || {
                let axis = axis();
                whole.show(metrics, move |job, chain, metrics| view! { <Loaded job chain metrics axis /> }.into_any())
            }}
        </Transition>
    }
}

#[component]
fn Loaded(
    job: JobView,
    chain: ChainView,
    metrics: Result<MetricsView, AppError>,
    axis: MetricsAxis,
) -> impl IntoView {
    let page = paths::metrics(&job.job_id);
    let csv = csv_address(&job.job_id);
    let choices = AXES.map(|(name, word, x)| (name, format!("{page}?x={word}"), x == axis)).to_vec();
    let advice = metrics.as_ref().ok().and_then(|metrics| metrics.advice.clone());
    let table =
        metrics.as_ref().map_or_else(|_| ().into_any(), |metrics| table(&metrics.points, &tasks(&chain)));
    view! {
        <section class="mt-5" aria-labelledby="curve-h">
            <SectionHead id="curve-h" title="Loss over all attempts">
                <ChartKey />
                <span class="ml-auto inline-flex flex-wrap items-center gap-2 max-sm:ml-0">
                    <Segmented label="Horizontal axis" choices />
                    <a href=csv rel="external" class=Look::Plain.class()>
                        <Icon mark=Mark::Download />
                        "CSV"
                    </a>
                </span>
            </SectionHead>
            <CurveFigure job chain metrics axis />
        </section>
        {advice.map(|advice| view! { <Advice advice /> })}
        {table}
    }
}

/// How often to save, with what that rests on.
#[component]
fn Advice(advice: CheckpointAdvice) -> impl IntoView {
    let seconds = |value: Option<f64>| value.map_or_else(|| "not known".to_owned(), format::duration);
    let failures = format!(
        "{} in {} of steps",
        format::plural(advice.failures.into(), "failure", "failures"),
        format::duration(advice.running_seconds)
    );
    let save = match advice.save_seconds {
        Some(save) => format!("{save:.2} s, the median of {}", advice.saves_measured),
        None => "not known".to_owned(),
    };
    view! {
        <section class="mt-8" aria-labelledby="advice-h">
            <SectionHead id="advice-h" title="How often to save" />
            <p class="font-semibold">{advice.text}</p>
            <dl class=format!("mt-2 {}", class::FACTS)>
                <dt>"Failures"</dt>
                <dd>{failures}</dd>
                <dt>"Between two"</dt>
                <dd>{seconds(advice.between_failures_seconds)}</dd>
                <dt>"A save takes"</dt>
                <dd>{save}</dd>
                <dt>"Saved every"</dt>
                <dd>{seconds(advice.interval_seconds)}</dd>
            </dl>
            <p class="mt-2 text-xs text-ink-3">
                "Daly's estimate of the interval that loses least to failures and to saving, from what was measured of this job."
            </p>
        </section>
    }
}

/// The same values as a table: the newest rows.
fn table(points: &[MetricPoint], tasks: &[TaskId]) -> AnyView {
    if points.is_empty() {
        return ().into_any();
    }
    let hidden = points.len().saturating_sub(ROWS);
    let rows = points
        .iter()
        .rev()
        .take(ROWS)
        .map(|point| {
            let attempt = tasks.iter().position(|t| *t == point.task_id).map(|i| (i + 1).to_string());
            view! {
                <tr>
                    <td class="text-right">{format::count(point.step)}</td>
                    <td class="text-right">{chart::number(point.value)}</td>
                    <td>{attempt}</td>
                    <td>{point.launch}</td>
                    <td>
                        <ClockTime at=point.at />
                    </td>
                    <td>{if point.kept { "kept" } else { "made again later" }}</td>
                </tr>
            }
        })
        .collect_view();
    let note = if hidden > 0 {
        format!(
            "The newest {}; the CSV has all {}.",
            format::count(ROWS as u64),
            format::count(points.len() as u64)
        )
    } else {
        format::plural(points.len() as u64, "point", "points")
    };
    view! {
        <section class="mt-8" id="table" aria-labelledby="values-h">
            <SectionHead id="values-h" title="Values">
                <span class="text-ink-3">{note}</span>
            </SectionHead>
            <Panel>
                <div class="max-h-96 overflow-y-auto">
                    <DataTable caption="Values of the curve, newest first" class=class::TABLE>
                        <thead>
                            <tr>
                                <th scope="col" class="text-right">"Step"</th>
                                <th scope="col" class="text-right">"Loss"</th>
                                <th scope="col">"Attempt"</th>
                                <th scope="col">"Launch"</th>
                                <th scope="col">"Time"</th>
                                <th scope="col">"Counts"</th>
                            </tr>
                        </thead>
                        <tbody>{rows}</tbody>
                    </DataTable>
                </div>
            </Panel>
        </section>
    }
    .into_any()
}
