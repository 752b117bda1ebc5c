//! Starting, watching, ending.

use engine::{
    failure::{Exit, Signal as Death},
    sync::{Desired, ReportBody},
};
use nix::sys::signal::Signal;

use crate::harness::{Server, eventually, lives, with_server};

/// Forks twice, leaves its session, ignores what can be ignored; its number is in `$DIR/daemon`.
const DAEMON: &str = r#"python3 -c '
import os, signal, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
with open(os.environ["DIR"] + "/daemon", "w") as f: f.write("%d\n" % os.getpid())
time.sleep(1000)
' >/dev/null 2>&1
while [ ! -s $DIR/daemon ]; do sleep 0.01; done
"#;

async fn daemon(server: &Server) -> i32 {
    server.file("daemon").await.trim().parse().unwrap()
}

#[test]
fn a_crash_is_reported_and_the_next_launch_has_a_new_port() {
    with_server(|server| async move {
        let mut agent = server.bash("echo launch $HOLDFAST_LAUNCH at $MASTER_PORT; [ $HOLDFAST_LAUNCH = 1 ] || exit 7; echo up >$DIR/up; exec sleep 1000");
        let first = server.run(0).await;
        assert_eq!(server.exited(0, 0).await, (Exit::Code(7), false));
        server.stopped(0).await;
        let second = server.run(1).await;
        server.started(1).await;
        server.file("up").await;
        assert_ne!(first.master_port, second.master_port);
        assert_eq!(agent.log(0), [format!("launch 0 at {}", first.master_port)]);
        server.want(Desired::Exit);
        assert_eq!(server.exited(1, 0).await, (Exit::Signal(Death::TERM), true));
        assert_eq!(agent.exit().await, 143);
        let kinds: Vec<_> =
            server.reports().iter().map(|r| (r.launch, std::mem::discriminant(&r.body))).collect();
        let ready = std::mem::discriminant(&ReportBody::Ready);
        assert_eq!(kinds[0], (0, ready), "the first report of all");
    });
}

#[test]
fn what_has_ended_is_not_started_again() {
    with_server(|server| async move {
        let _agent = server.bash("echo x >>$DIR/starts; exit 1");
        let launch = server.run(0).await;
        server.stopped(0).await;
        let answered = server.wait("answers", |k| Some(k.answered)).await;
        server.want(Desired::Run { launch });
        server.want(Desired::Wait);
        server.wait("more answers", |k| (k.answered > answered).then_some(())).await;
        server.want(Desired::Stop { launch: 5 });
        server.stopped(5).await;
        assert_eq!(server.file("starts").await, "x\n");
    });
}

#[test]
fn deaths_by_signal_have_one_form() {
    for script in ["kill -9 $$", "exit 137"] {
        with_server(|server| async move {
            let mut agent = server.bash(script);
            server.run(0).await;
            assert_eq!(server.exited(0, 0).await, (Exit::Signal(Death::KILL), false));
            server.want(Desired::Exit);
            assert_eq!(agent.exit().await, 137);
        });
    }
}

#[test]
fn a_death_by_a_real_time_signal_is_seen() {
    with_server(|server| async move {
        let _agent = server.bash("kill -40 $$");
        server.run(0).await;
        assert_eq!(server.exited(0, 0).await, (Exit::Signal(Death(40)), false));
    });
}

#[test]
fn work_that_is_done_ends_with_0() {
    with_server(|server| async move {
        let mut agent = server.bash("exit 0");
        server.run(0).await;
        assert_eq!(server.exited(0, 0).await, (Exit::Code(0), false));
        server.stopped(0).await;
        server.want(Desired::Exit);
        assert_eq!(agent.exit().await, 0);
    });
}

#[test]
fn a_program_that_ignores_sigterm_is_killed_after_its_grace() {
    with_server(|server| async move {
        let _agent = server.bash("trap '' TERM; echo up >$DIR/up; while :; do sleep 0.05; done");
        server.run_with(0, |launch| launch.stop_grace_seconds = 1).await;
        server.file("up").await;
        server.want(Desired::Stop { launch: 0 });
        assert_eq!(server.exited(0, 0).await, (Exit::Signal(Death::KILL), true));
        server.stopped(0).await;
    });
}

