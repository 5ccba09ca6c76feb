//! The lock of a repository: one holder on this machine, freed by the operating system when its holder dies.
use super::{error::GitError, repository::Repository};
use std::{
    fs::{self, File},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};
use tempfile::TempPath;

/// Held until dropped. The file stays: removing it would let two holders lock two files of one name.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the repository's lock and waits for whoever holds it; holders do a few file operations and no more.
    pub(super) fn repository(repository: &Repository) -> Result<Lock, GitError> {
        Lock::wait(&own_folder(repository)?.join("lock"))
    }

    /// Takes a lock and waits for whoever holds it.
    pub(super) fn wait(path: &Path) -> Result<Lock, GitError> {
        let file = open(path)?;
        file.lock().map_err(GitError::io("lock", path))?;
        Ok(Lock { _file: file })
    }

    /// Takes a lock, unless someone has it.
    pub(super) fn attempt(path: &Path) -> Result<Option<Lock>, GitError> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(GitError::io("lock", path)(error)),
        }
    }
}

/// Makes a lock as git does, by a file that nobody else can make, which says whose it is from its first moment on; returns whether
/// it was free. It is written as a `draft` on the same file system first, which nobody else writes at the same time.
pub(super) fn say(lock: &Path, draft: &Path, words: &str) -> Result<bool, GitError> {
    // With its words on the disk: after a loss of power nobody could tell whose an empty one is.
    let written = File::create(draft).and_then(|mut file| file.write_all(words.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(GitError::io("write", draft))?;
    let draft = TempPath::try_from_path(draft).map_err(GitError::io("write", draft))?;
    match draft.persist_noclobber(lock) {
        Ok(()) => Ok(true),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(GitError::io("lock", lock)(error.error)),
    }
}

/// Returns the folder of this program inside the shared git folder, made where it is missing.
pub(super) fn own_folder(repository: &Repository) -> Result<PathBuf, GitError> {
    let folder = repository.common_dir().join("spinney");
    fs::create_dir_all(&folder).map_err(GitError::io("make", &folder))?;
    Ok(folder)
}

fn open(path: &Path) -> Result<File, GitError> {
    File::options().create(true).truncate(false).write(true).open(path).map_err(GitError::io("open", path))
}
