//! Whether the checkpoint directory grows. It may be on a network file system that does not answer: the walk is bounded, and is done
//! by a thread that nobody waits for.

use std::{
    collections::BinaryHeap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Files and directories looked at in one walk. Directories that changed last come first, so what is written now is among them.
const ENTRIES: usize = 2000;
/// Longest walk.
const LIMIT: Duration = Duration::from_secs(1);

/// What a walk found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Files and directories.
    entries: u64,
    /// Bytes of all files.
    bytes: u64,
    /// The newest change, nanoseconds since 1970.
    newest: i128,
    /// The time for the walk was over before its end: how much was seen depends on how fast it was.
    cut: bool,
}

impl Contents {
    /// Something was written since: a file grew or appeared. What is only removed is no growth.
    pub fn grew_since(&self, before: &Self) -> bool {
        if self.cut || before.cut {
            return self.newest > before.newest;
        }
        self.bytes > before.bytes || (self.newest > before.newest && self.entries >= before.entries)
    }

    /// For people.
    pub fn words(&self) -> String {
        format!("{} files and directories, {} bytes", self.entries, self.bytes)
    }

    fn add(&mut self, meta: &fs::Metadata) {
        self.entries += 1;
        if meta.is_file() {
            self.bytes = self.bytes.saturating_add(meta.len());
        }
        self.newest = self.newest.max(changed(meta));
    }
}

/// Walks a directory. One that is not there yet is empty.
///
/// # Errors
/// Where it cannot be read.
pub fn walk(root: &Path) -> io::Result<Contents> {
    let end = Instant::now() + LIMIT;
    let mut contents = Contents::default();
    let mut next = BinaryHeap::from([(i128::MAX, root.to_owned())]);
    while let Some((_, dir)) = next.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
            Err(why) if dir == root => return Err(why),
            // One that may not be read does not hide the others.
            Err(_) => continue,
        };
        for entry in entries {
            if contents.entries as usize >= ENTRIES {
                return Ok(contents);
            }
            if Instant::now() >= end {
                return Ok(Contents { cut: true, ..contents });
            }
            // What is removed meanwhile is no error. Links are not followed: they may lead anywhere.
            let Ok((path, meta)) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))) else {
                continue;
            };
            contents.add(&meta);
            if meta.is_dir() {
                next.push((changed(&meta), path));
            }
        }
    }
    Ok(contents)
}

fn changed(meta: &fs::Metadata) -> i128 {
    i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec())
}

/// What the environment says is the checkpoint directory, where it says so.
pub fn from_environment() -> Option<PathBuf> {
    std::env::var_os("HOLDFAST_CHECKPOINT_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_or_appears_is_growth_and_one_that_goes_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("checkpoints");
        let empty = walk(&root).unwrap();
        assert_eq!(empty, Contents::default());
        fs::create_dir_all(root.join("step-1/shards")).unwrap();
        fs::write(root.join("step-1/shards/0"), "12345").unwrap();
        let one = walk(&root).unwrap();
        assert!(one.grew_since(&empty) && !one.grew_since(&one));
        assert_eq!(one.words(), "3 files and directories, 5 bytes");
        fs::write(root.join("step-1/shards/0"), "1234567").unwrap();
        let more = walk(&root).unwrap();
        assert!(more.grew_since(&one));
        fs::remove_dir_all(root.join("step-1")).unwrap();
        assert!(!walk(&root).unwrap().grew_since(&more));
    }

    #[test]
    fn of_a_walk_that_was_cut_off_only_the_newest_change_counts() {
        let cut = |bytes, newest| Contents { entries: 9, bytes, newest, cut: true };
        assert!(!cut(800, 5).grew_since(&cut(500, 5)), "it was faster, nothing was written");
        assert!(cut(500, 6).grew_since(&cut(800, 5)));
        let whole = Contents { cut: false, ..cut(900, 5) };
        assert!(!whole.grew_since(&cut(500, 5)));
    }

    #[test]
    fn a_walk_is_bounded_and_sees_what_is_written_now() {
        let dir = tempfile::tempdir().unwrap();
        for old in 0..3 {
            let old = dir.path().join(format!("old-{old}"));
            fs::create_dir(&old).unwrap();
            for file in 0..ENTRIES / 2 {
                fs::write(old.join(file.to_string()), "x").unwrap();
            }
        }
        let new = dir.path().join("new");
        fs::create_dir(&new).unwrap();
        let before = walk(dir.path()).unwrap();
        assert_eq!(before.entries as usize, ENTRIES);
        fs::write(new.join("part"), "written").unwrap();
        assert!(walk(dir.path()).unwrap().grew_since(&before));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_links_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(walk(&file).is_err());
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        assert_eq!(walk(dir.path()).unwrap().entries, 2);
    }
}
