//! The retry chain: attempts on a rail, launches as boxes inside them. Nested ordered lists; lines are decoration.

use engine::{
    record::{
        Action, AttemptCause, Budget, IncidentRecord, LaunchCause, LaunchRecord, QueueReason, State, Used,
    },
    time::Time,
};
use leptos::prelude::*;

use super::{
    badge::{Bare, StateBadge, Tag, Tone, TypeCode, of_state},
    checks,
    diagnosis_row::diagnosis_row,
    exit_save,
    icon::{Icon, Mark},
    incident::IncidentNo,
    pips::PipRow,
    story::{self, Ending, Numbered, Shown},
    strip::{Spans, fill_key, strip},
};
use crate::{
    console::{AttemptView, ChainView, DiagnosisView, JobView},
    format::{self, Zone},
    paths,
    preferences::use_zone,
};

/// Launches of one attempt that are drawn; of more the first and the last three are.
const LAUNCHES: usize = 6;
/// Launches that fit beside each other; more stand below each other.
const IN_A_ROW: usize = 2;

/// The chain as a drawing.
#[component]
pub fn Chain(
    /// The head of the job.
    job: JobView,
    /// The chain.
    chain: ChainView,
    /// The first attempt to show, from the address.
    from: Option<u32>,
    /// The attempt the page is about.
    selected: u32,
) -> impl IntoView {
    let numbered = story::incidents(&chain);
    let shown = story::shown(&chain, from);
    let complete = matches!(shown.last(), Some(Shown::Attempt(_)));
    let context = Context { job: &job, chain: &chain, numbered: &numbered, selected, zone: use_zone() };
    let items = shown
        .iter()
        .map(|item| match item {
            Shown::Attempt(attempt) => context.attempt(attempt),
            Shown::Folded { count, from } => context.folded(*count, *from),
        })
        .collect_view();
    let end = complete.then(|| context.end());
    view! {
        <ol id="chain">
            {items}
            {end}
        </ol>
        <div class="mt-3.5 flex flex-wrap items-center gap-x-4 gap-y-1 pl-9.5">
            {fill_key(false)} <span class="ml-auto text-xs text-ink-3">"strips show the share within a launch"</span>
        </div>
    }
}

/// What every part of the drawing needs to know.
struct Context<'a> {
    job: &'a JobView,
    chain: &'a ChainView,
    numbered: &'a [Numbered<'a>],
    selected: u32,
    zone: Zone,
}

