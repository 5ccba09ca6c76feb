//! Where records are kept: one SQLite file a run, in WAL mode, with one writer and any number of readers.
//!
//! One append is one transaction: after a crash all of its records are there, or none. An append that asks for it is
//! *synced*, that is, on the disk when it returns; every other survives the death of the process only, and a later synced
//! append takes it to the disk too. Records are checked for gaps when they are written and when they are read, and an
//! event that does not parse is an error with its place, never skipped. Each record carries a seal, a running hash over all
//! until it, and a mark beside the file says how many there must be: whatever happens to the file, what is read is what was
//! written, or an error.
//!
//! Format 1 had neither seals nor marks. Format 2 has both, and records of fewer kinds than 3: who only knows 2 would pass over what a run
//! was told on its command line. A journal of an older format is read as it is, and becomes one of this where it is first written to again,
//! so that no program goes on with it that does not know all that is in it.
mod error;
mod mark;
mod seal;

use super::rest;
use crate::{
    clock::Timestamp,
    event::{Record, RunId},
};
pub use error::StoreError;
use error::{corrupt, database, system};
use mark::{Fault, Mark, Marked};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior, params};
use seal::Seal;
use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    time::Duration,
};

/// The format this program writes; it reads this one and all before it.
const FORMAT: i64 = 3;
/// The first format whose records are sealed.
const SEALED: i64 = 2;
/// The file in a run's folder.
pub(super) const FILE: &str = "journal.db";
/// How long to wait for a reader that holds the file's short locks.
const BUSY: Duration = Duration::from_secs(5);
/// What the write-ahead log shrinks to after a checkpoint, in bytes.
const LOG_BYTES_KEPT: i64 = 4 * 1024 * 1024;

const INSERT: &str = "INSERT INTO record (seq, at, body, seal) VALUES (?1, ?2, ?3, ?4)";
const SELECT: &str = "SELECT seq, at, body, seal FROM record WHERE seq >= ?1 ORDER BY seq";
const SELECT_UNSEALED: &str = "SELECT seq, at, body, 0 FROM record WHERE seq >= ?1 ORDER BY seq";
const SCHEMA: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE record (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, body TEXT NOT NULL, seal INTEGER NOT NULL) STRICT;
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

/// A run's journal file, open for its one writer. Whoever opens it holds the run's `Lease`.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    next: u64,
    seal: Seal,
    marked: Marked,
    synced: bool,
    after_loss: bool,
}

impl SqliteStore {
    /// Begins the journal of a new run in the run's folder `dir`.
    ///
    /// # Errors
    /// `StoreError::Exists` where there is one, and those of writing.
    pub fn create(dir: &Path, run: &RunId) -> Result<SqliteStore, StoreError> {
        let path = dir.join(FILE);
        OpenOptions::new().write(true).create_new(true).open(&path).map_err(|error| system(&path, error))?;
        let marked = Mark::all_synced(0).create(dir).map_err(|error| system(&mark::beside(&path), error))?;
        let named = |error| database(&path, error);
        let mut connection = connect(&path, true).map_err(named)?;
        begin(&mut connection, run).map_err(named)?;
        // The database itself must be on the disk before its log is of use; all that was written until here by one sync.
        OpenOptions::new().write(true).open(&path).and_then(|file| file.sync_all()).map_err(|error| system(&path, error))?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(named)?;
        Ok(SqliteStore { connection, path, next: 0, seal: Seal::of_run(&run.0), marked, synced: true, after_loss: false })
    }

    /// Opens a run's journal to go on writing it; gives all its records. One of an older format becomes one of this.
    ///
    /// # Errors
    /// Each defect has its own variant; nothing is repaired silently.
    pub fn open(dir: &Path) -> Result<(SqliteStore, Vec<Record>), StoreError> {
        let path = existing(dir)?;
        // Before it is opened for writing, which would throw away what is left of a log that is cut.
        let Loaded { format, records, seal, mark } = look(&path, 0)?;
        let next = records.len() as u64;
        let after_loss = mark.as_ref().is_some_and(Mark::is_of_another_boot);
        let marked = match mark {
            Some(mark) => Marked::open(dir, next, &mark),
            None => Mark::all_synced(next).create(dir),
        };
        let marked = marked.map_err(|error| system(&mark::beside(&path), error))?;
        let named = |error| database(&path, error);
        let mut connection = connect(&path, false).map_err(named)?;
        let seal = if format < FORMAT { upgrade(&mut connection, format, seal).map_err(named)? } else { seal };
        Ok((SqliteStore { connection, path, next, seal, marked, synced: true, after_loss }, records))
    }

