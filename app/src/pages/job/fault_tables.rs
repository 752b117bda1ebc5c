//! The tables of the Fault Tolerance Detail: attempts, excluded nodes, settings in force.

use engine::{
    job::Mode,
    record::{AttemptRecord, State},
};
use leptos::prelude::*;

use crate::{
    components::{
        badge::{StateBadge, TypeCode, mode_name},
        class,
        node_names::node_names,
        story,
        story::short_id,
        table::{DataTable, Panel, SectionHead},
        when::ClockTime,
    },
    console::{AttemptView, ChainView, JobView},
    format,
    forms::typed::policy_words,
    paths,
    preferences::use_zone,
};

/// The original task and every retry task.
#[component]
pub fn Attempts(
    /// The chain.
    chain: ChainView,
    /// Only these attempts; none is all that were read.
    #[prop(optional)]
    only: Option<Vec<u32>>,
) -> impl IntoView {
    let shown = |view: &&AttemptView| only.as_ref().is_none_or(|only| only.contains(&view.attempt.number));
    let missing = (chain.attempts_total as usize).saturating_sub(chain.attempts.iter().filter(shown).count());
    let table = format!("{}?view=table#chain-h", paths::fault_tolerance(&chain.job_id));
    let partial = only.is_some();
    let rows = chain
        .attempts
        .iter()
        .filter(shown)
        .map(|view| {
            let next = chain.attempts.iter().find(|a| a.attempt.number == view.attempt.number + 1);
            row(&chain, view, next)
        })
        .collect_view();
    view! {
        <Panel>
            <DataTable caption="Original task and every retry task" class=class::TABLE_WIDE>
                <thead>
                    <tr>
                        <th scope="col">"Task ID"</th>
                        <th scope="col">"Status"</th>
                        <th scope="col">"Fault description"</th>
                        <th scope="col">"Failure type"</th>
                        <th scope="col">"Start"</th>
                        <th scope="col">"End"</th>
                        <th scope="col">"Duration"</th>
                        <th scope="col">"Nodes"</th>
                        <th scope="col">"Action"</th>
                        <th scope="col">"Processing result"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </DataTable>
        </Panel>
        {(missing > 0)
            .then(|| {
                let text = format!("{} not listed here. ", format::plural(missing as u64, "attempt is", "attempts are"));
                let all = partial.then(|| view! { <a href=table>"Show all as table"</a> });
                view! { <p class="mt-2 text-xs text-ink-3">{text} {all}</p> }
            })}
    }
}

fn quiet(text: &'static str) -> AnyView {
    view! { <span class="text-ink-3">{text}</span> }.into_any()
}

fn nodes_of(a: &AttemptRecord) -> AnyView {
    if a.nodes.is_empty() {
        match a.queue.as_ref().and_then(|q| q.needs_nodes) {
            Some(n) => view! { <span class="text-ink-3">{format!("needs {n}")}</span> }.into_any(),
            None => quiet("none"),
        }
    } else {
        view! { <div class="max-w-56 min-w-40 wrap-break-word">{node_names(&a.nodes)}</div> }.into_any()
    }
}

fn row(chain: &ChainView, view: &AttemptView, next: Option<&AttemptView>) -> AnyView {
    let a = &view.attempt;
    let place = if a.number == 1 { "original".to_owned() } else { format::ordinal(a.number) };
    let duration =
        a.submitted_at.map(|from| format::duration(a.ended_at.unwrap_or(chain.now).seconds_since(from)));
    let result = story::result_words(a, next.map(|n| &n.attempt));
    let result = match next.filter(|_| result.starts_with("Resubmitted as")) {
        Some(next) => view! {
            "Resubmitted as "
            <a class="font-mono text-xs" href=paths::attempt(&chain.job_id, &next.attempt.task_id)>
                {short_id(&next.attempt.task_id)}
            </a>
        }
        .into_any(),
        None => view! { {result} }.into_any(),
    };
    view! {
        <tr>
            <th scope="row" class="whitespace-nowrap">
                <a class="font-mono text-xs" href=paths::attempt(&chain.job_id, &a.task_id) title=a.task_id.to_string()>
                    {short_id(&a.task_id)}
                </a>
                " "
                <span class="font-normal text-ink-3">{place}</span>
            </th>
            <td>
                <StateBadge state=a.state />
            </td>
            <td class="min-w-52">
                {match &a.fault {
                    Some(fault) => view! { {fault.clone()} }.into_any(),
                    None if a.state.is_terminal() => quiet("none"),
                    None => quiet("none so far"),
                }}
            </td>
            <td>
                {match a.failure_type {
                    Some(failure) => view! { <TypeCode failure /> }.into_any(),
                    None => quiet("none"),
                }}
            </td>
            <td class="whitespace-nowrap">
                {match a.submitted_at {
                    Some(at) => view! { <ClockTime at /> }.into_any(),
                    None => quiet("not submitted"),
                }}
            </td>
            <td class="whitespace-nowrap">
                {match a.ended_at {
                    Some(at) => view! { <ClockTime at /> }.into_any(),
                    None => quiet(match a.state {
                        State::Queued => "queued",
                        State::Starting => "starts",
                        State::Saving => "saves",
                        State::Stopping => "stops",
                        _ => "runs",
                    }),
                }}
            </td>
            <td class="whitespace-nowrap">{duration}</td>
            <td>{nodes_of(a)}</td>
            <td>{story::action_words(view)}</td>
            <td class="whitespace-nowrap">{result}</td>
        </tr>
    }
    .into_any()
}

