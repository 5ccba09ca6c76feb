//! Gemini `generateContent`, streaming.
//!
//! Each part of a reply is one block. One that holds more than its text (a thought's signature, a call) keeps its bytes in the
//! field `part` and goes back in them, since a signature belongs to exactly that part.
mod decoder;

use super::{
    Decoder, ModelCall, ModelError, Provider, Target,
    capability::{Capabilities, Thinking},
    fields::{Fields, push_field, string},
    neutral::{kept, result_bytes, text_bytes},
    provider::{Turn, declared, effort, headers, longest, push_extra, turns},
    schema,
};
use crate::{
    http::HttpRequest,
    message::{Block, ProviderTool, Role, SUBMIT, ToolCall, ToolResult, ToolSpec, View},
};
use decoder::GeminiDecoder;
use serde_json::Value;

/// The field of a block that holds its part.
const PART: &str = "part";

/// The wire format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gemini;

impl Provider for Gemini {
    fn request(&self, call: &ModelCall<'_>, target: Target<'_>) -> Result<HttpRequest, ModelError> {
        let endpoint = target.endpoint;
        let model = target.model.strip_prefix("models/").unwrap_or(target.model);
        let url = format!("{}/models/{model}:streamGenerateContent?alt=sse", endpoint.base_url);
        Ok(HttpRequest { url, headers: headers(endpoint, &[], "x-goog-api-key"), body: body(call, target)?.into_bytes() })
    }

    fn own_words(&self) -> &'static [&'static str] {
        &["maxOutputTokens", "thinkingConfig", "responseMimeType", "responseJsonSchema"]
    }

    fn decoder(&self, call: &ModelCall<'_>, target: Target<'_>) -> Box<dyn Decoder> {
        Box::new(GeminiDecoder::new(call, target))
    }
}

