//! `holdfast-agent preflight`: makes the health checks and says what it found, to a person or, a line for each, to the agent.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use engine::{
    checks::{Check, CheckFinding, CheckOutcome},
    job::HEALTH_CHECKS,
};

use super::{Found, devices, kernel, limit_of, own, rendezvous, storage};

/// Settings of `preflight`.
#[derive(Debug, Args)]
pub struct PreflightArgs {
    /// Write each finding as JSON on a line of its own, as soon as there is one
    #[arg(long)]
    json: bool,

    /// Which checks to make; a COMMAND is one more
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = known, default_values = HEALTH_CHECKS)]
    checks: Vec<Check>,

    /// Where the program saves
    #[arg(long, env = "HOLDFAST_CHECKPOINT_DIR", value_name = "DIR")]
    checkpoint_dir: Option<PathBuf>,

    /// Where the ranks meet; without it MASTER_ADDR and MASTER_PORT
    #[arg(long, value_name = "HOST:PORT")]
    rendezvous: Option<String>,

    /// NVIDIA devices that there must be
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    devices: u32,

    /// How far the server's clock is ahead of this machine's, microseconds
    #[arg(long, hide = true, allow_hyphen_values = true)]
    clock_off_micros: Option<i64>,

    /// No check may take longer than this; each has a limit of its own besides
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    limit_seconds: Option<u64>,

    /// A check of your own: passes with exit code 0
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn known(name: &str) -> Result<Check, String> {
    Check::parse(name)
        .ok_or_else(|| format!("there is no such check; use any of: {}", HEALTH_CHECKS.join(", ")))
}

/// Makes the checks. 0: nothing is wrong; 1: something is.
pub fn run(args: &PreflightArgs) -> ExitCode {
    let mut checks = args.checks.clone();
    checks.extend((!args.command.is_empty()).then_some(Check::Command));
    checks.sort_unstable();
    checks.dedup();
    let cap = args.limit_seconds.map(Duration::from_secs);
    let mut found = Vec::new();
    let json = args.json;
    let out = io::stdout();
    let tell = |finding: CheckFinding| {
        if json && let Ok(line) = serde_json::to_string(&finding) {
            // Nobody listens any more: then nobody misses it.
            let _ = writeln!(out.lock(), "{line}").and_then(|()| out.lock().flush());
        }
        found.push(finding);
    };
    make(begin(&checks, args, cap), tell);
    found.sort_by_key(|finding| finding.check);
    if !json {
        let _ = out.lock().write_all(table(&found).as_bytes());
    }
    ExitCode::from(u8::from(found.iter().any(|finding| finding.outcome.is_bad())))
}

/// A check on its way.
struct Going {
    check: Check,
    began: Instant,
    limit: Duration,
    /// The process of a check that is one.
    own: Option<own::Own>,
}

/// Checks on their way, and where what they find comes.
struct All {
    going: Vec<Going>,
    told: mpsc::Receiver<(Check, Found)>,
}

/// Starts all checks, each in a thread of its own, so that none waits for another.
fn begin(checks: &[Check], args: &PreflightArgs, cap: Option<Duration>) -> All {
    let (tell, told) = mpsc::channel();
    let going = checks
        .iter()
        .map(|&check| {
            let limit = limit_of(check, cap);
            let began = Instant::now();
            let own = begin_one(check, args, limit, &tell);
            Going { check, began, limit, own }
        })
        .collect();
    All { going, told }
}

fn begin_one(
    check: Check,
    args: &PreflightArgs,
    limit: Duration,
    tell: &Sender<(Check, Found)>,
) -> Option<own::Own> {
    match check {
        Check::CheckpointDir => {
            // Absolute, so that what it stands in is seen.
            let dir = args.checkpoint_dir.as_ref().map(|dir| std::path::absolute(dir).unwrap_or(dir.clone()));
            in_thread(check, tell, move || storage::checkpoint_dir(dir.as_deref()));
        }
        Check::Shm => in_thread(check, tell, || storage::shm(Path::new("/dev/shm"))),
        Check::Rendezvous => {
            let address = args.rendezvous.clone().or_else(told_rendezvous);
            in_thread(check, tell, move || rendezvous::rendezvous(address.as_deref(), limit));
        }
        Check::Clock => {
            let off = args.clock_off_micros;
            in_thread(check, tell, move || clock(off));
        }
        Check::Devices => {
            let asked = args.devices;
            in_thread(check, tell, move || devices::devices(asked));
        }
        Check::KernelLog => in_thread(check, tell, kernel::kernel_log),
        Check::Command => match own::start(&args.command) {
            Ok((own, wait)) => {
                in_thread(check, tell, wait);
                return Some(own);
            }
            Err(found) => in_thread(check, tell, move || found),
        },
    }
    None
}

fn in_thread(check: Check, tell: &Sender<(Check, Found)>, look: impl FnOnce() -> Found + Send + 'static) {
    let tell = tell.clone();
    // Whoever waited has given up where nobody takes it.
    thread::spawn(move || drop(tell.send((check, look()))));
}

fn told_rendezvous() -> Option<String> {
    let port = std::env::var("MASTER_PORT").ok()?;
    Some(format!("{}:{port}", std::env::var("MASTER_ADDR").ok()?))
}

