//! What a model can do: one table, by the model and not by its provider, under what the user says.
//!
//! A row of `models.json` is named by the beginning of a model's id, and says only what is other than in the rows whose names
//! it begins with; the row without a name is that of every model, and so holds for one that nobody knows: what no server
//! refuses. No request holds what its model is known to refuse: see `provider` for what is left out where.
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, sync::LazyLock};

/// What is written about thinking in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// Nothing: the model does not think, or nobody knows.
    Unsaid,
    /// That it may think as much as it wants.
    Adaptive,
    /// That too, and that its summary is to be shown.
    Summarized,
    /// That it is not to. No row says so; where the user does of a model that always thinks, its row holds.
    Disabled,
}

/// The words a model takes for effort.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// It has no such setting: none is sent.
    None,
    /// Unknown: sent as written.
    Any,
    /// Exactly these.
    #[serde(untagged)]
    Words(Vec<String>),
}

/// What a request to a model may hold, and what is known of it besides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "a table of what is and is not")]
pub struct Capabilities {
    /// The window, in tokens.
    pub window: u64,
    /// The longest reply, in tokens.
    #[serde(rename = "max_output_tokens")]
    pub max_output: u32,
    /// What is written about thinking.
    pub thinking: Thinking,
    /// Whether it cannot be told not to think, so that it never is.
    pub always_thinks: bool,
    /// The words for effort.
    pub effort: Effort,
    /// Whether it takes a JSON Schema for its answer, beside tools.
    #[serde(rename = "schema")]
    pub takes_schema: bool,
    /// Whether it wants its reasoning back on messages with tool calls (Chat Completions).
    #[serde(rename = "reasoning_back")]
    pub wants_reasoning_back: bool,
    /// Whether the longest reply is told it as `max_completion_tokens` (Chat Completions).
    #[serde(rename = "max_completion_tokens")]
    pub counts_reasoning: bool,
    /// Whether it takes a tool choice that forces a call: an answer that is asked for again is then forced.
    pub forced_tools: bool,
    /// Whether it takes sampling parameters; where not, those of the user's are not sent.
    pub sampling: bool,
    /// Whether it goes on with a reply that was begun for it; where not, it is told to.
    pub prefill: bool,
    /// Whether its thinking is only taken back after exactly what came before it; where not, it is kept when a conversation is shortened.
    pub prefix_bound: bool,
    /// The shortest prompt that is cached, in tokens: no mark is set and nobody waits for a shorter one.
    pub cache_minimum: u32,
    /// The prompt beyond which all of it costs more, in tokens: conversations are kept below it.
    pub price_step: Option<u64>,
}

type Row = Map<String, Value>;

/// The rows by name, which sorts each after those that its name begins with.
static MODELS: LazyLock<BTreeMap<String, Row>> = LazyLock::new(|| serde_json::from_str(include_str!("models.json")).expect("the table is tested to be read"));

/// Returns what a model can do, by its id: with or without a vendor before a `/` or `.`, a date or a tag behind.
pub fn capabilities(model: &str) -> Capabilities {
    said_otherwise(model, &Row::new())
}

/// Returns the same under what somebody says of the model, who may leave out anything; what does not fit is not heard.
pub(super) fn said_otherwise(model: &str, said: &Row) -> Capabilities {
    let id = plain(model);
    let rows = MODELS.iter().filter(|(name, _)| begins(&id, name)).map(|(_, row)| row);
    let listed: Row = rows.flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
    let read = |row: &Row| serde_json::from_value(Value::Object(row.clone()));
    let mut all = listed.clone();
    all.extend(said.clone());
    let known: Capabilities = read(&all).or_else(|_| read(&listed)).expect("the table is tested to be whole");
    if known.thinking == Thinking::Disabled && known.always_thinks {
        return Capabilities { thinking: read(&listed).map_or(Thinking::Unsaid, |listed| listed.thinking), ..known };
    }
    known
}

/// Returns whether a model is listed.
pub(super) fn is_known(model: &str) -> bool {
    let id = plain(model);
    MODELS.keys().any(|name| !name.is_empty() && begins(&id, name))
}

fn plain(model: &str) -> String {
    let id = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    // Some gateways name models `vendor.model`: what is before `claude` says nothing about the model.
    id.find("claude-").map_or(id.as_str(), |at| &id[at..]).replace(['.', '_'], "-")
}

