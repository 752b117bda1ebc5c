//! Frames and stacks in the forms that are compared and shown. Names come out of the program's memory: they may hold anything,
//! and be of any length.

use engine::sync::{
    RankStack, StackKey, ThreadStack,
    watch_limits::{FRAME_BYTES, FRAMES, KEY_FRAMES, THREADS},
};

/// Directories of which what follows says which module it is.
const ROOTS: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Parts of a path that are shown where nothing says what its root is.
const PARTS: usize = 3;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// `all_reduce (torch/distributed/distributed_c10d.py)`, bounded and printable.
    pub function: String,
    /// The line it is at, where it is known.
    pub line: Option<u32>,
}

impl Frame {
    /// From the names in the program's memory.
    pub fn new(name: &str, file: &str, line: Option<u32>) -> Self {
        let name = bounded(name, FRAME_BYTES / 2 - 16);
        let file = shortened(file);
        // The end of a path says more than its beginning.
        let file = bounded_end(&file, FRAME_BYTES / 2 - 16);
        Self { function: format!("{name} ({file})"), line }
    }

    /// With its line.
    fn words(&self) -> String {
        match (self.line, self.function.strip_suffix(')')) {
            (Some(line), Some(open)) => format!("{open}:{line})"),
            _ => self.function.clone(),
        }
    }
}

/// One thread of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its id in the kernel, or where that is not known Python's.
    pub id: u64,
    /// Its name.
    pub name: Option<String>,
    /// Its frames, the innermost first.
    pub frames: Vec<Frame>,
}

/// Printable and not longer than so many bytes: control characters, and what turns the direction of text, are replaced.
pub fn bounded(text: &str, bytes: usize) -> String {
    let mut out = String::with_capacity(text.len().min(bytes));
    for shown in text.chars().map(printable) {
        if out.len() + shown.len_utf8() > bytes {
            break;
        }
        out.push(shown);
    }
    out
}

fn bounded_end(text: &str, bytes: usize) -> String {
    let mut start = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    bounded(&text[start..], bytes)
}

fn printable(c: char) -> char {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}');
    if c.is_control() || turns { '\u{fffd}' } else { c }
}

/// A path as the module that it is: without the directory of the installation, which may differ between nodes.
fn shortened(path: &str) -> String {
    if let Some(module) =
        ROOTS.iter().filter_map(|root| path.rsplit_once(root)).map(|(_, rest)| rest).min_by_key(|m| m.len())
    {
        return module.to_owned();
    }
    if let Some((_, rest)) = path.rsplit_once("/lib/python")
        && let Some((version, module)) = rest.split_once('/')
        && version.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    {
        return module.to_owned();
    }
    let mut parts: Vec<&str> = path.rsplit('/').filter(|part| !part.is_empty()).take(PARTS).collect();
    parts.reverse();
    parts.join("/")
}

/// The same for all processes that are in the same functions: FNV-1a, 64 bits, which no version of anything changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(u64);

impl Hash {
    /// Of nothing.
    pub const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Of the functions of a thread.
    pub fn of(frames: &[Frame]) -> Self {
        let mut hash = Self::EMPTY;
        for frame in frames {
            hash.add(frame.function.as_bytes());
            hash.add(b"\n");
        }
        hash
    }

    /// Of all threads, in whatever order they come.
    pub fn of_all<'a>(threads: impl IntoIterator<Item = &'a Thread>) -> Self {
        let mut hashes: Vec<u64> = threads.into_iter().map(|thread| Self::of(&thread.frames).0).collect();
        hashes.sort_unstable();
        let mut hash = Self::EMPTY;
        for one in hashes {
            hash.add(&one.to_le_bytes());
        }
        hash
    }
}

/// The key of a thread's stack.
pub fn key(frames: &[Frame]) -> StackKey {
    let top = frames.iter().take(KEY_FRAMES).map(|frame| frame.function.clone()).collect();
    StackKey { hash: format!("{:016x}", Hash::of(frames).0), top }
}

