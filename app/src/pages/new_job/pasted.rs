//! The create form of a pasted manifest: its text, what was read of it, and what Holdfast has in another way.

use leptos::prelude::*;

use super::{
    basics::{Checklist, GRID, Part, Text},
    kubernetes::{Cluster, Lacking},
    state::FormState,
};
use crate::{
    components::{
        button::Look,
        field::TextArea,
        notice::Says,
        table::{DataTable, Panel},
    },
    forms::{
        new_job::{CHECK, sentence},
        pasted,
        typed::name,
    },
};

/// Manifest, what it makes, and Data.
#[component]
pub fn Pasted(form: FormState) -> impl IntoView {
    view! {
        <Part number=1 title="Manifest">
            <div class=GRID>
                <Cluster form/>
                <Lacking form/>
                <Text form field=name::NAME hint=|| "empty: the manifest's own; 1 to 63 characters"/>
                <div class="col-span-full">
                    <TextArea
                        bound=form.bound(name::MANIFEST)
                        rows=18
                        mono=true
                        hint=|| "one PyTorchJob of kubeflow.org/v1 or RayJob of ray.io/v1, as YAML or JSON, at most 256 KiB; fields that are not known here are kept. TrainJob is not supported yet"
                    />
                    <div class="flex flex-wrap items-center gap-3 mt-2">
                        <button
                            type="submit"
                            name=name::SHOW
                            value=CHECK
                            class=Look::Plain.class()
                            on:click=move |event| {
                                event.prevent_default();
                                form.check_manifest();
                            }
                        >
                            "Check"
                        </button>
                        <span class="text-ink-3">"Reads the manifest and shows what it makes; creates nothing."</span>
                    </div>
                </div>
            </div>
        </Part>
        <Part number=2 title="What it makes">
            <Makes form/>
        </Part>
        <Part number=3 title="Data">
            <div class=GRID>
                <Text form field=name::CHECKPOINT_DIR mono=true hint=|| "an absolute path on one of the manifest's volumes; the program finds it in HOLDFAST_CHECKPOINT_DIR"/>
            </div>
            <Checklist/>
        </Part>
    }
}

/// What was read, or every place that cannot be run.
#[component]
fn Makes(form: FormState) -> impl IntoView {
    let wrong = move || form.errors_at(name::MANIFEST);
    view! {
        <div role="status">
            {move || {
                if !form.typed.with(pasted::is_read) {
                    return view! { <p class="text-ink-3">"Told once the manifest has been read: press Check."</p> }.into_any();
                }
                let wrong = wrong();
                if wrong.is_empty() {
                    return read(form).into_any();
                }
                let places =
                    wrong.into_iter().map(|error| view! { <li class="wrap-anywhere">{sentence(&error)}</li> });
                view! {
                    <p class="font-medium">"It cannot be run as it is:"</p>
                    <ul class="grid gap-1 pl-4 list-disc marker:text-ink-3">{places.collect_view()}</ul>
                }
                .into_any()
            }}
        </div>
    }
}

/// What the job takes from its manifest, and what every attempt has in another way.
fn read(form: FormState) -> impl IntoView {
    let Some(manifest) = form.typed.with(pasted::object) else { return ().into_any() };
    let taken = match form.spec() {
        Some(spec) => {
            let rows = pasted::read_from(&spec).into_iter().map(|(label, value)| {
                view! { <tr><th scope="row">{label}</th><td class="wrap-anywhere">{value}</td></tr> }
            });
            view! {
                <Panel>
                    <DataTable caption="Read from the manifest" class=crate::components::class::TABLE_NARROW>
                        <tbody>{rows.collect_view()}</tbody>
                    </DataTable>
                </Panel>
            }
            .into_any()
        }
        None => view! { <p class="text-ink-3">"The manifest can be run; other fields need a change."</p> }
            .into_any(),
    };
    let overridden = manifest.overrides().into_iter().map(|one| {
        view! { <li class="wrap-anywhere"><code>{one.field}</code> " " {one.why} "."</li> }
    });
    view! {
        <div class="grid gap-3">
            {taken}
            <Says>
                "Every attempt is this object with the following set by Holdfast, and nothing else changed:"
            </Says>
            <ul class="grid gap-1 pl-4 list-disc marker:text-ink-3">
                {overridden.collect_view()}
                <li>"Each pod that starts the program, of a RayJob the head, gets the agent before it: an init container and two volumes. Variables whose names begin with HOLDFAST_ are in all pods."</li>
                <li>"Labels and annotations of holdfast.dev, and tolerations for nodes that are out of reach, are added; avoided nodes are excluded by affinity."</li>
            </ul>
        </div>
    }
    .into_any()
}
