//! Whether everything that commits are made of is in the object database.
use super::{error::GitError, repository::Repository};
use crate::event::CommitId;
use std::collections::BTreeSet;

/// Missing objects that are named; more say no more.
const NAMED: usize = 20;

impl Repository {
    /// Returns those of some commits, and of the trees and files that they do not share with `base`, that are missing; with
    /// `all` also those of `base` itself. Two or three calls of git, however many commits there are.
    ///
    /// # Errors
    /// `Failed` with git's own words where an object is there and damaged.
    pub fn missing_objects(&self, commits: &BTreeSet<CommitId>, base: &CommitId, all: bool) -> Result<Vec<String>, GitError> {
        let asked: String = commits.iter().chain([base]).map(|commit| format!("{commit}^{{commit}}\n")).collect();
        let said = self.git(["cat-file", "--batch-check=%(objectname)", "--buffer"]).stdin(asked.into_bytes()).text()?;
        let name = |line: &str| line.split(['^', ' ']).next().unwrap_or_default().to_owned();
        let mut missing: BTreeSet<String> = said.lines().filter(|line| line.ends_with(" missing")).map(name).collect();
        let there: String = commits.iter().filter(|commit| !missing.contains(&commit.0)).map(|commit| format!("{commit}\n")).collect();
        if missing.contains(&base.0) {
            return Ok(missing.into_iter().take(NAMED).collect());
        }
        let mut reaches = vec![format!("{there}^{base}\n")];
        if all {
            reaches.push(format!("{base}^{{tree}}\n"));
        }
        for reach in reaches {
            let listed = self.git(["rev-list", "--objects", "--missing=print", "--stdin"]).stdin(reach.into_bytes()).text()?;
            missing.extend(listed.lines().filter_map(|line| line.strip_prefix('?')).map(str::to_owned));
        }
        Ok(missing.into_iter().take(NAMED).collect())
    }
}
