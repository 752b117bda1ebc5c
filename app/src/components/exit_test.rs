//! The test of Exit ckpt Notification on a job that runs: what it will do before it is begun, and what the newest one came to.

use engine::record::{ExitTestRecord, ExitTestVerdict, ReplicaTestRecord, SaveOutcome};
use leptos::prelude::*;

use super::{
    class,
    confirm::Confirm,
    exit_save::Countdown,
    icon::{Icon, Mark},
    table::{DataTable, Panel, SectionHead},
    when::{Ago, ClockTime},
};
use crate::{
    console::{ChainView, JobView},
    format, paths,
};

/// The section of a job that has Exit ckpt Notification; nothing of another.
pub fn section(job: &JobView, chain: &ChainView) -> Option<AnyView> {
    let settings = &job.spec.fault_tolerance.exit_checkpoint;
    if !settings.enabled {
        return None;
    }
    let newest = chain
        .attempts
        .iter()
        .rev()
        .find_map(|view| Some((view.attempt.number, view.attempt.exit_test.clone()?)));
    let wait = format!(
        "It has at most {} s for that, and training may stand still meanwhile.",
        settings.max_wait_seconds
    );
    let (now, total) = (job.now, job.summary.attempts_total);
    let (action, refusal) = (paths::test_exit(&job.job_id), job.may.test_exit.clone());
    let result = match newest {
        Some((number, test)) => view! { <Shown test=*test number total now /> }.into_any(),
        None => view! { <p class="text-ink-2">"Not tested yet: whether the program answers and saves in time shows at its first end."</p> }.into_any(),
    };
    Some(
        view! {
            <section class="mt-8" aria-labelledby="xt-h">
                <SectionHead id="xt-h" title="Exit ckpt Notification">
                    <span class="ml-auto max-sm:ml-0 max-sm:w-full">
                        <Confirm
                            verb="Test"
                            title="Test the exit notification now?"
                            action
                            refusal
                        >
                            <p>"The program is really told to save, in every replica, in the same words as before a stop."</p>
                            <p>{wait}</p>
                            <p>"After a save a program should go on. One that ends because of this is started again on its nodes from its newest checkpoint; nothing is charged."</p>
                            <p>"A real stop or a preemption meanwhile ends the test and has its own time."</p>
                        </Confirm>
                    </span>
                </SectionHead>
                {result}
            </section>
        }
        .into_any(),
    )
}

/// A mark, its tone and a word for what a test comes to.
fn verdict(verdict: ExitTestVerdict) -> (Mark, &'static str, &'static str) {
    match verdict {
        ExitTestVerdict::Running => (Mark::Saving, "text-ink-2", "Running"),
        ExitTestVerdict::Passed => (Mark::Ok, "text-green", "Passed"),
        ExitTestVerdict::Failed => (Mark::Failed, "text-red", "Failed"),
        ExitTestVerdict::CutShort => (Mark::Stopped, "text-ink-2", "Cut short"),
    }
}

#[component]
fn Shown(test: ExitTestRecord, number: u32, total: u32, now: engine::time::Time) -> impl IntoView {
    let (mark, tone, word) = verdict(test.verdict);
    let until = (test.verdict == ExitTestVerdict::Running).then_some(test.deadline_at);
    let attempt = (total > 1).then(|| format!(" in attempt {number}"));
    let left_out = u64::from(test.replicas_total).saturating_sub(test.replicas.len() as u64);
    let asked_at = test.asked_at;
    view! {
        <p class=format!("flex gap-1.5 font-medium {tone}")>
            <span class="mt-0.5"><Icon mark /></span>
            <span>{word}{until.map(|until| view! { ", " <Countdown until now /> })}</span>
        </p>
        <p class="mt-1 wrap-anywhere">{test.text}</p>
        <p class="mt-1 text-xs text-ink-3">
            "Asked for by " {test.by} " " <Ago at=asked_at now /> {attempt} "."
        </p>
        {test.warnings.into_iter().map(|text| view! {
            <p class="mt-1 flex gap-1.5 text-amber">
                <span class="mt-0.5"><Icon mark=Mark::Warning /></span>
                <span class="wrap-anywhere">{text}</span>
            </p>
        }).collect_view()}
        <div class="mt-3">
            <Panel>
                <DataTable caption="Answers to the test by replica" class=class::TABLE_NARROW>
                    <thead>
                        <tr>
                            <th scope="col">"Replica"</th>
                            <th scope="col">"Notified"</th>
                            <th scope="col">"Result"</th>
                            <th scope="col">"Step"</th>
                            <th scope="col">"Took"</th>
                            <th scope="col">"Words"</th>
                        </tr>
                    </thead>
                    <tbody>{test.replicas.into_iter().map(row).collect_view()}</tbody>
                </DataTable>
            </Panel>
        </div>
        {(left_out > 0).then(|| view! {
            <p class="mt-1 text-xs text-ink-3">{format!("{} more that saved are not shown.", format::count(left_out))}</p>
        })}
    }
}

