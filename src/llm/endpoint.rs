//! Where models are served: providers, their addresses and keys.
//!
//! The environment is read by `cli` and handed down as a function. A key is a [`Secret`]: nothing shows it.
use super::{Capabilities, ModelError, ModelErrorKind, Price, anthropic::VERSION, capability};
use crate::{event::BlobId, http::Timeouts, plan::OtherNames, secrets::Secrets};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

const OPENAI_URL: &str = "https://api.openai.com/v1";
const GEMINI_URL: &str = "https://generativelanguage.googleapis.com/v1beta";

/// The providers that are known without any configuration: the one list of them.
pub const BUILT_IN: [BuiltIn; 5] = [
    BuiltIn::keyed("anthropic", Protocol::Anthropic, "https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    BuiltIn::keyed("openai", Protocol::OpenAiResponses, OPENAI_URL, "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    BuiltIn::keyed("gemini", Protocol::Gemini, GEMINI_URL, "GEMINI_BASE_URL", "GEMINI_API_KEY"),
    BuiltIn::local("ollama", "http://127.0.0.1:11434/v1", "OLLAMA_HOST"),
    BuiltIn::local("local", "http://127.0.0.1:8080/v1", "LOCAL_BASE_URL"),
];

/// Other names of built-in providers, each with the provider's own: it leads to that one unless a provider of that very name is
/// configured.
pub const OTHER_NAMES: [(&str, &str); 1] = [("google", "gemini")];

/// A provider that is known without any configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// The part of a model's name before the first `/`.
    pub name: &'static str,
    /// What it speaks at its own address.
    pub protocol: Protocol,
    /// Its own address.
    pub url: &'static str,
    /// The environment variable that holds another address.
    pub url_env: &'static str,
    /// The environment variable that holds the key, where one is needed.
    pub key_env: Option<&'static str>,
}

impl BuiltIn {
    const fn keyed(name: &'static str, protocol: Protocol, url: &'static str, url_env: &'static str, key_env: &'static str) -> BuiltIn {
        BuiltIn { name, protocol, url, url_env, key_env: Some(key_env) }
    }

    const fn local(name: &'static str, url: &'static str, url_env: &'static str) -> BuiltIn {
        BuiltIn { name, protocol: Protocol::OpenAiChat, url, url_env, key_env: None }
    }

    /// Returns the one of this name.
    pub fn named(name: &str) -> Option<&'static BuiltIn> {
        BUILT_IN.iter().find(|built_in| built_in.name == name)
    }

    /// Makes the endpoint from the environment.
    fn endpoint(&self, get: &dyn Fn(&str) -> Option<String>) -> Endpoint {
        let set = |name: &str| get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let url = set(self.url_env);
        let Some(key_env) = self.key_env else {
            let url = url.map_or_else(|| self.url.to_owned(), |url| if self.url_env == "OLLAMA_HOST" { ollama_url(&url) } else { url });
            // A local model reads a long prompt for minutes before it says its first word.
            let timeouts = Timeouts { first_byte: Duration::from_mins(15), idle: Duration::from_mins(10) };
            return Endpoint { timeouts, takes_schema: true, ..Endpoint::new(self.name, self.protocol, &url) };
        };
        let key = set(key_env).and_then(|key| Secret::new(&key));
        let mut endpoint = Endpoint::new(self.name, self.protocol, url.as_deref().unwrap_or(self.url)).with_key(key);
        // Only the provider's own address is known to want a key: gateways and local servers may not.
        let is_own = endpoint.base_url == self.url;
        // Elsewhere those who speak like OpenAI speak as it did before.
        if !is_own && self.protocol == Protocol::OpenAiResponses {
            endpoint.protocol = Protocol::OpenAiChat;
        }
        endpoint.missing_key = if is_own && endpoint.key.is_none() { Some(key_env.to_owned()) } else { None };
        endpoint.takes_schema = is_own;
        endpoint
    }
}

/// A key. `Debug` shows three stars; there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a key as it was configured, without the white space around it; `None` where nothing is left.
    pub fn new(text: &str) -> Option<Secret> {
        let text = text.trim();
        if text.is_empty() { None } else { Some(Secret(text.to_owned())) }
    }

    /// Returns the key, for the header it is meant for.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// Returns `text` with every occurrence of the key replaced by three stars.
    pub fn redact(&self, text: &str) -> String {
        text.replace(&self.0, "***")
    }

    /// Returns a name for the key that does not give it away.
    pub(super) fn fingerprint(&self) -> String {
        BlobId::of(self.0.as_bytes()).0[..12].to_owned()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    OpenAiResponses,
    /// OpenAI Chat Completions, as many servers speak it.
    OpenAiChat,
    /// Gemini `generateContent`.
    Gemini,
}

