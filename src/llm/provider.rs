//! What a wire format is: a call to the bytes of a request, and the events of a stream to a reply. No I/O, no clock.
use super::{
    Capabilities, Endpoint, ModelCall, ModelError, ModelErrorKind, Protocol,
    anthropic::Anthropic,
    capability::{Effort, Thinking},
    fields::string,
    gemini::Gemini,
    openai_chat::OpenAiChat,
    openai_responses::OpenAiResponses,
    schema,
};
use crate::{
    http::HttpRequest,
    message::{Block, Message, Reply, Role, StopReason, ToolSpec, Usage, View},
};
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

/// What is said behind a reply that was begun, to a model that does not go on with one.
static GO_ON: LazyLock<Block> = LazyLock::new(|| Block::text("Go on."));
/// How a model chooses its words: of what the user has requests hold besides, this only goes to models that take it.
const SAMPLING: &[&str] = &[
    "temperature",
    "top_p",
    "top_k",
    "topP",
    "topK",
    "min_p",
    "presence_penalty",
    "presencePenalty",
    "frequency_penalty",
    "frequencyPenalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
];

/// The shortest reply that is worth asking for, in tokens.
pub(super) const SHORTEST_REPLY: u32 = 1_000;

/// One model at one endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Where it is served.
    pub endpoint: &'a Endpoint,
    /// Its id there.
    pub model: &'a str,
}

impl Target<'_> {
    /// Returns `provider/model`.
    pub fn label(&self) -> String {
        format!("{}/{}", self.endpoint.name, self.model)
    }

    /// Returns what it can do there.
    pub fn capabilities(&self) -> Capabilities {
        self.endpoint.capabilities(self.model)
    }
}

/// A wire format.
pub trait Provider: Send + Sync {
    /// Writes the request. The same call gives the same bytes.
    ///
    /// # Errors
    /// `Rejected` where the call asks for what the model is known not to take.
    fn request(&self, call: &ModelCall<'_>, target: Target<'_>) -> Result<HttpRequest, ModelError>;

    /// Returns the words that a request has for what it is made of: nobody else sets them.
    fn own_words(&self) -> &'static [&'static str];

    /// Makes a decoder for the answer to one request.
    fn decoder(&self, call: &ModelCall<'_>, target: Target<'_>) -> Box<dyn Decoder>;
}

/// Puts a reply together from the events of a stream.
pub trait Decoder: Send {
    /// Takes one event.
    ///
    /// # Errors
    /// Where the event is an error or breaks the protocol: the attempt has failed.
    fn push(&mut self, event: &str, data: &str) -> Result<Heard, ModelError>;

    /// Returns what the provider has said so far of what the reply uses.
    fn used(&self) -> Usage;

    /// Ends the stream.
    ///
    /// # Errors
    /// `Cut` where the stream did not reach its end: nothing of it is a reply.
    fn finish(self: Box<Self>) -> Result<Reply, ModelError>;
}

/// What an event was, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Nothing but a sign of life.
    Ping,
    /// Something that is not shown.
    Progress,
    /// A piece of text.
    Text(String),
    /// A piece of visible thinking.
    Thinking(String),
    /// The last event.
    End,
}

/// Returns the wire format of a protocol.
pub fn provider(protocol: Protocol) -> &'static dyn Provider {
    match protocol {
        Protocol::Anthropic => &Anthropic,
        Protocol::OpenAiResponses => &OpenAiResponses,
        Protocol::OpenAiChat => &OpenAiChat,
        Protocol::Gemini => &Gemini,
    }
}

/// Consecutive messages of one role, as one: the protocols want roles to alternate, and answers in one message.
pub(super) struct Turn<'a> {
    pub(super) role: Role,
    pub(super) blocks: Vec<&'a Block>,
}

