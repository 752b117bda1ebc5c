//! The one place where the agent reads the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use engine::time::Time;

/// The time of day by this machine's clock.
#[expect(clippy::disallowed_methods, reason = "the agent's one clock; everything else is given the time")]
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
