//! The jobs list: one row per job, filters in the address.

mod filters;
mod first_visit;
mod rows;

use engine::time::Time;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use self::{
    filters::{Chips, Filters, Views},
    first_visit::FirstVisit,
    rows::{Rows, keep_order},
};
use crate::{
    components::{
        button::{LinkButton, Look},
        failed::FailedPage,
        icon::{Icon, Mark},
        live_mark::LiveMark,
        notice::Empty,
        table::{DerivedNote, Panel},
    },
    console::{JobRow, JobsPage, JobsQuery},
    format,
    forms::jobs_query,
    live::use_live,
    paths,
    preferences::use_frame,
    server_fns::jobs::list_jobs,
};

use super::settings::SingleUserNotice;

/// The rows on the screen, by the filters they were read with: later readings change them without moving them.
type Shown = StoredValue<Option<(JobsQuery, Vec<JobRow>)>>;

/// The jobs list.
#[component]
pub fn Jobs() -> impl IntoView {
    let params = use_query_map();
    let query = Memo::new(move |_| jobs_query::read(|name| params.read().get(name)));
    let live = use_live();
    live.watch(|| Some(paths::STREAM.to_owned()));
    let page = Resource::new_blocking(move || (query.get(), live.ticks()), |(query, _)| list_jobs(query));
    let shown: Shown = StoredValue::new(None);
    filters::follow(query);
    view! {
        <Title text="Jobs"/>
        <Transition>
            {move || {
                let query = query.get();
                Suspend::new(async move {
                    match page.await {
                        Ok(page) => view! { <Loaded query page shown/> }.into_any(),
                        Err(error) => view! { <FailedPage error/> }.into_any(),
                    }
                })
            }}
        </Transition>
    }
}

#[component]
fn Loaded(query: JobsQuery, page: JobsPage, shown: Shown) -> impl IntoView {
    let first_visit = page.first_visit.is_some();
    let single_user = use_frame().caller.is_some_and(|caller| caller.single_user);
    view! {
        <Head now=page.now main=!first_visit/>
        {(first_visit && single_user).then(|| view! { <div class="mt-5"><SingleUserNotice/></div> })}
        {match page.first_visit {
            Some(offer) => view! { <FirstVisit demo=offer.demo/> }.into_any(),
            None => view! { <List query page shown/> }.into_any(),
        }}
    }
}

#[component]
fn Head(now: Time, main: bool) -> impl IntoView {
    let look = if main { Look::Primary } else { Look::Plain };
    view! {
        <div class="flex flex-wrap items-center gap-x-3 gap-y-2 min-h-8">
            <h1>"Jobs"</h1>
            <LiveMark now/>
            <div class="ml-auto">
                <LinkButton href=paths::NEW_JOB look><Icon mark=Mark::Plus/>"Create job"</LinkButton>
            </div>
        </div>
    }
}

#[component]
fn List(query: JobsQuery, page: JobsPage, shown: Shown) -> impl IntoView {
    let (rows, newer) =
        shown.try_update_value(|shown| keep_order(shown, &query, page.items)).unwrap_or_default();
    let (now, total, size) = (page.now, page.total, page.size);
    let none = rows.is_empty();
    view! {
        <Views query=query.clone() counts=page.counts/>
        <Filters query=query.clone()/>
        <Chips query=query.clone()/>
        <Panel>
            {(newer > 0).then(|| view! {
                <p class="py-1.5 text-center border-b border-hair" role="status">
                    // Leaving the router aside reads the page anew, in its right order.
                    <a href=paths::jobs(&query) rel="external">
                        {format::plural(newer as u64, "newer job", "newer jobs")} ", show"
                    </a>
                </p>
            })}
            {if none {
                view! { <NothingMatches query=query.clone()/> }.into_any()
            } else {
                view! { <Rows query=query.clone() rows now/> }.into_any()
            }}
            <Pages query page=page.page size total/>
        </Panel>
        <DerivedNote/>
    }
}

#[component]
fn NothingMatches(query: JobsQuery) -> impl IntoView {
    let everything = JobsQuery { view: query.view, ..JobsQuery::default() };
    view! {
        <Empty title="No job matches">
            {if jobs_query::is_filtered(&query) {
                view! { <a href=paths::jobs(&everything)>"Take the filters away"</a> }.into_any()
            } else {
                view! { "This view is empty. " <a href=paths::JOBS>"All jobs"</a> }.into_any()
            }}
        </Empty>
    }
}

#[component]
fn Pages(query: JobsQuery, page: u32, size: u32, total: u64) -> impl IntoView {
    let first = u64::from(page.saturating_sub(1)) * u64::from(size);
    let last = total.min(first + u64::from(size));
    let words = if total == 0 {
        "0 jobs".to_owned()
    } else {
        format!("{}–{} of {}", format::count(first + 1), format::count(last), format::count(total))
    };
    let step = move |to: Option<u32>, name: &'static str| match to {
        Some(to) => {
            let href = paths::jobs(&JobsQuery { page: Some(to), ..query.clone() });
            view! { <LinkButton href look=Look::Small>{name}</LinkButton> }.into_any()
        }
        None => view! { <button type="button" class=Look::Small.class() disabled>{name}</button> }.into_any(),
    };
    view! {
        <nav class="flex flex-wrap items-center justify-end gap-x-3 gap-y-2 min-h-11 px-3 py-2 border-t border-hair" aria-label="Pages of the list">
            <span class="text-ink-3">{words}</span>
            {step((page > 1).then(|| page - 1), "Previous")}
            {step((last < total).then_some(page + 1), "Next")}
        </nav>
    }
}