fn row(one: ReplicaTestRecord) -> impl IntoView {
    let result = one.outcome.map_or("not heard yet", SaveOutcome::plain);
    let words = [one.path, one.message].into_iter().flatten().collect::<Vec<_>>().join("; ");
    view! {
        <tr>
            <th scope="row" class="font-normal whitespace-nowrap">{one.replica.to_string()}</th>
            <td>
                {match one.received_at {
                    Some(at) => view! { <ClockTime at /> }.into_any(),
                    None => "no".into_any(),
                }}
            </td>
            <td>{result}</td>
            <td class="tabular-nums">{one.step.map_or("not named".to_owned(), format::count)}</td>
            <td class="tabular-nums whitespace-nowrap">{one.seconds.map_or("–".to_owned(), |took| format!("{took:.1} s"))}</td>
            <td class="min-w-40 wrap-anywhere">{words}</td>
        </tr>
    }
}

#[cfg(test)]
mod tests {
    use engine::{ids::ReplicaName, job::JobKind, time::Time};

    use super::*;
    use crate::samples;

    fn html(change: impl FnOnce(&mut JobView, &mut ChainView)) -> String {
        let mut chain = samples::running();
        let mut job = samples::job(&chain);
        job.spec.fault_tolerance.exit_checkpoint.enabled = true;
        change(&mut job, &mut chain);
        Owner::new().with(|| section(&job, &chain).map(|view| view.to_html()).unwrap_or_default())
    }

    fn tested() -> ExitTestRecord {
        let one = |index, outcome, message: Option<&str>| ReplicaTestRecord {
            replica: ReplicaName::of_index(JobKind::PyTorchJob, index),
            received_at: (outcome == SaveOutcome::Saved).then_some(Time(1_000_000)),
            outcome: Some(outcome),
            step: (outcome == SaveOutcome::Saved).then_some(1_200),
            path: None,
            seconds: Some(4.25),
            message: message.map(str::to_owned),
        };
        ExitTestRecord {
            number: 1,
            launch: 0,
            by: "user-1".to_owned(),
            asked_at: Time(0),
            deadline_at: Time(60_000_000),
            max_wait_seconds: 60,
            ended_at: Some(Time(5_000_000)),
            verdict: ExitTestVerdict::Failed,
            text: "The test failed. worker-0: wrong answer: <b>".to_owned(),
            warnings: vec!["The save took 40 s".to_owned()],
            replicas_total: 130,
            replicas: vec![
                one(1, SaveOutcome::WrongAnswer, Some("answers 500 <b>")),
                one(0, SaveOutcome::Saved, None),
            ],
        }
    }

    #[test]
    fn it_says_before_what_will_happen_and_why_it_cannot() {
        let before = html(|_, _| {});
        assert!(before.contains("really told to save") && before.contains("nothing is charged"), "{before}");
        assert!(before.contains("Not tested yet") && before.contains("/test-exit"), "{before}");
        let refused = html(|job, _| job.may.test_exit = Some("It is queued.".to_owned()));
        assert!(refused.contains("disabled") && refused.contains("It is queued."), "{refused}");
        assert_eq!(html(|job, _| job.spec.fault_tolerance.exit_checkpoint.enabled = false), "");
    }

    #[test]
    fn what_a_test_came_to_is_shown_for_each_replica_and_escaped() {
        let html = html(|_, chain| {
            if let Some(last) = chain.attempts.last_mut() {
                last.attempt.exit_test = Some(Box::new(tested()));
            }
        });
        for want in [
            "Failed",
            "user-1",
            "wrong answer",
            "answers 500 &lt;b&gt;",
            "1,200",
            "4.2 s",
            "The save took 40 s",
            "128 more that saved",
        ] {
            assert!(html.contains(want), "{want}: {html}");
        }
        assert!(!html.contains("<b>"), "{html}");
    }
}
