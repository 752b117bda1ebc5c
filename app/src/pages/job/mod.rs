//! One job and its whole chain: the frame around six tabs, each an address of its own.

mod actions;
mod attempt;
mod curve;
mod data;
pub(crate) mod events;
mod fault_tables;
pub(crate) mod fault_tolerance;
mod follow;
pub(crate) mod logs;
mod manifest;
pub(crate) mod metrics;
pub(crate) mod overview;
pub(crate) mod spec;

use engine::{
    job::{JobKind, Mode},
    record::State,
};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::{
    Lazy, SsrMode,
    any_nested_route::IntoAnyNestedRoute,
    components::{Outlet, ParentRoute, Route},
    hooks::use_location,
    path,
};

use self::{actions::Actions, data::provide_job};
use crate::{
    components::{
        badge::{JobBadges, StateBadge, Tone, kind_name, mode_name},
        exit_save::Countdown,
        failed::FailedPage,
        icon::Mark,
        live_mark::LiveMark,
        notice::Notice,
        story::short_id,
        strip::Patterns,
        tabs::{Tab, Tabs},
    },
    console::JobView,
    error::AppError,
    format,
    live::use_live,
    parts::{job, records},
    paths,
};

/// The routes below `/jobs/{id}`.
#[component(transparent)]
pub fn JobRoutes() -> impl leptos_router::MatchNestedRoutes + Clone {
    view! {
        <ParentRoute path=path!("/jobs/:id") view={Lazy::<job::Frame>::new()} ssr=SsrMode::Async>
            <Route path=path!("") view={Lazy::<job::Overview>::new()} ssr=SsrMode::Async />
            <Route path=path!("fault-tolerance") view={Lazy::<job::FaultTolerance>::new()} ssr=SsrMode::Async />
            <Route path=path!("logs") view={Lazy::<records::Logs>::new()} ssr=SsrMode::Async />
            <Route path=path!("events") view={Lazy::<records::Events>::new()} ssr=SsrMode::Async />
            <Route path=path!("metrics") view={Lazy::<records::Metrics>::new()} ssr=SsrMode::Async />
            <Route path=path!("spec") view={Lazy::<records::Spec>::new()} ssr=SsrMode::Async />
        </ParentRoute>
    }
    .into_inner()
    .into_any_nested_route()
}

/// What stands around every tab: where one is, how the job is, what one can do.
#[component]
pub(crate) fn JobFrame() -> impl IntoView {
    let live = use_live();
    let id = data::use_job_id();
    live.watch(move || id.get().ok().map(|id| paths::job_stream(&id)));
    let job = provide_job();
    let path = use_location().pathname;
    view! {
        <Patterns />
        <Transition>
            {move || Suspend::new(async move {
                match job.await {
                    Ok(job) => view! { <Head job path /> }.into_any(),
                    Err(error) => view! { <Missing error /> }.into_any(),
                }
            })}
        </Transition>
        <Outlet />
    }
}

/// The head of a job that was read.
#[component]
fn Head(job: JobView, path: Memo<String>) -> impl IntoView {
    let name = job.name.clone();
    // The document asks for its title once more after the page was left, in the browser and on the server.
    let here = path.try_with_untracked(|path| current_tab(path)).unwrap_or(OVERVIEW);
    let title = move || format!("{name}, {}", path.try_with(|path| current_tab(path)).unwrap_or(here));
    let summary = job.summary.clone();
    let tabs = tabs(&job);
    let spec = &job.spec;
    let shape = match spec.accelerators_per_replica {
        // Its command is started once.
        0 if spec.kind == JobKind::RayJob => {
            let replicas = format::plural(u64::from(spec.replicas), "replica", "replicas");
            format!("{}, {replicas}", kind_name(spec.kind))
        }
        0 => format!(
            "{}, {} × {}",
            kind_name(spec.kind),
            format::plural(u64::from(spec.replicas), "replica", "replicas"),
            format::plural(u64::from(spec.processes_per_replica), "process", "processes")
        ),
        n => format!(
            "{}, {} × {}",
            kind_name(spec.kind),
            format::plural(u64::from(spec.replicas), "replica", "replicas"),
            format::plural(u64::from(n), "GPU", "GPUs")
        ),
    };
    view! {
        <Title text=title />
        <nav class="mb-1.5 flex gap-1.5 text-xs text-ink-3" aria-label="Breadcrumb">
            <a href=paths::JOBS>"Jobs"</a>
            <span aria-hidden="true">"/"</span>
            <span class="truncate">{job.name.clone()}</span>
        </nav>
        <div class="flex min-h-8 flex-wrap items-center gap-x-3 gap-y-2">
            <h1 class="min-w-0 wrap-anywhere">{job.name.clone()}</h1>
            <JobBadges state=summary.state substate=summary.substate large=true />
            <span class="text-ink-3">
                {match summary.saving_until {
                    Some(until) => view! { <Countdown until now=job.now /> }.into_any(),
                    None => summary.tail.clone().into_any(),
                }}
            </span>
            <Actions job=job.clone() />
        </div>
        <ul class="mt-2 flex flex-wrap items-center gap-x-5 gap-y-1.5 text-ink-2 [&>li]:inline-flex [&>li]:flex-wrap [&>li]:items-center [&>li]:gap-1.5">
            <li>
                {if summary.attempts_total > 1 { "original " } else { "attempt " }}
                <AttemptLink job=job.clone() original=true />
            </li>
            {(summary.attempts_total > 1)
                .then(|| {
                    view! { <li>"latest " <AttemptLink job=job.clone() original=false /></li> }
                })}
            {job
                .copied_from
                .as_ref()
                .map(|original| {
                    view! {
                        <li>
                            "copy of "
                            <a class="font-mono text-xs" href=paths::job(original)>{original.to_string()}</a>
                        </li>
                    }
                })}
            <li class="max-sm:hidden!">{shape}</li>
            <li class="max-sm:hidden!">{mode_name(summary.mode)}</li>
            <li class="max-sm:hidden!">{format!("by {}", job.owner)}</li>
            <li class="ml-auto max-sm:ml-0">
                <LiveMark now=job.now />
            </li>
        </ul>
        <Troubles told=job.cluster_troubles.clone() />
        {move || view! { <Tabs label="Job" tabs=tabs.clone() current=current_tab(&path.read()) /> }}
    }
}

