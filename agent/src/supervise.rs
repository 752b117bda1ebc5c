//! Compares what the server wants with what runs, and converges.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use engine::{
    checks::CheckFinding,
    failure::{Exit, Phase, Signal},
    record::{ExitReason, SaveOutcome},
    sync::{Desired, ExitNotice, Launch, PortOffer, ReportBody},
};
use tokio::{
    signal::unix::{self, SignalKind},
    sync::watch,
    time::sleep,
};

use crate::{
    checks::{Checking, Clearing},
    config::Config,
    net::{Claim, HeldPort},
    notify::Answer,
    outcome::Outcome,
    running::{self, Running},
    saving::{Saving, deadline_of},
    state::{LastLaunch, State},
    sync::{Contact, Link},
    testing::{TestNews, Testing},
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
        checking: None,
        checked: None,
        clearing: None,
        running: None,
        outcome: Outcome::NOTHING,
        ending: false,
        saving: None,
        testing: None,
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
    /// The health checks of the launch that is to come.
    checking: Option<Checking>,
    /// The newest launch whose checks were reported.
    checked: Option<u32>,
    /// Until nothing that checks started is left.
    clearing: Option<Clearing>,
    running: Option<Running>,
    /// Of the newest launch that is over.
    outcome: Outcome,
    /// The agent itself was told to end.
    ending: bool,
    /// The save before the end of the launch that runs, or ran last.
    saving: Option<Saving>,
    /// The newest test of the exit notification.
    testing: Option<Testing>,
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
            let others = self.saving.as_ref().filter(|_| self.ending).map(Saving::others_until);
            let others = others.filter(|until| *until > Instant::now());
            let clear = self.clearing.and_then(|clearing| clearing.next);
            let mut found = None;
            let urgent = tokio::select! {
                _ = signals.child.recv() => false,
                _ = signals.terminate.recv() => self.told_to_end(),
                _ = signals.interrupt.recv() => self.told_to_end(),
                _ = signals.hang_up.recv() => self.told_to_end(),
                _ = self.link.desired.changed() => false,
                _ = self.link.contact.changed() => false,
                () = until(lonely) => false,
                () = until(others) => false,
                answer = answer_of(self.saving.as_mut()) => self.take_answer(answer),
                news = news_of(self.testing.as_mut()) => self.take_test_news(news),
                () = until(clear) => false,
                findings = wait_for_checks(self.checking.as_mut()) => {
                    found = Some(findings);
                    false
                }
                urgent = wait_for_launch(self.running.as_ref()) => urgent,
            };
            if let Some(findings) = found {
                self.tell_checks(findings);
            }
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
        let wanted = self.link.desired.borrow().clone();
        let now = Instant::now();
        self.begin_save(wanted.as_ref(), now);
        self.follow_save(wanted.as_ref()).await;
        self.begin_test(wanted.as_ref());
        self.follow_test(wanted.as_ref()).await;
        let contact = *self.link.contact.borrow();
        let holds = self.saving.as_ref().is_some_and(|saving| saving.holds(wanted.as_ref(), contact, now));
        let desired =
            if self.ending && !(holds && self.running.is_some()) { Some(Desired::Exit) } else { wanted };
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
        if let Some(saving) = &mut self.saving {
            saving.end_with_program(&self.state).await;
        }
        if let Some(testing) = &mut self.testing {
            testing.end_with_program(&self.state).await;
        }
        if let Some(running) = self.running.take() {
            self.outcome = running.finish(&self.state).await;
            self.idle_since = Instant::now();
            self.offer_port();
        }
        self.give_up_checks(desired.as_ref());
        match desired {
            Some(Desired::Run { launch }) if self.is_new(launch.number) => self.begin(launch, reaped),
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

    /// The program is told to save, once for each launch: because the server says so, or because the agent is to end.
    fn begin_save(&mut self, wanted: Option<&Desired>, now: Instant) {
        let Some(running) = &mut self.running else { return };
        let number = running.number();
        let is_told = self.saving.as_ref().is_some_and(|saving| saving.launch() == number);
        let Some(within) = running.saves_within().filter(|_| !is_told) else { return };
        let (why, deadline) = match wanted {
            Some(Desired::Save { launch, notice }) if *launch == number => {
                let deadline = deadline_of(*notice, self.link.server_now(), within);
                ((notice.reason, self.ending), deadline)
            }
            Some(Desired::Exit | Desired::Stop { .. }) => return,
            _ if self.ending => ((ExitReason::Preempted, true), now + within),
            _ => return,
        };
        let port = running.tell_end();
        let mut saving = Saving::begin(number, port, why, deadline, &self.config.task_id, &self.state);
        if !running.leads() {
            let answer =
                Answer::of(SaveOutcome::NoAnswer, "its first process, which is the one to tell, has ended");
            saving.end(answer, &self.state);
        }
        self.saving = Some(saving);
    }

    /// A save ends with the process that was told, and where the server goes on without it.
    async fn follow_save(&mut self, wanted: Option<&Desired>) {
        let (Some(saving), Some(running)) = (&mut self.saving, &self.running) else { return };
        if must_stop(running.number(), wanted) {
            saving.give_up();
        } else if !running.leads() {
            saving.end_with_program(&self.state).await;
        }
    }

    /// The program is told to save as a test, once for each that the server orders; not where its end has begun.
    fn begin_test(&mut self, wanted: Option<&Desired>) {
        let (Some(running), Some(Desired::Run { launch })) = (&self.running, wanted) else { return };
        let number = running.number();
        let Some(order) = launch.exit_test.filter(|_| launch.number == number) else { return };
        let is_known = self.testing.as_ref().is_some_and(|testing| testing.key() == (number, order.number));
        let is_saving = self.saving.as_ref().is_some_and(|saving| saving.launch() == number);
        let Some(within) = running.saves_within().filter(|_| !is_known && !is_saving && !self.ending) else {
            return;
        };
        let notice = ExitNotice { reason: ExitReason::Stopped, deadline_at: order.deadline_at };
        let deadline = deadline_of(notice, self.link.server_now(), within);
        let port = running.exit_port();
        let mut testing = Testing::begin(number, order, port, deadline, &self.config.task_id, &self.state);
        if !running.leads() {
            let answer =
                Answer::of(SaveOutcome::NoAnswer, "its first process, which is the one to tell, has ended");
            testing.end(answer, &self.state);
        }
        self.testing = Some(testing);
    }

    /// A test ends with the process that was told, and gives way to what really happens.
    async fn follow_test(&mut self, wanted: Option<&Desired>) {
        let Some(testing) = &mut self.testing else { return };
        let is_saving = self.saving.as_ref().is_some_and(|saving| saving.launch() == testing.key().0);
        if self.running.as_ref().is_some_and(|running| !running.leads()) {
            testing.end_with_program(&self.state).await;
        } else if self.ending || is_saving || !testing.is_wanted(wanted) {
            testing.give_up();
        }
    }

    fn take_test_news(&mut self, news: TestNews) -> bool {
        if let Some(testing) = &mut self.testing {
            testing.take(news, &self.state);
        }
        false
    }

    fn take_answer(&mut self, answer: Answer) -> bool {
        if let Some(saving) = &mut self.saving {
            saving.end(answer, &self.state);
        }
        false
    }

    /// What was told to stop has no process any more, and is ready for what comes next. Told once for each such order: the server may
    /// have asked before, and for another reason.
    fn say_ready(&mut self, is_stopped: bool) {
        if is_stopped && !self.said_ready {
            self.state.report(self.next(), ReportBody::Ready);
        }
        self.said_ready = is_stopped;
    }

    /// Checks first, where that is asked for; starts the launch otherwise.
    fn begin(&mut self, launch: Launch, reaped: Reaped) {
        let is_told = self.checked == Some(launch.number);
        match &launch.checks {
            Some(_) if is_told || self.checking.is_some() => {}
            Some(order) => {
                let clock_off = *self.link.clock_off.borrow();
                self.checking = Some(Checking::start(&launch, order, &self.config, clock_off));
            }
            None if self.is_clear(reaped) => self.start(launch),
            None => {}
        }
    }

    /// The checks are done: nothing of them is to be left.
    fn tell_checks(&mut self, findings: Vec<CheckFinding>) {
        let Some(checking) = self.checking.take() else { return };
        for finding in findings.iter().filter(|finding| finding.outcome.is_bad()) {
            tracing::error!("health check {}: {}", finding.check.label(), finding.text);
        }
        self.checked = Some(checking.launch);
        self.state.report(checking.launch, ReportBody::Checked { findings });
        self.clear_checks();
    }

    /// Ends checks that nobody waits for any more.
    fn give_up_checks(&mut self, desired: Option<&Desired>) {
        let Some(checking) = &self.checking else { return };
        let go_on = match desired {
            None | Some(Desired::Wait) => true,
            Some(Desired::Run { launch }) => launch.number == checking.launch && launch.checks.is_some(),
            Some(Desired::Stop { launch }) => *launch < checking.launch,
            // A job that is about to end starts nothing more.
            Some(Desired::Save { .. } | Desired::Exit) => false,
        };
        if !go_on {
            self.checking = None;
            self.clear_checks();
        }
    }

    fn clear_checks(&mut self) {
        running::send(&self.tree, nix::sys::signal::Signal::SIGKILL);
        self.clearing = Some(Clearing::begin(Instant::now()));
    }

    /// Whether nothing of the checks is left beside which the launch would start.
    fn is_clear(&mut self, reaped: Reaped) -> bool {
        let Some(clearing) = &mut self.clearing else { return true };
        if !self.tree.is_empty(reaped).unwrap_or(false) {
            running::send(&self.tree, nix::sys::signal::Signal::SIGKILL);
            if clearing.wait(Instant::now()) {
                return false;
            }
            let left = self.tree.disown();
            tracing::warn!(
                "processes {left:?} of the health checks wait inside the kernel and are left behind"
            );
        }
        self.clearing = None;
        true
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

    /// The agent was told to end; told twice, it waits for no process that is being stopped. A save is not cut short.
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
        if self.saving.as_ref().is_some_and(Saving::goes_on) {
            return None;
        }
        match &self.running {
            Some(running) => running.failed_at().map(|at| at.max(since) + ALONE_LIMIT),
            None => Some(self.idle_since.max(since) + self.config.offline_limit),
        }
    }
}

/// Whether the running launch is not what is wanted.
fn must_stop(running: u32, desired: Option<&Desired>) -> bool {
    match desired {
        None | Some(Desired::Wait | Desired::Save { .. }) => false,
        Some(Desired::Run { launch }) => running < launch.number,
        Some(Desired::Stop { launch }) => running <= *launch,
        Some(Desired::Exit) => true,
    }
}

async fn answer_of(saving: Option<&mut Saving>) -> Answer {
    match saving {
        Some(saving) => saving.answer().await,
        None => std::future::pending().await,
    }
}

async fn news_of(testing: Option<&mut Testing>) -> TestNews {
    match testing {
        Some(testing) => testing.news().await,
        None => std::future::pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep(at.saturating_duration_since(Instant::now())).await,
        None => std::future::pending().await,
    }
}

/// Waits for what the health checks find.
async fn wait_for_checks(checking: Option<&mut Checking>) -> Vec<CheckFinding> {
    match checking {
        Some(checking) => checking.found().await,
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
            exit: None,
            checks: None,
            watch: None,
            exit_test: None,
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
