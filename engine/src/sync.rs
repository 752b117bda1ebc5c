//! What an agent and the server say to each other: reports up, desired state down.
//!
//! The server never sends commands. It answers every sync with the state it wants; the agent compares and
//! converges, so a lost or a repeated answer changes nothing. Reports carry a sequence number; the agent repeats them
//! until they are acknowledged and the chain takes each one once.
//!
//! What is the same for all launches of an attempt (the job's environment, `HOLDFAST_JOB_ID` and the like) the cluster
//! gives to the agent when it makes the replica; only what a launch changes travels here.

mod exit_test;
mod watch;

use serde::{Deserialize, Serialize};

pub use exit_test::{ExitTestOrder, ExitTestReport};
pub use watch::{
    Collective, HangWatch, ProcessState, RankStack, RunState, StackKey, StillRank, ThreadStack, Witness,
    WitnessKind, WitnessSays, limits as watch_limits,
};

use crate::{
    checks::{CheckFinding, CheckOrder},
    failure::{Evidence, Exit, Phase},
    ids::{ReplicaName, TaskId},
    record::{ExitReason, SaveOutcome},
    time::Time,
};

/// Limits of the protocol; a sync beyond them is refused.
pub mod limits {
    /// Reports in one sync.
    pub const REPORTS: usize = 256;
    /// Lines of evidence in one report.
    pub const EVIDENCE: usize = 64;
    /// Points in one report.
    pub const POINTS: usize = 512;
    /// Longest time a server holds a sync that has no news, seconds.
    pub const POLL_SECONDS: u64 = 25;
    /// Longest body of a sync, bytes.
    pub const BODY_BYTES: usize = 4 * 1024 * 1024;
}

/// Headers of a sync that say who speaks, beside `Authorization: Bearer <the replica's own token>`. The server reads a body only once
/// the token is known to be theirs.
pub mod headers {
    /// The attempt, as in [`SyncRequest::task_id`](super::SyncRequest::task_id).
    pub const TASK: &str = "holdfast-task-id";
    /// The replica, as in [`SyncRequest::replica`](super::SyncRequest::replica).
    pub const REPLICA: &str = "holdfast-replica";
}

/// `POST /agent/v1/sync`, with the headers of [`headers`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncRequest {
    /// The attempt this agent belongs to.
    pub task_id: TaskId,
    /// The replica it supervises.
    pub replica: ReplicaName,
    /// Differs each time an agent starts, so that a second agent of one replica is seen.
    pub agent_id: String,
    /// The version of the desired state it has; the server holds the request while that is still the newest.
    /// 0: it has none yet, answer at once.
    pub seen: u64,
    /// Where other replicas can reach this one.
    pub address: String,
    /// A port that was free on this replica a moment ago, and the launch it is offered for; only the first
    /// replica's is used, as the rendezvous port.
    pub offer: Option<PortOffer>,
    /// The launch it was last told to run and the rendezvous port it was given: a server that comes back learns it here.
    #[serde(default)]
    pub current: Option<PortOffer>,
    /// The agent's clock when it sent this, so that its times can be understood where that clock is off.
    pub sent_at: Time,
    /// News, oldest first, and all that is not acknowledged yet.
    pub reports: Vec<Report>,
}

/// A free port for the rendezvous of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortOffer {
    /// The launch.
    pub launch: u32,
    /// The port.
    pub port: u16,
}

/// The answer to a sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncReply {
    /// Reports up to this sequence number are kept; the agent forgets them.
    pub acknowledged: u64,
    /// The version of `desired`, to be sent back as `seen`.
    pub version: u64,
    /// What the server wants.
    pub desired: Desired,
    /// The server's clock when it answered, so that a replica can tell how far its own is off; none from an older server.
    #[serde(default)]
    pub now: Option<Time>,
}

/// What the server wants a replica to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Desired {
    /// Nothing is decided: keep what runs, start nothing.
    Wait,
    /// This launch runs. An older one is stopped first; one that is running goes on; one that has ended is not started again.
    Run {
        /// The launch and what it needs to know.
        launch: Launch,
    },
    /// No process of this launch or an older one runs; stay for the next.
    Stop {
        /// The launch to end.
        launch: u32,
    },
    /// The attempt is over: end everything and exit.
    Exit,
    /// The processes of this launch are about to be ended: the program is told to save, once, and goes on until more is said. A launch
    /// that does not run is not started.
    Save {
        /// The launch.
        launch: u32,
        /// What the program is told.
        notice: ExitNotice,
    },
}

/// Why the program shall save, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExitNotice {
    /// Why it is about to end.
    pub reason: ExitReason,
    /// When its time is over, by the server's clock. Counted from the first word of the end, whoever heard it.
    pub deadline_at: Time,
}

/// Where a program listens for the word that it is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExitSettings {
    /// Program Listening Port; the agent takes the next free one where replicas share an address.
    pub port: u16,
    /// Maximum wait for the save, where only the agent was told of the end.
    pub max_wait_seconds: u32,
}

/// One launch, the same for all replicas but for the ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// Its number, from 0; the processes see it as `HOLDFAST_LAUNCH`.
    pub number: u32,
    /// Host of the rendezvous.
    pub master_addr: String,
    /// Port of the rendezvous; a new one each launch.
    pub master_port: u16,
    /// Processes of all replicas.
    pub world_size: u32,
    /// The rank of this replica's first process.
    pub first_rank: u32,
    /// Processes of this replica.
    pub local_world_size: u32,
    /// Seconds between TERM and KILL when this launch is stopped.
    pub stop_grace_seconds: u32,
    /// Exit ckpt Notification; none where it is off.
    #[serde(default)]
    pub exit: Option<ExitSettings>,
    /// Health checks to be made first: while this is there the agent starts no process, and tells what it found. An agent that does not
    /// know it starts at once, which counts as checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<CheckOrder>,
    /// How its processes are watched for standstills; none: they are not.
    #[serde(default)]
    pub watch: Option<HangWatch>,
    /// While it runs its program is told to save, as a test. An agent that does not know it says nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_test: Option<ExitTestOrder>,
}

