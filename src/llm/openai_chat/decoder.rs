//! Puts a reply together from the chunks of a Chat Completions stream.
//!
//! The reply is whole where a finish reason or `[DONE]` was seen. The word of the finish reason is not trusted: what counts
//! is whether there are calls.
use super::{
    super::{
        Decoder, Heard, ModelCall, ModelError, ModelErrorKind, Target,
        counts::{self, Counts, Guess},
        fault::Told,
        neutral,
        provider::{Ids, settle},
        surrogate::repair,
    },
    DETAILS,
    calls::{Calls, Fragment},
};
use crate::message::{Block, Reply, StopReason, Usage};
use serde_json::{Value, json};

/// The decoder of one stream.
pub(super) struct ChatDecoder {
    label: String,
    ids: Ids,
    text: String,
    thinking: String,
    details: Vec<Value>,
    refusal: String,
    calls: Calls,
    finish: Option<String>,
    done: bool,
    guess: Guess,
    counts: Counts,
}

impl ChatDecoder {
    pub(super) fn new(call: &ModelCall<'_>, target: Target<'_>) -> ChatDecoder {
        ChatDecoder {
            label: target.label(),
            ids: Ids::of(call.messages),
            text: String::new(),
            thinking: String::new(),
            details: Vec::new(),
            refusal: String::new(),
            calls: Calls::default(),
            finish: None,
            done: false,
            guess: Guess::of(call),
            counts: Counts::default(),
        }
    }

    fn cut(&self, what: &str) -> ModelError {
        ModelError::new(ModelErrorKind::Cut, format!("{}: {what}", self.label))
    }

    fn choice(&mut self, choice: &Value) -> Result<Heard, ModelError> {
        if let Some(error) = choice.get("error").filter(|error| !error.is_null()) {
            return Err(Told::of(error).into_error(&self.label));
        }
        let delta = choice.get("delta").filter(|delta| delta.is_object()).unwrap_or(&Value::Null);
        let said = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
        let parts = delta.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let text = if parts.is_empty() { said("content").to_owned() } else { parts.iter().filter_map(|part| part["text"].as_str()).collect() };
        let thought = if said("reasoning_content").is_empty() { said("reasoning") } else { said("reasoning_content") };
        let thought = if thought.is_empty() { parts.iter().map(thought_in).collect() } else { thought.to_owned() };
        self.text.push_str(&text);
        self.thinking.push_str(&thought);
        self.refusal.push_str(said("refusal"));
        let details = delta.get("reasoning_details").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        details.iter().filter(|detail| detail.is_object()).for_each(|detail| join(&mut self.details, detail));
        if let Some(fragments) = delta.get("tool_calls").and_then(Value::as_array) {
            let fragments = fragments.iter().map(fragment).collect();
            self.calls.take(fragments).map_err(|what| self.cut(what))?;
        }
        if let Some(call) = delta.get("function_call").filter(|call| call.is_object()) {
            // The form before `tool_calls`: one call, without an id.
            let fragment = Fragment { index: Some(0), ..fragment(&json!({"function": call})) };
            self.calls.take(vec![fragment]).map_err(|what| self.cut(what))?;
        }
        if let Some(word) = choice.get("finish_reason").and_then(Value::as_str).filter(|word| !word.is_empty()) {
            self.finish = Some(word.to_owned());
        }
        Ok(match (text.is_empty(), thought.is_empty()) {
            (true, true) => Heard::Progress,
            (true, false) => Heard::Thinking(thought),
            (false, _) => Heard::Text(text),
        })
    }

    fn stop(&self) -> StopReason {
        if !self.refusal.is_empty() && self.text.trim().is_empty() && self.calls.is_empty() {
            return StopReason::Refusal { category: "refusal".to_owned() };
        }
        match self.finish.as_deref() {
            None | Some("stop" | "end_turn" | "eos") => StopReason::EndTurn,
            Some("tool_calls" | "function_call" | "tool_use") => StopReason::ToolUse,
            Some("length" | "max_tokens") => StopReason::MaxTokens,
            Some("content_filter") => StopReason::Refusal { category: "content_filter".to_owned() },
            Some(word) => StopReason::Unknown(word.to_owned()),
        }
    }
}

