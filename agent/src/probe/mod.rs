//! The test of Bisect Diagnose: one process on each of some nodes. Each tests its own processor and memory; then they meet at the
//! rendezvous address, every two of them exchange data, and all reduce a vector in a ring. All results are known beforehand, so a wrong one
//! is a fault.
//!
//! The first rank hears all the others, compares the transfers, and tells everybody what came out: so each process says the same and ends
//! with the same code, and whoever reads one log knows. A process that is not heard in time is a finding like any other.

mod local;
mod meet;
mod transfer;

use std::{
    collections::BTreeSet,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use serde::{Deserialize, Serialize};

use meet::{Control, Joined};

/// Ends a probe that found a fault.
const FAULT: u8 = 1;
/// Ends a probe that cannot be started as it was asked for.
const WRONG_USAGE: u8 = 2;
/// Ends a probe that did not come to an end by itself, as `timeout` does.
const TOO_LATE: u8 = 124;
/// A transfer is slow below this share of what is usual: a link that works is never that slow, however busy its machines are.
const SLOW_SHARE: f64 = 0.1;
/// Most findings that are told of one process.
const FINDINGS: usize = 16;
/// Processes of one probe; as many as a job has replicas.
const WORLD: u32 = 4_096;

/// Settings of `probe`.
#[derive(Clone, Debug, Args)]
pub struct ProbeArgs {
    /// The number of this process, from 0
    #[arg(long, env = "RANK", default_value_t = 0)]
    rank: u32,

    /// How many processes take part
    #[arg(long, env = "WORLD_SIZE", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(WORLD)))]
    world: u32,

    /// Where the first process is reached
    #[arg(long, env = "MASTER_ADDR", value_name = "HOST", default_value = "127.0.0.1")]
    address: String,

    /// The port that the first process listens on
    #[arg(long, env = "MASTER_PORT", value_name = "PORT", default_value_t = 29_500)]
    port: u16,

    /// The node's name, for people
    #[arg(long, env = "HOLDFAST_NODE", value_name = "NAME")]
    node: Option<String>,

    /// After this long the probe ends as failed, whatever it waits for
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(5..=3_600))]
    limit_seconds: u64,

    /// How long the processor is tested
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    processor_seconds: f64,

    /// Memory to test; never more than a quarter of what is free
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    memory_mib: u64,

    /// Data that every two processes exchange
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    transfer_mib: u64,

    /// What a transfer is expected to reach; less than a tenth of it is too slow. Without it transfers are compared with each other
    #[arg(long, env = "HOLDFAST_PROBE_EXPECT", value_name = "MB/S")]
    expect: Option<f64>,

    /// For tests of the diagnosis itself: fail in this way, as KIND or KIND@NODE, several with commas. Kinds: cpu, memory, corrupt, slow,
    /// silent, hang
    #[arg(long, value_name = "KIND[@NODE]", value_delimiter = ',', value_parser = Injected::parse)]
    inject: Vec<Injected>,
}

/// A fault for tests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Injected {
    kind: Kind,
    /// On this node only.
    node: Option<String>,
}

/// Kinds of faults for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Cpu,
    Memory,
    Corrupt,
    Slow,
    Silent,
    Hang,
}

impl Injected {
    fn parse(text: &str) -> Result<Self, String> {
        let (kind, node) = text.split_once('@').map_or((text, None), |(kind, node)| (kind, Some(node)));
        let kind = match kind {
            "cpu" => Kind::Cpu,
            "memory" => Kind::Memory,
            "corrupt" => Kind::Corrupt,
            "slow" => Kind::Slow,
            "silent" => Kind::Silent,
            "hang" => Kind::Hang,
            other => return Err(format!("`{other}` is none of cpu, memory, corrupt, slow, silent, hang")),
        };
        Ok(Self { kind, node: node.map(str::to_owned) })
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be 0.1 to 600".to_owned()),
    }
}

/// One fault that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Finding {
    /// What was tested.
    test: String,
    /// What was wrong.
    text: String,
}

/// A transfer between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Measured {
    from: u32,
    to: u32,
    megabytes_per_second: f64,
}

/// What one process found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Report {
    findings: Vec<Finding>,
    measured: Vec<Measured>,
    /// Of the ring.
    reduced: Option<f64>,
}

