//! From what a replica printed and how its processes ended to a verdict.
//!
//! The way of a line: [`LineScanner`] cuts a byte stream into lines and says which [`Signature`] a line
//! matches and what it tells of the progress; [`EvidenceLog`] keeps the few lines that matter, at the edge,
//! in bounded memory; [`verdict`] weighs the evidence of all ranks with the cluster's facts and the exit
//! codes. [`classify_log`] does all of that for one log.
//!
//! Nothing here is certain. A match is evidence, not a cause, and the verdict carries how sure it is.

mod evidence;
mod exits;
mod fingerprint;
mod lines;
mod prefix;
mod progress;
mod scanner;
mod signatures;
mod texts;
mod traceback;
mod verdict;

pub use evidence::EvidenceLog;
pub use progress::Progress;
pub use scanner::{Line, LineScanner, Match};
pub use signatures::{Signature, SignatureError, Signatures};
pub use verdict::{ClusterFact, RankExit, VerdictInput, verdict};

use crate::{
    failure::{Exit, Verdict},
    ids::ReplicaName,
    job::JobKind,
    time::Time,
};

/// Characters of a line that are kept as evidence.
pub const MAX_LINE_CHARS: usize = 400;
/// Lines of evidence in a verdict.
pub const MAX_EVIDENCE: usize = 32;

/// Classifies one log whose origin is not known, as `holdfast classify` does. Lines count as times, so the
/// earliest root wins.
///
/// Without an exit code a failure is what the log shows and the training did not survive: see
/// [`EvidenceLog`].
pub fn classify_log(log: &[u8], exit: Option<Exit>) -> Option<Verdict> {
    let replica = ReplicaName::of_index(JobKind::PyTorchJob, 0);
    let mut kept = EvidenceLog::default();
    let mut scanner = LineScanner::new();
    let mut keep = |line: Line<'_>| kept.see(&line, &replica, Time::default());
    scanner.feed(log, &mut keep);
    scanner.flush(&mut keep);
    let exits = exit
        .map(|exit| RankExit {
            replica: replica.clone(),
            rank: None,
            exit,
            at: Time::default(),
            asked: false,
        })
        .into_iter()
        .collect();
    verdict(&VerdictInput { exits, evidence: kept.take(), ..VerdictInput::default() })
}
