//! From the samples of one process to since when it stands still, and what each sign says meanwhile. Judges nothing.

use std::{mem, time::Duration};

use engine::{
    sync::{
        HangWatch, ProcessState, RunState, StackKey, StillRank, Witness, WitnessKind, WitnessSays,
        watch_limits::WORDS_BYTES,
    },
    time::Time,
};

use crate::watch::{
    activity::{Activity, Moves},
    frames::{Hash, bounded},
    kernel,
    stacks::{Missing, Stacks},
};

/// What was seen of the checkpoint directory so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// How often it had grown.
    pub times: u64,
    /// The sample that saw it last.
    pub at: Option<Time>,
    /// What is in it, in words.
    pub detail: String,
    /// Why it cannot be looked at.
    pub unknown: Option<String>,
}

/// One look at a process.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// What its output has shown.
    pub activity: Activity,
    /// The replica's checkpoint directory.
    pub growth: Growth,
    /// Its stacks.
    pub stacks: Result<Stacks, Missing>,
    /// CPU time of the process and its children since they began.
    pub used: Option<Duration>,
    /// What the kernel says of it.
    pub state: Option<ProcessState>,
}

/// What a sample changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// It had been told that the process stands still, and that is over.
    pub moved: bool,
    /// The process stands still, for half of the window or more.
    pub still: Option<StillRank>,
    /// That is to be told.
    pub is_news: bool,
    /// It has just been still for the whole window, and neither its stack nor its output moved for half of it.
    pub is_full: bool,
}

/// Half of the window, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Half,
    Full,
}

/// What was told, as far as a change of it is news.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    level: Level,
    /// How long its stack and its output have not moved either. A process that never prints a step stands still all the time, and what
    /// counts is when it came to rest.
    frozen: Option<Level>,
    says: Vec<(WitnessKind, mem::Discriminant<WitnessSays>)>,
    stack: Option<String>,
    state: Option<RunState>,
}

/// The samples of one process.
#[derive(Debug)]
pub struct Tracker {
    watch: HangWatch,
    /// First and newest sample of the standstill, and their number.
    standstill: Option<(Time, Time, u32)>,
    moves: (Moves, u64),
    stack: Option<(Hash, Time)>,
    state: Option<(ProcessState, Time)>,
    /// CPU time at the newest sample.
    used: Option<Duration>,
    /// CPU time since the first sample of the standstill.
    used_still: Duration,
    /// The newest sample that found it busy.
    busy_at: Option<Time>,
    told: Option<Told>,
}

impl Tracker {
    /// Before the first sample.
    pub const fn new(watch: HangWatch) -> Self {
        Self {
            watch,
            standstill: None,
            moves: (Moves { steps: 0, phases: 0, checkpoints: 0, collectives: 0 }, 0),
            stack: None,
            state: None,
            used: None,
            used_still: Duration::ZERO,
            busy_at: None,
            told: None,
        }
    }

    /// Whether it was told that it stands still.
    pub const fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// Whether a sample at this time may be one of which all stacks are told, with lines and names: they have to be read with it, as
    /// they are told once. That it was told of before is not enough to go by: the first sample of half a window may come a moment early.
    pub fn may_show(&self, at: Time) -> bool {
        self.told.is_some() || self.standstill.is_some_and(|(since, ..)| self.level(since, at).is_some())
    }

    /// Takes the next sample.
    pub fn take(&mut self, sample: &Sample) -> Outcome {
        let at = sample.at;
        if self.standstill.is_some_and(|(_, newest, _)| self.is_gap(newest, at)) {
            *self = Self { moves: self.moves, told: self.told.take(), ..Self::new(self.watch) };
        }
        let moves = (sample.activity.moves, sample.growth.times);
        let has_moved = mem::replace(&mut self.moves, moves) != moves;
        let before = self.standstill.filter(|_| !has_moved);
        let (since, _, samples) = before.unwrap_or((at, at, 0));
        self.standstill = Some((since, at, samples.saturating_add(1)));
        self.see_stack(sample);
        self.see_state(sample);
        self.see_use(sample, before.map(|(_, newest, _)| newest));
        if before.is_none() {
            return Outcome { moved: self.told.take().is_some(), ..Outcome::default() };
        }
        let Some(level) = self.level(since, at) else { return Outcome::default() };
        let still = self.still(sample, since);
        let told = Told { frozen: self.frozen(sample, since), ..told(level, &still) };
        // Beside a process that is stopped a verdict may come before this one has been at rest for all of the window.
        let full = |told: &Told| told.level == Level::Full && told.frozen.is_some();
        let is_full = full(&told) && !self.told.as_ref().is_some_and(full);
        // In a phase that may be long nothing follows from one window: who judges has to know that it lasts.
        let lasts = told.frozen == Some(Level::Full);
        let is_news = lasts || self.told.as_ref() != Some(&told);
        self.told = Some(told);
        Outcome { moved: false, still: Some(still), is_news, is_full }
    }

