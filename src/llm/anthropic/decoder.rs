//! Puts a message together from the events of a Messages stream.
//!
//! Blocks are keyed by `index`. A block is written once, when it stops: the fields it started with, in their order and bytes,
//! with what its deltas said put in. A type that is not known here goes through the same way, untouched. Unknown events and
//! deltas are skipped. The message is whole once its stop reason is known and no block is open, even if the connection ends
//! before `message_stop`; without a stop reason it is nothing.
use super::super::{
    Decoder, Heard, ModelCall, ModelError, ModelErrorKind, Target,
    counts::{self, Counts, Guess},
    fault::Told,
    fields::{Fields, string},
    provider::{Ids, settle},
    surrogate::repair,
};
use crate::message::{Block, Raw, Reply, StopReason, Usage, View};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// More blocks than any reply has.
const MAX_BLOCKS: usize = 4_096;

/// The decoder of one stream.
pub(super) struct MessagesDecoder {
    label: String,
    ids: Ids,
    open: BTreeMap<u64, Open>,
    done: BTreeMap<u64, Option<Block>>,
    /// A block that is no block, by its index: no harm where the reply was cut in it.
    broken: Option<(u64, &'static str)>,
    stop: Option<StopReason>,
    guess: Guess,
    counts: Counts,
    iterations: Vec<Counts>,
    container: Option<String>,
}

/// A block that has started and not stopped.
struct Open {
    fields: Fields,
    kind: String,
    text: Option<String>,
    json: Option<String>,
    citations: Vec<String>,
}

impl MessagesDecoder {
    pub(super) fn new(call: &ModelCall<'_>, target: Target<'_>) -> MessagesDecoder {
        MessagesDecoder {
            label: target.label(),
            ids: Ids::of(call.messages),
            open: BTreeMap::new(),
            done: BTreeMap::new(),
            broken: None,
            stop: None,
            guess: Guess::of(call),
            counts: Counts::default(),
            iterations: Vec::new(),
            container: None,
        }
    }

    fn cut(&self, what: &str) -> ModelError {
        ModelError::new(ModelErrorKind::Cut, format!("{}: {what}", self.label))
    }

    fn count(&mut self, usage: Option<&str>) {
        let Some(usage) = usage else { return };
        let Ok(usage) = serde_json::from_str::<Value>(usage) else { return };
        self.counts.overwrite(count(&usage));
        if let Some(iterations) = usage["iterations"].as_array() {
            self.iterations = iterations.iter().map(count).collect();
        }
    }

    /// Returns what was used. The totals at the top leave out what the provider did on its own account (compaction, fallbacks):
    /// where it says what each of its steps used, their sum is what counts, and never less than the totals.
    fn summed(&self) -> Counts {
        let sum = |of: fn(&Counts) -> Option<u64>| self.iterations.iter().filter_map(of).reduce(u64::saturating_add).max(of(&self.counts));
        Counts {
            input: sum(|counts| counts.input),
            output: sum(|counts| counts.output),
            cache_read: sum(|counts| counts.cache_read),
            cache_write: sum(|counts| counts.cache_write),
            searches: sum(|counts| counts.searches),
        }
    }

    fn start(&mut self, event: &Fields) -> Result<Heard, ModelError> {
        let index = self.index(event)?;
        let fields = event.get("content_block").and_then(|raw| Fields::parse(raw).ok()).ok_or_else(|| self.cut("a block started without content"))?;
        if self.open.contains_key(&index) || self.done.contains_key(&index) {
            return Err(self.cut("two blocks have the same index"));
        }
        if self.open.len() + self.done.len() >= MAX_BLOCKS {
            return Err(self.cut("the reply has too many blocks"));
        }
        let kind = fields.text("type").unwrap_or_default();
        self.open.insert(index, Open { fields, kind, text: None, json: None, citations: Vec::new() });
        Ok(Heard::Progress)
    }

    fn delta(&mut self, event: &Fields) -> Result<Heard, ModelError> {
        let index = self.index(event)?;
        let delta = event.get("delta").and_then(|raw| Fields::parse(raw).ok()).unwrap_or_default();
        let unopened = self.cut("a piece came for a block that is not open");
        let open = self.open.get_mut(&index).ok_or(unopened)?;
        Ok(open.take(&delta))
    }

