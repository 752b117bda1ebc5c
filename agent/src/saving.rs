//! The save before the end, in this replica: its program is told once, whoever said first that it ends, and has until one deadline.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use engine::{
    ids::TaskId,
    record::{ExitReason, SaveOutcome},
    sync::{Desired, ExitNotice, ExitSettings, ReportBody, SaveReport},
};
use tokio::net::TcpSocket;

use crate::{
    net::Claim,
    notify::{Answer, Teller},
    state::State,
    sync::Contact,
};

/// Ports that a job may name, and from which another is taken where its own is not free.
const PORTS: std::ops::RangeInclusive<u16> = 9000..=9999;
/// How much longer than its save an agent that was told to end waits for the others', while the server is there.
const OTHERS_LIMIT: Duration = Duration::from_secs(3);

/// The port that a launch's program is told to listen on.
#[derive(Debug)]
pub struct ExitPort {
    /// The job's, or the next free one.
    pub port: u16,
    _claim: Claim,
}

impl ExitPort {
    /// Takes the first port from the job's own on that is free, and keeps other agents of this machine off it.
    ///
    /// # Errors
    /// Where none is.
    pub fn take(settings: ExitSettings) -> io::Result<Self> {
        let (first, last) = PORTS.into_inner();
        let count = last - first + 1;
        let start = settings.port.saturating_sub(first) % count;
        for step in 0..count {
            let port = first + (start + step) % count;
            let Some(claim) = Claim::take(port) else { continue };
            if is_free(port) {
                return Ok(Self { port, _claim: claim });
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

/// Nobody listens there; connections of a program before that are only closing do not count.
fn is_free(port: u16) -> bool {
    let bind = || {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
    };
    bind().is_ok()
}

/// A save of one launch.
#[derive(Debug)]
pub struct Saving {
    launch: u32,
    reason: ExitReason,
    deadline: Instant,
    teller: Teller,
}

impl Saving {
    /// Tells the program of a launch, and the server that it is told.
    pub fn begin(
        launch: u32,
        port: Option<u16>,
        (reason, signalled): (ExitReason, bool),
        deadline: Instant,
        task_id: &TaskId,
        state: &State,
    ) -> Self {
        let left = deadline.saturating_duration_since(Instant::now());
        tracing::info!("launch {launch} is told to save ({}), {left:?} left", reason.as_str());
        let (outcome, step, path, message) = (SaveOutcome::Saving, None, None, None);
        let save = SaveReport { reason, signalled, outcome, step, path, message };
        state.report(launch, ReportBody::Save { save });
        let teller = Teller::begin(port, reason, deadline, task_id, || {});
        Self { launch, reason, deadline, teller }
    }

    /// The launch it is about.
    pub fn launch(&self) -> u32 {
        self.launch
    }

    /// It is not over.
    pub fn goes_on(&self) -> bool {
        self.teller.goes_on()
    }

    /// Waits for the program's last word; for ever once it is over.
    pub async fn answer(&mut self) -> Answer {
        self.teller.answer().await
    }

    /// It ended like this.
    pub fn end(&mut self, answer: Answer, state: &State) {
        if !self.teller.end() {
            return;
        }
        let Answer { outcome, step, path, message } = answer;
        let words = message.as_deref().unwrap_or_default();
        tracing::info!("launch {}: {} {words}", self.launch, outcome.plain());
        let (reason, signalled) = (self.reason, false);
        let save = SaveReport { reason, signalled, outcome, step, path, message };
        state.report(self.launch, ReportBody::Save { save });
    }

    /// The processes are gone, or the first of them is; what it said in time still counts.
    pub async fn end_with_program(&mut self, state: &State) {
        if self.goes_on() {
            let answer = self.teller.last_word().await;
            self.end(answer, state);
        }
    }

    /// The server goes on without it.
    pub fn give_up(&mut self) {
        self.teller.end();
    }

    /// Whether an agent that was told to end still has to wait: for its own save, and then for those of the others, which may need this
    /// one's processes, as long as there is a server that says when that is over.
    pub fn holds(&self, wanted: Option<&Desired>, contact: Contact, now: Instant) -> bool {
        match wanted {
            Some(Desired::Exit) => false,
            Some(Desired::Stop { launch }) if *launch >= self.launch => false,
            Some(Desired::Run { launch }) if launch.number > self.launch => false,
            _ if self.goes_on() => true,
            Some(Desired::Run { .. } | Desired::Save { .. }) => {
                contact == Contact::Online && now < self.others_until()
            }
            None | Some(Desired::Wait | Desired::Stop { .. }) => false,
        }
    }

    /// When an agent that was told to end waits no longer.
    pub fn others_until(&self) -> Instant {
        self.deadline + OTHERS_LIMIT
    }
}

/// Until when a program may save, by this machine's clock: what the server says, and never longer than the job allows.
pub fn deadline_of(notice: ExitNotice, server_now: engine::time::Time, max_wait: Duration) -> Instant {
    let left = notice.deadline_at.seconds_since(server_now).max(0.0);
    Instant::now() + Duration::try_from_secs_f64(left).unwrap_or(max_wait).min(max_wait)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn replicas_that_share_an_address_get_ports_of_their_own() {
        let settings = ExitSettings { port: 9990, max_wait_seconds: 5 };
        let first = ExitPort::take(settings).unwrap();
        let second = ExitPort::take(settings).unwrap();
        assert_ne!(first.port, second.port);
        let taken = TcpListener::bind(("127.0.0.1", first.port)).unwrap();
        let port = first.port;
        drop(first);
        let third = ExitPort::take(ExitSettings { port, ..settings }).unwrap();
        assert!(third.port != port && PORTS.contains(&third.port), "somebody else listens there");
        drop((taken, third));
        let again = ExitPort::take(ExitSettings { port, ..settings }).unwrap();
        assert_eq!(again.port, port, "and it is the job's own again");
    }

    #[test]
    fn a_deadline_is_never_longer_than_the_job_allows() {
        use engine::time::Time;
        for (case, at, want) in [
            ("what is left", 3_000_000, 3.0),
            ("it is over", -5_000_000, 0.0),
            ("the clocks are far apart", 9_000_000_000, 5.0),
        ] {
            let notice = ExitNotice { reason: ExitReason::Stopped, deadline_at: Time(at) };
            let left = deadline_of(notice, Time(0), Duration::from_secs(5)) - Instant::now();
            assert!((left.as_secs_f64() - want).abs() < 0.5, "{case}: {left:?}");
        }
    }

    #[tokio::test]
    async fn an_agent_that_is_to_end_waits_for_the_others_only_while_a_server_says_when_that_is_over() {
        let far = Instant::now() + Duration::from_secs(60);
        let teller = Teller::of(tokio::spawn(std::future::pending()));
        let mut saving = Saving { launch: 2, reason: ExitReason::Preempted, deadline: far, teller };
        let notice = ExitNotice { reason: ExitReason::Preempted, deadline_at: engine::time::Time(0) };
        let save = Desired::Save { launch: 2, notice };
        let now = Instant::now();
        let away = Contact::Away(now);
        assert!(saving.holds(None, away, now), "its own save");
        assert!(saving.holds(Some(&Desired::Wait), Contact::Online, now));
        assert!(!saving.holds(Some(&Desired::Stop { launch: 2 }), Contact::Online, now));
        assert!(!saving.holds(Some(&Desired::Exit), Contact::Online, now));
        saving.give_up();
        assert!(saving.holds(Some(&save), Contact::Online, now), "the others'");
        assert!(!saving.holds(Some(&save), away, now));
        assert!(!saving.holds(Some(&Desired::Wait), Contact::Online, now), "its resources are away");
        assert!(!saving.holds(Some(&save), Contact::Online, far + OTHERS_LIMIT));
    }
}