impl Protocol {
    /// Every protocol with its name in a configuration.
    pub const NAMED: [(&str, Protocol); 4] = [
        ("anthropic", Protocol::Anthropic),
        ("openai_responses", Protocol::OpenAiResponses),
        ("openai_chat", Protocol::OpenAiChat),
        ("gemini", Protocol::Gemini),
    ];

    /// Returns whether there are tools in it that run at the provider.
    pub fn has_tools(self) -> bool {
        self != Protocol::OpenAiChat
    }
}

/// One provider as it is reached from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The part of a model's name before the first `/`.
    pub name: String,
    /// What it speaks.
    pub protocol: Protocol,
    /// Without a trailing slash. It includes the version (`…/v1`), except for Anthropic Messages, where it may.
    pub base_url: String,
    /// Absent where none is needed.
    pub key: Option<Secret>,
    /// Whether the key is sent as `authorization: Bearer …`, whatever the protocol has.
    pub bearer: bool,
    /// Sent beside the protocol's own headers; one of the same name replaces it (`anthropic-version`, say).
    pub headers: Vec<(String, String)>,
    /// What every request holds besides, where its model takes it; of Gemini's in `generationConfig`.
    pub extra: Map<String, Value>,
    /// Whether it takes a JSON Schema for the answer. Chat Completions only: for Anthropic the model decides.
    pub takes_schema: bool,
    /// The size of its models' windows, where the user said so.
    pub window: Option<u64>,
    /// What the user says of its models, by their ids, in the words of [`Capabilities`].
    pub models: BTreeMap<String, Map<String, Value>>,
    /// What the user says its models cost, by their ids.
    pub prices: BTreeMap<String, Price>,
    /// How long silence is borne.
    pub timeouts: Timeouts,
    /// The environment variable whose key is missing, where one is needed.
    pub missing_key: Option<String>,
}

impl Endpoint {
    /// Makes an endpoint without a key.
    pub fn new(name: &str, protocol: Protocol, base_url: &str) -> Endpoint {
        Endpoint {
            name: name.to_owned(),
            protocol,
            base_url: base_url.trim().trim_end_matches('/').to_owned(),
            key: None,
            bearer: false,
            headers: Vec::new(),
            extra: Map::new(),
            takes_schema: false,
            window: None,
            models: BTreeMap::new(),
            prices: BTreeMap::new(),
            timeouts: Timeouts::default(),
            missing_key: None,
        }
    }

    /// Sets the key.
    #[must_use]
    pub fn with_key(self, key: Option<Secret>) -> Endpoint {
        Endpoint { key, ..self }
    }

    /// Returns what a model can do here. Whether an answer can be held to a schema is the server's to say where it speaks Chat
    /// Completions, is a part of Responses, and otherwise hangs on the model. Anthropic's API has no sampling parameters since its
    /// version of October 2026, whatever the model.
    pub fn capabilities(&self, model: &str) -> Capabilities {
        let mut said = Map::new();
        match self.protocol {
            Protocol::OpenAiChat => drop(said.insert("schema".to_owned(), self.takes_schema.into())),
            Protocol::OpenAiResponses => drop(said.insert("schema".to_owned(), true.into())),
            Protocol::Anthropic if self.headers.iter().all(|(name, value)| !name.eq_ignore_ascii_case("anthropic-version") || value.as_str() >= VERSION) => {
                drop(said.insert("sampling".to_owned(), false.into()));
            }
            Protocol::Anthropic | Protocol::Gemini => {}
        }
        // What a protocol seals may be bound, of a model that nobody knows; leaving it out is always taken.
        if self.protocol != Protocol::OpenAiChat && !capability::is_known(model) {
            said.insert("prefix_bound".to_owned(), true.into());
        }
        if let Some(window) = self.window {
            said.insert("window".to_owned(), window.into());
        }
        said.extend(self.models.get(model).cloned().unwrap_or_default());
        capability::said_otherwise(model, &said)
    }

    /// Returns whether it is the provider itself that is asked, and no gateway or other server that speaks like it.
    pub(super) fn is_at_own_address(&self) -> bool {
        BUILT_IN.iter().any(|built_in| built_in.protocol == self.protocol && self.base_url.strip_suffix("/v1").unwrap_or(&self.base_url) == built_in.url)
    }

