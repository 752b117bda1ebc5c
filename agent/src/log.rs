//! The kept output of one launch.
//!
//! # Format
//! All ranks of the replica share one log. Each line is
//!
//! ```text
//! <microseconds since 1970-01-01 UTC> <rank> <o|e> <text>\n
//! ```
//!
//! `o` is standard output, `e` standard error. The text is what the program printed, as bytes: read it as lossy UTF-8.
//! One that was longer than [`MAX_LINE_BYTES`](crate::lines::MAX_LINE_BYTES) ends with ` [N bytes cut]`.
//!
//! The log begins in `launch-<n>.log` and goes on in `launch-<n>.<first>.log`, where `<first>` is the number of the
//! file's first line, in 12 digits, so that names sort. Lines are numbered from 1 through all files; line `n` of
//! evidence is line `n - first + 1` of the file with the greatest `first` ≤ `n`. Numbers that no file has were dropped: at the
//! limit the oldest file after the first quarter goes, so that the beginning and the end stay, or the disk was full.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

use engine::time::Time;

use crate::lines::Line;

/// Files a full log consists of.
const SEGMENTS: u64 = 16;
/// Of these the first ones are never dropped.
const KEPT_SEGMENTS: usize = 4;
/// Bytes gathered before they are written; a round of reading ends with a write anyway.
const BUFFER_BYTES: usize = 256 * 1024;
/// After a failed write the next try.
const RETRY: Duration = Duration::from_secs(1);

/// Which output of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Where and how much is kept.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory.
    pub dir: PathBuf,
    /// The launch.
    pub launch: u32,
    /// Bytes kept at most.
    pub limit: u64,
}

impl Place {
    fn path(&self, first_line: u64) -> PathBuf {
        let launch = self.launch;
        self.dir.join(if first_line == 1 {
            format!("launch-{launch}.log")
        } else {
            format!("launch-{launch}.{first_line:012}.log")
        })
    }
}

#[derive(Debug)]
struct Segment {
    file: File,
    bytes: u64,
}

/// Writes the log of one launch. A disk that is full costs lines, never the training.
#[derive(Debug)]
pub struct Log {
    place: Place,
    buffer: Vec<u8>,
    /// Number of the first line in the buffer.
    buffered_from: u64,
    next_line: u64,
    current: Option<Segment>,
    /// First lines of all files there are, oldest first.
    segments: VecDeque<u64>,
    retry_at: Option<Instant>,
    losses: Losses,
}

/// What was said already; each kind of loss is reported once a launch.
#[derive(Debug, Default)]
struct Losses {
    limit: bool,
    write: bool,
    news: Option<String>,
}

impl Log {
    /// A log that writes its first file with its first line.
    pub fn new(place: Place) -> Self {
        Self {
            place,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            buffered_from: 1,
            next_line: 1,
            current: None,
            segments: VecDeque::new(),
            retry_at: None,
            losses: Losses::default(),
        }
    }

    /// Keeps a line and gives its number.
    pub fn keep(&mut self, head: &[u8], line: Line<'_>) -> u64 {
        self.buffer.extend_from_slice(head);
        line.write_to(&mut self.buffer);
        let number = self.next_line;
        self.next_line += 1;
        if self.buffer.len() >= BUFFER_BYTES.min(self.segment_bytes()) {
            self.flush();
        }
        number
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        if self.retry_at.is_none_or(|at| Instant::now() >= at)
            && let Err(why) = self.write()
        {
            // What is in the file ends with a whole line; the next file says where the numbers go on.
            self.current = None;
            self.retry_at = Some(Instant::now() + RETRY);
            if !self.losses.write {
                self.losses.write = true;
                self.losses.news = Some(format!(
                    "output from line {} on is not kept until {} can be written again: {why}",
                    self.buffered_from,
                    self.place.dir.display()
                ));
            }
        }
        self.buffer.clear();
        self.buffered_from = self.next_line;
    }

    /// What was lost since the last call, in words.
    pub fn take_loss(&mut self) -> Option<String> {
        self.losses.news.take()
    }

    fn segment_bytes(&self) -> usize {
        usize::try_from(self.place.limit / SEGMENTS).unwrap_or(usize::MAX)
    }

