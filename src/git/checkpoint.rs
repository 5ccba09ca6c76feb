//! Checkpoints: the files of a worktree as they were before something that may have to be undone.
//!
//! A checkpoint is a commit that a ref of the worktree keeps. The ref is moved by compare-and-swap from where this owner last saw
//! it, so a second, stale owner of the same attempt is refused by git itself.
//!
//! A file that holds a secret is not in the commit, for objects outlive the worktree and are pushed and shared; a copy of it
//! stands beside the worktree, is put back by a rollback, and goes with the worktree.
use super::{
    commit::CommitMeta,
    error::GitError,
    held::{self, Held},
    merge_tree::Merged,
    objects::TreeId,
    path,
    refs::{Expected, RefMove},
    workspaces::{Workspaces, Worktree},
};
use crate::{clock::Timestamp, event::CommitId};
use std::sync::PoisonError;

/// Begins the lines of a checkpoint that name repositories inside the worktree, which are left alone by a rollback.
const NESTED: &str = "Nested: ";

/// What other work and the files of a worktree come to together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// They fit.
    Clean {
        /// The checkpoint of the files as they are.
        before: CommitId,
        /// A checkpoint that holds both, to go to by `rollback`.
        after: CommitId,
    },
    /// They do not.
    Conflicted {
        /// Where, sorted.
        paths: Vec<String>,
    },
}

impl Workspaces {
    /// Records the files as they are, those that git ignores left out, and those that hold a secret kept beside it. The same files on the same base give the same commit.
    ///
    /// # Errors
    /// `RefMoved` where someone else has moved the worktree's checkpoint.
    pub fn checkpoint(&self, worktree: &Worktree) -> Result<CommitId, GitError> {
        let snapshot = self.snapshot(worktree, worktree.base())?;
        self.keep_checkpoint(worktree, &snapshot.tree, (&snapshot.nested, &snapshot.held))
    }

    /// Joins work that was made from `from` with the files as they are, in the object database; no file is touched. What
    /// comes of it is the worktree's checkpoint, so that it is kept.
    ///
    /// # Errors
    /// `RefMoved` where someone else has moved the worktree's checkpoint.
    pub fn join(&self, worktree: &Worktree, from: &CommitId, work: &CommitId) -> Result<Joined, GitError> {
        let snapshot = self.snapshot(worktree, worktree.base())?;
        let beside = (&snapshot.nested[..], &snapshot.held[..]);
        let before = self.keep_checkpoint(worktree, &snapshot.tree, beside)?;
        match self.repository().merge_commits(Some(from), &before, work)? {
            Merged::Clean { tree } => Ok(Joined::Clean { after: self.keep_checkpoint(worktree, &tree, beside)?, before }),
            Merged::Conflicted { paths, .. } => Ok(Joined::Conflicted { paths }),
        }
    }

    fn keep_checkpoint(&self, worktree: &Worktree, tree: &TreeId, (nested, held): (&[Vec<u8>], &[Held])) -> Result<CommitId, GitError> {
        let nested: Vec<String> = nested.iter().map(|path| format!("{NESTED}{}", path::quote(path).replace('\n', "\\012"))).collect();
        let meta = CommitMeta { title: format!("Checkpoint of {}", worktree.slug()), body: nested.join("\n"), trailers: Vec::new(), at: Timestamp(0) };
        let commit = self.repository().commit_tree(tree, std::slice::from_ref(worktree.base()), &meta)?;
        held::keep(worktree, &commit, held)?;
        let mut seen = worktree.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.as_ref() != Some(&commit) {
            self.repository().set_ref(&self.ref_name(worktree.slug(), "checkpoint"), &commit, Expected::seen(seen.as_ref()))?;
            *seen = Some(commit.clone());
        }
        Ok(commit)
    }

    /// Brings the files back to a checkpoint: tracked ones and those that git does not ignore, exactly; ignored ones stay. HEAD
    /// and index of the worktree are brought back to its base.
    pub fn rollback(&self, worktree: &Worktree, to: &CommitId) -> Result<(), GitError> {
        let nested = self.nested_at(to)?;
        self.check_out(worktree, to)?;
        // Twice `-f`: also repositories that were made since.
        let call = self.repository().git(["clean", "-d", "-f", "-f", "-q"]).on(worktree.path(), &worktree.index());
        call.args(nested.iter().map(|path| format!("--exclude=/{}", escaped(path)))).bytes()?;
        held::put_back(worktree, to)?;
        self.present(worktree)
    }

    /// Ends a worktree's attempt: one transaction that makes `refs/spinney/RUN/SLUG/result` and drops the checkpoint.
    ///
    /// # Errors
    /// `RefMoved` where someone else has done so, or has moved the checkpoint.
    pub fn finish(&self, worktree: &Worktree, result: &CommitId, expected: Expected) -> Result<(), GitError> {
        let mut seen = worktree.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let make = RefMove { name: self.ref_name(worktree.slug(), "result"), to: Some(result.clone()), expected };
        let drop = RefMove { name: self.ref_name(worktree.slug(), "checkpoint"), to: None, expected: Expected::seen(seen.as_ref()) };
        self.repository().move_refs(&[make, drop])?;
        *seen = None;
        Ok(())
    }

    fn nested_at(&self, checkpoint: &CommitId) -> Result<Vec<String>, GitError> {
        let text = self.repository().git(["log", "-1", "--no-show-signature", "--format=%B", "--end-of-options"]).arg(&checkpoint.0).text()?;
        Ok(text.lines().filter_map(|line| line.strip_prefix(NESTED)).map(|path| String::from_utf8_lossy(&path::unquote(path)).into_owned()).collect())
    }
}

/// Writes a path as a pattern that matches nothing else.
fn escaped(path: &str) -> String {
    let mut pattern = String::new();
    for c in path.chars() {
        if "*?[]\\! #".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
