//! Git: one repository, its objects and refs, the worktrees agents work in, and what the engine commits of them.
//!
//! The user's checkout, index, config, hooks, branches and reflogs are never written. What is added is: objects, refs
//! under `refs/spinney/`, create-only branches under `refs/heads/spinney/`, a folder `spinney/` beside the objects that
//! holds the lock, and, for linked worktrees, one registration each. This module has no policy of its own: what may enter a commit is
//! a [`TreePolicy`] handed in, and what a conflict means is judged above.
//!
//! How its parts talk: [`Repository`] finds the repository and starts the git program (`program`, the only place, with the
//! same safe settings for every call); `objects` and `refs` read and write through it, or through libgit2 where that
//! can open the repository; [`Workspaces`] makes worktrees under a lock; `snapshot` turns the files of one into a tree,
//! on which `capture` and `checkpoint` build; `merge_tree` merges in the object database. Everything here blocks:
//! call it through `tasks::blocking`.
mod bring;
mod brought;
mod capture;
mod checkpoint;
mod commit;
mod error;
#[cfg(test)]
pub(crate) mod fixture;
mod held;
mod landing;
mod left;
mod lock;
mod loose;
mod merge_tree;
mod missed;
mod noted;
mod objects;
mod packed;
mod patch;
mod path;
mod policy;
mod prepared;
mod private;
mod process;
mod program;
mod reach;
mod refs;
mod register;
mod repository;
mod scope;
mod snapshot;
mod sparse;
#[cfg(test)]
mod tests;
mod whole;
mod workspaces;

pub use bring::Bring;
pub use capture::{CaptureError, Captured};
pub use checkpoint::Joined;
pub use commit::{CommitMeta, Identity};
pub use error::{GitError, KILLED};
pub use landing::Landing;
pub use left::Locked;
pub use merge_tree::{ConflictFile, Merged};
pub use noted::{is_given_up, is_lost};
pub use objects::{Blob, Change, Edit, Mode, TreeId};
pub use policy::{TreePolicy, Violation, names_git};
pub use refs::{Expected, RefMove, branch_of, ref_of, short_name, start_of};
pub use repository::{Head, Repository, load_version};
pub use scope::{Scope, ScopeError};
pub use whole::Unsound;
pub use workspaces::{Content, Isolation, Workspaces, Worktree};