#[test]
fn what_was_told_to_stop_is_ready_for_the_next_launch() {
    with_server(|server| async move {
        let _agent = server.bash("echo up >$DIR/up; exec sleep 1000");
        server.run(0).await;
        server.file("up").await;
        server.want(Desired::Stop { launch: 0 });
        server.stopped(0).await;
        server.report(1, "Ready", |body| (*body == ReportBody::Ready).then_some(())).await;
        server.run(1).await;
        server.started(1).await;
        let ready = server.reports().iter().filter(|report| report.body == ReportBody::Ready).count();
        assert_eq!(ready, 2, "once at its beginning, and once for the order");
    });
}

#[test]
fn a_daemon_does_not_outlive_the_program_that_crashed() {
    with_server(|server| async move {
        let _agent = server.bash(&format!("{DAEMON} exit 3"));
        server.run(0).await;
        server.stopped(0).await;
        assert!(!lives(daemon(&server).await));
    });
}

#[test]
fn a_daemon_that_ignores_sigterm_does_not_outlive_a_stop() {
    with_server(|server| async move {
        let _agent = server.bash(&format!("{DAEMON} echo up >$DIR/up; exec sleep 1000"));
        server.run_with(0, |launch| launch.stop_grace_seconds = 1).await;
        server.file("up").await;
        let daemon = daemon(&server).await;
        assert!(lives(daemon));
        server.want(Desired::Stop { launch: 0 });
        server.stopped(0).await;
        assert!(!lives(daemon));
    });
}

#[test]
fn processes_know_their_place_and_not_the_token() {
    with_server(|server| async move {
        let script = r#"env >$DIR/env-$RANK.new; mv $DIR/env-$RANK.new $DIR/env-$RANK; exec sleep 1000"#;
        let _agent = server.agent(&["bash", "-c", script], |command| {
            command.env("MY_SETTING", "kept").env("HOLDFAST_JOB_ID", "jabcdefghij2");
        });
        let launch = server
            .run_with(0, |launch| {
                launch.world_size = 4;
                launch.first_rank = 2;
                launch.local_world_size = 2;
            })
            .await;
        for local in 0..2 {
            let environment = server.file(&format!("env-{}", 2 + local)).await;
            for want in [
                format!("RANK={}", 2 + local),
                format!("LOCAL_RANK={local}"),
                "WORLD_SIZE=4".to_owned(),
                "LOCAL_WORLD_SIZE=2".to_owned(),
                "MASTER_ADDR=127.0.0.1".to_owned(),
                format!("MASTER_PORT={}", launch.master_port),
                "HOLDFAST_LAUNCH=0".to_owned(),
                "HOLDFAST_JOB_ID=jabcdefghij2".to_owned(),
                "MY_SETTING=kept".to_owned(),
                "PYTHONUNBUFFERED=1".to_owned(),
            ] {
                assert!(environment.lines().any(|line| line == want), "{want} is missing:\n{environment}");
            }
            assert!(!environment.contains("HOLDFAST_AGENT_"), "{environment}");
        }
    });
}

#[test]
fn one_failure_leaves_the_others_to_the_server() {
    with_server(|server| async move {
        let _agent = server.bash("[ $RANK = 1 ] && exit 5; echo up >$DIR/up; exec sleep 1000");
        server.run_with(0, |launch| (launch.world_size, launch.local_world_size) = (2, 2)).await;
        assert_eq!(server.exited(0, 1).await, (Exit::Code(5), false));
        server.file("up").await;
        server.want(Desired::Stop { launch: 0 });
        assert_eq!(server.exited(0, 0).await, (Exit::Signal(Death::TERM), true));
        server.stopped(0).await;
    });
}

#[test]
fn a_newer_launch_replaces_the_running_one() {
    with_server(|server| async move {
        let _agent = server.bash("echo up >$DIR/up-$HOLDFAST_LAUNCH; exec sleep 1000");
        server.run(0).await;
        server.file("up-0").await;
        server.run(1).await;
        server.file("up-1").await;
        server.started(1).await;
        let bodies: Vec<_> = server.reports().into_iter().filter(|r| r.launch == 0).map(|r| r.body).collect();
        assert_eq!(bodies.last(), Some(&ReportBody::Stopped));
    });
}

#[test]
fn a_program_that_is_not_there_is_named() {
    with_server(|server| async move {
        let mut agent = server.agent(&["no-such-program", "x"], |_| {});
        server.run(0).await;
        let text = server
            .report(0, "StartFailed", |body| match body {
                ReportBody::StartFailed { text } => Some(text.clone()),
                _ => None,
            })
            .await;
        assert!(text.contains("no-such-program") && text.contains("No such file or directory"), "{text}");
        server.stopped(0).await;
        server.want(Desired::Exit);
        assert_eq!(agent.exit().await, 127);
    });
}

