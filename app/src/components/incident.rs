//! The record of one incident: fault, evidence, why, budget, clock, cost, and whether it was right.

use engine::{
    failure::{Confidence, Evidence, Role},
    ids::{JobId, TaskId},
    record::{Action, IncidentRecord},
    time::Time,
};
use leptos::prelude::*;

use super::{
    badge::TypeCode,
    button::Look,
    class, hang,
    icon::{Icon, Mark},
    story::{self, Numbered},
    when::ClockTime,
};
use crate::{
    console::ChainView,
    format::{self, Zone},
    paths,
    preferences::use_zone,
};

/// Evidence lines that are shown at once; more unfold.
const LINES: usize = 3;
/// Lines of the log before an evidence line, so that it is read in its place.
const LINES_BEFORE: u64 = 20;

/// The round number of an incident, the same in chain, records and chart.
#[component]
pub fn IncidentNo(
    /// From 1, over the whole chain.
    number: u32,
) -> impl IntoView {
    view! {
        <span class="inline-grid size-[17px] place-items-center rounded-full border border-edge bg-page text-[11px] leading-none font-medium text-ink">
            <span class="unseen">"incident "</span>
            {number}
        </span>
    }
}

/// One incident as a record that unfolds.
pub fn incident(chain: &ChainView, numbered: Numbered<'_>, open: bool, per_gpu: bool) -> AnyView {
    let zone = use_zone();
    let (job, over) = (&chain.job_id, chain.state.is_terminal());
    let Numbered { number, attempt, incident } = numbered;
    let task = &attempt.attempt.task_id;
    view! {
        <details class="group border-b border-hair last:border-b-0" open=open>
            <summary class="grid min-h-10 cursor-pointer list-none grid-cols-[14px_64px_17px_minmax(0,1fr)_auto] items-center gap-x-2.5 rounded-[7px] py-1.5 pr-4 pl-3 hover:bg-hover focus-visible:-outline-offset-2 max-sm:grid-cols-[14px_64px_17px_minmax(0,1fr)] [&::-webkit-details-marker]:hidden">
                <span class="text-ink-3 transition-transform group-open:rotate-90"><Icon mark=Mark::Chevron /></span>
                <span class="text-ink-3">
                    <ClockTime at=incident.at />
                </span>
                <IncidentNo number />
                <span class="font-medium">{story::headline(incident)}</span>
                <span class="max-sm:col-span-2 max-sm:col-start-3">
                    <TypeCode failure=incident.failure_type />
                </span>
            </summary>
            // Inside the record and not on it, so that a link to it opens it, without script too.
            <div class="scroll-mt-16 pt-1.5 pr-4 pb-4 pl-9 max-sm:px-4" id=incident.id.to_string()>
                <dl class=class::FACTS>
                    <dt>"Fault"</dt>
                    <dd>{fault(incident)}</dd>
                    <dt>"Evidence"</dt>
                    <dd>{evidence(job, task, incident)}</dd>
                    {hang::rows(incident)}
                    <dt>"Why"</dt>
                    <dd>{why(incident)}</dd>
                    <dt>"Budget"</dt>
                    <dd>{story::budget_words(&incident.decision)}</dd>
                    <dt>"Clock"</dt>
                    <dd>{clock(incident, over, zone)}</dd>
                    <dt>"Cost"</dt>
                    <dd>{cost(incident, per_gpu)}</dd>
                    {incident.hint.as_ref().map(|hint| view! {
                        <dt>"What to change"</dt>
                        <dd>{hint.clone()}</dd>
                    })}
                    <dt id=format!("{}-right", incident.id) class="sm:self-center">"Was this right?"</dt>
                    <dd>{feedback(incident)}</dd>
                </dl>
            </div>
        </details>
    }
    .into_any()
}

