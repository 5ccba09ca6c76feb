//! How much of one request the next one begins with: what a provider's prompt cache can read, worked out from the bytes.
//!
//! The prefix of a request is all of it up to the end of what was said, as it is sent. What stands behind is no part of the prompt: the
//! longest reply that is asked for, which is another one where a cap is raised and near the end of the window, and what is
//! asked for once. The conversations here have all of that.
use spinney::{
    event::{NodeId, StepId},
    llm::{BUILT_IN, Endpoint, ModelCall, ModelError, Ordinal, Protocol, Target, capabilities, provider},
    message::{Block, Message, Role, ToolCall, ToolResult, ToolSpec},
};
use std::sync::Arc;

/// Bytes of each tool result.
const RESULT: usize = 2_048;
/// What marks a place in an Anthropic request up to which the cache is kept. It is a direction to the provider and no part of the prompt.
const MARK: &str = r#""cache_control":{"type":"ephemeral"}"#;

/// What of the prefix of the shorter of two consecutive requests the other begins with, from 0 to 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Of the bytes as they are sent.
    pub(crate) sent: f64,
    /// Of the same without the marks.
    pub(crate) prompt: f64,
}

/// Returns the endpoint of a protocol's own provider.
///
/// # Errors
/// Where none that is built in speaks it.
pub(crate) fn own(protocol: Protocol) -> Result<Endpoint, String> {
    let built_in = BUILT_IN.iter().find(|built_in| built_in.protocol == protocol).ok_or_else(|| format!("no provider that is built in speaks {protocol:?}"))?;
    Ok(Endpoint::new(built_in.name, protocol, built_in.url))
}

/// Returns the shares of a conversation of so many turns, each with a word on it, its calls and their results. It comes to its
/// window's end, and replies are capped and asked for without the cap in between.
///
/// # Errors
/// Where a request cannot be written.
pub(crate) fn shares(endpoint: &Endpoint, model: &str, turns: usize, calls: impl Fn(usize) -> usize) -> Result<Vec<Share>, ModelError> {
    let node = NodeId::step(&StepId::from("work"));
    let tools: Vec<ToolSpec> = ["Bash", "Edit", "Glob", "Grep", "Read", "Write"].map(tool).into();
    let system = "You write code, carefully and in small steps. ".repeat(60);
    let mut messages = vec![Arc::new(Message::user(&"Mend the parser, and say what you did. ".repeat(20)))];
    let request = |messages: &[Arc<Message>]| {
        let turn = messages.len() / 2;
        let call = ModelCall {
            node: &node,
            ordinal: Ordinal::default(),
            agent: "coder",
            models: &[],
            effort: None,
            max_output_tokens: matches!(turn % 7, 3 | 4).then_some(4_096),
            is_longest: turn % 7 == 4,
            prompt_tokens: capabilities(model).window * turn as u64 / turns as u64,
            system: &system,
            tools: &tools,
            provider_tools: &[],
            output_schema: None,
            must_answer: false,
            is_paused: false,
            container: None,
            messages,
        };
        provider(endpoint.protocol).request(&call, Target { endpoint, model }).map(|request| prefix(&String::from_utf8_lossy(&request.body)))
    };
    let mut before = request(&messages)?;
    let mut shares = Vec::with_capacity(turns);
    for turn in 0..turns {
        let calls: Vec<ToolCall> = (0..calls(turn)).map(|n| read(turn, n)).collect();
        let said = [Block::text("I look at the next file.")].into_iter().chain(calls.iter().map(Block::tool_call)).collect();
        messages.push(Arc::new(Message { role: Role::Assistant, blocks: said }));
        let results: Vec<ToolResult> = calls.iter().map(|call| ToolResult::new(&call.id, format!("{turn} ").repeat(RESULT / 4), false)).collect();
        messages.push(Arc::new(Message::results(&results, None)));
        let after = request(&messages)?;
        shares.push(Share { sent: share(&before, &after), prompt: share(&unmarked(&before), &unmarked(&after)) });
        before = after;
    }
    Ok(shares)
}

/// Returns a request up to the end of what was said: no list stands behind.
fn prefix(body: &str) -> String {
    body[..body.rfind(']').map_or(0, |at| at + 1)].to_owned()
}

fn read(turn: usize, n: usize) -> ToolCall {
    let input = serde_json::json!({"file_path": format!("src/{turn}.rs"), "offset": n});
    ToolCall { id: format!("call_{turn}_{n}"), name: "Read".to_owned(), input }
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
