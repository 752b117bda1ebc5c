//! Whether training resumed: steps, loss and checkpoints of a launch against what the launches before it had reached.

use serde::{Deserialize, Serialize};

use crate::{
    hang::Quiet,
    record::{
        CheckpointCheck, NewCheckpointCheck, ProgressCheck, Proof, ProofVerdict, ResourcesCheck, StepRange,
    },
    sync::{CheckpointEvent, Point},
    time::Time,
};

/// A launch without a step after this time is shown as "no progress"; the same as the prefilled start of hang detection.
pub const FIRST_STEP_LIMIT_SECONDS: u64 = 1800;
/// The loss jumped where it rose by more than this share of what it was before …
const JUMP_SHARE: f64 = 0.5;
/// … and by more than this many times its usual scatter …
const JUMP_SCATTERS: f64 = 3.0;
/// … measured over this many neighbouring points.
const NEIGHBOURS: usize = 8;
/// Losses remembered of earlier launches; beyond that every second one is dropped.
const MAX_LOSSES: usize = 64;
/// A program that printed losses before and then prints this many points without a number has lost it (nan, inf).
const POINTS_WITHOUT_LOSS: u32 = 3;

/// The highest step that is believed. No run gets there: a step each microsecond would take eleven days. What is printed beyond it
/// is an overflow, a time or an identifier, and a single one would spoil for good what the job has reached, its share and its
/// curve. There is no narrower rule, such as by how much a step may leap: some programs count samples or tokens.
pub const MAX_STEP: u64 = 1_000_000_000_000;
/// The largest loss that is believed, either way. Beyond it training has diverged, which is as little a loss as `nan` or `inf`, and
/// next to it a curve would show nothing else.
pub const MAX_LOSS: f64 = 1e12;

/// A number as a step, if it can be one.
pub fn as_step(number: u64) -> Option<u64> {
    (number <= MAX_STEP).then_some(number)
}

/// A number as a loss, if it can be one.
pub(crate) fn as_loss(number: f64) -> Option<f64> {
    // Not so for nan.
    (number.abs() <= MAX_LOSS).then_some(number)
}

/// A point as far as it can be believed; none where its step cannot be.
pub(crate) fn as_point(point: &Point) -> Option<Point> {
    Some(Point {
        step: as_step(point.step)?,
        loss: point.loss.and_then(as_loss),
        total: point.total.and_then(as_step).filter(|total| *total > 0),
        ..point.clone()
    })
}

/// What the job has reached over all its attempts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The newest step printed.
    pub reached: Option<u64>,
    /// The newest step saved.
    pub saved: Option<u64>,
    /// Something was saved, though perhaps without saying at which step.
    pub saved_any: bool,
    /// Steps the program means to make.
    pub total: Option<u64>,
    /// Microseconds for a step, the average of the newest launch that printed two.
    pace: Option<u64>,
    /// Losses by step, rising, thinned out.
    losses: Vec<(u64, f64)>,
    /// How long the job was quiet and then went on.
    #[serde(default, skip_serializing_if = "Quiet::is_empty")]
    pub quiet: Quiet,
}

impl History {
    fn remember_loss(&mut self, step: u64, loss: f64) {
        match self.losses.binary_search_by_key(&step, |(at, _)| *at) {
            Ok(index) => self.losses[index].1 = loss,
            Err(index) => self.losses.insert(index, (step, loss)),
        }
        if self.losses.len() > MAX_LOSSES {
            // Keeps the newest and every second one before it.
            let odd = (self.losses.len() - 1) % 2;
            let mut index = 0;
            self.losses.retain(|_| {
                index += 1;
                (index - 1) % 2 == odd
            });
        }
    }

    /// Whether `loss` at `step` is far above what it was near that step; not known without earlier losses.
    fn jumped(&self, step: u64, loss: f64) -> Option<bool> {
        let nearest = self.losses.iter().min_by_key(|(at, _)| at.abs_diff(step))?;
        let mut near: Vec<_> = self.losses.iter().collect();
        near.sort_by_key(|(at, _)| at.abs_diff(step));
        near.truncate(NEIGHBOURS);
        let low = near.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
        let high = near.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max);
        let allowed = (JUMP_SHARE * nearest.1.abs()).max(JUMP_SCATTERS * (high - low));
        Some(loss - nearest.1 > allowed)
    }
}

