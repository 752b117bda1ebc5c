//! From what the agents say of processes that do not move to a verdict with its witnesses.
//!
//! False alarms are the enemy: a job that is killed while it works loses more than one that stands still a little longer. So everything
//! has to speak for a standstill, and one witness that speaks against it is enough:
//! - No live rank of the attempt made progress over the whole window: a step, a checkpoint that grew, a collective that was done, a phase
//!   that was entered. A rank of which nothing is known moves.
//! - No live rank printed anything meanwhile, and each was in the same functions all the time. A rank whose functions change does work
//!   the others wait for. Where the functions cannot be seen, CPU time has to stand still too: then low use alone never decides, since
//!   output and progress have to stand still with it.
//! - A process that is stopped (T) is enough by itself, whatever the others are seen to do while they wait for it. One that a debugger
//!   holds is somebody's work.
//! - Phases that the program marks have a limit of their own ([`MARKED_PHASE_SECONDS`]), and a quiet stretch that the job has come through
//!   before is no hang: the window is at least [`LEARNED_SHARE`] of the longest one in this phase.

mod odd;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    failure::Phase,
    ids::NodeName,
    sync::{Collective, HangWatch, ProcessState, RunState, StackKey, StillRank, WitnessKind, WitnessSays},
    time::Time,
    words,
};

pub use odd::{OddRank, RankGroup, Strength};

/// A phase that the program marked as loading, data, evaluation or saving is no hang for this long, seconds: the longest saves and
/// evaluations that users of such systems speak of take 20 to 30 minutes (scenarios S-27, S-30), and this is twice as long.
pub const MARKED_PHASE_SECONDS: u32 = 3_600;
/// The window is at least this many times the longest quiet stretch of the phase that ended with progress.
pub const LEARNED_SHARE: f64 = 1.5;
/// A quiet stretch beyond this is not learned, seconds: nobody means it, and a day without detection would follow from it.
pub const LEARNED_MAX_SECONDS: u32 = 14_400;
/// A suspicion is shown once this part of the window has passed.
const SUSPECTED_SHARE: f64 = 0.5;
/// Characters of a reason that are kept.
const REASON_CHARS: usize = 100;
/// Groups of ranks in a verdict; what is beyond them is counted in the last.
const MAX_GROUPS: usize = 16;
/// Ranks of a group that are named.
const MAX_NAMED: usize = 256;

/// The longest quiet stretches of a job by phase that ended with progress, whole seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quiet(BTreeMap<Phase, u32>);

impl Quiet {
    /// A stretch without progress that is over.
    pub fn learn(&mut self, phase: Phase, since: Time, until: Time) {
        let seconds = until.seconds_since(since) as u32;
        if seconds > 0 && seconds <= LEARNED_MAX_SECONDS {
            let longest = self.0.entry(phase).or_default();
            *longest = seconds.max(*longest);
        }
    }

    /// The longest of a phase, seconds; 0 where none was seen.
    pub fn of(&self, phase: Phase) -> u32 {
        self.0.get(&phase).copied().unwrap_or_default()
    }

    /// The longest of all.
    pub fn longest(&self) -> Option<QuietPhase> {
        let (phase, seconds) = self.0.iter().max_by_key(|(_, seconds)| **seconds)?;
        Some(QuietPhase { phase: *phase, seconds: *seconds })
    }

    /// Nothing was learned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A quiet stretch that a job came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuietPhase {
    /// In this phase.
    pub phase: Phase,
    /// How long, whole seconds.
    pub seconds: u32,
}

/// One witness of one process, without its words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// It has not moved, since then at least where that is known.
    Unchanged(Option<Time>),
    /// It moved, and not since then where that is known.
    Changed(Option<Time>),
    /// Nobody can say, for this reason.
    Unknown(String),
    /// The agent did not speak of it.
    #[default]
    Unsaid,
}

impl Sign {
    fn is_unsaid(&self) -> bool {
        *self == Self::Unsaid
    }

    /// Since when it has not moved, seen from `since` on; none where it moves or nobody can say.
    fn still_since(&self, since: Time) -> Option<Time> {
        match self {
            Self::Unchanged(at) => Some(at.map_or(since, |at| at.max(since))),
            Self::Changed(at) => at.map(|at| at.max(since)),
            Self::Unknown(_) | Self::Unsaid => None,
        }
    }

    fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Unsaid)
    }

    fn is_changed(&self) -> bool {
        matches!(self, Self::Changed(_))
    }
}

