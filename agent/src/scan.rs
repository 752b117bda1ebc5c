//! From a kept line to what it tells: the engine's scanner, with the numbers of this replica's log.

use std::ops::Range;

use engine::{classify::LineScanner, ids::ReplicaName, time::Time};

use crate::findings::Findings;

/// The scanner of one stream of one process.
#[derive(Debug)]
pub struct Scanner {
    lines: LineScanner,
    replica: ReplicaName,
    rank: u32,
    local: Range<u32>,
}

impl Scanner {
    /// A scanner of what the process of this rank prints, one of the `local` ranks of the replica.
    pub fn new(replica: ReplicaName, rank: u32, local: Range<u32>) -> Self {
        Self { lines: LineScanner::new(), replica, rank, local }
    }

    /// Reads line `number` of the log; true if it is worth a report at once.
    pub fn line(&mut self, text: &[u8], number: u64, at: Time, findings: &mut Findings) -> bool {
        let mut line = self.lines.line(text);
        line.number = number;
        // A program may gather what several local ranks print. It may print the name of any rank at all, but a replica
        // speaks for its own only.
        line.rank = line.rank.filter(|rank| self.local.contains(rank)).or(Some(self.rank));
        findings.see(self.rank, &line, &self.replica, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_belongs_to_a_rank_of_its_own_replica() {
        let replica = ReplicaName::new("worker-0").unwrap();
        for (text, want) in [
            ("RuntimeError: NCCL error: unhandled system error", 2),
            ("[rank3]: RuntimeError: NCCL error: unhandled system error", 3),
            ("[rank7]: RuntimeError: NCCL error: unhandled system error", 2),
        ] {
            let mut findings = Findings::default();
            let mut scanner = Scanner::new(replica.clone(), 2, 2..4);
            scanner.line(text.as_bytes(), 11, Time(5), &mut findings);
            let evidence = &findings.last_words(2).evidence[0];
            assert_eq!(
                (evidence.rank, evidence.line_number, evidence.at),
                (Some(want), 11, Time(5)),
                "{text}"
            );
        }
    }
}
