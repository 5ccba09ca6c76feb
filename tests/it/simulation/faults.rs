//! How the lives of a simulated run end, and what goes wrong besides.
use super::{
    mind::{ALL_BROKEN, Broken},
    power::Disk,
    scenario::{Kind, Scenario},
};
use fastrand::Rng;
use spinney::{
    event::{Event, Record},
    journal::{SqliteStore, Store, StoreError},
};
use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    /// A record was acknowledged and what follows it happened; the next one never reached the disk.
    BeforeTheNext,
    /// A record was written, but nobody was told, so nothing that follows it happened; nor is it synced where it was to be.
    Untold,
    /// The disk is full: none of an append is there, and its sender hears of it.
    Full,
    /// The disk fails.
    Failing,
    /// Everything is dropped where it stands, at whatever it waits for.
    Dropped,
    /// The power fails: what was not synced is lost, too.
    Power,
    /// Somebody asks the process to end.
    Asked,
}

pub(super) const DEATHS: [Death; 7] = [Death::BeforeTheNext, Death::Untold, Death::Full, Death::Failing, Death::Dropped, Death::Power, Death::Asked];

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    /// After how many records it ends.
    pub(super) records: usize,
    pub(super) death: Death,
    /// By how many seconds the clock is set when it begins.
    pub(super) jump: i64,
    /// At which record the clock is set once more, and by how many seconds.
    pub(super) jump_inside: Option<(usize, i64)>,
    /// At which record another process tries to take the run.
    pub(super) second: Option<usize>,
}

/// Everything that goes wrong.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    pub(super) lives: Vec<Life>,
    pub(super) broken: BTreeMap<(String, usize), Broken>,
}

/// Seconds; no run is long enough for all of them to end a workflow for want of time.
const JUMPS: [i64; 6] = [0, 0, 0, 3, 3_600, -3_600];

impl Faults {
    /// Makes what goes wrong with requests: that happens in the clean run as well.
    pub(super) fn of_models(seed: u64, scenario: &Scenario) -> Faults {
        let mut random = Rng::with_seed(seed ^ 0x6d6f_6465_6c73);
        let mut broken = BTreeMap::new();
        if scenario.is_limited() {
            return Faults::default();
        }
        let nodes = scenario.pieces.iter().flat_map(|piece| match &piece.kind {
            Kind::Fan { items, agent: true, .. } => items.iter().map(|item| format!("{}/{}", piece.id, item.key)).collect(),
            _ => vec![piece.id.clone()],
        });
        for node in nodes {
            if random.u32(0..5) == 0 {
                broken.insert((node, random.usize(0..3)), ALL_BROKEN[random.usize(0..ALL_BROKEN.len())]);
            }
        }
        Faults { lives: Vec::new(), broken }
    }

    /// Adds lives, for a run that has `records` when it is left alone.
    pub(super) fn with_lives(mut self, seed: u64, records: usize) -> Faults {
        let mut random = Rng::with_seed(seed ^ 0x006c_6976_6573);
        let short = random.u32(0..6) == 0;
        let count = if short { random.usize(4..9) } else { random.usize(1..4) };
        for _ in 0..count {
            let most = if short { 12 } else { records.max(2) };
            let at = random.usize(1..=most);
            self.lives.push(Life {
                records: at,
                death: DEATHS[random.usize(0..DEATHS.len())],
                jump: JUMPS[random.usize(0..JUMPS.len())],
                jump_inside: (random.u32(0..5) == 0).then(|| (random.usize(0..=at), JUMPS[random.usize(3..JUMPS.len())])),
                second: (random.u32(0..4) == 0).then(|| random.usize(0..=at)),
            });
        }
        self
    }

    /// Lets the power never fail: attempts that begin anew for it use of a budget twice, so that less may be done in all.
    pub(super) fn without_power_cuts(mut self) -> Faults {
        self.lives.iter_mut().filter(|life| life.death == Death::Power).for_each(|life| life.death = Death::Untold);
        self
    }

    /// Returns how often the power fails.
    pub(super) fn power_cuts(&self) -> usize {
        self.lives.iter().filter(|life| life.death == Death::Power).count()
    }