/// What is kept of a [`StillRank`]: a chain holds thousands of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Still {
    /// The first of the samples between which it did not move.
    pub since: Time,
    /// The newest of them.
    pub until: Time,
    /// Its functions.
    #[serde(default, skip_serializing_if = "Sign::is_unsaid")]
    pub stack: Sign,
    /// Its output.
    #[serde(default, skip_serializing_if = "Sign::is_unsaid")]
    pub output: Sign,
    /// Its CPU time.
    #[serde(default, skip_serializing_if = "Sign::is_unsaid")]
    pub cpu: Sign,
    /// A witness of progress says that it moved, which contradicts the report.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contradicted: bool,
    /// What the kernel says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ProcessState>,
    /// Since when it is stopped, where it is: what it did before was no standstill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_since: Option<Time>,
    /// The phase it named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Its collectives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<Collective>,
}

impl Still {
    /// What counts of a report.
    pub fn of(rank: &StillRank) -> Self {
        let sign = |kind: WitnessKind| {
            let witness = rank.witnesses.iter().find(|witness| witness.kind == kind);
            witness.map_or(Sign::Unsaid, |witness| match &witness.says {
                WitnessSays::Unchanged => Sign::Unchanged(witness.since),
                WitnessSays::Changed => Sign::Changed(witness.since),
                WitnessSays::Unknown(reason) => Sign::Unknown(reason.chars().take(REASON_CHARS).collect()),
            })
        };
        let is_stopped = rank.state.as_ref().is_some_and(|seen| seen.is == RunState::Stopped);
        let state = rank.witnesses.iter().find(|witness| witness.kind == WitnessKind::KernelState);
        let progress = [WitnessKind::Step, WitnessKind::Checkpoint, WitnessKind::Collective];
        Self {
            since: rank.since,
            until: rank.until,
            stack: sign(WitnessKind::Stack),
            output: sign(WitnessKind::Output),
            cpu: sign(WitnessKind::Cpu),
            contradicted: progress.into_iter().any(|kind| sign(kind).is_changed()),
            state: rank.state.clone(),
            // An agent that does not say since when has seen it in its newest sample at least.
            stopped_since: is_stopped.then(|| state.and_then(|witness| witness.since).unwrap_or(rank.until)),
            phase: rank.phase,
            collective: rank.collective.clone(),
        }
    }

    /// The time for which a debugger held it, by the report before, is none in which it stood still.
    pub(crate) fn follow(&mut self, before: &Self) {
        let from = if before.is(RunState::Traced) { before.until } else { before.since };
        self.since = self.since.max(from);
    }

    fn is(&self, state: RunState) -> bool {
        self.state.as_ref().is_some_and(|seen| seen.is == state)
    }

    /// Since when nothing at all moved in it; none where something does, or where too little is known. Beside a process that is
    /// stopped it may be busy waiting; beside one that has finished its CPU time need not be known.
    fn frozen_since(&self, others: Others) -> Option<Time> {
        if self.contradicted || self.is(RunState::Traced) {
            return None;
        }
        let silent =
            if self.output.is_unknown() { self.since } else { self.output.still_since(self.since)? };
        if let Some(stopped) = self.stopped_since {
            return Some(stopped.max(silent));
        }
        if others.stopped {
            return Some(silent);
        }
        if !self.stack.is_unknown() {
            return Some(self.stack.still_since(self.since)?.max(silent));
        }
        // Without a stack both others have to speak.
        if self.output.is_unknown() {
            return None;
        }
        match self.cpu.still_since(self.since) {
            Some(idle) => Some(idle.max(silent)),
            None if others.finished && self.cpu.is_unknown() => Some(silent),
            None => None,
        }
    }
}

/// What other ranks are known to be.
#[derive(Clone, Copy)]
struct Others {
    stopped: bool,
    finished: bool,
}

/// One training process of the attempt.
#[derive(Clone, Debug)]
pub struct Rank<'a> {
    /// The node of its replica.
    pub node: Option<&'a NodeName>,
    /// What is known of it.
    pub fate: Fate<'a>,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug)]
pub enum Fate<'a> {
    /// It moves, or nobody knows.
    Moves,
    /// It has not moved for a while, and what it is in by its stack.
    Still(&'a Still, Option<&'a StackKey>),
    /// It finished its work with 0.
    Finished,
}

/// All processes of a launch and what else counts.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// By rank.
    pub ranks: Vec<Rank<'a>>,
    /// How they are watched.
    pub watch: HangWatch,
    /// Since when all of them run.
    pub began: Time,
    /// When any of them was last known to make progress.
    pub moved_at: Option<Time>,
    /// The phase of the launch, as its programs named it last or as their steps show.
    pub phase: Phase,
    /// The last step of the launch.
    pub step: Option<u64>,
    /// What the job has come through.
    pub quiet: &'a Quiet,
}

