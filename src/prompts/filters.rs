//! The filters of our own, and the names of all that a template may call.
#![expect(clippy::needless_pass_by_value, reason = "Tera gives a filter its arguments by value")]
use super::outline::CallKind;
use serde::Deserialize as _;
use serde_json::Value as Json;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tera::{Error, Kwargs, Map, State, Tera, TeraResult, Value};

/// What a template may call, with the arguments that it has.
#[derive(Debug)]
pub(super) struct Callable {
    pub(super) name: &'static str,
    /// Arguments that must be there.
    pub(super) needs: &'static [&'static str],
    /// Arguments that may be left out.
    pub(super) may: &'static [&'static str],
}

impl Callable {
    const fn plain(name: &'static str) -> Callable {
        Callable { name, needs: &[], may: &[] }
    }

    const fn with(name: &'static str, needs: &'static [&'static str], may: &'static [&'static str]) -> Callable {
        Callable { name, needs, may }
    }

    /// Returns the names of all arguments, those first that must be there.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.needs.iter().chain(self.may).copied()
    }

    /// Returns how it is called, where it has arguments: with those that must be there, or else with the first.
    pub(super) fn usage(&self) -> Option<String> {
        let shown = if self.needs.is_empty() { self.may.get(..1)? } else { self.needs };
        Some(format!("{}({})", self.name, shown.iter().map(|name| format!("{name}=…")).collect::<Vec<_>>().join(", ")))
    }
}

/// Every filter, sorted.
pub(super) const FILTERS: &[Callable] = &[
    Callable::plain("abs"),
    Callable::plain("capitalize"),
    Callable::with("default", &["value"], &["boolean"]),
    Callable::plain("escape"),
    Callable::plain("escape_html"),
    Callable::plain("escape_xml"),
    Callable::plain("first"),
    Callable::plain("flatten"),
    Callable::plain("float"),
    Callable::plain("from_json"),
    Callable::with("get", &["key"], &["default"]),
    Callable::with("group_by", &["attribute"], &[]),
    Callable::with("indent", &[], &["width", "indentation", "first", "blank"]),
    Callable::with("int", &[], &["base"]),
    Callable::with("join", &[], &["sep"]),
    Callable::with("json", &[], &["pretty"]),
    Callable::plain("keys"),
    Callable::plain("last"),
    Callable::plain("length"),
    Callable::plain("lines"),
    Callable::plain("lower"),
    Callable::plain("newlines_to_br"),
    Callable::with("nth", &["n"], &[]),
    Callable::plain("pairs"),
    Callable::with("pluralize", &[], &["singular", "plural"]),
    Callable::plain("raw"),
    Callable::with("replace", &["from", "to"], &[]),
    Callable::plain("reverse"),
    Callable::with("round", &[], &["precision", "method"]),
    Callable::plain("safe"),
    Callable::plain("sh"),
    Callable::with("sort", &[], &["attribute"]),
    Callable::with("split", &["pat"], &[]),
    Callable::plain("str"),
    Callable::plain("title"),
    Callable::with("trim", &[], &["pat"]),
    Callable::with("trim_end", &[], &["pat"]),
    Callable::with("trim_start", &[], &["pat"]),
    Callable::with("truncate", &["length"], &["end"]),
    Callable::with("truncate_tokens", &["max"], &[]),
    Callable::plain("unique"),
    Callable::plain("upper"),
    Callable::plain("values"),
    Callable::plain("wordcount"),
];
/// Those that make something of null as well.
pub(super) const TAKE_NULL: [&str; 7] = ["default", "json", "raw", "safe", "sh", "str", "truncate_tokens"];
/// Every test, sorted.
pub(super) const TESTS: &[Callable] = &[
    Callable::plain("array"),
    Callable::plain("bool"),
    Callable::with("containing", &["pat"], &[]),
    Callable::plain("defined"),
    Callable::with("divisible_by", &["divisor"], &[]),
    Callable::with("ending_with", &["pat"], &[]),
    Callable::plain("even"),
    Callable::plain("float"),
    Callable::plain("integer"),
    Callable::plain("iterable"),
    Callable::plain("map"),
    Callable::plain("none"),
    Callable::plain("number"),
    Callable::plain("odd"),
    Callable::with("starting_with", &["pat"], &[]),
    Callable::plain("string"),
    Callable::plain("undefined"),
];
/// Every function.
pub(super) const FUNCTIONS: &[Callable] = &[Callable::with("range", &["end"], &["start", "step_by"]), Callable::with("throw", &["message"], &[])];

impl CallKind {
    /// Returns all that there is of this kind.
    pub(super) fn known(self) -> &'static [Callable] {
        match self {
            CallKind::Filter => FILTERS,
            CallKind::Test => TESTS,
            CallKind::Function => FUNCTIONS,
        }
    }

