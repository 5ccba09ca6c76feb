//! A content block: bytes that never change, and what they mean.
use super::{ToolCall, ToolResult};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Value, json, value::RawValue};
use std::sync::Arc;

/// One JSON value kept as its exact bytes, without insignificant white space at its ends and without line breaks
/// between tokens (a record is one line).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw(Arc<str>);

impl Raw {
    /// Takes JSON text as it is.
    ///
    /// # Errors
    /// The parser's, where `text` is not one JSON value.
    pub fn parse(text: &str) -> Result<Raw, serde_json::Error> {
        let value: &RawValue = serde_json::from_str(text)?;
        let text = value.get();
        // A raw line break can only stand between tokens: inside strings it is escaped.
        if text.contains(['\n', '\r']) { Ok(Raw(text.replace(['\n', '\r'], " ").into())) } else { Ok(Raw(text.into())) }
    }

    /// Serialises `value` once; from then on these are its bytes.
    pub fn of(value: &Value) -> Raw {
        Raw(value.to_string().into())
    }

    /// Returns the bytes as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Raw::parse(raw.get()).map_err(D::Error::custom)
    }
}

/// What a block means.
#[derive(Debug, Clone, PartialEq)]
pub enum View {
    /// Text for a reader.
    Text(String),
    /// Visible thinking; empty where the provider keeps it to itself.
    Thinking(String),
    /// A call of one of our tools.
    ToolCall(ToolCall),
    /// Our answer to a call.
    ToolResult(ToolResult),
    /// Anything else, by its `type`; kept and sent back untouched.
    Other(String),
}

/// A content block. Equality is equality of bytes.
#[derive(Debug, Clone)]
pub struct Block {
    raw: Raw,
    view: View,
}

impl PartialEq for Block {
    fn eq(&self, other: &Block) -> bool {
        self.raw == other.raw
    }
}

impl Block {
    /// Takes a block as received. A block whose known type lacks its fields is viewed as `Other`.
    pub fn from_raw(raw: Raw) -> Block {
        let view = view(&raw);
        Block { raw, view }
    }

    /// Makes a text block; empty text becomes `(empty)`.
    pub fn text(text: &str) -> Block {
        let text = if text.is_empty() { "(empty)" } else { text };
        Block { raw: Raw::of(&json!({"type": "text", "text": text})), view: View::Text(text.to_owned()) }
    }

    /// Makes the block that answers a call.
    pub fn tool_result(result: &ToolResult) -> Block {
        let mut value = json!({"type": "tool_result", "tool_use_id": result.call, "content": result.text});
        if result.is_error {
            value["is_error"] = Value::Bool(true);
        }
        Block { raw: Raw::of(&value), view: View::ToolResult(result.clone()) }
    }

    /// Makes the block of a call, for scripted models and decoders whose protocol has another form.
    pub fn tool_call(call: &ToolCall) -> Block {
        let raw = Raw::of(&json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}));
        Block { raw, view: View::ToolCall(call.clone()) }
    }

    /// Returns the bytes.
    pub fn raw(&self) -> &Raw {
        &self.raw
    }

    /// Returns what they mean.
    pub fn view(&self) -> &View {
        &self.view
    }
}

impl Serialize for Block {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Block, D::Error> {
        Raw::deserialize(deserializer).map(Block::from_raw)
    }
}

fn view(raw: &Raw) -> View {
    let Ok(value) = serde_json::from_str::<Value>(raw.as_str()) else { return View::Other("unreadable".to_owned()) };
    let field = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let kind = field("type").unwrap_or_default();
    let known = match kind.as_str() {
        "text" => field("text").map(View::Text),
        "thinking" => field("thinking").map(View::Thinking),
        "tool_use" => field("id").zip(field("name")).map(|(id, name)| {
            let input = value.get("input").cloned().unwrap_or_else(|| json!({}));
            View::ToolCall(ToolCall { id, name, input })
        }),
        "tool_result" => field("tool_use_id").map(|call| {
            let text = field("content").unwrap_or_default();
            let is_error = value.get("is_error").and_then(Value::as_bool).unwrap_or(false);
            View::ToolResult(ToolResult { call, text, is_error })
        }),
        _ => None,
    };
    known.unwrap_or(View::Other(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_a_round_trip_that_a_value_would_change() {
        let text = r#"{"type":"thinking","thinking":"","signature":"a\/b\u2028","n":1.10,"z":1,"a":2}"#;
        let block: Block = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&block).unwrap(), text);
        assert_eq!(block.view(), &View::Thinking(String::new()));
    }

    #[test]
    fn an_unknown_type_is_kept() {
        let text = r#"{"type":"hologram","x":[1,{"y":null}]}"#;
        let block: Block = serde_json::from_str(text).unwrap();
        assert_eq!(block.view(), &View::Other("hologram".to_owned()));
        assert_eq!(block.raw().as_str(), text);
    }

    #[test]
    fn line_breaks_between_tokens_do_not_split_a_record() {
        let block: Block = serde_json::from_str("{\n \"type\": \"text\",\n \"text\": \"a\\nb\"}").unwrap();
        assert!(!block.raw().as_str().contains('\n'));
        assert_eq!(block.view(), &View::Text("a\nb".to_owned()));
    }
}