/// What it comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Something moves, or it has not stood still for long.
    Moves,
    /// Part of the time after which it is a hang has passed.
    Suspected(Suspicion),
    /// It hangs.
    Hang(Box<HangRecord>),
}

/// A standstill that is not long enough yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// Since when nothing moves.
    pub since: Time,
    /// For how long it may, seconds.
    pub allowed_seconds: u32,
    /// The stacks of all ranks are known, and unchanged.
    pub stacks: bool,
}

/// Why a launch was judged to hang: what is kept and shown with the incident.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HangRecord {
    /// Since when nothing moved.
    pub since: Time,
    /// The newest sample.
    pub until: Time,
    /// For how long it had to stand still, seconds: Hang Determination Duration, or longer where the phase may be quiet for longer.
    pub allowed_seconds: u32,
    /// The phase in which it stood still.
    pub phase: Phase,
    /// All that was looked at, whatever it says.
    pub witnesses: Vec<HangWitness>,
    /// Where the ranks are, the largest group first; at most 16.
    pub groups: Vec<RankGroup>,
    /// The rank, or the few, for which the others wait; none where they cannot be told apart.
    pub odd: Option<OddRank>,
    /// The same in one sentence.
    pub words: String,
}

/// What one kind of sign says of all live ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HangWitness {
    /// The sign.
    pub kind: WitnessKind,
    /// Ranks of which it says that they do not move.
    pub unchanged: u32,
    /// Ranks of which it says that they do.
    pub changed: u32,
    /// Ranks of which it says nothing.
    pub unknown: u32,
    /// Since when the last of them has not moved.
    pub since: Option<Time>,
    /// The same in a sentence.
    pub words: String,
}

/// Judges a launch by what is known of all its processes. Time is that of the samples.
pub fn judge(scene: &Scene<'_>) -> Outcome {
    let mut live = Vec::new();
    for (number, rank) in scene.ranks.iter().enumerate() {
        match rank.fate {
            Fate::Moves => return Outcome::Moves,
            Fate::Still(still, key) => live.push(Seen { number: number as u32, rank, still, key }),
            Fate::Finished => {}
        }
    }
    let others = Others {
        stopped: live.iter().any(|seen| seen.still.is(RunState::Stopped)),
        finished: live.len() < scene.ranks.len(),
    };
    let watched_from = scene.began.plus_seconds(scene.watch.start_after_seconds.into());
    let mut since = watched_from.max(scene.moved_at.unwrap_or(watched_from));
    for seen in &live {
        let Some(frozen) = seen.still.frozen_since(others) else { return Outcome::Moves };
        since = since.max(frozen);
    }
    let Some(until) = live.iter().map(|seen| seen.still.until).max() else { return Outcome::Moves };
    let allowed_seconds = allowed(scene, &live, others);
    let passed = until.seconds_since(since);
    if passed >= f64::from(allowed_seconds) {
        Outcome::Hang(Box::new(record(scene, &live, others, since, until, allowed_seconds)))
    } else if passed >= f64::from(allowed_seconds) * SUSPECTED_SHARE {
        let stacks = live.iter().all(|seen| !seen.still.stack.is_unknown());
        Outcome::Suspected(Suspicion { since, allowed_seconds, stacks })
    } else {
        Outcome::Moves
    }
}

/// A live process that stands still.
#[derive(Clone, Copy)]
struct Seen<'a> {
    number: u32,
    rank: &'a Rank<'a>,
    still: &'a Still,
    key: Option<&'a StackKey>,
}

/// For how long this launch may stand still where it does, seconds. A stopped process is in no phase.
fn allowed(scene: &Scene<'_>, live: &[Seen<'_>], others: Others) -> u32 {
    let window = scene.watch.window_seconds;
    if others.stopped {
        return window;
    }
    let phases = || live.iter().filter_map(|seen| seen.still.phase).chain([scene.phase]);
    let learned = phases().map(|phase| scene.quiet.of(phase)).max().unwrap_or_default();
    let learned = (f64::from(learned) * LEARNED_SHARE).ceil() as u32;
    let marked = if phases().any(is_long) { MARKED_PHASE_SECONDS } else { 0 };
    window.max(learned).max(marked)
}

