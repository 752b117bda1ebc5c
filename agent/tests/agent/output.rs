//! What programs print.

use std::{fs, process::Command};

use engine::{
    failure::Exit,
    sync::{Desired, ReportBody},
};

use crate::harness::{Agent, eventually, with_server};

/// More than this and something is not bounded.
const MEMORY: u64 = 96 << 20;

#[test]
fn a_flood_of_lines_is_kept_in_order() {
    with_server(|server| async move {
        let script = "import sys\nfor i in range(400000): sys.stdout.write('line %d of a flood that goes on and on\\n' % i)";
        let agent = server.agent(&["python3", "-c", script], |command| {
            command.env("PYTHONUNBUFFERED", "");
        });
        server.run(0).await;
        assert_eq!(server.exited(0, 0).await, (Exit::Code(0), false));
        server.stopped(0).await;
        let log = agent.log(0);
        assert_eq!(log.len(), 400_000);
        for (number, line) in log.iter().enumerate() {
            assert_eq!(*line, format!("line {number} of a flood that goes on and on"));
        }
        assert!(agent.peak_memory() < MEMORY, "{}", agent.peak_memory());
    });
}

#[test]
fn a_huge_line_is_cut_and_costs_no_memory() {
    with_server(|server| async move {
        let agent = server.bash("head -c 300000000 /dev/zero | tr '\\0' x; echo; echo after");
        server.run(0).await;
        server.stopped(0).await;
        let log = agent.log(0);
        assert_eq!(log.len(), 2);
        assert!(
            log[0].ends_with(&format!("x [{} bytes cut]", 300_000_000 - 65_536)),
            "{}",
            &log[0][65_000..]
        );
        assert_eq!(log[1], "after");
        assert!(agent.peak_memory() < MEMORY, "{}", agent.peak_memory());
    });
}

#[test]
fn binary_output_harms_nothing() {
    with_server(|server| async move {
        let agent =
            server.bash("head -c 5000000 /dev/urandom; head -c 1000000 /dev/urandom >&2; echo; echo after");
        server.run(0).await;
        assert_eq!(server.exited(0, 0).await, (Exit::Code(0), false));
        server.stopped(0).await;
        assert!(agent.peak_memory() < MEMORY, "{}", agent.peak_memory());
        let text = fs::read(server.log_dir().join("launch-0.log")).unwrap();
        assert!(text.windows(9).any(|part| part == b" o after\n"));
    });
}

#[test]
fn both_outputs_and_a_last_line_without_an_end_are_kept() {
    with_server(|server| async move {
        let _agent = server.bash("echo out; printf 'no end' >&2");
        server.run(0).await;
        server.stopped(0).await;
        let text = fs::read_to_string(server.log_dir().join("launch-0.log")).unwrap();
        let mut lines: Vec<_> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0 e no end", "0 o out"]);
    });
}

#[test]
fn a_disk_that_takes_no_more_costs_the_log_and_not_the_training() {
    with_server(|server| async move {
        let mut command = Command::new("bash");
        command.args(["-c", "ulimit -f 64; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_holdfast-agent")]);
        let program =
            "for i in $(seq 20000); do echo a line that fills the disk $i; done; echo done >$DIR/done";
        server.configure(&mut command, &["bash", "-c", program]);
        let agent = Agent::spawn(command, server.log_dir());
        server.run(0).await;
        let is_lost = |body: &ReportBody| match body {
            ReportBody::LogLost { text } => Some(text.clone()),
            _ => None,
        };
        let text = server.report(0, "LogLost", is_lost).await;
        assert!(text.contains("File too large"), "{text}");
        assert_eq!(server.exited(0, 0).await, (Exit::Code(0), false));
        server.file("done").await;
        server.stopped(0).await;
        assert_eq!(server.reports().iter().filter(|r| is_lost(&r.body).is_some()).count(), 1);
        let log = agent.log(0);
        assert!(log.iter().all(|line| line.starts_with("a line that fills the disk ")), "no line is torn");
    });
}