    /// Returns the word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            CallKind::Filter => "filter",
            CallKind::Test => "test",
            CallKind::Function => "function",
        }
    }
}

/// Begins the message by which the guard of an access names its number.
pub(super) const UNDEFINED: &str = "\0undefined ";
/// How many items all loops of one rendering may see.
const MAX_STEPS: u64 = 1_000_000;
/// The longest text that `replace` gives, in bytes.
const MAX_REPLACED_BYTES: usize = 16 << 20;
/// Bytes of plain text to a token, a rough measure that errs towards too many tokens.
const BYTES_PER_TOKEN: usize = 4;

pub(super) fn register(tera: &mut Tera) {
    tera.register_filter("sh", sh);
    tera.register_filter("raw", raw);
    tera.register_filter("default", default);
    tera.register_filter("json", json);
    tera.register_filter("from_json", from_json);
    tera.register_filter("flatten", flatten);
    tera.register_filter("lines", lines);
    tera.register_filter("truncate_tokens", truncate_tokens);
    tera.register_filter("group_by", group_by);
    tera.register_filter("replace", replace);
    tera.register_filter("__text", raw);
    tera.register_filter("__json", json_value);
    tera.register_filter("__known", known);
    register_counter(tera);
}

/// Registers a fresh counter of loops; each rendering that loops needs one of its own.
pub(super) fn register_counter(tera: &mut Tera) {
    let steps = Arc::new(AtomicU64::new(0));
    tera.register_filter("__steps", move |value: Value, _: Kwargs, _: &State<'_>| {
        let more = value.len().map_or(1, |length| length as u64 + 1);
        if steps.fetch_add(more, Ordering::Relaxed).saturating_add(more) > MAX_STEPS {
            return Err(Error::message("the loops of this template run over too many items"));
        }
        Ok(value)
    });
}

/// The guard of an access that must be defined.
fn known(value: &Value, arguments: Kwargs, _: &State<'_>) -> TeraResult<Value> {
    if value.is_undefined() {
        return Err(Error::message(format!("{UNDEFINED}{}", arguments.must_get::<usize>("at")?)));
    }
    Ok(value.clone())
}

/// Gives another value where there is none: nothing is defined, or null stands there. With `boolean=true` also where the value
/// counts as false.
fn default(value: &Value, arguments: Kwargs, _: &State<'_>) -> TeraResult<Value> {
    let none = value.is_undefined() || value.is_none() || (arguments.get::<bool>("boolean")?.unwrap_or_default() && !value.is_truthy());
    if none { arguments.must_get::<Value>("value") } else { Ok(value.clone()) }
}

/// Quotes for a POSIX shell: always quoted, so that no word becomes an assignment, a keyword or a file descriptor. A list
/// gives one word an item.
fn sh(value: &Value, _: Kwargs, _: &State<'_>) -> TeraResult<String> {
    match value.as_array() {
        Some(items) => Ok(items.iter().map(word).collect::<TeraResult<Vec<String>>>()?.join(" ")),
        None => word(value),
    }
}

