//! Anthropic Messages, streaming. The bytes of history are joined, never written again.
//!
//! Marks say up to where the cache is kept: behind the tools, behind the system text, and two within the conversation. Anthropic itself
//! sets the last of them by one field of the request (Bedrock and Vertex refuse that: `UKGovernmentBEIS/inspect_ai#3851`), and then the
//! other one stays where it is as long as the cache is found from the end, so that the bytes of a request are those of the one before.
//! Elsewhere both stand on the last two turns of the user's and move on with them.
mod decoder;

use super::{
    Decoder, ModelCall, ModelError, Provider, Target,
    capability::{Capabilities, Thinking},
    counts,
    fields::{Fields, push_field, push_string, string},
    neutral::kept,
    provider::{Turn, declared, effort, headers, left, longest, push_extra, turns},
};
use crate::{
    http::HttpRequest,
    message::{Block, ProviderTool, Role, SUBMIT, ToolSpec, View},
};
use decoder::MessagesDecoder;
use serde_json::{Value, json};

/// The version of the API that is asked for, unless the endpoint's headers name another.
pub(super) const VERSION: &str = "2026-10-21";
const CACHE_MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;
/// From a mark on the provider looks back for what it has cached over so many blocks.
const LOOK_BACK: usize = 20;

/// The wire format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anthropic;

impl Provider for Anthropic {
    fn request(&self, call: &ModelCall<'_>, target: Target<'_>) -> Result<HttpRequest, ModelError> {
        let endpoint = target.endpoint;
        let base = endpoint.base_url.strip_suffix("/v1").unwrap_or(&endpoint.base_url);
        Ok(HttpRequest {
            url: format!("{base}/v1/messages"),
            headers: headers(endpoint, &[("anthropic-version", VERSION)], "x-api-key"),
            body: body(call, target)?.into_bytes(),
        })
    }

    fn own_words(&self) -> &'static [&'static str] {
        &["model", "max_tokens", "stream", "cache_control", "thinking", "output_config", "tools", "tool_choice", "system", "messages", "container"]
    }

    fn decoder(&self, call: &ModelCall<'_>, target: Target<'_>) -> Box<dyn Decoder> {
        Box::new(MessagesDecoder::new(call, target))
    }
}