    /// Returns fewer that may show the same.
    pub(super) fn fewer(&self) -> Vec<Faults> {
        let mut all: Vec<Faults> = (0..self.lives.len())
            .map(|at| {
                let mut less = self.clone();
                less.lives.remove(at);
                less
            })
            .collect();
        all.extend(self.broken.keys().map(|key| {
            let mut less = self.clone();
            less.broken.remove(key);
            less
        }));
        for at in 0..self.lives.len() {
            let life = self.lives[at];
            let plain = Life { jump: 0, jump_inside: None, second: None, ..life };
            for other in [plain, Life { death: Death::Untold, ..life }, Life { records: life.records / 2 + 1, ..life }] {
                if other != life {
                    let mut less = self.clone();
                    less.lives[at] = other;
                    all.push(less);
                }
            }
        }
        all
    }
}

/// A store that ends its process.
pub(super) struct Frail {
    pub(super) store: SqliteStore,
    pub(super) left: usize,
    pub(super) death: Death,
    /// The number of records that are on the disk, whatever becomes of the power.
    pub(super) synced: Arc<AtomicU64>,
    /// The record that tells of the branch to come.
    pub(super) intended: Arc<AtomicU64>,
    /// The branch that people see.
    pub(super) branch: PathBuf,
    /// Where the power fails: what holds the journal.
    pub(super) disk: Option<Arc<Mutex<Disk>>>,
    /// Set once this process is dead.
    pub(super) dead: Arc<AtomicBool>,
}

impl Frail {
    fn keep(&mut self, records: &[Record], synced: bool) -> Result<(), StoreError> {
        self.store.append(records, synced)?;
        note_intended(&self.intended, records);
        if let Some(last) = records.last().filter(|_| synced) {
            self.synced.store(last.seq + 1, Ordering::SeqCst);
            self.on_disk(Disk::sync);
        }
        Ok(())
    }

    fn on_disk(&self, act: impl FnOnce(&mut Disk)) {
        if let Some(disk) = &self.disk {
            act(&mut disk.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The end of this process, as its journal hears of it.
    fn dies<T>(&self, error: StoreError) -> Result<T, StoreError> {
        self.dead.store(true, Ordering::SeqCst);
        Err(error)
    }
}

/// Notes which record tells of the branch to come.
pub(super) fn note_intended(intended: &AtomicU64, records: &[Record]) {
    if let Some(found) = records.iter().find(|record| matches!(record.event, Event::BranchIntended { .. })) {
        intended.store(found.seq, Ordering::SeqCst);
    }
}

impl Store for Frail {
    fn append(&mut self, records: &[Record], synced: bool) -> Result<(), StoreError> {
        if self.branch.exists() {
            let (synced, intended) = (self.synced.load(Ordering::SeqCst), self.intended.load(Ordering::SeqCst));
            assert!(intended < u64::MAX && synced > intended, "people see a branch, and record {intended} that tells of it is not on the disk");
        }
        let kept = records.len().min(self.left);
        self.left -= kept;
        let path = || PathBuf::from("the end of this life");
        match self.death {
            Death::Dropped | Death::Asked => self.keep(records, synced),
            Death::BeforeTheNext | Death::Power if kept == records.len() => self.keep(records, synced),
            Death::BeforeTheNext => {
                self.keep(&records[..kept], synced)?;
                self.dies(StoreError::Full { path: path() })
            }
            Death::Untold => {
                self.keep(&records[..kept], synced && self.left > 0)?;
                if self.left == 0 { self.dies(StoreError::Full { path: path() }) } else { Ok(()) }
            }
            Death::Power => {
                // It is cut short while it is on its way to the disk, and is not told.
                if !self.dead.load(Ordering::SeqCst) {
                    self.store.append(records, false)?;
                    self.on_disk(Disk::cut);
                }
                self.dies(StoreError::Full { path: path() })
            }
            Death::Full | Death::Failing if kept == records.len() && self.left > 0 => self.keep(records, synced),
            Death::Full => self.dies(StoreError::Full { path: path() }),
            Death::Failing => self.dies(StoreError::Io { path: path(), source: io::Error::other("the disk fails") }),
        }
    }
}
