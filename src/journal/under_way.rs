//! What is under way in the world outside and leaves no record of its beginning: hooks, and checks that no wall holds. Each stands in a note
//! from before it begins until what came of it is recorded, so that after a death it is known what is done a second time.
//!
//! The notes say nothing of what has happened and decide nothing: a run goes on likewise without them.
use crate::event::{BlobId, Event, NodeId, Repeated};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// How the names of notes begin.
const PREFIX: &str = "doing-";
/// Notes that are read.
const NOTES_MAX: usize = 1000;

/// The notes of a process that is at work.
#[derive(Debug, Clone)]
pub struct UnderWay {
    folder: PathBuf,
    written: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// What a process does, by what tells it from the rest of its node.
#[derive(Debug, Clone, Copy)]
pub struct Doing<'a> {
    /// Whose it is.
    pub node: &'a NodeId,
    /// In which attempt of its owner.
    pub attempt: u32,
    /// The id of a call, or one of [`SETUP`], [`VERIFY`], [`STOP`], [`MERGE`], or another name that is ended by hand.
    pub place: &'a str,
}

/// The preparation of a workspace, until its agent is briefed.
pub const SETUP: &str = "setup";
/// The checks of a step's work, until that is a commit or its agent goes on.
pub const VERIFY: &str = "verify";
/// What is asked when an agent stops, likewise.
pub const STOP: &str = "stop";
/// The checks of what a merge has joined, until they have said something.
pub const MERGE: &str = "check";

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    node: NodeId,
    attempt: u32,
    what: String,
}

impl UnderWay {
    /// Keeps notes in a folder.
    pub fn in_folder(folder: &Path) -> UnderWay {
        UnderWay { folder: folder.to_owned(), written: Arc::default() }
    }

    /// Notes that something begins. What cannot be noted is done all the same.
    pub(super) fn begins(&self, doing: Doing<'_>, what: &str) {
        let note = Note { node: doing.node.clone(), attempt: doing.attempt, what: what.to_owned() };
        let file = self.file(doing.node, doing.place);
        let written = fs::create_dir_all(&self.folder).and_then(|()| fs::write(&file, serde_json::to_vec(&note)?));
        if written.is_ok() {
            self.written().insert(file);
        }
    }

    /// Takes a note back: what came of it is recorded.
    pub(super) fn ends(&self, node: &NodeId, place: &str) {
        self.take_back(&[self.file(node, place)]);
    }

    /// Takes notes back, those that there are.
    pub(super) fn take_back(&self, files: &[PathBuf]) {
        let mut written = self.written();
        for file in files.iter().filter(|file| written.remove(*file)) {
            let _ = fs::remove_file(file);
        }
    }

    /// Returns the notes that are to be taken back once an event is recorded.
    pub(super) fn ended_by(&self, event: &Event) -> Vec<PathBuf> {
        let Some(node) = event.node().filter(|_| !self.written().is_empty()) else { return Vec::new() };
        let places: &[&str] = match event {
            Event::ToolStarted { call, .. } => &[call],
            Event::ToolFinished { result, .. } => &[&result.call],
            Event::AgentBriefed { .. } => &[SETUP],
            // That they were green is recorded before the work is, and does not keep them from being asked again.
            Event::MessageAdded { .. } | Event::WorkCaptured { .. } => &[VERIFY, STOP],
            Event::MergeAdvanced { .. } => &[MERGE],
            _ => &[],
        };
        places.iter().map(|place| self.file(node, place)).collect()
    }

    fn file(&self, node: &NodeId, place: &str) -> PathBuf {
        let name = BlobId::of(format!("{node}\0{place}").as_bytes()).0;
        self.folder.join(format!("{PREFIX}{}", &name[..32]))
    }

    fn written(&self) -> std::sync::MutexGuard<'_, BTreeSet<PathBuf>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the notes that a process before this one has left: what was under way when it ended, with the attempt that it belongs to; sorted.
pub fn left_under_way(folder: &Path) -> Vec<(u32, Repeated)> {
    let is_note =
        |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) && entry.file_type().is_ok_and(|kind| kind.is_file());
    let notes = fs::read_dir(folder).into_iter().flatten().flatten().filter(is_note).take(NOTES_MAX);
    let mut left: Vec<(u32, Repeated)> = notes
        .filter_map(|entry| {
            let note = fs::read(entry.path()).ok().and_then(|text| serde_json::from_slice::<Note>(&text).ok());
            let _ = fs::remove_file(entry.path());
            note.map(|note| (note.attempt, Repeated { node: note.node, what: note.what }))
        })
        .collect();
    left.sort_by_key(|(attempt, again)| (again.node.clone(), *attempt, again.what.clone()));
    left
}