impl Context<'_> {
    fn short(&self, at: Time) -> String {
        let attempts = &self.chain.attempts;
        let began = attempts.first().and_then(|a| a.attempt.submitted_at);
        let ended = attempts.last().and_then(|a| a.attempt.ended_at).unwrap_or(self.chain.now);
        format::clock_within(began.map_or(0.0, |began| ended.seconds_since(began)), at, self.zone)
    }

    fn attempt(&self, view: &AttemptView) -> AnyView {
        let a = &view.attempt;
        let (tone, ..) = of_state(a.state);
        let newest = a.number == self.chain.attempts_total;
        let hop = self.hop_after(view);
        let queue = a.queue.as_ref().filter(|_| !a.state.is_terminal());
        let times = match (a.submitted_at, a.ended_at) {
            (Some(from), Some(to)) => {
                format!(
                    "{}–{}, {}",
                    self.short(from),
                    self.short(to),
                    format::duration(to.seconds_since(from))
                )
            }
            (Some(from), None) => {
                format!(
                    "since {}, {}",
                    self.short(from),
                    format::duration(self.chain.now.seconds_since(from))
                )
            }
            (None, _) => story::not_submitted(view.attempt.state).to_owned(),
        };
        view! {
            <li
                id=a.task_id.to_string()
                class=format!(
                    "relative pl-9.5 before:absolute before:top-6.5 before:left-3 before:content-[''] {}",
                    if newest {
                        "before:-bottom-3.5 before:border-l-2 before:border-dotted before:border-edge"
                    } else {
                        "before:-bottom-0.5 before:w-0.5 before:bg-rule"
                    },
                )
                aria-current=(a.number == self.selected).then_some("true")
            >
                <span
                    class=format!(
                        "absolute top-0 left-0 grid size-6.5 place-items-center rounded-[7px] border-[1.5px] text-sm font-semibold {}",
                        tone.boxed(),
                    )
                    aria-hidden="true"
                >
                    {a.number}
                </span>
                <div class="flex min-h-6.5 flex-wrap items-center gap-x-2 gap-y-0.5">
                    <h3>{format!("Attempt {}", a.number)}</h3>
                    <a class="font-mono text-xs" href=paths::attempt(&self.job.job_id, &a.task_id) title=a.task_id.to_string()>
                        {story::short_id(&a.task_id)}
                    </a>
                    {(a.number == 1).then(|| view! { <Tag text="original" /> })}
                    {(newest && a.number > 1).then(|| view! { <Tag text="newest" /> })} <StateBadge state=a.state />
                    <span class="ml-auto text-ink-3 max-sm:ml-0 max-sm:w-full">{times}</span>
                </div>
                {(!view.launches.is_empty()).then(|| self.launches(view))}
                {queue.map(why_queued)}
                {a.exit_checkpoint.as_ref().map(|exit| {
                    let text = format!("Exit ckpt: {}", exit_save::save_words(exit));
                    view! { <p class="mt-1.5 text-xs text-ink-3">{text}</p> }
                })}
                {self.diagnoses(view)}
                {hop}
            </li>
        }
        .into_any()
    }

    fn launches(&self, view: &AttemptView) -> AnyView {
        let row = view.launches.len() <= IN_A_ROW;
        let fold = view.launches.len() > LAUNCHES;
        let last = view.launches.len().saturating_sub(3);
        let draw = |launches: &[LaunchRecord]| {
            launches.iter().map(|launch| self.launch(view, launch, row)).collect_view()
        };
        let items = if fold {
            let hidden = last - 1;
            view! {
                {draw(&view.launches[..1])}
                <li class="block">
                    <details>
                        <summary class="my-1 cursor-pointer py-1 pl-6.5 text-xs text-ink-3 underline decoration-edge underline-offset-3">
                            {format!("{hidden} launches folded")}
                        </summary>
                        <ol>{draw(&view.launches[1..last])}</ol>
                    </details>
                </li>
                {draw(&view.launches[last..])}
            }
            .into_any()
        } else {
            draw(&view.launches).into_any()
        };
        let class = if row { "mt-2 flex max-sm:block" } else { "mt-2 block" };
        view! { <ol class=class>{items}</ol> }.into_any()
    }

    fn launch(&self, view: &AttemptView, launch: &LaunchRecord, row: bool) -> AnyView {
        let before = launch.number.checked_sub(1).and_then(|n| restart_of(view, n));
        let incident = view.incidents.iter().rev().find(|i| i.launch == launch.number);
        let edge = before.map(|incident| self.edge(incident, row));
        let class = match (row, edge.is_some()) {
            (true, true) => "flex min-w-0 flex-[1.5_1_0] max-sm:block",
            (true, false) => "flex min-w-0 flex-[1_1_0] max-sm:block",
            (false, _) => "block",
        };
        let steps = launch.steps.map_or_else(
            || "no step".to_owned(),
            |s| format!("steps {} to {}", format::count(s.first), format::count(s.last)),
        );
        let times = match (launch.started_at, launch.ended_at) {
            (Some(from), Some(to)) => format!("{}–{}", self.short(from), self.short(to)),
            (Some(from), None) => format!("since {}", self.short(from)),
            _ => "not started".to_owned(),
        };
        let spans = Spans::of(launch, incident, self.chain.now);
        view! {
            <li class=class>
                {edge}
                <div class="min-w-0 flex-1 rounded-md border border-edge bg-raised px-2.5 pt-[7px] pb-[9px]">
                    <p class="flex flex-wrap items-baseline gap-x-2">
                        <b>{format!("Launch {}", launch.number)}</b>
                        {(launch.cause == LaunchCause::ExitTest)
                            .then(|| view! { <span class="text-xs text-ink-3">"after a test of the exit notification; not charged"</span> })}
                        {(launch.cause == LaunchCause::Requeue)
                            .then(|| view! { <span class="text-xs text-ink-3">"after its queue took the resources back; not charged"</span> })}
                        <span class="ml-auto text-xs text-ink-3">{times}</span>
                    </p>
                    <p class="flex flex-wrap items-baseline gap-x-2">
                        <span>{steps}</span>
                        <span class="ml-auto">{launch_end(view, launch, incident)}</span>
                    </p>
                    {launch.health_checks.as_ref().map(checks::checks)}
                    {spans.map(strip)}
                </div>
            </li>
        }
        .into_any()
    }

    /// The arrow between two launches of one attempt.
    fn edge(&self, incident: &IncidentRecord, row: bool) -> AnyView {
        let decision = &incident.decision;
        let of = decision.allowed.map_or(String::new(), |allowed| format!(" of {allowed}"));
        let text = match decision.charged {
            Budget::HangRestarts | Budget::InPlaceRestarts => format!("in place {}{of}", decision.after),
            _ => "in place".to_owned(),
        };
        let class = if row {
            "relative flex-[0_0_128px] pt-[3px] pr-3.5 pl-2.5 text-center text-xs before:absolute before:top-[22px] before:right-[5px] before:left-0 before:h-0.5 before:bg-violet-edge before:content-[''] after:absolute after:top-[19px] after:right-1 after:border-4 after:border-r-0 after:border-l-[6px] after:border-transparent after:border-l-violet-edge after:content-[''] max-sm:flex max-sm:flex-wrap max-sm:gap-x-2 max-sm:py-2 max-sm:pl-6.5 max-sm:text-left max-sm:before:top-0 max-sm:before:right-auto max-sm:before:bottom-[5px] max-sm:before:left-[11px] max-sm:before:h-auto max-sm:before:w-0.5 max-sm:after:top-auto max-sm:after:right-auto max-sm:after:bottom-px max-sm:after:left-2 max-sm:after:border-4 max-sm:after:border-t-[6px] max-sm:after:border-b-0 max-sm:after:border-transparent max-sm:after:border-t-violet-edge [&>span]:block [&>span]:whitespace-nowrap sm:[&>span+span]:mt-1.5"
        } else {
            "relative flex flex-wrap gap-x-2 py-2 pl-6.5 text-xs before:absolute before:top-0 before:bottom-[5px] before:left-[11px] before:w-0.5 before:bg-violet-edge before:content-[''] after:absolute after:bottom-px after:left-2 after:border-4 after:border-t-[6px] after:border-b-0 after:border-transparent after:border-t-violet-edge after:content-['']"
        };
        view! {
            <div class=class>
                <span>{self.incident_link(incident)}</span>
                <span>{text}</span>
            </div>
        }
        .into_any()
    }

    fn incident_link(&self, incident: &IncidentRecord) -> AnyView {
        let number = story::number_of(self.numbered, &incident.id);
        view! {
            {number.map(|number| view! { <IncidentNo number /> })}
            " "
            // The router would not open the record; the browser does.
            <a href=format!("#{}", incident.id) rel="external">
                <TypeCode failure=incident.failure_type />
            </a>
        }
        .into_any()
    }

    /// Diagnoses of this attempt's nodes, oldest first: they lie between it and the next one.
    fn diagnoses(&self, view: &AttemptView) -> AnyView {
        let of = |run: &&DiagnosisView| run.task_id.as_ref() == Some(&view.attempt.task_id);
        let runs = self.chain.diagnostics.iter().rev().filter(of);
        runs.map(|run| diagnosis_row(run, |at| self.short(at))).collect_view().into_any()
    }

    /// The line on the rail from this attempt to the next one.
    fn hop_after(&self, view: &AttemptView) -> Option<AnyView> {
        let next = self.chain.attempts.iter().find(|a| a.attempt.number == view.attempt.number + 1)?;
        let next = &next.attempt;
        let incident =
            view.incidents.iter().rev().find(|i| i.decision.next_task_id.as_ref() == Some(&next.task_id));
        let automatic = next.cause == AttemptCause::Failure;
        let charged = incident
            .map(|i| &i.decision)
            .filter(|d| automatic && d.charged == Budget::TaskRestarts)
            .map(|d| Used { used: d.after, allowed: d.allowed.unwrap_or(d.after) });
        let mut facts = vec![
            next.submitted_at
                .map_or(story::not_submitted(next.state).to_owned(), |at| format::clock(at, self.zone)),
        ];
        if let (Some(from), Some(to)) = (next.submitted_at, next.waited_until()) {
            facts.push(format!("queued {}", format::duration(to.seconds_since(from))));
        }
        let by_hand = next.cause == AttemptCause::Manual;
        let dot = if by_hand { "border-dashed border-edge" } else { "border-rule" };
        let avoided = next
            .avoided_nodes
            .iter()
            .enumerate()
            .map(|(i, node)| {
                let before = if i == 0 { "; avoids " } else { ", " };
                view! { {before} <a href=paths::node(None, node)>{node.to_string()}</a> }
            })
            .collect_view();
        Some(
            view! {
                <div class="relative grid grid-cols-[minmax(0,1fr)_auto] gap-x-4 py-[11px] max-sm:grid-cols-1 max-sm:gap-1">
                    <span class=format!(
                        "absolute top-2.5 -left-9 grid size-5.5 place-items-center rounded-full border-[1.5px] bg-page text-ink-2 {dot}",
                    )><Icon mark=if by_hand { Mark::Person } else { Mark::Down } /></span>
                    <div>
                        <p>
                            <b>{story::cause_words(next.cause)}</b>
                            {incident.filter(|_| automatic).map(|i| view! { " after " {self.incident_link(i)} })}
                        </p>
                        <p class="text-xs text-ink-3">{facts.join(", ")} {avoided}</p>
                    </div>
                    <div class="text-right max-sm:flex max-sm:items-center max-sm:gap-2 max-sm:text-left">
                        {match charged {
                            Some(budget) => {
                                view! {
                                    <p>
                                        <PipRow used=budget />
                                    </p>
                                    <p class="text-xs text-ink-3">{story::used(budget)}</p>
                                }
                                    .into_any()
                            }
                            None => view! { <p class="text-xs text-ink-3">"not charged"</p> }.into_any(),
                        }}
                    </div>
                </div>
            }
            .into_any(),
        )
    }

    fn folded(&self, count: u32, from: u32) -> AnyView {
        let href = format!("{}?from={from}", paths::fault_tolerance(&self.job.job_id));
        view! {
            <li class="relative py-2 pl-9.5 before:absolute before:top-0 before:bottom-0 before:left-3 before:border-l-2 before:border-dotted before:border-edge before:content-['']">
                <a href=href>{format!("{count} folded")}</a>
                <span class="text-ink-3">
                    {if count == 1 {
                        format!(" attempt {from}")
                    } else {
                        format!(" attempts {from} to {}", from + count - 1)
                    }}
                </span>
            </li>
        }
        .into_any()
    }

    fn end(&self) -> AnyView {
        let (ending, words) = story::ending(self.job, self.chain);
        let dot = match ending {
            Ending::Left => "rounded-md border-[1.5px] border-dashed border-edge",
            _ => "rounded-full bg-page",
        };
        let mark = match ending {
            Ending::Succeeded => Some(Mark::Ok),
            Ending::Stopped => Some(Mark::Bar),
            Ending::BudgetUsed => Some(Mark::Stub),
            Ending::FailFast => Some(Mark::StopSign),
            Ending::NoRestart => Some(Mark::Failed),
            Ending::Left => None,
        };
        view! {
            <li class="relative pt-1.5 pl-9.5">
                <span class=format!(
                    "absolute top-3.5 left-0.5 grid size-5.5 place-items-center text-ink-2 {dot}",
                )>{mark.map(|mark| view! { <Icon mark /> })}</span>
                <div class="py-[11px]">
                    <p>
                        <b>{words.word}</b>
                    </p>
                    <p class="text-xs text-ink-3">{words.text}</p>
                    {(!words.note.is_empty()).then(|| view! { <p class="text-xs text-ink-3">{words.note.clone()}</p> })}
                </div>
            </li>
        }
        .into_any()
    }
}

