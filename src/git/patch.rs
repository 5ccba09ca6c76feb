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
}