fn word(value: &Value) -> TeraResult<String> {
    if value.is_none() || value.is_undefined() {
        return Err(Error::message("null cannot be a word of a command; use `default(value=…)` before `sh`"));
    }
    let text = text(value)?;
    if text.contains('\0') {
        return Err(Error::message("a NUL character cannot be part of a command"));
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

/// Gives the text of a value: strings as they are, null as nothing, lists and maps as JSON.
fn raw(value: &Value, _: Kwargs, _: &State<'_>) -> TeraResult<String> {
    if value.is_undefined() {
        return Err(Error::message("this gives nothing; say what to use instead with `default(value=…)`"));
    }
    text(value)
}

fn text(value: &Value) -> TeraResult<String> {
    if value.is_array() || value.is_map() { Ok(to_json(value)?.to_string()) } else { Ok(value.to_string()) }
}

/// Gives JSON on one line, or indented with `pretty=true`.
fn json(value: &Value, arguments: Kwargs, _: &State<'_>) -> TeraResult<String> {
    let value = to_json(value)?;
    let pretty = arguments.get::<bool>("pretty")?.unwrap_or_default();
    if pretty { serde_json::to_string_pretty(&value).map_err(|error| Error::message(error.to_string())) } else { Ok(value.to_string()) }
}

fn json_value(value: &Value, _: Kwargs, _: &State<'_>) -> TeraResult<String> {
    Ok(to_json(value)?.to_string())
}

fn to_json(value: &Value) -> TeraResult<Json> {
    if value.is_undefined() {
        return Err(Error::message("this gives nothing; say what to use instead with `default(value=…)`"));
    }
    serde_json::to_value(value).map_err(|error| Error::message(format!("the value cannot be written as JSON: {error}")))
}

/// Reads one JSON value from text.
fn from_json(text: &str, _: Kwargs, _: &State<'_>) -> TeraResult<Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Json::deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    match value {
        Ok(value) => Value::try_from_serializable(&value),
        Err(error) => Err(Error::message(format!("the text is not JSON: {error}"))),
    }
}

/// Joins a list of lists into one list; items that are not lists stay.
fn flatten(items: &[Value], _: Kwargs, _: &State<'_>) -> Vec<Value> {
    let mut flat = Vec::with_capacity(items.len());
    for item in items {
        match item.as_array() {
            Some(inner) => flat.extend_from_slice(inner),
            None => flat.push(item.clone()),
        }
    }
    flat
}

/// Splits text into lines, without empty ones at the end.
fn lines(text: &str, _: Kwargs, _: &State<'_>) -> Vec<String> {
    text.trim_end_matches(['\n', '\r']).lines().filter(|_| !text.is_empty()).map(str::to_owned).collect()
}

/// Cuts text to about `max` tokens: the beginning and the end stay, and what was cut is stated in between.
fn truncate_tokens(value: &Value, arguments: Kwargs, _: &State<'_>) -> TeraResult<String> {
    let max = arguments.must_get::<usize>("max")?;
    let text = text(value)?;
    let total = tokens(&text);
    if total <= max {
        return Ok(text);
    }
    let (head, tail) = (take_tokens(text.chars(), max - max / 3), take_tokens(text.chars().rev(), max / 3));
    let cut = text.len() - head - tail;
    Ok(format!("{}\n[… {cut} bytes cut, about {} tokens …]\n{}", &text[..head], total - max, &text[text.len() - tail..]))
}

/// Estimates tokens: four bytes of ASCII, or one other character, to a token.
fn tokens(text: &str) -> usize {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let other = text.chars().filter(|c| !c.is_ascii()).count();
    ascii.div_ceil(BYTES_PER_TOKEN) + other
}

/// Returns how many bytes of the characters make up `max` tokens.
fn take_tokens(chars: impl Iterator<Item = char>, max: usize) -> usize {
    let mut budget = max.saturating_mul(BYTES_PER_TOKEN);
    let mut bytes = 0;
    for c in chars {
        let cost = if c.is_ascii() { 1 } else { BYTES_PER_TOKEN };
        if cost > budget {
            break;
        }
        budget -= cost;
        bytes += c.len_utf8();
    }
    bytes
}

/// Groups the items of a list by an attribute, groups in the order in which they first appear. Tera's own gives them in an
/// order that changes from run to run.
fn group_by(items: &[Value], arguments: Kwargs, _: &State<'_>) -> TeraResult<Map> {
    let attribute = arguments.must_get::<&str>("attribute")?;
    let mut groups: Vec<(String, Vec<Value>)> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let Some(key) = item.get_from_path(attribute) else {
            return Err(Error::message(format!("item {at} has no `{attribute}`")));
        };
        if key.is_none() {
            continue;
        }
        let key = text(key)?;
        match groups.iter_mut().find(|(name, _)| *name == key) {
            Some((_, group)) => group.push(item.clone()),
            None => groups.push((key, vec![item.clone()])),
        }
    }
    Ok(groups.into_iter().map(|(key, group)| (key.into(), group.into())).collect())
}

/// Replaces every `from` by `to`. Unlike Tera's own it refuses a result without bounds: both may come from a model.
fn replace(text: &str, arguments: Kwargs, _: &State<'_>) -> TeraResult<String> {
    let (from, to) = (arguments.must_get::<&str>("from")?, arguments.must_get::<&str>("to")?);
    let growth = text.matches(from).count().saturating_mul(to.len());
    if growth.saturating_add(text.len()) > MAX_REPLACED_BYTES {
        return Err(Error::message(format!("the replaced text would be longer than {MAX_REPLACED_BYTES} bytes")));
    }
    Ok(text.replace(from, to))
}
