//! The configuration that holds here: the built-in one, the user's file, the project's file, the environment, each over the
//! one before it. A workflow comes over the files, and the command line over everything.
//!
//! A project's file may not say where requests and keys go until somebody has trusted it, by its content.
use super::{SCRIPTED, Settings, SetupError, walls::placed};
use crate::{
    event::BlobId,
    library::{Trust, read_text},
    llm::{BUILT_IN, BuiltIn, Endpoint, Endpoints, OTHER_NAMES, Price, Protocol, Rates, Secret},
    plan::{AgentSpec, Limits},
    source::{Diagnostic, Diagnostics, Source, Spanned, codes, nearest},
    workflow::{self, Defaults, ModelAlias, Provider},
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The file's name in the user's configuration folder and in a project's `.spinney`.
const FILE: &str = "config.yaml";
/// The longest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The environment variable that names the model for whoever names none.
pub const MODEL_VARIABLE: &str = "SPINNEY_MODEL";
/// The files that hold here.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    /// The weakest first.
    layers: Vec<Layer>,
}

#[derive(Debug, Clone)]
struct Layer {
    written: workflow::Configuration,
    hash: String,
    /// Whether it may say where requests and keys go.
    trusted: bool,
    /// Whether it is the user's own, which alone may say what commands read.
    is_users: bool,
}

/// One value and where it came from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// Its dotted name.
    pub key: String,
    /// What it is; a key is never shown, only whether it is there.
    pub value: Value,
    /// `built in`, a file, or an environment variable.
    pub from: String,
}

/// What of a project's file waits for trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrusted {
    /// The file.
    pub file: String,
    /// The hash of its content.
    pub hash: String,
    /// What it would do, one provider a line.
    pub providers: Vec<String>,
}

impl Untrusted {
    /// Says that what it names is left out.
    pub fn warning(&self) -> String {
        format!("the providers of {} are not trusted and do not count: {}; look at them with `spinney trust`", self.file, self.providers.join("; "))
    }
}

impl Configuration {
    /// Reads the user's file and the project's.
    ///
    /// # Errors
    /// All errors of both, each with its place.
    pub fn load(settings: &Settings, project: &Path, trust: &Trust) -> Result<Configuration, SetupError> {
        let mut layers = Vec::new();
        let mut wrong = Vec::new();
        let user = settings.config.as_ref().map(|folder| (folder.join(FILE), shown(&folder.join(FILE), settings.home.as_deref()), true));
        let own = (project.join(".spinney").join(FILE), format!(".spinney/{FILE}"), false);
        for (path, name, is_users) in user.into_iter().chain([own]) {
            let Some(text) = read(&path, (!is_users).then_some(project)).map_err(|source| SetupError::File { path: name.clone(), source })? else { continue };
            let hash = BlobId::of(text.as_bytes()).0;
            match workflow::Configuration::load(&Arc::new(Source { name, text })) {
                Ok(written) => layers.push(Layer { written, trusted: is_users || trust.is_trusted(&hash), hash, is_users }),
                Err(errors) => wrong.extend(errors.found),
            }
        }
        let read = Configuration { layers };
        wrong.extend(read.objections());
        if wrong.is_empty() { Ok(read) } else { Err(Diagnostics::from(wrong).into()) }
    }

    /// Returns the providers that are reached from here.
    pub fn endpoints(&self, environment: &BTreeMap<String, String>) -> Endpoints {
        let mut endpoints = Endpoints::from_env(&|name| environment.get(name).cloned());
        for (name, provider) in self.layers.iter().filter(|layer| layer.trusted).flat_map(|layer| &layer.written.providers) {
            let before = endpoints.get(name).cloned();
            if let Some(endpoint) = endpoint(name, provider, before, environment) {
                endpoints.insert(endpoint);
            }
        }
        for (name, price) in self.layers.iter().flat_map(|layer| &layer.written.prices) {
            let price = Price::new(rates(&price.rates), price.above.map(|(tokens, above)| (tokens, rates(&above))));
            endpoints.set_price(name, price);
        }
        endpoints
    }

