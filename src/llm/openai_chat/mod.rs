//! OpenAI Chat Completions, streaming, as OpenAI and the many servers that speak like it have it.
//!
//! The neutral blocks of the transcript are turned into this protocol's messages by joining the bytes of their fields. A
//! call keeps the model's own argument text in its field `arguments`, and the text it thought in is kept as thinking.
mod calls;
mod decoder;

use super::{
    Decoder, ModelCall, ModelError, ModelErrorKind, Provider, Target,
    capability::Thinking,
    fields::{Fields, push_field, push_string, string},
    neutral::{joined_text, kept, result_bytes, text_bytes},
    provider::{Turn, declared, effort, headers, longest, push_extra, turns},
    schema,
};
use crate::{
    http::HttpRequest,
    message::{Block, Role, SUBMIT, ToolSpec, View},
};
use decoder::ChatDecoder;
use serde_json::json;

/// The field of thinking, and of a message, that holds reasoning as `OpenRouter` gives it and wants it back.
const DETAILS: &str = "reasoning_details";

/// The wire format.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenAiChat;

impl Provider for OpenAiChat {
    fn request(&self, call: &ModelCall<'_>, target: Target<'_>) -> Result<HttpRequest, ModelError> {
        let endpoint = target.endpoint;
        Ok(HttpRequest {
            url: format!("{}/chat/completions", endpoint.base_url),
            headers: headers(endpoint, &[], "authorization"),
            body: body(call, target)?.into_bytes(),
        })
    }

    fn own_words(&self) -> &'static [&'static str] {
        &["model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "reasoning_effort", "response_format", "tools", "tool_choice", "messages"]
    }

    fn decoder(&self, call: &ModelCall<'_>, target: Target<'_>) -> Box<dyn Decoder> {
        Box::new(ChatDecoder::new(call, target))
    }
}

/// Writes the body, the messages as far behind as can be: so one request begins with almost all bytes of the one before.
fn body(call: &ModelCall<'_>, target: Target<'_>) -> Result<String, ModelError> {
    let model = target.capabilities();
    if let Some(tool) = call.provider_tools.first() {
        let message = format!("{}: this protocol has no tools that run at the provider, and the agent has `{}`", target.label(), tool.word());
        return Err(ModelError::new(ModelErrorKind::Rejected, message).hint("take it out of `provider_tools`, or name a model of another protocol"));
    }
    let mut out = String::with_capacity(1024 + call.messages.iter().map(|message| message.bytes() + 64).sum::<usize>());
    out.push_str("{\"model\":");
    push_string(&mut out, target.model);
    push_field(&mut out, "stream", "true");
    push_field(&mut out, "stream_options", r#"{"include_usage":true}"#);
    if let Some(word) = effort(call, &model, target)?.or((model.thinking == Thinking::Disabled).then_some("none")) {
        push_field(&mut out, "reasoning_effort", &string(word));
    }
    push_extra(&mut out, &model, target);
    let declared = declared(call, &model);
    if let Some(schema) = declared.format {
        let strict = schema::is_strict(&schema);
        let format = json!({"type": "json_schema", "json_schema": {"name": "answer", "strict": strict, "schema": schema}});
        push_field(&mut out, "response_format", &format.to_string());
    }
    if !declared.tools.is_empty() {
        push_field(&mut out, "tools", &tools(&declared.tools));
    }
    push_field(&mut out, "messages", &messages(call.system, &turns(call, &model, trim), model.wants_reasoning_back));
    // Behind the messages, as all that is another in the middle of a conversation.
    if let Some(tokens) = longest(call, &model, target) {
        push_field(&mut out, if model.counts_reasoning { "max_completion_tokens" } else { "max_tokens" }, &tokens.to_string());
    }
    if declared.is_forced {
        push_field(&mut out, "tool_choice", &format!(r#"{{"type":"function","function":{{"name":"{SUBMIT}"}}}}"#));
    }
    out.push('}');
    Ok(out)
}

/// Leaves out a turn that only thought: a message without content and calls is refused.
fn trim(blocks: &mut Vec<&Block>) {
    let says = |block: &&Block| matches!(block.view(), View::Text(_) | View::ToolCall(_)) || kept(block, DETAILS).is_some();
    if !blocks.iter().any(says) {
        blocks.clear();
    }
}

fn tools(tools: &[ToolSpec]) -> String {
    let mut out = String::from("[");
    for (n, tool) in tools.iter().enumerate() {
        out.push_str(if n == 0 { "" } else { "," });
        out.push_str(r#"{"type":"function","function":{"name":"#);
        push_string(&mut out, &tool.name);
        push_field(&mut out, "description", &string(&tool.description));
        push_field(&mut out, "parameters", &tool.input_schema.to_string());
        out.push_str("}}");
    }
    out.push(']');
    out
}

fn messages(system: &str, turns: &[Turn<'_>], reasoning_back: bool) -> String {
    let mut all = Vec::new();
    if !system.trim().is_empty() {
        all.push(format!(r#"{{"role":"system","content":{}}}"#, string(system)));
    }
    for turn in turns {
        match turn.role {
            Role::User => user(turn, &mut all),
            Role::Assistant => all.push(assistant(turn, reasoning_back)),
        }
    }
    format!("[{}]", all.join(","))
}

/// Writes what the user's side says: each result its own message, directly after the calls, then the text.
fn user(turn: &Turn<'_>, all: &mut Vec<String>) {
    for block in &turn.blocks {
        if let View::ToolResult(result) = block.view() {
            let content = result_bytes(block);
            all.push(format!(r#"{{"role":"tool","tool_call_id":{},"content":{content}}}"#, string(&result.call)));
        }
    }
    if let Some(text) = joined_text(&turn.blocks) {
        all.push(format!(r#"{{"role":"user","content":{text}}}"#));
    }
}

fn assistant(turn: &Turn<'_>, reasoning_back: bool) -> String {
    let calls: Vec<String> = turn.blocks.iter().filter_map(|block| tool_call(block)).collect();
    let text = joined_text(&turn.blocks);
    let content = text.unwrap_or_else(|| if calls.is_empty() { "\"\"".to_owned() } else { "null".to_owned() });
    let mut out = format!(r#"{{"role":"assistant","content":{content}"#);
    if let Some(details) = turn.blocks.iter().find_map(|block| kept(block, DETAILS)) {
        push_field(&mut out, DETAILS, &details);
    }
    if !calls.is_empty() {
        let thought = turn.blocks.iter().find(|block| matches!(block.view(), View::Thinking(_))).and_then(|block| text_bytes(block, "thinking"));
        if let Some(thought) = thought.filter(|_| reasoning_back) {
            push_field(&mut out, "reasoning_content", &thought);
        }
        push_field(&mut out, "tool_calls", &format!("[{}]", calls.join(",")));
    }
    out.push('}');
    out
}

fn tool_call(block: &Block) -> Option<String> {
    let View::ToolCall(call) = block.view() else { return None };
    let fields = Fields::parse(block.raw().as_str()).unwrap_or_default();
    let arguments = fields.get("arguments").filter(|raw| raw.starts_with('"')).map(str::to_owned);
    let arguments = arguments.unwrap_or_else(|| string(fields.get("input").unwrap_or("{}")));
    Some(format!(r#"{{"id":{},"type":"function","function":{{"name":{},"arguments":{arguments}}}}}"#, string(&call.id), string(&call.name)))
}
