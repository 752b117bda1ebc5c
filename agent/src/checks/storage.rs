//! The checkpoint directory, and `/dev/shm`.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Instant,
};

use engine::checks::limits;
use nix::sys::statvfs::statvfs;

use super::{Found, size};

/// What is written to see that the directory can be written: enough to leave every cache but the disk's own.
const PROBE_BYTES: usize = 64 * 1024;

/// Whether checkpoints can be saved there.
pub fn checkpoint_dir(dir: Option<&Path>) -> Found {
    let Some(dir) = dir else { return Found::skipped("the job has no checkpoint directory") };
    let shown = dir.display();
    match fs::metadata(dir) {
        Ok(meta) if meta.is_dir() => save_in(dir, format!("{shown} can be written")),
        Ok(_) => Found::failed(
            format!("{shown} is no directory"),
            "Name a directory as checkpoint directory, or move the file away that has its name.",
        ),
        // Many programs make it themselves, in a volume that is there.
        Err(why) if why.kind() == io::ErrorKind::NotFound => match made_in(dir) {
            Some(parent) => save_in(
                parent,
                format!(
                    "{shown} is not there yet; {}, where it will be made, can be written",
                    parent.display()
                ),
            ),
            None => Found::failed(
                format!("{shown} is missing, and so is what it would be made in"),
                "Mount the volume that holds it in every replica, or correct the checkpoint directory of the job.",
            ),
        },
        Err(why) => Found::failed(
            format!("{shown} cannot be looked at: {why}"),
            "Look at the mount and its permissions on this node.",
        ),
    }
}

/// The directory in which a missing one will be made, by a program that makes it: the one it stands in, or further up one of a mount.
/// Further up in the root file system there is only what a mount would have covered, and a link to nowhere is one whose mount is missing.
fn made_in(dir: &Path) -> Option<&Path> {
    let device = |path: &Path| fs::metadata(path).ok().map(|meta| meta.dev());
    if dir.is_symlink() {
        return None;
    }
    let nearest = dir.ancestors().skip(1).find(|path| fs::symlink_metadata(path).is_ok())?;
    let is_root = nearest.parent().is_none();
    let is_mount = device(nearest) != device(Path::new("/"));
    let is_next = dir.parent() == Some(nearest);
    (!is_root && nearest.is_dir() && (is_next || is_mount)).then_some(nearest)
}

fn save_in(dir: &Path, well: String) -> Found {
    let shown = dir.display();
    let free = match free_bytes(dir) {
        Ok(free) => free,
        Err(why) => {
            return Found::failed(
                format!("the free space of {shown} cannot be read: {why}"),
                "Look at the mount on this node.",
            );
        }
    };
    let began = Instant::now();
    let written = write_probe(dir);
    let took = began.elapsed().as_secs_f64();
    let found = match (written, free) {
        (Err(why), _) if why.kind() == io::ErrorKind::StorageFull => Found::failed(
            format!("{shown} is full: {why}"),
            "Free space there, or save to another volume; old checkpoints are the first to go.",
        ),
        (Err(why), _) => Found::failed(
            format!("{shown} cannot be written: {why}"),
            "Mount it for writing and give the program's user the right to write there.",
        ),
        (Ok(()), Some(free)) if free < limits::FREE_BYTES => Found::failed(
            format!("{shown} has {} left; at least {} are needed", size(free), size(limits::FREE_BYTES)),
            "Free space there, or save to another volume; old checkpoints are the first to go.",
        ),
        (Ok(()), free) => {
            let free = free.map_or("free space not known".to_owned(), |free| format!("{} free", size(free)));
            Found::passed(format!("{well}: {free}, {} on the disk in {took:.3} s", size(PROBE_BYTES as u64)))
        }
    };
    let found = if let Some(free) = free { found.measured("free_bytes", free as f64) } else { found };
    found.measured("write_seconds", took)
}

/// Free bytes for this user; none where the file system counts none.
fn free_bytes(dir: &Path) -> io::Result<Option<u64>> {
    let stat = statvfs(dir)?;
    let unit = stat.fragment_size();
    Ok((stat.blocks() > 0).then(|| stat.blocks_available().saturating_mul(unit)))
}

/// A file that is removed again, whatever happens.
struct Probe(PathBuf);

impl Drop for Probe {
    fn drop(&mut self) {
        // Nothing is left to do where even that is refused.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes a small file to the disk itself, and removes it.
fn write_probe(dir: &Path) -> io::Result<()> {
    // Replicas of several machines share the directory, and process numbers repeat among them.
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
    let name = format!(".holdfast-check-{host}-{}", std::process::id());
    let path = dir.join(name);
    // One of a check that was killed, by the same name.
    let _ = fs::remove_file(&path);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let _probe = Probe(path);
    file.write_all(&vec![0x5a; PROBE_BYTES])?;
    file.sync_all()
}

/// Whether processes can share memory.
pub fn shm(dir: &Path) -> Found {
    let shown = dir.display();
    let more = "Give the replica more shared memory (on Kubernetes: /dev/shm size of the job), or remove what fills it.";
    let free = match free_bytes(dir) {
        Ok(free) => free.unwrap_or_default(),
        Err(why) => {
            return Found::failed(
                format!("{shown} cannot be looked at: {why}"),
                "Mount a tmpfs there: data loaders and NCCL share memory through it.",
            );
        }
    };
    let found = if free < limits::SHM_BYTES {
        Found::failed(
            format!("{shown} has {} left; at least {} are needed", size(free), size(limits::SHM_BYTES)),
            more,
        )
    } else {
        match write_probe(dir) {
            Ok(()) => Found::passed(format!("{shown} has {} left", size(free))),
            Err(why) => Found::failed(format!("{shown} cannot be written: {why}"), more),
        }
    };
    found.measured("free_bytes", free as f64)
}

#[cfg(test)]
mod tests {
    use engine::checks::CheckOutcome::{Failed, Passed, Skipped};

    use super::*;

    #[test]
    fn a_checkpoint_directory_is_there_writable_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/no-such-mount", &link).unwrap();
        for (path, outcome, words) in [
            (None, Skipped, "the job has no checkpoint directory"),
            (Some(dir.path().to_owned()), Passed, "can be written"),
            (Some(dir.path().join("new")), Passed, "is not there yet"),
            (Some("/no-such-mount".into()), Failed, "is missing, and so is what it would be made in"),
            (Some("/no-such-mount/run/7".into()), Failed, "is missing"),
            // Not even root makes directories there, but it is a mount.
            (Some("/sys/kernel/no/such".into()), Failed, "cannot be written"),
            (Some(link.clone()), Failed, "is missing"),
            (Some(link.join("run/7")), Failed, "is missing"),
            (Some(file), Failed, "is no directory"),
            // Not even root writes there.
            (Some("/sys/kernel".into()), Failed, "cannot be written"),
        ] {
            let found = checkpoint_dir(path.as_deref());
            assert_eq!(found.outcome, outcome, "{path:?}: {found:?}");
            assert!(found.text.contains(words), "{found:?}");
            assert_eq!(found.remedy.is_some(), outcome == Failed, "{found:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing was left behind");
    }

    #[test]
    fn shared_memory_is_measured() {
        assert_eq!(shm(Path::new("/no-such-mount")).outcome, Failed);
        let found = shm(Path::new("/dev/shm"));
        assert_eq!(found.measures[0].0, "free_bytes");
        assert!(found.measures[0].1 > 0.0, "{found:?}");
    }
}
