//! Points in time, as the caller gives them: the engine has no clock.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Microseconds since 1970-01-01 UTC. Written as RFC 3339 in JSON, stored as an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String, format = DateTime))]
pub struct Time(pub i64);

impl Time {
    /// Microseconds since 1970-01-01 UTC.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// The time `seconds` later; stays at the end of time instead of overflowing.
    pub const fn plus_seconds(self, seconds: u64) -> Self {
        Self(self.0.saturating_add((seconds as i64).saturating_mul(1_000_000)))
    }

    /// The time `millis` milliseconds later.
    pub const fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add((millis as i64).saturating_mul(1_000)))
    }

    /// Seconds from `earlier` to this time; 0 where `earlier` is later, since clocks of machines differ.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0).max(0) as f64 / 1e6
    }

    /// The same point as a chrono date.
    pub fn to_datetime(self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0).unwrap_or(DateTime::<Utc>::MIN_UTC)
    }
}

impl From<DateTime<Utc>> for Time {
    fn from(at: DateTime<Utc>) -> Self {
        Self(at.timestamp_micros())
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_datetime().to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        DateTime::parse_from_rfc3339(&text)
            .map(|at| Self(at.timestamp_micros()))
            .map_err(|why| de::Error::custom(format!("`{text}` is no RFC 3339 time: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_survive_the_text_form() {
        for micros in [0, 1, 1_764_446_400_000_000, 1_764_446_400_123_456, -1] {
            let text = serde_json::to_string(&Time(micros)).unwrap();
            assert_eq!(serde_json::from_str::<Time>(&text).unwrap(), Time(micros), "{text}");
        }
    }

    #[test]
    fn an_earlier_clock_gives_no_negative_duration() {
        assert_eq!(Time(5).seconds_since(Time(9)), 0.0);
    }
}
