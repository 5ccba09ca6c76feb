//! How many commits lie between others, and how many are in no history but that of runs.
use super::{error::GitError, repository::Repository};
use crate::event::CommitId;
use std::collections::BTreeSet;

impl Repository {
    /// Returns how many commits a newer one has that an older one has not.
    ///
    /// # Errors
    /// `Failed` where one of them is not there.
    pub fn count_between(&self, older: &CommitId, newer: &CommitId) -> Result<u64, GitError> {
        self.count(&[format!("{older}..{newer}")])
    }

    /// Returns how many of the commits that these reach are in the history of no branch, tag or remote but those of runs.
    ///
    /// # Errors
    /// `Failed` where one of them is not there.
    pub fn count_nowhere_else(&self, commits: &BTreeSet<CommitId>) -> Result<u64, GitError> {
        if commits.is_empty() {
            return Ok(0);
        }
        let others = ["--not", "--exclude=spinney/*", "--branches", "--tags", "--remotes"].map(str::to_owned);
        self.count(&commits.iter().map(|commit| commit.0.clone()).chain(others).collect::<Vec<_>>())
    }

    fn count(&self, reach: &[String]) -> Result<u64, GitError> {
        let garbled = || GitError::Garbled { command: "rev-list --count".to_owned(), reason: "it is not a number" };
        self.git(["rev-list", "--count"]).args(reach).text()?.trim().parse().map_err(|_| garbled())
    }
}
