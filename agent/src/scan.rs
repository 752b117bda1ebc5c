//! From a kept line to what it tells: the engine's scanner, with the numbers of this replica's log.

use engine::{classify::LineScanner, ids::ReplicaName, time::Time};

use crate::findings::Findings;

/// The scanner of one stream of one process.
#[derive(Debug)]
pub struct Scanner {
    lines: LineScanner,
    replica: ReplicaName,
    rank: u32,
}

impl Scanner {
    /// A scanner of what the process of this rank prints.
    pub fn new(replica: ReplicaName, rank: u32) -> Self {
        Self { lines: LineScanner::new(), replica, rank }
    }

    /// Reads line `number` of the log; true if it is worth a report at once.
    pub fn line(&mut self, text: &[u8], number: u64, at: Time, findings: &mut Findings) -> bool {
        let mut line = self.lines.line(text);
        line.number = number;
        // A launcher inside the program may start more ranks and name them before each line.
        line.rank = line.rank.or(Some(self.rank));
        findings.see(self.rank, &line, &self.replica, at)
    }
}