    /// Returns the same for a model whose answers cannot be held to a schema.
    pub(super) fn without_format(&self, model: &str) -> Endpoint {
        let mut endpoint = self.clone();
        endpoint.models.entry(model.to_owned()).or_default().insert("schema".to_owned(), false.into());
        endpoint
    }

    /// Returns whether a word of `extra` is one that requests have for what they are made of.
    pub fn is_own(&self, word: &str) -> bool {
        super::provider(self.protocol).own_words().contains(&word)
    }

    /// Returns the size of a model's window, where the user said so.
    pub fn said_window(&self, model: &str) -> Option<u64> {
        self.models.get(model).and_then(|said| said.get("window")?.as_u64()).or(self.window)
    }

    /// Returns the window of a model, where somebody says it or the model is listed.
    pub(super) fn listed_window(&self, model: &str) -> Option<u64> {
        self.said_window(model).or_else(|| capability::is_known(model).then(|| self.capabilities(model).window))
    }

    /// Returns what nobody is to read of it, each with a name for it: its key, and the values of headers that may be keys.
    fn confidential<'e>(&'e self) -> impl Iterator<Item = (String, &'e str)> {
        let key = self.key.iter().map(|key| (format!("{} key", self.name), key.expose()));
        let is_public = |name: &str| PUBLIC.iter().any(|public| name.eq_ignore_ascii_case(public));
        let headers = self.headers.iter().filter(move |(name, _)| !is_public(name));
        // Of `Bearer …` it is what comes behind that is the key.
        let value = |text: &'e str| text.trim().split_once(' ').map_or(text.trim(), |(_, key)| key.trim());
        key.chain(headers.map(move |(name, text)| (format!("{} {}", self.name, name.to_ascii_lowercase()), value(text))))
    }

    /// Returns `text` without this endpoint's key and the values of its headers, in whatever form they stand there.
    pub(super) fn redact(&self, text: &str) -> String {
        let hidden = self.confidential().map(|(name, value)| (name, value.to_owned())).collect();
        let text = Secrets::default().hiding(hidden).text(text).into_owned();
        self.key.as_ref().map_or(text.clone(), |key| key.redact(&text))
    }
}

/// Headers whose values say nothing that is to be kept to oneself.
const PUBLIC: &[&str] =
    &["anthropic-version", "anthropic-beta", "openai-beta", "user-agent", "accept", "accept-language", "content-type", "http-referer", "referer", "x-title"];

/// The providers by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints(BTreeMap<String, Endpoint>);

impl Endpoints {
    /// Makes the built-in providers from the environment: the addresses and keys that the variables of [`BUILT_IN`] hold.
    pub fn from_env(get: &dyn Fn(&str) -> Option<String>) -> Endpoints {
        let mut endpoints = Endpoints::default();
        for built_in in &BUILT_IN {
            endpoints.insert(built_in.endpoint(get));
        }
        endpoints
    }

    /// Returns what nobody is to read of all providers, each with a name for it.
    pub fn confidential(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.values().flat_map(Endpoint::confidential)
    }

    /// Adds a provider, in place of one of the same name.
    pub fn insert(&mut self, endpoint: Endpoint) {
        self.0.insert(endpoint.name.clone(), endpoint);
    }

    /// Says what a `provider/model` costs, in place of the price table; of a provider that is not known nothing is said.
    pub fn set_price(&mut self, model: &str, price: Price) {
        let Some((name, id)) = model.split_once('/') else { return };
        let key = self.key(name).to_owned();
        if let Some(endpoint) = self.0.get_mut(&key) {
            endpoint.prices.insert(id.to_owned(), price);
        }
    }

    /// Returns a provider, by its own name or another one of [`OTHER_NAMES`].
    pub fn get(&self, name: &str) -> Option<&Endpoint> {
        self.0.get(self.key(name))
    }

