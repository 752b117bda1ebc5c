//! Reads the logs that agents keep: `launch-<n>.log` and its continuations `launch-<n>.<first line>.log`, each line
//! `<microseconds> <rank> <o|e> <text>`; lines are numbered from 1 through all files of a launch.
//!
//! Files whose lines cannot be on the page are passed over by their names: the last lines are looked for in the newest file first.

mod files;
pub mod keep;
mod line;
pub mod sweep;
mod whole;

use std::{collections::VecDeque, io, path::PathBuf};

use app::console::{LogLevel, LogLine, LogPage, LogQuery};
use engine::ids::{JobId, ReplicaName, TaskId};

pub use self::whole::WholeLog;
use self::{
    files::{Position, Segment, end_of, launches, read, replicas, segments},
    line::parse,
};

/// Lines of a page.
pub const MAX_LINES: u32 = 5000;
/// Lines of a page where the query does not say.
pub const DEFAULT_LINES: u32 = 200;
/// Characters of a search text.
pub const MAX_QUERY_CHARS: usize = 200;
/// Bytes of a page; a page of long lines ends early and goes on at `next`.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of one line that are shown.
const MAX_LINE_BYTES: usize = 64 * 1024 + 64;

/// Why a log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// There is no log of that replica and launch.
    #[error("there is no log of {}", .0.what)]
    NotFound(Missing),
    /// The files could not be read.
    #[error("could not read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A log that is not there.
#[derive(Debug)]
pub struct Missing {
    /// The replica, or the launch.
    pub what: String,
    /// Replicas that have a directory for their logs.
    pub replicas: Vec<ReplicaName>,
    /// Launches that printed something on the replica that was asked for.
    pub launches: Vec<u32>,
}

/// Finds and reads logs below the data directory.
#[derive(Clone, Debug)]
pub struct LogReader {
    data_dir: PathBuf,
}

impl LogReader {
    /// A reader of the logs below the server's data directory.
    pub fn new(data_dir: PathBuf) -> Self {
        Self { data_dir }
    }

    /// A page of a log; reads files, so call it where blocking is allowed.
    ///
    /// # Errors
    /// Where there is no such log, or it cannot be read.
    pub fn page(&self, job: &JobId, task: &TaskId, query: &LogQuery) -> Result<LogPage, LogError> {
        let Chosen { dir, replica, replicas, launch, launches } =
            self.choose(job, task, query.replica.as_ref(), query.launch)?;
        let segments = segments(&dir, launch)?;
        let filter = Filter::of(query);
        let mut page = match query.from {
            Some(from) => forward(&segments, from.max(1), query.tail.unwrap_or(DEFAULT_LINES), &filter)?,
            None => last(&segments, query.tail.unwrap_or(DEFAULT_LINES), &filter)?,
        };
        page.lines
            .iter_mut()
            .for_each(|line| line.text.truncate(line.text.floor_char_boundary(MAX_LINE_BYTES)));
        Ok(LogPage {
            replica,
            launch,
            replicas,
            launches,
            lines: page.lines,
            next: Some(page.next),
            total: page.total,
        })
    }

    /// The first replica and the newest launch where none is named.
    fn choose(
        &self,
        job: &JobId,
        task: &TaskId,
        replica: Option<&ReplicaName>,
        launch: Option<u32>,
    ) -> Result<Chosen, LogError> {
        let missing = |what: String, replicas: Vec<ReplicaName>, launches: Vec<u32>| {
            LogError::NotFound(Missing { what, replicas, launches })
        };
        let dir = self.data_dir.join("jobs").join(job.as_str()).join(task.as_str());
        let replicas = replicas(&dir)?;
        let replica = match (replica, replicas.first()) {
            (Some(wanted), _) if replicas.contains(wanted) => wanted.clone(),
            (Some(wanted), _) => return Err(missing(format!("replica {wanted}"), replicas, Vec::new())),
            (None, Some(first)) => first.clone(),
            (None, None) => return Err(missing(format!("attempt {task}"), replicas, Vec::new())),
        };
        let dir = dir.join(replica.as_str());
        let launches = launches(&dir)?;
        let launch = match (launch, launches.last()) {
            (Some(wanted), _) if launches.contains(&wanted) => wanted,
            (Some(wanted), _) => {
                return Err(missing(format!("launch {wanted} of {replica}"), replicas, launches));
            }
            (None, Some(newest)) => *newest,
            (None, None) => return Err(missing(format!("replica {replica}"), replicas, launches)),
        };
        Ok(Chosen { dir, replica, replicas, launch, launches })
    }
}

/// A log that was asked for, and what could be asked for beside it.
struct Chosen {
    dir: PathBuf,
    replica: ReplicaName,
    replicas: Vec<ReplicaName>,
    launch: u32,
    launches: Vec<u32>,
}

/// Lines with where to go on.
struct Lines {
    lines: Vec<LogLine>,
    next: u64,
    total: Option<u64>,
}

struct Filter {
    level: Option<LogLevel>,
    text: Option<String>,
}

