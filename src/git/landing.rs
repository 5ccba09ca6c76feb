//! The one time the user's checkout is written: when they land a run, by their own command.
//!
//! Git does it, as if the user had typed `git merge --ff-only`: it moves the branch only from where it stands to a
//! descendant, touches no file with changes, and refuses where a file that git does not know would be overwritten, an
//! ignored one too. Two things differ from the user's own call. Hooks are not run: `core.hooksPath` may lead into the
//! tree, and then what is landed would bring the program that landing it starts. And nothing is stashed or squashed,
//! whatever the configuration says. The reflog is kept as the user has it, so that there is a way back.
//!
//! Git takes the lock of the index for the files alone, and moves the branch when it has given that back: whoever commits,
//! merges or lands in between leaves files of one commit on a branch at another. So the lock, which every git of the user honours,
//! is held here from before the checkout is looked at until files, branch and index all stand where they should; git works on
//! an index beside it, which then takes its place. What happens to land at the same time waits for its turn. Where
//! git fails, the files that it has changed by then go back.
use super::{
    error::GitError,
    lock::{Lock, own_folder},
    objects::{Blob, Change},
    path,
    process::{Git, Output},
    program::{self, lock_of},
    register,
    repository::{Head, Repository},
};
use crate::{event::CommitId, sandbox};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{ErrorKind, Write as _},
    ops::Deref,
    path::{Path, PathBuf},
};

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

/// The variable by which git is told its index.
const INDEX: &str = "GIT_INDEX_FILE";

