//! What a person can do with a job. Each is a form that asks first, with what will and will not happen.

use engine::record::State;
use leptos::prelude::*;

use crate::{
    components::{
        button::{LinkButton, Submit},
        confirm::{Confirm, Refused},
    },
    console::JobView,
    paths,
};

/// Resubmit, stop, delete, and "mark as seen".
#[component]
pub fn Actions(
    /// The job.
    job: JobView,
) -> impl IntoView {
    let id = &job.job_id;
    let number = job.summary.attempts_total;
    let live = !job.summary.state.is_terminal();
    let (like, debug) = (paths::new_job_like(id), paths::debug_job_like(id));
    let save = &job.spec.fault_tolerance.exit_checkpoint;
    let waits = if save.enabled {
        format!("The program is told to save and gets up to {} s.", save.max_wait_seconds)
    } else {
        "The program is not told to save; what is not in a checkpoint is lost.".to_owned()
    };
    let waits_too = waits.clone();
    let removable = job.cluster_configured;
    let behind = if removable {
        view! {
            <p>"It is stopped, then forgotten with its logs and incidents. Checkpoints below Holdfast's own data directory go too, unless another job saves there; a directory named by its full path stays."</p>
        }
        .into_any()
    } else {
        left_behind(&job)
    };
    let force = save.enabled.then_some("At once, without waiting for the save");
    let from = match (&job.spec.checkpoint_dir, job.summary.saved_step) {
        (None, _) => "No checkpoint directory is set, so it starts at step 0.".to_owned(),
        (Some(_), Some(step)) => {
            format!("Step {} is saved; the program decides whether it loads it.", crate::format::count(step))
        }
        (Some(_), None) => "No checkpoint was seen, so it starts at step 0.".to_owned(),
    };
    let acknowledge = (job.summary.state == State::Failed && job.summary.needs_attention).then(|| {
        view! {
            <form method="post" action=paths::acknowledge(id)>
                <Submit title="Takes it off Needs attention">"Mark as seen"</Submit>
            </form>
        }
    });
    let at_once = (job.summary.state == State::Saving && job.summary.stopped_by.is_some()).then(|| {
        view! {
            <form method="post" action=paths::stop(id)>
                <input type="hidden" name="force" value="true" />
                <Submit title="Does not wait for the save; what is not in a checkpoint is lost">"Stop at once"</Submit>
            </form>
        }
    });
    view! {
        <div class="ml-auto flex flex-wrap items-center gap-2 max-sm:ml-0 max-sm:w-full">
            {acknowledge} {at_once}
            <Confirm
                verb="Resubmit"
                title=format!("Resubmit as attempt {}?", number + 1)
                action=paths::resubmit(id)
                refusal=job.may.resubmit.clone()
            >
                <p>"A new attempt with the same inputs, which queues again."</p>
                <p>"It is not charged and refills no budget."</p>
                <p>{from}</p>
                <p>
                    <a href=like>"Create a new job from this one"</a>
                    " to change something first, or "
                    <a href=debug>"look into it with a shell"</a>
                    "."
                </p>
            </Confirm>
            {if job.summary.state.is_terminal() {
                view! { <LinkButton href=paths::new_diagnosis(id)>"Diagnose…"</LinkButton> }.into_any()
            } else {
                view! { <Refused verb="Diagnose" why="Its nodes are tested when it has ended.".to_owned()/> }.into_any()
            }}
            <Confirm verb="Stop" title=format!("Stop attempt {number}?") action=paths::stop(id) refusal=job.may.stop.clone()>
                <p>"Its processes end and its resources are given back."</p>
                <p>"A manual stop is never resubmitted, whatever budget is left."</p>
                <p>{waits}</p>
                {force.map(force_field)}
            </Confirm>
            <Confirm verb="Delete" title="Delete this job?" action=paths::delete(id) refusal=job.may.delete.clone()>
                {behind}
                <p>"Nothing is resubmitted."</p>
                {(live && removable).then(|| view! { <p>{waits_too}</p> })}
                {force.filter(|_| live && removable).map(force_field)}
            </Confirm>
        </div>
    }
}

/// What deleting cannot do where the cluster, or the job's namespace there, is not configured on the server. It is sent as forced: who
/// confirms it has read this.
fn left_behind(job: &JobView) -> AnyView {
    let (cluster, id, kind) = (&job.spec.cluster, &job.job_id, job.spec.kind.as_str());
    let by_hand = format!("kubectl delete {kind}s,secrets --all-namespaces -l holdfast.dev/job={id}");
    view! {
        <p class="font-semibold">
            {format!("Cluster {cluster}, or the job's namespace there, is not configured on this server, so the job is only forgotten here.")}
        </p>
        <p class="wrap-anywhere">
            "What still is on the cluster stays there until it is removed by hand; on Kubernetes "
            <code>{by_hand}</code>
            ". Its agents end as soon as they reach this server. Files of the job in the data directory may stay too."
        </p>
        <input type="hidden" name="force" value="true" />
    }
    .into_any()
}

fn force_field(label: &'static str) -> AnyView {
    view! {
        <label class="inline-flex min-h-6 cursor-pointer items-center gap-2 max-sm:min-h-11">
            <input type="checkbox" class="tick" name="force" value="true" />
            {label}
        </label>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn html(job: JobView) -> String {
        Owner::new().with(|| view! { <Actions job/> }.to_html())
    }

    #[test]
    fn a_job_that_saves_before_it_is_stopped_can_be_stopped_at_once() {
        let mut job = samples::job(&samples::running());
        job.summary.state = State::Saving;
        assert!(!html(job.clone()).contains("Stop at once"), "nobody stops it, it is preempted");
        job.summary.stopped_by = Some("user-1".to_owned());
        let html = html(job);
        assert!(html.contains("Stop at once") && html.contains("type=\"hidden\" name=\"force\""), "{html}");
    }

    #[test]
    fn deleting_says_what_is_left_behind_where_the_cluster_is_not_configured() {
        let mut job = samples::job(&samples::running());
        assert!(html(job.clone()).contains("It is stopped, then forgotten"));
        job.cluster_configured = false;
        let html = html(job);
        assert!(
            html.contains("is not configured on this server") && html.contains("kubectl delete"),
            "{html}"
        );
        assert!(html.contains("type=\"hidden\" name=\"force\"") && !html.contains("It is stopped"), "{html}");
    }
}
