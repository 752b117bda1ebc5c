//! What a job is made of, as it was taken: every value in force, those that are the site's defaults marked, and the body that
//! would create it again.

use engine::{
    ids::JobId,
    job::{FaultTolerance, JobDraft, Site},
};
use leptos::prelude::*;
use leptos_router::components::Form;

use super::{
    data::{self, use_job, use_query},
    manifest::{AttemptManifest, Made, use_made},
};
use crate::{
    components::{
        badge::{Tag, kind_name, mode_name},
        button::{LinkButton, Submit},
        class,
        field::INPUT,
        table::{DataTable, Panel, SectionHead},
    },
    console::JobView,
    error::AppError,
    forms::{
        lines, manifest, pods, review,
        typed::{Typed, label, policy_words},
    },
    paths,
    preferences::use_frame,
    server_fns::new_job::{Original, start_job},
};

/// The tab.
#[component]
pub fn Spec() -> impl IntoView {
    let job = use_job();
    let with = use_query("with");
    let start = Resource::new_blocking(|| (), |()| start_job(None));
    let id = data::use_job_id();
    let source = use_made(job, start);
    let other = Resource::new_blocking(
        move || (id.get(), with.get()),
        move |(_, with)| async move {
            // A copy is compared with its original unless another job is asked for.
            let original = || async { job.await.ok()?.copied_from.map(|id| id.to_string()) };
            match with {
                Some(with) => other_job(with).await,
                None => other_job(original().await?).await,
            }
        },
    );
    view! {
        <Transition>
            {move || Suspend::new(async move {
                match job.await {
                    Ok(job) => {
                        // Without the site's values nothing is marked as a default; the rest of the page stands.
                        let site = start.await.ok().map(|start| start.site);
                        let (other, made) = (other.await, source.made().await);
                        view! { <Loaded job site other made /> }.into_any()
                    }
                    Err(error) => data::unread(error),
                }
            })}
        </Transition>
    }
}

/// The job that this one is compared with; none where none was asked for.
type Other = Option<Result<Original, AppError>>;

async fn other_job(asked: String) -> Other {
    let Ok(id) = JobId::new(asked.trim()) else {
        let id = asked.chars().take(80).collect();
        return Some(Err(AppError::NotFound { what: "job".to_owned(), id }));
    };
    Some(start_job(Some(id.clone())).await.and_then(|start| {
        start.original.ok_or(AppError::NotFound { what: "job".to_owned(), id: id.to_string() })
    }))
}

/// A setting: its label, its value, and whether it is the default.
struct Setting {
    label: &'static str,
    value: String,
    default: bool,
}

fn setting(label: &'static str, value: impl ToString, default: bool) -> Setting {
    Setting { label, value: value.to_string(), default }
}

fn on(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

fn basics(job: &JobView) -> Vec<Setting> {
    let spec = &job.spec;
    let text = |value: &Option<String>, none: &str| value.clone().unwrap_or_else(|| none.to_owned());
    let made_of = match &spec.kubernetes.manifest {
        Some(_) => "a pasted manifest, which the rest is read from",
        None => "its fields",
    };
    vec![
        setting("Name", &spec.name, false),
        setting("Kind", kind_name(spec.kind), false),
        setting("Cluster", &spec.cluster, false),
        setting("Made of", made_of, spec.kubernetes.manifest.is_none()),
        setting("Image", text(&spec.image, "none"), spec.image.is_none()),
        setting("Command", lines::write_command(&spec.command), false),
        setting(
            "Working directory",
            text(&spec.working_dir, "the server's or the image's own"),
            spec.working_dir.is_none(),
        ),
        setting("Replicas", spec.replicas, spec.replicas == 1),
        setting("Processes in each", spec.processes_per_replica, spec.processes_per_replica == 1),
        setting("Accelerators in each", spec.accelerators_per_replica, spec.accelerators_per_replica == 0),
        setting(
            "Checkpoint directory",
            text(&spec.checkpoint_dir, "none: a resubmission starts at step 0"),
            spec.checkpoint_dir.is_none(),
        ),
    ]
}

/// The options of the job's pods that are set.
fn pod_options(job: &JobView) -> Vec<Setting> {
    pods::write(&job.spec.kubernetes)
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(field, text)| setting(label(field), text, false))
        .collect()
}

