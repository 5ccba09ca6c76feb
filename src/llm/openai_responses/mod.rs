//! OpenAI Responses, streaming and stateless: nothing is stored there, and every item it gave is sent back in its own bytes,
//! encrypted reasoning too.
//!
//! Each item of a reply is one block, which keeps the item in its field `item`.
mod decoder;

use super::{
    Decoder, ModelCall, ModelError, Provider, Target,
    capability::Thinking,
    fields::{Fields, push_field, push_string, string},
    neutral::{joined_text, kept, result_bytes, text_bytes},
    provider::{Turn, declared, effort, headers, longest, push_extra, turns},
    schema,
};
use crate::{
    event::BlobId,
    http::HttpRequest,
    message::{Block, ProviderTool, Role, SUBMIT, ToolSpec, View},
};
use decoder::ResponsesDecoder;
use serde_json::json;

/// The field of a block that holds its item.
const ITEM: &str = "item";
/// The shortest limit that it takes for a reply, in tokens.
const SHORTEST: u32 = 16;

/// The wire format.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenAiResponses;

impl Provider for OpenAiResponses {
    fn request(&self, call: &ModelCall<'_>, target: Target<'_>) -> Result<HttpRequest, ModelError> {
        let endpoint = target.endpoint;
        Ok(HttpRequest {
            url: format!("{}/responses", endpoint.base_url),
            headers: headers(endpoint, &[], "authorization"),
            body: body(call, target)?.into_bytes(),
        })
    }

    fn own_words(&self) -> &'static [&'static str] {
        &["model", "stream", "store", "include", "reasoning", "max_output_tokens", "text", "tools", "tool_choice", "instructions", "prompt_cache_key", "input"]
    }

    fn decoder(&self, call: &ModelCall<'_>, target: Target<'_>) -> Box<dyn Decoder> {
        Box::new(ResponsesDecoder::new(call, target))
    }
}

