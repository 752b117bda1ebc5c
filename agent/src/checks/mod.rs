//! Health checks before training.
//!
//! They run in a process of their own, this program once more as `preflight`: a driver that crashes while it is asked, a mount that
//! never answers and a command that hangs take that process with them and not the agent, and it can be killed with all it started.
//! It tells each finding on a line as soon as there is one, so that one stuck check costs none of the others.

mod devices;
mod kernel;
mod own;
pub mod preflight;
mod rendezvous;
mod storage;

use std::{
    io,
    os::fd::OwnedFd,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use engine::{
    checks::{Check, CheckFinding, CheckOrder, CheckOutcome, limits},
    sync::Launch,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::unix::pipe,
    task::JoinHandle,
};

use crate::{config::Config, launch};

/// What the process of the checks may take beyond the longest limit of its checks: to start, and to tell.
const MARGIN: Duration = Duration::from_secs(5);
/// Bytes of findings that are read; each has limits of its own.
const FINDINGS_BYTES: u64 = 256 * 1024;
/// How long it is waited for what checks left behind to be gone before the launch starts beside it: what SIGKILL does not end by then
/// waits inside the kernel.
const CLEAR_LIMIT: Duration = Duration::from_secs(2);
/// Pause between two looks at what is left.
const CLEAR_PAUSE: Duration = Duration::from_millis(5);

/// The checks of one launch while they run.
pub struct Checking {
    /// The launch.
    pub launch: u32,
    findings: JoinHandle<Vec<CheckFinding>>,
}

impl Checking {
    /// Starts them. Only to be called from the agent's main thread, as everything that starts a process.
    pub fn start(launch: &Launch, order: &CheckOrder, config: &Config, clock_off: Option<i64>) -> Self {
        tracing::info!("launch {}: {} health checks", launch.number, order.checks.len());
        let limit = longest(order, config.check_limit) + MARGIN;
        let asked = order.checks.clone();
        let findings = match spawn(launch, order, config, clock_off) {
            Ok(told) => tokio::spawn(collect(told, asked, limit)),
            Err(why) => {
                let text = format!("the checks could not be started: {why}");
                tokio::spawn(async move { complete(Vec::new(), &asked, CheckOutcome::Skipped, &text) })
            }
        };
        Self { launch: launch.number, findings }
    }

    /// Waits for what they find.
    pub async fn found(&mut self) -> Vec<CheckFinding> {
        (&mut self.findings).await.unwrap_or_default()
    }
}

impl Drop for Checking {
    fn drop(&mut self) {
        self.findings.abort();
    }
}

/// The longest that a check of an order may take.
fn longest(order: &CheckOrder, cap: Option<Duration>) -> Duration {
    order.checks.iter().map(|check| limit_of(*check, cap)).max().unwrap_or_default()
}

/// How long a check may take.
fn limit_of(check: Check, cap: Option<Duration>) -> Duration {
    let own = Duration::from_secs(check.limit_seconds());
    cap.map_or(own, |cap| own.min(cap))
}

fn spawn(
    launch: &Launch,
    order: &CheckOrder,
    config: &Config,
    clock_off: Option<i64>,
) -> io::Result<pipe::Receiver> {
    // This very program, also where its file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    let names: Vec<_> = order.checks.iter().map(|check| check.as_str()).collect();
    command.args(["preflight", "--json", "--checks", &names.join(",")]);
    command.arg(format!("--devices={}", order.devices));
    if config.ranks {
        command.arg(format!("--rendezvous={}:{}", launch.master_addr, launch.master_port));
    }
    if let Some(off) = clock_off {
        command.arg(format!("--clock-off-micros={off}"));
    }
    if let Some(limit) = config.check_limit {
        command.arg(format!("--limit-seconds={}", limit.as_secs()));
    }
    if let Some(own) = &order.command {
        command.arg("--").args(own);
    }
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    launch::set_environment(&mut command, config, launch, 0);
    if !config.ranks {
        // Where no rendezvous is told none is looked for.
        command.env_remove("MASTER_ADDR");
    }
    launch::tie_to_parent(&mut command);
    command.spawn()?;
    pipe::Receiver::from_owned_fd(OwnedFd::from(reader))
}

/// Reads findings until there is one of each check, the process has ended, or the time is over.
async fn collect(told: pipe::Receiver, asked: Vec<Check>, limit: Duration) -> Vec<CheckFinding> {
    let end = tokio::time::Instant::now() + limit;
    let mut lines = BufReader::new(told.take(FINDINGS_BYTES)).split(b'\n');
    let mut found: Vec<CheckFinding> = Vec::new();
    while found.len() < asked.len() {
        match tokio::time::timeout_at(end, lines.next_segment()).await {
            Ok(Ok(Some(line))) => {
                let finding = serde_json::from_slice::<CheckFinding>(&line).ok();
                let is_new = |finding: &CheckFinding| {
                    asked.contains(&finding.check) && found.iter().all(|other| other.check != finding.check)
                };
                found.extend(finding.filter(is_new));
            }
            Ok(Ok(None) | Err(_)) => {
                let text = "the process of the checks ended before it told of this one";
                return complete(found, &asked, CheckOutcome::Skipped, text);
            }
            Err(_) => {
                let text =
                    format!("no answer within {} s, and the checks did not end either", limit.as_secs());
                return complete(found, &asked, CheckOutcome::TimedOut, &text);
            }
        }
    }
    found
}

/// Adds a finding for each check that has none.
fn complete(
    mut found: Vec<CheckFinding>,
    asked: &[Check],
    outcome: CheckOutcome,
    text: &str,
) -> Vec<CheckFinding> {
    for check in asked {
        if found.iter().all(|finding| finding.check != *check) {
            let found_so = Found { outcome, ..Found::passed(text) };
            found.push(found_so.of(*check, Duration::ZERO));
        }
    }
    found
}

/// What checks left behind, until it is gone.
#[derive(Clone, Copy, Debug)]
pub struct Clearing {
    since: Instant,
    /// When to look again, once a launch waits for it.
    pub next: Option<Instant>,
}

impl Clearing {
    /// From now on.
    pub fn begin(now: Instant) -> Self {
        Self { since: now, next: None }
    }

    /// Looks again a little later; false once it was waited long enough.
    pub fn wait(&mut self, now: Instant) -> bool {
        self.next = Some(now + CLEAR_PAUSE);
        now.duration_since(self.since) < CLEAR_LIMIT
    }
}

/// What a check found, without which it is and how long it took.
#[derive(Debug)]
struct Found {
    outcome: CheckOutcome,
    text: String,
    remedy: Option<String>,
    measures: Vec<(&'static str, f64)>,
}

impl Found {
    fn passed(text: impl Into<String>) -> Self {
        Self { outcome: CheckOutcome::Passed, text: text.into(), remedy: None, measures: Vec::new() }
    }

    fn skipped(text: impl Into<String>) -> Self {
        Self { outcome: CheckOutcome::Skipped, ..Self::passed(text) }
    }

    fn failed(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { outcome: CheckOutcome::Failed, remedy: Some(remedy.into()), ..Self::passed(text) }
    }

    fn measured(mut self, name: &'static str, value: f64) -> Self {
        self.measures.push((name, value));
        self
    }

    fn of(self, check: Check, took: Duration) -> CheckFinding {
        let short = |text: String| text.chars().take(limits::TEXT_CHARS).collect();
        CheckFinding {
            check,
            outcome: self.outcome,
            seconds: took.as_secs_f64(),
            text: short(self.text),
            remedy: self.remedy.map(short),
            measures: self
                .measures
                .into_iter()
                .map(|(name, value)| engine::checks::Measure { name: name.to_owned(), value })
                .collect(),
        }
    }
}

/// A size as people read it.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value >= 10.0 || unit == 0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}
