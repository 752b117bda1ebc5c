//! The recovery check: four checks for every restart, each with time and value, and what they come to. A restart
//! without them is not called recovered.

use engine::{
    record::{LaunchRecord, ProofVerdict},
    time::Time,
};
use leptos::prelude::*;

use super::{
    badge::{Bare, Tone},
    class,
    icon::Mark,
    table::{DataTable, Panel, SectionHead},
};
use crate::{
    console::ChainView,
    format::{self, Zone},
    preferences::use_zone,
};

/// One row of the check: a launch that followed an incident.
struct Row<'a> {
    attempt: u32,
    launch: &'a LaunchRecord,
    /// The step that had been reached before it.
    reached: Option<u64>,
    redone: Option<u64>,
}

/// The recovery check of every restart; nothing where there was none.
#[component]
pub fn RecoveryCheck(
    /// The chain.
    chain: ChainView,
    /// Processes of the job.
    world_size: u32,
    /// Numbers of the attempts to show.
    attempts: Vec<u32>,
) -> impl IntoView {
    let zone = use_zone();
    let rows = rows(&chain, &attempts);
    if rows.is_empty() {
        return ().into_any();
    }
    let body = rows.iter().map(|row| row_view(row, world_size, zone)).collect_view();
    view! {
        <section class="mt-8" aria-labelledby="rc-h">
            <SectionHead id="rc-h" title="Recovery check">
                <span class="text-ink-3">"A restart without these four is not called a recovery."</span>
            </SectionHead>
            <Panel>
                <DataTable caption="Recovery check of every restart in four steps" class=class::TABLE>
                    <thead>
                        <tr>
                            <th scope="col">"After"</th>
                            <th scope="col">"1 Resources ready"</th>
                            <th scope="col">"2 Checkpoint loaded"</th>
                            <th scope="col">"3 Steps advance"</th>
                            <th scope="col">"4 New checkpoint"</th>
                            <th scope="col">"Verdict"</th>
                        </tr>
                    </thead>
                    <tbody>{body}</tbody>
                </DataTable>
            </Panel>
        </section>
    }
    .into_any()
}

fn rows<'a>(chain: &'a ChainView, shown: &[u32]) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    let mut reached: Option<u64> = None;
    for view in &chain.attempts {
        for launch in &view.launches {
            let first_of_all = view.attempt.number == 1 && launch.number == 0;
            if !first_of_all && shown.contains(&view.attempt.number) {
                let redone =
                    reached.zip(launch.proof.checkpoint.step).map(|(to, from)| to.saturating_sub(from));
                rows.push(Row { attempt: view.attempt.number, launch, reached, redone });
            }
            reached = reached.max(launch.steps.map(|s| s.last));
        }
    }
    rows
}

fn row_view(row: &Row<'_>, world_size: u32, zone: Zone) -> AnyView {
    let proof = &row.launch.proof;
    let cells = Cells { ended: row.launch.ended_at.is_some(), zone };
    let kind = if row.launch.number == 0 { "resubmitted" } else { "in place" };
    let expects = |what: &str, step: Option<u64>| {
        step.map(|s| format!("{what} {}", format::count(s))).unwrap_or_default()
    };
    let step = |step: Option<u64>| step.map(format::count).unwrap_or_default();
    let resources = cells.cell(
        proof.resources.ok,
        if proof.resources.ready > 0 {
            format!("{} of {world_size}", proof.resources.ready)
        } else {
            String::new()
        },
        proof.resources.at,
        format!("needs {}", format::plural(u64::from(world_size), "process", "processes")),
    );
    let checkpoint = cells.cell(
        proof.checkpoint.ok,
        step(proof.checkpoint.step),
        proof.checkpoint.at,
        expects("expects", proof.checkpoint.expected),
    );
    let progress = cells.cell(
        proof.progress.ok,
        step(proof.progress.step),
        proof.progress.at,
        expects("must pass", row.reached),
    );
    let saved = cells.cell(
        proof.new_checkpoint.ok,
        step(proof.new_checkpoint.step),
        proof.new_checkpoint.at,
        String::new(),
    );
    let (word, note) = verdict_words(row.launch, row.redone);
    let tone = match proof.verdict {
        ProofVerdict::Resumed | ProofVerdict::StartedFresh | ProofVerdict::Pending => "font-medium",
        _ => "font-medium text-red",
    };
    view! {
        <tr>
            <th scope="row" class="whitespace-nowrap">
                {format!("Attempt {}, launch {}", row.attempt, row.launch.number)}
                <small class=class::SMALL>{kind}</small>
            </th>
            <td>{resources}</td>
            <td>{checkpoint}</td>
            <td>{progress}</td>
            <td>{saved}</td>
            <td class="min-w-52">
                <span class=tone>{word}</span>
                <small class=class::SMALL>{note}</small>
            </td>
        </tr>
    }
    .into_any()
}

/// How the check of one launch is written.
#[derive(Clone, Copy)]
struct Cells {
    /// The launch has ended, so nothing more is to come.
    ended: bool,
    zone: Zone,
}

