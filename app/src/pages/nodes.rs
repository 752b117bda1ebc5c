//! Nodes: what runs on them, what is held against them, and who keeps off.

mod time;

use std::collections::BTreeSet;

use engine::{
    job::FieldError,
    nodes::standing::{NodeState, Quarantine},
    record::NodeCounts,
    time::Time,
};
use leptos::prelude::*;
use leptos_meta::Title;

use self::time::ClusterTime;
use crate::{
    components::{
        answers::{Answer, Answers},
        badge::{Tone, TypeCode},
        button::Look,
        confirm::Confirm,
        failed::{FailedPage, answer_with},
        icon::{Icon, Mark},
        live_mark::LiveMark,
        node::{NodeBadge, StrikeCount, Until, uncounted_words},
        notice::{Empty, Notice},
        table::{CELL, DataTable, DerivedNote, HEAD, Panel, SectionHead},
        when::Ago,
    },
    console::{CapView, ClusterNodes, NodeJob, NodeView, StrikeView},
    format,
    live::use_live,
    paths,
    server_fns::nodes::list_nodes,
};

/// The nodes page.
#[component]
pub fn Nodes() -> impl IntoView {
    let live = use_live();
    live.watch(|| Some(paths::STREAM.to_owned()));
    let nodes = Resource::new_blocking(move || live.ticks(), |_| list_nodes());
    view! {
        <Title text="Nodes"/>
        <Transition>
            {move || Suspend::new(async move {
                match nodes.await {
                    Ok((clusters, now, refused)) => view! { <Loaded clusters now refused/> }.into_any(),
                    Err(error) => view! { <FailedPage error/> }.into_any(),
                }
            })}
        </Transition>
        <ClusterTime/>
    }
}

#[component]
fn Loaded(clusters: Vec<ClusterNodes>, now: Time, refused: Vec<FieldError>) -> impl IntoView {
    if !refused.is_empty() {
        answer_with(409);
    }
    let troubles: Vec<_> =
        clusters.iter().filter_map(|known| Some((known.cluster.clone(), known.trouble.clone()?))).collect();
    let nodes: Vec<_> = clusters.iter().flat_map(|known| known.nodes.clone()).collect();
    let all_known = troubles.is_empty();
    let caps: Vec<_> = clusters.iter().map(|known| known.cap.clone()).collect();
    let told = caps.clone();
    view! {
        <div class="flex flex-wrap items-center gap-x-3 gap-y-2 min-h-8">
            <h1>"Nodes"</h1>
            <LiveMark now/>
        </div>
        {(!refused.is_empty()).then(|| view! {
            <div class="mt-5">
                <Notice tone=Tone::Red mark=Mark::Failed>
                    {refused.into_iter().map(|error| view! { <p>{error.message}</p> }).collect_view()}
                </Notice>
            </div>
        })}
        <Troubles troubles/>
        <Trips caps=caps.clone()/>
        {if nodes.is_empty() {
            // Not loaded is not empty.
            all_known.then(|| view! {
                <div class="mt-5">
                    <Panel>
                        <Empty title="No nodes">
                            "No cluster has reported a node yet. Queued jobs wait until one does."
                        </Empty>
                    </Panel>
                </div>
            }).into_any()
        } else {
            view! {
                <Totals nodes=nodes.clone() caps/>
                <Map clusters/>
                <Records nodes now/>
                <CapHistory caps=told now/>
            }.into_any()
        }}
    }
}

/// Clusters whose nodes are not known, and why.
#[component]
fn Troubles(troubles: Vec<(String, String)>) -> impl IntoView {
    (!troubles.is_empty()).then(|| {
        let lines = troubles.into_iter().map(|(cluster, why)| {
            view! { <li class="wrap-anywhere"><b>{cluster}</b> ": " {why}</li> }
        });
        view! {
            <div class="mt-5">
                <Notice tone=Tone::Amber mark=Mark::Warning>
                    <p class="font-semibold">"Nodes that are not known now, and are in no count below:"</p>
                    <ul>{lines.collect_view()}</ul>
                </Notice>
            </div>
        }
    })
}

