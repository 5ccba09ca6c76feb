//! One owner a run: a lock that the system frees when its owner dies, however it dies.
//!
//! The lock is on an open file, never on the file's existence, so there is nothing stale to clean up. The file says who
//! holds it, for the message to whoever comes second; it is never deleted, since that would let two owners lock two files
//! of one name. Where somebody else deletes it all the same, the folder is locked too, and is the same one for everybody.
use super::folder::mend_of;
use crate::clock::Timestamp;
use std::{
    fmt,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

/// The file in a run's folder.
const FILE: &str = "lease";
/// How often a lock is tried that is held: a look by `owner` holds it for a moment, and a new owner has locked the file a
/// moment before it says who it is.
const TRIES: usize = 500;
/// How often it is tried after that where no living owner is named, and how long apart: a process that was killed while
/// it started another has lent its open files, and so the lock, to that one until it is another program.
const PAUSES: usize = 200;
const PAUSE: Duration = Duration::from_millis(5);

/// The right to write a run's journal; given back when dropped, and by the system when the process dies.
#[derive(Debug)]
pub struct Lease {
    // Given back first, so that whoever finds the file free finds the folder free too.
    _folder: File,
    file: File,
}

/// Why a run could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// A living process has it.
    #[error("take the run: process {pid}{elsewhere} has it since {since}")]
    Held {
        /// The owner's process id, as the owner sees it.
        pid: u32,
        /// Since when.
        since: Timestamp,
        /// Where that number counts, where it does not count here; begins with a space then.
        elsewhere: String,
    },
    /// A living process has it and does not say who it is.
    #[error("take the run: another process has locked {}", .path.display())]
    HeldByUnknown {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be used.
    #[error("take the run by {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Lease {
    /// Takes the run in the folder `dir` for process `pid`, at once or not at all.
    ///
    /// # Errors
    /// `LeaseError::Held` where a living process has it.
    pub fn take(dir: &Path, pid: u32, now: Timestamp) -> Result<Lease, LeaseError> {
        let path = dir.join(FILE);
        let failed = |source| LeaseError::Io { path: path.clone(), source };
        require_plain(&path).map_err(failed)?;
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let folder = File::open(dir).map_err(failed)?;
        let mut owner = None;
        for attempt in 0..TRIES + PAUSES {
            match lock_both(&file, &folder) {
                Ok(()) => {
                    sign(&mut file, pid, now).map_err(failed)?;
                    return Ok(Lease { _folder: folder, file });
                }
                Err(TryLockError::WouldBlock) => owner = read_owner(&mut file),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            if attempt < TRIES {
                std::thread::yield_now();
            } else if owner.as_ref().is_some_and(|owner| !owner.elsewhere.is_empty() || is_alive(owner.pid)) {
                break;
            } else {
                std::thread::sleep(PAUSE);
            }
        }
        Err(held(owner, path))
    }

    /// Returns who has the run in the folder `dir`, where a living process does; takes nothing.
    ///
    /// # Errors
    /// `LeaseError::Io`.
    pub fn owner(dir: &Path) -> Result<Option<LeaseError>, LeaseError> {
        let path = dir.join(FILE);
        if let Err(source) = require_plain(&path) {
            return if is_folder_locked(dir) { Ok(Some(held(None, dir.to_owned()))) } else { Err(LeaseError::Io { path, source }) };
        }
        let mut file = match OpenOptions::new().read(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(is_folder_locked(dir).then(|| held(None, dir.to_owned())));
            }
            Err(source) => return Err(LeaseError::Io { path, source }),
        };
        let mut owner = None;
        for _ in 0..TRIES {
            match file.try_lock_shared() {
                Ok(()) => return Ok(is_folder_locked(dir).then(|| held(None, dir.to_owned()))),
                Err(TryLockError::WouldBlock) => owner = read_owner(&mut file),
                Err(TryLockError::Error(source)) => return Err(LeaseError::Io { path, source }),
            }
            if owner.is_some() {
                break;
            }
            std::thread::yield_now();
        }
        Ok(Some(held(owner, path)))
    }
}

impl LeaseError {
    /// Says who has the run, as a sentence of its own.
    pub fn holder(&self) -> String {
        match self {
            LeaseError::Held { pid, since, elsewhere } => format!("process {pid}{elsewhere} has it since {since}"),
            LeaseError::HeldByUnknown { path } => format!("another process has locked {}", path.display()),
            LeaseError::Io { path, source } => format!("{} cannot be used: {source}", path.display()),
        }
    }

    /// What can be done about it.
    pub fn hint(&self) -> Option<&'static str> {
        let LeaseError::Io { source, .. } = self else { return None };
        match source.kind() {
            io::ErrorKind::Other | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => Some("`spinney doctor --repair` puts aside what stands there"),
            _ => mend_of(source),
        }
    }
}