fn begins(id: &str, name: &str) -> bool {
    id.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '@', ':']) || name.is_empty() || name == "deepseek")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_row_gives_a_whole_model() {
        for name in MODELS.keys() {
            let listed = capabilities(name);
            assert!(listed.window >= 128_000 && listed.max_output >= 4_096, "{name}");
            assert!(!(listed.always_thinks && listed.prefill) && listed.thinking != Thinking::Disabled, "{name}");
            assert_eq!(is_known(name), !name.is_empty());
        }
        assert_eq!(MODELS.keys().next().map(String::as_str), Some(""), "the row of every model comes first");
    }

    #[test]
    fn the_longest_name_wins_whatever_stands_around_it() {
        for id in ["claude-opus-5-5", "claude-opus-5.5", "anthropic/claude-opus-5-5-20261001", "us.anthropic.claude-opus-5-5-v1:0", "claude-opus-5-5@20261001"]
        {
            let listed = capabilities(id);
            assert_eq!((listed.thinking, listed.window, listed.always_thinks), (Thinking::Summarized, 1_000_000, true), "{id}");
        }
        assert_eq!(capabilities("claude-haiku-4-5-20251001").effort, Effort::None);
        assert_eq!(capabilities("claude-opus-4-20250514").window, 200_000);
        assert_eq!(capabilities("claude-opus-4-6").effort, Effort::Words(["low", "medium", "high", "max"].map(str::to_owned).to_vec()));
        assert_eq!(capabilities("gpt-5.6-luna").window, 922_000);
        assert!(capabilities("deepseek-v4").wants_reasoning_back && capabilities("deepseek/deepseek-chat").wants_reasoning_back);
        assert!(capabilities("gemini-3.7-flash").takes_schema && !capabilities("gemini-2.5-pro").takes_schema);
    }

    #[test]
    fn the_facts_that_requests_hang_on_are_these() {
        // always thinks, forced tools, sampling, prefill, bound to its prefix
        for (id, wanted) in [
            ("claude-fable-5-1", [true, false, false, false, true]),
            ("claude-opus-5-5", [true, false, false, false, true]),
            ("claude-sonnet-5-5", [true, false, false, false, true]),
            ("claude-haiku-5-5", [false, true, false, false, true]),
            ("claude-opus-5", [false, true, false, false, false]),
            ("claude-sonnet-4-6", [false, true, true, false, false]),
            ("claude-haiku-4-5", [false, true, true, true, false]),
            ("gpt-6-sol", [false, true, false, false, true]),
            ("gemini-3.7-flash", [true, true, false, false, true]),
            ("gemini-2.5-flash", [false, true, true, false, false]),
            ("who-knows", [false, false, true, false, false]),
        ] {
            let c = capabilities(id);
            assert_eq!([c.always_thinks, c.forced_tools, c.sampling, c.prefill, c.prefix_bound], wanted, "{id}");
        }
        let minimum = |id| capabilities(id).cache_minimum;
        assert_eq!([minimum("claude-opus-5-5"), minimum("claude-sonnet-5"), minimum("claude-haiku-4-5")], [512, 1_024, 4_096]);
        assert_eq!([capabilities("claude-haiku-5-5").price_step, capabilities("gpt-6-sol").price_step], [Some(100_000), Some(272_000)]);
    }

    #[test]
    fn unknown_models_get_defaults() {
        let unknown = capabilities("");
        for id in ["qwen3:8b", "gpt-40", "claudette", "é", "o12"] {
            assert_eq!(capabilities(id), unknown, "{id}");
            assert!(!is_known(id));
        }
    }

    #[test]
    fn what_somebody_says_wins_and_what_does_not_fit_is_not_heard() {
        let said = |value: Value| said_otherwise("claude-opus-5-5", value.as_object().expect("an object"));
        let c = said(json!({"window": 5, "effort": ["low"], "thinking": "unsaid", "price_step": 7}));
        assert_eq!((c.window, c.effort, c.thinking, c.price_step), (5, Effort::Words(vec!["low".to_owned()]), Thinking::Unsaid, Some(7)));
        assert_eq!(c.max_output, 128_000);
        assert_eq!(said(json!({"window": "wide"})), capabilities("claude-opus-5-5"));
        assert_eq!(said(json!({"thinking": "disabled"})), capabilities("claude-opus-5-5"), "it always thinks");
        assert_eq!(said(json!({"thinking": "disabled", "always_thinks": false})).thinking, Thinking::Disabled);
    }
}
