//! Registering a worktree in the repository, so that git run inside it finds the way.
//!
//! Git registers by filling `worktrees/NAME` file by file, and other git processes fail when they meet one half made. Here it
//! is filled elsewhere and renamed into place: nobody ever sees half of one, and a death at any point leaves none behind.
//! Repositories with reftable need git for it, which then runs under the repository's lock.
use super::{error::GitError, lock, path, repository::Repository};
use crate::event::CommitId;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Tries at a free name, and at a repository that another program is changing.
const TRIES: usize = 16;

/// Registers the folder `files`, which exists and is empty or holds only a `.git` of before, and returns the registration's
/// folder. `name` is a wish.
pub(super) fn register(repository: &Repository, files: &Path, name: &str, commit: &CommitId) -> Result<PathBuf, GitError> {
    let _lock = lock::Lock::repository(repository)?;
    forget_locked(repository, files)?;
    let admin = if repository.uses_reftable() { by_git(repository, files, name, commit)? } else { by_hand(repository, files, name, commit)? };
    link(files, &admin)?;
    Ok(admin)
}

/// Removes every registration of `files`; they are ours alone, for they name a folder that only this program makes.
pub(super) fn forget(repository: &Repository, files: &Path) -> Result<(), GitError> {
    let _lock = lock::Lock::repository(repository)?;
    forget_locked(repository, files)
}

/// Points the worktree at its registration, whatever was made of that file.
pub(super) fn link(files: &Path, admin: &Path) -> Result<(), GitError> {
    let file = files.join(".git");
    let text = [b"gitdir: ", admin.as_os_str().as_encoded_bytes(), b"\n"].concat();
    if fs::symlink_metadata(&file).is_ok_and(|found| found.is_file()) && fs::read(&file).is_ok_and(|found| found == text) {
        return Ok(());
    }
    clear(&file)?;
    fs::write(&file, text).map_err(GitError::io("write", file))
}

/// Returns whether a registration is there and is that of `files`.
pub(super) fn is_registered(admin: &Path, files: &Path) -> bool {
    !admin.as_os_str().is_empty() && fs::read(admin.join("gitdir")).is_ok_and(|found| found == pointer(files))
}

/// Removes whatever has this name, so that a file can be written there and nowhere else.
pub(super) fn clear(file: &Path) -> Result<(), GitError> {
    let cleared = fs::symlink_metadata(file).and_then(|found| if found.is_dir() { fs::remove_dir_all(file) } else { fs::remove_file(file) });
    match cleared {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        cleared => cleared.map_err(GitError::io("remove", file)),
    }
}

/// Puts the worktree's own HEAD at a commit, whatever was made of it.
pub(super) fn set_head(repository: &Repository, admin: &Path, commit: &CommitId) -> Result<(), GitError> {
    if repository.uses_reftable() && admin.join("commondir").exists() {
        // Its HEAD lives in a table that only git can write; the files are what counts.
        return Ok(());
    }
    replace(&admin.join("HEAD"), format!("{commit}\n").as_bytes())
}

/// Writes a file so that it is there in whole or as before.
pub(super) fn replace(file: &Path, content: &[u8]) -> Result<(), GitError> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut new| {
        io::Write::write_all(&mut new, content)?;
        new.persist(file).map_err(|error| error.error)
    });
    written.map(|_| ()).map_err(GitError::io("write", file))
}

