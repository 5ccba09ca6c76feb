//! The protocol as text: lines of JSON-RPC, what a server's own requests are answered, and what a tool's result says. No I/O.
use super::Offer;
use crate::message::ToolSpec;
use serde_json::{Value, json};
use std::path::Path;

/// The request that begins a conversation.
pub(super) const HELLO: &str = "initialize";
/// What is asked for first; servers may answer with an older one.
pub(super) const VERSION: &str = "2025-11-25";
/// The versions whose words are known.
const VERSIONS: &[&str] = &[VERSION, "2025-06-18", "2025-03-26", "2024-11-05"];
/// The longest name of a tool that providers take.
const NAME_MAX: usize = 64;
/// JSON-RPC's code for a request that nobody here answers.
const NO_METHOD: i64 = -32601;

/// One message of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    /// It answers a request of ours.
    Answer(u64, Result<Value, Refusal>),
    /// It asks for something; the whole line that it is answered.
    Asks(Value),
    /// Its tools are others than before.
    ToolsChanged,
    /// Something that needs nothing of us.
    Other,
}

/// An error that a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: i64,
    pub(super) message: String,
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(super) fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

pub(super) fn hello() -> Value {
    json!({
        "protocolVersion": VERSION,
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "spinney", "version": env!("CARGO_PKG_VERSION")},
    })
}

/// Reads one line; nothing where it is no message. `root` is the one folder that a server is told of.
pub(super) fn read(line: &[u8], root: &Path) -> Option<Said> {
    let message: Value = serde_json::from_slice(line).ok().filter(Value::is_object)?;
    let method = message["method"].as_str();
    Some(match (method, message.get("id")) {
        (Some(method), Some(id)) => Said::Asks(reply(method, id, root)),
        (Some("notifications/tools/list_changed"), None) => Said::ToolsChanged,
        (Some(_), None) => Said::Other,
        (None, id) => match id.and_then(Value::as_u64) {
            Some(id) => Said::Answer(id, outcome(&message)),
            None => Said::Other,
        },
    })
}

fn outcome(message: &Value) -> Result<Value, Refusal> {
    match message.get("error") {
        None => Ok(message["result"].clone()),
        Some(error) => Err(Refusal { code: error["code"].as_i64().unwrap_or_default(), message: error["message"].as_str().unwrap_or("no reason").to_owned() }),
    }
}

