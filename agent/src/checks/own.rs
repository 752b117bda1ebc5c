//! The job's own check: a command whose exit code says whether training may begin.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use engine::failure::Exit;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use super::Found;
use crate::{launch, tree};

/// Bytes of output that are kept, the last ones.
const TAIL_BYTES: usize = 2048;
/// Characters of it that are shown.
const SHOWN_CHARS: usize = 300;
/// How long the end of the output is waited for once the command has ended: what it left in the background may keep it open.
const SETTLE: Duration = Duration::from_millis(200);

/// The command while it runs. It is the leader of a process group, which is killed at the end, however that came.
pub struct Own {
    group: Pid,
    tail: Arc<Mutex<Vec<u8>>>,
}

/// Starts the command. Only to be called from the main thread, with which it ends at the latest.
///
/// # Errors
/// What it found where it could not be started.
pub fn start(program: &[String]) -> Result<(Own, impl FnOnce() -> Found + Send + use<>), Found> {
    let cannot = |why: std::io::Error| {
        let name = program.first().map_or("", String::as_str);
        Found::failed(
            format!("the command `{name}` cannot be started: {why}"),
            "Correct the command of the health checks; it is run in the replica, as the program's user.",
        )
    };
    let [name, arguments @ ..] = program else { return Err(Found::skipped("there is no command")) };
    let (output, writer) = std::io::pipe().map_err(cannot)?;
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null()).stderr(writer.try_clone().map_err(cannot)?).stdout(writer);
    launch::tie_to_parent(&mut command);
    let child = command.spawn().map_err(cannot)?;
    // Its ends of the pipe are the command's alone from here on.
    drop(command);
    let tail = Arc::new(Mutex::new(Vec::new()));
    let own = Own { group: Pid::from_raw(child.id() as i32), tail: Arc::clone(&tail) };
    Ok((own, move || wait(child, output, &tail)))
}

impl Own {
    /// Ends all of it.
    pub fn kill(&self) {
        // It may be gone already.
        let _ = killpg(self.group, Signal::SIGKILL);
    }

    /// What it printed last, for a finding that it did not end.
    pub fn said(&self) -> String {
        shown(&self.tail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn wait(mut child: Child, output: std::io::PipeReader, tail: &Arc<Mutex<Vec<u8>>>) -> Found {
    let kept = Arc::clone(tail);
    let reader = thread::spawn(move || keep_tail(output, &kept));
    let status = child.wait();
    let end = Instant::now() + SETTLE;
    while !reader.is_finished() && Instant::now() < end {
        thread::sleep(Duration::from_millis(2));
    }
    let said = shown(&tail.lock().unwrap_or_else(PoisonError::into_inner));
    match status {
        Ok(status) => judge(tree::exit_of(status), &said),
        Err(why) => Found::skipped(format!("how the command ended is not known: {why}")),
    }
}

fn judge(exit: Exit, said: &str) -> Found {
    let said = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
    if exit.is_success() {
        Found::passed(format!("exit 0{said}"))
    } else {
        Found::failed(
            format!("{exit}{said}"),
            "See what the command reports, mend that on this node, or correct the command of the health checks.",
        )
        .measured("exit_code", f64::from(exit.shell_code()))
    }
}

/// Reads to the end, however long that is, and keeps the last of it.
fn keep_tail(mut output: std::io::PipeReader, tail: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 8192];
    while let Ok(length @ 1..) = output.read(&mut buffer) {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&buffer[..length]);
        let over = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..over);
    }
}

/// The last words as one line without control characters.
fn shown(tail: &[u8]) -> String {
    let text = String::from_utf8_lossy(tail);
    let words: Vec<_> =
        text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    let over = line.chars().count().saturating_sub(SHOWN_CHARS);
    let cut = line.chars().skip(over).collect();
    if over > 0 { format!("… {cut}") } else { cut }
}

#[cfg(test)]
mod tests {
    use engine::checks::CheckOutcome::{Failed, Passed};

    use super::*;

    fn run(script: &str) -> Found {
        let program = ["sh", "-c", script].map(str::to_owned);
        match start(&program) {
            Ok((own, wait)) => {
                let found = wait();
                own.kill();
                found
            }
            Err(found) => found,
        }
    }

    #[test]
    fn the_exit_code_decides_and_the_last_words_are_told() {
        let found = run("echo all fine");
        assert_eq!((found.outcome, found.text.as_str()), (Passed, "exit 0; it said: all fine"));
        let found = run("printf 'disk \\033[31m3\\033[0m\\nis slow' >&2; exit 3");
        assert_eq!(found.outcome, Failed);
        assert_eq!(found.text, "exit 3; it said: disk [31m3 [0m is slow");
        assert_eq!(run("kill -9 $$").text, "exit 137 SIGKILL");
        let missing = start(&["/no/such/program".to_owned()]).err().unwrap();
        assert!(missing.text.contains("cannot be started"), "{missing:?}");
    }

    #[test]
    fn a_flood_costs_no_memory_and_what_stays_in_the_background_no_time() {
        let began = Instant::now();
        let found =
            run("sleep 1000 & yes \"\\033]0;title\\007 <script>\" | head -c 20000000; echo last; exit 4");
        assert!(found.text.starts_with("exit 4; it said: … ") && found.text.ends_with("last"), "{found:?}");
        assert!(found.text.chars().count() < SHOWN_CHARS + 40);
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
