//! Bisect Diagnose: all runs, and one run with its rounds.

mod new;

use engine::{
    bisect::{Cost, Finding, Outcome, RoundKind, Verdict},
    ids::NodeName,
    time::Time,
};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_params_map;

use crate::{
    components::{
        answers::{Answer, Answers},
        badge::{Badge, Tone},
        button::Look,
        confirm::Confirm,
        diagnosis_row::{by_words, held_words},
        failed::FailedPage,
        icon::{Icon, Mark},
        live_mark::LiveMark,
        notice::Empty,
        table::{CELL, DataTable, HEAD, Panel, SectionHead},
        when::{Ago, ClockTime},
    },
    console::{DiagnosisDetail, DiagnosisGroup, DiagnosisRound, DiagnosisView},
    format,
    live::use_live,
    paths,
    server_fns::diagnose::{get_diagnosis, list_diagnoses},
};

pub use new::NewDiagnosis;

/// How a run stands, as a badge.
const fn of_verdict(verdict: Option<Verdict>) -> (Tone, Mark, &'static str) {
    match verdict {
        None => (Tone::Blue, Mark::Running, "Running"),
        Some(Verdict::Suspects) => (Tone::Amber, Mark::Warning, "Suspects found"),
        Some(Verdict::Together) => (Tone::Amber, Mark::Warning, "Only together"),
        Some(Verdict::AllPass) => (Tone::Green, Mark::Ok, "All pass"),
        Some(Verdict::AllFail) => (Tone::Red, Mark::Failed, "All fail"),
        Some(Verdict::Widespread) => (Tone::Red, Mark::Failed, "Widespread"),
        Some(Verdict::Inconclusive) => (Tone::Grey, Mark::Unknown, "Inconclusive"),
        Some(Verdict::Stopped) => (Tone::Grey, Mark::Stopped, "Stopped"),
    }
}

/// Rounds and checks in words.
fn plan_words(cost: &Cost) -> String {
    format!(
        "{} + {}",
        format::plural(cost.rounds.into(), "round", "rounds"),
        format::plural(cost.checks.into(), "check", "checks")
    )
}

/// The page of all runs.
#[component]
pub fn Diagnoses() -> impl IntoView {
    let live = use_live();
    live.watch(|| Some(paths::STREAM.to_owned()));
    let runs = Resource::new_blocking(move || live.ticks(), |_| list_diagnoses());
    view! {
        <Title text="Diagnose"/>
        <Transition>
            {move || Suspend::new(async move {
                match runs.await {
                    Ok((runs, now)) => view! { <List runs now/> }.into_any(),
                    Err(error) => view! { <FailedPage error/> }.into_any(),
                }
            })}
        </Transition>
    }
}

#[component]
fn List(runs: Vec<DiagnosisView>, now: Time) -> impl IntoView {
    let none = runs.is_empty();
    let rows = runs.into_iter().map(move |run| {
        let (tone, mark, text) = of_verdict(run.verdict);
        let nodes = format::plural(run.nodes.len() as u64, "node", "nodes");
        let by = by_words(&run);
        view! {
            <tr>
                <th scope="row" class=CELL><a href=paths::diagnosis(&run.run_id)>{format!("Bisect #{}", run.number)}</a></th>
                <td class=CELL><Badge tone mark text/></td>
                <td class=CELL><a href=paths::job(&run.job_id)>{run.job_name}</a> ", " {nodes}</td>
                <td class=CELL>{run.text.unwrap_or_else(|| "not known yet".to_owned())}</td>
                <td class=format!("{CELL} whitespace-nowrap")><Ago at=run.started_at now/> ", " {by}</td>
            </tr>
        }
    });
    view! {
        <div class="flex flex-wrap items-center gap-x-3 gap-y-2 min-h-8">
            <h1>"Diagnose"</h1>
            <LiveMark now/>
        </div>
        <p class="mt-1 text-ink-2">
            "Bisect Diagnose runs a test on halves of the nodes until the faulty ones are found. It is begun on the page of a job that has ended, or by a job's policy before it is resubmitted after a hang."
        </p>
        <div class="mt-5">
            <Panel>
                {if none {
                    view! {
                        <Empty title="No diagnoses so far">
                            "Open a job that has ended and choose Diagnose."
                        </Empty>
                    }.into_any()
                } else {
                    view! {
                        <DataTable caption="Diagnoses" class="min-w-160">
                            <thead>
                                <tr>
                                    <th scope="col" class=HEAD>"Run"</th>
                                    <th scope="col" class=HEAD>"State"</th>
                                    <th scope="col" class=HEAD>"Job"</th>
                                    <th scope="col" class=HEAD>"Result"</th>
                                    <th scope="col" class=HEAD>"Begun"</th>
                                </tr>
                            </thead>
                            <tbody>{rows.collect_view()}</tbody>
                        </DataTable>
                    }.into_any()
                }}
            </Panel>
        </div>
    }
}

