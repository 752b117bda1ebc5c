//! Overview: how it stands in one sentence, how far it is, where the time went, and what came last.

use engine::{
    job::Mode,
    record::{AttemptCause, AttemptRecord, State, Substate},
    time::Time,
};
use leptos::prelude::*;

use super::{
    attempt::unknown_notice,
    data::{selected, use_query, use_whole},
};
use crate::{
    components::{
        badge::{StateBadge, Tag, TypeCode, of_state},
        class,
        exit_save::{Countdown, save_words},
        exit_test,
        failed::FailedPart,
        log_view::tail_line,
        node_names::node_names,
        notice::Notice,
        pips::Pips,
        proof, story,
        strip::fill_key,
        table::SectionHead,
        timeline::Timeline,
        when::ClockTime,
    },
    console::{AttemptView, ChainView, EventsPage, EventsQuery, JobView, LogPage, LogQuery},
    error::AppError,
    format::{self, so_far},
    paths,
    preferences::use_zone,
    server_fns::jobs::{get_events, get_logs},
    shortcuts::named,
};

/// Log lines that are shown.
const LINES: u32 = 12;
/// Events that are shown.
const EVENTS: u32 = 6;

/// The tab.
#[component]
pub fn Overview() -> impl IntoView {
    let whole = use_whole();
    let task = use_query("task");
    let (id, live) = (super::data::use_job_id(), crate::live::use_live());
    let events = Resource::new_blocking(
        move || (id.get(), live.ticks()),
        |(id, _)| async move {
            let query =
                EventsQuery { checkpoints: Some(false), limit: Some(EVENTS), ..EventsQuery::default() };
            get_events(id?, query).await
        },
    );
    // The log's task is known once the chain is: the newest attempt that has run.
    let tail = Resource::new_blocking(
        move || (id.get(), task.get(), live.ticks()),
        move |(_, task, _)| async move {
            let chain = whole.chain().await?;
            let asked = selected(&chain, task.as_deref());
            let ran = |a: &&AttemptView| a.attempt.number <= asked.number && !a.launches.is_empty();
            match chain.attempts.iter().rev().find(|a| ran(a) && a.attempt.started_at.is_some()) {
                Some(view) => get_logs(
                    view.attempt.task_id.clone(),
                    LogQuery { tail: Some(LINES), ..LogQuery::default() },
                )
                .await
                .map(|page| Some((view.attempt.number, page))),
                None => Ok(None),
            }
        },
    );
    view! {
        <Transition>
            {move || {
                let task = task.get();
                let own = async move { (events.await, tail.await) };
                whole.show(own, move |job, chain, (events, tail)| view! { <Loaded job chain events tail task /> }.into_any())
            }}
        </Transition>
    }
}

type Tail = Result<Option<(u32, LogPage)>, AppError>;

#[component]
fn Loaded(
    job: JobView,
    chain: ChainView,
    events: Result<EventsPage, AppError>,
    tail: Tail,
    task: Option<String>,
) -> impl IntoView {
    let chosen = selected(&chain, task.as_deref());
    let shown = story::attempts(&story::shown(&chain, None)).iter().map(|a| a.attempt.number).collect();
    let zone = use_zone();
    let day = chain
        .attempts
        .first()
        .and_then(|a| a.attempt.submitted_at)
        .map(|at| format!("{}, to scale", format::date(at, zone)));
    view! {
        {chosen.unknown.as_deref().map(unknown_notice)}
        <div class="mt-5">
            <Outcome job=job.clone() chain=chain.clone() />
        </div>
        <div class="mt-7 grid grid-cols-[minmax(0,1fr)_380px] gap-x-10 gap-y-8 max-xl:grid-cols-1">
            <div class="min-w-0">
                <Progress job=job.clone() chain=chain.clone() />
                <section class="mt-8" aria-labelledby="t-h">
                    <SectionHead id="t-h" title="Timeline">
                        {fill_key(true)} <span class="ml-auto text-ink-3">{day}</span>
                    </SectionHead>
                    <Timeline chain=chain.clone() attempts=shown />
                </section>
                <LastLines job=job.clone() tail />
            </div>
            <div class="min-w-0">
                <Facts job=job.clone() chain=chain.clone() number=chosen.number />
                {exit_test::section(&job, &chain)}
                <LastEvents job=job.clone() events />
            </div>
        </div>
    }
}

