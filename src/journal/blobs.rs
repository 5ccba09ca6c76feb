//! Content that is too large for a record: files named by the hash of what is in them.
//!
//! A blob is written once, under its name only when it is whole, and never changed. It survives the death of the process;
//! it is not synced, so that after a loss of power one may be missing or cut: reading checks the hash and says so, and
//! putting the same content again mends it.
use crate::{event::BlobId, secrets::Secrets};
use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The blobs of one run: `blobs/ab/cdef…` in its folder.
#[derive(Debug, Clone)]
pub struct Blobs {
    dir: PathBuf,
    secrets: Secrets,
}

/// Why a blob could not be kept or given.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// There is no such blob.
    #[error("find blob {id} in {}", .dir.display())]
    Missing {
        /// The blob.
        id: BlobId,
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// The file's content is not what its name says.
    #[error("read blob {id}: {} is damaged: its content has another hash", .path.display())]
    Damaged {
        /// The blob.
        id: BlobId,
        /// The file.
        path: PathBuf,
    },
    /// The name is not one that a blob can have.
    #[error("read blob `{id}`: a blob's name is 64 hexadecimal digits")]
    BadName {
        /// The name.
        id: BlobId,
    },
    /// Anything of the system's.
    #[error("use blob {id} at {}", .path.display())]
    Io {
        /// The blob.
        id: BlobId,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Blobs {
    /// Uses the `blobs` folder in the run's folder `dir`; it is made when the first blob is put.
    pub fn new(dir: &Path) -> Blobs {
        Blobs { dir: dir.join("blobs"), secrets: Secrets::default() }
    }

    /// Takes the values of secrets out of what is kept from now on.
    #[must_use]
    pub fn without(self, secrets: &Secrets) -> Blobs {
        Blobs { secrets: secrets.clone(), ..self }
    }

    /// Keeps `content` and returns its name; content that is there already is not written again.
    ///
    /// # Errors
    /// `BlobError::Io`.
    pub fn put(&self, content: &[u8]) -> Result<BlobId, BlobError> {
        let content = self.secrets.bytes(content);
        let content = content.as_ref();
        let id = BlobId::of(content);
        let path = self.path(&id)?;
        // What is there is compared and not trusted: a cut file would otherwise stay cut for ever.
        if read_plain(&path).is_ok_and(|kept| kept == content) {
            return Ok(id);
        }
        match write_whole(&path, content) {
            Ok(()) => Ok(id),
            Err(source) => Err(BlobError::Io { id, path, source }),
        }
    }

    /// Takes a blob over from another run, where that has it.
    ///
    /// # Errors
    /// `BlobError::Io`.
    pub fn take_over(&self, id: &BlobId, from: &Blobs) -> Result<(), BlobError> {
        let (path, theirs) = (self.path(id)?, from.path(id)?);
        if path.exists() || !theirs.exists() {
            return Ok(());
        }
        let failed = |source| BlobError::Io { id: id.clone(), path: path.clone(), source };
        fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(failed)?;
        // A blob is never changed where it stands, so that two runs may have one file.
        fs::hard_link(&theirs, &path).or_else(|_| fs::read(&theirs).and_then(|content| write_whole(&path, &content))).map_err(failed)
    }

    /// Returns a blob's content, checked against its name.
    ///
    /// # Errors
    /// All of `BlobError`.
    pub fn get(&self, id: &BlobId) -> Result<Vec<u8>, BlobError> {
        let path = self.path(id)?;
        let content = read_plain(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => BlobError::Missing { id: id.clone(), dir: self.dir.clone() },
            _ => BlobError::Io { id: id.clone(), path: path.clone(), source },
        })?;
        if BlobId::of(&content) == *id { Ok(content) } else { Err(BlobError::Damaged { id: id.clone(), path }) }
    }

    /// Returns where a blob stands. Names come from journals, so one that is not a hash is refused before it is a path.
    fn path(&self, id: &BlobId) -> Result<PathBuf, BlobError> {
        let is_hash = id.0.len() == 64 && id.0.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_hash { Ok(self.dir.join(&id.0[..2]).join(&id.0[2..])) } else { Err(BlobError::BadName { id: id.clone() }) }
    }
}

/// What the name of a file begins with that is not whole yet.
const UNFINISHED: &str = ".tmp-unfinished-";

/// Reads a file where it is a plain one: a pipe in its place would have whoever reads it wait for ever.
pub(crate) fn read_plain(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.is_file() { fs::read(path) } else { Err(io::Error::other("it is not a plain file")) }
}

/// Writes a file so that it is there whole or not at all.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir)?;
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(dir)?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}

/// Removes what a process was writing below a folder when it died; whoever calls this is the only one that writes there.
pub(crate) fn clear_unfinished(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            clear_unfinished(&entry.path())?;
        } else if entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_any_content_once_under_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(dir.path());
        for content in [&b""[..], b"text", &[0, 255, 10, 13], &vec![7; 300_000]] {
            let id = blobs.put(content).unwrap();
            assert_eq!(id, BlobId::of(content));
            assert_eq!(blobs.put(content).unwrap(), id);
            assert_eq!(blobs.get(&id).unwrap(), content);
        }
        let id = BlobId::of(b"text");
        let folder = dir.path().join("blobs").join(&id.0[..2]);
        let names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(names, [&id.0[2..]], "no temporary file stays behind");
    }

    #[test]
    fn what_was_being_written_at_a_death_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(dir.path());
        let id = blobs.put(b"whole").unwrap();
        let half = dir.path().join("blobs").join(&id.0[..2]).join(".tmp-unfinished-X1y2Z3");
        fs::write(&half, "wh").unwrap();
        clear_unfinished(dir.path()).unwrap();
        assert!(!half.exists());
        assert_eq!(blobs.get(&id).unwrap(), b"whole");
        clear_unfinished(&dir.path().join("missing")).unwrap();
    }

    #[test]
    fn a_damaged_blob_is_named_and_mended_by_putting_it_again() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(dir.path());
        let id = blobs.put(b"whole").unwrap();
        let path = dir.path().join("blobs").join(&id.0[..2]).join(&id.0[2..]);
        for damage in ["", "whol", "Whole"] {
            fs::write(&path, damage).unwrap();
            assert!(matches!(blobs.get(&id), Err(BlobError::Damaged { id: named, path: at }) if named == id && at == path));
            blobs.put(b"whole").unwrap();
            assert_eq!(blobs.get(&id).unwrap(), b"whole");
        }
    }

    #[test]
    fn a_name_is_never_a_way_out_of_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        let blobs = Blobs::new(dir.path());
        let upper = BlobId::of(b"x").0.to_uppercase();
        for name in ["", "../secret", "aa/../../secret", "/etc/passwd", "é", &"é".repeat(32), &upper, &"a".repeat(65)] {
            assert!(matches!(blobs.get(&BlobId::from(name)), Err(BlobError::BadName { .. })), "{name}");
        }
        assert!(matches!(blobs.get(&BlobId::of(b"never put")), Err(BlobError::Missing { .. })));
    }
}