    /// Returns whether records may be lost that told of what is in files: the machine went down since the journal was last written to before
    /// it was opened, or it was settled.
    pub fn is_after_loss(&self) -> bool {
        self.after_loss
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
        let rows = rows(records, (self.next, self.seal), &self.path)?;
        if rows.is_empty() && !synced {
            return Ok(());
        }
        // What follows is seen outside of the run: it must not be without a journal, which somebody may have removed under it.
        if synced && !self.path.exists() {
            return Err(StoreError::Missing { path: self.path.clone() });
        }
        self.set_synced(synced).map_err(|error| database(&self.path, error))?;
        insert(&mut self.connection, &rows, self.next).map_err(|error| database(&self.path, error))?;
        self.next += records.len() as u64;
        self.seal = rows.last().map_or(self.seal, |last| last.seal);
        self.marked.advance(self.next, synced);
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
    Ok(look(&existing(dir)?, first)?.records)
}

/// Reads at most so many records of the run in `dir` from this one on, without a look at whether there are more.
///
/// # Errors
/// Those of reading what is there.
pub fn read_page(dir: &Path, first: u64, most: u64) -> Result<Vec<Record>, StoreError> {
    let path = existing(dir)?;
    let connection = connect_read_only(&path).map_err(|error| database(&path, error))?;
    Ok(load(&connection, &path, first, most)?.records)
}

/// Lets the journal of the run in `dir` go on from the records that are there, where some are lost from its end or nothing
/// says whether any are. Whoever opens it next is told that it is as after a loss of power: files may be newer than the records. Whoever
/// calls holds the run's `Lease`, and knows that what they told of is done again.
///
/// # Errors
/// Those of reading what is there, and those of writing.
pub fn settle(dir: &Path) -> Result<(), StoreError> {
    let path = existing(dir)?;
    let records = load(&connect_read_only(&path).map_err(|error| database(&path, error))?, &path, 0, u64::MAX)?.records;
    if records.is_empty() {
        // Nothing can go on from nothing, and the mark is what tells that there was something.
        let written = Mark::read(dir).map_err(|error| system(&mark::beside(&path), error))?.ok();
        return Err(unless_lost(StoreError::Unbegun { path }, written.as_ref()));
    }
    // First the note, which says that all is as the records tell.
    rest::wake(dir).map_err(|error| system(dir, error))?;
    Mark::settled(records.len() as u64).create(dir).map(drop).map_err(|error| system(&mark::beside(&path), error))
}

/// Returns when the run in `dir` began; `None` where its journal does not say.
pub(super) fn began(dir: &Path) -> Option<Timestamp> {
    let connection = connect_read_only(&existing(dir).ok()?).ok()?;
    let at: i64 = connection.query_row("SELECT at FROM record WHERE seq = 0", [], |row| row.get(0)).optional().ok()??;
    u64::try_from(at).ok().map(Timestamp)
}

fn existing(dir: &Path) -> Result<PathBuf, StoreError> {
    let path = dir.join(FILE);
    match std::fs::metadata(&path) {
        // A pipe would be waited for.
        Ok(found) if found.is_file() => Ok(path),
        Ok(_) => Err(corrupt(&path, "it is no file".to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mark = Mark::read(dir).map_err(|error| system(&mark::beside(&path), error))?;
            Err(unless_lost(StoreError::Missing { path }, mark.ok().as_ref()))
        }
        Err(source) => Err(StoreError::Io { path, source }),
    }
}

/// Tells a journal that is gone or was emptied from one that never began: the mark beside it has counted its records.
fn unless_lost(error: StoreError, mark: Option<&Mark>) -> StoreError {
    let least = mark.map_or(0, Mark::least);
    match error {
        StoreError::Missing { path } | StoreError::Unbegun { path } if least > 0 => StoreError::Lost { path, least, found: 0 },
        other => other,
    }
}

/// Opens for writing; the connection syncs every commit until it is told otherwise, but for a new file nothing.
fn connect(path: &Path, new: bool) -> Result<Connection, rusqlite::Error> {
    // Without the flag for URIs: a `?` in a folder's name is a question mark.
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "synchronous", if new { "OFF" } else { "FULL" })?;
    if new {
        // A death that left a rollback journal beside it would leave a file that nobody can open to read only.
        connection.pragma_update(None, "journal_mode", "MEMORY")?;
    }
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
            statement.execute(params![row.seq, row.at, row.body, row.seal.stored()])?;
        }
    }
    transaction.commit()
}

