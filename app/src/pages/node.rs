//! One node: how it stands and why, who changed that, and what a person can do.

use engine::{ids::NodeName, job::FieldError, nodes::standing::NodeState, time::Time};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_params_map, use_query_map};

use crate::{
    components::{
        answers::{Answer, Answers},
        badge::{Tone, TypeCode},
        button::{Look, Submit},
        confirm::Confirm,
        failed::{FailedPage, answer_with},
        field::{Field, INPUT, SELECT},
        icon::Mark,
        live_mark::LiveMark,
        node::{NodeBadge, StrikeCount, Until, uncounted_words},
        notice::{Empty, Notice},
        table::{CELL, DataTable, DerivedNote, HEAD, Panel, SectionHead},
        when::Ago,
    },
    console::{NodeJob, NodePage, NodeView, Posted, StrikeView},
    error::AppError,
    format, paths,
    server_fns::nodes::read_node,
};

/// A node's page.
#[component]
pub fn Node() -> impl IntoView {
    // Read once: a page that is read again would take away what is being typed.
    let (params, query) = (use_params_map(), use_query_map());
    let which = Memo::new(move |_| {
        let cluster = query.read().get("cluster").filter(|text| !text.is_empty());
        (cluster, params.read().get("name").unwrap_or_default())
    });
    let node = Resource::new_blocking(
        move || which.get(),
        |(cluster, name)| async move {
            match NodeName::new(name.clone()) {
                Ok(name) => read_node(cluster, name).await,
                Err(_) => {
                    let id = name.chars().take(80).collect();
                    Err(AppError::NotFound { what: "node".to_owned(), id })
                }
            }
        },
    );
    view! {
        <Transition>
            {move || Suspend::new(async move {
                match node.await {
                    Ok((page, now, posted)) => view! { <Loaded page now posted/> }.into_any(),
                    Err(error) => view! { <FailedPage error/> }.into_any(),
                }
            })}
        </Transition>
    }
}

#[component]
fn Loaded(page: NodePage, now: Time, posted: Option<Posted>) -> impl IntoView {
    let name = page.node.name.to_string();
    let errors = posted.as_ref().map(|posted| posted.errors.clone()).unwrap_or_default();
    if !errors.is_empty() {
        let of_field = errors.iter().any(|error| !error.field.is_empty());
        answer_with(if of_field { 422 } else { 409 });
    }
    let whole: Vec<_> = errors.iter().filter(|error| error.field.is_empty()).cloned().collect();
    view! {
        <Title text=name.clone()/>
        <nav class="flex gap-1.5 mb-1.5 text-xs text-ink-3" aria-label="Breadcrumb">
            <a href=paths::NODES>"Nodes"</a>
            <span aria-hidden="true">"/"</span>
            <span>{page.node.cluster.clone()}</span>
        </nav>
        <div class="flex flex-wrap items-center gap-x-3 gap-y-2 min-h-8">
            <h1 class="wrap-anywhere">{name}</h1>
            <NodeBadge state=page.node.state large=true/>
            <LiveMark now/>
        </div>
        {(!whole.is_empty()).then(|| view! {
            <div class="mt-5">
                <Notice tone=Tone::Red mark=Mark::Failed>
                    {whole.into_iter().map(|error| view! { <p>{error.message}</p> }).collect_view()}
                </Notice>
            </div>
        })}
        <Head page=page.clone() now/>
        <Act page=page.clone() posted errors/>
        <Strikes strikes=page.node.strikes now/>
        <History page_history=page.history now/>
    }
}

