//! The first three parts: what runs, on how much, and where it keeps its data.

use leptos::prelude::*;

use super::{
    KINDS,
    kubernetes::{Cluster, Lacking, PodData, PodResources},
    state::FormState,
};
use crate::{
    components::{
        badge::kind_name,
        field::{Choice, Field, SELECT, TextArea, TextField, hint_id},
    },
    forms::{
        new_job::allowed,
        pods,
        review::CHECKLIST,
        typed::{label, name},
    },
};

/// A numbered part of the form.
#[component]
pub fn Part(
    /// Its number.
    number: u8,
    /// Its heading.
    title: &'static str,
    /// Its fields.
    children: Children,
) -> impl IntoView {
    let id = format!("part-{number}");
    let labelled = id.clone();
    let class = if number == 1 { "pb-6" } else { "pt-5 pb-6 border-t border-hair" };
    view! {
        <section class=class aria-labelledby=labelled>
            <h2 id=id class="flex items-baseline gap-2.5 mb-3.5">
                <span class="text-ink-3 font-medium">{number}</span>{title}
            </h2>
            {children()}
        </section>
    }
}

/// Fields two by two.
pub const GRID: &str = "grid grid-cols-2 max-sm:grid-cols-1 gap-x-5 gap-y-3.5";

/// A field of one line.
#[component]
pub fn Text(
    form: FormState,
    field: &'static str,
    #[prop(optional)] numeric: bool,
    #[prop(optional)] mono: bool,
    #[prop(optional)] unit: Option<&'static str>,
    #[prop(optional, into)] disabled: Signal<bool>,
    #[prop(into)] hint: ViewFn,
) -> impl IntoView {
    view! {
        <TextField
            bound=form.bound(field)
            numeric
            mono
            unit
            disabled
            hint
        />
    }
}

/// Basics, Resources and Data.
#[component]
pub fn Basics(form: FormState) -> impl IntoView {
    view! {
        <Part number=1 title="Basics">
            <div class=GRID>
                <Text form field=name::NAME hint=|| "1 to 63 characters; need not be unique"/>
                <Kind form/>
                <Cluster form/>
                <Lacking form/>
                <Text form field=name::IMAGE hint=move || view! { <ByCluster form local="the local cluster uses none: it runs programs of this machine" kubernetes="required; what the pods run, with a tag that stays: registry.example.com/team/train:2.9"/> }/>
                <div class="col-span-full">
                    <Text form field=name::COMMAND mono=true hint=|| "program and arguments as in a shell, without its variables and pipes; $'…' may hold \\n for a line break"/>
                </div>
                <div class="col-span-full">
                    <TextArea
                        bound=form.bound(name::ENV)
                        rows=3
                        hint=|| "NAME=value, one a line. A value in double quotes may hold \\n for a line break, \\\" and \\\\. Ranks and rendezvous are set by Holdfast."
                    />
                </div>
            </div>
        </Part>
        <Part number=2 title="Resources">
            <div class=GRID>
                <Text form field=name::REPLICAS numeric=true hint=move || view! {
                    {allowed(name::REPLICAS)} <ByKind form pytorch=", the master included" ray=", the head included"/> <Fit form/>
                }/>
                <Text form field=name::ACCELERATORS numeric=true hint=move || view! {
                    {allowed(name::ACCELERATORS)}
                    <ByCluster form local="; locally slots, at least one; 0 disables Job Hang Detection" kubernetes="; 0 disables Job Hang Detection"/>
                }/>
                <Text
                    form
                    field=name::PROCESSES
                    numeric=true
                    disabled=Signal::derive(move || form.typed.with(|typed| typed.is_ray()))
                    hint=move || view! {
                        {allowed(name::PROCESSES)}
                        <ByKind
                            form
                            pytorch="; each runs the command with its own rank"
                            ray="; for PyTorchJob: a RayJob's command is its driver, started once, on the head"
                        />
                    }
                />
            </div>
            <PodResources form/>
        </Part>
        <Part number=3 title="Data">
            <div class=GRID>
                <Text form field=name::CHECKPOINT_DIR mono=true hint=move || view! { <CheckpointHint form/> }/>
                <Text form field=name::WORKING_DIR mono=true hint=move || view! { <ByCluster form local="empty: the server's own" kubernetes="empty: the image's own; else an absolute path"/> }/>
            </div>
            <PodData form/>
            <Checklist/>
        </Part>
    }
}

