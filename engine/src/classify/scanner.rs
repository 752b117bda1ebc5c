//! Reads a stream line by line: which signature a line matches, and what it tells of the progress.

use std::{borrow::Cow, sync::LazyLock};

use memchr::{memchr, memmem::Finder};

use super::{
    MAX_LINE_CHARS,
    lines::{LineCutter, Piece},
    prefix,
    progress::{Progress, ProgressReader},
    signatures::{Signature, Signatures},
    traceback::{Part, Tracebacks},
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
    /// Its number in the stream, from 1. The updates of a progress bar have the number of the line they are
    /// in.
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
    /// The line without colours and control characters, with bytes that are no UTF-8 replaced. Of a very
    /// long line the middle is left out.
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

    /// Reads one line that the caller has cut out of the stream, for callers that number lines themselves.
    /// Not to be mixed with [`Self::feed`].
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
            // A line that tells a step with its loss is no failure, whatever words it holds; most of a log
            // is such lines.
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
        let part = self.tracebacks.take(stripped.rank, body);
        if part == Part::Frame || is_ours(body) {
            return (stripped.rank, None);
        }
        let found = self.signatures.find(clean, body).or_else(|| {
            let signature = self.signatures.get(TRACEBACK_EXCEPTION).filter(|_| part == Part::Exception)?;
            Some((signature, clean.len() - body.len()))
        });
        (stripped.rank, found.map(|(signature, start)| Match { signature, start }))
    }
}

