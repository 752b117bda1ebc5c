//! Time, duration, counts: one way each, on the server and in the browser alike.

use chrono::{Datelike, FixedOffset, NaiveDate, Timelike};
use engine::time::Time;
use serde::{Deserialize, Serialize};

/// A fixed distance from UTC, in minutes east. Fixed, so that both sides print the same without a table of zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone(i32);

impl Zone {
    /// UTC itself.
    pub const UTC: Self = Self(0);
    /// Offsets in use in the world, for the settings form: whole hours and the half and quarter hours between them.
    pub const ALL_MINUTES: [i32; 38] = [
        -720, -660, -600, -570, -540, -480, -420, -360, -300, -240, -210, -180, -120, -60, 0, 60, 120, 180,
        210, 240, 270, 300, 330, 345, 360, 390, 420, 480, 525, 540, 570, 600, 630, 660, 720, 765, 780, 840,
    ];

    /// The zone this many minutes east of UTC; none where no place on Earth has it.
    pub fn of_minutes(minutes: i32) -> Option<Self> {
        Self::ALL_MINUTES.contains(&minutes).then_some(Self(minutes))
    }

    /// Minutes east of UTC.
    pub const fn minutes(self) -> i32 {
        self.0
    }

    /// `UTC`, `UTC+08:00`.
    pub fn label(self) -> String {
        match self.0 {
            0 => "UTC".to_owned(),
            minutes => {
                let sign = if minutes < 0 { '-' } else { '+' };
                format!("UTC{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
            }
        }
    }

    fn at(self, time: Time) -> chrono::DateTime<FixedOffset> {
        let utc = time.to_datetime();
        match FixedOffset::east_opt(self.0 * 60) {
            Some(offset) => utc.with_timezone(&offset),
            None => utc.fixed_offset(),
        }
    }

    fn date(self, time: Time) -> NaiveDate {
        self.at(time).date_naive()
    }
}

/// `14:02:31`.
pub fn clock(at: Time, zone: Zone) -> String {
    let at = zone.at(at);
    format!("{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
}

/// A drawing that covers less shows seconds: its marks would all read alike.
const SECONDS_MATTER_BELOW: f64 = 600.0;

/// `14:02` in a drawing that covers `seconds`, `14:02:31` in a short one.
pub fn clock_within(seconds: f64, at: Time, zone: Zone) -> String {
    if seconds < SECONDS_MATTER_BELOW { clock(at, zone) } else { clock_short(at, zone) }
}

/// `14:02`.
fn clock_short(at: Time, zone: Zone) -> String {
    let at = zone.at(at);
    format!("{:02}:{:02}", at.hour(), at.minute())
}

/// `29 Nov 2026`.
pub fn date(at: Time, zone: Zone) -> String {
    format!("{} {}", day(at, zone), zone.at(at).year())
}

/// `29 Nov`. Spelt out here: chrono's patterns would be a part of the first page's program that nothing else needs.
fn day(at: Time, zone: Zone) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let date = zone.date(at);
    format!("{} {}", date.day(), MONTHS[date.month0() as usize])
}

/// `29 Nov 2026, 13:20:04 UTC+08:00 (05:20:04 UTC)`.
pub fn date_time(at: Time, zone: Zone) -> String {
    let local = format!("{}, {} {}", date(at, zone), clock(at, zone), zone.label());
    if zone == Zone::UTC { local } else { format!("{local} ({} UTC)", clock(at, Zone::UTC)) }
}

/// How long ago: `42 min ago`, `just now`; within a day the clock, later the date and, of another year, the year.
pub fn ago(at: Time, now: Time, zone: Zone) -> String {
    let seconds = now.seconds_since(at);
    if seconds < 1.0 {
        "just now".to_owned()
    } else if seconds < 3600.0 {
        format!("{} ago", coarse(seconds))
    } else if zone.date(at) == zone.date(now) {
        clock_short(at, zone)
    } else if zone.at(at).year() == zone.at(now).year() {
        format!("{}, {}", day(at, zone), clock_short(at, zone))
    } else {
        date(at, zone)
    }
}

fn coarse(seconds: f64) -> String {
    if seconds < 60.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", (seconds / 60.0).floor()) }
}

/// `0.4 s`, `42 s`, `2 min 5 s`, `38 min`, `2 h 14 m`, `3 d 4 h`; a negative one is 0.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3600, whole / 60, whole % 60);
    match whole {
        0..10 if seconds > 0.0 && seconds.fract() != 0.0 => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..600 if rest != 0 => format!("{minutes} min {rest} s"),
        60..3600 => format!("{minutes} min"),
        3600..86_400 => format!("{hours} h {} m", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// `41,200`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 node`, `4 nodes`.
pub fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// ` so far` after a sentence about what may still come; nothing once it has `ended`.
pub const fn so_far(ended: bool) -> &'static str {
    if ended { "" } else { " so far" }
}

/// `1st`, `2nd`, `3rd`, `11th`.
pub fn ordinal(number: u32) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// A share from 0 to 1 as `78.6 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Accelerator time: `98 GPU-s`, `12 GPU-min`, `3.2 GPU-h`.
pub fn gpu_time(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    match seconds {
        s if s < 120.0 => format!("{s:.0} GPU-s"),
        s if s < 7200.0 => format!("{:.0} GPU-min", s / 60.0),
        s => format!("{:.1} GPU-h", s / 3600.0),
    }
}

/// Whole percent of `part` in `whole`, never above 100; none where the whole is unknown or 0.
pub fn share_percent(part: Option<u64>, whole: Option<u64>) -> Option<u32> {
    let whole = whole.filter(|whole| *whole > 0)?;
    u32::try_from(part?.min(whole) * 100 / whole).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Time = Time(1_796_212_804_000_000); // 2026-12-02 12:00:04 UTC

    #[test]
    fn a_moment_is_printed_with_its_zone() {
        let east = Zone::of_minutes(480).unwrap();
        assert_eq!(date_time(NOON, east), "2 Dec 2026, 20:00:04 UTC+08:00 (12:00:04 UTC)");
        assert_eq!(date_time(NOON, Zone::UTC), "2 Dec 2026, 12:00:04 UTC");
        assert_eq!(Zone::of_minutes(-570).unwrap().label(), "UTC-09:30");
        assert_eq!(Zone::of_minutes(7), None);
    }

    #[test]
    fn a_short_drawing_shows_seconds() {
        let at = Time(1_764_446_551_000_000);
        let zone = Zone::default();
        assert_eq!(clock_within(599.0, at, zone), "20:02:31");
        assert_eq!(clock_within(600.0, at, zone), "20:02");
    }

    #[test]
    fn how_long_ago_grows_coarser() {
        for (seconds, want) in [
            (0, "just now"),
            (1, "1 s ago"),
            (59, "59 s ago"),
            (42 * 60 + 59, "42 min ago"),
            (3 * 3600, "12:00"),
            (25 * 3600, "2 Dec, 12:00"),
            (60 * 86_400, "2 Dec 2026"),
        ] {
            assert_eq!(ago(NOON, NOON.plus_seconds(seconds), Zone::UTC), want);
        }
        assert_eq!(ago(NOON.plus_seconds(9), NOON, Zone::UTC), "just now");
    }

    #[test]
    fn a_duration_keeps_two_units_at_most() {
        for (seconds, want) in [
            (0.0, "0 s"),
            (0.4, "0.4 s"),
            (-3.0, "0 s"),
            (42.0, "42 s"),
            (125.0, "2 min 5 s"),
            (120.0, "2 min"),
            (38.0 * 60.0 + 11.0, "38 min"),
            (8040.0, "2 h 14 m"),
            (273_600.0, "3 d 4 h"),
        ] {
            assert_eq!(duration(seconds), want);
        }
    }

    #[test]
    fn counts_are_grouped_and_agree() {
        for (number, want) in [(0, "0"), (999, "999"), (41_200, "41,200"), (1_000_000, "1,000,000")] {
            assert_eq!(count(number), want);
        }
        assert_eq!(
            (plural(1, "node", "nodes"), plural(2, "node", "nodes")),
            ("1 node".into(), "2 nodes".into())
        );
        assert_eq!(
            [1, 2, 3, 4, 11, 22, 113].map(ordinal),
            ["1st", "2nd", "3rd", "4th", "11th", "22nd", "113th"]
        );
    }

    #[test]
    fn shares_of_nothing_are_not_reported() {
        assert_eq!(share_percent(Some(45), Some(90)), Some(50));
        assert_eq!(share_percent(Some(95), Some(90)), Some(100));
        assert_eq!(share_percent(None, Some(90)), None);
        assert_eq!(share_percent(Some(1), Some(0)), None);
    }

    #[test]
    fn accelerator_time_has_a_fitting_unit() {
        assert_eq!([98.0, 720.0, 11_520.0].map(gpu_time), ["98 GPU-s", "12 GPU-min", "3.2 GPU-h"]);
    }
}
