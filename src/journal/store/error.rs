//! What can go wrong with a journal's file, by what a caller can do about it.
use crate::journal::folder::{ROOM, WRITABLE};
use rusqlite::{ErrorCode, ffi};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Why records could not be kept or read. Every variant names the file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no journal.
    #[error("find the journal {}", .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// There is one already.
    #[error("begin the journal {}: a run of this name has one already", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file was made, but nothing was ever written into it.
    #[error("read the journal {}: the run died before its first record", .path.display())]
    Unbegun {
        /// The file.
        path: PathBuf,
    },
    /// The file has a format that this program does not know.
    #[error("read the journal {}: written by a newer Spinney: format {found}, this one reads up to {known}", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The file's format.
        found: i64,
        /// The newest format that this program reads.
        known: i64,
    },
    /// The disk is full.
    #[error("write the journal {}: the disk is full", .path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file or its folder cannot be written.
    #[error("write the journal {}: it is read-only for this user", .path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Somebody else holds the file.
    #[error("write the journal {}: another process has locked it", .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Somebody else appended since it was opened.
    #[error("write the journal {}: another process has written to it", .path.display())]
    Overtaken {
        /// The file.
        path: PathBuf,
    },
    /// The file is not what SQLite wrote.
    #[error("read the journal {}: the file is damaged: {detail}", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// A record is not what was written.
    #[error("read record {seq} of the journal {}: it was changed since it was written: its seal does not fit", .path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// The record.
        seq: u64,
    },
    /// Records are gone from the end.
    #[error("read the journal {}: {least} records were written, and {found} are there", .path.display())]
    Lost {
        /// The file.
        path: PathBuf,
        /// How many there must be at least.
        least: u64,
        /// How many there are.
        found: u64,
    },
    /// What says how many records there must be is gone or damaged.
    #[error("read {}, which says how many records the journal beside it has: it is {}", .path.display(), if *.missing { "not there" } else { "damaged" })]
    Unmarked {
        /// The mark.
        path: PathBuf,
        /// Whether there is none.
        missing: bool,
    },
    /// A record is missing, or stands where it does not belong.
    #[error("keep a whole journal in {}: record {expected} should come next, but {found} does", .path.display())]
    Gap {
        /// The file.
        path: PathBuf,
        /// The number that should come next.
        expected: u64,
        /// The number that came.
        found: i128,
    },
    /// A record's text is not an event that this program knows.
    #[error("read record {seq} of the journal {}", .path.display())]
    Unparsable {
        /// The file.
        path: PathBuf,
        /// The record.
        seq: u64,
        /// The parser's error, with its place in the record's text.
        source: serde_json::Error,
    },
    /// An event could not be written as text.
    #[error("write record {seq} of the journal {} as text", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The record.
        seq: u64,
        /// The serialiser's error.
        source: serde_json::Error,
    },
    /// Anything else of the system's.
    #[error("use the journal {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Anything else of the database's.
    #[error("use the journal {}", .path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The database's error.
        source: rusqlite::Error,
    },
}

impl StoreError {
    /// What can be done about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            StoreError::Lost { found: 0, .. }
            | StoreError::Corrupt { .. }
            | StoreError::Gap { .. }
            | StoreError::Unparsable { .. }
            | StoreError::Altered { .. } => Some("no other run is touched; `spinney doctor` says what of this one is kept: the commits of its ended steps are"),
            StoreError::Database { .. } => Some("`spinney doctor` says whether it is damaged, and what of the run is kept"),
            StoreError::Lost { .. } | StoreError::Unmarked { .. } => Some("`spinney doctor --repair` goes on from the records that are there"),
            StoreError::Newer { .. } => Some("use the Spinney that wrote it, or a newer one"),
            StoreError::ReadOnly { .. } => Some(WRITABLE),
            StoreError::Full { .. } => Some(ROOM),
            StoreError::Unbegun { .. } => Some("nothing was done by it: `spinney run` begins another"),
            StoreError::Missing { .. } => Some("somebody has removed it, with `git clean -fdx` say; what the run keeps stays under refs/spinney"),
            StoreError::Exists { .. } | StoreError::Busy { .. } | StoreError::Overtaken { .. } | StoreError::Unwritable { .. } | StoreError::Io { .. } => None,
        }
    }
}

pub(super) fn corrupt(path: &Path, detail: String) -> StoreError {
    StoreError::Corrupt { path: path.to_owned(), detail }
}

/// Gives an error of the file system its variant.
pub(super) fn system(path: &Path, source: io::Error) -> StoreError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::AlreadyExists => StoreError::Exists { path },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { path },
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => StoreError::ReadOnly { path },
        _ => StoreError::Io { path, source },
    }
}

/// Gives an error of the database its variant.
pub(super) fn database(path: &Path, source: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    let rusqlite::Error::SqliteFailure(failure, detail) = &source else {
        return StoreError::Database { path, source };
    };
    match failure.code {
        // It maps the index of its log into memory, and has a code of its own where there is no room for that.
        ErrorCode::SystemIoFailure if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => StoreError::Full { path },
        ErrorCode::DiskFull => StoreError::Full { path },
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => StoreError::ReadOnly { path },
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy { path },
        ErrorCode::ConstraintViolation => StoreError::Overtaken { path },
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            StoreError::Corrupt { path, detail: detail.clone().unwrap_or_else(|| ffi::code_to_str(failure.extended_code).to_owned()) }
        }
        _ => StoreError::Database { path, source },
    }
}