/// The page of one run.
#[component]
pub fn Diagnosis() -> impl IntoView {
    let params = use_params_map();
    let run_id = Memo::new(move |_| params.read().get("run").unwrap_or_default());
    let live = use_live();
    live.watch(|| Some(paths::STREAM.to_owned()));
    let run =
        Resource::new_blocking(move || (run_id.get(), live.ticks()), |(run_id, _)| get_diagnosis(run_id));
    view! {
        <Title text="Diagnose"/>
        <Transition>
            {move || Suspend::new(async move {
                match run.await {
                    Ok(run) => view! { <Loaded run/> }.into_any(),
                    Err(error) => view! { <FailedPage error/> }.into_any(),
                }
            })}
        </Transition>
    }
}

#[component]
fn Loaded(run: DiagnosisDetail) -> impl IntoView {
    let DiagnosisDetail { diagnosis: view, command, rounds, finding, stopping, now } = run;
    let (tone, mark, text) = of_verdict(view.verdict);
    let ended = view.ended_at;
    let stop = match (&finding, stopping) {
        (Some(_), _) => Some("It has ended."),
        (None, Some(_)) => Some("It is being stopped."),
        (None, None) => None,
    };
    let follows = match view.verdict {
        None => ("Not known yet", "nothing is marked before the checks are done"),
        Some(Verdict::Suspects) => match view.held.iter().filter(|held| held.quarantined).count() {
            0 => ("Kept off", "by the next attempts of this job; other jobs may use them"),
            all if all == view.held.len() => {
                ("Quarantined", "kept out for every job, until that ends or a person releases them")
            }
            _ => (
                "Quarantined in part",
                "the cap lets no more be kept out for every job; this job keeps off all",
            ),
        },
        Some(_) => ("Nothing", "no node is marked"),
    };
    let gpu = format::gpu_time(view.accelerator_seconds);
    let most = format::gpu_time(view.plan.accelerator_seconds as f64);
    let result = view.text.clone().unwrap_or_else(|| "The rounds go on.".to_owned());
    let suspects = match view.suspects.len() {
        0 => text.to_owned(),
        1 => format!("{} suspected", view.suspects[0]),
        count => format!("{count} nodes suspected"),
    };
    let extra = format!(
        "at most {most} of nodes' slots, said before it began; {} only where nodes fail together or a test is lost",
        format::plural(view.plan.extra_rounds.into(), "more round", "more rounds")
    );
    let held = held_words(&view).map(|text| view! { <p class="mt-1 text-xs text-ink-3">{text}</p> });
    let by = by_words(&view);
    let nodes = view.nodes.clone();
    let rows = rounds.iter().cloned().map(|round| view! { <RoundRow round/> }).collect_view();
    view! {
        <nav class="text-xs text-ink-3" aria-label="Breadcrumb">
            <a href=paths::DIAGNOSE>"Diagnose"</a> " / " {format!("#{}", view.number)}
        </nav>
        <div class="flex flex-wrap items-center gap-x-3 gap-y-2 min-h-8">
            <h1>{format!("Bisect #{}", view.number)}</h1>
            <Badge tone mark text/>
            <LiveMark now/>
            <div class="ml-auto flex flex-wrap gap-2 max-sm:ml-0">
                <a class=Look::Plain.class() href=paths::new_diagnosis(&view.job_id)>"Run again…"</a>
                <Confirm
                    verb="Stop"
                    title="Stop this diagnosis?"
                    action=paths::stop_diagnosis(&view.run_id)
                    refusal=stop.map(str::to_owned)
                >
                    <p>"Its tests are ended. No node is marked."</p>
                </Confirm>
            </div>
        </div>
        <p class="text-ink-2">
            "for " <a href=paths::job(&view.job_id)>{view.job_name.clone()}</a>
            ", " {format::plural(view.nodes.len() as u64, "node", "nodes")} " of cluster " {view.cluster.clone()}
            ", " {by} ", begun " <ClockTime at=view.started_at/>
            {ended.map(|at| view! { ", ended " <ClockTime at/> })}
        </p>
        <Answers>
            <Answer question="Result" answer=suspects>{result}</Answer>
            <Answer question="What follows" answer=follows.0>{follows.1} {held}</Answer>
            <Answer question="Plan" answer=plan_words(&view.plan)>{extra}</Answer>
            <Answer question="Cost" answer=gpu>"as diagnosis: no task or in-place restart used"</Answer>
        </Answers>
        <section class="mt-8" aria-labelledby="rounds">
            <SectionHead id="rounds" title="Rounds">
                <span class="text-xs text-ink-3">"A node after + passed before and makes up the numbers."</span>
            </SectionHead>
            <Panel>
                <ol>{rows}</ol>
            </Panel>
        </section>
        <ByNode cluster=view.cluster.clone() rounds nodes finding=finding.clone()/>
        <section class="mt-8" aria-labelledby="test">
            <SectionHead id="test" title="Test"/>
            <p class="font-mono text-xs wrap-anywhere">{command.join(" ")}</p>
            <p class="mt-1 text-xs text-ink-3">
                {format!("Each test has {} s; a group that takes longer hangs.", view.plan.probe_seconds)}
            </p>
        </section>
        <section class="mt-8" aria-labelledby="ends">
            <SectionHead id="ends" title="How it can end"/>
            <ul class="list-disc pl-5 text-ink-2">
                <li>"Suspects: they fail again and again with partners that pass."</li>
                <li>"All pass: the fault did not come back; no node is marked."</li>
                <li>"All or most fail: the test or what the nodes share is at fault; no node is marked."</li>
                <li>"Only together: a pair is named, neither is kept out."</li>
            </ul>
        </section>
    }
}

