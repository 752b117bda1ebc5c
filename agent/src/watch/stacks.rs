//! Python stacks of the processes of one rank, read out of their memory.
//!
//! Nothing is done to a process: it is not stopped, not attached to, nothing is written into it. The price is that it runs on while
//! it is read, so a stack may be torn. What counts as the same stack is therefore read twice.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use engine::sync::{StackKey, watch_limits::WORDS_BYTES};
use py_spy::{
    PythonSpy,
    config::{Config, LineNo, LockingStrategy},
};

use crate::{
    tree::Identity,
    watch::frames::{Frame, Hash, Thread, bounded, key},
};

/// Python processes of one rank that are read, the oldest first: what trains is older than the loaders it starts.
const PROCESSES: usize = 16;
/// Processes below a rank that are looked at to find those.
const MEMBERS: usize = 128;
/// Threads of a process and frames of a thread that the library reads; it gives up where there are more.
const READABLE: u32 = 4096;
/// Bytes of a list of mappings that are read to find Python's library.
const MAPS_BYTES: u64 = 8 << 20;
/// Of the innermost frames of a process that starts the training and waits for it, one is in the code that does so.
const LAUNCHER_FRAMES: usize = 8;

/// Where Linux says who may read whose memory.
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Functions and files that only processes run which serve the one that trains.
const SERVANTS: [&str; 6] = [
    "_worker_loop (torch/utils/data/_utils/worker.py)",
    "worker (multiprocessing/pool.py)",
    "_process_worker (concurrent/futures/process.py)",
    "(multiprocessing/resource_tracker.py)",
    "(multiprocessing/forkserver.py)",
    "(torch/_inductor/compile_worker/__main__.py)",
];
/// Beginnings of files whose code starts the training processes and waits for them.
const LAUNCHERS: [&str; 5] = [
    "(torch/distributed/elastic/",
    "(torch/distributed/launcher/",
    "(torch/multiprocessing/spawn.py",
    "(accelerate/commands/",
    "(deepspeed/launcher/",
];
/// Beginnings of files whose threads move or stand still whatever the program does.
const BESIDE: [&str; 6] = [
    "(tqdm/_monitor.py",
    "(torch/utils/data/_utils/pin_memory.py",
    "(wandb/",
    "(tensorboard/",
    "(prometheus_client/",
    "(sentry_sdk/",
];

/// Why there are no stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No process of the rank runs Python.
    NotPython,
    /// The kernel does not let this user look; its rule, where it has one.
    NoPermission(Option<String>),
    /// The interpreter is not ready, or ends.
    NoCode,
    /// Too many threads, so many.
    Threads(u32),
    /// A stack of more frames than can be read.
    Deep,
    /// A Python of this version.
    Version(String),
    /// The process is gone.
    Gone,
    /// It took too long, now or since an earlier sample.
    TimedOut,
    /// What the library says.
    Other(String),
}

impl Missing {
    /// For people, within the protocol's limit.
    pub fn words(&self) -> String {
        let text = match self {
            Self::NotPython => "not Python".to_owned(),
            Self::NoPermission(None) => "no permission".to_owned(),
            Self::NoPermission(Some(scope)) => format!("no permission (kernel.yama.ptrace_scope is {scope})"),
            Self::NoCode => "no Python code runs: the interpreter is starting or ending".to_owned(),
            Self::Threads(count) => format!("{count} threads; at most {READABLE} can be read"),
            Self::Deep => format!("a stack of more than {READABLE} frames"),
            Self::Version(version) => format!("Python {version} cannot be read"),
            Self::Gone => "the process is gone".to_owned(),
            Self::TimedOut => "timed out".to_owned(),
            Self::Other(text) => text.clone(),
        };
        bounded(&text, WORDS_BYTES)
    }

    fn no_permission() -> Self {
        Self::NoPermission(fs::read_to_string(PTRACE_SCOPE).ok().map(|scope| scope.trim().to_owned()))
    }

    /// From an error of the library.
    fn new(why: &anyhow::Error) -> Self {
        let number = why.chain().find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
        match number {
            Some(libc::EPERM | libc::EACCES) => Self::no_permission(),
            Some(libc::ESRCH | libc::ENOENT) => Self::Gone,
            _ => {
                let text = format!("{why:#}");
                match () {
                    () if text.contains("Max frame recursion") => Self::Deep,
                    () if text.contains("Max thread recursion") => Self::Threads(READABLE),
                    () if text.contains("Unsupported version") => {
                        Self::Version(text.rsplit(' ').next().unwrap_or_default().to_owned())
                    }
                    () => Self::Other(format!("not readable: {text}")),
                }
            }
        }
    }
}

