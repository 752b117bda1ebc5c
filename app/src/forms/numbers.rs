//! Numbers and durations as people type them.

/// A whole number. A thousands comma is not read: "1,5" means different numbers to different people.
///
/// # Errors
/// What is wrong, with `allowed` as the values that may be used instead.
pub fn whole(text: &str, allowed: &str) -> Result<i64, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(format!("is missing; use {allowed}"));
    }
    text.parse().map_err(|_| format!("`{}` is no whole number. Use {allowed}.", shown(text)))
}

/// Seconds, bare or with one unit: `600`, `600 s`, `10m`, `10 min`, `1h`.
///
/// # Errors
/// What is wrong, with `allowed` as the values that may be used instead.
pub fn seconds(text: &str, allowed: &str) -> Result<i64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic()).trim_end();
    let factor = match text.get(digits.len()..).unwrap_or_default().trim() {
        "" | "s" | "sec" => Some(1),
        "m" | "min" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    match (whole(digits, allowed), factor) {
        (Ok(number), Some(factor)) => Ok(number.saturating_mul(factor)),
        (Err(why), Some(_)) if text.is_empty() => Err(why),
        _ => Err(format!("`{}` is no time. Use {allowed}, or a unit as in 10m.", shown(text))),
    }
}

/// What a time with a unit comes to, to be shown beside the field: `= 600 s`; none where nothing needs saying.
pub fn echo(text: &str) -> Option<String> {
    let bare = text.trim().parse::<i64>().is_ok();
    seconds(text, "").ok().filter(|_| !bare).map(|seconds| format!("= {seconds} s"))
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_have_a_unit() {
        for (text, want) in
            [("600", 600), (" 600 s ", 600), ("10m", 600), ("10 min", 600), ("1h", 3600), ("-5", -5)]
        {
            assert_eq!(seconds(text, "1 to 3600"), Ok(want), "{text}");
        }
        assert_eq!(echo("10m").as_deref(), Some("= 600 s"));
        assert_eq!(echo("600"), None);
        assert_eq!(echo("ten"), None);
    }

    #[test]
    fn what_is_no_number_is_quoted_with_what_is_allowed() {
        assert_eq!(whole("2.5", "0 to 50"), Err("`2.5` is no whole number. Use 0 to 50.".to_owned()));
        assert_eq!(whole(" ", "0 to 50"), Err("is missing; use 0 to 50".to_owned()));
        assert_eq!(
            seconds("10 years", "1 to 600").unwrap_err(),
            "`10 years` is no time. Use 1 to 600, or a unit as in 10m."
        );
        assert!(seconds("", "1 to 600").unwrap_err().starts_with("is missing"));
        assert_eq!(
            whole("99999999999999999999", "0 to 50").unwrap_err(),
            "`99999999999999999999` is no whole number. Use 0 to 50."
        );
    }
}
