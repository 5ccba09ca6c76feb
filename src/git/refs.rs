//! Refs: moved by compare-and-swap only, many in one transaction, and only those that are ours.
use super::{error::GitError, program, register, repository::Repository};
use crate::{
    event::{CommitId, RunId},
    journal::sync_around,
};
use std::path::PathBuf;

/// Where a ref must stand for a move to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Nowhere: it is created.
    Absent,
    /// At this commit.
    At(CommitId),
    /// Anywhere or nowhere.
    Any,
}

impl Expected {
    /// Expects a ref where it was last seen.
    pub fn seen(at: Option<&CommitId>) -> Expected {
        at.map_or(Expected::Absent, |commit| Expected::At(commit.clone()))
    }
}

/// One move of one ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefMove {
    /// The full name.
    pub name: String,
    /// Where it goes; `None` deletes it.
    pub to: Option<CommitId>,
    /// Where it must stand before.
    pub expected: Expected,
}

/// Where the refs of all runs are.
pub(super) const OURS: &str = "refs/spinney/";
/// Where the branches are that runs create.
pub(super) const BRANCHES: &str = "refs/heads/spinney/";

/// Names the ref by which a run keeps something of a node, whose slug is given: `result`, `checkpoint`.
pub fn ref_of(run: &RunId, slug: &str, name: &str) -> String {
    format!("{OURS}{run}/{slug}/{name}")
}

/// Names the ref by which a run keeps the commit that it starts from.
pub fn start_of(run: &RunId) -> String {
    ref_of(run, "checkout", "head")
}

/// Names the branch that a run leaves, in full.
pub fn branch_of(run: &RunId) -> String {
    format!("{BRANCHES}{run}")
}

/// Returns what people call a branch.
pub fn short_name(branch: &str) -> &str {
    branch.strip_prefix("refs/heads/").unwrap_or(branch)
}

impl Repository {
    /// Moves refs, all or none.
    ///
    /// # Errors
    /// `RefMoved` where one stands elsewhere than expected, `ForeignRef` where one is not ours: that is all but
    /// `refs/spinney/` and, create-only, `refs/heads/spinney/`.
    pub fn move_refs(&self, moves: &[RefMove]) -> Result<(), GitError> {
        let creates_branch = |entry: &RefMove| entry.name.starts_with(BRANCHES) && entry.to.is_some() && entry.expected == Expected::Absent;
        if let Some(foreign) = moves.iter().find(|entry| !(entry.name.starts_with(OURS) || creates_branch(entry)) || entry.name.contains('\0')) {
            return Err(GitError::ForeignRef { name: foreign.name.clone() });
        }
        if self.move_loose(moves)? {
            return Ok(());
        }
        let mut commands = Vec::new();
        for RefMove { name, to, expected } in moves {
            let old = match expected {
                Expected::At(commit) => commit.0.as_str(),
                Expected::Absent | Expected::Any => "",
            };
            commands.extend_from_slice(
                match (to, expected) {
                    (Some(commit), Expected::Absent) => format!("create {name}\0{commit}\0"),
                    (Some(commit), _) => format!("update {name}\0{commit}\0{old}\0"),
                    // Deleting what is not there is done already.
                    (None, Expected::Absent) => continue,
                    (None, _) => format!("delete {name}\0{old}\0"),
                }
                .as_bytes(),
            );
        }
        if moves.iter().any(|entry| entry.name.starts_with(BRANCHES)) {
            self.sync()?;
        }
        let call = self.git(["update-ref", "--no-deref", "-z", "--stdin"]).stdin(commands);
        let output = moves.iter().fold(call, |call, entry| call.locking(self.lock_of_ref(&entry.name))).output()?;
        if output.is_success() || (output.repeated && self.stand(moves)?) {
            return Ok(());
        }
        let said = program::complaint(&output);
        let signs = ["but expected", "already exists", "unable to resolve reference", "reference is missing"];
        if signs.iter().any(|sign| said.contains(sign)) {
            Err(GitError::RefMoved { detail: said })
        } else {
            Err(program::failed_in(&[self.common_dir().to_owned()], "update-ref".to_owned(), &output))
        }
    }

    /// Returns whether these moves are made.
    fn stand(&self, moves: &[RefMove]) -> Result<bool, GitError> {
        moves.iter().try_fold(true, |all, entry| Ok(all && self.ref_at(&entry.name)? == entry.to))
    }

    pub(super) fn lock_of_ref(&self, name: &str) -> PathBuf {
        program::lock_of(&self.common_dir().join(name))
    }

    /// Removes the locks that git left on a run's refs where it was killed with whoever started it, and one of ours on those that are
    /// packed. Whoever calls owns the run.
    ///
    /// # Errors
    /// `Io`.
    pub fn unlock_refs(&self, run: &RunId) -> Result<(), GitError> {
        self.locks_of(run).iter().try_for_each(|lock| register::clear(lock))?;
        self.unlock_packed_refs()
    }

    /// Has the system write to the disk what was stored so far: a branch must not outlive its objects when the power fails.
    fn sync(&self) -> Result<(), GitError> {
        let objects = self.common_dir().join("objects");
        sync_around(&objects).map_err(GitError::io("sync", &objects))
    }

