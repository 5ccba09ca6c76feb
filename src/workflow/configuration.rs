//! A configuration file, the user's or a project's: providers, model aliases and defaults, read by the same table of keys
//! as a workflow.
//!
//! What it may say depends on whose it is, which is not known here.
use super::{
    check,
    fields::Fields,
    file,
    keys::{self, Name, Object, Shape, key, word},
    types::{Defaults, Entries, ModelAlias},
    yaml::{self, Yaml},
};
use crate::source::{Diagnostic, Diagnostics, Found, Source, Spanned, codes};
use serde_json::Value;
use std::sync::Arc;

/// A whole configuration file.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// The file.
    pub source: Arc<Source>,
    /// Providers by name.
    pub providers: Entries<Provider>,
    /// Aliases.
    pub models: Entries<ModelAlias>,
    /// What models cost, by `provider/model`.
    pub prices: Entries<Price>,
    /// What workflows inherit.
    pub defaults: Defaults,
    /// What is said of the sandbox.
    pub sandbox: Option<Spanned<SandboxKeys>>,
}

/// What is said of the sandbox that commands run in.
#[derive(Debug, Clone, Default)]
pub struct SandboxKeys {
    /// Folders and files that commands may read besides.
    pub read: Vec<Spanned<String>>,
}

/// What a model costs, in dollars for a million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    /// Input that no cache holds.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Input that is read from the cache; absent: as other input.
    pub cache_read: Option<f64>,
    /// Input that is written to the cache; absent: as other input.
    pub cache_write: Option<f64>,
}

/// What a model costs as it is written.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Price {
    /// What it costs.
    pub rates: Rates,
    /// A prompt of more tokens than this costs otherwise, all of it and its reply.
    pub above: Option<(u64, Rates)>,
}

/// A provider as it is written; what is absent is the built-in one's of that name.
#[derive(Debug, Clone, Default)]
pub struct Provider {
    /// What it speaks.
    pub protocol: Option<Spanned<String>>,
    /// Its address.
    pub base_url: Option<Spanned<String>>,
    /// The environment variable that holds its key.
    pub key_env: Option<Spanned<String>>,
    /// Sent with each request.
    pub headers: Entries<Spanned<String>>,
    /// What every request holds besides.
    pub extra: Entries<Value>,
    /// Whether the key is sent as `authorization: Bearer …`, whatever the protocol has.
    pub bearer: Option<bool>,
    /// What its models can do, by their ids; each a map of what is said.
    pub models: Entries<Value>,
}

static FILE: Object = Object {
    name: "configuration",
    what: "a configuration file",
    keys: &[
        key("providers", Shape::Map { names: Name::Free, of: &Shape::Object(&PROVIDER), min: 0 }, "Where models are served."),
        key("models", Shape::Map { names: Name::Free, of: &Shape::Object(&keys::MODEL), min: 0 }, "Names for models."),
        key("prices", Shape::Map { names: Name::Model, of: &Shape::Object(&PRICE), min: 0 }, "What models cost, by `provider/model`."),
        key("defaults", Shape::Object(&keys::DEFAULTS), "What workflows inherit."),
        key("sandbox", Shape::Object(&SANDBOX), "What is said of the sandbox that commands run in; yours alone may."),
    ],
    others: None,
};

static SANDBOX: Object = Object {
    name: "sandbox",
    what: "what is said of the sandbox",
    keys: &[key("read", Shape::List { of: &Shape::Text, min: 0 }, "Folders and files that commands may read besides: absolute, or from `~/`.")],
    others: None,
};

