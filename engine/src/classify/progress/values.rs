//! Reads the number behind a word, by hand: this runs on nearly every line of a training log.

use memchr::{memchr, memchr_iter};

use crate::{
    classify::prefix,
    progress::{as_loss, as_step},
};

/// A step as it was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) step: u64,
    pub(super) total: Option<u64>,
    /// Written as `step=3`, `step: 3` or `step 3/9`; `step 3` alone may be any text.
    pub(super) sure: bool,
}

/// A state of the training's progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) step: u64,
    pub(super) total: Option<u64>,
    done: u64,
    pub(super) length: u64,
    /// Where in the line the bar's counts end and what else it shows begins.
    pub(super) end: usize,
}

impl Bar {
    pub(super) fn is_full(&self) -> bool {
        self.done >= self.length
    }
}

/// Words that make another thing of the step behind them: a limit, an interval, a count of something else.
const NOT_STEPS: [&[u8]; 17] = [
    b"total",
    b"max",
    b"warmup",
    b"num",
    b"every",
    b"per",
    b"optimization",
    b"eval",
    b"val",
    b"validation",
    b"test",
    b"save",
    b"logging",
    b"of",
    b"decay",
    b"each",
    b"skipped",
];
/// Words that make a training step of `_step`.
const STEP_OWNERS: [&[u8]; 5] = [b"global", b"train", b"current", b"optimizer", b"training"];
/// Words that make a loss one of evaluation.
const NOT_LOSSES: [&[u8]; 6] = [b"eval", b"val", b"valid", b"validation", b"test", b"scaled"];
/// Words that make the training's loss of `_loss`.
const LOSS_OWNERS: [&[u8]; 3] = [b"train", b"lm", b"training"];

/// The step behind `step` or `iter`.
pub(super) fn step(before: &[u8], after: &[u8]) -> Option<Step> {
    if !owned(before, &STEP_OWNERS, &NOT_STEPS) {
        return None;
    }
    let mut rest = after.strip_prefix(b"ation").unwrap_or(after);
    if before.iter().all(u8::is_ascii_whitespace) {
        rest = rest.strip_prefix(b"s").unwrap_or(rest);
    }
    let (value, mark) = separator(rest)?;
    let (step, rest) = whole(value)?;
    let total = blanks(rest)
        .strip_prefix(b"/")
        .and_then(|total| whole(blanks(total)))
        .and_then(|(total, _)| as_step(total));
    Some(Step { step: as_step(step)?, total, sure: mark || total.is_some() })
}

/// The loss behind `loss`; inside it is none where it is no number.
pub(super) fn loss(before: &[u8], after: &[u8]) -> Option<Option<f64>> {
    if !owned(before, &LOSS_OWNERS, &NOT_LOSSES) {
        return None;
    }
    let (value, _) = separator(after)?;
    let value = value.strip_prefix(b"tensor(").unwrap_or(value);
    let end = value.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+')));
    let number: f64 =
        std::str::from_utf8(&value[..end.unwrap_or(value.len())]).ok()?.trim_end_matches('.').parse().ok()?;
    Some(as_loss(number))
}

/// The count behind `samples`.
pub(super) fn samples(before: &[u8], after: &[u8]) -> Option<u64> {
    if !owned(before, &[b"consumed"], &NOT_STEPS) {
        return None;
    }
    let (value, _) = separator(after)?;
    whole(value).map(|(samples, _)| samples)
}

/// The state of a progress bar as tqdm draws it, `name: 6%|▌  | 12/200 [00:10<02:40]`, if it is the
/// training's. Where carriage returns were lost, one line holds many bars: the first has the name and the
/// last the state.
pub(super) fn bar(line: &[u8]) -> Option<Bar> {
    let mut drawn = memchr_iter(b'%', line).filter(|at| line.get(at + 1) == Some(&b'|'));
    let first = drawn.next()?;
    let last = drawn.next_back().unwrap_or(first);
    let counts = last + 2 + memchr(b'|', &line[last + 2..])? + 1;
    let (done, rest) = whole_before(blanks(&line[counts..]), b'/')?;
    let (length, rest) = whole_before(rest, b' ')?;
    if length == 0 || as_step(done.max(length)).is_none() {
        return None;
    }
    let end = line.len() - rest.len();
    let percent = line[..first].iter().rposition(|b| !b.is_ascii_digit()).map_or(0, |at| at + 1);
    let name = prefix::strip(&line[..percent]).body.trim_ascii();
    let name = name.strip_suffix(b":").unwrap_or(name);
    if let Some((_, epoch)) =
        name.split_at_checked(6).filter(|(word, _)| word.eq_ignore_ascii_case(b"epoch "))
    {
        // Lightning counts epochs from 0 and begins each with an empty bar.
        let (epoch, _) = whole(epoch)?;
        let step = as_step(epoch.checked_mul(length)?.checked_add(done)?)?;
        return Some(Bar { step, total: None, done, length, end });
    }
    let names_training = [&b"train"[..], b"step", b"iter"]
        .iter()
        .any(|word| name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)));
    (name.is_empty() || names_training).then_some(Bar { step: done, total: Some(length), done, length, end })
}

/// Whether a word that follows `before` stands alone, or behind one of `owners` and `_`, and behind none of
/// `others`.
fn owned(before: &[u8], owners: &[&[u8]], others: &[&[u8]]) -> bool {
    let Some((&last, head)) = before.split_last() else { return true };
    let owner = || {
        let end = head.iter().rposition(|b| !b.is_ascii_whitespace()).map_or(0, |at| at + 1);
        let start = head[..end].iter().rposition(|b| !b.is_ascii_alphabetic()).map_or(0, |at| at + 1);
        &head[start..end]
    };
    let is_one_of = |words: &[&[u8]]| {
        let owner = owner();
        !owner.is_empty() && words.iter().any(|word| word.eq_ignore_ascii_case(owner))
    };
    match last {
        b'_' => is_one_of(owners),
        b' ' | b'/' => !is_one_of(others),
        b'-' => false,
        other => !other.is_ascii_alphanumeric(),
    }
}

/// Skips what stands between a word and its value; true where that is more than blanks.
fn separator(text: &[u8]) -> Option<(&[u8], bool)> {
    let unquoted = text.strip_prefix(b"'").or_else(|| text.strip_prefix(b"\"")).unwrap_or(text);
    let rest = blanks(unquoted);
    let marks = rest.iter().take(2).take_while(|b| matches!(b, b'=' | b':' | b'[' | b'#')).count();
    let value = blanks(&rest[marks..]);
    let value = value.strip_prefix(b"[").unwrap_or(value);
    (value.len() < text.len()).then_some((value, marks > 0))
}

fn blanks(text: &[u8]) -> &[u8] {
    text.trim_ascii_start()
}

/// A whole number that nothing makes a part of something else: `3.5`, `3b`, `3%`, `3-4` are none.
fn whole(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    let mut end = 0;
    while let Some(digit) = text.get(end).map(|b| b.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
        end += 1;
    }
    let rest = &text[end..];
    let part = match rest {
        [b'.', next, ..] => next.is_ascii_digit(),
        [b'%' | b'-' | b'_', ..] => true,
        [next, ..] => next.is_ascii_alphanumeric(),
        [] => false,
    };
    (end > 0 && !part).then_some((number, rest))
}

/// A whole number with `end` right behind it.
fn whole_before(text: &[u8], end: u8) -> Option<(u64, &[u8])> {
    let (number, rest) = whole(text)?;
    rest.strip_prefix(&[end]).map(|rest| (number, rest))
}
