//! Joining the work of many into one commit.
//!
//! Sources are joined one after the other, each as one commit on a chain without branches, merged in the object database
//! with what it was made from as its merge base. A conflict goes to a [`Resolver`]; what it gives is accepted only if it is
//! whole and touches nothing else. What nobody settles is put aside with its ref, or fails the merge. A [`Verifier`] judges
//! the joined commit, at the end or after each join: what is landed is exactly a tree that passed.
//!
//! Every step is told to [`Progress`] before a ref shows it, and taken up again from what was told: the dates come in from
//! outside, so the same work gives the same commits. The user's checkout is never touched, and nothing here knows what an
//! agent is: whoever resolves and verifies is handed in.
mod accept;
mod integrate;
mod join;
mod order;
mod report;
#[cfg(test)]
mod tests;

pub use integrate::integrate;
pub use join::join;
pub use report::Report;

use crate::{
    clock::Timestamp,
    event::{CommitId, Failure, MergeProgress, NodeId, RunId},
    git::{ConflictFile, GitError, Repository, TreeId},
    tasks::Panicked,
    workflow::{ConflictThen, MergeMode, MergeOrder, RedThen},
};
use async_trait::async_trait;

/// One piece of work to be joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Whose it is.
    pub node: NodeId,
    /// What it is, on one line: the title of its commit on the chain.
    pub title: String,
    /// The commit that holds it, which a ref keeps.
    pub commit: CommitId,
    /// The commit it was made from.
    pub base: CommitId,
}

/// What a merge does where it cannot simply join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether each join is verified, or all of them at the end.
    pub mode: MergeMode,
    /// What decides which source comes first.
    pub order: Vec<MergeOrder>,
    /// Tries of the resolver at one source's conflict.
    pub attempts: u32,
    /// What happens to a source whose conflict nobody settles.
    pub then: ConflictThen,
    /// What happens to a source that turns the checks red, where each join is verified. A red whole fails the merge.
    pub on_red: RedThen,
    /// Runs of a red check beyond the first.
    pub flaky_retries: u32,
}

/// A merge to be done, or to be taken up again.
#[derive(Clone)]
pub struct Integration<'a> {
    /// Where.
    pub repository: &'a Repository,
    /// The run; a part of the names of refs.
    pub run: &'a RunId,
    /// The merge step's node.
    pub node: &'a NodeId,
    /// What the chain begins with.
    pub onto: &'a CommitId,
    /// What is joined.
    pub sources: &'a [Source],
    /// The date of the joined commits.
    pub at: Timestamp,
    /// What happens besides.
    pub options: Options,
    /// Who settles conflicts.
    pub resolver: Option<&'a dyn Resolver>,
    /// Who judges the joined commit.
    pub verifier: Option<&'a dyn Verifier>,
    /// Who is told.
    pub progress: &'a dyn Progress,
    /// What was told before a crash.
    pub done: &'a [MergeProgress],
}

/// A source that does not fit what was joined so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The source.
    pub source: Source,
    /// What was joined so far.
    pub ours: CommitId,
    /// A commit on `ours` whose tree holds what fits, and conflict markers where text does not: where a resolver starts.
    pub commit: CommitId,
    /// The paths in conflict, sorted.
    pub files: Vec<ConflictFile>,
    /// Where a resolver may write: these paths, and those git names beside them, such as a file's old name.
    pub paths: Vec<String>,
    /// What git says, one line each.
    pub messages: Vec<String>,
    /// From 1.
    pub attempt: u32,
    /// Why the last resolution was not accepted.
    pub rejected: Option<String>,
}

/// What a resolver made of a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// It is settled.
    Settled {
        /// The whole tree, made from the conflict's.
        tree: TreeId,
        /// Who settled it, for the report.
        by: String,
        /// Paths outside the conflict that had to change too.
        beyond: Vec<String>,
    },
    /// It is not, and whoever tries once more may do better.
    Undone {
        /// Why.
        reason: String,
    },
    /// It is not, and another try would come to the same.
    GaveUp {
        /// Why.
        reason: String,
    },
}

/// Settles conflicts.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Tries to settle a conflict.
    async fn resolve(&self, conflict: &Conflict) -> Resolution;
}

/// What checks say of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Whether all are green.
    pub passed: bool,
    /// The tail of the first red one's output.
    pub tail: String,
}

/// Runs checks.
#[async_trait]
pub trait Verifier: Send + Sync {
    /// Checks a commit.
    ///
    /// # Errors
    /// Where the checks could not be run at all; that is not red.
    async fn verify(&self, commit: &CommitId) -> Result<Verified, Failure>;
}

/// Keeps what happened.
#[async_trait]
pub trait Progress: Send + Sync {
    /// Records a step; returns when it is safe.
    ///
    /// # Errors
    /// Where it could not be recorded; the merge goes no further.
    async fn record(&self, progress: MergeProgress) -> Result<(), Failure>;
}

/// Why nothing was landed.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The joined commit did not pass.
    #[error("verify the joined commit {commit}: {tail}")]
    Red {
        /// The commit, which a ref keeps.
        commit: CommitId,
        /// The tail of what was red.
        tail: String,
        /// What had been joined.
        report: Box<Report>,
    },
    /// A conflict was not settled, and the merge says that it must be.
    #[error("join {from}: it conflicts in {}: {reason}", paths.join(", "))]
    Unsettled {
        /// The source.
        from: NodeId,
        /// Where.
        paths: Vec<String>,
        /// Why nobody settled it.
        reason: String,
    },
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// Checks could not be run, or progress not be recorded.
    #[error("{}", .0.message)]
    Failed(Box<Failure>),
    /// A bug.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}