/// What keeps the job's cluster from working for it, each with what to do.
#[component]
fn Troubles(told: Vec<String>) -> impl IntoView {
    (!told.is_empty()).then(|| {
        let told = told.into_iter().map(|text| view! { <p class="wrap-anywhere">{text}</p> });
        view! {
            <div class="mt-4">
                <Notice tone=Tone::Amber mark=Mark::Warning>{told.collect_view()}</Notice>
            </div>
        }
    })
}

/// The task of the first or the newest attempt with its own state, which may differ from the job's.
#[component]
fn AttemptLink(job: JobView, original: bool) -> impl IntoView {
    let (task, state): (_, State) = if original {
        (job.summary.original_task_id.clone(), job.original_state)
    } else {
        (job.summary.latest_task_id.clone(), job.latest_state)
    };
    view! {
        <a class="font-mono text-xs" href=paths::attempt(&job.job_id, &task) title=task.to_string()>
            {short_id(&task)}
        </a>
        <StateBadge state />
    }
}

/// A job that could not be read.
#[component]
fn Missing(error: AppError) -> impl IntoView {
    view! { <FailedPage error /> }
}

const OVERVIEW: &str = "Overview";
const FAULT_TOLERANCE: &str = "Fault Tolerance Detail";
const LOGS: &str = "Logs";
const EVENTS: &str = "Events";
const METRICS: &str = "Metrics/Loss";
const SPEC: &str = "Spec";

/// The tabs of a job. Fault Tolerance Detail is there with Auto Failover on or once there is something to show (R19).
fn tabs(job: &JobView) -> Vec<Tab> {
    let id = &job.job_id;
    let summary = &job.summary;
    let tolerant = summary.mode != Mode::None
        || summary.substate.is_some()
        || summary.attempts_total > 1
        || summary.failure_type.is_some();
    let tab = |label, href| Tab { label, href };
    [
        Some(tab(OVERVIEW, paths::job(id))),
        tolerant.then(|| tab(FAULT_TOLERANCE, paths::fault_tolerance(id))),
        Some(tab(LOGS, paths::logs(id))),
        Some(tab(EVENTS, paths::events(id))),
        Some(tab(METRICS, paths::metrics(id))),
        Some(tab(SPEC, paths::spec(id))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The tab that a path shows.
fn current_tab(path: &str) -> &'static str {
    match path.trim_end_matches('/').rsplit('/').next() {
        Some("fault-tolerance") => FAULT_TOLERANCE,
        Some("logs") => LOGS,
        Some("events") => EVENTS,
        Some("metrics") => METRICS,
        Some("spec") => SPEC,
        _ => OVERVIEW,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_tab_is_known_by_its_address() {
        let job = samples::job(&samples::chain());
        for tab in tabs(&job) {
            assert_eq!(current_tab(&tab.href), tab.label);
            assert_eq!(current_tab(&format!("{}/", tab.href)), tab.label);
        }
    }

    #[test]
    fn fault_tolerance_detail_is_there_when_it_has_something_to_say() {
        let mut job = samples::job(&samples::running());
        let has = |job: &JobView| tabs(job).iter().any(|tab| tab.label == FAULT_TOLERANCE);
        assert!(has(&job), "Auto Failover is on");
        job.summary.mode = Mode::None;
        assert!(!has(&job));
        job.summary.failure_type = Some(engine::failure::FailureType::Unknown);
        assert!(has(&job), "it has failed");
    }
}