#[test]
fn an_agent_whose_own_log_cannot_be_written_goes_on() {
    with_server(|server| async move {
        let mut command = Command::new("bash");
        command.args([
            "-c",
            "exec \"$@\" >/dev/full 2>/dev/full",
            "bash",
            env!("CARGO_BIN_EXE_holdfast-agent"),
        ]);
        server.configure(
            &mut command,
            &["bash", "-c", "echo before; echo an error >&2; sleep 0.2; echo after"],
        );
        command.env("HOLDFAST_AGENT_PASS_THROUGH", "true");
        let mut agent = Agent::spawn(command, server.log_dir());
        server.run(0).await;
        assert_eq!(server.exited(0, 0).await, (Exit::Code(0), false));
        server.stopped(0).await;
        assert_eq!(agent.log(0).len(), 3);
        server.want(Desired::Exit);
        assert_eq!(agent.exit().await, 0);
    });
}

#[test]
fn a_log_that_reached_its_limit_says_so_once() {
    with_server(|server| async move {
        let program = "for i in $(seq 40000); do echo a line that fills the log $i; done";
        let _agent = server.agent(&["bash", "-c", program], |command| {
            command.env("HOLDFAST_AGENT_LOG_LIMIT_BYTES", "1048576");
        });
        server.run(0).await;
        server.stopped(0).await;
        let lost = server.reports().iter().filter(|r| matches!(r.body, ReportBody::LogLost { .. })).count();
        assert_eq!(lost, 1);
        let kept: u64 = fs::read_dir(server.log_dir())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!(kept <= 1_200_000, "{kept}");
    });
}

#[test]
fn output_is_repeated_where_that_is_wanted() {
    with_server(|server| async move {
        let mut agent =
            server.agent(&["bash", "-c", "echo to be seen; echo and this >&2; echo -n an end"], |command| {
                command.env("HOLDFAST_AGENT_PASS_THROUGH", "true").env("KEEP_STDOUT", "1");
            });
        server.run(0).await;
        server.stopped(0).await;
        server.run(1).await;
        server.stopped(1).await;
        server.want(Desired::Exit);
        assert_eq!(agent.exit().await, 0);
        let said = fs::read_to_string(server.dir().join("agent.out")).unwrap();
        let launches: Vec<_> = said.split("[holdfast-agent] launch ").skip(1).collect();
        for (number, launch) in launches.iter().enumerate() {
            let mut lines: Vec<_> = launch.lines().collect();
            assert_eq!(lines.remove(0), number.to_string());
            // Both outputs are read together, in no order that is promised.
            lines.sort_unstable();
            assert_eq!(lines, ["[rank0]: an end", "[rank0]: and this", "[rank0]: to be seen"]);
            assert_eq!(agent.log(number as u32).len(), lines.len(), "numbers agree with the agent's own log");
        }
        assert_eq!(launches.len(), 2);
    });
}

#[test]
fn a_driver_is_no_rank_and_its_output_is_repeated_in_a_file() {
    with_server(|server| async move {
        let file = server.dir().join("elsewhere");
        fs::write(&file, "[before]\n").unwrap();
        let script = "echo rank=$RANK world=$WORLD_SIZE at=$MASTER_ADDR:$MASTER_PORT launch=$HOLDFAST_LAUNCH";
        let mut agent = server.agent(&["bash", "-c", script], |command| {
            command.env("HOLDFAST_AGENT_PASS_THROUGH_FILE", &file).env("HOLDFAST_AGENT_NO_RANKS", "true");
        });
        server.run(0).await;
        server.stopped(0).await;
        server.want(Desired::Exit);
        assert_eq!(agent.exit().await, 0);
        let said = fs::read_to_string(&file).unwrap();
        assert_eq!(said, "[before]\n[holdfast-agent] launch 0\n[rank0]: rank= world= at=: launch=0\n");
    });
}