/// The outcome in a sentence, in the tone of the state.
#[component]
fn Outcome(job: JobView, chain: ChainView) -> impl IntoView {
    let (tone, mark, word) = of_state(job.summary.state);
    let words = outcome_words(&job, &chain);
    view! {
        <Notice tone mark>
            <p>
                <b>
                    {format!("{word}: ")}
                    {match job.summary.saving_until {
                        Some(until) => view! { <Countdown until now=job.now /> }.into_any(),
                        None => job.summary.tail.trim_end_matches('.').to_owned().into_any(),
                    }} ". "
                </b>
                {words}
                " "
                <a href=paths::fault_tolerance(&job.job_id)>"See the retry chain"</a>
            </p>
        </Notice>
    }
}

/// What follows the state: why, and what it means for a person.
pub fn outcome_words(job: &JobView, chain: &ChainView) -> String {
    let summary = &job.summary;
    let mut said = Vec::new();
    let queue = chain
        .attempts
        .last()
        .filter(|a| a.attempt.started_at.is_none())
        .and_then(|a| a.attempt.queue.as_ref());
    if let Some((needs, nodes)) = queue.and_then(|q| q.needs_nodes.zip(q.nodes)) {
        said.push(format!(
            "It needs {} and {} free.",
            format::plural(u64::from(needs), "node", "nodes"),
            are(nodes.free)
        ));
    }
    said.extend(story::hindrance(chain).map(|(_, text)| text));
    if summary.state == State::Saving {
        said.push("It was told to save, and ends then.".to_owned());
    }
    if summary.state == State::Failed {
        let fault = chain.attempts.last().and_then(|newest| newest.attempt.fault.as_ref());
        said.extend(fault.map(|fault| format!("What failed: {}.", fault.trim_end_matches('.'))));
    }
    if summary.state.is_terminal() {
        let why = chain.why_not.as_ref().filter(|why| !summary.tail.contains(&why.text));
        said.extend(why.map(|why| why.text.clone()));
        said.extend(chain.why_not.as_ref().map(|why| why.next.clone()).filter(|next| !next.is_empty()));
    }
    if let Some(verdict) = proof::worst_verdict(chain) {
        let launch = chain.attempts.last().and_then(|a| a.launches.last());
        if let Some(launch) = launch.filter(|l| l.proof.verdict == verdict) {
            let (word, note) = proof::verdict_words(launch, None);
            said.push(format!("{word}: {note}"));
        }
    }
    if summary.substate == Some(Substate::Unknown) {
        said.push(
            "The cluster or its agents cannot be reached; nothing is restarted until it is known dead."
                .to_owned(),
        );
    }
    if summary.substate == Some(Substate::SuspectedHang) {
        said.push(
            "A hang is suspected. If nothing moves until then, the policy acts; a step ends the suspicion."
                .to_owned(),
        );
    }
    said.extend(summary.kept.as_ref().map(|why| format!("Its attempt is still on the cluster: {why}.")));
    if let Some(saved) = summary.saved_step.filter(|_| summary.state != State::Succeeded) {
        said.push(format!("Step {} is saved.", format::count(saved)));
    }
    said.join(" ")
}

fn are(n: u32) -> String {
    if n == 1 { "1 is".to_owned() } else { format!("{n} are") }
}