/// Writes the body, what changes from turn to turn last: so one request begins with almost all bytes of the one before.
fn body(call: &ModelCall<'_>, target: Target<'_>) -> Result<String, ModelError> {
    let model = target.capabilities();
    let max_tokens = longest(call, &model, target).unwrap_or_else(|| left(call, target)).min(model.max_output).max(1);
    let mut out = String::with_capacity(1024 + call.messages.iter().map(|message| message.bytes() + 64).sum::<usize>());
    out.push_str("{\"model\":");
    push_string(&mut out, target.model);
    push_field(&mut out, "stream", "true");
    let is_anthropic = target.endpoint.is_at_own_address();
    if is_anthropic {
        out.push_str(CACHE_MARK);
    }
    match model.thinking {
        Thinking::Unsaid => {}
        Thinking::Adaptive => push_field(&mut out, "thinking", r#"{"type":"adaptive"}"#),
        Thinking::Summarized => push_field(&mut out, "thinking", r#"{"type":"adaptive","display":"summarized"}"#),
        Thinking::Disabled => push_field(&mut out, "thinking", r#"{"type":"disabled"}"#),
    }
    let declared = declared(call, &model);
    if let Some(config) = output_config(effort(call, &model, target)?, declared.format) {
        push_field(&mut out, "output_config", &config);
    }
    push_extra(&mut out, &model, target);
    let mut prefix = Prefix::new(&model);
    if !declared.tools.is_empty() || !call.provider_tools.is_empty() {
        push_field(&mut out, "tools", &tools(&declared.tools, call.provider_tools, &mut prefix));
    }
    if !call.system.trim().is_empty() {
        let text = string(call.system);
        let mark = if prefix.is_cached_with(text.len()) { CACHE_MARK } else { "" };
        push_field(&mut out, "system", &format!(r#"[{{"type":"text","text":{text}{mark}}}]"#));
    }
    let turns = turns(call, &model, trim);
    let marked = if is_anthropic { stable(&turns).into_iter().collect() } else { newest(&turns) };
    push_field(&mut out, "messages", &messages(&turns, &marked, &mut prefix));
    // Behind the messages, as all that is another in the middle of a conversation.
    push_field(&mut out, "max_tokens", &max_tokens.to_string());
    if let Some(container) = call.container {
        push_field(&mut out, "container", &string(container));
    }
    // A model that thinks is not forced: with thinking only a choice of its own is taken.
    if declared.is_forced && matches!(model.thinking, Thinking::Unsaid | Thinking::Disabled) {
        push_field(&mut out, "tool_choice", &format!(r#"{{"type":"tool","name":"{SUBMIT}"}}"#));
    }
    out.push('}');
    Ok(out)
}

fn output_config(effort: Option<&str>, format: Option<Value>) -> Option<String> {
    let mut config = serde_json::Map::new();
    if let Some(word) = effort {
        config.insert("effort".to_owned(), json!(word));
    }
    if let Some(schema) = format {
        config.insert("format".to_owned(), json!({"type": "json_schema", "schema": schema}));
    }
    (!config.is_empty()).then(|| Value::Object(config).to_string())
}

/// What stands before a place in the prompt: only what is long enough is cached, and so worth a mark.
struct Prefix {
    bytes: usize,
    minimum: u64,
}

impl Prefix {
    fn new(model: &Capabilities) -> Prefix {
        Prefix { bytes: 0, minimum: model.cache_minimum.into() }
    }

    /// Passes so many bytes, and returns whether what is behind is cached.
    fn is_cached_with(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        counts::tokens(self.bytes) >= self.minimum
    }
}

fn tools(tools: &[ToolSpec], provider_tools: &[ProviderTool], prefix: &mut Prefix) -> String {
    let at_the_provider = provider_tools.iter().map(|tool| {
        let version = match tool {
            ProviderTool::CodeExecution => "20250825",
            ProviderTool::WebSearch => "20250305",
        };
        format!(r#"{{"type":"{0}_{version}","name":"{0}""#, tool.word())
    });
    let ours = tools.iter().map(|tool| {
        let mut out = format!(r#"{{"name":{}"#, string(&tool.name));
        push_field(&mut out, "description", &string(&tool.description));
        push_field(&mut out, "input_schema", &tool.input_schema.to_string());
        out
    });
    let all = at_the_provider.chain(ours).collect::<Vec<_>>().join("},");
    // The last one bears the mark.
    let mark = if prefix.is_cached_with(all.len()) { CACHE_MARK } else { "" };
    format!("[{all}{mark}}}]")
}

/// Leaves out what is refused: thinking that was cut before it was signed, thinking that ends a message, where nothing came of it, and
/// what a tool at the provider was asked by a reply that was cut before it ran. (Where one of ours was called too, it runs later.)
fn trim(blocks: &mut Vec<&Block>) {
    let is_unsigned = |block: &Block| kept(block, "signature").is_none_or(|signature| signature.len() <= 2);
    blocks.retain(|block| !(matches!(block.view(), View::Thinking(_)) && is_unsigned(block)));
    if !blocks.iter().any(|block| matches!(block.view(), View::ToolCall(_))) {
        let unanswered = unanswered(blocks);
        blocks.retain(|block| !is_asked_there(block) || told(block, "id").is_none_or(|id| !unanswered.contains(&id)));
    }
    while blocks.last().is_some_and(|block| is_thinking(block)) {
        blocks.pop();
    }
}

fn is_thinking(block: &Block) -> bool {
    match block.view() {
        View::Thinking(_) => true,
        View::Other(kind) => kind == "redacted_thinking",
        View::Text(_) | View::ToolCall(_) | View::ToolResult(_) => false,
    }
}

/// Returns the last two turns of the user's. With the ends of tools and system they make the four marks that are allowed.
fn newest(turns: &[Turn<'_>]) -> Vec<usize> {
    turns.iter().enumerate().rev().filter(|(_, turn)| turn.role == Role::User).map(|(n, _)| n).take(2).collect()
}

/// Returns the turn of the user's from which on the cache is found from the end, whatever stands between: the first one, or the last
/// behind which one reply and its results have more blocks than are looked back over. `None` while it is the last of all.
fn stable(turns: &[Turn<'_>]) -> Option<usize> {
    let (mut stable, mut before, mut blocks) = (None, None, 0);
    for (n, turn) in turns.iter().enumerate() {
        blocks += turn.blocks.len();
        if turn.role == Role::User {
            stable = stable.filter(|_| blocks < LOOK_BACK).or(before);
            (before, blocks) = (Some(n), 0);
        }
    }
    stable
}

fn messages(turns: &[Turn<'_>], marked: &[usize], prefix: &mut Prefix) -> String {
    let mut out = String::from("[");
    for (n, turn) in turns.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        out.push_str(match turn.role {
            Role::User => r#"{"role":"user","content":["#,
            Role::Assistant => r#"{"role":"assistant","content":["#,
        });
        if let Some(results) = turn
            .role
            .eq(&Role::User)
            .then(|| n.checked_sub(1))
            .flatten()
            .filter(|before| !unanswered(&turns[*before].blocks).is_empty())
            .and_then(|_| only_results(turn))
        {
            prefix.bytes += results.len();
            out.push_str(&results);
            out.push_str("]}");
            continue;
        }
        let is_cached = prefix.is_cached_with(turn.blocks.iter().map(|block| block.raw().as_str().len()).sum());
        let mark = if is_cached && marked.contains(&n) { turn.blocks.iter().rposition(|block| is_markable(block)) } else { None };
        for (at, block) in turn.blocks.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            let raw = block.raw().as_str();
            match raw.strip_suffix('}') {
                Some(open) if mark == Some(at) => {
                    out.push_str(open);
                    out.push_str(CACHE_MARK);
                    out.push('}');
                }
                _ => out.push_str(raw),
            }
        }
        out.push_str("]}");
    }
    out.push(']');
    out
}

/// Returns what of the tools that run at the provider has no result in the same turn, by id. Where one of ours was called too, it waits
/// for that.
fn unanswered(blocks: &[&Block]) -> Vec<String> {
    let mut asked: Vec<String> = blocks.iter().filter(|block| is_asked_there(block)).filter_map(|block| told(block, "id")).collect();
    if !asked.is_empty() {
        let answered: Vec<String> = blocks.iter().filter_map(|block| told(block, "tool_use_id")).collect();
        asked.retain(|id| !answered.contains(id));
    }
    asked
}

/// Returns whether a block asks a tool at the provider.
fn is_asked_there(block: &Block) -> bool {
    matches!(block.view(), View::Other(kind) if matches!(kind.as_str(), "server_tool_use" | "mcp_tool_use"))
}

fn told(block: &Block, key: &str) -> Option<String> {
    Fields::parse(block.raw().as_str()).ok()?.text(key)
}

/// Writes a turn as nothing but results, as it must be where a provider's tool waits for them: what else is said stands in the last.
/// `None` where nothing else is said.
fn only_results(turn: &Turn<'_>) -> Option<String> {
    let (results, others): (Vec<&Block>, Vec<&Block>) = turn.blocks.iter().partition(|block| matches!(block.view(), View::ToolResult(_)));
    let (last, before) = results.split_last().filter(|_| !others.is_empty())?;
    let mut fields = Fields::parse(last.raw().as_str()).ok()?;
    let own = match fields.get("content")? {
        "\"\"" => None,
        text if text.starts_with('"') => Some(format!(r#"{{"type":"text","text":{text}}}"#)),
        list => Some(list.trim_start_matches('[').trim_end_matches(']').to_owned()),
    };
    let parts: Vec<String> = own.into_iter().filter(|own| !own.is_empty()).chain(others.iter().map(|block| block.raw().as_str().to_owned())).collect();
    fields.set("content", format!("[{}]", parts.join(",")));
    Some(before.iter().map(|block| block.raw().as_str().to_owned()).chain([fields.write()]).collect::<Vec<_>>().join(","))
}

/// Returns whether a cache mark may be added: not to thinking, and not where there is one.
fn is_markable(block: &Block) -> bool {
    matches!(block.view(), View::Text(_) | View::ToolResult(_)) && Fields::parse(block.raw().as_str()).is_ok_and(|fields| fields.get("cache_control").is_none())
}
