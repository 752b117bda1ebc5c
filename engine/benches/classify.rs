//! Throughput of the scanner with all signatures, on one core: `cargo bench -p engine --bench classify [--
//! training]`.
//!
//! Beside each figure stands what it costs merely to find the line ends of the same bytes, so that a ratio
//! can be compared across machines.

use std::{
    hint::black_box,
    io::{Write, stdout},
    time::Instant,
};

use engine::classify::LineScanner;

/// Bytes of each log.
const SIZE: usize = 4 << 20;
/// Bytes of one read of a pipe.
const CHUNK: usize = 64 << 10;
/// Runs of each.
const RUNS: usize = 40;

/// What a healthy run prints.
fn training(step: usize) -> String {
    match step % 8 {
        0..=2 => format!(
            " iteration {step:8}/  500000 | consumed samples: {:12} | elapsed time per iteration (ms): 1042.{} | learning rate: 9.1E-05 | global batch size:  1024 | lm loss: {}.635663E+00 | loss scale: 131072.0 | grad norm: 1.{} | number of skipped iterations:   0 | number of nan iterations:   0 |\n",
            step * 1024, step % 10, step % 7, step % 1000
        ),
        3 => format!("[2026-01-05 10:{:02}:12,345] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[9e-06, 9e-06], mom=[(0.9, 0.95)]\n", step % 60),
        4 => "time (ms) | forward-compute: 28117.27 | forward-recv: 1503.24 | backward-compute: 74875.03 | backward-send: 3.29 | optimizer: 386.17 | batch-generator: 1.29\n".to_owned(),
        5 => format!("node-1:4942:5032 [1] NCCL INFO Channel {:02}/32 :    0   1   2   3   4   5   6   7\n", step % 32),
        6 => format!("{{'loss': 2.{}, 'grad_norm': 0.4{}, 'learning_rate': 1.9e-05, 'epoch': 0.{}}}\n", step % 997, step % 9, step % 100),
        _ => format!("2026-01-05 10:11:{:02} - root - INFO - step: {step}  loss:  3.{}  memory: 68.57GiB(86.69%)  tps: 6,785  mfu: 39.73%\n", step % 60, step % 9999),
    }
}

/// A progress bar that is redrawn.
fn bar(step: usize) -> String {
    format!(
        "\r  6%|██▌                        | {step}/500000 [10:23<2:51:07, 11.7it/s, loss=0.{}]",
        step % 9973
    )
}

/// A log in which nearly every line speaks of a failure.
fn errors(step: usize) -> String {
    match step % 4 {
        0 => format!("node-1:42:{step} [1] net_ib.cc:16 NCCL WARN NET/IB : Got completion from peer 10.0.0.11<44206> with status=12 opcode=129 len=65536 vendor err 129\n"),
        1 => format!("[rank{}]: RuntimeError: CUDA error: device-side assert triggered\n", step % 8),
        2 => format!("  File \"/opt/train/model.py\", line {step}, in forward\n"),
        _ => "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n".to_owned(),
    }
}

/// Makes the lines of a log by their numbers.
type Lines = fn(usize) -> String;

fn log(line: Lines) -> Vec<u8> {
    let mut log = String::with_capacity(SIZE + 1024);
    for step in 1.. {
        log.push_str(&line(step));
        if log.len() >= SIZE {
            break;
        }
    }
    log.into_bytes()
}

/// Megabytes (10⁶ bytes) a second of processor time, once all that is compiled at first use is there.
fn speed(log: &[u8], work: impl Fn(&[u8]) -> u64) -> f64 {
    black_box(work(black_box(log)));
    let start = Clock::start();
    for _ in 0..RUNS {
        black_box(work(black_box(log)));
    }
    (log.len() * RUNS) as f64 / 1e6 / start.seconds()
}

/// The processor time of this thread where Linux tells it, so that other work on the machine counts less;
/// else the time of day.
struct Clock {
    wall: Instant,
    processor: Option<u64>,
}

impl Clock {
    fn start() -> Self {
        Self { wall: Instant::now(), processor: Self::processor_nanos() }
    }

    fn seconds(&self) -> f64 {
        match (self.processor, Self::processor_nanos()) {
            (Some(before), Some(now)) => now.saturating_sub(before) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }

    fn processor_nanos() -> Option<u64> {
        std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().next()?.parse().ok()
    }
}

fn scan(log: &[u8]) -> u64 {
    let mut scanner = LineScanner::new();
    let mut lines = 0;
    let mut count = |line: engine::classify::Line<'_>| lines += u64::from(line.progress.is_some()) + 1;
    for chunk in log.chunks(CHUNK) {
        scanner.feed(chunk, &mut count);
    }
    scanner.flush(&mut count);
    lines
}

fn line_ends(log: &[u8]) -> u64 {
    log.chunks(CHUNK).map(|chunk| memchr::memchr2_iter(b'\n', b'\r', chunk).count() as u64).sum()
}

fn main() -> std::io::Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let mut out = stdout().lock();
    writeln!(out, "{:<16}{:>12}{:>14}{:>8}", "log", "scan MB/s", "lines MB/s", "ratio")?;
    let logs: [(&str, Lines); 3] = [("training", training), ("bar", bar), ("errors", errors)];
    for (name, line) in logs {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let log = log(line);
        let (scan, ends) = (speed(&log, scan), speed(&log, line_ends));
        writeln!(out, "{name:<16}{scan:>12.0}{ends:>14.0}{:>8.3}", scan / ends)?;
    }
    Ok(())
}
