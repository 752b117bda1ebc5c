//! Fault Tolerance Detail, the centre of the product: four answers, the retry chain, the incidents with their evidence, the
//! recovery check, the curve with its ghosts, and what all of it cost.

use leptos::prelude::*;

use super::{
    attempt::AttemptHead,
    curve::{AXES, CurveFigure, read_axis},
    data::{self, selected, use_query, use_whole},
    fault_tables::{Attempts, Excluded, Settings},
};
use crate::{
    components::{
        answers::{Answer, Answers},
        badge::{Tone, TypeCode},
        button::Look,
        chain::Chain,
        chart::ChartKey,
        icon::{Icon, Mark},
        incident::{device_time, incident},
        notice::{Empty, Notice},
        pips::PipRow,
        proof::RecoveryCheck,
        segmented::Segmented,
        story::{self, Shown},
        summary_text,
        table::{DerivedNote, Panel, SectionHead},
        timeline::Timeline,
    },
    console::{ChainView, JobView, MetricsAxis, MetricsQuery, MetricsView},
    error::AppError,
    format::{self, so_far},
    paths,
    preferences::use_zone,
    server_fns::jobs::get_metrics,
};

/// Records of incidents that are shown: the newest.
const RECORDS: usize = 50;

/// How the chain is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Chain,
    Timeline,
    Table,
}

impl View {
    fn read(text: Option<&str>) -> Self {
        match text {
            Some("timeline") => Self::Timeline,
            Some("table") => Self::Table,
            _ => Self::Chain,
        }
    }
}

/// The tab.
#[component]
pub fn FaultToleranceDetail() -> impl IntoView {
    let whole = use_whole();
    let (id, axis) = (data::use_job_id(), use_query("x"));
    let slow = data::use_slow_ticks();
    let metrics = Resource::new_blocking(
        move || (id.get(), axis.get(), slow.get()),
        |(id, axis, _)| async move {
            get_metrics(id?, MetricsQuery { metric: None, x: Some(read_axis(axis.as_deref())) }).await
        },
    );
    let (task, view, from) = (use_query("task"), use_query("view"), use_query("from"));
    view! {
        <Transition>
            {move || {
                let asked = Asked {
                    task: task.get(),
                    view: View::read(view.get().as_deref()),
                    from: from.get().and_then(|text| text.parse().ok()),
                    axis: read_axis(axis.get().as_deref()),
                };
                whole.show(metrics, move |job, chain, metrics| view! { <Loaded job chain metrics asked /> }.into_any())
            }}
        </Transition>
    }
}

/// What the address asks for.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    task: Option<String>,
    view: View,
    from: Option<u32>,
    axis: MetricsAxis,
}

/// The page once it is read.
#[component]
fn Loaded(
    job: JobView,
    chain: ChainView,
    metrics: Result<MetricsView, AppError>,
    asked: Asked,
) -> impl IntoView {
    let chosen = selected(&chain, asked.task.as_deref());
    let shown: Vec<u32> =
        story::attempts(&story::shown(&chain, asked.from)).iter().map(|a| a.attempt.number).collect();
    let summary = summary_text::of(&job, &chain, use_zone());
    let counsel = story::counsel(&chain, &job.spec);
    let listed = shown.clone();
    let page = paths::fault_tolerance(&job.job_id);
    let wide = asked.view != View::Chain;
    let columns = if wide {
        "mt-8 grid grid-cols-1 items-start gap-x-8 gap-y-8"
    } else {
        "mt-8 grid grid-cols-[minmax(0,1.22fr)_minmax(0,1fr)] items-start gap-x-8 gap-y-8 max-xl:grid-cols-1"
    };
    view! {
        <div class="flex flex-wrap items-end gap-x-4">
            <div class="min-w-0 flex-1">
                <AttemptHead chain=chain.clone() selected=chosen.clone() page />
            </div>
            <a href=paths::bundle(&job.job_id) rel="external" download="" class=Look::Plain.class()>
                <Icon mark=Mark::Download />
                "Bundle"
            </a>
            <SummaryText text=summary />
        </div>
        <Four job=job.clone() chain=chain.clone() />
        {(!counsel.is_empty()).then(|| view! { <Counsel sentences=counsel /> })}
        <div class=columns>
            <ChainSection job=job.clone() chain=chain.clone() asked=asked.clone() selected=chosen.number />
            <Incidents job=job.clone() chain=chain.clone() shown=shown.clone() />
        </div>
        <RecoveryCheck chain=chain.clone() world_size=job.spec.world_size() attempts=shown />
        <Curve job=job.clone() chain=chain.clone() metrics axis=asked.axis />
        {(asked.view != View::Table)
            .then(|| {
                view! {
                    <section class="mt-8" id="attempts" aria-labelledby="att-h">
                        <SectionHead id="att-h" title="Attempts">
                            <span class="text-ink-3">
                                {format!(
                                    "{}. In-place restarts stay inside their attempt.",
                                    format::plural(u64::from(chain.attempts_total), "task", "tasks"),
                                )}
                            </span>
                        </SectionHead>
                        <Attempts chain=chain.clone() only=listed />
                    </section>
                }
            })}
        <div class="mt-8 grid grid-cols-2 items-start gap-8 max-xl:grid-cols-1">
            <Excluded chain=chain.clone() />
            <Settings job=job.clone() />
        </div>
    }
}

