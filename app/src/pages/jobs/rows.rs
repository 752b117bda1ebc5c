//! The rows of the list; on a narrow screen each is a card with the state first.

use std::collections::BTreeMap;

use engine::{ids::JobId, record::Summary, time::Time};
use leptos::prelude::*;

use crate::{
    components::{
        badge::{JobBadges, TypeCode, kind_name},
        icon::{Icon, Mark},
        pips::Pips,
        table::DataTable,
        when::Ago,
    },
    console::{JobRow, JobsQuery, JobsSort},
    format, paths,
};

const CELL: &str = "px-3 py-2 align-top border-b border-hair max-xl:px-2 max-sm:flex max-sm:gap-3 max-sm:px-4 max-sm:py-0.5 max-sm:border-0 max-sm:before:content-[attr(data-label)] max-sm:before:w-28 max-sm:before:flex-none max-sm:before:text-ink-3 max-sm:before:text-xs max-sm:before:leading-5";

const HEAD: &str =
    "px-3 py-1.5 text-xs text-ink-3 whitespace-nowrap bg-sunken border-b border-hair max-xl:px-2";

/// The new reading in the order that is on the screen: rows change in place and never move. Jobs that came since are
/// counted and wait; a job that is on the screen but fell off this page keeps its last known row.
pub fn keep_order(
    shown: &mut Option<(JobsQuery, Vec<JobRow>)>,
    query: &JobsQuery,
    fresh: Vec<JobRow>,
) -> (Vec<JobRow>, usize) {
    let rows = match shown.take() {
        Some((before, rows)) if before == *query && !rows.is_empty() => rows,
        _ => {
            *shown = Some((query.clone(), fresh.clone()));
            return (fresh, 0);
        }
    };
    let mut fresh: BTreeMap<JobId, JobRow> = fresh.into_iter().map(|row| (row.job_id.clone(), row)).collect();
    let rows: Vec<JobRow> = rows.into_iter().map(|row| fresh.remove(&row.job_id).unwrap_or(row)).collect();
    let newest = rows.iter().map(|row| row.created_at).max();
    let newer = fresh.values().filter(|row| Some(row.created_at) > newest).count();
    *shown = Some((query.clone(), rows.clone()));
    (rows, newer)
}

/// The table.
#[component]
pub fn Rows(query: JobsQuery, rows: Vec<JobRow>, now: Time) -> impl IntoView {
    let caption = format!("Jobs, {}", sort_words(query.sort));
    let sorted = move |sort: JobsSort, words: &'static str| {
        let here = query.sort == Some(sort);
        let href = paths::jobs(&JobsQuery {
            sort: if here { None } else { Some(sort) },
            page: None,
            ..query.clone()
        });
        let direction = match sort {
            JobsSort::Restarts => ("descending", Mark::Down),
            _ => ("ascending", Mark::Up),
        };
        view! {
            <th scope="col" role="columnheader" class=HEAD aria-sort=here.then_some(direction.0)>
                <a href=href class="inline-flex items-center gap-1 min-h-6 no-underline hover:text-ink">
                    {words} {here.then(|| view! { <Icon mark=direction.1/> })}
                </a>
            </th>
        }
    };
    let rows = rows.into_iter().map(move |row| view! { <Row row now/> });
    view! {
        <DataTable caption class="max-sm:block">
            <thead class="max-sm:unseen" role="rowgroup">
                <tr role="row">
                    {sorted(JobsSort::Name, "Job")}
                    <th scope="col" role="columnheader" class=HEAD>"State"</th>
                    <th scope="col" role="columnheader" class=HEAD>"Progress"</th>
                    {sorted(JobsSort::Restarts, "Task restarts")}
                    <th scope="col" role="columnheader" class=HEAD>"Last failure type"</th>
                    <th scope="col" role="columnheader" class=HEAD>"Owner"</th>
                    <th scope="col" role="columnheader" class=format!("{HEAD} text-right")>"Last sign"</th>
                </tr>
            </thead>
            <tbody class="max-sm:block" role="rowgroup">{rows.collect_view()}</tbody>
        </DataTable>
    }
}

