//! Logs of an attempt: by launch and replica, searched by the server in the whole log, with the evidence marked.

use engine::{
    failure::Role,
    ids::{JobId, ReplicaName, TaskId},
};
use leptos::prelude::*;
use leptos_router::components::Form;

use super::{
    attempt::AttemptHead,
    data::{self, selected, use_chain_once, use_query},
    follow::Follow,
};
use crate::{
    components::{
        badge::{Tone, of_state},
        button::{Look, Submit},
        failed::FailedPart,
        field::{INPUT, SELECT},
        icon::{Icon, Mark},
        incident::line_address,
        log_view::log_line,
        notice::Notice,
        story,
        story::short_id,
        table::DerivedNote,
    },
    console::{AttemptView, ChainView, LogLevel, LogLine, LogPage, LogQuery},
    error::AppError,
    format, paths,
    preferences::use_zone,
    server_fns::jobs::get_logs,
};

/// Lines of one page.
const PAGE: u64 = 200;

/// What the address asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    task: Option<String>,
    launch: Option<u32>,
    replica: Option<String>,
    level: Option<LogLevel>,
    q: String,
    from: Option<u64>,
}

/// The tab.
#[component]
pub fn Logs() -> impl IntoView {
    let asked = use_asked();
    let chain = use_chain_once();
    let page = Resource::new_blocking(
        move || asked.get(),
        move |asked| async move {
            let chain = chain.await?;
            let task = log_task(&chain, asked.task.as_deref());
            get_logs(task.clone(), query(&asked)).await.map(|page| (task, page))
        },
    );
    view! {
        <Transition>
            {move || {
                let asked = asked.get();
                Suspend::new(async move {
                    match chain.await {
                        Ok(chain) => {
                            let page = page.await;
                            view! { <Loaded chain page asked /> }.into_any()
                        }
                        Err(error) => data::unread(error),
                    }
                })
            }}
        </Transition>
    }
}

fn use_asked() -> Memo<Asked> {
    let (task, launch, replica) = (use_query("task"), use_query("launch"), use_query("replica"));
    let (level, q, from) = (use_query("level"), use_query("q"), use_query("from"));
    Memo::new(move |_| Asked {
        task: task.get(),
        launch: launch.get().and_then(|text| text.parse().ok()),
        replica: replica.get(),
        level: level.get().and_then(|text| read_level(&text)),
        q: q.get().unwrap_or_default().chars().take(200).collect(),
        from: from.get().and_then(|text| text.parse().ok()),
    })
}

/// The task whose log is shown: the one that was asked for, else the newest that has run.
fn log_task(chain: &ChainView, asked: Option<&str>) -> TaskId {
    let known = asked.filter(|asked| chain.attempts.iter().any(|a| a.attempt.task_id.as_str() == *asked));
    let ran = |a: &&AttemptView| a.attempt.started_at.is_some();
    match known {
        Some(_) => selected(chain, known).task,
        None => chain
            .attempts
            .iter()
            .rev()
            .find(ran)
            .map_or(chain.latest_task_id.clone(), |a| a.attempt.task_id.clone()),
    }
}

/// The backend's query. Without a place to begin it is the end of the log.
pub fn query(asked: &Asked) -> LogQuery {
    LogQuery {
        replica: asked.replica.clone().and_then(|name| ReplicaName::new(name).ok()),
        launch: asked.launch,
        tail: asked.from.is_none().then_some(PAGE as u32),
        from: asked.from,
        level: asked.level,
        q: (!asked.q.is_empty()).then(|| asked.q.clone()),
    }
}

fn read_level(text: &str) -> Option<LogLevel> {
    [LogLevel::Info, LogLevel::Warning, LogLevel::Error].into_iter().find(|level| level_word(*level) == text)
}

/// A level as addresses write it.
pub const fn level_word(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Info => "info",
        LogLevel::Warning => "warning",
        LogLevel::Error => "error",
    }
}

type Page = Result<(TaskId, LogPage), AppError>;

#[component]
fn Loaded(chain: ChainView, page: Page, asked: Asked) -> impl IntoView {
    let task =
        page.as_ref().map_or_else(|_| log_task(&chain, asked.task.as_deref()), |(task, _)| task.clone());
    let mut chosen = selected(&chain, Some(task.as_str()));
    chosen.unknown = selected(&chain, asked.task.as_deref()).unknown;
    let address = paths::logs(&chain.job_id);
    let Some(view) = chain.attempts.iter().find(|a| a.attempt.task_id == task).cloned() else {
        return ().into_any();
    };
    let body = match page {
        Ok((_, page)) => view! {
            <Filters chain=chain.clone() task=task.clone() page=page.clone() asked=asked.clone() job=chain.job_id.clone() />
            <Evidence job=chain.job_id.clone() chain=chain.clone() view=view.clone() page=page.clone() />
            <Lines job=chain.job_id.clone() view page asked />
        }
        .into_any(),
        Err(error) => view! { <div class="mt-5"><FailedPart error /></div> }.into_any(),
    };
    view! {
        <AttemptHead chain=chain.clone() selected=chosen page=address />
        {body}
    }
    .into_any()
}

