//! Compares what the server wants with what runs, and converges.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use engine::{
    failure::{Exit, Phase, Signal},
    sync::{Desired, Launch, PortOffer, ReportBody},
};
use tokio::{
    signal::unix::{self, SignalKind},
    sync::watch,
    time::sleep,
};

use crate::{
    config::Config,
    net::{Claim, HeldPort},
    outcome::Outcome,
    running::Running,
    state::{LastLaunch, State},
    sync::{Contact, Link},
    tree::{self, Reaped, Tree},
};

/// How long the other local processes go on after one has failed, where nobody answers whether they shall.
const ALONE_LIMIT: Duration = Duration::from_secs(5);
/// How long the agent's end waits for the last reports to be taken.
const FAREWELL_LIMIT: Duration = Duration::from_secs(3);

/// Supervises until the attempt is over here; gives the agent's exit code.
///
/// # Errors
/// Names what the agent lacks to begin.
pub async fn run(config: Config) -> anyhow::Result<u8> {
    let tree = Tree::adopt()?;
    let mut signals = Signals::new().context("cannot handle signals")?;
    let logs = config.log_dir.display();
    fs::create_dir_all(&config.log_dir).with_context(|| format!("cannot make the log directory {logs}"))?;
    let state = Arc::new(State::open(&config.state_dir)?);
    recover(&state);
    let (offer, is_offer) = watch::channel(None);
    let link = Link::start(&config, &state, is_offer)?;
    let mut supervisor = Supervisor {
        config,
        tree,
        state,
        link,
        offer,
        held: None,
        claim: None,
        running: None,
        outcome: Outcome::NOTHING,
        ending: false,
        idle_since: Instant::now(),
        said_ready: false,
    };
    supervisor.offer_port();
    let code = supervisor.run(&mut signals).await;
    if !supervisor.state.all_acknowledged(FAREWELL_LIMIT).await {
        tracing::warn!("the last reports were not taken by the server; they are in the state directory");
    }
    tracing::info!("exit {code}");
    Ok(code)
}

/// Reports what became of a launch whose agent died: its processes were killed by the kernel at that moment.
fn recover(state: &State) {
    let next = state.launch().map_or(0, |last| last.number.saturating_add(1));
    if let Some(last) = state.launch().filter(|last| !last.stopped) {
        for rank in &last.running {
            let exit = Exit::Signal(Signal::KILL);
            let (rank, phase, evidence) = (*rank, Phase::Starting, Vec::new());
            let body = ReportBody::Exited { rank, exit, asked: false, step: None, phase, evidence };
            state.report(last.number, body);
        }
        state.report(last.number, ReportBody::Stopped);
        state.remember(LastLaunch { number: last.number, running: Vec::new(), stopped: true });
    }
    state.report(next, ReportBody::Ready);
}

struct Signals {
    child: unix::Signal,
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    /// Kept so that a file size limit is an error of a write and not the agent's death.
    _file_size: unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            child: unix::signal(SignalKind::child())?,
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
            _file_size: unix::signal(SignalKind::from_raw(libc::SIGXFSZ))?,
        })
    }
}

struct Supervisor {
    config: Config,
    tree: Tree,
    state: Arc<State>,
    link: Link,
    offer: watch::Sender<Option<PortOffer>>,
    held: Option<HeldPort>,
    /// Keeps the port of the launch that runs from other agents.
    claim: Option<Claim>,
    running: Option<Running>,
    /// Of the newest launch that is over.
    outcome: Outcome,
    /// The agent itself was told to end.
    ending: bool,
    /// Since when nothing runs.
    idle_since: Instant,
    /// The server knows that what it told to stop has stopped.
    said_ready: bool,
}

impl Supervisor {
    async fn run(&mut self, signals: &mut Signals) -> u8 {
        loop {
            let reaped = self.reap().await;
            if let Some(code) = self.converge(reaped).await {
                return code;
            }
            let lonely = self.lonely_deadline();
            let urgent = tokio::select! {
                _ = signals.child.recv() => false,
                _ = signals.terminate.recv() => self.told_to_end(),
                _ = signals.interrupt.recv() => self.told_to_end(),
                _ = signals.hang_up.recv() => self.told_to_end(),
                _ = self.link.desired.changed() => false,
                _ = self.link.contact.changed() => false,
                () = until(lonely) => false,
                urgent = wait_for_launch(self.running.as_ref()) => urgent,
            };
            if let Some(running) = &mut self.running {
                let now = Instant::now();
                if urgent {
                    running.report_news(&self.state, now)
                } else {
                    running.report_due_news(&self.state, now)
                }
            }
        }
    }

    /// Takes every child that has ended.
    async fn reap(&mut self) -> Reaped {
        loop {
            match tree::reap() {
                Reaped::Ended(pid, exit) => {
                    if let Some(running) = &mut self.running {
                        running.ended(pid, exit, &self.state, Instant::now()).await;
                    }
                }
                last => return last,
            }
        }
    }

