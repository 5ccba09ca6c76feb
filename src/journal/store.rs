//! Where records are kept: one SQLite file a run, in WAL mode, with one writer and any number of readers.
//!
//! One append is one transaction: after a crash all of its records are there, or none. An append that asks for it is
//! *synced*, that is, on the disk when it returns; every other survives the death of the process only, and a later synced
//! append takes it to the disk too. Records are checked for gaps when they are written and when they are read, and an
//! event that does not parse is an error with its place, never skipped.
use crate::{
    clock::Timestamp,
    event::{Record, RunId},
};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior, ffi, params};
use std::{
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// The format this program writes; it reads this one and all before it.
const FORMAT: i64 = 1;
/// The file in a run's folder.
const FILE: &str = "journal.db";
/// How long to wait for a reader that holds the file's short locks.
const BUSY: Duration = Duration::from_secs(5);
/// What the write-ahead log shrinks to after a checkpoint, in bytes.
const LOG_BYTES_KEPT: i64 = 4 * 1024 * 1024;

const INSERT: &str = "INSERT INTO record (seq, at, body) VALUES (?1, ?2, ?3)";
const SELECT: &str = "SELECT seq, at, body FROM record WHERE seq >= ?1 ORDER BY seq";
const SCHEMA: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE record (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
";

/// Keeps records, in order and without gaps.
pub trait Store: Send {
    /// Appends all of `records` or none; `synced` means that they, and all before them, are on the disk when this returns.
    ///
    /// # Errors
    /// Nothing was appended; the store stands where it stood.
    fn append(&mut self, records: &[Record], synced: bool) -> Result<(), StoreError>;
}

/// A store that keeps nothing: for a run that is only simulated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nowhere;

impl Store for Nowhere {
    fn append(&mut self, _: &[Record], _: bool) -> Result<(), StoreError> {
        Ok(())
    }
}

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
    #[error("write the journal {}: the disk is full; the run can be resumed once there is room", .path.display())]
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

/// A run's journal file, open for its one writer. Whoever opens it holds the run's `Lease`.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    next: u64,
    synced: bool,
}

impl SqliteStore {
    /// Begins the journal of a new run in the run's folder `dir`.
    ///
    /// # Errors
    /// `StoreError::Exists` where there is one, and those of writing.
    pub fn create(dir: &Path, run: &RunId) -> Result<SqliteStore, StoreError> {
        let path = dir.join(FILE);
        OpenOptions::new().write(true).create_new(true).open(&path).map_err(|error| system(&path, error))?;
        let named = |error| database(&path, error);
        let mut connection = connect(&path, true).map_err(named)?;
        begin(&mut connection, run).map_err(named)?;
        // The database itself must be on the disk before its log is of use; all that was written until here by one sync.
        OpenOptions::new().write(true).open(&path).and_then(|file| file.sync_all()).map_err(|error| system(&path, error))?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(named)?;
        Ok(SqliteStore { connection, path, next: 0, synced: true })
    }

    /// Opens a run's journal to go on writing it; gives all its records.
    ///
    /// # Errors
    /// Each defect has its own variant; nothing is repaired silently.
    pub fn open(dir: &Path) -> Result<(SqliteStore, Vec<Record>), StoreError> {
        let path = existing(dir)?;
        let connection = connect(&path, false).map_err(|error| database(&path, error))?;
        let records = load(&connection, &path, 0)?;
        let next = records.last().map_or(0, |last| last.seq + 1);
        Ok((SqliteStore { connection, path, next, synced: true }, records))
    }

    /// Sets whether commits reach the disk; the pragma costs a statement, so it is only given when it changes.
    fn set_synced(&mut self, synced: bool) -> Result<(), rusqlite::Error> {
        if self.synced != synced {
            self.connection.pragma_update(None, "synchronous", if synced { "FULL" } else { "NORMAL" })?;
            self.synced = synced;
        }
        Ok(())
    }
}

impl Store for SqliteStore {
    fn append(&mut self, records: &[Record], synced: bool) -> Result<(), StoreError> {
        let rows = rows(records, self.next, &self.path)?;
        if rows.is_empty() && !synced {
            return Ok(());
        }
        self.set_synced(synced).map_err(|error| database(&self.path, error))?;
        insert(&mut self.connection, &rows, self.next).map_err(|error| database(&self.path, error))?;
        self.next += records.len() as u64;
        Ok(())
    }
}

/// A store for tests and for runs that are only tried.
impl Store for Vec<Record> {
    fn append(&mut self, records: &[Record], _synced: bool) -> Result<(), StoreError> {
        check_order(records, self.len() as u64, Path::new("<memory>"))?;
        self.extend_from_slice(records);
        Ok(())
    }
}

/// Reads all records of the run in `dir` without being able to change anything; works while the run's own process writes.
///
/// # Errors
/// As `SqliteStore::open`.
pub fn read(dir: &Path) -> Result<Vec<Record>, StoreError> {
    read_from(dir, 0)
}

/// Reads the records of the run in `dir` from this one on, as [`read`] does.
///
/// # Errors
/// As `SqliteStore::open`.
pub fn read_from(dir: &Path, first: u64) -> Result<Vec<Record>, StoreError> {
    let path = existing(dir)?;
    let connection = connect_read_only(&path).map_err(|error| database(&path, error))?;
    load(&connection, &path, first)
}

/// Returns when the run in `dir` began; `None` where its journal does not say.
pub(super) fn began(dir: &Path) -> Option<Timestamp> {
    let connection = connect_read_only(&existing(dir).ok()?).ok()?;
    let at: i64 = connection.query_row("SELECT at FROM record WHERE seq = 0", [], |row| row.get(0)).optional().ok()??;
    u64::try_from(at).ok().map(Timestamp)
}

fn existing(dir: &Path) -> Result<PathBuf, StoreError> {
    let path = dir.join(FILE);
    match path.try_exists() {
        Ok(true) => Ok(path),
        Ok(false) => Err(StoreError::Missing { path }),
        Err(source) => Err(StoreError::Io { path, source }),
    }
}

/// Opens for writing; the connection syncs every commit until it is told otherwise, but for a new file nothing.
fn connect(path: &Path, new: bool) -> Result<Connection, rusqlite::Error> {
    // Without the flag for URIs: a `?` in a folder's name is a question mark.
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "synchronous", if new { "OFF" } else { "FULL" })?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
    Ok(connection)
}

