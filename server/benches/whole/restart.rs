//! From the death of a rank to the first line of the last rank that is started again: in place by Holdfast, by torchrun, and what
//! starting the interpreters alone takes.

use std::{
    fs,
    io::{Write, stdout},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use server::clock::{Clock, SystemClock};

use crate::{
    harness::{self, World},
    support::{Outcome, Samples},
};

/// Crashes of each.
const CRASHES: u32 = 20;
/// Ranks of the job, one in each replica.
const RANKS: u32 = 4;
/// Between a start and the next crash, so that a crash comes out of calm.
const CALM: Duration = Duration::from_millis(200);
/// How often a file is looked for. The moments are in the files, so this is no part of any figure.
const LOOK: Duration = Duration::from_millis(2);
/// Longest wait for a file.
const PATIENCE: Duration = Duration::from_secs(60);
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/whole/crash.py");

/// Measures and prints.
pub fn run() -> Outcome<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut bare = Bare::new()?;
        let mut out = stdout();
        writeln!(
            out,
            "restart: from the death of one of {RANKS} ranks to the first line of the last new one:"
        )?;
        let holdfast = holdfast(&mut bare).await?;
        line(&mut out, "Holdfast, in place (goal <= 0.3 s)", &holdfast)?;
        let torchrun = torchrun(&mut bare).await;
        match &torchrun {
            Ok(torchrun) => line(&mut out, "torchrun --monitor_interval 0.1", torchrun)?,
            Err(why) => writeln!(out, "  torchrun was not measured: {why}")?,
        }
        line(&mut out, "one interpreter alone", &bare.one)?;
        line(&mut out, &format!("{RANKS} interpreters at once"), &bare.all)?;
        let ratio = |to: &Samples| holdfast.median() / to.median();
        write!(out, "  Holdfast takes {:.1} x one interpreter", ratio(&bare.one))?;
        write!(out, ", {:.1} x {RANKS} at once", ratio(&bare.all))?;
        match &torchrun {
            Ok(torchrun) => writeln!(out, ", {:.2} x torchrun", ratio(torchrun))?,
            Err(_) => writeln!(out)?,
        }
        Ok(())
    })
}

fn line(out: &mut impl Write, what: &str, seconds: &Samples) -> Outcome<()> {
    let (median, p95) = (seconds.median(), seconds.p95());
    Ok(writeln!(out, "  {what:<36} median {median:6.3} s, p95 {p95:6.3} s")?)
}

/// A job of the real server with real agents.
async fn holdfast(bare: &mut Bare) -> Outcome<Samples> {
    let place = Place::new()?;
    let world = World::start().await;
    world
        .create(&json!({
            "name": "crashing", "kind": "pytorchjob", "cluster": "local", "replicas": RANKS,
            "command": [harness::python(), PROGRAM, place.path("")],
            "fault_tolerance": {
                "auto_failover": true, "max_task_restarts": 0,
                "policy": {"enabled": true, "type": "on_any_failure", "max_in_place_restarts": CRASHES},
            },
        }))
        .await;
    place.crashes(bare).await
}

/// The same program under torchrun, which looks for failures ten times a second as its newer versions do by themselves.
async fn torchrun(bare: &mut Bare) -> Outcome<Samples> {
    let python = harness::python();
    let check =
        Command::new(&python).args(["-c", "import torch.distributed.run"]).stderr(Stdio::null()).status()?;
    if !check.success() {
        return Err(format!("PyTorch is not installed for {python}").into());
    }
    let place = Place::new()?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let torchrun = Command::new(&python)
        .args(["-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", &RANKS.to_string()])
        .args(["--rdzv_backend", "c10d", "--rdzv_endpoint", &format!("127.0.0.1:{port}")])
        .args(["--monitor_interval", "0.1", "--max_restarts", &CRASHES.to_string()])
        // PyTorch 1.13 under Python 3.11 and later fails where nothing is said about output.
        .args(["--redirects", "1", "--tee", "2", "--log_dir"])
        .arg(place.path(""))
        .arg(PROGRAM)
        .arg(place.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let _torchrun = Ended(torchrun);
    place.crashes(bare).await
}

/// A program that is told to end, with all that it has started.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Killed outright it would leave its ranks.
        let told = i32::try_from(self.0.id()).map(|pid| kill(Pid::from_raw(pid), Signal::SIGTERM));
        if matches!(told, Ok(Ok(()))) {
            let _ = self.0.wait();
        }
    }
}

/// Starts of the interpreter with nothing around it, measured in between all others.
struct Bare {
    place: Place,
    one: Samples,
    all: Samples,
}

impl Bare {
    fn new() -> Outcome<Self> {
        Ok(Self { place: Place::new()?, one: Samples::default(), all: Samples::default() })
    }

    async fn measure(&mut self) -> Outcome<()> {
        let one = self.start(1).await?;
        self.one.push(one);
        let all = self.start(RANKS).await?;
        self.all.push(all);
        Ok(())
    }

    /// Seconds until the last of so many has run its first line.
    async fn start(&self, count: u32) -> Outcome<f64> {
        let begin = SystemClock.now().micros();
        let names: Vec<_> = (0..count).map(|n| format!("bare-{n}")).collect();
        let started = names.iter().map(|name| {
            Command::new(harness::python()).arg(PROGRAM).arg(self.place.path("")).arg(name).spawn()
        });
        let mut last = begin;
        for mut child in started.collect::<Result<Vec<_>, _>>()? {
            child.wait()?;
        }
        for name in &names {
            last = last.max(self.place.moment(name).await?);
            fs::remove_file(self.place.path(name))?;
        }
        Ok((last - begin) as f64 / 1e6)
    }
}

/// The directory in which the program and this one meet.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Outcome<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Seconds of each crash, by whomever the program is started again.
    async fn crashes(&self, bare: &mut Bare) -> Outcome<Samples> {
        let mut seconds = Samples::default();
        self.began(0).await?;
        for launch in 0..CRASHES {
            bare.measure().await?;
            tokio::time::sleep(CALM).await;
            fs::write(self.path(&format!("crash-{launch}")), "")?;
            let died = self.moment(&format!("died-{launch}")).await?;
            let began = self.began(launch + 1).await?;
            seconds.push((began - died) as f64 / 1e6);
        }
        Ok(seconds)
    }

    /// When the last rank of a launch ran its first line.
    async fn began(&self, launch: u32) -> Outcome<i64> {
        let mut last = 0;
        for rank in 0..RANKS {
            last = last.max(self.moment(&format!("began-{launch}-{rank}")).await?);
        }
        Ok(last)
    }

    /// The moment that a file tells, once it is there, microseconds.
    async fn moment(&self, name: &str) -> Outcome<i64> {
        let begin = Instant::now();
        loop {
            match fs::read_to_string(self.path(name)) {
                Ok(text) => return Ok(text.trim().parse()?),
                Err(_) if begin.elapsed() < PATIENCE => tokio::time::sleep(LOOK).await,
                Err(why) => return Err(format!("{name} was not written: {why}").into()),
            }
        }
    }
}
