//! What a repository itself brings into the folder of runs. That is no run's: whoever cloned it has not written it, and a
//! journal or a kept result in it would be somebody else's word for what was done.
use super::{error::GitError, process::Git, program};
use crate::journal::{RunDir, STATE};
use std::{ffi::OsString, path::Path};

/// Looks in the index of a checkout for files of the folder of runs, also in a submodule that holds it.
///
/// # Errors
/// `BringsState` where there are some.
pub(super) fn refuse(checkout: &Path, git_dir: &Path, git: &Git, libgit2: bool) -> Result<(), GitError> {
    let state = RunDir::state(checkout);
    // Without the folder there is nothing to believe.
    let (Some(above), Some(name)) = (state.parent().filter(|_| state.is_dir()), state.file_name()) else { return Ok(()) };
    let inner = above.join(".git");
    let mut found = tracked(checkout, git_dir, STATE.as_bytes(), git, libgit2)?;
    if found.is_empty() && inner.exists() {
        let own = git2::Repository::open(above).map_or(inner, |inside| inside.path().to_owned());
        found = tracked(above, &own, name.as_encoded_bytes(), git, libgit2)?;
    }
    match found.first() {
        None => Ok(()),
        Some(first) => Err(GitError::BringsState { path: first.clone(), files: found.len() }),
    }
}

/// Returns whether a path is a folder or below it, however their letters are written.
pub(super) fn is_in(folder: &[u8], path: &[u8]) -> bool {
    let (head, rest) = path.split_at_checked(folder.len()).unwrap_or_default();
    head.eq_ignore_ascii_case(folder) && (rest.is_empty() || rest[0] == b'/')
}

/// Returns the paths in the index at or below a folder.
fn tracked(checkout: &Path, git_dir: &Path, folder: &[u8], git: &Git, libgit2: bool) -> Result<Vec<String>, GitError> {
    let name = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    // Not all kinds of index are known to it.
    if let Some(index) = libgit2.then(|| git2::Index::open(&git_dir.join("index")).ok()).flatten() {
        return Ok(index.iter().filter(|entry| is_in(folder, &entry.path)).map(|entry| name(&entry.path)).collect());
    }
    let mut place = OsString::from("--git-dir=");
    place.push(git_dir);
    let args = ["-c".into(), "core.bare=false".into(), place, "ls-files".into(), "-z".into(), "--cached".into()];
    let output = git.run(&args, checkout, &[])?;
    if !output.is_success() {
        return Err(program::failed("ls-files".to_owned(), &output));
    }
    let listed = output.whole("ls-files")?;
    Ok(listed.split(|byte| *byte == 0).filter(|path| is_in(folder, path)).map(name).collect())
}