/// The incident that ended launch `number` and was answered by the next launch.
fn restart_of(view: &AttemptView, number: u32) -> Option<&IncidentRecord> {
    view.incidents.iter().find(|i| i.launch == number && i.decision.action == Action::RestartInPlace)
}

/// How a launch ended, in a mark and a word.
fn launch_end(view: &AttemptView, launch: &LaunchRecord, incident: Option<&IncidentRecord>) -> AnyView {
    use engine::failure::{FailureType, Role};
    if let Some(incident) = incident {
        if incident.failure_type == FailureType::CommHang {
            return view! { <Bare tone=Tone::Amber mark=Mark::Warning text="stalled" /> }.into_any();
        }
        let word = incident
            .evidence
            .iter()
            .find(|e| e.role == Role::Root)
            .map_or("failed".to_owned(), |e| e.signature.clone());
        return view! { <Bare tone=Tone::Red mark=Mark::Failed text={word} /> }.into_any();
    }
    match (launch.started_at, launch.ended_at, view.attempt.state) {
        (_, Some(_), State::Succeeded) => {
            view! { <Bare tone=Tone::Green mark=Mark::Ok text="finished" /> }.into_any()
        }
        (_, Some(_), _) => view! { <Bare tone=Tone::Grey mark=Mark::Stopped text="ended" /> }.into_any(),
        (Some(_), None, _) => view! { <Bare tone=Tone::Blue mark=Mark::Running text="running" /> }.into_any(),
        (None, None, _) => view! { <Bare tone=Tone::Blue mark=Mark::Starting text="starting" /> }.into_any(),
    }
}

