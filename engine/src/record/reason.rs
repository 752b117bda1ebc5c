//! What entries of the history say, for programs.

use serde::{Deserialize, Serialize};

use super::EventKind;

/// What an entry of the history says, in one word for programs. Entries that only accompany others have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventReason {
    /// An attempt was handed to the cluster.
    AttemptSubmitted,
    /// The cluster will never take it.
    AttemptRefused,
    /// It finished its work.
    AttemptSucceeded,
    /// A failure with its type.
    Incident,
    /// It is answered by the next launch on the same nodes.
    RestartInPlace,
    /// It is answered by the next attempt.
    Resubmit,
    /// It is answered by a diagnosis of the nodes, and then by the next attempt.
    Diagnose,
    /// A rule stops the chain.
    FailFast,
    /// A budget is used up.
    BudgetUsed,
    /// Auto Failover is off.
    AutoFailoverOff,
    /// The cluster took the resources away; no failure.
    Preempted,
    /// Processes did not end by themselves and are killed.
    Killed,
    /// A launch began at the beginning, as it should.
    StartedFresh,
    /// The recovery check passed.
    Resumed,
    /// The recovery check failed.
    NotResumed,
    /// A person asked to stop.
    StopRequested,
    /// A person asked to delete.
    DeleteRequested,
    /// The program is told to save before its end.
    SaveAsked,
    /// It says that it has.
    Saved,
    /// It has not, or nobody knows.
    NotSaved,
    /// A person asked for a test of Exit ckpt Notification.
    ExitTestAsked,
    /// It is over.
    ExitTested,
}

impl EventReason {
    /// The kind of such an entry.
    pub const fn kind(self) -> EventKind {
        match self {
            Self::AttemptSubmitted | Self::AttemptSucceeded | Self::SaveAsked => EventKind::State,
            Self::AttemptRefused | Self::Preempted => EventKind::Scheduling,
            Self::Incident => EventKind::Incident,
            Self::RestartInPlace
            | Self::Resubmit
            | Self::Diagnose
            | Self::FailFast
            | Self::BudgetUsed
            | Self::AutoFailoverOff => EventKind::Decision,
            Self::Killed | Self::NotSaved => EventKind::Warning,
            Self::StartedFresh | Self::Resumed | Self::NotResumed | Self::Saved | Self::ExitTested => {
                EventKind::Progress
            }
            Self::StopRequested | Self::DeleteRequested | Self::ExitTestAsked => EventKind::Person,
        }
    }
}
