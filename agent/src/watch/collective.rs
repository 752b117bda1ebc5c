//! What the watchdogs of process groups say of their collectives.
//!
//! The lines as PyTorch prints them for NCCL, and with `TORCH_DISTRIBUTED_DEBUG=DETAIL` for gloo:
//!
//! ```text
//! [PG 0 (default_pg) Rank 3] Timeout at NCCL work: 61, last enqueued NCCL work: 61, last completed NCCL work: 60.
//! PG status: last enqueued work: 5, last completed work: 4
//! Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7930, OpType=_ALLGATHER_BASE, NumelIn=…
//! CollectiveFingerPrint(SequenceNumber=12, OpType=ALLREDUCE, TensorShape=…
//! ```

use engine::sync::{Collective, watch_limits::WORDS_BYTES};
use memchr::memmem;

use crate::watch::frames::bounded;

/// Finds these lines among all.
#[derive(Debug)]
pub struct Reader {
    enqueued: memmem::Finder<'static>,
    operation: memmem::Finder<'static>,
}

impl Default for Reader {
    fn default() -> Self {
        Self { enqueued: memmem::Finder::new("last enqueued"), operation: memmem::Finder::new("OpType=") }
    }
}

impl Reader {
    /// What a line says, if it is one of these.
    pub fn read(&self, line: &[u8]) -> Option<Collective> {
        if let Some(at) = self.enqueued.find(line) {
            let rest = &line[at..];
            let last_enqueued = number_after(rest, b"work:");
            let last_completed =
                memmem::find(rest, b"last completed").and_then(|at| number_after(&rest[at..], b"work:"));
            last_enqueued.or(last_completed)?;
            return Some(Collective { last_enqueued, last_completed, name: None });
        }
        let at = self.operation.find(line)?;
        let (before, rest) = (&line[..at], &line[at + b"OpType=".len()..]);
        let number = number_after(before, b"SeqNum=").or_else(|| number_after(before, b"SequenceNumber="))?;
        let end = rest.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'_').unwrap_or(rest.len());
        let name = bounded(&String::from_utf8_lossy(&rest[..end]), WORDS_BYTES);
        let name = Some(name).filter(|name| !name.is_empty());
        Some(Collective { last_enqueued: Some(number), last_completed: None, name })
    }
}

/// The number behind a word.
fn number_after(text: &[u8], word: &[u8]) -> Option<u64> {
    let rest = &text[memmem::find(text, word)? + word.len()..];
    let rest = rest.trim_ascii_start();
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_watchdogs_are_read() {
        let reader = Reader::default();
        for (line, want) in [
            (
                "[rank3]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 3] Timeout at NCCL work: 61, last enqueued NCCL work: 61, last completed NCCL work: 60.",
                (Some(61), Some(60), None),
            ),
            (
                "failure detected by watchdog at work sequence id: 5 PG status: last enqueued work: 5, last completed work: 4",
                (Some(5), Some(4), None),
            ),
            ("last enqueued work: 18446744073709551616, last completed work: -1", (None, None, None)),
            (
                "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7930, OpType=_ALLGATHER_BASE, NumelIn=214016000, Timeout(ms)=600000) ran",
                (Some(7930), None, Some("_ALLGATHER_BASE")),
            ),
            (
                "CollectiveFingerPrint(SequenceNumber=12, OpType=ALLREDUCE, TensorShape=[1]",
                (Some(12), None, Some("ALLREDUCE")),
            ),
            ("OpType=ALLREDUCE", (None, None, None)),
            ("step 5 loss 0.3", (None, None, None)),
        ] {
            let got = reader.read(line.as_bytes());
            let got = got.map(|c| (c.last_enqueued, c.last_completed, c.name)).unwrap_or_default();
            assert_eq!(got, (want.0, want.1, want.2.map(str::to_owned)), "{line}");
        }
    }

    #[test]
    fn a_hostile_name_is_bounded() {
        let line = format!("SeqNum=1, OpType={}", "A".repeat(10_000));
        let name = Reader::default().read(line.as_bytes()).unwrap().name.unwrap();
        assert_eq!(name.len(), WORDS_BYTES);
    }
}