/// What a program needs so that it can be resumed.
#[component]
pub fn Checklist() -> impl IntoView {
    view! {
        <details class="mt-3.5">
            <summary class="w-fit min-h-6 max-sm:min-h-11 cursor-pointer underline decoration-edge underline-offset-3">"Checkpoint checklist"</summary>
            <dl class="grid grid-cols-[10rem_1fr] max-sm:grid-cols-1 gap-x-4 gap-y-1 mt-2">
                {CHECKLIST.map(|(what, why)| view! { <dt class="font-medium">{what}</dt> <dd class="text-ink-2">{why}</dd> }).collect_view()}
            </dl>
        </details>
    }
}

#[component]
fn Kind(form: FormState) -> impl IntoView {
    let chosen = form.first(name::KIND);
    let error = form.error(name::KIND);
    let radios = KINDS.map(|kind| {
        view! {
            <label class="inline-flex items-center gap-2 min-h-8 max-sm:min-h-11 cursor-pointer">
                <input
                    class="tick"
                    type="radio"
                    name=name::KIND
                    value=kind.as_str()
                    checked=chosen == kind.as_str()
                    on:change=move |_| form.changed(name::KIND).run(kind.as_str().to_owned())
                />
                {kind_name(kind)}
            </label>
        }
    });
    view! {
        <fieldset id=name::KIND tabindex="-1">
            <legend class="mb-1 font-medium">"Kind"</legend>
            <div class="flex flex-wrap gap-x-5">{radios.collect_view()}</div>
            {move || error.get().map(|why| view! { <p class="mt-1 text-xs text-red font-medium">{why}</p> })}
            {move || form.typed.with(|typed| typed.is_ray()).then(|| view! {
                <p class="mt-1 text-xs text-ink-3">"RayJob uses basic mode; what is for PyTorchJob is disabled below and kept."</p>
            })}
        </fieldset>
    }
}

/// A choice of one.
#[component]
pub fn Select(
    form: FormState,
    field: &'static str,
    choices: Vec<Choice>,
    hint: &'static str,
) -> impl IntoView {
    let chosen = form.first(field);
    let options = choices.into_iter().map(move |(value, words)| {
        let selected = value == chosen;
        view! { <option value=value selected=selected>{words}</option> }
    });
    view! {
        <Field name=field label=label(field) error=form.error(field) hint=move || hint>
            <select
                id=field
                name=field
                class=format!("{SELECT} w-full")
                aria-describedby=hint_id(field)
                on:change=move |event| form.changed(field).run(event_target_value(&event))
            >
                {options.collect_view()}
            </select>
        </Field>
    }
}

/// Whether the job fits the cluster as a whole, in slots.
#[component]
fn Fit(form: FormState) -> impl IntoView {
    move || {
        let spec = form.spec()?;
        let total = form
            .site
            .with_value(|site| site.clusters.iter().find(|c| c.name == spec.cluster)?.total_slots)?;
        let needs = spec.replicas * spec.accelerators_per_replica.max(1);
        Some(format!("; needs {needs} of the cluster's {total} slots"))
    }
}

/// Words that depend on where the job runs.
#[component]
fn ByCluster(form: FormState, local: &'static str, kubernetes: &'static str) -> impl IntoView {
    move || if form.on_kubernetes() { kubernetes } else { local }
}

/// Words that depend on the kind of the job.
#[component]
fn ByKind(form: FormState, pytorch: &'static str, ray: &'static str) -> impl IntoView {
    move || if form.typed.with(|typed| typed.is_ray()) { ray } else { pytorch }
}

/// What a checkpoint directory means for a resubmission.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// There is none.
    Nothing,
    /// It is in the pod's own file system.
    WithThePod,
    /// On a volume.
    OnAVolume,
    /// On this machine.
    Here,
}

#[component]
fn CheckpointHint(form: FormState) -> impl IntoView {
    let kept = Memo::new(move |_| {
        let on_kubernetes = form.on_kubernetes();
        form.typed.with(|typed| match typed.get(name::CHECKPOINT_DIR).trim() {
            "" => Kept::Nothing,
            _ if !on_kubernetes => Kept::Here,
            dir if pods::read(typed).options.volume_of(dir).is_some() => Kept::OnAVolume,
            _ => Kept::WithThePod,
        })
    });
    move || {
        let (warns, words) = match kept.get() {
            Kept::Nothing => {
                (true, "A resubmission would start at step 0: name a directory that outlives the replica.")
            }
            Kept::WithThePod => (true, "Not on a volume: it is lost with the pod. Mount one there, below."),
            Kept::OnAVolume => (
                false,
                "must outlive the pod. Another job with the same one would go on from its checkpoints.",
            ),
            Kept::Here => (
                false,
                "must outlive the replica; a local one may be below the server's data directory. Another job with the same one would go on from its checkpoints.",
            ),
        };
        view! { <span class=if warns { "text-amber font-medium" } else { "" }>{words}</span> }
    }
}
