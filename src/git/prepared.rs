//! What the `setup` of a workspace has made: no part of anybody's work as long as it is as setup left it.
//!
//! It is noted by content when setup has ended, and passed over where work is captured or looked for. A file that somebody
//! has changed since is work like any other, as a whole. Checkpoints hold all of it, so that going back to one keeps it.
//!
//! What git ignores is in no commit and in no checkpoint: of that only the names are noted, of folders that are ignored whole
//! their own.
use super::{
    bring,
    error::GitError,
    path,
    snapshot::{Taking, Touched},
    workspaces::{Workspaces, Worktree},
};
use crate::event::{BlobId, CommitId};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read as _,
    os::unix::ffi::OsStrExt as _,
    os::unix::fs::PermissionsExt as _,
};

/// The list of what setup made, beside the engine's index.
const PREPARED: &str = "prepared";
/// The list of what git ignores of that.
const IGNORED: &str = "prepared-ignored";
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
        let ignored: Vec<u8> = self.all_ignored(worktree)?.into_iter().flat_map(|path| [&path[..], b"\0"].concat()).collect();
        self.write_lists(worktree, &[(PREPARED, lines), (IGNORED, ignored)])
    }

    /// Returns what git ignores in the worktree of a name and neither its setup nor the user's checkout has put there; a folder
    /// that is ignored whole by its own name.
    ///
    /// # Errors
    /// Where the files cannot be read.
    pub fn ignored(&self, slug: &str, base: &CommitId) -> Result<Vec<String>, GitError> {
        let worktree = self.look(slug, base)?;
        let noted = fs::read(worktree.state().join(IGNORED)).unwrap_or_default();
        let noted: BTreeSet<&[u8]> = noted.split(|&byte| byte == 0).collect();
        let brought = bring::brought(&worktree);
        let own = |path: &Vec<u8>| !noted.contains(path.as_slice()) && !brought.contains(path.strip_suffix(b"/").unwrap_or(path));
        Ok(self.all_ignored(&worktree)?.iter().filter(|path| own(path)).map(|path| path::quote(path)).collect())
    }

    fn all_ignored(&self, worktree: &Worktree) -> Result<Vec<Vec<u8>>, GitError> {
        let call = self.repository().git(["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", "--no-empty-directory"]);
        let listed = call.on(worktree.path(), &worktree.index()).bytes()?;
        Ok(listed.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect())
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
