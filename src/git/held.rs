//! Files that hold the value of a secret: found before git stores anything of them, and kept beside a checkpoint.
//!
//! Invariant: no blob, tree or commit that is made of files on the disk holds a value, neither in what a file has in it,
//! nor in where a link leads, nor in a name. What the commit underneath holds at the same path already is its author's.
use super::{error::GitError, path, repository::Repository, workspaces::Worktree};
use crate::{event::CommitId, secrets::Secrets};
use std::{
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// A file that holds a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) path: Vec<u8>,
    /// The path as it may be shown.
    pub(super) shown: String,
    /// The secret's name.
    pub(super) secret: String,
}

impl Held {
    /// Returns the error of whoever cannot go on without it.
    pub(super) fn refused(&self) -> GitError {
        GitError::HoldsSecret { path: self.shown.clone(), secret: self.secret.clone() }
    }
}

/// Takes those out of some paths below `root` that hold a value which `onto` does not hold there.
pub(super) fn take(secrets: &Secrets, (repository, onto): (&Repository, &CommitId), root: &Path, paths: &mut Vec<Vec<u8>>) -> Result<Vec<Held>, GitError> {
    let mut held = Vec::new();
    if secrets.is_empty() {
        return Ok(held);
    }
    let mut free = Vec::with_capacity(paths.len());
    for path in paths.drain(..) {
        match look(secrets, root, &path)? {
            Some(found) if !was_there(secrets, repository, onto, &path)? => held.push(found),
            Some(_) | None => free.push(path),
        }
    }
    *paths = free;
    Ok(held)
}

/// Returns a path that is a value's place by its name.
pub(super) fn named(secrets: &Secrets, path: &[u8]) -> Option<Held> {
    let secret = secrets.found_in(path)?.to_owned();
    Some(Held { path: path.to_owned(), shown: path::quote(&secrets.bytes(path)), secret })
}

fn look(secrets: &Secrets, root: &Path, path: &[u8]) -> Result<Option<Held>, GitError> {
    if let Some(named) = named(secrets, path) {
        return Ok(Some(named));
    }
    let file = root.join(path::file(path));
    match inside(secrets, &file) {
        Ok(secret) => Ok(secret.map(|secret| Held { path: path.to_owned(), shown: path::quote(path), secret })),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(GitError::io("read", file)(error)),
    }
}

fn inside(secrets: &Secrets, file: &Path) -> io::Result<Option<String>> {
    let kind = fs::symlink_metadata(file)?.file_type();
    if kind.is_symlink() {
        return Ok(secrets.found_in(fs::read_link(file)?.as_os_str().as_bytes()).map(str::to_owned));
    }
    if !kind.is_file() {
        return Ok(None);
    }
    Ok(secrets.found_in_all(fs::File::open(file)?)?.map(str::to_owned))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn was_there(secrets: &Secrets, repository: &Repository, onto: &CommitId, path: &[u8]) -> Result<bool, GitError> {
    let there = repository.read_blob(onto, &path::quote(path))?;
    Ok(there.is_some_and(|content| secrets.found_in(path).is_some() || secrets.found_in(&content).is_some()))
}

/// Copies the files that a checkpoint leaves out to where the engine keeps what belongs to the worktree; they go with it.
pub(super) fn keep(worktree: &Worktree, checkpoint: &CommitId, held: &[Held]) -> Result<(), GitError> {
    let folder = folder(worktree, checkpoint);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(GitError::io("remove", &folder))?;
    }
    if held.is_empty() {
        return Ok(());
    }
    let parts = folder.with_extension("part");
    if parts.exists() {
        fs::remove_dir_all(&parts).map_err(GitError::io("remove", &parts))?;
    }
    fs::create_dir_all(&parts).map_err(GitError::io("make", &parts))?;
    for (number, file) in held.iter().enumerate() {
        let from = worktree.path().join(path::file(&file.path));
        copy(&from, &parts.join(number.to_string())).map_err(GitError::io("copy", from))?;
    }
    let names = held.iter().flat_map(|file| file.path.iter().copied().chain([0])).collect::<Vec<u8>>();
    fs::write(parts.join("names"), names).map_err(GitError::io("write", &parts))?;
    fs::rename(&parts, &folder).map_err(GitError::io("write", &folder))
}

/// Puts the files that a checkpoint left out back to where they were.
pub(super) fn put_back(worktree: &Worktree, checkpoint: &CommitId) -> Result<(), GitError> {
    let folder = folder(worktree, checkpoint);
    let names = match fs::read(folder.join("names")) {
        Err(error) if is_gone(&error) => return Ok(()),
        names => names.map_err(GitError::io("read", &folder))?,
    };
    for (number, name) in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()).enumerate() {
        let to = worktree.path().join(path::file(name));
        real_folder(worktree.path(), &to)?;
        match fs::remove_file(&to) {
            Err(error) if !is_gone(&error) => return Err(GitError::io("remove", to)(error)),
            Ok(()) | Err(_) => {}
        }
        copy(&folder.join(number.to_string()), &to).map_err(GitError::io("write", to))?;
    }
    Ok(())
}

fn folder(worktree: &Worktree, checkpoint: &CommitId) -> PathBuf {
    worktree.state().join("held").join(&checkpoint.0)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(from)?.is_symlink() { std::os::unix::fs::symlink(fs::read_link(from)?, to) } else { fs::copy(from, to).map(|_| ()) }
}

/// Makes the folders above a file, none of which may be a link: an ignored one could lead anywhere.
fn real_folder(root: &Path, file: &Path) -> Result<(), GitError> {
    let above: Vec<&Path> = file.ancestors().skip(1).take_while(|folder| *folder != root).collect();
    for folder in above.into_iter().rev() {
        match fs::symlink_metadata(folder) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(GitError::LeadsOut { path: folder.to_owned() }),
            Err(_) => fs::create_dir(folder).map_err(GitError::io("make", folder))?,
        }
    }
    Ok(())
}
