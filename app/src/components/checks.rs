//! The health checks before a launch: how they went in a line, and each of them where that is unfolded.

use engine::{
    checks::CheckOutcome,
    record::{CheckFailure, CheckSummary, ChecksState, LaunchChecks},
};
use leptos::prelude::*;

use super::icon::{Icon, Mark};
use crate::format;

/// How they stand, in words.
pub fn headline(checks: &LaunchChecks) -> String {
    let count = |is: fn(CheckOutcome) -> bool| {
        checks.checks.iter().filter(|check| is(check.worst.outcome)).count() as u64
    };
    match checks.state {
        ChecksState::Running => {
            let replicas = format::plural(u64::from(checks.replicas), "replica", "replicas");
            format!("Health checks: {} of {replicas} done", format::count(u64::from(checks.told)))
        }
        ChecksState::Passed => {
            let skipped = count(|outcome| outcome == CheckOutcome::Skipped);
            let passed = count(|outcome| outcome == CheckOutcome::Passed);
            let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
            format!("Health checks: {passed} passed{skipped}")
        }
        ChecksState::Failed => {
            let failed = count(CheckOutcome::is_bad);
            format!("Health checks: {failed} failed, training did not start")
        }
    }
}

/// The line that unfolds; open where something failed.
pub fn checks(checks: &LaunchChecks) -> AnyView {
    let failed = checks.state == ChecksState::Failed;
    let well: Vec<_> = checks.checks.iter().filter(|check| !check.worst.outcome.is_bad()).collect();
    // Beside what failed the others are of no interest.
    let others = (failed && !well.is_empty()).then(|| {
        let checks = format::plural(well.len() as u64, "other check", "other checks");
        view! { <li class="text-ink-3">{checks} " found nothing wrong."</li> }
    });
    let tone = if failed { "text-red font-medium" } else { "text-ink-3" };
    view! {
        <details class="mt-1 text-xs" open=failed>
            <summary class=format!("cursor-pointer underline decoration-edge underline-offset-3 {tone}")>
                {headline(checks)}
            </summary>
            <ul class="mt-1 grid gap-1">
                {checks.failures.iter().map(failure).collect_view()}
                {(!failed).then(|| well.into_iter().map(one).collect_view())}
                {others}
            </ul>
        </details>
    }
    .into_any()
}

fn one(check: &CheckSummary) -> impl IntoView + use<> {
    let outcome = if check.worst.outcome == CheckOutcome::Skipped { "skipped" } else { "passed" };
    let took = format!("{:.2} s", check.slowest_seconds);
    view! {
        <li class="wrap-anywhere">
            {check.check.label()} ": " {outcome} " in " {took} "; " {check.worst.text.clone()}
        </li>
    }
}

fn failure(failure: &CheckFailure) -> impl IntoView + use<> {
    let CheckFailure { replica, node, finding } = failure;
    let node = node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    let what = if finding.outcome == CheckOutcome::TimedOut { "timed out" } else { "failed" };
    view! {
        <li class="wrap-anywhere">
            <p class="flex gap-1.5 font-medium text-red">
                <span class="mt-0.5"><Icon mark=Mark::Failed /></span>
                <span>{format!("{} {what} in {replica}{node}", finding.check.label())}</span>
            </p>
            <p>{format!("{}.", finding.text)}</p>
            {finding.remedy.clone().map(|remedy| view! { <p class="text-ink-2">{remedy}</p> })}
        </li>
    }
}

#[cfg(test)]
mod tests {
    use engine::{
        checks::{Check, CheckFinding},
        ids::ReplicaName,
        job::JobKind,
    };

    use super::*;

    fn finding(check: Check, outcome: CheckOutcome, text: &str) -> CheckFinding {
        CheckFinding {
            check,
            outcome,
            seconds: 0.25,
            text: text.to_owned(),
            remedy: outcome.is_bad().then(|| "Mount the volume.".to_owned()),
            measures: Vec::new(),
        }
    }

    fn told(outcome: CheckOutcome, state: ChecksState) -> LaunchChecks {
        let mut checks = LaunchChecks::new(2);
        let findings = [
            finding(Check::Shm, CheckOutcome::Passed, "/dev/shm has 1 GiB left"),
            finding(Check::CheckpointDir, outcome, "<b>/ckpt</b>"),
        ];
        checks.take(&ReplicaName::of_index(JobKind::PyTorchJob, 1), None, &findings);
        LaunchChecks { state, ..checks }
    }

    #[test]
    fn the_line_says_how_the_checks_stand() {
        for (outcome, state, want) in [
            (CheckOutcome::Skipped, ChecksState::Running, "Health checks: 1 of 2 replicas done"),
            (CheckOutcome::Skipped, ChecksState::Passed, "Health checks: 1 passed, 1 skipped"),
            (CheckOutcome::Passed, ChecksState::Passed, "Health checks: 2 passed"),
            (CheckOutcome::TimedOut, ChecksState::Failed, "Health checks: 1 failed, training did not start"),
        ] {
            assert_eq!(headline(&told(outcome, state)), want);
        }
    }

    #[test]
    fn a_failure_is_open_names_replica_and_remedy_and_escapes_what_it_found() {
        let html = Owner::new().with(|| checks(&told(CheckOutcome::Failed, ChecksState::Failed)).to_html());
        assert!(html.contains("<details") && html.contains("open"), "{html}");
        assert!(html.contains("worker-0") && html.contains("Mount the volume."), "{html}");
        assert!(html.contains("&lt;b&gt;/ckpt") && !html.contains("<b>/ckpt"), "{html}");
        assert!(html.contains("1 other check"), "{html}");
    }
}