/// Makes a journal of an older format one of this, in one transaction; returns the seal of its last record.
fn upgrade(connection: &mut Connection, format: i64, seal: Seal) -> Result<Seal, rusqlite::Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let seal = if format < SEALED { seal_all(&transaction, seal)? } else { seal };
    transaction.execute("UPDATE meta SET value = ?1 WHERE key = 'format'", params![FORMAT.to_string()])?;
    transaction.commit()?;
    Ok(seal)
}

/// Gives every record a seal; returns the last.
fn seal_all(connection: &Connection, first: Seal) -> Result<Seal, rusqlite::Error> {
    connection.execute_batch("ALTER TABLE record ADD COLUMN seal INTEGER NOT NULL DEFAULT 0")?;
    let mut seal = first;
    let mut select = connection.prepare(SELECT_UNSEALED)?;
    let mut update = connection.prepare("UPDATE record SET seal = ?2 WHERE seq = ?1")?;
    let mut rows = select.query([i64::MIN])?;
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        seal = seal.over(seq, row.get(1)?, row.get_ref(2)?.as_str()?);
        update.execute(params![seq, seal.stored()])?;
    }
    Ok(seal)
}

struct Row {
    seq: i64,
    at: i64,
    body: String,
    seal: Seal,
}

fn rows(records: &[Record], (next, last): (u64, Seal), path: &Path) -> Result<Vec<Row>, StoreError> {
    check_order(records, next, path)?;
    let mut seal = last;
    let mut row = |record: &Record| {
        let body = serde_json::to_string(&record.event).map_err(|source| StoreError::Unwritable { path: path.to_owned(), seq: record.seq, source })?;
        // A moment beyond `i64` is 290 million years away: it can only be a clock gone wrong, and is kept as the last one.
        let at = i64::try_from(record.at.0).unwrap_or(i64::MAX);
        let seq = i64::try_from(record.seq).expect("a journal that is counted up from 0 stays below 2^63");
        seal = seal.over(seq, at, &body);
        Ok(Row { seq, at, body, seal })
    };
    records.iter().map(&mut row).collect()
}

fn check_order(records: &[Record], next: u64, path: &Path) -> Result<(), StoreError> {
    match records.iter().zip(next..).find(|(record, expected)| record.seq != *expected) {
        Some((record, expected)) => Err(StoreError::Gap { path: path.to_owned(), expected, found: record.seq.into() }),
        None => Ok(()),
    }
}

/// What is in a journal from some record on.
struct Loaded {
    format: i64,
    records: Vec<Record>,
    /// The seal of the last record, or that before the first; of an older format always the latter.
    seal: Seal,
    mark: Option<Mark>,
}

