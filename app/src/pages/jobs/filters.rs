//! Views and filters of the list. A plain GET form: every choice is an address.

use engine::{failure::FailureType, job::JobKind, record::State};
use leptos::prelude::*;
use leptos_router::components::Form;

use crate::{
    components::{
        badge::{kind_name, of_state},
        button::Submit,
        field::{Choice, FilterSelect, INPUT},
        icon::{Icon, Mark},
    },
    console::{JobsCounts, JobsQuery, JobsSort, JobsViewName},
    format,
    forms::jobs_query::{self, WITHOUT, name},
    paths,
};

/// The id of the filters' form, which the chips belong to as well.
const FORM: &str = "filters";

/// The views with how many jobs each has.
#[component]
pub fn Views(query: JobsQuery, counts: JobsCounts) -> impl IntoView {
    use JobsViewName::{All, Attention, Mine, Recovering, Running};
    let here = query.view.unwrap_or(All);
    let links = [
        (Attention, "Needs attention", counts.attention),
        (Running, "Running", counts.running),
        (Recovering, "Recovering", counts.recovering),
        (All, "All", counts.all),
        (Mine, "Mine", counts.mine),
    ]
    .map(|(view, words, count)| {
        let href = paths::jobs(&JobsQuery { view: Some(view), page: None, ..query.clone() });
        view! {
            <a
                href=href
                class="inline-flex items-center gap-1.5 h-7 max-sm:h-11 px-2.5 border border-transparent rounded-md text-ink-2 no-underline hover:bg-hover aria-[current]:border-edge aria-[current]:bg-hover aria-[current]:text-ink aria-[current]:font-medium"
                aria-current=(view == here).then_some("page")
            >
                {words} <span class="font-medium text-ink-3">{format::count(count)}</span>
            </a>
        }
    });
    view! { <nav class="flex flex-wrap gap-1 mt-3" aria-label="Views">{links.collect_view()}</nav> }
}

/// The filters within a view.
#[component]
pub fn Filters(query: JobsQuery) -> impl IntoView {
    let states = State::ALL.map(|state| (name(&state), of_state(state).2.to_owned())).to_vec();
    let faults = FailureType::ALL.map(|fault| (name(&fault), fault.as_str().to_owned())).to_vec();
    let kinds =
        [JobKind::PyTorchJob, JobKind::RayJob].map(|kind| (name(&kind), kind_name(kind).to_owned())).to_vec();
    let sorts: Vec<Choice> = [
        (JobsSort::Oldest, "Oldest first"),
        (JobsSort::Name, "By name"),
        (JobsSort::Restarts, "Most task restarts first"),
    ]
    .map(|(sort, words)| (name(&sort), words.to_owned()))
    .to_vec();
    let word = |value: Option<String>| value.unwrap_or_default();
    view! {
        <Form method="GET" action=paths::JOBS attr:id=FORM>
            {query.view.filter(|view| *view != JobsViewName::All).map(|view| view! {
                <input type="hidden" name="view" value=name(&view)/>
            })}
            <div class="flex flex-wrap items-center gap-2 my-3 max-sm:grid max-sm:grid-cols-2">
                <input
                    type="search"
                    name="q"
                    value=word(query.q)
                    aria-label="Name, id or image"
                    placeholder="Name, id or image"
                    maxlength="200"
                    class=format!("{INPUT} max-w-60 max-sm:max-w-none max-sm:col-span-2")
                />
                <FilterSelect name="state" label="State" any="Any state" chosen=word(query.state.map(|s| name(&s))) choices=states/>
                <FilterSelect
                    name="fault"
                    label="Last failure type"
                    any="Any failure type"
                    chosen=word(query.fault.map(|f| name(&f)))
                    choices=faults
                />
                <FilterSelect name="kind" label="Kind" any="Any kind" chosen=word(query.kind.map(|k| name(&k))) choices=kinds/>
                <input
                    type="text"
                    name="owner"
                    value=word(query.owner)
                    aria-label="Owner"
                    placeholder="Any owner"
                    maxlength="200"
                    class=format!("{INPUT} max-w-32 max-sm:max-w-none")
                />
                <label class="inline-flex items-center gap-2 whitespace-nowrap">
                    "Restarts ≥"
                    <input
                        type="text"
                        name="restarts"
                        inputmode="numeric"
                        value=word(query.restarts.map(|n| n.to_string()))
                        maxlength="4"
                        class=format!("{INPUT} max-w-12 max-sm:max-w-none")
                    />
                </label>
                <FilterSelect name="sort" label="Order" any="Newest first" chosen=word(query.sort.map(|s| name(&s))) choices=sorts/>
                <Submit>"Apply"</Submit>
            </div>
        </Form>
    }
}

/// Keeps what the form shows to the address: after a choice was made elsewhere, what was typed before is no more.
pub fn follow(query: Memo<JobsQuery>) {
    #[cfg(feature = "hydrate")]
    Effect::new(move |before: Option<JobsQuery>| {
        use wasm_bindgen::JsCast;
        let query = query.get();
        if before.is_some_and(|before| before != query) {
            let form = document().get_element_by_id(FORM);
            if let Some(form) = form.and_then(|form| form.dyn_into::<web_sys::HtmlFormElement>().ok()) {
                form.reset();
            }
        }
        query
    });
    #[cfg(not(feature = "hydrate"))]
    let _ = query;
}

/// What is filtered by, each with a way to take it away. They send the form, so that what is typed there is not lost.
#[component]
pub fn Chips(query: JobsQuery) -> impl IntoView {
    let q = &query;
    let chips: Vec<(&'static str, String)> = [
        q.q.as_ref().map(|text| ("q", format!("text: {text}"))),
        q.state.map(|state| ("state", format!("state: {}", state.as_str()))),
        q.fault.map(|fault| ("fault", format!("failure: {fault}"))),
        q.kind.map(|kind| ("kind", format!("kind: {}", kind_name(kind)))),
        q.owner.as_ref().map(|owner| ("owner", format!("owner: {owner}"))),
        q.restarts.map(|n| ("restarts", format!("restarts ≥ {n}"))),
    ]
    .into_iter()
    .flatten()
    .collect();
    jobs_query::is_filtered(q).then(|| {
        let chips = chips.into_iter().map(|(filter, words)| {
            view! {
                <li class="inline-flex items-center h-6.5 max-sm:h-11 pl-2.5 border border-edge rounded-sm bg-raised text-xs max-w-full">
                    <span class="truncate">{words.clone()}</span>
                    <button
                        type="submit"
                        form=FORM
                        name=WITHOUT
                        value=filter
                        class="grid place-items-center size-6 max-sm:size-11 text-ink-3 cursor-pointer"
                        aria-label=format!("Remove filter {words}")
                    >
                        <Icon mark=Mark::Failed/>
                    </button>
                </li>
            }
        });
        view! { <ul class="flex flex-wrap gap-2 mb-3" aria-label="Filters in use">{chips.collect_view()}</ul> }
    })
}