    fn key<'n>(&self, name: &'n str) -> &'n str {
        let other = OTHER_NAMES.iter().find(|(other, _)| *other == name && !self.0.contains_key(name));
        other.map_or(name, |(_, own)| own)
    }

    /// Returns the other names by which there is a provider here.
    pub fn other_names(&self) -> OtherNames {
        OtherNames(OTHER_NAMES.iter().filter(|(other, own)| self.key(other) == *own).map(|(other, own)| ((*other).to_owned(), (*own).to_owned())).collect())
    }

    /// Returns what a `provider/model` can do, whether its provider is known or not.
    pub fn capabilities(&self, model: &str) -> Capabilities {
        let (name, id) = model.split_once('/').unwrap_or(("", model));
        self.get(name).map_or_else(|| capability::capabilities(id), |endpoint| endpoint.capabilities(id))
    }

    /// Returns the providers, each once, by name.
    pub fn all(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.values()
    }

    /// Returns the names by which there is a provider, other ones than its own too, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let others = OTHER_NAMES.iter().filter(|(_, own)| self.0.contains_key(*own)).map(|(other, _)| *other);
        self.0.keys().map(String::as_str).chain(others).collect::<BTreeSet<_>>().into_iter()
    }

    /// Returns whether the price of a `provider/model` is known; of providers that are not known here nothing is said.
    pub fn is_priced(&self, model: &str) -> bool {
        let (provider, model) = model.split_once('/').unwrap_or((model, ""));
        self.get(provider).is_none_or(|endpoint| super::price::is_known(endpoint, model))
    }

    /// Finds the endpoint of `provider/model`, ready to be asked.
    ///
    /// # Errors
    /// `UnknownModel` where the name has no provider or one that is not known, `Unauthorized` where its key is missing.
    pub fn require<'a, 'm>(&'a self, model: &'m str) -> Result<(&'a Endpoint, &'m str), ModelError> {
        let known = || format!("write `provider/model`; the providers are {}", self.names().collect::<Vec<_>>().join(", "));
        let Some((name, id)) = model.split_once('/').filter(|(name, id)| !name.is_empty() && !id.is_empty()) else {
            return Err(ModelError::new(ModelErrorKind::UnknownModel, format!("`{model}` names no provider")).hint(known()));
        };
        let Some(endpoint) = self.get(name) else {
            return Err(ModelError::new(ModelErrorKind::UnknownModel, format!("{model}: there is no provider `{name}`")).hint(known()));
        };
        match &endpoint.missing_key {
            Some(variable) => Err(ModelError::new(ModelErrorKind::Unauthorized, format!("{model}: no key, `{variable}` is not set")).hint(KEYS)),
            None => Ok((endpoint, id)),
        }
    }

    /// Returns the model for whoever names none: the one whose key is there.
    ///
    /// # Errors
    /// `Unauthorized`, naming every choice, where there is no key.
    pub fn default_model(&self) -> Result<&'static str, ModelError> {
        let has_key = |name: &str| self.get(name).is_some_and(|endpoint| endpoint.key.is_some());
        let own = |name: &str, url: &str| self.get(name).is_some_and(|endpoint| endpoint.base_url == url);
        if has_key("anthropic") {
            Ok("anthropic/claude-sonnet-5-5")
        } else if has_key("openai") && own("openai", OPENAI_URL) {
            // Behind another address nobody knows which models there are.
            Ok("openai/gpt-6-sol")
        } else if has_key("gemini") && own("gemini", GEMINI_URL) {
            Ok("gemini/gemini-3.7-flash")
        } else {
            Err(ModelError::new(ModelErrorKind::Unauthorized, "no model is configured and no key is set").hint(format!("{KEYS}; or {OTHER}; {NO_KEY}")))
        }
    }
}

/// Which keys there are.
const KEYS: &str = "set `ANTHROPIC_API_KEY`; or `OPENAI_API_KEY`, with `OPENAI_BASE_URL` for any compatible endpoint (Ollama, llama.cpp, vLLM); \
                    or `GEMINI_API_KEY`";
/// How another model is named where the workflow names none.
pub const OTHER: &str = "name another model with `--model provider/model`";
/// Which models need no key.
pub const NO_KEY: &str = "`ollama/…` and `local/…` need no key";

