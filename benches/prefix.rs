//! How much of one request the next one begins with: what a provider's prompt cache can read, worked out from the bytes.
use spinney::{
    event::{NodeId, StepId},
    llm::{Endpoint, ModelCall, ModelError, Ordinal, Protocol, Target, provider},
    message::{Block, Message, Role, ToolCall, ToolResult, ToolSpec},
};
use std::sync::Arc;

/// Bytes of each tool result.
const RESULT: usize = 2_048;
/// What marks a place in an Anthropic request up to which the cache is kept. It is a direction to the provider and no part of the prompt, and
/// it moves on with the conversation.
const MARK: &str = r#""cache_control":{"type":"ephemeral"}"#;

/// What of the shorter of two consecutive requests the other begins with, from 0 to 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Of the bytes as they are sent.
    pub(crate) sent: f64,
    /// Of the prompt: the same without the marks.
    pub(crate) prompt: f64,
}

/// Returns the shares of a conversation of so many turns, each with a word on it, two calls and their results.
///
/// # Errors
/// Where a request cannot be written.
pub(crate) fn shares(protocol: Protocol, model: &str, turns: usize) -> Result<Vec<Share>, ModelError> {
    let endpoint = Endpoint::new("p", protocol, "http://127.0.0.1");
    let node = NodeId::step(&StepId::from("work"));
    let tools: Vec<ToolSpec> = ["Bash", "Edit", "Glob", "Grep", "Read", "Write"].map(tool).into();
    let system = "You write code, carefully and in small steps. ".repeat(60);
    let mut messages = vec![Arc::new(Message::user(&"Mend the parser, and say what you did. ".repeat(20)))];
    let request = |messages: &[Arc<Message>]| {
        let call = ModelCall {
            node: &node,
            ordinal: Ordinal::default(),
            agent: "coder",
            models: &[],
            effort: None,
            max_output_tokens: None,
            is_longest: false,
            prompt_tokens: 0,
            system: &system,
            tools: &tools,
            provider_tools: &[],
            output_schema: None,
            must_answer: false,
            is_paused: false,
            container: None,
            messages,
        };
        provider(protocol).request(&call, Target { endpoint: &endpoint, model }).map(|request| String::from_utf8_lossy(&request.body).into_owned())
    };
    let mut before = request(&messages)?;
    let mut shares = Vec::with_capacity(turns);
    for turn in 0..turns {
        let calls = [0, 1].map(|n| ToolCall {
            id: format!("call_{turn}_{n}"),
            name: "Read".to_owned(),
            input: serde_json::json!({"file_path": format!("src/{turn}.rs"), "offset": n}),
        });
        let said = [Block::text("I look at the next file.")].into_iter().chain(calls.iter().map(Block::tool_call)).collect();
        messages.push(Arc::new(Message { role: Role::Assistant, blocks: said }));
        let results = calls.map(|call| ToolResult::new(&call.id, format!("{turn} ").repeat(RESULT / 4), false));
        messages.push(Arc::new(Message::results(&results, None)));
        let after = request(&messages)?;
        shares.push(Share { sent: share(&before, &after), prompt: share(&unmarked(&before), &unmarked(&after)) });
        before = after;
    }
    Ok(shares)
}

fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: format!("{name}s things, and says what came of it. ").repeat(6),
        input_schema: serde_json::json!({"type": "object", "properties": {"file_path": {"type": "string", "description": "Where"}}}),
    }
}

fn unmarked(body: &str) -> String {
    body.replace(&format!(",{MARK}"), "")
}

#[expect(clippy::cast_precision_loss, reason = "requests are far below 2^52 bytes")]
fn share(one: &str, other: &str) -> f64 {
    let same = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    same as f64 / one.len().min(other.len()).max(1) as f64
}
