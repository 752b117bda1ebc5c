//! The chain as plain text: what to keep for troubleshooting (R23), ready to be copied.

use std::fmt::Write;

use engine::{failure::Role, record::Action};

use super::{diagnosis_row, proof, story};
use crate::{
    components::badge::of_state,
    console::{AttemptView, ChainView, DiagnosisView, JobView},
    format::{self, Zone},
};

/// Task ids, actions, checkpoint, key log lines. Writing to a text cannot fail, so results are dropped.
pub fn of(job: &JobView, chain: &ChainView, zone: Zone) -> String {
    let mut out = String::new();
    let (_, _, state) = of_state(job.summary.state);
    let _ = writeln!(out, "Job {} ({}): {state}, {}", job.name, job.job_id, job.summary.tail);
    let _ = writeln!(out, "As of {}", format::date_time(chain.now, zone));
    let acted = story::did_recovery_act(chain);
    let _ = writeln!(out, "Recovery acted: {}. {} ({})", acted.word, acted.text, acted.note);
    let _ = writeln!(out, "Task restarts: {}", story::used(chain.budgets.task_restarts));
    let _ = writeln!(out, "In place here: {}", story::used(chain.budgets.in_place_restarts));
    let _ = writeln!(out, "In place after a hang: {}", story::used(chain.budgets.hang_restarts));
    if let Some(why) = &chain.why_not {
        let _ = writeln!(out, "No restart follows: {} {}", why.text, why.next);
    }
    let directory = job.spec.checkpoint_dir.as_deref().unwrap_or("none set");
    let saved = job.summary.saved_step.map_or("none seen".to_owned(), format::count);
    let _ = writeln!(out, "Checkpoint directory: {directory}; newest saved step: {saved}");
    let numbered = story::incidents(chain);
    for view in &chain.attempts {
        attempt(&mut out, view, zone);
        for n in numbered.iter().filter(|n| n.attempt.attempt.task_id == view.attempt.task_id) {
            incident(&mut out, n, zone);
        }
        let of = |run: &&DiagnosisView| run.task_id.as_ref() == Some(&view.attempt.task_id);
        for run in chain.diagnostics.iter().rev().filter(of) {
            diagnosis(&mut out, run, zone);
        }
    }
    let _ = writeln!(out, "\nFailure types are derived from logs and messages; not a confirmed root cause.");
    out
}

fn attempt(out: &mut String, view: &AttemptView, zone: Zone) {
    let a = &view.attempt;
    let (_, _, state) = of_state(a.state);
    let from = a.submitted_at.map_or("not submitted".to_owned(), |at| format::date_time(at, zone));
    let _ = writeln!(
        out,
        "\nAttempt {} {}: {state}, {}, from {from}",
        a.number,
        a.task_id,
        story::cause_words(a.cause)
    );
    let nodes: Vec<String> = a.nodes.iter().map(ToString::to_string).collect();
    if !nodes.is_empty() {
        let _ = writeln!(out, "  nodes {}", nodes.join(", "));
    }
    for launch in &view.launches {
        let steps = launch.steps.map_or("no step".to_owned(), |s| {
            format!("steps {} to {}", format::count(s.first), format::count(s.last))
        });
        let path =
            launch.proof.checkpoint.path.as_deref().map(|p| format!(", loaded {p}")).unwrap_or_default();
        let (verdict, _) = proof::verdict_words(launch, None);
        let _ = writeln!(out, "  launch {}: {steps}{path}; {verdict}", launch.number);
    }
}

fn incident(out: &mut String, n: &story::Numbered<'_>, zone: Zone) {
    let i = n.incident;
    let _ = writeln!(
        out,
        "  incident {} {} {}: {}; {}",
        n.number,
        format::date_time(i.at, zone),
        i.failure_type,
        i.fault,
        story::headline(i)
    );
    if let Some(first) = &i.diagnosed {
        let _ = writeln!(out, "    first rule {} v{}: {}", first.rule, first.policy_version, first.reason);
    }
    let _ =
        writeln!(out, "    rule {} v{}: {}", i.decision.rule, i.decision.policy_version, i.decision.reason);
    if i.decision.action != Action::None {
        let _ = writeln!(out, "    {}", story::budget_words(&i.decision));
    }
    for line in i.evidence.iter().filter(|e| e.role == Role::Root).take(3) {
        let _ = writeln!(out, "    {} line {}: {}", line.replica, line.line_number, line.line);
    }
}

fn diagnosis(out: &mut String, run: &DiagnosisView, zone: Zone) {
    let until = run.ended_at.map(|at| format!(" to {}", format::date_time(at, zone))).unwrap_or_default();
    let _ = writeln!(
        out,
        "  diagnosis #{} {} {}{until}: {}; {}, not charged",
        run.number,
        run.run_id,
        format::date_time(run.started_at, zone),
        diagnosis_row::result_words(run),
        diagnosis_row::by_words(run)
    );
    if let Some(held) = diagnosis_row::held_words(run) {
        let _ = writeln!(out, "    {held}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn the_summary_holds_what_a_report_needs() {
        let chain = samples::chain();
        let text = of(&samples::job(&chain), &chain, Zone::UTC);
        for wanted in [
            samples::task(1).as_str(),
            samples::task(3).as_str(),
            "rule hw-node-avoid v12",
            "worker-0 line 88412",
            "Task restarts: 2 of 2 used, 0 left",
            "/vol/ckpt/7b",
            "not a confirmed root cause",
        ] {
            assert!(text.contains(wanted), "{wanted} is missing in\n{text}");
        }
    }
}