/// One piece of news from a replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Counts from 1 for each replica of an attempt, without gaps, across restarts of the agent.
    pub sequence: u64,
    /// When the agent saw it.
    pub at: Time,
    /// The launch it is about.
    pub launch: u32,
    /// What happened.
    pub body: ReportBody,
}

impl Report {
    /// The same, seen by a clock that shows `micros` microseconds more.
    pub fn moved(mut self, micros: i64) -> Self {
        let shift = |at: &mut Time| at.0 = at.0.saturating_add(micros);
        shift(&mut self.at);
        match &mut self.body {
            ReportBody::Exited { evidence, .. } => evidence.iter_mut().for_each(|line| shift(&mut line.at)),
            ReportBody::Progress { points } => points.iter_mut().for_each(|point| shift(&mut point.at)),
            ReportBody::Checkpoint { event } => shift(&mut event.at),
            ReportBody::Still { ranks } => ranks.iter_mut().for_each(|rank| rank.shift(shift)),
            ReportBody::Stacks { stacks } => stacks.iter_mut().for_each(|stack| shift(&mut stack.at)),
            ReportBody::Ready
            | ReportBody::Started
            | ReportBody::StartFailed { .. }
            | ReportBody::Stopped
            | ReportBody::Phase { .. }
            | ReportBody::LogLost { .. }
            | ReportBody::Save { .. }
            | ReportBody::Checked { .. }
            | ReportBody::ExitTest { .. }
            | ReportBody::Moved { .. } => {}
        }
        self
    }
}

/// What happened at a replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReportBody {
    /// The agent is there and has no process yet.
    Ready,
    /// All processes of the launch were started.
    Started,
    /// The program could not be started: no such file, no permission, not enough memory to fork.
    StartFailed {
        /// The operating system's words and what was tried.
        text: String,
    },
    /// A process ended.
    Exited {
        /// Its rank.
        rank: u32,
        /// How.
        exit: Exit,
        /// The agent had been asked to stop it, or was stopping the launch because another local process had failed.
        asked: bool,
        /// The step it had reached.
        step: Option<u64>,
        /// What it was doing.
        phase: Phase,
        /// Lines that matched a signature, oldest first.
        evidence: Vec<Evidence>,
    },
    /// No process of the launch is left, children that daemonised included.
    Stopped,
    /// What the program printed about its progress.
    Progress {
        /// Steps with their values, oldest first; a replica that prints more than one rank reports the lowest rank's.
        points: Vec<Point>,
    },
    /// A checkpoint was loaded or saved.
    Checkpoint {
        /// Loaded or saved.
        event: CheckpointEvent,
    },
    /// The program entered a phase.
    Phase {
        /// Which.
        phase: Phase,
    },
    /// Processes that have not moved for at least half of the watch's window: sent when they have not for half of it, when they have
    /// not for all of it, and again when what is said of one of them changes; at every sample while one has shown nothing at all for
    /// the whole window, since phases may be longer; at most one report an interval. It says all of them.
    Still {
        /// Which, and what was seen of them.
        ranks: Vec<StillRank>,
    },
    /// Processes of which a [`Still`](Self::Still) was told have moved since, or have ended.
    Moved {
        /// Which.
        ranks: Vec<u32>,
    },
    /// The full stacks of processes that stand still: sent once they have done so for the watch's window.
    Stacks {
        /// Of each process, or why there are none.
        stacks: Vec<RankStack>,
    },
    /// Output was dropped from the kept log, or the log could not be written: disk full, limit reached.
    LogLost {
        /// Why, and how much.
        text: String,
    },
    /// The program was told to save before its end, or has answered that.
    Save {
        /// How it stands.
        save: SaveReport,
    },
    /// The health checks of the launch are done here.
    Checked {
        /// One for each check that was asked for.
        findings: Vec<CheckFinding>,
    },
    /// The program is told to save as a test, or has answered that.
    ExitTest {
        /// How it stands.
        test: ExitTestReport,
    },
}

/// How the save before the end stands in one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveReport {
    /// Why it is about to end.
    pub reason: ExitReason,
    /// The agent itself was told to end, by the cluster or by hand; otherwise the server said so.
    pub signalled: bool,
    /// `saving` once the program is being told, then its end; the first end counts. Never `forced`.
    pub outcome: SaveOutcome,
    /// The step it saved.
    pub step: Option<u64>,
    /// Where.
    pub path: Option<String>,
    /// What the program, or the agent about it, says.
    pub message: Option<String>,
}

/// The values a program printed at one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The step.
    pub step: u64,
    /// When it was printed.
    pub at: Time,
    /// Loss; none where it was not printed or is no number.
    pub loss: Option<f64>,
    /// Samples the program says it has seen.
    pub samples: Option<u64>,
    /// Steps the program means to make, if it says so.
    pub total: Option<u64>,
}

/// A checkpoint that was read or written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointEvent {
    /// When.
    pub at: Time,
    /// Loaded (true) or saved (false).
    pub loaded: bool,
    /// Its step.
    pub step: Option<u64>,
    /// Its path.
    pub path: Option<String>,
}
