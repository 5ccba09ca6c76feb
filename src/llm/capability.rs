//! What a model can do: one table, by the model and not by its provider.
//!
//! A model that is not listed gets defaults that no server refuses.

/// What is written about thinking in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// Nothing: the model does not think, or nobody knows.
    Unsaid,
    /// `adaptive`.
    Adaptive,
    /// `adaptive`, its summary shown, since what such a model says between tool calls comes as thinking.
    Summarized,
}

/// The words a model takes for effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// It has no such setting: none is sent.
    None,
    /// Exactly these.
    Words(&'static [&'static str]),
    /// Unknown: sent as written.
    Any,
}

/// What a request to a model may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The window, in tokens.
    pub window: u64,
    /// The longest reply, in tokens.
    pub max_output: u32,
    /// What is written about thinking.
    pub thinking: Thinking,
    /// The words for effort.
    pub effort: Effort,
    /// Whether it takes a JSON Schema for its answer (Anthropic Messages).
    pub takes_schema: bool,
    /// Whether it wants its reasoning back on messages with tool calls (Chat Completions).
    pub wants_reasoning_back: bool,
}

const FIVE: &[&str] = &["low", "medium", "high", "xhigh", "max"];
const FOUR: &[&str] = &["low", "medium", "high", "max"];
const THREE: &[&str] = &["low", "medium", "high"];

const UNKNOWN: Capabilities =
    Capabilities { window: 128_000, max_output: 8_192, thinking: Thinking::Unsaid, effort: Effort::Any, takes_schema: false, wants_reasoning_back: false };

const fn claude(window: u64, max_output: u32, thinking: Thinking, effort: Effort) -> Capabilities {
    Capabilities { window, max_output, thinking, effort, takes_schema: true, wants_reasoning_back: false }
}
const fn gpt(window: u64) -> Capabilities {
    Capabilities { window, max_output: 128_000, ..UNKNOWN }
}
const fn deepseek() -> Capabilities {
    Capabilities { wants_reasoning_back: true, ..UNKNOWN }
}

/// Prefixes of model ids, with `.` written as `-`; the longest that fits wins.
const MODELS: &[(&str, Capabilities)] = &[
    ("claude", claude(200_000, 32_000, Thinking::Unsaid, Effort::Any)),
    ("claude-3", Capabilities { takes_schema: false, ..claude(200_000, 8_192, Thinking::Unsaid, Effort::None) }),
    ("claude-3-haiku", Capabilities { takes_schema: false, ..claude(200_000, 4_096, Thinking::Unsaid, Effort::None) }),
    ("claude-3-opus", Capabilities { takes_schema: false, ..claude(200_000, 4_096, Thinking::Unsaid, Effort::None) }),
    ("claude-fable-5", claude(1_000_000, 128_000, Thinking::Summarized, Effort::Words(FIVE))),
    ("claude-haiku-4-5", claude(200_000, 64_000, Thinking::Unsaid, Effort::None)),
    ("claude-haiku-5-5", claude(1_000_000, 128_000, Thinking::Summarized, Effort::Words(FIVE))),
    ("claude-mythos-5", claude(1_000_000, 128_000, Thinking::Summarized, Effort::Words(FIVE))),
    ("claude-opus-4", Capabilities { takes_schema: false, ..claude(200_000, 32_000, Thinking::Unsaid, Effort::None) }),
    ("claude-opus-4-5", claude(200_000, 64_000, Thinking::Unsaid, Effort::Words(THREE))),
    ("claude-opus-4-6", claude(1_000_000, 128_000, Thinking::Adaptive, Effort::Words(FOUR))),
    ("claude-opus-4-7", claude(1_000_000, 128_000, Thinking::Adaptive, Effort::Words(FIVE))),
    ("claude-opus-4-8", claude(1_000_000, 128_000, Thinking::Adaptive, Effort::Words(FIVE))),
    ("claude-opus-5", claude(1_000_000, 128_000, Thinking::Summarized, Effort::Words(FIVE))),
    ("claude-sonnet-4", Capabilities { takes_schema: false, ..claude(200_000, 64_000, Thinking::Unsaid, Effort::None) }),
    ("claude-sonnet-4-5", claude(200_000, 64_000, Thinking::Unsaid, Effort::None)),
    ("claude-sonnet-4-6", claude(1_000_000, 128_000, Thinking::Adaptive, Effort::Words(FOUR))),
    ("claude-sonnet-5", claude(1_000_000, 128_000, Thinking::Summarized, Effort::Words(FIVE))),
    ("deepseek", deepseek()),
    ("gpt-4o", Capabilities { max_output: 16_384, effort: Effort::None, ..gpt(128_000) }),
    ("gpt-4-1", Capabilities { max_output: 32_768, effort: Effort::None, ..gpt(1_000_000) }),
    ("gpt-5", gpt(400_000)),
    ("gpt-5-6", gpt(922_000)),
    ("gpt-6", gpt(922_000)),
    ("gpt-oss", Capabilities { max_output: 32_768, ..gpt(131_072) }),
];

/// Returns what a model can do, by its id: with or without a vendor before a `/` or `.`, a date or a tag behind.
pub fn capabilities(model: &str) -> Capabilities {
    let id = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    // Some gateways name models `vendor.model`: what is before `claude` says nothing about the model.
    let id = id.find("claude-").map_or(id.as_str(), |at| &id[at..]).replace(['.', '_'], "-");
    let fits = |prefix: &str| id.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '@', ':']) || prefix == "deepseek");
    MODELS.iter().filter(|(prefix, _)| fits(prefix)).max_by_key(|(prefix, _)| prefix.len()).map_or(UNKNOWN, |(_, found)| *found)
}

/// Returns whether a model is listed.
pub(super) fn is_known(model: &str) -> bool {
    capabilities(model) != UNKNOWN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins_whatever_stands_around_it() {
        for id in ["claude-opus-5-5", "claude-opus-5.5", "anthropic/claude-opus-5-5-20261001", "us.anthropic.claude-opus-5-5-v1:0", "claude-opus-5-5@20261001"]
        {
            assert_eq!(capabilities(id).thinking, Thinking::Summarized, "{id}");
            assert_eq!(capabilities(id).window, 1_000_000, "{id}");
        }
        assert_eq!(capabilities("claude-haiku-4-5-20251001").effort, Effort::None);
        assert_eq!(capabilities("claude-opus-4-20250514").window, 200_000);
        assert_eq!(capabilities("claude-opus-4-6").effort, Effort::Words(FOUR));
        assert_eq!(capabilities("gpt-5.6-luna").window, 922_000);
        assert!(capabilities("deepseek-v4").wants_reasoning_back && capabilities("deepseek/deepseek-chat").wants_reasoning_back);
    }

    #[test]
    fn unknown_models_get_defaults() {
        for id in ["qwen3:8b", "", "gpt-40", "claudette", "é"] {
            assert_eq!(capabilities(id), UNKNOWN, "{id}");
        }
    }
}
