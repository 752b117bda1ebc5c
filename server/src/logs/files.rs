//! The files of a log: which there are, and reading one of them from a position on.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use engine::ids::ReplicaName;

use super::{LogError, MAX_LINE_BYTES, line::Raw};

/// Launches that are listed.
const MAX_LAUNCHES: usize = 2000;

/// A file of a log.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) first_line: u64,
    pub(super) path: PathBuf,
}

/// Where a line begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// The number of the line.
    pub(super) line: u64,
    /// Its first byte in the file.
    pub(super) offset: u64,
}

impl Position {
    pub(super) fn start_of(segment: &Segment) -> Self {
        Self { line: segment.first_line, offset: 0 }
    }
}

/// Where the last `count` whole lines of a file begin.
pub(super) fn end_of(segment: &Segment, count: usize) -> Result<Position, LogError> {
    let Some(mut reader) = open(segment, 0)? else { return Ok(Position::start_of(segment)) };
    let mut begins = VecDeque::from([Position::start_of(segment)]);
    let mut offset = 0;
    let mut line = segment.first_line;
    loop {
        let chunk = reader.fill_buf().map_err(|source| failed(segment, source))?;
        if chunk.is_empty() {
            break;
        }
        for end in memchr::memchr_iter(b'\n', chunk) {
            line += 1;
            begins.push_back(Position { line, offset: offset + end as u64 + 1 });
            // One more than is wanted: the last one begins a line that is not there yet.
            if begins.len() > count + 1 {
                begins.pop_front();
            }
        }
        let read = chunk.len();
        offset += read as u64;
        reader.consume(read);
    }
    Ok(begins[0])
}

pub(super) fn failed(segment: &Segment, source: io::Error) -> LogError {
    LogError::Read { path: segment.path.clone(), source }
}

/// The file from an offset on; none where it was rotated away since the directory was listed.
pub(super) fn open(segment: &Segment, offset: u64) -> Result<Option<BufReader<File>>, LogError> {
    let mut file = match File::open(&segment.path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|source| failed(segment, source))?,
    };
    file.seek(SeekFrom::Start(offset)).map_err(|source| failed(segment, source))?;
    Ok(Some(BufReader::with_capacity(1 << 18, file)))
}

/// Hands every whole line of a file from a position on to `take` until it says no. The last line of a file that is being written may
/// lack its end; it is left for the next reading.
pub(super) fn read(
    segment: &Segment,
    begin: Position,
    mut take: impl FnMut(Raw<'_>) -> bool,
) -> Result<(), LogError> {
    let Some(mut reader) = open(segment, begin.offset)? else { return Ok(()) };
    let mut bytes = Vec::new();
    let mut n = begin.line;
    loop {
        bytes.clear();
        // The agent cuts lines; the limit guards against a file that is not its own.
        let read = reader
            .by_ref()
            .take(2 * MAX_LINE_BYTES as u64)
            .read_until(b'\n', &mut bytes)
            .map_err(|source| failed(segment, source))?;
        if read == 0 || bytes.last() != Some(&b'\n') {
            return Ok(());
        }
        bytes.pop();
        if !take(Raw { n, bytes: &bytes }) {
            return Ok(());
        }
        n += 1;
    }
}

fn list(dir: &Path) -> Result<Vec<String>, LogError> {
    let failed = |source| LogError::Read { path: dir.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Replicas there are directories of, the first replica first.
pub(super) fn replicas(dir: &Path) -> Result<Vec<ReplicaName>, LogError> {
    let mut replicas: Vec<ReplicaName> = list(dir)?
        .into_iter()
        .filter(|name| dir.join(name).is_dir())
        .filter_map(|name| ReplicaName::new(name).ok())
        .collect();
    replicas.sort_by_key(|name| {
        let (role, index) = name.as_str().rsplit_once('-').unwrap_or((name.as_str(), ""));
        (role == "worker", role.to_owned(), index.parse::<u32>().unwrap_or(u32::MAX))
    });
    Ok(replicas)
}

/// `launch-<n>.log` or `launch-<n>.<first>.log`: the launch and the number of the first line.
fn file_of(name: &str) -> Option<(u32, u64)> {
    let rest = name.strip_prefix("launch-")?.strip_suffix(".log")?;
    match rest.split_once('.') {
        None => Some((rest.parse().ok()?, 1)),
        Some((launch, first)) => Some((launch.parse().ok()?, first.parse().ok()?)),
    }
}

pub(super) fn launches(dir: &Path) -> Result<Vec<u32>, LogError> {
    let mut launches: Vec<u32> = list(dir)?.iter().filter_map(|name| Some(file_of(name)?.0)).collect();
    launches.sort_unstable();
    launches.dedup();
    let surplus = launches.len().saturating_sub(MAX_LAUNCHES);
    Ok(launches.split_off(surplus))
}

pub(super) fn segments(dir: &Path, launch: u32) -> Result<Vec<Segment>, LogError> {
    let mut segments: Vec<Segment> = list(dir)?
        .iter()
        .filter_map(|name| Some((file_of(name)?, name)))
        .filter(|((of, _), _)| *of == launch)
        .map(|((_, first_line), name)| Segment { first_line, path: dir.join(name) })
        .collect();
    segments.sort_by_key(|segment| segment.first_line);
    Ok(segments)
}
