//! What a landing would overwrite of files that git does not know.
use crate::git::{
    objects::{Change, Mode},
    path,
    repository::Repository,
};
use std::{collections::BTreeSet, fs, path::Path};

/// Files that are named; more say no more.
const NAMED: usize = 20;

/// Returns what stands where a new file is to come, sorted: git does not know it, and a move that brings files would overwrite it where
/// it is ignored.
pub(super) fn in_the_way(repository: &Repository, changes: &[Change]) -> Vec<String> {
    let goes: BTreeSet<Vec<u8>> = changes.iter().filter(|change| change.after.is_none()).map(|change| path::unquote(&change.path)).collect();
    let mut found = BTreeSet::new();
    for change in changes.iter().filter(|change| change.before.is_none()) {
        let new = path::unquote(&change.path);
        let is_submodule = change.after.as_ref().is_some_and(|after| after.mode == Mode::Gitlink);
        let ends = new.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).chain([new.len()]);
        for name in ends.map(|end| &new[..end]) {
            match fs::symlink_metadata(repository.root().join(path::file(name))) {
                Err(_) => break,
                Ok(there) if !there.is_dir() => {
                    found.extend((!goes.contains(name)).then(|| path::quote(name)));
                    break;
                }
                Ok(_) if name.len() == new.len() && !is_submodule => found.extend(strays(repository.root(), name, &goes)),
                Ok(_) => {}
            }
        }
    }
    found.into_iter().take(NAMED).collect()
}

/// Returns the files below a folder that do not go.
fn strays(root: &Path, folder: &[u8], goes: &BTreeSet<Vec<u8>>) -> Vec<String> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(path::file(&folder))).into_iter().flatten().flatten() {
            let name = [&folder[..], b"/", entry.file_name().as_encoded_bytes()].concat();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(name),
                Ok(_) if goes.contains(&name) => {}
                Ok(_) | Err(_) => found.push(path::quote(&name)),
            }
        }
    }
    found
}