/// What to keep for a report, as text; selectable without script.
#[component]
fn SummaryText(text: String) -> impl IntoView {
    view! {
        <details class="relative">
            <summary class="bare-summary inline-flex h-7.5 items-center gap-1.5 rounded-md border border-edge bg-raised px-3 font-medium hover:bg-hover max-sm:min-h-11">
                <Icon mark=Mark::Copy />
                "Summary"
            </summary>
            <div class="absolute right-0 z-(--z-over) mt-1.5 w-160 max-w-[calc(100vw-2rem)] rounded-lg bg-raised p-4 shadow-over max-sm:left-0">
                <p class="mb-2 text-xs text-ink-3">"Task ids, actions, checkpoint and key log lines, to paste into a report."</p>
                <pre class="max-h-96 overflow-auto rounded-md border border-hair bg-sunken p-3 text-xs select-all" tabindex="0" role="region" aria-label="Summary as text">
                    {text}
                </pre>
            </div>
        </details>
    }
}

/// The four answers.
#[component]
fn Four(job: JobView, chain: ChainView) -> impl IntoView {
    let acted = story::did_recovery_act(&chain);
    let act = story::must_i_act(&job, &chain);
    let per_gpu = job.spec.accelerators_per_replica > 0;
    let incidents = story::incidents(&chain);
    let costs: Vec<f64> = incidents
        .iter()
        .filter_map(|n| n.incident.cost.accelerator_seconds)
        .filter(|s| s.is_finite())
        .collect();
    let lost: f64 = costs.iter().sum();
    let ended = chain.state.is_terminal();
    let cost = match (incidents.is_empty(), costs.is_empty()) {
        (true, _) => format!("Nothing{}", so_far(ended)),
        (false, true) => "Not known".to_owned(),
        _ => format!("{} lost", device_time(lost, per_gpu)),
    };
    let none = incidents.is_empty();
    let types = story::types(&chain)
        .into_iter()
        .enumerate()
        .map(|(i, (failure, n))| {
            view! { {(i > 0).then_some(", ")} <TypeCode failure /> {format!(" {n}")} }
        })
        .collect_view();
    let left = chain.clone();
    let by_hand = (job.may.resubmit.is_none() && act.word != "No").then(|| {
        view! { <p class="mt-1 text-xs text-ink-3">"Resubmitting by hand is possible; it is not charged."</p> }
    });
    view! {
        <Answers>
            <Answer question="Did recovery act?" answer=acted.word>
                <p>{acted.text}</p>
                <p class="mt-1 text-xs text-ink-3">{acted.note}</p>
            </Answer>
            <Answer question="What is left?">
                <Budgets chain=left />
            </Answer>
            <Answer question="Must I act?" answer=act.word>
                <p>{act.text}</p>
                {by_hand}
            </Answer>
            <Answer question="What did it cost?" answer=cost>
                <p>{types}</p>
                <p class="mt-1 text-xs text-ink-3">
                    {if none { "no incident" } else { "noticing, starting and steps made again" }}
                </p>
            </Answer>
        </Answers>
    }
}

