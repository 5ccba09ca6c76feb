//! The worktrees of one run: made, found again after a crash, removed.
//!
//! This is the seam behind which a worktree is provided: today a checkout of its own, as a linked git worktree or with a git
//! folder of its own. All stand in one folder outside the
//! repository, `SLUG/` with the files and `.engine/SLUG/` with what the engine keeps beside them, out of the agent's reach: its
//! own index and a note of what the worktree is. Nothing is ever deleted because something failed.
use super::{
    error::GitError,
    lock::Lock,
    noted::{Note, is_lost, noted},
    objects::Mode,
    prepared, private,
    program::lock_of,
    refs::{Expected, ref_of},
    register,
    repository::Repository,
    scope::Scope,
    snapshot::{Taking, copy_index},
    sparse::Ground,
};
use crate::{
    event::{BlobId, CommitId, RunId},
    journal::remove_all,
    secrets::Secrets,
};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// Where the worktrees of a run are.
#[derive(Debug, Clone)]
pub struct Workspaces {
    repository: Repository,
    folder: PathBuf,
    run: RunId,
    isolation: Isolation,
    secrets: Secrets,
    only: Option<Scope>,
    /// What git folders of worktrees' own call commits, once it was looked up.
    names: Arc<OnceLock<String>>,
    /// The submodules of commits, once they were looked up.
    submodules: Arc<Mutex<BTreeMap<CommitId, Submodules>>>,
}

/// The paths of submodules.
type Submodules = Arc<[Vec<u8>]>;

/// Commits whose submodules are remembered.
const REMEMBERED: usize = 64;

/// How a worktree is kept apart from the user's repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// A linked git worktree: git in it shares branches, stash, configuration and hooks with the user's repository, so an
    /// agent in it needs a sandbox in which that is read-only.
    Linked,
    /// A git folder of its own inside the worktree, which shares only objects, to read.
    Private,
}

impl From<Isolation> for crate::event::Isolation {
    fn from(isolation: Isolation) -> crate::event::Isolation {
        match isolation {
            Isolation::Linked => crate::event::Isolation::Linked,
            Isolation::Private => crate::event::Isolation::Private,
        }
    }
}

/// A worktree an agent may work in.
#[derive(Debug)]
pub struct Worktree {
    slug: String,
    path: PathBuf,
    base: CommitId,
    admin: PathBuf,
    state: PathBuf,
    /// The files that were checked out, where that is not all of them.
    only: Option<Scope>,
    /// Where this owner last saw the checkpoint ref; it is moved from there and from nowhere else.
    pub(super) checkpoint: Mutex<Option<CommitId>>,
}

/// What becomes of a worktree's content when it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// It is all in this commit, which a ref keeps; checked.
    Captured(&'a CommitId),
    /// It is given up.
    Discard,
}

impl Worktree {
    /// Returns its name.
    pub fn slug(&self) -> &str {
        &self.slug
    }

    /// Returns its top folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the commit it was made from.
    pub fn base(&self) -> &CommitId {
        &self.base
    }

    /// Returns the files that were checked out, where that is not all of them.
    pub(super) fn only(&self) -> Option<&Scope> {
        self.only.as_ref()
    }

    /// Returns the engine's index of it.
    pub(super) fn index(&self) -> PathBuf {
        self.state.join("index")
    }

    /// Returns where the engine keeps what belongs to it.
    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// Returns its registration in the repository.
    #[cfg(test)]
    pub(super) fn admin(&self) -> &Path {
        &self.admin
    }
}

impl Workspaces {
    /// Uses a folder of the user's cache for the worktrees of a run; makes it where it is missing.
    ///
    /// # Errors
    /// `InsideRepository` where it is inside the checkout or the git folder: an agent's own search and build tools would
    /// find it there.
    pub fn new(repository: &Repository, folder: &Path, run: &RunId) -> Result<Workspaces, GitError> {
        check_name(&run.0)?;
        fs::create_dir_all(folder.join(".engine")).map_err(GitError::io("make", folder))?;
        let folder = folder.canonicalize().map_err(GitError::io("find", folder))?;
        if folder.starts_with(repository.root()) || folder.starts_with(repository.common_dir()) || folder.to_str().is_none_or(|path| path.contains('\n')) {
            return Err(GitError::InsideRepository { folder });
        }
        Ok(Workspaces {
            repository: repository.clone(),
            folder,
            run: run.clone(),
            isolation: Isolation::Linked,
            secrets: Secrets::default(),
            only: None,
            names: Arc::default(),
            submodules: Arc::default(),
        })
    }