    /// Moves one ref.
    ///
    /// # Errors
    /// As `move_refs`.
    pub fn set_ref(&self, name: &str, new: &CommitId, expected: Expected) -> Result<(), GitError> {
        self.move_refs(&[RefMove { name: name.to_owned(), to: Some(new.clone()), expected }])
    }

    /// Deletes a ref that stands at `at`.
    ///
    /// # Errors
    /// As `move_refs`.
    pub fn delete_ref(&self, name: &str, at: &CommitId) -> Result<(), GitError> {
        self.move_refs(&[RefMove { name: name.to_owned(), to: None, expected: Expected::At(at.clone()) }])
    }

    /// Returns where a ref stands.
    pub fn ref_at(&self, name: &str) -> Result<Option<CommitId>, GitError> {
        if let Some(objects) = self.objects() {
            return match objects.find_reference(name) {
                Ok(found) => Ok(found.target().map(|id| CommitId(id.to_string()))),
                Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
        Ok(self.refs(name)?.into_iter().find(|(found, _)| found == name).map(|(_, commit)| commit))
    }

    /// Returns the refs at or below a name without its last slash, sorted by name, each with its commit.
    pub fn refs(&self, prefix: &str) -> Result<Vec<(String, CommitId)>, GitError> {
        let prefix = prefix.trim_end_matches('/');
        if let Some(listed) = self.list_refs(prefix)? {
            return Ok(listed);
        }
        self.refs_by_git(prefix)
    }

    pub(super) fn refs_by_git(&self, prefix: &str) -> Result<Vec<(String, CommitId)>, GitError> {
        let listed = self.git(["for-each-ref", "--format=%(objectname) %(refname)"]).arg(prefix).text()?;
        let refs = listed.lines().filter_map(|line| line.split_once(' '));
        Ok(refs.map(|(commit, name)| (name.to_owned(), commit.into())).collect())
    }

    /// Returns whether a branch that is not a run's has this commit in its history.
    ///
    /// # Errors
    /// `Failed` where git cannot tell.
    pub fn has_landed(&self, commit: &CommitId) -> Result<bool, GitError> {
        let listed = self.git(["for-each-ref", "--format=%(refname)", "--contains"]).arg(&commit.0).arg("refs/heads").text()?;
        Ok(listed.lines().any(|name| !name.starts_with(BRANCHES)))
    }

    /// Returns the folder in which a branch is checked out, where it is in one.
    ///
    /// # Errors
    /// `Failed` where git cannot tell.
    pub fn checked_out(&self, branch: &str) -> Result<Option<String>, GitError> {
        let listed = self.git(["for-each-ref", "--format=%(worktreepath)"]).arg(branch).text()?;
        Ok(listed.lines().find(|folder| !folder.is_empty()).map(str::to_owned))
    }

    /// Deletes the branch of a run, as if the user had: git refuses where it is checked out. Where nothing but the branch itself takes
    /// part that is done here: a git that is killed over it leaves locks that stop every other one.
    ///
    /// # Errors
    /// `Failed` with git's own words.
    pub fn delete_branch_of(&self, run: &RunId) -> Result<(), GitError> {
        let branch = branch_of(run);
        if !self.is_in_use(&branch)? && self.move_loose(&[RefMove { name: branch.clone(), to: None, expected: Expected::Any }])? {
            return Ok(());
        }
        let output = self.in_checkout(&["branch", "-D", "--quiet", "--end-of-options", short_name(&branch)])?;
        let is_gone = output.is_success() || (output.repeated && self.ref_at(&branch)?.is_none());
        if is_gone { Ok(()) } else { Err(program::failed("branch -D".to_owned(), &output)) }
    }

    /// Returns whether a branch is checked out somewhere, or may be in the middle of something there, or has settings.
    fn is_in_use(&self, branch: &str) -> Result<bool, GitError> {
        let Some(objects) = self.objects() else { return Ok(true) };
        let linked = std::fs::read_dir(self.common_dir().join("worktrees")).into_iter().flatten().flatten().map(|entry| entry.path());
        let at = format!("ref: {branch}");
        let uses = |folder: PathBuf| {
            ["rebase-merge", "rebase-apply", "BISECT_START"].iter().any(|name| folder.join(name).exists())
                || std::fs::read_to_string(folder.join("HEAD")).is_ok_and(|head| head.trim_end() == at)
        };
        if linked.chain([self.common_dir().to_owned()]).any(uses) {
            return Ok(true);
        }
        let settings = format!("branch.{}.", short_name(branch));
        let mut found = false;
        objects.config()?.entries(None)?.for_each(|entry| found |= entry.name().is_ok_and(|name| name.starts_with(&settings)))?;
        Ok(found)
    }

    /// Returns whether any ref keeps this commit from being collected.
    pub(super) fn is_kept(&self, commit: &CommitId) -> Result<bool, GitError> {
        Ok(!self.git(["for-each-ref", "--count=1", "--format=%(refname)", "--contains"]).arg(&commit.0).text()?.is_empty())
    }
}
