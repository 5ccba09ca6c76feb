//! Worktrees in which only a part of the files is checked out.
//!
//! What is left out stays in the index, with git's mark for files that are not there on purpose, so that its absence is no
//! deletion: neither to the agent's own `git status`, nor when the work is captured. A file that is written there all the same
//! counts like any other.
use super::{error::GitError, path, repository::Repository, scope::Scope, snapshot::terminated};
use crate::event::CommitId;
use std::{fs, path::Path};

/// An index, and the files that it is the index of.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) repository: &'a Repository,
    pub(super) files: &'a Path,
    pub(super) index: &'a Path,
}

impl Ground<'_> {
    /// Puts the part of a commit's files that `only` names into an empty folder.
    pub(super) fn check_out(self, commit: &CommitId, only: &Scope) -> Result<(), GitError> {
        self.repository.git(["read-tree", "--reset"]).arg(&commit.0).on(self.files, self.index).bytes()?;
        self.leave_out(only)?;
        // The files of this index are new: it is told when each was written.
        self.repository.git(["checkout-index", "--all", "--force", "--index", "--quiet"]).on(self.files, self.index).bytes().map(|_| ())
    }

    /// Marks what `only` does not name and is not there.
    pub(super) fn leave_out(self, only: &Scope) -> Result<(), GitError> {
        let out = self.entries()?.into_iter().filter(|entry| !entry.left_out && !only.contains(path::file(&entry.path)) && !self.is_there(&entry.path));
        self.mark("--skip-worktree", &out.map(|entry| entry.path).collect::<Vec<_>>())
    }

    /// Takes the mark off what is there.
    pub(super) fn take_in(self) -> Result<(), GitError> {
        let written = self.entries()?.into_iter().filter(|entry| entry.left_out && self.is_there(&entry.path));
        self.mark("--no-skip-worktree", &written.map(|entry| entry.path).collect::<Vec<_>>())
    }

    fn mark(self, option: &str, paths: &[Vec<u8>]) -> Result<(), GitError> {
        if paths.is_empty() {
            return Ok(());
        }
        let call = self.repository.git(["update-index", option, "-z", "--stdin"]).on(self.files, self.index);
        call.stdin(terminated(paths)).bytes().map(|_| ())
    }

    fn is_there(self, file: &[u8]) -> bool {
        fs::symlink_metadata(self.files.join(path::file(file))).is_ok()
    }

    fn entries(self) -> Result<Vec<Entry>, GitError> {
        let listed = self.repository.git(["ls-files", "-z", "-t", "--cached"]).on(self.files, self.index).bytes()?;
        let lines = listed.split(|&byte| byte == 0).filter_map(|line| Some((line.first()?, line.get(2..)?)));
        Ok(lines.map(|(letter, path)| Entry { left_out: *letter == b'S', path: path.to_vec() }).collect())
    }
}

struct Entry {
    path: Vec<u8>,
    left_out: bool,
}