/// Why an attempt still waits, with the nodes of its cluster as squares.
fn why_queued(queue: &engine::record::Queue) -> AnyView {
    // A cluster that does not say how many nodes it takes counts them in its own words, which stand below.
    let counted = queue.needs_nodes.zip(queue.nodes);
    let numbers = counted.map_or_else(String::new, |(needs, nodes)| {
        format!(" It needs {}, {} free.", format::plural(u64::from(needs), "node", "nodes"), nodes.free)
    });
    let position = queue.position.map(|p| format!(" Position {p}.")).unwrap_or_default();
    let short = story::waits_for(queue.reason);
    let question = match queue.reason {
        QueueReason::Starting | QueueReason::Blocked => "Why not running yet: ",
        _ => "Why still queued: ",
    };
    view! {
        <div class="mt-1.5 rounded-md border border-hair bg-sunken px-2.5 py-2">
            <p>
                <b>{question}</b>
                {format!("{short}.{numbers}{position}")}
            </p>
            {counted.map(|(_, nodes)| node_squares(nodes))}
            <p class="mt-1 text-xs text-ink-3">"The cluster says: " {queue.text.clone()}</p>
        </div>
    }
    .into_any()
}

/// Squares for at most 64 nodes: filled = busy, crossed = avoided, hollow = free.
fn node_squares(counts: engine::record::NodeCounts) -> AnyView {
    let words = format!(
        "{} nodes = {} busy + {} avoided + {} free",
        counts.total, counts.busy, counts.avoided, counts.free
    );
    let squares = (counts.total <= 64).then(|| {
        let one = |i: u32| {
            let (x, y) = (f64::from(i % 16) * 18.0 + 0.75, f64::from(i / 16) * 18.0 + 0.75);
            let avoided = i >= counts.busy && i < counts.busy + counts.avoided;
            let class = match (i < counts.busy, avoided) {
                (true, _) => "fill-ink-3",
                (_, true) => "fill-none stroke-ink-3 [stroke-dasharray:2_2] [stroke-width:1.5]",
                _ => "fill-hover stroke-edge",
            };
            view! {
                <rect x=x y=y width="12.5" height="12.5" rx="2.5" class=class />
                {avoided.then(|| view! { <path class="stroke-ink-2" stroke-width="1.5" d=format!("m{} {} 7 7m0-7-7 7", x + 2.75, y + 2.75) /> })}
            }
        };
        let width = counts.total.min(16) * 18;
        let height = counts.total.div_ceil(16).max(1) * 18 - 4;
        view! {
            <svg class="mt-1.5 mb-1 max-w-full" width=width height=height viewBox=format!("0 0 {width} {height}") role="img" aria-label=words.clone()>
                {(0..counts.total).map(one).collect_view()}
            </svg>
        }
    });
    view! {
        {squares}
        <p class="text-xs text-ink-3">{words.clone()}</p>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn html(chain: &ChainView, from: Option<u32>) -> String {
        let (job, chain) = (samples::job(chain), chain.clone());
        Owner::new().with(|| view! { <Chain job chain from selected=1 /> }.to_html())
    }

    #[test]
    fn every_ending_is_drawn_with_its_words() {
        for (chain, wanted) in [
            (samples::budget_zero(), "Maximum Task Restart Attempts is 0."),
            (samples::fail_fast(), "Failed fast: rule app-error-repeats"),
            (samples::stopped(), "Stopped by user-1; a manual stop is never resubmitted."),
            (samples::chain(), "All 2 task restarts are used. If attempt 3 fails, the chain ends here."),
            (samples::running(), "2 task restarts left"),
        ] {
            let html = html(&chain, None);
            assert!(html.contains(wanted), "{wanted} is missing in {html}");
        }
    }

    #[test]
    fn launches_stand_inside_their_attempt_and_resubmissions_between_attempts() {
        let html = html(&samples::chain(), None);
        for wanted in [
            "in place 1 of 1",
            "Resubmitted automatically",
            "1 of 2 used, 1 left",
            "Why still queued",
            "stalled",
        ] {
            assert!(html.contains(wanted), "{wanted} is missing in {html}");
        }
        assert_eq!(html.matches("aria-current=\"true\"").count(), 1);
        assert!(!html.contains("style="), "the content security policy forbids style attributes");
    }

    #[test]
    fn what_a_cluster_says_in_its_own_words_is_not_counted_again() {
        let html = |needs: Option<u32>| {
            let mut chain = samples::chain();
            let queue = chain.attempts.last_mut().and_then(|newest| newest.attempt.queue.as_mut()).unwrap();
            queue.needs_nodes = needs;
            html(&chain, None)
        };
        assert!(html(Some(4)).contains(" It needs 4 nodes, 3 free.") && html(Some(4)).contains(" nodes = "));
        assert!(!html(None).contains(". It ") && !html(None).contains(" nodes = "), "{}", html(None));
    }

    #[test]
    fn a_diagnosis_is_a_diamond_between_its_attempt_and_the_next() {
        let mut chain = samples::chain();
        let run =
            |number: u32, rule: Option<&str>| crate::components::diagnosis_row::tests::run(number, rule);
        chain.diagnostics = vec![run(2, None), run(1, Some("comm-hang-bisect"))];
        let html = html(&chain, None);
        let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text} is missing in {html}"));
        assert!(place("bisect #1") < place("bisect #2"), "oldest first");
        assert!(place("bisect #2") < place("Resubmitted automatically"));
        for text in [
            "by the policy, rule comm-hang-bisect",
            "by ann",
            "node-3 is quarantined for 1 d 0 h: &lt;b&gt;.",
        ] {
            place(text);
        }
    }

    #[test]
    fn a_long_chain_links_to_what_it_folds() {
        let html = html(&samples::long(), None);
        assert!(html.contains("33 folded") && html.contains("?from=3"), "{html}");
        assert!(html.contains("launches folded"));
    }
}
