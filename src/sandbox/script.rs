//! Shell commands longer than the system takes in one argument: such a text is handed over as an open file that the new
//! process inherits, and nothing else does.
use super::{Request, SandboxError};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Seek as _, Write as _},
    os::fd::AsRawFd as _,
    process::{Child, Command},
    sync::{PoisonError, RwLock},
};

/// Bytes of one argument or variable that the system takes, its end counted: 32 pages on Linux.
const ONE_MAX: usize = 128 * 1024;

/// A descriptor is inherited by whatever is started while it may be. So for that moment nothing else is started: the lock
/// is the whole process's, as descriptors are.
static STARTING: RwLock<()> = RwLock::new(());

/// A command's text on its way to the shell.
#[derive(Debug)]
pub(super) enum Script<'a> {
    /// It fits into an argument.
    Argument(&'a str),
    /// It is read from an open file that has no name.
    Inherited(File),
}

impl<'a> Script<'a> {
    pub(super) fn of(text: &'a str) -> io::Result<Script<'a>> {
        if text.len() < ONE_MAX {
            return Ok(Script::Argument(text));
        }
        let mut file = tempfile::tempfile()?;
        file.write_all(text.as_bytes())?;
        file.rewind()?;
        Ok(Script::Inherited(file))
    }

    /// Returns what stands after the shell's `-c`.
    pub(super) fn argument(&self) -> OsString {
        match self {
            Script::Argument(text) => text.into(),
            Script::Inherited(file) => format!(". /dev/fd/{}", file.as_raw_fd()).into(),
        }
    }
}

/// Starts a process that inherits the script, where that is handed over so.
pub(super) fn spawn(command: &mut Command, script: Option<&Script<'_>>) -> io::Result<Child> {
    match script {
        Some(Script::Inherited(file)) => {
            let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
            fcntl_setfd(file, FdFlags::empty())?;
            let started = command.spawn();
            fcntl_setfd(file, FdFlags::CLOEXEC)?;
            started
        }
        Some(Script::Argument(_)) | None => {
            let _others = STARTING.read().unwrap_or_else(PoisonError::into_inner);
            command.spawn()
        }
    }
}

/// Says which variable is longer than a process can be given.
pub(super) fn check_variables(request: &Request) -> Result<(), SandboxError> {
    match request.env.iter().find(|(name, value)| name.len() + value.len() + 2 > ONE_MAX) {
        Some((name, value)) => Err(SandboxError::LongVariable { name: name.clone(), bytes: value.len() }),
        None => Ok(()),
    }
}

/// Returns whether the system would not start a process for all that it was given.
pub(super) fn is_too_much(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::TOOBIG.raw_os_error())
}