/// Reads a journal, and sees that it is all there.
fn look(path: &Path, first: u64) -> Result<Loaded, StoreError> {
    // First the mark: it must not ask for what is appended in between.
    let mark = path.parent().map_or(Ok(Err(Fault::Missing)), Mark::read).map_err(|error| system(&mark::beside(path), error))?;
    let connection = connect_read_only(path).map_err(|error| database(path, error))?;
    let loaded = load(&connection, path, first, u64::MAX).map_err(|error| unless_lost(error, mark.as_ref().ok()))?;
    if loaded.format < SEALED {
        return Ok(loaded);
    }
    let mark = mark.map_err(|fault| StoreError::Unmarked { path: mark::beside(path), missing: fault == Fault::Missing })?;
    let (least, found) = (mark.least(), first + loaded.records.len() as u64);
    if found < least {
        return Err(StoreError::Lost { path: path.to_owned(), least, found });
    }
    Ok(Loaded { mark: Some(mark), ..loaded })
}

fn load(connection: &Connection, path: &Path, first: u64, most: u64) -> Result<Loaded, StoreError> {
    let format = check_format(connection, path)?;
    let named = |error| database(path, error);
    let sealed = format >= SEALED;
    let mut seal = if sealed && first > 0 { seal_at(connection, first - 1).map_err(named)? } else { Some(seal_of_run(connection, path)?) };
    let mut statement = connection.prepare(if sealed { SELECT } else { SELECT_UNSEALED }).map_err(named)?;
    let mut rows = statement.query([if first == 0 { i64::MIN } else { i64::try_from(first).unwrap_or(i64::MAX) }]).map_err(named)?;
    let mut records = Vec::new();
    while (records.len() as u64) < most
        && let Some(row) = rows.next().map_err(named)?
    {
        let found: i64 = row.get(0).map_err(named)?;
        let seq = first + records.len() as u64;
        let gap = |expected| StoreError::Gap { path: path.to_owned(), expected, found: found.into() };
        if u64::try_from(found) != Ok(seq) {
            return Err(gap(seq));
        }
        let at: i64 = row.get(1).map_err(named)?;
        let body = row.get_ref(2).map_err(named)?;
        let body = body.as_str().map_err(|error| corrupt(path, format!("record {seq} is not text: {error}")))?;
        if sealed {
            let before = seal.ok_or_else(|| gap(first - 1))?;
            let stored = Seal::from_stored(row.get(3).map_err(named)?);
            if before.over(found, at, body) != stored {
                return Err(StoreError::Altered { path: path.to_owned(), seq });
            }
            seal = Some(stored);
        }
        let at = u64::try_from(at).map_err(|_| corrupt(path, format!("record {seq} was written before 1970")))?;
        let event = serde_json::from_str(body).map_err(|source| StoreError::Unparsable { path: path.to_owned(), seq, source })?;
        records.push(Record { seq, at: Timestamp(at), event });
    }
    // From beyond the end on there is nothing, and nothing to go on from.
    let seal = seal.map_or_else(|| seal_of_run(connection, path), Ok)?;
    Ok(Loaded { format, records, seal, mark: None })
}

fn seal_at(connection: &Connection, seq: u64) -> Result<Option<Seal>, rusqlite::Error> {
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    Ok(connection.query_row("SELECT seal FROM record WHERE seq = ?1", [seq], |row| row.get(0)).optional()?.map(Seal::from_stored))
}

fn seal_of_run(connection: &Connection, path: &Path) -> Result<Seal, StoreError> {
    let run = meta(connection, "run").map_err(|error| database(path, error))?;
    run.map(|run| Seal::of_run(&run)).ok_or_else(|| corrupt(path, "it does not say whose it is".to_owned()))
}

fn meta(connection: &Connection, key: &str) -> Result<Option<String>, rusqlite::Error> {
    connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0)).optional()
}

fn check_format(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let named = |error| database(path, error);
    let begun = connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").and_then(|mut found| found.exists([])).map_err(named)?;
    if !begun {
        return Err(StoreError::Unbegun { path: path.to_owned() });
    }
    let format = meta(connection, "format").map_err(named)?;
    match format.as_deref().map(str::parse::<i64>) {
        Some(Ok(found)) if found > FORMAT => Err(StoreError::Newer { path: path.to_owned(), found, known: FORMAT }),
        Some(Ok(found @ 1..)) => Ok(found),
        _ => Err(corrupt(path, format!("its format is {}", format.as_deref().unwrap_or("not said")))),
    }
}

#[cfg(test)]
mod tests;
