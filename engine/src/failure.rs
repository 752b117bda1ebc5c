//! The words for a failure: its type, how a process ended, and the lines that show it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{NodeName, ReplicaName},
    time::Time,
};

/// What kind of failure the logs and messages point to. Derived, never a confirmed root cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailureType {
    /// GPU, hardware, driver, ECC, Xid, segmentation fault.
    HwNode,
    /// NCCL, InfiniBand, RDMA, RoCE, network.
    NetFabric,
    /// Host memory, or the container was killed by the system for it.
    OomHost,
    /// GPU memory.
    OomGpu,
    /// Communication hang, no progress for long.
    CommHang,
    /// Training code.
    AppError,
    /// Image, dependency, environment, external access.
    EnvError,
    /// No known type matched.
    Unknown,
}

impl FailureType {
    /// All types, in the order of the published table.
    pub const ALL: [Self; 8] = [
        Self::HwNode,
        Self::NetFabric,
        Self::OomHost,
        Self::OomGpu,
        Self::CommHang,
        Self::AppError,
        Self::EnvError,
        Self::Unknown,
    ];

    /// The code shown everywhere: `HW_NODE`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HwNode => "HW_NODE",
            Self::NetFabric => "NET_FABRIC",
            Self::OomHost => "OOM_HOST",
            Self::OomGpu => "OOM_GPU",
            Self::CommHang => "COMM_HANG",
            Self::AppError => "APP_ERROR",
            Self::EnvError => "ENV_ERROR",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// The same in plain words, for beside the code.
    pub const fn plain(self) -> &'static str {
        match self {
            Self::HwNode => "node or GPU",
            Self::NetFabric => "network",
            Self::OomHost => "host memory",
            Self::OomGpu => "GPU memory",
            Self::CommHang => "no progress",
            Self::AppError => "training code",
            Self::EnvError => "image or environment",
            Self::Unknown => "no known type",
        }
    }
}

impl fmt::Display for FailureType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the training was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Processes are there, nothing was said yet.
    Starting,
    /// Loading the model or a checkpoint.
    Loading,
    /// Preparing data.
    Data,
    /// Setting up communication.
    Communication,
    /// Making steps.
    Training,
    /// Evaluating.
    Evaluation,
    /// Writing a checkpoint.
    Saving,
}

/// What a matched line says about the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Names what went wrong.
    Root,
    /// Follows from a failure elsewhere: a peer that is gone, an abort.
    Cascade,
    /// Advice that programs print beside an error; never counts.
    Advice,
}

/// How sure the verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Nothing but an exit code or a default.
    Low,
    /// One kind of evidence, or only cascade lines.
    Medium,
    /// A cluster fact, or a root line.
    High,
}

/// A signal by its number on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct Signal(pub u8);

const SIGNALS: [(u8, &str); 15] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (10, "SIGUSR1"),
    (11, "SIGSEGV"),
    (12, "SIGUSR2"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
];

impl Signal {
    /// Memory access error.
    pub const SEGV: Self = Self(11);
    /// Abort.
    pub const ABRT: Self = Self(6);
    /// Kill; no program can catch it.
    pub const KILL: Self = Self(9);
    /// Terminate.
    pub const TERM: Self = Self(15);

    /// From a name with or without `SIG`, or a number: `SIGKILL`, `kill`, `9`, `-9`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(number) = text.trim_start_matches('-').parse::<u8>() {
            return (1..=64).contains(&number).then_some(Self(number));
        }
        let upper = text.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        SIGNALS.iter().find(|(_, name)| &name[3..] == bare).map(|(number, _)| Self(*number))
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIGNALS.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl Serialize for Signal {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(text.strip_prefix("signal ").unwrap_or(&text))
            .ok_or_else(|| serde::de::Error::custom(format!("`{text}` is no signal")))
    }
}

/// How a process ended. `-9`, `137` and `SIGKILL` are one thing: [`Exit::from_code`] sees to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It returned this code, 0–255, that is no death by signal.
    Code(u8),
    /// A signal ended it.
    Signal(Signal),
}

