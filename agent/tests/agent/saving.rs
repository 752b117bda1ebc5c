//! The save before the end: who tells the program, until when, and what is reported.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use engine::{
    record::{
        ExitReason::{Preempted, Stopped},
        SaveOutcome,
    },
    sync::{Desired, ExitNotice, ExitSettings, Launch, ReportBody, SaveReport},
    time::Time,
};
use nix::sys::signal::Signal;

use crate::harness::{Agent, Server, with_server};

/// Far from the machine's clock: what counts is how far the deadline is from the server's.
const SERVER_NOW: Time = Time(1_000_000_000_000);

fn notice(seconds: u64) -> Desired {
    let notice = ExitNotice { reason: Stopped, deadline_at: SERVER_NOW.plus_seconds(seconds) };
    Desired::Save { launch: 0, notice }
}

fn settings(max_wait_seconds: u32) -> Option<ExitSettings> {
    Some(ExitSettings { port: 9100, max_wait_seconds })
}

fn example() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/exit_behaviours.py");
    path.to_str().unwrap().to_owned()
}

fn program(server: &Server, behaviour: &str) -> Agent {
    server.change(|known| known.now = Some(SERVER_NOW));
    server.agent(&["python3", &example()], |command| {
        command.env("EXIT_BEHAVIOUR", behaviour);
    })
}

async fn run(server: &Server, max_wait_seconds: u32) -> Launch {
    let launch = server.run_with(0, |launch| launch.exit = settings(max_wait_seconds)).await;
    server.report(0, "a step", |body| matches!(body, ReportBody::Progress { .. }).then_some(())).await;
    launch
}

fn saves(server: &Server) -> Vec<SaveReport> {
    let reports = server.reports();
    let saves = reports.into_iter().filter_map(|report| match report.body {
        ReportBody::Save { save } => Some(save),
        _ => None,
    });
    saves.collect()
}

async fn end_of_save(server: &Server) -> SaveReport {
    server
        .report(0, "the end of a save", |body| match body {
            ReportBody::Save { save } if save.outcome != SaveOutcome::Saving => Some(save.clone()),
            _ => None,
        })
        .await
}

#[test]
fn a_program_that_is_told_saves_once_and_goes_on_until_it_is_ended() {
    with_server(|server| async move {
        let mut agent = program(&server, "slow");
        run(&server, 60).await;
        server.want(notice(60));
        let save = end_of_save(&server).await;
        assert_eq!((save.outcome, save.reason, save.signalled), (SaveOutcome::Saved, Stopped, false));
        let step = save.step.unwrap();
        assert_eq!(save.path.unwrap(), format!("/checkpoints/{step}"));
        // The same again, and a signal: it is not told a second time.
        server.want(notice(50));
        agent.signal(Signal::SIGTERM);
        let far = |body: &ReportBody| match body {
            ReportBody::Progress { points } => {
                points.last().filter(|point| point.step > step + 3).map(|_| ())
            }
            _ => None,
        };
        server.report(0, "steps after the save", far).await;
        server.want(Desired::Exit);
        assert_eq!(agent.exit().await, 143);
        assert_eq!(saves(&server).len(), 2, "{:?}", saves(&server));
        assert_eq!(agent.log(0).iter().filter(|line| *line == "told to save").count(), 1);
    });
}

#[test]
fn a_signal_begins_the_save_also_where_the_server_is_away_and_a_second_one_changes_nothing() {
    with_server(|server| async move {
        let mut agent = program(&server, "slow");
        run(&server, 60).await;
        server.go_away();
        agent.signal(Signal::SIGTERM);
        crate::harness::eventually("it is told", || agent.log(0).iter().any(|line| line == "told to save"))
            .await;
        agent.signal(Signal::SIGTERM);
        assert_eq!(agent.exit().await, 143);
        assert_eq!(agent.log(0).iter().filter(|line| *line == "told to save").count(), 1);
        assert!(agent.said().contains("saved"), "{}", agent.said());
    });
}

#[test]
fn an_agent_that_is_told_to_end_waits_for_the_others_as_long_as_the_server_says() {
    with_server(|server| async move {
        let mut agent = program(&server, "saves");
        run(&server, 60).await;
        agent.signal(Signal::SIGTERM);
        let save = end_of_save(&server).await;
        assert_eq!((save.outcome, save.reason), (SaveOutcome::Saved, Preempted));
        assert!(saves(&server)[0].signalled);
        server.want(notice(60));
        let step = save.step.unwrap();
        let far = |body: &ReportBody| match body {
            ReportBody::Progress { points } => {
                points.last().filter(|point| point.step > step + 3).map(|_| ())
            }
            _ => None,
        };
        server.report(0, "steps after the save", far).await;
        server.want(Desired::Stop { launch: 0 });
        assert_eq!(agent.exit().await, 143);
    });
}

