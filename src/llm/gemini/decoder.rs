//! Puts a reply together from the chunks of a Gemini stream.
//!
//! Text comes in pieces, which are joined as long as they hold nothing but text; a part that holds anything else is a block of
//! its own. The reply is whole once a finish reason is known.
use super::{
    super::{
        Decoder, Heard, ModelCall, ModelError, ModelErrorKind, Target,
        counts::{self, Counts, Guess},
        fault::Told,
        fields::Fields,
        neutral,
        provider::{Ids, settle},
        surrogate::repair,
    },
    PART,
};
use crate::message::{Block, Raw, Reply, StopReason, Usage};
use serde_json::{Value, value::RawValue};

/// More parts than any reply has.
const MAX_PARTS: usize = 4_096;

/// The decoder of one stream.
pub(super) struct GeminiDecoder {
    label: String,
    ids: Ids,
    blocks: Vec<Block>,
    /// Text that goes on, and whether it is a thought.
    open: Option<(String, bool)>,
    finish: Option<String>,
    blocked: Option<String>,
    guess: Guess,
    counts: Counts,
}

impl GeminiDecoder {
    pub(super) fn new(call: &ModelCall<'_>, target: Target<'_>) -> GeminiDecoder {
        GeminiDecoder {
            label: target.label(),
            ids: Ids::of(call.messages),
            blocks: Vec::new(),
            open: None,
            finish: None,
            blocked: None,
            guess: Guess::of(call),
            counts: Counts::default(),
        }
    }

    fn cut(&self, what: &str) -> ModelError {
        ModelError::new(ModelErrorKind::Cut, format!("{}: {what}", self.label))
    }

    fn close_text(&mut self) {
        match self.open.take() {
            Some((text, _)) if text.trim().is_empty() => {}
            Some((text, true)) => self.blocks.push(neutral::thinking(&text, None)),
            Some((text, false)) => self.blocks.push(neutral::text(&text, None)),
            None => {}
        }
    }

    fn part(&mut self, raw: &str) -> Result<Heard, ModelError> {
        let part = Fields::parse(raw).map_err(|_| self.cut("a part is not an object"))?;
        let (text, is_thought) = (part.text("text"), part.get("thought") == Some("true"));
        let heard = match (&text, is_thought) {
            (Some(text), true) => Heard::Thinking(text.clone()),
            (Some(text), false) => Heard::Text(text.clone()),
            (None, _) => Heard::Progress,
        };
        if let Some(text) = text.as_ref().filter(|_| part.names().all(|name| matches!(name, "text" | "thought"))) {
            match &mut self.open {
                Some((open, thought)) if *thought == is_thought => open.push_str(text),
                _ => {
                    self.close_text();
                    self.open = Some((text.clone(), is_thought));
                }
            }
            return Ok(heard);
        }
        self.close_text();
        if self.blocks.len() >= MAX_PARTS {
            return Err(self.cut("the reply has too many parts"));
        }
        let raw = Raw::parse(raw).map_err(|_| self.cut("a part is not JSON"))?;
        let own = Some((PART, raw.as_str()));
        let block = match (part.get("functionCall"), text) {
            (Some(call), _) => self.call(call, raw.as_str())?,
            (None, Some(text)) if is_thought => neutral::thinking(&text, own),
            (None, Some(text)) if !text.trim().is_empty() => neutral::text(&text, own),
            // What has no text of its own: a bare signature, code that ran there, and what nobody knows yet.
            (None, _) => neutral::other(part.names().find(|name| !matches!(*name, "text" | "thought" | "thoughtSignature")).unwrap_or("signature"), own),
        };
        self.blocks.push(block);
        Ok(heard)
    }

    fn call(&mut self, call: &str, part: &str) -> Result<Block, ModelError> {
        let fields = Fields::parse(call).map_err(|_| self.cut("a tool call is not an object"))?;
        let name = fields.text("name").filter(|name| !name.is_empty()).ok_or_else(|| self.cut("a tool call has no name"))?;
        let id = self.ids.claim(&fields.text("id").unwrap_or_default());
        let (input, _) = neutral::input(fields.get("args").unwrap_or_default());
        Ok(neutral::call(&id, &name, &input, Some((PART, part))))
    }

    /// Takes a candidate: its parts and its end.
    fn candidate(&mut self, candidate: &Fields) -> Result<Heard, ModelError> {
        let parts = candidate.get("content").and_then(|content| Fields::parse(content).ok()).and_then(|content| content.get("parts").map(str::to_owned));
        let parts: Vec<Box<RawValue>> = parts.and_then(|parts| serde_json::from_str(&parts).ok()).unwrap_or_default();
        let mut heard = Heard::Progress;
        for part in &parts {
            heard = joined(heard, self.part(part.get())?);
        }
        let grounding: Value = candidate.get("groundingMetadata").and_then(|grounding| serde_json::from_str(grounding).ok()).unwrap_or_default();
        if let Some(queries) = grounding["webSearchQueries"].as_array() {
            // Before its third version a prompt is charged for that was grounded, however often it searched.
            let is_by_prompt = ["/gemini-1", "/gemini-2"].iter().any(|old| self.label.contains(old));
            self.counts.searches = Some(if is_by_prompt { u64::from(!queries.is_empty()) } else { queries.len() as u64 });
        }
        if let Some(word) = candidate.text("finishReason") {
            self.finish = Some(word);
        }
        Ok(heard)
    }