/// Which log, and what of it: a plain GET form.
#[component]
fn Filters(chain: ChainView, task: TaskId, page: LogPage, asked: Asked, job: JobId) -> impl IntoView {
    let total = chain.attempts_total;
    let attempts = chain
        .attempts
        .iter()
        .map(|view| {
            let a = &view.attempt;
            let words = format!("{} of {total}, {}, {}", a.number, short_id(&a.task_id), of_state(a.state).2);
            (a.task_id.to_string(), words)
        })
        .collect();
    let launches = page
        .launches
        .iter()
        .map(|n| (n.to_string(), if *n == 0 { "0 initial".to_owned() } else { format!("{n} in place") }))
        .collect();
    let replicas = page.replicas.iter().map(|r| (r.to_string(), r.to_string())).collect();
    let levels = [("", "All levels"), ("warning", "Warnings and errors"), ("error", "Errors")]
        .map(|(value, words)| (value.to_owned(), words.to_owned()))
        .to_vec();
    let level = asked.level.map(level_word).unwrap_or_default().to_owned();
    view! {
        <Form method="GET" action=paths::logs(&job)>
            <div class="mt-3 flex flex-wrap items-end gap-2">
                <Choose name="task" label="Attempt" chosen=task.to_string() choices=attempts />
                <Choose name="launch" label="Launch" chosen=page.launch.to_string() choices=launches />
                <Choose name="replica" label="Replica" chosen=page.replica.to_string() choices=replicas />
                <Choose name="level" label="Level" chosen=level choices=levels />
                <label class="block min-w-44 flex-1">
                    <span class="mb-1 block font-medium">"Search the whole log"</span>
                    <input type="search" name="q" value=asked.q.clone() maxlength="200" autocomplete="off" class=INPUT />
                </label>
                <Submit>"Show"</Submit>
            </div>
        </Form>
    }
}

#[component]
fn Choose(
    name: &'static str,
    label: &'static str,
    chosen: String,
    choices: Vec<(String, String)>,
) -> impl IntoView {
    let none = choices.is_empty().then(|| view! { <option value="">"none yet"</option> });
    let options = choices
        .into_iter()
        .map(|(value, words)| {
            let selected = value == chosen;
            view! { <option value=value selected=selected>{words}</option> }
        })
        .collect_view();
    view! {
        <label class="block max-sm:w-full">
            <span class="mb-1 block font-medium">{label}</span>
            <select name=name class=format!("{SELECT} max-w-64 max-sm:w-full max-sm:max-w-none")>
                {none}
                {options}
            </select>
        </label>
    }
}

/// The evidence that this log holds, with the way to its line.
#[component]
fn Evidence(job: JobId, chain: ChainView, view: AttemptView, page: LogPage) -> impl IntoView {
    let numbered = story::incidents(&chain);
    let found = view.incidents.iter().filter(|i| i.launch == page.launch).find_map(|incident| {
        let line = incident.evidence.iter().find(|e| e.role == Role::Root && e.replica == page.replica)?;
        Some((incident, line))
    });
    let elsewhere = view.incidents.iter().filter(|i| i.launch == page.launch).find_map(|incident| {
        let line = incident.evidence.iter().find(|e| e.role == Role::Root && e.replica != page.replica)?;
        Some((incident, line))
    });
    let (incident, line) = found.or(elsewhere)?;
    let (here, record) = (
        paths::incident(&job, &incident.id),
        line_address(&job, &view.attempt.task_id, incident.launch, line),
    );
    let number = story::number_of(&numbered, &incident.id).unwrap_or_default();
    let place = if line.replica == page.replica {
        format!("line {}: ", format::count(line.line_number))
    } else {
        format!("{}, line {}: ", line.replica, format::count(line.line_number))
    };
    let text: String = line.line.chars().take(160).collect();
    Some(view! {
        <div class="mt-3">
            <Notice tone=Tone::Amber mark=Mark::Warning>
                <div class="flex flex-wrap gap-x-4 gap-y-1">
                    <span class="min-w-60 flex-1 wrap-anywhere">
                        <b>{format!("Evidence of incident {number}, ")}</b>
                        {place}
                        "“"
                        {text}
                        "”"
                    </span>
                    <span class="inline-flex gap-3">
                        <a href=here rel="external">{format!("Incident {number}")}</a>
                        <a href=record rel="external">"Go to line"</a>
                    </span>
                </div>
            </Notice>
        </div>
    })
}

