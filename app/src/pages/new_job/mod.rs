//! The create form: filled with the site's values, with the demo, or with another job. It posts as a plain form; in the
//! browser the same rules check while one types.

mod advanced;
mod basics;
mod kubernetes;
mod pasted;
mod review;
mod state;

use engine::{
    ids::JobId,
    job::{ClusterKind, JobKind},
};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use self::{advanced::Advanced, basics::Basics, pasted::Pasted, review::Review, state::FormState};
use crate::{
    components::{
        badge::Tone,
        button::{LinkButton, Look, Submit},
        failed::{FailedPage, answer_with},
        icon::{Icon, Mark},
        notice::Notice,
        segmented::Segmented,
    },
    forms::{
        new_job::{self, sentence},
        switches::{self, KEPT, RENDERED, SWITCHES, WAS},
        typed::{Typed, field_of, label, name},
    },
    paths,
    server_fns::new_job::{NewJobStart, start_job},
};

/// What a form starts from, as its address says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    /// The site's values.
    Scratch,
    /// The demo.
    Demo,
    /// A pasted manifest.
    Manifest,
    /// Another job.
    Job(JobId),
    /// The same, to look into it.
    Debug(JobId),
}

impl From {
    fn read(text: Option<String>) -> Self {
        match text.as_deref() {
            None | Some("") => Self::Scratch,
            Some("demo") => Self::Demo,
            Some("manifest") => Self::Manifest,
            Some(id) => JobId::new(id).map_or(Self::Scratch, Self::Job),
        }
    }

    fn href(&self) -> String {
        match self {
            Self::Scratch => paths::NEW_JOB.to_owned(),
            Self::Demo => paths::NEW_DEMO_JOB.to_owned(),
            Self::Manifest => paths::NEW_JOB_FROM_MANIFEST.to_owned(),
            Self::Job(id) => paths::new_job_like(id),
            Self::Debug(id) => paths::debug_job_like(id),
        }
    }

    fn job(&self) -> Option<JobId> {
        match self {
            Self::Job(id) | Self::Debug(id) => Some(id.clone()),
            Self::Scratch | Self::Demo | Self::Manifest => None,
        }
    }
}

/// The job whose settings the form begins with, by the `from` of its address.
pub fn original(from: Option<String>) -> Option<JobId> {
    From::read(from).job()
}

/// The create form.
#[component]
pub fn NewJob() -> impl IntoView {
    let params = use_query_map();
    let from = Memo::new(move |_| {
        let params = params.read();
        match (From::read(params.get("from")), params.get("mode").as_deref()) {
            (From::Job(id), Some("debug")) => From::Debug(id),
            (from, _) => from,
        }
    });
    let start = Resource::new_blocking(move || from.get(), |from| start_job(from.job()));
    view! {
        <Title text="Create job"/>
        <Suspense>
            {move || {
                let from = from.get();
                Suspend::new(async move {
                    match start.await {
                        Ok(start) => view! { <Loaded from start/> }.into_any(),
                        Err(error) => view! { <FailedPage error/> }.into_any(),
                    }
                })
            }}
        </Suspense>
    }
}

/// What the form shows at first: what was posted, else the original, the demo or the site's values.
fn first_typed(from: &From, start: &NewJobStart) -> Typed {
    match (&start.posted, &start.original, from) {
        (Some(posted), _, _) => Typed::new(posted.fields.clone()),
        (None, Some(original), From::Debug(_)) => {
            // One that cannot be debugged like this is shown as it is, with the reason above.
            let draft = original.draft.clone().into_debug();
            Typed::of_draft(draft.as_ref().unwrap_or(&original.draft), &start.site)
        }
        (None, Some(original), _) => Typed::of_draft(&original.draft, &start.site),
        (None, None, From::Demo) => Typed::demo(&start.site, start.now),
        (None, None, From::Manifest) => Typed::for_manifest(&start.site),
        (None, None, _) => Typed::prefilled(&start.site),
    }
}

