//! What is kept of the health checks of a launch: of each check how many replicas it went well in, and of the failed ones the first.

use serde::{Deserialize, Serialize};

use crate::{
    checks::{Check, CheckFinding, CheckOutcome, limits},
    ids::{NodeName, ReplicaName},
    time::Time,
};

/// How the checks of a launch stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChecksState {
    /// Some replicas have not told yet; nothing of the program runs.
    Running,
    /// All replicas passed, and training began.
    Passed,
    /// At least one failed; training did not begin.
    Failed,
}

/// The health checks of one launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LaunchChecks {
    /// How they stand.
    pub state: ChecksState,
    /// When they were asked for; none before every replica was there.
    pub began_at: Option<Time>,
    /// When the last replica had told, or enough to fail.
    pub ended_at: Option<Time>,
    /// Replicas that were asked.
    pub replicas: u32,
    /// Replicas that have told.
    pub told: u32,
    /// Of each check how it went.
    pub checks: Vec<CheckSummary>,
    /// Failed findings, the first [`limits::FAILURES`] of each check.
    pub failures: Vec<CheckFailure>,
}

/// How one check went in all replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckSummary {
    /// Which.
    pub check: Check,
    /// Replicas in which it passed.
    pub passed: u32,
    /// In which it failed.
    pub failed: u32,
    /// In which it was skipped.
    pub skipped: u32,
    /// In which it did not end in time.
    pub timed_out: u32,
    /// The longest it took.
    pub slowest_seconds: f64,
    /// What the worst replica found: failed before skipped before passed, and of those the slowest.
    pub worst: CheckFinding,
}

/// A check that failed in one replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckFailure {
    /// Where.
    pub replica: ReplicaName,
    /// On which node, where that is known.
    pub node: Option<NodeName>,
    /// What was found.
    pub finding: CheckFinding,
}

impl LaunchChecks {
    /// None has told yet.
    pub fn new(replicas: u32) -> Self {
        Self {
            state: ChecksState::Running,
            began_at: None,
            ended_at: None,
            replicas,
            told: 0,
            checks: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// A replica tells what it found. Of each check the first finding counts.
    pub fn take(&mut self, replica: &ReplicaName, node: Option<&NodeName>, findings: &[CheckFinding]) {
        self.told = self.told.saturating_add(1);
        for (index, finding) in findings.iter().take(limits::FINDINGS).enumerate() {
            if findings[..index].iter().any(|before| before.check == finding.check) {
                continue;
            }
            let finding = bounded(finding);
            self.count(&finding);
            let kept = self.failures.iter().filter(|failure| failure.finding.check == finding.check).count();
            if finding.outcome.is_bad() && kept < limits::FAILURES {
                self.failures.push(CheckFailure { replica: replica.clone(), node: node.cloned(), finding });
            }
        }
        self.checks.sort_by_key(|summary| summary.check);
    }

    fn count(&mut self, finding: &CheckFinding) {
        let index = self.checks.iter().position(|known| known.check == finding.check).unwrap_or_else(|| {
            self.checks.push(CheckSummary {
                check: finding.check,
                passed: 0,
                failed: 0,
                skipped: 0,
                timed_out: 0,
                slowest_seconds: 0.0,
                worst: finding.clone(),
            });
            self.checks.len() - 1
        });
        let summary = &mut self.checks[index];
        *match finding.outcome {
            CheckOutcome::Passed => &mut summary.passed,
            CheckOutcome::Failed => &mut summary.failed,
            CheckOutcome::Skipped => &mut summary.skipped,
            CheckOutcome::TimedOut => &mut summary.timed_out,
        } += 1;
        summary.slowest_seconds = summary.slowest_seconds.max(finding.seconds);
        let weight = |finding: &CheckFinding| match finding.outcome {
            CheckOutcome::Failed | CheckOutcome::TimedOut => 2,
            CheckOutcome::Skipped => 1,
            CheckOutcome::Passed => 0,
        };
        let order = weight(finding).cmp(&weight(&summary.worst));
        if order.then(finding.seconds.total_cmp(&summary.worst.seconds)).is_gt() {
            summary.worst = finding.clone();
        }
    }
}

/// As it is kept: an agent's words have limits, and its numbers are numbers.
fn bounded(finding: &CheckFinding) -> CheckFinding {
    let words = |text: &str| text.chars().take(limits::TEXT_CHARS).collect::<String>();
    let number = |value: f64| if value.is_finite() { value } else { 0.0 };
    let measures = finding.measures.iter().take(limits::MEASURES).map(|measure| crate::checks::Measure {
        name: measure.name.chars().take(40).collect(),
        value: number(measure.value),
    });
    CheckFinding {
        check: finding.check,
        outcome: finding.outcome,
        seconds: number(finding.seconds).max(0.0),
        text: words(&finding.text),
        remedy: finding.remedy.as_deref().map(words),
        measures: measures.collect(),
    }
}
