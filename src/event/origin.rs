//! What a run that follows from an earlier one says of that: whence it comes, and what was wished.
use super::{BlobId, Event, NodeId, Record, Recovery, RunId, StepId};
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

/// Something that was under way outside of the run when its process ended, and is done again: whether it had its effect before is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeated {
    /// Whose it is.
    pub node: NodeId,
    /// What it is, as a sentence goes on with it.
    pub what: String,
}

/// What was said on the command line that changes how a run goes, besides its inputs; nothing where nothing was said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Given {
    /// `[ALIAS=]PROVIDER/MODEL`: a model for whoever names none, or for an alias.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Whether agents' commands run without walls and without asking.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unconfined: bool,
    /// Whether everything is done anew, whatever results of earlier runs there are.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_cache: bool,
    /// What becomes of questions where nobody is there to answer, in the word of `--on-ask`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_ask: Option<String>,
}

impl Given {
    /// Returns whether nothing was said.
    pub fn is_nothing(&self) -> bool {
        *self == Given::default()
    }

    /// Returns what holds for a run now: what it began with, or what was said since.
    pub fn of(records: &[Record]) -> Given {
        let said = |record: &Record| match &record.event {
            Event::RunStarted(started) => Some(started.given.clone()),
            Event::RunResumed { given, .. } => given.clone(),
            _ => None,
        };
        records.iter().rev().find_map(said).unwrap_or_default()
    }
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