impl Filter {
    fn of(query: &LogQuery) -> Self {
        let text = query
            .q
            .as_deref()
            .map(|text| text.chars().take(MAX_QUERY_CHARS).collect::<String>().to_lowercase());
        Self {
            level: query.level.filter(|level| *level > LogLevel::Info),
            text: text.filter(|text| !text.is_empty()),
        }
    }

    fn takes_all(&self) -> bool {
        self.level.is_none() && self.text.is_none()
    }

    fn takes(&self, line: &LogLine) -> bool {
        self.level.is_none_or(|level| line.level >= level)
            && self.text.as_ref().is_none_or(|text| line.text.to_lowercase().contains(text))
    }
}

/// `count` lines from number `from` on.
fn forward(segments: &[Segment], from: u64, count: u32, filter: &Filter) -> Result<Lines, LogError> {
    let count = count.clamp(1, MAX_LINES) as usize;
    let mut lines = Vec::new();
    let mut bytes = 0;
    let mut next = from;
    let begin = segments.partition_point(|segment| segment.first_line <= from).saturating_sub(1);
    for segment in &segments[begin.min(segments.len())..] {
        next = next.max(segment.first_line);
        read(segment, Position::start_of(segment), |raw| {
            if raw.n < next {
                return true;
            }
            if lines.len() >= count || bytes >= MAX_PAGE_BYTES {
                return false;
            }
            next = raw.n + 1;
            let line = parse(&raw);
            if filter.takes(&line) {
                bytes += line.text.len();
                lines.push(line);
            }
            true
        })?;
        if lines.len() >= count || bytes >= MAX_PAGE_BYTES {
            break;
        }
    }
    let to_the_end = lines.len() < count && bytes < MAX_PAGE_BYTES;
    // Whoever begins beyond the end learns nothing about where it is.
    let total = (to_the_end && filter.takes_all()).then(|| lines.last().map(|line| line.n)).flatten();
    Ok(Lines { lines, next, total })
}