/// What a round is for, in words.
fn round_words(round: &DiagnosisRound) -> (String, String) {
    let nodes: usize = round.groups.iter().map(|group| group.nodes.len()).sum();
    let what = match round.kind {
        RoundKind::Halves => format!("{}, in halves", format::plural(nodes as u64, "node", "nodes")),
        RoundKind::Extra => format!("{}, together or again", format::plural(nodes as u64, "node", "nodes")),
        RoundKind::Check => "each suspect again, the rest together".to_owned(),
    };
    let name = if round.kind == RoundKind::Check { "Check" } else { "Round" };
    (format!("{name} {}", round.number), what)
}

/// Tone, mark and words of what became of a group.
fn outcome_words(group: &DiagnosisGroup) -> (Tone, Mark, String) {
    match &group.outcome {
        None if group.started_at.is_some() => (Tone::Blue, Mark::Running, "running".to_owned()),
        None => (Tone::Grey, Mark::Queued, "waits for its nodes".to_owned()),
        Some(Outcome::Pass { megabytes_per_second: Some(speed) }) => {
            (Tone::Green, Mark::Ok, format!("pass {speed:.0} MB/s"))
        }
        Some(Outcome::Pass { .. }) => (Tone::Green, Mark::Ok, "pass".to_owned()),
        Some(Outcome::Fail { .. }) => (Tone::Red, Mark::Failed, "fail".to_owned()),
        Some(Outcome::Hang) => (Tone::Red, Mark::Failed, "hang".to_owned()),
        Some(Outcome::Lost { .. }) => (Tone::Grey, Mark::Unknown, "not tested".to_owned()),
    }
}

