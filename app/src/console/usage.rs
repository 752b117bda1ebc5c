//! What the time of clusters went to.

use engine::{record::Ledger, time::Time};
use serde::{Deserialize, Serialize};

/// Days that can be asked for: today alone, a week, a month. Days begin at midnight UTC.
pub const SPANS: [u32; 3] = [1, 7, 30];

/// What the time of clusters went to in a span of days.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageView {
    /// Days up to now, today included.
    pub days: u32,
    /// When the first of them began.
    pub since: Time,
    /// Clusters on which something ran or waited, by name; also ones that are not configured any more.
    pub items: Vec<ClusterUsage>,
    /// All of them together.
    pub total: Ledger,
}

/// What the time of one cluster went to.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterUsage {
    /// Its configured name.
    pub cluster: String,
    /// Jobs that held or waited for something.
    pub jobs: u64,
    /// Some of them have accelerators; where none has, slots are counted.
    pub accelerators: bool,
    /// Where the time went; `diagnosing` is what groups of diagnoses held.
    pub ledger: Ledger,
}
