//! The closed sets of words that stand in records.
use serde::{Deserialize, Serialize};

/// How a place is kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// A worktree with a git folder of its own inside, which shares only objects, to read.
    Private,
    /// A linked worktree of the repository.
    Linked,
    /// A worktree that is only read, and shared.
    View,
    /// No files: works are joined, or one of them is chosen.
    Merge,
    /// No files: a result that is kept stands for the work.
    Cache,
    /// No files.
    None,
}

impl Isolation {
    /// Returns it as people read it.
    pub fn words(self) -> &'static str {
        match self {
            Isolation::Private => "private",
            Isolation::Linked => "linked",
            Isolation::View => "a read-only view",
            Isolation::Merge | Isolation::Cache | Isolation::None => "no files",
        }
    }
}

/// Why an orchestrator is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// The run begins.
    Start,
    /// An item succeeded.
    ItemDone,
    /// An item failed.
    ItemFailed,
    /// Nothing else can run.
    Idle,
    /// Everything has ended, and it is to sum up.
    End,
}

impl Wake {
    /// Returns reasons as people read them.
    pub fn listed(reasons: &[Wake]) -> String {
        reasons.iter().map(|reason| reason.words()).collect::<Vec<_>>().join(", ")
    }

    /// Returns it as people read it.
    pub fn words(self) -> &'static str {
        match self {
            Wake::End => "end",
            Wake::Idle => "idle",
            Wake::ItemDone => "item done",
            Wake::ItemFailed => "item failed",
            Wake::Start => "start",
        }
    }
}

/// What one hook said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookVerdict {
    /// The call is allowed.
    Allow,
    /// A person is asked.
    Ask,
    /// The agent is told, or goes on.
    Block,
    /// The call is not made.
    Deny,
    /// The hook failed.
    Error,
    /// Nothing.
    None,
    /// It has to wait for a person.
    Park,
    /// The agent ends.
    Stop,
    /// It was told of a question, and has passed it on.
    Told,
}

impl HookVerdict {
    /// Returns the one word for it.
    pub fn word(self) -> &'static str {
        match self {
            HookVerdict::Allow => "allow",
            HookVerdict::Ask => "ask",
            HookVerdict::Block => "block",
            HookVerdict::Deny => "deny",
            HookVerdict::Error => "error",
            HookVerdict::None => "none",
            HookVerdict::Park => "park",
            HookVerdict::Stop => "stop",
            HookVerdict::Told => "told",
        }
    }
}