/// Joins consecutive messages of one role. What of the model's turns cannot be sent is left out by `trim`, and a turn of which
/// nothing is left with it, so that roles go on alternating; of the last turn, which is to go on, everything is kept. The same
/// messages give the same turns, whatever is said after them.
///
/// A reply that was begun stands last only before a model that goes on with it, or where the provider paused it itself: any other
/// model is told to go on.
pub(super) fn turns<'a>(call: &ModelCall<'a>, known: &Capabilities, trim: impl Fn(&mut Vec<&'a Block>)) -> Vec<Turn<'a>> {
    let whole = joined(call.messages.iter().map(|message| Turn { role: message.role, blocks: message.blocks.iter().collect() }));
    let last = whole.len().saturating_sub(1);
    let trimmed = whole.into_iter().enumerate().map(|(n, mut turn)| {
        if turn.role == Role::Assistant && n < last {
            trim(&mut turn.blocks);
        }
        turn
    });
    let mut turns = joined(trimmed);
    if !known.prefill && !call.is_paused && turns.last().is_some_and(|turn| turn.role == Role::Assistant) {
        turns.push(Turn { role: Role::User, blocks: vec![&GO_ON] });
    }
    turns
}

fn joined<'a>(all: impl Iterator<Item = Turn<'a>>) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for turn in all.filter(|turn| !turn.blocks.is_empty()) {
        match turns.last_mut() {
            Some(last) if last.role == turn.role => last.blocks.extend(turn.blocks),
            _ => turns.push(turn),
        }
    }
    turns
}

/// How an answer is held to its schema, and the tools.
pub(super) struct Declared<'a> {
    /// The schema, in the provider's own format.
    pub(super) format: Option<Value>,
    pub(super) tools: Cow<'a, [ToolSpec]>,
    /// Whether the tool that takes the answer is to be called now.
    pub(super) is_forced: bool,
}

/// Returns how an answer is held to its schema: by the provider's own format where it has one for it, otherwise by one more tool
/// that takes the answer. That is forced only where the answer is asked for again, of a model that can be.
pub(super) fn declared<'a>(call: &ModelCall<'a>, known: &Capabilities) -> Declared<'a> {
    let plain = Declared { format: None, tools: Cow::Borrowed(call.tools), is_forced: false };
    let Some(schema) = call.output_schema else { return plain };
    if let Some(format) = Some(schema).filter(|_| known.takes_schema).and_then(schema::sendable) {
        return Declared { format: Some(format), ..plain };
    }
    let Some(submit) = ToolSpec::submit(schema) else { return plain };
    let mut tools = call.tools.to_vec();
    tools.push(submit);
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    Declared { tools: Cow::Owned(tools), is_forced: call.must_answer && known.forced_tools, ..plain }
}

/// Appends what the user has every request hold besides, but for what this model refuses.
pub(super) fn push_extra(out: &mut String, known: &Capabilities, target: Target<'_>) {
    let own = provider(target.endpoint.protocol).own_words();
    let is_sent = |word: &str| !own.contains(&word) && (known.sampling || !SAMPLING.contains(&word));
    for (word, value) in target.endpoint.extra.iter().filter(|(word, _)| is_sent(word)) {
        let comma = if out.ends_with('{') { "" } else { "," };
        out.push_str(&format!("{comma}{}:{value}", string(word)));
    }
}

/// Returns the longest reply to ask for where the call has a cap: that, or as much as the model is known to make where the last one
/// was cut at it, and no more than the prompt leaves of a window that is known.
pub(super) fn longest(call: &ModelCall<'_>, known: &Capabilities, target: Target<'_>) -> Option<u32> {
    let cap = call.max_output_tokens?;
    let may_be_longer = call.is_longest && target.endpoint.listed_window(target.model).is_some();
    let wanted = if may_be_longer { cap.max(known.max_output) } else { cap };
    Some(wanted.min(left(call, target)).max(1))
}

/// Returns what a prompt leaves of the window, less what estimates are wrong by (3 %), and never less than a short reply.
pub(super) fn left(call: &ModelCall<'_>, target: Target<'_>) -> u32 {
    let Some(window) = target.endpoint.listed_window(target.model) else { return u32::MAX };
    let left = window.saturating_sub(window * 3 / 100).saturating_sub(call.prompt_tokens);
    u32::try_from(left).unwrap_or(u32::MAX).max(SHORTEST_REPLY)
}