/// Makes a base URL of `OLLAMA_HOST`, which may lack the scheme or the port, and may be an address to listen on.
fn ollama_url(host: &str) -> String {
    let host = host.trim_end_matches('/');
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let rest = rest.strip_suffix("/v1").unwrap_or(rest).replace("0.0.0.0", "127.0.0.1");
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port || scheme == "https" { format!("{scheme}://{rest}/v1") } else { format!("{scheme}://{rest}:11434/v1") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &'static [(&'static str, &'static str)]) -> Endpoints {
        Endpoints::from_env(&move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn keys_are_never_shown() {
        let endpoints = env(&[("ANTHROPIC_API_KEY", " sk-ant-1\n")]);
        assert!(!format!("{endpoints:?}").contains("sk-ant"));
        let anthropic = endpoints.get("anthropic").unwrap();
        assert_eq!(anthropic.redact("bad key sk-ant-1!"), "bad key ***anthropic key***!");
        let short = Endpoint::new("a", Protocol::Anthropic, "http://x").with_key(Secret::new("sk-x"));
        assert_eq!(short.redact("bad key sk-x!"), "bad key ***!");
        assert_eq!(anthropic.key.as_ref().unwrap().expose(), "sk-ant-1");
    }

    #[test]
    fn without_a_key_one_error_names_every_choice() {
        let endpoints = env(&[("ANTHROPIC_API_KEY", "  ")]);
        for error in [endpoints.default_model().unwrap_err(), endpoints.require("anthropic/claude-opus-5-5").unwrap_err()] {
            assert_eq!(error.kind, ModelErrorKind::Unauthorized);
            let hint = error.hint.unwrap();
            for word in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "Ollama", "llama.cpp", "vLLM"] {
                assert!(hint.contains(word), "{hint}");
            }
        }
        assert!(endpoints.default_model().unwrap_err().hint.unwrap().contains("--model"));
    }

    #[test]
    fn a_compatible_address_needs_no_key_and_has_no_default_model() {
        let endpoints = env(&[("OPENAI_BASE_URL", "http://127.0.0.1:1234/v1/")]);
        let (endpoint, id) = endpoints.require("openai/qwen/qwen3:8b").unwrap();
        assert_eq!((endpoint.base_url.as_str(), id), ("http://127.0.0.1:1234/v1", "qwen/qwen3:8b"));
        assert!(endpoints.default_model().is_err());
        assert_eq!(env(&[("OPENAI_API_KEY", "k")]).default_model().unwrap(), "openai/gpt-6-sol");
        assert_eq!(env(&[("GEMINI_API_KEY", "k")]).default_model().unwrap(), "gemini/gemini-3.7-flash");
    }

    #[test]
    fn openai_itself_speaks_responses_and_others_speak_chat() {
        let protocol = |pairs| env(pairs).get("openai").unwrap().protocol;
        assert_eq!(protocol(&[]), Protocol::OpenAiResponses);
        assert_eq!(protocol(&[("OPENAI_BASE_URL", "https://api.openai.com/v1/")]), Protocol::OpenAiResponses);
        assert_eq!(protocol(&[("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")]), Protocol::OpenAiChat);
    }

    #[test]
    fn another_name_of_a_provider_leads_to_it_with_all_its_settings() {
        let mut endpoints = env(&[("GEMINI_API_KEY", "k"), ("GEMINI_BASE_URL", "http://127.0.0.1:9")]);
        let price = Price::new(crate::llm::Rates::per_million(1.0, 2.0, None, None), None);
        endpoints.set_price("google/own", price);
        assert_eq!(endpoints.require("google/own").unwrap().0, endpoints.require("gemini/own").unwrap().0);
        assert_eq!(endpoints.require("google/own").unwrap().0.base_url, "http://127.0.0.1:9");
        assert!(endpoints.is_priced("gemini/own") && endpoints.is_priced("google/own"));
        // One that is configured under this name is its own.
        endpoints.insert(Endpoint::new("google", Protocol::OpenAiChat, "http://127.0.0.1:8"));
        assert_eq!(endpoints.get("google").unwrap().protocol, Protocol::OpenAiChat);
        assert_eq!(endpoints.get("gemini").unwrap().protocol, Protocol::Gemini);
    }

    #[test]
    fn names_that_lead_nowhere_say_what_there_is() {
        let endpoints = env(&[]);
        for model in ["gpt-6-sol", "/x", "openai/", "mistral/large", ""] {
            let error = endpoints.require(model).unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::UnknownModel, "{model}");
            assert!(error.hint.unwrap().contains("anthropic, gemini, google, local, ollama, openai"));
        }
    }

    #[test]
    fn ollamas_host_takes_every_form_it_has() {
        for (host, url) in [
            ("127.0.0.1", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0:9999", "http://127.0.0.1:9999/v1"),
            ("http://box:11434/", "http://box:11434/v1"),
            ("https://ollama.example.com", "https://ollama.example.com/v1"),
            ("http://box:1/v1", "http://box:1/v1"),
        ] {
            assert_eq!(ollama_url(host), url);
        }
    }
}
