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
    register,
    workspaces::{Workspaces, Worktree},
};
use crate::{clock::Timestamp, event::CommitId};
use std::{ffi::OsStr, fs, io, os::unix::fs::FileTypeExt as _, path::Path, sync::PoisonError};

/// Times that a commit is made again of which something is gone at once.
const AGAIN_MAX: usize = 3;

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
        self.whole(worktree, worktree.base(), || {
            let snapshot = self.snapshot(worktree, worktree.base())?;
            let commit = self.keep_checkpoint(worktree, &snapshot.tree, (&snapshot.nested, &snapshot.held))?;
            Ok((Some(commit.clone()), commit))
        })
    }

    /// Makes a commit of a worktree's files, and makes it again where something of it is gone when it is there: no ref keeps objects while
    /// they are written, and a `git gc --prune=now` in that moment takes them away. `make` also returns which commit it is.
    pub(super) fn whole<T, E: From<GitError>>(
        &self,
        worktree: &Worktree,
        base: &CommitId,
        make: impl Fn() -> Result<(Option<CommitId>, T), E>,
    ) -> Result<T, E> {
        for _ in 0..AGAIN_MAX {
            let (commit, made) = make()?;
            match commit {
                Some(commit) if !self.repository().is_there(&commit, base)? => {}
                Some(_) | None => return Ok(made),
            }
            // The index says of what is gone that it is stored.
            register::clear(&worktree.index())?;
        }
        Ok(make()?.1)
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
        call.args(nested.iter().map(|path| path::os(&[b"--exclude=/", &escaped(path)[..]].concat()))).bytes()?;
        remove_pipes(worktree.path()).map_err(GitError::io("clear", worktree.path()))?;
        held::put_back(worktree, to)?;
        self.present(worktree)
    }

    /// Ends the attempt of a worktree's name: one transaction that keeps its result by a ref, and drops the checkpoint, whose files
    /// are in that or were given up for it.
    ///
    /// # Errors
    /// `RefMoved` where someone else moves them at the same time.
    pub fn finish(&self, slug: &str, (name, result): (&str, &CommitId)) -> Result<(), GitError> {
        let checkpoint = self.ref_name(slug, "checkpoint");
        let at = self.repository().ref_at(&checkpoint)?;
        let keep = RefMove { name: name.to_owned(), to: Some(result.clone()), expected: Expected::Any };
        let drop = RefMove { name: checkpoint, to: None, expected: Expected::seen(at.as_ref()) };
        self.repository().move_refs(&[keep, drop])
    }

    fn nested_at(&self, checkpoint: &CommitId) -> Result<Vec<Vec<u8>>, GitError> {
        let text = self.repository().git(["log", "-1", "--no-show-signature", "--format=%B", "--end-of-options"]).arg(&checkpoint.0).text()?;
        Ok(text.lines().filter_map(|line| line.strip_prefix(NESTED)).map(path::unquote).collect())
    }
}

/// Removes pipes and sockets, which git does not see: whoever has made them makes them again. Links are not followed, and
/// repositories inside are left alone.
fn remove_pipes(top: &Path) -> io::Result<()> {
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let (kind, path) = entry.and_then(|entry| Ok((entry.file_type()?, entry.path())))?;
            if kind.is_dir() && path.file_name() != Some(OsStr::new(".git")) && !path.join(".git").exists() {
                folders.push(path);
            } else if kind.is_fifo() || kind.is_socket() {
                fs::remove_file(path)?;
            }
        }
    }
    Ok(())
}

/// Writes a path as a pattern that matches nothing else.
fn escaped(path: &[u8]) -> Vec<u8> {
    path.iter().flat_map(|&byte| b"*?[]\\! #".contains(&byte).then_some(b'\\').into_iter().chain([byte])).collect()
}
