//! Tools: one file each. A tool does one call in one workspace; whether it may is decided before, by the gate.
//!
//! Names and input shapes are Claude Code's (`Bash{command}`, `Edit{file_path, old_string, new_string}`), so that hooks
//! and rules written for it hold here. A failure that the model may mend is told to the model; only what no model can
//! mend ends the step. Every answer is capped where it is made and says so.

pub(crate) mod agent;
mod bash;
mod edit;
mod files;
mod glob;
mod grep;
mod mcp;
mod patch;
mod place;
mod read;
mod restore;
mod search;
pub mod shell;
mod skill;
mod submit;
mod text;
mod toolbox;
mod write;

pub use files::Seen;
pub use mcp::{Host, Served};
pub use restore::{Before, RestoreError, before, put_back, sweep};
pub use submit::Submit;
pub use text::readable;
pub use toolbox::Toolbox;

use crate::{
    git::Scope,
    message::ToolSpec,
    sandbox::{Confinement, Sandbox},
    secrets::Secrets,
    tasks,
    workflow::Access,
};
use async_trait::async_trait;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
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
    /// A sub-agent works in a copy of the workspace; what it changed is brought in one after the other, in the order of the
    /// calls.
    Delegated,
    /// Its effect is a record of the run, and the run knows whether it was made: running it again changes nothing.
    Recorded,
}

impl Effect {
    /// Returns whether two calls of one reply must keep their order.
    pub fn conflicts(&self, other: &Effect) -> bool {
        match (self, other) {
            (Effect::External | Effect::Recorded, Effect::Delegated)
            | (Effect::Delegated, Effect::External | Effect::Recorded | Effect::Delegated)
            | (Effect::Reads(_), Effect::Reads(_)) => false,
            (Effect::Exclusive | Effect::Delegated, _) | (_, Effect::Exclusive | Effect::Delegated) => true,
            (Effect::External | Effect::Recorded, _) | (_, Effect::External | Effect::Recorded) => false,
            (Effect::Writes(a), Effect::Writes(b)) => a.iter().any(|path| b.contains(path)),
            (Effect::Reads(reads), Effect::Writes(writes)) | (Effect::Writes(writes), Effect::Reads(reads)) => {
                reads.is_empty() || reads.iter().any(|path| writes.contains(path))
            }
        }
    }

    /// Says, for the model, which file of this effect lies outside what its step may write. Shell commands are not judged
    /// here: the sandbox holds the folders, and the commit the rest.
    pub fn outside(&self, scope: &Scope) -> Option<String> {
        let Effect::Writes(paths) = self else { return None };
        let path = paths.iter().find(|path| !scope.contains(path))?;
        let all = scope.patterns().join(", ");
        Some(format!("`{path}` is outside what this step may write ({all}): leave it as it is, and say in your answer if it has to change"))
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

/// A question to a person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asks {
    /// What is asked.
    pub question: String,
    /// The only answers, where there are such.
    pub choices: Vec<String>,
}

/// One kind of call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Returns what is declared to a model.
    fn spec(&self) -> &ToolSpec;
    /// Returns whether an agent that may only read can be given it. A tool for both, such as Bash, holds itself to reading.
    fn only_reads(&self) -> bool {
        true
    }
    /// Returns what a call with this input, which fits the schema, may touch.
    fn effect(&self, input: &Value, cx: &ToolContext) -> Effect;
    /// Returns what a call asks a person. Such a call is never made: the answer is its result, whenever it comes.
    fn asks(&self, _input: &Value) -> Option<Asks> {
        None
    }
    /// Does the call.
    ///
    /// # Errors
    /// `ToolError::Model` for what the model can mend, `Fatal` for what it cannot.
    async fn call(&self, input: &Value, cx: &ToolContext) -> Result<ToolOutput, ToolError>;
}

