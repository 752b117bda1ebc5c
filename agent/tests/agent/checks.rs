//! Health checks before training, with real directories, commands and processes.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use engine::{
    checks::{Check, CheckFinding, CheckOrder, CheckOutcome},
    sync::{Desired, Launch, ReportBody},
    time::Time,
};
use nix::sys::signal::Signal;

use crate::harness::{Server, eventually, lives, with_server};

fn order(checks: &[Check]) -> CheckOrder {
    CheckOrder { checks: checks.to_vec(), command: None, devices: 0 }
}

fn command(script: &str) -> CheckOrder {
    let words = ["bash", "-c", script].map(str::to_owned).to_vec();
    CheckOrder { command: Some(words), ..order(&[Check::Command]) }
}

/// Orders checks for a launch; gives it as it is to run afterwards.
async fn check_first(server: &Server, number: u32, order: CheckOrder) -> Launch {
    let launch = server.run_with(number, |launch| launch.checks = Some(order)).await;
    Launch { checks: None, ..launch }
}

async fn found(server: &Server, number: u32) -> Vec<CheckFinding> {
    server
        .report(number, "Checked", |body| match body {
            ReportBody::Checked { findings } => Some(findings.clone()),
            _ => None,
        })
        .await
}

fn outcomes(findings: &[CheckFinding]) -> Vec<(Check, CheckOutcome)> {
    let mut all: Vec<_> = findings.iter().map(|finding| (finding.check, finding.outcome)).collect();
    all.sort_unstable_by_key(|(check, _)| *check);
    all
}

fn has_started(server: &Server) -> bool {
    server.reports().iter().any(|report| report.body == ReportBody::Started)
}

#[test]
fn nothing_starts_before_the_checks_are_told_and_the_server_says_so() {
    with_server(async |server| {
        let all = &Check::ALL[..6];
        server.change(|known| known.now = Some(Time(0)));
        let save = server.dir().join("ckpt");
        fs::create_dir(&save).unwrap();
        let _agent = server.agent(&["bash", "-c", "echo ran > $DIR/ran; sleep 1000"], |agent| {
            agent.env("HOLDFAST_CHECKPOINT_DIR", &save);
        });
        let launch = check_first(&server, 0, order(all)).await;
        let findings = found(&server, 0).await;
        use CheckOutcome::{Failed, Passed, Skipped};
        let told = outcomes(&findings);
        // The server's clock is that of 1970. The kernel's log is what it is on this machine.
        assert_eq!(
            told[..5],
            [
                (Check::CheckpointDir, Passed),
                (Check::Shm, Passed),
                (Check::Rendezvous, Passed),
                (Check::Clock, Failed),
                (Check::Devices, Skipped)
            ],
            "{findings:#?}"
        );
        assert!(findings.iter().all(|finding| finding.seconds < 10.0 && !finding.text.is_empty()));
        assert_eq!(fs::read_dir(&save).unwrap().count(), 0, "nothing is left in the checkpoint directory");
        assert!(!has_started(&server) && !server.dir().join("ran").exists());
        server.want(Desired::Run { launch });
        server.started(0).await;
        server.file("ran").await;
        let told = server.reports().iter().filter(|r| matches!(r.body, ReportBody::Checked { .. })).count();
        assert_eq!(told, 1);
    });
}

#[test]
fn a_directory_that_is_missing_or_cannot_be_written_is_named_with_what_to_do() {
    for (dir, words) in [("/no-such-mount/ckpt", "is missing"), ("/sys/kernel", "cannot be written")] {
        with_server(async |server| {
            let _agent = server.agent(&["sleep", "1000"], |agent| {
                agent.env("HOLDFAST_CHECKPOINT_DIR", dir);
            });
            check_first(&server, 0, order(&[Check::CheckpointDir, Check::Shm])).await;
            let findings = found(&server, 0).await;
            let bad = findings.iter().find(|finding| finding.check == Check::CheckpointDir).unwrap();
            assert_eq!(bad.outcome, CheckOutcome::Failed, "{findings:?}");
            assert!(bad.text.contains(dir) && bad.text.contains(words), "{bad:?}");
            assert!(bad.remedy.as_ref().is_some_and(|remedy| !remedy.is_empty()));
            server.want(Desired::Stop { launch: 0 });
            server.stopped(0).await;
            assert!(!has_started(&server));
        });
    }
}

