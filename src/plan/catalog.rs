//! What is known at the place where a workflow runs: plain data, filled from above.
use crate::{
    message::ToolSpec,
    source::Source,
    workflow::{Agent, Defaults, ModelAlias},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

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
    /// What is odd about hooks that stand in a workflow file.
    pub hook_lint: HookLint,
    /// What is wrong with permission rules.
    pub rule_lint: RuleLint,
    /// Prompt files by the path a workflow writes (`prompts/coder.md`), with their text.
    pub prompts: BTreeMap<String, String>,
    /// Agents found as files, by name.
    pub agents: BTreeMap<String, AgentFile>,
    /// Workflows that others may call, by name; they are read when one is called.
    pub workflows: BTreeMap<String, WorkflowFile>,
    /// Which models have a price that is known.
    pub prices: Prices,
    /// Providers that are built in or configured.
    pub providers: BTreeSet<String>,
    /// Those of them whose protocol has no tools that run at the provider.
    pub without_tools: BTreeSet<String>,
    /// Other names of providers, each with the one it leads to: in a plan none of them stands.
    pub other_names: OtherNames,
    /// The model for whoever names none, from the user's configuration or the environment.
    pub default_model: Option<String>,
    /// Aliases of the configuration, each with the file it stands in; a workflow's own come first.
    pub aliases: BTreeMap<String, (ModelAlias, String)>,
    /// What lies under the `defaults` of every workflow that is called.
    pub defaults: Defaults,
    /// `--model ALIAS=provider/model`: aliases overridden for this run.
    pub model_overrides: BTreeMap<String, String>,
}

/// Other names of providers, each with the one it leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtherNames(pub BTreeMap<String, String>);

impl OtherNames {
    /// Returns a `provider/model` by its provider's own name.
    pub fn own(&self, model: &str) -> String {
        let named = model.split_once('/').and_then(|(provider, id)| Some((self.0.get(provider)?, id)));
        named.map_or_else(|| model.to_owned(), |(own, id)| format!("{own}/{id}"))
    }
}

/// An agent that stands in a file of its own.
#[derive(Debug, Clone, Default)]
pub struct AgentFile {
    /// The agent, its `system` inline.
    pub agent: Agent,
    /// Where it was found, for messages.
    pub path: String,
}

/// A workflow that others may call.
#[derive(Debug, Clone)]
pub struct WorkflowFile {
    /// Its text, and where it was found.
    pub source: Arc<Source>,
    /// Whether its allow rules count.
    pub trusted: bool,
}

/// Says whether the price of a `provider/model` is known; by default of every one.
#[derive(Clone)]
pub struct Prices(pub Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl Default for Prices {
    fn default() -> Prices {
        Prices(Arc::new(|_| true))
    }
}

/// Says what is wrong with a permission rule of a list (`allow`, `ask` or `deny`); by default nothing.
#[derive(Clone)]
pub struct RuleLint(pub Arc<dyn Fn(&str, &str) -> RuleFlaws + Send + Sync>);

/// What is wrong with a permission rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleFlaws {
    /// What it does else than it seems to.
    pub odd: Vec<String>,
    /// Whether it does nothing.
    pub is_ignored: bool,
    /// The tool that it names, where hooks and rules elsewhere know none of that name.
    pub unknown_tool: Option<String>,
}

impl Default for RuleLint {
    fn default() -> RuleLint {
        RuleLint(Arc::new(|_, _| RuleFlaws::default()))
    }
}

impl fmt::Debug for RuleLint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuleLint")
    }
}

/// Says what of hooks will not do what it says, from their events to groups of handlers; by default nothing.
#[derive(Clone)]
pub struct HookLint(pub Arc<dyn Fn(&Value) -> Vec<String> + Send + Sync>);

impl Default for HookLint {
    fn default() -> HookLint {
        HookLint(Arc::new(|_| Vec::new()))
    }
}

impl fmt::Debug for HookLint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookLint")
    }
}

impl fmt::Debug for Prices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prices")
    }
}
