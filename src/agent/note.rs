//! What is under way in a session and never recorded: for whoever watches, while it goes on. Nothing hangs on it.
use crate::{event::NodeId, llm::ModelErrorKind};
use std::time::Duration;

/// Bytes of what is said one after the other that are kept at least.
const TAIL: usize = 1_024;

/// One such thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A request goes out.
    Asking,
    /// A request failed, and is made again.
    Retrying {
        /// The class of the failure.
        kind: ModelErrorKind,
        /// Why, in a sentence fragment that names the model.
        why: String,
        /// How long it is until then.
        wait: Duration,
        /// The attempt that will be.
        attempt: u32,
        /// How many there may be.
        of: u32,
    },
    /// It waits for its turn to ask.
    Waiting {
        /// What for.
        why: String,
    },
    /// A piece of what the model thinks.
    Thought(String),
    /// A piece of what it says.
    Said(String),
}

impl Note {
    /// Adds a note that goes on with this one, or says the same anew; returns it where it is of another kind.
    pub fn join(&mut self, next: Note) -> Option<Note> {
        match (self, next) {
            (Note::Thought(said), Note::Thought(piece)) | (Note::Said(said), Note::Said(piece)) => add(said, &piece),
            (before @ Note::Asking, next @ Note::Asking) | (before @ Note::Waiting { .. }, next @ Note::Waiting { .. }) => *before = next,
            (_, next) => return Some(next),
        }
        None
    }
}

/// Adds to what was said, of which the end is kept.
fn add(said: &mut String, piece: &str) {
    said.push_str(piece);
    if said.len() > 2 * TAIL {
        let cut = said.ceil_char_boundary(said.len() - TAIL);
        said.drain(..cut);
    }
}

/// Whoever watches.
pub trait Watcher: Send + Sync {
    /// Takes a note, in which no secret stands; it must not wait for anything.
    fn sees(&self, node: &NodeId, note: Note);
}

/// Nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watcher for Unwatched {
    fn sees(&self, _node: &NodeId, _note: Note) {}
}
