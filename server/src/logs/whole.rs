//! A whole log as a file to keep: what the program printed, as bytes, as far as it was written when the file was asked for.
//!
//! It is read piece by piece, so that a log of a gigabyte takes no more memory than a short one, and whoever reads slowly holds
//! nothing but an open file. Lines that are not kept are named where they would stand.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Take},
};

use engine::ids::{JobId, ReplicaName, TaskId};

use super::{
    LogError, LogReader, MAX_LINE_BYTES,
    files::{Segment, failed, open, segments},
    line::split,
};

/// Bytes of a piece, but for the line it ends with.
const PIECE_BYTES: usize = 128 * 1024;

/// A whole log that is being read.
#[derive(Debug)]
pub struct WholeLog {
    /// Whose it is.
    pub replica: ReplicaName,
    /// Of which launch.
    pub launch: u32,
    left: VecDeque<Part>,
    reading: Option<(Segment, Take<BufReader<File>>)>,
    next_line: u64,
    /// The newest file was dropped before it was read.
    end_is_lost: bool,
}

/// A file with its length when the log was asked for.
#[derive(Debug)]
struct Part {
    segment: Segment,
    bytes: u64,
}

impl LogReader {
    /// The whole log of a launch; the first replica and the newest launch where none is named. Reads directories, so call it where
    /// blocking is allowed.
    ///
    /// # Errors
    /// Where there is no such log, or it cannot be read.
    pub fn whole(
        &self,
        job: &JobId,
        task: &TaskId,
        replica: Option<&ReplicaName>,
        launch: Option<u32>,
    ) -> Result<WholeLog, LogError> {
        let chosen = self.choose(job, task, replica, launch)?;
        let mut left = VecDeque::new();
        for segment in segments(&chosen.dir, chosen.launch)? {
            // One that was dropped meanwhile shows as a gap.
            if let Some(bytes) = length(&segment)? {
                left.push_back(Part { segment, bytes });
            }
        }
        Ok(WholeLog {
            replica: chosen.replica,
            launch: chosen.launch,
            left,
            reading: None,
            next_line: 1,
            end_is_lost: false,
        })
    }
}

fn length(segment: &Segment) -> Result<Option<u64>, LogError> {
    match fs::metadata(&segment.path) {
        Ok(meta) => Ok(Some(meta.len())),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(failed(segment, why)),
    }
}

impl WholeLog {
    /// The next bytes; none at the end. Reads files, so call it where blocking is allowed.
    ///
    /// # Errors
    /// A file could not be read.
    pub fn piece(&mut self) -> Result<Option<Vec<u8>>, LogError> {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        while piece.len() < PIECE_BYTES && self.begin(&mut piece)? {
            if !self.line(&mut piece)? {
                self.reading = None;
            }
        }
        if self.reading.is_none() && self.left.is_empty() && std::mem::take(&mut self.end_is_lost) {
            piece.extend_from_slice(
                format!("[lines from {} on are no longer kept]\n", self.next_line).as_bytes(),
            );
        }
        Ok((!piece.is_empty()).then_some(piece))
    }

    /// Opens the next file where none is being read; false at the end.
    fn begin(&mut self, piece: &mut Vec<u8>) -> Result<bool, LogError> {
        while self.reading.is_none() {
            let Some(Part { segment, bytes }) = self.left.pop_front() else { return Ok(false) };
            let Some(reader) = open(&segment, 0)? else {
                self.end_is_lost = true;
                continue;
            };
            self.end_is_lost = false;
            if segment.first_line > self.next_line {
                let last = segment.first_line - 1;
                let gap = if last == self.next_line {
                    format!("[line {last} is not kept]\n")
                } else {
                    format!("[lines {} to {last} are not kept]\n", self.next_line)
                };
                piece.extend_from_slice(gap.as_bytes());
            }
            self.next_line = segment.first_line;
            self.reading = Some((segment, reader.take(bytes)));
        }
        Ok(true)
    }

    /// Adds a line; false where the file has no more whole ones.
    fn line(&mut self, piece: &mut Vec<u8>) -> Result<bool, LogError> {
        let Some((segment, reader)) = &mut self.reading else { return Ok(false) };
        let mut line = Vec::new();
        // The agent cuts lines; the limit guards against a file that is not its own.
        let mut limited = reader.by_ref().take(2 * MAX_LINE_BYTES as u64);
        limited.read_until(b'\n', &mut line).map_err(|why| failed(segment, why))?;
        if line.last() != Some(&b'\n') {
            return Ok(false);
        }
        piece.extend_from_slice(split(&line).map_or(line.as_slice(), |(_, _, text)| text));
        self.next_line += 1;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::logs::tests::{Logs, ten};

    fn open_whole(logs: &Logs) -> WholeLog {
        LogReader::new(logs.dir.path().to_owned()).whole(&logs.job, &logs.task, None, None).unwrap()
    }

    fn text(whole: &mut WholeLog) -> String {
        let mut all = Vec::new();
        while let Some(piece) = whole.piece().unwrap() {
            all.extend_from_slice(&piece);
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    #[test]
    fn all_lines_come_as_they_were_printed_and_gaps_are_named() {
        let want =
            "line 1\nline 2\nline 3\nline 4\n[lines 5 to 6 are not kept]\nline 7\nline 8\nline 9\nline 10\n";
        assert_eq!(text(&mut open_whole(&ten())), want);
        let logs = Logs::new();
        logs.write(
            "master-0",
            "launch-0.000000000002.log",
            &["1 0 e \u{1b}[31mred\u{1b}[0m", "2 0 o", "odd"],
        );
        assert_eq!(text(&mut open_whole(&logs)), "[line 1 is not kept]\n\u{1b}[31mred\u{1b}[0m\n\nodd\n");
    }

    #[test]
    fn a_log_that_grows_ends_where_it_ended_when_it_was_asked_for() {
        let logs = ten();
        let mut whole = open_whole(&logs);
        let path = logs.file("master-0", "launch-0.000000000007.log");
        fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"11 0 o line 11\n").unwrap();
        assert!(text(&mut whole).ends_with("line 10\n"));
        assert!(text(&mut open_whole(&logs)).ends_with("line 11\n"));
    }

    #[test]
    fn a_file_that_is_dropped_meanwhile_is_named() {
        let logs = ten();
        let mut whole = open_whole(&logs);
        fs::remove_file(logs.file("master-0", "launch-0.log")).unwrap();
        assert!(text(&mut whole).starts_with("[lines 1 to 6 are not kept]\nline 7\n"));
        let mut whole = open_whole(&ten());
        let logs = ten();
        let mut last = open_whole(&logs);
        fs::remove_file(logs.file("master-0", "launch-0.000000000007.log")).unwrap();
        assert!(text(&mut last).ends_with("line 4\n[lines from 5 on are no longer kept]\n"));
        // The directory of the first world is gone with it: nothing is left of it at all.
        assert_eq!(text(&mut whole), "[lines from 1 on are no longer kept]\n");
    }

    #[test]
    fn a_large_log_is_read_in_pieces() {
        let logs = Logs::new();
        let line = format!("1 0 o {}", "x".repeat(999));
        logs.write("master-0", "launch-0.log", &vec![line.as_str(); 5_000]);
        let mut whole = open_whole(&logs);
        let (mut bytes, mut longest) = (0, 0);
        while let Some(piece) = whole.piece().unwrap() {
            bytes += piece.len();
            longest = longest.max(piece.len());
        }
        assert_eq!(bytes, 5_000_000);
        assert!(longest < PIECE_BYTES + 1_000);
    }
}
