//! The log of one run, the state that is its fold, and the one writer.
//!
//! An event is checked, folded and stored before anybody acts on it; where it cannot be stored the run stops. [`RunState`] is the only account of a run: live run,
//! resume, screens and tests all get it from the same `apply`, which refuses what cannot have happened. The journal never
//! decides anything.
mod ahead;
mod allowance;
mod blobs;
mod conversation;
mod fold;
mod folder;
mod lease;
mod legal;
mod prefix;
mod queue;
mod rest;
mod seats;
mod sources;
mod spent;
mod state;
mod store;
mod under_way;
mod watch;
mod writer;

pub use allowance::Allowance;
pub(crate) use allowance::{more, raised_by, whose};
pub use blobs::{BlobError, Blobs};
pub(crate) use blobs::{clear_unfinished, read_plain, write_whole};
pub use conversation::{Answered, Call, Conversation, Ending, Next, Question, Started, Talk, Tally};
pub(crate) use conversation::{CARRIES, PERSON};
#[cfg(test)]
pub(crate) use folder::open_folders;
pub(crate) use folder::{DISK, MEMORY, OPEN_FILES, ROOM, STATE, mend_of, misplaced, remove_all};
pub use folder::{RunDir, RunDirError};
pub use lease::{Lease, LeaseError};
pub use prefix::{Prefix, Unlike};
pub(crate) use queue::Queue;
pub(crate) use rest::{sync_around, sync_folder};
pub use spent::Spent;
pub(crate) use state::account;
pub use state::{Branch, Deeds, Done, FINALLY, Fan, FrameState, IllegalEvent, NodeState, ON_FAILURE, Phase, RunState, Todo, Word, Workspace};
pub use store::{Nowhere, SqliteStore, Store, StoreError, read, read_from, read_page, settle};
pub use under_way::{Doing, MERGE, SETUP, STOP, UnderWay, VERIFY, left_under_way};
pub use watch::{Reason, Watch};
pub use writer::{Closed, Journal, JournalError, Recorder, Report};
