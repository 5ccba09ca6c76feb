//! One model call. A `Provider` is a wire format and does no I/O; a `Model` is what an agent talks to.
//!
//! A stream that ends without its terminal event is a failed attempt, never a reply. Retries and the shared
//! limiter are inside `Model`: an agent sees a whole [`Reply`] or a final [`ModelError`], after which it may ask another model.
//!
//! How the parts talk: [`HttpModel`] takes a place from the limiter, lets the `Provider` of the endpoint's protocol write
//! the request, sends it through `http`, and feeds the events of the answer to the provider's `Decoder`, which is pure and
//! gives a reply only where the stream reached its end. [`Script`] answers from a file instead, [`Replay`] from what a
//! [`Recorder`] heard of another model.
//!
//! History is never serialised again: requests are built by joining the bytes that blocks were recorded with.
mod anthropic;
mod capability;
mod counts;
mod endpoint;
mod fault;
mod fields;
mod gemini;
mod http_model;
mod limiter;
mod listed;
mod moment;
mod neutral;
mod openai_chat;
mod openai_responses;
mod price;
mod provider;
mod recording;
mod schema;
pub mod script;
mod span;
mod stream;
mod surrogate;

pub use capability::{Capabilities, capabilities};
pub use endpoint::{BUILT_IN, BuiltIn, Endpoint, Endpoints, NO_KEY, OTHER, OTHER_NAMES, Protocol, Secret};
pub use http_model::{HttpModel, Retries};
pub use limiter::Limiter;
pub use listed::{fetch_models, lists, takes_key};
pub use neutral::unbound;
pub use price::{Price, Rates, costs_beyond_tokens, usd};
pub use provider::{Decoder, Heard, Provider, Target, provider};
pub use recording::{Head, Recorder, Recording, RecordingError, Replay, RunPlace};
pub use script::Script;

use crate::{
    event::NodeId,
    message::{Message, ProviderTool, Reply, ToolSpec, Usage},
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// Everything a request is made from: a pure function of the transcript and the agent.
#[derive(Debug, Clone)]
pub struct ModelCall<'a> {
    /// Who asks; for traces, scripts and fairness, never sent.
    pub node: &'a NodeId,
    /// Which of that one's requests it is; for recordings, never sent.
    pub ordinal: Ordinal,
    /// The agent's name; for traces and scripts, never sent.
    pub agent: &'a str,
    /// `provider/model`, in order of preference. Once a reply is in the transcript: only the one that gave it.
    pub models: &'a [String],
    /// Thinking effort, in the provider's word.
    pub effort: Option<&'a str>,
    /// Cap on the reply, in tokens; absent: the model's own.
    pub max_output_tokens: Option<u32>,
    /// Whether the last reply was cut at that cap, so that this one may be as long as the model makes them.
    pub is_longest: bool,
    /// How long the prompt is, in tokens, as far as can be told: no longer reply is asked for than it leaves room for.
    pub prompt_tokens: u64,
    /// The system text.
    pub system: &'a str,
    /// The tools, sorted by name.
    pub tools: &'a [ToolSpec],
    /// Tools that run at the provider.
    pub provider_tools: &'a [ProviderTool],
    /// JSON Schema that the final answer must fit; sent where the provider has a format for it, always checked by us.
    pub output_schema: Option<&'a Value>,
    /// Whether nothing is wanted but the answer, which was asked for again.
    pub must_answer: bool,
    /// Whether the provider paused the reply that stands last: it goes back as it came, and is gone on with.
    pub is_paused: bool,
    /// Where the provider ran code for this conversation last.
    pub container: Option<&'a str>,
    /// The conversation. The last message is the user's, or the assistant's whose turn the provider paused.
    pub messages: &'a [Arc<Message>],
}

/// Which of its node's requests one is: one that is sent again since its end was not kept has the same ordinal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ordinal {
    /// The attempt at the node.
    pub attempt: u32,
    /// How often it was settled before what becomes of a request, as the journal has it.
    pub settled: u32,
}

/// What became of a request at the accounts of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Booking {
    /// What it is expected to use was set aside for it.
    Admitted,
    /// Too little is left for it.
    Refused,
    /// What it used was charged.
    Settled,
}

