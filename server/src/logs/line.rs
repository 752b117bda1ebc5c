//! One line of a log: from what the agent wrote to what a page shows.

use app::console::{LogLevel, LogLine};
use engine::time::Time;

/// A line as it stands in a file.
pub(super) struct Raw<'a> {
    pub(super) n: u64,
    pub(super) bytes: &'a [u8],
}

/// The time, the rank and the text of `<microseconds> <rank> <o|e> <text>`; none of a line of another form.
pub(super) fn split(line: &[u8]) -> Option<(Time, u32, &[u8])> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let at = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let rank = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let stream = parts.next()?;
    // Without a text the line's end, if it is still there, stands behind the stream.
    Some((Time(at), rank, parts.next().unwrap_or_else(|| stream.get(1..).unwrap_or_default())))
}

/// A line of another form is shown as it is.
pub(super) fn parse(raw: &Raw<'_>) -> LogLine {
    let (at, rank, text) = match split(raw.bytes) {
        Some((at, rank, text)) => (at, Some(rank), text),
        None => (Time::default(), None, raw.bytes),
    };
    let text = clean(&String::from_utf8_lossy(text));
    LogLine { n: raw.n, at, rank, level: level(&text), text }
}

/// Without colours and other control sequences, which a page would show as rubbish.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // CSI: ESC [ parameters final byte @ to ~ (ECMA-48 §5.4).
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                for c in chars.by_ref() {
                    if ('@'..='~').contains(&c) {
                        break;
                    }
                }
            }
            '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

/// How grave a line reads: by a word of its beginning, where loggers put the level, or by Python's way to end a traceback.
fn level(text: &str) -> LogLevel {
    let head: String = text.chars().take(120).collect::<String>().to_ascii_lowercase();
    let has = |word: &str| head.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == word);
    let exception = head
        .split(':')
        .next()
        .is_some_and(|name| !name.contains(' ') && (name.ends_with("error") || name.ends_with("exception")));
    if exception
        || has("error")
        || has("fatal")
        || has("critical")
        || head.starts_with("traceback")
        || has("xid")
    {
        LogLevel::Error
    } else if has("warning") || has("warn") {
        LogLevel::Warning
    } else {
        LogLevel::Info
    }
}
