//! How far a journal has got, written beside it after every append: records that are lost from its end are missed.
//!
//! SQLite drops whatever of its log does not fit, which is right after a loss of power and hides every other loss. The mark
//! says how many records there must be: of this boot of the machine all that were appended, since no death of a process
//! loses one; after another boot those that were synced. It is written after the journal, so that it never says too much.
use crate::{clock, event::hex};
use sha2::{Digest as _, Sha256};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// The file in a run's folder.
pub(super) const FILE: &str = "mark";
/// Looks at a mark that does not fit its own hash: one that is just being written does at the next.
const LOOKS: usize = 64;

/// The boot of a journal that goes on without the records it has lost. No machine has one of this name, so that whoever opens it
/// next takes all that was not known to be on the disk for lost, as after any other boot.
const SETTLED: &str = "settled";

/// How many records there must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) appended: u64,
    pub(super) synced: u64,
    pub(super) boot: String,
}

/// What is wrong with the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Missing,
    Damaged,
}

impl Mark {
    /// Returns the mark of a journal all of whose records are on the disk.
    pub(super) fn all_synced(records: u64) -> Mark {
        Mark { appended: records, synced: records, boot: clock::boot() }
    }

    /// Returns the mark of a journal that goes on from fewer records than were written.
    pub(super) fn settled(records: u64) -> Mark {
        Mark { boot: SETTLED.to_owned(), ..Mark::all_synced(records) }
    }

    /// Returns how many records there must be at least.
    pub(super) fn least(&self) -> u64 {
        if !self.boot.is_empty() && self.boot == clock::boot() { self.appended } else { self.synced }
    }

    /// Returns whether the machine is known to have gone down since it was written, or whether it is that of a journal that was settled.
    pub(super) fn is_of_another_boot(&self) -> bool {
        !self.boot.is_empty() && self.boot != clock::boot()
    }

    /// Writes it for the first time; on the disk when this returns.
    pub(super) fn create(&self, dir: &Path) -> io::Result<Marked> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(dir.join(FILE))?;
        let marked = Marked { file, mark: self.clone() };
        marked.file.write_all_at(marked.mark.text().as_bytes(), 0)?;
        marked.file.sync_all()?;
        Ok(marked)
    }

    /// Reads the mark of the journal in `dir`.
    pub(super) fn read(dir: &Path) -> io::Result<Result<Mark, Fault>> {
        if fs::metadata(dir.join(FILE)).is_ok_and(|found| !found.is_file()) {
            // A pipe would be waited for.
            return Ok(Err(Fault::Damaged));
        }
        for _ in 0..LOOKS {
            match fs::read(dir.join(FILE)) {
                Ok(bytes) => match std::str::from_utf8(&bytes).ok().and_then(Mark::parse) {
                    Some(mark) => return Ok(Ok(mark)),
                    None => std::thread::yield_now(),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(Fault::Missing)),
                Err(error) => return Err(error),
            }
        }
        Ok(Err(Fault::Damaged))
    }

    /// Of one length, so that it is written over in place.
    fn text(&self) -> String {
        let said = format!("{:020} {:020} {:-<16}", self.appended, self.synced, self.boot);
        format!("{said} {}\n", check(&said))
    }

    fn parse(text: &str) -> Option<Mark> {
        let (said, hash) = text.strip_suffix('\n')?.rsplit_once(' ')?;
        let mut words = said.split(' ');
        let mark = Mark { appended: words.next()?.parse().ok()?, synced: words.next()?.parse().ok()?, boot: words.next()?.trim_end_matches('-').to_owned() };
        (hash == check(said) && mark.text() == text).then_some(mark)
    }
}

fn check(said: &str) -> String {
    hex(&Sha256::digest(said)[..8])
}

/// The mark of a journal that is being written.
#[derive(Debug)]
pub(super) struct Marked {
    file: File,
    mark: Mark,
}

impl Marked {
    /// Goes on from the mark that is there.
    pub(super) fn open(dir: &Path, records: u64, mark: &Mark) -> io::Result<Marked> {
        let file = OpenOptions::new().write(true).open(dir.join(FILE))?;
        Ok(Marked { file, mark: Mark { appended: records, synced: mark.synced.min(records), boot: clock::boot() } })
    }

    /// Writes how many records there are now.
    pub(super) fn advance(&mut self, records: u64, synced: bool) {
        self.mark.appended = records;
        if synced {
            self.mark.synced = records;
        }
        // The records stand; where the mark cannot be written it only asks for fewer.
        let _ = self.file.write_all_at(self.mark.text().as_bytes(), 0);
    }
}

/// Returns where the mark of a journal is, whose own path is given.
pub(super) fn beside(journal: &Path) -> PathBuf {
    journal.with_file_name(FILE)
}