type Settings<'a> = (&'a FaultTolerance, Option<&'a FaultTolerance>);

/// A setting of the Advanced Options; the default is known where the site's values are.
fn option<T: PartialEq>(
    label: &'static str,
    (ft, defaults): Settings<'_>,
    of: impl Fn(&FaultTolerance) -> T,
    words: impl Fn(T) -> String,
) -> Setting {
    let value = of(ft);
    let default = defaults.is_some_and(|defaults| of(defaults) == value);
    Setting { label, value: words(value), default }
}

fn options(job: &JobView, defaults: Option<&FaultTolerance>) -> Vec<Setting> {
    let ft = (&job.spec.fault_tolerance, defaults);
    let switch = |label, of: fn(&FaultTolerance) -> bool| option(label, ft, of, |value| on(value).to_owned());
    let count = |label, of: fn(&FaultTolerance) -> u32| option(label, ft, of, |value| value.to_string());
    let seconds = |label, of: fn(&FaultTolerance) -> u32| option(label, ft, of, |value| format!("{value} s"));
    vec![
        setting("Mode", mode_name(ft.0.mode()), false),
        switch("Auto Failover", |ft| ft.auto_failover),
        count("Maximum Task Restart Attempts", |ft| ft.max_task_restarts),
        switch("Fault Tolerance Policy", |ft| ft.policy.enabled),
        option("Policy Type", ft, |ft| ft.policy.policy_type.clone(), |policy| policy_words(&policy)),
        count("In-place restarts", |ft| ft.policy.max_in_place_restarts),
        switch("Job Hang Detection", |ft| ft.hang_detection.enabled),
        seconds("Hang Detection Interval", |ft| ft.hang_detection.interval_seconds),
        seconds("Hang Determination Duration", |ft| ft.hang_detection.window_seconds),
        seconds("Detection starts after", |ft| ft.hang_detection.start_after_seconds),
        count("Maximum Restart Count for Communication Hang", |ft| ft.hang_detection.max_in_place_restarts),
        switch("Diagnose the nodes before a resubmission after a hang", |ft| ft.hang_detection.diagnose),
        switch("Exit ckpt Notification", |ft| ft.exit_checkpoint.enabled),
        count("Program Listening Port", |ft| ft.exit_checkpoint.port.into()),
        seconds("Maximum wait for the save", |ft| ft.exit_checkpoint.max_wait_seconds),
        switch("Health checks", |ft| ft.health_checks.enabled),
        option("Checks", ft, |ft| ft.health_checks.checks.clone(), |checks| checks.join(", ")),
        option(
            "Own check command",
            ft,
            |ft| ft.health_checks.command.clone(),
            |command| command.as_deref().map_or("none".to_owned(), lines::write_command),
        ),
    ]
}

