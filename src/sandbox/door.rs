//! The door in the walls of a command that may reach some hosts: how a socket comes out of its network.
//!
//! Inside, this very program is started first, as [`ENTER`]. It listens on a port of the sandbox's own network, hands that socket out through the door,
//! says in the environment where it is, and becomes the command. So nothing of this program runs inside, the command ends as without it,
//! and who calls at that port is answered by the [`proxy`](super::proxy) outside. The door is shut once the socket is through it.
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, IoSlice, IoSliceMut, Write as _},
    mem::MaybeUninit,
    net::{Ipv4Addr, SocketAddr},
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};
use tempfile::TempDir;
use tokio::{
    io::Interest,
    net::{TcpListener, UnixListener},
};

/// The first argument of this program where it is to let a command in: `enter-walls PROGRAM ARGUMENT…`.
pub const ENTER: &str = "enter-walls";
/// Where the door and this program are inside.
const DOOR: &str = "/run/spinney/door";
const PROGRAM: &str = "/run/spinney/spinney";
/// The name of the door outside.
const NAME: &str = "door";
/// What programs read for where a proxy is.
const VARIABLES: &[&str] = &["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy", "https_proxy"];
/// How a shell says that a program cannot be started.
const NOT_STARTED: u8 = 126;

#[cfg(target_os = "linux")]
const CLOSED_AT_START: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOSED_AT_START: RecvFlags = RecvFlags::empty();

/// The outer side of a door through which nothing has come yet.
#[derive(Debug)]
pub(super) struct Door {
    listener: UnixListener,
    folder: TempDir,
}

/// What is bound inside for a command to come in by.
#[derive(Debug, Clone)]
pub(super) struct Entrance {
    door: PathBuf,
    program: PathBuf,
}

impl Door {
    pub(super) fn open() -> io::Result<Door> {
        let folder = tempfile::Builder::new().prefix("spinney-").tempdir()?;
        // A socket's path has to be short, and that of the folder may be long.
        let held = File::open(folder.path())?;
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{NAME}", held.as_raw_fd()))?;
        Ok(Door { listener, folder })
    }

    /// Returns what to bind inside, where `program` is this one.
    pub(super) fn entrance(&self, program: &Path) -> Entrance {
        Entrance { door: self.folder.path().join(NAME), program: program.to_owned() }
    }

    /// Waits for the socket from inside, and shuts the door.
    pub(super) async fn socket(self) -> io::Result<TcpListener> {
        let (stream, _) = self.listener.accept().await?;
        let received = stream.async_io(Interest::READABLE, || receive(&stream)).await?;
        let listener = std::net::TcpListener::from(received);
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    }
}

impl Entrance {
    /// Returns what to bind: places outside, and where they are inside.
    pub(super) fn binds(&self) -> [(&Path, &'static str); 2] {
        [(&self.door, DOOR), (&self.program, PROGRAM)]
    }

    /// Returns what stands before the command.
    pub(super) fn arguments() -> [&'static str; 2] {
        [PROGRAM, ENTER]
    }
}

/// Lets a command in: hands a socket of this network out, and becomes the command. Returns only where that fails.
pub fn enter(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().unwrap_or_default();
    let wrong = match hand_out() {
        Ok(at) => start(&program, arguments, at),
        Err(error) => error,
    };
    // Where standard error is gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "error: failed to start `{}` in the sandbox: {wrong}", program.display());
    ExitCode::from(NOT_STARTED)
}

/// Listens on a port that nobody has, and hands the socket out; returns where that is.
fn hand_out() -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let door = UnixStream::connect(DOOR)?;
    let sockets = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    with.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(&door, &[IoSlice::new(b"s")], &mut with, SendFlags::empty())?;
    listener.local_addr()
}

#[expect(clippy::disallowed_methods, reason = "this module is the one place that starts processes")]
fn start(program: &OsStr, arguments: impl Iterator<Item = OsString>, proxy: SocketAddr) -> io::Error {
    let proxy = format!("http://{proxy}");
    Command::new(program).args(arguments).envs(VARIABLES.iter().map(|name| (name, &proxy))).exec()
}

fn receive(stream: &tokio::net::UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    recvmsg(stream, &mut [IoSliceMut::new(&mut [0])], &mut with, CLOSED_AT_START)?;
    let of = |message| if let RecvAncillaryMessage::ScmRights(mut sockets) = message { sockets.next() } else { None };
    with.drain().find_map(of).ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "no socket came through the door"))
}
