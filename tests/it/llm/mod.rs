//! Models: what is sent, what is understood, and what happens when it breaks.
#![expect(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "fixtures of tests may panic, and read best when they take `json!` as it is")]
mod anthropic;
mod broken;
mod chat;
mod facts;
mod gemini;
mod http;
mod prefix;
mod quirks;
mod requests;
mod responses;
mod shared;

use serde_json::Value;
use spinney::{
    event::{NodeId, StepId},
    llm::{Decoder, Endpoint, Heard, ModelCall, ModelError, Ordinal, Protocol, Target, provider},
    message::{Message, ProviderTool, Reply, ToolResult, ToolSpec},
};
use std::sync::Arc;

/// A call that a test can change.
pub(crate) struct Talk {
    pub(crate) node: NodeId,
    pub(crate) models: Vec<String>,
    pub(crate) effort: Option<String>,
    pub(crate) max_output_tokens: Option<u32>,
    pub(crate) prompt_tokens: u64,
    pub(crate) system: String,
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) provider_tools: Vec<ProviderTool>,
    pub(crate) schema: Option<Value>,
    pub(crate) must_answer: bool,
    pub(crate) is_paused: bool,
    pub(crate) container: Option<String>,
    pub(crate) messages: Vec<Arc<Message>>,
}

impl Talk {
    pub(crate) fn new(model: &str, first: &str) -> Talk {
        Talk {
            node: NodeId::step(&StepId::from("build")),
            models: vec![model.to_owned()],
            effort: None,
            max_output_tokens: None,
            prompt_tokens: 0,
            system: "Be brief.".to_owned(),
            tools: Vec::new(),
            provider_tools: Vec::new(),
            schema: None,
            must_answer: false,
            is_paused: false,
            container: None,
            messages: vec![Arc::new(Message::user(first))],
        }
    }

    pub(crate) fn call(&self) -> ModelCall<'_> {
        ModelCall {
            node: &self.node,
            ordinal: Ordinal::default(),
            agent: "coder",
            models: &self.models,
            effort: self.effort.as_deref(),
            max_output_tokens: self.max_output_tokens,
            is_longest: false,
            prompt_tokens: self.prompt_tokens,
            system: &self.system,
            tools: &self.tools,
            provider_tools: &self.provider_tools,
            output_schema: self.schema.as_ref(),
            must_answer: self.must_answer,
            is_paused: self.is_paused,
            container: self.container.as_deref(),
            messages: &self.messages,
        }
    }

    /// Records a reply and answers its calls, or goes on with a text.
    pub(crate) fn answer(&mut self, reply: &Reply, text: &str) {
        self.messages.extend(reply.message().map(Arc::new));
        let results: Vec<ToolResult> = reply.calls().map(|call| ToolResult::new(&call.id, text, false)).collect();
        self.messages.push(Arc::new(if results.is_empty() { Message::user(text) } else { Message::results(&results, None) }));
    }
}

/// Returns the body of the request for a reply to `talk`.
pub(crate) fn sent(endpoint: &Endpoint, model: &str, talk: &Talk) -> String {
    String::from_utf8(provider(endpoint.protocol).request(&talk.call(), Target { endpoint, model }).unwrap().body).unwrap()
}

/// Decodes events after `talk`.
pub(crate) fn decode(protocol: Protocol, talk: &Talk, events: &[(&str, &str)]) -> Result<Reply, ModelError> {
    let endpoint = Endpoint::new("p", protocol, "http://127.0.0.1");
    let mut decoder: Box<dyn Decoder> = provider(protocol).decoder(&talk.call(), Target { endpoint: &endpoint, model: "m" });
    for (event, data) in events {
        if decoder.push(event, data)? == Heard::End {
            break;
        }
    }
    decoder.finish()
}