/// Steps reached and saved of all.
#[component]
fn Progress(job: JobView, chain: ChainView) -> impl IntoView {
    let summary = &job.summary;
    let Some(reached) = summary.reached_step else {
        return view! {
            <section aria-labelledby="p-h">
                <SectionHead id="p-h" title="Progress" />
                <p class="text-ink-3">{format!("No step was printed{}.", so_far(summary.state.is_terminal()))}</p>
            </section>
        }
        .into_any();
    };
    let saved = summary.saved_step.map_or("none saved".to_owned(), |s| format!("{} saved", format::count(s)));
    let of = summary.total_steps.map(|total| format!(" of {}", format::count(total))).unwrap_or_default();
    let percent = format::share_percent(Some(reached), summary.total_steps);
    let width = |step: u64| match summary.total_steps {
        Some(total) if total > 0 => (step.min(total) as f64 / total as f64) * 100.0,
        _ => 0.0,
    };
    let bar = summary.total_steps.map(|_| {
        let (done, safe) = (width(reached), width(summary.saved_step.unwrap_or(0).min(reached)));
        let label = format!("{} percent", percent.unwrap_or(0));
        view! {
            <svg class="h-2.5 w-full overflow-hidden rounded-xs" role="img" aria-label=label>
                <rect class="fill-hover" width="100%" height="10" />
                <rect class="fill-kept" width=format!("{safe:.2}%") height="10" />
                <rect fill="url(#h-ghost)" x=format!("{safe:.2}%") width=format!("{:.2}%", done - safe) height="10" />
            </svg>
        }
    });
    let percent = match percent {
        Some(percent) => format!("{percent} %"),
        None if summary.state.is_terminal() => String::new(),
        None => "For a percentage, print how many steps there will be: holdfast step=59 total=600".to_owned(),
    };
    let rest = rate_words(&job, &chain);
    view! {
        <section aria-labelledby="p-h">
            <SectionHead id="p-h" title="Progress">
                <span class="ml-auto text-ink-3">{format!("step {}{of} reached, {saved}", format::count(reached))}</span>
            </SectionHead>
            {bar}
            <p class="mt-1.5 flex flex-wrap justify-between gap-x-4 text-xs text-ink-3">
                <span>{percent}</span>
                <span>{rest}</span>
            </p>
        </section>
    }
    .into_any()
}

/// `At 150 steps a minute: 5 h 33 m left`, from the newest launch that made steps.
fn rate_words(job: &JobView, chain: &ChainView) -> Option<String> {
    let total = job.summary.total_steps?;
    let launch =
        chain.attempts.iter().rev().flat_map(|a| a.launches.iter().rev()).find(|l| l.steps.is_some())?;
    let steps = launch.steps?;
    let from = launch.proof.progress.at?;
    let to: Time = launch.ended_at.unwrap_or(chain.now);
    let seconds = to.seconds_since(from);
    let made = steps.last.saturating_sub(steps.first);
    // A rate of a few seconds or steps says nothing about hours.
    if seconds < 5.0 || made < 5 || job.summary.state.is_terminal() {
        return None;
    }
    let a_minute = made as f64 / seconds * 60.0;
    let left = total.saturating_sub(job.summary.saved_step.unwrap_or(0).max(steps.last.min(total)));
    let time = format::duration(left as f64 / a_minute * 60.0);
    let runs = launch.ended_at.is_none();
    let when = if runs { "left" } else { "from the moment it runs again" };
    Some(format!("At {} steps a minute: {time} {when}", format::count(a_minute.round() as u64)))
}

/// The end of the log of the newest attempt that ran.
#[component]
fn LastLines(job: JobView, tail: Tail) -> impl IntoView {
    let zone = use_zone();
    let (note, body) = match tail {
        Ok(Some((number, page))) if !page.lines.is_empty() => {
            let note = format!("attempt {number}, launch {}, {}", page.launch, page.replica);
            let lines = page.lines.iter().map(|line| tail_line(line, zone)).collect_view();
            let body = view! {
                <div class="overflow-hidden rounded-lg border border-hair bg-sunken">
                    <ol class="py-2 font-mono text-xs leading-5" aria-labelledby="l-h">
                        {lines}
                    </ol>
                </div>
            }
            .into_any();
            (note, body)
        }
        Ok(_) => {
            let nothing = format!("Nothing was printed{}.", so_far(job.summary.state.is_terminal()));
            (String::new(), view! { <p class="text-ink-3">{nothing}</p> }.into_any())
        }
        Err(error) => (String::new(), view! { <FailedPart error /> }.into_any()),
    };
    view! {
        <section class="mt-8" aria-labelledby="l-h">
            <SectionHead id="l-h" title="Last log lines">
                <span class="text-ink-3">{note}</span>
                <a class=class::AT_END href=paths::logs(&job.job_id)>
                    "Open Logs"
                </a>
            </SectionHead>
            {body}
        </section>
    }
}

