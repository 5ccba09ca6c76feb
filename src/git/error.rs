//! What can go wrong with git, by what a caller can do about it.
use crate::{event::CommitId, journal::mend_of, sandbox::SandboxError};
use std::{io, path::PathBuf};

/// What is said of a call of git that was killed each time.
pub const KILLED: &str = "a signal ended it, again and again";

/// Why git could not do something.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No repository there.
    #[error("find a git repository at `{path}`: {reason}")]
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
        /// Git's own words.
        reason: String,
    },
    /// A bare repository has no checkout to run on.
    #[error("use the bare repository at `{path}`: it has no checkout")]
    Bare {
        /// Where it was found.
        path: PathBuf,
    },
    /// The git program is not there.
    #[error("start the git program: {0}")]
    Program(#[from] SandboxError),
    /// The process is about to end.
    #[error("start git: the process is about to end")]
    Closed,
    /// A call of git went on for too long.
    #[error("wait for git: it was ended after {minutes} minutes")]
    TimedOut {
        /// How long it had.
        minutes: u64,
    },
    /// Something ended a call of git, and each that was made in its place: nothing is known by that.
    #[error("run `git {command}`: {KILLED}")]
    Killed {
        /// The command.
        command: String,
    },
    /// The git program is too old.
    #[error("use git {found}: git 2.41 or newer is needed, for merges without a checkout")]
    TooOld {
        /// What was found.
        found: String,
    },
    /// There is no commit yet.
    #[error("read HEAD of `{path}`: the branch has no commit yet")]
    Unborn {
        /// The repository.
        path: PathBuf,
    },
    /// A revision names no commit.
    #[error("resolve `{rev}`: it names no commit of this repository")]
    NoSuchRevision {
        /// As it was given.
        rev: String,
    },
    /// A ref was not where it was expected: someone else moved it.
    #[error("move refs: {detail}")]
    RefMoved {
        /// Git's own words, with the ref's name.
        detail: String,
    },
    /// A name that is not ours to move.
    #[error("move `{name}`: only refs under `refs/spinney/` are moved, and branches under `refs/heads/spinney/` created")]
    ForeignRef {
        /// The ref.
        name: String,
    },
    /// A name that cannot be a worktree's.
    #[error("use `{name}` as a worktree's name: {reason}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The place for worktrees is inside the repository.
    #[error("keep worktrees in `{folder}`: it is inside the repository")]
    InsideRepository {
        /// The folder.
        folder: PathBuf,
    },
    /// A worktree of that name exists.
    #[error("make worktree `{slug}`: {reason}")]
    Occupied {
        /// Its name.
        slug: String,
        /// What is in the way.
        reason: &'static str,
    },
    /// A worktree's folder is gone, or something else is in its place.
    #[error("use the worktree `{path}`: it is no folder any more; a command has removed or replaced it")]
    NoFiles {
        /// The folder.
        path: PathBuf,
    },
    /// A link leads somewhere else.
    #[error("bring `{path}` into a worktree: a link on the way leads out of the checkout or the worktree")]
    LeadsOut {
        /// The file.
        path: PathBuf,
    },
    /// What is to be stored has the value of a secret in it.
    #[error("store `{path}`: it holds the value of the secret `{secret}`")]
    HoldsSecret {
        /// The file, without the value.
        path: String,
        /// The secret's name.
        secret: String,
    },
    /// A worktree holds work that no ref keeps.
    #[error("remove worktree `{slug}`: {reason}")]
    NotCaptured {
        /// Its name.
        slug: String,
        /// What would be lost.
        reason: String,
    },
    /// A merge that must be clean is not.
    #[error("join `{theirs}` with `{ours}`: they conflict in {}", paths.join(", "))]
    Conflict {
        /// What was joined so far.
        ours: CommitId,
        /// What does not fit.
        theirs: CommitId,
        /// Where.
        paths: Vec<String>,
    },
    /// Another git is at work in the checkout, or died in it.
    #[error("take `{lock}`: another git is at work in the checkout, or has died in it")]
    CheckoutBusy {
        /// The file that it locks with.
        lock: PathBuf,
    },
    /// Something else moved the branch, or checked another one out.
    #[error("find the checkout where it was: something else moved it to {found} at the same time")]
    CheckoutMoved {
        /// Where it stands now.
        found: CommitId,
    },
    /// The checkout has changes.
    #[error("move a checkout with changes: {}", paths.join(", "))]
    CheckoutChanged {
        /// The files, sorted.
        paths: Vec<String>,
    },
    /// Somebody is in the middle of a merge.
    #[error("move a checkout in the middle of something: there is a {name}")]
    CheckoutUnfinished {
        /// The file that says so.
        name: &'static str,
    },
    /// Files of the checkout stand where new ones are to come.
    #[error("move a checkout with files in the way that git does not know: {}", paths.join(", "))]
    InTheWay {
        /// The files, sorted.
        paths: Vec<String>,
    },
    /// Files of the checkout were moved, their branch was not, and not all could be brought back.
    #[error("{reason}; these files could not be brought back: {}", paths.join(", "))]
    HalfLanded {
        /// The files, sorted.
        paths: Vec<String>,
        /// Why the branch did not move.
        reason: String,
    },
    /// The folder of runs holds what no run of this machine wrote.
    #[error("use the runs in `.spinney/state`: the repository itself brings `{path}`{}, and no run of this checkout has written that", others(*files))]
    BringsState {
        /// The first of the files.
        path: String,
        /// How many there are.
        files: usize,
    },
    /// Files of the checkout, or its branch, may have been moved; what was begun stays to be ended.
    #[error("{reason}; what it has begun could not be ended: {why}")]
    LandingLeft {
        /// Why the branch did not move, or that it did.
        reason: String,
        /// Why what was begun was not ended.
        why: String,
    },
    /// Git refused or failed.
    #[error("run `git {command}`: {reason}")]
    Failed {
        /// The command and its first argument.
        command: String,
        /// The end of what it said.
        reason: String,
    },
    /// A file system is full.
    #[error("run `git {command}`: No space left on device of `{}`: {reason}", place.display())]
    NoRoom {
        /// The command and its first argument.
        command: String,
        /// A folder of that file system.
        place: PathBuf,
        /// The end of what git said.
        reason: String,
    },
    /// Git said something this program does not understand.
    #[error("read what `git {command}` said: {reason}")]
    Garbled {
        /// The command.
        command: String,
        /// What was wrong.
        reason: &'static str,
    },
    /// The object database could not be read or written.
    #[error("use the object database: {0}")]
    Objects(#[from] git2::Error),
    /// Files could not be read or written.
    #[error("{action} `{path}`: {source}")]
    Io {
        /// The verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn others(files: usize) -> String {
    if files > 1 { format!(" and {} more", files - 1) } else { String::new() }
}

impl GitError {
    /// What whoever stands in the wrong place, or has the wrong git, can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            GitError::NotFound { .. } => Some("go into a git repository, or name one with `-C DIR`; `git init` makes one"),
            GitError::Bare { .. } => Some("run inside a clone or a worktree of it"),
            GitError::Program(_) | GitError::TooOld { .. } => Some("install git 2.41 or newer and see that it is on PATH"),
            GitError::CheckoutBusy { .. } => Some("try again when it is done; where no git runs there any more, remove that file"),
            GitError::CheckoutUnfinished { .. } => Some("`git status` says what it is, and how it ends"),
            GitError::HalfLanded { .. } => Some("`git status` shows them; `git restore` brings them back"),
            GitError::LandingLeft { .. } => {
                Some("the checkout is locked until then: mend what is amiss, make room say, and `spinney land` brings the files back before it begins")
            }
            GitError::Killed { .. } => Some("see what ends it: where memory is short the system does, and its log says so; then try again"),
            GitError::Unborn { .. } => Some("make a first commit: a run starts from one"),
            GitError::BringsState { .. } => {
                Some("`git rm -r -q .spinney/state` removes them; with `--cached` the files stay, and are taken for this checkout's own")
            }
            GitError::Io { source, .. } => mend_of(source),
            GitError::HoldsSecret { .. } => Some("take the value out, or leave the file to git's ignore rules"),
            _ => None,
        }
    }

    /// Gives an I/O error its place.
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> GitError {
        let path = path.into();
        move |source| GitError::Io { action, path, source }
    }
}
