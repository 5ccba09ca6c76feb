//! Refs taken out of `packed-refs` by this process itself, under git's own lock of that file.
//!
//! A git that is killed over it leaves an empty lock there, of which nobody can tell whose it is, and which stops every git of the
//! user. The one that is made here says whose it is. Whoever makes one has the turn to pack meanwhile, so that one that is met by
//! whoever has that was left by a death.
use super::{
    error::GitError,
    lock::{self, Lock, own_folder},
    program::lock_of,
    register,
    repository::Repository,
};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// What a lock of ours says.
const SAYS: &str = "spinney takes refs out of packed-refs\n";

/// The lock of `packed-refs`, given back when it is dropped.
pub(super) struct Packing<'r> {
    repository: &'r Repository,
    _turn: Lock,
}

impl Repository {
    /// Takes the lock of `packed-refs`; nothing where another git has it, or where the file is none of the usual kind.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn packing(&self) -> Result<Option<Packing<'_>>, GitError> {
        if fs::symlink_metadata(self.packed_refs()).is_ok_and(|found| !found.is_file()) {
            return Ok(None);
        }
        let turn = Lock::wait(&own_folder(self)?.join("packing"))?;
        let lock = lock_of(&self.packed_refs());
        if is_ours(&lock) {
            register::clear(&lock)?;
        }
        // One that is made gives the lock back when it is dropped: there must be none where another git has it.
        let is_free = lock::say(&lock, &own_folder(self)?.join("packs"), SAYS)?;
        Ok(is_free.then(|| Packing { repository: self, _turn: turn }))
    }

    /// Removes a lock of `packed-refs` that a process of this program has left when it died.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn unlock_packed_refs(&self) -> Result<(), GitError> {
        // Taken, and given back.
        if is_ours(&lock_of(&self.packed_refs())) { self.packing().map(drop) } else { Ok(()) }
    }

    fn packed_refs(&self) -> PathBuf {
        self.common_dir().join("packed-refs")
    }

    /// Returns whether a ref is packed, or may be so in a moment: whoever packs holds a lock until it is done.
    pub(super) fn may_be_packed(&self, name: &str) -> bool {
        if fs::symlink_metadata(lock_of(&self.packed_refs())).is_ok() {
            return true;
        }
        match fs::read(self.packed_refs()) {
            Ok(text) => text.split_inclusive(|&byte| byte == b'\n').any(|line| packed_name(line) == Some(name.as_bytes())),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

impl Packing<'_> {
    /// Takes refs out, those of the names that are packed.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn take_out(&self, names: &BTreeSet<&str>) -> Result<(), GitError> {
        let packed = self.repository.packed_refs();
        let text = match fs::read(&packed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            text => text.map_err(GitError::io("read", &packed))?,
        };
        let mut goes = false;
        let mut kept = Vec::with_capacity(text.len());
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            // What a tag leads to stands below it.
            if !line.starts_with(b"^") {
                goes = packed_name(line).and_then(|name| std::str::from_utf8(name).ok()).is_some_and(|name| names.contains(name));
            }
            if !goes {
                kept.extend_from_slice(line);
            }
        }
        if kept.len() == text.len() {
            return Ok(());
        }
        let new = own_folder(self.repository)?.join("packed-refs");
        replace(&packed, &new, &kept).map_err(GitError::io("write", packed))
    }
}

impl Drop for Packing<'_> {
    fn drop(&mut self) {
        // What cannot be removed is known to whoever packs next.
        let _ = fs::remove_file(lock_of(&self.repository.packed_refs()));
    }
}

/// Writes a file anew that outlives the power, as git does it with refs, and as readable as it was.
fn replace(file: &Path, draft: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = File::create(draft)?;
    new.set_permissions(fs::metadata(file)?.permissions())?;
    new.write_all(content)?;
    new.sync_all()?;
    fs::rename(draft, file)
}

/// Returns the name in a line of packed refs that has one.
fn packed_name(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let space = line.iter().position(|&byte| byte == b' ').filter(|_| !line.starts_with(b"#"))?;
    Some(&line[space + 1..])
}

/// Returns whether a lock is one that is made here.
pub(super) fn is_ours(lock: &Path) -> bool {
    fs::symlink_metadata(lock).is_ok_and(|found| found.is_file()) && fs::read(lock).is_ok_and(|said| said == SAYS.as_bytes())
}