    /// Returns the aliases, each with the file it stands in.
    pub fn aliases(&self) -> BTreeMap<String, (ModelAlias, String)> {
        let of = |layer: &Layer| {
            let file = layer.written.source.name.clone();
            layer.written.models.iter().map(|(name, alias)| (name.value.clone(), (alias.clone(), file.clone()))).collect::<Vec<_>>()
        };
        self.layers.iter().flat_map(of).collect()
    }

    /// Returns the model for whoever names none, and who named it.
    pub fn default_model(&self, environment: &BTreeMap<String, String>) -> Option<(String, String)> {
        if let Some(model) = set(environment, MODEL_VARIABLE) {
            return Some((model, MODEL_VARIABLE.to_owned()));
        }
        let (model, file) = self.nearest(|defaults| defaults.model.clone())?;
        Some((model.value, file))
    }

    /// Returns what all files say of steps and agents, the nearest first.
    pub fn defaults(&self) -> Defaults {
        let mut defaults = Defaults::default();
        self.layers.iter().rev().for_each(|layer| defaults.lay_under(&layer.written.defaults));
        defaults
    }

    /// Returns what the user's own file shows to commands in the sandbox.
    pub fn readable(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let own = self.layers.iter().filter(|layer| layer.is_users).flat_map(|layer| &layer.written.sandbox);
        own.flat_map(|sandbox| &sandbox.value.read).filter_map(|path| placed(path, home)).collect()
    }

    /// Returns what waits for trust.
    pub fn untrusted(&self) -> Vec<Untrusted> {
        let waits = self.layers.iter().filter(|layer| !layer.trusted && !layer.written.providers.is_empty());
        waits.map(Layer::asked).collect()
    }

    /// Returns the hash of what is said here about models and defaults; absent where there is no file.
    pub fn hash(&self) -> Option<String> {
        // Addresses, keys and prices are the machine's business; which model answers is the run's.
        let bound: Vec<Setting> = self
            .settings(&BTreeMap::new())
            .into_iter()
            .filter(|setting| !["providers.", "prices.", "sandbox."].iter().any(|of| setting.key.starts_with(of)))
            .collect();
        let text = json!(bound).to_string();
        (!self.layers.is_empty()).then(|| BlobId::of(text.as_bytes()).0)
    }

