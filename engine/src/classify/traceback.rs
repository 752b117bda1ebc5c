//! Follows Python tracebacks: the exception is the first line at column 0 after the frames.

/// Tracebacks that are followed at a time: the ranks of one replica print into one stream.
const MAX_OPEN: usize = 64;
/// Lines of one traceback; what is longer is none.
const MAX_LINES: u32 = 2_000;

const HEAD: &[u8] = b"Traceback (most recent call last)";

#[derive(Clone, Copy, Debug)]
struct Open {
    rank: Option<u32>,
    lines: u32,
}

/// What a line is to the traceback of its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// None of it.
    Other,
    /// A frame or a line of source code. Source may hold the words of any failure; that it was quoted says nothing.
    Frame,
    /// The exception that ends it.
    Exception,
}

/// The tracebacks that a stream is in the middle of, one for each rank.
#[derive(Debug, Default)]
pub(super) struct Tracebacks {
    open: Vec<Open>,
}

impl Tracebacks {
    /// Whether no traceback is open, so that only the head of one matters.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes a line of a rank.
    pub(super) fn take(&mut self, rank: Option<u32>, body: &[u8]) -> Part {
        let known = self.open.iter().position(|open| open.rank == rank);
        if body.starts_with(HEAD) {
            match known {
                Some(index) => self.open[index].lines = 0,
                None if self.open.len() < MAX_OPEN => self.open.push(Open { rank, lines: 0 }),
                None => {}
            }
            return Part::Other;
        }
        let Some(index) = known else { return Part::Other };
        let inside = body.first().is_none_or(|b| b.is_ascii_whitespace());
        self.open[index].lines += 1;
        let too_long = self.open[index].lines > MAX_LINES;
        if inside && !too_long {
            return Part::Frame;
        }
        self.open.swap_remove(index);
        if !inside && !too_long && is_exception(body) { Part::Exception } else { Part::Other }
    }
}

/// `package.module.Name: message`, or the name alone. Lines of other programs that come in between are not.
fn is_exception(body: &[u8]) -> bool {
    let end = body
        .iter()
        .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.')))
        .unwrap_or(body.len());
    let (name, rest) = body.split_at(end);
    let class = name.rsplit(|b| *b == b'.').next().unwrap_or(name);
    class.first().is_some_and(u8::is_ascii_uppercase) && (rest.is_empty() || rest.starts_with(b":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exceptions(lines: &[(Option<u32>, &str)]) -> Vec<usize> {
        let mut tracebacks = Tracebacks::default();
        (0..lines.len())
            .filter(|i| tracebacks.take(lines[*i].0, lines[*i].1.as_bytes()) == Part::Exception)
            .collect()
    }

    #[test]
    fn the_first_line_at_column_0_is_the_exception() {
        let one = [
            (None, "Traceback (most recent call last):"),
            (None, "  File \"train.py\", line 3, in <module>"),
            (None, "    raise Diverged(loss)"),
            (None, "mine.Diverged: 3.0"),
            (None, "Bye: nothing"),
        ];
        assert_eq!(exceptions(&one), [3]);
    }

    #[test]
    fn interleaved_ranks_keep_their_own() {
        let two = [
            (Some(0), "Traceback (most recent call last):"),
            (Some(1), "Traceback (most recent call last):"),
            (Some(0), "  File \"a.py\", line 1"),
            (Some(1), "  File \"a.py\", line 1"),
            (Some(1), "Diverged: 1"),
            (Some(0), "Diverged: 0"),
        ];
        assert_eq!(exceptions(&two), [4, 5]);
    }

    #[test]
    fn a_traceback_has_an_end() {
        let mut endless = vec![(None, "Traceback (most recent call last):")];
        endless.extend(vec![(None, "  frame"); MAX_LINES as usize + 5]);
        endless.push((None, "Name: text"));
        assert!(exceptions(&endless).is_empty());
    }
}
