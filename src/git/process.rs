//! Starts the git program, through `sandbox`: with a deadline, in a process group of its own, dead when the call returns.
use super::{error::GitError, program::lock_of, register};
use crate::sandbox::{Captured, Confinement, Exit, Options, Program, Request, Sandbox};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long one call may take: checking out a large repository through a slow filter is the longest there is.
const DEADLINE: Duration = Duration::from_mins(20);
/// Times that one call is made that something ends by a signal each time, the system for want of memory say.
pub(super) const TRIES: usize = 3;
/// The variable by which git is told its index.
pub(super) const INDEX: &str = "GIT_INDEX_FILE";
/// How much is kept of an answer that is too long to be kept whole.
const SHOWN: usize = 1 << 20;

/// What git said.
#[derive(Debug)]
pub(super) struct Output {
    /// Its standard output.
    pub(super) stdout: Captured,
    /// Its standard error.
    pub(super) stderr: Captured,
    /// Its exit code.
    pub(super) code: i32,
    /// Whether it was run again, since a signal ended one before: what that one did may be done already.
    pub(super) repeated: bool,
}

impl Output {
    /// Returns whether it ended with code 0.
    pub(super) fn is_success(&self) -> bool {
        self.code == 0
    }

    /// Returns all of its standard output.
    pub(super) fn whole(self, command: &str) -> Result<Vec<u8>, GitError> {
        let too_long = || GitError::Garbled { command: command.to_owned(), reason: "it is more than can be kept" };
        self.stdout.whole.ok_or_else(too_long)
    }

    /// Returns its standard output as one line of text.
    pub(super) fn line(&self) -> String {
        String::from_utf8_lossy(&self.stdout.head).trim_end().to_owned()
    }
}

/// The git program, and the environment it is started with.
#[derive(Debug, Clone)]
pub(super) struct Git {
    sandbox: Sandbox,
    environment: BTreeMap<String, String>,
    /// Set where nothing is to be started any more.
    closed: Arc<AtomicBool>,
}

impl Git {
    /// Uses the git program that this environment's `PATH` gives.
    pub(super) fn new(environment: BTreeMap<String, String>) -> Result<Git, GitError> {
        let options = Options { registry: None, path: environment.get("PATH").map(Into::into), ..Options::default() };
        Ok(Git { sandbox: Sandbox::new(options)?, environment, closed: Arc::default() })
    }

    /// Uses the same program, its processes noted in a registry.
    pub(super) fn registered(&self, registry: &Path) -> Result<Git, GitError> {
        let options = Options { registry: Some(registry.to_owned()), path: self.environment.get("PATH").map(Into::into), ..Options::default() };
        Ok(Git { sandbox: Sandbox::new(options)?, environment: self.environment.clone(), closed: Arc::default() })
    }

    /// Uses the same program with a changed environment.
    pub(super) fn with(&self, change: impl FnOnce(&mut BTreeMap<String, String>)) -> Git {
        let mut changed = self.clone();
        change(&mut changed.environment);
        changed
    }

    /// Starts nothing from now on, whoever has a copy.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Returns whether nothing is to be started any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Runs it to its end, on the calling thread, and again where a signal ends it: that is no answer, and every call may be made again.
    ///
    /// # Errors
    /// `Killed` where that happens each time.
    pub(super) fn run(&self, args: &[OsString], cwd: &Path, stdin: &[u8]) -> Result<Output, GitError> {
        self.run_freeing(&[], args, cwd, stdin)
    }

    /// The same, where what it locks with is known, and nobody else locks with that: it is free again after each that was ended. So
    /// is its index, which is always one of our own.
    pub(super) fn run_freeing(&self, locks: &[PathBuf], args: &[OsString], cwd: &Path, stdin: &[u8]) -> Result<Output, GitError> {
        let of_index = self.environment.get(INDEX).map(|index| lock_of(Path::new(index)));
        for tried in 0..TRIES {
            if let Some(output) = self.run_once(args, cwd, stdin)? {
                return Ok(Output { repeated: tried > 0, ..output });
            }
            locks.iter().chain(&of_index).try_for_each(|lock| register::clear(lock))?;
        }
        Err(killed(args))
    }

    /// Runs it to its end; nothing where a signal ended it, or a program that it had started.
    pub(super) fn run_once(&self, args: &[OsString], cwd: &Path, stdin: &[u8]) -> Result<Option<Output>, GitError> {
        let request = Request {
            program: Program::Exec { program: "git".into(), args: args.to_vec() },
            cwd: cwd.to_owned(),
            env: self.environment.clone(),
            stdin: stdin.to_vec(),
            timeout: DEADLINE,
            output_cap: SHOWN,
            confine: Confinement::None,
        };
        if self.is_closed() {
            return Err(GitError::Closed);
        }
        let output = self.sandbox.run_blocking(&request)?;
        let code = match output.exit {
            Exit::Code(code) => code,
            Exit::Signal(_) => return Ok(None),
            Exit::TimedOut | Exit::Cancelled => return Err(GitError::TimedOut { minutes: DEADLINE.as_secs() / 60 }),
        };
        // What git says of one that it had started: a filter, say, or another git.
        let is_lame = code != 0 && output.stderr.text().contains(" died of signal 9");
        Ok((!is_lame).then_some(Output { stdout: output.stdout, stderr: output.stderr, code, repeated: false }))
    }
}

/// Makes the error of a call that a signal ended each time.
pub(super) fn killed(args: &[OsString]) -> GitError {
    let mut words = args.iter().map(|arg| arg.to_string_lossy());
    while let Some(word) = words.next() {
        match &*word {
            "-c" => drop(words.next()),
            option if option.starts_with('-') => {}
            command => return GitError::Killed { command: command.to_owned() },
        }
    }
    GitError::Killed { command: String::new() }
}