/// Writes the body, the contents as far behind as can be: so one request begins with almost all bytes of the one before.
fn body(call: &ModelCall<'_>, target: Target<'_>) -> Result<String, ModelError> {
    let mut out = String::with_capacity(1024 + call.messages.iter().map(|message| message.bytes() + 64).sum::<usize>());
    out.push('{');
    let model = target.capabilities();
    let declared = declared(call, &model);
    let config = config(call, declared.format, (&model, target))?;
    let (forced, declared) = (declared.is_forced, declared.tools);
    let mut tools: Vec<String> = call.provider_tools.iter().map(|tool| at_the_provider(*tool).to_owned()).collect();
    if !declared.is_empty() {
        tools.push(format!(r#"{{"functionDeclarations":{}}}"#, declarations(&declared)));
    }
    if !tools.is_empty() {
        push_field(&mut out, "tools", &format!("[{}]", tools.join(",")));
    }
    if !call.system.trim().is_empty() {
        push_field(&mut out, "systemInstruction", &format!(r#"{{"parts":[{{"text":{}}}]}}"#, string(call.system)));
    }
    push_field(&mut out, "contents", &contents(&turns(call, &model, trim)));
    // Behind the contents, since the longest reply may be another in the middle of a conversation.
    push_field(&mut out, "generationConfig", &config);
    let mut choice = Fields::default();
    if forced {
        choice.set("functionCallingConfig", format!(r#"{{"mode":"ANY","allowedFunctionNames":["{SUBMIT}"]}}"#));
    }
    if !declared.is_empty() && !call.provider_tools.is_empty() {
        // Its tools and ours go together only where what its tools did is shown.
        choice.set("includeServerSideToolInvocations", "true".to_owned());
    }
    if choice != Fields::default() {
        push_field(&mut out, "toolConfig", &choice.write());
    }
    out.push('}');
    Ok(out)
}

fn config(call: &ModelCall<'_>, format: Option<Value>, (model, target): (&Capabilities, Target<'_>)) -> Result<String, ModelError> {
    let mut config = Fields::default();
    if let Some(tokens) = longest(call, model, target) {
        config.set("maxOutputTokens", tokens.min(model.max_output.max(1)).to_string());
    }
    let mut thinking = Fields::default();
    if model.thinking == Thinking::Summarized {
        thinking.set("includeThoughts", "true".to_owned());
    }
    if model.thinking == Thinking::Disabled {
        thinking.set("thinkingBudget", "0".to_owned());
    } else if let Some(word) = effort(call, model, target)? {
        thinking.set("thinkingLevel", string(&word.to_ascii_uppercase()));
    }
    if thinking != Fields::default() {
        config.set("thinkingConfig", thinking.write());
    }
    if let Some(schema) = format {
        config.set("responseMimeType", string("application/json"));
        config.set("responseJsonSchema", schema::plainer(&schema).to_string());
    }
    let mut config = config.write();
    config.truncate(config.len() - 1);
    push_extra(&mut config, model, target);
    config.push('}');
    Ok(config)
}

fn at_the_provider(tool: ProviderTool) -> &'static str {
    match tool {
        ProviderTool::CodeExecution => r#"{"codeExecution":{}}"#,
        ProviderTool::WebSearch => r#"{"googleSearch":{}}"#,
    }
}

fn declarations(tools: &[ToolSpec]) -> String {
    let declaration = |tool: &ToolSpec| {
        let mut out = format!(r#"{{"name":{}"#, string(&tool.name));
        push_field(&mut out, "description", &string(&tool.description));
        push_field(&mut out, "parametersJsonSchema", &schema::plainer(&tool.input_schema).to_string());
        out.push('}');
        out
    };
    format!("[{}]", tools.iter().map(declaration).collect::<Vec<_>>().join(","))
}

/// Leaves out what another protocol kept.
fn trim(blocks: &mut Vec<&Block>) {
    blocks.retain(|block| part(block).is_some());
}

fn contents(turns: &[Turn<'_>]) -> String {
    let mut all = Vec::new();
    let mut asked: &[&Block] = &[];
    for turn in turns {
        let (role, parts) = match turn.role {
            Role::User => ("user", user(turn, asked)),
            Role::Assistant => ("model", turn.blocks.iter().filter_map(|block| part(block)).collect()),
        };
        asked = &turn.blocks;
        if !parts.is_empty() {
            all.push(format!(r#"{{"role":"{role}","parts":[{}]}}"#, parts.join(",")));
        }
    }
    format!("[{}]", all.join(","))
}

/// Writes what the user's side says: the results first, each with the name of its call, then the text.
fn user(turn: &Turn<'_>, asked: &[&Block]) -> Vec<String> {
    let results = turn.blocks.iter().filter_map(|block| match block.view() {
        View::ToolResult(result) => Some(response(block, result, asked)),
        _ => None,
    });
    results.chain(turn.blocks.iter().filter(|block| matches!(block.view(), View::Text(_))).filter_map(|block| part(block))).collect()
}

fn response(block: &Block, result: &ToolResult, asked: &[&Block]) -> String {
    let call = asked.iter().find(|block| matches!(block.view(), View::ToolCall(call) if call.id == result.call));
    let name = call.and_then(|block| if let View::ToolCall(ToolCall { name, .. }) = block.view() { Some(name.as_str()) } else { None });
    // It is told apart by the id that the call came with, where it had one; ours stays here.
    let own = call.and_then(|block| kept(block, PART)).and_then(|part| Fields::parse(Fields::parse(&part).ok()?.get("functionCall")?).ok()?.text("id"));
    let mut out = String::from(r#"{"functionResponse":{"name":"#);
    out.push_str(&string(name.unwrap_or_default()));
    if let Some(id) = own {
        push_field(&mut out, "id", &string(&id));
    }
    let word = if result.is_error { "error" } else { "output" };
    push_field(&mut out, "response", &format!(r#"{{"{word}":{}}}"#, result_bytes(block)));
    out.push_str("}}");
    out
}

/// Returns the part of a block; `None` for what another protocol kept.
fn part(block: &Block) -> Option<String> {
    if let Some(part) = kept(block, PART) {
        return Some(part);
    }
    match block.view() {
        View::Text(_) => text_bytes(block, "text").map(|text| format!(r#"{{"text":{text}}}"#)),
        View::Thinking(_) => text_bytes(block, "thinking").map(|text| format!(r#"{{"text":{text},"thought":true}}"#)),
        View::ToolCall(call) => {
            let args = kept(block, "input").unwrap_or_else(|| "{}".to_owned());
            // The word that it takes where a call was never signed by it.
            let signature = r#","thoughtSignature":"skip_thought_signature_validator""#;
            Some(format!(r#"{{"functionCall":{{"name":{},"args":{args}}}{signature}}}"#, string(&call.name)))
        }
        View::ToolResult(_) | View::Other(_) => None,
    }
}