/// What one launch has shown so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchProgress {
    /// Something was saved before this launch, at this step if it said so.
    expected: Expected,
    /// The newest step that was made before this launch.
    lost: Option<u64>,
    /// Losses had been printed before this launch.
    losses_before: bool,
    /// All processes were there.
    resources: Option<(Time, u32)>,
    loaded: Option<CheckpointEvent>,
    first: Option<Point>,
    training_at: Option<Time>,
    /// Where the curve is now, and where it was a point before.
    newest: Option<[(u64, Time); 2]>,
    caught_up_at: Option<Time>,
    last_step: Option<u64>,
    /// When the first loss was compared, and whether it had jumped.
    loss: Option<(Time, Option<f64>, bool)>,
    points_without_loss: u32,
    new_checkpoint: Option<(Time, Option<u64>)>,
    /// The replica whose losses count: the lowest that prints any.
    speaker: Option<u32>,
    over: bool,
}

/// From when on a launch spent its time on something else, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milestones {
    /// See [`LaunchProgress::training_at`].
    pub training_at: Option<Time>,
    /// See [`LaunchProgress::caught_up_at`].
    pub caught_up_at: Option<Time>,
}

/// What a launch should find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Expected {
    Nothing,
    Something,
    Step(u64),
}

impl LaunchProgress {
    /// A launch that begins with this history behind it.
    pub fn new(history: &History) -> Self {
        let expected = match history.saved {
            Some(step) => Expected::Step(step),
            None if history.saved_any => Expected::Something,
            None => Expected::Nothing,
        };
        Self {
            expected,
            lost: history.reached,
            losses_before: !history.losses.is_empty(),
            resources: None,
            loaded: None,
            first: None,
            training_at: None,
            newest: None,
            caught_up_at: None,
            last_step: None,
            loss: None,
            points_without_loss: 0,
            new_checkpoint: None,
            speaker: None,
            over: false,
        }
    }

    /// All processes run.
    pub fn take_resources(&mut self, at: Time, ready: u32) {
        self.resources = Some((at, ready));
    }

    /// A point that a replica (by its index) printed. False where a lower one prints too: ranks print different losses, and only
    /// the lowest one's make the curve.
    pub fn take_point(&mut self, history: &mut History, replica: u32, point: &Point) -> bool {
        let speaks = self.speaker.is_none_or(|speaker| replica <= speaker);
        if speaks {
            self.speaker = Some(replica);
        }
        if self.first.is_none() {
            self.first = Some(point.clone());
            self.training_at = self.estimate_training(history.pace);
        }
        if speaks {
            self.take_loss(history, point);
        }
        self.take_pace(history, point);
        self.caught_up_at = self.caught_up_at.or_else(|| self.find_caught_up());
        self.last_step = self.last_step.max(Some(point.step));
        history.reached = history.reached.max(Some(point.step));
        history.total = point.total.or(history.total);
        speaks
    }

    fn take_pace(&mut self, history: &mut History, point: &Point) {
        let Some((first, training_at)) = self.first.as_ref().zip(self.training_at) else { return };
        let newest = (point.step, point.at);
        let before = match self.newest {
            Some([_, last]) if last.0 >= point.step => return,
            Some([_, last]) => last,
            None => (self.began_after().unwrap_or(first.step), training_at),
        };
        self.newest = Some([before, newest]);
        let steps = point.step.saturating_sub(first.step);
        let micros = u64::try_from(point.at.micros().saturating_sub(first.at.micros())).unwrap_or(0);
        history.pace = micros.checked_div(steps).filter(|pace| *pace > 0).or(history.pace);
    }

    fn estimate_training(&self, pace: Option<u64>) -> Option<Time> {
        let first = self.first.as_ref()?;
        let loaded = self.loaded.as_ref().map(|loaded| loaded.at.min(first.at));
        let steps = first.step.saturating_sub(self.began_after()?);
        let begun = pace.map(|pace| {
            let micros = i64::try_from(pace.saturating_mul(steps)).unwrap_or(i64::MAX);
            Time(first.at.micros().saturating_sub(micros))
        });
        loaded.max(begun).or(Some(first.at))
    }