/// How it stands, what is on it, how many are out.
#[component]
fn Head(page: NodePage, now: Time) -> impl IntoView {
    let NodePage { node, cap, .. } = page;
    let stands = match (node.state, &node.quarantine, node.trial_since) {
        (_, Some(out), _) => {
            let (reason, by, since) = (super::nodes::reason(out), out.by.clone(), out.since);
            view! {
                <p class="wrap-anywhere">{reason}</p>
                <p class="text-ink-3">"by " {by} ", " <Ago at=since now/> "; every job keeps off it"</p>
            }
            .into_any()
        }
        (NodeState::OnTrial, _, Some(since)) => view! {
            "Its quarantine ended " <Ago at=since now/> ": the next strike puts it out again, whatever health checks it passes."
        }
        .into_any(),
        (NodeState::Suspected, ..) => view! { "Something counts against it; it is used by jobs that do not keep off it." }.into_any(),
        _ => view! { "Every job may use it." }.into_any(),
    };
    let out = node.quarantine.clone().map(|out| view! { <p class="mt-1">"Kept out " <Until out/></p> });
    let allowed =
        cap.allowed.map_or_else(String::new, |allowed| format!(" of at most {allowed} by themselves"));
    let slots = format!("{} of {} slots used", node.used, node.slots);
    view! {
        <Answers>
            <Answer question="How it stands">{stands} {out}</Answer>
            <Answer question="Strikes that count">
                <StrikeCount counted=node.strikes_counted limit=node.strikes_limit/>
                <p class="mt-1 text-ink-3">"A strike is a suspicion from one incident, never a confirmed defect."</p>
            </Answer>
            <Answer question="Runs on it" answer=format::plural(node.jobs.len() as u64, "job", "jobs")>
                {slots} <Jobs jobs=node.jobs/>
            </Answer>
            <Answer question="Kept off by" answer=format::plural(node.avoided_by.len() as u64, "job", "jobs")>
                <Jobs jobs=node.avoided_by/>
                <p class="text-ink-3">{format!("{} quarantined in the cluster{allowed}", cap.quarantined)}</p>
            </Answer>
        </Answers>
    }
}

/// Jobs by name, at most ten.
#[component]
fn Jobs(jobs: Vec<NodeJob>) -> impl IntoView {
    let more = jobs.len().saturating_sub(10);
    let links = jobs
        .into_iter()
        .take(10)
        .map(|job| view! { <li class="wrap-anywhere"><a class="inline-block min-w-6 leading-6" href=paths::job(&job.job_id)>{job.name}</a></li> });
    view! {
        <ul>
            {links.collect_view()}
            {(more > 0).then(|| view! { <li class="text-ink-3">{format!("and {more} more")}</li> })}
        </ul>
    }
}

/// What a person can do: let it in, or put it out with what would follow in sight.
#[component]
fn Act(page: NodePage, posted: Option<Posted>, errors: Vec<FieldError>) -> impl IntoView {
    let out = page.node.quarantine.is_some();
    let ready = page.node.state == NodeState::Ready;
    let title = if out { "Release" } else { "Quarantine" };
    let node = page.node.clone();
    view! {
        <section class="mt-8" aria-labelledby="act">
            <SectionHead id="act" title=title/>
            {if out {
                view! { <Release node out/> }.into_any()
            } else {
                view! {
                    <QuarantineForm page posted errors/>
                    {(!ready).then(|| view! { <div class="mt-4"><Release node out/></div> })}
                }.into_any()
            }}
        </section>
    }
}

#[component]
fn Release(node: NodeView, out: bool) -> impl IntoView {
    let (verb, title) = if out {
        ("Release", format!("Release {}?", node.name))
    } else {
        ("Clear", format!("Clear what is held against {}?", node.name))
    };
    let says = if out {
        "New attempts may use it at once. Health checks run before training on it as on any node."
    } else {
        "It stays in use."
    };
    view! {
        <div class="flex flex-wrap items-center gap-3">
            <div class="max-sm:w-full [&_form]:left-0 [&_form]:right-auto">
                <Confirm verb title action=paths::release(&node.name)>
                    <input type="hidden" name="cluster" value=node.cluster.clone()/>
                    <p>{says}</p>
                    <p>"What was held against it so far counts no more, and jobs that kept off it do so no more from their next attempt on."</p>
                </Confirm>
            </div>
            <span class="text-ink-3">"The cap never stands in the way of this."</span>
        </div>
    }
}

/// How long a person puts a node out for: hours, and words.
const ENDS: [(&str, &str); 4] = [
    ("", "a person releases it"),
    ("24", "24 hours from now"),
    ("72", "3 days from now"),
    ("168", "7 days from now"),
];

