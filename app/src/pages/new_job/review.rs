//! Part 5: what the form comes to, before anything is sent.

use engine::job::JobSpec;
use leptos::prelude::*;

use super::state::FormState;
use crate::{
    components::{
        badge::{Bare, Tone},
        icon::Mark,
        table::Panel,
    },
    forms::review::{Difference, Readiness, changes, curl, differences, json, label_of, outlook, readiness},
    preferences::use_frame,
};

/// The Review panel.
#[component]
pub fn Review(form: FormState) -> impl IntoView {
    let origin = StoredValue::new(use_frame().origin);
    let different = move || form.typed.with(|typed| form.site.with_value(|site| differences(typed, site)));
    let changed = move || {
        form.original.with_value(|original| {
            let original = original.as_ref()?;
            Some(form.typed.with(|typed| form.site.with_value(|site| changes(typed, original, site))))
        })
    };
    let json = move || form.typed.with(|typed| form.site.with_value(|site| json(typed, site)));
    let curl = move || {
        let origin = origin.get_value();
        form.typed.with(|typed| form.site.with_value(|site| curl(typed, site, origin.as_deref())))
    };
    view! {
        <aside class="sticky max-xl:static top-5 min-w-0" aria-labelledby="part-5">
            <h2 id="part-5" class="flex items-baseline gap-2.5 mb-3">
                <span class="text-ink-3 font-medium">"5"</span>"Review"
            </h2>
            <Panel>
                <div class="divide-y divide-hair">
                    {move || changed().map(|changed| view! {
                        <Block title="Changed from the original">
                            <Differences list=changed none="Nothing: it would run the same again."/>
                        </Block>
                    })}
                    <Block title="Differs from the defaults">
                        {move || view! { <Differences list=different() none="Nothing in Advanced Options."/> }}
                    </Block>
                    <Block title="What would happen">{move || view! { <Outlook spec=form.spec()/> }}</Block>
                    <Block title="Before you rely on it">{move || view! { <Ready form spec=form.spec()/> }}</Block>
                    <Code title="As JSON, for POST /api/v1/jobs" text=Signal::derive(json)/>
                    <Code title="As curl" text=Signal::derive(curl)/>
                </div>
            </Panel>
        </aside>
    }
}

#[component]
fn Block(title: &'static str, children: Children) -> impl IntoView {
    view! {
        <div class="p-4"><h3 class="mb-2">{title}</h3>{children()}</div>
    }
}

#[component]
fn Differences(list: Vec<Difference>, none: &'static str) -> impl IntoView {
    if list.is_empty() {
        return view! { <p class="text-ink-3">{none}</p> }.into_any();
    }
    let rows = list.into_iter().map(|difference| {
        let label = label_of(&difference).to_owned();
        view! {
            <dt class="text-ink-3">{label}</dt>
            <dd class="min-w-0 wrap-anywhere">{difference.value} " " <span class="text-ink-3">"(" {difference.usual} ")"</span></dd>
        }
    });
    view! { <dl class="grid grid-cols-[minmax(0,1fr)_minmax(0,1fr)] gap-x-4 gap-y-1.5">{rows.collect_view()}</dl> }.into_any()
}

/// Shown where the review needs a form without errors.
fn unfinished() -> AnyView {
    view! { <p class="text-ink-3">"Told once every field is filled in and allowed."</p> }.into_any()
}

#[component]
fn Outlook(spec: Option<JobSpec>) -> impl IntoView {
    let Some(spec) = spec else { return unfinished() };
    let lines = outlook(&spec.fault_tolerance).into_iter().map(|line| view! { <li>{line}</li> });
    view! { <ul class="grid gap-1 pl-4 list-disc marker:text-ink-3">{lines.collect_view()}</ul> }.into_any()
}

#[component]
fn Ready(form: FormState, spec: Option<JobSpec>) -> impl IntoView {
    let Some(spec) = spec else { return unfinished() };
    let list = form
        .original
        .with_value(|original| form.site.with_value(|site| readiness(&spec, original.as_ref(), site)));
    let lines = list.into_iter().map(|(ready, words)| {
        let (tone, mark, word) = match ready {
            Readiness::Ok => (Tone::Green, Mark::Ok, "ok"),
            Readiness::Mind => (Tone::Amber, Mark::Warning, "mind"),
            Readiness::NotKnown => (Tone::Grey, Mark::NotYet, "not known"),
        };
        view! { <li class="flex items-start gap-x-1.5"><Bare tone mark text=word/><span class="min-w-0 wrap-anywhere">{words}</span></li> }
    });
    view! { <ul class="grid gap-1">{lines.collect_view()}</ul> }.into_any()
}

#[component]
fn Code(title: &'static str, #[prop(into)] text: Signal<Option<String>>) -> impl IntoView {
    view! {
        <details class="p-4">
            <summary class="min-h-6 max-sm:min-h-11 font-semibold cursor-pointer">{title}</summary>
            {move || match text.get() {
                Some(text) => view! {
                    <pre class="mt-2 p-3 rounded-md bg-sunken overflow-x-auto text-xs" tabindex="0" role="region" aria-label=title>{text}</pre>
                }.into_any(),
                None => unfinished(),
            }}
        </details>
    }
}