    fn stop_block(&mut self, event: &Fields) -> Result<Heard, ModelError> {
        let index = self.index(event)?;
        let open = self.open.remove(&index).ok_or_else(|| self.cut("a block stopped that is not open"))?;
        let block = open.close(&mut self.ids).unwrap_or_else(|what| {
            self.broken.get_or_insert((index, what));
            None
        });
        self.done.insert(index, block);
        Ok(Heard::Progress)
    }

    /// Takes note of where the provider runs code.
    fn note_container(&mut self, of: &Value) {
        if let Some(id) = of.pointer("/container/id").and_then(Value::as_str) {
            self.container = Some(id.to_owned());
        }
    }

    fn message_delta(&mut self, event: &Fields) -> Heard {
        self.count(event.get("usage"));
        let delta: Value = event.get("delta").and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
        self.note_container(&delta);
        if let Some(word) = delta.get("stop_reason").and_then(Value::as_str) {
            let category = delta.pointer("/stop_details/category").and_then(Value::as_str).unwrap_or_default();
            self.stop = Some(stop_reason(word, category));
        }
        Heard::Progress
    }

    fn index(&self, event: &Fields) -> Result<u64, ModelError> {
        event.get("index").and_then(|raw| raw.parse().ok()).ok_or_else(|| self.cut("an event of a block has no index"))
    }
}

impl Decoder for MessagesDecoder {
    fn push(&mut self, event: &str, data: &str) -> Result<Heard, ModelError> {
        if data.trim().is_empty() {
            return Ok(Heard::Ping);
        }
        let data = repair(data);
        let fields = match Fields::parse(&data) {
            Ok(fields) => fields,
            // After the reason to stop, what is broken is only the end mark.
            Err(_) if self.stop.is_some() => return Ok(Heard::Progress),
            Err(_) => return Err(self.cut("the stream holds an event that is not a JSON object")),
        };
        let kind = fields.text("type").unwrap_or_else(|| event.to_owned());
        match kind.as_str() {
            "ping" => Ok(Heard::Ping),
            "message_start" => {
                let message = fields.get("message").and_then(|raw| Fields::parse(raw).ok()).unwrap_or_default();
                self.count(message.get("usage"));
                let container = message.get("container").and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or(Value::Null);
                self.note_container(&json!({"container": container}));
                Ok(Heard::Progress)
            }
            "content_block_start" => self.start(&fields),
            "content_block_delta" => self.delta(&fields),
            "content_block_stop" => self.stop_block(&fields),
            "message_delta" => Ok(self.message_delta(&fields)),
            "message_stop" => Ok(Heard::End),
            "error" => Err(Told::parse(&data).into_error(&self.label)),
            _ => Ok(Heard::Progress),
        }
    }

    fn used(&self) -> Usage {
        self.summed().told()
    }

    fn finish(self: Box<Self>) -> Result<Reply, ModelError> {
        let Some(stop) = self.stop.clone() else {
            return Err(self.cut("the stream ended before its terminal event"));
        };
        if !self.open.is_empty() {
            return Err(self.cut("the stream ended within a block"));
        }
        let is_cut = matches!(stop, StopReason::MaxTokens | StopReason::WindowExceeded);
        let is_last = |index| self.done.last_key_value().is_some_and(|(last, _)| *last == index);
        if let Some((_, what)) = self.broken.filter(|(index, _)| !is_cut || !is_last(*index)) {
            return Err(ModelError::new(ModelErrorKind::Garbled, format!("{}: {what}", self.label)));
        }
        let blocks: Vec<Block> = self.done.values().flatten().cloned().collect();
        let stop = settle(stop, &blocks);
        Ok(Reply { usage: self.summed().usage(self.guess, &blocks), model: self.label, blocks, stop, usd: None, usd_is_part: false, container: self.container })
    }
}

impl Open {
    fn take(&mut self, delta: &Fields) -> Heard {
        let piece = |key: &str| delta.text(key).unwrap_or_default();
        match delta.text("type").as_deref() {
            Some("text_delta") => {
                let piece = piece("text");
                self.append("text", &piece);
                Heard::Text(piece)
            }
            Some("thinking_delta") => {
                let piece = piece("thinking");
                self.append("thinking", &piece);
                Heard::Thinking(piece)
            }
            Some("input_json_delta") => {
                self.json.get_or_insert_default().push_str(&piece("partial_json"));
                Heard::Progress
            }
            // Set, not appended: each one is the whole signature.
            Some("signature_delta") => {
                if let Some(raw) = delta.get("signature") {
                    self.fields.set("signature", raw.to_owned());
                }
                Heard::Progress
            }
            Some("citations_delta") => {
                self.citations.extend(delta.get("citation").map(str::to_owned));
                Heard::Progress
            }
            _ => Heard::Progress,
        }
    }