fn reply(method: &str, id: &Value, root: &Path) -> Value {
    let result = match method {
        "ping" => json!({}),
        "roots/list" => json!({"roots": [{"uri": format!("file://{}", root.display()), "name": "worktree"}]}),
        // Nobody is there to fill in a form.
        "elicitation/create" => json!({"action": "decline"}),
        _ => {
            let error = json!({"code": NO_METHOD, "message": format!("`{method}` is not offered here")});
            return json!({"jsonrpc": "2.0", "id": id, "error": error});
        }
    };
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// Judges how a server answers the first request: the version that it speaks where that is unknown here, for messages.
pub(super) fn check_hello(answer: &Value) -> Result<(), String> {
    let version = answer["protocolVersion"].as_str().unwrap_or("none");
    if VERSIONS.contains(&version) { Ok(()) } else { Err(format!("it speaks the version `{version}` of the protocol; known are {}", VERSIONS.join(", "))) }
}

/// Reads one page of tools, and where the next begins; those with names that no provider takes are left out.
pub(super) fn page(server: &str, answer: &Value) -> (Vec<Offer>, Option<String>) {
    let tools = answer["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let offers = tools.iter().filter_map(|tool| offer(server, tool)).collect();
    (offers, answer["nextCursor"].as_str().map(str::to_owned))
}

fn offer(server: &str, tool: &Value) -> Option<Offer> {
    let own = tool["name"].as_str()?;
    let name = format!("mcp__{server}__{own}");
    if name.len() > NAME_MAX || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) {
        return None;
    }
    let description = tool["description"].as_str().or(tool["title"].as_str()).unwrap_or_default().to_owned();
    let input_schema = Some(&tool["inputSchema"]).filter(|schema| schema.is_object()).cloned().unwrap_or_else(|| json!({"type": "object"}));
    let only_reads = tool["annotations"]["readOnlyHint"].as_bool().unwrap_or_default();
    Some(Offer { spec: ToolSpec { name, description, input_schema }, own: own.to_owned(), only_reads })
}

/// Writes the result of a call as text, and says whether it is an error. What is no text is named with its kind and size; structured
/// content stands for itself where there is no text.
pub(super) fn result(answer: &Value) -> (String, bool) {
    let blocks = answer["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut texts: Vec<String> = blocks.iter().map(block).collect();
    if texts.is_empty() && !answer["structuredContent"].is_null() {
        texts.push(answer["structuredContent"].to_string());
    }
    (texts.join("\n"), answer["isError"].as_bool().unwrap_or_default())
}

fn block(block: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let size = |value: &Value| value.as_str().map_or(0, str::len) / 4 * 3;
    match block["type"].as_str() {
        Some("text") => word(&block["text"]),
        Some(kind @ ("image" | "audio")) => format!("[{kind}: {}, about {} bytes, not shown]", word(&block["mimeType"]), size(&block["data"])),
        Some("resource") => {
            let resource = &block["resource"];
            let content = resource["text"].as_str().map_or_else(|| format!("[about {} bytes, not shown]", size(&resource["blob"])), str::to_owned);
            format!("[{}]\n{content}", word(&resource["uri"]))
        }
        Some("resource_link") => format!("[{}: {}]", word(&block["name"]), word(&block["uri"])),
        _ => block.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &Value) -> Option<Said> {
        read(line.to_string().as_bytes(), Path::new("/work tree"))
    }

    #[test]
    fn what_a_server_asks_is_answered_by_its_kind() {
        let answer = |method: &str| match said(&json!({"jsonrpc": "2.0", "id": "a", "method": method})) {
            Some(Said::Asks(answer)) => answer,
            other => panic!("{other:?}"),
        };
        assert_eq!(answer("ping")["result"], json!({}));
        assert_eq!(answer("roots/list")["result"]["roots"][0]["uri"], "file:///work tree");
        assert_eq!(answer("elicitation/create")["result"]["action"], "decline");
        let refused = answer("sampling/createMessage");
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("a"), &json!(NO_METHOD)));
    }

    #[test]
    fn messages_are_told_apart_and_noise_is_none() {
        assert_eq!(said(&json!({"id": 3, "result": {"a": 1}})), Some(Said::Answer(3, Ok(json!({"a": 1})))));
        let refusal = Refusal { code: -32602, message: "no such tool".to_owned() };
        assert_eq!(said(&json!({"id": 3, "error": {"code": -32602, "message": "no such tool"}})), Some(Said::Answer(3, Err(refusal))));
        assert_eq!(said(&json!({"method": "notifications/tools/list_changed"})), Some(Said::ToolsChanged));
        assert_eq!(said(&json!({"method": "notifications/message"})), Some(Said::Other));
        assert_eq!((read(b"listening on stdio", Path::new("/")), read(b"[1]", Path::new("/"))), (None, None));
    }

    #[test]
    fn tools_get_the_name_of_their_server_and_those_that_nobody_takes_are_left_out() {
        let tools = json!([
            {"name": "look", "description": "Looks.", "inputSchema": {"type": "object", "required": ["a"]}, "annotations": {"readOnlyHint": true}},
            {"name": "no schema"},
            {"name": "do", "title": "Does"},
            {"name": "x".repeat(60)},
        ]);
        let (offers, next) = page("db", &json!({"tools": tools, "nextCursor": "2"}));
        let names: Vec<(&str, bool)> = offers.iter().map(|offer| (offer.spec.name.as_str(), offer.only_reads)).collect();
        assert_eq!((names, next.as_deref()), (vec![("mcp__db__look", true), ("mcp__db__do", false)], Some("2")));
        assert_eq!(offers[1].spec.input_schema, json!({"type": "object"}));
    }

    #[test]
    fn results_of_every_kind_become_text() {
        let content = json!([
            {"type": "text", "text": "one"},
            {"type": "image", "mimeType": "image/png", "data": "AAAAAAAA"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "two"}},
            {"type": "resource_link", "name": "b", "uri": "file:///b"},
        ]);
        let (text, is_error) = result(&json!({"content": content, "isError": true}));
        assert_eq!(text, "one\n[image: image/png, about 6 bytes, not shown]\n[file:///a]\ntwo\n[b: file:///b]");
        assert!(is_error);
        assert_eq!(result(&json!({"content": [], "structuredContent": {"n": 1}})), ("{\"n\":1}".to_owned(), false));
    }
}