#[component]
fn RoundRow(round: DiagnosisRound) -> impl IntoView {
    let (name, what) = round_words(&round);
    let groups = round.groups.into_iter().map(|group| {
        let (tone, mark, words) = outcome_words(&group);
        let more = match &group.outcome {
            Some(Outcome::Fail { text } | Outcome::Lost { text, .. }) => Some(text.clone()),
            _ => None,
        };
        let logs = group.job_id.as_ref().map(|job| view! { " " <a href=paths::logs(job)>"Logs"</a> });
        let nodes = group.nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" ");
        let partner = group.partner.as_ref().map(|partner| format!(" + {partner}"));
        view! {
            <li class="flex flex-wrap items-baseline gap-x-3 gap-y-1 px-3 py-2 border border-hair rounded-md min-w-0">
                <span class="font-mono text-xs wrap-anywhere">{nodes}{partner.map(|text| view! { <span class="text-ink-3">{text}</span> })}</span>
                <span class=format!("inline-flex items-center gap-1 {}", tone.text())><Icon mark/>{words}</span>
                <span class="text-xs">{logs}</span>
                {more.map(|text| view! { <span class="basis-full text-xs text-ink-2 wrap-anywhere">{text}</span> })}
            </li>
        }
    });
    view! {
        <li class="grid grid-cols-[10rem_1fr] max-sm:grid-cols-1 gap-3 px-4 py-3 border-b border-hair last:border-b-0">
            <div>
                <h3>{name}</h3>
                <p class="text-xs text-ink-3">{what}</p>
            </div>
            <ul class="grid grid-cols-2 max-lg:grid-cols-1 gap-2 min-w-0">{groups.collect_view()}</ul>
        </li>
    }
}

/// What a round says of a node.
fn cell(round: &DiagnosisRound, node: &NodeName) -> String {
    for group in &round.groups {
        if group.nodes.contains(node) {
            return match &group.outcome {
                None => "…".to_owned(),
                Some(Outcome::Pass { .. }) => "pass".to_owned(),
                Some(Outcome::Fail { .. }) => "fail".to_owned(),
                Some(Outcome::Hang) => "hang".to_owned(),
                Some(Outcome::Lost { .. }) => "not tested".to_owned(),
            };
        }
        if group.partner.as_ref() == Some(node) {
            return "partner".to_owned();
        }
    }
    "rest".to_owned()
}

/// The verdict on one node; none while the run goes on.
fn verdict_of(
    finding: Option<&Finding>,
    rounds: &[DiagnosisRound],
    node: &NodeName,
) -> (Tone, Mark, &'static str) {
    let Some(finding) = finding else { return (Tone::Blue, Mark::Running, "under test") };
    let passed = |group: &DiagnosisGroup| {
        group.nodes.contains(node) && matches!(group.outcome, Some(Outcome::Pass { .. }))
    };
    if finding.confirmed.contains(node) {
        (Tone::Amber, Mark::Warning, "suspected")
    } else if finding.untested.contains(node) {
        (Tone::Grey, Mark::Unknown, "not tested")
    } else if finding.unconfirmed.contains(node) {
        (Tone::Grey, Mark::Unknown, "failed, not marked")
    } else if finding.pairs.iter().any(|pair| pair.contains(node)) {
        (Tone::Amber, Mark::Warning, "fails in a pair")
    } else if rounds.iter().flat_map(|round| &round.groups).any(passed) {
        (Tone::Green, Mark::Ok, "passed")
    } else {
        (Tone::Grey, Mark::Unknown, "open")
    }
}