    /// One step towards what is wanted; the exit code once that is to be gone.
    async fn converge(&mut self, reaped: Reaped) -> Option<u8> {
        let desired = if self.ending { Some(Desired::Exit) } else { self.link.desired.borrow().clone() };
        let now = Instant::now();
        let alone = self.lonely_deadline().is_some_and(|at| at <= now);
        let is_stopped = matches!(desired, Some(Desired::Stop { .. }));
        if let Some(running) = &mut self.running {
            if alone || must_stop(running.number(), desired.as_ref()) {
                running.ask_stop(&self.tree, now);
            }
            if !running.is_over(&self.tree, reaped, now) {
                return None;
            }
        }
        if let Some(running) = self.running.take() {
            self.outcome = running.finish(&self.state).await;
            self.idle_since = Instant::now();
            self.offer_port();
        }
        match desired {
            Some(Desired::Run { launch }) if self.is_new(launch.number) => self.start(launch),
            Some(Desired::Stop { launch }) if self.is_new(launch) => {
                self.state.report(launch, ReportBody::Stopped);
                self.state.remember(LastLaunch { number: launch, running: Vec::new(), stopped: true });
                self.offer_port();
            }
            Some(Desired::Exit) => return Some(self.outcome.code()),
            _ if alone => {
                tracing::error!(
                    "the server was away for {:?}, nobody says what to do",
                    self.config.offline_limit
                );
                return Some(self.outcome.code_alone());
            }
            _ => {}
        }
        self.say_ready(is_stopped);
        None
    }

    /// What was told to stop has no process any more, and is ready for what comes next. Told once for each such order: the server may
    /// have asked before, and for another reason.
    fn say_ready(&mut self, is_stopped: bool) {
        if is_stopped && !self.said_ready {
            self.state.report(self.next(), ReportBody::Ready);
        }
        self.said_ready = is_stopped;
    }

    fn start(&mut self, launch: Launch) {
        let number = launch.number;
        tracing::info!("launch {number} starts, rendezvous at {}:{}", launch.master_addr, launch.master_port);
        self.claim = self.held.take().map(HeldPort::release);
        // Remembered first: whatever happens to the agent now, this launch is not started a second time.
        let running = (0..launch.local_world_size).map(|local| launch.first_rank + local).collect();
        self.state.remember(LastLaunch { number, running, stopped: false });
        match Running::start(launch, &self.config, &self.state, Instant::now()) {
            Ok(running) => self.running = Some(running),
            Err(why) => {
                let text = format!("cannot read the output of the program: {why}");
                tracing::error!("{text}");
                self.state.report(number, ReportBody::StartFailed { text });
                self.state.report(number, ReportBody::Stopped);
                self.state.remember(LastLaunch { number, running: Vec::new(), stopped: true });
                self.outcome.start_failed(&why);
                self.idle_since = Instant::now();
            }
        }
        self.offer_port();
    }

    fn is_new(&self, number: u32) -> bool {
        self.state.launch().is_none_or(|last| last.number < number)
    }

    /// The launch that may come next.
    fn next(&self) -> u32 {
        self.state.launch().map_or(0, |last| last.number.saturating_add(1))
    }

    /// Offers a port for the launch that may come next.
    fn offer_port(&mut self) {
        let next = self.next();
        if self.held.as_ref().is_some_and(|held| held.offer().launch == next) {
            return;
        }
        match HeldPort::take(next) {
            Ok(held) => {
                self.offer.send_replace(Some(held.offer()));
                self.held = Some(held);
            }
            Err(why) => tracing::error!("no port is free for the rendezvous of launch {next}: {why}"),
        }
    }

    /// The agent was told to end; told twice, it waits for nobody.
    fn told_to_end(&mut self) -> bool {
        if let Some(running) = self.running.as_mut().filter(|_| self.ending) {
            running.hurry(Instant::now());
        }
        self.ending = true;
        false
    }

    /// When the agent acts without the server: ends the rest of a launch that is broken, or gives up waiting.
    fn lonely_deadline(&self) -> Option<Instant> {
        let Contact::Away(since) = *self.link.contact.borrow() else { return None };
        match &self.running {
            Some(running) => running.failed_at().map(|at| at.max(since) + ALONE_LIMIT),
            None => Some(self.idle_since.max(since) + self.config.offline_limit),
        }
    }
}

/// Whether the running launch is not what is wanted.
fn must_stop(running: u32, desired: Option<&Desired>) -> bool {
    match desired {
        None | Some(Desired::Wait) => false,
        Some(Desired::Run { launch }) => running < launch.number,
        Some(Desired::Stop { launch }) => running <= *launch,
        Some(Desired::Exit) => true,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep(at.saturating_duration_since(Instant::now())).await,
        None => std::future::pending().await,
    }
}

/// Waits until the running launch needs something; true if its output has urgent news.
async fn wait_for_launch(running: Option<&Running>) -> bool {
    let Some(running) = running else { return std::future::pending().await };
    tokio::select! {
        () = running.urgent() => true,
        () = running.wake() => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u32) -> Desired {
        let launch = Launch {
            number,
            master_addr: "h".to_owned(),
            master_port: 1,
            world_size: 1,
            first_rank: 0,
            local_world_size: 1,
            stop_grace_seconds: 1,
            watch: None,
        };
        Desired::Run { launch }
    }

    #[test]
    fn a_launch_is_stopped_only_for_a_newer_one_or_when_asked() {
        for (case, desired, want) in [
            ("nothing was said yet", None, false),
            ("nothing is decided", Some(Desired::Wait), false),
            ("an old answer", Some(run(1)), false),
            ("the same again", Some(run(2)), false),
            ("the next launch", Some(run(3)), true),
            ("an old stop", Some(Desired::Stop { launch: 1 }), false),
            ("its stop", Some(Desired::Stop { launch: 2 }), true),
            ("the stop of a launch it has not seen", Some(Desired::Stop { launch: 3 }), true),
            ("the end", Some(Desired::Exit), true),
        ] {
            assert_eq!(must_stop(2, desired.as_ref()), want, "{case}");
        }
    }
}
