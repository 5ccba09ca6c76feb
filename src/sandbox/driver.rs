//! The driver of one process: feeds it, reads it, watches it, ends it.
use super::{
    Captured, Confinement, Exit, Inner, Output, Program, Request, SandboxError, Watch,
    capture::Capture,
    door::Entrance,
    find_program,
    group::{Group, Token},
    left_out,
    script::{self, Script},
};
use crate::{clock::Pulse, secrets};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, ioctl_fionbio},
    process::{Pid, WaitId, WaitIdOptions, waitid},
};
use std::{
    ffi::{OsStr, OsString},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            net::UnixStream,
            process::{CommandExt as _, ExitStatusExt as _},
        },
    },
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    time::Duration,
};

/// How long a group that was asked to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(1);
/// How long what a command left in the background may still write.
const DRAIN: Duration = Duration::from_millis(200);
/// How long the dead are waited for; longer only where the kernel itself hangs.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// How often a process is looked at where the system cannot announce its end.
const LOOK: Duration = Duration::from_millis(5);
/// Reads in one round, so that a flood does not keep the driver from the clock.
const READS_MAX: usize = 16;

/// Runs a request to its end.
pub(super) fn run(inner: &Inner, request: &Request, watch: Watch<'_>) -> Result<Output, SandboxError> {
    run_with(inner, request, Around { watch, ..Around::default() })
}

/// What is around a process.
#[derive(Default)]
pub(super) struct Around<'a> {
    pub(super) watch: Watch<'a>,
    /// Its input and output, where it is not this driver that has the other ends.
    pub(super) pipes: Option<Pipes>,
    /// What it comes in by, where it may reach some hosts.
    pub(super) entrance: Option<Entrance>,
}

/// Runs a request to its end with this around it.
pub(super) fn run_with(inner: &Inner, request: &Request, around: Around<'_>) -> Result<Output, SandboxError> {
    let wake = around.watch.wake;
    if wake.is_some_and(is_closed) {
        let (stdout, stderr) = (Captured::default(), Captured::default());
        return Ok(Output { stdout, stderr, exit: Exit::Cancelled, left_out: None, refused: Vec::new(), took: Duration::ZERO });
    }
    let started = inner.clock.elapsed();
    let mut job = Job::start(inner, request, around)?;
    let deadline = started.saturating_add(request.timeout);
    let watched = job.attend(deadline, wake);
    // Whatever went wrong, nothing is left running.
    let exit = job.end(watched)?;
    let took = inner.clock.elapsed().saturating_sub(started);
    let (stdout, stderr) = (job.stdout.finish(), job.stderr.finish());
    let left_out = left_out::find(request, exit, &stderr.text());
    Ok(Output { stdout, stderr, exit, left_out, refused: Vec::new(), took })
}

/// The process's ends of pipes that somebody else reads and writes.
pub(super) struct Pipes {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
}

struct Job<'a> {
    inner: &'a Inner,
    pulse: Option<&'a Pulse>,
    child: Child,
    group: Option<Group>,
    /// Becomes readable when the process ends; absent where the system has none.
    pidfd: Option<OwnedFd>,
    pid: Pid,
    exited: bool,
    stdin: Option<ChildStdin>,
    unsent: &'a [u8],
    stdout: Stream,
    stderr: Stream,
}

/// Why the first watch ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Exited,
    TimedOut,
    Cancelled,
}

