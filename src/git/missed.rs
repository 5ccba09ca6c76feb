//! Files of a worktree that nobody has taken out of it, and that are not there any more, or with nothing in them: whoever clears a folder of
//! caches away takes them. Only those that a commit holds can be known, and put back.
use super::{
    error::GitError,
    path, prepared,
    snapshot::{Taking, terminated},
    workspaces::Workspaces,
};
use crate::event::CommitId;
use std::{collections::BTreeSet, fs};

impl Workspaces {
    /// Returns the files of a commit that are gone from the worktree of a name or empty there, `spare` ones aside; sorted.
    ///
    /// # Errors
    /// As `open`.
    pub fn missed(&self, slug: &str, base: &CommitId, of: (&CommitId, &BTreeSet<String>)) -> Result<Vec<String>, GitError> {
        Ok(self.find_missed(slug, base, of, false)?.iter().map(|path| path::quote(path)).collect())
    }

    /// Puts them back.
    ///
    /// # Errors
    /// Where git cannot.
    pub fn put_back(&self, slug: &str, base: &CommitId, of: (&CommitId, &BTreeSet<String>)) -> Result<(), GitError> {
        self.find_missed(slug, base, of, true).map(drop)
    }

    fn find_missed(&self, slug: &str, base: &CommitId, (commit, spare): (&CommitId, &BTreeSet<String>), mend: bool) -> Result<Vec<Vec<u8>>, GitError> {
        let worktree = self.look(slug, base)?;
        let mut taking = Taking::open(self, &worktree, commit)?;
        taking.find_changed()?;
        prepared::pass_over(&worktree, &mut taking.touched);
        let is_empty = |path: &Vec<u8>| {
            let found = fs::symlink_metadata(worktree.path().join(path::file(path)));
            found.is_ok_and(|found| found.is_file() && found.len() == 0)
        };
        let touched = &taking.touched;
        let mut missed: Vec<Vec<u8>> = touched.gone.iter().chain(touched.present.iter().filter(|path| is_empty(path))).cloned().collect();
        missed.retain(|path| !spare.contains(&path::quote(path)) && !touched.nested.contains(path));
        missed.sort();
        if mend && !missed.is_empty() {
            taking.write_out(terminated(&missed))?;
        }
        Ok(missed)
    }
}