/// What the lock of an index begins with that a landing holds: one that is left by a death is known by it, and by what follows,
/// the commit that was landed.
const HELD: &str = "spinney lands ";

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
        self.on_checkout(args, Vec::new(), self.program())
    }

    fn on_checkout(&self, args: &[&str], stdin: Vec<u8>, git: &Git) -> Result<Output, GitError> {
        let mut all: Vec<OsString> = Vec::new();
        for pair in self.settings().chunks(2) {
            let setting = pair.last().map(|setting| setting.to_string_lossy()).unwrap_or_default();
            if !LEFT_TO_THE_USER.iter().any(|name| setting.starts_with(name)) {
                all.extend_from_slice(pair);
            }
        }
        all.extend(args.iter().map(OsString::from));
        git.run(all, self.root(), stdin)
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
    /// `CheckoutChanged`, or `Failed` with git's own words, as where the branch is locked or a file is in the way: nothing is
    /// changed then. `HalfLanded` where files could not be brought back, `LandingLeft` where that could not even be tried.
    pub fn forward(&self, from: &Head, to: &CommitId) -> Result<(), GitError> {
        let repository = self.repository;
        let held = Held::take(repository, to)?;
        let stands = |head: &Head| if head == from { Ok(()) } else { Err(GitError::CheckoutMoved { found: head.commit.clone() }) };
        stands(&repository.head()?)?;
        let changed = repository.tracked_changes()?;
        if !changed.is_empty() {
            return Err(GitError::CheckoutChanged { paths: changed });
        }
        let moves = format!("start\nupdate HEAD {to} {}\nprepare\nabort\n", from.commit);
        let free = repository.on_checkout(&["update-ref", "--stdin"], moves.into_bytes(), repository.program())?;
        if !free.is_success() {
            stands(&repository.head()?)?;
            return Err(program::failed("update-ref HEAD".to_owned(), &free));
        }
        let args = ["merge", "--ff-only", "--commit", "--no-squash", "--no-autostash", "--no-overwrite-ignore", "--no-stat", "--quiet", &to.0];
        let merged = repository.on_checkout(&args, Vec::new(), &with_index(repository, &held.beside))?;
        let now = repository.head()?;
        if merged.is_success() || now.commit == *to {
            return held.keep();
        }
        let failed = program::failed("merge --ff-only".to_owned(), &merged);
        let left = match take_back(repository, &from.commit, to) {
            Ok(left) => left,
            Err(error) => {
                // The lock stays, so that whoever lands next takes the files back, and nobody commits them before.
                held.leave();
                return Err(GitError::LandingLeft { reason: failed.to_string(), why: error.to_string() });
            }
        };
        if !left.is_empty() {
            return Err(GitError::HalfLanded { paths: left, reason: failed.to_string() });
        }
        stands(&now)?;
        Err(failed)
    }

    fn pick_up(&self) -> Result<(), GitError> {
        let repository = self.repository;
        let held = Held::of(repository);
        let said = fs::read(&held.lock).unwrap_or_default();
        let Some(to) = std::str::from_utf8(&said).ok().and_then(|said| said.strip_prefix(HELD)) else { return Ok(()) };
        // Nobody else lands now: whoever has left this is dead. A git of its own may live on for a moment, and leaves its lock where it died too.
        let lock = lock_of(&held.beside);
        if lock.exists() {
            if sandbox::is_anybodys(INDEX, &held.beside.to_string_lossy()) {
                return Err(GitError::CheckoutBusy { lock });
            }
            register::clear(&lock)?;
        }
        let (head, to) = (repository.head()?, CommitId(to.trim_end().to_owned()));
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

/// The lock of a checkout's index, and a copy of that index to work on.
struct Held {
    index: PathBuf,
    lock: PathBuf,
    beside: PathBuf,
}

/// Gives the lock back when it is dropped.
struct Holding(Held);

impl Holding {
    /// Leaves everything as a death would.
    fn leave(self) {
        std::mem::forget(self);
    }
}

impl Held {
    fn of(repository: &Repository) -> Held {
        let index = repository.git_dir().join("index");
        Held { lock: lock_of(&index), beside: repository.git_dir().join("index.spinney"), index }
    }

    /// Takes the lock, for a move to a commit.
    fn take(repository: &Repository, to: &CommitId) -> Result<Holding, GitError> {
        let held = Held::of(repository);
        let mut file = OpenOptions::new().write(true).create_new(true).open(&held.lock).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => GitError::CheckoutBusy { lock: held.lock.clone() },
            _ => GitError::io("lock", &held.index)(error),
        })?;
        let held = Holding(held);
        file.write_all(format!("{HELD}{to}\n").as_bytes()).map_err(GitError::io("write", &held.lock))?;
        if held.index.exists() {
            fs::copy(&held.index, &held.beside).map_err(GitError::io("copy", &held.index))?;
        }
        Ok(held)
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

/// Brings those files of the checkout back to `from` that git has made those of `to`; what is neither is left alone. Returns what
/// does not go back.
fn take_back(repository: &Repository, from: &CommitId, to: &CommitId) -> Result<Vec<String>, GitError> {
    let changes = repository.changes(&repository.tree_of(from)?, &repository.tree_of(to)?)?;
    let own = own_folder(repository)?;
    let folder = tempfile::Builder::new().prefix("index-").tempdir_in(&own).map_err(GitError::io("make a folder in", own))?;
    let of = |name: &str, entry: fn(&Change) -> Option<&Blob>| {
        index_of(repository, &folder.path().join(name), changes.iter().filter_map(|change| Some((change, entry(change)?))))
    };
    let (of_from, of_to) = (of("from", |change| change.before.as_ref())?, of("to", |change| change.after.as_ref())?);
    let not_of_to = different(repository, &of_to)?;
    let place = |change: &Change| repository.root().join(path::file(&path::unquote(&change.path)));
    let (mut back, mut left) = (Vec::new(), Vec::new());
    for change in &changes {
        let is_there = fs::symlink_metadata(place(change)).is_ok();
        let begun = || change.after.as_ref().is_some_and(|after| is_begun(repository, &place(change), after));
        let is_neither = not_of_to.contains(&change.path) && !begun();
        match (&change.before, &change.after) {
            (Some(_), Some(_)) if is_neither => {}
            (Some(_), None) if is_there => {}
            (Some(_), _) => back.extend([path::unquote(&change.path), vec![0]].concat()),
            (None, _) if is_there && is_neither => left.push(change.path.clone()),
            (None, _) if is_there => {
                fs::remove_file(place(change)).map_err(GitError::io("remove", place(change)))?;
                // And the folders that were made for it; the first that holds something else ends this.
                let _ = place(change).ancestors().skip(1).take_while(|folder| *folder != repository.root()).try_for_each(fs::remove_dir);
            }
            (None, _) => {}
        }
    }
    let brought = repository.on_checkout(&["checkout-index", "--force", "-z", "--stdin"], back, &of_from)?;
    if brought.code.is_none() {
        return Err(program::failed("checkout-index".to_owned(), &brought));
    }
    left.extend(different(repository, &of_from)?);
    left.sort();
    Ok(left)
}

/// Returns whether a file is one that git had begun to write: it has the beginning of what it was to have, so that nobody loses anything by its going.
/// One that is gone was to be written anew.
fn is_begun(repository: &Repository, file: &Path, to: &Blob) -> bool {
    match fs::symlink_metadata(file) {
        Ok(found) if found.is_file() => fs::read(file).ok().zip(repository.blob(&to.id).ok()).is_some_and(|(there, whole)| whole.starts_with(&there)),
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Returns git with an index of these entries alone.
fn index_of<'c>(repository: &Repository, index: &Path, entries: impl Iterator<Item = (&'c Change, &'c Blob)>) -> Result<Git, GitError> {
    let mut lines = Vec::new();
    for (change, Blob { mode, id }) in entries {
        lines.extend(format!("{} {id}\t", mode.octal()).into_bytes());
        lines.extend(path::unquote(&change.path));
        lines.push(0);
    }
    let git = with_index(repository, index);
    let output = repository.on_checkout(&["update-index", "-z", "--index-info"], lines, &git)?;
    if output.is_success() { Ok(git) } else { Err(program::failed("update-index".to_owned(), &output)) }
}

/// Returns the files that are not as an index has them.
fn different(repository: &Repository, git: &Git) -> Result<BTreeSet<String>, GitError> {
    // It says by its exit code what the next call lists.
    repository.on_checkout(&["update-index", "-q", "--refresh"], Vec::new(), git)?;
    let output = repository.on_checkout(&["diff-files", "--name-only", "-z", "--ignore-submodules=dirty"], Vec::new(), git)?;
    Ok(output.whole("diff-files")?.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(path::quote).collect())
}