/// The address of this log beginning at a line, with everything else kept.
fn at_line(job: &JobId, task: &TaskId, page: &LogPage, asked: &Asked, from: Option<u64>) -> String {
    let level = asked.level.map(|l| format!("&level={}", level_word(l))).unwrap_or_default();
    let q = if asked.q.is_empty() { String::new() } else { format!("&q={}", paths::encode(&asked.q)) };
    let from = from.map(|n| format!("&from={n}")).unwrap_or_default();
    format!(
        "{}?task={task}&launch={}&replica={}{level}{q}{from}",
        paths::logs(job),
        page.launch,
        page.replica
    )
}

/// What a page shows of a log: its lines, the evidence in them, the ways to the rest.
struct Part<'a> {
    job: &'a JobId,
    view: &'a AttemptView,
    page: &'a LogPage,
    asked: &'a Asked,
}

impl Part<'_> {
    fn ends(&self) -> (Option<u64>, Option<u64>) {
        (self.page.lines.first().map(|l| l.n), self.page.lines.last().map(|l| l.n))
    }

    fn is_filtered(&self) -> bool {
        !self.asked.q.is_empty() || self.asked.level.is_some()
    }

    /// Something may come behind these lines: more of the log, or what is printed from now on.
    fn may_grow(&self) -> bool {
        self.page.next.is_some()
    }

    /// The log goes on behind the last line.
    fn has_more(&self) -> bool {
        match (self.ends().1, self.page.total) {
            (Some(last), Some(total)) => last < total,
            (_, total) => total.is_none() && self.page.next.is_some(),
        }
    }

    /// Lines that are evidence, with what they are evidence of.
    fn roles(&self) -> Vec<(u64, Role)> {
        self.view
            .incidents
            .iter()
            .filter(|i| i.launch == self.page.launch)
            .flat_map(|i| &i.evidence)
            .filter(|e| e.replica == self.page.replica)
            .map(|e| (e.line_number, e.role))
            .collect()
    }

    fn at_line(&self, from: Option<u64>) -> String {
        at_line(self.job, &self.view.attempt.task_id, self.page, self.asked, from)
    }

    fn lines(&self, roles: &[(u64, Role)]) -> AnyView {
        let zone = use_zone();
        let line = |line: &LogLine| {
            let role = roles.iter().find(|(n, _)| *n == line.n).map(|(_, role)| *role);
            log_line(line, role, &self.asked.q, zone)
        };
        self.page.lines.iter().map(line).collect_view().into_any()
    }

    /// Said where there is no line.
    fn empty(&self) -> Option<&'static str> {
        self.page.lines.is_empty().then(|| match (self.is_filtered(), self.may_grow()) {
            (true, _) => "No line matches. Choose another level or text.",
            (false, true) => "Nothing was printed so far.",
            (false, false) => "This launch printed nothing.",
        })
    }

    fn showing(&self) -> String {
        match (self.ends(), self.is_filtered()) {
            ((Some(first), Some(last)), false) => {
                format!("Showing {} to {}", format::count(first), format::count(last))
            }
            ((Some(_), Some(_)), true) => {
                format!("{} that match", format::plural(self.page.lines.len() as u64, "line", "lines"))
            }
            _ => String::new(),
        }
    }

    /// The ways to the rest of the log: earlier and later lines, and its end.
    fn ways(&self) -> AnyView {
        let (first, _) = self.ends();
        let earlier = first.filter(|n| *n > 1).map(|n| self.at_line(Some(n.saturating_sub(PAGE).max(1))));
        let later = self.page.next.filter(|_| self.has_more()).map(|n| self.at_line(Some(n)));
        let newest = self.asked.from.is_some().then(|| self.at_line(None));
        view! {
            {earlier.map(|href| view! { <a href=href>"Earlier lines"</a> })}
            {later.map(|href| view! { <a href=href>"Later lines"</a> })}
            {newest.map(|href| view! { <a href=href>"End of the log"</a> })}
        }
        .into_any()
    }

    /// What is printed from now on, at the end of the log of a launch that runs.
    fn follow(&self) -> Option<AnyView> {
        let goes_on = Asked {
            replica: Some(self.page.replica.to_string()),
            launch: Some(self.page.launch),
            ..self.asked.clone()
        };
        let from = self.page.next.or(self.ends().1.map(|n| n + 1));
        let query = LogQuery { tail: None, from, ..query(&goes_on) };
        let (task, q) = (self.view.attempt.task_id.clone(), self.asked.q.clone());
        (self.may_grow() && !self.has_more()).then(|| view! { <Follow task query q /> }.into_any())
    }
}

