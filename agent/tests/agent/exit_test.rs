//! The test of the exit notification on a program that runs: every behaviour is called what it is, and the program goes on.

use std::path::Path;

use engine::{
    record::SaveOutcome,
    sync::{Desired, ExitNotice, ExitSettings, ExitTestOrder, ExitTestReport, Launch, ReportBody},
    time::Time,
};

use crate::harness::{Agent, Server, with_server};

/// Far from the machine's clock: what counts is how far the deadline is from the server's.
const SERVER_NOW: Time = Time(1_000_000_000_000);

fn program(server: &Server, behaviour: &str) -> Agent {
    server.change(|known| known.now = Some(SERVER_NOW));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/exit_behaviours.py");
    server.agent(&["python3", path.to_str().unwrap()], |command| {
        command.env("EXIT_BEHAVIOUR", behaviour);
    })
}

async fn run(server: &Server) -> Launch {
    let settings = ExitSettings { port: 9200, max_wait_seconds: 600 };
    let launch = server.run_with(0, |launch| launch.exit = Some(settings)).await;
    server.report(0, "a step", |body| matches!(body, ReportBody::Progress { .. }).then_some(())).await;
    launch
}

fn order(server: &Server, launch: &Launch, number: u32, seconds: u64) {
    let exit_test = Some(ExitTestOrder { number, deadline_at: SERVER_NOW.plus_seconds(seconds) });
    server.want(Desired::Run { launch: Launch { exit_test, ..launch.clone() } });
}

fn tests(server: &Server) -> Vec<ExitTestReport> {
    let tests = server.reports().into_iter().filter_map(|report| match report.body {
        ReportBody::ExitTest { test } => Some(test),
        _ => None,
    });
    tests.collect()
}

async fn end(server: &Server, number: u32) -> ExitTestReport {
    server
        .report(0, "the end of a test", |body| match body {
            ReportBody::ExitTest { test } if test.number == number && test.outcome != SaveOutcome::Saving => {
                Some(test.clone())
            }
            _ => None,
        })
        .await
}

async fn steps_after(server: &Server, step: u64) {
    let far = |body: &ReportBody| match body {
        ReportBody::Progress { points } => points.last().filter(|point| point.step > step + 3).map(|_| ()),
        _ => None,
    };
    server.report(0, "steps after the test", far).await;
}

#[test]
fn a_program_is_told_once_for_each_test_and_goes_on() {
    with_server(|server| async move {
        let agent = program(&server, "slow");
        let launch = run(&server).await;
        order(&server, &launch, 1, 60);
        let first = end(&server, 1).await;
        assert_eq!(first.outcome, SaveOutcome::Saved);
        let (received, took) = (first.received_millis.unwrap(), first.took_millis.unwrap());
        assert!(received <= took && (600..30_000).contains(&took), "{first:?}");
        let step = first.step.unwrap();
        assert_eq!(first.path.unwrap(), format!("/checkpoints/{step}"));
        steps_after(&server, step).await;
        // The same order again, another test, and none.
        order(&server, &launch, 1, 50);
        order(&server, &launch, 2, 60);
        assert_eq!(end(&server, 2).await.outcome, SaveOutcome::Saved);
        server.want(Desired::Run { launch: launch.clone() });
        let told: Vec<_> = tests(&server).iter().map(|test| (test.number, test.outcome)).collect();
        let [saving, saved] = [SaveOutcome::Saving, SaveOutcome::Saved];
        assert_eq!(told, [(1, saving), (1, saving), (1, saved), (2, saving), (2, saving), (2, saved)]);
        assert_eq!(agent.log(0).iter().filter(|line| *line == "told to save").count(), 2);
    });
}

#[test]
fn every_wrong_behaviour_is_named() {
    use SaveOutcome::{Failed, NoAnswer, Saved, TimedOut, WrongAnswer};
    for (behaviour, outcome, received, words) in [
        ("saves_without_step", Saved, true, ""),
        ("fails", Failed, true, "no space left on device"),
        ("never_saves", TimedOut, true, "1 of 2 files"),
        ("never_begins", TimedOut, true, "did not begin to save"),
        ("closed_port", NoAnswer, false, "nobody listens on port"),
        ("hangs", NoAnswer, false, "/v1/preempt/notify was not answered within"),
        ("hangs_later", NoAnswer, true, "/v1/preempt/status was not answered within"),
        ("big_body", WrongAnswer, true, "more than 65536 bytes"),
        ("redirect", WrongAnswer, false, "a redirect (302 Found), which is not followed"),
        ("redirect_later", WrongAnswer, true, "a redirect (307"),
        ("500", WrongAnswer, false, "answers 500"),
        ("500_later", WrongAnswer, true, "answers 500"),
        ("not_found", WrongAnswer, false, "answers 404"),
        ("wrong_type", WrongAnswer, true, "`text/html`, not application/json"),
        ("wrong_json", WrongAnswer, true, "is not {\"status\""),
        ("wrong_word", WrongAnswer, true, "unknown variant `done`"),
        ("dies_when_told", Failed, false, "the program ended before it had saved"),
        ("dies_while_saving", Failed, true, "the program ended before it had saved"),
    ] {
        with_server(|server| async move {
            let _agent = program(&server, behaviour);
            let launch = run(&server).await;
            // Those that never come to an end have a second.
            let long = if matches!(outcome, TimedOut | NoAnswer) { 1 } else { 60 };
            order(&server, &launch, 1, long);
            let test = end(&server, 1).await;
            assert_eq!(test.outcome, outcome, "{behaviour}: {test:?}");
            assert_eq!(test.received_millis.is_some(), received, "{behaviour}: {test:?}");
            let message = test.message.unwrap_or_default();
            assert!(message.contains(words), "{behaviour}: {message}");
            if behaviour.starts_with("dies") {
                let (exit, asked) = server.exited(0, 0).await;
                assert!(!asked && !exit.is_success(), "its end is told as it was: {exit}");
            }
        });
    }
}

#[test]
fn a_real_end_wins_and_the_program_is_told_anew() {
    with_server(|server| async move {
        let mut agent = program(&server, "slow");
        let launch = run(&server).await;
        order(&server, &launch, 1, 600);
        server
            .report(0, "it has taken note", |body| match body {
                ReportBody::ExitTest { test } => test.received_millis,
                _ => None,
            })
            .await;
        let reason = engine::record::ExitReason::Deleted;
        let notice = ExitNotice { reason, deadline_at: SERVER_NOW.plus_seconds(60) };
        server.want(Desired::Save { launch: 0, notice });
        let save = server
            .report(0, "the end of the save", |body| match body {
                ReportBody::Save { save } if save.outcome != SaveOutcome::Saving => Some(save.clone()),
                _ => None,
            })
            .await;
        assert_eq!((save.outcome, save.reason), (SaveOutcome::Saved, reason));
        server.want(Desired::Exit);
        assert_eq!(agent.exit().await, 143);
        assert!(
            tests(&server).iter().all(|test| test.outcome == SaveOutcome::Saving),
            "{:?}",
            tests(&server)
        );
        assert_eq!(agent.log(0).iter().filter(|line| *line == "told to save").count(), 2);
    });
}
