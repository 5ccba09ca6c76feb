//! The tools there are, by name, and whether an input fits one.
use super::{Tool, agent::Agent, bash::Bash, edit::Edit, glob::Glob, grep::Grep, read::Read, skill::Skill, write::Write};
use crate::{message::ToolSpec, source::nearest};
use jsonschema::{ValidationError, Validator, error::ValidationErrorKind};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// Names of older assets, and what they mean today.
const ALIASES: &[(&str, &str)] = &[("Task", "Agent")];

/// Most faults of one input that are told at once.
const FAULTS_MAX: usize = 5;

/// Tools by name, sorted. Cheap to clone.
#[derive(Clone, Default)]
pub struct Toolbox(BTreeMap<String, Arc<Entry>>);

struct Entry {
    tool: Arc<dyn Tool>,
    /// The compiled schema, or why it is none.
    schema: Result<Validator, String>,
}

impl Toolbox {
    /// Returns the tools that are built in.
    pub fn standard() -> Toolbox {
        let tools: [Arc<dyn Tool>; 8] = [
            Arc::new(Agent::new()),
            Arc::new(Bash::new()),
            Arc::new(Edit::new()),
            Arc::new(Glob::new()),
            Arc::new(Grep::new()),
            Arc::new(Read::new()),
            Arc::new(Skill::new()),
            Arc::new(Write::new()),
        ];
        tools.into_iter().fold(Toolbox::default(), Toolbox::with)
    }

    /// Adds a tool, in the place of one of the same name. One whose schema is none can be declared and never called.
    #[must_use]
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Toolbox {
        let schema = jsonschema::validator_for(&tool.spec().input_schema).map_err(|error| error.to_string());
        self.0.insert(tool.spec().name.clone(), Arc::new(Entry { tool, schema }));
        self
    }

    /// Returns a tool by its name or an older one.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.entry(name).map(|entry| &entry.tool)
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns what is declared for these tools, sorted by name, each once; unknown names are left out.
    pub fn specs(&self, names: &[String]) -> Vec<ToolSpec> {
        let wanted: BTreeMap<&str, &ToolSpec> = names.iter().filter_map(|name| self.get(name)).map(|tool| (tool.spec().name.as_str(), tool.spec())).collect();
        wanted.into_values().cloned().collect()
    }

    /// Returns every tool with what is declared for it and whether it may be given to an agent that only reads.
    pub fn catalog(&self) -> BTreeMap<String, (ToolSpec, bool)> {
        self.0.iter().map(|(name, entry)| (name.clone(), (entry.tool.spec().clone(), entry.tool.only_reads()))).collect()
    }

    /// Checks an input against a tool's schema. Nothing is converted: what the model wrote is what hooks and rules see.
    ///
    /// # Errors
    /// What the model is told: each fault and its place.
    pub fn check(&self, name: &str, input: &Value) -> Result<(), String> {
        let Some(entry) = self.entry(name) else {
            let known: Vec<&str> = self.names().collect();
            return Err(format!("there is no tool `{name}`; the tools are: {}", known.join(", ")));
        };
        let schema = entry.schema.as_ref().map_err(|error| format!("`{name}` cannot be called: its schema is invalid ({error})"))?;
        if schema.is_valid(input) {
            return Ok(());
        }
        let known: Vec<&str> =
            entry.tool.spec().input_schema["properties"].as_object().map(|properties| properties.keys().map(String::as_str).collect()).unwrap_or_default();
        let faults: Vec<String> = schema.iter_errors(input).take(FAULTS_MAX).map(|error| fault(&error, &known)).collect();
        Err(format!("the input of `{name}` does not fit: {}", faults.join("; ")))
    }

    fn entry(&self, name: &str) -> Option<&Arc<Entry>> {
        let current = ALIASES.iter().find(|(old, _)| *old == name).map_or(name, |(_, current)| current);
        self.0.get(name).or_else(|| self.0.get(current))
    }
}

/// Says one fault: values are named by their place, since they may be long.
fn fault(error: &ValidationError<'_>, known: &[&str]) -> String {
    let place = error.instance_path().to_string();
    match error.kind() {
        ValidationErrorKind::Required { property } => format!("{property} is required"),
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let said = |name: &String| match nearest(name, known.iter().copied()) {
                Some(meant) => format!("there is no parameter `{name}`, did you mean `{meant}`?"),
                None => format!("there is no parameter `{name}` (there are: {})", known.join(", ")),
            };
            unexpected.iter().map(said).collect::<Vec<_>>().join("; ")
        }
        _ => format!("`{}`: {}", place.trim_start_matches('/'), error.masked()),
    }
}
