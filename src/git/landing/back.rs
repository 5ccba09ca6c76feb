//! The way back of a landing that could not be carried to its end.
use super::{changes, with_index};
use crate::{
    event::CommitId,
    git::{
        error::GitError,
        lock::own_folder,
        objects::{Blob, Change, Mode},
        path,
        process::Git,
        program,
        repository::Repository,
    },
};
use std::{collections::BTreeSet, fs, io::ErrorKind, path::Path};

/// Brings those files of the checkout back to `from` that git has made those of `to`; what is neither is left alone. Returns what
/// does not go back.
pub(super) fn take_back(repository: &Repository, from: &CommitId, to: &CommitId) -> Result<Vec<String>, GitError> {
    let changes = changes(repository, from, to)?;
    let own = own_folder(repository)?;
    let folder = tempfile::Builder::new().prefix("index-").tempdir_in(&own).map_err(GitError::io("make a folder in", own))?;
    let of = |name: &str, entry: fn(&Change) -> Option<&Blob>| {
        index_of(repository, &folder.path().join(name), changes.iter().filter_map(|change| Some((change, entry(change)?))))
    };
    let (of_from, of_to) = (of("from", |change| change.before.as_ref())?, of("to", |change| change.after.as_ref())?);
    let not_of_to = different(repository, &of_to)?;
    let place = |change: &Change| repository.root().join(path::file(&path::unquote(&change.path)));
    let (mut back, mut left) = (Vec::new(), Vec::new());
    for change in &changes {
        // What stands behind a link is none of the checkout's.
        let file = place(change);
        let mut above = file.ancestors().skip(1).take_while(|folder| *folder != repository.root());
        let is_behind_a_link = above.any(|folder| fs::symlink_metadata(folder).is_ok_and(|found| found.is_symlink()));
        let is_there = !is_behind_a_link && fs::symlink_metadata(&file).is_ok();
        let begun = || change.after.as_ref().is_some_and(|after| is_begun(repository, &file, after));
        let is_neither = not_of_to.contains(&change.path) && !begun();
        match (&change.before, &change.after) {
            (Some(_), Some(_)) if is_neither => {}
            (Some(_), None) if is_there => {}
            (Some(_), _) => back.extend([path::unquote(&change.path), vec![0]].concat()),
            (None, _) if is_there && is_neither => left.push(change.path.clone()),
            (None, after) if is_there => {
                let is_folder = after.as_ref().is_some_and(|after| after.mode == Mode::Gitlink);
                match if is_folder { fs::remove_dir(&file) } else { fs::remove_file(&file) } {
                    // Somebody has put something into the folder of a submodule.
                    Err(_) if is_folder => left.push(change.path.clone()),
                    removed => removed.map_err(GitError::io("remove", &file))?,
                }
                // And the folders that were made for it; the first that holds something else ends this.
                let _ = file.ancestors().skip(1).take_while(|folder| *folder != repository.root()).try_for_each(fs::remove_dir);
            }
            (None, _) => {}
        }
    }
    // What it cannot bring back differs.
    repository.on_checkout(&["checkout-index", "--force", "-z", "--stdin"], &back, &of_from)?;
    left.extend(different(repository, &of_from)?);
    left.sort();
    Ok(left)
}

/// Returns whether a file is one that git had begun to write: it has the beginning of what it was to have, so that nobody loses anything by its going.
/// One that is gone was to be written anew.
fn is_begun(repository: &Repository, file: &Path, to: &Blob) -> bool {
    match fs::symlink_metadata(file) {
        Ok(found) if found.is_file() => fs::read(file).ok().zip(repository.blob(&to.id).ok()).is_some_and(|(there, whole)| whole.starts_with(&there)),
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Returns git with an index of these entries alone.
fn index_of<'c>(repository: &Repository, index: &Path, entries: impl Iterator<Item = (&'c Change, &'c Blob)>) -> Result<Git, GitError> {
    let mut lines = Vec::new();
    for (change, Blob { mode, id }) in entries {
        lines.extend(format!("{} {id}\t", mode.octal()).into_bytes());
        lines.extend(path::unquote(&change.path));
        lines.push(0);
    }
    let git = with_index(repository, index);
    let output = repository.on_checkout(&["update-index", "-z", "--index-info"], &lines, &git)?;
    if output.is_success() { Ok(git) } else { Err(program::failed("update-index".to_owned(), &output)) }
}

/// Returns the files that are not as an index has them.
fn different(repository: &Repository, git: &Git) -> Result<BTreeSet<String>, GitError> {
    // It says by its exit code what the next call lists.
    repository.on_checkout(&["update-index", "-q", "--refresh"], &[], git)?;
    let output = repository.on_checkout(&["diff-files", "--name-only", "-z", "--ignore-submodules=dirty"], &[], git)?;
    Ok(output.whole("diff-files")?.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(path::quote).collect())
}
