//! Recordings: every request and reply of a run in one file, and a model that answers from it.
//!
//! A recording is JSON Lines. The first line is the [`Head`]; after it come texts, each once and named by its hash, the
//! windows of the models, what requests were expected to cost, what was booked of them in the accounts, and the exchanges, which
//! name the texts that their request is made of: all in the order in which it happened. A line is written when its reply is there, so a recording is as complete as the run was when it stopped; a last line that was cut short is no line.
//!
//! What differs between two runs by nature is not compared: see `likeness`. In what order a replay goes: see `order`.
mod likeness;
mod order;
mod recorder;
mod replay;

use super::{Booking, ModelCall, ModelError, ModelErrorKind, Ordinal, Sink};
use crate::{
    event::{BlobId, RunId},
    message::{Reply, Usage},
};
pub use recorder::{Recorder, Recording};
pub use replay::Replay;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf};

/// The version of the format that is written.
const VERSION: u32 = 4;
/// The oldest version that is read: its exchanges say nothing of which of their node's requests they are, and it has no prices. The
/// second says nothing of bookings, the third nothing of requests that were stopped, nor of the run's end.
const OLDEST: u32 = 1;
/// Hexadecimal digits of a text's name: 64 bits tell the texts of one run apart.
const NAME: usize = 16;

/// Where a run takes place: what its requests say of it, another run of the same says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPlace {
    /// The run.
    pub run: RunId,
    /// The folder of its worktrees.
    pub worktrees: PathBuf,
    /// The user's checkout.
    pub checkout: PathBuf,
}

/// The first line of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The version of the format.
    pub recording: u32,
    /// Where the run took place.
    #[serde(flatten)]
    pub place: RunPlace,
    /// The model for whoever named none.
    pub default: Option<String>,
    /// Aliases that were overridden for the run.
    pub overrides: BTreeMap<String, String>,
}

impl Head {
    /// Returns whether the format is one that is read.
    fn is_readable(&self) -> bool {
        (OLDEST..=VERSION).contains(&self.recording)
    }

    /// Makes the head of a new recording.
    pub fn new(place: RunPlace, default: Option<String>, overrides: BTreeMap<String, String>) -> Head {
        Head { recording: VERSION, place, default, overrides }
    }
}

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file is there already, and not of this run.
    #[error("record to `{0}`: it exists")]
    Exists(PathBuf),
    /// The file cannot be opened or written.
    #[error("record to `{path}`: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is no recording.
    #[error("read the recording {name}, line {line}: {why}")]
    Read {
        /// What the recording is called.
        name: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// A line after the first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// A text that requests are made of.
    Text { name: String, text: String },
    /// The size of a model's window, in tokens, and whether its thinking is bound to what came before it.
    Window {
        model: String,
        tokens: u64,
        #[serde(default = "bound")]
        bound: bool,
    },
    /// What a request was expected to cost, in dollars; absent where that was not known then.
    Price { model: String, usage: Usage, usd: Option<f64> },
    /// What became of a request at the accounts.
    Booked { node: String, ordinal: Ordinal, how: Booking },
    /// A request was stopped before anything came of it, by a time-out or with its process.
    Stopped {
        node: String,
        ordinal: Ordinal,
        /// What it had used.
        lost: Vec<Lost>,
    },
    /// Another process went on from here.
    Resumed {},
    /// The run is over.
    Finished {},
    /// A request and what came of it.
    Exchange(Box<Exchange>),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Exchange {
    /// Who asked.
    node: String,
    /// Which of the node's requests it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ordinal: Option<Ordinal>,
    models: Vec<String>,
    effort: Option<String>,
    max_output_tokens: Option<u32>,
    /// The names of the parts, in the order in which a model is told them.
    parts: Vec<Part>,
    answer: Answer,
    /// What attempts have used that gave no reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<Lost>,
}

/// What one attempt has used that gave no reply.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Lost {
    usage: Usage,
    /// Absent where the price is not known.
    usd: Option<f64>,
}

impl Lost {
    fn tell(&self, sink: &dyn Sink) {
        sink.lost(&self.usage.bounded(), self.usd);
    }
}

/// What a recording that says nothing of it means.
fn bound() -> bool {
    true
}

/// What a part of a request is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    System(String),
    Tool(String),
    Schema(String),
    Message(String),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Reply(Reply),
    Failed { kind: ModelErrorKind, message: String, hint: Option<String> },
}

impl Answer {
    fn of(result: &Result<Reply, ModelError>) -> Answer {
        match result {
            Ok(reply) => Answer::Reply(reply.clone()),
            Err(ModelError { kind, message, hint }) => Answer::Failed { kind: *kind, message: message.clone(), hint: hint.clone() },
        }
    }
}

/// A request in its parts, with the text of each.
fn parts(call: &ModelCall<'_>) -> Vec<(Part, String)> {
    let json = |thing: serde_json::Result<String>| thing.unwrap_or_default();
    let mut parts = vec![(Part::System(String::new()), call.system.to_owned())];
    parts.extend(call.tools.iter().map(|tool| (Part::Tool(String::new()), json(serde_json::to_string(tool)))));
    parts.extend(call.provider_tools.iter().map(|tool| (Part::Tool(String::new()), tool.word().to_owned())));
    parts.extend(call.output_schema.map(|schema| (Part::Schema(String::new()), schema.to_string())));
    parts.extend(call.messages.iter().map(|message| (Part::Message(String::new()), json(serde_json::to_string(message)))));
    for (part, text) in &mut parts {
        BlobId::of(text.as_bytes()).0[..NAME].clone_into(part.name_mut());
    }
    parts
}

impl Part {
    fn name(&self) -> &str {
        match self {
            Part::System(name) | Part::Tool(name) | Part::Schema(name) | Part::Message(name) => name,
        }
    }

    fn name_mut(&mut self) -> &mut String {
        match self {
            Part::System(name) | Part::Tool(name) | Part::Schema(name) | Part::Message(name) => name,
        }
    }

    /// Returns what it is, for people.
    fn word(&self) -> &'static str {
        match self {
            Part::System(_) => "system text",
            Part::Tool(_) => "tool",
            Part::Schema(_) => "schema of the answer",
            Part::Message(_) => "message",
        }
    }
}

#[cfg(test)]
mod tests;
