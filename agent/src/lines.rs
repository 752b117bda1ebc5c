//! Cuts one output stream into the lines that are kept.
//!
//! `\n` and `\r\n` end a line. A lone `\r` ends a state of a progress bar, which the next one overwrites: of such
//! states one is kept each second, and always the last. Memory is bounded, whatever a program prints.

use std::{
    mem,
    time::{Duration, Instant},
};

use memchr::memchr2;

/// Bytes kept of one line.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// At most one state of a progress bar is kept in this time.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// A line to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its bytes without the line end, at most [`MAX_LINE_BYTES`].
    pub text: &'a [u8],
    /// Bytes that were cut off its end.
    pub cut: u64,
}

impl Line<'_> {
    /// Writes it with its end, and what was cut off it in words.
    pub fn write_to(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(self.text);
        if self.cut > 0 {
            buffer.extend_from_slice(format!(" [{} bytes cut]", self.cut).as_bytes());
        }
        buffer.push(b'\n');
    }
}

/// Bytes of a line so far.
#[derive(Debug, Default)]
struct Part {
    text: Vec<u8>,
    cut: u64,
}

impl Part {
    fn push(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(MAX_LINE_BYTES - self.text.len());
        self.text.extend_from_slice(&bytes[..kept]);
        self.cut += (bytes.len() - kept) as u64;
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    fn line(&self) -> Line<'_> {
        Line { text: &self.text, cut: self.cut }
    }

    fn clear(&mut self) {
        self.text.clear();
        // One long line must not hold memory for the rest of the run.
        self.text.shrink_to(4096);
        self.cut = 0;
    }
}

/// The cutter of one stream.
#[derive(Debug, Default)]
pub struct Lines {
    current: Part,
    /// A state of a progress bar that is neither kept nor overwritten yet.
    update: Part,
    update_kept_at: Option<Instant>,
    /// A chunk ended with `\r`; the next byte says whether that was a line end.
    after_return: bool,
}

impl Lines {
    /// Takes the next bytes, read at `now`, and gives the lines they complete.
    pub fn push(&mut self, chunk: &[u8], now: Instant, emit: &mut impl FnMut(Line<'_>)) {
        let mut rest = chunk;
        if self.after_return && !rest.is_empty() {
            self.after_return = false;
            if rest[0] == b'\n' {
                rest = &rest[1..];
                self.end_line(&[], emit);
            } else {
                self.end_update(&[], now, emit);
            }
        }
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let (piece, end) = (&rest[..at], rest[at]);
            rest = &rest[at + 1..];
            if end == b'\n' {
                self.end_line(piece, emit);
            } else if rest.is_empty() {
                self.after_return = true;
                rest = piece;
                break;
            } else if rest[0] == b'\n' {
                rest = &rest[1..];
                self.end_line(piece, emit);
            } else {
                self.end_update(piece, now, emit);
            }
        }
        self.current.push(rest);
    }

