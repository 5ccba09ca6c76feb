//! A model that answers from a script. It ships: workflows are tested with it, and `demo` runs on it.
//!
//! A script is stateless: which reply comes follows from the call alone (the agent, the first user message, the number of
//! replies so far, the last user message), so a resumed run gets the same replies. It can only repeat what it was shown:
//! the named groups of its patterns are filled into what it says.
mod load;
mod pattern;

use super::{Model, ModelCall, ModelError, ModelErrorKind, Sink, span};
use crate::message::{Block, Message, Reply, Role, StopReason, ToolCall, Usage, View};
use async_trait::async_trait;
use load::{Conversation, Line, Turn};
pub use load::{LoadScriptError, MAX_SCRIPT_BYTES};
use pattern::Groups;
use serde_json::Value;
use std::{fmt, sync::Arc};

/// What a script without `window` has, in tokens.
const WINDOW: u64 = 200_000;
/// What is quoted of the last message in an error, in characters.
const QUOTE: usize = 300;

/// A function that stands for a model.
pub type ReplyFn = dyn Fn(&ModelCall<'_>) -> Result<Reply, ModelError> + Send + Sync;

/// A scripted model. Cheap to clone.
#[derive(Clone)]
pub struct Script {
    source: Source,
    window: u64,
}

#[derive(Clone)]
enum Source {
    Conversations(Arc<[Conversation]>),
    Function(Arc<ReplyFn>),
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.source {
            Source::Conversations(conversations) => format!("{} conversations", conversations.len()),
            Source::Function(_) => "a function".to_owned(),
        };
        f.debug_struct("Script").field("source", &kind).field("window", &self.window).finish()
    }
}

impl Script {
    /// Reads a script from YAML; `name` is what its errors call it.
    ///
    /// # Errors
    /// Where it is not valid, with the place.
    pub fn parse(name: &str, yaml: &str) -> Result<Script, LoadScriptError> {
        let (conversations, window) = load::parse(name, yaml)?;
        Ok(Script { source: Source::Conversations(conversations.into()), window: window.unwrap_or(WINDOW) })
    }

    /// Makes a model of a function, for tests.
    pub fn from_fn(reply: Box<ReplyFn>) -> Script {
        Script { source: Source::Function(reply.into()), window: WINDOW }
    }

    fn answer(&self, call: &ModelCall<'_>) -> Result<Reply, ModelError> {
        let mut reply = match &self.source {
            Source::Function(function) => function(call)?,
            // What a script says costs nothing, and that is known.
            Source::Conversations(conversations) => Reply { usd: Some(0.0), ..from_script(conversations, call)? },
        };
        if reply.model.is_empty() {
            call.models.first().map_or("script/script", String::as_str).clone_into(&mut reply.model);
        }
        if reply.usage == Usage::default() {
            reply.usage = usage(call, &reply.blocks);
        }
        Ok(reply)
    }
}

#[async_trait]
impl Model for Script {
    async fn reply(&self, call: &ModelCall<'_>, sink: &dyn Sink) -> Result<Reply, ModelError> {
        span::whole(call.models.first().map_or("scripted/model", String::as_str), sink, async { self.answer(call) }).await
    }

    fn window(&self, _model: &str) -> u64 {
        self.window
    }

    fn is_scripted(&self) -> bool {
        true
    }
}

/// Makes a reply of a text and of calls by tool and input; model and usage are filled in when a script gives it. The calls' ids
/// are unique within the reply only: [`reply_to`] makes them unique in a conversation.
pub fn reply(text: &str, calls: &[(&str, Value)]) -> Reply {
    let blocks = blocks(text, tool_calls(0, calls.iter().map(|(name, input)| ((*name).to_owned(), input.clone()))));
    let stop = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    Reply { model: String::new(), blocks, stop, usage: Usage::default(), usd: None, usd_is_part: false, container: None }
}

/// Makes the reply to `call` as [`reply`] does, with ids that are unique in the conversation.
pub fn reply_to(call: &ModelCall<'_>, text: &str, calls: &[(&str, Value)]) -> Reply {
    let turn = turn_number(call.messages);
    Reply { blocks: blocks(text, tool_calls(turn, calls.iter().map(|(name, input)| ((*name).to_owned(), input.clone())))), ..reply(text, calls) }
}