/// Tells each finding once it is there, or once its time is over.
fn make(all: All, mut tell: impl FnMut(CheckFinding)) {
    let All { mut going, told } = all;
    while let Some(next) = going.iter().map(|one| one.began + one.limit).min() {
        match told.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok((check, found)) => {
                if let Some(index) = going.iter().position(|one| one.check == check) {
                    end(going.swap_remove(index), found, &mut tell);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                let (late, left): (Vec<_>, Vec<_>) =
                    going.into_iter().partition(|one| one.began + one.limit <= now);
                going = left;
                for one in late {
                    let found = timed_out(&one);
                    end(one, found, &mut tell);
                }
            }
            // A check that panicked tells nothing.
            Err(RecvTimeoutError::Disconnected) => {
                for one in std::mem::take(&mut going) {
                    end(one, Found::skipped("the check itself broke"), &mut tell);
                }
            }
        }
    }
}

fn end(one: Going, found: Found, tell: &mut impl FnMut(CheckFinding)) {
    if let Some(own) = &one.own {
        own.kill();
    }
    tell(found.of(one.check, one.began.elapsed()));
}

fn timed_out(one: &Going) -> Found {
    let said = one.own.as_ref().map(own::Own::said).filter(|said| !said.is_empty());
    let said = said.map(|said| format!("; it said: {said}")).unwrap_or_default();
    let remedy = match one.check {
        Check::CheckpointDir | Check::Shm => {
            "Look at the mount: its server, or the network to it, does not answer."
        }
        Check::Rendezvous => "Look at the name service of this node and the network to the first replica.",
        Check::Devices => {
            "Look at the node: a driver that does not answer mostly needs a restart of the node."
        }
        Check::Clock | Check::KernelLog => "Look at the node: what is asked here never takes long.",
        Check::Command => "Make the command end by itself in time, or leave it out.",
    };
    let limit = one.limit.as_secs_f64();
    Found {
        outcome: CheckOutcome::TimedOut,
        ..Found::failed(format!("did not end within {limit} s{said}"), remedy)
    }
}

/// How far the clock is off, by what the server said.
fn clock(off_micros: Option<i64>) -> Found {
    let Some(off) = off_micros else { return Found::skipped("no server is there to compare with") };
    let seconds = off.unsigned_abs() as f64 / 1e6;
    let direction = if off > 0 { "behind" } else { "ahead of" };
    let found = if seconds > engine::checks::limits::CLOCK_SECONDS as f64 {
        Found::failed(
            format!("the clock is {seconds:.0} s {direction} the server's"),
            "Start time synchronisation (chrony, NTP) on the node, or on the server if it is wrong there.",
        )
    } else {
        Found::passed(format!("the clock is {seconds:.3} s {direction} the server's"))
    };
    found.measured("off_seconds", -(off as f64) / 1e6)
}

/// What was found, for people.
fn table(found: &[CheckFinding]) -> String {
    let mut text = String::new();
    for finding in found {
        let outcome = match finding.outcome {
            CheckOutcome::Passed => "passed",
            CheckOutcome::Failed => "FAILED",
            CheckOutcome::Skipped => "skipped",
            CheckOutcome::TimedOut => "TIMED OUT",
        };
        let (name, seconds) = (finding.check.as_str(), finding.seconds);
        text.push_str(&format!("{name:<15} {outcome:<9} {seconds:>7.3} s  {}\n", finding.text));
        if let Some(remedy) = &finding.remedy {
            text.push_str(&format!("{:<36} {remedy}\n", ""));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_never_ends_is_a_finding_and_holds_up_no_other_s43() {
        let (tell, told) = mpsc::channel();
        let (_never, wait) = mpsc::channel::<()>();
        in_thread(Check::Devices, &tell, move || {
            let _ = wait.recv();
            Found::passed("never")
        });
        in_thread(Check::Shm, &tell, || Found::passed("quick"));
        let going = |check, millis| Going {
            check,
            began: Instant::now(),
            limit: Duration::from_millis(millis),
            own: None,
        };
        let all = All { going: vec![going(Check::Devices, 300), going(Check::Shm, 20_000)], told };
        let mut found = Vec::new();
        let began = Instant::now();
        make(all, |finding| found.push((finding.check, finding.outcome)));
        assert_eq!(found, [(Check::Shm, CheckOutcome::Passed), (Check::Devices, CheckOutcome::TimedOut)]);
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_clock_that_is_far_off_fails_whichever_way() {
        for (off, outcome, words) in [
            (None, CheckOutcome::Skipped, "no server"),
            (Some(1_500), CheckOutcome::Passed, "0.002 s behind"),
            (Some(-59_000_000), CheckOutcome::Passed, "ahead of"),
            (Some(61_000_000), CheckOutcome::Failed, "61 s behind"),
            (Some(i64::MIN), CheckOutcome::Failed, "ahead of"),
        ] {
            let found = clock(off);
            assert_eq!(found.outcome, outcome, "{off:?}");
            assert!(found.text.contains(words), "{found:?}");
        }
    }

    #[test]
    fn the_table_names_what_failed_and_what_to_do() {
        let bad = Found::failed("it is full", "Free some.").of(Check::Shm, Duration::from_millis(5));
        let want = "shm             FAILED      0.005 s  it is full\n                                     Free some.\n";
        assert_eq!(table(&[bad]), want);
    }
}
