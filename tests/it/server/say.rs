//! A reply and its bytes in each protocol.
use super::{Asked, Spoken, strict};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What the model says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    /// Thinking, bound to what came before it; it comes first. Not bound where it is `reasoning_content` (Chat).
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

    /// Writes the stream of the reply to `asked`, in the protocol that was spoken.
    pub(crate) fn bytes(&self, asked: &Asked) -> Vec<u8> {
        match asked.spoken() {
            Spoken::Messages => self.anthropic(asked),
            Spoken::Responses => self.responses(asked),
            Spoken::Chat => self.chat(),
            Spoken::Gemini => self.gemini(asked),
        }
    }

    /// Writes the stream of a Messages reply.
    pub(crate) fn anthropic(&self, asked: &Asked) -> Vec<u8> {
        let mut out = Events::default();
        let usage = json!({"input_tokens": self.prompt.map_or(12, |prompt| prompt.saturating_sub(2051)), "cache_creation_input_tokens": 3, "cache_read_input_tokens": 2048, "output_tokens": 1});
        let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": asked.json["model"], "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage});
        out.event("message_start", &json!({"type": "message_start", "message": message}));
        out.event("ping", &json!({"type": "ping"}));
        let mut index = 0;
        if let Some(thinking) = &self.thinking {
            let deltas = [json!({"type": "thinking_delta", "thinking": thinking}), json!({"type": "signature_delta", "signature": strict::signature(asked)})];
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

    /// Writes the stream of a Responses reply.
    fn responses(&self, asked: &Asked) -> Vec<u8> {
        let mut out = Events::default();
        let turn = asked.turn();
        let mut items: Vec<(Value, Vec<Value>)> = Vec::new();
        if let Some(thinking) = &self.thinking {
            let summary = json!([{"type": "summary_text", "text": thinking}]);
            let item = json!({"id": format!("rs_{turn}"), "type": "reasoning", "summary": summary, "encrypted_content": strict::signature(asked)});
            items.push((item, pieces(thinking).map(|piece| json!({"type": "response.reasoning_summary_text.delta", "delta": piece})).collect()));
        }
        if !self.text.is_empty() {
            let content = json!([{"type": "output_text", "annotations": [], "logprobs": [], "text": self.text}]);
            let phase = if self.calls.is_empty() { "final_answer" } else { "commentary" };
            let item = json!({"id": format!("msg_{turn}"), "type": "message", "status": "completed", "role": "assistant", "phase": phase, "content": content});
            items.push((item, pieces(&self.text).map(|piece| json!({"type": "response.output_text.delta", "delta": piece})).collect()));
        }
        for (n, (id, name, input)) in self.calls.iter().enumerate() {
            let arguments = input.to_string();
            let item =
                json!({"id": format!("fc_{turn}_{n}"), "type": "function_call", "status": "completed", "name": name, "call_id": id, "arguments": arguments});
            items.push((item, pieces(&arguments).map(|piece| json!({"type": "response.function_call_arguments.delta", "delta": piece})).collect()));
        }
        let mut number = 0;
        let mut event = |mut data: Value| {
            data["sequence_number"] = json!(number);
            number += 1;
            out.event(data["type"].as_str().unwrap_or_default(), &data);
        };
        event(json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}}));
        for (index, (item, deltas)) in items.iter().enumerate() {
            event(
                json!({"type": "response.output_item.added", "output_index": index, "item": {"id": item["id"], "type": item["type"], "status": "in_progress"}}),
            );
            for delta in deltas {
                let mut delta = delta.clone();
                delta["output_index"] = json!(index);
                event(delta);
            }
            event(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        }
        let (kind, status, reason) = match self.stop() {
            "max_tokens" => ("response.incomplete", "incomplete", json!({"reason": "max_output_tokens"})),
            "refusal" => ("response.incomplete", "incomplete", json!({"reason": "content_filter"})),
            "end_turn" | "tool_use" => ("response.completed", "completed", Value::Null),
            other => ("response.incomplete", "incomplete", json!({"reason": other})),
        };
        let usage = json!({"input_tokens": self.prompt.unwrap_or(20), "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 5});
        let output: Vec<&Value> = items.iter().map(|(item, _)| item).collect();
        event(json!({"type": kind, "response": {"id": "resp_1", "status": status, "incomplete_details": reason, "output": output, "usage": usage}}));
        out.0.into_bytes()
    }

    /// Writes the stream of a Gemini reply.
    fn gemini(&self, asked: &Asked) -> Vec<u8> {
        let mut out = Events::default();
        let signature = strict::signature(asked);
        let chunk =
            |parts: Value| json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}], "usageMetadata": {"promptTokenCount": 1}});
        for piece in self.thinking.iter().flat_map(|thinking| pieces(thinking)) {
            out.data(&chunk(json!([{"text": piece, "thought": true}])));
        }
        for piece in pieces(&self.text) {
            out.data(&chunk(json!([{"text": piece}])));
        }
        for (n, (id, name, input)) in self.calls.iter().enumerate() {
            let mut part = json!({"functionCall": {"name": name, "args": input, "id": id}});
            if n == 0 {
                part["thoughtSignature"] = json!(signature);
            }
            out.data(&chunk(json!([part])));
        }
        if self.calls.is_empty() && self.thinking.is_some() {
            out.data(&chunk(json!([{"text": "", "thoughtSignature": signature}])));
        }
        let finish = match self.stop() {
            "max_tokens" => "MAX_TOKENS",
            "refusal" => "SAFETY",
            "end_turn" | "tool_use" => "STOP",
            other => other,
        };
        let usage = json!({"promptTokenCount": self.prompt.unwrap_or(20), "cachedContentTokenCount": 8, "candidatesTokenCount": 3, "thoughtsTokenCount": 2});
        out.data(&json!({"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": finish, "index": 0}], "usageMetadata": usage}));
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
            "end_turn" => "stop",
            other => other,
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