fn fault(incident: &IncidentRecord) -> AnyView {
    let root = incident.root.as_ref().map(|root| match root.rank {
        Some(rank) => format!("; root rank {rank}"),
        None => format!("; root {}", root.replica),
    });
    let followed = (incident.cascade_ranks > 0).then(|| {
        let other = if root.is_some() { "other " } else { "" };
        let ranks = format::plural(
            u64::from(incident.cascade_ranks),
            &format!("{other}rank"),
            &format!("{other}ranks"),
        );
        format!("; {ranks} only followed")
    });
    let exit = incident.root.as_ref().and_then(|root| {
        let code = root.exit_code?;
        Some(root.signal.map_or_else(|| format!("; exit {code}"), |signal| format!("; exit {code} {signal}")))
    });
    let node = incident.root.as_ref().and_then(|root| root.node.clone());
    let step = incident.step.map(|s| format!(" at step {}", format::count(s))).unwrap_or_default();
    let sure = match incident.confidence {
        Confidence::Low => "low confidence: nothing but an exit code or a default",
        Confidence::Medium => "medium confidence",
        Confidence::High => "high confidence",
    };
    view! {
        <p>
            {incident.fault.clone()} {root}
            {node.map(|node| view! { " on " <a href=paths::node(None, &node)>{node.to_string()}</a> })} {exit} {followed}
        </p>
        <p class="text-xs text-ink-3">
            {format!(
                "{} ({}) while {}{step}, launch {}; {sure}",
                incident.failure_type,
                incident.failure_type.plain(),
                story::phase_words(incident.phase),
                incident.launch,
            )}
        </p>
    }
    .into_any()
}

/// The address of a log line, some lines before it and marked.
pub fn line_address(job: &JobId, task: &TaskId, launch: u32, evidence: &Evidence) -> String {
    let from = evidence.line_number.saturating_sub(LINES_BEFORE).max(1);
    format!(
        "{}?task={task}&launch={launch}&replica={}&from={from}#L{}",
        paths::logs(job),
        evidence.replica,
        evidence.line_number
    )
}

fn evidence(job: &JobId, task: &TaskId, incident: &IncidentRecord) -> AnyView {
    let lines: Vec<&Evidence> = incident.evidence.iter().filter(|e| e.role != Role::Advice).collect();
    if lines.is_empty() && incident.hang.is_some() {
        return view! { <span class="text-ink-3">"Nothing failed by itself: the witnesses below tell."</span> }
            .into_any();
    }
    if lines.is_empty() {
        return view! { <span class="text-ink-3">"No line of the log matched a known signature."</span> }
            .into_any();
    }
    let one = |e: &&Evidence| {
        let role = if e.role == Role::Root { "root" } else { "cascade" };
        let rank = e.rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
        // What a health check found is no line of a log.
        let is_line = e.line_number > 0;
        let place = if is_line {
            format!("{}{rank}, log line {}, {role}", e.replica, format::count(e.line_number))
        } else {
            format!("{}, health check before training, {role}", e.replica)
        };
        let tone =
            if e.role == Role::Root { "border-amber-edge bg-evidence" } else { "border-edge bg-hover" };
        view! {
            <li class="not-first:mt-2">
                <span class="flex flex-wrap gap-x-2">
                    <span>{place}</span>
                    {is_line.then(|| view! {
                        <a class="ml-auto" rel="external" href=line_address(job, task, incident.launch, e)>
                            "Open in Logs"
                        </a>
                    })}
                </span>
                <div class=format!("mt-1.5 rounded-sm border border-l-[3px] px-2.5 py-1.5 font-mono text-xs wrap-anywhere {tone}")>
                    {is_line.then(|| view! { <span class="mr-2 text-ink-3 select-none">{e.line_number}</span> })}
                    {e.line.clone()}
                </div>
            </li>
        }
    };
    let rest = lines.len().saturating_sub(LINES);
    view! {
        <ul>{lines.iter().take(LINES).map(one).collect_view()}</ul>
        {(rest > 0).then(|| view! {
            <details class="mt-2">
                <summary class="cursor-pointer text-xs text-ink-3 underline decoration-edge underline-offset-3">
                    {format!("{} more", format::plural(rest as u64, "line", "lines"))}
                </summary>
                <ul class="mt-2">{lines.iter().skip(LINES).map(one).collect_view()}</ul>
            </details>
        })}
    }
    .into_any()
}

