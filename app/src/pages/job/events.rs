//! The history of a job: decisions, scheduling, exclusions, people's actions. Newest first, by absolute time.

use engine::{ids::TaskId, record::EventKind};
use leptos::prelude::*;
use leptos_router::components::Form;

use super::data::{self, use_query, use_whole};
use crate::{
    components::{
        button::Submit,
        class,
        failed::FailedPart,
        field::SELECT,
        notice::Empty,
        story::short_id,
        table::{DataTable, Panel},
        when::ClockTime,
    },
    console::{ChainView, EventsPage, EventsQuery, JobView},
    error::AppError,
    format, paths,
    preferences::use_zone,
    server_fns::jobs::get_events,
};

/// All kinds with their words.
const KINDS: [(EventKind, &str, &str); 8] = [
    (EventKind::State, "state", "State"),
    (EventKind::Incident, "incident", "Incident"),
    (EventKind::Decision, "decision", "Decision"),
    (EventKind::Scheduling, "scheduling", "Scheduling"),
    (EventKind::Node, "node", "Node"),
    (EventKind::Progress, "progress", "Progress"),
    (EventKind::Person, "person", "Person"),
    (EventKind::Warning, "warning", "Warning"),
];

/// A kind in a word.
pub fn kind_name(kind: EventKind) -> &'static str {
    KINDS.iter().find(|(k, ..)| *k == kind).map_or("Event", |(_, _, name)| name)
}

fn read_kind(text: &str) -> Option<EventKind> {
    KINDS.iter().find(|(_, word, _)| *word == text).map(|(kind, ..)| *kind)
}

/// The tab.
#[component]
pub fn Events() -> impl IntoView {
    let (id, live, whole) = (data::use_job_id(), crate::live::use_live(), use_whole());
    let (kind, task, cursor) = (use_query("kind"), use_query("task"), use_query("cursor"));
    let query = move || EventsQuery {
        kind: kind.get().and_then(|text| read_kind(&text)),
        task: task.get().and_then(|text| TaskId::new(text).ok()),
        cursor: cursor.get(),
        ..EventsQuery::default()
    };
    let events = Resource::new_blocking(
        move || (id.get(), query(), live.ticks()),
        |(id, query, _)| async move { get_events(id?, query).await },
    );
    view! {
        <Transition>
            {move || {
                let query = query();
                whole.show(events, move |job, chain, page| view! { <Loaded job chain page query /> }.into_any())
            }}
        </Transition>
    }
}

#[component]
fn Loaded(
    job: JobView,
    chain: ChainView,
    page: Result<EventsPage, AppError>,
    query: EventsQuery,
) -> impl IntoView {
    let filtered = query.kind.is_some() || query.task.is_some();
    let body = match page {
        Ok(page) if page.items.is_empty() => {
            let (title, text) = if filtered {
                ("No event matches", "Choose another kind or attempt.")
            } else {
                ("No event", "States, decisions and what people do will stand here.")
            };
            view! { <Panel><Empty title=title>{text}</Empty></Panel> }.into_any()
        }
        Ok(page) => table(&job, &chain, &page, &query),
        Err(error) => view! { <FailedPart error /> }.into_any(),
    };
    view! {
        <Filters job chain=chain.clone() query=query.clone() />
        {body}
    }
}

#[component]
fn Filters(job: JobView, chain: ChainView, query: EventsQuery) -> impl IntoView {
    let kinds = KINDS
        .iter()
        .map(|(kind, word, name)| view! { <option value=*word selected=query.kind == Some(*kind)>{*name}</option> })
        .collect_view();
    let tasks = chain
        .attempts
        .iter()
        .map(|view| {
            let id = view.attempt.task_id.clone();
            let chosen = query.task.as_ref() == Some(&id);
            let words = format!("{}, {}", view.attempt.number, short_id(&id));
            view! { <option value=id.to_string() selected=chosen>{words}</option> }
        })
        .collect_view();
    view! {
        <Form method="GET" action=paths::events(&job.job_id)>
            <div class="mt-5 mb-3 flex flex-wrap items-end gap-2">
                <label class="block max-sm:w-full">
                    <span class="mb-1 block font-medium">"Kind"</span>
                    <select name="kind" class=format!("{SELECT} max-sm:w-full")>
                        <option value="">"All kinds"</option>
                        {kinds}
                    </select>
                </label>
                <label class="block max-sm:w-full">
                    <span class="mb-1 block font-medium">"Attempt"</span>
                    <select name="task" class=format!("{SELECT} max-sm:w-full")>
                        <option value="">"All attempts"</option>
                        {tasks}
                    </select>
                </label>
                <Submit>"Show"</Submit>
            </div>
        </Form>
    }
}

fn table(job: &JobView, chain: &ChainView, page: &EventsPage, query: &EventsQuery) -> AnyView {
    let zone = use_zone();
    let number = |task: &TaskId| {
        chain.attempts.iter().find(|a| a.attempt.task_id == *task).map(|a| format!("{}", a.attempt.number))
    };
    let rows = page
        .items
        .iter()
        .map(|event| {
            let attempt = event.task_id.as_ref().map(|task| {
                let words = number(task).unwrap_or_else(|| short_id(task));
                view! { <a href=paths::attempt(&job.job_id, task) title=task.to_string()>{words}</a> }
            });
            view! {
                <tr>
                    <td class="whitespace-nowrap">{format::date(event.at, zone)} ", " <ClockTime at=event.at /></td>
                    <td>{kind_name(event.kind)}</td>
                    <td>{attempt}</td>
                    <td>{event.by.clone()}</td>
                    <td class="min-w-80 wrap-anywhere">{event.text.clone()}</td>
                </tr>
            }
        })
        .collect_view();
    let mut address = format!("{}?", paths::events(&job.job_id));
    if let Some(kind) = query.kind {
        let word = KINDS.iter().find(|(k, ..)| *k == kind).map_or("", |(_, word, _)| word);
        address.push_str(&format!("kind={word}&"));
    }
    if let Some(task) = &query.task {
        address.push_str(&format!("task={task}&"));
    }
    let older = page.next_cursor.as_ref().map(|cursor| format!("{address}cursor={}", paths::encode(cursor)));
    let first = query.cursor.is_some().then(|| address.trim_end_matches(['?', '&']).to_owned());
    view! {
        <Panel>
            <DataTable caption="Events, newest first" class=class::TABLE>
                <thead>
                    <tr>
                        <th scope="col">{format!("Time ({})", zone.label())}</th>
                        <th scope="col">"Kind"</th>
                        <th scope="col">"Attempt"</th>
                        <th scope="col">"By"</th>
                        <th scope="col">"What"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </DataTable>
        </Panel>
        <p class="mt-2 flex flex-wrap items-center gap-x-3 text-ink-3">
            <span>{format!("{} of {} shown", format::count(page.items.len() as u64), format::plural(page.total, "event", "events"))}</span>
            {first.map(|href| view! { <a href=href>"Newest"</a> })}
            {older.map(|href| view! { <a href=href>"Older"</a> })}
        </p>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_the_interface_writes_it() {
        for (kind, word, _) in KINDS {
            assert_eq!(serde_json::to_value(kind).unwrap(), word);
            assert_eq!(read_kind(word), Some(kind));
        }
        assert_eq!(read_kind("nonsense"), None);
    }
}
