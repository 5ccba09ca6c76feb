//! The engine's commit of an agent's work.
use super::{
    commit::CommitMeta,
    error::GitError,
    objects::{Blob, Change, Mode},
    path,
    policy::{self, TreePolicy, Violation},
    prepared,
    snapshot::Taking,
    workspaces::{Workspaces, Worktree},
};
use crate::event::CommitId;
use std::fs;

/// What became of a worktree's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The commit, on the base; `None` where nothing differs from it.
    pub commit: Option<CommitId>,
    /// The paths that differ from the base, sorted.
    pub paths: Vec<String>,
}

/// Why work was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The rules forbid some of it; nothing was committed.
    #[error("commit the work: {}", listed(.0))]
    Policy(Vec<Violation>),
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
}

fn listed(violations: &[Violation]) -> String {
    const SHOWN: usize = 20;
    let mut lines: Vec<String> = violations.iter().take(SHOWN).map(ToString::to_string).collect();
    if violations.len() > SHOWN {
        lines.push(format!("{} more", violations.len() - SHOWN));
    }
    lines.join("; ")
}

impl Workspaces {
    /// Commits the files of a worktree on `base`, under the rules. The agent's own commits and index are not looked at, and
    /// files that git ignores are left out. The commit is on no branch and no ref keeps it yet.
    ///
    /// # Errors
    /// `CaptureError::Policy` with everything the rules forbid.
    pub fn capture(&self, worktree: &Worktree, base: &CommitId, policy: &TreePolicy, meta: &CommitMeta) -> Result<Captured, CaptureError> {
        self.whole(worktree, base, || {
            let captured = self.take(worktree, base, policy, meta)?;
            Ok((captured.commit.clone(), captured))
        })
    }

    fn take(&self, worktree: &Worktree, base: &CommitId, policy: &TreePolicy, meta: &CommitMeta) -> Result<Captured, CaptureError> {
        let repository = self.repository();
        let mut taking = Taking::begin(self, worktree, base)?;
        prepared::pass_over(worktree, &mut taking.touched);
        // Judged before anything is stored: a file of many gigabytes is not to end up in the object database first.
        let (mut violations, filtered) = before_storing(worktree, policy, &taking)?;
        if !violations.is_empty() {
            return Err(CaptureError::Policy(violations));
        }
        let snapshot = taking.finish()?;
        let changes = repository.changes(&repository.tree_of(base)?, &snapshot.tree)?;
        for change in &changes {
            let link = match &change.after {
                Some(Blob { mode: Mode::Link, id }) => Some(repository.blob(id)?),
                Some(_) | None => None,
            };
            violations.extend(policy::judge(policy, change, link.as_deref()));
            violations.extend(self.still_large(policy, change, &filtered)?);
        }
        if !violations.is_empty() {
            return Err(CaptureError::Policy(violations));
        }
        let paths: Vec<String> = changes.into_iter().map(|change| change.path).collect();
        let commit = if paths.is_empty() { None } else { Some(repository.commit_tree(&snapshot.tree, std::slice::from_ref(base), meta)?) };
        Ok(Captured { commit, paths })
    }

    /// Judges what a filter has left of a large file.
    fn still_large(&self, policy: &TreePolicy, change: &Change, filtered: &[Vec<u8>]) -> Result<Option<Violation>, GitError> {
        let Some(after) = &change.after else { return Ok(None) };
        if !filtered.contains(&path::unquote(&change.path)) {
            return Ok(None);
        }
        let bytes = self.repository().blob_size(&after.id)?;
        Ok((bytes > policy.largest_file).then(|| Violation::TooLarge { path: change.path.clone(), bytes }))
    }
}

/// Judges the files themselves; also returns the large ones that a filter will make small, perhaps.
fn before_storing(worktree: &Worktree, policy: &TreePolicy, taking: &Taking<'_>) -> Result<(Vec<Violation>, Vec<Vec<u8>>), GitError> {
    let nested = taking.touched.nested.iter().map(|nested| {
        let is_repository = fs::symlink_metadata(worktree.path().join(path::file(nested)).join(".git")).is_ok();
        if is_repository { Violation::Repository(path::quote(nested)) } else { Violation::Submodule(path::quote(nested)) }
    });
    let held = taking.touched.held.iter().map(|held| Violation::Secret { path: held.shown.clone(), name: held.secret.clone() });
    let mut violations: Vec<Violation> = nested.chain(held).collect();
    let mut large = Vec::new();
    for file in &taking.touched.present {
        let found = fs::symlink_metadata(worktree.path().join(path::file(file)));
        let Ok(found) = found else { continue };
        let kind = found.file_type();
        if policy::names_git(file) {
            violations.push(Violation::GitName(path::quote(file)));
        } else if !(kind.is_file() || kind.is_symlink() || kind.is_dir()) {
            violations.push(Violation::Special(path::quote(file)));
        } else if kind.is_file() && found.len() > policy.largest_file {
            large.push((file.clone(), found.len()));
        }
    }
    if large.is_empty() {
        return Ok((violations, Vec::new()));
    }
    let paths: Vec<Vec<u8>> = large.iter().map(|(path, _)| path.clone()).collect();
    let filtered = taking.filtered(&paths)?;
    let plain = large.into_iter().filter(|(path, _)| !filtered.contains(path));
    violations.extend(plain.map(|(path, bytes)| Violation::TooLarge { path: path::quote(&path), bytes }));
    Ok((violations, filtered))
}
