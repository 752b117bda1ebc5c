//! The agent copies itself: how it gets into images that do not hold it.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// How the copy is called.
const NAME: &str = "holdfast-agent";

/// A copy could not be made.
#[derive(Debug, thiserror::Error)]
#[error("could not install the agent: {doing} {path}")]
pub struct InstallError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Copies this very program into a directory, where everybody may run it. Whoever looks sees the whole file or none, and a file that
/// is there already is replaced, even one that is being run.
///
/// # Errors
/// The directory is not there or cannot be written.
pub fn into(directory: &Path) -> Result<PathBuf, InstallError> {
    let failed = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| InstallError { doing, path, source }
    };
    let own = env::current_exe().map_err(failed("finding", Path::new(NAME)))?;
    let target = directory.join(NAME);
    let part = directory.join(format!(".{NAME}.{}", std::process::id()));
    let copied = fs::copy(&own, &part)
        .and_then(|_| fs::set_permissions(&part, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&part, &target));
    if copied.is_err() {
        // Half a file would take room that the next try needs.
        let _ = fs::remove_file(&part);
    }
    copied.map_err(failed("writing", &target))?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_whole_can_be_run_and_replaces_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), "old").unwrap();
        let copy = into(dir.path()).unwrap();
        let own = fs::metadata(env::current_exe().unwrap()).unwrap();
        let made = fs::metadata(&copy).unwrap();
        assert_eq!((made.len(), made.permissions().mode() & 0o777), (own.len(), 0o755));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else stays");
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let why = into(&dir.path().join("absent")).unwrap_err().to_string();
        assert!(why.contains("absent/holdfast-agent"), "{why}");
    }
}
