//! What a sync may hold. A program can make its agent say anything, so nothing is believed that it could not have seen.

mod watch;

use engine::{
    chain::Chain,
    checks::{self, CheckFinding},
    classify::MAX_LINE_CHARS,
    failure::Evidence,
    ids::ReplicaName,
    sync::{Report, ReportBody, SyncRequest, limits},
};

use super::SyncError;

/// Bytes of a text or path in a report.
const TEXT_BYTES: usize = 8 * 1024;
/// How far the numbers of reports may be ahead of what was taken: more than an agent keeps, or sends while a database is put back.
const AHEAD: u64 = 1_000_000;

fn refuse(text: impl Into<String>) -> SyncError {
    SyncError::Invalid(text.into())
}

/// Refuses what breaks a limit of the protocol or speaks for another replica.
pub(super) fn check(request: &SyncRequest, chain: &Chain) -> Result<(), SyncError> {
    let spec = chain.spec();
    let index = (0..spec.starting_replicas())
        .find(|index| ReplicaName::of_index(spec.kind, *index) == request.replica)
        .ok_or_else(|| refuse(format!("the job has no agent in a replica {}", request.replica)))?;
    let first = index * spec.processes_per_replica;
    let ranks = first..first + spec.processes_per_replica;
    if request.reports.len() > limits::REPORTS {
        return Err(refuse(format!(
            "{} reports; at most {} in one sync",
            request.reports.len(),
            limits::REPORTS
        )));
    }
    if request.address.len() > 253 || request.agent_id.len() > 64 {
        return Err(refuse("address or agent_id is too long"));
    }
    let ordered = request.reports.windows(2).all(|pair| pair[0].sequence < pair[1].sequence);
    if !ordered || request.reports.first().is_some_and(|report| report.sequence == 0) {
        return Err(refuse("reports must be numbered upwards from 1"));
    }
    let taken = chain.acknowledged(&request.task_id, &request.replica);
    if let Some(last) = request.reports.last().filter(|last| last.sequence > taken.saturating_add(AHEAD)) {
        return Err(refuse(format!(
            "report {} is far ahead of report {taken}, the last one taken",
            last.sequence
        )));
    }
    request.reports.iter().try_for_each(|report| check_report(report, &request.replica, &ranks))
}

fn check_report(
    report: &Report,
    replica: &ReplicaName,
    ranks: &std::ops::Range<u32>,
) -> Result<(), SyncError> {
    let n = report.sequence;
    match &report.body {
        ReportBody::Exited { rank, evidence, .. } => {
            if !ranks.contains(rank) {
                return Err(refuse(format!("report {n}: rank {rank} is not one of replica {replica}")));
            }
            if evidence.len() > limits::EVIDENCE {
                return Err(refuse(format!("report {n}: more than {} lines of evidence", limits::EVIDENCE)));
            }
            evidence.iter().try_for_each(|line| check_evidence(n, line, replica, ranks))
        }
        ReportBody::Progress { points } if points.len() > limits::POINTS => {
            Err(refuse(format!("report {n}: more than {} points", limits::POINTS)))
        }
        ReportBody::StartFailed { text } | ReportBody::LogLost { text } if text.len() > TEXT_BYTES => {
            Err(refuse(format!("report {n}: the text has more than {TEXT_BYTES} bytes")))
        }
        ReportBody::Save { save }
            if [&save.path, &save.message].into_iter().flatten().any(|text| text.len() > TEXT_BYTES) =>
        {
            Err(refuse(format!("report {n}: a text has more than {TEXT_BYTES} bytes")))
        }
        ReportBody::ExitTest { test }
            if [&test.path, &test.message].into_iter().flatten().any(|text| text.len() > TEXT_BYTES) =>
        {
            Err(refuse(format!("report {n}: a text has more than {TEXT_BYTES} bytes")))
        }
        ReportBody::Checked { findings } => {
            if findings.len() > checks::limits::FINDINGS {
                return Err(refuse(format!("report {n}: more than {} findings", checks::limits::FINDINGS)));
            }
            let is_long = |finding: &CheckFinding| {
                let remedy = finding.remedy.as_ref().map_or(0, String::len);
                finding.text.len() > TEXT_BYTES
                    || remedy > TEXT_BYTES
                    || finding.measures.len() > checks::limits::MEASURES
                    || finding.measures.iter().any(|measure| measure.name.len() > 100)
            };
            match findings.iter().find(|finding| is_long(finding)) {
                Some(finding) => Err(refuse(format!(
                    "report {n}: the finding of {} is longer than an agent's",
                    finding.check.as_str()
                ))),
                None => Ok(()),
            }
        }
        ReportBody::Checkpoint { event }
            if event.path.as_ref().is_some_and(|path| path.len() > TEXT_BYTES) =>
        {
            Err(refuse(format!("report {n}: the path has more than {TEXT_BYTES} bytes")))
        }
        ReportBody::Still { ranks: still } => {
            watch::check_ranks(n, still.iter().map(|still| still.rank), replica, ranks)?;
            still.iter().try_for_each(|still| watch::check_still(n, still))
        }
        ReportBody::Moved { ranks: moved } => watch::check_ranks(n, moved.iter().copied(), replica, ranks),
        ReportBody::Stacks { stacks } => {
            watch::check_ranks(n, stacks.iter().map(|stack| stack.rank), replica, ranks)?;
            watch::check_stacks(n, stacks)
        }
        _ => Ok(()),
    }
}

fn check_evidence(
    n: u64,
    line: &Evidence,
    replica: &ReplicaName,
    ranks: &std::ops::Range<u32>,
) -> Result<(), SyncError> {
    if line.replica != *replica || line.rank.is_some_and(|rank| !ranks.contains(&rank)) {
        return Err(refuse(format!("report {n}: evidence of another replica than {replica}")));
    }
    if line.line.chars().count() > MAX_LINE_CHARS || line.signature.len() > 100 {
        return Err(refuse(format!(
            "report {n}: a line of evidence has more than {MAX_LINE_CHARS} characters"
        )));
    }
    Ok(())
}