fn sort_words(sort: Option<JobsSort>) -> &'static str {
    match sort {
        None | Some(JobsSort::Newest) => "newest first",
        Some(JobsSort::Oldest) => "oldest first",
        Some(JobsSort::Name) => "by name",
        Some(JobsSort::Restarts) => "most task restarts first",
    }
}

#[component]
fn Row(row: JobRow, now: Time) -> impl IntoView {
    let summary = row.summary;
    let replicas = match row.accelerators_per_replica {
        0 => format::plural(row.replicas.into(), "replica", "replicas"),
        gpus => format!("{} × {}", row.replicas, format::plural(gpus.into(), "GPU", "GPUs")),
    };
    let made_of = format!("{}, {replicas}", kind_name(row.kind));
    view! {
        <tr data-row class="hover:bg-hover max-sm:block max-sm:py-3 max-sm:border-b max-sm:border-hair" role="row">
            <th scope="row" role="rowheader" class="px-3 py-2 align-top border-b border-hair max-xl:px-2 max-w-72 max-xl:max-w-44 max-sm:block max-sm:max-w-none max-sm:px-4 max-sm:py-0 max-sm:border-0">
                <a href=paths::job(&row.job_id) data-open class="block w-fit max-w-full truncate max-sm:py-1">{row.name}</a>
                <small class="whitespace-nowrap">{made_of}</small>
            </th>
            <td role="cell" class="px-3 py-2 align-top border-b border-hair max-xl:px-2 max-sm:block max-sm:px-4 max-sm:py-1 max-sm:border-0">
                <JobBadges state=summary.state substate=summary.substate/>
                <small class="text-ink-2 break-words">{summary.tail.clone()}</small>
            </td>
            <td role="cell" class=CELL data-label="Progress"><Progress reached=summary.reached_step total=summary.total_steps/></td>
            <td role="cell" class=CELL data-label="Task restarts"><Restarts summary=summary.clone()/></td>
            <td role="cell" class=CELL data-label="Last failure type">
                {match summary.failure_type {
                    Some(failure) => view! { <TypeCode failure/> }.into_any(),
                    None => view! { <span class="text-ink-3">"none"</span> }.into_any(),
                }}
            </td>
            <td role="cell" class=CELL data-label="Owner"><span class="max-w-40 truncate">{row.owner}</span></td>
            <td role="cell" class=format!("{CELL} sm:text-right whitespace-nowrap") data-label="Last sign">
                <span class="text-ink-3"><Ago at=row.changed_at now/></span>
            </td>
        </tr>
    }
}

#[component]
fn Progress(reached: Option<u64>, total: Option<u64>) -> impl IntoView {
    match (format::share_percent(reached, total), reached) {
        (Some(percent), _) => view! {
            <span class="inline-grid grid-cols-[3.5rem_2.5rem] max-xl:grid-cols-[2rem_2.5rem] gap-2 items-center">
                <svg class="w-full h-1 rounded-xs overflow-hidden" aria-hidden="true">
                    <rect class="fill-hair" width="100%" height="100%"></rect>
                    <rect class="fill-ink-2" width=format!("{percent}%") height="100%"></rect>
                </svg>
                <span class="text-right">{format!("{percent} %")}</span>
            </span>
        }
        .into_any(),
        (None, Some(step)) => view! { <span>"step " {format::count(step)}</span> }.into_any(),
        (None, None) => view! { <span class="text-ink-3">"not reported"</span> }.into_any(),
    }
}