/// Writes the body, the items as far behind as can be: so one request begins with almost all bytes of the one before.
fn body(call: &ModelCall<'_>, target: Target<'_>) -> Result<String, ModelError> {
    let model = target.capabilities();
    let mut out = String::with_capacity(1024 + call.messages.iter().map(|message| message.bytes() + 64).sum::<usize>());
    out.push_str("{\"model\":");
    push_string(&mut out, target.model);
    push_field(&mut out, "stream", "true");
    push_field(&mut out, "store", "false");
    let (mut reasoning, mut include) = (serde_json::Map::new(), Vec::new());
    if let Some(word) = effort(call, &model, target)?.or((model.thinking == Thinking::Disabled).then_some("none")) {
        reasoning.insert("effort".to_owned(), json!(word));
    }
    if matches!(model.thinking, Thinking::Adaptive | Thinking::Summarized) {
        include.push("reasoning.encrypted_content");
    }
    if model.thinking == Thinking::Summarized {
        reasoning.insert("summary".to_owned(), json!("auto"));
    }
    if call.provider_tools.contains(&ProviderTool::CodeExecution) {
        // What the code printed comes with its item, and goes back in it: nothing is stored there.
        include.push("code_interpreter_call.outputs");
    }
    if !include.is_empty() {
        push_field(&mut out, "include", &json!(include).to_string());
    }
    if !reasoning.is_empty() {
        push_field(&mut out, "reasoning", &serde_json::Value::Object(reasoning).to_string());
    }
    push_extra(&mut out, &model, target);
    let declared = declared(call, &model);
    if let Some(schema) = declared.format {
        let strict = schema::is_strict(&schema);
        let format = json!({"format": {"type": "json_schema", "name": "answer", "strict": strict, "schema": schema}});
        push_field(&mut out, "text", &format.to_string());
    }
    if !declared.tools.is_empty() || !call.provider_tools.is_empty() {
        push_field(&mut out, "tools", &tools(&declared.tools, call.provider_tools));
    }
    if !call.system.trim().is_empty() {
        push_field(&mut out, "instructions", &string(call.system));
    }
    push_field(&mut out, "prompt_cache_key", &string(&cache_key(call)));
    push_field(&mut out, "input", &input(&turns(call, &model, trim)));
    // Behind the items, as all that is another in the middle of a conversation.
    if let Some(tokens) = longest(call, &model, target) {
        push_field(&mut out, "max_output_tokens", &tokens.min(model.max_output).max(SHORTEST).to_string());
    }
    if declared.is_forced {
        push_field(&mut out, "tool_choice", &format!(r#"{{"type":"function","name":"{SUBMIT}"}}"#));
    }
    out.push('}');
    Ok(out)
}

/// Names what all sessions of one agent begin with, so that they are sent where it is cached.
fn cache_key(call: &ModelCall<'_>) -> String {
    let tools = call.tools.iter().map(|tool| format!("{}\n{}\n{}\n", tool.name, tool.description, tool.input_schema));
    let whole = format!("{}\n{}{}", call.system, call.provider_tools.iter().map(|tool| tool.word()).collect::<String>(), tools.collect::<String>());
    format!("spinney-{}", &BlobId::of(whole.as_bytes()).0[..24])
}

fn tools(tools: &[ToolSpec], provider_tools: &[ProviderTool]) -> String {
    let at_the_provider = provider_tools.iter().map(|tool| match tool {
        ProviderTool::CodeExecution => r#"{"type":"code_interpreter","container":{"type":"auto"}}"#.to_owned(),
        ProviderTool::WebSearch => r#"{"type":"web_search"}"#.to_owned(),
    });
    let ours = tools.iter().map(|tool| {
        let mut out = format!(r#"{{"type":"function","name":{}"#, string(&tool.name));
        push_field(&mut out, "description", &string(&tool.description));
        push_field(&mut out, "parameters", &tool.input_schema.to_string());
        // Strict schemas must require every property, which ours do not.
        push_field(&mut out, "strict", "false");
        out.push('}');
        out
    });
    format!("[{}]", at_the_provider.chain(ours).collect::<Vec<_>>().join(","))
}

/// Leaves out reasoning that led to nothing, which is refused, and what could not be sent.
fn trim(blocks: &mut Vec<&Block>) {
    blocks.retain(|block| item(block).is_some());
    // What it said on its way is a message, and stays.
    let is_message = |block: &Block| item(block).and_then(|item| Fields::parse(&item).ok()?.text("type")).is_some_and(|kind| kind == "message");
    while blocks.last().is_some_and(|block| matches!(block.view(), View::Thinking(_)) && !is_message(block)) {
        blocks.pop();
    }
}

fn input(turns: &[Turn<'_>]) -> String {
    let mut all = Vec::new();
    for turn in turns {
        match turn.role {
            Role::User => user(turn, &mut all),
            Role::Assistant => assistant(turn, &mut all),
        }
    }
    format!("[{}]", all.join(","))
}

fn user(turn: &Turn<'_>, all: &mut Vec<String>) {
    for block in &turn.blocks {
        if let View::ToolResult(result) = block.view() {
            all.push(format!(r#"{{"type":"function_call_output","call_id":{},"output":{}}}"#, string(&result.call), result_bytes(block)));
        }
    }
    if let Some(text) = joined_text(&turn.blocks) {
        all.push(format!(r#"{{"role":"user","content":[{{"type":"input_text","text":{text}}}]}}"#));
    }
}

fn assistant(turn: &Turn<'_>, all: &mut Vec<String>) {
    all.extend(turn.blocks.iter().filter_map(|block| item(block)));
}

/// Returns the item of a block of the model's; `None` for what could not be sent.
fn item(block: &Block) -> Option<String> {
    if let Some(item) = kept(block, ITEM) {
        return is_whole(&item).then_some(item);
    }
    match block.view() {
        View::Text(_) => text_bytes(block, "text").map(|text| format!(r#"{{"type":"message","role":"assistant","content":{text}}}"#)),
        View::ToolCall(call) => {
            let arguments = string(&kept(block, "input").unwrap_or_else(|| "{}".to_owned()));
            Some(format!(r#"{{"type":"function_call","call_id":{},"name":{},"arguments":{arguments}}}"#, string(&call.id), string(&call.name)))
        }
        View::Thinking(_) | View::ToolResult(_) | View::Other(_) => None,
    }
}

/// Returns whether an item holds all that it stands for: reasoning without its encrypted content would be looked up where
/// nothing was stored.
fn is_whole(item: &str) -> bool {
    Fields::parse(item).is_ok_and(|fields| fields.text("type").is_none_or(|kind| kind != "reasoning") || fields.text("encrypted_content").is_some())
}
