//! Part 5: what the form comes to, before anything is sent.

use engine::job::{Finding, Fit, JobDraft, JobSpec, Site};
use leptos::prelude::*;

use super::state::{Asked, FormState, Shown};
use crate::{
    components::{
        badge::{Bare, Tone},
        button::Look,
        icon::Mark,
        table::Panel,
    },
    forms::{
        manifest,
        new_job::{ASK, said},
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
            {move || form.on_kubernetes().then(|| view! {
                <Block title="On the cluster now"><OnTheCluster form/></Block>
            })}
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

/// What the cluster says about the job, once it is asked. Without script the button sends the form, which comes back with the answer.
#[component]
fn OnTheCluster(form: FormState) -> impl IntoView {
    let answer = move || {
        match form.asked.get() {
        Asked::Nothing => {
            view! { <p class="text-ink-3">"Whether what the job names is there, and whether it has room."</p> }
                .into_any()
        }
        Asked::Waiting => view! { <p class="text-ink-3">"The cluster is asked…"</p> }.into_any(),
        Asked::Failed(why) => view! { <p>"There is no answer. " {why}</p> }.into_any(),
        Asked::Told(draft, _) if form.draft().as_ref() != Some(&*draft) => {
            view! { <p class="text-ink-3">"The form has changed since it was asked."</p> }.into_any()
        }
        Asked::Told(_, findings) => view! { <Findings form findings/> }.into_any(),
    }
    };
    view! {
        <div role="status">{answer}</div>
        {move || match form.spec() {
            None => unfinished(),
            Some(_) => view! {
                <button
                    type="submit"
                    name=name::SHOW
                    value=ASK
                    class=format!("mt-3 {}", Look::Small.class())
                    disabled=move || form.asked.with(|asked| *asked == Asked::Waiting)
                    on:click=move |event| {
                        event.prevent_default();
                        form.ask();
                    }
                >
                    "Check on the cluster"
                </button>
            }
            .into_any(),
        }}
    }
}

#[component]
fn Findings(form: FormState, findings: Vec<Finding>) -> impl IntoView {
    if findings.is_empty() {
        return view! { <p>"The cluster has nothing to say about it."</p> }.into_any();
    }
    let lines = findings.into_iter().map(|finding| {
        let (tone, mark, word) = match finding.fit {
            Fit::Never => (Tone::Red, Mark::Failed, "refused"),
            Fit::Later => (Tone::Amber, Mark::Warning, "waits"),
            Fit::NotChecked => (Tone::Grey, Mark::NotYet, "not checked"),
            Fit::Ok => (Tone::Green, Mark::Ok, "ok"),
        };
        let words = form.typed.with_untracked(|typed| form.site.with_value(|site| said(&finding, typed, site)));
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

#[cfg(test)]
mod tests {
    use engine::{
        job::{ClusterKind, SiteCluster},
        time::Time,
    };

    use super::*;
    use crate::{console::Posted, forms::typed::Typed, server_fns::new_job::NewJobStart};

    /// The block of a form for this kind of cluster that came back with what the cluster said; `name` is typed since.
    fn html(kind: ClusterKind, findings: Option<Vec<Finding>>, name: &str) -> String {
        let cluster = SiteCluster { kind, ..Site::default().clusters[0].clone() };
        let site = Site { clusters: vec![cluster], ..Site::default() };
        let mut typed = Typed::prefilled(&site);
        for (field, text) in
            [(name::NAME, "a"), (name::COMMAND, "true"), (name::IMAGE, "registry.example/a:1")]
        {
            typed.set(field, text);
        }
        let posted = Some(Posted { findings, ..Posted::default() });
        let start = NewJobStart { site, original: None, posted, now: Time(0) };
        Owner::new().with(|| {
            let form = FormState::new(typed, &start);
            form.typed.update(|typed| typed.set(name::NAME, name));
            view! { <InWords form/> }.to_html()
        })
    }

    #[test]
    fn what_the_cluster_said_is_shown_until_the_job_changes() {
        let found = || Some(vec![Finding::whole(Fit::Later, "4 of 6 replicas fit now, 2 will wait.")]);
        let html = |findings, name| html(ClusterKind::Kubernetes, findings, name);
        let told = html(found(), "a");
        assert!(told.contains("4 of 6 replicas fit now") && told.contains("waits"), "{told}");
        assert!(told.contains("value=\"ask\""), "it can be asked again without script: {told}");
        let changed = html(found(), "b");
        assert!(changed.contains("The form has changed") && !changed.contains("4 of 6"), "{changed}");
        let never_asked = html(None, "a");
        assert!(
            never_asked.contains("Check on the cluster") && !never_asked.contains("will wait"),
            "{never_asked}"
        );
        assert!(!html(None, "").contains("value=\"ask\""), "a form with errors is no job to ask about");
    }

    #[test]
    fn this_machine_is_not_asked() {
        assert!(!html(ClusterKind::Local, None, "a").contains("On the cluster now"));
    }
}
