//! Advanced Options: mode cards, the switches and what belongs to each.

use engine::job::Mode;
use leptos::prelude::*;

use super::{
    basics::{GRID, Part, Select, Text},
    state::FormState,
};
use crate::{
    components::{badge::mode_name, button::Look, field::hint_id, notice::Says, table::Panel},
    forms::{
        new_job::allowed,
        numbers,
        review::{hang_note, quiet_note},
        switches::{self, card_value},
        typed::{label, name, policy_words},
    },
};

const CARDS: [(Mode, &str); 3] = [
    (Mode::Basic, "Resubmits after a failure. Any job."),
    (Mode::Advanced, "Also picks the action by failure type."),
    (Mode::Full, "Also notices stalls. May misjudge."),
];

/// What reading stacks needs, and what counts without them.
const STACKS: &str = "Stacks are read from outside, where the agent may trace its own children: kernel.yama.ptrace_scope 0 or 1, and the same user. \
Elsewhere steps, output, checkpoints and CPU time decide.";

/// Part 4.
#[component]
pub fn Advanced(form: FormState) -> impl IntoView {
    let cards = CARDS.map(|(mode, says)| view! { <Card form mode says/> });
    view! {
        <Part number=4 title="Advanced Options">
            <fieldset>
                <legend class="unseen">"Fault tolerance mode"</legend>
                <div class="grid grid-cols-3 max-sm:grid-cols-1 gap-3 mb-3">{cards.collect_view()}</div>
            </fieldset>
            <Panel>
                <div class="p-4 divide-y divide-hair">
                    <Switch form switch=name::FAILOVER says="resubmits a failed job; each time it queues again">
                        <Text form field=name::TASK_RESTARTS numeric=true hint=move || view! { <RunsHint form/> }/>
                    </Switch>
                    <Switch form switch=name::POLICY says="restart in place, resubmit or fail fast">
                        <PolicyType form/>
                        <Text form field=name::IN_PLACE numeric=true hint=|| format!("{}; in each attempt, after other failures than a hang", allowed(name::IN_PLACE))/>
                    </Switch>
                    <Switch form switch=name::HANG says="finds processes that stand still">
                        <Seconds form field=name::INTERVAL says=""/>
                        <Seconds form field=name::WINDOW says="at least the interval"/>
                        <Text form field=name::HANG_RESTARTS numeric=true hint=|| format!("{}; counted apart, in each attempt; 0: straight to resubmission", allowed(name::HANG_RESTARTS))/>
                        <Seconds form field=name::START_AFTER says="each launch starts this clock anew"/>
                        <div class="col-span-full grid gap-1">
                            <Tick form field=name::DIAGNOSE/>
                            <p class="text-xs text-ink-3">
                                "Bisect Diagnose finds the nodes that fail a test before the next attempt begins elsewhere; not charged. Needs two nodes."
                            </p>
                        </div>
                        <div class="col-span-full grid gap-2">
                            {move || form.spec().map(|spec| hang_note(&spec.fault_tolerance.hang_detection)).map(|note| view! { <Says>{note}</Says> })}
                            {move || form.spec().and_then(|spec| quiet_note(&spec.fault_tolerance.hang_detection, form.longest_quiet)).map(|note| view! { <Says>{note}</Says> })}
                            <p class="text-xs text-ink-3">{STACKS}</p>
                            <p class="text-xs text-ink-3">
                                "A phase that is normally long is marked by a line such as " <code>"holdfast phase=evaluation"</code>
                                " on standard output; it then has an hour."
                            </p>
                        </div>
                    </Switch>
                    <Switch form switch=name::EXIT says="tells the program to save before it exits; in none of the modes">
                        <Text form field=name::PORT numeric=true hint=|| allowed(name::PORT)/>
                        <Seconds form field=name::WAIT says="stop, delete and preemption may take as long"/>
                        <div class="col-span-full grid gap-2 text-xs text-ink-3">
                            <p>
                                "The program answers " <code>"/v1/preempt/notify"</code> " and " <code>"/v1/preempt/status"</code>
                                " on that port; "<code>"examples/holdfast_exit.py"</code>" does. A power loss cannot be announced: periodic checkpoints stay necessary."
                            </p>
                        </div>
                    </Switch>
                    <Switch form switch=name::HEALTH says="in every replica before each attempt trains; one that fails keeps it from starting">
                        <fieldset class="col-span-full">
                            <legend class="mb-1 font-medium">"What is checked"</legend>
                            <div class="grid grid-cols-3 max-sm:grid-cols-1 gap-x-5 gap-y-1">
                                {name::CHECKS.map(|field| view! { <Tick form field/> }).collect_view()}
                            </div>
                        </fieldset>
                        <div class="col-span-full">
                            <Text form field=name::CHECK_COMMAND mono=true hint=|| "run in every replica as its program would be; exit code 0 passes, 120 s at most; empty: none"/>
                        </div>
                    </Switch>
                </div>
            </Panel>
        </Part>
    }
}

/// One health check to be made or left out.
#[component]
fn Tick(form: FormState, field: &'static str) -> impl IntoView {
    let first = form.typed.with_untracked(|typed| typed.is_on(field));
    view! {
        <label class="flex items-center gap-2 min-h-6 max-sm:min-h-11 cursor-pointer">
            <input
                class="tick"
                type="checkbox"
                id=field
                name=field
                checked=first
                prop:checked=move || form.shows_on(field)
                on:change=move |event| form.turn(field, event_target_checked(&event))
            />
            {label(field)}
        </label>
    }
}