impl Drop for Lease {
    /// Takes the owner's words back before the lock goes.
    fn drop(&mut self) {
        // Where this fails the words are stale, which only a second owner's first microseconds can show.
        let _ = self.file.set_len(0);
    }
}

/// Locks the file and the folder that it is in, or neither.
fn lock_both(file: &File, folder: &File) -> Result<(), TryLockError> {
    file.try_lock()?;
    match folder.try_lock() {
        Err(TryLockError::WouldBlock) => {
            file.unlock().map_err(TryLockError::Error)?;
            Err(TryLockError::WouldBlock)
        }
        // Not every file system locks folders.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Nobody could be awaited who opens a pipe for long.
fn require_plain(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::other("it is no plain file")),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn is_folder_locked(dir: &Path) -> bool {
    File::open(dir).is_ok_and(|folder| matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Writes `PID SINCE PLACE` over what stood there.
fn sign(file: &mut File, pid: u32, now: Timestamp) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{pid} {} {}\n", now.0, Place::here()).as_bytes())
}

/// Where the number of a process counts: a namespace of numbers, of one machine.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    namespace: String,
    host: String,
}

impl Place {
    fn here() -> Place {
        let word = |text: String| text.chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).take(64).collect::<String>();
        let namespace = std::fs::read_link("/proc/self/ns/pid").map(|link| link.to_string_lossy().into_owned()).unwrap_or_default();
        Place { namespace: word(namespace), host: word(std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()) }
    }

    /// Says where it is, seen from here; nothing where it is here.
    fn seen_from_here(&self) -> String {
        let here = Place::here();
        match (self.host == here.host, self.namespace == here.namespace) {
            (true, true) => String::new(),
            (true, false) => " of another PID namespace".to_owned(),
            (false, _) => format!(" of the machine `{}`", self.host),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.host)
    }
}

fn is_alive(pid: u32) -> bool {
    i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// What the file says of who holds it.
struct Owner {
    pid: u32,
    since: Timestamp,
    elsewhere: String,
}

fn held(owner: Option<Owner>, path: PathBuf) -> LeaseError {
    owner.map_or(LeaseError::HeldByUnknown { path }, |Owner { pid, since, elsewhere }| LeaseError::Held { pid, since, elsewhere })
}

/// Reads `PID SINCE PLACE`; `None` where there is no whole line of that form. Older programs wrote no place.
fn read_owner(file: &mut File) -> Option<Owner> {
    let mut text = String::new();
    file.rewind().ok()?;
    (&*file).take(256).read_to_string(&mut text).ok()?;
    let mut words = text.strip_suffix('\n')?.split(' ');
    let (pid, since) = (words.next()?.parse().ok()?, Timestamp(words.next()?.parse().ok()?));
    let place = words.next().and_then(|place| place.split_once('/')).map(|(namespace, host)| Place { namespace: namespace.to_owned(), host: host.to_owned() });
    let elsewhere = place.map(|place| place.seen_from_here()).unwrap_or_default();
    words.next().is_none().then_some(Owner { pid, since, elsewhere })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::{
        io::{BufRead as _, BufReader},
        process::{Child, Command, Stdio},
    };

    /// Starts this test program again for one ignored test, standing in `dir`, and waits for the line `ready` of it.
    #[expect(clippy::disallowed_methods, reason = "the test needs a process that it can kill")]
    pub(in crate::journal) fn other_process(test: &str, dir: &Path) -> Child {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--ignored", "--nocapture"])
            .current_dir(dir)
            .env("SPINNEY_TEST_PROCESS", test)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")), "{test} is not ready");
        child
    }

    /// Returns whether this is the process started above; whoever else runs ignored tests shall leave no files about.
    #[expect(clippy::disallowed_methods, reason = "a test has no command line of its own to be told by")]
    pub(in crate::journal) fn is_other_process() -> bool {
        std::env::var_os("SPINNEY_TEST_PROCESS").is_some()
    }

    /// Says `ready` and then stands still until it is killed.
    pub(in crate::journal) fn ready_to_be_killed() {
        io::stdout().write_all(b"\nready\n").unwrap();
        let _ = io::stdin().read(&mut [0]);
    }

    #[test]
    fn a_file_that_is_removed_under_its_owner_makes_no_second_one() {
        let dir = tempfile::tempdir().unwrap();
        let lease = Lease::take(dir.path(), 1, Timestamp(5000)).unwrap();
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        assert!(matches!(Lease::owner(dir.path()), Ok(Some(LeaseError::HeldByUnknown { .. }))));
        assert!(matches!(Lease::take(dir.path(), 18, Timestamp(6000)), Err(LeaseError::HeldByUnknown { .. })));
        assert!(Lease::owner(dir.path()).unwrap().is_some(), "the file is there again, and nobody's");
        drop(lease);
        drop(Lease::take(dir.path(), 18, Timestamp(6000)).unwrap());
    }

    #[test]
    fn a_run_has_one_owner_and_says_who() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Lease::owner(dir.path()).unwrap().is_none());
        let lease = Lease::take(dir.path(), 1, Timestamp(5000)).unwrap();
        let error = Lease::take(dir.path(), 18, Timestamp(6000)).unwrap_err();
        assert_eq!(error.to_string(), "take the run: process 1 has it since 1970-01-01T00:00:05Z");
        assert!(matches!(Lease::owner(dir.path()), Ok(Some(LeaseError::Held { pid: 1, since: Timestamp(5000), .. }))));
        drop(lease);
        assert!(Lease::owner(dir.path()).unwrap().is_none());
        let _second = Lease::take(dir.path(), 1, Timestamp(u64::MAX)).unwrap();
        assert!(matches!(Lease::take(dir.path(), 1, Timestamp(0)), Err(LeaseError::Held { pid: 1, since: Timestamp(u64::MAX), .. })));
    }

    #[test]
    fn an_owner_elsewhere_is_said_to_be_there_whatever_lives_here_under_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let here = Place::here();
        let held = OpenOptions::new().write(true).create_new(true).open(dir.path().join(FILE)).unwrap();
        held.lock().unwrap();
        for (line, said) in [
            (format!("1 5000 {here}\n"), "process 1 has it since 1970-01-01T00:00:05Z"),
            ("1 5000\n".to_owned(), "process 1 has it since 1970-01-01T00:00:05Z"),
            (format!("1 5000 pid1/{}\n", here.host), "process 1 of another PID namespace has it since 1970-01-01T00:00:05Z"),
            ("1 5000 pid1/other\n".to_owned(), "process 1 of the machine `other` has it since 1970-01-01T00:00:05Z"),
        ] {
            std::fs::write(dir.path().join(FILE), line).unwrap();
            assert_eq!(Lease::take(dir.path(), 18, Timestamp(6000)).unwrap_err().to_string(), format!("take the run: {said}"));
        }
        drop(held);
        // Dead, whoever has the number now: on this machine, before it was started anew, or elsewhere.
        for line in [format!("{} 5 {here}\n", std::process::id()), "1 5 pid1/other\n".to_owned(), "4194303 5\n".to_owned()] {
            std::fs::write(dir.path().join(FILE), line).unwrap();
            assert!(Lease::owner(dir.path()).unwrap().is_none());
            drop(Lease::take(dir.path(), 18, Timestamp(6000)).unwrap());
        }
    }

    #[test]
    fn what_stands_in_the_file_gives_no_right_and_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let long = "9".repeat(5000);
        for text in ["1 2\n", "no line", "", "-1 x\n", &long] {
            std::fs::write(dir.path().join(FILE), text).unwrap();
            drop(Lease::take(dir.path(), 3, Timestamp(4)).unwrap());
        }
        let _held = Lease::take(dir.path(), 3, Timestamp(4)).unwrap();
        std::fs::write(dir.path().join(FILE), "\u{7}not ours").unwrap();
        assert!(matches!(Lease::take(dir.path(), 5, Timestamp(6)), Err(LeaseError::HeldByUnknown { .. })));
    }

    #[test]
    fn a_killed_owner_s_lease_is_free_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut owner = other_process("journal::lease::tests::holds_until_killed", dir.path());
        assert!(matches!(Lease::take(dir.path(), 1, Timestamp(9)), Err(LeaseError::Held { pid: 1, since: Timestamp(7), .. })));
        owner.kill().unwrap();
        owner.wait().unwrap();
        drop(Lease::take(dir.path(), 1, Timestamp(9)).unwrap());
    }

    #[test]
    #[ignore = "the other process of the test above"]
    fn holds_until_killed() {
        if is_other_process() {
            let _lease = Lease::take(Path::new("."), 1, Timestamp(7)).unwrap();
            ready_to_be_killed();
        }
    }
}