    fn stop(&self) -> Result<StopReason, ModelError> {
        if let (Some(word), None) = (&self.blocked, &self.finish) {
            return Ok(StopReason::Refusal { category: word.to_ascii_lowercase() });
        }
        match self.finish.as_deref() {
            None => Err(self.cut("the stream ended before its terminal event")),
            // Google says that it stopped; servers that speak like it may say that it is for calls.
            Some("STOP" | "FUNCTION_CALL" | "TOOL_CALLS") => Ok(StopReason::EndTurn),
            Some("MAX_TOKENS") => Ok(StopReason::MaxTokens),
            Some(word @ ("SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII")) => {
                Ok(StopReason::Refusal { category: word.to_ascii_lowercase() })
            }
            // The model stumbled over the form of what it wanted to say: another attempt says it again.
            Some(word @ ("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE")) => {
                Err(ModelError::new(ModelErrorKind::Garbled, format!("{}: the reply is broken ({word})", self.label)))
            }
            Some("MISSING_THOUGHT_SIGNATURE") => {
                Err(ModelError::new(ModelErrorKind::Rejected, format!("{}: a thought's signature is missing in the request", self.label)))
            }
            Some(word) => Ok(StopReason::Unknown(word.to_owned())),
        }
    }
}

impl Decoder for GeminiDecoder {
    fn push(&mut self, event: &str, data: &str) -> Result<Heard, ModelError> {
        let data = data.trim();
        if data.is_empty() {
            return Ok(Heard::Ping);
        }
        let data = repair(data);
        let fields = match Fields::parse(&data) {
            Ok(fields) => fields,
            Err(_) if self.finish.is_some() => return Ok(Heard::Progress),
            Err(_) => return Err(self.cut("the stream holds an event that is not a JSON object")),
        };
        if event == "error" || fields.get("error").is_some_and(|error| error != "null") {
            return Err(Told::parse(&data).into_error(&self.label));
        }
        if let Some(usage) = fields.get("usageMetadata").and_then(|usage| serde_json::from_str(usage).ok()) {
            self.counts.overwrite(count(&usage));
        }
        let feedback: Value = fields.get("promptFeedback").and_then(|feedback| serde_json::from_str(feedback).ok()).unwrap_or_default();
        if let Some(word) = feedback["blockReason"].as_str() {
            self.blocked = Some(word.to_owned());
        }
        let candidates: Vec<Box<RawValue>> = fields.get("candidates").and_then(|candidates| serde_json::from_str(candidates).ok()).unwrap_or_default();
        // Only one was asked for.
        candidates.first().and_then(|candidate| Fields::parse(candidate.get()).ok()).map_or(Ok(Heard::Progress), |candidate| self.candidate(&candidate))
    }

    fn used(&self) -> Usage {
        self.counts.without_cached().told()
    }

    fn finish(mut self: Box<Self>) -> Result<Reply, ModelError> {
        let stop = self.stop()?;
        self.close_text();
        let stop = settle(stop, &self.blocks);
        let usage = self.counts.without_cached().usage(self.guess, &self.blocks);
        Ok(Reply { model: self.label, blocks: self.blocks, stop, usage, usd: None, usd_is_part: false, container: None })
    }
}

/// Joins what the parts of one chunk are for whoever watches: pieces of one kind, otherwise the last.
fn joined(before: Heard, next: Heard) -> Heard {
    match (before, next) {
        (Heard::Text(a), Heard::Text(b)) => Heard::Text(a + &b),
        (Heard::Thinking(a), Heard::Thinking(b)) => Heard::Thinking(a + &b),
        (before @ (Heard::Text(_) | Heard::Thinking(_)), Heard::Progress) => before,
        (_, next) => next,
    }
}

fn count(usage: &Value) -> Counts {
    let number = |pointer: &str| counts::read(usage, pointer);
    // Thoughts are none of the candidates', and what tools there read is none of the prompt's.
    let sum = |one: Option<u64>, other: Option<u64>| one.map(|one| one.saturating_add(other.unwrap_or(0)));
    Counts {
        input: sum(number("/promptTokenCount"), number("/toolUsePromptTokenCount")),
        output: sum(number("/candidatesTokenCount").or(number("/thoughtsTokenCount").map(|_| 0)), number("/thoughtsTokenCount")),
        cache_read: number("/cachedContentTokenCount"),
        ..Counts::default()
    }
}
