//! Keeps what an agent repeated in its container, read from an API server, in the files that [`LogReader`](super::LogReader) reads: so a
//! page of a log, a search in it and its download are the same wherever a job runs, and stay when its pods are gone.
//!
//! The API server gives lines as `<time> <text>`, from a time on. What was kept is remembered beside the files with their length; a
//! server that died in between cuts the file back to that, so no line is kept twice.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    path::PathBuf,
};

use chrono::{DateTime, Utc};
use engine::output::{self, Repeated};
use serde::{Deserialize, Serialize};

/// Bytes of a file before the next one begins.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Files of a launch; beyond it the oldest after the first [`KEPT_SEGMENTS`] goes, so that the beginning and the end stay.
const SEGMENTS: usize = 16;
/// Files that are never dropped.
const KEPT_SEGMENTS: usize = 4;
/// What is remembered of a replica.
const STATE: &str = "kept.json";

/// The kept output of one replica.
#[derive(Debug)]
pub struct KeptLog {
    dir: PathBuf,
    state: State,
    current: Option<File>,
    segment_bytes: u64,
}

/// How far a replica's output is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// Nanoseconds since 1970-01-01 UTC of the newest line that was seen.
    newest: i64,
    /// The launch that prints; none before the first mark.
    launch: Option<u32>,
    /// Number of the launch's next line.
    next_line: u64,
    /// First lines of the launch's files, oldest first.
    segments: Vec<u64>,
    /// Length of the newest of them.
    bytes: u64,
}

impl KeptLog {
    /// The output kept in this directory, which is made with the first line.
    ///
    /// # Errors
    /// What is remembered of it cannot be read.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        let state = match fs::read(dir.join(STATE)) {
            Ok(json) => serde_json::from_slice(&json)?,
            Err(why) if why.kind() == io::ErrorKind::NotFound => State::default(),
            Err(why) => return Err(why),
        };
        Ok(Self { dir, state, current: None, segment_bytes: SEGMENT_BYTES })
    }

    /// From when on the API server is to be asked; it counts whole seconds, so some lines come again and are passed over. None: from the
    /// beginning.
    pub fn since(&self) -> Option<DateTime<Utc>> {
        (self.state.newest > 0).then(|| DateTime::from_timestamp_nanos(self.state.newest))
    }

    /// Keeps the whole lines of `output` and gives the number of bytes they were; the rest is the beginning of a line.
    ///
    /// # Errors
    /// Where they cannot be written. What was kept before stays as it was.
    pub fn take(&mut self, output: &[u8]) -> io::Result<usize> {
        let before = self.state.clone();
        let mut taken = 0;
        for line in output.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            taken += line.len();
            if let Err(why) = self.line(line) {
                (self.state, self.current) = (before, None);
                return Err(why);
            }
        }
        if self.state != before
            && let Err(why) = self.remember()
        {
            (self.state, self.current) = (before, None);
            return Err(why);
        }
        Ok(taken)
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let Some((at, text)) = split(line) else { return Ok(()) };
        if at <= self.state.newest {
            return Ok(());
        }
        self.state.newest = at;
        let (rank, text) = match output::read(text) {
            Repeated::Launch(number) => {
                self.begin_launch(number);
                return Ok(());
            }
            Repeated::LeftOut(lines) => {
                self.state.next_line += lines;
                self.current = None;
                self.state.bytes = self.segment_bytes;
                return Ok(());
            }
            Repeated::Other => return Ok(()),
            Repeated::Line { rank, text } => (rank, text),
        };
        // Lines of a launch whose mark was lost, by a rotation of the container's log, belong to the first.
        if self.state.launch.is_none() {
            self.begin_launch(0);
        }
        let mut kept = format!("{} {rank} o ", at / 1000).into_bytes();
        kept.extend_from_slice(text);
        kept.push(b'\n');
        self.write(&kept)?;
        self.state.next_line += 1;
        Ok(())
    }

    fn begin_launch(&mut self, number: u32) {
        self.current = None;
        self.state =
            State { launch: Some(number), next_line: 1, newest: self.state.newest, ..State::default() };
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.state.segments.is_empty() || self.state.bytes + line.len() as u64 > self.segment_bytes {
            self.current = None;
            self.state.segments.push(self.state.next_line);
            self.state.bytes = 0;
            if self.state.segments.len() > SEGMENTS {
                let oldest = self.state.segments.remove(KEPT_SEGMENTS);
                fs::remove_file(self.path(oldest)).or_else(gone_already)?;
            }
        }
        let mut file = match self.current.take() {
            Some(file) => file,
            None => self.newest_segment()?,
        };
        file.write_all(line)?;
        self.state.bytes += line.len() as u64;
        self.current = Some(file);
        Ok(())
    }

    /// The newest file, cut back to what is remembered of it.
    fn newest_segment(&self) -> io::Result<File> {
        fs::create_dir_all(&self.dir)?;
        let first = self.state.segments.last().copied().unwrap_or(1);
        let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(self.path(first))?;
        file.set_len(self.state.bytes)?;
        file.seek(SeekFrom::End(0))?;
        Ok(file)
    }

    /// The names that agents give their files, too.
    fn path(&self, first_line: u64) -> PathBuf {
        let launch = self.state.launch.unwrap_or(0);
        self.dir.join(match first_line {
            1 => format!("launch-{launch}.log"),
            _ => format!("launch-{launch}.{first_line:012}.log"),
        })
    }

    fn remember(&self) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let json = serde_json::to_vec(&self.state)?;
        let new = self.dir.join(format!("{STATE}.new"));
        fs::write(&new, &json)?;
        fs::rename(new, self.dir.join(STATE))
    }
}