    fn take_loss(&mut self, history: &mut History, point: &Point) {
        match point.loss.and_then(as_loss) {
            Some(loss) => {
                if self.loss.is_none() {
                    let jumped = self.losses_before && history.jumped(point.step, loss).unwrap_or(false);
                    self.loss = Some((point.at, Some(loss), jumped));
                }
                history.remember_loss(point.step, loss);
            }
            None if self.losses_before && self.loss.is_none() => {
                self.points_without_loss += 1;
                if self.points_without_loss >= POINTS_WITHOUT_LOSS {
                    self.loss = Some((point.at, None, true));
                }
            }
            None => {}
        }
    }

    /// A process ended at this step, which may not have been reported otherwise.
    pub fn take_last_step(&mut self, history: &mut History, step: u64) {
        self.last_step = self.last_step.max(Some(step));
        history.reached = history.reached.max(Some(step));
    }

    /// A checkpoint was loaded or saved. Whether that is new: a thousand replicas load the same one.
    pub fn take_checkpoint(&mut self, history: &mut History, event: &CheckpointEvent) -> bool {
        if event.loaded {
            // Several replicas say the same; the oldest one loaded is what training goes on from.
            let older = match (&self.loaded, event.step) {
                (None, _) => true,
                (Some(known), Some(step)) => known.step.is_none_or(|known| step < known),
                (Some(_), None) => false,
            };
            let news = older && self.first.is_none();
            if news {
                self.loaded = Some(event.clone());
            }
            return news;
        }
        let news = history.saved < event.step;
        history.saved_any = true;
        history.saved = history.saved.max(event.step);
        if self.new_checkpoint.is_none() && self.is_newer_than_loaded(event.step) {
            self.new_checkpoint = Some((event.at, event.step));
        }
        news
    }

    fn is_newer_than_loaded(&self, step: Option<u64>) -> bool {
        let before = self.loaded.as_ref().and_then(|loaded| loaded.step);
        match (before, step) {
            (Some(before), Some(step)) => step > before,
            _ => true,
        }
    }

    /// It has ended.
    pub fn end(&mut self) {
        self.over = true;
    }

    /// The first step printed and when.
    pub fn first_step(&self) -> Option<(u64, Time)> {
        self.first.as_ref().map(|point| (point.step, point.at))
    }

    /// When it could begin to make steps. A step is printed when it is made, so this is before the first printed one: by as much
    /// as the steps up to it take at the usual pace, but not before the checkpoint was loaded, where that is known. With neither,
    /// the time to load and the time to make the first step cannot be told apart and it is when that step was printed.
    pub fn training_at(&self) -> Option<Time> {
        self.training_at
    }

    /// When the newest step of the launches before was made again; at once where there was none. Many programs print every so many
    /// steps only, so it may lie between two points.
    pub fn caught_up_at(&self) -> Option<Time> {
        self.caught_up_at
    }

    fn find_caught_up(&self) -> Option<Time> {
        let Some(lost) = self.lost else { return self.training_at };
        let [before, newest] = self.newest.filter(|[_, newest]| lost <= newest.0)?;
        let share = lost.saturating_sub(before.0) as f64 / newest.0.saturating_sub(before.0).max(1) as f64;
        let micros = newest.1.micros().saturating_sub(before.1.micros()).max(0);
        Some(Time(before.1.micros() + (micros as f64 * share) as i64))
    }

    /// What changes the use of its time.
    pub fn milestones(&self) -> Milestones {
        Milestones { training_at: self.training_at(), caught_up_at: self.caught_up_at() }
    }

    /// The last step known.
    pub fn last_step(&self) -> Option<u64> {
        self.last_step
    }

    /// The step training went on from: the loaded checkpoint's, else the one before the first printed.
    pub fn began_after(&self) -> Option<u64> {
        let first = self.first.as_ref()?.step;
        let loaded = self.loaded.as_ref().and_then(|loaded| loaded.step);
        Some(loaded.filter(|loaded| *loaded <= first).unwrap_or(first.saturating_sub(1)))
    }

    /// The steps it made.
    pub fn steps(&self) -> Option<StepRange> {
        let first = self.first.as_ref().map(|point| point.step).or(self.last_step)?;
        Some(StepRange { first, last: self.last_step.unwrap_or(first).max(first) })
    }