fn connect_read_only(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Makes the tables in the database file itself, syncing nothing.
fn begin(connection: &mut Connection, run: &RunId) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(SCHEMA)?;
    transaction.execute("INSERT INTO meta (key, value) VALUES ('format', ?1), ('run', ?2)", params![FORMAT.to_string(), run.0])?;
    transaction.commit()?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

fn insert(connection: &mut Connection, rows: &[Row], next: u64) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if rows.is_empty() {
        // A transaction that writes nothing syncs nothing, and what went before is to be on the disk.
        transaction.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('synced', ?1)", params![next.to_string()])?;
    }
    {
        let mut statement = transaction.prepare_cached(INSERT)?;
        for row in rows {
            statement.execute(params![row.seq, row.at, row.body])?;
        }
    }
    transaction.commit()
}

struct Row {
    seq: i64,
    at: i64,
    body: String,
}

fn rows(records: &[Record], next: u64, path: &Path) -> Result<Vec<Row>, StoreError> {
    check_order(records, next, path)?;
    let row = |record: &Record| {
        let body = serde_json::to_string(&record.event).map_err(|source| StoreError::Unwritable { path: path.to_owned(), seq: record.seq, source })?;
        // A moment beyond `i64` is 290 million years away: it can only be a clock gone wrong, and is kept as the last one.
        let at = i64::try_from(record.at.0).unwrap_or(i64::MAX);
        let seq = i64::try_from(record.seq).expect("a journal that is counted up from 0 stays below 2^63");
        Ok(Row { seq, at, body })
    };
    records.iter().map(row).collect()
}

fn check_order(records: &[Record], next: u64, path: &Path) -> Result<(), StoreError> {
    match records.iter().zip(next..).find(|(record, expected)| record.seq != *expected) {
        Some((record, expected)) => Err(StoreError::Gap { path: path.to_owned(), expected, found: record.seq.into() }),
        None => Ok(()),
    }
}

fn load(connection: &Connection, path: &Path, first: u64) -> Result<Vec<Record>, StoreError> {
    check_format(connection, path)?;
    let named = |error| database(path, error);
    let mut statement = connection.prepare(SELECT).map_err(named)?;
    let mut rows = statement.query([if first == 0 { i64::MIN } else { i64::try_from(first).unwrap_or(i64::MAX) }]).map_err(named)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(named)? {
        let found: i64 = row.get(0).map_err(named)?;
        let seq = first + records.len() as u64;
        if u64::try_from(found) != Ok(seq) {
            return Err(StoreError::Gap { path: path.to_owned(), expected: seq, found: found.into() });
        }
        let at = u64::try_from(row.get::<_, i64>(1).map_err(named)?).map_err(|_| corrupt(path, format!("record {seq} was written before 1970")))?;
        let body = row.get_ref(2).map_err(named)?;
        let body = body.as_str().map_err(|error| corrupt(path, format!("record {seq} is not text: {error}")))?;
        let event = serde_json::from_str(body).map_err(|source| StoreError::Unparsable { path: path.to_owned(), seq, source })?;
        records.push(Record { seq, at: Timestamp(at), event });
    }
    Ok(records)
}

fn check_format(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let named = |error| database(path, error);
    let begun = connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").and_then(|mut found| found.exists([])).map_err(named)?;
    if !begun {
        return Err(StoreError::Unbegun { path: path.to_owned() });
    }
    let format: Option<String> = connection.query_row("SELECT value FROM meta WHERE key = 'format'", [], |row| row.get(0)).optional().map_err(named)?;
    match format.as_deref().map(str::parse::<i64>) {
        Some(Ok(found)) if found > FORMAT => Err(StoreError::Newer { path: path.to_owned(), found, known: FORMAT }),
        Some(Ok(1..)) => Ok(()),
        _ => Err(corrupt(path, format!("its format is {}", format.as_deref().unwrap_or("not said")))),
    }
}

fn corrupt(path: &Path, detail: String) -> StoreError {
    StoreError::Corrupt { path: path.to_owned(), detail }
}

/// Gives an error of the file system its variant.
fn system(path: &Path, source: io::Error) -> StoreError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::AlreadyExists => StoreError::Exists { path },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { path },
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => StoreError::ReadOnly { path },
        _ => StoreError::Io { path, source },
    }
}

/// Gives an error of the database its variant.
fn database(path: &Path, source: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    let rusqlite::Error::SqliteFailure(failure, detail) = &source else {
        return StoreError::Database { path, source };
    };
    match failure.code {
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

#[cfg(test)]
mod tests;