impl Report {
    fn find(&mut self, test: &str, text: String) {
        if self.findings.len() < FINDINGS {
            self.findings.push(Finding { test: test.to_owned(), text });
        }
    }
}

/// What came out for all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Verdict {
    /// `test on node: text`, empty where all is well.
    faults: Vec<String>,
    /// The slowest transfer of all pairs.
    slowest: Option<Measured>,
    reduced: Option<f64>,
}

/// Runs the probe.
pub fn run(args: &ProbeArgs) -> ExitCode {
    if args.rank >= args.world {
        say(&format!("rank {} is not below the number of processes, {}", args.rank, args.world));
        return ExitCode::from(WRONG_USAGE);
    }
    end_in_time(Duration::from_secs(args.limit_seconds));
    let code = match Probe::new(args).verdict() {
        Ok(verdict) => verdict.tell(),
        Err(finding) => {
            say(&format!("FAIL {}: {}", finding.test, finding.text));
            FAULT
        }
    };
    ExitCode::from(code)
}

/// One process of the probe.
struct Probe<'a> {
    args: &'a ProbeArgs,
    node: String,
    injected: BTreeSet<Kind>,
}

impl<'a> Probe<'a> {
    fn new(args: &'a ProbeArgs) -> Self {
        let node = args.node.clone().unwrap_or_else(|| format!("rank {}", args.rank));
        let here = |fault: &&Injected| fault.node.as_ref().is_none_or(|wanted| *wanted == node);
        let injected: BTreeSet<_> = args.inject.iter().filter(here).map(|fault| fault.kind).collect();
        if !injected.is_empty() {
            say(&format!("faults are injected on {node} for a test: {injected:?}"));
        }
        Self { args, node, injected }
    }

    fn has(&self, kind: Kind) -> bool {
        self.injected.contains(&kind)
    }

    fn verdict(&self) -> Result<Verdict, Finding> {
        let mut report = Report::default();
        say(&format!("{} of {} on {}", self.args.rank + 1, self.args.world, self.node));
        self.test_processor(&mut report);
        self.test_memory(&mut report);
        // Both end with the time limit.
        while self.has(Kind::Silent) || self.has(Kind::Hang) && self.args.world == 1 {
            std::thread::park();
        }
        if self.args.world == 1 {
            return Ok(judge(&[Heard { rank: 0, node: self.node.clone(), report }], self.args.expect));
        }
        let joined = Joined::join(self)?;
        if joined.is_complete() {
            self.exchange(&joined, &mut report);
            while self.has(Kind::Hang) {
                std::thread::park();
            }
        }
        match joined.control {
            Control::First(peers) => {
                let mut reports = vec![Heard { rank: 0, node: self.node.clone(), report }];
                let heard = meet::collect(peers, &joined.nodes, self.patience(), &mut reports);
                for &rank in &joined.missing {
                    let text = format!("nothing was heard of it within {} s", self.patience().as_secs());
                    let mut report = Report::default();
                    report.find("rendezvous", text);
                    reports.push(Heard { rank, node: format!("rank {rank}"), report });
                }
                let verdict = judge(&reports, self.args.expect);
                meet::tell(heard, &verdict);
                Ok(verdict)
            }
            Control::Other(mut stream) => meet::ask(&mut stream, &report, self.patience()),
        }
    }

    /// How long another process is waited for: what is left of the time, less a moment to say so.
    fn patience(&self) -> Duration {
        Duration::from_secs(self.args.limit_seconds.saturating_sub(5).max(3) / 3)
    }
}

/// What was heard of one process.
struct Heard {
    rank: u32,
    node: String,
    report: Report,
}