/// Facts of the attempt.
#[component]
fn Facts(job: JobView, chain: ChainView, number: u32) -> impl IntoView {
    let Some(view) = chain.attempts.iter().find(|a| a.attempt.number == number) else { return ().into_any() };
    let a = &view.attempt;
    let total = chain.attempts_total;
    let link = |n: u32, word: &'static str, key: Option<&'static str>| {
        let key = key.and_then(named);
        let view = chain.attempts.iter().find(|a| a.attempt.number == n)?;
        let href = format!("{}?task={}", paths::job(&job.job_id), view.attempt.task_id);
        let title = key.map(|key| format!("{word} attempt ({key})"));
        Some(view! { <a href=href title=title aria-keyshortcuts=key>{word}</a> })
    };
    let original = (number > 1).then(|| link(1, "original", None)).flatten();
    let before = (number > 1).then(|| link(number - 1, "previous", Some("["))).flatten();
    let after = (number < total).then(|| link(number + 1, "next", Some("]"))).flatten();
    let newest = (number < total).then(|| link(total, "newest", None)).flatten();
    let avoids: Vec<String> = a.avoided_nodes.iter().map(ToString::to_string).collect();
    let waits = a.state == State::Queued;
    let position =
        a.queue.as_ref().and_then(|q| q.position).map(|p| format!(", position {p}")).unwrap_or_default();
    view! {
        <section aria-labelledby="at-h">
            <SectionHead id="at-h" title=format!("Attempt {number} of {total}")>
                <span class="ml-auto inline-flex items-center gap-2">
                    {original} {(number == 1).then(|| view! { <Tag text="original" /> })} {before} {after} {newest}
                    {(number == total && total > 1).then(|| view! { <Tag text="newest" /> })}
                </span>
            </SectionHead>
            <dl class=format!("rounded-lg border border-hair bg-raised p-4 {}", class::FACTS)>
                <dt>"Task ID"</dt>
                <dd class="font-mono text-xs">{a.task_id.to_string()}</dd>
                <dt>"State"</dt>
                <dd>
                    <StateBadge state=a.state />
                </dd>
                {a.submitted_at.map(|at| view! {
                    <dt>{if waits { "Queued" } else { "Submitted" }}</dt>
                    <dd>{if waits { "since " } else { "at " }}<ClockTime at />{position}</dd>
                })}
                <dt>"Cause"</dt>
                <dd>{cause(&chain, view)}</dd>
                {(!a.nodes.is_empty()).then(|| view! { <dt>"Nodes"</dt> <dd>{node_names(&a.nodes)}</dd> })}
                {(!avoids.is_empty()).then(|| view! { <dt>"Avoids"</dt> <dd>{avoids.join(", ")}</dd> })}
                {resumed_from(view).map(|(term, text)| view! { <dt>{term}</dt> <dd>{text}</dd> })}
                {exit_save(&job, a).map(|text| view! { <dt>"Exit ckpt"</dt> <dd>{text}</dd> })}
                <dt>"Task restarts"</dt>
                <dd>
                    <Pips used=chain.budgets.task_restarts left=true />
                </dd>
                {(number == total).then(|| view! {
                    <dt>"In place here"</dt>
                    <dd>
                        <Pips used=chain.budgets.in_place_restarts left=true />
                    </dd>
                })}
                {(number == total && chain.mode == Mode::Full).then(|| view! {
                    <dt>"After a hang"</dt>
                    <dd>
                        <Pips used=chain.budgets.hang_restarts left=true />
                    </dd>
                })}
            </dl>
        </section>
    }
    .into_any()
}

