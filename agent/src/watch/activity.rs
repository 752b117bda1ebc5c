//! What the output of each process has shown of its work, counted as it comes. Bounded: one of these for each local rank.

use engine::{failure::Phase, sync::Collective, time::Time};

/// What one process has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// When it printed anything last; a progress bar that overwrites itself counts.
    pub output_at: Option<Time>,
    /// Its last step, and when it was printed. The same step again is no other.
    pub step: Option<(u64, Time)>,
    /// The phase it named last.
    pub phase: Option<Phase>,
    /// What it said last of its collectives.
    pub collective: Option<Collective>,
    /// When it said that last, where it was something new.
    pub collective_at: Option<Time>,
    /// When it last said that a checkpoint was loaded or saved.
    pub checkpoint_at: Option<Time>,
    /// Movements of any of these kinds but output, since the launch began.
    pub moves: Moves,
}

/// How often each kind of movement was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Other steps.
    pub steps: u64,
    /// Other phases.
    pub phases: u64,
    /// Checkpoints loaded or saved.
    pub checkpoints: u64,
    /// Sequence numbers of collectives that were greater.
    pub collectives: u64,
}

impl Activity {
    /// It printed something.
    pub fn output(&mut self, at: Time) {
        self.output_at = Some(at);
    }

    /// It printed a step.
    pub fn step(&mut self, step: u64, at: Time) {
        if self.step.is_none_or(|(known, _)| known != step) {
            self.step = Some((step, at));
            self.moves.steps += 1;
        }
        // A program that names its phases and makes steps again has left the one it named.
        if self.phase.is_some() {
            self.phase = Some(Phase::Training);
        }
    }

    /// It named a phase.
    pub fn phase(&mut self, phase: Phase) {
        if self.phase != Some(phase) {
            self.moves.phases += 1;
        }
        self.phase = Some(phase);
    }

    /// It said that a checkpoint was loaded or saved.
    pub fn checkpoint(&mut self, at: Time) {
        self.checkpoint_at = Some(at);
        self.moves.checkpoints += 1;
    }

    /// It said something of its collectives. The first word of them is no movement: a watchdog speaks up where there is none.
    pub fn collective(&mut self, said: Collective, at: Time) {
        let known = self.collective.take();
        let (enqueued, completed) =
            known.as_ref().map_or((None, None), |k| (k.last_enqueued, k.last_completed));
        let is_more = |said: Option<u64>, known: Option<u64>| known.is_some() && said > known;
        let moved = is_more(said.last_completed, completed) || is_more(said.last_enqueued, enqueued);
        self.moves.collectives += u64::from(moved);
        if moved || self.collective_at.is_none() {
            self.collective_at = Some(at);
        }
        self.collective = Some(Collective {
            last_enqueued: said.last_enqueued.or(enqueued),
            last_completed: said.last_completed.or(completed),
            name: said.name.or_else(|| known.and_then(|k| k.name)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collective(enqueued: Option<u64>, completed: Option<u64>, name: Option<&str>) -> Collective {
        Collective { last_enqueued: enqueued, last_completed: completed, name: name.map(str::to_owned) }
    }

    #[test]
    fn what_is_said_again_is_no_movement() {
        let mut activity = Activity::default();
        for (step, at) in [(1, 1), (2, 2), (2, 3)] {
            activity.step(step, Time(at));
        }
        activity.phase(Phase::Saving);
        activity.phase(Phase::Saving);
        assert_eq!(activity.step, Some((2, Time(2))));
        assert_eq!((activity.moves.steps, activity.moves.phases), (2, 1));
        activity.step(2, Time(9));
        assert_eq!(activity.phase, Some(Phase::Training));
    }

    #[test]
    fn collectives_are_put_together_from_several_lines() {
        let mut activity = Activity::default();
        activity.collective(collective(Some(7), None, Some("ALLREDUCE")), Time(1));
        activity.collective(collective(Some(7), Some(6), None), Time(2));
        activity.collective(collective(Some(7), Some(6), None), Time(3));
        assert_eq!(activity.collective, Some(collective(Some(7), Some(6), Some("ALLREDUCE"))));
        assert_eq!((activity.moves.collectives, activity.collective_at), (0, Some(Time(1))));
        activity.collective(collective(Some(8), Some(7), None), Time(4));
        assert_eq!((activity.moves.collectives, activity.collective_at), (1, Some(Time(4))));
    }
}
