//! Nodes: what runs on them, what is held against them, and who keeps off.

use std::collections::BTreeSet;

use engine::{record::NodeCounts, time::Time};
use leptos::prelude::*;
use leptos_meta::Title;

use crate::{
    components::{
        answers::{Answer, Answers},
        badge::{Badge, Tone, TypeCode},
        failed::FailedPage,
        icon::{Icon, Mark},
        live_mark::LiveMark,
        notice::{Empty, Notice},
        table::{CELL, DataTable, DerivedNote, HEAD, Panel, SectionHead},
        when::Ago,
    },
    console::{ClusterNodes, NodeJob, NodeView, StrikeView},
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
                    Ok((clusters, now)) => view! { <Loaded clusters now/> }.into_any(),
                    Err(error) => view! { <FailedPage error/> }.into_any(),
                }
            })}
        </Transition>
    }
}

#[component]
fn Loaded(clusters: Vec<ClusterNodes>, now: Time) -> impl IntoView {
    let troubles: Vec<_> =
        clusters.iter().filter_map(|known| Some((known.cluster.clone(), known.trouble.clone()?))).collect();
    let nodes: Vec<_> = clusters.iter().flat_map(|known| known.nodes.clone()).collect();
    let all_known = troubles.is_empty();
    view! {
        <div class="flex flex-wrap items-center gap-x-3 gap-y-2 min-h-8">
            <h1>"Nodes"</h1>
            <LiveMark now/>
        </div>
        <Troubles troubles/>
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
                <Totals nodes=nodes.clone()/>
                <Map clusters/>
                <Records nodes now/>
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
fn Totals(nodes: Vec<NodeView>) -> impl IntoView {
    let counts = totals(&nodes);
    let slots: u32 = nodes.iter().map(|node| node.slots).sum();
    let used: u32 = nodes.iter().map(|node| node.used).sum();
    let clusters: BTreeSet<_> = nodes.iter().map(|node| node.cluster.as_str()).collect();
    let jobs: BTreeSet<_> = nodes.iter().flat_map(|node| &node.jobs).map(|job| &job.job_id).collect();
    let by: BTreeSet<_> = nodes.iter().flat_map(|node| &node.avoided_by).map(|job| &job.job_id).collect();
    let kept_off = nodes.iter().filter(|node| !node.avoided_by.is_empty()).count() as u64;
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
        0 => "no job keeps off a node".to_owned(),
        count => format!("by {}, each for its own attempts", jobs_words(count)),
    };
    view! {
        <Answers>
            <Answer question="All" answer=format::plural(counts.total.into(), "node", "nodes")>{all}</Answer>
            <Answer question="Busy" answer=format::count(counts.busy.into())>{busy}</Answer>
            <Answer question="Free" answer=format::count(counts.free.into())>{free}</Answer>
            <Answer question="Kept off" answer=format::count(kept_off)>{off}</Answer>
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
    let class = if avoided > 0 {
        "border-[1.5px] border-dashed border-amber-edge bg-amber-soft/60"
    } else {
        "border border-rule bg-raised"
    };
    let title = if avoided > 0 { "font-mono text-xs text-amber" } else { "font-mono text-xs" };
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
                <b class=format!("{title} truncate")>{node.name.to_string()}</b>
                {(avoided > 0).then(|| view! { <span class="text-amber"><Icon mark=Mark::Warning/></span> })}
            </p>
            <JobLinks jobs=node.jobs none="free"/>
            <p class="text-xs text-ink-3">{format!("{} of {} slots used", node.used, node.slots)}</p>
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
        view! { <li class="truncate"><a href=paths::job(&job.job_id)>{job.name}</a></li> }
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
        nodes.into_iter().filter(|node| !node.strikes.is_empty() || !node.avoided_by.is_empty()).collect();
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
                            "When an incident points to a node, it is listed here with its evidence."
                        </Empty>
                    }.into_any()
                } else {
                    view! {
                        <DataTable caption="Nodes with strikes" class="min-w-160">
                            <thead>
                                <tr>
                                    <th scope="col" class=HEAD>"Node"</th>
                                    <th scope="col" class=HEAD>"State"</th>
                                    <th scope="col" class=HEAD>"Strikes"</th>
                                    <th scope="col" class=HEAD>"Why"</th>
                                    <th scope="col" class=HEAD>"Kept off by"</th>
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

#[component]
fn Record(node: NodeView, several: bool, now: Time) -> impl IntoView {
    let count = node.strikes.len() as u64;
    let avoided = !node.avoided_by.is_empty();
    let why = node.strikes.into_iter().take(5).map(move |strike| view! { <Why strike now/> });
    view! {
        <tr>
            <th scope="row" class=CELL>
                <span class="font-mono text-xs whitespace-nowrap">{node.name.to_string()}</span>
                {several.then(|| view! { <span class="block font-normal text-xs text-ink-3">{node.cluster.clone()}</span> })}
            </th>
            <td class=CELL>
                {if avoided {
                    view! { <Badge tone=Tone::Amber mark=Mark::Warning text="Suspected"/> }.into_any()
                } else {
                    view! { <Badge tone=Tone::Green mark=Mark::Ok text="Ready"/> }.into_any()
                }}
            </td>
            <td class=format!("{CELL} whitespace-nowrap")>{format::plural(count, "strike", "strikes")}</td>
            <td class=CELL>
                <ul class="grid gap-0.5">{why.collect_view()}</ul>
                {(count > 5).then(|| view! { <p class="text-xs text-ink-3">{format!("and {} older", count - 5)}</p> })}
            </td>
            <td class=CELL><JobLinks jobs=node.avoided_by none="no job"/></td>
        </tr>
    }
}

#[component]
fn Why(strike: StrikeView, now: Time) -> impl IntoView {
    let StrikeView { strike, job_id, job_name } = strike;
    view! {
        <li>
            <TypeCode failure=strike.failure_type/>
            " " {strike.text} ", "
            <a href=paths::incident(&job_id, &strike.incident)>{format!("incident of {job_name}")}</a>
            ", " <span class="text-ink-3"><Ago at=strike.at now/></span>
        </li>
    }
}

#[cfg(test)]
mod tests {
    use engine::ids::{JobId, NodeName, TaskId};

    use super::*;

    fn node(cluster: &str, name: &str) -> NodeView {
        NodeView {
            cluster: cluster.to_owned(),
            name: NodeName::new(name).unwrap(),
            slots: 2,
            used: 0,
            jobs: vec![],
            avoided_by: vec![],
            strikes: vec![],
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
        ClusterNodes { cluster: cluster.to_owned(), nodes, trouble: trouble.map(str::to_owned) }
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
}
