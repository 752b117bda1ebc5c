//! The program's output as an agent repeats it on its own standard output, for clusters whose logs are what a container prints:
//!
//! ```text
//! [holdfast-agent] launch 1
//! [rank0]: holdfast step=41 loss=0.52
//! [holdfast-agent] 12 lines were not repeated here
//! ```
//!
//! Every line of the program has its rank in front, so a program cannot print a mark. What is not in one of these forms is not the
//! program's.

/// Begins every line that an agent says itself.
pub const MARK: &str = "[holdfast-agent] ";
/// What a mark of left out lines ends with.
const LEFT_OUT: &str = " lines were not repeated here";

/// A line that an agent printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated<'a> {
    /// From here on the lines are of this launch, from its first one.
    Launch(u32),
    /// So many lines are missing here.
    LeftOut(u64),
    /// The program printed it.
    Line {
        /// Which of its processes.
        rank: u32,
        /// Without the line end.
        text: &'a [u8],
    },
    /// The agent's own log.
    Other,
}

/// The mark before the first line of a launch.
pub fn launch(number: u32) -> String {
    format!("{MARK}launch {number}\n")
}

/// The mark in place of `lines` lines.
pub fn left_out(lines: u64) -> String {
    format!("{MARK}{lines}{LEFT_OUT}\n")
}

/// What stands before a line of the program.
pub fn head(rank: u32) -> String {
    format!("[rank{rank}]: ")
}

/// Reads a line back; its end may be there or not.
pub fn read(line: &[u8]) -> Repeated<'_> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if let Some((rank, text)) = rank_of(line) {
        return Repeated::Line { rank, text };
    }
    mark(line).unwrap_or(Repeated::Other)
}

fn rank_of(line: &[u8]) -> Option<(u32, &[u8])> {
    let rest = line.strip_prefix(b"[rank")?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let rank = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((rank, rest[end..].strip_prefix(b"]: ")?))
}

fn mark(line: &[u8]) -> Option<Repeated<'_>> {
    let said = std::str::from_utf8(line.strip_prefix(MARK.as_bytes())?).ok()?;
    if let Some(number) = said.strip_prefix("launch ") {
        return Some(Repeated::Launch(number.parse().ok()?));
    }
    Some(Repeated::LeftOut(said.strip_suffix(LEFT_OUT)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(read(launch(7).as_bytes()), Repeated::Launch(7));
        assert_eq!(read(left_out(12).as_bytes()), Repeated::LeftOut(12));
        let line = format!("{}[rank1]: text \u{1b}[31m", head(3));
        assert_eq!(
            read(line.as_bytes()),
            Repeated::Line { rank: 3, text: "[rank1]: text \u{1b}[31m".as_bytes() }
        );
        assert_eq!(read(b"[rank0]: \n"), Repeated::Line { rank: 0, text: b"" });
    }

    #[test]
    fn a_program_cannot_print_a_mark() {
        let printed = [head(0), launch(9)].concat();
        assert_eq!(
            read(printed.as_bytes()),
            Repeated::Line { rank: 0, text: launch(9).trim_end().as_bytes() }
        );
    }

    #[test]
    fn the_rest_is_not_the_programs() {
        for line in [
            &b"[holdfast-agent] 2026-11-30T04:33:10Z  INFO launch 1 starts"[..],
            b"[holdfast-agent] launch",
            b"[holdfast-agent] launch -1",
            b"[holdfast-agent] many lines were not repeated here",
            b"[rank]: x",
            b"[rank99999999999]: x",
            b"[rank1] x",
            b"\xff\xfe",
            b"",
        ] {
            assert_eq!(read(line), Repeated::Other, "{}", String::from_utf8_lossy(line));
        }
    }
}
