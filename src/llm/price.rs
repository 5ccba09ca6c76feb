//! What a reply cost, from what the user says or else the price table of `genai-prices`. An unknown price is `None`, never zero.
use super::{Endpoint, Protocol};
use crate::{
    clock::Timestamp,
    message::{Block, ProviderTool, Reply, Usage, View},
};
use genai_prices::{Calculator, PriceRequest, UsageKey};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, UNIX_EPOCH},
};

/// A moment after every change of a price that the table holds, in milliseconds: whether there is a price does not hang on
/// when it is asked for.
const PRICED_AT: u64 = 4_102_444_800_000;

/// What tokens cost, in millionths of a dollar for a million of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
}

impl Rates {
    /// Takes dollars for a million tokens. Tokens of the cache cost what other input costs where nothing else is said.
    pub fn per_million(input: f64, output: f64, cache_read: Option<f64>, cache_write: Option<f64>) -> Rates {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
        let rate = |usd: f64| (usd * 1e6).round().clamp(0.0, 1e15) as u64;
        Rates { input: rate(input), output: rate(output), cache_read: rate(cache_read.unwrap_or(input)), cache_write: rate(cache_write.unwrap_or(input)) }
    }

    #[expect(clippy::cast_precision_loss, reason = "what it loses is far below a millionth of a dollar")]
    fn usd(&self, usage: &Usage) -> f64 {
        let parts = [(usage.input, self.input), (usage.output, self.output), (usage.cache_read, self.cache_read), (usage.cache_write, self.cache_write)];
        parts.iter().map(|(tokens, rate)| *tokens as f64 * *rate as f64).sum::<f64>() / 1e12
    }
}

/// What a model costs, where the user says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    rates: Rates,
    above: Option<(u64, Rates)>,
}

impl Price {
    /// Makes a price; a prompt of more tokens than said in `above` costs what stands there, all of it and its reply.
    pub fn new(rates: Rates, above: Option<(u64, Rates)>) -> Price {
        Price { rates, above }
    }

    fn usd(&self, usage: &Usage) -> f64 {
        let long = self.above.filter(|(tokens, _)| usage.prompt() > *tokens);
        long.map_or(self.rates, |(_, rates)| rates).usd(usage)
    }
}

/// Whether the table was read in this process.
static IS_READ: AtomicBool = AtomicBool::new(false);

/// Reads the price table, which takes a tenth of a second: call it beside the first request, not after it.
pub(super) fn warm() {
    let _ = table();
}

fn table() -> &'static Calculator {
    let table = Calculator::bundled();
    IS_READ.store(true, Ordering::Relaxed);
    table
}

/// Returns the same as [`usd`], but does not wait for the table: before it was read only what the user says is known.
pub(super) fn usd_at_once(endpoint: &Endpoint, model: &str, usage: &Usage, at: Timestamp) -> Option<f64> {
    if IS_READ.load(Ordering::Relaxed) || endpoint.prices.contains_key(model) { usd(endpoint, model, usage, at) } else { None }
}

