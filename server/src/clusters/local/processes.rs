//! The process table: finding agents again after a restart of the server, and leaving nothing behind.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    time::Duration,
};

use engine::ids::{ReplicaName, TaskId};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The variable that only agents carry; they take it from the environment of their processes.
pub(super) const AGENT_REPLICA: &str = "HOLDFAST_AGENT_REPLICA";
/// The variable that agents and all their processes carry.
pub(super) const TASK: &str = "HOLDFAST_TASK_ID";
/// Likewise, the replica.
pub(super) const REPLICA: &str = "HOLDFAST_REPLICA";

/// How often the end of processes is looked for.
const CHECK: Duration = Duration::from_millis(20);

/// A process, told apart from a later one of the same number by when it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: i32,
    started: u64,
    /// An earlier server started it, so its exit code cannot be had.
    pub adopted: bool,
}

impl Process {
    /// A child that was just started.
    pub(super) fn child(pid: u32) -> Self {
        let pid = pid as i32;
        Self { pid, started: stat(pid).map_or(0, |stat| stat.started), adopted: false }
    }

    /// Whether it still runs; one that has ended and waits to be reaped does not.
    pub(super) fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && !stat.dead)
    }

    /// Asks it to end.
    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Ends it.
    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        if self.is_alive() {
            // It may end in between; then there is nothing left to do.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

struct Stat {
    started: u64,
    dead: bool,
}

/// The start time (field 22, clock ticks since boot) and the state (field 3) of `/proc/<pid>/stat`, see proc(5).
fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in field 2 may hold anything; the fields after it begin behind its last parenthesis.
    let rest = &text[text.rfind(')')? + 1..];
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    Some(Stat { started, dead: matches!(state, "Z" | "X") })
}

fn pids() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The environment a process was started with; none where it is another user's or has none.
fn environment(pid: i32) -> HashMap<String, String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='))
        .filter(|(key, _)| key.starts_with("HOLDFAST_"))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Agents that run on this machine.
pub(super) fn agents() -> BTreeMap<(TaskId, ReplicaName), Process> {
    pids()
        .filter_map(|pid| {
            let stat = stat(pid).filter(|stat| !stat.dead)?;
            let env = environment(pid);
            let task = TaskId::new(env.get(TASK)?.clone()).ok()?;
            let replica = ReplicaName::new(env.get(AGENT_REPLICA)?.clone()).ok()?;
            Some(((task, replica), Process { pid, started: stat.started, adopted: true }))
        })
        .collect()
}

/// Kills whatever still carries the name of the attempt (and replica): processes that outlived their agent.
pub(super) fn kill_all_of(task: &TaskId, replica: Option<&ReplicaName>) {
    for pid in pids() {
        let env = environment(pid);
        let ours = env.get(TASK).is_some_and(|value| value == task.as_str())
            && replica.is_none_or(|replica| env.get(REPLICA).is_some_and(|value| value == replica.as_str()));
        if ours && stat(pid).is_some_and(|stat| !stat.dead) {
            tracing::warn!(%task, pid, "killed a process that outlived its agent");
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Waits until none of the processes runs, at most `limit`.
pub(super) async fn wait_gone(processes: &[Process], limit: Duration) {
    let all_gone = async {
        while processes.iter().any(Process::is_alive) {
            tokio::time::sleep(CHECK).await;
        }
    };
    if tokio::time::timeout(limit, all_gone).await.is_err() {
        tracing::warn!(?limit, "agents did not end in time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::child(child.id());
        assert!(process.is_alive());
        assert!(!Process { started: process.started + 1, ..process.clone() }.is_alive());
        process.kill();
        child.wait().unwrap();
        assert!(!process.is_alive());
    }

    #[test]
    fn what_carries_the_attempts_name_is_killed_and_nothing_else() {
        let task = TaskId::new("t-kill-all-of-1").unwrap();
        let spawn = |task: &str, replica: &str| {
            Command::new("sleep").arg("60").env(TASK, task).env(REPLICA, replica).spawn().unwrap()
        };
        let mut ours = spawn("t-kill-all-of-1", "worker-0");
        let mut other_replica = spawn("t-kill-all-of-1", "worker-1");
        let mut other_task = spawn("t-kill-all-of-2", "worker-0");
        kill_all_of(&task, Some(&ReplicaName::new("worker-0").unwrap()));
        assert!(!ours.wait().unwrap().success());
        assert!(Process::child(other_replica.id()).is_alive());
        kill_all_of(&task, None);
        assert!(!other_replica.wait().unwrap().success());
        assert!(Process::child(other_task.id()).is_alive());
        other_task.kill().unwrap();
        other_task.wait().unwrap();
    }
}