/// How the save before the end went, or that there will be one.
fn exit_save(job: &JobView, attempt: &AttemptRecord) -> Option<String> {
    if let Some(save) = &attempt.exit_checkpoint {
        return Some(save_words(save));
    }
    let settings = &job.spec.fault_tolerance.exit_checkpoint;
    let is_to_come = settings.enabled && !attempt.state.is_terminal();
    is_to_come.then(|| {
        format!("told to save before it ends: port {}, up to {} s", settings.port, settings.max_wait_seconds)
    })
}

/// What began an attempt.
fn cause(chain: &ChainView, view: &AttemptView) -> AnyView {
    let before = chain.attempts.iter().find(|b| b.attempt.number + 1 == view.attempt.number);
    match (view.attempt.cause, before.and_then(|b| b.attempt.failure_type)) {
        (AttemptCause::Failure, Some(failure)) => {
            view! { "resubmitted after " <TypeCode failure /> }.into_any()
        }
        (cause, _) => view! { {story::cause_words(cause).to_lowercase()} }.into_any(),
    }
}

/// The step and the checkpoint that its newest launch resumed from, or is to.
fn resumed_from(view: &AttemptView) -> Option<(&'static str, String)> {
    let checkpoint = &view.launches.last()?.proof.checkpoint;
    let step = checkpoint.step.or(checkpoint.expected)?;
    let path = checkpoint.path.as_ref().map(|path| format!(", {path}")).unwrap_or_default();
    let term = if checkpoint.step.is_some() { "Resumed from" } else { "To resume from" };
    Some((term, format!("step {}{path}", format::count(step))))
}

/// The newest entries of the history; of checkpoints, which would be most of them, Progress tells.
#[component]
fn LastEvents(job: JobView, events: Result<EventsPage, AppError>) -> impl IntoView {
    let body = match events {
        Ok(page) if page.items.is_empty() => {
            view! { <p class="text-ink-3">"Nothing was recorded."</p> }.into_any()
        }
        Ok(page) => {
            let items = page
                .items
                .iter()
                .map(|event| {
                    view! {
                        <li class="grid grid-cols-[76px_1fr] border-b border-hair py-2 last:border-b-0">
                            <span class="text-ink-3">
                                <ClockTime at=event.at />
                            </span>
                            <div class="min-w-0 wrap-anywhere">
                                <p>{event.text.clone()}</p>
                                <p class="text-xs text-ink-3">{format!("{}, by {}", super::events::kind_name(event.kind), event.by)}</p>
                            </div>
                        </li>
                    }
                })
                .collect_view();
            view! { <ol>{items}</ol> }.into_any()
        }
        Err(error) => view! { <FailedPart error /> }.into_any(),
    };
    view! {
        <section class="mt-8" aria-labelledby="ev-h">
            <SectionHead id="ev-h" title="Last events">
                <a class=class::AT_END href=paths::events(&job.job_id)>
                    "Open Events"
                </a>
            </SectionHead>
            {body}
        </section>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn what_keeps_an_attempt_on_the_cluster_is_told() {
        let chain = samples::fail_fast();
        let mut job = samples::job(&chain);
        job.summary.kept = Some("node n1 is not heard".to_owned());
        let words = outcome_words(&job, &chain);
        assert!(words.contains("Its attempt is still on the cluster: node n1 is not heard. "), "{words}");
    }

    #[test]
    fn the_outcome_says_why_and_what_next() {
        for (chain, wanted) in [
            (samples::chain(), "It needs 4 nodes and 3 are free. Step 40,000 is saved."),
            (
                samples::fail_fast(),
                "What failed: RuntimeError in rank 0. Change the program or its input, then resubmit. Step 1,100 is saved.",
            ),
        ] {
            assert_eq!(outcome_words(&samples::job(&chain), &chain), wanted);
        }
    }
}