#[test]
fn the_time_is_what_the_server_says_and_ends_in_words() {
    for (behaviour, outcome, words) in [
        ("never_saves", SaveOutcome::TimedOut, "1 of 2 files"),
        ("hangs", SaveOutcome::NoAnswer, "was not answered within"),
        ("dies_while_saving", SaveOutcome::Failed, "the program ended before it had saved"),
        ("dies_when_told", SaveOutcome::Failed, "the program ended before it had saved"),
        ("closed_port", SaveOutcome::NoAnswer, "nobody listens on port"),
    ] {
        with_server(|server| async move {
            let _agent = program(&server, behaviour);
            run(&server, 600).await;
            let begin = Instant::now();
            server.want(notice(1));
            let save = end_of_save(&server).await;
            let message = save.message.unwrap_or_default();
            assert_eq!(save.outcome, outcome, "{behaviour}: {message}");
            assert!(message.contains(words), "{behaviour}: {message}");
            assert!(begin.elapsed() < Duration::from_secs(10), "{behaviour}: {:?}", begin.elapsed());
        });
    }
}

#[test]
fn force_ends_a_save_at_once() {
    with_server(|server| async move {
        let mut agent = program(&server, "never_saves");
        run(&server, 600).await;
        server.want(notice(600));
        server.report(0, "it is told", |body| matches!(body, ReportBody::Save { .. }).then_some(())).await;
        server.want(Desired::Exit);
        assert_eq!(agent.exit().await, 143);
        assert_eq!(saves(&server).len(), 1, "what was broken off has no end");
    });
}

#[test]
fn only_the_first_process_of_a_replica_has_a_port() {
    with_server(|server| async move {
        let script = "echo local $LOCAL_RANK port ${HOLDFAST_EXIT_PORT-none}";
        let agent = server.bash(script);
        server
            .run_with(0, |launch| {
                launch.exit = settings(60);
                (launch.world_size, launch.local_world_size) = (2, 2);
            })
            .await;
        server.stopped(0).await;
        let log = agent.log(0);
        let port = log.iter().find_map(|line| line.strip_prefix("local 0 port ")).unwrap();
        assert!((9000..=9999).contains(&port.parse::<u16>().unwrap()), "{log:?}");
        assert!(log.iter().any(|line| line == "local 1 port none"), "{log:?}");
    });
}

#[test]
fn a_replica_whose_first_process_has_ended_keeps_nobody_waiting() {
    with_server(|server| async move {
        let _agent = server.bash("[ $LOCAL_RANK = 1 ] || exit 0; echo up >$DIR/up; exec sleep 1000");
        server
            .run_with(0, |launch| {
                launch.exit = settings(600);
                (launch.world_size, launch.local_world_size) = (2, 2);
            })
            .await;
        server.exited(0, 0).await;
        server.file("up").await;
        server.change(|known| known.now = Some(SERVER_NOW));
        server.want(notice(600));
        let save = end_of_save(&server).await;
        assert_eq!(save.outcome, SaveOutcome::NoAnswer);
        assert!(save.message.unwrap().contains("has ended"));
    });
}

#[test]
fn where_it_is_off_a_signal_ends_the_program_as_before() {
    with_server(|server| async move {
        let mut agent = program(&server, "saves");
        server.run(0).await;
        server.report(0, "a step", |body| matches!(body, ReportBody::Progress { .. }).then_some(())).await;
        agent.signal(Signal::SIGTERM);
        assert_eq!(agent.exit().await, 143);
        assert!(saves(&server).is_empty());
    });
}

#[test]
fn a_program_is_tested_while_it_runs() {
    for (behaviour, code, wanted) in [
        (
            "slow",
            0,
            &[
                "ok      notification received",
                "ok      saved at step",
                "ok      it took",
                "WARNING the grace",
            ][..],
        ),
        (
            "fails",
            1,
            &["ok      notification received", "FAILED  not saved after", "no space left on device"],
        ),
        ("closed_port", 1, &["FAILED  notification not received, no answer: nobody listens"]),
    ] {
        with_server(|server| async move {
            let path = example();
            let script = format!(
                "echo $HOLDFAST_EXIT_PORT >$DIR/port; EXIT_BEHAVIOUR={behaviour} exec python3 {path}"
            );
            let _agent = server.bash(&script);
            run(&server, 60).await;
            let port = server.file("port").await;
            let output = Command::new(env!("CARGO_BIN_EXE_holdfast-agent"))
                .args(["test-exit", "--port", port.trim(), "--wait", "30", "--grace", "40"])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(code), "{behaviour}: {said}");
            for words in wanted {
                assert!(said.contains(words), "{behaviour}: {said}");
            }
        });
    }
}
