//! What an agent is told to watch for standstills, and what it says about processes that stand still.
//!
//! The agent samples and compares; it judges nothing. It says since when a process has shown none of the movements that only a program
//! at work shows (a step, a checkpoint that grows, a collective that is done, a phase that is entered), and what else was or was not seen
//! to move meanwhile. [`crate::hang`] weighs that over all ranks of the attempt.

use serde::{Deserialize, Serialize};

use crate::{failure::Phase, time::Time};

/// Limits of what is said about standstills. The numbers are Holdfast's own: a report of each fits many times into
/// [`BODY_BYTES`](super::limits::BODY_BYTES).
pub mod limits {
    /// Processes in one report: those of one replica.
    pub const RANKS: usize = 64;
    /// Witnesses of one process: one of each kind.
    pub const WITNESSES: usize = 8;
    /// Bytes of a reason, of a detail, of a wait channel, of a collective's name.
    pub const WORDS_BYTES: usize = 200;
    /// Frames in the key of a stack.
    pub const KEY_FRAMES: usize = 12;
    /// Bytes of the hash in the key of a stack.
    pub const HASH_BYTES: usize = 32;
    /// Threads of one process whose stacks are kept.
    pub const THREADS: usize = 128;
    /// Frames of one thread that are kept, the innermost.
    pub const FRAMES: usize = 128;
    /// Bytes of one frame, and of a thread's name.
    pub const FRAME_BYTES: usize = 256;
    /// Bytes of all names and frames in one report of stacks.
    pub const STACKS_BYTES: usize = 256 * 1024;
}

/// How the processes of a launch are watched; the same for all replicas of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HangWatch {
    /// Seconds between two samples of a process, at least 1.
    pub interval_seconds: u32,
    /// Seconds for which a process must not have moved, at least the interval.
    pub window_seconds: u32,
    /// Seconds from the start of the launch's processes to the first sample.
    pub start_after_seconds: u32,
}

/// A process in which no movement was seen for some time: no step, no checkpoint that grew or appeared, no collective that was done
/// and no phase that was entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StillRank {
    /// Its rank.
    pub rank: u32,
    /// The first of the samples between which it did not move.
    pub since: Time,
    /// The newest of them. A missed or late sample (a gap of more than two intervals) begins them anew.
    pub until: Time,
    /// How many they are.
    pub samples: u32,
    /// What was and was not seen to move, at most one of each kind.
    pub witnesses: Vec<Witness>,
    /// What it does, by the newest sample; none where that cannot be had.
    pub stack: Option<StackKey>,
    /// What the kernel says it does; none where that could not be read.
    #[serde(default)]
    pub state: Option<ProcessState>,
    /// The phase its program named last; none where it named none.
    pub phase: Option<Phase>,
    /// What its output said last of the collectives it takes part in.
    pub collective: Option<Collective>,
}

/// What one kind of sign says about a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Witness {
    /// The sign.
    pub kind: WitnessKind,
    /// What it says of the time from [`StillRank::since`] to [`StillRank::until`].
    pub says: WitnessSays,
    /// Since when it has not moved, which may be long before the first sample or well after it; none where that is not known.
    pub since: Option<Time>,
    /// The same for people, without its times: `in all_reduce`, `after step 41`, `0.02 s of CPU time`; may be empty.
    #[serde(default)]
    pub detail: String,
}

/// The signs by which a process is seen to move or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WitnessKind {
    /// The functions it is in, of all its threads that run the program.
    Stack,
    /// Steps it prints.
    Step,
    /// Lines or states of a progress bar it prints.
    Output,
    /// Files in the checkpoint directory.
    Checkpoint,
    /// CPU time of the process and its children; unchanged where it used less than a hundredth of the time.
    Cpu,
    /// Sequence numbers of collectives in its output.
    Collective,
    /// What the kernel says: stopped, in the disk's hands, waiting in a channel. Unchanged: at all samples the same.
    KernelState,
}

/// What a sign says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WitnessSays {
    /// No movement between the first and the newest sample.
    Unchanged,
    /// It moved between them.
    Changed,
    /// It could not be looked at, or this process never shows it; the reason in words.
    Unknown(String),
}

/// What a process does, in a form that is the same for all processes that do the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StackKey {
    /// A short hash of the functions on the stack of the main thread, without line numbers, addresses and arguments.
    pub hash: String,
    /// Its innermost frames, the innermost first: `all_reduce (torch/distributed/distributed_c10d.py)`.
    pub top: Vec<String>,
}

/// The state of a process as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessState {
    /// Its state.
    pub is: RunState,
    /// The kernel function in which it waits; none where it does not, or where that is not shown.
    pub waits_in: Option<String>,
}

/// The letters of `/proc/<pid>/stat` in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// R.
    Running,
    /// S.
    Sleeping,
    /// D: in the hands of a disk, a network file system or a driver; not even KILL ends it.
    Uninterruptible,
    /// T: stopped by a signal.
    Stopped,
    /// A debugger holds it (t), or is attached to it.
    Traced,
    /// Z, X and all others.
    Other,
}

/// Collectives of a process, by the last line of its output that speaks of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Collective {
    /// The number of the last one it began.
    pub last_enqueued: Option<u64>,
    /// The number of the last one that was done.
    pub last_completed: Option<u64>,
    /// The name of the one it is in: `ALLREDUCE`.
    pub name: Option<String>,
}

/// All stacks of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankStack {
    /// Its rank.
    pub rank: u32,
    /// When they were read.
    pub at: Time,
    /// Its threads, the main one first.
    pub threads: Vec<ThreadStack>,
    /// Threads that were left out.
    #[serde(default)]
    pub omitted_threads: u32,
    /// Why there are none: `no permission (kernel.yama.ptrace_scope)`, `not Python`, `too old`, `timed out`.
    pub missing: Option<String>,
}

/// The stack of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ThreadStack {
    /// Its id in the kernel.
    pub id: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its frames with lines, the innermost first: `all_reduce (torch/distributed/distributed_c10d.py:2501)`.
    pub frames: Vec<String>,
    /// Outer frames that were left out.
    #[serde(default)]
    pub omitted_frames: u32,
}

impl StillRank {
    /// The same, seen by a clock that shows `micros` microseconds more.
    pub(super) fn shift(&mut self, shift: impl Fn(&mut Time)) {
        shift(&mut self.since);
        shift(&mut self.until);
        for witness in &mut self.witnesses {
            if let Some(since) = &mut witness.since {
                shift(since);
            }
        }
    }
}