/// Lines that Holdfast wrote itself never count.
fn is_ours(body: &[u8]) -> bool {
    static NAME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"holdfast"));
    let head = &body[..body.len().min(120)];
    NAME.find_iter(head).any(|at| match &head[at + NAME.needle().len()..] {
        [b' ' | b':', ..] => at == 0,
        [b'_' | b'-', rest @ ..] => rest.starts_with(b"agent"),
        _ => false,
    })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a scan gives of each line: number, update, rank, signature, text.
    type Seen = (u64, bool, Option<u32>, Option<String>, String);

    fn scan(chunks: &[&[u8]]) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut keep = |line: Line<'_>| {
            let id = line.matched.map(|matched| matched.signature.id.clone());
            seen.push((line.number, line.update, line.rank, id, line.text()));
        };
        let mut scanner = LineScanner::new();
        for chunk in chunks {
            scanner.feed(chunk, &mut keep);
        }
        scanner.flush(&mut keep);
        seen
    }

    fn only(log: &str) -> (Option<u32>, Option<String>, String) {
        let mut seen = scan(&[log.as_bytes()]);
        let (_, _, rank, id, text) = seen.pop().unwrap();
        (rank, id, text)
    }

    #[test]
    fn colours_and_prefixes_hide_nothing() {
        let oom = Some("cuda-oom".to_owned());
        for (line, rank) in [
            ("\u{1b}[31mRuntimeError\u{1b}[0m: CU\u{1b}[1mDA out\u{1b}[0m of memory", None),
            ("[rank3]: RuntimeError: CUDA out of memory", Some(3)),
            ("2: RuntimeError: CUDA out of memory", Some(2)),
            ("\u{1b}[36m(RayTrainWorker pid=8, ip=10.0.0.1)\u{1b}[0m [rank1]: CUDA out of memory", Some(1)),
            ("Loading:  3%|▎ | 3/99 [00:01]\rRuntimeError: CUDA out of memory", None),
            ("\u{1b}]0;title\u{7}RuntimeError: CUDA out of memory\u{1b}", None),
        ] {
            let (found, id, text) = only(line);
            assert_eq!((found, id), (rank, oom.clone()), "{line:?}");
            assert!(!text.contains('\u{1b}') && text.ends_with("CUDA out of memory"), "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let seen = scan(&[b"\xff\xfe\0\x01 RuntimeError: CUDA out of memory \xc3\x28\n\x80\x80\x80"]);
        assert_eq!(seen[0].3.as_deref(), Some("cuda-oom"));
        assert!(seen[0].4.chars().all(|c| !c.is_control()));
        assert_eq!(seen[1].3, None);
    }

    #[test]
    fn the_evidence_of_a_long_line_shows_the_match() {
        let log = format!("{}RuntimeError: CUDA out of memory{}", "x ".repeat(3000), " y".repeat(3000));
        let replica = ReplicaName::new("worker-0").unwrap();
        let mut lines = Vec::new();
        let mut keep = |line: Line<'_>| lines.extend(line.evidence(&replica, Time::default()));
        let mut scanner = LineScanner::new();
        scanner.feed(log.as_bytes(), &mut keep);
        scanner.flush(&mut keep);
        assert!(lines[0].line.contains("CUDA out of memory"), "{}", lines[0].line);
        assert!(lines[0].line.chars().count() <= MAX_LINE_CHARS);
    }

    #[test]
    fn source_code_that_a_traceback_quotes_is_no_evidence() {
        let log = "Traceback (most recent call last):\n  File \"t.py\", line 3, in go\n    raise RuntimeError(\"Connection reset by peer\")\nKeyError: 'weight'\n";
        let seen = scan(&[log.as_bytes()]);
        assert_eq!((seen[2].3.as_deref(), seen[3].3.is_some()), (None, true));
    }

    #[test]
    fn an_exception_of_any_name_counts_after_a_traceback_only() {
        let traceback = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 3, in <module>\n[rank1]: mine.Diverged: 31.0\n";
        let seen = scan(&[traceback.as_bytes()]);
        assert_eq!((seen[2].2, seen[2].3.as_deref()), (Some(1), Some("python-traceback")));
        assert_eq!(only("mine.Diverged: 31.0").1, None);
    }

    #[test]
    fn what_holdfast_wrote_never_counts() {
        for line in [
            "holdfast phase=loading CUDA out of memory",
            "2026-01-05T10:00:00.1Z  WARN holdfast_agent::supervise: rank 3 died: CUDA out of memory",
        ] {
            assert_eq!(only(line).1, None, "{line}");
        }
    }

    #[test]
    fn frightening_words_of_healthy_programs_are_no_evidence() {
        for line in [
            "0 errors, 0 failures, error_rate: 0.01, val_error=0.2",
            "eval_error: 0.21 | oom 0 | number of nan iterations:   0",
            "nccl_timeout=600 on_oom=retry skip_nan=True detect_anomaly=False",
            "Namespace(nccl_timeout=600, on_error='CUDA out of memory')",
            "NCCL_DEBUG=INFO TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
            "  checkpoint_tag_validation_fail ... False",
            "{\"nan_to_num\": true, \"max_failures\": 3, \"timeout\": 1800}",
            "node-1:42:42 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
            "node-1:42:42 [0] NCCL INFO Connected all rings",
            "WARNING: Connection reset by peer, retrying in 5 s",
            "urllib3: Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError'",
            "loader.py:3: FutureWarning: `torch.load` with weights_only=False will be removed",
            "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>",
            "WARNING: could not find the metadata file latest_checkpointed_iteration.txt",
            "If you see an out-of-memory (OOM) error, reduce the batch size",
            "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
            "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
            "this test exits with an assertion about timeouts",
            "step 120 loss 0.7 error 0.1",
        ] {
            let seen = scan(&[line.as_bytes()]);
            let evidence = seen.iter().any(|seen| {
                let signature = seen.3.as_ref().and_then(|id| Signatures::builtin().get(id));
                signature.is_some_and(|signature| signature.role != Role::Advice)
            });
            assert!(!evidence, "{line}: {:?}", seen[0].3);
        }
    }

    proptest! {
        #[test]
        fn the_size_of_chunks_changes_nothing(cut in 0usize..400) {
            let log = "\u{1b}[32mstep 1 loss 0.5\u{1b}[0m\r\n 1%|▌ | 1/99 [0:01]\r 2%|▌ | 2/99 [0:02]\n[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\", line 1\n[rank1]: Diverged: 3\nCUDA out of memory\r\nend";
            let log = log.as_bytes();
            let (a, b) = log.split_at(cut.min(log.len()));
            prop_assert_eq!(scan(&[a, b]), scan(&[log]));
        }
    }
}
