//! The process table: finding agents again after a restart of the server, and leaving nothing behind.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

use engine::ids::{ReplicaName, TaskId};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid},
};

/// The variable that only agents carry; they take it from the environment of their processes.
pub(super) const AGENT_REPLICA: &str = "HOLDFAST_AGENT_REPLICA";
/// The variable that agents and all their processes carry.
pub(super) const TASK: &str = "HOLDFAST_TASK_ID";
/// Likewise, the replica.
pub(super) const REPLICA: &str = "HOLDFAST_REPLICA";

/// How often the end of processes is looked for.
const CHECK: Duration = Duration::from_millis(20);
/// How long processes may take to be gone once they are killed. What takes longer hangs in a driver or a file system.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// So many looks in a row must find nothing.
const CLEAN_LOOKS: u32 = 2;

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

    /// As text: its number and when it started.
    pub(super) fn to_text(&self) -> String {
        format!("{} {}", self.pid, self.started)
    }

    /// The process that a text of [`Self::to_text`] names.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()?, adopted: true })
    }

    /// Whether it is the same process, whoever started it.
    pub(super) fn is(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
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
    group: i32,
    dead: bool,
}

/// The start time (field 22, clock ticks since boot), the process group (5) and the state (3) of `/proc/<pid>/stat`, see proc(5).
fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in field 2 may hold anything; the fields after it begin behind its last parenthesis.
    let fields: Vec<_> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    Some(Stat {
        started: fields.get(19)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        dead: matches!(*fields.first()?, "Z" | "X"),
    })
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

/// Runs what reads the process table, which waits where a process cannot be looked at.
async fn blocking<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(read).await {
        Ok(found) => found,
        Err(why) => match why.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// What may be an agent that runs on this machine: a process of our user that leads its group, as we start them, and says that it
/// is one.
pub(super) async fn agents() -> BTreeMap<(TaskId, ReplicaName), Vec<Process>> {
    blocking(|| {
        let us = Uid::effective().as_raw();
        let mut agents: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for pid in pids().filter(|pid| owner(*pid) == Some(us)) {
            let Some(stat) = stat(pid).filter(|stat| !stat.dead && stat.group == pid) else { continue };
            let env = environment(pid);
            let name = |key| env.get(key).cloned();
            let task = name(TASK).and_then(|text| TaskId::new(text).ok());
            let replica = name(AGENT_REPLICA).and_then(|text| ReplicaName::new(text).ok());
            if let (Some(task), Some(replica)) = (task, replica) {
                let process = Process { pid, started: stat.started, adopted: true };
                agents.entry((task, replica)).or_default().push(process);
            }
        }
        agents
    })
    .await
}

/// The user a process belongs to.
fn owner(pid: i32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|meta| meta.uid())
}

/// Kills whatever still carries the name of the attempt (and replica): processes that outlived their agent. Looks again until
/// nothing more is found, since a process may start another while it is looked for, and one that is just starting a program shows
/// no name. Gives what was not gone within [`KILL_LIMIT`].
pub(super) async fn kill_all_of(task: &TaskId, replica: Option<&ReplicaName>) -> Vec<Process> {
    let begun = Instant::now();
    let mut looks_without = 0;
    loop {
        let (task, replica) = (task.clone(), replica.cloned());
        let found = blocking(move || kill_once(&task, replica.as_ref())).await;
        looks_without = if found.is_empty() { looks_without + 1 } else { 0 };
        if looks_without >= CLEAN_LOOKS {
            return Vec::new();
        }
        if begun.elapsed() >= KILL_LIMIT && !found.is_empty() {
            tracing::error!(processes = ?found, "processes that outlived their agent cannot be killed");
            return found;
        }
        tokio::time::sleep(CHECK).await;
    }
}

fn kill_once(task: &TaskId, replica: Option<&ReplicaName>) -> Vec<Process> {
    let is_ours = |pid: &i32| {
        let env = environment(*pid);
        env.get(TASK).is_some_and(|value| value == task.as_str())
            && replica.is_none_or(|replica| env.get(REPLICA).is_some_and(|value| value == replica.as_str()))
    };
    let mut found = Vec::new();
    for pid in pids().filter(is_ours) {
        if let Some(stat) = stat(pid).filter(|stat| !stat.dead) {
            let process = Process { pid, started: stat.started, adopted: true };
            tracing::warn!(%task, pid, "kills a process that outlived its agent");
            process.kill();
            found.push(process);
        }
    }
    found
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

    #[tokio::test]
    async fn what_carries_the_attempts_name_is_killed_and_nothing_else() {
        let task = TaskId::new("t-kill-all-of-1").unwrap();
        let spawn = |task: &str, replica: &str| {
            Command::new("sleep").arg("60").env(TASK, task).env(REPLICA, replica).spawn().unwrap()
        };
        let mut ours = spawn("t-kill-all-of-1", "worker-0");
        let mut other_replica = spawn("t-kill-all-of-1", "worker-1");
        let mut other_task = spawn("t-kill-all-of-2", "worker-0");
        assert!(kill_all_of(&task, Some(&ReplicaName::new("worker-0").unwrap())).await.is_empty());
        assert!(!ours.wait().unwrap().success());
        assert!(Process::child(other_replica.id()).is_alive());
        assert!(kill_all_of(&task, None).await.is_empty());
        assert!(!other_replica.wait().unwrap().success());
        assert!(Process::child(other_task.id()).is_alive());
        other_task.kill().unwrap();
        other_task.wait().unwrap();
    }

    #[tokio::test]
    async fn processes_that_start_others_while_they_are_killed_are_all_killed() {
        let task = TaskId::new("t-kill-all-of-3").unwrap();
        // Each of four shells starts the next process as soon as it can, away from its own group.
        let starts = "n=0; while [ $n -lt 300 ]; do setsid sleep 60 & n=$((n+1)); done; wait";
        let shells: Vec<_> = (0..4)
            .map(|_| Command::new("sh").args(["-c", starts]).env(TASK, task.as_str()).spawn().unwrap())
            .collect();
        assert!(kill_all_of(&task, None).await.is_empty());
        assert!(kill_once(&task, None).is_empty());
        for mut shell in shells {
            shell.wait().unwrap();
        }
    }

    #[tokio::test]
    async fn only_a_process_that_was_started_as_an_agent_is_one() {
        use std::os::unix::process::CommandExt;
        let spawn = |task: &str, group: bool| {
            let mut command = Command::new("sleep");
            command.arg("60").env(TASK, task).env(AGENT_REPLICA, "worker-0");
            if group {
                command.process_group(0);
            }
            command.spawn().unwrap()
        };
        let mut children = [spawn("t-agents-1", true), spawn("t-agents-2", false)];
        let key = |task: &str| (TaskId::new(task).unwrap(), ReplicaName::new("worker-0").unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        let found = loop {
            let found = agents().await;
            // In the middle of an `exec` a process shows no environment.
            if found.contains_key(&key("t-agents-1")) || Instant::now() > deadline {
                break found;
            }
        };
        let child = Process::child(children[0].id());
        assert!(found[&key("t-agents-1")].iter().all(|process| process.is(&child)));
        assert!(Process::of_text(&child.to_text()).unwrap().is(&child));
        assert!(!found.contains_key(&key("t-agents-2")), "a process of an agent's group");
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
