//! The code with which the agent ends: the program's own.

use std::io::{self, ErrorKind};

use engine::failure::Exit;

/// The agent gave up.
const FAILED: u8 = 1;
/// Of a work that was cut short: 128 + SIGTERM.
const CUT_SHORT: u8 = 143;
/// As shells say it: there is no such program.
const NOT_FOUND: u8 = 127;
/// As shells say it: it is there and cannot be run.
const CANNOT_RUN: u8 = 126;

/// How the newest launch ended on this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing has failed; some of it may have ended as it should.
    Unbroken {
        /// A process ended because it was asked to, or none has run at all.
        cut_short: bool,
    },
    /// This code stands for the first failure.
    Failed(u8),
}

impl Outcome {
    /// Of a replica that has started nothing.
    pub const NOTHING: Self = Self::Unbroken { cut_short: true };

    /// Of a launch that has just started.
    pub const fn started() -> Self {
        Self::Unbroken { cut_short: false }
    }

    /// A process has ended.
    pub fn ended(&mut self, exit: Exit, asked: bool) {
        match self {
            Self::Failed(_) => {}
            Self::Unbroken { cut_short } if asked => *cut_short = true,
            Self::Unbroken { .. } if exit.is_success() => {}
            Self::Unbroken { .. } => *self = Self::Failed(u8::try_from(exit.shell_code()).unwrap_or(u8::MAX)),
        }
    }

    /// The program could not be started.
    pub fn start_failed(&mut self, why: &io::Error) {
        *self = Self::Failed(if why.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN });
    }

    /// The agent's exit code where nobody said what to do.
    pub const fn code_alone(self) -> u8 {
        match self {
            Self::Unbroken { cut_short: true } => FAILED,
            Self::Unbroken { cut_short: false } | Self::Failed(_) => self.code(),
        }
    }

    /// The agent's exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Unbroken { cut_short: false } => 0,
            Self::Unbroken { cut_short: true } => CUT_SHORT,
            Self::Failed(code) => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::failure::Signal;

    use super::*;

    #[test]
    fn the_code_is_the_programs_own_and_never_0_for_work_cut_short() {
        for (case, ends, want) in [
            ("done", vec![(0, false), (0, false)], 0),
            ("a failure", vec![(3, false), (0, false)], 3),
            ("the first failure, not what followed from it", vec![(-9, false), (-15, true)], 137),
            ("ended as asked, and says that all is well", vec![(0, true)], 143),
            ("one done, one cut short", vec![(0, false), (-15, true)], 143),
        ] {
            let mut outcome = Outcome::started();
            for (code, asked) in ends {
                outcome.ended(Exit::from_code(code), asked);
            }
            assert_eq!(outcome.code(), want, "{case}");
        }
        assert_eq!(Outcome::NOTHING.code(), 143);
        let mut dead = Outcome::started();
        dead.ended(Exit::Signal(Signal::SEGV), false);
        assert_eq!(dead.code(), 139);
    }
}