    /// Returns every value with where it came from, sorted by key.
    pub fn settings(&self, environment: &BTreeMap<String, String>) -> Vec<Setting> {
        let mut all = self.provider_settings(environment);
        let file = |layer: &Layer| layer.written.source.name.clone();
        for (name, (alias, from)) in self.aliases() {
            let mut add = |key: &str, value: Value| all.push(Setting { key: format!("models.{name}.{key}"), value, from: from.clone() });
            add("use", alias.choices.iter().map(|choice| choice.value.clone()).collect());
            alias.effort.into_iter().for_each(|effort| add("effort", effort.into()));
            alias.max_output_tokens.into_iter().for_each(|most| add("max_output_tokens", most.into()));
        }
        let prices: BTreeMap<&str, (&workflow::Price, String)> =
            self.layers.iter().flat_map(|layer| layer.written.prices.iter().map(move |(name, price)| (name.as_str(), (price, file(layer))))).collect();
        for (name, (price, from)) in prices {
            let value = |rates: &workflow::Rates| json!({"input": rates.input, "output": rates.output, "cache_read": rates.cache_read, "cache_write": rates.cache_write});
            let above = price.above.as_ref().map(|(tokens, rates)| json!({"tokens": tokens, "rates": value(rates)}));
            all.push(Setting { key: format!("prices.{name}"), value: json!({"rates": value(&price.rates), "above": above}), from });
        }
        for layer in self.layers.iter().filter(|layer| layer.is_users) {
            let read = layer.written.sandbox.iter().flat_map(|sandbox| &sandbox.value.read).map(|path| path.value.clone());
            all.extend(layer.written.sandbox.iter().map(|_| Setting { key: "sandbox.read".to_owned(), value: read.clone().collect(), from: file(layer) }));
        }
        let mut defaults: BTreeMap<&str, (Value, String)> = built_in_defaults().into_iter().map(|(key, value)| (key, (value, "built in".to_owned()))).collect();
        for layer in &self.layers {
            defaults.extend(written(&layer.written.defaults).into_iter().map(|(key, value)| (key, (value, file(layer)))));
        }
        if let Some((model, from)) = self.default_model(environment) {
            defaults.insert("model", (model.into(), from));
        } else if let Ok(model) = self.endpoints(environment).default_model() {
            defaults.insert("model", (model.into(), "built in, for the key that is set".to_owned()));
        }
        all.extend(defaults.into_iter().map(|(key, (value, from))| Setting { key: format!("defaults.{key}"), value, from }));
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    fn provider_settings(&self, environment: &BTreeMap<String, String>) -> Vec<Setting> {
        let mut all = Vec::new();
        let endpoints = self.endpoints(environment);
        let trusted = || self.layers.iter().rev().filter(|layer| layer.trusted);
        for endpoint in endpoints.all() {
            let said = |says: &dyn Fn(&Provider) -> bool| {
                let says = |layer: &&Layer| layer.written.providers.iter().any(|(name, provider)| name.value == endpoint.name && says(provider));
                trusted().find(says).map(|layer| layer.written.source.name.clone())
            };
            let built_in = BuiltIn::named(&endpoint.name);
            let variable = |variable: Option<&str>| variable.filter(|variable| set(environment, variable).is_some()).map(str::to_owned);
            let mut add = |key: &str, value: Value, from: Option<String>| {
                let from = from.unwrap_or_else(|| "built in".to_owned());
                all.push(Setting { key: format!("providers.{}.{key}", endpoint.name), value, from });
            };
            add(
                "base_url",
                endpoint.base_url.clone().into(),
                variable(built_in.map(|built_in| built_in.url_env)).or_else(|| said(&|provider| provider.base_url.is_some())),
            );
            let protocol = Protocol::NAMED.iter().find(|(_, protocol)| *protocol == endpoint.protocol).map(|(name, _)| *name);
            add("protocol", protocol.into(), said(&|provider| provider.protocol.is_some()));
            if endpoint.bearer {
                add("auth", "bearer".into(), said(&|provider| provider.bearer.is_some()));
            }
            for (model, known) in &endpoint.models {
                let says = |provider: &Provider| provider.models.iter().any(|(name, _)| name.value == *model);
                add(&format!("models.{model}"), Value::Object(known.clone()), said(&says));
            }
            let named = trusted().find_map(|layer| layer.written.providers.iter().find(|(name, _)| name.value == endpoint.name)?.1.key_env.clone());
            let own = built_in.and_then(|built_in| built_in.key_env).filter(|key| set(environment, key).is_some() || named.is_none());
            if let Some(key) = own.map(str::to_owned).or_else(|| named.map(|named| named.value)) {
                let state = if set(environment, &key).is_some() { "set" } else { "not set" };
                let from = if own.is_some() { None } else { said(&|provider| provider.key_env.is_some()) };
                add("key", format!("in {key}, {state}").into(), from);
            }
            if !endpoint.headers.is_empty() {
                let names: Vec<&str> = endpoint.headers.iter().map(|(name, _)| name.as_str()).collect();
                add("headers", names.into(), said(&|provider| !provider.headers.is_empty()));
            }
        }
        all
    }

    /// Says what is wrong with what is written, beyond its form.
    fn objections(&self) -> Vec<Diagnostic> {
        let declared: BTreeSet<&str> = self.layers.iter().flat_map(|layer| &layer.written.providers).map(|(name, _)| name.as_str()).collect();
        let providers: BTreeSet<&str> = declared
            .iter()
            .copied()
            .chain(BUILT_IN.iter().map(|built_in| built_in.name))
            .chain(OTHER_NAMES.iter().map(|(other, _)| *other))
            .chain([SCRIPTED])
            .collect();
        let aliases: BTreeSet<&str> = self.layers.iter().flat_map(|layer| &layer.written.models).map(|(name, _)| name.as_str()).collect();
        let mut found = Vec::new();
        for Layer { written, is_users, .. } in &self.layers {
            let error = |code, place: &Spanned<String>, message: String| Diagnostic::error(code, &written.source, place.span, message);
            if let (false, Some(sandbox)) = (is_users, &written.sandbox) {
                let wrong = Diagnostic::error(codes::UNKNOWN_KEY, &written.source, sandbox.span, "a project may not say what commands may read");
                found.push(wrong.help("write it into your own config.yaml; `spinney config` tells where that is"));
            }
            for (name, provider) in written.providers.iter().filter(|(name, _)| BuiltIn::named(name).is_none()) {
                let lacks = [("protocol", provider.protocol.is_none()), ("base_url", provider.base_url.is_none())];
                for (key, _) in lacks.iter().filter(|(_, lacks)| *lacks) {
                    let message = format!("the provider `{}` needs the key `{key}`", name.value);
                    let known = BUILT_IN.map(|built_in| built_in.name).join(", ");
                    found.push(error(codes::MISSING_KEY, name, message).help(format!("only a built-in provider has one of its own: {known}")));
                }
            }
            for (name, provider) in &written.providers {
                let before = BuiltIn::named(&name.value).and_then(|built_in| Endpoints::from_env(&|_| None).get(built_in.name).cloned());
                let Some(endpoint) = endpoint(&name.value, provider, before, &BTreeMap::new()) else { continue };
                for (word, _) in provider.extra.iter().filter(|(word, _)| endpoint.is_own(&word.value)) {
                    let message = format!("`extra` may not say `{}`, which every request says itself", word.value);
                    found.push(error(codes::UNKNOWN_KEY, word, message).help("what can be said of it stands in `models` of the provider, or in the workflow"));
                }
            }
            let choices = written.models.iter().flat_map(|(_, alias)| &alias.choices).chain(written.prices.iter().map(|(name, _)| name));
            let model = written.defaults.model.iter().filter(|model| !aliases.contains(model.as_str()));
            for choice in choices.chain(model) {
                match choice.value.split_once('/').filter(|(provider, model)| !provider.is_empty() && !model.is_empty()) {
                    Some((provider, _)) if providers.contains(provider) => {}
                    Some((provider, _)) => {
                        let unknown = error(codes::UNKNOWN_MODEL, choice, format!("there is no provider `{provider}`"));
                        let near = nearest(provider, providers.iter().copied());
                        found.push(unknown.help(near.map_or_else(|| "providers stand under `providers`".to_owned(), |near| format!("did you mean `{near}`?"))));
                    }
                    None => {
                        let bad = error(codes::UNKNOWN_MODEL, choice, format!("`{}` does not say whose model it is", choice.value));
                        found.push(bad.help("write `provider/model`"));
                    }
                }
            }
        }
        found
    }

    fn nearest<T>(&self, pick: impl Fn(&Defaults) -> Option<T>) -> Option<(T, String)> {
        self.layers.iter().rev().find_map(|layer| Some((pick(&layer.written.defaults)?, layer.written.source.name.clone())))
    }
}

impl Layer {
    fn asked(&self) -> Untrusted {
        let line = |(name, provider): &(Spanned<String>, Provider)| {
            let url = provider.base_url.as_ref().map(|url| format!(" at {}", url.value)).unwrap_or_default();
            let key = provider.key_env.as_ref().map(|key| format!(", with the key in {}", key.value)).unwrap_or_default();
            let headers: Vec<&str> = provider.headers.iter().map(|(name, _)| name.as_str()).collect();
            let headers = if headers.is_empty() { String::new() } else { format!(", with headers {}", headers.join(", ")) };
            format!("{}{url}{key}{headers}", name.value)
        };
        Untrusted { file: self.written.source.name.clone(), hash: self.hash.clone(), providers: self.written.providers.iter().map(line).collect() }
    }
}

fn rates(written: &workflow::Rates) -> Rates {
    Rates::per_million(written.input, written.output, written.cache_read, written.cache_write)
}

/// Makes a provider of what is written, over the one before it of the same name, under what the environment says.
fn endpoint(name: &str, written: &Provider, before: Option<Endpoint>, environment: &BTreeMap<String, String>) -> Option<Endpoint> {
    let fixed = BuiltIn::named(name).is_some_and(|built_in| set(environment, built_in.url_env).is_some());
    let url = written.base_url.as_ref().filter(|_| !fixed).map(|url| url.value.clone());
    let named = written.protocol.as_ref().and_then(|name| Protocol::NAMED.iter().find(|(known, _)| *known == name.value));
    let moves = url.as_ref().is_some_and(|url| before.as_ref().is_some_and(|before| before.base_url != url.trim_end_matches('/')));
    let protocol = match (named, before.as_ref().map(|before| before.protocol)) {
        (Some((_, named)), _) => *named,
        // Elsewhere those who speak like OpenAI speak as it did before.
        (None, Some(Protocol::OpenAiResponses)) if moves => Protocol::OpenAiChat,
        (None, before) => before?,
    };
    let plain = Endpoint::new(name, protocol, url.as_deref().or(before.as_ref().map(|before| before.base_url.as_str()))?);
    let mut made = match before {
        Some(before) if before.base_url == plain.base_url => Endpoint { protocol, ..before },
        Some(before) => Endpoint {
            headers: before.headers,
            key: before.key,
            bearer: before.bearer,
            extra: before.extra,
            models: before.models,
            timeouts: before.timeouts,
            ..plain
        },
        None => plain,
    };
    if let Some(variable) = &written.key_env
        && made.key.is_none()
    {
        made.key = set(environment, &variable.value).and_then(|key| Secret::new(&key));
        made.missing_key = made.key.is_none().then(|| variable.value.clone());
    }
    for (header, value) in &written.headers {
        made.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(&header.value));
        made.headers.push((header.value.clone(), value.value.clone()));
    }
    made.extra.extend(written.extra.iter().map(|(word, value)| (word.value.clone(), value.clone())));
    made.bearer = written.bearer.unwrap_or(made.bearer);
    for (model, said) in &written.models {
        made.models.entry(model.value.clone()).or_default().extend(said.as_object().cloned().unwrap_or_default());
    }
    Some(made)
}

