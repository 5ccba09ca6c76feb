//! Agent files (`.claude/agents/**/*.md`, `agents/*.md`) as the agents of a workflow.
//!
//! The keys are Claude Code's; of our own there are `access`, `max_turns` and `skills`, which wins over what the tools
//! suggest. What this program does not do with such a file is said in a warning, never done in silence.
use super::{
    frontmatter::{Front, flag},
    one_line,
};
use crate::{
    library::{Found, Kind, Library},
    source::{Span, Spanned},
    workflow::{Access, Agent, Permissions, Text},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Tools that write.
const WRITING: [&str; 4] = ["Write", "Edit", "MultiEdit", "NotebookEdit"];
/// Names that files still use for tools that go by another name.
const RENAMED: [(&str, &str); 8] = [
    ("Task", "Agent"),
    ("MultiEdit", "Edit"),
    ("NotebookRead", "Read"),
    ("LS", "Glob"),
    ("KillShell", "TaskStop"),
    ("KillBash", "TaskStop"),
    ("ListMcpResources", "ListMcpResourcesTool"),
    ("ReadMcpResource", "ReadMcpResourceTool"),
];
/// The short names of models in such files.
const MODELS: [(&str, &str); 3] = [("sonnet", "anthropic/claude-sonnet-5-5"), ("opus", "anthropic/claude-opus-5-5"), ("haiku", "anthropic/claude-haiku-5-5")];
/// What bare model ids begin with, and whose they are.
const FAMILIES: [(&str, &str); 3] = [("claude-", "anthropic"), ("gpt-", "openai"), ("gemini-", "gemini")];
/// Keys that mean something elsewhere and nothing here.
const WITHOUT_EFFECT: [&str; 9] =
    ["permissionMode", "mcpServers", "hooks", "memory", "background", "isolation", "initialPrompt", "autoCompactWindow", "omitClaudeMd"];
const KEYS: &[&str] = &[
    "name",
    "description",
    "tools",
    "disallowedTools",
    "model",
    "permissionMode",
    "maxTurns",
    "max_turns",
    "skills",
    "mcpServers",
    "hooks",
    "memory",
    "background",
    "effort",
    "isolation",
    "color",
    "initialPrompt",
    "access",
];

/// An agent that was read from a file.
#[derive(Debug, Clone)]
pub struct AgentFile {
    /// What it goes by: the name in the file, or that of the file.
    pub name: String,
    /// The agent; its places are empty, since they do not lie in a workflow.
    pub agent: Agent,
    /// What of the file is odd or has no effect.
    pub warnings: Vec<String>,
}

/// A file that gives no agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// Its name would be read as something else.
    #[error("use `{name}` as the name of an agent in {path}: it may not begin with `-` or hold `:`")]
    Name {
        /// The name.
        name: String,
        /// The file.
        path: String,
    },
    /// It says nothing.
    #[error("read an agent from {path}: it has neither a description nor a text")]
    Empty {
        /// The file.
        path: String,
    },
}

/// Reads all agent files of a library. Of several by one name the one in the first root counts; warnings say what is hidden,
/// odd or no agent.
pub fn agents(library: &Library) -> (BTreeMap<String, (AgentFile, Found)>, Vec<String>) {
    let mut found = library.all(Kind::Agent);
    found.sort_by(|a, b| a.rank().cmp(&b.rank()).then_with(|| a.name.cmp(&b.name)));
    let (mut agents, mut warnings) = (BTreeMap::<String, (AgentFile, Found)>::new(), Vec::new());
    for found in found {
        let file = match agent(found) {
            Ok(file) => file,
            Err(error) => {
                warnings.push(format!("failed to {error}"));
                continue;
            }
        };
        if let Some((_, first)) = agents.get_mut(&file.name) {
            first.shadowed.push(found.path.clone());
            continue;
        }
        warnings.extend(file.warnings.iter().map(|warning| format!("{}: {warning}", found.path)));
        agents.insert(file.name.clone(), (file, found.clone()));
    }
    (agents, warnings)
}