    /// A sample was missed or late, or the clock was set back: what lies between is not known.
    fn is_gap(&self, newest: Time, at: Time) -> bool {
        let passed = at.micros().saturating_sub(newest.micros());
        passed <= 0 || passed > micros(self.watch.interval_seconds).saturating_mul(2)
    }

    fn level(&self, since: Time, until: Time) -> Option<Level> {
        let (passed, window) = (until.micros() - since.micros(), micros(self.watch.window_seconds));
        match () {
            () if passed >= window => Some(Level::Full),
            () if passed >= window / 2 => Some(Level::Half),
            () => None,
        }
    }

    fn frozen(&self, sample: &Sample, since: Time) -> Option<Level> {
        let stack = self.stack.map(|(_, same_since)| same_since).filter(|_| sample.stacks.is_ok());
        let rest = since.max(stack.unwrap_or(since)).max(sample.activity.output_at.unwrap_or(since));
        self.level(rest, sample.at)
    }

    /// A stack that could not be read once is taken for the same if it is the same before and after.
    fn see_stack(&mut self, sample: &Sample) {
        let Ok(stacks) = &sample.stacks else { return };
        let same = self.stack.filter(|(hash, _)| stacks.settled && *hash == stacks.hash);
        self.stack = Some(same.unwrap_or((stacks.hash, sample.at)));
    }

    fn see_state(&mut self, sample: &Sample) {
        let known = self.state.take();
        let Some(state) = &sample.state else { return };
        let since = known.filter(|(known, _)| known == state).map_or(sample.at, |(_, since)| since);
        self.state = Some((state.clone(), since));
    }

    fn see_use(&mut self, sample: &Sample, newest: Option<Time>) {
        let before = mem::replace(&mut self.used, sample.used);
        let Some(newest) = newest else {
            self.used_still = Duration::ZERO;
            return;
        };
        let (Some(before), Some(now)) = (before, sample.used) else { return };
        let used = now.saturating_sub(before);
        self.used_still = self.used_still.saturating_add(used);
        if is_busy(used, newest, sample.at) {
            self.busy_at = Some(sample.at);
        }
    }

    fn still(&self, sample: &Sample, since: Time) -> StillRank {
        let activity = &sample.activity;
        let samples = self.standstill.map_or(0, |(.., samples)| samples);
        let witnesses = vec![
            self.stack_witness(sample, since),
            witness(
                WitnessKind::Step,
                activity.step.map(|(step, at)| (Some(at), format!("after step {step}"))),
                || "it has printed no step".to_owned(),
            ),
            output_witness(activity, since),
            witness(WitnessKind::Checkpoint, checkpoint(sample), || {
                sample.growth.unknown.clone().unwrap_or_default()
            }),
            self.cpu_witness(sample, since),
            witness(WitnessKind::Collective, collective(activity), || {
                "its output says nothing of collectives".to_owned()
            }),
            self.state_witness(since),
        ];
        StillRank {
            rank: 0,
            since,
            until: sample.at,
            samples,
            witnesses,
            stack: sample.stacks.as_ref().ok().map(|stacks| stacks.key.clone()),
            state: sample.state.clone(),
            phase: activity.phase,
            collective: activity.collective.clone(),
        }
    }

