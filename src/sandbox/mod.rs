//! Processes: the only place that starts them, and the walls around those that an agent asks for.
//!
//! A process runs in its own group with exactly the environment it is given. [`Sandbox::run`] returns when it is over
//! and everything it started is dead: at its timeout or when it is cancelled the group is asked to end, then killed;
//! what it leaves running in the background is given a moment to write its last words and is then killed too. The end
//! of a pipe is never waited for. What was written until then is kept, its first and last bytes for a reader and the
//! whole up to [`WHOLE_MAX`]. The values of secrets are not in it: they are taken out while it is read.
//!
//! One driver serves the blocking and the asynchronous caller: it polls the pipes, the process and a socket that the
//! caller's end of the call closes, so that a dropped future, too, leaves nothing behind. It runs on its own thread from
//! `tasks::blocking`, where starting a process does not hold up the scheduler.
//!
//! [`Sandbox::converse`] runs a process with which the caller talks while it runs; it ends as every other does.
//!
//! A process that may reach some hosts of the network and no other has none but its own, and a proxy beside it in this program that
//! answers there: [`Network::Only`]. Whom it asked for in vain stands in its [`Output`].
//!
//! If this program itself is killed, the groups it leaves stand in a registry folder, and [`reap`] ends them at resume.
//! Who leaves his group (`setsid`) is known by a token in his environment. Who drops that too ends with this program where it takes over
//! [`Orphans`], and with his command only inside [`Confinement::Bubblewrap`], whose process namespace ends as a whole.
mod capture;
mod confine;
mod door;
mod driver;
mod environment;
mod group;
mod left_out;
mod orphans;
mod proxy;
mod script;

pub use capture::{Captured, WHOLE_MAX};
pub use confine::{Confinement, Walls};
pub use door::{ENTER, enter};
pub use environment::{clean_env, looks_secret};
pub use group::{is_anybodys, is_at_work, reap};
pub use orphans::Orphans;
pub use proxy::{Allowed, Network, Refusal, Upstream};

use crate::{
    clock::{Clock, Pulse},
    secrets::Secrets,
    tasks,
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

/// Where programs are looked for when neither the caller nor the request says.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin";

/// Starts processes. Cheap to clone; clones share what was probed.
#[derive(Debug, Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
    pulse: Option<Pulse>,
}

#[derive(Debug)]
struct Inner {
    shell: PathBuf,
    path: OsString,
    registry: Option<group::Registry>,
    secrets: Secrets,
    program: Option<PathBuf>,
    upstream: Upstream,
    clock: Clock,
    bubblewrap: OnceLock<Option<confine::Bubblewrap>>,
}

/// How a sandbox is set up.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The folder that notes living groups, made if it is missing; without one nothing is noted.
    pub registry: Option<PathBuf>,
    /// The `PATH` on which the shell and `bwrap` are looked for.
    pub path: Option<OsString>,
    /// What is taken out of all that its processes write.
    pub secrets: Secrets,
    /// This program, which is started inside the walls where a process may reach some hosts alone: its `main` calls [`enter`] where its first
    /// argument is [`ENTER`].
    pub program: Option<PathBuf>,
    /// The proxies through which such a process reaches them.
    pub upstream: Upstream,
}

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A command for `bash -c`, or for `sh -c` where there is no bash; never a login shell.
    Shell(String),
    /// A program, looked for on the request's `PATH` unless it holds a slash, and its arguments.
    Exec {
        /// The program.
        program: OsString,
        /// Its arguments, without its name.
        args: Vec<OsString>,
    },
}

/// One process to run.
#[derive(Debug, Clone)]
pub struct Request {
    /// What to start.
    pub program: Program,
    /// Where.
    pub cwd: PathBuf,
    /// The whole environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// What it reads; its standard input is closed after it.
    pub stdin: Vec<u8>,
    /// When it is ended; counted from its start.
    pub timeout: Duration,
    /// How many bytes of each stream are kept for a reader.
    pub output_cap: usize,
    /// The walls around it.
    pub confine: Confinement,
}

/// What a caller has of a process that it talks with.
#[derive(Debug)]
pub struct Dialogue {
    /// What the process reads.
    pub input: pipe::Sender,
    /// What it writes to its standard output.
    pub output: pipe::Receiver,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned this.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// Its time was up.
    TimedOut,
    /// The caller cancelled it.
    Cancelled,
}

impl Exit {
    /// Returns whether it ended with code 0.
    pub fn is_success(self) -> bool {
        self == Exit::Code(0)
    }
}

