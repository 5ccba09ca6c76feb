//! One reply of a model: its blocks, why it stopped, what it cost.
use super::{Block, Message, Role, ToolCall, View};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a model stopped. Only `EndTurn` and `StopSequence` end a conversation well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model has nothing more to do.
    EndTurn,
    /// The model waits for tool results.
    ToolUse,
    /// The reply was cut at the output limit.
    MaxTokens,
    /// A stop sequence was met.
    StopSequence,
    /// The provider paused its own tool loop: send the same again.
    PauseTurn,
    /// The model declined; `category` is the provider's word for why.
    Refusal {
        /// The provider's category, or empty.
        category: String,
    },
    /// The reply was cut because the window was full.
    WindowExceeded,
    /// A word this program does not know.
    Unknown(String),
}

impl StopReason {
    /// Reads the word of the Anthropic Messages API; a refusal has no category there.
    pub fn of_word(word: &str) -> StopReason {
        match word {
            "end_turn" => StopReason::EndTurn,
            "tool_use" => StopReason::ToolUse,
            "max_tokens" => StopReason::MaxTokens,
            "stop_sequence" => StopReason::StopSequence,
            "pause_turn" => StopReason::PauseTurn,
            "refusal" => StopReason::Refusal { category: String::new() },
            "model_context_window_exceeded" => StopReason::WindowExceeded,
            other => StopReason::Unknown(other.to_owned()),
        }
    }

    /// Returns that word.
    pub fn word(&self) -> &str {
        match self {
            StopReason::EndTurn => "end_turn",
            StopReason::ToolUse => "tool_use",
            StopReason::MaxTokens => "max_tokens",
            StopReason::StopSequence => "stop_sequence",
            StopReason::PauseTurn => "pause_turn",
            StopReason::Refusal { .. } => "refusal",
            StopReason::WindowExceeded => "model_context_window_exceeded",
            StopReason::Unknown(word) => word,
        }
    }
}

/// Tokens of one reply. `input` counts uncached input only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Uncached input tokens.
    pub input: u64,
    /// Output tokens, thinking included.
    pub output: u64,
    /// Input tokens read from the prompt cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Input tokens written to the prompt cache.
    #[serde(default)]
    pub cache_write: u64,
    /// Searches of the web that the provider made and charges for; no tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub searches: u64,
    /// Whether some of it was not counted by the provider, and is what its texts are likely to have.
    #[serde(default, skip_serializing_if = "is_not")]
    pub estimated: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_not(set: &bool) -> bool {
    !*set
}

impl Usage {
    /// Returns the same with counts that can be added up without end: nobody uses more than 2^40 tokens in one reply.
    #[must_use]
    pub fn bounded(self) -> Usage {
        const MOST: u64 = 1 << 40;
        let Usage { input, output, cache_read, cache_write, searches, estimated } = self;
        let [input, output, cache_read, cache_write, searches] = [input, output, cache_read, cache_write, searches].map(|count| count.min(MOST));
        Usage { input, output, cache_read, cache_write, searches, estimated }
    }

    /// Returns every token, in and out.
    pub fn total(&self) -> u64 {
        self.prompt() + self.output
    }

    /// Returns the size of the prompt, however it was billed.
    pub fn prompt(&self) -> u64 {
        self.input + self.cache_read + self.cache_write
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.searches += other.searches;
        self.estimated |= other.estimated;
    }
}

/// A whole reply; a stream that did not reach its end never becomes one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// `provider/model` that answered.
    pub model: String,
    /// What it said; may be empty.
    pub blocks: Vec<Block>,
    /// Why it stopped.
    pub stop: StopReason,
    /// What it used.
    pub usage: Usage,
    /// Dollars, where the price is known; never zero for unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// Whether it cost more than that, since something in it has no known price.
    #[serde(default, skip_serializing_if = "is_not")]
    pub usd_is_part: bool,
    /// Where the provider ran code, which the next request names to go on there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

impl Reply {
    /// Returns this reply as the assistant's message; `None` where it has no block, since an empty message is refused.
    pub fn message(&self) -> Option<Message> {
        if self.blocks.is_empty() { None } else { Some(Message { role: Role::Assistant, blocks: self.blocks.clone() }) }
    }

    /// Returns the tool calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        super::calls(&self.blocks)
    }

    /// Returns its text. Text blocks with others between them are joined by blank lines, and so are whole messages (Responses); those that
    /// follow each other directly are one text, which a provider has cut for what belongs to a part of it alone: a signature (Gemini), a
    /// citation (Anthropic).
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut before: Option<&Block> = None;
        for block in &self.blocks {
            if let View::Text(more) = block.view() {
                let goes_on = before.is_some_and(|before| matches!(before.view(), View::Text(_)) && !is_message(block));
                text.push_str(if text.is_empty() || goes_on { "" } else { "\n\n" });
                text.push_str(more);
            }
            before = Some(block);
        }
        text
    }

    /// Returns whether a limit cut it: what it says goes on, or should.
    pub fn is_cut(&self) -> bool {
        matches!(self.stop, StopReason::MaxTokens | StopReason::WindowExceeded)
    }

    /// Returns whether it was cut within its last call, which is not to be run.
    pub fn is_cut_in_call(&self) -> bool {
        self.is_cut() && self.blocks.last().is_some_and(|block| matches!(block.view(), View::ToolCall(_)))
    }
}

/// Returns whether a block is a message of its own.
fn is_message(block: &Block) -> bool {
    let raw = serde_json::from_str::<Value>(block.raw().as_str()).unwrap_or_default();
    raw["type"] == "message"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_that_was_cut_for_a_part_of_it_is_one() {
        let text = |text: &str, more: Value| json!({"type": "text", "text": text, "more": more});
        let message = |text: &str| json!({"type": "message", "content": [{"type": "output_text", "text": text}]});
        let reply = |blocks: Value| -> String {
            let reply = json!({"model": "a/b", "blocks": blocks, "stop": "end_turn", "usage": Usage::default()});
            serde_json::from_value::<Reply>(reply).unwrap().text()
        };
        let apart = json!({"type": "hologram"});
        assert_eq!(reply(json!([text("born in ", json!(1)), text("1815", json!([])), text(" in London", json!(2))])), "born in 1815 in London");
        assert_eq!(reply(json!([text("one", json!(1)), apart, text("two", json!(1))])), "one\n\ntwo");
        assert!(!is_message(&Block::text("one")) && is_message(&serde_json::from_value(message("one")).unwrap()));
    }
}