/// Where and how an agent's calls run. Cheap to clone; clones share what the agent has read.
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
    /// Folders outside the workspace that Read, Grep and Glob may look into (a skill's files, say), absolute and without
    /// links.
    pub reads: Arc<[PathBuf]>,
    /// How shell commands run.
    pub shell: Arc<ShellPolicy>,
    /// What the step may write; asked by the gate through [`Effect::outside`]. `None` means anything in the workspace.
    pub scope: Option<Arc<Scope>>,
    /// Files that a rule forbids to read, by their absolute path: searches pass over them. `None` where there are none.
    pub hidden: Option<Arc<Hidden>>,
    /// What the Skill tool can open.
    pub skills: Arc<dyn SkillSource>,
    /// What this agent has read; one for each agent, new at resume.
    pub seen: Arc<Seen>,
    /// What no answer shows: taken out before anything is cut.
    pub secrets: Secrets,
}

/// Says of an absolute path whether it is kept from an agent.
pub type Hidden = dyn Fn(&Path) -> bool + Send + Sync;

/// How shell commands run.
#[derive(Debug, Clone)]
pub struct ShellPolicy {
    /// Who starts them.
    pub sandbox: Sandbox,
    /// The walls around them.
    pub confine: Confinement,
    /// Their whole environment; from [`crate::sandbox::clean_env`] and the workflow's `env`.
    pub env: BTreeMap<String, String>,
    /// When the model names no timeout.
    pub timeout: Duration,
    /// The longest that the model may name.
    pub timeout_max: Duration,
}

impl ShellPolicy {
    /// Makes a policy with Claude Code's limits: two minutes, at most ten.
    pub fn new(sandbox: Sandbox, confine: Confinement, env: BTreeMap<String, String>) -> ShellPolicy {
        ShellPolicy { sandbox, confine, env, timeout: Duration::from_mins(2), timeout_max: Duration::from_mins(10) }
    }
}

/// Where the Skill tool finds skills.
pub trait SkillSource: Send + Sync {
    /// Returns a skill's text with these arguments put in; nothing where there is no such skill.
    fn open(&self, name: &str, args: &str) -> Option<String>;
    /// Returns the names that can be opened, sorted.
    fn names(&self) -> Vec<String>;
}

/// No skills at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSkills;

impl SkillSource for NoSkills {
    fn open(&self, _name: &str, _args: &str) -> Option<String> {
        None
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Does file work off the scheduler's thread, in a workspace that is still there.
async fn on_files<T: Send + 'static>(cx: &ToolContext, work: impl FnOnce(&ToolContext) -> Result<T, ToolError> + Send + 'static) -> Result<T, ToolError> {
    let cx = cx.clone();
    let done = tasks::blocking(move || {
        place::require_root(&cx.root)?;
        work(&cx)
    });
    done.await.unwrap_or_else(|panicked| Err(ToolError::Fatal(io::Error::other(panicked))))
}

/// Returns a text field of an input.
fn text_of<'a>(input: &'a Value, field: &str) -> Result<&'a str, ToolError> {
    optional_text(input, field).ok_or_else(|| ToolError::Model(format!("`{field}` is missing or is no text")))
}

fn optional_text<'a>(input: &'a Value, field: &str) -> Option<&'a str> {
    input.get(field).and_then(Value::as_str)
}

fn flag(input: &Value, field: &str) -> bool {
    input.get(field).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns a whole number; schemas hold it to be none below zero. JSON Schema takes `5.0` for one, too.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast from a float saturates")]
fn number(input: &Value, field: &str) -> Option<usize> {
    let value = input.get(field)?;
    value.as_u64().or_else(|| value.as_f64().map(|float| float as u64)).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

/// Returns the effect of reading one file.
fn reads(cx: &ToolContext, path: &str) -> Effect {
    Effect::Reads(place::Place::find(cx, path).map_or_else(|_| vec![path.to_owned()], |place| vec![place.key()]))
}

/// Returns the effect of writing one file; a path that is refused touches nothing.
fn writes(cx: &ToolContext, path: &str) -> Effect {
    Effect::Writes(place::Place::writable(cx, path).map_or_else(|_| Vec::new(), |place| vec![place.key()]))
}

#[cfg(test)]
mod tests;
