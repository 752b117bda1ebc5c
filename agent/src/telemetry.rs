//! The agent's own log: standard error, each line marked so that nobody takes it for the program's.

use std::io::{self, Write};

use engine::output::MARK;
use tracing_subscriber::EnvFilter;

/// Libraries that log what is their own business: each torn read of a stack.
const LIBRARIES: [&str; 3] = ["py_spy", "remoteprocess", "goblin"];

/// Starts logging. `HOLDFAST_AGENT_LOG` takes a filter as `tracing` writes it; without it `info`.
pub fn start(json: bool) {
    let mut filter = EnvFilter::try_from_env("HOLDFAST_AGENT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    for library in LIBRARIES {
        if let Ok(off) = format!("{library}=off").parse() {
            filter = filter.add_directive(off);
        }
    }
    // A line that cannot be written, on a full disk, is lost: saying so on the same standard error would end the agent.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
    if json {
        builder.json().with_writer(io::stderr).init();
    } else {
        builder.with_ansi(false).with_target(false).with_writer(|| Marked).init();
    }
}

/// Standard error with the mark before each event; the formatter writes an event in one call.
struct Marked;

impl Write for Marked {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let mut line = Vec::with_capacity(MARK.len() + event.len());
        line.extend_from_slice(MARK.as_bytes());
        line.extend_from_slice(event);
        io::stderr().write_all(&line)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