/// A file system of 128 KiB, which only root can mount.
struct Tiny<'a>(&'a Path);

impl<'a> Tiny<'a> {
    fn mount(dir: &'a Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"]).arg(dir);
        mount
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
            .then_some(Self(dir))
    }
}

impl Drop for Tiny<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_disk_without_room_fails_and_what_was_written_is_removed() {
    with_server(async |server| {
        let dir = server.dir().join("tiny");
        fs::create_dir(&dir).unwrap();
        let Some(_mounted) = Tiny::mount(&dir) else { return };
        for (number, words) in [(0, "at least 256 MiB are needed"), (1, "is full")] {
            let filler = dir.join("filler");
            if number == 1 {
                // What is left is less than the check writes.
                let _ = fs::write(&filler, vec![1; 1 << 20]);
            }
            let mut agent = server.agent(&["sleep", "1000"], |agent| {
                agent.env("HOLDFAST_CHECKPOINT_DIR", &dir);
            });
            check_first(&server, number, order(&[Check::CheckpointDir])).await;
            let findings = found(&server, number).await;
            assert_eq!(findings[0].outcome, CheckOutcome::Failed);
            assert!(findings[0].text.contains(words), "{findings:?}");
            let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert!(left.iter().all(|name| name == "filler"), "{left:?}");
            server.want(Desired::Stop { launch: number });
            server.stopped(number).await;
            agent.signal(Signal::SIGTERM);
            agent.exit().await;
        }
    });
}

#[test]
fn a_check_that_hangs_is_a_finding_and_nothing_of_it_is_left_s32_s43() {
    with_server(async |server| {
        let _agent = server.agent(&["bash", "-c", "echo ran > $DIR/ran; sleep 1000"], |agent| {
            agent.env("HOLDFAST_AGENT_CHECK_LIMIT_SECONDS", "1");
        });
        // It ignores SIGTERM, and what it starts leaves its session.
        let script = "trap '' TERM; setsid sleep 1000 & echo $! > $DIR/left; echo $$ > $DIR/own; echo waiting; \
                      while true; do sleep 1000; done";
        let hangs = CheckOrder { checks: vec![Check::Shm, Check::Command], ..command(script) };
        let launch = check_first(&server, 0, hangs).await;
        let answered = server.wait("an answer", |known| Some(known.answered)).await;
        let findings = found(&server, 0).await;
        assert_eq!(
            outcomes(&findings),
            [(Check::Shm, CheckOutcome::Passed), (Check::Command, CheckOutcome::TimedOut)]
        );
        let own = findings.iter().find(|finding| finding.check == Check::Command).unwrap();
        assert_eq!(own.text, "did not end within 1 s; it said: waiting");
        assert!(own.remedy.is_some());
        server.wait("the agent goes on talking", |known| (known.answered > answered).then_some(())).await;
        for name in ["own", "left"] {
            let pid: i32 = server.file(name).await.trim().parse().unwrap();
            eventually(name, || !lives(pid)).await;
        }
        // Whoever decides to train all the same can.
        server.want(Desired::Run { launch });
        server.started(0).await;
    });
}

#[test]
fn an_own_command_runs_as_the_program_would_and_its_words_are_bounded() {
    with_server(async |server| {
        let _agent = server.bash("sleep 1000");
        let script =
            "env | grep -c HOLDFAST_AGENT_ >&2; echo rank $RANK at $MASTER_ADDR; test $HOLDFAST_LAUNCH = 0";
        let launch = check_first(&server, 0, command(script)).await;
        let findings = found(&server, 0).await;
        assert_eq!(findings[0].text, "exit 0; it said: 0 rank 0 at 127.0.0.1");
        server.want(Desired::Run { launch });
        server.started(0).await;
        server.want(Desired::Stop { launch: 0 });
        server.stopped(0).await;

        // A launch later it floods its output with what a terminal or a page might obey.
        let flood =
            "for i in {1..20000}; do printf '\\033[2J<script>alert(1)</script>\\x00\\xff'; done; exit 7";
        check_first(&server, 1, command(flood)).await;
        let findings = found(&server, 1).await;
        assert_eq!(findings[0].outcome, CheckOutcome::Failed);
        let text = &findings[0].text;
        assert!(text.starts_with("exit 7; it said: … "), "{text}");
        assert!(text.chars().count() < 400 && !text.chars().any(char::is_control), "{text}");
    });
}