/// Clusters whose cap stopped a quarantine, and what a person can do about it.
#[component]
fn Trips(caps: Vec<CapView>) -> impl IntoView {
    let several = caps.len() > 1;
    let trips = caps.into_iter().filter_map(|cap| Some((cap.cluster, cap.tripped?))).map(move |(cluster, trip)| {
        let place = several.then(|| format!("{cluster}: "));
        view! {
            <div class="mt-5">
                <Notice tone=Tone::Amber mark=Mark::Warning>
                    <div class="flex flex-wrap items-start gap-3">
                        <p class="min-w-0 flex-1">{place}{trip.text}</p>
                        <Confirm verb="Reset the cap" title="Let nodes be quarantined by themselves again?" action=paths::RESET_CAP>
                            <input type="hidden" name="cluster" value=cluster/>
                            <p>"Nodes that are out stay out and do not count for the cap any more. What stopped at the cap is tried again at once."</p>
                            <p>"Many suspects at a time are more often one cause that is none of theirs: look at the incidents first."</p>
                        </Confirm>
                    </div>
                </Notice>
            </div>
        }
    });
    trips.collect_view()
}

/// What the caps stopped and who reset them; nothing while that never happened.
#[component]
fn CapHistory(caps: Vec<CapView>, now: Time) -> impl IntoView {
    let several = caps.len() > 1;
    let entries: Vec<_> = caps
        .into_iter()
        .flat_map(|cap| cap.history.into_iter().take(20).map(move |event| (cap.cluster.clone(), event)))
        .collect();
    (!entries.is_empty()).then(|| {
        let items = entries.into_iter().map(move |(cluster, event)| {
            let place = several.then(|| format!("{cluster}: "));
            view! {
                <li class="wrap-anywhere">
                    {place} {event.text} " " <span class="text-ink-3">{event.by} ", " <Ago at=event.at now/></span>
                </li>
            }
        });
        view! {
            <section class="mt-8" aria-labelledby="cap">
                <SectionHead id="cap" title="The cap on quarantined nodes"/>
                <ul class="grid gap-1">{items.collect_view()}</ul>
            </section>
        }
    })
}

/// Nodes of all clusters by what they do: each cluster's counts stand on each of its nodes.
fn totals(nodes: &[NodeView]) -> NodeCounts {
    let mut seen = BTreeSet::new();
    nodes.iter().filter(|node| seen.insert(node.cluster.as_str())).fold(NodeCounts::default(), |sum, node| {
        NodeCounts {
            total: sum.total + node.counts.total,
            busy: sum.busy + node.counts.busy,
            avoided: sum.avoided + node.counts.avoided,
            free: sum.free + node.counts.free,
        }
    })
}

#[component]
fn Totals(nodes: Vec<NodeView>, caps: Vec<CapView>) -> impl IntoView {
    let counts = totals(&nodes);
    let slots: u32 = nodes.iter().map(|node| node.slots).sum();
    let used: u32 = nodes.iter().map(|node| node.used).sum();
    let clusters: BTreeSet<_> = nodes.iter().map(|node| node.cluster.as_str()).collect();
    let jobs: BTreeSet<_> = nodes.iter().flat_map(|node| &node.jobs).map(|job| &job.job_id).collect();
    let by: BTreeSet<_> = nodes.iter().flat_map(|node| &node.avoided_by).map(|job| &job.job_id).collect();
    let kept_out = caps.iter().map(|cap| cap.quarantined).sum::<u32>();
    // By themselves; people may go beyond.
    let cap = caps.iter().filter_map(|cap| cap.allowed).sum::<u32>();
    let where_they_are = match clusters.first() {
        Some(cluster) if clusters.len() == 1 => format!("cluster {cluster}"),
        _ => format!("{} clusters", clusters.len()),
    };
    let jobs_words = |count: usize| format::plural(count as u64, "job", "jobs");
    let slots_words = |count: u32| format::plural(count.into(), "slot", "slots");
    let all = format!("{}, {where_they_are}", slots_words(slots));
    let busy = format!("{} with {}", slots_words(used), jobs_words(jobs.len()));
    let free = format!("{} free in all", slots_words(slots.saturating_sub(used)));
    let off = match by.len() {
        0 => "no job keeps off one of its own".to_owned(),
        1 => "1 job keeps off some of its own".to_owned(),
        count => format!("{} keep off some of their own", jobs_words(count)),
    };
    view! {
        <Answers>
            <Answer question="All" answer=format::plural(counts.total.into(), "node", "nodes")>{all}</Answer>
            <Answer question="Busy" answer=format::count(counts.busy.into())>{busy}</Answer>
            <Answer question="Free" answer=format::count(counts.free.into())>{free}</Answer>
            <Answer question="Kept out" answer=format::count(kept_out.into())>
                {format!("at most {cap} by themselves; {off}")}
            </Answer>
        </Answers>
    }
}

