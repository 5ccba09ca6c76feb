//! The one time the user's checkout is written: when they land a run, by their own command.
//!
//! Git does it, as if the user had typed `git merge --ff-only`: it moves the branch only from where it stands to a
//! descendant, touches no file with changes, and refuses where a file that git does not know would be overwritten, an
//! ignored one too. Two things differ from the user's own call. Hooks are not run: `core.hooksPath` may lead into the
//! tree, and then what is landed would bring the program that landing it starts. And nothing is stashed or squashed,
//! whatever the configuration says. The reflog is kept as the user has it, so that there is a way back. Git moves the files
//! before it locks the branch: that it can be locked is asked first, and where it cannot after all the files go back.
use super::{error::GitError, path, process::Output, program, repository::Repository};
use crate::event::CommitId;
use std::ffi::OsString;

/// Settings of the engine's own calls that are the user's to choose in their checkout.
const LEFT_TO_THE_USER: &[&str] = &[
    "core.checkStat=",
    "core.filesRefLockTimeout=",
    "core.logAllRefUpdates=",
    "core.sparseCheckout=",
    "core.splitIndex=",
    "core.trustctime=",
    "core.untrackedCache=",
    "index.sparse=",
    "merge.conflictStyle=",
];

impl Repository {
    /// Returns the files that git knows and that differ from HEAD in the checkout or its index, sorted.
    ///
    /// # Errors
    /// `Failed` where git cannot tell.
    pub fn tracked_changes(&self) -> Result<Vec<String>, GitError> {
        let args = ["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=dirty"];
        let output = self.in_checkout(&args)?;
        if !output.is_success() {
            return Err(program::failed("status".to_owned(), &output));
        }
        let listed = output.whole("status")?;
        let records = listed.split(|&byte| byte == 0);
        let mut changed: Vec<String> = records.filter_map(|record| record.get(3..)).map(path::quote).collect();
        changed.sort();
        Ok(changed)
    }

    /// Moves the branch that is checked out, and the files of the checkout with it, forward from `from` to `to`. Where the
    /// branch stands elsewhere by then, is locked, or a file is in the way, nothing is changed.
    ///
    /// # Errors
    /// `Failed` with git's own words; `HalfLanded` where the files could not be brought back.
    pub fn forward_checkout(&self, from: &CommitId, to: &CommitId) -> Result<(), GitError> {
        let moves = format!("start\nupdate HEAD {to} {from}\nprepare\nabort\n");
        let free = self.in_checkout_reading(&["update-ref", "--stdin"], moves.into_bytes())?;
        if !free.is_success() {
            return Err(program::failed("update-ref HEAD".to_owned(), &free));
        }
        let args = ["merge", "--ff-only", "--commit", "--no-squash", "--no-autostash", "--no-overwrite-ignore", "--no-stat", "--quiet", &to.0];
        let output = self.in_checkout(&args)?;
        if output.is_success() {
            return Ok(());
        }
        let failed = program::failed("merge --ff-only".to_owned(), &output);
        if self.head()?.commit == *from && !self.tracked_changes()?.is_empty() {
            // The checkout had no changes: these are git's own. What is neither in `from` nor in `to` is left alone.
            let back = self.in_checkout(&["read-tree", "-m", "-u", &to.0, &from.0])?;
            if !back.is_success() || !self.tracked_changes()?.is_empty() {
                return Err(GitError::HalfLanded { from: from.clone(), to: to.clone(), reason: failed.to_string() });
            }
        }
        Err(failed)
    }

    /// Runs git in the checkout that the repository was opened from, which is the user's own and no agent's.
    pub(super) fn in_checkout(&self, args: &[&str]) -> Result<Output, GitError> {
        self.in_checkout_reading(args, Vec::new())
    }

    fn in_checkout_reading(&self, args: &[&str], stdin: Vec<u8>) -> Result<Output, GitError> {
        let mut all: Vec<OsString> = Vec::new();
        for pair in self.settings().chunks(2) {
            let setting = pair.last().map(|setting| setting.to_string_lossy()).unwrap_or_default();
            if !LEFT_TO_THE_USER.iter().any(|name| setting.starts_with(name)) {
                all.extend_from_slice(pair);
            }
        }
        all.extend(args.iter().map(OsString::from));
        self.program().run(all, self.root(), stdin)
    }
}