#[test]
fn checks_end_with_what_asked_for_them() {
    with_server(async |server| {
        let mut agent = server.bash("sleep 1000");
        let script = "echo $$ > $DIR/own; sleep 1000";
        check_first(&server, 0, command(script)).await;
        let first: i32 = server.file("own").await.trim().parse().unwrap();
        server.want(Desired::Stop { launch: 0 });
        server.stopped(0).await;
        eventually("the end of the first check", || !lives(first)).await;

        fs::remove_file(server.dir().join("own")).unwrap();
        check_first(&server, 1, command(script)).await;
        let second: i32 = server.file("own").await.trim().parse().unwrap();
        server.want(Desired::Exit);
        agent.exit().await;
        eventually("the end of the second check", || !lives(second)).await;
        assert!(!server.reports().iter().any(|r| matches!(r.body, ReportBody::Checked { .. })));
    });
}

#[test]
fn an_agent_that_dies_checks_anew_when_it_is_back() {
    with_server(async |server| {
        let mut agent = server.bash("sleep 1000");
        let script = "echo $$ > $DIR/own; while ! test -e $DIR/go; do sleep 0.02; done";
        let launch = check_first(&server, 0, command(script)).await;
        let own: i32 = server.file("own").await.trim().parse().unwrap();
        agent.signal(Signal::SIGKILL);
        agent.exit().await;
        eventually("the check ends with its agent", || !lives(own)).await;
        fs::write(server.dir().join("go"), "").unwrap();
        let _agent = server.bash("sleep 1000");
        assert_eq!(outcomes(&found(&server, 0).await), [(Check::Command, CheckOutcome::Passed)]);
        server.want(Desired::Run { launch });
        server.started(0).await;
    });
}

#[test]
fn checks_go_on_while_the_server_is_away_and_are_told_when_it_is_back() {
    with_server(async |server| {
        let _agent = server.bash("sleep 1000");
        let script = "echo $$ > $DIR/own; while ! test -e $DIR/go; do sleep 0.02; done";
        check_first(&server, 0, command(script)).await;
        let own: i32 = server.file("own").await.trim().parse().unwrap();
        server.go_away();
        fs::write(server.dir().join("go"), "").unwrap();
        eventually("the end of the check", || !lives(own)).await;
        server.come_back().await;
        assert_eq!(outcomes(&found(&server, 0).await), [(Check::Command, CheckOutcome::Passed)]);
    });
}

#[test]
fn by_hand_it_prints_a_table_and_its_exit_code_says_how_it_is() {
    let agent = || Command::new(env!("CARGO_BIN_EXE_holdfast-agent"));
    let run = |arguments: &[&str]| {
        let began = Instant::now();
        let output = agent().arg("preflight").args(arguments).env_remove("MASTER_ADDR").output().unwrap();
        assert!(began.elapsed() < Duration::from_secs(30));
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, out, _) = run(&["--checks", "shm,clock,rendezvous,devices", "--", "true"]);
    assert_eq!(code, Some(0), "{out}");
    assert_eq!(out.lines().count(), 5, "{out}");
    for line in [
        "shm             passed",
        "clock           skipped",
        "devices         skipped",
        "command         passed",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    let (code, out, _) = run(&["--checks=checkpoint_dir", "--checkpoint-dir=/no-such-mount/x", "--json"]);
    let finding: CheckFinding = serde_json::from_str(out.trim()).unwrap();
    assert_eq!((code, finding.outcome), (Some(1), CheckOutcome::Failed));
    let (code, out, _) = run(&["--checks=shm", "--limit-seconds=1", "--", "sleep", "1000"]);
    assert_eq!(code, Some(1));
    assert!(out.contains("TIMED OUT") && out.contains("did not end within 1 s"), "{out}");
    let (code, _, words) = run(&["--checks=disk"]);
    assert_eq!(code, Some(2));
    assert!(words.contains("there is no such check; use any of: checkpoint_dir, shm"), "{words}");
}
