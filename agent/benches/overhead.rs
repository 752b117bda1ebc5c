//! What it costs a program that prints 50 MB/s to be supervised.
//!
//! The same program writes first straight into a file and then through the agent, which keeps, numbers and scans each line. Printed
//! are the time of both runs and the agent's own processor time.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use engine::sync::{Desired, Launch, ReportBody, SyncReply, SyncRequest};
use nix::sys::resource::{UsageWho, getrusage};

/// Bytes a second.
const RATE: u64 = 50_000_000;
/// Length of a run.
const SECONDS: u64 = 8;
/// Bytes printed at once.
const BURST: usize = 64 * 1024;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    if env::args().nth(1).as_deref() == Some("print") {
        return Ok(print()?);
    }
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
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream).is_ok());
        }
    });
    let status = Command::new(env!("CARGO_BIN_EXE_holdfast-agent"))
        .args(["run", "--task-id", "bench-jabcdefghij2-1", "--replica", "master-0", "--server", &url])
        .arg("--state-dir")
        .arg(dir.join("state"))
        .arg("--log-dir")
        .arg(dir.join("logs"))
        .arg("--")
        .arg(program)
        .arg("print")
        .env("HOLDFAST_AGENT_TOKEN", "bench")
        .env("HOLDFAST_AGENT_LOG", "error")
        .stdout(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("the agent ended with {status}").into()) }
}

/// Answers every sync: run launch 0, and exit once it is over.
fn answer(stream: TcpStream) -> Outcome<()> {
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
        let text = serde_json::to_vec(&reply(&request))?;
        write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len())?;
        writer.write_all(&text)?;
    }
}

fn reply(request: &SyncRequest) -> SyncReply {
    static IS_OVER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    if request.reports.iter().any(|report| report.body == ReportBody::Stopped) {
        IS_OVER.store(true, std::sync::atomic::Ordering::Relaxed);
    }
    let is_over = IS_OVER.load(std::sync::atomic::Ordering::Relaxed);
    let launch = Launch {
        number: 0,
        master_addr: "127.0.0.1".to_owned(),
        master_port: 1,
        world_size: 1,
        first_rank: 0,
        local_world_size: 1,
        stop_grace_seconds: 5,
        watch: None,
    };
    SyncReply {
        acknowledged: request.reports.last().map_or(0, |report| report.sequence),
        version: if is_over { 2 } else { 1 },
        desired: if is_over { Desired::Exit } else { Desired::Run { launch } },
    }
}