/// What was seen of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The process that trains, or the rank's own where that cannot be told.
    pub pid: i32,
    /// Its stacks.
    pub stacks: Result<Stacks, Missing>,
}

/// The stacks of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stacks {
    /// Of the main thread of the process that trains.
    pub key: StackKey,
    /// Of all threads that run the program.
    pub hash: Hash,
    /// Two looks, one right after the other, saw the same.
    pub settled: bool,
    /// All threads with lines and names, those of the process that trains first, servants last. Empty unless they were asked for.
    pub threads: Vec<Thread>,
}

/// What a process of a rank is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Trains,
    Launches,
    Serves,
}

/// One Python process, opened.
struct Process {
    /// To see that it has become another program.
    exe: PathBuf,
    spy: Option<PythonSpy>,
    role: Option<Role>,
}

/// Reads the stacks of one rank, and remembers where in the memory of its processes they are.
#[derive(Default)]
pub struct Reader {
    known: BTreeMap<Identity, Process>,
}

impl Reader {
    /// Reads the rank's processes, given with their numbers of threads, its own first. With `full`, lines, names and servants too.
    pub fn read(&mut self, family: &[(Identity, u32)], full: bool) -> Reading {
        let own = family.first().map_or(0, |(identity, _)| identity.pid);
        self.known.retain(|known, _| family.iter().any(|(identity, _)| identity == known));
        let mut refused = None;
        let mut read = Vec::new();
        for &(identity, threads) in family.iter().take(MEMBERS) {
            if read.len() == PROCESSES {
                break;
            }
            let process = match self.process(identity) {
                Ok(Some(process)) => process,
                Ok(None) => continue,
                Err(why) => {
                    refused.get_or_insert((identity.pid, why));
                    continue;
                }
            };
            if process.role == Some(Role::Serves) && !full {
                continue;
            }
            match process.look_twice(identity, threads, full) {
                Ok((settled, threads)) => {
                    let role = role(&threads);
                    process.role = Some(role);
                    read.push((role, identity.pid, settled, threads));
                }
                Err(why) => {
                    refused.get_or_insert((identity.pid, why));
                }
            }
        }
        // The sort is stable: of those with one role the oldest stays first.
        read.sort_by_key(|(role, ..)| *role);
        match (read.first(), refused) {
            (Some((role, pid, ..)), _) if *role != Role::Serves => {
                Reading { pid: *pid, stacks: Ok(gather(read, full)) }
            }
            (_, Some((pid, why))) => Reading { pid, stacks: Err(why) },
            _ => Reading { pid: own, stacks: Err(Missing::NotPython) },
        }
    }

    /// The process, if it runs Python and that can be seen.
    fn process(&mut self, identity: Identity) -> Result<Option<&mut Process>, Missing> {
        let exe = match fs::read_link(format!("/proc/{}/exe", identity.pid)) {
            Ok(exe) => exe,
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => return Err(Missing::no_permission()),
            Err(_) => return Ok(None),
        };
        if self.known.get(&identity).is_some_and(|known| known.exe != exe) {
            self.known.remove(&identity);
        }
        match self.known.entry(identity) {
            Entry::Occupied(known) => Ok(Some(known.into_mut())),
            Entry::Vacant(_) if !runs_python(identity.pid, &exe) => Ok(None),
            Entry::Vacant(new) => Ok(Some(new.insert(Process { exe, spy: None, role: None }))),
        }
    }
}

/// Whether this is an interpreter, or holds one. What has only just begun is looked at again at the next sample.
fn runs_python(pid: i32, exe: &std::path::Path) -> bool {
    let name = exe.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
    if name.is_some_and(|name| name.contains("python")) {
        return true;
    }
    let Ok(maps) = fs::File::open(format!("/proc/{pid}/maps")) else { return false };
    let mut text = Vec::new();
    let read = io::Read::read_to_end(&mut io::Read::take(maps, MAPS_BYTES), &mut text);
    read.is_ok() && memchr::memmem::find(&text, b"/libpython").is_some()
}

impl Process {
    /// Its threads, and whether two looks saw the same.
    fn look_twice(
        &mut self,
        identity: Identity,
        threads: u32,
        full: bool,
    ) -> Result<(bool, Vec<Thread>), Missing> {
        if threads > READABLE {
            return Err(Missing::Threads(threads));
        }
        let first = match self.look(identity.pid, false) {
            // It may have become another program, by exec, with other addresses.
            Err(Missing::Other(_) | Missing::NoCode) => {
                self.spy = None;
                self.look(identity.pid, false)
            }
            other => other,
        }?;
        let second = self.look(identity.pid, full)?;
        Ok((is_same(&first, &second), second))
    }