fn by_hand(repository: &Repository, files: &Path, name: &str, commit: &CommitId) -> Result<PathBuf, GitError> {
    let made =
        tempfile::Builder::new().prefix("new-").tempdir_in(lock::own_folder(repository)?).map_err(GitError::io("make a folder in", repository.common_dir()))?;
    let pointer = pointer(files);
    let head = format!("{commit}\n");
    for (file, content) in [("HEAD", head.as_bytes()), ("commondir", b"../..\n"), ("gitdir", &pointer), ("locked", b"in use by spinney\n")] {
        fs::write(made.path().join(file), content).map_err(GitError::io("write", made.path().join(file)))?;
    }
    let all = repository.common_dir().join("worktrees");
    fs::create_dir_all(&all).map_err(GitError::io("make", &all))?;
    for number in 0..TRIES {
        let admin = all.join(if number == 0 { name.to_owned() } else { format!("{name}.{number}") });
        if fs::symlink_metadata(&admin).is_ok() {
            continue;
        }
        match fs::rename(made.path(), &admin) {
            Ok(()) => {
                let _moved = made.keep();
                return Ok(admin);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {}
            Err(error) => return Err(GitError::io("register a worktree in", admin)(error)),
        }
    }
    Err(GitError::Occupied { slug: name.to_owned(), reason: "the repository has many worktrees of that name" })
}

/// Has git register a folder of no use, then points the registration at the real one, which may hold files already.
fn by_git(repository: &Repository, files: &Path, name: &str, commit: &CommitId) -> Result<PathBuf, GitError> {
    let made =
        tempfile::Builder::new().prefix("add-").tempdir_in(lock::own_folder(repository)?).map_err(GitError::io("make a folder in", repository.common_dir()))?;
    let stand_in = made.path().join(name);
    let mut tried = 0;
    loop {
        tried += 1;
        let call = repository.git(["worktree", "add", "--quiet", "--detach", "--no-checkout", "--lock", "--reason=in use by spinney"]);
        match call.arg(&stand_in).arg(&commit.0).bytes() {
            Ok(_) => break,
            // Another program's worktree was half made.
            Err(GitError::Failed { reason, .. }) if tried < TRIES && reason.contains("commondir") => {}
            Err(error) => return Err(error),
        }
    }
    let file = stand_in.join(".git");
    let text = fs::read(&file).map_err(GitError::io("read", &file))?;
    let admin = text.strip_prefix(b"gitdir: ").and_then(|rest| rest.strip_suffix(b"\n"));
    let admin = admin.map(path::file).ok_or(GitError::Garbled { command: "worktree add".to_owned(), reason: "its `.git` names no folder" })?;
    replace(&admin.join("gitdir"), &pointer(files))?;
    Ok(admin)
}

/// Removes registrations of `files`, and under the lock also those that a dead process left half made.
fn forget_locked(repository: &Repository, files: &Path) -> Result<(), GitError> {
    let (own, all) = (lock::own_folder(repository)?, repository.common_dir().join("worktrees"));
    let wanted = pointer(files);
    for admin in folders_in(&all)? {
        let Ok(found) = fs::read(admin.join("gitdir")) else { continue };
        if found == wanted || path::file(&found).starts_with(&own) {
            // Renamed first, so that no git process sees half of it.
            let aside = tempfile::Builder::new().prefix("old-").tempdir_in(&own).map_err(GitError::io("make a folder in", &own))?;
            fs::rename(&admin, aside.path().join("worktree")).map_err(GitError::io("unregister", admin))?;
        }
    }
    for left in folders_in(&own)? {
        let name = left.file_name().unwrap_or_default().to_string_lossy();
        if ["new-", "add-", "old-"].iter().any(|prefix| name.starts_with(prefix)) {
            fs::remove_dir_all(&left).map_err(GitError::io("remove", &left))?;
        }
    }
    Ok(())
}

/// Returns the folders in a folder, sorted; none where it is missing.
fn folders_in(folder: &Path) -> Result<Vec<PathBuf>, GitError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(GitError::io("read", folder)(error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>().map_err(GitError::io("read", folder))?;
    let mut folders: Vec<PathBuf> = paths.into_iter().filter(|path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())).collect();
    folders.sort();
    Ok(folders)
}

/// Returns what a registration says of where its files are.
fn pointer(files: &Path) -> Vec<u8> {
    [files.join(".git").as_os_str().as_encoded_bytes(), b"\n"].concat()
}