/// The counters, never summed.
#[component]
fn Budgets(chain: ChainView) -> impl IntoView {
    use engine::job::Mode;
    let budgets = chain.budgets;
    let in_place = matches!(chain.mode, Mode::Advanced | Mode::Full);
    let row = |word: &'static str, used: engine::record::Used| {
        view! {
            <li class="grid grid-cols-[minmax(0,1fr)_auto] items-baseline gap-x-2.5">
                <span class="flex flex-wrap items-center gap-x-2">
                    <PipRow used />
                    {word}
                </span>
                <span class="whitespace-nowrap">
                    <b>{used.used}</b>
                    {format!(" of {} used, ", used.allowed)}
                    <b>{format!("{} left", used.left())}</b>
                </span>
            </li>
        }
    };
    let none = match chain.mode {
        Mode::None => Some("Auto Failover is off: no restart follows a failure."),
        Mode::Basic => Some("Basic mode never restarts in place."),
        Mode::Advanced | Mode::Full => None,
    };
    view! {
        <ul class="mt-0.5 grid gap-[3px]">
            {row("Task restarts", budgets.task_restarts)}
            {in_place.then(|| row("In place here", budgets.in_place_restarts))}
            {(chain.mode == Mode::Full).then(|| row("In place after a hang", budgets.hang_restarts))}
            {(budgets.diagnostics.used > 0)
                .then(|| {
                    let text = format!("{}, not charged", budgets.diagnostics.used);
                    // The newest few; the page of all runs has the rest.
                    let runs = chain.diagnostics.iter().take(3).map(|run| {
                        let what = run.text.clone().unwrap_or_else(|| "goes on".to_owned());
                        view! {
                            <li class="text-xs">
                                <a href=paths::diagnosis(&run.run_id)>{format!("bisect #{}", run.number)}</a>
                                ": " {what}
                            </li>
                        }
                    });
                    view! {
                        <li class="flex justify-between gap-2.5"><span>"Diagnoses"</span><span>{text}</span></li>
                        {runs.collect_view()}
                    }
                })}
            {none.map(|text| view! { <li class="text-xs text-ink-3">{text}</li> })}
        </ul>
    }
}

/// What frequent restarts have in common.
#[component]
fn Counsel(sentences: Vec<String>) -> impl IntoView {
    view! {
        <div class="mt-5">
            <Notice tone=Tone::Amber mark=Mark::Warning>
                <p>
                    <b>"Frequent restarts. "</b>
                    {sentences.join(" ")}
                </p>
            </Notice>
        </div>
    }
}

/// The chain in the view that was asked for.
#[component]
fn ChainSection(job: JobView, chain: ChainView, asked: Asked, selected: u32) -> impl IntoView {
    let page = paths::fault_tolerance(&job.job_id);
    let task = asked.task.as_ref().map(|task| format!("&task={}", paths::encode(task))).unwrap_or_default();
    let choices = [
        ("Chain", "chain", View::Chain),
        ("Timeline", "timeline", View::Timeline),
        ("Table", "table", View::Table),
    ]
    .map(|(name, word, view)| (name, format!("{page}?view={word}{task}"), view == asked.view))
    .to_vec();
    let shown = story::shown(&chain, asked.from);
    let folded: u32 =
        shown.iter().map(|s| if let Shown::Folded { count, .. } = s { *count } else { 0 }).sum();
    let numbers: Vec<u32> = story::attempts(&shown).iter().map(|a| a.attempt.number).collect();
    let drawing = match asked.view {
        View::Chain => view! { <Chain job chain=chain.clone() from=asked.from selected /> }.into_any(),
        View::Timeline => view! {
            <Timeline chain=chain.clone() attempts=numbers />
            {(folded > 0).then(|| view! { <p class="mt-2 text-xs text-ink-3">{format!("{folded} attempts folded")}</p> })}
        }
        .into_any(),
        View::Table => view! { <Attempts chain=chain.clone() /> }.into_any(),
    };
    view! {
        <section aria-labelledby="chain-h" class="min-w-0">
            <SectionHead id="chain-h" title="Retry chain">
                <span class="ml-auto max-sm:ml-0">
                    <Segmented label="Chain view" choices />
                </span>
            </SectionHead>
            {drawing}
        </section>
    }
}