#[component]
fn Card(form: FormState, mode: Mode, says: &'static str) -> impl IntoView {
    let first = form.typed.with_untracked(|typed| switches::mode(typed) == mode);
    let ray = move || mode != Mode::Basic && form.typed.with(|typed| typed.is_ray());
    view! {
        <label class="grid grid-cols-[16px_1fr] gap-x-2.5 gap-y-0.5 px-3.5 py-3 border border-edge rounded-lg bg-raised cursor-pointer has-checked:border-ink has-checked:ring-1 has-checked:ring-ink has-checked:ring-inset has-checked:bg-sunken has-focus-visible:outline-2 has-focus-visible:outline-focus has-focus-visible:outline-offset-2 has-disabled:cursor-not-allowed has-disabled:bg-hover">
            <input
                class="tick mt-0.5 outline-hidden focus-visible:outline-hidden"
                type="radio"
                name=name::MODE
                value=card_value(mode)
                checked=first
                prop:checked=move || form.shows_mode(mode)
                disabled=ray
                on:change=move |_| form.choose(mode)
            />
            <b>{mode_name(mode)}</b>
            <span class="col-start-2 text-xs text-ink-2">
                {move || if ray() { "For PyTorchJob: RayJob uses basic mode." } else { says }}
            </span>
        </label>
    }
}

/// A switch, why it cannot be used, what moved it, and its fields.
#[component]
fn Switch(form: FormState, switch: &'static str, says: &'static str, children: Children) -> impl IntoView {
    let first = form.typed.with_untracked(|typed| switches::sent(typed, switch));
    let why = Memo::new(move |_| form.typed.with(|typed| switches::disabled(typed, switch)));
    let kept = move || form.typed.with(|typed| typed.is_on(switch));
    let error = form.error(switch);
    let says_id = hint_id(switch);
    view! {
        <div class="grid grid-cols-[36px_minmax(0,1fr)] gap-x-3.5 py-3.5 first:pt-0 last:pb-0">
            <input
                class="switch"
                type="checkbox"
                role="switch"
                id=switch
                name=switch
                checked=first
                prop:checked=move || form.shows_on(switch)
                disabled=move || why.get().is_some()
                aria-invalid=move || error.get().is_some().then_some("true")
                aria-describedby=says_id.clone()
                on:change=move |event| form.turn(switch, event_target_checked(&event))
            />
            <div class="min-w-0 grid gap-3">
                <p class="flex flex-wrap items-center gap-x-2">
                    <label for=switch class="font-medium cursor-pointer">{label(switch)}</label>
                    <span id=says_id class="text-ink-3">
                        {says}
                        {move || why.get().map(|why| {
                            let kept = kept().then_some(" Kept, and sent as off.");
                            view! { <span class="text-ink-2 font-medium">". " {why} {kept}</span> }
                        })}
                    </span>
                </p>
                <MovedNote form switch/>
                {move || error.get().map(|why| view! { <p class="text-xs text-red font-medium">{why}</p> })}
                <div class=GRID>{children()}</div>
            </div>
        </div>
    }
}

/// Beside a switch that moved by itself; announced, and taken back with one press.
#[component]
fn MovedNote(form: FormState, switch: &'static str) -> impl IntoView {
    let why = move || {
        form.shift.with(|shift| {
            shift.as_ref().filter(|shift| shift.moved.switch == switch).map(|shift| shift.moved.why)
        })
    };
    view! {
        <div role="status" class="empty:hidden">
            {move || why().map(|why| view! {
                <p class="flex flex-wrap items-center gap-x-2 gap-y-1 pl-2.5 pr-1 py-1 border-l-2 border-blue rounded-r-sm bg-blue-soft/60">
                    <span>{why}</span>
                    <button type="button" class=format!("{} ml-auto h-6.5 text-xs", Look::Quiet.class()) on:click=move |_| form.undo()>"Undo"</button>
                </p>
            })}
        </div>
    }
}

#[component]
fn PolicyType(form: FormState) -> impl IntoView {
    let policies = form.site.with_value(|site| site.policies.clone());
    let choices = policies.into_iter().map(|policy| (policy.clone(), policy_words(&policy))).collect();
    let hint = "an ordered list of rules; the first that matches decides";
    view! { <Select form field=name::POLICY_TYPE choices hint/> }
}

#[component]
fn RunsHint(form: FormState) -> impl IntoView {
    move || {
        let count: Option<u32> = form.typed.with(|typed| typed.get(name::TASK_RESTARTS).trim().parse().ok());
        let runs = match count {
            Some(0) => "0 is never resubmitted; ".to_owned(),
            Some(count) => format!("up to {} runs: the first and {count} more; ", count.saturating_add(1)),
            None => String::new(),
        };
        format!("{runs}{}", allowed(name::TASK_RESTARTS))
    }
}

/// A field of a time in seconds; a unit that is typed is read and what it comes to is shown.
#[component]
fn Seconds(form: FormState, field: &'static str, says: &'static str) -> impl IntoView {
    let echo = move || form.typed.with(|typed| numbers::echo(typed.get(field)));
    let rest = if says.is_empty() { String::new() } else { format!("; {says}") };
    let hint = move || {
        let rest = rest.clone();
        view! {
            {move || echo().map(|echo| view! { <b>{echo}</b> " · " })}
            {format!("{} s{rest}", allowed(field))}
        }
    };
    view! { <Text form field numeric=true unit="s" hint/> }
}