/// Reads one agent file.
pub fn agent(found: &Found) -> Result<AgentFile, AgentError> {
    let mut front = Front::read(&found.text, KEYS);
    let stem = found.name.rsplit('/').next().unwrap_or(&found.name).to_owned();
    let name = front.text("name").unwrap_or_else(|| {
        front.warnings.push(format!("it does not say its name; it goes by that of the file, `{stem}`"));
        stem
    });
    if name.starts_with('-') || name.contains(':') {
        return Err(AgentError::Name { name, path: found.path.clone() });
    }
    let body = front.body.trim().to_owned();
    let description = front.text("description").map(|text| one_line(&text));
    match (&description, body.is_empty()) {
        (None, true) => return Err(AgentError::Empty { path: found.path.clone() }),
        (None, false) => front.warn("it has no description, by which others choose it".to_owned()),
        (Some(_), true) => front.warn("it has no text; the description is all that it is told".to_owned()),
        (Some(_), false) => {}
    }
    let system = if body.is_empty() { description.clone().unwrap_or_default() } else { body };
    let named = tools(&mut front);
    let denied: Vec<String> = front.list("disallowedTools").iter().map(|tool| renamed(tool)).collect();
    let access = access(&mut front, named.as_deref(), &denied);
    let agent = Agent {
        system: Some(placed(Text::Inline(system))),
        description,
        model: model(&mut front).map(placed),
        effort: front.text("effort"),
        access: Some(access),
        tools: named.map(|tools| tools.into_iter().filter(|tool| !denied.contains(tool)).map(placed).collect()),
        skills: front.list("skills").into_iter().map(placed).collect(),
        permissions: Permissions { deny: denied.into_iter().map(placed).collect(), ..Permissions::default() },
        max_turns: max_turns(&mut front).map(placed),
        ..Agent::default()
    };
    for key in WITHOUT_EFFECT {
        if front.has(key) {
            front.warn(format!("`{key}` has no effect here"));
        }
    }
    Ok(AgentFile { name, agent, warnings: front.warnings })
}

fn placed<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Span::default())
}

/// Reads the tools: text, a list, or a map of name to whether. `None` where all are meant.
fn tools(front: &mut Front) -> Option<Vec<String>> {
    let written: Vec<String> = match front.value("tools") {
        Some(Value::Object(map)) => {
            map.iter().filter(|(_, on)| on.as_bool().or_else(|| flag(on.as_str()?)) == Some(true)).map(|(name, _)| capitalised(name)).collect()
        }
        _ => front.list("tools"),
    };
    let all = |tool: &String| tool == "*" || tool.eq_ignore_ascii_case("all");
    if (written.is_empty() && !front.value("tools").is_some_and(Value::is_object)) || written.iter().any(all) {
        return None;
    }
    let mut tools: Vec<String> = Vec::new();
    for tool in written {
        if tool.contains('(') {
            front.warn(format!("`{tool}`: a limit in `tools` has no effect, the tool is there as a whole; write it under `permissions`"));
        }
        let tool = renamed(&tool);
        if !tools.contains(&tool) {
            tools.push(tool);
        }
    }
    Some(tools)
}

/// Takes a limit off a tool's name, and gives the name that it goes by now.
fn renamed(tool: &str) -> String {
    let name = tool.split('(').next().unwrap_or(tool).trim();
    RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new).to_owned()
}

/// Other clients write tools in lowercase.
fn capitalised(name: &str) -> String {
    let mut chars = name.chars();
    match chars.next() {
        Some(first) if !name.contains("__") => first.to_uppercase().chain(chars).collect(),
        Some(_) | None => name.to_owned(),
    }
}

/// Reads `access`, or infers it: an agent that has a writing tool writes, and so does one that has all tools.
fn access(front: &mut Front, tools: Option<&[String]>, denied: &[String]) -> Access {
    match front.text("access").as_deref() {
        Some("read") => return Access::Read,
        Some("write") => return Access::Write,
        Some(other) => front.warn(format!("`access: {other}` is neither `read` nor `write`")),
        None => {}
    }
    if front.text("permissionMode").as_deref() == Some("plan") {
        return Access::Read;
    }
    let left = |tool: &str| !denied.iter().any(|denied| denied == tool);
    let writes = match tools {
        Some(tools) => tools.iter().any(|tool| WRITING.contains(&tool.as_str()) && left(tool)),
        None => left("Write") || left("Edit"),
    };
    if writes { Access::Write } else { Access::Read }
}

/// Reads the model; a name that says nothing here is warned of, and the agent takes what others take.
fn model(front: &mut Front) -> Option<String> {
    let written = front.text("model")?;
    let name = written.to_ascii_lowercase();
    if name == "inherit" {
        return None;
    }
    if let Some((_, model)) = MODELS.iter().find(|(short, _)| *short == name) {
        return Some((*model).to_owned());
    }
    if name.split_once('/').is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty()) {
        return Some(written);
    }
    if let Some((_, provider)) = FAMILIES.iter().find(|(family, _)| name.starts_with(family)) {
        return Some(format!("{provider}/{written}"));
    }
    front.warn(format!("the model `{written}` is not known; the default is used"));
    None
}

fn max_turns(front: &mut Front) -> Option<u32> {
    let written = front.text("maxTurns").or_else(|| front.text("max_turns"))?;
    let turns = written.parse::<u32>().ok().filter(|turns| *turns > 0);
    if turns.is_none() {
        front.warn(format!("`maxTurns: {written}` is not a number of turns"));
    }
    turns
}
