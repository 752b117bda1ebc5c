//! Where the time of each cluster went, below its nodes.

use leptos::prelude::*;
use leptos_router::hooks::use_query_map;

use crate::{
    components::{
        badge::Tone,
        icon::Mark,
        ledger::TimeLedger,
        notice::{Empty, Notice},
        segmented::Segmented,
        strip::Patterns,
        table::{Panel, SectionHead},
    },
    console::{ClusterUsage, SPANS, UsageView},
    error::AppError,
    format::{self, Zone},
    paths,
    server_fns::nodes::read_usage,
};

/// Days that are shown where nothing is asked.
const DAYS: u32 = 7;

/// The section, for the days that the address asks for.
#[component]
pub fn ClusterTime() -> impl IntoView {
    let query = use_query_map();
    let days = Memo::new(move |_| {
        let asked = query.read().get("days").and_then(|days| days.parse().ok());
        asked.filter(|days| SPANS.contains(days)).unwrap_or(DAYS)
    });
    let usage = Resource::new_blocking(move || days.get(), read_usage);
    view! {
        <Transition>
            {move || Suspend::new(async move { view! { <Section usage=usage.await days=days.get_untracked()/> } })}
        </Transition>
    }
}

#[component]
fn Section(usage: Result<UsageView, AppError>, days: u32) -> impl IntoView {
    let choices = SPANS
        .map(|span| {
            let name = match span {
                1 => "Today",
                7 => "7 days",
                _ => "30 days",
            };
            (name, format!("{}?days={span}#time", paths::NODES), span == days)
        })
        .to_vec();
    let body = match usage {
        Ok(usage) => view! { <Loaded usage/> }.into_any(),
        Err(error) => view! {
            <Notice tone=Tone::Red mark=Mark::Failed>
                <p>{format!("Where the time went is not known: {error}")}</p>
            </Notice>
        }
        .into_any(),
    };
    view! {
        <Patterns/>
        <section class="mt-8" aria-labelledby="time">
            <SectionHead id="time" title="Where the time went">
                <span class="ml-auto max-sm:ml-0"><Segmented label="Days" choices/></span>
            </SectionHead>
            {body}
        </section>
    }
}

#[component]
fn Loaded(usage: UsageView) -> impl IntoView {
    let UsageView { since, items, .. } = usage;
    if items.is_empty() {
        return view! {
            <Panel>
                <Empty title="Nothing was held in this time">
                    "What running jobs hold is counted every ten seconds."
                </Empty>
            </Panel>
        }
        .into_any();
    }
    let clusters = items.into_iter().map(|ClusterUsage { cluster, jobs, accelerators, ledger }| {
        view! {
            <li class="min-w-0">
                <p><b>{cluster}</b> ", " {format::plural(jobs, "job", "jobs")}</p>
                <TimeLedger ledger per_gpu=accelerators/>
            </li>
        }
    });
    view! {
        <ul class="grid gap-6 sm:grid-cols-[repeat(auto-fill,minmax(20rem,1fr))]">{clusters.collect_view()}</ul>
        <p class="mt-2 text-xs text-ink-3">
            {format!("Since {} UTC, of all jobs, also deleted ones. ETTR: steps that were kept, of all time that was held; some ten seconds old at most.", format::date(since, Zone::UTC))}
        </p>
    }
    .into_any()
}
