//! A job as a whole, for lists and the head of its pages.

use serde::{Deserialize, Serialize};

use super::{State, Substate};
use crate::{failure::FailureType, hang::QuietPhase, ids::TaskId, job::Mode, time::Time};

/// The head of the Fault Tolerance Detail: everything about the job as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Summary {
    /// The job's state.
    pub state: State,
    /// What goes on beside it.
    pub substate: Option<Substate>,
    /// A few words beside the badge: `attempt 3 is queued`, `in place 1 of 3`, or why it ended.
    pub tail: String,
    /// Derived from the switches.
    pub mode: Mode,
    /// The first attempt.
    pub original_task_id: TaskId,
    /// The newest attempt.
    pub latest_task_id: TaskId,
    /// All attempts.
    pub attempts_total: u32,
    /// What is used and allowed.
    pub budgets: Budgets,
    /// Why no restart follows or can follow; none while one is under way or possible.
    pub why_not: Option<WhyNot>,
    /// Where the accelerator time went.
    pub ledger: Ledger,
    /// The newest step seen and the newest saved, over all attempts.
    pub reached_step: Option<u64>,
    /// The newest step saved.
    pub saved_step: Option<u64>,
    /// Steps the program means to make.
    pub total_steps: Option<u64>,
    /// The longest stretch without progress that the job came through: Hang Determination Duration should be longer.
    pub longest_quiet: Option<QuietPhase>,
    /// The failure type of the newest incident.
    pub failure_type: Option<FailureType>,
    /// A person has to look: it ended badly and neither was resubmitted nor acknowledged, or it cannot be scheduled, or something on the
    /// cluster has kept it from starting for a minute, or it is unknown.
    pub needs_attention: bool,
    /// A person's stop or delete is under way or done.
    pub stopped_by: Option<String>,
    /// What keeps the newest attempt on the cluster though it is over or stopped, and what to do about it.
    pub kept: Option<String>,
    /// Until when the program may save before it ends; none while it is not saving.
    #[serde(default)]
    pub saving_until: Option<Time>,
}

/// The three counters that are never mixed. In-place budgets are the latest attempt's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Budgets {
    /// Resubmissions of the job.
    pub task_restarts: Used,
    /// In-place restarts after failures other than hangs.
    pub in_place_restarts: Used,
    /// In-place restarts after hangs.
    pub hang_restarts: Used,
    /// Diagnoses.
    pub diagnostics: Diagnostics,
}

/// Used of allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Used {
    /// Used.
    pub used: u32,
    /// Allowed.
    pub allowed: u32,
}

impl Used {
    /// What is left.
    pub const fn left(self) -> u32 {
        self.allowed.saturating_sub(self.used)
    }
}

/// Diagnoses have no limit of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Diagnostics {
    /// Used.
    pub used: u32,
}

/// Why no restart follows, and what a person can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhyNot {
    /// `All 2 task restarts are used.`
    pub text: String,
    /// The next step.
    pub next: String,
}

/// Where the time of the job went, in accelerator-seconds (a job without accelerators counts its processes' slots as one each).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ledger {
    /// Steps that were kept.
    pub kept: f64,
    /// Standing still.
    pub stalled: f64,
    /// Starting and loading.
    pub starting: f64,
    /// Steps made twice.
    pub redone: f64,
    /// Diagnosing: what the runs of Bisect Diagnose for this job took.
    pub diagnosing: f64,
    /// Waiting, in plain seconds: it holds no accelerator.
    pub queued_seconds: f64,
    /// Kept of all time that held accelerators; none before any.
    pub ettr: Option<f64>,
}