    /// The proof as it stands; `late` says that the first step should have come by now.
    pub fn proof(&self, late: bool) -> Proof {
        let resources = ResourcesCheck {
            ok: self.resources.map(|_| true),
            at: self.resources.map(|(at, _)| at),
            ready: self.resources.map_or(0, |(_, ready)| ready),
        };
        let (checkpoint, progress) = (self.checkpoint_check(), self.progress_check());
        let new_checkpoint = NewCheckpointCheck {
            ok: self.new_checkpoint.map(|_| true),
            at: self.new_checkpoint.map(|(at, _)| at),
            step: self.new_checkpoint.and_then(|(_, step)| step),
        };
        let four_passed =
            [resources.ok, checkpoint.ok, progress.ok, new_checkpoint.ok].iter().all(|ok| *ok == Some(true));
        let verdict = self.verdict(late, &checkpoint, four_passed);
        Proof { resources, checkpoint, progress, new_checkpoint, verdict }
    }

    fn expected_step(&self) -> Option<u64> {
        match self.expected {
            Expected::Step(step) => Some(step),
            Expected::Nothing | Expected::Something => None,
        }
    }

    fn checkpoint_check(&self) -> CheckpointCheck {
        let expected = self.expected_step();
        let mut check = CheckpointCheck { expected, ..CheckpointCheck::default() };
        if let Some(loaded) = &self.loaded {
            check.step = loaded.step;
            check.path.clone_from(&loaded.path);
            check.at = Some(loaded.at);
            check.ok = match (loaded.step, expected) {
                (Some(step), Some(expected)) => Some(step >= expected),
                (_, None) => Some(true),
                (None, Some(_)) => self.follows_expected(),
            };
        } else if let Some(first) = &self.first
            && self.expected != Expected::Nothing
        {
            // No line said so, but a first step beyond the newest checkpoint can come from nothing else.
            check.at = Some(first.at);
            check.ok = self.follows_expected();
        }
        check
    }

    fn follows_expected(&self) -> Option<bool> {
        let first = self.first.as_ref()?.step;
        Some(match self.expected {
            Expected::Step(expected) => first >= expected,
            Expected::Something => first > 1,
            Expected::Nothing => true,
        })
    }

    fn progress_check(&self) -> ProgressCheck {
        let Some(first) = &self.first else { return ProgressCheck::default() };
        let follows =
            self.loaded.as_ref().and_then(|loaded| loaded.step).is_none_or(|loaded| first.step >= loaded);
        let loss_known = self.loss.is_some() || !self.losses_before;
        let jumped = self.loss.is_some_and(|(_, _, jumped)| jumped);
        ProgressCheck {
            ok: if !follows || self.began_at_zero() || jumped {
                Some(false)
            } else {
                loss_known.then_some(true)
            },
            at: Some(self.loss.map_or(first.at, |(at, ..)| at)),
            step: Some(first.step),
            loss: self.loss.and_then(|(_, loss, _)| loss).or(first.loss),
        }
    }

    /// Something had been saved, yet the first step is the very first.
    fn began_at_zero(&self) -> bool {
        let Some(first) = &self.first else { return false };
        match self.expected {
            Expected::Nothing => false,
            Expected::Something => first.step <= 1,
            Expected::Step(expected) => first.step <= 1 && expected > first.step,
        }
    }

    fn verdict(&self, late: bool, checkpoint: &CheckpointCheck, four_passed: bool) -> ProofVerdict {
        if self.first.is_none() {
            let nothing_came = self.last_step.is_none() && (self.over || late);
            return if nothing_came { ProofVerdict::NoProgress } else { ProofVerdict::Pending };
        }
        let jumped = self.loss.is_some_and(|(_, _, jumped)| jumped);
        if self.began_at_zero() {
            ProofVerdict::RestartedFromZero
        } else if checkpoint.ok == Some(false) {
            ProofVerdict::OlderCheckpoint
        } else if jumped {
            ProofVerdict::LossJumped
        } else if self.expected == Expected::Nothing && self.loaded.is_none() {
            ProofVerdict::StartedFresh
        } else if four_passed {
            ProofVerdict::Resumed
        } else {
            ProofVerdict::Pending
        }
    }
}

#[cfg(test)]
mod tests;
