//! The one time the user's checkout is written: when they land a run, by their own command.
//!
//! Git does it in the two steps of a `git merge --ff-only`: it brings files and index forward, touches no file with changes, and
//! nothing that it does not know, ignored or not; then it moves the branch, only from where it stood to a descendant. Two things
//! differ from the user's own call. Hooks are not run: `core.hooksPath` may lead into the tree, and then what is landed would bring
//! the program that landing it starts. And `packed-refs` is not locked, as a merge does for a moment at its end: a git that is
//! killed then leaves a lock of which nobody can tell whose it is. The reflog is kept as the user has it, so that there is a way back.
//!
//! Git takes the lock of the index for the files alone, and moves the branch when it has given that back: whoever commits,
//! merges or lands in between leaves files of one commit on a branch at another. So the lock, which every git of the user honours,
//! is held here from before the checkout is looked at until files, branch and index all stand where they should; git works on
//! an index beside it, which then takes its place. What happens to land at the same time waits for its turn. Where
//! git fails, the files that it has changed by then go back.
//!
//! Where git is killed, alone or with this program, it leaves locks of the branch, of `HEAD` and of `ORIG_HEAD`. Who lands next knows
//! them by what they hold: the commit that was landed, the one that was landed on, or nothing, while no git is seen at work here.
//! Any other is somebody's, and stays.
mod back;
mod way;

use super::{
    error::GitError,
    lock::{self, Lock, own_folder},
    objects::Change,
    path,
    process::{Git, INDEX, Output, TRIES, killed},
    program::{self, lock_of},
    register,
    repository::{Head, Repository},
    snapshot::copy_index,
};
use crate::{event::CommitId, sandbox};
use back::take_back;
use std::{
    ffi::OsString,
    fs, io,
    ops::Deref,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use way::in_the_way;

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

/// What the lock of an index begins with that a landing holds: one that is left by a death is known by it, and by what follows,
/// the commit that was landed and the one that it was landed on.
const HELD: &str = "spinney lands ";

/// How long an empty lock is looked at before it counts as left, and how often: a git that lives has written into it by then.
const LOOKS: usize = 20;
const LOOK: Duration = Duration::from_millis(50);

impl Repository {
    /// Waits until nobody else lands anything in a checkout of this repository. What a process has begun here that died over
    /// it is ended first: where the branch had not moved the files go back.
    ///
    /// # Errors
    /// `CheckoutBusy` where that cannot be ended yet.
    pub fn landing(&self) -> Result<Landing<'_>, GitError> {
        let landing = Landing { repository: self, _turn: Lock::wait(&own_folder(self)?.join("landing"))? };
        landing.pick_up()?;
        Ok(landing)
    }

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

    /// Runs git in the checkout that the repository was opened from, which is the user's own and no agent's.
    pub(super) fn in_checkout(&self, args: &[&str]) -> Result<Output, GitError> {
        self.on_checkout(args, &[], self.program())
    }

    fn on_checkout(&self, args: &[&str], stdin: &[u8], git: &Git) -> Result<Output, GitError> {
        git.run(&self.as_the_user(args), self.root(), stdin)
    }

    /// Returns the arguments of a call with what is the user's to choose as they have it.
    fn as_the_user(&self, args: &[&str]) -> Vec<OsString> {
        let mut all: Vec<OsString> = Vec::new();
        for pair in self.settings().chunks(2) {
            let setting = pair.last().map(|setting| setting.to_string_lossy()).unwrap_or_default();
            if !LEFT_TO_THE_USER.iter().any(|name| setting.starts_with(name)) {
                all.extend_from_slice(pair);
            }
        }
        all.extend(args.iter().map(OsString::from));
        all
    }
}

/// The right to move a checkout of a repository, for as long as it is there.
#[derive(Debug)]
pub struct Landing<'r> {
    repository: &'r Repository,
    _turn: Lock,
}

