//! What a job is made of, as it was taken: every value in force, those that are the site's defaults marked, and the body that
//! would create it again.

use engine::job::{FaultTolerance, JobDraft};
use leptos::prelude::*;

use super::{
    data::{self, use_job},
    fault_tables::policy_name,
};
use crate::{
    components::{
        badge::{Tag, kind_name, mode_name},
        button::LinkButton,
        class,
        table::{DataTable, Panel, SectionHead},
    },
    console::JobView,
    paths,
    preferences::use_frame,
    server_fns::new_job::start_job,
};

/// The tab.
#[component]
pub fn Spec() -> impl IntoView {
    let job = use_job();
    let site = Resource::new_blocking(|| (), |()| start_job(None));
    view! {
        <Transition>
            {move || Suspend::new(async move {
                match job.await {
                    Ok(job) => {
                        // Without the site's values nothing is marked as a default; the rest of the page stands.
                        let defaults = site.await.ok().map(|start| start.site.defaults);
                        view! { <Loaded job defaults /> }.into_any()
                    }
                    Err(error) => data::unread(error),
                }
            })}
        </Transition>
    }
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
    vec![
        setting("Name", &spec.name, false),
        setting("Kind", kind_name(spec.kind), false),
        setting("Cluster", &spec.cluster, false),
        setting("Image", text(&spec.image, "none"), spec.image.is_none()),
        setting("Command", spec.command.join(" "), false),
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

fn options(job: &JobView, defaults: Option<&FaultTolerance>) -> Vec<Setting> {
    let ft = &job.spec.fault_tolerance;
    let same = |same: fn(&FaultTolerance, &FaultTolerance) -> bool| defaults.is_some_and(|d| same(ft, d));
    let (hang, save, checks) = (&ft.hang_detection, &ft.exit_checkpoint, &ft.health_checks);
    vec![
        setting("Mode", mode_name(ft.mode()), false),
        setting("Auto Failover", on(ft.auto_failover), same(|a, b| a.auto_failover == b.auto_failover)),
        setting(
            "Maximum Task Restart Attempts",
            ft.max_task_restarts,
            same(|a, b| a.max_task_restarts == b.max_task_restarts),
        ),
        setting(
            "Fault Tolerance Policy",
            on(ft.policy.enabled),
            same(|a, b| a.policy.enabled == b.policy.enabled),
        ),
        setting(
            "Policy Type",
            policy_name(&ft.policy.policy_type),
            same(|a, b| a.policy.policy_type == b.policy.policy_type),
        ),
        setting(
            "In-place restarts",
            ft.policy.max_in_place_restarts,
            same(|a, b| a.policy.max_in_place_restarts == b.policy.max_in_place_restarts),
        ),
        setting(
            "Job Hang Detection",
            on(hang.enabled),
            same(|a, b| a.hang_detection.enabled == b.hang_detection.enabled),
        ),
        setting(
            "Hang Detection Interval",
            format!("{} s", hang.interval_seconds),
            same(|a, b| a.hang_detection.interval_seconds == b.hang_detection.interval_seconds),
        ),
        setting(
            "Hang Determination Duration",
            format!("{} s", hang.window_seconds),
            same(|a, b| a.hang_detection.window_seconds == b.hang_detection.window_seconds),
        ),
        setting(
            "Detection starts after",
            format!("{} s", hang.start_after_seconds),
            same(|a, b| a.hang_detection.start_after_seconds == b.hang_detection.start_after_seconds),
        ),
        setting(
            "Maximum Restart Count for Communication Hang",
            hang.max_in_place_restarts,
            same(|a, b| a.hang_detection.max_in_place_restarts == b.hang_detection.max_in_place_restarts),
        ),
        setting(
            "Exit ckpt Notification",
            on(save.enabled),
            same(|a, b| a.exit_checkpoint.enabled == b.exit_checkpoint.enabled),
        ),
        setting(
            "Program Listening Port",
            save.port,
            same(|a, b| a.exit_checkpoint.port == b.exit_checkpoint.port),
        ),
        setting(
            "Maximum wait for the save",
            format!("{} s", save.max_wait_seconds),
            same(|a, b| a.exit_checkpoint.max_wait_seconds == b.exit_checkpoint.max_wait_seconds),
        ),
        setting(
            "Health checks",
            on(checks.enabled),
            same(|a, b| a.health_checks.enabled == b.health_checks.enabled),
        ),
        setting(
            "Checks",
            checks.checks.join(", "),
            same(|a, b| a.health_checks.checks == b.health_checks.checks),
        ),
    ]
}

#[component]
fn Loaded(job: JobView, defaults: Option<FaultTolerance>) -> impl IntoView {
    let body = create_body(&job);
    let origin = use_frame().origin.unwrap_or_else(|| "http://127.0.0.1:3000".to_owned());
    let curl = curl(&origin, &body);
    let like = paths::new_job_like(&job.job_id);
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
                <section aria-labelledby="env-h">
                    <SectionHead id="env-h" title="Environment" />
                    <Panel>{environment}</Panel>
                </section>
            </div>
            <section aria-labelledby="options-h" class="min-w-0">
                <SectionHead id="options-h" title="Advanced Options">
                    <span class="text-ink-3">"as they were when the job was created"</span>
                </SectionHead>
                {settings("Advanced Options in force", options(&job, defaults.as_ref()))}
            </section>
        </div>
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

fn settings(caption: &'static str, settings: Vec<Setting>) -> AnyView {
    let rows = settings
        .into_iter()
        .map(|s| {
            view! {
                <tr>
                    <th scope="row" class="w-1/2">{s.label}</th>
                    <td class="wrap-anywhere">
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

fn listing(title: &'static str, text: String) -> AnyView {
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

/// The same as a command; the body goes in by a quoted here-document, so nothing in it is read by the shell.
fn curl(origin: &str, body: &str) -> String {
    let mut end = "JOB".to_owned();
    while body.lines().any(|line| line == end) {
        end.push('_');
    }
    format!(
        "curl -sS -X POST {origin}{} \\\n  -H 'Content-Type: application/json' --data-binary @- <<'{end}'\n{body}\n{end}",
        paths::API_JOBS
    )
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
    fn the_body_creates_the_same_job() {
        let job = samples::job(&samples::running());
        let draft: JobDraft = serde_json::from_str(&create_body(&job)).unwrap();
        assert_eq!(draft, JobDraft::from(&job.spec));
    }

    #[test]
    fn a_body_cannot_end_the_here_document() {
        let text = curl("http://127.0.0.1:3000", "JOB\nrm -rf /");
        assert!(text.contains("<<'JOB_'") && text.ends_with("\nJOB_"));
    }
}