fn tool_calls(turn: usize, calls: impl Iterator<Item = (String, Value)>) -> Vec<Block> {
    calls.enumerate().map(|(n, (name, input))| Block::tool_call(&ToolCall { id: format!("call_{turn}_{n}"), name, input })).collect()
}

fn blocks(text: &str, calls: Vec<Block>) -> Vec<Block> {
    let text = if text.is_empty() { None } else { Some(Block::text(text)) };
    text.into_iter().chain(calls).collect()
}

/// Returns how many replies a transcript holds; the first turn is 0.
fn turn_number(messages: &[Arc<Message>]) -> usize {
    messages.iter().filter(|message| message.role == Role::Assistant).count()
}

fn from_script(conversations: &[Conversation], call: &ModelCall<'_>) -> Result<Reply, ModelError> {
    let told = call.messages.iter().find(|message| message.role == Role::User).map(|message| message.text()).unwrap_or_default();
    let shown = call.messages.iter().rev().find(|message| message.role == Role::User).map(|message| shown(message)).unwrap_or_default();
    let number = turn_number(call.messages);
    let missing = |what: &str| {
        let quote = quote(&shown);
        ModelError::new(ModelErrorKind::Script, format!("the script has {what} for agent `{}`, turn {}; it was last told: {quote}", call.agent, number + 1))
    };
    let Some((conversation, mut groups)) =
        conversations.iter().find_map(|conversation| Some((conversation, conversation.hears(call.agent, (task(&told), &told))?)))
    else {
        return Err(missing("no conversation").hint("add a conversation whose `agent` and `told` fit"));
    };
    let turn = conversation.turns.get(number).ok_or_else(|| missing("no turn"))?;
    let (line, heard) = choose(turn, &shown).ok_or_else(|| missing("no alternative whose `when` is found"))?;
    groups.extend(heard);
    Ok(speak(line, number, &groups))
}

/// Returns the end of what was said, on one line, without the engine's words on the workspace.
fn quote(shown: &str) -> String {
    let said = task(shown);
    let line: Vec<char> = said.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect();
    let cut = line.len().saturating_sub(QUOTE);
    let end: String = line[cut..].iter().collect();
    if cut == 0 { end } else { format!("…{end}") }
}

/// Returns what is said in a message without the engine's words on skills and the workspace before it.
fn task(message: &str) -> &str {
    message.split_once("</workspace>").map_or(message, |(_, task)| task).trim_start()
}

/// Returns what a user message shows a model: its text and its tool results.
fn shown(message: &Message) -> String {
    let parts = message.blocks.iter().filter_map(|block| match block.view() {
        View::Text(text) => Some(text.as_str()),
        View::ToolResult(result) => Some(result.text.as_str()),
        View::Thinking(_) | View::ToolCall(_) | View::Other(_) => None,
    });
    parts.collect::<Vec<_>>().join("\n")
}

fn choose<'a>(turn: &'a Turn, shown: &str) -> Option<(&'a Line, Groups)> {
    turn.0.iter().find_map(|line| match &line.when {
        None => Some((line, Groups::new())),
        Some(when) => Some((line, when.find(shown)?)),
    })
}

fn speak(line: &Line, turn: usize, groups: &Groups) -> Reply {
    let text = pattern::fill(&line.say, groups);
    let calls = tool_calls(turn, line.calls.iter().map(|call| (call.tool.clone(), pattern::fill_value(&call.input, groups))));
    let stop = line.stop.clone().unwrap_or(if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse });
    Reply { model: String::new(), blocks: blocks(&text, calls), stop, usage: Usage::default(), usd: None, usd_is_part: false, container: None }
}

/// Counts a quarter of the bytes as tokens.
fn usage(call: &ModelCall<'_>, reply: &[Block]) -> Usage {
    let tools: usize = call.tools.iter().map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.to_string().len()).sum();
    let prompt = call.system.len() + tools + call.messages.iter().map(|message| message.bytes()).sum::<usize>();
    let said: usize = reply.iter().map(|block| block.raw().as_str().len()).sum();
    let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
    Usage { input: tokens(prompt), output: tokens(said), ..Usage::default() }
}

#[cfg(test)]
mod tests;
