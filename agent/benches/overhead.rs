//! What it costs a program to be supervised.
//!
//! *Output*: a program that prints 50 MB/s writes first straight into a file and then through the agent, which keeps, numbers and scans
//! each line. Printed are the time of both runs and the agent's own processor time.
//!
//! *Watch* (alone with `-- watch`): a busy training loop is watched for standstills in the second half of its run only. Processes of one program
//! differ in speed by more than sampling costs, so that each is compared with itself; runs that are never watched, in turn with them, say what
//! the halves differ by anyway. Printed are the steps of the second half for each of the first, and what the agents used of the processor.

use std::{
    env, fmt, fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use engine::sync::{Desired, HangWatch, Launch, ReportBody, SyncReply, SyncRequest};
use nix::sys::resource::{UsageWho, getrusage};

/// Bytes a second.
const RATE: u64 = 50_000_000;
/// Length of a run.
const SECONDS: u64 = 8;
/// Bytes printed at once.
const BURST: usize = 64 * 1024;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Half a run, long enough for three samples.
const HALF_SECONDS: u32 = 16;
/// Four runs at a time, A B B A, so that a machine that gets slower counts for both kinds alike.
const ROUNDS: usize = 2;
/// As often as the goal says.
const WATCH: HangWatch =
    HangWatch { interval_seconds: 5, window_seconds: 10, start_after_seconds: HALF_SECONDS };

/// A step every few milliseconds, thirty calls deep; three threads beside, one of which works now and then, and two loaders.
const TRAINING: &str = r#"
import json, multiprocessing, os, sys, threading, time
def load(queue):
    while True: queue.put(bytes(1000))
def beside(pause):
    while True: time.sleep(pause)
def layer(depth):
    if depth: return layer(depth - 1)
    return sum(n * n for n in range(20000))
queue = multiprocessing.get_context("fork").Queue(4)
for _ in range(2): multiprocessing.get_context("fork").Process(target=load, args=(queue,), daemon=True).start()
for pause in (0.01, 10, 10): threading.Thread(target=beside, args=(pause,), daemon=True).start()
step, halves = 0, []
for half in range(2):
    end, before = time.monotonic() + float(sys.argv[1]), step
    while time.monotonic() < end:
        queue.get()
        layer(30)
        step += 1
        if step % 10 == 0: print(f"holdfast step={step} loss=0.5", flush=True)
    halves.append(step - before)
with open(os.environ["STEPS"], "w") as file: json.dump(halves, file)
os._exit(0)
"#;

fn main() -> Outcome<()> {
    if env::args().nth(1).as_deref() == Some("print") {
        return Ok(print()?);
    }
    if env::args().all(|argument| argument != "watch") {
        output()?;
    }
    watch()
}

fn watch() -> Outcome<()> {
    let (mut watched, mut plain) = (Vec::new(), Vec::new());
    for is_watched in [false, true, true, false].repeat(ROUNDS) {
        (if is_watched { &mut watched } else { &mut plain }).push(train(is_watched)?);
    }
    let (watched, plain) = (Kind::of(&watched), Kind::of(&plain));
    let mut out = io::stdout();
    writeln!(out, "a busy training loop, {} runs of 2 x {HALF_SECONDS} s:", 4 * ROUNDS)?;
    writeln!(out, "  not watched                        {plain}")?;
    writeln!(out, "  sampled every {} s in the second    {watched}", WATCH.interval_seconds)?;
    writeln!(out, "  fewer steps by     {:6.2} %", 100.0 * (1.0 - watched.ratio / plain.ratio))?;
    writeln!(out, "  sampling takes     {:6.2} % of one core (goal < 1 %)", watched.share - plain.share)?;
    Ok(())
}

/// Runs of one kind.
struct Kind {
    /// Steps of the second half for each of the first, in all runs together.
    ratio: f64,
    /// From the lowest to the highest ratio of a run.
    spread: f64,
    /// What the agent used of one core in a second half, per cent.
    share: f64,
}

impl Kind {
    fn of(runs: &[Run]) -> Self {
        let steps = |half: usize| runs.iter().map(|run| run.steps[half]).sum::<f64>();
        let ratios = || runs.iter().map(|run| run.steps[1] / run.steps[0]);
        let spread = ratios().fold(f64::MIN, f64::max) - ratios().fold(f64::MAX, f64::min);
        let processor: f64 = runs.iter().map(|run| run.processor).sum();
        let share = 100.0 * processor / (runs.len() as f64 * f64::from(HALF_SECONDS));
        Self { ratio: steps(1) / steps(0), spread, share }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ratio, spread, share } = self;
        write!(f, "{ratio:.4} steps for one (runs differ by {spread:.4}), agent {share:4.2} % of one core")
    }
}

struct Run {
    /// Of the first half, which is never watched, and of the second.
    steps: [f64; 2],
    /// The agent's own in the second half, seconds.
    processor: f64,
}

