//! What an exit code says by itself, where no line explains it (reference: exit codes as launchers and
//! schedulers read them).

use crate::failure::{Exit, FailureType};

/// What a way to end stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) failure_type: FailureType,
    /// It says more than "failed": it wins over lines that only show that a peer is gone.
    pub(super) telling: bool,
    pub(super) hint: Option<&'static str>,
}

const UNEXPLAINED_KILL: &str = "Nothing explains the SIGKILL; most often the kernel ended the process for its \
    memory. Check the node's kernel log and the memory limit.";

/// The meaning of a failed exit.
///
/// SIGKILL without any line is read as host memory, as schedulers do: the kernel's killer is by far the
/// most common sender, and it writes to the node's log, not to the program's. The confidence is low for
/// that reason.
pub(super) fn meaning(exit: Exit) -> Meaning {
    use FailureType::{AppError, EnvError, HwNode, OomHost, Unknown};
    let (failure_type, hint) = match exit.shell_code() {
        2 => (EnvError, "Exit code 2 is a wrong command line or a file that cannot be opened."),
        14 => (HwNode, "Some site tools exit with 14 when a GPU's information ROM is damaged."),
        93 => (Unknown, "Exit code 93 asks launchers not to start again."),
        125 => (EnvError, "Exit code 125 is a container that could not be run."),
        126 => (EnvError, "Exit code 126 is a command that may not be executed: check its permissions."),
        127 => (EnvError, "Exit code 127 is a command that was not found: check the image and PATH."),
        132 | 139 => (HwNode, "Native code crashed. If it crashes on another node too, suspect the program."),
        135 => (OomHost, "SIGBUS mostly means that /dev/shm is full: give the replica more shared memory."),
        136 => (AppError, "SIGFPE is an integer division by zero in native code."),
        137 => (OomHost, UNEXPLAINED_KILL),
        247 => (OomHost, "Some launchers exit with 247 when a process was killed for its memory."),
        143 => return untelling(Some("Something else than Holdfast sent SIGTERM.")),
        _ => return untelling(None),
    };
    Meaning { failure_type, telling: true, hint: Some(hint) }
}

const fn untelling(hint: Option<&'static str>) -> Meaning {
    Meaning { failure_type: FailureType::Unknown, telling: false, hint }
}

/// The rule that an exit alone stands for: `exit-code-1`, `signal-SIGKILL`.
pub(super) fn rule(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit-code-{code}"),
        Exit::Signal(signal) => format!("signal-{}", signal.to_string().replace(' ', "-")),
    }
}

/// The exit in words: `SIGKILL (exit 137)`, `exit 1`.
pub(super) fn words(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal(signal) => format!("{signal} (exit {})", exit.shell_code()),
    }
}
