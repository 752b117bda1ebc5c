//! The form that begins a run of Bisect Diagnose, with its plan and cost.

use engine::ids::JobId;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use super::plan_words;
use crate::{
    components::{
        answers::{Answer, Answers},
        badge::Tone,
        button::{Look, Submit},
        failed::FailedPage,
        field::{INPUT, TEXTAREA},
        icon::Mark,
        notice::Notice,
    },
    console::{DiagnosisPlan, Posted},
    error::AppError,
    format, paths,
    server_fns::diagnose::plan_diagnosis,
};

/// The page that begins a run: the plan and its cost come first.
#[component]
pub fn NewDiagnosis() -> impl IntoView {
    let query = use_query_map();
    let job = Memo::new(move |_| query.read().get("job").unwrap_or_default());
    let plan = Resource::new_blocking(
        move || job.get(),
        |job| async move {
            let missing =
                |_| AppError::NotFound { what: "job".to_owned(), id: job.chars().take(80).collect() };
            plan_diagnosis(JobId::new(job.clone()).map_err(missing)?).await
        },
    );
    view! {
        <Title text="Diagnose"/>
        <Transition>
            {move || Suspend::new(async move {
                match plan.await {
                    Ok((plan, posted)) => view! { <Begin plan posted/> }.into_any(),
                    Err(error) => view! { <FailedPage error/> }.into_any(),
                }
            })}
        </Transition>
    }
}

#[component]
fn Begin(plan: DiagnosisPlan, posted: Option<Posted>) -> impl IntoView {
    let errors = posted.as_ref().map(|posted| posted.errors.clone()).unwrap_or_default();
    let typed = |name: &str| {
        let posted = posted.as_ref()?;
        posted.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone())
    };
    let chosen: Vec<String> = match &posted {
        Some(posted) => {
            let fields = posted.fields.iter().filter(|(field, _)| field == "node");
            fields.map(|(_, value)| value.clone()).collect()
        }
        None => plan.nodes.iter().map(ToString::to_string).collect(),
    };
    let boxes = plan.candidates.iter().map(|node| {
        let name = node.to_string();
        let checked = chosen.contains(&name);
        view! {
            <label class="inline-flex items-center gap-2 min-h-6 max-sm:min-h-11 cursor-pointer">
                <input class="tick" type="checkbox" name="node" value=name.clone() checked=checked/>
                <span class="font-mono text-xs">{name}</span>
            </label>
        }
    });
    let most = format::gpu_time(plan.plan.accelerator_seconds as f64);
    let time = format::duration(plan.plan.seconds as f64);
    let usual = plan_words(&plan.plan);
    let extra = format::plural(plan.plan.extra_rounds.into(), "more round", "more rounds");
    let limit = typed("limit_seconds").unwrap_or_else(|| plan.plan.probe_seconds.to_string());
    let command = typed("command").unwrap_or_default();
    let is_refused = plan.refusal.is_some();
    let lines = errors.iter().map(|error| {
        let text = if error.field.is_empty() {
            error.message.clone()
        } else {
            format!("{}: {}", error.field, error.message)
        };
        view! { <li class="wrap-anywhere">{text}</li> }
    });
    let lines = lines.collect_view();
    view! {
        <nav class="text-xs text-ink-3" aria-label="Breadcrumb">
            <a href=paths::DIAGNOSE>"Diagnose"</a> " / new"
        </nav>
        <h1>"Which node makes " {plan.job_name.clone()} " fail?"</h1>
        {(!errors.is_empty()).then(|| view! {
            <div class="mt-4">
                <Notice tone=Tone::Red mark=Mark::Failed>
                    <p class="font-semibold">"Nothing was begun:"</p>
                    <ul>{lines}</ul>
                </Notice>
            </div>
        })}
        {plan.refusal.clone().map(|why| view! {
            <div class="mt-4">
                <Notice tone=Tone::Amber mark=Mark::Warning><p>{why}</p></Notice>
            </div>
        })}
        <Answers>
            <Answer question="Plan" answer=usual>
                {format!("for {} of the newest attempt; {extra} only where nodes fail together or a test is lost", format::plural(plan.nodes.len() as u64, "node", "nodes"))}
            </Answer>
            <Answer question="Takes at most" answer=time>{format!("{most} of nodes' slots; never more than planned")}</Answer>
            <Answer question="Charged" answer="Nothing">"no task or in-place restart is used"</Answer>
            <Answer question="Afterwards" answer="Kept off">"confirmed suspects, by the next attempts of this job"</Answer>
        </Answers>
        <form method="post" action=paths::begin_diagnosis(&plan.job_id) class="grid gap-6 mt-6 max-w-form">
            <fieldset>
                <legend class="mb-1 font-medium">"Nodes"</legend>
                <div class="flex flex-wrap gap-x-6 gap-y-1">{boxes.collect_view()}</div>
            </fieldset>
            <div>
                <label for="command" class="block mb-1 font-medium">"Command of your own"</label>
                <textarea
                    id="command" name="command" rows="3" autocomplete="off" spellcheck="false" aria-describedby="command-hint"
                    class=format!("{} font-mono text-xs", TEXTAREA)
                >
                    {command}
                </textarea>
                <p id="command-hint" class="mt-1 text-xs text-ink-3">
                    "Empty: the built-in test of processor, memory and transfers. Otherwise a line for the shell, run once on each node of a group with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; an exit code other than 0 is a failure."
                </p>
            </div>
            <div>
                <label for="limit_seconds" class="block mb-1 font-medium">"Time limit of one test, seconds"</label>
                <input
                    id="limit_seconds" name="limit_seconds" type="text" inputmode="numeric" value=limit aria-describedby="limit-hint"
                    class=INPUT
                />
                <p id="limit-hint" class="mt-1 text-xs text-ink-3">"5 to 3,600. The plan above is for 120 and the nodes of the newest attempt."</p>
            </div>
            <div>
                {if is_refused {
                    view! { <button type="submit" class=Look::Primary.class() disabled>"Start diagnosis"</button> }.into_any()
                } else {
                    view! { <Submit look=Look::Primary>"Start diagnosis"</Submit> }.into_any()
                }}
            </div>
        </form>
    }
}