    /// Gives a state of a progress bar that was held back and is due.
    pub fn tick(&mut self, now: Instant, emit: &mut impl FnMut(Line<'_>)) {
        if self.due().is_some_and(|due| due <= now) {
            self.keep_update(now, emit);
        }
    }

    /// When [`Self::tick`] has something to do.
    pub fn due(&self) -> Option<Instant> {
        if self.update.is_empty() { None } else { self.update_kept_at.map(|at| at + UPDATE_INTERVAL) }
    }

    /// The stream is over, or its process is: what has no line end is a line too.
    pub fn flush(&mut self, now: Instant, emit: &mut impl FnMut(Line<'_>)) {
        self.after_return = false;
        if self.current.is_empty() && !self.update.is_empty() {
            self.keep_update(now, emit);
        }
        self.update.clear();
        if !self.current.is_empty() {
            emit(self.current.line());
            self.current.clear();
        }
    }

    fn end_line(&mut self, piece: &[u8], emit: &mut impl FnMut(Line<'_>)) {
        if self.current.is_empty() && piece.len() <= MAX_LINE_BYTES {
            // The common case copies nothing. An empty rest of a line is the end of the update before it.
            if piece.is_empty() && !self.update.is_empty() {
                emit(self.update.line());
            } else {
                emit(Line { text: piece, cut: 0 });
            }
        } else {
            self.current.push(piece);
            emit(self.current.line());
            self.current.clear();
        }
        self.update.clear();
    }

    fn end_update(&mut self, piece: &[u8], now: Instant, emit: &mut impl FnMut(Line<'_>)) {
        self.current.push(piece);
        if self.current.is_empty() {
            return;
        }
        mem::swap(&mut self.current, &mut self.update);
        self.current.clear();
        if self.update_kept_at.is_none_or(|at| now.duration_since(at) >= UPDATE_INTERVAL) {
            self.keep_update(now, emit);
        }
    }

    fn keep_update(&mut self, now: Instant, emit: &mut impl FnMut(Line<'_>)) {
        self.update_kept_at = Some(now);
        emit(self.update.line());
        self.update.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of chunks read at these milliseconds; `flush` at the end.
    fn kept(chunks: &[(u64, &[u8])]) -> Vec<String> {
        let start = Instant::now();
        let mut lines = Lines::default();
        let mut out = Vec::new();
        let mut now = start;
        let mut emit = |line: Line<'_>| {
            out.push(format!(
                "{}{}",
                String::from_utf8_lossy(line.text),
                "+".repeat(usize::from(line.cut > 0))
            ))
        };
        for (millis, chunk) in chunks {
            now = start + Duration::from_millis(*millis);
            lines.tick(now, &mut emit);
            lines.push(chunk, now, &mut emit);
        }
        lines.flush(now, &mut emit);
        out
    }

    #[test]
    fn lines_are_the_same_however_the_stream_is_cut() {
        let text = b"one\r\ntwo\n\n 10%\r 20%\r 30%\nlast";
        let want = ["one", "two", "", " 10%", " 30%", "last"];
        assert_eq!(kept(&[(0, text)]), want);
        let bytes: Vec<_> = text.chunks(1).map(|c| (0, c)).collect();
        assert_eq!(kept(&bytes), want);
    }

    #[test]
    fn of_a_progress_bar_one_state_a_second_and_the_last_are_kept() {
        let chunks: Vec<(u64, &[u8])> = vec![
            (0, b" 1%\r "),
            (400, b"2%\r "),
            (900, b"3%\r "),
            (1100, b"4%\r "),
            (1500, b"5%\r "),
            (2000, b"6%\r"),
        ];
        // At 1100 ms the state that is due, 3%, is given before the next is read.
        assert_eq!(kept(&chunks), [" 1%", " 3%", " 6%"]);
        let windows: Vec<(u64, &[u8])> =
            vec![(0, b"a\r\n"), (5000, b"b\r\n"), (9000, b"c\r"), (9001, b"\nd\r\n")];
        assert_eq!(kept(&windows), ["a", "b", "c", "d"]);
    }

    #[test]
    fn an_overwritten_state_gives_way_to_what_follows() {
        assert_eq!(kept(&[(0, b" 10%\r 50%\rTraceback\n")]), [" 10%", "Traceback"]);
        assert_eq!(kept(&[(0, b"\r\r\r\n")]), [""]);
    }

    #[test]
    fn a_very_long_line_is_cut_in_bounded_memory() {
        let mut lines = Lines::default();
        let now = Instant::now();
        let chunk = vec![b'x'; 1 << 20];
        let mut seen = Vec::new();
        for _ in 0..8 {
            lines.push(&chunk, now, &mut |line| seen.push((line.text.len(), line.cut)));
            assert!(lines.current.text.capacity() <= 2 * MAX_LINE_BYTES);
        }
        lines.push(b"\nshort\n", now, &mut |line| seen.push((line.text.len(), line.cut)));
        assert_eq!(seen, [(MAX_LINE_BYTES, (8 << 20) - MAX_LINE_BYTES as u64), (5, 0)]);
    }
}