#[component]
fn ByNode(
    cluster: String,
    rounds: Vec<DiagnosisRound>,
    nodes: Vec<NodeName>,
    finding: Option<Finding>,
) -> impl IntoView {
    let heads = rounds.iter().map(|round| view! { <th scope="col" class=HEAD>{round_words(round).0}</th> });
    let heads = heads.collect_view();
    let rows = nodes.into_iter().map(|node| {
        let (tone, mark, text) = verdict_of(finding.as_ref(), &rounds, &node);
        let cells = rounds.iter().map(|round| view! { <td class=CELL>{cell(round, &node)}</td> });
        view! {
            <tr>
                <th scope="row" class=format!("{CELL} font-mono text-xs whitespace-nowrap")>
                    <a href=paths::node(Some(&cluster), &node)>{node.to_string()}</a>
                </th>
                {cells.collect_view()}
                <td class=format!("{CELL} whitespace-nowrap")>
                    <span class=format!("inline-flex items-center gap-1 {}", tone.text())><Icon mark/>{text}</span>
                </td>
            </tr>
        }
    });
    let rows = rows.collect_view();
    view! {
        <section class="mt-8" aria-labelledby="by-node">
            <SectionHead id="by-node" title="By node"/>
            <Panel>
                <DataTable caption="Outcome of each round by node" class="min-w-full">
                    <thead>
                        <tr>
                            <th scope="col" class=HEAD>"Node"</th>
                            {heads}
                            <th scope="col" class=HEAD>"Verdict"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </DataTable>
            </Panel>
        </section>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::ids::JobId;

    fn node(n: u32) -> NodeName {
        NodeName::new(format!("node-{n}")).unwrap()
    }

    fn group(nodes: &[u32], partner: Option<u32>, outcome: Option<Outcome>) -> DiagnosisGroup {
        DiagnosisGroup {
            nodes: nodes.iter().map(|n| node(*n)).collect(),
            partner: partner.map(node),
            check: false,
            started_at: None,
            ended_at: None,
            outcome,
            job_id: None,
        }
    }

    fn detail() -> DiagnosisDetail {
        let pass = Some(Outcome::Pass { megabytes_per_second: Some(181.6) });
        let fail = Some(Outcome::Fail { text: "processor on <b>node-3</b>: wrong".to_owned() });
        let setup = engine::bisect::Setup {
            nodes: [node(1), node(2), node(3), node(4)].into(),
            alone: engine::bisect::Alone::TellsSome,
            probe_seconds: 60,
            accelerators_per_node: 2,
        };
        let finding = Finding {
            verdict: Verdict::Suspects,
            confirmed: vec![node(3)],
            unconfirmed: Vec::new(),
            pairs: Vec::new(),
            together: Vec::new(),
            untested: Vec::new(),
            text: "node-3 suspected.".to_owned(),
        };
        DiagnosisDetail {
            diagnosis: DiagnosisView {
                run_id: "dabc".to_owned(),
                number: 1,
                job_id: JobId::new("jabcdefghij2").unwrap(),
                job_name: "pretrain".to_owned(),
                task_id: None,
                by: "ann".to_owned(),
                rule: None,
                held: Vec::new(),
                cluster: "local".to_owned(),
                nodes: setup.nodes.iter().cloned().collect(),
                started_at: Time(0),
                ended_at: Some(Time(60_000_000)),
                verdict: Some(Verdict::Suspects),
                text: Some(finding.text.clone()),
                suspects: vec![node(3)],
                plan: setup.cost(),
                accelerator_seconds: 480.0,
            },
            command: vec!["holdfast-agent".to_owned(), "probe".to_owned()],
            rounds: vec![
                DiagnosisRound {
                    number: 1,
                    kind: RoundKind::Halves,
                    groups: vec![group(&[1, 2], None, pass.clone()), group(&[3, 4], None, fail.clone())],
                },
                DiagnosisRound {
                    number: 2,
                    kind: RoundKind::Check,
                    groups: vec![group(&[3], Some(1), fail), group(&[4], Some(2), pass)],
                },
            ],
            finding: Some(finding),
            stopping: None,
            now: Time(90_000_000),
        }
    }

    #[test]
    fn what_each_round_said_of_each_node_is_told() {
        let run = detail();
        let cells = |n| run.rounds.iter().map(|round| cell(round, &node(n))).collect::<Vec<_>>();
        assert_eq!([cells(1), cells(3), cells(4)], [["pass", "partner"], ["fail", "fail"], ["fail", "pass"]]);
        let verdict = |n| verdict_of(run.finding.as_ref(), &run.rounds, &node(n)).2;
        assert_eq!([verdict(1), verdict(3), verdict(4)], ["passed", "suspected", "passed"]);
        assert_eq!(verdict_of(None, &run.rounds, &node(1)).2, "under test");
    }

    #[test]
    fn what_a_test_says_is_shown_as_text() {
        let round = detail().rounds.remove(0);
        let html = Owner::new().with(|| view! { <RoundRow round/> }.to_html());
        assert!(html.contains("pass 182 MB/s") && html.contains("&lt;b&gt;node-3"), "{html}");
        assert!(html.contains("4 nodes, in halves"), "{html}");
    }
}