#[component]
fn Restarts(summary: Summary) -> impl IntoView {
    if summary.mode == engine::job::Mode::None {
        return view! { <span class="text-ink-3">"off"</span> }.into_any();
    }
    let budgets = summary.budgets;
    let in_place = budgets.in_place_restarts.used + budgets.hang_restarts.used;
    let beside = match (in_place, budgets.diagnostics.used) {
        (0, 0) => None,
        (n, 0) => Some(format!("in place {n}")),
        (0, d) => Some(format!("diagnosis {d}")),
        (n, d) => Some(format!("in place {n}, diagnosis {d}")),
    };
    view! {
        <span>
            <Pips used=budgets.task_restarts/>
            {beside.map(|words| view! { <small>{words}</small> })}
        </span>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use engine::{
        ids::TaskId,
        job::{JobKind, Mode},
        record::{Budgets, Diagnostics, Ledger, State, Used},
    };

    use super::*;

    fn row(id: &str, created: i64, state: State) -> JobRow {
        let task = TaskId::new(format!("{id}-1")).unwrap();
        JobRow {
            job_id: JobId::new(id).unwrap(),
            name: id.to_owned(),
            kind: JobKind::PyTorchJob,
            replicas: 1,
            accelerators_per_replica: 0,
            owner: "user-1".to_owned(),
            created_at: Time(created),
            changed_at: Time(created),
            summary: Summary {
                state,
                substate: None,
                tail: String::new(),
                mode: Mode::Basic,
                original_task_id: task.clone(),
                latest_task_id: task,
                attempts_total: 1,
                budgets: Budgets {
                    task_restarts: Used::default(),
                    in_place_restarts: Used::default(),
                    hang_restarts: Used::default(),
                    diagnostics: Diagnostics::default(),
                },
                why_not: None,
                ledger: Ledger::default(),
                reached_step: None,
                saved_step: None,
                total_steps: None,
                longest_quiet: None,
                failure_type: None,
                needs_attention: false,
                stopped_by: None,
                kept: None,
                saving_until: None,
            },
        }
    }

    #[test]
    fn a_name_with_markup_is_shown_as_text_and_every_cell_has_its_label() {
        let mut hostile = row("a", 1, State::Failed);
        hostile.name = "<script>alert(1)</script>".to_owned();
        hostile.summary.budgets.task_restarts = Used { used: 1, allowed: 2 };
        let html = Owner::new()
            .with(|| view! { <Rows query=JobsQuery::default() rows=vec![hostile] now=Time(2)/> }.to_html());
        assert!(!html.contains("<script>") && html.contains("&lt;script&gt;"), "{html}");
        for part in ["1 of 2 used", "not reported", "Failed", "data-label=\"Owner\"", "Jobs, newest first"] {
            assert!(html.contains(part), "{part} in {html}");
        }
    }

    fn ids(rows: &[JobRow]) -> Vec<&str> {
        rows.iter().map(|row| row.job_id.as_str()).collect()
    }

    #[test]
    fn rows_change_in_place_and_newer_ones_wait() {
        let (mut shown, query) = (None, JobsQuery::default());
        keep_order(&mut shown, &query, vec![row("b", 2, State::Running), row("a", 1, State::Running)]);
        let (rows, newer) = keep_order(
            &mut shown,
            &query,
            vec![row("c", 3, State::Queued), row("a", 1, State::Running), row("b", 2, State::Failed)],
        );
        assert_eq!((ids(&rows), newer), (vec!["b", "a"], 1));
        assert_eq!(rows[0].summary.state, State::Failed);
    }

    #[test]
    fn a_row_that_fell_off_the_page_stays_and_an_older_one_that_came_up_does_not_count() {
        let (mut shown, query) = (None, JobsQuery::default());
        keep_order(&mut shown, &query, vec![row("b", 2, State::Running)]);
        let (rows, newer) = keep_order(&mut shown, &query, vec![row("a", 1, State::Running)]);
        assert_eq!((ids(&rows), newer), (vec!["b"], 0));
    }

    #[test]
    fn other_filters_start_anew() {
        let mut shown = None;
        keep_order(&mut shown, &JobsQuery::default(), vec![row("b", 2, State::Running)]);
        let other = JobsQuery { page: Some(2), ..JobsQuery::default() };
        let (rows, newer) = keep_order(&mut shown, &other, vec![row("a", 1, State::Running)]);
        assert_eq!((ids(&rows), newer), (vec!["a"], 0));
    }
}