#[component]
fn Map(clusters: Vec<ClusterNodes>) -> impl IntoView {
    // One cluster needs no heading of its own.
    let several = clusters.len() > 1;
    let groups = clusters.into_iter().filter(|known| !known.nodes.is_empty()).map(move |known| {
        let ClusterNodes { cluster, nodes, .. } = known;
        let count = format::plural(nodes.len() as u64, "node", "nodes");
        let slots: u32 = nodes.iter().map(|node| node.slots).sum();
        let used: u32 = nodes.iter().map(|node| node.used).sum();
        let words = format!("{count}, {used} of {} used", format::plural(slots.into(), "slot", "slots"));
        let cards = nodes.into_iter().map(|node| view! { <Card node several/> });
        view! {
            {several.then(|| view! {
                <h3 class="mt-4 mb-2">{cluster} " " <span class="font-normal text-ink-3">{words}</span></h3>
            })}
            <ul class="grid grid-cols-[repeat(auto-fill,minmax(9.5rem,1fr))] gap-2">{cards.collect_view()}</ul>
        }
    });
    view! {
        <section class="mt-8" aria-labelledby="map">
            <SectionHead id="map" title="Map">
                <ul class="flex flex-wrap gap-x-3.5 gap-y-1 text-xs text-ink-3" aria-label="Key">
                    <li class="inline-flex items-center gap-1.5"><span class="w-4 h-1.5 rounded-xs bg-ink-3" aria-hidden="true"></span>"busy slot"</li>
                    <li class="inline-flex items-center gap-1.5"><span class="w-4 h-1.5 rounded-xs bg-hover border border-edge" aria-hidden="true"></span>"free slot"</li>
                </ul>
            </SectionHead>
            {groups.collect_view()}
        </section>
    }
}

/// More slots than this are drawn as one bar with its words.
const MOST_SLOTS_DRAWN: u32 = 16;

