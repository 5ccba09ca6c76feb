//! Puts a reply together from the events of a Responses stream.
//!
//! Only a finished item counts (`response.output_item.done`): one that was merely added may lack its end, and its encrypted
//! content. The reply is whole with `response.completed` or `response.incomplete`, and with nothing else.
use super::{
    super::{
        Decoder, Heard, ModelCall, ModelError, ModelErrorKind, Target,
        counts::{self, Counts, Guess},
        fault::Told,
        fields::{Fields, string},
        neutral,
        provider::{Ids, settle},
        surrogate::repair,
    },
    ITEM,
};
use crate::message::{Block, Raw, Reply, StopReason, Usage};
use serde_json::{Value, value::RawValue};
use std::collections::{BTreeMap, BTreeSet};

/// More items than any reply has.
const MAX_ITEMS: usize = 4_096;

/// The decoder of one stream.
pub(super) struct ResponsesDecoder {
    label: String,
    ids: Ids,
    items: BTreeMap<u64, String>,
    /// The items, and what they are called.
    taken: BTreeSet<String>,
    stop: Option<StopReason>,
    guess: Guess,
    counts: Counts,
}

impl ResponsesDecoder {
    pub(super) fn new(call: &ModelCall<'_>, target: Target<'_>) -> ResponsesDecoder {
        ResponsesDecoder {
            label: target.label(),
            ids: Ids::of(call.messages),
            items: BTreeMap::new(),
            taken: BTreeSet::new(),
            stop: None,
            guess: Guess::of(call),
            counts: Counts::default(),
        }
    }

    fn cut(&self, what: &str) -> ModelError {
        ModelError::new(ModelErrorKind::Cut, format!("{}: {what}", self.label))
    }

    fn item(&mut self, event: &Fields) -> Result<Heard, ModelError> {
        let item = event.get("item").and_then(raw_object).ok_or_else(|| self.cut("an item is not an object"))?;
        if self.items.len() >= MAX_ITEMS {
            return Err(self.cut("the reply has too many items"));
        }
        if !self.is_known(&item, &["call_id"]) {
            self.put(event.get("output_index").and_then(|raw| raw.parse().ok()), item);
        }
        Ok(Heard::Progress)
    }

    /// Puts an item in its place. Some gateways number no items, or all alike: then they come in order.
    fn put(&mut self, index: Option<u64>, item: String) {
        let behind = self.items.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        self.taken.extend(names(&item).map(|(_, text)| text).chain([item.clone()]));
        self.items.insert(index.filter(|index| !self.items.contains_key(index)).unwrap_or(behind), item);
    }

    /// Returns whether an item has come already, by whatever place, as one of these names tells: none is taken twice, since its call
    /// would be run twice.
    fn is_known(&self, item: &str, by: &[&str]) -> bool {
        self.taken.contains(item) || names(item).any(|(name, text)| by.contains(&name) && self.taken.contains(&text))
    }

    /// Takes the whole response at its end: why it ended, what it used, and items that came with nothing else.
    fn end(&mut self, kind: &str, event: &Fields) -> Result<Heard, ModelError> {
        let response = event.get("response").unwrap_or("{}");
        let value: Value = serde_json::from_str(response).unwrap_or_default();
        self.counts = count(&value["usage"]);
        if kind == "response.failed" {
            return Err(Told::of(&value["error"]).into_error(&self.label));
        }
        let reason = value.pointer("/incomplete_details/reason").and_then(Value::as_str).unwrap_or("incomplete");
        self.stop = Some(match (kind, reason) {
            ("response.completed", _) => StopReason::EndTurn,
            (_, "max_output_tokens") => StopReason::MaxTokens,
            (_, "content_filter") => StopReason::Refusal { category: "content_filter".to_owned() },
            (_, word) => StopReason::Unknown(word.to_owned()),
        });
        let output = Fields::parse(response).ok().and_then(|fields| fields.get("output").map(str::to_owned));
        let output: Vec<Box<RawValue>> = output.and_then(|output| serde_json::from_str(&output).ok()).unwrap_or_default();
        let most = output.len();
        for (index, item) in (0..).zip(output.into_iter().take(MAX_ITEMS)) {
            let Some(item) = raw_object(item.get()).filter(|item| !self.is_known(item, &["id", "call_id"])) else { continue };
            // One under another name in the place of one that came is that one, unless it is another and one is missing.
            let is_that_one = self.items.get(&index).is_some_and(|there| is_alike(there, &item));
            if !self.items.contains_key(&index) || (!is_that_one && self.items.len() < most) {
                self.put(Some(index), item);
            }
        }
        Ok(Heard::End)
    }
}

impl Decoder for ResponsesDecoder {
    fn push(&mut self, event: &str, data: &str) -> Result<Heard, ModelError> {
        let data = data.trim();
        if data.is_empty() {
            return Ok(Heard::Ping);
        }
        if data == "[DONE]" {
            return Ok(Heard::Progress);
        }
        let data = repair(data);
        let fields = Fields::parse(&data).map_err(|_| self.cut("the stream holds an event that is not a JSON object"))?;
        let kind = fields.text("type").unwrap_or_else(|| event.to_owned());
        let piece = || fields.text("delta").unwrap_or_default();
        match kind.as_str() {
            "ping" | "keepalive" => Ok(Heard::Ping),
            "response.output_text.delta" | "response.refusal.delta" => Ok(Heard::Text(piece())),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => Ok(Heard::Thinking(piece())),
            "response.output_item.done" => self.item(&fields),
            "response.completed" | "response.incomplete" | "response.failed" => self.end(&kind, &fields),
            "error" => Err(Told::parse(&data).into_error(&self.label)),
            _ if fields.get("error").is_some_and(|error| error != "null") => Err(Told::parse(&data).into_error(&self.label)),
            _ => Ok(Heard::Progress),
        }
    }

