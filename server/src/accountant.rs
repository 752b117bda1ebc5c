//! Keeps what jobs have used by the end of each day, from what their chains say, while this server leads. A round that is late, or that
//! two servers do at once, leaves the same.

use std::sync::Arc;

use engine::time::Time;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    service::Drives,
    store::{self, Store, StoreError, usage},
};

/// How often it is looked at what changed: that late the sums are at most.
pub const EACH_SECONDS: u64 = 10;
/// Jobs that are written in one transaction.
const AT_A_TIME: u32 = 200;
/// Looked at again in the next round: what was written by a transaction that was committed only after the last.
const OVERLAP_MICROS: i64 = 60_000_000;
/// Days that are kept, beyond the longest span that can be asked for.
const DAYS: i64 = 100;

/// What keeps the books.
pub struct Accountant {
    /// Where everything is kept.
    pub store: Store,
    /// Who knows whether this server leads.
    pub driver: Arc<dyn Drives>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Accountant {
    /// Keeps them until `stop`.
    pub async fn keep_going(self, stop: CancellationToken) {
        let (mut taken, mut swept) = (None, None);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep_until(self.clock.now().plus_seconds(EACH_SECONDS)) => {}
            }
            if !self.driver.is_ready() {
                // Another server may write meanwhile: what is taken is asked for anew.
                taken = None;
                continue;
            }
            let today = usage::day_of(self.clock.now());
            let done = async {
                taken = self.round(taken).await?;
                if swept != Some(today) {
                    self.forget_old().await?;
                    swept = Some(today);
                }
                Ok::<_, StoreError>(())
            };
            if let Err(error) = done.await {
                let error = format!("{:#}", anyhow::Error::from(error));
                tracing::warn!(error, "what jobs have used is kept at the next round");
            }
        }
    }

    /// Takes what was written since `taken`, or since the newest sums that are kept; gives until when it has taken all.
    ///
    /// # Errors
    /// The database failed. What was taken by then is kept.
    pub async fn round(&self, taken: Option<Time>) -> Result<Option<Time>, StoreError> {
        let mut conn = self.store.read().await?;
        let newest = match taken {
            Some(taken) => Some(taken),
            None => usage::newest(&mut conn).await?,
        };
        drop(conn);
        let from = Time(newest.map_or(0, |newest| newest.micros() - OVERLAP_MICROS));
        let (mut after, mut until) = ((from, String::new()), newest);
        loop {
            let mut conn = self.store.read().await?;
            let page = usage::changed(&mut conn, (after.0, &after.1), AT_A_TIME).await?;
            drop(conn);
            let Some(last) = page.last() else { break };
            after = (last.at, last.job_id.as_str().to_owned());
            until = until.max(Some(last.at));
            let mut tx = self.store.write().await?;
            for used in &page {
                usage::keep(&mut tx, used).await?;
                // Nothing was kept so far: when it was used is not known.
                if let Some(earlier) = used.at_creation().filter(|_| newest.is_none()) {
                    usage::keep(&mut tx, &earlier).await?;
                }
            }
            store::commit(tx).await?;
            if page.len() < AT_A_TIME as usize {
                break;
            }
        }
        Ok(until)
    }

    /// Removes what is older than any span that can be asked for.
    ///
    /// # Errors
    /// The database failed.
    pub async fn forget_old(&self) -> Result<(), StoreError> {
        let today = usage::day_of(self.clock.now());
        let mut tx = self.store.write().await?;
        usage::forget_before(&mut tx, today - DAYS).await?;
        store::commit(tx).await
    }
}