fn set(environment: &BTreeMap<String, String>, name: &str) -> Option<String> {
    environment.get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Reads a file; `None` where there is none. A project's must lie in the project.
fn read(path: &Path, inside: Option<&Path>) -> io::Result<Option<String>> {
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let strays = inside.is_some_and(|project| !fs::canonicalize(project).is_ok_and(|project| real.starts_with(project)));
    if strays {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file of the project"));
    }
    read_text(&real, MAX_BYTES).map(Some)
}

fn shown(path: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}

fn built_in_defaults() -> Vec<(&'static str, Value)> {
    vec![("idle_timeout", seconds(AgentSpec::IDLE_TIMEOUT)), ("max_parallel", crate::plan::MAX_PARALLEL.into()), ("timeout", seconds(Limits::SESSION.time))]
}

fn written(defaults: &Defaults) -> Vec<(&'static str, Value)> {
    let parts = [
        ("model", defaults.model.as_ref().map(|model| model.value.clone().into())),
        ("timeout", defaults.timeout.map(seconds)),
        ("idle_timeout", defaults.idle_timeout.map(seconds)),
        ("retry", defaults.retry.as_ref().map(|retry| format!("{} more, from {} on", retry.max, seconds(retry.delay).as_str().unwrap_or_default()).into())),
        ("workspace", defaults.workspace.as_ref().map(|workspace| format!("{:?}", workspace.kind).to_lowercase().into())),
        ("max_parallel", defaults.max_parallel.as_ref().map(|most| most.value.into())),
    ];
    parts.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn seconds(duration: std::time::Duration) -> Value {
    if duration.subsec_millis() > 0 { format!("{}ms", duration.as_millis()).into() } else { format!("{}s", duration.as_secs()).into() }
}