fn why(incident: &IncidentRecord) -> AnyView {
    let decision = &incident.decision;
    let in_place = (decision.action == Action::RestartInPlace)
        .then_some("Restarted in place; this creates no new task.");
    let avoid: Vec<String> = decision.avoid.iter().map(ToString::to_string).collect();
    let before = incident.diagnosed.as_ref().map(|first| {
        view! {
            <p>
                "First rule " <code class="font-mono text-xs">{first.rule.clone()}</code>
                {format!(", v{}. {}", first.policy_version, first.reason)}
            </p>
        }
    });
    view! {
        {before}
        <p>
            "Rule " <code class="font-mono text-xs">{decision.rule.clone()}</code>
            {format!(", v{}. {}", decision.policy_version, decision.reason)}
        </p>
        {in_place.filter(|text| !decision.reason.contains(text)).map(|text| view! { <p>{text}</p> })}
        {(!avoid.is_empty()).then(|| view! { <p>{format!("The next attempt avoids {}.", avoid.join(", "))}</p> })}
        {incident.repeats.then(|| view! {
            <p class="font-medium">
                {match incident.step {
                    Some(step) => format!("Same error at step {} twice, no progress.", format::count(step)),
                    None => "Same error twice, no progress.".to_owned(),
                }}
            </p>
        })}
    }
    .into_any()
}

/// Four moments on a line; what has not come yet says so.
fn clock(incident: &IncidentRecord, over: bool, zone: Zone) -> AnyView {
    let clock = incident.clock;
    let order = if incident.decision.action == Action::RestartInPlace { "ordered" } else { "submitted" };
    let moments = [
        (Some(clock.noticed_at), "noticed"),
        (clock.submitted_at, order),
        (clock.resources_at, "started"),
        (clock.first_step_at, "first step"),
    ];
    let ended = over
        || !matches!(incident.decision.action, Action::RestartInPlace | Action::Resubmit | Action::Diagnose);
    let one = |(at, word): (Option<Time>, &'static str)| {
        let dot = if at.is_some() {
            "before:bg-ink-2"
        } else {
            "before:border before:border-edge before:bg-raised"
        };
        let time = match at {
            Some(at) => format::clock(at, zone),
            None if ended => "never".to_owned(),
            None => "not yet".to_owned(),
        };
        view! {
            <li class=format!(
                "relative pt-[13px] text-xs before:absolute before:top-0.5 before:left-0 before:z-1 before:size-[7px] before:rounded-full before:shadow-[0_0_0_3px_var(--color-raised)] before:content-[''] {dot}",
            )>
                <b class="block font-medium">{time}</b>
                <span class="text-ink-3">{word}</span>
            </li>
        }
    };
    view! {
        <ol class="relative grid grid-cols-[repeat(4,auto)] justify-between gap-x-2 before:absolute before:top-[5px] before:right-13 before:left-0 before:h-px before:bg-edge before:content-[''] max-sm:grid-cols-2 max-sm:gap-2 max-sm:before:hidden">
            {moments.into_iter().map(one).collect_view()}
        </ol>
    }
    .into_any()
}