    fn append(&mut self, key: &str, piece: &str) {
        let fields = &self.fields;
        self.text.get_or_insert_with(|| fields.text(key).unwrap_or_default()).push_str(piece);
    }

    /// Writes the block; `None` for one without content, which no provider takes back.
    fn close(mut self, ids: &mut Ids) -> Result<Option<Block>, &'static str> {
        if let Some(text) = &self.text {
            self.fields.set(if self.kind == "thinking" { "thinking" } else { "text" }, string(text));
        }
        if !self.citations.is_empty() {
            self.fields.set("citations", format!("[{}]", self.citations.join(",")));
        }
        match self.kind.as_str() {
            "text" if self.fields.text("text").is_none_or(|text| text.trim().is_empty()) => return Ok(None),
            "tool_use" => return self.close_call(ids).map(Some),
            _ => {}
        }
        if let Some(json) = self.json.take().filter(|json| !json.trim().is_empty()) {
            let input = Raw::parse(&repair(&json)).map_err(|_| "the input of a block is not JSON")?;
            self.fields.set("input", input.as_str().to_owned());
        }
        let raw = Raw::parse(&self.fields.write()).map_err(|_| "a block is not JSON")?;
        Ok(Some(Block::from_raw(raw)))
    }

    /// Writes a call of one of our tools. Arguments that are no JSON object are kept as text, to be answered and not run.
    fn close_call(mut self, ids: &mut Ids) -> Result<Block, &'static str> {
        if self.fields.text("name").is_none_or(|name| name.is_empty()) {
            return Err("a tool call has no name");
        }
        let id = self.fields.text("id").unwrap_or_default();
        let claimed = ids.claim(&id);
        if claimed != id {
            self.fields.set("id", string(&claimed));
        }
        let given = match self.json.take() {
            Some(json) if !json.trim().is_empty() => json,
            _ => self.fields.get("input").unwrap_or("{}").to_owned(),
        };
        let given = repair(&given).into_owned();
        let is_object = serde_json::from_str::<Value>(&given).is_ok_and(|value| value.is_object());
        let input = Raw::parse(&given).ok().filter(|_| is_object).unwrap_or_else(|| Raw::of(&json!({"INVALID_JSON": given})));
        self.fields.set("input", input.as_str().to_owned());
        let block = Block::from_raw(Raw::parse(&self.fields.write()).map_err(|_| "a tool call is not JSON")?);
        // Arguments nested just as deeply as the parser goes fit alone but not within the block.
        if matches!(block.view(), View::ToolCall(_)) {
            return Ok(block);
        }
        self.fields.set("input", json!({"INVALID_JSON": given}).to_string());
        Raw::parse(&self.fields.write()).map(Block::from_raw).map_err(|_| "a tool call is not JSON")
    }
}

fn count(usage: &Value) -> Counts {
    let number = |pointer: &str| counts::read(usage, pointer);
    Counts {
        input: number("/input_tokens"),
        output: number("/output_tokens"),
        cache_read: number("/cache_read_input_tokens"),
        cache_write: number("/cache_creation_input_tokens"),
        searches: number("/server_tool_use/web_search_requests"),
    }
}

fn stop_reason(word: &str, category: &str) -> StopReason {
    match StopReason::of_word(word) {
        StopReason::Refusal { .. } => StopReason::Refusal { category: category.to_owned() },
        other => other,
    }
}