#[component]
fn QuarantineForm(page: NodePage, posted: Option<Posted>, errors: Vec<FieldError>) -> impl IntoView {
    let NodePage { node, forecast, .. } = page;
    let typed = |field: &str| {
        let fields = posted.as_ref().map(|posted| posted.fields.as_slice()).unwrap_or_default();
        fields.iter().find(|(name, _)| name == field).map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let error_of =
        |field: &str| errors.iter().find(|error| error.field == field).map(|error| error.message.clone());
    let (reason, hours) = (typed("reason"), typed("hours"));
    let (reason_error, until_error) = (error_of("reason"), error_of("until"));
    let wrong = reason_error.is_some();
    let blocks = !forecast.unable.is_empty();
    let ends =
        ENDS.map(|(value, words)| view! { <option value=value selected=value == hours>{words}</option> });
    let running = (!node.jobs.is_empty()).then_some(" What runs on it runs on.");
    view! {
        <form method="post" action=paths::quarantine(&node.name) class="grid gap-3 max-w-form p-4 border border-hair rounded-lg bg-raised">
            <input type="hidden" name="cluster" value=node.cluster.clone()/>
            <p>
                <b>{format!("Quarantine {}? ", node.name)}</b>
                {forecast.text()} {running}
            </p>
            <Field name="reason" label="Reason" error=Signal::stored(reason_error)>
                <input type="text" id="reason" name="reason" class=INPUT value=reason maxlength="300" autocomplete="off" aria-invalid=wrong.then_some("true") aria-describedby=wrong.then_some("reason-error")/>
            </Field>
            <Field name="hours" label="Until" error=Signal::stored(until_error)>
                <select id="hours" name="hours" class=SELECT>{ends.collect_view()}</select>
            </Field>
            {blocks.then(|| view! {
                <label class="inline-flex items-center gap-2 min-h-6 cursor-pointer max-sm:min-h-11">
                    <input type="checkbox" class="tick" name="confirm" value="true"/>
                    "Also where that keeps these jobs from starting"
                </label>
            })}
            <p><Submit look=Look::Primary>{format!("Quarantine {}", node.name)}</Submit></p>
            <p class="text-xs text-ink-3">"Every new attempt keeps off it. Counted in slots; what a scheduler knows beside them is not in this forecast."</p>
        </form>
    }
}

#[component]
fn Strikes(strikes: Vec<StrikeView>, now: Time) -> impl IntoView {
    let none = strikes.is_empty();
    let rows = strikes.into_iter().map(move |view| {
        let StrikeView { strike, job_id, job_name, uncounted, expires_at } = view;
        let counts = match uncounted {
            None => view! { "until " <time datetime=expires_at.to_string()>{date(expires_at)}</time> }.into_any(),
            Some(why) => view! { <span class="text-ink-3">{uncounted_words(why)}</span> }.into_any(),
        };
        view! {
            <tr>
                <td class=format!("{CELL} whitespace-nowrap")><Ago at=strike.at now/></td>
                <td class=CELL><TypeCode failure=strike.failure_type/></td>
                <td class=format!("{CELL} wrap-anywhere")>{strike.text}</td>
                <td class=CELL><a href=paths::incident(&job_id, &strike.incident)>{format!("incident of {job_name}")}</a></td>
                <td class=CELL>{counts}</td>
            </tr>
        }
    });
    view! {
        <section class="mt-8" aria-labelledby="strikes">
            <SectionHead id="strikes" title="Strikes"/>
            <Panel>
                {if none {
                    view! { <Empty title="No strikes">"No incident has pointed to this node."</Empty> }.into_any()
                } else {
                    view! {
                        <DataTable caption="Strikes of this node" class="min-w-160">
                            <thead>
                                <tr>
                                    <th scope="col" class=HEAD>"When"</th>
                                    <th scope="col" class=HEAD>"Type"</th>
                                    <th scope="col" class=HEAD>"Why"</th>
                                    <th scope="col" class=HEAD>"Incident"</th>
                                    <th scope="col" class=HEAD>"Counts"</th>
                                </tr>
                            </thead>
                            <tbody>{rows.collect_view()}</tbody>
                        </DataTable>
                    }.into_any()
                }}
            </Panel>
            <DerivedNote/>
        </section>
    }
}

fn date(at: Time) -> String {
    format::date_time(at, crate::preferences::use_zone())
}

#[component]
fn History(page_history: Vec<crate::console::NodeEvent>, now: Time) -> impl IntoView {
    let none = page_history.is_empty();
    let rows = page_history.into_iter().map(move |event| {
        view! {
            <tr>
                <td class=format!("{CELL} whitespace-nowrap")><Ago at=event.at now/></td>
                <td class=CELL>{event.by}</td>
                <td class=format!("{CELL} wrap-anywhere")>{event.text}</td>
            </tr>
        }
    });
    view! {
        <section class="mt-8" aria-labelledby="history">
            <SectionHead id="history" title="History"/>
            <Panel>
                {if none {
                    view! { <Empty title="Nothing was changed">"Who quarantines or releases it stands here."</Empty> }.into_any()
                } else {
                    view! {
                        <DataTable caption="Who changed how this node stands" class="min-w-120">
                            <thead>
                                <tr>
                                    <th scope="col" class=HEAD>"When"</th>
                                    <th scope="col" class=HEAD>"Who"</th>
                                    <th scope="col" class=HEAD>"What"</th>
                                </tr>
                            </thead>
                            <tbody>{rows.collect_view()}</tbody>
                        </DataTable>
                    }.into_any()
                }}
            </Panel>
        </section>
    }
}

#[cfg(test)]
mod tests {
    use engine::{
        ids::JobId,
        nodes::{
            forecast::{Forecast, Unable},
            standing::Quarantine,
        },
        record::NodeCounts,
    };

    use super::*;
    use crate::console::CapView;

    fn page() -> NodePage {
        let node = NodeView {
            cluster: "local".to_owned(),
            name: NodeName::new("n2").unwrap(),
            state: NodeState::Ready,
            slots: 2,
            used: 0,
            jobs: vec![],
            avoided_by: vec![],
            strikes: vec![],
            strikes_counted: 0,
            strikes_limit: 3,
            quarantine: None,
            trial_since: None,
            counts: NodeCounts::default(),
        };
        let forecast = Forecast { total: 4, left: 3, free: 2, unable: vec![] };
        NodePage { node, history: vec![], forecast, cap: CapView::default() }
    }

    fn act(page: NodePage, posted: Option<Posted>) -> String {
        let errors = posted.as_ref().map(|posted| posted.errors.clone()).unwrap_or_default();
        Owner::new().with(|| view! { <Act page posted errors/> }.to_html())
    }

    #[test]
    fn the_forecast_stands_in_the_form_and_jobs_that_are_hit_have_to_be_confirmed() {
        let mut page = page();
        let html = act(page.clone(), None);
        assert!(html.contains("3 of 4 left, 2 free.") && !html.contains("name=\"confirm\""), "{html}");
        let job_id = JobId::new("jabcdefghij2").unwrap();
        let name = "big".to_owned();
        page.forecast.unable.push(Unable { job_id, name, needs_nodes: 4, running: false, ever: true });
        let html = act(page, None);
        assert!(html.contains("big needs 4, cannot start.") && html.contains("name=\"confirm\""), "{html}");
    }

    #[test]
    fn what_was_refused_comes_back_with_what_was_typed() {
        let posted = Posted {
            fields: vec![("reason".to_owned(), String::new()), ("hours".to_owned(), "72".to_owned())],
            errors: vec![FieldError::new("reason", "has 1 to 300 characters")],
            ..Posted::default()
        };
        let html = act(page(), Some(posted));
        assert!(html.contains("has 1 to 300 characters") && html.contains("aria-invalid=\"true\""), "{html}");
        assert!(html.contains("value=\"72\" selected"), "{html}");
    }

    #[test]
    fn a_node_that_is_out_is_released_and_not_put_out_again() {
        let mut page = page();
        page.node.state = NodeState::Quarantined;
        let (by, reason) = ("ann".to_owned(), "fan".to_owned());
        page.node.quarantine = Some(Quarantine { since: Time(0), until: None, by, reason, diagnosis: None });
        let html = act(page, None);
        assert!(html.contains("Release n2?") && html.contains("/nodes/n2/release"), "{html}");
        assert!(!html.contains("/nodes/n2/quarantine"), "{html}");
    }
}
