//! Where a run's files stand: `.spinney/state/runs/RUN/{journal.db, blobs/, lease, processes/}` in the main checkout.
//!
//! `state` ignores itself by a `.gitignore` of its own, so that nothing of the user's has to be edited, and is closed to
//! other users: a journal holds what an agent read. A repository may bring a `.spinney` of its own, so neither it nor
//! `state` may be a link, which would let a repository choose where this program writes.
use super::{rest::sync_folder, store};
use crate::{clock::Timestamp, event::RunId, trace};
use rustix::io::Errno;
use std::{
    cmp::Reverse,
    fs, io,
    path::{Path, PathBuf},
};

/// What the name of a folder begins with that is being removed; no run has such a name.
const LEAVING: &str = ".leaving-";

/// The folder of all runs, below the main checkout.
pub(crate) const STATE: &str = ".spinney/state";

/// What stands in a run's folder, and whether it is a folder.
const BELONGS: &[(&str, bool)] = &[
    ("artifacts", true),
    ("blobs", true),
    ("caches", true),
    ("inbox", true),
    (store::FILE, false),
    ("journal.db-shm", false),
    ("journal.db-wal", false),
    ("lease", false),
    ("mark", false),
    ("nowhere", true),
    ("processes", true),
    ("rested", false),
    ("tokens", true),
];

/// The folder of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

/// Why a run's folder could not be had.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// Files cannot be made there.
    #[error("make {}: this user cannot write there; Spinney keeps the journals of its runs in the repository's main checkout", .path.display())]
    NotWritable {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A link or a file stands where a folder belongs.
    #[error("use {}: it is not a plain folder", .path.display())]
    NotAFolder {
        /// What stands there.
        path: PathBuf,
    },
    /// A run of this name has been there before.
    #[error("make the run `{run}`: there is one of this name already")]
    Exists {
        /// The run.
        run: RunId,
    },
    /// There is no such run.
    #[error("find the run `{run}` in {}", .state.display())]
    Missing {
        /// The run.
        run: RunId,
        /// Where it was looked for.
        state: PathBuf,
    },
    /// In a run's folder something stands in the place of something else.
    #[error("use {}: it is {found}, and {wanted} belongs there", .path.display())]
    Misplaced {
        /// What stands there.
        path: PathBuf,
        /// What it is, with its article.
        found: &'static str,
        /// What belongs there, with its article.
        wanted: &'static str,
    },
    /// The name cannot be a folder's.
    #[error("use `{run}` as a run's name: letters, digits, `-`, `_` and `.` make one, at most 100, and no `.` at its start")]
    BadName {
        /// The name.
        run: RunId,
    },
    /// Anything else of the system's.
    #[error("use {}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl RunDirError {
    /// What can be done about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            RunDirError::NotWritable { source, .. } | RunDirError::Io { source, .. } => mend_of(source),
            RunDirError::NotAFolder { .. } => Some("move aside what stands there"),
            RunDirError::Misplaced { .. } => Some("`spinney doctor --repair` puts it aside"),
            RunDirError::Exists { .. } | RunDirError::Missing { .. } | RunDirError::BadName { .. } => None,
        }
    }
}

/// What can be done where something is not writable for want of a right.
pub(super) const WRITABLE: &str = "see that this user may write there, and that the file system is not mounted read-only";
/// What can be done where there is no room.
pub(crate) const ROOM: &str = "make room on that file system";
/// What can be done where a process may open no file more.
pub(crate) const OPEN_FILES: &str = "let a process have more open files (`ulimit -n`)";
/// What can be done where there is no memory.
pub(crate) const MEMORY: &str = "see what takes the memory";
/// What can be done where a disk fails.
pub(crate) const DISK: &str = "see what ails that disk";

/// Returns what can be done where a file or folder could not be used, where its kind says that.
pub(crate) fn mend_of(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Some(WRITABLE),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(ROOM),
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory | io::ErrorKind::AlreadyExists => Some("move aside what stands there"),
        _ => match Errno::from_io_error(error)? {
            Errno::MFILE | Errno::NFILE => Some(OPEN_FILES),
            Errno::NOMEM => Some(MEMORY),
            Errno::IO => Some(DISK),
            _ => None,
        },
    }
}

impl RunDir {
    /// Returns the state folder of the repository whose main checkout is `checkout`; it need not be there.
    pub fn state(checkout: &Path) -> PathBuf {
        checkout.join(STATE)
    }

    /// Makes the folder of a new run, and what is missing above it.
    ///
    /// # Errors
    /// `RunDirError::Exists` where the name is taken.
    pub fn create(state: &Path, run: &RunId) -> Result<RunDir, RunDirError> {
        check_name(run)?;
        make_state(state)?;
        let runs = state.join("runs");
        make(&runs)?;
        let path = runs.join(&run.0);
        match fs::create_dir(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(RunDirError::Exists { run: run.clone() }),
            Err(source) => return Err(unwritten(&path, source)),
        }
        make(&path.join("processes"))?;
        sync(&path)?;
        sync(&runs)?;
        Ok(RunDir { path })
    }

