//! Repeats the program's output on the agent's own, line by line in the form of [`engine::output`], without ever holding the
//! program up.

use std::{
    io::{self, Write},
    mem,
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::{self, JoinHandle},
};

use engine::output;

use crate::lines::Line;

/// Bytes of lines that are handed on together.
const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks that wait for a slow reader: 16 MiB, unless single lines are longer than a chunk.
const WAITING_CHUNKS: usize = 256;

/// The way to the agent's own output. A thread of its own writes; where it does not keep up, lines are left out and said so.
pub struct Pass {
    chunks: SyncSender<Vec<u8>>,
    gathered: Vec<u8>,
    gathered_lines: u64,
    left_out: u64,
    writer: JoinHandle<()>,
}

impl Pass {
    /// Starts the writer with the mark of this launch.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn start(launch: u32) -> io::Result<Self> {
        let (chunks, waiting) = sync_channel(WAITING_CHUNKS);
        let writer = thread::Builder::new().name("pass".to_owned()).spawn(move || write(&waiting))?;
        let gathered = output::launch(launch).into_bytes();
        let mut pass = Self { chunks, gathered, gathered_lines: 0, left_out: 0, writer };
        pass.flush();
        Ok(pass)
    }

    /// Repeats a line, or leaves it out.
    pub fn line(&mut self, rank: u32, line: Line<'_>) {
        self.gathered.extend_from_slice(output::head(rank).as_bytes());
        line.write_to(&mut self.gathered);
        self.gathered_lines += 1;
        if self.gathered.len() >= CHUNK_BYTES {
            self.flush();
        }
    }

    /// Hands on what is gathered.
    pub fn flush(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let lines = mem::take(&mut self.gathered_lines);
        let mut chunk = mem::take(&mut self.gathered);
        if self.left_out > 0 {
            chunk.splice(0..0, output::left_out(self.left_out).into_bytes());
        }
        match self.chunks.try_send(chunk) {
            Ok(()) => self.left_out = 0,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.left_out += lines,
        }
    }

    /// Waits until all is written, as long as that takes.
    pub fn finish(mut self) {
        self.flush();
        drop(self.chunks);
        // A writer that panicked has written what it could.
        let _ = self.writer.join();
    }
}

/// Ends when nobody is left to send, or when nobody reads any more.
fn write(chunks: &Receiver<Vec<u8>>) {
    for chunk in chunks {
        let done = io::stdout().write_all(&chunk).and_then(|()| io::stdout().flush());
        if done.is_err() {
            return;
        }
    }
}