    /// Makes worktrees with this isolation from now on; those that are there keep theirs.
    #[must_use]
    pub fn isolated(self, isolation: Isolation) -> Workspaces {
        Workspaces { isolation, ..self }
    }

    /// Stores no file that holds the value of a secret from now on.
    #[must_use]
    pub fn without(self, secrets: &Secrets) -> Workspaces {
        Workspaces { secrets: secrets.clone(), ..self }
    }

    /// Checks only these files out in worktrees that are made from now on.
    #[must_use]
    pub fn only(self, files: Scope) -> Workspaces {
        Workspaces { only: Some(files), ..self }
    }

    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Returns how the worktrees it makes are kept apart.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Returns the run whose worktrees they are.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the repository.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Returns the ref of this run that has a name for a worktree: `checkpoint`, `result`.
    pub fn ref_name(&self, slug: &str, name: &str) -> String {
        ref_of(&self.run, slug, name)
    }

    /// Makes a worktree of a commit.
    ///
    /// # Errors
    /// `Occupied` where one of that name exists; it is opened, not made again.
    pub fn make(&self, slug: &str, commit: &CommitId) -> Result<Worktree, GitError> {
        check_name(slug)?;
        let state = self.state(slug);
        let in_its_place = || GitError::Occupied { slug: slug.to_owned(), reason: "something else is in its place" };
        if !state.is_dir() && fs::symlink_metadata(self.folder.join(slug)).is_ok() {
            return Err(in_its_place());
        }
        fs::create_dir_all(&state).map_err(GitError::io("make", &state))?;
        let busy = || GitError::Occupied { slug: slug.to_owned(), reason: "it is being made" };
        let _making = Lock::attempt(&state.join("lock"))?.ok_or_else(busy)?;
        let path = self.folder.join(slug);
        match self.note(slug)? {
            Some(note) if note.ready => return Err(GitError::Occupied { slug: slug.to_owned(), reason: "it exists" }),
            // Whoever was making it died; nobody has worked in it.
            Some(_) => self.delete(&path)?,
            None if fs::symlink_metadata(&path).is_ok() => return Err(in_its_place()),
            None => {}
        }
        self.materialise(slug, commit)
    }

    /// Opens a worktree after a crash: the one that was made of `base`, with whatever was done in it; a new one where there is
    /// none. One that was made of something else, or of which nothing is noted, is moved aside, never deleted.
    pub fn open(&self, slug: &str, base: &CommitId) -> Result<Worktree, GitError> {
        check_name(slug)?;
        let (path, state) = (self.folder.join(slug), self.state(slug));
        let present = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        match self.note(slug)? {
            Some(note) if note.leaving => self.discard(slug)?,
            Some(note) if note.ready && note.base == *base && present => {
                // A git that was killed with this program's last life has left it.
                let index = state.join("index");
                register::clear(&lock_of(&index))?;
                // It only saves reading files; what is not as it was written may say that a file has not changed.
                if git2::Index::open(&index).is_err() {
                    register::clear(&index)?;
                }
                let admin = self.attached(slug, &note.admin, base)?;
                let only = note.only.as_deref().map(Scope::compile).transpose().ok().flatten();
                self.write_note(slug, &Note { admin: admin.clone(), ..note })?;
                let checkpoint = Mutex::new(self.repository.ref_at(&self.ref_name(slug, "checkpoint"))?);
                return Ok(Worktree { slug: slug.to_owned(), path, base: base.clone(), admin, state, only, checkpoint });
            }
            Some(note) if note.ready && present => self.set_aside(slug)?,
            Some(note) if note.ready => {
                register::forget(&self.repository, &path)?;
                fs::remove_dir_all(&state).map_err(GitError::io("remove", state))?;
            }
            // The end of the machine's power has taken what was noted of it. Whoever only looks does not come here: see `look`.
            None if present && state.is_dir() => self.set_aside(slug)?,
            Some(_) | None => {}
        }
        self.make(slug, base)
    }