#[test]
fn sigterm_ends_the_program_first_and_is_never_a_success() {
    with_server(|server| async move {
        let mut agent = server.bash(
            "trap 'echo saved >$DIR/saved; exit 0' TERM; echo up >$DIR/up; while :; do sleep 0.05; done",
        );
        server.run(0).await;
        server.file("up").await;
        agent.signal(Signal::SIGTERM);
        assert_eq!(agent.exit().await, 143);
        server.file("saved").await;
        assert_eq!(server.exited(0, 0).await, (Exit::Code(0), true));
        server.stopped(0).await;
    });
}

#[test]
fn a_second_sigterm_does_not_wait() {
    with_server(|server| async move {
        let mut agent = server.bash("trap '' TERM; echo up >$DIR/up; while :; do sleep 0.05; done");
        server.run_with(0, |launch| launch.stop_grace_seconds = 3600).await;
        server.file("up").await;
        agent.signal(Signal::SIGTERM);
        eventually("the first signal was seen", || agent.said().contains("SIGTERM, SIGKILL after")).await;
        agent.signal(Signal::SIGTERM);
        assert_eq!(agent.exit().await, 143);
    });
}

#[test]
fn an_agent_that_is_killed_takes_its_processes_with_it_and_its_successor_says_so() {
    with_server(|server| async move {
        let mut agent = server.bash("echo $$ >$DIR/pid; exec sleep 1000");
        let launch = server.run(0).await;
        let pid: i32 = server.file("pid").await.trim().parse().unwrap();
        server.started(0).await;
        agent.signal(Signal::SIGKILL);
        assert_eq!(agent.exit().await, 137);
        eventually("the process dies with the agent", || !lives(pid)).await;

        let _successor = server.bash("echo again >$DIR/again; exit 1");
        assert_eq!(server.exited(0, 0).await, (Exit::Signal(Death::KILL), false));
        server.stopped(0).await;
        server.want(Desired::Run { launch });
        server.want(Desired::Stop { launch: 1 });
        server.stopped(1).await;
        assert!(!server.dir().join("again").exists(), "a launch that has ended was started again");
    });
}

#[test]
fn a_second_agent_of_one_replica_is_refused() {
    with_server(|server| async move {
        let mut first = server.bash("exec sleep 1000");
        server.run(0).await;
        server.started(0).await;
        let mut second = server.bash("exec sleep 1000");
        assert_eq!(second.exit().await, 2);
        assert!(second.said().contains("another agent supervises this replica"), "{}", second.said());
        server.want(Desired::Exit);
        assert_eq!(first.exit().await, 143);
    });
}

#[test]
fn children_the_agent_had_before_are_not_its_business() {
    with_server(|server| async move {
        let mut command = std::process::Command::new("bash");
        let script = r#"sleep 1000 & echo $! >$DIR/sidecar; exec "$@""#;
        command.args(["-c", script, "bash", env!("CARGO_BIN_EXE_holdfast-agent")]);
        server.configure(&mut command, &["bash", "-c", "exit 1"]);
        let mut agent = crate::harness::Agent::spawn(command, server.log_dir());
        server.run(0).await;
        server.stopped(0).await;
        let sidecar: i32 = server.file("sidecar").await.trim().parse().unwrap();
        assert!(lives(sidecar));
        server.want(Desired::Exit);
        assert_eq!(agent.exit().await, 1);
        assert!(lives(sidecar));
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(sidecar), Signal::SIGKILL).unwrap();
    });
}

#[test]
fn wrong_usage_says_what_is_missing() {
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast-agent"));
        let output = command.args(arguments).env_clear().output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let all = [
        "run",
        "--server",
        "http://127.0.0.1:1",
        "--task-id",
        "t",
        "--replica",
        "r",
        "--state-dir",
        "/s",
        "--log-dir",
        "/l",
        "x",
    ];
    let (code, said) = run(&all);
    assert_eq!(code, Some(2));
    assert!(said.contains("HOLDFAST_AGENT_TOKEN"), "{said}");
    let (code, said) = run(&["run", "x"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("--task-id"), "{said}");
}
