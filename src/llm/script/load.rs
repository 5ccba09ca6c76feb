//! Reads a script from YAML.
use super::pattern::{Groups, Pattern};
use crate::{message::StopReason, source::read_yaml};
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Map, Value};
use std::fmt;

/// The size beyond which a file is no script.
pub const MAX_SCRIPT_BYTES: usize = 4 * 1024 * 1024;

/// Why a script could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadScriptError {
    /// It is too large.
    #[error("read the script {name}: it has more than {MAX_SCRIPT_BYTES} bytes")]
    TooLarge {
        /// The script.
        name: String,
    },
    /// It is not valid; the text names the place.
    #[error("read the script {name}: {text}")]
    Invalid {
        /// The script.
        name: String,
        /// The parser's words.
        text: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    window: Option<u64>,
    conversations: Vec<Conversation>,
}

/// Reads a script: its conversations, and its window where it names one.
pub(super) fn parse(name: &str, yaml: &str) -> Result<(Vec<Conversation>, Option<u64>), LoadScriptError> {
    if yaml.len() > MAX_SCRIPT_BYTES {
        return Err(LoadScriptError::TooLarge { name: name.to_owned() });
    }
    let file: File = read_yaml(yaml).map_err(|error| LoadScriptError::Invalid { name: name.to_owned(), text: place_and_words(&error.to_string()) })?;
    Ok((file.conversations, file.window))
}

/// Keeps of what the parser says the place and the words; the rest draws the line, under a name that nobody gave.
fn place_and_words(said: &str) -> String {
    let first = said.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

/// What one agent says after having been told one thing.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Conversation {
    #[serde(default)]
    agent: Option<AgentName>,
    #[serde(default)]
    told: Option<Pattern>,
    pub(super) turns: Vec<Turn>,
}

impl Conversation {
    /// Returns what the groups of `told` found, where this is the conversation.
    pub(super) fn hears(&self, agent: &str, (task, told): (&str, &str)) -> Option<Groups> {
        let is_agent = match &self.agent {
            None => true,
            Some(AgentName::Exact(name)) => name == agent,
            Some(AgentName::Pattern(pattern)) => pattern.find(agent).is_some(),
        };
        if !is_agent {
            return None;
        }
        self.told.as_ref().map_or_else(|| Some(Groups::new()), |pattern| pattern.find(told).or_else(|| pattern.find(task)))
    }
}

/// An agent's name, or `/…/` searched in it.
#[derive(Debug, Clone)]
enum AgentName {
    Exact(String),
    Pattern(Pattern),
}

/// One turn: alternatives, of which the first that fits is said.
#[derive(Debug, Clone)]
pub(super) struct Turn(pub(super) Vec<Line>);

/// What is said and called.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    #[serde(default)]
    pub(super) when: Option<Pattern>,
    #[serde(default)]
    pub(super) say: String,
    #[serde(default)]
    pub(super) calls: Vec<Call>,
    #[serde(default, deserialize_with = "stop_reason")]
    pub(super) stop: Option<StopReason>,
}

/// One tool call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) tool: String,
    #[serde(default = "no_input")]
    pub(super) input: Value,
}

fn no_input() -> Value {
    Value::Object(Map::new())
}

fn stop_reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<StopReason>, D::Error> {
    Ok(Some(StopReason::of_word(&String::deserialize(deserializer)?)))
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pattern, D::Error> {
        let text = String::deserialize(deserializer)?;
        Pattern::parse(&text).map_err(|error| de::Error::custom(format!("`{text}` is not a regular expression: {error}")))
    }
}

impl<'de> Deserialize<'de> for AgentName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AgentName, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            Some(pattern) => {
                Pattern::parse(pattern).map(AgentName::Pattern).map_err(|error| de::Error::custom(format!("`{pattern}` is not a regular expression: {error}")))
            }
            None => Ok(AgentName::Exact(text)),
        }
    }
}

impl<'de> Deserialize<'de> for Turn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Turn, D::Error> {
        struct OneOrSome;
        impl<'de> Visitor<'de> for OneOrSome {
            type Value = Turn;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a turn (`say`, `calls`, `stop`) or a list of alternatives")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Turn, A::Error> {
                Line::deserialize(MapAccessDeserializer::new(map)).map(|line| Turn(vec![line]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Turn, A::Error> {
                let mut lines = Vec::new();
                while let Some(line) = seq.next_element()? {
                    lines.push(line);
                }
                Ok(Turn(lines))
            }
        }
        deserializer.deserialize_any(OneOrSome)
    }
}
