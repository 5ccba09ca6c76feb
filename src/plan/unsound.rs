//! What is wrong with a schema as it is written, each thing at its own place.
use super::findings::Findings;
use crate::{
    source::{Diagnostic, Span, codes, suggestion},
    workflow::places,
};
use jsonschema::{
    JsonType, ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Things that are told of one schema.
const TOLD: usize = 8;
/// What `type` may be.
const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "array", "object", "null"];

/// Something that is wrong with a schema.
pub(super) struct Flaw {
    /// The keys and numbers that lead to its place in the file.
    path: Vec<String>,
    /// Where that begins: the name that the schema goes by.
    name: Span,
    message: String,
    help: Option<String>,
}

/// Looks for what keeps a value from being a schema; `path` leads to it in the file.
pub(super) fn flaws(schema: &Value, path: &[&str], name: Span) -> Vec<Flaw> {
    let meta = jsonschema::draft202012::meta::validator();
    let mut found: Vec<Flaw> = Vec::new();
    for error in meta.iter_errors(schema).take(TOLD) {
        let at = error.instance_path().as_str().to_owned();
        let (message, help) = told(&error, &at);
        let flaw = Flaw { path: below(path, &at), name, message, help };
        if found.iter().all(|known| known.path != flaw.path) {
            found.push(flaw);
        }
    }
    found
}

/// Looks for references of a schema that lead back to themselves and say nothing on the way; `whole` is the same with all that
/// it refers to.
pub(super) fn circles(schema: &Value, whole: &Value, path: &[&str], name: Span) -> Vec<Flaw> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), schema)];
    while let Some((at, value)) = open.pop() {
        match value {
            Value::Object(words) => {
                if words.contains_key("$ref")
                    && let Some(part) = whole.pointer(&at)
                    && leads_back(whole, part)
                {
                    let message = "this refers to itself, and nothing says what it is".to_owned();
                    let help = Some("say what a value looks like; a schema may hold itself in its `properties` or `items`".to_owned());
                    found.push(Flaw { path: below(path, &format!("{at}/$ref")), name, message, help });
                }
                open.extend(words.iter().map(|(word, value)| (format!("{at}/{}", word.replace('~', "~0").replace('/', "~1")), value)));
            }
            Value::Array(values) => open.extend(values.iter().enumerate().map(|(place, value)| (format!("{at}/{place}"), value))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        if found.len() >= TOLD {
            break;
        }
    }
    found
}

/// Returns whether references lead from one to the next without end.
fn leads_back(whole: &Value, part: &Value) -> bool {
    let (mut at, mut seen) = (part, BTreeSet::new());
    while let Some(reference) = at.get("$ref").and_then(Value::as_str) {
        if !seen.insert(reference) {
            return true;
        }
        let Some(target) = whole.pointer(reference.trim_start_matches('#')) else { return false };
        at = target;
    }
    false
}

/// Reports what was found; the file is looked through once for the places of all of it.
pub(super) fn report(flaws: Vec<Flaw>, findings: &mut Findings<'_>) {
    if flaws.is_empty() {
        return;
    }
    let paths: Vec<&[String]> = flaws.iter().map(|flaw| flaw.path.as_slice()).collect();
    let places = places(findings.source, &paths);
    for (flaw, place) in flaws.into_iter().zip(places) {
        let error = findings.error(codes::BAD_SCHEMA, place.unwrap_or(flaw.name), flaw.message);
        findings.report(flaw.help.into_iter().fold(error, Diagnostic::help));
    }
}

fn below(path: &[&str], pointer: &str) -> Vec<String> {
    let inside = pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"));
    path.iter().map(|part| (*part).to_owned()).chain(inside).collect()
}

/// Says what is wrong at a place, and what to do about it.
fn told(error: &ValidationError<'_>, at: &str) -> (String, Option<String>) {
    let parts: Vec<&str> = at.split('/').skip(1).collect();
    let key = parts.iter().rev().find(|part| part.parse::<usize>().is_err()).copied().unwrap_or_default();
    let value = error.instance();
    let is_type = key == "type" && !matches!(parts.iter().rev().nth(1).copied(), Some("properties" | "$defs" | "patternProperties"));
    if is_type {
        let words: Vec<&str> = value.as_str().into_iter().chain(value.as_array().into_iter().flatten().filter_map(Value::as_str)).collect();
        if let Some(wrong) = words.into_iter().find(|word| !TYPES.contains(word)) {
            return (format!("`{wrong}` is no type of JSON Schema"), suggestion(wrong, TYPES.into_iter(), "types"));
        }
    }
    match error.kind() {
        ValidationErrorKind::Type { kind } => {
            let wanted = match kind {
                TypeKind::Single(one) => word(*one).to_owned(),
                TypeKind::Multiple(some) => some.iter().map(word).collect::<Vec<_>>().join(" or "),
            };
            let what = if key.is_empty() { "a schema".to_owned() } else { format!("`{key}`") };
            (format!("{what} must be {wanted}, not {}", is(value)), None)
        }
        _ => (format!("this is not JSON Schema: {error}"), None),
    }
}

fn word(of: JsonType) -> &'static str {
    match of {
        JsonType::Array => "a list",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "a whole number",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "a map",
        JsonType::String => "text",
    }
}

fn is(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}