    /// Opens a worktree to look at it. One of which nothing is noted stays where it is.
    ///
    /// # Errors
    /// As `open`, and `Occupied` where nothing is noted of what is there, or something else.
    pub(super) fn look(&self, slug: &str, base: &CommitId) -> Result<Worktree, GitError> {
        check_name(slug)?;
        let is_it = self.note(slug)?.is_some_and(|note| note.base == *base);
        if !is_it && fs::symlink_metadata(self.folder.join(slug)).is_ok() {
            return Err(GitError::Occupied { slug: slug.to_owned(), reason: "nothing is noted of what is in its place" });
        }
        self.open(slug, base)
    }

    /// Makes a worktree of which nothing is known: where one of that name is there with changes, the records of who made them are lost,
    /// and it is moved aside, never deleted.
    ///
    /// # Errors
    /// As `open`.
    pub fn fresh(&self, slug: &str, base: &CommitId) -> Result<Worktree, GitError> {
        let is_there = self.note(slug)?.is_some_and(|note| note.ready && !note.leaving && note.base == *base) && self.folder.join(slug).is_dir();
        if is_there {
            let worktree = self.open(slug, base)?;
            if self.is_untouched(&worktree)? {
                return Ok(worktree);
            }
            self.set_aside(slug)?;
        }
        self.open(slug, base)
    }

    /// Leaves a worktree in which nobody goes on, and may have been torn: it is removed where nothing was done in it, and moved aside otherwise.
    ///
    /// # Errors
    /// Where it can be neither.
    pub fn leave(&self, slug: &str) -> Result<(), GitError> {
        let is_there = self.folder.join(slug).is_dir();
        let note = self.note(slug)?.filter(|note| note.ready && !note.leaving && is_there);
        let Some(note) = note else { return if is_there && self.note(slug)?.is_none() { self.set_aside(slug) } else { self.discard(slug) } };
        // What it says of files that were torn is not so.
        register::clear(&self.state(slug).join("index"))?;
        let is_untouched = self.open(slug, &note.base).and_then(|worktree| self.is_untouched(&worktree));
        if is_untouched.unwrap_or(false) { self.discard(slug) } else { self.set_aside(slug) }
    }

    fn is_untouched(&self, worktree: &Worktree) -> Result<bool, GitError> {
        let snapshot = self.snapshot(worktree, worktree.base())?;
        Ok(snapshot.tree == self.repository.tree_of(worktree.base())? && snapshot.nested.is_empty() && snapshot.held.is_empty())
    }

    /// Removes a worktree.
    ///
    /// # Errors
    /// `NotCaptured` where its files are not what the commit holds, or no ref keeps the commit; then nothing is removed.
    pub fn remove(&self, worktree: &Worktree, content: Content<'_>) -> Result<(), GitError> {
        if let Content::Captured(commit) = content {
            self.check_captured(worktree, commit)?;
        }
        self.discard(&worktree.slug)
    }

    /// Says what the worktree of a name has that a commit does not; `None` where its files are what the commit holds.
    pub fn beyond(&self, slug: &str, base: &CommitId, commit: &CommitId) -> Option<String> {
        let checked = self.look(slug, base).and_then(|worktree| self.check_captured(&worktree, commit));
        checked.err().map(|error| error.to_string())
    }

    /// Returns the files of a worktree that are not as in the commit it was made of, and those beside them that git does not ignore, sorted.
    ///
    /// # Errors
    /// As `look`.
    pub fn changed(&self, slug: &str, base: &CommitId) -> Result<Vec<String>, GitError> {
        self.differing(&self.look(slug, base)?)
    }

    /// Returns the paths of a worktree that a capture would find changed, sorted. Nothing is written to the object database.
    pub fn differing(&self, worktree: &Worktree) -> Result<Vec<String>, GitError> {
        let mut taking = Taking::open(self, worktree, worktree.base())?;
        taking.find_changed()?;
        taking.find_beside(self)?;
        prepared::pass_over(worktree, &mut taking.touched);
        Ok(taking.touched.paths())
    }

    /// Puts the files of a worktree that is only read back to the commit it was made of; what git ignores there stays. One that cannot be
    /// known for that is made anew.
    ///
    /// # Errors
    /// Where git cannot.
    pub fn renew(&self, slug: &str, base: &CommitId) -> Result<(), GitError> {
        if is_lost(&self.path(slug), base) {
            self.discard(slug)?;
        }
        self.rollback(&self.open(slug, base)?, base)
    }

