//! A reply and its bytes in either protocol.
use super::{Asked, strict};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What the model says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    /// Whether a signed thinking block comes first (Anthropic) or `reasoning_content` (Chat).
    pub(crate) thinking: Option<String>,
    /// Text; none where it is empty.
    pub(crate) text: String,
    /// Calls: id, name, input.
    pub(crate) calls: Vec<(String, String, Value)>,
    /// How many tokens the prompt is said to have.
    pub(crate) prompt: Option<u64>,
    /// The reason to stop, in Anthropic's words; absent: what fits.
    pub(crate) stop: Option<String>,
}

impl Said {
    /// A text and the end of the turn.
    pub(crate) fn text(text: &str) -> Said {
        Said { text: text.to_owned(), ..Said::default() }
    }

    /// One call.
    pub(crate) fn call(id: &str, name: &str, input: Value) -> Said {
        Said { calls: vec![(id.to_owned(), name.to_owned(), input)], ..Said::default() }
    }

    fn stop(&self) -> &str {
        self.stop.as_deref().unwrap_or(if self.calls.is_empty() { "end_turn" } else { "tool_use" })
    }

    /// Writes the stream of a Messages reply to `asked`.
    pub(crate) fn anthropic(&self, asked: &Asked) -> Vec<u8> {
        let mut out = Events::default();
        let usage = json!({"input_tokens": self.prompt.map_or(12, |prompt| prompt.saturating_sub(2051)), "cache_creation_input_tokens": 3, "cache_read_input_tokens": 2048, "output_tokens": 1});
        let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": asked.json["model"], "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage});
        out.event("message_start", &json!({"type": "message_start", "message": message}));
        out.event("ping", &json!({"type": "ping"}));
        let mut index = 0;
        if let Some(thinking) = &self.thinking {
            let deltas =
                [json!({"type": "thinking_delta", "thinking": thinking}), json!({"type": "signature_delta", "signature": strict::signature(&asked.json)})];
            out.block(&mut index, &json!({"type": "thinking", "thinking": "", "signature": ""}), &deltas);
        }
        if !self.text.is_empty() {
            let deltas: Vec<Value> = pieces(&self.text).map(|piece| json!({"type": "text_delta", "text": piece})).collect();
            out.block(&mut index, &json!({"type": "text", "text": ""}), &deltas);
        }
        for (id, name, input) in &self.calls {
            let deltas: Vec<Value> = pieces(&input.to_string()).map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect();
            out.block(&mut index, &json!({"type": "tool_use", "id": id, "name": name, "input": {}, "caller": {"type": "direct"}}), &deltas);
        }
        out.event(
            "message_delta",
            &json!({"type": "message_delta", "delta": {"stop_reason": self.stop(), "stop_sequence": null}, "usage": {"output_tokens": 57}}),
        );
        out.event("message_stop", &json!({"type": "message_stop"}));
        out.0.into_bytes()
    }

    /// Writes the stream of a Chat Completions reply.
    pub(crate) fn chat(&self) -> Vec<u8> {
        let mut out = Events::default();
        let chunk = |delta: Value, finish: Value| json!({"id": "c1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        out.data(&chunk(json!({"role": "assistant", "content": ""}), Value::Null));
        if let Some(thinking) = &self.thinking {
            out.data(&chunk(json!({"reasoning_content": thinking}), Value::Null));
        }
        for piece in pieces(&self.text) {
            out.data(&chunk(json!({"content": piece}), Value::Null));
        }
        for (index, (id, name, input)) in self.calls.iter().enumerate() {
            out.data(&chunk(json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}]}), Value::Null));
            for piece in pieces(&input.to_string()) {
                out.data(&chunk(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}), Value::Null));
            }
        }
        let finish = match self.stop() {
            "tool_use" => "tool_calls",
            "max_tokens" => "length",
            "refusal" => "content_filter",
            _ => "stop",
        };
        out.data(&chunk(json!({}), json!(finish)));
        out.data(&json!({"choices": [], "usage": {"prompt_tokens": self.prompt.unwrap_or(20), "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}}));
        out.0.push_str("data: [DONE]\n\n");
        out.0.into_bytes()
    }
}

#[derive(Default)]
struct Events(String);

impl Events {
    fn event(&mut self, name: &str, data: &Value) {
        let _ = write!(self.0, "event: {name}\ndata: {data}\n\n");
    }

    fn data(&mut self, data: &Value) {
        let _ = write!(self.0, "data: {data}\n\n");
    }

    fn block(&mut self, index: &mut usize, start: &Value, deltas: &[Value]) {
        self.event("content_block_start", &json!({"type": "content_block_start", "index": index, "content_block": start}));
        for delta in deltas {
            self.event("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        self.event("content_block_stop", &json!({"type": "content_block_stop", "index": index}));
        *index += 1;
    }
}

/// Cuts a text into pieces of five characters.
fn pieces(text: &str) -> impl Iterator<Item = String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(5).map(|piece| piece.iter().collect()).collect::<Vec<String>>().into_iter()
}