/// What an agent talks to.
#[async_trait]
pub trait Model: Send + Sync {
    /// Asks for one reply.
    ///
    /// # Errors
    /// After all retries and fallbacks.
    async fn reply(&self, call: &ModelCall<'_>, sink: &dyn Sink) -> Result<Reply, ModelError>;

    /// Returns the size of the model's context window, in tokens.
    fn window(&self, model: &str) -> u64;

    /// Returns whether what a model has thought can only stand after exactly what stood before it.
    fn is_bound(&self, _model: &str) -> bool {
        true
    }

    /// Returns the dollars that `usage` of a model costs now; `None` where the price is not known, or not yet.
    fn price(&self, _model: &str, _usage: &Usage) -> Option<f64> {
        None
    }

    /// Waits until it is a request's turn to be held against the accounts or, as `is_settled` says, to be charged: only who answers from a
    /// recording keeps an order.
    async fn turn(&self, _node: &NodeId, _ordinal: Ordinal, _is_settled: bool) {}

    /// Takes note of what became of a request at the accounts, in the order in which it did: nothing else is booked meanwhile.
    fn booked(&self, _node: &NodeId, _ordinal: Ordinal, _how: Booking) {}

    /// Returns whether the replies come from a script and not from a model.
    fn is_scripted(&self) -> bool {
        false
    }
}

/// Where a reply's progress is shown while it streams. Nothing of it is a result, but for what an attempt without one has cost.
pub trait Sink: Send + Sync {
    /// Takes a piece of text.
    fn text(&self, _delta: &str) {}
    /// Takes a piece of visible thinking.
    fn thinking(&self, _delta: &str) {}
    /// Takes note that an attempt failed and another follows.
    fn retrying(&self, _retry: &Retry<'_>) {}
    /// Takes note that a request goes out.
    fn asking(&self) {}
    /// Takes note that it waits for its turn, and what for.
    fn waiting(&self, _why: &str) {}
    /// Takes note that something came, shown or not.
    fn alive(&self) {}
    /// Takes note of what an attempt has used that gave no reply, and of its dollars where the price is known: it is paid for
    /// all the same.
    fn lost(&self, _usage: &Usage, _usd: Option<f64>) {}
}

/// An attempt that follows a failed one.
#[derive(Debug, Clone, Copy)]
pub struct Retry<'a> {
    /// Why the last one failed.
    pub why: &'a ModelError,
    /// How long it is until then.
    pub wait_ms: u64,
    /// Its number, of those that count.
    pub attempt: u32,
    /// How many there may be.
    pub of: u32,
}

/// A sink that shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;
impl Sink for Silent {}

/// Why no reply could be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The class, for programs.
    pub kind: ModelErrorKind,
    /// A sentence fragment that names provider and model.
    pub message: String,
    /// What to do, where that is known.
    pub hint: Option<String>,
}

impl ModelError {
    /// Makes an error without a hint.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> ModelError {
        ModelError { kind, message: message.into(), hint: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> ModelError {
        ModelError { hint: Some(hint.into()), ..self }
    }
}

/// The classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// No connection, or it broke; retried until the ceiling.
    Unreachable,
    /// 429 with a time to wait, 529, 5xx; retried until the ceiling.
    Overloaded,
    /// The stream ended, stalled or broke before its terminal event; retried until the ceiling.
    Cut,
    /// The reply came to its end, and the model stumbled over the form of what it wanted to say; asked for again a few times.
    Garbled,
    /// The provider's spend limit: waiting does not mend it.
    SpendLimit,
    /// The provider asks to wait longer than anybody waits here.
    Later,
    /// The key is missing or wrong.
    Unauthorized,
    /// No such model or provider.
    UnknownModel,
    /// The request does not fit the window.
    TooLong,
    /// The provider says that thinking in the transcript belongs to another conversation.
    Unbound,
    /// A cap of the user's cut a call; asked again without it the model may make the whole of it.
    Capped,
    /// The provider refused the request as malformed: a bug of ours or of the endpoint's.
    Rejected,
    /// The script or the recording has no reply for this request.
    Script,
}

/// What is to be done about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing: the same request fails again, and so does any like it.
    Stop,
    /// The same request may succeed later.
    Wait,
    /// Another request in its place may succeed: shorter, without its thinking, or for a longer reply.
    Repair,
}

impl ModelErrorKind {
    /// Returns what is to be done about it.
    pub fn class(self) -> Class {
        match self {
            ModelErrorKind::Unreachable | ModelErrorKind::Overloaded | ModelErrorKind::Cut => Class::Wait,
            ModelErrorKind::TooLong | ModelErrorKind::Unbound | ModelErrorKind::Capped => Class::Repair,
            ModelErrorKind::Garbled
            | ModelErrorKind::SpendLimit
            | ModelErrorKind::Later
            | ModelErrorKind::Unauthorized
            | ModelErrorKind::UnknownModel
            | ModelErrorKind::Rejected
            | ModelErrorKind::Script => Class::Stop,
        }
    }

    /// Returns whether a run waits for it, ended and to be resumed, instead of failing.
    pub fn parks(self) -> bool {
        matches!(self, ModelErrorKind::SpendLimit | ModelErrorKind::Later)
    }

    /// Returns the one word for it, in snake case.
    pub fn word(self) -> &'static str {
        match self {
            ModelErrorKind::Unreachable => "unreachable",
            ModelErrorKind::Overloaded => "overloaded",
            ModelErrorKind::Cut => "cut",
            ModelErrorKind::Garbled => "garbled",
            ModelErrorKind::SpendLimit => "spend_limit",
            ModelErrorKind::Later => "later",
            ModelErrorKind::Unauthorized => "unauthorized",
            ModelErrorKind::UnknownModel => "unknown_model",
            ModelErrorKind::TooLong => "too_long",
            ModelErrorKind::Unbound => "unbound",
            ModelErrorKind::Capped => "capped",
            ModelErrorKind::Rejected => "rejected",
            ModelErrorKind::Script => "script",
        }
    }
}
