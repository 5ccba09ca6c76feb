//! Where a file tool may go: beneath the workspace's root, never through a link out of it, never into `.git`.
//!
//! A path is first brought into one form by its text alone ([`Place`]), which is also the key by which two calls know that
//! they mean one file. It is then opened beneath the root's descriptor without following any link, in one system call where
//! the kernel has `openat2`. Readers that meet a link walk it step by step, each step judged by the same rules; writers refuse
//! links. So a path that was judged cannot be swapped for another one before it is opened.
use super::{ToolContext, ToolError};
use crate::git::names_git;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, openat, readlinkat, statat},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

/// Links that are followed for one path, as in the kernel.
const LINKS_MAX: usize = 40;

/// A path beneath a root, by its text: no `.`, no `..`, no `.git`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The workspace's root or a folder that may only be read.
    pub(super) root: PathBuf,
    /// Beneath the root; empty for the root itself.
    pub(super) relative: PathBuf,
    /// Whether the root is the workspace's.
    pub(super) in_workspace: bool,
}

impl Place {
    /// Finds the place of a path in the workspace.
    pub(super) fn writable(cx: &ToolContext, path: &str) -> Result<Place, ToolError> {
        let place = Place::find(cx, path)?;
        if !place.in_workspace {
            return Err(ToolError::Model(format!("`{path}` can be read but not written: write beneath `{}`", cx.root.display())));
        }
        if place.relative.as_os_str().is_empty() {
            return Err(ToolError::Model(format!("`{path}` is the workspace itself: name a file in it")));
        }
        Ok(place)
    }

    /// Finds the place of a path in the workspace or in a folder that may be read besides.
    pub(super) fn find(cx: &ToolContext, path: &str) -> Result<Place, ToolError> {
        if path.is_empty() || path.contains('\0') {
            return Err(ToolError::Model("the path is empty or holds a zero byte".to_owned()));
        }
        let outside = || {
            ToolError::Model(format!(
                "`{path}` is outside the workspace: use a path beneath `{}`, or one relative to `{}`",
                cx.root.display(),
                cx.cwd.display()
            ))
        };
        if path == "~" || path.starts_with("~/") {
            return Err(outside());
        }
        let whole = normalise(&cx.cwd.join(path)).ok_or_else(outside)?;
        let roots = std::iter::once(&cx.root).chain(cx.reads.iter());
        let (at, root, relative) =
            roots.enumerate().find_map(|(at, root)| whole.strip_prefix(root).ok().map(|relative| (at, root, relative))).ok_or_else(outside)?;
        if relative.iter().any(is_git_name) {
            return Err(in_git(path));
        }
        Ok(Place { root: root.clone(), relative: relative.to_owned(), in_workspace: at == 0 })
    }

    /// Returns the key of the file: relative to the workspace with `/`, or absolute elsewhere.
    pub(super) fn key(&self) -> String {
        let path = if self.in_workspace { self.relative.clone() } else { self.path() };
        path.to_string_lossy().into_owned()
    }

    /// Returns the absolute path, for people and hooks.
    pub(super) fn path(&self) -> PathBuf {
        if self.relative.as_os_str().is_empty() { self.root.clone() } else { self.root.join(&self.relative) }
    }

    /// Returns the absolute path as text; what is no UTF-8 in it is replaced.
    pub(super) fn shown(&self) -> String {
        self.path().to_string_lossy().into_owned()
    }

    /// Returns the place that links led to, where the system tells.
    pub(super) fn settled(&self, opened: &File) -> Place {
        let real = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap_or_default();
        let relative = real.strip_prefix(&self.root).map_or_else(|_| self.relative.clone(), Path::to_owned);
        Place { relative, ..self.clone() }
    }

    fn root(&self) -> io::Result<OwnedFd> {
        Ok(open_root(&self.root)?)
    }

    /// Opens the file or folder for reading; links are followed as long as they stay beneath the root.
    pub(super) fn open(&self) -> io::Result<File> {
        let root = self.root()?;
        match open_beneath(&root, &self.relative) {
            Err(Errno::LOOP | Errno::NOSYS | Errno::PERM | Errno::NOTDIR) => Walk::new(root).open(&self.relative),
            opened => Ok(opened?.into()),
        }
    }