/// Returns the effort to send.
pub(super) fn effort<'a>(call: &ModelCall<'a>, known: &Capabilities, target: Target<'_>) -> Result<Option<&'a str>, ModelError> {
    match (call.effort, &known.effort) {
        (None, _) | (Some(_), Effort::None) => Ok(None),
        (Some(word), Effort::Words(words)) if !words.iter().any(|known| known == word) => {
            let message = format!("{}: there is no effort `{word}`", target.label());
            Err(ModelError::new(ModelErrorKind::Rejected, message).hint(format!("the efforts of this model are {}", words.join(", "))))
        }
        (Some(word @ ("xhigh" | "max")), _) if known.thinking == Thinking::Disabled => {
            let message = format!("{}: the effort `{word}` needs thinking, and `thinking` is `disabled`", target.label());
            Err(ModelError::new(ModelErrorKind::Rejected, message).hint("take a lower effort, or let the model think"))
        }
        (Some(word), Effort::Words(_) | Effort::Any) => Ok(Some(word)),
    }
}

/// Returns the headers of a request: those of every request, the protocol's own, the key in the header that the protocol has
/// for it, and the endpoint's own, which win.
pub(super) fn headers(endpoint: &Endpoint, own: &[(&str, &str)], key_header: &str) -> Vec<(String, String)> {
    let all = [("content-type", "application/json"), ("accept", "text/event-stream")];
    let mut headers: Vec<(String, String)> = all.iter().chain(own).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    headers.extend(endpoint.key.as_ref().map(|key| match key_header {
        "authorization" => (key_header.to_owned(), format!("Bearer {}", key.expose())),
        _ if endpoint.bearer => ("authorization".to_owned(), format!("Bearer {}", key.expose())),
        _ => (key_header.to_owned(), key.expose().to_owned()),
    }));
    for (name, value) in &endpoint.headers {
        let name = name.to_ascii_lowercase();
        headers.retain(|(other, _)| *other != name);
        headers.push((name, value.clone()));
    }
    headers
}

/// The ids of tool calls: those of the transcript, and the new ones, which must differ from all of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Ids {
    used: BTreeSet<String>,
    turn: usize,
    minted: usize,
}

impl Ids {
    pub(super) fn of(messages: &[Arc<Message>]) -> Ids {
        let used = messages.iter().flat_map(|message| message.calls()).map(|call| call.id.clone()).collect();
        let turn = messages.iter().filter(|message| message.role == Role::Assistant).count();
        Ids { used, turn, minted: 0 }
    }

    /// Returns `id` where it is new, otherwise one made from it; the same stream after the same transcript gives the same.
    pub(super) fn claim(&mut self, id: &str) -> String {
        self.minted += 1;
        let base = if id.trim().is_empty() { format!("call_{}_{}", self.turn, self.minted) } else { id.to_owned() };
        // As many candidates as there are ids, and one more: one of them is free.
        let mut candidates = std::iter::once(base.clone()).chain((2..=self.used.len() + 2).map(|n| format!("{base}-{n}")));
        let free = candidates.find(|candidate| !self.used.contains(candidate)).expect("there are more candidates than used ids");
        self.used.insert(free.clone());
        free
    }
}

/// Makes stop reason and calls agree: what counts is whether there are calls, since servers get the word wrong.
pub(super) fn settle(stop: StopReason, blocks: &[Block]) -> StopReason {
    let has_calls = blocks.iter().any(|block| matches!(block.view(), View::ToolCall(_)));
    match stop {
        StopReason::EndTurn | StopReason::StopSequence if has_calls => StopReason::ToolUse,
        StopReason::ToolUse if !has_calls => StopReason::EndTurn,
        stop => stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ToolCall;
    use serde_json::json;

    #[test]
    fn empty_and_repeated_ids_are_replaced_the_same_way_each_time() {
        let call = |id: &str| Block::tool_call(&ToolCall { id: id.to_owned(), name: "Read".to_owned(), input: json!({}) });
        let said = Arc::new(Message { role: Role::Assistant, blocks: vec![call("a"), call("a-2"), call("call_1_1")] });
        for _ in 0..2 {
            let mut ids = Ids::of(std::slice::from_ref(&said));
            let claimed: Vec<String> = ["", "a", "b", "b", " "].iter().map(|id| ids.claim(id)).collect();
            assert_eq!(claimed, ["call_1_1-2", "a-3", "b", "b-2", "call_1_5"]);
        }
    }
}
