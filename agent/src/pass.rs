//! Repeats the program's output elsewhere, line by line in the form of [`engine::output`], without ever holding the program up.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    mem,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::{self, JoinHandle},
};

use engine::output;

use crate::lines::Line;

/// Bytes of lines that are handed on together.
const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks that wait for a slow reader: 16 MiB, unless single lines are longer than a chunk.
const WAITING_CHUNKS: usize = 256;

/// Where output is repeated.
#[derive(Clone, Debug, Default)]
pub struct Repeat {
    /// On the agent's own standard output.
    pub stdout: bool,
    /// At the end of this file.
    pub file: Option<PathBuf>,
}

/// The way to where output is repeated. A thread of its own writes; where it does not keep up, lines are left out and said so.
pub struct Pass {
    chunks: SyncSender<Vec<u8>>,
    gathered: Vec<u8>,
    gathered_lines: u64,
    left_out: u64,
    writer: JoinHandle<()>,
}

impl Pass {
    /// Starts the writer with the mark of this launch; none where nothing is to be repeated.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn start(launch: u32, repeat: Repeat) -> io::Result<Option<Self>> {
        let Repeat { stdout, file } = repeat;
        if !stdout && file.is_none() {
            return Ok(None);
        }
        let (chunks, waiting) = sync_channel(WAITING_CHUNKS);
        let writer = thread::Builder::new()
            .name("pass".to_owned())
            .spawn(move || write(&waiting, places(stdout, file.as_deref())))?;
        let gathered = output::launch(launch).into_bytes();
        let mut pass = Self { chunks, gathered, gathered_lines: 0, left_out: 0, writer };
        pass.flush();
        Ok(Some(pass))
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

/// Opens what is to be written to.
fn places(stdout: bool, file: Option<&Path>) -> Vec<Box<dyn Write>> {
    let mut places = Vec::<Box<dyn Write>>::new();
    if stdout {
        places.push(Box::new(io::stdout()));
    }
    if let Some(path) = file {
        match OpenOptions::new().append(true).create(true).open(path) {
            Ok(file) => places.push(Box::new(file)),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the program's output is not repeated there");
            }
        }
    }
    places
}

/// Ends when nobody is left to send, or when nobody reads any more.
fn write(chunks: &Receiver<Vec<u8>>, mut places: Vec<Box<dyn Write>>) {
    for chunk in chunks {
        places.retain_mut(|place| place.write_all(&chunk).and_then(|()| place.flush()).is_ok());
        if places.is_empty() {
            return;
        }
    }
}