/// What of the threads is shown: the first ones, the innermost frames of each, and not more than so many bytes in all.
pub fn shown(threads: &[Thread], bytes: usize) -> (Vec<ThreadStack>, u32) {
    let mut left = bytes;
    let mut shown = Vec::new();
    for thread in threads.iter().take(THREADS) {
        let name = thread.name.as_deref().map(|name| bounded(name, FRAME_BYTES));
        let Some(room) = left.checked_sub(name.as_ref().map_or(0, String::len)) else { break };
        left = room;
        let mut frames = Vec::new();
        for frame in thread.frames.iter().take(FRAMES) {
            let words = frame.words();
            let Some(room) = left.checked_sub(words.len()) else { break };
            left = room;
            frames.push(words);
        }
        if frames.is_empty() && !thread.frames.is_empty() {
            break;
        }
        let omitted_frames = (thread.frames.len() - frames.len()) as u32;
        shown.push(ThreadStack { id: thread.id, name, frames, omitted_frames });
    }
    let omitted = (threads.len() - shown.len()) as u32;
    (shown, omitted)
}

/// Bytes of a report that these stacks take.
pub fn size(stack: &RankStack) -> usize {
    let texts = stack.threads.iter().flat_map(|thread| thread.name.iter().chain(&thread.frames));
    texts.map(String::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, line: u32) -> Frame {
        Frame::new(name, "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", Some(line))
    }

    fn thread(id: u64, depth: u32) -> Thread {
        let frames = (0..depth).map(|n| frame(&format!("f{n}"), n)).collect();
        Thread { id, name: Some(format!("thread-{id}")), frames }
    }

    #[test]
    fn a_path_is_shown_as_its_module() {
        for (path, want) in [
            (
                "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py",
                "torch/nn/modules/module.py",
            ),
            ("/usr/lib/python3/dist-packages/numpy/core/multiarray.py", "numpy/core/multiarray.py"),
            ("/usr/lib/python3.12/threading.py", "threading.py"),
            ("/home/a/b/c/project/train/loop.py", "project/train/loop.py"),
            ("train.py", "train.py"),
            ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
            ("", ""),
        ] {
            assert_eq!(shortened(path), want);
        }
    }

    #[test]
    fn hostile_names_are_printable_and_short() {
        let name = "x\u{1b}[31m\n\r\0\u{202e}".repeat(1000);
        let file = format!("/site-packages/{}/é.py", "é".repeat(5000));
        let words = Frame::new(&name, &file, Some(u32::MAX)).words();
        assert!(words.len() <= FRAME_BYTES, "{}", words.len());
        assert!(!words.chars().any(|c| c.is_control() || c == '\u{202e}'), "{words:?}");
        assert!(words.ends_with("é.py:4294967295)"), "{words}");
        assert_eq!(bounded("é", 1), "");
    }

    #[test]
    fn the_same_functions_have_one_key_whatever_their_lines() {
        let (one, other) = ([frame("step", 1), frame("main", 2)], [frame("step", 7), frame("main", 2)]);
        assert_eq!(key(&one), key(&other));
        assert_ne!(key(&one).hash, key(&one[..1]).hash);
        assert_eq!(key(&one).top, ["step (torch/nn/modules/module.py)", "main (torch/nn/modules/module.py)"]);
        let (a, b) = (thread(1, 3), thread(2, 5));
        assert_eq!(Hash::of_all([&a, &b]), Hash::of_all([&b, &a]));
        assert_ne!(Hash::of_all([&a, &b]), Hash::of_all([&a, &a]));
    }

    #[test]
    fn what_is_shown_keeps_the_innermost_frames_and_the_limits() {
        let threads: Vec<Thread> = (0..200).map(|id| thread(id, 1000)).collect();
        let (shown_threads, omitted) = shown(&threads, 1 << 30);
        assert_eq!((shown_threads.len(), omitted), (THREADS, 200 - THREADS as u32));
        assert_eq!(shown_threads[0].frames[0], "f0 (torch/nn/modules/module.py:0)");
        assert_eq!(
            (shown_threads[0].frames.len(), shown_threads[0].omitted_frames),
            (FRAMES, 1000 - FRAMES as u32)
        );
        let (few, omitted) = shown(&threads, 10_000);
        let stack = RankStack {
            rank: 0,
            at: engine::time::Time(0),
            threads: few,
            omitted_threads: omitted,
            missing: None,
        };
        assert!(size(&stack) <= 10_000 && size(&stack) > 9_000, "{}", size(&stack));
        assert_eq!(stack.threads.len() as u32 + omitted, 200);
        assert_eq!(shown(&[], 0), (vec![], 0));
    }
}
