//! Locks of git that stand in a repository: those that processes of this program have left when they died, and those of others.
use super::{
    error::GitError,
    landing,
    lock::{Lock, own_folder},
    packed,
    program::lock_of,
    repository::Repository,
};
use crate::{clock::Timestamp, event::RunId};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

/// A lock that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locked {
    /// Its file.
    pub path: PathBuf,
    /// Since when it is there.
    pub since: Timestamp,
    /// Whether a process of this program has left it that died.
    pub is_ours: bool,
}

impl Repository {
    /// Returns the locks of the checkout, of its branches and of what all of them share, sorted; those of the refs of runs are
    /// not among them.
    ///
    /// # Errors
    /// `Io` where it cannot be told whether somebody lands.
    pub fn locks(&self) -> Result<Vec<Locked>, GitError> {
        let names = ["HEAD", "ORIG_HEAD", "config", "index", "packed-refs"];
        let mut paths: Vec<PathBuf> = [self.git_dir(), self.common_dir()].iter().flat_map(|folder| names.map(|name| lock_of(&folder.join(name)))).collect();
        paths.extend(locks_below(&self.common_dir().join("refs/heads")));
        paths.sort();
        paths.dedup();
        let is_landing = match own_folder(self).and_then(|folder| Lock::attempt(&folder.join("landing"))) {
            Ok(turn) => turn.is_none(),
            // Nothing that stands where nothing can be written is anybody's to end.
            Err(GitError::Io { source, .. }) if matches!(source.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) => true,
            Err(error) => return Err(error),
        };
        let found = paths.into_iter().filter_map(|path| {
            let made = fs::symlink_metadata(&path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let is_ours = packed::is_ours(&path) || (!is_landing && landing::is_held(&path));
            Some(Locked { path, since: Timestamp(u64::try_from(made.as_millis()).unwrap_or(u64::MAX)), is_ours })
        });
        Ok(found.collect())
    }

    /// Ends what processes of this program have begun that died: a landing, and a change of the packed refs.
    ///
    /// # Errors
    /// As [`Repository::landing`].
    pub fn end_what_was_left(&self) -> Result<(), GitError> {
        drop(self.landing()?);
        self.unlock_packed_refs()
    }

    /// Returns the locks on a run's refs; where nobody owns the run a git has left them that died.
    pub fn locks_of(&self, run: &RunId) -> Vec<PathBuf> {
        let branch = self.lock_of_ref(&super::refs::branch_of(run));
        let mut found = locks_below(&self.common_dir().join("refs/spinney").join(&run.0));
        found.extend(fs::symlink_metadata(&branch).is_ok().then_some(branch));
        found
    }
}

/// Returns the locks below a folder.
fn locks_below(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "lock") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
