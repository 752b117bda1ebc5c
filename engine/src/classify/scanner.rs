//! Reads a stream line by line: which signature a line matches, and what it tells of the progress.

use std::borrow::Cow;

use memchr::memchr;

use super::{
    MAX_LINE_CHARS,
    lines::{LineCutter, Piece},
    prefix,
    progress::{Progress, ProgressReader},
    signatures::{Signature, Signatures},
    traceback::Tracebacks,
};
use crate::{
    failure::{Evidence, Role},
    ids::ReplicaName,
    time::Time,
};

/// The signature for exceptions that only a traceback shows to be one.
const TRACEBACK_EXCEPTION: &str = "python-traceback";

/// A signature that a line matches.
#[derive(Clone, Copy, Debug)]
pub struct Match {
    /// Which.
    pub signature: &'static Signature,
    /// Where in the line without colours the match begins, bytes.
    start: usize,
}

/// One line of a stream.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// Its number in the stream, from 1. The updates of a progress bar have the number of the line they are in.
    pub number: u64,
    /// A carriage return is about to overwrite it: a state of a progress bar, not yet a line.
    pub update: bool,
    /// The rank that a prefix names; only where `matched` or `progress` is there.
    pub rank: Option<u32>,
    /// The signature it matches, advice included.
    pub matched: Option<Match>,
    /// What it tells of the progress.
    pub progress: Option<Progress>,
    clean: Cow<'a, [u8]>,
}

impl Line<'_> {
    /// The line without colours and control characters, with bytes that are no UTF-8 replaced. Of a very long line the middle is
    /// left out.
    pub fn text(&self) -> String {
        printable(&self.clean)
    }

    /// The line as evidence, if it counts as such: advice does not.
    pub fn evidence(&self, replica: &ReplicaName, at: Time) -> Option<Evidence> {
        let Match { signature, start } = self.matched?;
        if signature.role == Role::Advice {
            return None;
        }
        Some(Evidence {
            replica: replica.clone(),
            rank: self.rank,
            line: excerpt(&self.clean, start),
            line_number: self.number,
            at,
            signature: signature.id.clone(),
            role: signature.role,
            failure_type: signature.failure_type,
        })
    }
}

/// Scans one stream, in chunks of any size and in bounded memory.
#[derive(Debug)]
pub struct LineScanner {
    cutter: LineCutter,
    reader: Reader,
}

impl Default for LineScanner {
    fn default() -> Self {
        Self::new()
    }
}

impl LineScanner {
    /// A scanner with the built-in signatures.
    pub fn new() -> Self {
        Self {
            cutter: LineCutter::default(),
            reader: Reader {
                signatures: Signatures::builtin(),
                progress: ProgressReader::default(),
                tracebacks: Tracebacks::default(),
                lines: 0,
            },
        }
    }

    /// Takes the next chunk and hands every line that it completes to `sink`.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(Line<'_>)) {
        let reader = &mut self.reader;
        self.cutter.feed(bytes, &mut |piece| sink(reader.read(piece)));
    }

    /// Reads one line that the caller has cut out of the stream, for callers that number lines themselves. Not to be mixed with
    /// [`Self::feed`].
    pub fn line<'a>(&mut self, line: &'a [u8]) -> Line<'a> {
        self.reader.read(Piece::Line(line))
    }

    /// The stream is over: hands on what has no line end.
    pub fn flush(&mut self, sink: &mut impl FnMut(Line<'_>)) {
        let reader = &mut self.reader;
        self.cutter.flush(&mut |piece| sink(reader.read(piece)));
    }
}

#[derive(Debug)]
struct Reader {
    signatures: &'static Signatures,
    progress: ProgressReader,
    tracebacks: Tracebacks,
    lines: u64,
}

impl Reader {
    fn read<'a>(&mut self, piece: Piece<'a>) -> Line<'a> {
        let (raw, update) = match piece {
            Piece::Line(raw) => (raw, false),
            Piece::Update(raw) => (raw, true),
        };
        let clean = without_escapes(raw);
        let number = self.lines + 1;
        let progress = self.progress.read(&clean);
        let mut rank = None;
        let mut matched = None;
        if !update {
            self.lines = number;
            // A line that tells a step with its loss is no failure, whatever words it holds; most of a log is such lines.
            let healthy = matches!(progress, Some(Progress::Step { loss: Some(_), .. }));
            if !healthy && (!self.tracebacks.is_empty() || self.signatures.may_match(&clean)) {
                (rank, matched) = self.look(&clean);
            }
        }
        if progress.is_some() {
            rank = prefix::strip(&clean).rank;
        }
        Line { number, update, rank, matched, progress, clean }
    }

    fn look(&mut self, clean: &[u8]) -> (Option<u32>, Option<Match>) {
        let stripped = prefix::strip(clean);
        let body = stripped.body;
        let is_exception = self.tracebacks.ends_with(stripped.rank, body);
        if is_ours(body) {
            return (stripped.rank, None);
        }
        let found = self.signatures.find(clean, body).or_else(|| {
            let signature = self.signatures.get(TRACEBACK_EXCEPTION).filter(|_| is_exception)?;
            Some((signature, clean.len() - body.len()))
        });
        (stripped.rank, found.map(|(signature, start)| Match { signature, start }))
    }
}

/// Lines that Holdfast wrote itself never count.
fn is_ours(body: &[u8]) -> bool {
    let head = &body[..body.len().min(120)];
    head.starts_with(b"holdfast ")
        || head.starts_with(b"holdfast:")
        || memchr::memmem::find(head, b"holdfast_agent").is_some()
        || memchr::memmem::find(head, b"holdfast-agent").is_some()
}

/// Takes out colours, cursor movements, titles and links.
fn without_escapes(raw: &[u8]) -> Cow<'_, [u8]> {
    const ESCAPE: u8 = 0x1b;
    const BELL: u8 = 0x07;
    let Some(first) = memchr(ESCAPE, raw) else { return Cow::Borrowed(raw) };
    let mut clean = raw[..first].to_vec();
    let mut rest = &raw[first..];
    while let Some((&byte, after)) = rest.split_first() {
        if byte != ESCAPE {
            let end = memchr(ESCAPE, rest).unwrap_or(rest.len());
            clean.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let end = match after.first() {
            // A control sequence ends with its first byte from @ to ~.
            Some(b'[') => after[1..].iter().position(|b| (0x40..=0x7e).contains(b)).map(|at| at + 2),
            // An operating system command ends with a bell or with the next escape.
            Some(b']') => after
                .iter()
                .position(|b| matches!(*b, BELL | ESCAPE))
                .map(|at| at + usize::from(after[at] == BELL)),
            Some(_) => Some(1),
            None => None,
        };
        rest = end.map_or(&[], |end| &after[end..]);
    }
    Cow::Owned(clean)
}

fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control() || *c == '\t').collect()
}

/// The part of a line that is kept: its beginning, or what stands around a match far behind it.
fn excerpt(clean: &[u8], start: usize) -> String {
    const BEFORE: usize = 80;
    let text = printable(clean);
    if text.chars().count() <= MAX_LINE_CHARS || start < MAX_LINE_CHARS - BEFORE {
        return text.chars().take(MAX_LINE_CHARS).collect();
    }
    let from = start.saturating_sub(BEFORE).min(clean.len());
    std::iter::once('…').chain(printable(&clean[from..]).chars()).take(MAX_LINE_CHARS).collect()
}