impl<'a> Job<'a> {
    fn start(inner: &'a Inner, request: &'a Request, around: Around<'a>) -> Result<Job<'a>, SandboxError> {
        let Around { watch: Watch { pulse, .. }, pipes, entrance } = around;
        if !request.cwd.is_dir() {
            return Err(SandboxError::NoFolder(request.cwd.clone()));
        }
        script::check_variables(request)?;
        let script = if let Program::Shell(text) = &request.program { Some(Script::of(text).map_err(SandboxError::Script)?) } else { None };
        let (program, args) = command_line(inner, request, (script.as_ref(), entrance.as_ref()))?;
        let fail = |source| {
            if script::is_too_much(&source) {
                return SandboxError::TooMuch;
            }
            SandboxError::Start { program: program.display().to_string(), cwd: request.cwd.clone(), source }
        };
        #[expect(clippy::disallowed_methods, reason = "this module is the one place that starts processes")]
        let mut command = Command::new(&program);
        command.args(&args).current_dir(&request.cwd).env_clear().envs(&request.env).process_group(0);
        // Only what runs for an agent may start daemons; git is started too often to look for some.
        let token = request.env.contains_key(super::group::MARK).then(Token::new);
        command.envs(token.iter().map(|token| (super::group::TOKEN, token.text())));
        let own = || (if request.stdin.is_empty() { Stdio::null() } else { Stdio::piped() }, Stdio::piped());
        let (stdin, stdout) = pipes.map_or_else(own, |pipes| (pipes.stdin.into(), pipes.stdout.into()));
        let announced = token.as_ref().zip(inner.registry.as_ref()).and_then(|(token, registry)| registry.announce(token));
        command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        let mut child = script::spawn(&mut command, script.as_ref()).map_err(fail)?;
        // Only the process itself holds its ends of pipes, so that whoever has the others sees its end.
        drop(command);
        let pid = Pid::from_child(&child);
        let group = Some(Group::new(pid, token, inner.registry.as_ref(), announced.as_ref()));
        let stdin = child.stdin.take();
        if let Some(pipe) = &stdin {
            ioctl_fionbio(pipe, true).map_err(|error| SandboxError::Watch(error.into()))?;
        }
        let stdout = Stream::new(child.stdout.take().map(OwnedFd::from), request.output_cap, inner)?;
        let stderr = Stream::new(child.stderr.take().map(OwnedFd::from), request.output_cap, inner)?;
        Ok(Job { inner, pulse, child, group, pidfd: pidfd(pid), pid, exited: false, stdin, unsent: &request.stdin, stdout, stderr })
    }

    /// Watches the process until it ends, its time is up or the caller cancels, and lets the group end by itself.
    fn attend(&mut self, deadline: Duration, wake: Option<&UnixStream>) -> Result<Ended, SandboxError> {
        let mut cancelled = false;
        while !self.exited && !cancelled && self.now() < deadline {
            cancelled = self.step(deadline, wake)?;
        }
        // On a race the answer that fails is given.
        let ended = match (cancelled, self.exited) {
            (true, _) => Ended::Cancelled,
            (false, true) => Ended::Exited,
            (false, false) => Ended::TimedOut,
        };
        self.stdin = None;
        let patience = if ended == Ended::Exited {
            DRAIN
        } else {
            self.ask_to_end();
            GRACE
        };
        let until = self.now() + patience;
        while !(self.exited && self.is_silent()) && self.now() < until {
            // A second wish to cancel changes nothing; what drains is over soon.
            self.step(until, None)?;
        }
        Ok(ended)
    }

    /// Kills what is left, waits for the dead and reads their last words.
    fn end(&mut self, watched: Result<Ended, SandboxError>) -> Result<Exit, SandboxError> {
        if let Some(group) = &self.group {
            group.kill();
        }
        let until = self.now() + DRAIN;
        while !(self.exited && self.is_silent()) && self.now() < until {
            self.step(until, None)?;
        }
        let status = self.wait()?;
        let until = self.now() + DRAIN;
        if let Some(group) = self.group.take() {
            // Orphans are waited for by another process; until then they count as left.
            while group.is_left() && self.now() < until {
                pause(Duration::from_millis(1));
            }
            group.end();
        }
        Ok(match (watched?, status) {
            (Ended::TimedOut, _) => Exit::TimedOut,
            (Ended::Cancelled, _) => Exit::Cancelled,
            (Ended::Exited, Some(status)) => status.code().map_or_else(|| Exit::Signal(status.signal().unwrap_or_default()), Exit::Code),
            (Ended::Exited, None) => Exit::Signal(9),
        })
    }

    /// Waits for the process, which was killed; gives up where the kernel holds it.
    fn wait(&mut self) -> Result<Option<ExitStatus>, SandboxError> {
        let until = self.now() + LAST_WAIT;
        loop {
            match self.child.try_wait().map_err(SandboxError::Watch)? {
                Some(status) => return Ok(Some(status)),
                None if self.now() >= until => return Ok(None),
                None => pause(Duration::from_millis(1)),
            }
        }
    }

    /// Moves bytes once, waiting until `until` for something to do; returns whether the caller cancelled.
    fn step(&mut self, until: Duration, wake: Option<&UnixStream>) -> Result<bool, SandboxError> {
        let announced = self.pidfd.is_some() || self.exited;
        let left = until.saturating_sub(self.now());
        let ready = self.poll(if announced { left } else { left.min(LOOK) }, wake).map_err(|error| SandboxError::Watch(error.into()))?;
        if ready.stdin {
            self.feed();
        }
        if ready.stdout {
            self.stdout.pump();
        }
        if ready.stderr {
            self.stderr.pump();
        }
        if let (true, Some(pulse)) = (ready.stdout || ready.stderr, self.pulse) {
            pulse.beat();
        }
        if !self.exited && (ready.process || !announced) {
            self.exited = has_exited(self.pid)?;
        }
        Ok(ready.cancelled)
    }

    fn poll(&self, patience: Duration, wake: Option<&UnixStream>) -> Result<Ready, Errno> {
        let pidfd = self.pidfd.as_ref().filter(|_| !self.exited);
        let watched = [
            (self.stdin.as_ref().map(AsFd::as_fd), PollFlags::OUT),
            (self.stdout.pipe.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (self.stderr.pipe.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (pidfd.map(AsFd::as_fd), PollFlags::IN),
            (wake.map(AsFd::as_fd), PollFlags::IN),
        ];
        let mut fds: Vec<PollFd<'_>> = watched.iter().filter_map(|(fd, flags)| fd.map(|fd| PollFd::from_borrowed_fd(fd, *flags))).collect();
        let patience = Timespec { tv_sec: patience.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: patience.subsec_nanos().into() };
        match poll(&mut fds, Some(&patience)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error),
        }
        let mut polled = fds.iter();
        let mut ready = watched.map(|(fd, _)| fd.is_some() && polled.next().is_some_and(|fd| !fd.revents().is_empty())).into_iter();
        let mut next = || ready.next().unwrap_or_default();
        Ok(Ready { stdin: next(), stdout: next(), stderr: next(), process: next(), cancelled: next() })
    }

    /// Writes what the pipe takes and closes it at the end. A process that does not read its input is no error.
    fn feed(&mut self) {
        let Some(pipe) = &mut self.stdin else { return };
        match pipe.write(self.unsent) {
            Ok(sent) => self.unsent = &self.unsent[sent..],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Err(_closed) => self.unsent = &[],
        }
        if self.unsent.is_empty() {
            self.stdin = None;
        }
    }

    fn ask_to_end(&self) {
        if let Some(group) = &self.group {
            group.ask_to_end();
        }
    }

    fn is_silent(&self) -> bool {
        self.stdout.pipe.is_none() && self.stderr.pipe.is_none()
    }

    fn now(&self) -> Duration {
        self.inner.clock.elapsed()
    }
}

/// What a poll found.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each thing that is watched")]
struct Ready {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    process: bool,
    cancelled: bool,
}

/// One output of the process.
struct Stream {
    pipe: Option<std::fs::File>,
    search: Option<secrets::Stream>,
    capture: Capture,
}

impl Stream {
    fn new(pipe: Option<OwnedFd>, cap: usize, inner: &Inner) -> Result<Stream, SandboxError> {
        if let Some(pipe) = &pipe {
            ioctl_fionbio(pipe, true).map_err(|error| SandboxError::Watch(error.into()))?;
        }
        Ok(Stream { pipe: pipe.map(Into::into), search: inner.secrets.stream(), capture: Capture::new(cap) })
    }

    /// Reads what is there, within reason; closes at the end.
    fn pump(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut buffer = [0; 16 << 10];
        for _ in 0..READS_MAX {
            match pipe.read(&mut buffer) {
                Ok(read) if read > 0 => match &mut self.search {
                    None => self.capture.push(&buffer[..read]),
                    Some(search) => self.capture.push(&search.push(&buffer[..read])),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => {
                    self.pipe = None;
                    return;
                }
            }
        }
    }

    fn finish(&mut self) -> Captured {
        if let Some(search) = self.search.take() {
            self.capture.push(&search.finish());
        }
        std::mem::replace(&mut self.capture, Capture::new(0)).finish()
    }
}

/// Returns the program and arguments to start, walls included.
fn command_line(
    inner: &Inner,
    request: &Request,
    (script, entrance): (Option<&Script<'_>>, Option<&Entrance>),
) -> Result<(PathBuf, Vec<OsString>), SandboxError> {
    let (program, args) = match &request.program {
        Program::Shell(_) => (inner.shell.clone(), script.into_iter().flat_map(|script| ["-c".into(), script.argument()]).collect()),
        Program::Exec { program, args } => (locate(inner, request, program)?, args.clone()),
    };
    match &request.confine {
        Confinement::None => Ok((program, args)),
        Confinement::Bubblewrap(walls) => {
            let bubblewrap = inner.bubblewrap().ok_or(SandboxError::NoConfinement)?;
            let mut wrapped = bubblewrap.arguments(walls, &request.cwd, &request.env, entrance)?;
            wrapped.push(program.into());
            wrapped.extend(args);
            Ok((bubblewrap.program().to_owned(), wrapped))
        }
    }
}

/// Finds a program as a shell would, so that starting it needs no search in the new process.
fn locate(inner: &Inner, request: &Request, program: &OsStr) -> Result<PathBuf, SandboxError> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Ok(request.cwd.join(program));
    }
    let path = request.env.get("PATH").map_or(inner.path.as_os_str(), OsStr::new);
    find_program(program, path).ok_or_else(|| SandboxError::NoProgram(program.display().to_string()))
}

#[cfg(target_os = "linux")]
fn pidfd(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn pidfd(_pid: Pid) -> Option<OwnedFd> {
    None
}

/// Returns whether a child has ended, without taking its status: until that is taken its number stays its own.
fn has_exited(pid: Pid) -> Result<bool, SandboxError> {
    match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG) {
        Ok(status) => Ok(status.is_some()),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(SandboxError::Watch(error.into())),
    }
}

/// Sleeps for less than a second; the thread is the caller's own to block.
fn pause(duration: Duration) {
    let duration = Timespec { tv_sec: 0, tv_nsec: duration.subsec_nanos().into() };
    // Nothing is watched, so only the time can end it, or a signal a little early.
    let _interrupted = poll(&mut [], Some(&duration));
}

/// Returns whether the caller's end of a socket is gone.
fn is_closed(wake: &UnixStream) -> bool {
    let mut fds = [PollFd::new(wake, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
