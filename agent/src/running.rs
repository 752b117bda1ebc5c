//! One launch that runs or is being ended.

use std::{
    io,
    time::{Duration, Instant},
};

use engine::{
    failure::Exit,
    sync::{Launch, ReportBody},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::sleep;

use crate::{
    capture::{Capture, Target},
    config::Config,
    findings::LastWords,
    launch::{self, Started},
    log::Place,
    outcome::Outcome,
    saving::ExitPort,
    state::{LastLaunch, State},
    tree::{Reaped, Tree},
    watch::{self, Watch},
};

/// Progress is reported at most this often, but for a launch's first step.
const NEWS_INTERVAL: Duration = Duration::from_secs(1);
/// What a process printed before it ended is read within this time, usually within a millisecond. The limit is for a disk that does
/// not answer; a busy machine must not cost the lines that explain the end.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
/// The log of a launch is written within this time; a slow disk costs its end, not the restart.
const FINISH_LIMIT: Duration = Duration::from_secs(5);
/// Pause after the first SIGKILL until it is seen what is left; it doubles up to [`LONGEST_KILL_PAUSE`].
const FIRST_KILL_PAUSE: Duration = Duration::from_millis(2);
/// A process in the kernel's hands may take any time to die.
const LONGEST_KILL_PAUSE: Duration = Duration::from_millis(200);
/// When a process that SIGKILL does not end is worth a line in the log.
const KILL_IS_SLOW: Duration = Duration::from_secs(10);

/// How far the end of a launch is.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// Nobody wants it to end.
    Not,
    /// SIGTERM was sent.
    Asked { kill_at: Instant },
    /// SIGKILL is sent until nothing is left.
    Killing { since: Instant, next: Instant, pause: Duration, said: bool },
}

/// A launch of which processes may live.
pub struct Running {
    launch: Launch,
    alive: Vec<Started>,
    capture: Capture,
    /// None where nobody wants it, and once the launch is to end.
    watch: Option<Watch>,
    stop: Stop,
    exit: Option<ExitPort>,
    /// It was told that its end is near: how it ends now says nothing about its work.
    told: bool,
    failed_at: Option<Instant>,
    news_at: Instant,
    outcome: Outcome,
}

impl Running {
    /// Starts a launch and reports how that went.
    ///
    /// # Errors
    /// Where its output could not be read; nothing was started.
    pub fn start(launch: Launch, config: &Config, state: &State, now: Instant) -> io::Result<Self> {
        let place = Place { dir: config.log_dir.clone(), launch: launch.number, limit: config.log_limit };
        let ranks = launch.first_rank..launch.first_rank + launch.local_world_size;
        let (replica, repeat) = (config.replica.clone(), config.repeat.clone());
        let capture = Capture::start(Target { replica, ranks, place, repeat })?;
        let exit = launch.exit.and_then(|settings| {
            ExitPort::take(settings)
                .inspect_err(|why| tracing::error!("no port is free for Exit ckpt Notification: {why}"))
                .ok()
        });
        let all = launch::start(config, &launch, exit.as_ref().map(|exit| exit.port));
        capture.read(all.sources);
        let mut running = Self {
            launch,
            alive: all.started,
            capture,
            watch: None,
            stop: Stop::Not,
            exit,
            told: false,
            failed_at: None,
            news_at: now + NEWS_INTERVAL,
            outcome: Outcome::started(),
        };
        running.remember(state, false);
        match all.failure {
            None => {
                state.report(running.number(), ReportBody::Started);
                running.begin_watch(now);
            }
            Some(why) => {
                let text = format!("{why}: {}", why.source);
                tracing::error!("{text}");
                state.report(running.number(), ReportBody::StartFailed { text });
                running.outcome.start_failed(&why.source);
                running.begin_kill(now);
            }
        }
        Ok(running)
    }

    /// Begins to watch for standstills, if that is wanted. Training goes on without it where it cannot be done.
    fn begin_watch(&mut self, now: Instant) {
        let Some(watch) = self.launch.watch else { return };
        let target = watch::Target {
            watch,
            processes: self.alive.clone(),
            checkpoints: watch::from_environment(),
            started_at: now,
            activities: Box::new(self.capture.activities()),
        };
        match Watch::start(target) {
            Ok(watch) => self.watch = Some(watch),
            Err(why) => tracing::error!("launch {} is not watched for hangs: {why}", self.number()),
        }
    }

    /// The launch.
    pub fn number(&self) -> u32 {
        self.launch.number
    }

    /// Its program is to be told of its end, within this time at most; none where that is off or its end has begun.
    pub fn saves_within(&self) -> Option<Duration> {
        let within = self.launch.exit.map(|exit| Duration::from_secs(exit.max_wait_seconds.into()));
        within.filter(|_| matches!(self.stop, Stop::Not))
    }

    /// Its program is told now, at this port.
    pub fn tell_end(&mut self) -> Option<u16> {
        self.told = true;
        self.exit_port()
    }

    /// Where its program listens for the word that it ends.
    pub fn exit_port(&self) -> Option<u16> {
        self.exit.as_ref().map(|exit| exit.port)
    }

    /// Its first process, which is told, lives.
    pub fn leads(&self) -> bool {
        self.alive.iter().any(|process| process.rank == self.launch.first_rank)
    }

    /// When a local process failed while others go on, and nobody has asked for the end yet.
    pub fn failed_at(&self) -> Option<Instant> {
        self.failed_at.filter(|_| matches!(self.stop, Stop::Not))
    }