#[component]
fn Card(node: NodeView, several: bool) -> impl IntoView {
    // Nodes of two clusters may have the same name.
    let id = if several { format!("{}/{}", node.cluster, node.name) } else { node.name.to_string() };
    let avoided = node.avoided_by.len() as u64;
    let out = node.quarantine.is_some();
    let page = paths::node(several.then_some(node.cluster.as_str()), &node.name);
    let (class, title) = match (out, avoided > 0) {
        (true, _) => (
            "border-[1.5px] border-dashed border-red-edge bg-red-soft/60",
            "block font-mono text-xs leading-6 text-red truncate",
        ),
        (false, true) => (
            "border-[1.5px] border-dashed border-amber-edge bg-amber-soft/60",
            "block font-mono text-xs leading-6 text-amber truncate",
        ),
        (false, false) => ("border border-rule bg-raised", "block font-mono text-xs leading-6 truncate"),
    };
    let mark = match (out, avoided > 0) {
        (true, _) => Some(("text-red", Mark::Unschedulable)),
        (false, true) => Some(("text-amber", Mark::Warning)),
        (false, false) => None,
    };
    let slots = (node.slots <= MOST_SLOTS_DRAWN).then(|| {
        let slots = (0..node.slots).map(|n| {
            let class = if n < node.used {
                "flex-1 h-1.5 rounded-xs bg-ink-3"
            } else {
                "flex-1 h-1.5 rounded-xs bg-hover border border-edge"
            };
            view! { <span class=class></span> }
        });
        view! { <span class="flex gap-0.5 mt-1.5" aria-hidden="true">{slots.collect_view()}</span> }
    });
    view! {
        <li id=id class=format!("min-h-15 px-2.5 py-2 rounded-md {class}")>
            <p class="flex items-center justify-between gap-2 min-w-0">
                <b class="min-w-0 flex"><a class=title href=page>{node.name.to_string()}</a></b>
                {mark.map(|(class, mark)| view! { <span class=class><Icon mark/></span> })}
            </p>
            <JobLinks jobs=node.jobs none="free"/>
            <p class="text-xs text-ink-3">{format!("{} of {} slots used", node.used, node.slots)}</p>
            {out.then(|| view! { <p class="text-xs text-red">"quarantined for every job"</p> })}
            {(avoided > 0).then(|| view! {
                <p class="text-xs text-amber">{format!("kept off by {}", format::plural(avoided, "job", "jobs"))}</p>
            })}
            {slots}
        </li>
    }
}

/// Jobs as links, at most three by name.
#[component]
fn JobLinks(jobs: Vec<NodeJob>, none: &'static str) -> impl IntoView {
    let more = jobs.len().saturating_sub(3);
    if jobs.is_empty() {
        return view! { <p class="text-xs text-ink-3">{none}</p> }.into_any();
    }
    let links = jobs.into_iter().take(3).map(|job| {
        view! { <li class="truncate"><a class="inline-block min-w-6 leading-6" href=paths::job(&job.job_id)>{job.name}</a></li> }
    });
    view! {
        <ul class="grid gap-0.5 text-xs">
            {links.collect_view()}
            {(more > 0).then(|| view! { <li class="text-ink-3">{format!("and {more} more")}</li> })}
        </ul>
    }
    .into_any()
}

#[component]
fn Records(nodes: Vec<NodeView>, now: Time) -> impl IntoView {
    let several = nodes.iter().any(|node| node.cluster != nodes[0].cluster);
    let marked: Vec<_> =
        nodes.into_iter().filter(|node| node.state != NodeState::Ready || !node.strikes.is_empty()).collect();
    let none = marked.is_empty();
    let rows = marked.into_iter().map(move |node| view! { <Record node several now/> });
    view! {
        <section class="mt-8" aria-labelledby="strikes">
            <SectionHead id="strikes" title="Strikes and exclusions">
                <span class="text-ink-3">"A strike is a suspicion from one incident, never a confirmed defect."</span>
            </SectionHead>
            <Panel>
                {if none {
                    view! {
                        <Empty title="No strikes so far">
                            "When an incident points to a node, it is listed here with its evidence. A node is quarantined by hand on its own page."
                        </Empty>
                    }.into_any()
                } else {
                    view! {
                        <DataTable caption="Nodes with strikes or kept out" class="min-w-200">
                            <thead>
                                <tr>
                                    <th scope="col" class=HEAD>"Node"</th>
                                    <th scope="col" class=HEAD>"State"</th>
                                    <th scope="col" class=HEAD>"Strikes"</th>
                                    <th scope="col" class=HEAD>"Why"</th>
                                    <th scope="col" class=HEAD>"Kept out until"</th>
                                    <th scope="col" class=HEAD>"Keeps out"</th>
                                    <th scope="col" class=HEAD><span class="unseen">"Action"</span></th>
                                </tr>
                            </thead>
                            <tbody>{rows.collect_view()}</tbody>
                        </DataTable>
                    }.into_any()
                }}
            </Panel>
            <DerivedNote/>
        </section>
    }
}

