//! The closed sets of words of the language: each word stands here once, beside what it means.
use super::{
    choices::{OnTimeout, Show, Tie},
    sandbox::Require,
    stub::StubbedStatus,
    types::{Access, ConflictThen, InputKind, Join, MergeMode, MergeOrder, On, OnExceed, Parse, Power, RetryOn, WorkspaceKind},
};
use crate::event::Wake;

/// What words of a closed set mean.
pub(super) trait Word: Copy + 'static {
    /// Each word with its meaning.
    const TABLE: &'static [(&'static str, Self)];
    /// The words alone.
    const WORDS: &'static [&'static str];
}

macro_rules! words {
    ($($of:ident: $($word:literal $value:ident),+;)+) => { $(
        impl Word for $of {
            const TABLE: &'static [(&'static str, $of)] = &[$(($word, $of::$value)),+];
            const WORDS: &'static [&'static str] = &[$($word),+];
        }
    )+ };
}

macro_rules! said {
    ($($of:ident),+) => { $(
        impl $of {
            /// Returns its word.
            pub fn word(self) -> &'static str {
                $of::TABLE.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| *word)
            }
        }
    )+ };
}

said!(Power, Require);

words! {
    Access: "read" Read, "write" Write;
    ConflictThen: "eject" Eject, "fail" Fail;
    InputKind: "string" String, "integer" Integer, "number" Number, "boolean" Boolean, "array" Array, "object" Object;
    Join: "all" All, "all_done" AllDone;
    MergeMode: "batch" Batch, "each" Each;
    MergeOrder: "needs" Needs, "fewest_conflicts" FewestConflicts;
    On: "success" Success, "failure" Failure, "done" Done;
    OnExceed: "stop" Stop, "finish" Finish, "ask" Ask;
    OnTimeout: "approve" Approve, "reject" Reject;
    Parse: "lines" Lines, "json" Json;
    Power: "add_items" AddItems, "retry" Retry, "stop" Stop, "ask" Ask;
    Require: "full" Full, "landlock" Landlock, "none" None;
    RetryOn: "transient" Transient, "timeout" Timeout, "any" Any;
    Show: "diff" Diff, "stat" Stat;
    StubbedStatus: "succeeded" Succeeded, "failed" Failed, "unavailable" Unavailable, "timeout" Timeout;
    Tie: "smallest_diff" SmallestDiff, "first" First, "fail" Fail;
    Wake: "start" Start, "item_done" ItemDone, "item_failed" ItemFailed, "idle" Idle;
    WorkspaceKind: "worktree" Worktree, "shared" Shared, "none" None;
}
