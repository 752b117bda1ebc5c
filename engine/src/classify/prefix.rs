//! What launchers and loggers put in front of a line: ranks, times, levels, process names.

use memchr::memchr;

/// A line without its prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stripped<'a> {
    /// The rank that a prefix names.
    pub(super) rank: Option<u32>,
    /// What was printed, with its own indentation.
    pub(super) body: &'a [u8],
}

/// Prefixes of one line that are taken off at most; no launcher stacks more.
const MAX_PREFIXES: usize = 8;
/// The longest group in brackets that can be a prefix, bytes.
const MAX_GROUP: usize = 96;

/// Takes the prefixes off a line that has no colours.
pub(super) fn strip(line: &[u8]) -> Stripped<'_> {
    let mut stripped = Stripped { rank: None, body: line };
    for _ in 0..MAX_PREFIXES {
        let Some((rank, body)) = strip_one(stripped.body) else { break };
        stripped = Stripped { rank: rank.or(stripped.rank), body };
    }
    stripped
}

fn strip_one(line: &[u8]) -> Option<(Option<u32>, &[u8])> {
    match line.first()? {
        b'[' => bracket(line),
        b'(' => process(line),
        b'0'..=b'9' => srun(line).or_else(|| time(line)),
        b'-' | b'|' => {
            line.strip_prefix(b"- ").or_else(|| line.strip_prefix(b"|| ")).map(|rest| (None, rest))
        }
        b'E' | b'C' | b'F' => level(line),
        b'a'..=b'z' => host(line),
        _ => None,
    }
}

/// `[rank3]:`, `[default3]:`, `[3]:`, `[1,26]<stdout>:`, `[2025-05-27 19:49:22,947]`,
/// `[launch.py:434:main]`.
fn bracket(line: &[u8]) -> Option<(Option<u32>, &[u8])> {
    let end = memchr(b']', &line[..line.len().min(MAX_GROUP)])?;
    let (inner, mut rest) = (&line[1..end], &line[end + 1..]);
    let mut rank = number_after(inner, b"rank").or_else(|| number_after(inner, b"Rank "));
    rank = rank.or_else(|| number_after(inner, b"default"));
    for stream in [&b"<stdout>"[..], b"<stderr>"] {
        if let Some(after) = rest.strip_prefix(stream) {
            rest = after;
            rank = rank.or_else(|| inner.rsplit(|b| *b == b',').next().and_then(number));
        }
    }
    if let Some(after) = rest.strip_prefix(b":") {
        rest = after;
        rank = rank.or_else(|| number(inner));
    } else if !rest.is_empty() && rest[0] != b' ' && rest[0] != b'[' {
        return None;
    }
    Some((rank, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// `(RayTrainWorker pid=2483, ip=10.0.0.7)`, `(raylet)`.
fn process(line: &[u8]) -> Option<(Option<u32>, &[u8])> {
    let end = memchr(b')', &line[..line.len().min(MAX_GROUP)])?;
    let (inner, rest) = (&line[1..end], &line[end + 1..]);
    let known = memchr::memmem::find(inner, b"pid=").is_some() || inner.starts_with(b"raylet");
    known.then(|| (None, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// `3: `, as `srun --label` writes it.
fn srun(line: &[u8]) -> Option<(Option<u32>, &[u8])> {
    let end = line.iter().position(|b| !b.is_ascii_digit())?;
    let rest = line[end..].strip_prefix(b": ")?;
    Some((number(&line[..end]), rest))
}

/// `2025-07-18 12:02:17.132422: `, `12:05:00,079 `, `2024-11-20T16:46:11Z `.
fn time(line: &[u8]) -> Option<(Option<u32>, &[u8])> {
    let end = line.iter().position(|b| {
        !matches!(b, b'0'..=b'9' | b':' | b'-' | b'/' | b'.' | b',' | b'T' | b'Z' | b'+' | b' ')
    })?;
    let mut end = end.min(MAX_GROUP);
    // Blanks before the text may be its indentation: only one belongs to the time.
    while end > 0 && line[end - 1] == b' ' {
        end -= 1;
    }
    let stamp = &line[..end];
    let is_time = stamp.iter().filter(|b| **b == b':').count() >= 2;
    let rest = line[end..].strip_prefix(b" ")?;
    is_time.then_some((None, rest))
}

/// `ERROR: `, `CRITICAL:root:`. Milder levels stay: what they say is no failure of its own.
fn level(line: &[u8]) -> Option<(Option<u32>, &[u8])> {
    let mut rest = [&b"ERROR"[..], b"CRITICAL", b"FATAL"].iter().find_map(|word| line.strip_prefix(*word))?;
    if let Some(logger) = rest.strip_prefix(b":") {
        let end =
            logger.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_'))).unwrap_or(0);
        if logger[end..].starts_with(b":") {
            rest = &logger[end..];
        }
    }
    let rest = rest.strip_prefix(b":").or_else(|| rest.starts_with(b" ").then_some(rest))?;
    Some((None, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// `node-7: `, as parallel shells write it. Words without a digit are no host names here.
fn host(line: &[u8]) -> Option<(Option<u32>, &[u8])> {
    let end = line.iter().take(64).position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.')))?;
    let named = line[..end].last().is_some_and(u8::is_ascii_digit) && line[..end].contains(&b'-');
    let rest = line[end..].strip_prefix(b": ")?;
    named.then_some((None, rest))
}

fn number_after(text: &[u8], word: &[u8]) -> Option<u32> {
    number(text.strip_prefix(word)?)
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_times_are_no_part_of_what_was_printed() {
        for (line, rank, body) in [
            ("plain text", None, "plain text"),
            ("[rank3]: ValueError: no", Some(3), "ValueError: no"),
            ("[rank3]:   File \"a.py\"", Some(3), "  File \"a.py\""),
            ("[default12]:ValueError: no", Some(12), "ValueError: no"),
            ("[3]:ValueError: no", Some(3), "ValueError: no"),
            ("3: ValueError: no", Some(3), "ValueError: no"),
            ("[1,26]<stderr>:KeyError: 'a'", Some(26), "KeyError: 'a'"),
            ("(RayTrainWorker pid=77, ip=10.1.1.1) KeyError: 'a'", None, "KeyError: 'a'"),
            ("[1803] [rank1]:[E602 16:55 X.cpp:1] text", Some(1), "text"),
            ("2025-07-18 12:02:17.132422: F text", None, "F text"),
            ("2025-07-18 12:02:17 [rank5]: text", Some(5), "text"),
            ("[2025-05-27 19:49:22,947] [ERROR] [launch.py:43:main] text", None, "text"),
            ("ERROR:root:OSError: no", None, "OSError: no"),
            ("WARNING: OSError: no", None, "WARNING: OSError: no"),
            ("node-7: OSError: no", None, "OSError: no"),
            ("python3: can't open", None, "python3: can't open"),
            ("(see below) text", None, "(see below) text"),
            ("12 items", None, "12 items"),
            ("", None, ""),
        ] {
            let want = Stripped { rank, body: body.as_bytes() };
            assert_eq!(strip(line.as_bytes()), want, "{line}");
        }
    }
}
