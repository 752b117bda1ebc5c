//! Repeats the program's output on the agent's own, without ever holding the program up.

use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::{self, JoinHandle},
};

use crate::{log::Stream, telemetry::MARK};

/// Chunks that wait for a slow reader: with chunks of at most 256 KiB, 16 MiB.
const WAITING_CHUNKS: usize = 64;

/// The way to the agent's own output. A thread of its own writes; where it does not keep up, output is left out and said so.
pub struct Pass {
    chunks: SyncSender<(Stream, Vec<u8>)>,
    left_out: u64,
    writer: JoinHandle<()>,
}

impl Pass {
    /// Starts the writer.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn start() -> io::Result<Self> {
        let (chunks, waiting) = sync_channel(WAITING_CHUNKS);
        let writer = thread::Builder::new().name("pass".to_owned()).spawn(move || write(&waiting))?;
        Ok(Self { chunks, left_out: 0, writer })
    }

    /// Repeats a chunk, or leaves it out.
    pub fn chunk(&mut self, stream: Stream, bytes: &[u8]) {
        let mut chunk = Vec::new();
        if self.left_out > 0 {
            chunk =
                format!("\n{MARK}{} bytes of output were not repeated here\n", self.left_out).into_bytes();
        }
        chunk.extend_from_slice(bytes);
        match self.chunks.try_send((stream, chunk)) {
            Ok(()) => self.left_out = 0,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.left_out += bytes.len() as u64,
        }
    }

    /// Waits until all is written, as long as that takes.
    pub fn finish(self) {
        drop(self.chunks);
        // A writer that panicked has written what it could.
        let _ = self.writer.join();
    }
}

/// Ends when nobody is left to send, or when nobody reads any more.
fn write(chunks: &Receiver<(Stream, Vec<u8>)>) {
    for (stream, chunk) in chunks {
        let done = match stream {
            Stream::Out => io::stdout().write_all(&chunk).and_then(|()| io::stdout().flush()),
            Stream::Err => io::stderr().write_all(&chunk),
        };
        if done.is_err() {
            return;
        }
    }
}
