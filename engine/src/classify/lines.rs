//! Cuts a byte stream into lines in bounded memory.

use memchr::memchr2;

/// Bytes kept of the beginning, and again of the end, of a line that is longer than both together.
pub(super) const KEPT_BYTES: usize = 8 * 1024;

/// Stands where the middle of a long line was left out.
const GAP: &[u8] = b" [...] ";

/// A piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A whole line: what stands after its last carriage return.
    Line(&'a [u8]),
    /// What a carriage return is going to overwrite: a state of a progress bar.
    Update(&'a [u8]),
}

/// The beginning and the end of a piece that is not complete.
#[derive(Debug, Default)]
struct Partial {
    head: Vec<u8>,
    tail: Vec<u8>,
    cut: bool,
}

impl Partial {
    fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = KEPT_BYTES - self.head.len();
        let (head, tail) = bytes.split_at(bytes.len().min(room));
        self.head.extend_from_slice(head);
        // Of one big chunk only the end can stay, so the tail never grows with the chunk.
        let skipped = tail.len().saturating_sub(KEPT_BYTES);
        if skipped > 0 {
            self.tail.clear();
            self.cut = true;
        }
        self.tail.extend_from_slice(&tail[skipped..]);
        if self.tail.len() > 2 * KEPT_BYTES {
            self.trim();
        }
    }

    /// Leaves no more than the last [`KEPT_BYTES`] of the tail.
    fn trim(&mut self) {
        let excess = self.tail.len().saturating_sub(KEPT_BYTES);
        if excess > 0 {
            self.tail.drain(..excess);
            self.cut = true;
        }
    }

    /// Puts beginning and end together in `head`.
    fn join(&mut self) -> &[u8] {
        self.trim();
        if self.cut {
            self.head.extend_from_slice(GAP);
        }
        self.head.append(&mut self.tail);
        &self.head
    }

    fn clear(&mut self) {
        // `join` may have let it grow to both halves; give that back, there is one of these for each
        // stream.
        self.head.clear();
        self.head.shrink_to(KEPT_BYTES);
        self.tail.clear();
        self.cut = false;
    }
}

/// Cuts a stream that arrives in chunks of any size. `\n` and `\r\n` end a line; a lone `\r` ends an
/// update.
#[derive(Debug, Default)]
pub(super) struct LineCutter {
    partial: Partial,
    /// A chunk ended with `\r`: the next byte says what that was.
    after_return: bool,
    /// The last update of this line that was not blank; it is the line where only blanks overwrite it.
    overwritten: Vec<u8>,
}

