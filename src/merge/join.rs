//! The base of a step that needs the work of several others.
use crate::{
    clock::Timestamp,
    event::CommitId,
    git::{CommitMeta, GitError, Merged, Repository},
};

/// Joins commits whose work must fit, as that of steps ordered after each other or of disjoint parts does. What another of them already
/// holds adds nothing; a single one that holds all others is the answer itself; otherwise merge commits are made whose ids
/// depend on the commits and their order alone. Blocks.
///
/// # Errors
/// `GitError::Conflict` where two do not fit.
pub fn join(repository: &Repository, base: &CommitId, commits: &[CommitId]) -> Result<CommitId, GitError> {
    if commits.is_empty() {
        return Ok(base.clone());
    }
    let all: Vec<CommitId> = std::iter::once(base).chain(commits).cloned().collect();
    let mut heads = repository.independent(&all)?.into_iter();
    let mut joined = heads.next().unwrap_or_else(|| base.clone());
    for head in heads {
        let tree = match repository.merge_commits(None, &joined, &head)? {
            Merged::Clean { tree } => tree,
            Merged::Conflicted { paths, .. } => return Err(GitError::Conflict { ours: joined, theirs: head, paths }),
        };
        let at: Timestamp = repository.date_of(&joined)?.max(repository.date_of(&head)?);
        let meta = CommitMeta { title: "Join what a step needs".to_owned(), at, ..CommitMeta::default() };
        joined = repository.commit_tree(&tree, &[joined, head], &meta)?;
    }
    Ok(joined)
}