/// The records of the incidents of the attempts that are shown, the newest open.
#[component]
fn Incidents(job: JobView, chain: ChainView, shown: Vec<u32>) -> impl IntoView {
    let all = story::incidents(&chain);
    let per_gpu = job.spec.accelerators_per_replica > 0;
    let visible: Vec<_> = all.iter().filter(|n| shown.contains(&n.attempt.attempt.number)).collect();
    let visible = &visible[visible.len().saturating_sub(RECORDS)..];
    let hidden = all.len() - visible.len();
    let last = visible.last().map(|n| n.number);
    let records =
        visible.iter().map(|n| incident(&chain, **n, Some(n.number) == last, per_gpu)).collect_view();
    let note = match all.len() {
        0 => String::new(),
        n => format!("{} recorded, one per failure however many ranks show it", format::count(n as u64)),
    };
    let nothing = format!("Nothing to recover from{}.", so_far(chain.state.is_terminal()));
    view! {
        <section aria-labelledby="inc-h" class="min-w-0">
            <SectionHead id="inc-h" title="Incidents">
                <span class="text-ink-3">{note}</span>
            </SectionHead>
            {if all.is_empty() {
                view! {
                    <Panel>
                        <Empty title=nothing>{nothing_yet(&chain)}</Empty>
                    </Panel>
                }
                    .into_any()
            } else {
                view! {
                    <Panel>{records}</Panel>
                    {(hidden > 0).then(|| view! { <p class="mt-2 text-xs text-ink-3">{format!("{hidden} earlier or in folded attempts")}</p> })}
                    <DerivedNote />
                }
                    .into_any()
            }}
        </section>
    }
}

/// `Budget: 2 task restarts, 1 in-place restart.`
fn nothing_yet(chain: &ChainView) -> String {
    use engine::job::Mode;
    let budgets = chain.budgets;
    let restarts = format::plural(u64::from(budgets.task_restarts.allowed), "task restart", "task restarts");
    let in_place = match chain.mode {
        Mode::Advanced | Mode::Full => format!(
            ", {}",
            format::plural(
                u64::from(budgets.in_place_restarts.allowed),
                "in-place restart",
                "in-place restarts"
            )
        ),
        _ => String::new(),
    };
    if chain.mode == Mode::None {
        return "Auto Failover is off: a failure ends the job.".to_owned();
    }
    format!("Budget: {restarts}{in_place}.")
}

/// The curve with its lenses and the ledger beside it.
#[component]
fn Curve(
    job: JobView,
    chain: ChainView,
    metrics: Result<MetricsView, AppError>,
    axis: MetricsAxis,
) -> impl IntoView {
    let page = paths::fault_tolerance(&job.job_id);
    let choices = AXES.map(|(name, word, x)| (name, format!("{page}?x={word}#loss-h"), x == axis)).to_vec();
    let title = match axis {
        MetricsAxis::Step => "Loss by step, all attempts",
        MetricsAxis::Clock => "Loss by clock, all attempts",
        MetricsAxis::Active => "Loss by active time, all attempts",
    };
    view! {
        <section class="mt-8" aria-labelledby="loss-h">
            <SectionHead id="loss-h" title>
                <ChartKey />
                <span class="ml-auto max-sm:ml-0">
                    <Segmented label="Horizontal axis" choices />
                </span>
            </SectionHead>
            <CurveFigure job=job.clone() chain metrics axis />
            <p class="mt-2 flex flex-wrap gap-x-2 text-xs text-ink-3">
                <a href=format!("{}#table", paths::metrics(&job.job_id))>"Show as table"</a>
                <a href=super::metrics::csv_address(&job.job_id) rel="external">"Download CSV"</a>
            </p>
        </section>
    }
}