#[component]
fn Loaded(from: From, start: NewJobStart) -> impl IntoView {
    if let Some(posted) = &start.posted {
        answer_with(new_job::status(posted));
    }
    let form = FormState::new(first_typed(&from, &start), &start);
    let debug = matches!(from, From::Debug(_));
    let refused =
        start.original.as_ref().filter(|_| debug).and_then(|one| one.draft.clone().into_debug().err());
    let moved = start.posted.map(|posted| posted.moved).unwrap_or_default();
    let action = from.href();
    let form_ref = NodeRef::<leptos::html::Form>::new();
    form.take_over(form_ref);
    view! {
        <nav class="flex gap-1.5 mb-1.5 text-xs text-ink-3" aria-label="Breadcrumb">
            <a href=paths::JOBS>"Jobs"</a><span aria-hidden="true">"/"</span><span>"New"</span>
        </nav>
        <div class="flex flex-wrap items-center gap-x-3 gap-y-2 min-h-8">
            <h1>"Create job"</h1>
            <StartFrom from=from.clone() demo=form.has_cluster(ClusterKind::Local)/>
        </div>
        {debug.then(|| view! { <Debugging refused/> })}
        <form
            method="post"
            action=action
            novalidate
            node_ref=form_ref
            on:submit=move |event| form.submit(&event)
            class="group/form grid grid-cols-[minmax(0,1fr)_25rem] max-xl:grid-cols-1 gap-x-12 gap-y-6 items-start mt-5"
        >
            <div class="min-w-0">
                <MovedList moved/>
                <Summary form/>
                <Rendered form/>
                {if form.is_pasted() {
                    view! { <Pasted form/> }.into_any()
                } else {
                    view! { <Basics form/> }.into_any()
                }}
                <Advanced form/>
                <div class="flex flex-wrap items-center gap-3 mt-6 pt-6 border-t border-hair">
                    <Submit look=Look::Primary>"Create job"</Submit>
                    <LinkButton href=paths::JOBS look=Look::Quiet>"Cancel"</LinkButton>
                    <span class="text-ink-3">"Nothing is sent to the cluster before this."</span>
                </div>
            </div>
            <Review form/>
        </form>
    }
}

/// The demo runs programs of this machine, so it is offered where there is a local cluster.
#[component]
fn StartFrom(from: From, demo: bool) -> impl IntoView {
    let mut choices = vec![
        ("From scratch", From::Scratch.href(), from == From::Scratch),
        ("Manifest", From::Manifest.href(), from == From::Manifest),
    ];
    if demo || from == From::Demo {
        choices.insert(1, ("Demo job", From::Demo.href(), from == From::Demo));
    }
    match &from {
        From::Job(_) => choices.push(("Copy of a job", from.href(), true)),
        From::Debug(id) => {
            choices.push(("Copy of a job", paths::new_job_like(id), false));
            choices.push(("Debug job", from.href(), true));
        }
        From::Scratch | From::Demo | From::Manifest => {}
    }
    view! { <Segmented label="Start from" choices/> }
}

/// What a debug job is, or why there is none of this job.
#[component]
fn Debugging(refused: Option<String>) -> impl IntoView {
    let (tone, mark) = match refused {
        Some(_) => (Tone::Amber, Mark::Warning),
        None => (Tone::Blue, Mark::Info),
    };
    let text = refused.unwrap_or_else(|| {
        "A new job with the same inputs, in one replica. Instead of the program a shell prints the program's command and waits a day, so that you can look into it from inside; nothing restarts or judges it. Change below what you like.".to_owned()
    });
    view! { <div class="mt-5"><Notice tone mark><p>{text}</p></Notice></div> }
}

/// What the server changed by the rules of linked switches; nothing has been created yet.
#[component]
fn MovedList(moved: Vec<String>) -> impl IntoView {
    (!moved.is_empty()).then(|| {
        view! {
            <div class="mb-5" role="status">
                <Notice tone=Tone::Blue mark=Mark::Info>
                    <p class="font-semibold">"Nothing is created yet: the form changed something by itself. Look at it and send it again."</p>
                    <ul>{moved.into_iter().map(|why| view! { <li>{why}</li> }).collect_view()}</ul>
                </Notice>
            </div>
        }
    })
}

