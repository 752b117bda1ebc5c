//! A test of Exit ckpt Notification: what the server orders, and what a replica tells of it.

use serde::{Deserialize, Serialize};

use crate::{record::SaveOutcome, time::Time};

/// The program of a launch that runs, and goes on, is told to save, once, as if it was to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExitTestOrder {
    /// Which test of the attempt, from 1.
    pub number: u32,
    /// When its time is over, by the server's clock.
    pub deadline_at: Time,
}

/// How a test stands in one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitTestReport {
    /// Which test.
    pub number: u32,
    /// Time from the call until the program had taken note of it, milliseconds; none as long as it has not.
    pub received_millis: Option<u64>,
    /// `saving` once the program is being told, then its end; the first end counts. Never `forced`.
    pub outcome: SaveOutcome,
    /// The step it saved.
    pub step: Option<u64>,
    /// Where.
    pub path: Option<String>,
    /// What the program, or the agent about it, says.
    pub message: Option<String>,
    /// Time from the call until this end, milliseconds; none while it goes on.
    pub took_millis: Option<u64>,
}