/// A training program as its output goes: a checkpoint, steps with their loss, an error that is caught, the end.
const TRAINING: &str = r#"
import os, sys, time
print("holdfast checkpoint step=20 path=/data/20.pt loaded")
print("CUDA out of memory, trying a smaller batch", file=sys.stderr)
while not os.path.exists(os.environ["DIR"] + "/go"): time.sleep(0.01)
for step in range(21, 41):
    print(f"holdfast step={step} loss={2.0 / step:.4f} total=100")
    time.sleep(0.06)
print("holdfast checkpoint step=40 path=/data/40.pt saved")
sys.stdout.flush()
raise RuntimeError("NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.21.5")
"#;

#[test]
fn progress_and_the_lines_that_explain_an_end_are_reported() {
    with_server(|server| async move {
        let agent = server.agent(&["python3", "-c", TRAINING], |_| {});
        server.run(0).await;
        eventually("the first error is read", || {
            agent.log(0).iter().any(|line| line.contains("smaller batch"))
        })
        .await;
        fs::write(server.dir().join("go"), "").unwrap();
        server.stopped(0).await;
        let reports = server.reports();
        let points: Vec<_> = reports
            .iter()
            .filter_map(|r| if let ReportBody::Progress { points } = &r.body { Some(points) } else { None })
            .flatten()
            .collect();
        assert_eq!((points[0].step, points[0].total), (21, Some(100)));
        assert_eq!((points.last().unwrap().step, points.last().unwrap().loss), (40, Some(0.05)));
        let checkpoints: Vec<_> = reports
            .iter()
            .filter_map(|r| {
                if let ReportBody::Checkpoint { event } = &r.body {
                    Some((event.loaded, event.step))
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(checkpoints, [(true, Some(20)), (false, Some(40))]);
        let last = reports.iter().find_map(|r| match &r.body {
            ReportBody::Exited { step, evidence, .. } => Some((*step, evidence.clone())),
            _ => None,
        });
        let (step, evidence) = last.unwrap();
        assert_eq!(step, Some(40));
        assert!(!evidence.is_empty());
        let log = fs::read_to_string(server.log_dir().join("launch-0.log")).unwrap();
        for line in &evidence {
            assert_eq!(line.rank, Some(0));
            let kept = log.lines().nth(line.line_number as usize - 1).unwrap();
            assert!(kept.contains(line.line.trim()), "{line:?}\n{kept}");
            assert!(!line.line.contains("out of memory"), "training went on after it: {line:?}");
        }
    });
}

/// Half a line reads differently from the whole: `RuntimeError: Connection closed by peer` is a consequence, `RuntimeError` a cause.
#[test]
fn a_line_that_the_stop_cut_off_explains_nothing() {
    with_server(|server| async move {
        let script = "if [ $HOLDFAST_LAUNCH = 0 ]; then printf RuntimeError >&2; exit 1; fi
            trap 'printf RuntimeError >&2; exit 1' TERM; echo ready; while :; do sleep 0.05; done";
        let agent = server.bash(script);
        server.run(0).await;
        let evidence = |launch| {
            let server = &server;
            async move {
                server
                    .report(launch, "Exited", |body| match body {
                        ReportBody::Exited { asked, evidence, .. } => Some((*asked, evidence.len())),
                        _ => None,
                    })
                    .await
            }
        };
        assert_eq!(evidence(0).await, (false, 1), "it ended by itself: that was its last word");
        server.stopped(0).await;
        server.run(1).await;
        eventually("the trap is set", || agent.log(1).iter().any(|line| line == "ready")).await;
        server.want(Desired::Stop { launch: 2 });
        assert_eq!(evidence(1).await, (true, 0));
        server.stopped(1).await;
        assert_eq!(agent.log(1).last().map(String::as_str), Some("RuntimeError"));
    });
}