    fn look(&mut self, pid: i32, full: bool) -> Result<Vec<Thread>, Missing> {
        // What the library reads is torn at times; whatever it makes of that must not end the agent.
        let looked = catch_unwind(AssertUnwindSafe(|| {
            let spy = match &mut self.spy {
                Some(spy) => spy,
                none => none.insert(PythonSpy::new(pid, &config())?),
            };
            spy.config.lineno = if full { LineNo::LastInstruction } else { LineNo::NoLine };
            spy.config.collect_thread_names = full;
            spy.get_stack_traces()
        }));
        let traces = match looked {
            Ok(Ok(traces)) => traces,
            Ok(Err(why)) => {
                let why = Missing::new(&why);
                // Where its interpreter is stays known: to find it again is not possible as long as there is too much to read.
                if !matches!(why, Missing::Deep | Missing::Threads(_)) {
                    self.spy = None;
                }
                return Err(why);
            }
            Err(_) => {
                self.spy = None;
                return Err(Missing::Other("not readable: its memory makes no sense".to_owned()));
            }
        };
        let threads = threads(pid, traces);
        if threads.iter().all(|thread| thread.frames.is_empty()) { Err(Missing::NoCode) } else { Ok(threads) }
    }
}

fn config() -> Config {
    Config {
        blocking: LockingStrategy::NonBlocking,
        // Otherwise the library looks for each file on the disk, which may not answer.
        full_filenames: true,
        ..Config::default()
    }
}

/// The main thread first, the others as they were started.
fn threads(pid: i32, traces: Vec<py_spy::StackTrace>) -> Vec<Thread> {
    let is_main = |trace: &py_spy::StackTrace| trace.os_thread_id == Some(pid as u64);
    // Python lists the newest first; before 3.11 it does not know the kernel's ids, and the first one is the main thread.
    let main = traces.iter().position(is_main).or(traces.len().checked_sub(1));
    let mut threads: Vec<Thread> = traces
        .into_iter()
        .map(|trace| Thread {
            id: trace.os_thread_id.unwrap_or(trace.thread_id),
            name: trace.thread_name,
            frames: trace.frames.iter().map(frame).collect(),
        })
        .collect();
    let first = main.map(|at| threads.remove(at));
    first.into_iter().chain(threads.into_iter().rev()).collect()
}

fn frame(frame: &py_spy::Frame) -> Frame {
    Frame::new(&frame.name, &frame.filename, u32::try_from(frame.line).ok().filter(|line| *line > 0))
}

fn is_same(one: &[Thread], other: &[Thread]) -> bool {
    Hash::of_all(one.iter().filter(|t| runs_the_program(t)))
        == Hash::of_all(other.iter().filter(|t| runs_the_program(t)))
}

fn runs_the_program(thread: &Thread) -> bool {
    !thread.frames.iter().any(|frame| BESIDE.iter().any(|file| frame.function.contains(file)))
}

fn role(threads: &[Thread]) -> Role {
    let Some(main) = threads.first() else { return Role::Trains };
    let serves = |frame: &Frame| SERVANTS.iter().any(|end| frame.function.ends_with(end));
    let launches = |frame: &Frame| LAUNCHERS.iter().any(|file| frame.function.contains(file));
    if main.frames.iter().any(serves) {
        Role::Serves
    } else if main.frames.iter().take(LAUNCHER_FRAMES).any(launches) {
        Role::Launches
    } else {
        Role::Trains
    }
}

/// One reading of all processes, those that train first.
fn gather(read: Vec<(Role, i32, bool, Vec<Thread>)>, full: bool) -> Stacks {
    let is_program = |role: &Role| *role != Role::Serves;
    let programs = || read.iter().filter(|(role, ..)| is_program(role));
    let main = read.first().and_then(|(.., threads)| threads.first());
    let key = key(main.map_or(&[], |thread| &thread.frames));
    let hash = Hash::of_all(programs().flat_map(|(.., threads)| threads).filter(|t| runs_the_program(t)));
    let settled = programs().all(|(_, _, settled, _)| *settled);
    let mut all = Vec::new();
    if full {
        let first = read.first().map(|(_, pid, ..)| *pid);
        for (_, pid, _, threads) in read {
            let name = |name: Option<String>| match name {
                _ if Some(pid) == first => name,
                Some(name) => Some(format!("process {pid}: {name}")),
                None => Some(format!("process {pid}")),
            };
            all.extend(threads.into_iter().map(|thread| Thread { name: name(thread.name), ..thread }));
        }
    }
    Stacks { key, hash, settled, threads: all }
}

#[cfg(test)]
mod tests;