/// The lines, with the way to earlier and later ones, and what follows while the launch runs.
#[component]
fn Lines(job: JobId, view: AttemptView, page: LogPage, asked: Asked) -> impl IntoView {
    let part = Part { job: &job, view: &view, page: &page, asked: &asked };
    let roles = part.roles();
    let (first, last) = part.ends();
    let place = page.total.map(|total| evidence_map(&roles, first, last, total));
    let total = page.total.map(|n| format::plural(n, "line", "lines"));
    let download = format!(
        "/api/v1/tasks/{}/logs/file?replica={}&launch={}",
        view.attempt.task_id, page.replica, page.launch
    );
    let label = format!("Log of {}, attempt {}, launch {}", page.replica, view.attempt.number, page.launch);
    view! {
        <div class="mt-3 overflow-hidden rounded-lg border border-hair bg-raised">
            <div class="flex flex-wrap items-center gap-x-3 gap-y-2 border-b border-hair px-3 py-2">
                <span class="whitespace-nowrap text-ink-3">{total}</span>
                {place}
                <span class="ml-auto">
                    <a href=download rel="external" download="" class=Look::Small.class()>
                        <Icon mark=Mark::Download />
                        "Download the whole log"
                    </a>
                </span>
            </div>
            <div
                id="log"
                class="max-h-[70vh] overflow-auto bg-sunken py-2 font-mono text-xs leading-5 focus-visible:-outline-offset-2"
                role="log"
                aria-live="off"
                aria-label=label
                tabindex="0"
            >
                {part.empty().map(|text| view! { <p class="px-4 py-6 font-sans text-sm text-ink-2">{text}</p> })}
                <ol>{part.lines(&roles)}</ol>
                {part.follow()}
            </div>
            <div class="flex flex-wrap items-center gap-x-3 gap-y-1 border-t border-hair px-3 py-2">
                <span class="text-ink-3">{part.showing()}</span>
                {part.ways()}
                <span class="ml-auto text-ink-3">
                    {if part.may_grow() { "" } else { "This launch has ended, so there is nothing to follow." }}
                </span>
            </div>
        </div>
        {(!roles.is_empty()).then(evidence_key)}
    }
}

/// What the marks of evidence mean.
fn evidence_key() -> AnyView {
    view! {
        <p class="mt-2 flex flex-wrap items-center gap-x-3 text-xs text-ink-3">
            <span class="size-3 border-l-[3px] border-amber bg-evidence" aria-hidden="true"></span>
            "evidence, root"
            <span class="size-3 border-l-[3px] border-edge bg-hover" aria-hidden="true"></span>
            "evidence, cascade"
        </p>
        <DerivedNote />
    }
    .into_any()
}

/// Where in the log its evidence is, and which part is shown.
fn evidence_map(roles: &[(u64, Role)], first: Option<u64>, last: Option<u64>, total: u64) -> AnyView {
    let percent = |n: u64| n.min(total) as f64 / total.max(1) as f64 * 100.0;
    let shown = first.zip(last).map(|(a, b)| {
        let (x, width) = (percent(a.saturating_sub(1)), percent(b) - percent(a.saturating_sub(1)));
        view! { <rect class="fill-start" x=format!("{x:.2}%") width=format!("{:.2}%", width.max(0.2)) height="10" /> }
    });
    let marks = roles
        .iter()
        .map(|(n, role)| {
            let class = if *role == Role::Root { "fill-still" } else { "fill-edge" };
            view! { <rect class=class x=format!("{:.2}%", percent(*n).min(99.6)) width="3" height="10" /> }
        })
        .collect_view();
    let label = match roles.iter().find(|(_, role)| *role == Role::Root) {
        Some((n, _)) => {
            format!("Where in the log: evidence at line {} of {}", format::count(*n), format::count(total))
        }
        None => "Which part of the log is shown".to_owned(),
    };
    view! {
        <svg class="h-2.5 min-w-30 flex-1 max-sm:order-last max-sm:basis-full" role="img" aria-label=label>
            <rect class="fill-hover" width="100%" height="10" rx="2" />
            {shown}
            {marks}
        </svg>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn the_log_is_that_of_the_newest_attempt_that_ran() {
        let chain = samples::chain();
        assert_eq!(log_task(&chain, None), samples::task(2), "the third is still queued");
        assert_eq!(log_task(&chain, Some(samples::task(1).as_str())), samples::task(1));
        assert_eq!(log_task(&chain, Some("nobody")), samples::task(2));
    }

    #[test]
    fn without_a_place_to_begin_it_is_the_end_of_the_log() {
        let asked = Asked { q: "gpu".to_owned(), ..Asked::default() };
        assert_eq!((query(&asked).tail, query(&asked).q.as_deref()), (Some(200), Some("gpu")));
        let asked = Asked { from: Some(88_392), replica: Some("../x".to_owned()), ..Asked::default() };
        assert_eq!(
            (query(&asked).tail, query(&asked).from, query(&asked).replica),
            (None, Some(88_392), None)
        );
    }
}
