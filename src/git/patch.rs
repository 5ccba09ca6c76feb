//! The difference of two commits as a patch that applies: byte for byte, binary files included.
use super::{error::GitError, repository::Repository};
use crate::event::CommitId;

impl Repository {
    /// Returns the difference of two commits for `git apply`.
    ///
    /// # Errors
    /// `Garbled` where it is more than can be kept: half a patch is none.
    pub fn patch(&self, a: &CommitId, b: &CommitId) -> Result<Vec<u8>, GitError> {
        self.git(["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "--full-index", "-M", "--end-of-options"]).arg(&a.0).arg(&b.0).bytes()
    }

    /// Returns how many lines were added and removed between two commits; a binary file counts as one.
    ///
    /// # Errors
    /// `Failed` where git cannot tell.
    pub fn changed_lines(&self, a: &CommitId, b: &CommitId) -> Result<u64, GitError> {
        let call = self.git(["diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--numstat", "-z", "--end-of-options"]).arg(&a.0).arg(&b.0);
        let listed = call.bytes()?;
        let lines = |field: Option<&[u8]>| field.and_then(|field| std::str::from_utf8(field).ok()?.parse::<u64>().ok());
        let of = |record: &[u8]| {
            let mut fields = record.split(|&byte| byte == b'\t');
            lines(fields.next()).zip(lines(fields.next())).map_or(1, |(added, removed)| added + removed)
        };
        Ok(listed.split(|&byte| byte == 0).filter(|record| !record.is_empty()).map(of).sum())
    }
}
