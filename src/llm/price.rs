//! What a reply cost, from the price table of `genai-prices`. An unknown price is `None`, never zero.
use super::Endpoint;
use crate::{clock::Timestamp, message::Usage};
use genai_prices::{Calculator, PriceRequest, UsageKey};
use std::time::{Duration, UNIX_EPOCH};

/// A moment after every change of a price that the table holds, in milliseconds: whether there is a price does not hang on
/// when it is asked for.
const PRICED_AT: u64 = 4_102_444_800_000;

/// Reads the price table, which takes a tenth of a second: call it beside the first request, not after it.
pub(super) fn warm() {
    let _ = Calculator::bundled();
}

/// Returns the dollars that `usage` of a model cost at the moment `at`; `None` where the price is not known.
pub fn usd(endpoint: &Endpoint, model: &str, usage: &Usage, at: Timestamp) -> Option<f64> {
    let calculator = Calculator::bundled();
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
    let provider = Calculator::bundled().find_provider(Some(&endpoint.name), Some(&endpoint.base_url)).ok()??;
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
    fn what_is_not_known_has_no_price() {
        let anthropic = endpoint("anthropic", "https://api.anthropic.com");
        assert!(is_known(&anthropic, "claude-opus-5-5") && !is_known(&anthropic, "claude-nobody-9"));
        let usage = million(|usage| usage.input = 10);
        assert_eq!(usd(&endpoint("anthropic", "https://api.anthropic.com"), "claude-nobody-9", &usage, AT), None);
        assert_eq!(usd(&endpoint("ollama", "http://127.0.0.1:11434/v1"), "gpt-oss-20b", &usage, AT), None);
        assert_eq!(usd(&endpoint("mine", "http://127.0.0.1:1/v1"), "claude-opus-5-5", &usage, AT), None);
    }
}