static PROVIDER: Object = Object {
    name: "provider",
    what: "a provider",
    keys: &[
        key("protocol", word(&["anthropic", "openai_responses", "openai_chat", "gemini"]), "What it speaks."),
        key("base_url", Shape::Text, "Its address; with the version (`…/v1`), except for `anthropic`."),
        key("key_env", Shape::Name(Name::Variable), "The environment variable that holds its key."),
        key("headers", Shape::Map { names: Name::Free, of: &Shape::Text, min: 0 }, "Sent with each request."),
        key("extra", Shape::Map { names: Name::Free, of: &Shape::Any, min: 0 }, "What every request holds besides; sampling only where its model takes it."),
        key("auth", word(&["own", "bearer"]), "How the key is sent: as the protocol has it, or as `authorization: Bearer`."),
        key("models", Shape::Map { names: Name::Model, of: &Shape::Object(&CAPABILITIES), min: 0 }, "What its models can do, by their ids."),
    ],
    others: None,
};

static PRICE: Object = Object {
    name: "price",
    what: "a price",
    keys: &[
        key("input", Shape::Number, "Dollars for a million tokens of input."),
        key("output", Shape::Number, "Dollars for a million tokens of output."),
        key("cache_read", Shape::Number, "Dollars for a million tokens read from the cache."),
        key("cache_write", Shape::Number, "Dollars for a million tokens written to the cache."),
        key("above", Shape::Object(&ABOVE), "What long prompts cost."),
    ],
    others: None,
};

static ABOVE: Object = Object {
    name: "price_above",
    what: "the price of long prompts",
    keys: &[
        key("tokens", TOKENS, "Prompts of more tokens cost as much."),
        key("input", Shape::Number, "Dollars for a million tokens of input."),
        key("output", Shape::Number, "Dollars for a million tokens of output."),
        key("cache_read", Shape::Number, "Dollars for a million tokens read from the cache."),
        key("cache_write", Shape::Number, "Dollars for a million tokens written to the cache."),
    ],
    others: None,
};

const TOKENS: Shape = Shape::Whole { min: 1, max: 1 << 40 };

static CAPABILITIES: Object = Object {
    name: "capabilities",
    what: "what a model can do",
    keys: &[
        key("window", TOKENS, "Its window, in tokens."),
        key("max_output_tokens", Shape::Whole { min: 1, max: u32::MAX as u64 }, "Its longest reply, in tokens."),
        key(
            "thinking",
            word(&["unsaid", "adaptive", "summarized", "disabled"]),
            "What requests say of thinking: nothing, that it may, that its summary is shown, or that it may not.",
        ),
        key("always_thinks", Shape::Flag, "Whether it cannot be told not to think: it is not, then."),
        key(
            "effort",
            Shape::Either(&[Shape::List { of: &Shape::Text, min: 1 }, word(&["any", "none"])]),
            "Its words for effort; `any`: sent as written, `none`: not sent.",
        ),
        key("schema", Shape::Flag, "Whether it takes a JSON Schema for its answer, beside tools."),
        key("reasoning_back", Shape::Flag, "Whether it wants its reasoning back (`openai_chat`)."),
        key("max_completion_tokens", Shape::Flag, "Whether the longest reply is told it by this word (`openai_chat`)."),
        key("forced_tools", Shape::Flag, "Whether a call can be forced: an answer that is asked for again is."),
        key("sampling", Shape::Flag, "Whether it takes sampling parameters: those in `extra` are sent."),
        key("prefill", Shape::Flag, "Whether it goes on with a reply that was begun for it."),
        key("prefix_bound", Shape::Flag, "Whether its thinking is bound to what came before it, and left out when that is shortened."),
        key("cache_minimum", Shape::Whole { min: 0, max: u32::MAX as u64 }, "The shortest prompt that is cached, in tokens: shorter ones are not marked."),
        key("price_step", TOKENS, "The prompt beyond which all of it costs more, in tokens."),
    ],
    others: None,
};

