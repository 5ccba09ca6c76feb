//! Tools: one file each. A tool does one call in one workspace; whether it may is decided before, by the gate.
//!
//! Names and input shapes are Claude Code's (`Bash{command}`, `Edit{file_path, old_string, new_string}`), so that hooks
//! and rules written for it hold here. A failure that the model may mend is told to the model; only what no model can
//! mend ends the step. Every answer is capped where it is made and says so.

use crate::{message::ToolSpec, workflow::Access};
use async_trait::async_trait;
use serde_json::Value;
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

/// What a call may touch; decides what runs beside it and how it is recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Reads these paths, relative to the workspace; none named means anywhere in it.
    Reads(Vec<String>),
    /// Writes these files, relative to the workspace, each by one atomic replacement.
    Writes(Vec<String>),
    /// May do anything in the workspace: runs alone.
    Exclusive,
    /// Reaches beyond the workspace; never run twice.
    External,
}

impl Effect {
    /// Returns whether two calls of one reply must keep their order.
    pub fn conflicts(&self, other: &Effect) -> bool {
        match (self, other) {
            (Effect::Reads(_) | Effect::External, Effect::Reads(_) | Effect::External) => false,
            (Effect::Exclusive, _) | (_, Effect::Exclusive) => true,
            (Effect::External, Effect::Writes(_)) | (Effect::Writes(_), Effect::External) => false,
            (Effect::Writes(a), Effect::Writes(b)) => a.iter().any(|path| b.contains(path)),
            (Effect::Reads(reads), Effect::Writes(writes)) | (Effect::Writes(writes), Effect::Reads(reads)) => {
                reads.is_empty() || reads.iter().any(|path| writes.contains(path))
            }
        }
    }
}

/// Why a call gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// Told to the model, which may try again; says what to try.
    #[error("{0}")]
    Model(String),
    /// Ends the step.
    #[error("the workspace cannot be used: {0}")]
    Fatal(#[source] std::io::Error),
}

/// What a call gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// What the model reads; capped, the cut stated.
    pub text: String,
    /// Claude Code's structured `tool_response`, for hooks.
    pub response: Value,
    /// Whether the call failed in a way the model should see as an error (a command's exit code, say).
    pub is_error: bool,
    /// The whole output, where `text` is cut.
    pub whole: Option<Vec<u8>>,
}

/// One kind of call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Returns what is declared to a model.
    fn spec(&self) -> &ToolSpec;
    /// Returns what a call with this input, which fits the schema, may touch.
    fn effect(&self, input: &Value, cx: &ToolContext) -> Effect;
    /// Does the call.
    ///
    /// # Errors
    /// `ToolError::Model` for what the model can mend, `Fatal` for what it cannot.
    async fn call(&self, input: &Value, cx: &ToolContext) -> Result<ToolOutput, ToolError>;
}

/// Where and how an agent's calls run.
#[derive(Clone)]
pub struct ToolContext {
    /// The workspace's root, absolute and without links.
    pub root: PathBuf,
    /// Where the agent stands: `root` or a folder inside it.
    pub cwd: PathBuf,
    /// Whether it may write.
    pub access: Access,
    /// The end of the step.
    pub cancel: CancellationToken,
}