    /// Asks all processes to end, and sets the time when they must.
    pub fn ask_stop(&mut self, tree: &Tree, now: Instant) {
        if !matches!(self.stop, Stop::Not) {
            return;
        }
        let grace = Duration::from_secs(self.launch.stop_grace_seconds.into());
        tracing::info!("launch {} is stopped: SIGTERM, SIGKILL after {grace:?}", self.number());
        self.watch = None;
        self.capture.stopping();
        send(tree, Signal::SIGTERM);
        self.stop = Stop::Asked { kill_at: now + grace };
    }

    /// Ends the grace time of a stop.
    pub fn hurry(&mut self, now: Instant) {
        if let Stop::Asked { kill_at } = &mut self.stop {
            *kill_at = now;
        }
    }

    fn begin_kill(&mut self, now: Instant) {
        self.watch = None;
        self.stop = Stop::Killing { since: now, next: now, pause: FIRST_KILL_PAUSE, said: false };
    }

    /// Takes the launch a step further towards its end, if it is to end. True once nothing is left of it.
    pub fn is_over(&mut self, tree: &Tree, reaped: Reaped, now: Instant) -> bool {
        let none_alive = self.alive.is_empty();
        if none_alive && tree.is_empty(reaped).unwrap_or(false) {
            return true;
        }
        match self.stop {
            // The processes have ended by themselves; what they left behind does not outlive them.
            Stop::Not if none_alive => self.begin_kill(now),
            Stop::Asked { kill_at } if kill_at <= now => self.begin_kill(now),
            Stop::Not | Stop::Asked { .. } | Stop::Killing { .. } => {}
        }
        if let Stop::Killing { since, next, pause, said } = &mut self.stop
            && *next <= now
        {
            let left = send(tree, Signal::SIGKILL);
            *next = now + *pause;
            *pause = (*pause * 2).min(LONGEST_KILL_PAUSE);
            if !*said && now.duration_since(*since) > KILL_IS_SLOW {
                *said = true;
                tracing::warn!("processes {left:?} do not end by SIGKILL: they wait inside the kernel");
            }
        }
        false
    }

    /// A child of the agent has ended. If it is one of the launch's processes, that is reported in the same instant.
    pub async fn ended(&mut self, pid: i32, exit: Exit, state: &State, now: Instant) {
        let Some(index) = self.alive.iter().position(|p| p.pid == pid) else { return };
        let rank = self.alive.swap_remove(index).rank;
        if let Some(watch) = &self.watch {
            watch.ended(rank);
        }
        let asked = self.told || !matches!(self.stop, Stop::Not);
        tracing::info!(
            "launch {} rank {rank}: {exit}{}",
            self.number(),
            if asked { ", as asked" } else { "" }
        );
        self.capture.settle(rank, SETTLE_LIMIT).await;
        self.report_news(state, now);
        let LastWords { step, phase, evidence } = self.capture.findings().last_words(rank);
        state.report(self.number(), ReportBody::Exited { rank, exit, asked, step, phase, evidence });
        self.remember(state, false);
        self.outcome.ended(exit, asked);
        if !asked && !exit.is_success() {
            self.failed_at.get_or_insert(now);
        }
    }

    /// Waits until output tells something that is worth a report at once.
    pub async fn urgent(&self) {
        let Some(watch) = &self.watch else { return self.capture.urgent().await };
        tokio::select! {
            () = self.capture.urgent() => {}
            () = watch.has_news() => {}
        }
    }

    /// Reports what is due.
    pub fn report_due_news(&mut self, state: &State, now: Instant) {
        if self.news_at <= now {
            self.report_news(state, now);
        }
    }

    /// Reports what the output told since the last time.
    pub fn report_news(&mut self, state: &State, now: Instant) {
        self.news_at = now + NEWS_INTERVAL;
        // Taken first: nobody may wait for the findings while reports are written to the disk.
        let mut news = self.capture.findings().take();
        news.extend(self.watch.iter().flat_map(Watch::take));
        for body in news {
            if let ReportBody::LogLost { text } = &body {
                tracing::warn!("launch {}: {text}", self.launch.number);
            }
            state.report(self.launch.number, body);
        }
    }

    /// Writes the end of the log and reports that nothing is left.
    pub async fn finish(mut self, state: &State) -> Outcome {
        self.capture.finish(FINISH_LIMIT).await;
        self.report_news(state, Instant::now());
        state.report(self.number(), ReportBody::Stopped);
        self.remember(state, true);
        self.outcome
    }

    /// Waits until something is due.
    pub async fn wake(&self) {
        let at = match self.stop {
            Stop::Not => self.news_at,
            Stop::Asked { kill_at } => kill_at.min(self.news_at),
            Stop::Killing { next, .. } => next.min(self.news_at),
        };
        sleep(at.saturating_duration_since(Instant::now())).await;
    }

    fn remember(&self, state: &State, stopped: bool) {
        let running = self.alive.iter().map(|p| p.rank).collect();
        state.remember(LastLaunch { number: self.number(), running, stopped });
    }
}

/// Sends a signal to everything below the agent; says to whom.
pub fn send(tree: &Tree, signal: Signal) -> Vec<i32> {
    match tree.living() {
        Ok(pids) => {
            for pid in &pids {
                // One that has ended meanwhile needs no signal.
                let _ = kill(Pid::from_raw(*pid), signal);
            }
            pids
        }
        Err(why) => {
            tracing::error!("/proc cannot be read, so {signal} reaches nobody: {why}");
            Vec::new()
        }
    }
}
