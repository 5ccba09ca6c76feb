//! What is known at the place where a workflow runs: plain data, filled from above.
use crate::{
    message::ToolSpec,
    workflow::{Agent, ModelAlias},
};
use std::collections::{BTreeMap, BTreeSet};

/// Everything a workflow may name.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// Tools by name, with what is declared to a model, and whether each only reads.
    pub tools: BTreeMap<String, (ToolSpec, bool)>,
    /// Skills by name, with their description.
    pub skills: BTreeMap<String, String>,
    /// Those of them that an agent sees that names none.
    pub offered_skills: BTreeSet<String>,
    /// Hooks by name; those that hold everywhere come first to everyone.
    pub hooks: BTreeSet<String>,
    /// Prompt files by the path a workflow writes (`prompts/coder.md`), with their text.
    pub prompts: BTreeMap<String, String>,
    /// Agents found as files, by name.
    pub agents: BTreeMap<String, AgentFile>,
    /// Providers that are built in or configured.
    pub providers: BTreeSet<String>,
    /// The model for whoever names none, from the user's configuration or the environment.
    pub default_model: Option<String>,
    /// Aliases of the configuration, each with the file it stands in; a workflow's own come first.
    pub aliases: BTreeMap<String, (ModelAlias, String)>,
    /// `--model ALIAS=provider/model`: aliases overridden for this run.
    pub model_overrides: BTreeMap<String, String>,
}

/// An agent that stands in a file of its own.
#[derive(Debug, Clone, Default)]
pub struct AgentFile {
    /// The agent, its `system` inline.
    pub agent: Agent,
    /// Where it was found, for messages.
    pub path: String,
}