/// What a process did.
#[derive(Debug, Clone)]
pub struct Output {
    /// What it wrote to standard output.
    pub stdout: Captured,
    /// What it wrote to standard error.
    pub stderr: Captured,
    /// How it ended.
    pub exit: Exit,
    /// The program that it could not start since that is outside of its walls.
    pub left_out: Option<PathBuf>,
    /// The hosts that it asked for in vain, each once and no more than twenty, in the order of its asking.
    pub refused: Vec<Refusal>,
    /// How long it ran, up to the end of the last process of its group.
    pub took: Duration,
}

/// Why a process could not be run or watched. Fits after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// No such program.
    #[error("find the program `{0}`")]
    NoProgram(String),
    /// The folder is missing or is none.
    #[error("enter the folder `{}`", .0.display())]
    NoFolder(PathBuf),
    /// The system would not start it.
    #[error("start `{program}` in `{}`", cwd.display())]
    Start {
        /// The program.
        program: String,
        /// The folder.
        cwd: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A variable is longer than any process can be given.
    #[error("start a process with the variable `{name}`: its value has {bytes} bytes, and the system takes 131071 with the name")]
    LongVariable {
        /// Its name.
        name: String,
        /// The length of its value.
        bytes: usize,
    },
    /// Arguments and variables are together more than the system takes.
    #[error("start a process: its arguments and variables are together more than the system takes")]
    TooMuch,
    /// A long command could not be handed over.
    #[error("hand a long command to the shell")]
    Script(#[source] io::Error),
    /// Confinement was asked for and is not to be had.
    #[error("confine a process: `bwrap` is not installed, or user namespaces are not allowed here")]
    NoConfinement,
    /// A process was to reach some hosts, and nothing lets it: this program is not known, or its caller only waits.
    #[error("let a process reach some hosts: the program that lets it in is not known")]
    NoEntrance,
    /// The way for a process to some hosts could not be made.
    #[error("make the door of a sandbox")]
    Door(#[source] io::Error),
    /// A folder that should be writable inside the walls is missing.
    #[error("make `{}` writable in the sandbox: there is no such folder or file", .0.display())]
    NoWritable(PathBuf),
    /// A running process could not be watched; it was killed.
    #[error("watch a running process")]
    Watch(#[source] io::Error),
    /// The registry folder cannot be used.
    #[error("keep the registry of processes in `{}`", path.display())]
    Registry {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A bug in the driver.
    #[error("run a process")]
    Driver(#[from] tasks::Panicked),
}

impl Output {
    /// Says how the program can be shown to commands that this one could not start for the walls around it.
    pub fn hint(&self) -> Option<String> {
        let program = self.left_out.as_ref()?;
        let folder = program.parent().filter(|folder| folder.parent().is_some()).unwrap_or(program);
        let folder = folder.parent().filter(|around| folder.ends_with("bin") && around.parent().is_some()).unwrap_or(folder);
        Some(format!(
            "`{}` is there, but not inside the sandbox: `sandbox: {{ read: [{}] }}` in your own config.yaml shows it to commands",
            program.display(),
            folder.display()
        ))
    }
}

impl SandboxError {
    /// Returns what can be done about it, where that is not plain.
    pub fn hint(&self) -> Option<&'static str> {
        let long = "put it into the text of the command instead, which may be of any length: `printf '%s' {{ … | sh }} | program`";
        matches!(self, SandboxError::LongVariable { .. } | SandboxError::TooMuch).then_some(long)
    }
}

impl Sandbox {
    /// Sets up a sandbox: finds the shell and makes the registry folder.
    ///
    /// # Errors
    /// `Registry` where that folder cannot be made.
    pub fn new(options: Options) -> Result<Sandbox, SandboxError> {
        let path = options.path.unwrap_or_else(|| DEFAULT_PATH.into());
        let shell = find_program(OsStr::new("bash"), &path).unwrap_or_else(|| PathBuf::from("/bin/sh"));
        let registry = options.registry.map(group::Registry::open).transpose()?;
        let Options { secrets, program, upstream, .. } = options;
        let inner = Inner { shell, path, registry, secrets, program, upstream, clock: Clock::system(), bubblewrap: OnceLock::new() };
        Ok(Sandbox { inner: Arc::new(inner), pulse: None })
    }

    /// Notes whatever its processes write as a sign of life.
    #[must_use]
    pub fn felt(&self, pulse: &Pulse) -> Sandbox {
        Sandbox { inner: self.inner.clone(), pulse: Some(pulse.clone()) }
    }

    /// Runs a process to its end.
    ///
    /// Dropping the future ends the process as cancelling does, but nobody waits for it then.
    ///
    /// # Errors
    /// A process that starts and fails is an `Output`; errors are about starting and watching.
    pub async fn run(&self, request: Request, cancel: &CancellationToken) -> Result<Output, SandboxError> {
        self.attend(request, None, cancel).await
    }

    async fn attend(&self, request: Request, pipes: Option<driver::Pipes>, cancel: &CancellationToken) -> Result<Output, SandboxError> {
        let (ours, theirs) = UnixStream::pair().map_err(SandboxError::Watch)?;
        let ours = (!cancel.is_cancelled()).then_some(ours);
        let (entrance, serving) = self.entrance(&request)?.unzip();
        let Sandbox { inner, pulse } = self.clone();
        let work = tasks::blocking(move || {
            let watch = Watch { wake: Some(&theirs), pulse: pulse.as_ref() };
            driver::run_with(&inner, &request, driver::Around { watch, pipes, entrance })
        });
        let work = async move {
            tokio::pin!(work);
            tokio::select! {
                biased;
                ended = &mut work => ended?,
                () = cancel.cancelled() => {
                    // The driver sees the other end of its socket gone and ends the group.
                    drop(ours);
                    work.await?
                }
            }
        };
        match serving {
            Some(serving) => serving.beside(work).await,
            None => work.await,
        }
    }

    /// Makes what a process comes in by that may reach some hosts alone, and what serves it.
    fn entrance(&self, request: &Request) -> Result<Option<(door::Entrance, proxy::Serving)>, SandboxError> {
        let Confinement::Bubblewrap(Walls { network: Network::Only(allowed), .. }) = &request.confine else { return Ok(None) };
        let program = self.inner.program.as_ref().ok_or(SandboxError::NoEntrance)?;
        let door = door::Door::open().map_err(SandboxError::Door)?;
        let entrance = door.entrance(program);
        Ok(Some((entrance, proxy::Serving { door, allowed: allowed.clone(), upstream: self.inner.upstream.clone() })))
    }

    /// Starts a process that the caller talks with: returns the other ends of its input and output, and what runs it to its end. What the
    /// request says of its input does not count, and what it writes to its output is the caller's alone, secrets and all.
    ///
    /// It starts when that future is first polled, and ends with its time, when it is cancelled or when the future is dropped.
    ///
    /// # Errors
    /// `Watch` where there are no pipes to be had; the future's are those of [`Sandbox::run`].
    pub fn converse(
        &self,
        request: Request,
        cancel: CancellationToken,
    ) -> Result<(Dialogue, impl Future<Output = Result<Output, SandboxError>> + use<>), SandboxError> {
        let pipes = || -> io::Result<_> {
            let ((stdin, input), (output, stdout)) = (io::pipe()?, io::pipe()?);
            let dialogue = Dialogue { input: pipe::Sender::from_owned_fd(input.into())?, output: pipe::Receiver::from_owned_fd(output.into())? };
            Ok((dialogue, driver::Pipes { stdin: stdin.into(), stdout: stdout.into() }))
        };
        let (dialogue, pipes) = pipes().map_err(SandboxError::Watch)?;
        let sandbox = self.clone();
        let ended = async move { sandbox.attend(request, Some(pipes), &cancel).await };
        Ok((dialogue, ended))
    }

    /// Runs a process to its end on the calling thread, which must be one that may block. It cannot be cancelled, and reaches no host or all.
    ///
    /// # Errors
    /// As [`Sandbox::run`]; `NoEntrance` where it is to reach some.
    pub fn run_blocking(&self, request: &Request) -> Result<Output, SandboxError> {
        driver::run(&self.inner, request, Watch { wake: None, pulse: self.pulse.as_ref() })
    }

    /// Returns the shell that commands are given to.
    pub fn shell(&self) -> &Path {
        &self.inner.shell
    }

    /// Returns the `bwrap` program where it is installed and works, found out once by running it. May block for some
    /// milliseconds the first time.
    pub fn bubblewrap(&self) -> Option<&Path> {
        self.inner.bubblewrap().map(confine::Bubblewrap::program)
    }
}

/// Who follows a process while it runs.
#[derive(Clone, Copy, Default)]
struct Watch<'a> {
    /// Becomes readable, or closed, when the caller cancels.
    wake: Option<&'a UnixStream>,
    /// Told of everything that is written.
    pulse: Option<&'a Pulse>,
}

impl Inner {
    fn bubblewrap(&self) -> Option<&confine::Bubblewrap> {
        self.bubblewrap.get_or_init(|| confine::Bubblewrap::probe(self)).as_ref()
    }
}

/// Returns the first executable of this name on a `PATH`.
fn find_program(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    use rustix::fs::{Access, access};
    // Relative entries would name other programs in other folders.
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|file| access(file, Access::EXEC_OK).is_ok() && file.is_file())
}

#[cfg(test)]
mod tests;