impl LineCutter {
    /// Takes the next chunk.
    pub(super) fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(Piece<'_>)) {
        let mut rest = bytes;
        if self.after_return && !rest.is_empty() {
            self.after_return = false;
            if rest[0] == b'\n' {
                rest = &rest[1..];
                self.end_line(&[], sink);
            } else {
                self.end_update(&[], sink);
            }
        }
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let (piece, after) = (&rest[..at], &rest[at + 1..]);
            match (rest[at], after.first()) {
                (b'\n', _) => self.end_line(piece, sink),
                (_, Some(b'\n')) => {
                    self.end_line(piece, sink);
                    rest = &after[1..];
                    continue;
                }
                (_, Some(_)) => self.end_update(piece, sink),
                (_, None) => {
                    self.partial.push(piece);
                    self.after_return = true;
                    return;
                }
            }
            rest = after;
        }
        self.partial.push(rest);
    }

    /// The stream is over: what has no line end is a line too.
    pub(super) fn flush(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        self.after_return = false;
        if !self.partial.is_empty() || !self.overwritten.is_empty() {
            self.end_line(&[], sink);
        }
    }

    /// Bytes of memory it holds.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.partial.head.capacity() + self.partial.tail.capacity() + self.overwritten.capacity()
    }

    fn end_line(&mut self, rest: &[u8], sink: &mut impl FnMut(Piece<'_>)) {
        let piece = whole(&mut self.partial, rest);
        let line = if is_blank(piece) && !self.overwritten.is_empty() { &self.overwritten } else { piece };
        sink(Piece::Line(line));
        self.overwritten.clear();
        self.partial.clear();
    }

    fn end_update(&mut self, rest: &[u8], sink: &mut impl FnMut(Piece<'_>)) {
        let piece = whole(&mut self.partial, rest);
        if !is_blank(piece) {
            sink(Piece::Update(piece));
            self.overwritten.clear();
            self.overwritten.extend_from_slice(piece);
        }
        self.partial.clear();
    }
}

/// The piece that `rest` completes. Only a piece that was split or is too long is copied.
fn whole<'a>(partial: &'a mut Partial, rest: &'a [u8]) -> &'a [u8] {
    if partial.is_empty() && rest.len() <= 2 * KEPT_BYTES {
        return rest;
    }
    partial.push(rest);
    partial.join()
}

fn is_blank(piece: &[u8]) -> bool {
    piece.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(chunks: &[&[u8]]) -> Vec<(bool, Vec<u8>)> {
        let mut pieces = Vec::new();
        let mut keep = |piece: Piece<'_>| match piece {
            Piece::Line(line) => pieces.push((true, line.to_vec())),
            Piece::Update(line) => pieces.push((false, line.to_vec())),
        };
        let mut cutter = LineCutter::default();
        for chunk in chunks {
            cutter.feed(chunk, &mut keep);
        }
        cutter.flush(&mut keep);
        pieces
    }

    fn line(text: &str) -> (bool, Vec<u8>) {
        (true, text.into())
    }

    fn update(text: &str) -> (bool, Vec<u8>) {
        (false, text.into())
    }

    #[test]
    fn what_stands_after_the_last_carriage_return_is_the_line() {
        for (log, want) in [
            ("a\nb\n", vec![line("a"), line("b")]),
            ("a\r\nb", vec![line("a"), line("b")]),
            ("1/9\r2/9\r3/9\n", vec![update("1/9"), update("2/9"), line("3/9")]),
            ("\r1/9\r2/9", vec![update("1/9"), line("2/9")]),
            ("50%\r   \nnext\n", vec![update("50%"), line("50%"), line("next")]),
            ("a\r\r\n", vec![update("a"), line("a")]),
            ("a\r", vec![line("a")]),
            ("\n\n", vec![line(""), line("")]),
            ("", vec![]),
        ] {
            assert_eq!(cut(&[log.as_bytes()]), want, "{log:?}");
        }
    }

    #[test]
    fn a_long_line_keeps_its_beginning_and_its_end() {
        let mut long = vec![b'a'; KEPT_BYTES];
        long.extend(vec![b'm'; 100 * KEPT_BYTES]);
        long.extend(vec![b'z'; KEPT_BYTES]);
        let pieces = cut(&[&long, b"\nnext\n"]);
        let kept = &pieces[0].1;
        assert_eq!(kept.len(), 2 * KEPT_BYTES + GAP.len());
        assert!(kept.starts_with(b"aaa") && kept.ends_with(b"zzz"));
        assert_eq!(pieces[1], line("next"));
    }

    #[test]
    fn a_line_of_a_gigabyte_takes_no_memory() {
        let chunk = vec![b'x'; 1 << 16];
        let mut cutter = LineCutter::default();
        for _ in 0..(1 << 30) / chunk.len() {
            cutter.feed(&chunk, &mut |_| panic!("no line ends here"));
            assert!(cutter.held_bytes() <= 8 * KEPT_BYTES, "{}", cutter.held_bytes());
        }
        let mut lines = 0;
        cutter.flush(&mut |_| lines += 1);
        assert_eq!(lines, 1);
        assert!(cutter.held_bytes() <= 8 * KEPT_BYTES);
    }

    proptest! {
        #[test]
        fn the_size_of_chunks_changes_nothing(
            log in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b' '), any::<u8>()], 0..80),
            at in proptest::collection::vec(0usize..80, 0..6),
        ) {
            let mut ends: Vec<usize> = at.into_iter().map(|at| at.min(log.len())).collect();
            ends.extend([0, log.len()]);
            ends.sort_unstable();
            let chunks: Vec<&[u8]> = ends.windows(2).map(|w| &log[w[0]..w[1]]).collect();
            prop_assert_eq!(cut(&chunks), cut(&[&log]));
            let bytes: Vec<&[u8]> = log.chunks(1).collect();
            prop_assert_eq!(cut(&bytes), cut(&[&log]));
        }

        #[test]
        fn the_size_of_chunks_changes_no_long_line(size in 2 * KEPT_BYTES - 3..6 * KEPT_BYTES, chunk in 1000usize..40_000) {
            let log: Vec<u8> = (0..size).map(|i| b'a' + (i % 23) as u8).collect();
            let chunks: Vec<&[u8]> = log.chunks(chunk).collect();
            prop_assert_eq!(cut(&chunks), cut(&[&log]));
        }
    }
}
