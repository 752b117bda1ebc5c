//! A test of Exit ckpt Notification on a job that runs (R18).

use serde::{Deserialize, Serialize};

use super::SaveOutcome;
use crate::{ids::ReplicaName, time::Time};

/// A test of Exit ckpt Notification: its program was told to save in every replica, as if it was to end, and went on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExitTestRecord {
    /// Which test of its attempt, from 1.
    pub number: u32,
    /// The launch that was tested.
    pub launch: u32,
    /// Who asked for it.
    pub by: String,
    /// When.
    pub asked_at: Time,
    /// When the program's time is over.
    pub deadline_at: Time,
    /// Maximum wait for the save, seconds.
    pub max_wait_seconds: u32,
    /// When it was over; none while it goes on.
    pub ended_at: Option<Time>,
    /// What it comes to.
    pub verdict: ExitTestVerdict,
    /// The same in a sentence.
    pub text: String,
    /// What may go wrong at a real end although this test passed.
    pub warnings: Vec<String>,
    /// Replicas that were asked.
    pub replicas_total: u32,
    /// What they said, those that did not save first; of many at most 128.
    pub replicas: Vec<ReplicaTestRecord>,
}

/// What a test comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExitTestVerdict {
    /// It goes on.
    Running,
    /// At a real end it would have been saved in time.
    Passed,
    /// It would not.
    Failed,
    /// A real end, a failure or another launch came first: it says nothing.
    CutShort,
}

/// What one replica said to a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplicaTestRecord {
    /// The replica.
    pub replica: ReplicaName,
    /// When its program had taken note; none where it has not.
    pub received_at: Option<Time>,
    /// How it ended, `saving` while it goes on; none where its agent has not said that it began.
    pub outcome: Option<SaveOutcome>,
    /// The step it saved.
    pub step: Option<u64>,
    /// Where.
    pub path: Option<String>,
    /// Time from the call until that end, seconds.
    pub seconds: Option<f64>,
    /// What the program did, or what is wrong with it, in words.
    pub message: Option<String>,
}