    fn used(&self) -> Usage {
        self.counts.told()
    }

    fn finish(self: Box<Self>) -> Result<Reply, ModelError> {
        let Some(stop) = self.stop.clone() else { return Err(self.cut("the stream ended before its terminal event")) };
        let ResponsesDecoder { label, mut ids, items, guess, counts, .. } = *self;
        let cut = |what: &str| ModelError::new(ModelErrorKind::Cut, format!("{label}: {what}"));
        let mut blocks = Vec::new();
        let (mut declined, mut searches) = (false, 0);
        for item in items.values() {
            let value: Value = serde_json::from_str(item).unwrap_or_default();
            declined |= is_refusal(&value);
            searches += u64::from(value["type"] == "web_search_call" && value["action"]["type"] == "search");
            blocks.push(block(item, &value, &mut ids).map_err(cut)?);
        }
        let stop = match settle(stop, &blocks) {
            StopReason::EndTurn if declined => StopReason::Refusal { category: "refusal".to_owned() },
            stop => stop,
        };
        let usage = Counts { searches: Some(searches), ..counts }.usage(guess, &blocks);
        Ok(Reply { model: label, blocks, stop, usage, usd: None, usd_is_part: false, container: None })
    }
}

/// Returns what an item is called, as far as it is. A call is called by what it asks for too: some servers give two calls one id.
fn names(item: &str) -> impl Iterator<Item = (&'static str, String)> {
    let fields = Fields::parse(item).unwrap_or_default();
    let said = move |name: &str| fields.text(name).filter(|text| !text.is_empty());
    let id = said("id").map(|id| ("id", format!("id {id}")));
    let call = said("call_id").map(|id| ("call_id", format!("call {id} {:?} {:?}", said("name"), said("arguments"))));
    id.into_iter().chain(call)
}

/// Returns whether two items in one place are the same whatever they are called: of one kind, and as calls asking for the same.
fn is_alike(one: &str, other: &str) -> bool {
    let (one, other) = (Fields::parse(one).unwrap_or_default(), Fields::parse(other).unwrap_or_default());
    let same = |name: &str| one.text(name) == other.text(name);
    same("type") && (one.text("type").is_none_or(|kind| kind != "function_call") || (same("name") && same("arguments")))
}

fn raw_object(raw: &str) -> Option<String> {
    Raw::parse(raw).ok().map(|raw| raw.as_str().to_owned()).filter(|raw| raw.starts_with('{'))
}

/// Makes the block of an item.
fn block(item: &str, value: &Value, ids: &mut Ids) -> Result<Block, &'static str> {
    let own = Some((ITEM, item));
    let kind = value["type"].as_str().unwrap_or_default();
    match kind {
        "message" => {
            let text = texts(&value["content"], &["text", "refusal"], "");
            // What it says on its way is not its answer.
            let on_the_way = value["phase"] == "commentary";
            Ok(match (text.trim().is_empty(), on_the_way) {
                (true, _) => neutral::other(kind, own),
                (false, true) => neutral::thinking(&text, own),
                (false, false) => neutral::text(&text, own),
            })
        }
        "reasoning" => {
            let summary = texts(&value["summary"], &["text"], "\n\n");
            let text = if summary.is_empty() { texts(&value["content"], &["text"], "\n\n") } else { summary };
            Ok(neutral::thinking(&text, own))
        }
        "function_call" => {
            let name = value["name"].as_str().filter(|name| !name.is_empty()).ok_or("a tool call has no name")?;
            let id = value["call_id"].as_str().unwrap_or_default();
            let claimed = ids.claim(id);
            let (input, _) = neutral::input(value["arguments"].as_str().unwrap_or_default());
            if claimed == id {
                return Ok(neutral::call(&claimed, name, &input, own));
            }
            let mut fields = Fields::parse(item).unwrap_or_default();
            fields.set("call_id", string(&claimed));
            Ok(neutral::call(&claimed, name, &input, Some((ITEM, &fields.write()))))
        }
        _ => Ok(neutral::other(if kind.is_empty() { "item" } else { kind }, own)),
    }
}

/// Joins what the parts of a list say in the first of these fields that they have.
fn texts(parts: &Value, fields: &[&str], between: &str) -> String {
    let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part| fields.iter().find_map(|field| part[field].as_str())).collect();
    texts.join(between)
}

fn is_refusal(item: &Value) -> bool {
    let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    item["type"] == "message" && !parts.is_empty() && parts.iter().all(|part| part["type"] == "refusal")
}

fn count(usage: &Value) -> Counts {
    let number = |pointer: &str| counts::read(usage, pointer);
    let counts = Counts {
        input: number("/input_tokens"),
        output: number("/output_tokens"),
        cache_read: number("/input_tokens_details/cached_tokens"),
        cache_write: number("/input_tokens_details/cache_write_tokens"),
        searches: None,
    };
    // Cached tokens are a part of the prompt here.
    counts.without_cached()
}
