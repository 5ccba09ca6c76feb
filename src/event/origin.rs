//! What a run that follows from an earlier one says of that: whence it comes, and what was wished.
use super::{BlobId, Event, NodeId, Recovery, RunId, StepId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What each step of a workflow is: a hash of each part of its definition, by the part's name. What only says how long or how
/// often a step may work is no part of it.
pub type Definitions = BTreeMap<StepId, BTreeMap<String, String>>;

/// Where a run comes from whose first records are those of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The other run, which stays as it was.
    pub run: RunId,
    /// What was to be done again.
    pub wish: Wish,
    /// How many records of the other run hold: they follow the first record, at the times at which they were made.
    pub held: u64,
}

/// What of a run is to be done again, besides what follows from changes and what never ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// Nothing besides.
    Changed,
    /// What did not work out.
    Failed,
    /// A step or an item, and what follows from it.
    From(NodeId),
}

impl Event {
    /// Returns the blobs that it names.
    pub fn blobs(&self) -> Vec<&BlobId> {
        match self {
            Event::ToolStarted { recovery: Recovery::Restore(files), .. } => files.iter().filter_map(|file| file.content.as_ref()).collect(),
            Event::ToolFinished { output, .. } => output.iter().collect(),
            Event::ArtefactKept { content, .. } => vec![content],
            _ => Vec::new(),
        }
    }
}
