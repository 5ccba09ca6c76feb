//! The end of the machine's power: what of a journal and of worktrees is on the disk then.
//!
//! A journal's log is only ever added to between two of its checkpoints, so what the system may not have written is its end since the
//! last sync: it is cut anywhere, also in the middle of a frame, or has holes. Files of worktrees are never synced while somebody works.
use fastrand::Rng;
use sha2::{Digest as _, Sha256};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A page of the log, with its head.
const FRAME: usize = 24 + 4096;
/// What a disk writes at once.
const SECTOR: usize = 512;
/// A boot of the machine that is over.
const BEFORE: &str = "0000000000000000";

/// How the end of a log looks that was being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tear {
    /// All of it is there.
    Nothing,
    /// Nothing of it is.
    All,
    /// Whole frames are missing.
    Frames,
    /// It ends inside of a frame.
    HalfAFrame,
    /// A sector in it was never written.
    Hole,
}

pub(super) const TEARS: [Tear; 5] = [Tear::Nothing, Tear::All, Tear::Frames, Tear::HalfAFrame, Tear::Hole];

/// The files of a journal, as they are for whoever reads them.
#[derive(Debug, Clone, Default)]
struct Files {
    database: Vec<u8>,
    log: Vec<u8>,
    mark: String,
}

impl Files {
    fn of(dir: &Path) -> Files {
        let read = |name: &str| fs::read(dir.join(name)).unwrap_or_default();
        Files { database: read("journal.db"), log: read("journal.db-wal"), mark: fs::read_to_string(dir.join("mark")).unwrap() }
    }
}

/// A journal on a disk whose power fails.
#[derive(Debug)]
pub(super) struct Disk {
    dir: PathBuf,
    synced: Files,
    /// What was there when the power failed.
    cut: Option<Files>,
}

impl Disk {
    pub(super) fn new(dir: &Path) -> Disk {
        Disk { dir: dir.to_owned(), synced: Files::of(dir), cut: None }
    }

    /// Notes that all that is there is on the disk.
    pub(super) fn sync(&mut self) {
        self.synced = Files::of(&self.dir);
    }

    pub(super) fn cut(&mut self) {
        self.cut.get_or_insert_with(|| Files::of(&self.dir));
    }

    /// Puts there what the next boot finds, where the power failed; nobody has the journal open by then.
    pub(super) fn tear(&self, random: &mut Rng) -> Option<Tear> {
        let now = self.cut.as_ref()?;
        // A checkpoint syncs the log before it and the database after it.
        let grew = now.database == self.synced.database && now.log.starts_with(&self.synced.log);
        let unsynced = if grew { now.log.len() - self.synced.log.len() } else { 0 };
        let (tear, log) = torn(&now.log, unsynced, random);
        fs::write(self.dir.join("journal.db"), &now.database).unwrap();
        fs::write(self.dir.join("journal.db-wal"), log).unwrap();
        let _ = fs::remove_file(self.dir.join("journal.db-shm"));
        let mark = if random.bool() { &now.mark } else { &self.synced.mark };
        fs::write(self.dir.join("mark"), of_a_boot_before(mark)).unwrap();
        Some(tear)
    }
}

/// Tears the last bytes of a log.
fn torn(log: &[u8], unsynced: usize, random: &mut Rng) -> (Tear, Vec<u8>) {
    let begin = log.len() - unsynced;
    let frames = unsynced / FRAME;
    let tear = if frames == 0 { Tear::Nothing } else { TEARS[random.usize(0..TEARS.len())] };
    let mut torn = log.to_vec();
    match tear {
        Tear::Nothing => {}
        Tear::All => torn.truncate(begin),
        Tear::Frames => torn.truncate(begin + random.usize(0..frames) * FRAME),
        Tear::HalfAFrame => torn.truncate(begin + random.usize(0..frames) * FRAME + random.usize(1..FRAME)),
        Tear::Hole => {
            let at = begin + random.usize(0..unsynced) / SECTOR * SECTOR;
            let end = (at + SECTOR).min(torn.len());
            torn[at..end].fill(0);
        }
    }
    (tear, torn)
}

/// Writes a mark as it was when the machine had not gone down yet.
fn of_a_boot_before(mark: &str) -> String {
    let counts = mark.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let said = format!("{counts} {BEFORE}");
    let hash: String = Sha256::digest(&said)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{said} {hash}\n")
}

/// Leaves of files below a folder what may be there of them after the power failed; returns how many are not whole.
pub(super) fn spoil(folder: &Path, random: &mut Rng) -> usize {
    let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut spoiled = 0;
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            spoiled += spoil(&path, random);
        } else if kind.is_file() && random.u32(0..3) == 0 {
            match random.u32(0..3) {
                0 => fs::remove_file(&path).unwrap(),
                1 => fs::write(&path, "").unwrap(),
                _ => fs::write(&path, "what was here before\n").unwrap(),
            }
            spoiled += 1;
        }
    }
    spoiled
}
