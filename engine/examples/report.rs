//! How well labelled logs are classified: `cargo run -p engine --example report -- samples.jsonl`.
//!
//! A line of the file is one object with `id`, `label` (a failure type, or `NONE`), `log`, and maybe
//! `exit_code` and `signal`.

use std::{
    collections::BTreeMap,
    error::Error,
    fs::File,
    io::{BufRead, BufReader, Write, stdout},
};

use engine::{
    classify::classify_log,
    failure::{Exit, Signal, Verdict},
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Sample {
    id: String,
    label: String,
    log: String,
    exit_code: Option<i64>,
    signal: Option<String>,
}

impl Sample {
    /// A launcher that exits with 1 often names the signal that ended its worker: the signal says more.
    fn exit(&self) -> Option<Exit> {
        let signal = self.signal.as_deref().and_then(Signal::parse).map(Exit::Signal);
        signal.or_else(|| self.exit_code.map(Exit::from_code))
    }
}

/// How often a label was given one type.
#[derive(Default)]
struct Report {
    counts: BTreeMap<(String, String), u32>,
    misses: Vec<String>,
}

impl Report {
    fn add(&mut self, sample: &Sample, verdict: Option<&Verdict>) {
        let got = verdict.map_or("NONE", |verdict| verdict.failure_type.as_str());
        if got != sample.label {
            let rule = verdict.map_or("-", |verdict| &verdict.rule);
            let line = verdict.and_then(|verdict| verdict.root.as_ref()?.line.as_deref()).unwrap_or("-");
            let line: String = line.chars().take(100).collect();
            self.misses.push(format!("{} want {} got {got} by {rule}: {line}", sample.id, sample.label));
        }
        *self.counts.entry((sample.label.clone(), got.to_owned())).or_default() += 1;
    }

    fn total(&self, which: impl Fn(&str, &str) -> bool) -> u32 {
        self.counts.iter().filter(|((want, got), _)| which(want, got)).map(|(_, count)| count).sum()
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let (right, all) = (self.total(|want, got| want == got), self.total(|_, _| true));
        writeln!(out, "{right} of {all} right: {:.1} %\n", percent(right, all))?;
        let mut labels: Vec<&str> = self.counts.keys().flat_map(|(want, got)| [want.as_str(), got]).collect();
        labels.sort_unstable();
        labels.dedup();
        write!(out, "{:<11}", "want \\ got")?;
        for label in &labels {
            write!(out, "{label:>11}")?;
        }
        writeln!(out, "{:>11}{:>11}", "recall %", "precis. %")?;
        for want in &labels {
            write!(out, "{want:<11}")?;
            for got in &labels {
                write!(out, "{:>11}", self.total(|w, g| w == *want && g == *got))?;
            }
            let hits = self.total(|w, g| w == *want && g == *want);
            let recall = percent(hits, self.total(|w, _| w == *want));
            let precision = percent(hits, self.total(|_, g| g == *want));
            writeln!(out, "{recall:>11.1}{precision:>11.1}")?;
        }
        writeln!(out)?;
        self.misses.iter().try_for_each(|miss| writeln!(out, "{miss}"))
    }
}

fn percent(part: u32, whole: u32) -> f64 {
    if whole == 0 { 100.0 } else { f64::from(part) * 100.0 / f64::from(whole) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("name the file with the labelled logs")?;
    let mut report = Report::default();
    for line in BufReader::new(File::open(&path)?).lines() {
        let sample: Sample = serde_json::from_str(&line?)?;
        report.add(&sample, classify_log(sample.log.as_bytes(), sample.exit()).as_ref());
    }
    report.write(&mut stdout().lock())?;
    Ok(())
}
