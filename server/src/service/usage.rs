//! What the time of clusters went to.

use app::{
    console::{Caller, ClusterUsage, SPANS, UsageView},
    error::AppError,
};
use engine::{job::FieldError, ledger, record::Ledger, time::Time};
use sqlx::AnyConnection;

use super::{Service, Wish, failed, may};
use crate::store::{StoreError, usage};

/// Days that the gauges of `/metrics` are about.
const WEEK: u32 = 7;

impl Service {
    pub(super) async fn read_usage(&self, caller: &Caller, days: u32) -> Result<UsageView, AppError> {
        may(caller, Wish::See)?;
        if !SPANS.contains(&days) {
            let rule = format!("must be one of {}", SPANS.map(|days| days.to_string()).join(", "));
            return Err(AppError::Invalid { errors: vec![FieldError::new("days", rule)] });
        }
        let first = first_day(self.clock.now(), days);
        let mut conn = self.store.read().await.map_err(failed)?;
        let items = usage::since(&mut conn, first).await.map_err(failed)?;
        let total = ledger::together(items.iter().map(|of| of.ledger));
        Ok(UsageView { days, since: usage::start_of(first), items, total })
    }
}

/// The first of the last `days`, today included.
fn first_day(now: Time, days: u32) -> i64 {
    usage::day_of(now) - (i64::from(days) - 1)
}

/// What clusters used in the last seven days.
pub(super) async fn of_week(conn: &mut AnyConnection, now: Time) -> Result<Vec<ClusterUsage>, StoreError> {
    usage::since(conn, first_day(now, WEEK)).await
}

/// Brings the gauges up to date. A configured cluster that was not used has zeros: a gauge stays what it was set to.
pub(super) fn measure<'a>(used: &[ClusterUsage], configured: impl Iterator<Item = &'a str>) {
    let of = |name: &str| used.iter().find(|of| of.cluster == name).map(|of| of.ledger);
    let unused = configured.filter(|name| of(name).is_none()).map(|name| (name, Ledger::default()));
    for (cluster, ledger) in used.iter().map(|of| (of.cluster.as_str(), of.ledger)).chain(unused) {
        for (word, seconds) in [
            ("kept", ledger.kept),
            ("stalled", ledger.stalled),
            ("starting", ledger.starting),
            ("redone", ledger.redone),
            ("diagnosing", ledger.diagnosing),
        ] {
            ::metrics::gauge!("holdfast_cluster_time_seconds", "cluster" => cluster.to_owned(), "use" => word)
                .set(seconds);
        }
    }
}