impl Decoder for ChatDecoder {
    fn push(&mut self, event: &str, data: &str) -> Result<Heard, ModelError> {
        let data = data.trim();
        if data.is_empty() {
            return Ok(Heard::Ping);
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(Heard::End);
        }
        let data = repair(data);
        let value: Value = match serde_json::from_str(&data) {
            Ok(value) => value,
            Err(_) if self.finish.is_some() => return Ok(Heard::Progress),
            Err(_) => return Err(self.cut("the stream holds an event that is not JSON")),
        };
        if event == "error" || value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Told::parse(&data).into_error(&self.label));
        }
        if let Some(usage) = value.get("usage").filter(|usage| usage.is_object()) {
            self.counts.overwrite(count(usage));
        }
        let choices = value.get("choices").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        // Only one choice was asked for.
        let mine = choices.iter().find(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0);
        mine.map_or(Ok(Heard::Progress), |choice| self.choice(choice))
    }

    fn used(&self) -> Usage {
        self.counts.without_cached().told()
    }

    fn finish(self: Box<Self>) -> Result<Reply, ModelError> {
        if self.finish.is_none() && !self.done {
            return Err(self.cut("the stream ended before its terminal event"));
        }
        if self.finish.as_deref() == Some("error") {
            return Err(self.cut("the provider broke the reply off (finish reason `error`)"));
        }
        let is_silent = self.text.is_empty() && self.thinking.is_empty() && self.details.is_empty() && self.refusal.is_empty() && self.calls.is_empty();
        if self.finish.is_none() && (is_silent || !self.calls.are_complete()) {
            return Err(self.cut("the stream ended without a finish reason and with something missing"));
        }
        let stop = self.stop();
        let mut this = *self;
        let mut blocks = Vec::new();
        let details = Value::from(std::mem::take(&mut this.details)).to_string();
        if details != "[]" {
            blocks.push(neutral::thinking(&this.thinking, Some((DETAILS, &details))));
        } else if !this.thinking.trim().is_empty() {
            blocks.push(neutral::thinking(&this.thinking, None));
        }
        let text = if matches!(stop, StopReason::Refusal { .. }) && this.text.trim().is_empty() { &this.refusal } else { &this.text };
        if !text.trim().is_empty() {
            blocks.push(Block::text(text));
        }
        let calls = std::mem::take(&mut this.calls).blocks(&mut this.ids).map_err(|what| this.cut(what))?;
        blocks.extend(calls);
        let stop = settle(stop, &blocks);
        let usage = this.counts.without_cached().usage(this.guess, &blocks);
        Ok(Reply { model: this.label, blocks, stop, usage, usd: None, usd_is_part: false, container: None })
    }
}

/// Takes a piece of reasoning in the form of `OpenRouter`: one of the same kind and index goes on with the last.
fn join(details: &mut Vec<Value>, piece: &Value) {
    match details.last_mut() {
        Some(last) if last["type"] == piece["type"] && last["index"] == piece["index"] => {
            for (key, value) in piece.as_object().into_iter().flatten() {
                let joined = match (last.get(key).and_then(Value::as_str), value.as_str()) {
                    (Some(before), Some(after)) if matches!(key.as_str(), "text" | "summary" | "data") => Value::from(format!("{before}{after}")),
                    (Some(_), None) => continue,
                    _ => value.clone(),
                };
                last[key] = joined;
            }
        }
        _ => details.push(piece.clone()),
    }
}

/// Returns what was thought in a part of a content that is a list (Mistral's form).
fn thought_in(part: &Value) -> String {
    match &part["thinking"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

fn fragment(value: &Value) -> Fragment {
    let text = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    };
    let function = value.get("function");
    let arguments = match function.and_then(|function| function.get("arguments")) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        // Some servers send the object itself.
        Some(other) => other.to_string(),
    };
    Fragment {
        index: value.get("index").and_then(Value::as_u64),
        id: text(value.get("id")).trim().to_owned(),
        name: text(function.and_then(|function| function.get("name"))),
        arguments,
    }
}

fn count(usage: &Value) -> Counts {
    let number = |pointer: &str| counts::read(usage, pointer);
    Counts {
        input: number("/prompt_tokens"),
        output: number("/completion_tokens"),
        cache_read: number("/prompt_tokens_details/cached_tokens").max(number("/prompt_cache_hit_tokens")),
        cache_write: number("/prompt_tokens_details/cache_write_tokens"),
        searches: None,
    }
}