    fn write(&mut self) -> io::Result<()> {
        let room = self.segment_bytes() as u64;
        if self.current.as_ref().is_some_and(|s| s.bytes + self.buffer.len() as u64 > room) {
            self.current = None;
        }
        let mut segment = match self.current.take() {
            Some(segment) => segment,
            None => self.begin_segment()?,
        };
        if let Err(why) = segment.file.write_all(&self.buffer) {
            // Leave whole lines, and no empty file for each try on a full disk.
            if segment.bytes == 0 {
                self.segments.pop_back();
                fs::remove_file(self.place.path(self.buffered_from))?;
            } else {
                segment.file.set_len(segment.bytes)?;
            }
            return Err(why);
        }
        segment.bytes += self.buffer.len() as u64;
        self.current = Some(segment);
        self.retry_at = None;
        Ok(())
    }

    fn begin_segment(&mut self) -> io::Result<Segment> {
        let first = self.buffered_from;
        let file = OpenOptions::new().create(true).write(true).truncate(true).open(self.place.path(first))?;
        self.segments.push_back(first);
        if self.segments.len() as u64 > SEGMENTS
            && let Some(oldest) = self.segments.remove(KEPT_SEGMENTS)
        {
            fs::remove_file(self.place.path(oldest))?;
            if !self.losses.limit {
                self.losses.limit = true;
                self.losses.news = Some(format!(
                    "the log has reached its limit of {} bytes: lines from {oldest} on are dropped, the oldest first; \
                     the beginning and the end stay",
                    self.place.limit
                ));
            }
        }
        Ok(Segment { file, bytes: 0 })
    }
}

/// What stands before each line of a stream that is read at one time.
pub fn head(at: Time, rank: u32, stream: Stream) -> String {
    format!("{} {rank} {} ", at.micros(), if stream == Stream::Out { 'o' } else { 'e' })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &[u8]) -> Line<'_> {
        Line { text, cut: 0 }
    }

    #[test]
    fn a_line_reads_as_the_format_says() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::new(Place { dir: dir.path().to_owned(), launch: 3, limit: 1 << 20 });
        let head = head(Time(17), 2, Stream::Err);
        assert_eq!(log.keep(head.as_bytes(), line(b"boom \xff")), 1);
        assert_eq!(log.keep(head.as_bytes(), Line { text: b"long", cut: 9 }), 2);
        log.flush();
        let text = fs::read(dir.path().join("launch-3.log")).unwrap();
        assert_eq!(text, b"17 2 e boom \xff\n17 2 e long [9 bytes cut]\n");
    }

    #[test]
    fn a_full_log_keeps_its_beginning_and_its_end_and_the_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let limit = 1 << 20;
        let mut log = Log::new(Place { dir: dir.path().to_owned(), launch: 0, limit });
        let last = 40_000u64;
        for number in 1..=last {
            assert_eq!(log.keep(b"1 0 o ", line(format!("{number:060}").as_bytes())), number);
        }
        log.flush();
        let said = log.take_loss().unwrap();
        assert!(said.contains("1048576 bytes"), "{said}");
        assert_eq!(log.take_loss(), None);

        let mut names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let mut total = 0;
        for name in &names {
            let text = fs::read_to_string(dir.path().join(name)).unwrap();
            total += text.len() as u64;
            let first = name.split('.').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(1);
            for (index, line) in text.lines().enumerate() {
                assert_eq!(line, format!("1 0 o {:060}", first + index as u64), "{name}");
            }
        }
        assert!(total <= limit + limit / 8, "{total}");
        assert!(names.contains(&"launch-0.log".to_owned()), "{names:?}");
        let newest = fs::read_to_string(dir.path().join(&names[names.len() - 2])).unwrap();
        assert!(newest.ends_with(&format!("{last:060}\n")), "{names:?}");
    }

    #[test]
    fn a_disk_that_comes_back_goes_on_with_the_right_number() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("logs");
        let mut log = Log::new(Place { dir: dir.clone(), launch: 0, limit: 1 << 20 });
        log.keep(b"", line(b"lost"));
        log.flush();
        assert!(log.take_loss().unwrap().contains("from line 1 on"));
        fs::create_dir(&dir).unwrap();
        log.retry_at = None; // a second later
        log.keep(b"", line(b"kept"));
        log.flush();
        assert_eq!(fs::read_to_string(dir.join("launch-0.000000000002.log")).unwrap(), "kept\n");
    }
}