/// Puts all that was found together and compares the transfers.
fn judge(heard: &[Heard], expect: Option<f64>) -> Verdict {
    let name = |rank: u32| {
        let known = heard.iter().find(|one| one.rank == rank);
        known.map_or_else(|| format!("rank {rank}"), |one| one.node.clone())
    };
    let mut faults = Vec::new();
    for Heard { node, report, .. } in heard {
        faults.extend(report.findings.iter().map(|one| format!("{} on {node}: {}", one.test, one.text)));
    }
    let mut measured: Vec<_> = heard.iter().flat_map(|one| one.report.measured.iter().copied()).collect();
    measured.retain(|one| one.megabytes_per_second.is_finite());
    measured.sort_by(|a, b| a.megabytes_per_second.total_cmp(&b.megabytes_per_second));
    // One pair has nothing to be compared with.
    let pairs: BTreeSet<_> =
        measured.iter().map(|one| (one.from.min(one.to), one.from.max(one.to))).collect();
    let middle = measured.get(measured.len() / 2).filter(|_| pairs.len() > 2);
    let usual = expect.or(middle.map(|one| one.megabytes_per_second));
    if let Some(usual) = usual {
        let slow = measured.iter().filter(|one| one.megabytes_per_second < usual * SLOW_SHARE);
        for one in slow.take(FINDINGS) {
            faults.push(format!(
                "transfer from {} to {}: {:.1} MB/s, where {usual:.1} MB/s is usual",
                name(one.from),
                name(one.to),
                one.megabytes_per_second
            ));
        }
    }
    let reduced = heard.iter().filter_map(|one| one.report.reduced).reduce(f64::min);
    Verdict { faults, slowest: measured.first().copied(), reduced }
}

impl Verdict {
    /// Says what came out; gives the code to end with.
    fn tell(&self) -> u8 {
        for fault in &self.faults {
            say(&format!("FAIL {fault}"));
        }
        let speed = match self.slowest {
            Some(one) => format!(", slowest transfer {:.1} MB/s", one.megabytes_per_second),
            None => String::new(),
        };
        let ring = match self.reduced {
            Some(speed) => format!(", all-reduce {speed:.1} MB/s"),
            None => String::new(),
        };
        match self.faults.len() {
            0 => say(&format!("PASS{speed}{ring}")),
            count => say(&format!("{count} faults found{speed}{ring}")),
        }
        if self.faults.is_empty() { 0 } else { FAULT }
    }
}

/// Ends the process when its time is over, whatever its threads wait for.
fn end_in_time(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::park_timeout(limit);
        say(&format!("FAIL time: not done within {} s", limit.as_secs()));
        std::process::exit(i32::from(TOO_LATE));
    });
}

/// One line of output. Where nobody reads it there is nobody to be told.
fn say(text: &str) {
    let _ = writeln!(io::stdout().lock(), "probe: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(speeds: &[(u32, u32, f64)]) -> [Heard; 2] {
        let one = |&(from, to, megabytes_per_second)| Measured { from, to, megabytes_per_second };
        let report = Report { measured: speeds.iter().map(one).collect(), ..Report::default() };
        [
            Heard { rank: 0, node: "node-1".to_owned(), report },
            Heard { rank: 1, node: "node-2".to_owned(), report: Report::default() },
        ]
    }

    #[test]
    fn a_slow_link_is_found_by_comparison_and_a_busy_machine_is_none() {
        for (case, speeds, expect, slow) in [
            ("alike", &[(0, 1, 900.0), (0, 2, 800.0), (1, 2, 1_000.0)][..], None, 0),
            ("a fifth is busy", &[(0, 1, 900.0), (0, 2, 180.0), (1, 2, 1_000.0)], None, 0),
            ("a twentieth is broken", &[(0, 1, 900.0), (0, 2, 45.0), (1, 2, 1_000.0)], None, 1),
            ("a pair alone is compared with nothing", &[(0, 1, 900.0), (1, 0, 9.0)], None, 0),
            ("but with what is expected", &[(0, 1, 900.0), (1, 0, 9.0)], Some(900.0), 1),
            ("no number at all", &[], Some(900.0), 0),
        ] {
            let verdict = judge(&heard(speeds), expect);
            assert_eq!(verdict.faults.len(), slow, "{case}: {verdict:?}");
        }
    }

    #[test]
    fn nodes_of_a_slow_transfer_are_named() {
        let verdict = judge(&heard(&[(0, 1, 900.0), (1, 0, 9.0)]), Some(900.0));
        assert_eq!(verdict.faults, ["transfer from node-2 to node-1: 9.0 MB/s, where 900.0 MB/s is usual"]);
    }

    #[test]
    fn a_fault_is_injected_where_it_is_meant() {
        let at = |text: &str| Injected::parse(text).unwrap();
        assert_eq!(at("cpu@node-3"), Injected { kind: Kind::Cpu, node: Some("node-3".to_owned()) });
        assert_eq!(at("slow"), Injected { kind: Kind::Slow, node: None });
        assert!(Injected::parse("smoke").unwrap_err().contains("none of cpu"));
    }
}
