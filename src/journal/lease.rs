//! One owner a run: a lock that the system frees when its owner dies, however it dies.
//!
//! The lock is on an open file, never on the file's existence, so there is nothing stale to clean up. The file says who
//! holds it, for the message to whoever comes second; it is never deleted, since that would let two owners lock two files
//! of one name.
use crate::clock::Timestamp;
use std::{
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
    file: File,
}

/// Why a run could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// A living process has it.
    #[error("take the run: process {pid} has it since {since}")]
    Held {
        /// The owner's process id.
        pid: u32,
        /// Since when.
        since: Timestamp,
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
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let mut owner = None;
        for attempt in 0..TRIES + PAUSES {
            match file.try_lock() {
                Ok(()) => {
                    sign(&mut file, pid, now).map_err(failed)?;
                    return Ok(Lease { file });
                }
                Err(TryLockError::WouldBlock) => owner = read_owner(&mut file),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            if attempt < TRIES {
                std::thread::yield_now();
            } else if owner.is_some_and(|(pid, _)| is_alive(pid)) {
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
        let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(LeaseError::Io { path, source }),
        };
        let mut owner = None;
        for _ in 0..TRIES {
            match file.try_lock_shared() {
                Ok(()) => return Ok(None),
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

impl Drop for Lease {
    /// Takes the owner's words back before the lock goes.
    fn drop(&mut self) {
        // Where this fails the words are stale, which only a second owner's first microseconds can show.
        let _ = self.file.set_len(0);
    }
}

/// Writes `PID SINCE` over what stood there.
fn sign(file: &mut File, pid: u32, now: Timestamp) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{pid} {}\n", now.0).as_bytes())
}

fn is_alive(pid: u32) -> bool {
    i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

fn held(owner: Option<(u32, Timestamp)>, path: PathBuf) -> LeaseError {
    owner.map_or(LeaseError::HeldByUnknown { path }, |(pid, since)| LeaseError::Held { pid, since })
}

/// Reads `PID SINCE`; `None` where there is no whole line of that form.
fn read_owner(file: &mut File) -> Option<(u32, Timestamp)> {
    let mut text = String::new();
    file.rewind().ok()?;
    (&*file).take(64).read_to_string(&mut text).ok()?;
    let (pid, since) = text.strip_suffix('\n')?.split_once(' ')?;
    Some((pid.parse().ok()?, Timestamp(since.parse().ok()?)))
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
    fn a_run_has_one_owner_and_says_who() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Lease::owner(dir.path()).unwrap().is_none());
        let lease = Lease::take(dir.path(), 1, Timestamp(5000)).unwrap();
        let error = Lease::take(dir.path(), 18, Timestamp(6000)).unwrap_err();
        assert_eq!(error.to_string(), "take the run: process 1 has it since 1970-01-01T00:00:05Z");
        assert!(matches!(Lease::owner(dir.path()), Ok(Some(LeaseError::Held { pid: 1, since: Timestamp(5000) }))));
        drop(lease);
        assert!(Lease::owner(dir.path()).unwrap().is_none());
        let _second = Lease::take(dir.path(), 1, Timestamp(u64::MAX)).unwrap();
        assert!(matches!(Lease::take(dir.path(), 1, Timestamp(0)), Err(LeaseError::Held { pid: 1, since: Timestamp(u64::MAX) })));
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
        assert!(matches!(Lease::take(dir.path(), 1, Timestamp(9)), Err(LeaseError::Held { pid: 1, since: Timestamp(7) })));
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