impl Exit {
    /// From a number as launchers and shells report it: `-n` and `128 + n` (n = 1…64) are deaths by signal n, as torchrun
    /// and POSIX shells write them (reference/parameters.md §8).
    pub fn from_code(code: i64) -> Self {
        match code {
            -64..=-1 => Self::Signal(Signal(code.unsigned_abs() as u8)),
            129..=192 => Self::Signal(Signal((code - 128) as u8)),
            // A wait status keeps the low byte only.
            _ => Self::Code((code & 0xff) as u8),
        }
    }

    /// Whether the program says it finished its work.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Code(0))
    }

    /// The code as a shell shows it.
    pub const fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code as i32,
            Self::Signal(signal) => 128 + signal.0 as i32,
        }
    }

    /// The signal that ended the process.
    pub const fn signal(self) -> Option<Signal> {
        match self {
            Self::Code(_) => None,
            Self::Signal(signal) => Some(signal),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "exit {} {signal}", self.shell_code()),
        }
    }
}

/// One line that matched a signature, as its replica saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Evidence {
    /// Who printed it.
    pub replica: ReplicaName,
    /// Its rank; none where the line is the agent's or the node's.
    pub rank: Option<u32>,
    /// The line without colours, at most [`crate::classify::MAX_LINE_CHARS`] characters.
    pub line: String,
    /// Its number in the log of the launch, from 1.
    pub line_number: u64,
    /// When it was read.
    pub at: Time,
    /// The signature it matched.
    pub signature: String,
    /// What the line says.
    pub role: Role,
    /// The type the signature stands for.
    pub failure_type: FailureType,
}

/// Where a failure began, as far as can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Root {
    /// The replica.
    pub replica: ReplicaName,
    /// The rank, if one process is meant.
    pub rank: Option<u32>,
    /// The node it ran on.
    pub node: Option<NodeName>,
    /// The line that names it.
    pub line: Option<String>,
    /// Its exit code as a shell shows it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<Signal>,
}

/// What a classification says, before policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Verdict {
    /// The type.
    pub failure_type: FailureType,
    /// How sure it is.
    pub confidence: Confidence,
    /// The id of what decided: a signature, `exit-code-<n>`, `signal-<name>`, `cluster-<fact>` or `no-evidence`.
    pub rule: String,
    /// The same root gives the same fingerprint: type, signature and the root line without its numbers and addresses.
    pub fingerprint: String,
    /// Where it began.
    pub root: Option<Root>,
    /// Root lines first, then cascade lines, each in order of time; at most [`crate::classify::MAX_EVIDENCE`].
    pub evidence: Vec<Evidence>,
    /// Ranks that only followed.
    pub cascade_ranks: u32,
    /// Nodes that the evidence blames; empty where the job is at fault.
    pub suspects: Vec<NodeName>,
    /// A sentence for people: `Xid 79 on n2, rank 1`.
    pub fault: String,
    /// What to look at or change, from the signature's hint.
    pub hint: Option<String>,
    /// The network link is down, so that in-place restarts cannot help.
    pub link_down: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_death_has_one_form() {
        for code in [-9, 137] {
            assert_eq!(Exit::from_code(code), Exit::Signal(Signal::KILL));
        }
        assert_eq!(Exit::from_code(-15), Exit::from_code(143));
        assert_eq!(Exit::from_code(1), Exit::Code(1));
        assert_eq!(Exit::from_code(128), Exit::Code(128));
        assert_eq!(Exit::from_code(247), Exit::Code(247));
        assert_eq!(Exit::from_code(255), Exit::Code(255));
        assert_eq!(Exit::Signal(Signal::KILL).to_string(), "exit 137 SIGKILL");
        for text in ["SIGKILL", "kill", "9", "-9"] {
            assert_eq!(Signal::parse(text), Some(Signal::KILL));
        }
        assert_eq!(Signal::parse("SIGNOPE"), None);
    }

    #[test]
    fn signals_survive_json() {
        for signal in [Signal(9), Signal(34)] {
            let text = serde_json::to_string(&signal).unwrap();
            assert_eq!(serde_json::from_str::<Signal>(&text).unwrap(), signal);
        }
    }
}
