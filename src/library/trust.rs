//! What a person has agreed to: hashes of hooks and of files with rules that came with a project.
//!
//! Trust is by content: the file's name, its place and the project do not matter, and a changed byte ends it.
use super::{Found, walk};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// The longest file of trust that is read.
const MAX_BYTES: u64 = 4 << 20;

/// The hashes that are trusted, and the file they are kept in.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    path: PathBuf,
    trusted: BTreeMap<String, String>,
}

/// A file of trust that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It is there, but cannot be read.
    #[error("read what is trusted in `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not what this program wrote.
    #[error("understand what is trusted in `{path}`")]
    Format {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// It cannot be written.
    #[error("write what is trusted to `{path}`")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    /// Hash to what it was shown as.
    trusted: BTreeMap<String, String>,
}

impl Trust {
    /// Reads the file; one that is not there trusts nothing.
    pub fn load(path: &Path) -> Result<Trust, TrustError> {
        let content = match walk::bytes(path, MAX_BYTES) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Trust { path: path.to_path_buf(), trusted: BTreeMap::new() }),
            Err(source) => return Err(TrustError::Read { path: path.to_path_buf(), source }),
        };
        let stored: Stored = serde_json::from_slice(&content).map_err(|source| TrustError::Format { path: path.to_path_buf(), source })?;
        Ok(Trust { path: path.to_path_buf(), trusted: stored.trusted })
    }

    /// Returns whether a person has agreed to this content.
    pub fn is_trusted(&self, hash: &str) -> bool {
        self.trusted.contains_key(hash)
    }

    /// Returns whether a found file may act without being asked about: by its place, or because a person agreed to it.
    pub fn covers(&self, found: &Found) -> bool {
        found.trusted || self.is_trusted(found.hash())
    }

    /// Adds a hash, with words for people on what it is, and keeps it in the file, together with what others added
    /// meanwhile. The file is replaced as a whole, so that no reader sees half of it.
    pub fn add(&mut self, hash: impl Into<String>, what: impl Into<String>) -> Result<(), TrustError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| TrustError::Write { path, source }
        };
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
        fs::create_dir_all(&dir).map_err(failed(&self.path))?;
        let lock = self.path.with_extension("lock");
        let lock = fs::File::options().create(true).truncate(false).write(true).open(&lock).map_err(failed(&self.path))?;
        lock.lock().map_err(failed(&self.path))?;
        let mut trusted = Trust::load(&self.path)?.trusted;
        trusted.insert(hash.into(), what.into());
        self.save(&dir, &trusted).map_err(failed(&self.path))?;
        self.trusted = trusted;
        Ok(())
    }

    fn save(&self, dir: &Path, trusted: &BTreeMap<String, String>) -> io::Result<()> {
        let stored = Stored { version: 1, trusted: trusted.clone() };
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        serde_json::to_writer_pretty(&mut file, &stored)?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        Ok(())
    }
}
