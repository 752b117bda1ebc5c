//! What the kernel says of a process: its state, where it waits, who traces it, its processor time. Nothing here takes a lock of
//! the process, so nothing here waits for one that hangs in the kernel.

use std::{collections::BTreeMap, fs, sync::LazyLock, time::Duration};

use engine::sync::{ProcessState, RunState, watch_limits::WORDS_BYTES};
use nix::unistd::{SysconfVar, sysconf};

use crate::{
    tree::{Identity, Stat},
    watch::frames::bounded,
};

/// Clock ticks a second.
static TICKS: LazyLock<u64> = LazyLock::new(|| {
    sysconf(SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|n| u64::try_from(n).ok())
        .filter(|n| *n > 0)
        .unwrap_or(100)
});

/// Processor time of some processes, of their threads and of the children they have waited for.
///
/// A process that ended and was waited for is counted by its parent from then on, so the sum goes on. It goes back only where
/// nobody waited for one.
pub fn used<'a>(all: &BTreeMap<i32, Stat>, of: impl IntoIterator<Item = &'a Identity>) -> Duration {
    let ticks = of.into_iter().filter_map(|process| all.get(&process.pid)).map(|stat| stat.used).sum::<u64>();
    Duration::from_millis(ticks.saturating_mul(1000) / *TICKS)
}

/// The state of a process; none where it is gone.
pub fn state(pid: i32) -> Option<ProcessState> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let is = run_state(&status)?;
    // Not shown where this user may not look into the process; that says nothing of its state.
    let channel = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    let waits_in =
        Some(channel.trim()).filter(|name| !name.is_empty() && *name != "0" && is != RunState::Running);
    Some(ProcessState { is, waits_in: waits_in.map(|name| bounded(name, WORDS_BYTES)) })
}

fn run_state(status: &str) -> Option<RunState> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_traced = field("TracerPid:").is_some_and(|pid| pid != "0");
    Some(match field("State:")?.as_bytes().first()? {
        b'Z' | b'X' => RunState::Other,
        b't' => RunState::Traced,
        _ if is_traced => RunState::Traced,
        b'R' => RunState::Running,
        b'S' => RunState::Sleeping,
        b'D' => RunState::Uninterruptible,
        b'T' => RunState::Stopped,
        _ => RunState::Other,
    })
}

/// A state in words.
pub fn words(state: &ProcessState) -> String {
    let is = match state.is {
        RunState::Running => "running",
        RunState::Sleeping => "sleeping",
        RunState::Uninterruptible => "in the hands of a disk, a network file system or a driver (D)",
        RunState::Stopped => "stopped by a signal (T)",
        RunState::Traced => "held by a debugger",
        RunState::Other => "in a state without a name",
    };
    match &state.waits_in {
        Some(channel) => bounded(&format!("{is}, waits in {channel}"), WORDS_BYTES),
        None => is.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_tracers_have_their_states() {
        for (text, want) in [
            ("State:\tR (running)\nTracerPid:\t0\n", Some(RunState::Running)),
            ("State:\tS (sleeping)\nTracerPid:\t0\n", Some(RunState::Sleeping)),
            ("State:\tD (disk sleep)\nTracerPid:\t0\n", Some(RunState::Uninterruptible)),
            ("State:\tT (stopped)\nTracerPid:\t0\n", Some(RunState::Stopped)),
            ("State:\tt (tracing stop)\nTracerPid:\t7\n", Some(RunState::Traced)),
            ("State:\tS (sleeping)\nTracerPid:\t7\n", Some(RunState::Traced)),
            ("State:\tZ (zombie)\nTracerPid:\t0\n", Some(RunState::Other)),
            ("State:\tI (idle)\n", Some(RunState::Other)),
            ("Name:\tx\n", None),
        ] {
            assert_eq!(run_state(text), want, "{text}");
        }
    }

    #[test]
    fn this_process_runs_and_uses_time() {
        let own = std::process::id() as i32;
        assert!(state(own).is_some());
        assert_eq!(state(i32::MAX), None);
        let all = crate::tree::all_processes().unwrap();
        let family = crate::tree::family(own, &all);
        assert!(used(&all, &family) < Duration::from_secs(3600));
        assert_eq!(used(&all, &[]), Duration::ZERO);
    }

    #[test]
    fn a_state_has_words() {
        let state = ProcessState {
            is: RunState::Uninterruptible,
            waits_in: Some("nfs_wait_bit_killable".to_owned()),
        };
        assert!(words(&state).ends_with("(D), waits in nfs_wait_bit_killable"));
    }
}
