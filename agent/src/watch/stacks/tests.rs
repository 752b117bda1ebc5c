//! Stacks of real processes.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use super::*;
use crate::tree;

/// A program that is killed with the test, with all that it started; it has printed `ready`.
struct Program(Child);

impl Program {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut child =
            Command::new(program).args(arguments).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn python(code: &str) -> Self {
        Self::start("python3", &["-c", code])
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn family(&self) -> Vec<(Identity, u32)> {
        family(self.pid())
    }

    fn signal(&self, signal: Signal) {
        killpg(Pid::from_raw(self.pid()), signal).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.pid()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

fn family(pid: i32) -> Vec<(Identity, u32)> {
    let all = tree::all_processes().unwrap();
    crate::watch::family(pid, &all)
}

/// Reads until a level is there.
fn until<T>(program: &Program, reader: &mut Reader, full: bool, wanted: impl Fn(&Reading) -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let reading = reader.read(&program.family(), full);
        if let Some(found) = wanted(&reading) {
            return found;
        }
        assert!(Instant::now() < end, "{reading:?}");
    }
}

const WAITS: &str = "
import threading, time
def rest(): threading.Event().wait()
def step(): print('ready', flush=True); rest()
threading.Thread(target=rest, name='helper', daemon=True).start()
step()
";

fn waits(reading: &Reading) -> Option<Stacks> {
    reading.stacks.clone().ok().filter(|s| s.settled && s.key.top.iter().any(|f| f.starts_with("rest ")))
}

#[test]
fn threads_with_names_and_lines_and_a_key_that_stays() {
    let program = Program::python(WAITS);
    let mut reader = Reader::default();
    let stacks = until(&program, &mut reader, true, waits);
    assert!(stacks.key.top[0].contains("(threading.py)"), "{stacks:?}");
    assert_eq!(stacks.key.top.last().unwrap(), "<module> (<string>)");
    let names: Vec<_> = stacks.threads.iter().map(|t| t.name.as_deref().unwrap_or_default()).collect();
    assert_eq!(names, ["MainThread", "helper"]);
    assert_eq!(stacks.threads[0].id, program.pid() as u64);
    assert!(stacks.threads.iter().flat_map(|t| &t.frames).all(|frame| frame.line.is_some()));
    let again = reader.read(&program.family(), false).stacks.unwrap();
    assert_eq!((again.hash, again.key, again.threads), (stacks.hash, stacks.key, vec![]));
}

#[test]
fn a_stopped_process_can_be_read_and_stays_stopped_and_no_tracer_is_there() {
    let program = Program::python(WAITS);
    let mut reader = Reader::default();
    let before = until(&program, &mut reader, false, waits);
    program.signal(Signal::SIGSTOP);
    let state = || crate::watch::kernel::state(program.pid()).unwrap().is;
    let end = Instant::now() + Duration::from_secs(20);
    while state() != engine::sync::RunState::Stopped {
        assert!(Instant::now() < end);
    }
    assert_eq!(until(&program, &mut reader, false, waits).hash, before.hash);
    assert_eq!(state(), engine::sync::RunState::Stopped);
}

#[test]
fn reading_neither_stops_nor_slows_a_process() {
    let program = Program::python("print('ready', flush=True)\nwhile True: pass");
    let mut reader = Reader::default();
    until(&program, &mut reader, true, |reading| reading.stacks.is_ok().then_some(()));
    for _ in 0..50 {
        let reading = reader.read(&program.family(), true);
        let state = crate::watch::kernel::state(program.pid()).unwrap().is;
        assert_eq!(state, engine::sync::RunState::Running, "{reading:?}");
    }
}

#[test]
fn functions_that_come_and_go_do_not_settle() {
    let program = Program::python(
        "import time\ndef f(n):\n  if n: f(n - 1)\n  else: time.sleep(0.0001)\nprint('ready', flush=True)\nn = 0\nwhile True:\n  n += 1; f(n % 50)",
    );
    let mut reader = Reader::default();
    until(&program, &mut reader, false, |reading| {
        reading.stacks.as_ref().ok().filter(|s| !s.settled).map(drop)
    });
}

#[test]
fn the_child_of_a_shell_is_the_one_that_trains() {
    let program = Program::start("bash", &["-c", &format!("python3 -c \"{WAITS}\"; true")]);
    let mut reader = Reader::default();
    let pid = until(&program, &mut reader, false, |reading| waits(reading).map(|_| reading.pid));
    assert_ne!(pid, program.pid());
}

#[test]
fn a_data_loader_is_shown_last_and_is_no_witness() {
    let dir = tempfile::tempdir().unwrap();
    let module = dir.path().join("site-packages/torch/utils/data/_utils");
    fs::create_dir_all(&module).unwrap();
    fs::write(module.join("worker.py"), "import time\ndef _worker_loop():\n  while True: time.sleep(0.01)\n")
        .unwrap();
    let code = format!(
        "import multiprocessing, sys, threading\nsys.path.insert(0, '{}')\nfrom worker import _worker_loop\n\
         context = multiprocessing.get_context('fork')\nworker = context.Process(target=_worker_loop, daemon=True)\n\
         worker.start()\nprint('ready', flush=True)\ndef rest(): threading.Event().wait()\nrest()",
        module.display()
    );
    let program = Program::python(&code);
    let mut reader = Reader::default();
    let serves = format!("process {}", family(program.pid())[1].0.pid);
    let stacks = until(&program, &mut reader, true, |reading| {
        waits(reading).filter(|s| {
            s.threads.iter().any(|t| t.frames.iter().any(|f| f.function.starts_with("_worker_loop")))
        })
    });
    assert_eq!(stacks.threads[0].id, program.pid() as u64);
    assert!(
        stacks.threads.last().unwrap().name.as_ref().unwrap().starts_with(&serves),
        "{:?}",
        stacks.threads
    );
}

#[test]
fn what_is_no_python_says_so() {
    let program = Program::start("bash", &["-c", "echo ready; sleep 1000 & wait"]);
    let family = program.family();
    let reading = Reader::default().read(&family, true);
    assert_eq!(reading, Reading { pid: program.pid(), stacks: Err(Missing::NotPython) });
}

#[test]
fn a_process_that_became_another_program_is_read_anew() {
    let code = format!(
        "import os, sys\nprint('ready', flush=True)\nsys.stdin.readline()\nos.execvp('python3', ['python3', '-c', '''{WAITS}'''])"
    );
    let mut child = Command::new("python3")
        .args(["-c", &code])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let program = Program(child);
    let mut reader = Reader::default();
    until(&program, &mut reader, false, |reading| reading.stacks.clone().ok().filter(|s| s.settled));
    io::Write::write_all(&mut stdin, b"go\n").unwrap();
    drop(stdin);
    until(&program, &mut reader, false, waits);
}

#[test]
fn what_is_gone_or_a_zombie_is_no_error() {
    let program = Program::python(WAITS);
    let family = program.family();
    let mut reader = Reader::default();
    until(&program, &mut reader, false, waits);
    program.signal(Signal::SIGKILL);
    let end = Instant::now() + Duration::from_secs(20);
    // Nobody has waited for it: a zombie. What is left of what was known of it does not mislead.
    while reader.read(&family, false).stacks.is_ok() {
        assert!(Instant::now() < end);
    }
    while !self::family(program.pid()).is_empty() {
        assert!(Instant::now() < end);
    }
    assert_eq!(reader.read(&[], false), Reading { pid: 0, stacks: Err(Missing::NotPython) });
    assert!(reader.known.is_empty());
}

#[test]
fn five_thousand_threads_are_refused_in_words() {
    let program = Program::python(
        "import threading\nthreading.stack_size(65536)\nrest = threading.Event()\nfor n in range(5000):\n  \
         threading.Thread(target=rest.wait, daemon=True).start()\nprint('ready', flush=True)\nrest.wait()",
    );
    let why = Reader::default().read(&program.family(), true).stacks.unwrap_err();
    assert_eq!(why.words(), "5001 threads; at most 4096 can be read");
}

#[test]
fn ten_thousand_frames_are_refused_in_words_and_a_thousand_are_read() {
    let code = "
import os, sys, threading
sys.setrecursionlimit(100000)
threading.stack_size(512 << 20)
def f(n):
  if n: f(n - 1)
  else: threading.Event().wait()
print('ready', flush=True)
for line in sys.stdin: threading.Thread(target=f, args=(int(line),), daemon=True).start()";
    let mut child = Command::new("python3")
        .args(["-c", code])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let program = Program(child);
    let mut reader = Reader::default();
    until(&program, &mut reader, true, |r| r.stacks.clone().ok());
    io::Write::write_all(&mut stdin, b"1000\n").unwrap();
    until(&program, &mut reader, true, |r| {
        r.stacks.clone().ok().filter(|s| s.threads.iter().any(|t| t.frames.len() > 1000))
    });
    io::Write::write_all(&mut stdin, b"10000\n").unwrap();
    let why = until(&program, &mut reader, true, |r| r.stacks.clone().err());
    assert_eq!(why.words(), "a stack of more than 4096 frames");
    // One that was never read while it could be has no better reason.
    let why = Reader::default().read(&program.family(), true).stacks.unwrap_err();
    assert!(why.words().starts_with("not readable: "), "{why:?}");
}

#[test]
fn hostile_names_come_out_printable() {
    let code = "
import threading
name = 'a\\x1b[2J\\n<script>\\u202e' + 'x' * 3000
space = {}
exec(compile('def f():\\n  print(\"ready\", flush=True)\\n  threading.Event().wait()', '/tmp/\\n\\x07/' + name, 'exec'), {'threading': threading}, space)
f = space['f']
f.__code__ = f.__code__.replace(co_name=name, co_qualname=name) if hasattr(f.__code__, 'co_qualname') else f.__code__.replace(co_name=name)
f()
";
    let program = Program::python(code);
    let stacks = until(&program, &mut Reader::default(), true, |r| r.stacks.clone().ok());
    let words = stacks.key.top.join(" ");
    assert!(words.contains("a\u{fffd}[2J\u{fffd}<script>"), "{words}");
    assert!(stacks.key.top.iter().all(|f| f.len() <= 256 && !f.chars().any(char::is_control)), "{words:?}");
}

#[test]
fn a_process_that_may_not_be_looked_into_says_so() {
    let program = Program::python(
        "import ctypes, threading\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nprint('ready', flush=True)\nthreading.Event().wait()",
    );
    match Reader::default().read(&program.family(), true).stacks {
        Err(why) => assert!(why.words().starts_with("no permission"), "{why:?}"),
        // With the right to trace everything.
        Ok(stacks) => assert_eq!(stacks.threads[0].id, program.pid() as u64),
    }
}

#[test]
fn reasons_are_told_apart() {
    let os = |number| anyhow::Error::new(io::Error::from_raw_os_error(number)).context("Failed to copy");
    assert!(matches!(Missing::new(&os(libc::EPERM)), Missing::NoPermission(_)));
    assert_eq!(Missing::new(&os(libc::ESRCH)), Missing::Gone);
    assert_eq!(
        Missing::new(&anyhow::anyhow!("Unsupported version of Python: 3.99.0")),
        Missing::Version("3.99.0".to_owned())
    );
    assert_eq!(
        Missing::NoPermission(Some("1".to_owned())).words(),
        "no permission (kernel.yama.ptrace_scope is 1)"
    );
    let long = Missing::new(&anyhow::anyhow!("{}", "x\n".repeat(1000))).words();
    assert!(long.len() <= WORDS_BYTES && !long.contains('\n'));
}

#[test]
fn one_that_launches_is_not_the_one_that_trains() {
    let thread = |file: &str| Thread { id: 1, name: None, frames: vec![Frame::new("wait", file, None)] };
    for (file, want) in [
        ("/x/site-packages/torch/distributed/elastic/agent/server/api.py", Role::Launches),
        ("/x/site-packages/torch/multiprocessing/spawn.py", Role::Launches),
        ("/usr/lib/python3.11/multiprocessing/resource_tracker.py", Role::Serves),
        ("/x/site-packages/torch/distributed/distributed_c10d.py", Role::Trains),
    ] {
        assert_eq!(role(&[thread(file)]), want, "{file}");
    }
    assert!(!runs_the_program(&thread("/x/site-packages/tqdm/_monitor.py")));
}