    /// Removes the worktree of a name, whatever is in it. It is marked first, so that where this process dies over it the
    /// rest is known for what it is: see [`Workspaces::clear`].
    pub fn discard(&self, slug: &str) -> Result<(), GitError> {
        check_name(slug)?;
        if let Some(note) = self.note(slug)?.filter(|note| !note.leaving) {
            self.write_note(slug, &Note { leaving: true, ..note })?;
        }
        self.delete(&self.folder.join(slug))?;
        let base = self.ref_name(slug, "base");
        if let Some(at) = self.repository.ref_at(&base)? {
            self.repository.delete_ref(&base, &at)?;
        }
        match fs::remove_dir_all(self.state(slug)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GitError::io("remove", self.state(slug))(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes the rest of worktrees over whose removal a process died, and returns why some of it stays.
    pub fn clear(&self) -> Vec<GitError> {
        let is_rest = |slug: &str| match self.note(slug) {
            Ok(Some(note)) => note.leaving,
            Ok(None) => fs::symlink_metadata(self.folder.join(slug)).is_err(),
            Err(_) => false,
        };
        match self.slugs() {
            Ok(slugs) => slugs.iter().filter(|slug| is_rest(slug)).filter_map(|slug| self.discard(slug).err()).collect(),
            Err(error) => vec![error],
        }
    }

    /// Removes the folder itself, where no worktree is left in it and nothing that was moved aside.
    pub fn fold(&self) {
        // Only empty folders can be removed so.
        let _ = fs::remove_dir(self.folder.join(".engine")).and_then(|()| fs::remove_dir(&self.folder));
    }

    /// Returns where they all are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns where the worktree of a name stands, or will stand.
    pub fn path(&self, slug: &str) -> PathBuf {
        self.folder.join(slug)
    }

    /// Returns the names of the worktrees there are, sorted.
    pub fn slugs(&self) -> Result<Vec<String>, GitError> {
        let folder = self.folder.join(".engine");
        let entries = fs::read_dir(&folder).map_err(GitError::io("read", &folder))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| check_name(name).is_ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Returns what stands beside the worktrees and is none of them, sorted: files that were moved aside, with the name of the worktree
    /// that they were in, and folders of which nothing is noted.
    pub fn strays(&self) -> Result<Vec<(String, PathBuf)>, GitError> {
        let entries = |folder: &Path| -> Result<Vec<String>, GitError> {
            let entries = fs::read_dir(folder).map_err(GitError::io("read", folder))?;
            Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
        };
        let (engine, slugs) = (self.folder.join(".engine"), self.slugs()?);
        let aside = entries(&engine)?.into_iter().filter_map(|name| {
            let (slug, _) = name.strip_prefix(".aside-")?.rsplit_once('-')?;
            Some((slug.to_owned(), engine.join(&name).join("files")))
        });
        let unknown = entries(&self.folder)?.into_iter().filter(|name| name != ".engine" && !slugs.contains(name));
        let mut strays: Vec<(String, PathBuf)> = aside.chain(unknown.map(|name| (name.clone(), self.folder.join(name)))).collect();
        strays.retain(|(_, path)| fs::symlink_metadata(path).is_ok());
        strays.sort();
        Ok(strays)
    }

    fn materialise(&self, slug: &str, commit: &CommitId) -> Result<Worktree, GitError> {
        let (path, state) = (self.folder.join(slug), self.state(slug));
        self.repository.tree_of(commit)?;
        let only = || self.only.as_ref().map(|files| files.patterns().to_vec());
        self.write_note(slug, &Note { base: commit.clone(), admin: PathBuf::new(), ready: false, leaving: false, only: only(), lists: BTreeMap::new() })?;
        fs::create_dir(&path).map_err(GitError::io("make", &path))?;
        let admin = self.attach(slug, self.isolation, commit)?;
        let worktree =
            Worktree { slug: slug.to_owned(), path, base: commit.clone(), admin: admin.clone(), state, only: self.only.clone(), checkpoint: Mutex::default() };
        let _ = fs::remove_file(worktree.index());
        register::clear(&lock_of(&worktree.index()))?;
        match &worktree.only {
            None => self.check_out(&worktree, commit)?,
            Some(only) => Ground { repository: &self.repository, files: &worktree.path, index: &worktree.index() }.check_out(commit, only)?,
        }
        self.show(&worktree, &worktree.index())?;
        self.write_note(slug, &Note { base: commit.clone(), admin, ready: true, leaving: false, only: only(), lists: BTreeMap::new() })?;
        let seen = self.repository.ref_at(&self.ref_name(slug, "checkpoint"))?;
        Ok(Worktree { checkpoint: Mutex::new(seen), ..worktree })
    }

    /// Makes the tracked files those of a commit, with the engine's index.
    pub(super) fn check_out(&self, worktree: &Worktree, commit: &CommitId) -> Result<(), GitError> {
        let call = self.repository.git(["read-tree", "--reset", "-u"]).arg(&commit.0).on(&worktree.path, &worktree.index());
        call.bytes().map(|_| ())
    }

    /// Gives the agent's own git an index and a HEAD that fit the base, so that its `git status` shows its own changes.
    pub(super) fn present(&self, worktree: &Worktree) -> Result<(), GitError> {
        let copy = tempfile::NamedTempFile::new_in(&worktree.state).map_err(GitError::io("make a file in", &worktree.state))?.into_temp_path();
        copy_index(&worktree.index(), &copy).map_err(GitError::io("read", worktree.index()))?;
        self.repository.git(["read-tree", "-i", "-m"]).arg(&worktree.base.0).on(&worktree.path, &copy).bytes()?;
        self.show(worktree, &copy)
    }

    /// Gives the agent's own git a HEAD at the base, and an index that is at the base.
    fn show(&self, worktree: &Worktree, of_base: &Path) -> Result<(), GitError> {
        if self.attached(&worktree.slug, &worktree.admin, &worktree.base)? != worktree.admin {
            return Err(GitError::Occupied { slug: worktree.slug.clone(), reason: "another worktree has taken its registration" });
        }
        let index = worktree.admin.join("index");
        register::clear(&worktree.admin.join("index.lock"))?;
        register::clear(&index)?;
        copy_index(of_base, &index).map_err(GitError::io("write", index))?;
        register::set_head(&self.repository, &worktree.admin, &worktree.base)
    }

    /// Gives a worktree's folder what git needs to work in it, and returns where that is.
    fn attach(&self, slug: &str, isolation: Isolation, base: &CommitId) -> Result<PathBuf, GitError> {
        let path = self.folder.join(slug);
        match isolation {
            Isolation::Linked => register::register(&self.repository, &path, &format!("spinney-{}-{slug}", self.run), base),
            Isolation::Private => {
                // Nothing else keeps the base while the worktree is there: the user may drop it from every branch.
                self.repository.set_ref(&self.ref_name(slug, "base"), base, Expected::Any)?;
                private::make(&self.repository, (&path, &self.state(slug)), base, self.names()?)
            }
        }
    }

    /// Returns the submodules of a commit, whether or not `.gitmodules` names them.
    pub(super) fn submodules(&self, commit: &CommitId) -> Result<Submodules, GitError> {
        let remembered = || self.submodules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = remembered().get(commit) {
            return Ok(found.clone());
        }
        let entries = self.repository.entries(&self.repository.tree_of(commit)?)?;
        let found: Submodules = entries.into_iter().filter(|(_, entry)| entry.mode == Mode::Gitlink).map(|(path, _)| path).collect();
        let mut all = remembered();
        if all.len() >= REMEMBERED {
            all.clear();
        }
        all.insert(commit.clone(), found.clone());
        Ok(found)
    }

    /// Looks the user's branches and tags up, once.
    fn names(&self) -> Result<&str, GitError> {
        if let Some(names) = self.names.get() {
            return Ok(names);
        }
        let found = private::names(&self.repository)?;
        Ok(self.names.get_or_init(|| found))
    }

    /// Mends what an agent, or a crash, has broken of it.
    fn attached(&self, slug: &str, admin: &Path, base: &CommitId) -> Result<PathBuf, GitError> {
        let path = self.folder.join(slug);
        if admin == path.join(".git") {
            return if private::is_whole(&self.repository, admin) { Ok(admin.to_owned()) } else { self.attach(slug, Isolation::Private, base) };
        }
        let admin = if register::is_registered(admin, &path) { admin.to_owned() } else { self.attach(slug, Isolation::Linked, base)? };
        register::link(&path, &admin)?;
        Ok(admin)
    }

    fn check_captured(&self, worktree: &Worktree, commit: &CommitId) -> Result<(), GitError> {
        let not = |reason: String| GitError::NotCaptured { slug: worktree.slug.clone(), reason };
        let mut taking = Taking::begin(self, worktree, commit)?;
        prepared::pass_over(worktree, &mut taking.touched);
        let snapshot = taking.finish()?;
        if let Some(nested) = snapshot.nested.first() {
            return Err(not(format!("`{}` is a repository of its own or a submodule's folder, whose files no commit holds", super::path::quote(nested))));
        }
        if let Some(held) = snapshot.held.first() {
            return Err(not(format!("`{}` holds a secret, and is in no commit", held.shown)));
        }
        let changes = self.repository.changes(&self.repository.tree_of(commit)?, &snapshot.tree)?;
        if let Some(change) = changes.first() {
            return Err(not(format!("{} of its paths are not as in {commit}, among them `{}`", changes.len(), change.path)));
        }
        // Most work is its attempt's result.
        let is_result = self.repository.ref_at(&self.ref_name(&worktree.slug, "result"))?.as_ref() == Some(commit);
        if is_result || self.repository.is_kept(commit)? { Ok(()) } else { Err(not(format!("no ref keeps {commit}"))) }
    }

    /// Removes a worktree's registration and its folder, which must be one of this run's.
    fn delete(&self, path: &Path) -> Result<(), GitError> {
        register::forget(&self.repository, path)?;
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() && path.parent() == Some(&self.folder) => remove_all(path).map_err(GitError::io("remove", path)),
            Ok(_) => Err(GitError::Occupied { slug: path.display().to_string(), reason: "it is not a folder" }),
            Err(_) => Ok(()),
        }
    }

    fn set_aside(&self, slug: &str) -> Result<(), GitError> {
        let path = self.folder.join(slug);
        register::forget(&self.repository, &path)?;
        let aside = tempfile::Builder::new()
            .prefix(&format!(".aside-{slug}-"))
            .tempdir_in(self.folder.join(".engine"))
            .map_err(GitError::io("make a folder in", &self.folder))?;
        let aside = aside.keep();
        fs::rename(&path, aside.join("files")).map_err(GitError::io("move aside", path))?;
        match fs::rename(self.state(slug), aside.join("state")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GitError::io("move aside", self.state(slug))(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn state(&self, slug: &str) -> PathBuf {
        self.folder.join(".engine").join(slug)
    }

    /// Returns what is noted of a worktree; `None` where nothing is, or nothing that can be understood.
    ///
    /// # Errors
    /// Where the note is there and cannot be read now.
    fn note(&self, slug: &str) -> Result<Option<Note>, GitError> {
        noted(&self.state(slug))
    }

    fn write_note(&self, slug: &str, note: &Note) -> Result<(), GitError> {
        let file = self.state(slug).join("note.json");
        let text = note.sealed(slug).map_err(|error| GitError::io("write", &file)(error.into()))?;
        register::replace(&file, text.as_bytes())
    }

    /// Writes lists beside the note of a worktree, which says what stands in them.
    pub(super) fn write_lists(&self, worktree: &Worktree, lists: &[(&str, Vec<u8>)]) -> Result<(), GitError> {
        let unknown = || GitError::Occupied { slug: worktree.slug.clone(), reason: "nothing is noted of it" };
        let mut note = self.note(&worktree.slug)?.ok_or_else(unknown)?;
        for (name, content) in lists {
            register::replace(&worktree.state.join(name), content)?;
            note.lists.insert((*name).to_owned(), BlobId::of(content));
        }
        self.write_note(&worktree.slug, &note)
    }
}

/// Accepts what can be a folder's name everywhere and a part of a ref's.
fn check_name(name: &str) -> Result<(), GitError> {
    let bad = |reason| Err(GitError::BadName { name: name.to_owned(), reason });
    if name.is_empty() || name.len() > 100 {
        return bad("it must have 1 to 100 characters");
    }
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte)) {
        return bad("it may hold `a` to `z`, digits, `.`, `_` and `-`");
    }
    if name.starts_with(['.', '-']) || name.ends_with('.') || name.contains("..") || name.rsplit('.').next() == Some("lock") {
        return bad("git refuses it in a ref");
    }
    Ok(())
}
