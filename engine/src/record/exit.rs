//! How the save before an end went.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// How an exit notification went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExitCheckpointRecord {
    /// Why it ends.
    pub reason: ExitReason,
    /// When the program was told.
    pub notified_at: Option<Time>,
    /// When its time is over.
    pub deadline_at: Option<Time>,
    /// How it went. Of several replicas the worst of failed, timed out, wrong answer; else saved where one did; else no answer.
    pub outcome: SaveOutcome,
    /// The step it saved; where replicas saved different ones, the one that all of them have.
    pub step: Option<u64>,
    /// Where.
    pub path: Option<String>,
    /// Why it was not saved, and which replicas did not answer, in words.
    #[serde(default)]
    pub message: Option<String>,
}

/// Why a program is about to end, as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// The cluster takes its resources, or its agent was told to end.
    Preempted,
    /// A person stopped the job.
    Stopped,
    /// A person deleted it.
    Deleted,
}

impl ExitReason {
    /// As the API and the notification write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preempted => "preempted",
            Self::Stopped => "stopped",
            Self::Deleted => "deleted",
        }
    }
}

/// How the save before the end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SaveOutcome {
    /// It is not over.
    Saving,
    /// The program says that it has saved.
    Saved,
    /// The program says that it could not, or ended before it had.
    Failed,
    /// Its time was over first.
    TimedOut,
    /// Nobody listens on the port, or nothing was answered.
    NoAnswer,
    /// What was answered is none of the contract.
    WrongAnswer,
    /// A person did not wait for it.
    Forced,
}

impl SaveOutcome {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Saving => "saving",
            Self::Saved => "saved",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::NoAnswer => "no_answer",
            Self::WrongAnswer => "wrong_answer",
            Self::Forced => "forced",
        }
    }

    /// In a sentence.
    pub const fn plain(self) -> &'static str {
        match self {
            Self::Saving => "saving",
            Self::Saved => "saved",
            Self::Failed => "not saved",
            Self::TimedOut => "not saved in time",
            Self::NoAnswer => "no answer",
            Self::WrongAnswer => "wrong answer",
            Self::Forced => "not waited for",
        }
    }
}