/// The last `count` lines.
fn last(segments: &[Segment], count: u32, filter: &Filter) -> Result<Lines, LogError> {
    let count = count.clamp(1, MAX_LINES) as usize;
    let mut found: Vec<Vec<LogLine>> = Vec::new();
    let mut next = 1;
    let mut have = 0;
    let mut bytes = 0;
    for (index, segment) in segments.iter().enumerate().rev() {
        let mut ring = VecDeque::new();
        // Without a filter only the end of a file has to be parsed, and finding it costs no more than counting line ends.
        let begin =
            if filter.takes_all() { end_of(segment, count - have)? } else { Position::start_of(segment) };
        let mut end = begin.line;
        read(segment, begin, |raw| {
            end = raw.n + 1;
            let line = parse(&raw);
            if filter.takes(&line) {
                bytes += line.text.len();
                ring.push_back(line);
                while ring.len() + have > count || bytes > MAX_PAGE_BYTES && ring.len() > 1 {
                    bytes -= ring.pop_front().map_or(0, |line: LogLine| line.text.len());
                }
            }
            true
        })?;
        if index + 1 == segments.len() {
            next = end;
        }
        have += ring.len();
        found.push(ring.into());
        if have >= count || bytes >= MAX_PAGE_BYTES {
            break;
        }
    }
    let lines = found.into_iter().rev().flatten().collect();
    Ok(Lines { lines, next, total: filter.takes_all().then_some(next - 1) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use engine::time::Time;

    use super::*;

    pub(super) struct Logs {
        pub(super) dir: tempfile::TempDir,
        pub(super) job: JobId,
        pub(super) task: TaskId,
    }

    impl Logs {
        pub(super) fn new() -> Self {
            let job = JobId::new("jabcdefghij2").unwrap();
            let task = TaskId::of_attempt("demo", &job, 1);
            Self { dir: tempfile::tempdir().unwrap(), job, task }
        }

        pub(super) fn write(&self, replica: &str, file: &str, lines: &[&str]) {
            let dir =
                self.dir.path().join("jobs").join(self.job.as_str()).join(self.task.as_str()).join(replica);
            fs::create_dir_all(&dir).unwrap();
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            fs::write(dir.join(file), text).unwrap();
        }

        pub(super) fn file(&self, replica: &str, file: &str) -> PathBuf {
            let task = self.dir.path().join("jobs").join(self.job.as_str()).join(self.task.as_str());
            task.join(replica).join(file)
        }

        fn page(&self, query: &LogQuery) -> Result<LogPage, LogError> {
            LogReader::new(self.dir.path().to_owned()).page(&self.job, &self.task, query)
        }

        fn numbers(&self, query: &LogQuery) -> Vec<u64> {
            self.page(query).unwrap().lines.iter().map(|line| line.n).collect()
        }
    }

    pub(super) fn ten() -> Logs {
        let logs = Logs::new();
        let line = |n: u64| format!("{n}000000 0 o line {n}");
        let first: Vec<String> = (1..=4).map(line).collect();
        let second: Vec<String> = (7..=10).map(line).collect();
        logs.write("master-0", "launch-0.log", &first.iter().map(String::as_str).collect::<Vec<_>>());
        // Lines 5 and 6 were dropped.
        logs.write(
            "master-0",
            "launch-0.000000000007.log",
            &second.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        logs
    }

    #[test]
    fn a_line_keeps_its_number_time_rank_and_text() {
        let logs = ten();
        let page = logs.page(&LogQuery { from: Some(7), tail: Some(1), ..LogQuery::default() }).unwrap();
        let line = LogLine {
            n: 7,
            at: Time(7_000_000),
            rank: Some(0),
            level: LogLevel::Info,
            text: "line 7".into(),
        };
        assert_eq!((page.lines, page.next), (vec![line], Some(8)));
    }

    #[test]
    fn pages_go_through_all_files_and_past_what_was_dropped() {
        let logs = ten();
        let query = |from, tail| LogQuery { from: Some(from), tail: Some(tail), ..LogQuery::default() };
        assert_eq!(logs.numbers(&query(1, 3)), [1, 2, 3]);
        assert_eq!(logs.numbers(&query(4, 3)), [4, 7, 8]);
        assert_eq!(logs.numbers(&query(5, 2)), [7, 8]);
        assert_eq!(logs.numbers(&query(11, 2)), Vec::<u64>::new());
        assert_eq!(logs.page(&query(11, 2)).unwrap().next, Some(11));
    }

    #[test]
    fn the_tail_is_the_end_in_order() {
        let logs = ten();
        let query = |tail| LogQuery { tail: Some(tail), ..LogQuery::default() };
        assert_eq!(logs.numbers(&query(2)), [9, 10]);
        assert_eq!(logs.numbers(&query(6)), [3, 4, 7, 8, 9, 10]);
        assert_eq!(logs.numbers(&query(100)).len(), 8);
        assert_eq!(logs.page(&query(2)).unwrap().total, Some(10));
    }

    #[test]
    fn the_end_of_the_log_is_known_once_it_is_reached() {
        let total = |from, tail| {
            ten().page(&LogQuery { from: Some(from), tail, ..LogQuery::default() }).unwrap().total
        };
        assert_eq!((total(8, None), total(8, Some(2)), total(99, None)), (Some(10), None, None));
    }

    #[test]
    fn search_and_level_read_the_whole_log() {
        let logs = Logs::new();
        logs.write(
            "worker-0",
            "launch-0.log",
            &[
                "1 3 o all well",
                "2 3 e WARNING: slow",
                "3 3 e ValueError: bad <b>",
                "4 3 o error rates fall",
                "5 3 o \u{1b}[31mred\u{1b}[0m",
            ],
        );
        let level = |level| LogQuery { level: Some(level), ..LogQuery::default() };
        assert_eq!(logs.numbers(&level(LogLevel::Warning)), [2, 3, 4]);
        assert_eq!(logs.numbers(&level(LogLevel::Error)), [3, 4]);
        assert_eq!(logs.numbers(&LogQuery { q: Some("VALUEERROR".into()), ..LogQuery::default() }), [3]);
        let page = logs.page(&LogQuery { q: Some("red".into()), ..LogQuery::default() }).unwrap();
        assert_eq!((page.lines[0].text.as_str(), page.replica.as_str()), ("red", "worker-0"));
    }

    #[test]
    fn a_long_line_of_bytes_that_are_no_text_is_cut_between_characters() {
        let logs = Logs::new();
        logs.write("master-0", "launch-0.log", &["1 0 o first"]);
        let path = logs.file("master-0", "launch-0.log");
        let line = [b"2 0 o ".as_slice(), &[0xff; 64 * 1024], b"\n"].concat();
        fs::write(&path, line).unwrap();
        let text = logs.page(&LogQuery::default()).unwrap().lines[0].text.clone();
        assert!(text.len() <= MAX_LINE_BYTES && text.chars().all(|c| c == char::REPLACEMENT_CHARACTER));
    }

    #[test]
    fn a_line_that_is_being_written_is_left_for_later() {
        let logs = Logs::new();
        logs.write("master-0", "launch-0.log", &["1 0 o whole"]);
        let path = logs
            .dir
            .path()
            .join("jobs")
            .join(logs.job.as_str())
            .join(logs.task.as_str())
            .join("master-0/launch-0.log");
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"2 0 o par");
        fs::write(&path, text).unwrap();
        assert_eq!(logs.numbers(&LogQuery::default()), [1]);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let logs = ten();
        for (query, want) in [
            (LogQuery { launch: Some(3), ..LogQuery::default() }, "launch 3 of master-0"),
            (
                LogQuery { replica: Some(ReplicaName::new("worker-7").unwrap()), ..LogQuery::default() },
                "replica worker-7",
            ),
        ] {
            assert!(logs.page(&query).unwrap_err().to_string().ends_with(want));
        }
        assert!(Logs::new().page(&LogQuery::default()).is_err());
    }
}