    fn stack_witness(&self, sample: &Sample, since: Time) -> Witness {
        let kind = WitnessKind::Stack;
        match (&sample.stacks, self.stack) {
            (Ok(stacks), Some((_, same_since))) => Witness {
                kind,
                says: unchanged(same_since <= since && stacks.settled),
                since: Some(same_since),
                detail: innermost(&stacks.key),
            },
            (Err(why), _) => unknown(kind, why.words()),
            (Ok(_), None) => unknown(kind, "it was not read".to_owned()),
        }
    }

    fn cpu_witness(&self, sample: &Sample, since: Time) -> Witness {
        let kind = WitnessKind::Cpu;
        if sample.used.is_none() {
            return unknown(kind, "the kernel shows no CPU time of it".to_owned());
        }
        let says = unchanged(!is_busy(self.used_still, since, sample.at));
        let detail = format!("{:.2} s of CPU time", self.used_still.as_secs_f64());
        Witness { kind, says, since: self.busy_at.or(Some(since)), detail }
    }

    fn state_witness(&self, since: Time) -> Witness {
        let kind = WitnessKind::KernelState;
        match &self.state {
            Some((state, same_since)) => Witness {
                kind,
                says: unchanged(*same_since <= since),
                since: Some(*same_since),
                detail: kernel::words(state),
            },
            None => unknown(kind, "the kernel shows no state of it".to_owned()),
        }
    }
}

/// A hundredth of the time or more.
fn is_busy(used: Duration, since: Time, until: Time) -> bool {
    let passed = until.micros().saturating_sub(since.micros()).max(0);
    used.as_micros().saturating_mul(100) >= passed.unsigned_abs().into()
}

const fn micros(seconds: u32) -> i64 {
    seconds as i64 * 1_000_000
}

const fn unchanged(is: bool) -> WitnessSays {
    if is { WitnessSays::Unchanged } else { WitnessSays::Changed }
}

fn unknown(kind: WitnessKind, reason: String) -> Witness {
    let says = WitnessSays::Unknown(bounded(&reason, WORDS_BYTES));
    Witness { kind, says, since: None, detail: String::new() }
}

/// Of what is a movement by itself, so that it has not moved while the process stands still.
fn witness(kind: WitnessKind, seen: Option<(Option<Time>, String)>, why_not: impl Fn() -> String) -> Witness {
    match seen {
        Some((since, detail)) => {
            Witness { kind, says: WitnessSays::Unchanged, since, detail: bounded(&detail, WORDS_BYTES) }
        }
        None => unknown(kind, why_not()),
    }
}

fn output_witness(activity: &Activity, since: Time) -> Witness {
    match activity.output_at {
        Some(at) => Witness {
            kind: WitnessKind::Output,
            says: unchanged(at <= since),
            since: Some(at),
            detail: String::new(),
        },
        None => unknown(WitnessKind::Output, "it has printed nothing".to_owned()),
    }
}

fn checkpoint(sample: &Sample) -> Option<(Option<Time>, String)> {
    let said = sample.activity.checkpoint_at;
    match sample.growth.unknown {
        Some(_) => None,
        None => Some((sample.growth.at.max(said), sample.growth.detail.clone())),
    }
}

fn collective(activity: &Activity) -> Option<(Option<Time>, String)> {
    let said = activity.collective.as_ref()?;
    let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let (begun, done) = (number(said.last_enqueued), number(said.last_completed));
    let name = said.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    Some((activity.collective_at, format!("{begun} begun{name}, {done} done")))
}

fn innermost(key: &StackKey) -> String {
    key.top.first().map(|frame| bounded(&format!("in {frame}"), WORDS_BYTES)).unwrap_or_default()
}

fn told(level: Level, still: &StillRank) -> Told {
    let says =
        still.witnesses.iter().map(|witness| (witness.kind, mem::discriminant(&witness.says))).collect();
    let is_same =
        |witness: &Witness| witness.kind == WitnessKind::Stack && witness.says == WitnessSays::Unchanged;
    // Where the stack changes all the time, one more is no news.
    let stack =
        still.stack.as_ref().filter(|_| still.witnesses.iter().any(is_same)).map(|key| key.hash.clone());
    let state = still.state.as_ref().map(|state| state.is);
    // One that works takes turns between these.
    let state = state.filter(|is| !matches!(is, RunState::Running | RunState::Sleeping));
    Told { level, frozen: None, says, stack, state }
}

#[cfg(test)]
mod tests;
