//! Starts the processes of one launch.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use engine::sync::Launch;
use nix::{
    sys::{prctl, signal::Signal},
    unistd::{Pid, getppid, setsid},
};

use crate::{
    capture::Source,
    config::{Config, OWN_VARIABLES},
};

/// Where the first process of a replica listens for the word that its end is near.
const EXIT_PORT: &str = "HOLDFAST_EXIT_PORT";
/// How this program is called in a command.
const OWN_NAME: &str = "holdfast-agent";
/// Characters of the program's name in an error.
const PROGRAM_CHARS: usize = 500;

/// A process that was started.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// Its number.
    pub pid: i32,
    /// Its rank.
    pub rank: u32,
}

/// The program could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start `{program}` as rank {rank}")]
pub struct StartError {
    program: String,
    rank: u32,
    /// The operating system's words.
    #[source]
    pub source: io::Error,
}

/// All processes of a launch, or those that could be started before one could not.
pub struct Processes {
    /// Those that run.
    pub started: Vec<Started>,
    /// Their output.
    pub sources: Vec<Source>,
    /// Why there are no more.
    pub failure: Option<StartError>,
}

/// Starts the program once for each local rank; `exit_port` is where the first of them is told of its end. Only to be called from the agent's main thread: the kernel kills a
/// process whose parent thread ends.
pub fn start(config: &Config, launch: &Launch, exit_port: Option<u16>) -> Processes {
    let mut all = Processes { started: Vec::new(), sources: Vec::new(), failure: None };
    for local in 0..launch.local_world_size {
        let rank = launch.first_rank + local;
        match start_one(config, launch, local, exit_port.filter(|_| local == 0)) {
            Ok((pid, source)) => {
                all.started.push(Started { pid, rank });
                all.sources.push(source);
            }
            Err(source) => {
                let program = config.program[0].to_string_lossy().chars().take(PROGRAM_CHARS).collect();
                all.failure = Some(StartError { program, rank, source });
                break;
            }
        }
    }
    all
}

fn start_one(
    config: &Config,
    launch: &Launch,
    local: u32,
    exit_port: Option<u16>,
) -> io::Result<(i32, Source)> {
    let rank = launch.first_rank + local;
    let (out, out_writer) = io::pipe()?;
    let (err, err_writer) = io::pipe()?;
    let source = Source::new(rank, out, err)?;
    let mut command = Command::new(program(&config.program[0]));
    command.args(&config.program[1..]).stdin(Stdio::null()).stdout(out_writer).stderr(err_writer);
    set_environment(&mut command, config, launch, local);
    match exit_port {
        Some(port) => command.env(EXIT_PORT, port.to_string()),
        None => command.env_remove(EXIT_PORT),
    };
    tie_to_parent(&mut command);
    let child = command.spawn()?;
    Ok((child.id() as i32, source))
}

/// The program to start. `holdfast-agent` is this very program, wherever it lies here: so a diagnosis names its test.
fn program(given: &OsStr) -> OsString {
    let own = (given == OWN_NAME).then(std::env::current_exe).and_then(Result::ok);
    own.map_or_else(|| given.to_owned(), OsString::from)
}

/// The environment of the program: the agent's own without what is only the agent's, and what a launch adds.
pub fn set_environment(command: &mut Command, config: &Config, launch: &Launch, local: u32) {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(OWN_VARIABLES.as_bytes()) {
            command.env_remove(name);
        }
    }
    // What stays in Python's buffer is lost with a crash.
    if std::env::var_os("PYTHONUNBUFFERED").is_none() {
        command.env("PYTHONUNBUFFERED", "1");
    }
    command.env("HOLDFAST_LAUNCH", launch.number.to_string());
    if !config.ranks {
        return;
    }
    command
        .env("RANK", (launch.first_rank + local).to_string())
        .env("LOCAL_RANK", local.to_string())
        .env("WORLD_SIZE", launch.world_size.to_string())
        .env("LOCAL_WORLD_SIZE", launch.local_world_size.to_string())
        .env("MASTER_ADDR", &launch.master_addr)
        .env("MASTER_PORT", launch.master_port.to_string());
}

/// The process gets a session of its own, and dies with this one.
#[expect(unsafe_code, reason = "what a child does between fork and exec can be said in no other way")]
pub fn tie_to_parent(command: &mut Command) {
    let parent = Pid::this();
    let prepare = move || {
        setsid()?;
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // It may have ended before the line above.
        if getppid() == parent { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
    };
    // SAFETY: between fork and exec only system calls are made; nothing allocates or locks.
    unsafe { command.pre_exec(prepare) };
}