    /// Opens the folder that holds the file, for writing in it, making missing folders where `make` says so. No link on
    /// the way is followed.
    pub(super) fn open_parent(&self, make: bool) -> io::Result<(OwnedFd, OsString)> {
        let name = self.relative.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let mut folder = self.root()?;
        for step in self.relative.parent().unwrap_or(Path::new("")) {
            if make {
                match rustix::fs::mkdirat(&folder, step, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            folder = open_folder(&folder, step)?;
        }
        Ok((folder, name))
    }
}

/// Opens a path without links beneath a folder; the path is relative and without `..`.
pub(super) fn open_beneath(root: &OwnedFd, relative: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        rustix::fs::openat2(root, relative, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (root, relative, flags);
        Err(Errno::NOSYS)
    }
}

fn open_folder(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty()).map_err(|error| match error {
        // What is neither a folder nor missing is a file or a link.
        Errno::LOOP | Errno::NOTDIR if is_link(parent, name) => io::Error::other(format!("`{}` is a symbolic link: use the path it leads to", name.display())),
        error => error.into(),
    })
}

fn is_link(parent: &OwnedFd, name: &OsStr) -> bool {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// A walk beneath a root, one folder at a time. The folders stay open, so that `..` of a link leads back where the walk came
/// from and nowhere else.
struct Walk {
    folders: Vec<OwnedFd>,
    root: PathBuf,
    links: usize,
}

impl Walk {
    fn new(root: OwnedFd) -> Walk {
        // Absolute links into the root are followed where the system says what the root is called.
        let name = std::fs::read_link(format!("/proc/self/fd/{}", root.as_raw_fd())).unwrap_or_default();
        Walk { folders: vec![root], root: name, links: 0 }
    }

    fn open(mut self, path: &Path) -> io::Result<File> {
        let mut steps: Vec<OsString> = path.iter().rev().map(OsStr::to_owned).collect();
        while let Some(step) = steps.pop() {
            if step == ".." {
                if self.folders.len() == 1 {
                    return Err(leaves());
                }
                self.folders.pop();
                continue;
            }
            if is_git_name(&step) {
                return Err(io::Error::other("a link on the way leads into `.git`"));
            }
            let here = self.folders.last().ok_or_else(leaves)?;
            if is_link(here, &step) {
                let target = readlinkat(here, &step, Vec::new())?;
                self.follow(Path::new(OsStr::from_bytes(target.as_bytes())), &mut steps)?;
            } else if steps.is_empty() {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                return Ok(openat(here, &step, flags, Mode::empty())?.into());
            } else {
                let next = open_folder(here, &step)?;
                self.folders.push(next);
            }
        }
        // The path ended in `..` or is the root: the folder itself is meant.
        Ok(self.folders.pop().ok_or_else(leaves)?.into())
    }

    /// Puts the steps of a link's target before those that remain.
    fn follow(&mut self, target: &Path, steps: &mut Vec<OsString>) -> io::Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(io::Error::other("there are too many symbolic links on the way"));
        }
        let relative = if target.is_absolute() {
            let inside = if self.root.as_os_str().is_empty() { None } else { target.strip_prefix(&self.root).ok() };
            self.folders.truncate(1);
            inside.ok_or_else(leaves)?
        } else {
            target
        };
        for component in relative.components().rev() {
            match component {
                Component::Normal(name) => steps.push(name.to_owned()),
                Component::ParentDir => steps.push("..".into()),
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return Err(leaves()),
            }
        }
        Ok(())
    }
}

fn leaves() -> io::Error {
    io::Error::other("a symbolic link on the way leads out of the workspace")
}

/// Removes `.` and `..` by text; nothing where `..` leads above the root of the system.
fn normalise(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                if !clean.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    Some(clean)
}

/// Returns whether some file system or some git takes a name for `.git`.
pub(super) fn is_git_name(name: &OsStr) -> bool {
    names_git(name.as_encoded_bytes())
}

fn in_git(path: &str) -> ToolError {
    ToolError::Model(format!("`{path}` is git's own: use git commands in Bash to look at the repository"))
}

/// Says what went wrong at a place, for a model.
pub(super) fn trouble(place: &Place, doing: &str, error: &io::Error) -> ToolError {
    let path = place.path();
    let hint = match error.kind() {
        io::ErrorKind::NotFound => " Look for it with Glob, or list the folder.",
        io::ErrorKind::IsADirectory => " It is a folder: list it with Glob or `ls`.",
        io::ErrorKind::NotADirectory => " A part of the path is a file, not a folder.",
        _ => "",
    };
    let what = match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => error.to_string(),
    };
    ToolError::Model(format!("could not {doing} `{}`: {what}.{hint}", path.display()))
}

/// Opens a root. A command may have put a link in its place, which is not followed.
pub(super) fn open_root(root: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Returns whether a root still exists; a step without its workspace cannot go on.
///
/// # Errors
/// `Fatal`, naming the folder.
pub(super) fn require_root(root: &Path) -> Result<(), ToolError> {
    open_root(root).map(drop).map_err(|error| lost(root, error))
}

/// Says that a root cannot be used any more.
pub(super) fn lost(root: &Path, error: Errno) -> ToolError {
    let what = match error {
        Errno::NOENT => "it is gone; a command has removed or moved it".to_owned(),
        Errno::NOTDIR | Errno::LOOP => "it is no folder any more; a command has put something else in its place".to_owned(),
        error => io::Error::from(error).to_string(),
    };
    ToolError::Fatal(io::Error::other(format!("`{}`: {what}", root.display())))
}
