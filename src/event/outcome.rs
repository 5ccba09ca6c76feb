//! How a step or a run ended.
use super::CommitId;
use crate::tasks::Panicked;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{error::Error, sync::Arc};

/// How something ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it declared.
    Succeeded(Success),
    /// It did not.
    Failed(Box<Failure>),
    /// It never started.
    Skipped(SkipCause),
}

/// What a step that succeeded leaves behind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Success {
    /// The step's output as templates see it; copies share it.
    pub output: Arc<Value>,
    /// The commit the engine made of its work, where it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
}

/// Why something failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind, for programs.
    pub kind: FailureKind,
    /// A sentence fragment for people.
    pub message: String,
    /// What to do, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Readable remains: `stdout`, `exit_code` of a command, say.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub output: Value,
}

impl Failure {
    /// Makes a failure without a hint.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into(), hint: None, output: Value::Null }
    }

    /// Makes a failure of an error and all its causes.
    pub fn of(kind: FailureKind, error: &dyn Error) -> Failure {
        Failure::new(kind, because(error))
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Panicked> for Failure {
    fn from(panicked: Panicked) -> Failure {
        Failure::of(FailureKind::Bug, &panicked)
    }
}

/// Writes an error with its causes, each once.
pub fn because(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    // A chain that is longer than this says nothing more.
    for _ in 0..8 {
        let Some(error) = cause else { break };
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// The kinds of failure; each has its own status on every screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A limit of an agent, a step or the run was reached.
    Limit(Limit),
    /// The step's time ran out.
    Timeout,
    /// The model declined.
    Refused,
    /// The reply was cut by a limit of the provider and could not be had whole.
    Truncated,
    /// The window is full and nothing more can be dropped.
    ContextExhausted,
    /// The provider could not be reached or had too much to do, again and again: later it may answer.
    Unavailable,
    /// The provider answered with an error that waiting does not mend.
    Model,
    /// The model stopped for a reason this program does not know.
    UnknownStop,
    /// `verify` stayed red.
    Verify,
    /// A loop came to its last iteration without coming to its end.
    Exhausted,
    /// The output does not fit its schema.
    Schema,
    /// A command exited with another code than 0.
    Command,
    /// A hook stopped the agent.
    Hook,
    /// A disk is full or takes no more writes, files or memory run out, a git lock stays, or git is killed each time: the process stops there, and the run goes
    /// on once that is mended.
    NoRoom,
    /// The worktree could not be made or kept apart.
    Isolation,
    /// The work could not be committed under the tree policy, or left its scope.
    Policy,
    /// Work could not be joined.
    Merge,
    /// A template could not be evaluated.
    Template,
    /// Something else of the run's failed, so this was ended too.
    Aborted,
    /// The run was interrupted.
    Cancelled,
    /// A question had no one to answer it, or the answer was no.
    Refusal,
    /// Other things of this machine: files, processes, git.
    Environment,
    /// A bug in this program.
    Bug,
}

impl FailureKind {
    /// Returns the one word for it, in snake case.
    pub fn word(self) -> &'static str {
        match self {
            FailureKind::Limit(_) => "limit",
            FailureKind::Timeout => "timeout",
            FailureKind::Refused => "refused",
            FailureKind::Truncated => "truncated",
            FailureKind::ContextExhausted => "context_exhausted",
            FailureKind::Unavailable => "unavailable",
            FailureKind::Model => "model",
            FailureKind::UnknownStop => "unknown_stop",
            FailureKind::Verify => "verify",
            FailureKind::Exhausted => "exhausted",
            FailureKind::Schema => "schema",
            FailureKind::Command => "command",
            FailureKind::Hook => "hook",
            FailureKind::NoRoom => "no_room",
            FailureKind::Isolation => "isolation",
            FailureKind::Policy => "policy",
            FailureKind::Merge => "merge",
            FailureKind::Template => "template",
            FailureKind::Aborted => "aborted",
            FailureKind::Cancelled => "cancelled",
            FailureKind::Refusal => "refusal",
            FailureKind::Environment => "environment",
            FailureKind::Bug => "bug",
        }
    }
}

/// What ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Model calls.
    Turns,
    /// Tokens, in and out.
    Tokens,
    /// Dollars.
    Money,
    /// Wall time.
    Time,
    /// The same tool call again and again.
    Repeats,
}

/// Why something never started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipCause {
    /// Its `if` was false.
    Condition,
    /// What it needs ended in another way than it asked for.
    Upstream(super::NodeId),
    /// The orchestrator stopped it.
    Stopped,
    /// Another item of its step failed.
    Sibling(super::NodeId),
    /// The run was ending.
    RunEnding,
    /// The budget of this step, which may finish with what there is, was used up.
    Budget(super::NodeId),
}

impl Outcome {
    /// Returns the success, where it is one.
    pub fn success(&self) -> Option<&Success> {
        if let Outcome::Succeeded(success) = self { Some(success) } else { None }
    }

    /// Returns the failure, where it is one.
    pub fn failure(&self) -> Option<&Failure> {
        if let Outcome::Failed(failure) = self { Some(failure) } else { None }
    }

    /// Returns the one word for it: `succeeded`, `failed` or `skipped`.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Succeeded(_) => "succeeded",
            Outcome::Failed(_) => "failed",
            Outcome::Skipped(_) => "skipped",
        }
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Outcome {
        Outcome::Failed(Box::new(failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_failure_holds_every_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("use the journal")]
        struct Outer(#[source] io::Error);
        let full = || io::Error::other("no space is left");
        assert_eq!(because(&Outer(full())), "use the journal: no space is left");
        assert_eq!(because(&io::Error::other(Outer(full()))), "use the journal: no space is left");
        let bug = Failure::from(Panicked("oh".to_owned()));
        assert_eq!((bug.kind, bug.message.as_str()), (FailureKind::Bug, "a task panicked: oh"));
    }
}