impl Landing<'_> {
    /// Moves the branch that is checked out, and the files of the checkout with it, forward from `from` to `to`.
    ///
    /// # Errors
    /// `CheckoutMoved` where something else stands there by now, `CheckoutBusy` while another git is at work in the checkout,
    /// `CheckoutChanged`, `CheckoutUnfinished`, `InTheWay`, `Killed`, or `Failed` with git's own words, as where the branch is locked: nothing is changed
    /// then. `HalfLanded` where files could not be brought back, `LandingLeft` where that could not even be tried.
    pub fn forward(&self, from: &Head, to: &CommitId) -> Result<(), GitError> {
        let repository = self.repository;
        let held = Held::take(repository, from, to)?;
        let stands = |head: &Head| if head == from { Ok(()) } else { Err(GitError::CheckoutMoved { found: head.commit.clone() }) };
        stands(&repository.head()?)?;
        let changed = repository.tracked_changes()?;
        if !changed.is_empty() {
            return Err(GitError::CheckoutChanged { paths: changed });
        }
        if let Some(name) = ["MERGE_HEAD", "CHERRY_PICK_HEAD"].into_iter().find(|name| repository.git_dir().join(name).exists()) {
            return Err(GitError::CheckoutUnfinished { name });
        }
        let paths = in_the_way(repository, &changes(repository, &from.commit, to)?);
        if !paths.is_empty() {
            return Err(GitError::InTheWay { paths });
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let moved = self.attempt(&held, from, to);
            // Where it cannot be told how far it has come, everything stays for whoever lands next.
            let now = match repository.head() {
                Ok(now) => now,
                Err(error) => return Err(held.left("it is not known whether the branch has moved", &error)),
            };
            let failed = match moved {
                Err(failed) if now.commit != *to => failed,
                Ok(()) | Err(_) => return held.keep().map_err(|error| held.left("the branch has moved", &error)),
            };
            match take_back(repository, &from.commit, to) {
                Ok(left) if left.is_empty() => {}
                Ok(left) => return Err(GitError::HalfLanded { paths: left, reason: failed.to_string() }),
                Err(error) => return Err(held.left(&failed.to_string(), &error)),
            }
            // A lock of a ref stays of which it cannot be told now whose it is: whoever lands next has to know that it may be ours.
            if let GitError::CheckoutBusy { .. } = &failed {
                return Err(held.left(&failed.to_string(), &failed));
            }
            stands(&now)?;
            if !matches!(failed, GitError::Killed { .. }) || tries == TRIES {
                return Err(failed);
            }
            held.copy()?;
        }
    }

    /// Brings files and index forward, and then the branch, which is looked at first, so that files stay where it cannot be moved.
    fn attempt(&self, held: &Held, from: &Head, to: &CommitId) -> Result<(), GitError> {
        self.move_branch(from, to, "abort")?;
        let git = with_index(self.repository, &held.beside);
        // What was touched since, or has another number by now, is the same; where something is not it says so by its exit code.
        self.repository.on_checkout(&["update-index", "-q", "--refresh"], &[], &git)?;
        let args = self.repository.as_the_user(&["read-tree", "-m", "-u", &from.commit.0, &to.0]);
        let brought = git.run_once(&args, self.repository.root(), &[])?.ok_or_else(|| killed(&args))?;
        if !brought.is_success() {
            return Err(program::failed("read-tree".to_owned(), &brought));
        }
        self.move_branch(from, to, "commit")
    }

    /// Makes ready to move the branch, and does it where that is its `end`. Where git is killed over it, nothing that it locked stays so.
    fn move_branch(&self, from: &Head, to: &CommitId, end: &str) -> Result<(), GitError> {
        let Landing { repository, .. } = self;
        let moves = format!("start\nupdate HEAD {to} {0}\nupdate ORIG_HEAD {0}\nprepare\n{end}\n", from.commit);
        let args = repository.as_the_user(&["update-ref", "-m", &format!("merge {to}: Fast-forward"), "--stdin"]);
        match repository.program().run_once(&args, repository.root(), moves.as_bytes()) {
            Ok(Some(moved)) if moved.is_success() => Ok(()),
            Ok(Some(moved)) => Err(program::failed("update-ref HEAD".to_owned(), &moved)),
            Ok(None) => {
                unlock(repository, from, to)?;
                Err(killed(&args))
            }
            // It was killed, too.
            Err(error @ GitError::TimedOut { .. }) => {
                unlock(repository, from, to)?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn pick_up(&self) -> Result<(), GitError> {
        let repository = self.repository;
        let held = Held::of(repository);
        if !is_held(&held.lock) {
            return Ok(());
        }
        let said = fs::read(&held.lock).unwrap_or_default();
        let Some(said) = std::str::from_utf8(&said).ok().and_then(|said| said.strip_prefix(HELD)) else { return Ok(()) };
        // Nobody else lands now: whoever has left this is dead. A git of its own may live on for a moment, and leaves its lock where it died too.
        let lock = lock_of(&held.beside);
        if lock.exists() {
            if sandbox::is_anybodys(INDEX, &held.beside.to_string_lossy()) {
                return Err(GitError::CheckoutBusy { lock });
            }
            register::clear(&lock)?;
        }
        let (head, mut commits) = (repository.head()?, said.split_whitespace().map(CommitId::from));
        let to = commits.next().unwrap_or_else(|| head.commit.clone());
        unlock(repository, &Head { commit: commits.next().unwrap_or_else(|| head.commit.clone()), ..head.clone() }, &to)?;
        if head.commit == to && held.beside.exists() {
            held.keep()?;
        } else if head.commit != to && repository.has_commit(&to)? {
            // What does not go back is told of as a change of the checkout.
            take_back(repository, &head.commit, &to)?;
        }
        register::clear(&held.beside)?;
        register::clear(&held.lock)
    }
}

/// Returns whether a lock is one by which a landing holds an index.
pub(super) fn is_held(lock: &Path) -> bool {
    lock.ends_with("index.lock")
        && fs::symlink_metadata(lock).is_ok_and(|found| found.is_file())
        && fs::read(lock).is_ok_and(|said| said.starts_with(HELD.as_bytes()))
}

/// The lock of a checkout's index, and a copy of that index to work on.
struct Held {
    index: PathBuf,
    lock: PathBuf,
    beside: PathBuf,
}

/// Gives the lock back when it is dropped.
struct Holding(Held);

impl Holding {
    /// Leaves everything as a death would: the lock stays, so that whoever lands next ends it, and nobody commits the files before.
    fn left(self, reason: &str, why: &GitError) -> GitError {
        std::mem::forget(self);
        GitError::LandingLeft { reason: reason.to_owned(), why: why.to_string() }
    }
}

impl Held {
    fn of(repository: &Repository) -> Held {
        let index = repository.git_dir().join("index");
        Held { lock: lock_of(&index), beside: repository.git_dir().join("index.spinney"), index }
    }

    /// Takes the lock, for a move from a commit to another.
    fn take(repository: &Repository, from: &Head, to: &CommitId) -> Result<Holding, GitError> {
        let held = Held::of(repository);
        if !lock::say(&held.lock, &own_folder(repository)?.join("lands"), &format!("{HELD}{to} {}\n", from.commit))? {
            return Err(GitError::CheckoutBusy { lock: held.lock });
        }
        let held = Holding(held);
        held.copy()?;
        Ok(held)
    }

    /// Begins with a copy of the checkout's index.
    fn copy(&self) -> Result<(), GitError> {
        register::clear(&lock_of(&self.beside))?;
        if self.index.exists() { copy_index(&self.index, &self.beside).map_err(GitError::io("copy", &self.index)) } else { register::clear(&self.beside) }
    }

    /// Puts the index that was worked on in the place of the checkout's.
    fn keep(&self) -> Result<(), GitError> {
        fs::rename(&self.beside, &self.index).map_err(GitError::io("write", &self.index))
    }
}

impl Deref for Holding {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.0
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // What cannot be removed is picked up by the next who lands.
        let _ = fs::remove_file(&self.0.beside);
        let _ = fs::remove_file(&self.0.lock);
    }
}

fn with_index(repository: &Repository, index: &Path) -> Git {
    repository.program().with(|environment| drop(environment.insert(INDEX.to_owned(), index.to_string_lossy().into_owned())))
}

fn changes(repository: &Repository, from: &CommitId, to: &CommitId) -> Result<Vec<Change>, GitError> {
    repository.changes(&repository.tree_of(from)?, &repository.tree_of(to)?)
}

/// Removes the locks of refs that a git has left which was killed while it moved a branch from a commit to another. Whoever calls has the
/// turn to land, and knows that one was.
///
/// # Errors
/// `CheckoutBusy` with a lock that is somebody's, or may be.
fn unlock(repository: &Repository, from: &Head, to: &CommitId) -> Result<(), GitError> {
    let of_checkout = |name: &str| lock_of(&repository.git_dir().join(name));
    let mut locks = vec![(of_checkout("HEAD"), None), (of_checkout("ORIG_HEAD"), Some(&from.commit))];
    locks.extend(from.branch.iter().map(|branch| (lock_of(&repository.common_dir().join(branch)), Some(to))));
    for (lock, holds) in locks {
        let said = match fs::read(&lock) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            said => said.map_err(GitError::io("read", &lock))?,
        };
        let is_ours = holds.is_some_and(|commit| said == format!("{commit}\n").as_bytes()) || (said.is_empty() && is_left(repository, &lock));
        if !is_ours {
            return Err(GitError::CheckoutBusy { lock });
        }
        register::clear(&lock)?;
    }
    Ok(())
}

/// Returns whether an empty lock is one that nobody writes into any more.
fn is_left(repository: &Repository, lock: &Path) -> bool {
    let look = || fs::symlink_metadata(lock).ok().filter(|found| found.len() == 0).map(|found| found.ino());
    let first = look();
    let stays = (0..LOOKS).all(|_| {
        std::thread::sleep(LOOK);
        look() == first
    });
    stays && !sandbox::is_at_work("git", &[repository.root(), repository.common_dir()])
}
