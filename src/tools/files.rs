//! Reading and writing whole files at a place, and what an agent remembers of those it read.
use super::{
    ToolError,
    place::{Place, trouble},
};
use crate::event::{BlobId, FileSeen};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, openat, renameat, statat, unlinkat},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

/// Largest file that is read or written whole: 16 MiB.
pub(super) const FILE_MAX: u64 = 16 << 20;

/// How temporary files begin; one that a crash left is removed by [`super::sweep`].
pub(super) const TEMPORARY: &str = ".spinney-write-";

/// Most files that one agent remembers; further ones are not protected against changes by others.
const SEEN_MAX: usize = 20_000;

/// What an agent last read or wrote of each file, so that it does not overwrite what it has not seen.
#[derive(Debug, Default)]
pub struct Seen {
    all: Arc<Mutex<BTreeMap<String, BlobId>>>,
    /// What was noted through this, for the record.
    news: Mutex<Vec<FileSeen>>,
}

impl Seen {
    /// Shares what is known with one call, which notes what it adds.
    #[must_use]
    pub fn of_call(&self) -> Seen {
        Seen { all: self.all.clone(), news: Mutex::default() }
    }

    /// Returns what was noted through this.
    pub fn news(&self) -> Vec<FileSeen> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Knows again what was recorded before the process died.
    pub fn recall<'a>(&self, recorded: impl Iterator<Item = (&'a String, &'a BlobId)>) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).extend(recorded.take(SEEN_MAX).map(|(path, content)| (path.clone(), content.clone())));
    }

    /// Notes the content of a file.
    pub(super) fn note(&self, key: &str, content: &[u8]) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < SEEN_MAX || all.contains_key(key) {
            let seen = FileSeen { path: key.to_owned(), content: BlobId::of(content) };
            all.insert(seen.path.clone(), seen.content.clone());
            self.news.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
        }
    }

    /// Refuses where the file is not as this agent last saw it. One that it never saw is not refused, and neither is one that is
    /// gone: there is nothing that could be lost.
    pub(super) fn check(&self, place: &Place, content: Option<&[u8]>) -> Result<(), ToolError> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(seen), Some(content)) = (all.get(&place.key()), content) else { return Ok(()) };
        if *seen == BlobId::of(content) {
            return Ok(());
        }
        Err(ToolError::Model(format!(
            "`{}` has changed since you last read it (by a command or by someone else): Read it again, then make the change",
            place.path().display()
        )))
    }
}

/// Reads a whole regular file.
pub(super) fn read(place: &Place) -> Result<Vec<u8>, ToolError> {
    let file = place.open().map_err(|error| trouble(place, "open", &error))?;
    read_regular(file).map_err(|error| trouble(place, "read", &error))
}

/// Reads a whole regular file, or nothing where there is none.
pub(super) fn read_if_there(place: &Place) -> Result<Option<Vec<u8>>, ToolError> {
    match place.open() {
        Ok(file) => read_regular(file).map(Some).map_err(|error| trouble(place, "read", &error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(trouble(place, "open", &error)),
    }
}

fn read_regular(file: File) -> io::Result<Vec<u8>> {
    let stat = fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Errno::ISDIR.into()),
        _ => return Err(io::Error::other("it is a pipe, a socket or a device, not a file")),
    }
    let too_large =
        || io::Error::other(format!("it has more than {} MiB: look at parts of it with Grep, or with `head`, `tail` or `sed -n` in Bash", FILE_MAX >> 20));
    if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > FILE_MAX {
        return Err(too_large());
    }
    let mut content = Vec::new();
    // It may grow while it is read, and some files do not know their size.
    file.take(FILE_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_MAX { Err(too_large()) } else { Ok(content) }
}

/// Replaces a file as a whole, or makes it, with its folders; readers see the old or the new one. Its mode is kept.
pub(super) fn write(place: &Place, content: &[u8]) -> Result<(), ToolError> {
    if content.len() as u64 > FILE_MAX {
        return Err(ToolError::Model(format!("could not write `{}`: it would have more than {} MiB", place.path().display(), FILE_MAX >> 20)));
    }
    let (folder, name) = place.open_parent(true).map_err(|error| trouble(place, "reach", &error))?;
    let mode = mode_there(&folder, &name).map_err(|error| trouble(place, "write", &error))?;
    replace(&folder, &name, content, mode).map_err(|error| trouble(place, "write", &error))
}

/// Returns the mode of the file that is to be replaced, where there is one.
pub(super) fn mode_there(folder: &OwnedFd, name: &OsString) -> io::Result<Option<Mode>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(Mode::from_raw_mode(stat.st_mode & 0o777))),
            FileType::Directory => Err(Errno::ISDIR.into()),
            FileType::Symlink => Err(io::Error::other("it is a symbolic link: use the path it leads to")),
            _ => Err(io::Error::other("it is a pipe, a socket or a device, not a file")),
        },
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes beside the file and renames over it.
pub(super) fn replace(folder: &OwnedFd, name: &OsString, content: &[u8], mode: Option<Mode>) -> io::Result<()> {
    let temporary = format!("{TEMPORARY}{:016x}", fastrand::u64(..));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, &temporary, flags, Mode::from_raw_mode(0o666))?);
    let written = file.write_all(content).and_then(|()| {
        if let Some(mode) = mode {
            fchmod(&file, mode)?;
        }
        Ok(renameat(folder, &temporary, folder, name)?)
    });
    if written.is_err() {
        // The first error is the one to tell; the file may not even be there.
        let _removed = unlinkat(folder, &temporary, AtFlags::empty());
    }
    written
}