/// Why a node is out, with a link to the diagnosis that found it.
pub(super) fn reason(out: &Quarantine) -> AnyView {
    let words = out.reason.clone();
    match &out.diagnosis {
        Some(run) => view! { <a href=paths::diagnosis(run)>{words}</a> }.into_any(),
        None => words.into_any(),
    }
}

#[component]
fn Record(node: NodeView, several: bool, now: Time) -> impl IntoView {
    let count = node.strikes.len() as u64;
    let page = paths::node(several.then_some(node.cluster.as_str()), &node.name);
    let (held, action) = match node.state {
        NodeState::Quarantined => (true, "Release…"),
        NodeState::Suspected | NodeState::OnTrial | NodeState::Ready => (false, "Quarantine…"),
    };
    let label = format!("{action} {}", node.name);
    let until = node.quarantine.clone().map(|out| view! { <Until out/> });
    let said = node
        .quarantine
        .clone()
        .map(|out| view! { <p>{reason(&out)} ", " <span class="text-ink-3">{out.by}</span></p> });
    let why = node.strikes.into_iter().take(5).map(move |strike| view! { <Why strike now/> });
    view! {
        <tr>
            <th scope="row" class=CELL>
                <a class="font-mono text-xs whitespace-nowrap" href=page.clone()>{node.name.to_string()}</a>
                {several.then(|| view! { <span class="block font-normal text-xs text-ink-3">{node.cluster.clone()}</span> })}
            </th>
            <td class=CELL><NodeBadge state=node.state/></td>
            <td class=CELL><StrikeCount counted=node.strikes_counted limit=node.strikes_limit/></td>
            <td class=CELL>
                {said}
                <ul class="grid gap-0.5">{why.collect_view()}</ul>
                {(count > 5).then(|| view! { <p class="text-xs text-ink-3">{format!("and {} older", count - 5)}</p> })}
            </td>
            <td class=CELL>
                {match until {
                    Some(until) => until.into_any(),
                    None => view! { <span class="text-ink-3">"not kept out"</span> }.into_any(),
                }}
            </td>
            <td class=CELL>
                {if held {
                    view! { "every job" }.into_any()
                } else {
                    view! { <JobLinks jobs=node.avoided_by none="no job"/> }.into_any()
                }}
            </td>
            <td class=format!("{CELL} text-right")>
                <a class=Look::Small.class() href=format!("{page}#act") aria-label=label>{action}</a>
            </td>
        </tr>
    }
}

#[component]
fn Why(strike: StrikeView, now: Time) -> impl IntoView {
    let uncounted = strike.uncounted.map(uncounted_words);
    let StrikeView { strike, job_id, job_name, .. } = strike;
    view! {
        <li>
            <TypeCode failure=strike.failure_type/>
            " " {strike.text} ", "
            <a href=paths::incident(&job_id, &strike.incident)>{format!("incident of {job_name}")}</a>
            ", " <span class="text-ink-3"><Ago at=strike.at now/></span>
            {uncounted.map(|why| view! { <span class="text-ink-3">"; " {why}</span> })}
        </li>
    }
}

#[cfg(test)]
mod tests {
    use engine::{
        ids::{JobId, NodeName, TaskId},
        nodes::standing::Trip,
    };

    use super::*;

    fn node(cluster: &str, name: &str) -> NodeView {
        NodeView {
            cluster: cluster.to_owned(),
            name: NodeName::new(name).unwrap(),
            slots: 2,
            used: 0,
            jobs: vec![],
            avoided_by: vec![],
            state: NodeState::Ready,
            strikes: vec![],
            strikes_counted: 0,
            strikes_limit: 3,
            quarantine: None,
            trial_since: None,
            counts: NodeCounts { total: 2, busy: 1, avoided: 0, free: 1 },
        }
    }

