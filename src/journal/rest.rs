//! Whether a run was left at rest: all of it on the disk, and not only in the memory of the system.
//!
//! What a process leaves in its worktrees outlives that process, and the machine only where the system has written it by then. The journal
//! does not wait for that, so where the machine goes down under a run its files may be older than its records, newer, or torn. A process that
//! parks a run or is asked to end therefore has everything written first, and says so by a file that the next one takes away.
use super::RunDir;
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::Path,
};

/// The file in a run's folder.
const FILE: &str = "rested";

impl RunDir {
    /// Notes that the run is at rest, once the file systems of its own folder and of `others` are on the disk. Whoever calls has
    /// the run, and ends.
    ///
    /// # Errors
    /// The system's; nothing is noted then.
    pub fn rest(&self, others: &[&Path]) -> io::Result<()> {
        let mut seen = BTreeSet::new();
        for folder in others.iter().copied().chain([self.path()]) {
            if seen.insert(device(folder)?) {
                sync_around(folder)?;
            }
        }
        File::create(self.path().join(FILE))?.sync_all()?;
        sync_folder(self.path())
    }

    /// Returns whether it is noted that the run is at rest.
    pub fn is_at_rest(&self) -> bool {
        self.path().join(FILE).is_file()
    }

    /// Takes the note away. It is gone from the disk when this returns: whatever happens from now on may be lost.
    ///
    /// # Errors
    /// The system's.
    pub fn wake(&self) -> io::Result<()> {
        wake(self.path())
    }
}

/// Takes the note away from a run's folder.
///
/// # Errors
/// The system's.
pub(super) fn wake(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(FILE)) {
        Ok(()) => sync_folder(dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Has the system write to the disk whatever was written to the file system that a folder is on.
///
/// # Errors
/// The system's.
pub(crate) fn sync_around(folder: &Path) -> io::Result<()> {
    let folder = File::open(folder)?;
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(&folder)?;
    #[cfg(not(target_os = "linux"))]
    folder.sync_all()?;
    Ok(())
}

/// Takes a folder's entries to the disk: what is synced in a folder that is lost with the power is lost too.
#[cfg(unix)]
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(not(unix))]
pub(crate) fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn device(folder: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(fs::metadata(folder)?.dev())
}

#[cfg(not(unix))]
fn device(folder: &Path) -> io::Result<std::path::PathBuf> {
    folder.canonicalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RunId;

    #[test]
    fn a_note_is_there_until_the_run_goes_on() {
        let checkout = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&RunDir::state(checkout.path()), &RunId::from("r")).unwrap();
        dir.wake().unwrap();
        assert!(!dir.is_at_rest());
        dir.rest(&[checkout.path()]).unwrap();
        assert!(dir.is_at_rest());
        dir.wake().unwrap();
        // What cannot be synced is not said to be.
        assert!(dir.rest(&[&checkout.path().join("missing")]).is_err() && !dir.is_at_rest());
    }
}