#[component]
fn Loaded(job: JobView, site: Option<Site>, other: Other, made: Made) -> impl IntoView {
    let body = create_body(&job);
    let frame = use_frame();
    let curl = manifest::command(&body, frame.origin.as_deref(), frame.signs_in());
    let like = paths::new_job_like(&job.job_id);
    let pods = pod_options(&job);
    let environment = if job.spec.env.is_empty() {
        view! { <p class="p-4 text-ink-3">"None set."</p> }.into_any()
    } else {
        let lines = job
            .spec
            .env
            .iter()
            .map(|(name, value)| view! { <li>{format!("{name}={value}")}</li> })
            .collect_view();
        view! { <ul class="p-4 font-mono text-xs wrap-anywhere">{lines}</ul> }.into_any()
    };
    view! {
        <div class="mt-5 grid grid-cols-2 items-start gap-8 max-xl:grid-cols-1">
            <div class="grid min-w-0 gap-8">
                <section aria-labelledby="basics-h">
                    <SectionHead id="basics-h" title="Job">
                        <span class=class::AT_END>
                            <LinkButton href=like>"Create a job like this"</LinkButton>
                        </span>
                    </SectionHead>
                    {settings("What the job runs", basics(&job))}
                </section>
                {(!pods.is_empty()).then(|| view! {
                    <section aria-labelledby="pods-h">
                        <SectionHead id="pods-h" title="Kubernetes">
                            <span class="text-ink-3">"what is set; the rest is left to the cluster"</span>
                        </SectionHead>
                        {settings("What the pods are made of", pods)}
                    </section>
                })}
                <section aria-labelledby="env-h">
                    <SectionHead id="env-h" title="Environment" />
                    <Panel>{environment}</Panel>
                </section>
            </div>
            <section aria-labelledby="options-h" class="min-w-0">
                <SectionHead id="options-h" title="Advanced Options">
                    <span class="text-ink-3">"as they were when the job was created"</span>
                </SectionHead>
                {settings("Advanced Options in force", options(&job, site.as_ref().map(|site| &site.defaults)))}
            </section>
        </div>
        <AttemptManifest made />
        {site.map(|site| view! { <Compared job=job.clone() site other /> })}
        <section class="mt-8" aria-labelledby="body-h">
            <SectionHead id="body-h" title="Create it again">
                <span class="text-ink-3">{format!("POST {}", paths::API_JOBS)}</span>
            </SectionHead>
            <div class="grid grid-cols-2 items-start gap-8 max-xl:grid-cols-1">
                {listing("JSON", body)} {listing("curl", curl)}
            </div>
        </section>
    }
}

/// What differs from another job, such as the one that this is a copy of.
#[component]
fn Compared(job: JobView, site: Site, other: Other) -> impl IntoView {
    let asked = other.as_ref().and_then(|other| other.as_ref().ok()).map(|other| other.job_id.to_string());
    let result = other.map(|other| match other {
        Ok(other) => differences(&job, &other, &site),
        Err(error) => view! { <p class="mt-3">{error.to_string()}</p> }.into_any(),
    });
    view! {
        <section class="mt-8" aria-labelledby="diff-h">
            <SectionHead id="diff-h" title="Difference to another job">
                <span class="text-ink-3">"such as the one that this is a copy of"</span>
            </SectionHead>
            <Form method="GET" action=paths::spec(&job.job_id)>
                <label class="inline-flex flex-wrap items-center gap-2">
                    "Job ID"
                    <input type="text" name="with" value=asked maxlength="80" autocomplete="off" class=format!("{INPUT} max-w-60") />
                    <Submit>"Compare"</Submit>
                </label>
            </Form>
            {result}
        </section>
    }
}

fn differences(job: &JobView, other: &Original, site: &Site) -> AnyView {
    let typed = Typed::of_draft(&JobDraft::from(&job.spec), site);
    let rows = review::changes(&typed, &other.draft, site);
    if rows.is_empty() {
        return view! { <p class="mt-3 text-ink-2">"Nothing: both run the same."</p> }.into_any();
    }
    let (address, name) = (paths::spec(&other.job_id), other.job_id.to_string());
    let rows = rows.into_iter().map(|row| {
        let label = review::label_of(&row).to_owned();
        view! {
            <tr>
                <th scope="row">{label}</th>
                <td class="wrap-anywhere">{row.usual}</td>
                <td class="wrap-anywhere">{row.value}</td>
            </tr>
        }
    });
    view! {
        <div class="mt-3">
            <Panel>
                <DataTable caption="Settings that differ" class=class::TABLE_NARROW>
                    <thead>
                        <tr>
                            <th scope="col">"Setting"</th>
                            <th scope="col"><a href=address>{name}</a></th>
                            <th scope="col">"This job"</th>
                        </tr>
                    </thead>
                    <tbody>{rows.collect_view()}</tbody>
                </DataTable>
            </Panel>
        </div>
    }
    .into_any()
}