fn gone_already(why: io::Error) -> io::Result<()> {
    if why.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(why) }
}

/// The time of a line in nanoseconds and its text without the end; none of what is no line of an API server.
fn split(line: &[u8]) -> Option<(i64, &[u8])> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let space = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let at = std::str::from_utf8(&line[..space]).ok()?;
    let at = DateTime::parse_from_rfc3339(at).ok()?.timestamp_nanos_opt()?;
    Some((at, line.get(space + 1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use app::console::LogQuery;
    use engine::ids::{JobId, TaskId};

    use super::*;
    use crate::logs::LogReader;

    /// Lines as the API server gives them, one each millisecond from `first` on.
    fn printed(first: u32, lines: &[&str]) -> String {
        let mut out = String::new();
        for (n, line) in lines.iter().enumerate() {
            writeln!(out, "2026-11-30T04:00:00.{:03}000000Z {line}", first + n as u32).unwrap();
        }
        out
    }

    struct Dir {
        data: tempfile::TempDir,
        job: JobId,
        task: TaskId,
    }

    impl Dir {
        fn new() -> Self {
            let (job, task) =
                (JobId::new("jabcdefghij2").unwrap(), TaskId::new("demo-jabcdefghij2-1").unwrap());
            Self { data: tempfile::tempdir().unwrap(), job, task }
        }

        fn open(&self) -> KeptLog {
            let dir = self.data.path().join("jobs").join(self.job.as_str()).join(self.task.as_str());
            KeptLog::open(dir.join("master-0")).unwrap()
        }

        /// Number, rank and text of the lines of a launch.
        fn lines(&self, launch: u32) -> Vec<(u64, Option<u32>, String)> {
            let query = LogQuery { launch: Some(launch), ..LogQuery::default() };
            let page =
                LogReader::new(self.data.path().to_owned()).page(&self.job, &self.task, &query).unwrap();
            page.lines.into_iter().map(|line| (line.n, line.rank, line.text)).collect()
        }
    }

    #[test]
    fn lines_are_told_apart_by_launch_and_rank() {
        let dir = Dir::new();
        let mut log = dir.open();
        let text = printed(
            1,
            &[
                "[holdfast-agent] 2026-11-30T04:00:00Z  INFO launch 0 starts",
                "[holdfast-agent] launch 0",
                "[rank0]: one",
                "[rank3]: two",
                "[holdfast-agent] launch 1",
                "[rank0]: three",
            ],
        );
        assert_eq!(log.take(text.as_bytes()).unwrap(), text.len());
        assert_eq!(dir.lines(0), [(1, Some(0), "one".to_owned()), (2, Some(3), "two".to_owned())]);
        assert_eq!(dir.lines(1), [(1, Some(0), "three".to_owned())]);
    }

    #[test]
    fn what_comes_again_is_kept_once_also_by_the_next_server() {
        let dir = Dir::new();
        let all = ["[holdfast-agent] launch 0", "[rank0]: 1", "[rank0]: 2", "[rank0]: 3", "[rank0]: 4"];
        let mut log = dir.open();
        assert_eq!(log.since(), None);
        log.take(printed(1, &all[..3]).as_bytes()).unwrap();
        log.take(printed(1, &all[..4]).as_bytes()).unwrap();
        let mut log = dir.open();
        assert_eq!(log.since().unwrap().to_rfc3339(), "2026-11-30T04:00:00.004+00:00");
        log.take(printed(1, &all).as_bytes()).unwrap();
        let kept: Vec<_> = dir.lines(0).into_iter().map(|(_, _, text)| text).collect();
        assert_eq!(kept, ["1", "2", "3", "4"]);
    }

    #[test]
    fn a_server_that_died_before_it_remembered_keeps_no_line_twice() {
        let dir = Dir::new();
        let mut log = dir.open();
        log.take(printed(1, &["[holdfast-agent] launch 0", "[rank0]: 1"]).as_bytes()).unwrap();
        // Written, and the server died before it was remembered.
        let file = log.path(1);
        let mut torn = fs::read(&file).unwrap();
        torn.extend_from_slice(b"1 0 o 2\n1 0 o 3");
        fs::write(&file, torn).unwrap();
        let mut log = dir.open();
        log.take(printed(3, &["[rank0]: 2", "[rank0]: 3"]).as_bytes()).unwrap();
        let kept: Vec<_> = dir.lines(0).into_iter().map(|(n, _, text)| (n, text)).collect();
        assert_eq!(kept, [(1, "1".to_owned()), (2, "2".to_owned()), (3, "3".to_owned())]);
    }

    #[test]
    fn an_unfinished_line_waits_for_its_end() {
        let dir = Dir::new();
        let mut log = dir.open();
        let text = printed(1, &["[rank0]: whole", "[rank0]: half"]);
        let cut = text.len() - 3;
        let taken = log.take(&text.as_bytes()[..cut]).unwrap();
        assert_eq!(&text[..taken], printed(1, &["[rank0]: whole"]));
        log.take(&text.as_bytes()[taken..]).unwrap();
        assert_eq!(dir.lines(0), [(1, Some(0), "whole".to_owned()), (2, Some(0), "half".to_owned())]);
    }

    #[test]
    fn numbers_go_on_after_lines_that_were_left_out() {
        let dir = Dir::new();
        let mut log = dir.open();
        let lines = [
            "[holdfast-agent] launch 2",
            "[rank0]: a",
            "[holdfast-agent] 7 lines were not repeated here",
            "[rank0]: b",
        ];
        log.take(printed(1, &lines).as_bytes()).unwrap();
        let numbers: Vec<_> = dir.lines(2).into_iter().map(|(n, _, _)| n).collect();
        assert_eq!(numbers, [1, 9]);
    }

    #[test]
    fn a_long_log_loses_its_middle() {
        let dir = Dir::new();
        let mut log = dir.open();
        log.segment_bytes = 10_000;
        let (line, each) = ("x".repeat(900), 10);
        for part in 0..(SEGMENTS + 2) as u32 {
            let mut text = String::new();
            for n in 0..each {
                let at = part * each + n;
                writeln!(
                    text,
                    "2026-11-30T{:02}:{:02}:{:02}Z [rank0]: {line}",
                    at / 3600,
                    at / 60 % 60,
                    at % 60
                )
                .unwrap();
            }
            log.take(text.as_bytes()).unwrap();
        }
        let files = fs::read_dir(&log.dir).unwrap().count();
        assert_eq!(files, SEGMENTS + 1, "the files of the launch and what is remembered");
        let numbers: Vec<_> = dir.lines(0).into_iter().map(|(n, _, _)| n).collect();
        assert_eq!((numbers[0], *numbers.last().unwrap()), (1, u64::from((SEGMENTS as u32 + 2) * each)));
    }
}