/// One run of the training loop under an agent.
fn train(is_watched: bool) -> Outcome<Run> {
    let dir = tempfile::tempdir().map_err(|why| why.to_string())?;
    let steps = dir.path().join("steps");
    let seconds = HALF_SECONDS.to_string();
    let program = ["python3", "-c", TRAINING, &seconds];
    let mut command = agent(&program, dir.path(), is_watched.then_some(WATCH))?;
    let mut agent = command.env("STEPS", &steps).spawn()?;
    // The agent's own time is asked for before it has waited for its children; from then on theirs would be in it.
    let half = Instant::now() + Duration::from_secs(HALF_SECONDS.into());
    let (mut first, mut all) = (0.0, 0.0);
    while agent.try_wait()?.is_none() {
        all = own_seconds(agent.id()).unwrap_or(all);
        if Instant::now() < half {
            first = all;
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(Run { steps: serde_json::from_str(&fs::read_to_string(steps)?)?, processor: all - first })
}

/// Processor time of a process alone, without its children.
fn own_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

fn output() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let own = env::current_exe()?;
    let plain = measure(|| {
        let file = fs::File::create(dir.path().join("plain"))?;
        Command::new(&own).arg("print").stdout(file).status()?;
        Ok(())
    })?;
    fs::remove_file(dir.path().join("plain"))?;
    let agent = measure(|| supervised(&own, dir.path()))?;
    let slower = 100.0 * (agent.wall / plain.wall - 1.0);
    let processor = agent.processor - plain.processor;
    let mut out = io::stdout();
    writeln!(out, "a program that prints {} MB/s for {SECONDS} s:", RATE / 1_000_000)?;
    writeln!(out, "  into a file        {:6.2} s, {:5.2} s of processor time", plain.wall, plain.processor)?;
    writeln!(out, "  under the agent    {:6.2} s, {:5.2} s of processor time", agent.wall, agent.processor)?;
    writeln!(out, "  slower by          {slower:6.2} % (goal < 5 %)")?;
    writeln!(out, "  agent's processor  {:6.2} % of one core", 100.0 * processor / agent.wall)?;
    Ok(())
}

/// Prints lines as trainers do, in step with the clock.
fn print() -> io::Result<()> {
    let mut burst = Vec::with_capacity(BURST + 256);
    let mut out = io::stdout().lock();
    let start = Instant::now();
    let (mut printed, mut number) = (0u64, 0u64);
    while printed < RATE * SECONDS {
        burst.clear();
        while burst.len() < BURST {
            number += 1;
            writeln!(
                burst,
                "2026-01-01 00:00:00,000 INFO trainer: batch {number} took 0.113 s, 1423 tokens/s, queue 17, memory 61.2 GiB"
            )?;
        }
        out.write_all(&burst)?;
        printed += burst.len() as u64;
        let due = Duration::from_secs_f64(printed as f64 / RATE as f64);
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
    Ok(())
}

struct Cost {
    wall: f64,
    processor: f64,
}

/// Seconds, and seconds of processor time of all processes that ended meanwhile.
fn measure(run: impl FnOnce() -> Outcome<()>) -> Outcome<Cost> {
    let before = processor_seconds()?;
    let start = Instant::now();
    run()?;
    Ok(Cost { wall: start.elapsed().as_secs_f64(), processor: processor_seconds()? - before })
}

fn processor_seconds() -> Outcome<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn supervised(program: &Path, dir: &Path) -> Outcome<()> {
    let status = agent(&[&program.to_string_lossy(), "print"], dir, None)?.status()?;
    if status.success() { Ok(()) } else { Err(format!("the agent ended with {status}").into()) }
}

/// An agent with a server of its own, which has it run one launch.
fn agent(program: &[&str], dir: &Path, watch: Option<HangWatch>) -> Outcome<Command> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let is_over = Arc::new(AtomicBool::new(false));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || answer(stream, watch, &is_over).is_ok());
        }
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-agent"));
    command
        .args(["run", "--task-id", "bench-jabcdefghij2-1", "--replica", "master-0", "--server", &url])
        .arg("--state-dir")
        .arg(dir.join("state"))
        .arg("--log-dir")
        .arg(dir.join("logs"))
        .arg("--")
        .args(program)
        .env("HOLDFAST_AGENT_TOKEN", "bench")
        .env("HOLDFAST_AGENT_LOG", "error")
        .stdout(Stdio::null());
    Ok(command)
}

/// Answers every sync: run launch 0, and exit once it is over.
fn answer(stream: TcpStream, watch: Option<HangWatch>, is_over: &AtomicBool) -> Outcome<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let request: SyncRequest = serde_json::from_slice(&body)?;
        let text = serde_json::to_vec(&reply(&request, watch, is_over))?;
        write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len())?;
        writer.write_all(&text)?;
    }
}

fn reply(request: &SyncRequest, watch: Option<HangWatch>, is_over: &AtomicBool) -> SyncReply {
    if request.reports.iter().any(|report| report.body == ReportBody::Stopped) {
        is_over.store(true, Ordering::Relaxed);
    }
    let is_over = is_over.load(Ordering::Relaxed);
    let launch = Launch {
        number: 0,
        master_addr: "127.0.0.1".to_owned(),
        master_port: 1,
        world_size: 1,
        first_rank: 0,
        local_world_size: 1,
        stop_grace_seconds: 5,
        exit: None,
        checks: None,
        watch,
        exit_test: None,
    };
    SyncReply {
        acknowledged: request.reports.last().map_or(0, |report| report.sequence),
        version: if is_over { 2 } else { 1 },
        desired: if is_over { Desired::Exit } else { Desired::Run { launch } },
        now: None,
    }
}