    /// Finds the folder of a run.
    ///
    /// # Errors
    /// `RunDirError::Missing` where there is none.
    pub fn open(state: &Path, run: &RunId) -> Result<RunDir, RunDirError> {
        check_name(run)?;
        let path = state.join("runs").join(&run.0);
        if is_plain_folder(&path)? { Ok(RunDir { path }) } else { Err(RunDirError::Missing { run: run.clone(), state: state.to_owned() }) }
    }

    /// Returns the runs in `state`, the newest first by the first record of each; runs without one are last. No state
    /// folder means no runs.
    ///
    /// # Errors
    /// `RunDirError::Io` where the folder cannot be read.
    pub fn list(state: &Path) -> Result<Vec<RunId>, RunDirError> {
        let runs = state.join("runs");
        let failed = |source| RunDirError::Io { path: runs.clone(), source };
        let entries = match fs::read_dir(&runs) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(failed(source)),
        };
        let mut found: Vec<(Option<Timestamp>, RunId)> = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let is_folder = entry.file_type().map_err(failed)?.is_dir();
            if let (true, Ok(name)) = (is_folder, entry.file_name().into_string()) {
                let run = RunId(name);
                if check_name(&run).is_ok() {
                    found.push((store::began(&entry.path()), run));
                }
            }
        }
        found.sort_by_cached_key(|(began, run)| (Reverse(*began), run.clone()));
        Ok(found.into_iter().map(|(_, run)| run).collect())
    }

    /// Removes the folder of a run that is over. It has no name of a run first, so that a death over it leaves none that is half there; what such a death
    /// leaves goes with the next.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let name = self.path.file_name().unwrap_or_default();
        let mut leaving = std::ffi::OsString::from(LEAVING);
        leaving.push(name);
        let leaving = self.path.with_file_name(leaving);
        fs::rename(&self.path, &leaving)?;
        remove_all(&leaving)
    }

    /// Removes what deaths have left of folders that were being removed. What cannot be removed stays for the next time: it holds up
    /// nobody.
    pub(crate) fn sweep(state: &Path) {
        let Ok(entries) = fs::read_dir(state.join("runs")) else { return };
        let left = entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(LEAVING.as_bytes()));
        for path in left.map(|entry| entry.path()) {
            if let Err(error) = remove_all(&path) {
                tracing::warn!(target: trace::TARGET, "`{}` could not be removed: {error}", path.display());
            }
        }
    }

    /// Removes the folder of a run that has not begun. What cannot be removed is shown as a run without a record.
    pub(crate) fn discard(&self) {
        let _ = remove_all(&self.path);
    }

    /// Returns what of its folder stands in the place of something else, where `misplaced` finds it.
    ///
    /// # Errors
    /// `RunDirError::Misplaced` with the first.
    pub fn require_sound(&self) -> Result<(), RunDirError> {
        misplaced(&self.path).into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns the folder itself: what `SqliteStore`, `Blobs` and `Lease` take.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its journal's file.
    pub fn journal(&self) -> PathBuf {
        self.path.join(store::FILE)
    }

    /// Returns the folder for notes on running processes.
    pub fn processes(&self) -> PathBuf {
        self.path.join("processes")
    }
}

/// Returns what stands in a run's folder in the place of something else, a link or a pipe say, which whoever opens it may wait for.
pub(crate) fn misplaced(dir: &Path) -> Vec<RunDirError> {
    let look = |(name, is_folder): &(&str, bool)| {
        let path = dir.join(name);
        let kind = fs::symlink_metadata(&path).ok()?.file_type();
        let wanted = if *is_folder { "a folder" } else { "a file" };
        let found = match (kind.is_dir(), kind.is_file(), kind.is_symlink()) {
            (true, ..) => "a folder",
            (_, true, _) => "a file",
            (.., true) => "a link",
            _ => "neither file nor folder",
        };
        (found != wanted).then_some(RunDirError::Misplaced { path, found, wanted })
    };
    BELONGS.iter().filter_map(look).collect()
}

/// Run names come from people and become folders and refs.
fn check_name(run: &RunId) -> Result<(), RunDirError> {
    let name = &run.0;
    let is_plain = (1..=100).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if is_plain { Ok(()) } else { Err(RunDirError::BadName { run: run.clone() }) }
}

/// Makes `.spinney/state` with its `.gitignore`.
fn make_state(state: &Path) -> Result<(), RunDirError> {
    if let Some(above) = state.parent() {
        make(above)?;
    }
    if !is_plain_folder(state)? {
        private_folder(state).map_err(|source| unwritten(state, source))?;
    }
    let ignore = state.join(".gitignore");
    match fs::symlink_metadata(&ignore) {
        Ok(_) => Ok(()),
        Err(_) => fs::write(&ignore, "*\n").map_err(|source| unwritten(&ignore, source)),
    }
}