/// What a reply holds where code ran in a container that Anthropic or OpenAI charges for by its time. At Gemini it costs tokens.
const RAN: [&str; 4] = ["code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "code_interpreter_call"];

/// Returns whether the dollars of a reply are only a part of what it cost: the user says what tokens cost, and nobody what a search
/// does; or code ran, and nothing tells for how long its container is charged.
pub(super) fn is_part(endpoint: &Endpoint, model: &str, reply: &Reply) -> bool {
    let ran = |block: &Block| matches!(block.view(), View::Other(kind) if RAN.contains(&kind.as_str()));
    (reply.usage.searches > 0 && endpoint.prices.contains_key(model)) || reply.blocks.iter().any(ran)
}

/// Returns whether a tool that runs at the provider costs more there than tokens, which no limit of tokens holds.
pub fn costs_beyond_tokens(endpoint: &Endpoint, tool: ProviderTool) -> bool {
    match tool {
        ProviderTool::WebSearch => true,
        ProviderTool::CodeExecution => endpoint.protocol != Protocol::Gemini,
    }
}

/// Returns the dollars that `usage` of a model cost at the moment `at`, as far as its price is known; `None` where it is not.
pub fn usd(endpoint: &Endpoint, model: &str, usage: &Usage, at: Timestamp) -> Option<f64> {
    if let Some(price) = endpoint.prices.get(model) {
        return Some(price.usd(usage));
    }
    let calculator = table();
    let provider = calculator.find_provider(Some(&endpoint.name), Some(&endpoint.base_url)).ok()??;
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    let counts = [
        // The table counts cached tokens as a part of the input.
        (UsageKey::INPUT_TOKENS, usage.prompt() as f64),
        (UsageKey::OUTPUT_TOKENS, usage.output as f64),
        (UsageKey::CACHE_READ_TOKENS, usage.cache_read as f64),
        (UsageKey::CACHE_WRITE_TOKENS, usage.cache_write as f64),
        (UsageKey::WEB_SEARCHES, usage.searches as f64),
    ];
    let mut priced = genai_prices::Usage::new();
    for (key, count) in counts {
        if count > 0.0 || key == UsageKey::INPUT_TOKENS || key == UsageKey::OUTPUT_TOKENS {
            priced.insert(key, count);
        }
    }
    let request = PriceRequest::new(model, &priced).with_provider_id(provider.id()).with_timestamp(UNIX_EPOCH + Duration::from_millis(at.0));
    let price = calculator.calculate(&request).ok()?;
    // A price found at another provider is a guess.
    if price.provider_id == provider.id() && price.total_price.is_finite() { Some(price.total_price) } else { None }
}

/// Returns whether the price of a model is known.
pub(super) fn is_known(endpoint: &Endpoint, model: &str) -> bool {
    let some = Usage { input: 1, output: 1, ..Usage::default() };
    usd(endpoint, model, &some, Timestamp(PRICED_AT)).is_some()
}

/// Returns the window of a model of this endpoint that our own table does not list.
pub(super) fn window(endpoint: &Endpoint, model: &str) -> Option<u64> {
    let provider = table().find_provider(Some(&endpoint.name), Some(&endpoint.base_url)).ok()??;
    provider.models().find(|known| known.id() == model)?.context_window()
}

#[cfg(test)]
mod tests {
    use super::super::Protocol;
    use super::*;

    const AT: Timestamp = Timestamp(1_796_000_000_000);

    fn endpoint(name: &str, url: &str) -> Endpoint {
        Endpoint::new(name, Protocol::Anthropic, url)
    }

    fn reply(usage: Usage) -> Reply {
        Reply { usage, ..crate::llm::script::reply("", &[]) }
    }

    fn million(change: impl Fn(&mut Usage)) -> Usage {
        let mut usage = Usage::default();
        change(&mut usage);
        usage
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let anthropic = endpoint("anthropic", "https://api.anthropic.com");
        let price = |usage: Usage| usd(&anthropic, "claude-opus-5-5", &usage, AT).unwrap();
        for (usage, wanted) in [
            (million(|usage| usage.input = 1_000_000), 4.0),
            (million(|usage| usage.output = 1_000_000), 20.0),
            (million(|usage| usage.cache_read = 1_000_000), 0.2),
            (million(|usage| usage.cache_write = 1_000_000), 5.0),
            (million(|usage| usage.searches = 1_000), 10.0),
        ] {
            assert!((price(usage) - wanted).abs() < 1e-6, "{usage:?}: {}", price(usage));
        }
    }

    #[test]
    fn long_prompts_cost_what_the_table_says() {
        let anthropic = endpoint("anthropic", "https://api.anthropic.com");
        let price = |input| usd(&anthropic, "claude-haiku-5-5", &million(|usage| usage.input = input), AT).unwrap();
        assert!((price(90_000) - 0.009).abs() < 1e-9 && (price(200_000) - 0.1).abs() < 1e-9, "{} {}", price(90_000), price(200_000));
    }

    #[test]
    fn what_the_user_says_goes_before_the_table() {
        let rates = Rates::per_million(1.0, 2.0, Some(0.1), None);
        let price = Price::new(rates, Some((1_000_000, Rates::per_million(3.0, 6.0, None, None))));
        let mut mine = endpoint("anthropic", "https://api.anthropic.com");
        mine.prices =
            [("claude-opus-5-5".to_owned(), price), ("new".to_owned(), price), ("free".to_owned(), Price::new(Rates::per_million(0.0, 0.0, None, None), None))]
                .into();
        let cost = |model: &str, usage: Usage| usd(&mine, model, &usage, AT).unwrap();
        for model in ["claude-opus-5-5", "new"] {
            assert!((cost(model, Usage { input: 1_000, output: 1_000, cache_read: 10_000, cache_write: 1_000, ..Usage::default() }) - 0.005).abs() < 1e-9);
            assert!(
                (cost(model, Usage { input: 1, output: 1_000_000, cache_read: 1_000_000, ..Usage::default() }) - 9.000_003).abs() < 1e-9,
                "more than a million"
            );
        }
        assert!(cost("free", million(|usage| usage.input = 1_000_000)).abs() < f64::EPSILON, "known to cost nothing");
        let searched = Usage { input: 1_000_000, searches: 3, ..Usage::default() };
        assert!((cost("new", searched) - 1.0).abs() < 1e-9 && is_part(&mine, "new", &reply(searched)), "its tokens at least");
        assert!(is_known(&mine, "new") && !is_known(&mine, "old"));
    }

    #[test]
    fn what_is_not_known_has_no_price() {
        let anthropic = endpoint("anthropic", "https://api.anthropic.com");
        assert!(is_known(&anthropic, "claude-opus-5-5") && !is_known(&anthropic, "claude-nobody-9"));
        let usage = million(|usage| usage.input = 10);
        assert_eq!(usd(&endpoint("anthropic", "https://api.anthropic.com"), "claude-nobody-9", &usage, AT), None);
        assert_eq!(usd(&endpoint("ollama", "http://127.0.0.1:11434/v1"), "gpt-oss-20b", &usage, AT), None);
        assert_eq!(usd(&endpoint("mine", "http://127.0.0.1:1/v1"), "claude-opus-5-5", &usage, AT), None);
    }
}