/// All errors in one place, each a link to its field; takes the focus when it comes.
#[component]
fn Summary(form: FormState) -> impl IntoView {
    let errors = move || form.summary();
    view! {
        <div
            id="errors"
            role="alert"
            tabindex="-1"
            autofocus=move || (!errors().is_empty()).then_some("")
            node_ref=form.summary_ref
            class=move || if errors().is_empty() { "" } else { "mb-5" }
        >
            {move || {
                let errors = errors();
                (!errors.is_empty()).then(|| {
                    let fields = if errors.len() == 1 { "1 field needs".to_owned() } else { format!("{} fields need", errors.len()) };
                    let links = errors.into_iter().map(|error| {
                        let field = field_of(&error.field).to_owned();
                        let words = sentence(&error);
                        let named = label(&field).to_owned();
                        let words = if words.starts_with(&named) { words } else { format!("{named}: {words}") };
                        view! { <li><a href=format!("#{field}") rel="external">{words}</a></li> }
                    });
                    view! {
                        <div class="flex gap-2.5 px-3 py-2.5 border border-red-edge rounded-md bg-red-soft/60">
                            <span class="mt-1 text-red"><Icon mark=Mark::Failed/></span>
                            <div class="min-w-0">
                                <p class="font-semibold">{fields} " a change before the job can be created."</p>
                                <ul>{links.collect_view()}</ul>
                            </div>
                        </div>
                    }
                })
            }}
        </div>
    }
}

/// Hidden fields: what was rendered, so that the server can tell what a person changed without script, and the settings
/// of disabled switches, which browsers leave out.
#[component]
fn Rendered(form: FormState) -> impl IntoView {
    let was = RENDERED.map(|field| {
        let value = move || form.typed.with(|typed| match field {
            name::MODE => Some(switches::card_value(switches::mode(typed)).to_owned()),
            field => typed.text(field).map(str::to_owned),
        });
        // A switch that is off has no field, as in the post itself.
        view! { <input type="hidden" name=format!("{WAS}{field}") value=move || value().unwrap_or_else(|| "off".to_owned())/> }
    });
    let kept = SWITCHES.map(|switch| {
        let on = move || form.typed.with(|typed| typed.is_on(switch) && switches::disabled(typed, switch).is_some());
        view! { <input type="hidden" name=format!("{KEPT}{switch}") value=move || if on() { "on" } else { "off" }/> }
    });
    view! { {was.collect_view()} {kept.collect_view()} }
}

/// A job's kind by its value in the form.
const KINDS: [JobKind; 2] = [JobKind::PyTorchJob, JobKind::RayJob];

#[cfg(test)]
mod tests {
    use engine::{
        job::{FieldError, Site},
        time::Time,
    };

    use super::*;
    use crate::console::Posted;

    #[test]
    fn an_address_that_names_no_job_starts_from_scratch() {
        assert_eq!(From::read(Some("<b>".to_owned())), From::Scratch);
        assert_eq!(From::read(Some("demo".to_owned())), From::Demo);
        assert_eq!(From::read(Some("manifest".to_owned())), From::Manifest);
        let id = JobId::new("jabcdefghij2").unwrap();
        assert_eq!(From::read(Some(id.to_string())), From::Job(id));
    }

    #[test]
    fn what_moved_is_listed_and_nothing_is_shown_where_nothing_did() {
        let html = |moved: Vec<String>| Owner::new().with(|| view! { <MovedList moved/> }.to_html());
        assert!(
            html(vec!["Job Hang Detection was turned off.".to_owned()]).contains("Nothing is created yet")
        );
        assert!(!html(vec![]).contains("Nothing is created yet"));
    }

    #[test]
    fn errors_are_listed_as_links_to_their_fields() {
        let errors = vec![FieldError::new("env.RANK", "is set by Holdfast for each process; remove it")];
        let posted = Posted { errors, ..Posted::default() };
        let start = NewJobStart { site: Site::default(), original: None, posted: Some(posted), now: Time(0) };
        let html = Owner::new().with(|| {
            let form = FormState::new(Typed::demo(&start.site, start.now), &start);
            view! { <Summary form/> }.to_html()
        });
        assert!(html.contains("1 field needs") && html.contains("href=\"#env\""), "{html}");
        assert!(html.contains("Environment: RANK is set by Holdfast"), "{html}");
    }

    #[test]
    fn what_was_posted_wins_over_what_the_form_would_start_from() {
        let posted = Posted { fields: vec![("name".to_owned(), "mine".to_owned())], ..Posted::default() };
        let start = NewJobStart { site: Site::default(), original: None, posted: Some(posted), now: Time(0) };
        assert_eq!(first_typed(&From::Demo, &start).get("name"), "mine");
    }
}
