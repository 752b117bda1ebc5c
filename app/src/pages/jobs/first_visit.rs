//! What the list shows before there is a job: what to do, and what it will look like.

use leptos::prelude::*;

use crate::{
    components::{
        badge::{Badge, Bare, Tone},
        button::{LinkButton, Look},
        icon::Mark,
    },
    paths,
};

/// What to begin with.
struct Beginning {
    says: &'static str,
    steps: [&'static str; 3],
    /// Where the buttons lead; the first is the one to press.
    buttons: [(&'static str, &'static str); 2],
}

/// On this machine there is a program to try it with.
const DEMO: Beginning = Beginning {
    says: "Watch one fail and come back. The demo trains a tiny model on this machine, without a GPU, in about a minute.",
    steps: [
        "Two replicas train for 200 steps and save checkpoints.",
        "At step 40 one of them fails on purpose.",
        "Holdfast says what it saw, restarts in place and checks that training resumed.",
    ],
    buttons: [("Create the demo job", paths::NEW_DEMO_JOB), ("Create your own…", paths::NEW_JOB)],
};

/// Elsewhere images and volumes are the cluster's own.
const OWN: Beginning = Beginning {
    says: "Start a training on the cluster, kill a rank, and watch it come back.",
    steps: [
        "Fill in the form, or paste the PyTorchJob that you run today.",
        "Choose Advanced mode, and a checkpoint directory on a volume.",
        "Holdfast says what it saw, restarts in place and checks that training resumed.",
    ],
    buttons: [("Create a job…", paths::NEW_JOB), ("Paste a manifest…", paths::NEW_JOB_FROM_MANIFEST)],
};

const PRINCIPLES: [(&str, &str); 3] = [
    (
        "Three counters",
        "Task restarts, in-place restarts and diagnoses are counted apart, each as used of allowed.",
    ),
    ("Every action says why", "So does every action not taken: the rule, the log line, what was left."),
    (
        "Restarted is not recovered",
        "Four checks, each with a time and a value, before a restart is called a recovery.",
    ),
];

/// The first visit.
#[component]
pub fn FirstVisit(
    /// Whether there is a cluster for the demo.
    demo: bool,
) -> impl IntoView {
    let Beginning { says, steps, buttons: [first, second] } = if demo { DEMO } else { OWN };
    let steps = steps.into_iter().enumerate().map(|(i, text)| {
        view! {
            <li class="grid grid-cols-[22px_1fr] gap-3">
                <span class="grid place-items-center size-5.5 border border-edge rounded-md text-xs font-semibold">{i + 1}</span>
                <p>{text}</p>
            </li>
        }
    });
    let principles = PRINCIPLES.map(|(title, text)| {
        view! {
            <li class="max-w-96"><h2>{title}</h2><p class="mt-1 text-ink-3">{text}</p></li>
        }
    });
    view! {
        <section
            class="grid grid-cols-[minmax(0,1fr)_minmax(0,1.1fr)] max-lg:grid-cols-1 gap-14 max-xl:gap-8 items-center p-14 max-xl:p-8 max-sm:p-4 mt-5 border border-hair rounded-lg bg-raised"
            aria-labelledby="no-jobs"
        >
            <div>
                <h2 id="no-jobs" class="text-xl">"No jobs yet"</h2>
                <p class="mt-2 text-md text-ink-2">{says}</p>
                <ol class="grid gap-2.5 mt-5 mb-6">{steps.collect_view()}</ol>
                <div class="flex flex-wrap gap-2">
                    <LinkButton href=first.1 look=Look::Primary>{first.0}</LinkButton>
                    <LinkButton href=second.1>{second.0}</LinkButton>
                </div>
                <p class="mt-3 text-xs text-ink-3">"Both open the form; nothing starts before you send it."</p>
            </div>
            <Example/>
        </section>
        <ul class="grid grid-cols-3 max-lg:grid-cols-1 gap-8 max-lg:gap-5 mt-10">{principles.collect_view()}</ul>
    }
}

/// A drawing of what will be shown, and said to be one.
#[component]
fn Example() -> impl IntoView {
    let ok = |text: &'static str| {
        view! { <li class="flex flex-wrap gap-x-1.5"><Bare tone=Tone::Green mark=Mark::Ok text="ok"/>{text}</li> }
    };
    view! {
        <div class="p-6 max-sm:p-4 border border-hair rounded-lg bg-sunken">
            <div class="flex flex-wrap items-center gap-x-2 gap-y-1">
                <span class="grid place-items-center size-6.5 border border-green-edge rounded-md bg-green-soft text-green font-semibold" aria-hidden="true">"1"</span>
                <h3>"Attempt 1"</h3>
                <span class="font-mono text-xs text-ink-3">"demo"</span>
                <Badge tone=Tone::Green mark=Mark::Ok text="Succeeded"/>
                <span class="ml-auto text-ink-3">"about a minute"</span>
            </div>
            <ol class="flex max-sm:flex-col mt-2 sm:pl-9">
                <Launch title="Launch 0" steps="steps 0 to 40">
                    <Bare tone=Tone::Red mark=Mark::Failed text="exit 1"/>
                </Launch>
                <li class="relative flex-none w-32 max-sm:w-full px-2 pt-1 pb-1 text-xs text-center">
                    <span class="block font-mono">"APP_ERROR"</span>
                    <svg class="w-full h-2 my-0.5 text-violet-edge max-sm:hidden" viewBox="0 0 112 8" preserveAspectRatio="none" aria-hidden="true">
                        <path d="M0 4h106" stroke="currentColor" stroke-width="2"></path>
                        <path d="M105 0l7 4-7 4z" fill="currentColor"></path>
                    </svg>
                    <span class="block">"in place 1 of 3"</span>
                </li>
                <Launch title="Launch 1" steps="40 to 200">
                    <Bare tone=Tone::Green mark=Mark::Ok text="resumed"/>
                </Launch>
            </ol>
            <div class="mt-4 sm:pl-9">
                <h3>"Recovery check"</h3>
                <ul class="grid grid-cols-2 max-sm:grid-cols-1 gap-x-6 gap-y-1 mt-1.5">
                    {ok("2 of 2 ready")} {ok("checkpoint 40 loaded")} {ok("past step 40")} {ok("checkpoint 60 written")}
                </ul>
            </div>
            <p class="mt-4 text-xs text-ink-3">"An example of what the Fault Tolerance Detail will show."</p>
        </div>
    }
}

#[component]
fn Launch(title: &'static str, steps: &'static str, children: Children) -> impl IntoView {
    view! {
        <li class="flex-1 min-w-0 px-2.5 pt-1.5 pb-2.5 border border-edge rounded-md bg-raised">
            <p><b>{title}</b></p>
            <p class="flex flex-wrap gap-x-2"><span>{steps}</span><span class="ml-auto">{children()}</span></p>
            <svg class="w-full h-1.5 mt-2 rounded-xs overflow-hidden" aria-hidden="true">
                <rect width="8%" height="100%" class="fill-start"></rect>
                <rect x="8%" width="92%" height="100%" class="fill-kept"></rect>
            </svg>
        </li>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_offered_where_it_can_run() {
        let html = |demo: bool| Owner::new().with(|| view! { <FirstVisit demo/> }.to_html());
        assert!(html(true).contains("from=demo") && html(true).contains("on this machine"));
        let elsewhere = html(false);
        assert!(!elsewhere.contains("from=demo") && elsewhere.contains("from=manifest"), "{elsewhere}");
    }
}