fn settings(caption: &'static str, settings: Vec<Setting>) -> AnyView {
    let rows = settings
        .into_iter()
        .map(|s| {
            view! {
                <tr>
                    <th scope="row" class="w-1/2">{s.label}</th>
                    <td class="wrap-anywhere whitespace-pre-line">
                        {s.value} " " {s.default.then(|| view! { <Tag text="default" /> })}
                    </td>
                </tr>
            }
        })
        .collect_view();
    view! {
        <Panel>
            <DataTable caption=caption class=class::TABLE_NARROW>
                <tbody>{rows}</tbody>
            </DataTable>
        </Panel>
    }
    .into_any()
}

pub(super) fn listing(title: &'static str, text: String) -> AnyView {
    view! {
        <div class="min-w-0">
            <h3 class="mb-2">{title}</h3>
            <pre
                class="max-h-120 overflow-auto rounded-lg border border-hair bg-sunken p-4 text-xs"
                tabindex="0"
                role="region"
                aria-label=title
            >
                {text}
            </pre>
        </div>
    }
    .into_any()
}

/// The body that would create this very job again.
fn create_body(job: &JobView) -> String {
    // A draft holds texts and numbers only, so it can always be written.
    serde_json::to_string_pretty(&JobDraft::from(&job.spec)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn defaults_are_marked_and_changed_values_are_not() {
        let job = samples::job(&samples::running());
        let options = options(&job, Some(&FaultTolerance::default()));
        let mark = |label: &str| options.iter().find(|s| s.label == label).map(|s| s.default);
        assert_eq!(mark("Hang Detection Interval"), Some(true));
        assert_eq!(mark("Auto Failover"), Some(false));
        assert_eq!(mark("Maximum Task Restart Attempts"), Some(false));
    }

    #[test]
    fn what_differs_from_another_job_stands_beside_it() {
        let job = samples::job(&samples::running());
        let html = |change: fn(&mut JobDraft)| {
            let mut draft = JobDraft::from(&job.spec);
            change(&mut draft);
            let other = Original { job_id: samples::job_id(), draft, longest_quiet: None };
            Owner::new().with(|| differences(&job, &other, &Site::default()).to_html())
        };
        assert!(html(|_| {}).contains("Nothing: both run the same."));
        let changed = html(|draft| draft.replicas = Some(7));
        assert!(
            changed.contains(">7<") && changed.contains(">4<") && !changed.contains("Command"),
            "{changed}"
        );
    }

    #[test]
    fn the_options_that_are_set_are_shown_and_compared() {
        let mut job = samples::job(&samples::running());
        assert!(pod_options(&job).is_empty());
        job.spec.cluster = "gpu-a".to_owned();
        job.spec.kubernetes.memory = Some("64Gi".to_owned());
        job.spec.kubernetes.labels =
            [("a", "1"), ("b", "2")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let shown: Vec<_> = pod_options(&job).into_iter().map(|s| (s.label, s.value)).collect();
        assert_eq!(shown, [("Memory", "64Gi".to_owned()), ("Labels", "a=1\nb=2".to_owned())]);
        let html = Owner::new().with(|| settings("What the pods are made of", pod_options(&job)).to_html());
        assert!(html.contains("a=1\nb=2") && html.contains("whitespace-pre-line"), "{html}");
        let mut draft = JobDraft::from(&job.spec);
        draft.kubernetes.memory = Some("32Gi".to_owned());
        let other = Original { job_id: samples::job_id(), draft, longest_quiet: None };
        let html = Owner::new().with(|| differences(&job, &other, &Site::default()).to_html());
        assert!(html.contains("Memory") && html.contains("64Gi") && html.contains("32Gi"), "{html}");
        assert!(!html.contains("Labels"), "{html}");
    }

    #[test]
    fn the_body_creates_the_same_job() {
        let job = samples::job(&samples::running());
        let draft: JobDraft = serde_json::from_str(&create_body(&job)).unwrap();
        assert_eq!(draft, JobDraft::from(&job.spec));
    }
}