impl Cells {
    /// One check: its mark and word, the value, and below it when, or what it waits for.
    fn cell(self, ok: Option<bool>, value: String, at: Option<Time>, waits_for: String) -> AnyView {
        let below = at.map(|at| format::clock(at, self.zone)).unwrap_or(if ok.is_none() {
            waits_for
        } else {
            String::new()
        });
        let mark = match ok {
            Some(true) => view! { <Bare tone=Tone::Green mark=Mark::Ok text="ok" /> }.into_any(),
            Some(false) => view! { <Bare tone=Tone::Red mark=Mark::Failed text="failed" /> }.into_any(),
            None => {
                let text = if self.ended { "not known" } else { "not yet" };
                view! { <Bare tone=Tone::Grey mark=Mark::NotYet text=text /> }.into_any()
            }
        };
        view! {
            <span class="inline-flex gap-1.5 whitespace-nowrap">{mark} {value}</span>
            <small class=format!("{} pl-4.5 whitespace-nowrap", class::SMALL)>{below}</small>
        }
        .into_any()
    }
}

/// What a verdict says, and what to look at.
pub fn verdict_words(launch: &LaunchRecord, redone: Option<u64>) -> (&'static str, String) {
    let checkpoint = &launch.proof.checkpoint;
    match launch.proof.verdict {
        ProofVerdict::Resumed => ("Resumed", redone.map_or(String::new(), redone_words)),
        ProofVerdict::StartedFresh => {
            ("Started fresh", "Nothing had been saved, so it began at step 0.".to_owned())
        }
        ProofVerdict::RestartedFromZero => {
            let saved = checkpoint
                .expected
                .map_or(String::new(), |s| format!("Step {} was saved. ", format::count(s)));
            (
                "Restarted from 0",
                format!(
                    "{saved}Check the recovery command, the mount path, the files' integrity and their permissions."
                ),
            )
        }
        ProofVerdict::OlderCheckpoint => {
            let steps = match (checkpoint.step, checkpoint.expected) {
                (Some(step), Some(expected)) => {
                    format!("It loaded {}, {} was saved. ", format::count(step), format::count(expected))
                }
                _ => String::new(),
            };
            (
                "Older checkpoint",
                format!("{steps}Check whether the newest file is whole and how the program picks one."),
            )
        }
        ProofVerdict::LossJumped => (
            "Loss jumped",
            "Check that optimiser, learning rate and data order are saved and loaded with the weights."
                .to_owned(),
        ),
        ProofVerdict::NoProgress => {
            ("No progress", "It ended, or its time to start passed, without a step.".to_owned())
        }
        ProofVerdict::Pending if launch.ended_at.is_some() => {
            ("Not proven", "It ended before all four were seen, so it is not called recovered.".to_owned())
        }
        ProofVerdict::Pending => ("Pending", "not called recovered yet".to_owned()),
    }
}

fn redone_words(steps: u64) -> String {
    if steps == 0 {
        "no step redone".to_owned()
    } else {
        format!("{} redone", format::plural(steps, "step", "steps"))
    }
}

/// Whether any restart of the chain was checked and found wanting, for the outcome sentence.
pub fn worst_verdict(chain: &ChainView) -> Option<ProofVerdict> {
    let bad = |v: &ProofVerdict| {
        !matches!(v, ProofVerdict::Resumed | ProofVerdict::StartedFresh | ProofVerdict::Pending)
    };
    let newest = chain.attempts.last()?.launches.last()?;
    let restarted = chain.attempts_total > 1 || newest.number > 0;
    Some(newest.proof.verdict).filter(|v| restarted && bad(v))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_restart_from_zero_says_what_to_check() {
        let mut launch = samples::launch(1, Some(0), None);
        launch.proof.verdict = ProofVerdict::RestartedFromZero;
        launch.proof.checkpoint.expected = Some(1_200);
        let (word, note) = verdict_words(&launch, None);
        assert_eq!(word, "Restarted from 0");
        assert_eq!(
            note,
            "Step 1,200 was saved. Check the recovery command, the mount path, the files' integrity and their permissions."
        );
    }

    #[test]
    fn what_is_not_proven_is_not_called_recovered() {
        let mut launch = samples::launch(1, Some(0), None);
        launch.ended_at = None;
        assert_eq!(verdict_words(&launch, Some(20)), ("Pending", "not called recovered yet".to_owned()));
        launch.ended_at = launch.started_at;
        assert_eq!(verdict_words(&launch, Some(20)).0, "Not proven");
    }

    #[test]
    fn the_first_launch_of_all_is_no_recovery() {
        let chain = samples::chain();
        let all: Vec<u32> = (1..=chain.attempts_total).collect();
        let rows = rows(&chain, &all);
        assert!(rows.iter().all(|row| row.attempt > 1 || row.launch.number > 0));
        assert_eq!(rows.len(), chain.attempts.iter().map(|a| a.launches.len()).sum::<usize>() - 1);
    }
}
