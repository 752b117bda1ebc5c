//! Part 5: what the form comes to, before anything is sent.

use engine::job::{JobDraft, JobSpec, Site};
use leptos::prelude::*;

use super::state::{FormState, Shown};
use crate::{
    components::{
        badge::{Bare, Tone},
        icon::Mark,
        table::Panel,
    },
    forms::{
        manifest,
        review::{Difference, Readiness, changes, differences, label_of, outlook, readiness},
        typed::name,
    },
    preferences::use_frame,
};

/// The Review panel.
#[component]
pub fn Review(form: FormState) -> impl IntoView {
    view! {
        <aside class="sticky max-xl:static top-5 min-w-0" aria-labelledby="part-5">
            <div class="flex flex-wrap items-center gap-x-3 gap-y-2 mb-3">
                <h2 id="part-5" class="flex items-baseline gap-2.5">
                    <span class="text-ink-3 font-medium">"5"</span>"Review"
                </h2>
                <Views form/>
            </div>
            <Panel>
                {move || match form.shown.get() {
                    Shown::Form => view! { <InWords form/> }.into_any(),
                    Shown::Yaml => view! { <Code title="YAML" text=written(form, manifest::yaml)/> }.into_any(),
                    Shown::Json => {
                        view! { <Code title="JSON, for POST /api/v1/jobs" text=written(form, manifest::json)/> }.into_any()
                    }
                    Shown::Curl => view! { <Curl form/> }.into_any(),
                }}
            </Panel>
        </aside>
    }
}

/// The views of the job. Without script each sends the form, which comes back as it was in that view.
#[component]
fn Views(form: FormState) -> impl IntoView {
    let buttons = Shown::ALL.map(|(shown, words, value)| {
        view! {
            <button
                type="submit"
                name=name::SHOW
                value=value
                class="flex items-center h-6 max-sm:h-10 px-2.5 rounded-sm text-xs text-ink-2 whitespace-nowrap cursor-pointer hover:text-ink aria-pressed:bg-raised aria-pressed:text-ink aria-pressed:font-medium aria-pressed:outline-1 aria-pressed:outline-edge"
                aria-pressed=move || if form.shown.get() == shown { "true" } else { "false" }
                on:click=move |event| {
                    event.prevent_default();
                    form.shown.set(shown);
                }
            >
                {words}
            </button>
        }
    });
    view! {
        <div class="inline-flex ml-auto p-0.5 rounded-md bg-hover border border-rule" role="group" aria-label="Show the job as">
            {buttons.collect_view()}
        </div>
    }
}

/// What differs, what would happen, what to see to.
#[component]
fn InWords(form: FormState) -> impl IntoView {
    let different = move || form.typed.with(|typed| form.site.with_value(|site| differences(typed, site)));
    let changed = move || {
        form.original.with_value(|original| {
            let original = original.as_ref()?;
            Some(form.typed.with(|typed| form.site.with_value(|site| changes(typed, original, site))))
        })
    };
    view! {
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
        </div>
    }
}

/// The job in another writing, as long as every field is allowed.
fn written(form: FormState, write: fn(&JobDraft, &Site) -> Option<String>) -> Signal<Option<String>> {
    Signal::derive(move || form.site.with_value(|site| write(&form.draft()?, site)))
}

#[component]
fn Curl(form: FormState) -> impl IntoView {
    let frame = use_frame();
    let signs_in = frame.signs_in();
    let origin = StoredValue::new(frame.origin);
    let text = Signal::derive(move || {
        let draft = form.draft()?;
        form.site.with_value(|site| manifest::curl(&draft, site, origin.get_value().as_deref(), signs_in))
    });
    view! {
        {signs_in.then(|| view! {
            <p class="px-4 pt-4 text-ink-2">"It reads your API token from " <code>"HOLDFAST_TOKEN"</code> "."</p>
        })}
        <Code title="curl" text/>
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
fn Code(title: &'static str, text: Signal<Option<String>>) -> impl IntoView {
    view! {
        <div class="p-4">
            <h3 class="mb-2">{title}</h3>
            {move || match text.get() {
                Some(text) => view! {
                    <pre class="max-h-120 overflow-auto p-3 rounded-md bg-sunken text-xs" tabindex="0" role="region" aria-label=title>{text}</pre>
                    <p class="mt-2 text-xs text-ink-3">"Values that differ from the defaults."</p>
                }.into_any(),
                None => unfinished(),
            }}
        </div>
    }
}
