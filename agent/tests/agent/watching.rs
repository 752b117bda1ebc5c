//! Processes that stand still and processes that do not.

use std::fs;

use engine::{
    failure::Exit,
    sync::{
        Desired, HangWatch, RankStack, ReportBody, RunState, StillRank, Witness, WitnessKind, WitnessSays,
    },
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::harness::{Agent, Server, eventually, with_server};

/// Sampled every second; two seconds are long.
const WATCH: HangWatch = HangWatch { interval_seconds: 1, window_seconds: 2, start_after_seconds: 0 };

/// Stands still in `rest`.
const RESTS: &str = "import threading\ndef rest(): threading.Event().wait()\nrest()";

/// Starts a launch of these many processes under watch.
async fn watched(server: &Server, processes: u32) {
    server
        .run_with(0, |launch| {
            launch.watch = Some(WATCH);
            (launch.local_world_size, launch.world_size) = (processes, processes);
            launch.stop_grace_seconds = 1;
        })
        .await;
}

fn python(server: &Server, code: &str) -> Agent {
    server.agent(&["python3", "-c", code], |_| {})
}

/// Waits until this rank is told to stand still for the whole window, with what is wanted of it.
async fn still(server: &Server, rank: u32, what: &str, wanted: impl Fn(&StillRank) -> bool) -> StillRank {
    server
        .report(0, what, |body| match body {
            ReportBody::Still { ranks } => {
                ranks.iter().find(|s| s.rank == rank && is_long(s) && wanted(s)).cloned()
            }
            _ => None,
        })
        .await
}

fn is_long(still: &StillRank) -> bool {
    still.until.micros() - still.since.micros() >= i64::from(WATCH.window_seconds) * 1_000_000
}

/// Waits for the stacks of this rank that have what is wanted of them.
async fn stacks(server: &Server, rank: u32, wanted: impl Fn(&RankStack) -> bool) -> RankStack {
    server
        .report(0, "stacks", |body| match body {
            ReportBody::Stacks { stacks } => {
                stacks.iter().find(|stack| stack.rank == rank && wanted(stack)).cloned()
            }
            _ => None,
        })
        .await
}

fn witness(still: &StillRank, kind: WitnessKind) -> &Witness {
    still.witnesses.iter().find(|witness| witness.kind == kind).unwrap()
}

fn is_unchanged(still: &StillRank, kind: WitnessKind) -> bool {
    witness(still, kind).says == WitnessSays::Unchanged
}

fn is_changed(still: &StillRank, kind: WitnessKind) -> bool {
    witness(still, kind).says == WitnessSays::Changed
}

#[test]
fn a_process_that_waits_for_ever_is_told_with_its_stacks() {
    with_server(|server| async move {
        let code = format!("print('holdfast phase=training')\nprint('holdfast step=41 loss=0.5')\n{RESTS}");
        let mut agent = python(&server, &code);
        watched(&server, 1).await;
        let still = still(&server, 0, "Still", |s| is_unchanged(s, WitnessKind::Stack)).await;
        assert!(still.samples >= 3);
        assert!(
            still.stack.as_ref().unwrap().top.iter().any(|frame| frame == "rest (<string>)"),
            "{still:?}"
        );
        for kind in [WitnessKind::Step, WitnessKind::Output, WitnessKind::Cpu, WitnessKind::KernelState] {
            assert!(is_unchanged(&still, kind), "{still:#?}");
        }
        assert_eq!(witness(&still, WitnessKind::Step).detail, "after step 41");
        assert!(matches!(witness(&still, WitnessKind::Checkpoint).says, WitnessSays::Unknown(_)));
        assert_eq!(still.phase, Some(engine::failure::Phase::Training));
        let rests = |frame: &String| frame == "rest (<string>:4)";
        let stacks = stacks(&server, 0, |s| s.threads.iter().any(|t| t.frames.iter().any(rests))).await;
        assert_eq!(stacks.threads[0].name.as_deref(), Some("MainThread"));
        server.want(Desired::Exit);
        agent.exit().await;
        let told = |report: &engine::sync::Report| {
            matches!(report.body, ReportBody::Still { .. } | ReportBody::Stacks { .. })
        };
        assert!(
            server.reports().iter().filter(|report| told(report)).count() <= 6,
            "once, and not each second"
        );
        assert!(!agent.said().contains("py_spy"), "{}", agent.said());
    });
}

#[test]
fn two_threads_that_wait_for_each_other_are_both_shown() {
    with_server(|server| async move {
        let code = "
import threading
one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
print('holdfast step=1', flush=True)
def first():
    with one: both.wait(); two.acquire()
def second():
    with two: both.wait(); one.acquire()
threading.Thread(target=second, name='second').start()
first()";
        let _agent = python(&server, code);
        watched(&server, 1).await;
        let stacks = stacks(&server, 0, |s| s.threads.len() == 2).await;
        let tops: Vec<_> =
            stacks.threads.iter().map(|t| (t.name.clone().unwrap(), t.frames[0].clone())).collect();
        assert_eq!(tops[0].0, "MainThread");
        assert!(tops[0].1.starts_with("first ") && tops[1].1.starts_with("second "), "{tops:?}");
    });
}

#[test]
fn an_endless_loop_takes_time_and_stays_in_its_function() {
    with_server(|server| async move {
        let _agent = python(
            &server,
            "print('holdfast step=1', flush=True)\ndef spin():\n  n = 1\n  while True: n = (n * 7 + 1) % 1000003\nspin()",
        );
        watched(&server, 1).await;
        let still = still(&server, 0, "Still", |s| {
            is_unchanged(s, WitnessKind::Stack)
                && s.stack.as_ref().is_some_and(|key| key.top[0] == "spin (<string>)")
        })
        .await;
        assert!(is_changed(&still, WitnessKind::Cpu), "{still:#?}");
    });
}

#[test]
fn a_stopped_process_is_seen_as_stopped_and_moves_when_it_goes_on() {
    with_server(|server| async move {
        let code = "
import os, signal, time
print('holdfast step=1')
os.kill(os.getpid(), signal.SIGSTOP)
for step in range(2, 100000):
    print(f'holdfast step={step}')
    time.sleep(0.1)";
        let _agent = python(
            &server,
            &format!(
                "{}{code}",
                "import os\nopen(os.environ['DIR'] + '/pid', 'w').write(f'{os.getpid()}\\n')"
            ),
        );
        watched(&server, 1).await;
        still(&server, 0, "Still", |s| s.state.as_ref().is_some_and(|state| state.is == RunState::Stopped))
            .await;
        kill(Pid::from_raw(server.file("pid").await.trim().parse().unwrap()), Signal::SIGCONT).unwrap();
        server.report(0, "Moved", |body| (*body == ReportBody::Moved { ranks: vec![0] }).then_some(())).await;
    });
}

#[test]
fn a_process_that_makes_steps_is_never_told() {
    with_server(|server| async move {
        let code = "
import os, time
for step in range(1, 80):
    print(f'holdfast step={step}', flush=True)
    time.sleep(0.1)";
        let _agent = python(&server, code);
        watched(&server, 1).await;
        assert_eq!(server.exited(0, 0).await, (Exit::Code(0), false));
        assert!(
            !server
                .reports()
                .iter()
                .any(|r| matches!(r.body, ReportBody::Still { .. } | ReportBody::Stacks { .. }))
        );
    });
}

#[test]
fn a_bar_that_overwrites_itself_is_output_that_changes() {
    with_server(|server| async move {
        let code = "
import sys, time
n = 0
while True:
    n += 1
    sys.stderr.write(f'\\r{n} done')
    sys.stderr.flush()
    time.sleep(0.1)";
        let _agent = python(&server, code);
        watched(&server, 1).await;
        let still = still(&server, 0, "Still", |s| is_changed(s, WitnessKind::Output)).await;
        assert!(matches!(witness(&still, WitnessKind::Step).says, WitnessSays::Unknown(_)), "{still:#?}");
    });
}

#[test]
fn a_checkpoint_that_grows_is_a_movement() {
    with_server(|server| async move {
        let dir = server.dir().join("checkpoints");
        let code = "
import os, time
os.makedirs(os.environ['HOLDFAST_CHECKPOINT_DIR'], exist_ok=True)
with open(os.environ['HOLDFAST_CHECKPOINT_DIR'] + '/part', 'wb', buffering=0) as file:
    for n in range(70):
        file.write(b'x' * 1000)
        time.sleep(0.1)
print('written', flush=True)
time.sleep(1000)";
        let agent = server.agent(&["python3", "-c", code], |command| {
            command.env("HOLDFAST_CHECKPOINT_DIR", &dir);
        });
        watched(&server, 1).await;
        let still = still(&server, 0, "Still", |s| witness(s, WitnessKind::Checkpoint).since.is_some()).await;
        assert!(agent.log(0).contains(&"written".to_owned()), "it was told while the file grew: {still:#?}");
        assert!(is_unchanged(&still, WitnessKind::Checkpoint));
        assert_eq!(fs::metadata(dir.join("part")).unwrap().len(), 70_000);
    });
}

#[test]
fn ranks_are_told_apart_and_one_that_ends_is_told_to_have_moved() {
    with_server(|server| async move {
        let code = "
import os, threading, time
def rest(): threading.Event().wait()
if os.environ['RANK'] == '1': rest()
while not os.path.exists(os.environ['DIR'] + '/end'): time.sleep(0.05)";
        let _agent = python(&server, code);
        watched(&server, 2).await;
        still(&server, 1, "Still", |s| {
            s.stack.as_ref().is_some_and(|key| key.top.iter().any(|frame| frame.starts_with("rest ")))
        })
        .await;
        still(&server, 0, "Still of the other", |_| true).await;
        fs::write(server.dir().join("end"), "").unwrap();
        assert_eq!(server.exited(0, 0).await, (Exit::Code(0), false));
        server.report(0, "Moved", |body| (*body == ReportBody::Moved { ranks: vec![0] }).then_some(())).await;
    });
}

#[test]
fn a_program_that_is_no_python_has_its_other_witnesses() {
    with_server(|server| async move {
        let _agent = server.bash("echo holdfast step=1; exec sleep 1000");
        watched(&server, 1).await;
        let still = still(&server, 0, "Still", |_| true).await;
        assert_eq!(witness(&still, WitnessKind::Stack).says, WitnessSays::Unknown("not Python".to_owned()));
        assert_eq!(still.stack, None);
        assert!(is_unchanged(&still, WitnessKind::Cpu) && is_unchanged(&still, WitnessKind::Step));
        let stacks = stacks(&server, 0, |s| s.missing.is_some()).await;
        assert_eq!((stacks.threads, stacks.missing.as_deref()), (vec![], Some("not Python")));
    });
}

#[test]
fn an_agent_that_was_stopped_begins_anew() {
    with_server(|server| async move {
        let agent = python(&server, RESTS);
        watched(&server, 1).await;
        let before = still(&server, 0, "Still", |_| true).await;
        agent.signal(Signal::SIGSTOP);
        let stopped_at = std::time::Instant::now();
        eventually("a gap of more than two intervals", || stopped_at.elapsed().as_millis() > 2500).await;
        agent.signal(Signal::SIGCONT);
        server.report(0, "Moved", |body| (*body == ReportBody::Moved { ranks: vec![0] }).then_some(())).await;
        let after = still(&server, 0, "a new standstill", |s| s.since > before.until).await;
        assert!(after.since.micros() - before.until.micros() > 2_000_000);
    });
}

#[test]
fn collectives_that_watchdogs_name_are_told() {
    with_server(|server| async move {
        let code = format!(
            "import sys\nprint('[PG 0 (default_pg) Rank 0] Timeout at NCCL work: 61, last enqueued NCCL work: 61, \
             last completed NCCL work: 60.', file=sys.stderr, flush=True)\n{RESTS}"
        );
        let _agent = python(&server, &code);
        watched(&server, 1).await;
        let still = still(&server, 0, "Still", |s| s.collective.is_some()).await;
        let collective = still.collective.as_ref().unwrap();
        assert_eq!((collective.last_enqueued, collective.last_completed), (Some(61), Some(60)));
        assert_eq!(witness(&still, WitnessKind::Collective).detail, "61 begun, 60 done");
    });
}

#[test]
fn a_crash_under_watch_is_reported_at_once_and_nothing_is_told_after_the_end() {
    with_server(|server| async move {
        let _agent = python(
            &server,
            &format!("import os, threading\nthreading.Timer(4, os._exit, (7,)).start()\n{RESTS}"),
        );
        watched(&server, 1).await;
        still(&server, 0, "Still", |_| true).await;
        assert_eq!(server.exited(0, 0).await, (Exit::Code(7), false));
        server.stopped(0).await;
        let reports = server.reports();
        let stopped = reports.iter().find(|r| r.body == ReportBody::Stopped).unwrap();
        let exited = reports.iter().find(|r| matches!(r.body, ReportBody::Exited { .. })).unwrap();
        assert!(stopped.at.micros() - exited.at.micros() < 300_000, "{reports:#?}");
        assert!(reports.iter().all(|r| r.launch != 0 || r.sequence <= stopped.sequence));
    });
}

#[test]
fn nothing_is_watched_before_its_time() {
    with_server(|server| async move {
        let agent = python(&server, RESTS);
        server
            .run_with(0, |launch| launch.watch = Some(HangWatch { start_after_seconds: 3600, ..WATCH }))
            .await;
        server.started(0).await;
        let threads = || {
            let tasks = fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap();
            let name = |task: std::io::Result<fs::DirEntry>| {
                fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
            };
            tasks.map(name).filter(|name| name.starts_with("watch")).collect::<Vec<_>>()
        };
        eventually("the watch begins", || !threads().is_empty()).await;
        assert_eq!(threads(), ["watch\n"], "nobody looks at stacks yet");
    });
}

/// The example that hangs, or is slow, as these variables say.
fn example(server: &Server, variables: &[(&str, &str)]) -> Agent {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hangs.py");
    server.agent(&["python3", program, "--steps=1000", "--step-seconds=0.05"], |command| {
        command
            .envs(variables.iter().copied())
            .env("HOLDFAST_CHECKPOINT_DIR", server.dir().join("checkpoints"));
    })
}

fn is_in(still: &StillRank, function: &str) -> bool {
    still.stack.as_ref().is_some_and(|key| key.top.iter().any(|frame| frame.contains(function)))
}

#[test]
fn a_program_that_a_debugger_holds_is_told_as_such_and_its_stack_is_read_all_the_same() {
    with_server(|server| async move {
        let _agent = example(&server, &[("SLOW", "debugger"), ("SLOW_SECONDS", "1000"), ("SLOW_AT", "3")]);
        watched(&server, 1).await;
        let is_held = |s: &StillRank| s.state.as_ref().is_some_and(|state| state.is == RunState::Traced);
        let still = still(&server, 0, "Still", |s| is_held(s) && is_in(s, "is_examined")).await;
        assert_eq!(witness(&still, WitnessKind::Step).detail, "after step 2");
    });
}

#[test]
fn a_rank_waits_at_the_queue_of_a_loader_that_never_delivers() {
    with_server(|server| async move {
        let _agent = example(&server, &[("HANG", "loader"), ("HANG_AT", "3")]);
        watched(&server, 1).await;
        still(&server, 0, "Still", |s| {
            is_in(s, "(multiprocessing/queues.py)") && is_unchanged(s, WitnessKind::Stack)
        })
        .await;
        let reads =
            |t: &engine::sync::ThreadStack| t.frames.iter().any(|f| f.starts_with("read_from_slow_storage "));
        stacks(&server, 0, |s| s.threads.iter().any(reads)).await;
    });
}
