//! The processes below the agent.
//!
//! The agent is a child subreaper: whatever a training process starts stays below it, even what forks twice
//! and leaves its session. So "nothing is left" is exact: the agent has no child.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
};

use engine::failure::{Exit, Signal};
use nix::{sys::prctl, unistd::Pid};

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Its number.
    pub pid: i32,
    /// Clock ticks since the machine started.
    pub started: u64,
}

/// Everything that was started below the agent.
#[derive(Debug)]
pub struct Tree {
    agent: i32,
    /// Children the agent had when it began: a script that ran something in the background before it became the agent.
    foreign: BTreeSet<Identity>,
}

/// Why the agent cannot see to its processes.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// No list of processes.
    #[error("/proc cannot be read; the agent needs it to find the program's processes: mount it")]
    Proc(#[source] io::Error),
    /// Orphans would go elsewhere.
    #[error("the kernel does not let the agent adopt orphans (PR_SET_CHILD_SUBREAPER, Linux 3.4)")]
    Subreaper(#[source] nix::Error),
}

/// One call of `waitpid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// This child has ended and is gone.
    Ended(i32, Exit),
    /// There are children; none has ended.
    None,
    /// There is no child at all.
    NoChild,
}

impl Tree {
    /// Makes the agent the one that orphans come to.
    ///
    /// # Errors
    /// Names what the kernel lacks.
    pub fn adopt() -> Result<Self, TreeError> {
        prctl::set_child_subreaper(true).map_err(TreeError::Subreaper)?;
        let agent = Pid::this().as_raw();
        let all = all_processes().map_err(TreeError::Proc)?;
        let foreign = below(agent, &all, &BTreeSet::new());
        Ok(Self { agent, foreign })
    }

    /// Every process that the program started and that lives, zombies left out.
    pub fn living(&self) -> io::Result<Vec<i32>> {
        let all = all_processes()?;
        let ours = below(self.agent, &all, &self.foreign);
        Ok(ours.into_iter().filter(|p| all.get(&p.pid).is_some_and(|s| !s.zombie)).map(|p| p.pid).collect())
    }

    /// Whether no process is left, given what the last [`reap`] said.
    pub fn is_empty(&self, reaped: Reaped) -> io::Result<bool> {
        Ok(reaped == Reaped::NoChild || (!self.foreign.is_empty() && self.living()?.is_empty()))
    }
}

/// Takes one child that has ended.
#[expect(unsafe_code, reason = "nix knows no death by a real-time signal and loses the process with it")]
pub fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: the pointer is to a local that outlives the call, and the call writes nothing else.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
        0 => Reaped::None,
        pid if pid > 0 => Reaped::Ended(pid, exit_of(ExitStatus::from_raw(status))),
        _ => Reaped::NoChild,
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match status.signal().and_then(|n| u8::try_from(n).ok()) {
        Some(signal) => Exit::Signal(Signal(signal)),
        // A shell that passes on a death by signal says 128 + n.
        None => Exit::from_code(status.code().unwrap_or_default().into()),
    }
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    parent: i32,
    /// Clock ticks from the machine's start to its own.
    pub started: u64,
    zombie: bool,
    /// The letter of its state: R, S, D, T, t, Z …
    pub state: u8,
    /// CPU time of all its threads and of the children it has waited for, clock ticks.
    pub used: u64,
    /// Its threads.
    pub threads: u32,
}

/// Everything that lives on this machine, or in this container, by its number.
///
/// # Errors
/// Where /proc cannot be read.
pub fn all_processes() -> io::Result<BTreeMap<i32, Stat>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that ended meanwhile is no error.
        let Ok(text) = fs::read(format!("/proc/{pid}/stat")) else { continue };
        if let Some(stat) = parse_stat(&String::from_utf8_lossy(&text)) {
            all.insert(pid, stat);
        }
    }
    Ok(all)
}

/// `pid (name) state parent … started …`; the name may hold spaces and brackets.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let state = *fields.first()?.as_bytes().first()?;
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        started: number(19)?,
        zombie: matches!(state, b'Z' | b'X'),
        state,
        used: (11..15).filter_map(number).fold(0, u64::saturating_add),
        threads: number(17).and_then(|n| u32::try_from(n).ok())?,
    })
}

/// A process with all below it that live, zombies left out; empty where it is gone itself.
pub fn family(pid: i32, all: &BTreeMap<i32, Stat>) -> BTreeSet<Identity> {
    let lives = |pid: &i32| all.get(pid).filter(|stat| !stat.zombie);
    let Some(own) = lives(&pid) else { return BTreeSet::new() };
    let mut family = below(pid, all, &BTreeSet::new());
    family.retain(|member| lives(&member.pid).is_some());
    family.insert(Identity { pid, started: own.started });
    family
}

/// All below `root`, but for `foreign` ones and what is below those.
fn below(root: i32, all: &BTreeMap<i32, Stat>, foreign: &BTreeSet<Identity>) -> BTreeSet<Identity> {
    let mut children = BTreeMap::<i32, Vec<Identity>>::new();
    for (&pid, stat) in all {
        children.entry(stat.parent).or_default().push(Identity { pid, started: stat.started });
    }
    let mut found = BTreeSet::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if !foreign.contains(child) && found.insert(*child) {
                next.push(child.pid);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_is_no_trap() {
        let text = "12 (a) R 9 (b)) S 7 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        let want = Stat { parent: 7, started: 4711, zombie: false, state: b'S', used: 0, threads: 1 };
        assert_eq!(parse_stat(text), Some(want));
        let text = "12 (a) t 7 12 12 0 -1 4194560 1 0 0 0 10 20 300 4000 20 0 64 0 4711 1 1";
        assert_eq!(
            parse_stat(text).map(|stat| (stat.state, stat.used, stat.threads)),
            Some((b't', 4330, 64))
        );
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn what_was_there_before_is_left_alone_with_all_below_it() {
        let stat = |parent| Stat { parent, started: 1, zombie: false, state: b'S', used: 0, threads: 1 };
        let all = BTreeMap::from([
            (1, stat(0)),
            (2, stat(1)),
            (3, stat(2)),
            (4, stat(1)),
            (5, stat(4)),
            (6, stat(0)),
        ]);
        let foreign = BTreeSet::from([Identity { pid: 4, started: 1 }]);
        let pids: Vec<_> = below(1, &all, &foreign).into_iter().map(|p| p.pid).collect();
        assert_eq!(pids, [2, 3]);
    }

    #[test]
    fn a_family_holds_the_living_only() {
        let stat = |parent, zombie| Stat { parent, started: 1, zombie, state: b'S', used: 0, threads: 1 };
        let all = BTreeMap::from([
            (2, stat(1, false)),
            (3, stat(2, true)),
            (4, stat(2, false)),
            (5, stat(1, false)),
        ]);
        let pids = |pid| family(pid, &all).into_iter().map(|p| p.pid).collect::<Vec<_>>();
        assert_eq!((pids(2), pids(3), pids(9)), (vec![2, 4], vec![], vec![]));
    }

    #[test]
    fn a_shells_word_for_a_death_is_the_death() {
        assert_eq!(exit_of(ExitStatus::from_raw(137 << 8)), Exit::Signal(Signal::KILL));
        assert_eq!(exit_of(ExitStatus::from_raw(9)), Exit::Signal(Signal::KILL));
        assert_eq!(exit_of(ExitStatus::from_raw(34)), Exit::Signal(Signal(34)));
        assert_eq!(exit_of(ExitStatus::from_raw(3 << 8)), Exit::Code(3));
    }
}