    #[test]
    fn a_cluster_is_counted_once_however_many_nodes_it_has() {
        let all = [node("a", "n1"), node("a", "n2"), node("b", "m1"), node("b", "m2")];
        assert_eq!(totals(&all), NodeCounts { total: 4, busy: 2, avoided: 0, free: 2 });
    }

    #[test]
    fn a_node_says_who_keeps_off_it() {
        let job_id = JobId::new("jabcdefghij2").unwrap();
        let task_id = TaskId::of_attempt("demo", &job_id, 1);
        let mut node = node("a", "n1");
        node.avoided_by.push(NodeJob { job_id, name: "demo".to_owned(), task_id });
        let html = Owner::new().with(|| view! { <Card node several=false/> }.to_html());
        assert!(html.contains("kept off by 1 job") && html.contains("0 of 2 slots used"), "{html}");
    }

    fn of_cluster(cluster: &str, nodes: &[&str], trouble: Option<&str>) -> ClusterNodes {
        let nodes = nodes.iter().map(|name| node(cluster, name)).collect();
        let cap = CapView { cluster: cluster.to_owned(), ..CapView::default() };
        ClusterNodes { cluster: cluster.to_owned(), nodes, trouble: trouble.map(str::to_owned), cap }
    }

    fn map(clusters: Vec<ClusterNodes>) -> String {
        Owner::new().with(|| view! { <Map clusters/> }.to_html())
    }

    #[test]
    fn nodes_stand_below_their_cluster_where_there_are_several() {
        let one = of_cluster("a", &["n1", "n2"], None);
        let html = map(vec![one.clone()]);
        assert!(!html.contains("<h3") && html.contains("id=\"n1\""), "{html}");
        let html = map(vec![one, of_cluster("b", &["n1"], None), of_cluster("c", &[], Some("away"))]);
        let b = html.find(">b ").or_else(|| html.find(">b<")).unwrap();
        assert!(html.find("id=\"a/n2\"").unwrap() < b && b < html.find("id=\"b/n1\"").unwrap(), "{html}");
        assert_eq!(html.matches("<h3").count(), 2, "one without nodes has no heading");
        assert!(html.contains("2 nodes, 0 of 4 slots used"), "{html}");
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_named_and_not_called_empty() {
        let troubles = vec![("gpu-a".to_owned(), "the API server did not answer".to_owned())];
        let html = Owner::new().with(|| view! { <Troubles troubles/> }.to_html());
        assert!(html.contains("gpu-a") && html.contains("did not answer"), "{html}");
    }

    #[test]
    fn a_cap_that_stopped_something_is_told_with_the_way_to_reset_it() {
        let trip =
            Trip { at: Time(0), node: NodeName::new("n2").unwrap(), text: "n2 has 3 strikes.".to_owned() };
        let caps = vec![
            CapView { cluster: "a".to_owned(), tripped: Some(trip), ..CapView::default() },
            CapView { cluster: "b".to_owned(), ..CapView::default() },
        ];
        let html = Owner::new().with(|| view! { <Trips caps/> }.to_html());
        assert!(html.contains("n2 has 3 strikes.") && html.contains("action=\"/nodes/cap/reset\""), "{html}");
        assert_eq!(
            html.matches("Reset the cap…").count() + html.matches("Reset the cap<").count(),
            2,
            "{html}"
        );
    }

    #[test]
    fn a_quarantined_node_says_until_when_and_offers_its_release() {
        let mut node = node("a", "n1");
        node.state = NodeState::Quarantined;
        let by = "ann".to_owned();
        node.quarantine = Some(Quarantine {
            since: Time(0),
            until: None,
            by,
            reason: "fan <b>".to_owned(),
            diagnosis: None,
        });
        let html = Owner::new().with(|| view! { <Records nodes=vec![node] now=Time(1)/> }.to_html());
        for part in
            ["Quarantined", "until released", "every job", "fan &lt;b&gt;", "/nodes/n1#act", "Release…"]
        {
            assert!(html.contains(part), "{part}: {html}");
        }
    }
}
