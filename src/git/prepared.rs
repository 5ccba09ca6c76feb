//! What the `setup` of a workspace has made: no part of anybody's work as long as it is as setup left it.
//!
//! It is noted by content when setup has ended, and passed over where work is captured or looked for. A file that somebody
//! has changed since is work like any other, as a whole. Checkpoints hold all of it, so that going back to one keeps it.
use super::{
    error::GitError,
    path,
    snapshot::{Taking, Touched},
    workspaces::{Workspaces, Worktree},
};
use crate::event::BlobId;
use std::{collections::BTreeMap, fs, io::Read as _, os::unix::ffi::OsStrExt as _, os::unix::fs::PermissionsExt as _};

/// The list of what setup made, beside the engine's index.
const PREPARED: &str = "prepared";
/// What stands for a file that is gone, and for a repository inside.
const GONE: &str = "gone";
const NESTED: &str = "nested";

impl Workspaces {
    /// Notes what a worktree has now that its base does not have: what its setup has made.
    ///
    /// # Errors
    /// Where the files cannot be read.
    pub fn note_prepared(&self, worktree: &Worktree) -> Result<(), GitError> {
        let touched = Taking::begin(self, worktree, worktree.base())?.touched;
        let held = touched.held.into_iter().map(|held| held.path);
        let present = touched.present.into_iter().chain(held).filter_map(|path| Some((state(worktree, &path)?, path)));
        let gone = touched.gone.into_iter().map(|path| (GONE.to_owned(), path));
        let nested = touched.nested.into_iter().map(|path| (NESTED.to_owned(), path));
        let lines: Vec<u8> = present.chain(gone).chain(nested).flat_map(|(state, path)| [state.as_bytes(), b" ", &path, b"\0"].concat()).collect();
        let list = worktree.state().join(PREPARED);
        fs::write(&list, lines).map_err(GitError::io("write", list))
    }
}

/// Takes out of what differs what setup has made and nobody has changed since.
pub(super) fn pass_over(worktree: &Worktree, touched: &mut Touched) {
    let listed = fs::read(worktree.state().join(PREPARED)).unwrap_or_default();
    let prepared: BTreeMap<&[u8], &[u8]> = listed
        .split(|&byte| byte == 0)
        .filter_map(|line| {
            let at = line.iter().position(|&byte| byte == b' ')?;
            Some((&line[at + 1..], &line[..at]))
        })
        .collect();
    if prepared.is_empty() {
        return;
    }
    let is_as_left = |path: &[u8]| prepared.get(path).is_some_and(|then| state(worktree, path).is_some_and(|now| now.as_bytes() == *then));
    let was = |path: &[u8], word: &str| prepared.get(path).is_some_and(|then| *then == word.as_bytes());
    touched.present.retain(|path| !is_as_left(path));
    touched.held.retain(|held| !is_as_left(&held.path));
    touched.gone.retain(|path| !was(path, GONE));
    touched.nested.retain(|path| !was(path, NESTED));
}

/// Returns a word for what a file is and holds; nothing for what is neither a file nor a link.
fn state(worktree: &Worktree, path: &[u8]) -> Option<String> {
    let file = worktree.path().join(path::file(path));
    let found = fs::symlink_metadata(&file).ok()?;
    let (kind, content) = if found.is_symlink() {
        ("link", fs::read_link(&file).ok()?.as_os_str().as_bytes().to_vec())
    } else if found.is_file() {
        let mut content = Vec::new();
        fs::File::open(&file).ok()?.read_to_end(&mut content).ok()?;
        (if found.permissions().mode() & 0o100 == 0 { "file" } else { "program" }, content)
    } else {
        return None;
    };
    Some(format!("{kind}:{}", BlobId::of(&content).0))
}