impl Configuration {
    /// Reads a configuration file, or tells everything that is wrong with its form. An empty file says nothing.
    ///
    /// # Errors
    /// All errors of the file, in its order.
    pub fn load(source: &Arc<Source>) -> Result<Configuration, Diagnostics> {
        let root = yaml::parse(source).map_err(|error| Diagnostics::from(vec![*error]))?;
        if !matches!(root.value, Yaml::Map(_) | Yaml::Null) {
            let message = format!("a configuration file is a map, but the file holds {}", root.value.kind());
            let wrong = Diagnostic::error(codes::WRONG_TYPE, source, root.span, message);
            return Err(vec![wrong.help("its keys are `providers`, `models`, `prices`, `defaults` and `sandbox`")].into());
        }
        let mut found = if matches!(root.value, Yaml::Null) { Found::default() } else { check::check(source, &root, &FILE) };
        let fields = Fields::new(source, &root, &FILE);
        let read = Configuration {
            source: source.clone(),
            providers: fields.map("providers").map(|(name, node)| (name.clone(), provider(&Fields::new(source, node, &PROVIDER)))).collect(),
            models: fields.map("models").map(|(name, node)| (name.clone(), file::model(&Fields::new(source, node, &keys::MODEL)))).collect(),
            prices: fields
                .map("prices")
                .map(|(name, node)| (name.clone(), price(&Spanned::new(Fields::new(source, node, &PRICE), name.span), &mut found)))
                .collect(),
            defaults: fields.object("defaults", &keys::DEFAULTS).map(|fields| file::defaults(&fields)).unwrap_or_default(),
            sandbox: fields.object("sandbox", &SANDBOX).map(|fields| Spanned::new(SandboxKeys { read: fields.value.texts("read") }, fields.span)),
        };
        let relative = |path: &&Spanned<String>| !path.value.starts_with('/') && !path.value.starts_with("~/");
        for path in read.sandbox.iter().flat_map(|sandbox| &sandbox.value.read).filter(relative) {
            let wrong = Diagnostic::error(codes::WRONG_TYPE, source, path.span, "a path that commands may read must be absolute");
            found.report(wrong.help("begin it with `/` or with `~/`"));
        }
        for (_, provider) in &read.providers {
            provider.base_url.iter().filter_map(|url| address_objection(source, url)).for_each(|wrong| found.report(wrong));
        }
        check::in_order(found).map(|_| read)
    }
}

fn price(fields: &Spanned<Fields<'_>>, found: &mut Found) -> Price {
    let rates = rates(fields, found);
    let above = fields.value.object("above", &ABOVE).and_then(|above| {
        let rates = self::rates(&above, found);
        let tokens = above.value.whole("tokens");
        if tokens.is_none() {
            found.report(Diagnostic::error(codes::MISSING_KEY, above.value.source, above.span, "the price of long prompts needs the key `tokens`"));
        }
        Some((tokens?.value, rates))
    });
    Price { rates, above }
}

fn rates(fields: &Spanned<Fields<'_>>, found: &mut Found) -> Rates {
    let mut rate = |key: &'static str, is_needed: bool| match fields.value.number(key) {
        Some(rate) if rate.value < 0.0 || !rate.value.is_finite() => {
            found.report(Diagnostic::error(codes::OUT_OF_RANGE, fields.value.source, rate.span, format!("`{key}` must not be below 0")));
            None
        }
        Some(rate) => Some(rate.value),
        None if is_needed => {
            found.report(Diagnostic::error(codes::MISSING_KEY, fields.value.source, fields.span, format!("a price needs the key `{key}`")));
            None
        }
        None => None,
    };
    let (input, output) = (rate("input", true).unwrap_or_default(), rate("output", true).unwrap_or_default());
    Rates { input, output, cache_read: rate("cache_read", false), cache_write: rate("cache_write", false) }
}

fn provider(fields: &Fields<'_>) -> Provider {
    const AUTH: [(&str, bool); 2] = [("own", false), ("bearer", true)];
    Provider {
        protocol: fields.text("protocol"),
        base_url: fields.text("base_url"),
        key_env: fields.text("key_env"),
        headers: fields.templates("headers"),
        extra: fields.values("extra").into_iter().map(|(name, said)| (name, said.value)).collect(),
        bearer: fields.one_of("auth", &AUTH).map(|word| word.value),
        models: fields.values("models").into_iter().map(|(name, said)| (name, said.value)).collect(),
    }
}

