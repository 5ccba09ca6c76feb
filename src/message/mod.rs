//! What is said to and by a model: blocks, messages, tool calls and results, usage.
//!
//! A block is kept as the bytes it was received or first written as (`raw`), beside a typed view of them. Providers bind
//! thinking blocks to their exact prefix and cache prompts by it, so a block that was sent once is sent again byte for
//! byte; nothing here re-serialises one. Plain data: no I/O, no locks, no clock.
//!
//! Blocks use one neutral form for every protocol, `{"type": …}` as in the Anthropic Messages API: `text`, `thinking`,
//! `tool_use`, `tool_result`; any other type is kept untouched. A protocol that needs more bytes of its own keeps them in
//! extra fields of the block (`arguments` of an OpenAI tool call, say).
mod block;
mod reply;

pub use block::{Block, Raw, View};
pub use reply::{Reply, StopReason, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who speaks. Tool results are said by the user, as the protocols want it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The engine, on behalf of the workflow: prompts, tool results, red checks.
    User,
    /// The model.
    Assistant,
}

/// One turn of a conversation, never empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub blocks: Vec<Block>,
}

impl Message {
    /// Makes a user message of one text block; empty text becomes `(empty)`, since providers refuse empty blocks.
    pub fn user(text: &str) -> Message {
        Message { role: Role::User, blocks: vec![Block::text(text)] }
    }

    /// Makes the one user message that answers every call of a reply, results first and in call order, text after.
    pub fn results(results: &[ToolResult], text: Option<&str>) -> Message {
        let blocks = results.iter().map(Block::tool_result).chain(text.map(Block::text)).collect();
        Message { role: Role::User, blocks }
    }

    /// Returns the tool calls in this message, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        calls(&self.blocks)
    }

    /// Returns the text blocks joined by blank lines.
    pub fn text(&self) -> String {
        text(&self.blocks)
    }

    /// Returns the size in bytes of all blocks as they are sent.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.raw().as_str().len()).sum()
    }
}

fn calls(blocks: &[Block]) -> impl Iterator<Item = &ToolCall> {
    blocks.iter().filter_map(|block| if let View::ToolCall(call) = block.view() { Some(call) } else { None })
}

fn text(blocks: &[Block]) -> String {
    let texts: Vec<&str> = blocks.iter().filter_map(|block| if let View::Text(text) = block.view() { Some(text.as_str()) } else { None }).collect();
    texts.join("\n\n")
}

/// A tool call, as the model made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique in its transcript.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// A JSON object. Where the model's arguments were not valid JSON: `{"INVALID_JSON": "<text>"}`.
    pub input: Value,
}

impl ToolCall {
    /// Returns the arguments that did not parse, where that is so; such a call is answered, never run.
    pub fn invalid_input(&self) -> Option<&str> {
        match self.input.as_object() {
            Some(object) if object.len() == 1 => object.get("INVALID_JSON").and_then(Value::as_str),
            _ => None,
        }
    }
}

/// The answer to one tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call that this answers.
    pub call: String,
    /// What the model is told, capped and never empty.
    pub text: String,
    /// Whether the call failed, was denied or was interrupted.
    pub is_error: bool,
}

impl ToolResult {
    /// Makes a result; empty text becomes `(no output)`.
    pub fn new(call: &str, text: impl Into<String>, is_error: bool) -> ToolResult {
        let text = text.into();
        let text = if text.trim().is_empty() { "(no output)".to_owned() } else { text };
        ToolResult { call: call.to_owned(), text, is_error }
    }
}

/// The tool by which a model gives an answer that must fit a schema, where its provider has no format for that. Claude Code's
/// name for it.
pub const SUBMIT: &str = "StructuredOutput";

/// A tool as it is declared to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Claude Code's name for it where there is one.
    pub name: String,
    /// What the model reads about it.
    pub description: String,
    /// A JSON Schema of type `object`.
    pub input_schema: Value,
}

impl ToolSpec {
    /// Makes the tool that takes an answer; `None` where the schema is not of an object, as that of a tool must be. What else is said of
    /// the whole object no provider takes there: it is left out, and held to by us.
    pub fn submit(schema: &Value) -> Option<ToolSpec> {
        let description = "Gives your final answer, in place of text. Call it once, by itself, when everything else is done.".to_owned();
        let mut input_schema = schema.clone();
        for word in ["anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const"] {
            input_schema.as_object_mut().map(|object| object.remove(word));
        }
        (schema["type"] == "object").then(|| ToolSpec { name: SUBMIT.to_owned(), description, input_schema })
    }
}

/// A tool that runs at the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderTool {
    /// Runs code, in a sandbox of the provider's.
    CodeExecution,
    /// Searches the web.
    WebSearch,
}

impl ProviderTool {
    /// Each by its name in a workflow.
    pub const NAMED: [(&str, ProviderTool); 2] = [("code_execution", ProviderTool::CodeExecution), ("web_search", ProviderTool::WebSearch)];

    /// Returns its name in a workflow.
    pub fn word(self) -> &'static str {
        match self {
            ProviderTool::CodeExecution => "code_execution",
            ProviderTool::WebSearch => "web_search",
        }
    }

    /// Returns the name by which rules written for Claude Code mean it.
    pub fn claude(self) -> &'static str {
        match self {
            ProviderTool::CodeExecution => "CodeExecution",
            ProviderTool::WebSearch => "WebSearch",
        }
    }
}