/// Phases that only a program names, and in which it may be quiet for long.
const fn is_long(phase: Phase) -> bool {
    match phase {
        Phase::Loading | Phase::Data | Phase::Evaluation | Phase::Saving => true,
        Phase::Starting | Phase::Communication | Phase::Training => false,
    }
}

fn record(
    scene: &Scene<'_>,
    live: &[Seen<'_>],
    others: Others,
    since: Time,
    until: Time,
    allowed_seconds: u32,
) -> HangRecord {
    let finished: Vec<u32> = (0u32..)
        .zip(&scene.ranks)
        .filter(|(_, rank)| matches!(rank.fate, Fate::Finished))
        .map(|(number, _)| number)
        .collect();
    let (groups, odd) = odd::groups(scene, live, &finished, others);
    let places = odd::words(&groups, odd.as_ref(), &finished);
    let phase = live.iter().find_map(|seen| seen.still.phase).unwrap_or(scene.phase);
    HangRecord {
        since,
        until,
        allowed_seconds,
        phase,
        witnesses: witnesses(scene, live),
        words: format!("no progress for {}: {places}", words::duration(until.seconds_since(since))),
        groups,
        odd,
    }
}

/// What every kind of sign says, those of no use included: who reads it shall see what was looked at.
fn witnesses(scene: &Scene<'_>, live: &[Seen<'_>]) -> Vec<HangWitness> {
    let count = |kind: WitnessKind, sign: &dyn Fn(&Still) -> Sign| {
        let mut witness =
            HangWitness { kind, unchanged: 0, changed: 0, unknown: 0, since: None, words: String::new() };
        let mut reason = None;
        for seen in live {
            match sign(seen.still) {
                Sign::Unchanged(at) => {
                    witness.unchanged += 1;
                    witness.since = witness.since.max(at.or(Some(seen.still.since)));
                }
                Sign::Changed(at) => {
                    witness.changed += 1;
                    witness.since = witness.since.max(at);
                }
                Sign::Unknown(why) => {
                    witness.unknown += 1;
                    reason.get_or_insert(why);
                }
                Sign::Unsaid => witness.unknown += 1,
            }
        }
        (witness, reason)
    };
    let ranks = |number: u32| words::count(number, "rank");
    let mut all = Vec::new();
    for (kind, sign, unchanged, changed) in [
        (
            WitnessKind::Stack,
            &(|still: &Still| still.stack.clone()) as &dyn Fn(&Still) -> Sign,
            "in the same functions",
            "changed before",
        ),
        (WitnessKind::Output, &|still| still.output.clone(), "printed nothing", "printed before"),
        (WitnessKind::Cpu, &|still| still.cpu.clone(), "idle", "busy"),
    ] {
        let (mut witness, reason) = count(kind, sign);
        let mut parts = Vec::new();
        if witness.unchanged > 0 {
            parts.push(format!("{} {unchanged}", ranks(witness.unchanged)));
        }
        if witness.changed > 0 {
            parts.push(format!("{} {changed}", ranks(witness.changed)));
        }
        if witness.unknown > 0 {
            let why = reason.map(|why| format!(" ({why})")).unwrap_or_default();
            parts.push(format!("not known of {}{why}", ranks(witness.unknown)));
        }
        witness.words = parts.join(", ");
        all.push(witness);
    }
    let still = |kind, words: String, since| HangWitness {
        kind,
        unchanged: live.len() as u32,
        changed: 0,
        unknown: 0,
        since,
        words,
    };
    let last = live.iter().map(|seen| seen.still.since).max();
    let step = match scene.step {
        Some(step) => format!("no step after {}", words::grouped(step)),
        None => "no step was ever printed in this launch".to_owned(),
    };
    all.push(still(WitnessKind::Step, step, scene.moved_at.or(last)));
    all.push(still(WitnessKind::Checkpoint, "no file of the checkpoint directory grew".to_owned(), last));
    let numbers = live.iter().filter(|seen| seen.still.collective.is_some()).count() as u32;
    if numbers > 0 {
        let words = format!("no collective was done by {} that number them", ranks(numbers));
        all.push(HangWitness { unchanged: numbers, ..still(WitnessKind::Collective, words, last) });
    }
    for (state, what) in [
        (RunState::Stopped, "stopped by a signal"),
        (RunState::Uninterruptible, "in the hands of a disk, a network file system or a driver"),
    ] {
        let number = live.iter().filter(|seen| seen.still.is(state)).count() as u32;
        if number > 0 {
            let words = format!("{} {what}", ranks(number));
            all.push(HangWitness { unchanged: number, ..still(WitnessKind::KernelState, words, last) });
        }
    }
    all
}