/// Nodes that this job keeps off, with why.
#[component]
pub fn Excluded(
    /// The chain.
    chain: ChainView,
) -> impl IntoView {
    let zone = use_zone();
    let numbered = story::incidents(&chain);
    let rows = chain
        .excluded
        .iter()
        .map(|node| {
            let by_incident = node.incident.as_ref().map(|incident| {
                let number = story::number_of(&numbered, incident);
                let words = number.map_or("incident".to_owned(), |n| format!("incident {n}"));
                let failure = node.failure_type.map(|failure| view! { ", " <TypeCode failure /> });
                view! { <a href=format!("#{incident}") rel="external">{words}</a> {failure} }
            });
            let by_diagnosis = node.diagnosis.as_ref().map(|run| {
                let found = chain.diagnostics.iter().find(|known| known.run_id == *run);
                let words =
                    found.map_or("diagnosis".to_owned(), |known| format!("diagnosis {}", known.number));
                view! { <a href=paths::diagnosis(run)>{words}</a> }
            });
            let since = node.at.map(|at| view! { {format::date(at, zone)} ", " <ClockTime at /> });
            view! {
                <tr>
                    <th scope="row">
                        <a href=paths::node(None, &node.node)>{node.node.to_string()}</a>
                    </th>
                    <td>{by_incident} {by_diagnosis}</td>
                    <td class="whitespace-nowrap">{since}</td>
                </tr>
            }
        })
        .collect_view();
    view! {
        <section aria-labelledby="ex-h" class="min-w-0">
            <SectionHead id="ex-h" title="Excluded nodes">
                <span class="text-ink-3">"kept off by this job"</span>
            </SectionHead>
            <Panel>
                {if chain.excluded.is_empty() {
                    view! { <p class="p-4 text-ink-3">"None. The next attempt may run on every node."</p> }.into_any()
                } else {
                    view! {
                        <DataTable caption="Nodes kept out of this job" class=class::TABLE_NARROW>
                            <thead>
                                <tr>
                                    <th scope="col">"Node"</th>
                                    <th scope="col">"By"</th>
                                    <th scope="col">"Since"</th>
                                </tr>
                            </thead>
                            <tbody>{rows}</tbody>
                        </DataTable>
                    }
                        .into_any()
                }}
            </Panel>
        </section>
    }
}

/// The settings that decided all of the above.
#[component]
pub fn Settings(
    /// The job.
    job: JobView,
) -> impl IntoView {
    let ft = &job.spec.fault_tolerance;
    let in_place = matches!(job.summary.mode, Mode::Advanced | Mode::Full);
    let policy = if in_place {
        format!(
            "{}; in-place restarts {}",
            policy_words(&ft.policy.policy_type),
            ft.policy.max_in_place_restarts
        )
    } else {
        "off".to_owned()
    };
    let hang = &ft.hang_detection;
    let hang = if job.summary.mode == Mode::Full {
        format!(
            "every {} s, stalled after {} s, from {} after each launch; in-place restarts {}{}",
            hang.interval_seconds,
            hang.window_seconds,
            format::duration(f64::from(hang.start_after_seconds)),
            hang.max_in_place_restarts,
            if hang.diagnose { "; nodes are diagnosed before a resubmission" } else { "" }
        )
    } else {
        "off".to_owned()
    };
    let save = &ft.exit_checkpoint;
    let save = if save.enabled {
        format!("port {}, up to {} s", save.port, save.max_wait_seconds)
    } else {
        "off".to_owned()
    };
    let health = &ft.health_checks;
    let health = if health.enabled {
        let own = if health.command.is_some() { ", and an own command" } else { "" };
        format!("{}{own}", format::plural(health.checks.len() as u64, "check", "checks"))
    } else {
        "off".to_owned()
    };
    let restarts = if ft.auto_failover {
        format!("Maximum Task Restart Attempts {}", ft.max_task_restarts)
    } else {
        "none: Auto Failover is off".to_owned()
    };
    view! {
        <section aria-labelledby="set-h" class="min-w-0">
            <SectionHead id="set-h" title="Settings in force">
                <a class=class::AT_END href=paths::spec(&job.job_id)>
                    "Open Spec"
                </a>
            </SectionHead>
            <dl class=format!("rounded-lg border border-hair bg-raised p-4 {}", class::FACTS)>
                <dt>"Mode"</dt>
                <dd>{mode_name(job.summary.mode)}</dd>
                <dt>"Task restarts"</dt>
                <dd>{restarts}</dd>
                <dt>"Policy"</dt>
                <dd>{policy}</dd>
                <dt>"Hang detection"</dt>
                <dd>{hang}</dd>
                <dt>"Exit ckpt"</dt>
                <dd>{save}</dd>
                <dt>"Health checks"</dt>
                <dd>{health}</dd>
                <dt>"Checkpoints"</dt>
                <dd>
                    {job
                        .spec
                        .checkpoint_dir
                        .clone()
                        .unwrap_or_else(|| "no directory set: a resubmission starts at step 0".to_owned())}
                </dd>
            </dl>
        </section>
    }
}