fn make(path: &Path) -> Result<(), RunDirError> {
    if is_plain_folder(path)? {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(|source| unwritten(path, source))
}

/// Returns whether a folder stands there; a link or a file there is an error.
fn is_plain_folder(path: &Path) -> Result<bool, RunDirError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(true),
        Ok(_) => Err(RunDirError::NotAFolder { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(RunDirError::Io { path: path.to_owned(), source }),
    }
}

#[cfg(unix)]
fn private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        // Two runs that begin at once both make it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(not(unix))]
fn private_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

fn sync(path: &Path) -> Result<(), RunDirError> {
    sync_folder(path).map_err(|source| RunDirError::Io { path: path.to_owned(), source })
}

fn unwritten(path: &Path, source: io::Error) -> RunDirError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => RunDirError::NotWritable { path, source },
        io::ErrorKind::NotADirectory => RunDirError::NotAFolder { path },
        _ => RunDirError::Io { path, source },
    }
}

/// Removes a folder with all that is in it; folders that were made read-only, as package caches are, are opened first.
///
/// # Errors
/// The system's.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_folders(path)?;
            fs::remove_dir_all(path)
        }
        result => result,
    }
}

/// Gives the owner all rights to a folder and to those in it, without following links.
///
/// # Errors
/// The system's.
pub(crate) fn open_folders(top: &Path) -> io::Result<()> {
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Event, Record},
        journal::{SqliteStore, Store as _},
    };

    #[test]
    fn makes_what_is_missing_and_ignores_itself() {
        let checkout = tempfile::tempdir().unwrap();
        let state = RunDir::state(checkout.path());
        assert_eq!(RunDir::list(&state).unwrap(), []);
        let run = RunId::from("feature-a1b2c3");
        let made = RunDir::create(&state, &run).unwrap();
        assert_eq!(fs::read_to_string(state.join(".gitignore")).unwrap(), "*\n");
        assert!(made.processes().is_dir());
        assert_eq!(RunDir::open(&state, &run).unwrap(), made);
        assert!(matches!(RunDir::create(&state, &run), Err(RunDirError::Exists { .. })));
        assert!(matches!(RunDir::open(&state, &RunId::from("other")), Err(RunDirError::Missing { .. })));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn lists_the_newest_first_by_what_the_journals_say() {
        let checkout = tempfile::tempdir().unwrap();
        let state = RunDir::state(checkout.path());
        for (name, began) in [("b", Some(20)), ("a", Some(30)), ("c", None), ("d", Some(10))] {
            let run = RunId::from(name);
            let dir = RunDir::create(&state, &run).unwrap();
            let mut store = SqliteStore::create(dir.path(), &run).unwrap();
            if let Some(at) = began {
                store
                    .append(
                        &[Record {
                            seq: 0,
                            at: Timestamp(at),
                            event: Event::RunResumed { pid: 1, steps: std::collections::BTreeMap::new(), given: None, again: Vec::new() },
                        }],
                        false,
                    )
                    .unwrap();
            }
        }
        fs::create_dir(state.join("runs/.not a run")).unwrap();
        fs::create_dir(state.join("runs/e")).unwrap();
        fs::write(state.join("runs/f"), "").unwrap();
        let names: Vec<String> = RunDir::list(&state).unwrap().into_iter().map(|run| run.0).collect();
        assert_eq!(names, ["a", "b", "d", "c", "e"]);
    }

    #[test]
    fn names_are_never_ways_out() {
        let checkout = tempfile::tempdir().unwrap();
        let state = RunDir::state(checkout.path());
        for name in ["", ".", "..", "../x", "a/b", "a\\b", ".git", "a b", "a\0", "é", &"a".repeat(101)] {
            assert!(matches!(RunDir::create(&state, &RunId::from(name)), Err(RunDirError::BadName { .. })), "{name:?}");
            assert!(matches!(RunDir::open(&state, &RunId::from(name)), Err(RunDirError::BadName { .. })), "{name:?}");
        }
        assert!(!state.exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_repository_does_not_choose_where_runs_are_kept() {
        let (checkout, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let state = RunDir::state(checkout.path());
        let run = RunId::from("r");
        let refused = |at: &Path| matches!(RunDir::create(&state, &run), Err(RunDirError::NotAFolder { path }) if path == at);
        let spinney = checkout.path().join(".spinney");
        std::os::unix::fs::symlink(elsewhere.path(), &spinney).unwrap();
        assert!(refused(&spinney));
        fs::remove_file(&spinney).unwrap();
        fs::create_dir(&spinney).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), &state).unwrap();
        assert!(refused(&state));
        fs::remove_file(&state).unwrap();
        fs::write(&state, "a file").unwrap();
        assert!(refused(&state));
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn says_so_where_nothing_can_be_written() {
        // A folder that nobody may write, not even root.
        let denied = Path::new("/proc/self/spinney-test");
        if Path::new("/proc/self").exists() {
            let error = RunDir::create(&denied.join("state"), &RunId::from("r")).unwrap_err();
            assert!(matches!(&error, RunDirError::NotWritable { .. } | RunDirError::Io { .. }), "{error:?}");
            assert!(error.to_string().contains("spinney-test"), "{error}");
        }
    }
}
