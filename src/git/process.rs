//! Starts the git program, through `sandbox`: with a deadline, in a process group of its own, dead when the call returns.
use super::error::GitError;
use crate::sandbox::{Captured, Confinement, Exit, Options, Program, Request, Sandbox};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long one call may take: checking out a large repository through a slow filter is the longest there is.
const DEADLINE: Duration = Duration::from_mins(20);
/// How much is kept of an answer that is too long to be kept whole.
const SHOWN: usize = 1 << 20;

/// What git said.
#[derive(Debug)]
pub(super) struct Output {
    /// Its standard output.
    pub(super) stdout: Captured,
    /// Its standard error.
    pub(super) stderr: Captured,
    /// Its exit code; `None` where a signal ended it.
    pub(super) code: Option<i32>,
    /// Whether it was run twice, since a signal ended the first: what that one did may be done already.
    pub(super) repeated: bool,
}

impl Output {
    /// Returns whether it ended with code 0.
    pub(super) fn is_success(&self) -> bool {
        self.code == Some(0)
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

    /// Runs it to its end, on the calling thread.
    pub(super) fn run(&self, args: Vec<OsString>, cwd: &Path, stdin: Vec<u8>) -> Result<Output, GitError> {
        let request = Request {
            program: Program::Exec { program: "git".into(), args },
            cwd: cwd.to_owned(),
            env: self.environment.clone(),
            stdin,
            timeout: DEADLINE,
            output_cap: SHOWN,
            confine: Confinement::None,
        };
        if self.is_closed() {
            return Err(GitError::Closed);
        }
        let output = self.sandbox.run_blocking(&request)?;
        let code = match output.exit {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) => None,
            Exit::TimedOut | Exit::Cancelled => return Err(GitError::TimedOut { minutes: DEADLINE.as_secs() / 60 }),
        };
        Ok(Output { stdout: output.stdout, stderr: output.stderr, code, repeated: false })
    }
}