/// Says what is wrong with an address: it must be one of the web, and must not hold a key.
fn address_objection(source: &Arc<Source>, url: &Spanned<String>) -> Option<Diagnostic> {
    let rest = url.value.strip_prefix("https://").or_else(|| url.value.strip_prefix("http://"));
    let wrong = |message: &str| Diagnostic::error(codes::WRONG_TYPE, source, url.span, message);
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    match host {
        None | Some("") => Some(wrong("`base_url` must be an address").help("write it with its scheme: `https://api.example.com/v1`")),
        Some(host) if host.contains('@') => {
            Some(wrong("`base_url` must not hold a key").help("put the key into an environment variable and name it: `key_env: NAME`"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn load(text: &str) -> Result<Configuration, Diagnostics> {
        Configuration::load(&Arc::new(Source { name: "config.yaml".to_owned(), text: text.to_owned() }))
    }

    #[test]
    fn every_key_is_read() {
        let text = "providers:\n  mine: { protocol: openai_chat, base_url: \"https://models.example.com/v1\", key_env: MINE_KEY, headers: { x-team: core }, extra: { temperature: 0.2, provider: { order: [a] } }, auth: bearer, models: { \"qwen/qwen3:8b\": { window: 40000, effort: [low, high], schema: false } } }\nmodels: { fast: { use: mine/small, effort: low, max_output_tokens: 10 } }\ndefaults: { model: fast, timeout: 10m, idle_timeout: 1m, retry: { max: 1, on: [any], backoff: constant, delay: 1s, max_delay: 2s }, workspace: { kind: worktree, isolation: auto, base: head, setup: [a], copy: [b], link: [c], sparse: [d], env: { E: f } }, max_parallel: 3 }\n";
        let read = load(text).unwrap_or_else(|errors| panic!("{errors}"));
        let (name, provider) = &read.providers[0];
        let text = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.value.clone()).unwrap_or_default();
        assert_eq!((name.as_str(), text(&provider.protocol).as_str(), text(&provider.key_env).as_str()), ("mine", "openai_chat", "MINE_KEY"));
        assert_eq!((provider.bearer, provider.models[0].0.as_str()), (Some(true), "qwen/qwen3:8b"));
        let extra: Vec<String> = provider.extra.iter().map(|(name, said)| format!("{}={said}", name.value)).collect();
        assert_eq!(extra, ["temperature=0.2", r#"provider={"order":["a"]}"#]);
        assert_eq!(provider.models[0].1.to_string(), r#"{"window":40000,"effort":["low","high"],"schema":false}"#);
        assert_eq!((read.models[0].1.choices[0].as_str(), read.defaults.timeout), ("mine/small", Some(Duration::from_mins(10))));
        assert!(load("").is_ok_and(|read| read.models.is_empty()) && load("# nothing\n").is_ok());
    }

    #[test]
    fn every_error_is_told_with_its_place() {
        let text = "providers:\n  a: { protocol: carrier_pigeon, base_url: ftp://x, key_env: \"not a name\" }\n  b: { base_url: \"https://user:key@example.com\" }\nmodles: {}\nmodels: { x: {} }\n";
        let errors = load(text).expect_err("it is wrong");
        let told: Vec<(&str, &str)> = errors.found.iter().map(|error| (error.code, &error.source.text[error.labels[0].span.range()])).collect();
        assert_eq!(
            told,
            [
                (codes::UNKNOWN_WORD, "carrier_pigeon"),
                (codes::WRONG_TYPE, "ftp://x"),
                (codes::BAD_NAME, "\"not a name\""),
                (codes::WRONG_TYPE, "\"https://user:key@example.com\""),
                (codes::UNKNOWN_KEY, "modles"),
                (codes::MISSING_KEY, "x"),
            ]
        );
        assert_eq!(load("- a\n").expect_err("it is a list").found[0].code, codes::WRONG_TYPE);
    }
}
