//! Blocks in the neutral form, made of what other protocols say, and read again for a request.
//!
//! A block that must go back in the bytes of its protocol keeps them in one more field ([`kept`]), beside what they mean.
use super::{
    fields::{Fields, push_field, string},
    surrogate::repair,
};
use crate::message::{Block, Raw, View};
use serde_json::{Value, json};

/// The bytes of a protocol's own, beside the neutral form: the name of their field, and the JSON.
pub(super) type Own<'a> = Option<(&'a str, &'a str)>;

/// Reads the arguments of a call: the bytes of the object that they are, and whether they are one. Where not, they stand as
/// text, to be answered and not run.
pub(super) fn input(arguments: &str) -> (String, bool) {
    let given = repair(arguments.trim());
    let text = if given.is_empty() || given == "null" { "{}" } else { &given };
    // One level is left for the block around it.
    let is_object = serde_json::from_str::<Value>(&format!("[{text}]")).is_ok_and(|value| value[0].is_object());
    match Raw::parse(text) {
        Ok(raw) if is_object => (raw.as_str().to_owned(), true),
        _ => (json!({"INVALID_JSON": given}).to_string(), false),
    }
}

/// Makes the block of a call; `input` is JSON.
pub(super) fn call(id: &str, name: &str, input: &str, own: Own<'_>) -> Block {
    let head = format!(r#"{{"type":"tool_use","id":{},"name":{},"input":"#, string(id), string(name));
    let block = close(&mut format!("{head}{input}"), own);
    if matches!(block.view(), View::ToolCall(_)) {
        return block;
    }
    // What is nested as deeply as the parser goes fits alone, but not within the block.
    close(&mut format!("{head}{}", json!({"INVALID_JSON": input})), None)
}

/// Makes a block of text.
pub(super) fn text(text: &str, own: Own<'_>) -> Block {
    let mut out = format!(r#"{{"type":"text","text":{}"#, string(text));
    close(&mut out, own)
}

/// Makes a block of visible thinking.
pub(super) fn thinking(text: &str, own: Own<'_>) -> Block {
    let mut out = format!(r#"{{"type":"thinking","thinking":{}"#, string(text));
    close(&mut out, own)
}

/// Makes a block of any other kind.
pub(super) fn other(kind: &str, own: Own<'_>) -> Block {
    let mut out = format!(r#"{{"type":{}"#, string(kind));
    close(&mut out, own)
}

fn close(out: &mut String, own: Own<'_>) -> Block {
    if let Some((key, raw)) = own {
        push_field(out, key, raw);
    }
    out.push('}');
    Block::from_raw(Raw::parse(out).expect("it is written of valid JSON"))
}

/// Returns a block that can stand after other words than those it was said after: one that keeps bytes of its protocol's own
/// becomes what it means, and is nothing where it means nothing here.
pub fn unbound(block: &Block) -> Option<Block> {
    if ["item", "part"].iter().all(|own| kept(block, own).is_none()) {
        return Some(block.clone());
    }
    match block.view() {
        View::Text(text) => Some(Block::text(text)),
        View::ToolCall(call) => Some(Block::tool_call(call)),
        View::Thinking(_) | View::ToolResult(_) | View::Other(_) => None,
    }
}

/// Returns the bytes of a field of a block.
pub(super) fn kept(block: &Block, key: &str) -> Option<String> {
    Fields::parse(block.raw().as_str()).ok()?.get(key).map(str::to_owned)
}

/// Returns the bytes of a field that is a string, quotes included.
pub(super) fn text_bytes(block: &Block, key: &str) -> Option<String> {
    kept(block, key).filter(|raw| raw.len() >= 2 && raw.starts_with('"'))
}

/// Returns the bytes of what a result says, never empty.
pub(super) fn result_bytes(block: &Block) -> String {
    text_bytes(block, "content").filter(|raw| raw.len() > 2).unwrap_or_else(|| string("(no output)"))
}

/// Joins the text blocks by blank lines, as the bytes of one JSON string.
pub(super) fn joined_text(blocks: &[&Block]) -> Option<String> {
    let texts: Vec<String> = blocks.iter().filter(|block| matches!(block.view(), View::Text(_))).filter_map(|block| text_bytes(block, "text")).collect();
    let inner: Vec<&str> = texts.iter().map(|text| &text[1..text.len() - 1]).collect();
    if inner.is_empty() { None } else { Some(format!("\"{}\"", inner.join("\\n\\n"))) }
}