/// `300 steps redone (2 min) + 4 min start = 3.2 GPU-h; queued 6 min`.
fn cost(incident: &IncidentRecord, per_gpu: bool) -> AnyView {
    let cost = &incident.cost;
    let positive = |seconds: Option<f64>| seconds.filter(|s| s.is_finite() && *s > 0.0);
    let mut parts = Vec::new();
    if let Some(s) = positive(cost.detect_seconds) {
        parts.push(format!("{} until noticed", format::duration(s)));
    }
    if let Some(s) = positive(cost.save_seconds) {
        parts.push(format!("{} saving", format::duration(s)));
    }
    let start = positive(cost.start_seconds).unwrap_or(0.0) + positive(cost.load_seconds).unwrap_or(0.0);
    if start > 0.0 {
        parts.push(format!("{} start", format::duration(start)));
    }
    if let Some(steps) = cost.redone_steps.filter(|s| *s > 0) {
        let time =
            positive(cost.redo_seconds).map(|s| format!(" ({})", format::duration(s))).unwrap_or_default();
        parts.push(format!("{} redone{time}", format::plural(steps, "step", "steps")));
    }
    let total = positive(cost.accelerator_seconds).map(|s| device_time(s, per_gpu));
    let queue = positive(cost.queue_seconds).map(|s| format!("; queued {}", format::duration(s)));
    if parts.is_empty() && total.is_none() {
        return view! { <span class="text-ink-3">"not known"</span> }.into_any();
    }
    let equals = if parts.is_empty() { "" } else { " = " };
    view! {
        {parts.join(" + ")} {total.map(|total| view! { {equals} <b>{total}</b> })} {queue}
    }
    .into_any()
}

/// Accelerator time; of a job without accelerators the slots it holds.
pub fn device_time(seconds: f64, per_gpu: bool) -> String {
    let text = format::gpu_time(seconds);
    if per_gpu { text } else { text.replace("GPU", "slot") }
}

/// A plain form, so that it works without script.
fn feedback(incident: &IncidentRecord) -> AnyView {
    let described = format!("{}-right", incident.id);
    let button = |value: &'static str, word: &'static str, on: bool| {
        let class = if on { class::CHOSEN } else { Look::Small.class() };
        view! {
            <button class=class name="right" value=value aria-pressed=on.to_string() aria-describedby=described.clone()>
                {word}
            </button>
        }
    };
    let answered = incident.right.is_some();
    view! {
        <form class="flex flex-wrap items-center gap-2" method="post" action=paths::feedback(&incident.id)>
            {button("yes", "Yes", incident.right == Some(true))} {button("no", "No", incident.right == Some(false))}
            {answered.then(|| button("", "Take back", false))}
        </form>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{console::ChainView, samples};

    fn html(chain: &ChainView, number: usize) -> String {
        let all = story::incidents(chain);
        Owner::new().with(|| incident(chain, all[number - 1], true, true).to_html())
    }

    #[test]
    fn a_record_holds_fault_evidence_why_budget_and_cost() {
        let html = html(&samples::chain(), 2);
        for wanted in [
            "Xid 79 on node-07, rank 14",
            "exit 134 SIGABRT",
            "31 other ranks only followed",
            "from=88392#L88412",
            "hw-node-avoid",
            "Task restarts 0 → 1 of 2; in place not charged",
            "300 steps redone (2 min)",
            "3.2 GPU-h",
            "queued 6 min",
            "method=\"post\"",
            "-i2/feedback",
        ] {
            assert!(html.contains(wanted), "{wanted} is missing in {html}");
        }
        assert!(html.contains("&lt;unknown&gt;") || html.contains("&lt;unknown>"), "lines are text: {html}");
        assert!(!html.contains("style="), "the content security policy forbids style attributes");
    }

    #[test]
    fn an_in_place_restart_says_that_it_makes_no_new_task() {
        let html = html(&samples::chain(), 1);
        assert_eq!(html.matches("Restarted in place; this creates no new task.").count(), 1);
    }

    #[test]
    fn a_repeat_without_progress_is_pointed_out() {
        let html = html(&samples::fail_fast(), 2);
        assert!(html.contains("Same error at step 1,200 twice, no progress."), "{html}");
        assert!(html.contains("Nothing charged") && !html.contains("<b>shape</b>"));
    }
}
