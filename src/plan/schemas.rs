//! The workflow's schemas, each made whole, and what is known of their fields.
use super::findings::{Findings, SCHEMA};
use crate::{
    prompts::ENTRY,
    source::{Span, Spanned, codes},
    workflow::{Entries, Workflow},
};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// How a schema names another one of the workflow.
const PREFIX: &str = "#/schemas/";
/// How deep references are followed when a field is looked up.
const MAX_HOPS: usize = 64;

/// Misfits of one value that are told.
const TOLD: usize = 8;

/// Holds a value against a schema.
///
/// # Errors
/// Where it does not fit, a few of the places, for a message.
pub fn fits(schema: &Value, value: &Value) -> Result<(), String> {
    let validator = jsonschema::validator_for(schema).map_err(|error| format!("the schema itself is wrong: {error}"))?;
    let misfits: Vec<String> = validator.iter_errors(value).take(TOLD).map(|error| format!("at `{}`: {error}", error.instance_path())).collect();
    if misfits.is_empty() { Ok(()) } else { Err(misfits.join("; ")) }
}

/// Every schema by name, references resolved into `$defs` of its own, checked to be JSON Schema.
pub(super) fn resolve(workflow: &Workflow, findings: &mut Findings<'_>) -> BTreeMap<String, Arc<Value>> {
    let mut sound = true;
    for (_, schema) in &workflow.schemas {
        sound &= check_references(&workflow.schemas, schema, findings);
    }
    if !sound {
        return BTreeMap::new();
    }
    let mut resolved = BTreeMap::new();
    for (name, schema) in &workflow.schemas {
        let whole = whole(name, &workflow.schemas);
        match jsonschema::validator_for(&whole) {
            Ok(_) => {
                resolved.insert(name.value.clone(), Arc::new(whole));
            }
            Err(error) => {
                let at = error.instance_path().to_string();
                let place = if at.is_empty() { String::new() } else { format!(", at `{at}`") };
                findings.report(findings.error(codes::BAD_SCHEMA, schema.span, format!("`{}` is not a JSON Schema: {error}{place}", name.value)));
            }
        }
    }
    resolved
}

/// Reports references to schemas that do not exist, or that lead out of the file.
fn check_references(schemas: &Entries<Spanned<Value>>, schema: &Spanned<Value>, findings: &mut Findings<'_>) -> bool {
    let mut sound = true;
    for reference in references(&schema.value) {
        if let Some(name) = reference.strip_prefix(PREFIX) {
            let name = name.split('/').next().unwrap_or(name);
            if !schemas.iter().any(|(known, _)| known.value == name) {
                let place = place(findings, schema.span, reference);
                findings.unknown(&SCHEMA, &Spanned::new(name.to_owned(), place), schemas.iter().map(|(name, _)| name.as_str()));
                sound = false;
            }
        } else if !reference.starts_with('#') {
            let outside = findings.error(codes::BAD_SCHEMA, place(findings, schema.span, reference), format!("`{reference}` leads out of the file"));
            findings.report(outside.help(format!("name a schema of this workflow: `{PREFIX}NAME`")));
            sound = false;
        }
    }
    sound
}

/// Finds the text of a reference below the schema's name; the name itself where it is not found.
fn place(findings: &Findings<'_>, name: Span, reference: &str) -> Span {
    let below = findings.source.text.get(name.end..).unwrap_or_default();
    below.find(reference).map_or(name, |at| Span { start: name.end + at, end: name.end + at + reference.len() })
}

/// Every `$ref` in a schema, in order.
fn references(schema: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(words) => {
                found.extend(words.get("$ref").and_then(Value::as_str));
                open.extend(words.values().rev());
            }
            Value::Array(values) => open.extend(values.iter().rev()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

/// Makes one schema self-contained: what it needs of others stands in its `$defs`.
fn whole(name: &str, schemas: &Entries<Spanned<Value>>) -> Value {
    let of = |name: &str| schemas.iter().find(|(known, _)| known.value == name).map(|(_, schema)| &schema.value);
    let Some(root) = of(name) else { return Value::Bool(true) };
    let mut needed = BTreeSet::new();
    let mut open = vec![root];
    while let Some(schema) = open.pop() {
        for other in references(schema).iter().filter_map(|reference| reference.strip_prefix(PREFIX)).filter_map(|path| path.split('/').next()) {
            if other != name && needed.insert(other) {
                open.extend(of(other));
            }
        }
    }
    let own: BTreeSet<&str> = root.get("$defs").and_then(Value::as_object).map(|own| own.keys().map(String::as_str).collect()).unwrap_or_default();
    let renamed = |other: &str| {
        let mut free = other.to_owned();
        while own.contains(free.as_str()) {
            free.push('_');
        }
        free
    };
    let link = |other: &str| if other == name { "#".to_owned() } else { format!("#/$defs/{}", renamed(other)) };
    let mut whole = rewrite(root, "#", &link);
    if let (Value::Object(words), false) = (&mut whole, needed.is_empty()) {
        let definitions = words.entry("$defs").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(definitions) = definitions {
            for other in needed {
                definitions.insert(renamed(other), of(other).map(|schema| rewrite(schema, &link(other), &link)).unwrap_or_default());
            }
        }
    }
    whole
}

/// Copies a schema with its references rewritten: those to others by `link`, its own to where it stands now.
fn rewrite(schema: &Value, here: &str, link: &impl Fn(&str) -> String) -> Value {
    match schema {
        Value::Object(words) => Value::Object(
            words
                .iter()
                .map(|(word, value)| match value.as_str().filter(|_| word == "$ref") {
                    Some(reference) => (word.clone(), Value::String(relinked(reference, here, link))),
                    None => (word.clone(), rewrite(value, here, link)),
                })
                .collect(),
        ),
        Value::Array(values) => values.iter().map(|value| rewrite(value, here, link)).collect(),
        other => other.clone(),
    }
}

fn relinked(reference: &str, here: &str, link: &impl Fn(&str) -> String) -> String {
    match reference.strip_prefix(PREFIX) {
        Some(path) => match path.split_once('/') {
            Some((other, rest)) => format!("{}/{rest}", link(other)),
            None => link(path),
        },
        None => reference.strip_prefix('#').map_or_else(|| reference.to_owned(), |rest| format!("{here}{rest}")),
    }
}

/// What a schema says of one part of a value.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'s> {
    /// It has this schema.
    Known(&'s Value),
    /// It may be there; nothing more is known of it.
    Possible,
    /// It cannot be there; these can.
    Never(Vec<String>),
}

/// Looks one part up, at a place `at` inside of `schema`. Only what the schema describes by `properties` and `items` is
/// known; combinations, patterns and open objects that say so are not judged.
pub(super) fn part<'s>(schema: &'s Value, at: &'s Value, name: &str) -> Part<'s> {
    let Some(words) = resolved(schema, at).and_then(Value::as_object) else { return Part::Possible };
    let open = ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"];
    if open.iter().any(|word| words.contains_key(*word)) || words.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false)) {
        return Part::Possible;
    }
    if name == ENTRY {
        return words.get("items").map_or(Part::Possible, Part::Known);
    }
    match words.get("properties").and_then(Value::as_object) {
        Some(properties) => properties.get(name).map_or_else(|| Part::Never(properties.keys().cloned().collect()), Part::Known),
        None if scalar(words) => Part::Never(Vec::new()),
        None => Part::Possible,
    }
}

/// Follows references inside of `schema`; nothing where they lead nowhere soon.
pub(super) fn resolved<'s>(schema: &'s Value, at: &'s Value) -> Option<&'s Value> {
    let mut at = at;
    for _ in 0..=MAX_HOPS {
        match at.get("$ref").and_then(Value::as_str).and_then(|reference| schema.pointer(reference.trim_start_matches('#'))) {
            Some(target) => at = target,
            None => return Some(at),
        }
    }
    None
}

/// Returns whether a schema admits only values without fields.
fn scalar(words: &Map<String, Value>) -> bool {
    matches!(words.get("type").and_then(Value::as_str), Some("string" | "integer" | "number" | "boolean" | "null" | "array"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entries(schemas: &[(&str, Value)]) -> Entries<Spanned<Value>> {
        schemas.iter().map(|(name, schema)| (Spanned::new((*name).to_owned(), Span::default()), Spanned::new(schema.clone(), Span::default()))).collect()
    }

    #[test]
    fn a_schema_is_made_whole_with_what_it_needs_and_no_more() {
        let schemas = entries(&[
            (
                "a",
                json!({"properties": {"b": {"$ref": "#/schemas/b"}, "own": {"$ref": "#/$defs/x"}, "me": {"$ref": "#/schemas/a"}}, "$defs": {"x": {"type": "string"}, "c": true}}),
            ),
            ("b", json!({"items": {"$ref": "#/schemas/c"}, "not": {"$ref": "#/$defs/y"}, "$defs": {"y": false}})),
            ("c", json!({"type": "object", "properties": {"b": {"$ref": "#/schemas/b"}}})),
            ("d", json!(true)),
        ]);
        let whole = whole("a", &schemas);
        assert_eq!(
            whole,
            json!({
                "properties": {"b": {"$ref": "#/$defs/b"}, "own": {"$ref": "#/$defs/x"}, "me": {"$ref": "#"}},
                "$defs": {
                    "x": {"type": "string"},
                    "c": true,
                    "b": {"items": {"$ref": "#/$defs/c_"}, "not": {"$ref": "#/$defs/b/$defs/y"}, "$defs": {"y": false}},
                    "c_": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}},
                },
            })
        );
        let validator = jsonschema::validator_for(&whole).expect("it stands alone");
        assert!(!validator.is_valid(&json!({"own": 1})) && validator.is_valid(&json!({"own": "x", "me": {"own": "y"}})));
    }

    #[test]
    fn fields_are_known_as_far_as_the_schema_closes_them() {
        let schema = json!({
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}, "open": {"type": "object"}, "more": {"properties": {}, "additionalProperties": true}, "text": {"type": "string"}, "list": {"items": {"$ref": "#/$defs/a"}}},
            "$defs": {"a": {"properties": {"x": {}}}, "loop": {"$ref": "#/$defs/loop"}},
        });
        let look = |path: &str| {
            let mut at = &schema;
            for (place, name) in path.split('.').enumerate() {
                match part(&schema, at, name) {
                    Part::Known(inner) => at = inner,
                    Part::Possible => return Ok(()),
                    Part::Never(known) => return Err((place, known)),
                }
            }
            Ok(())
        };
        for path in ["a.x", "a.x.y", "open.z", "more.z", "text", "list.[].x", "open.[].z"] {
            assert_eq!(look(path), Ok(()), "{path}");
        }
        assert_eq!(look("b"), Err((0, vec!["a".into(), "open".into(), "more".into(), "text".into(), "list".into()])));
        assert_eq!(look("list.[].z"), Err((2, vec!["x".into()])));
        assert_eq!(look("a.z"), Err((1, vec!["x".into()])));
        assert_eq!(look("text.length"), Err((1, vec![])));
        let knot = json!({"$ref": "#/$defs/loop", "$defs": {"loop": {"$ref": "#/$defs/loop"}}});
        assert_eq!(part(&knot, &knot, "a"), Part::Possible);
    }
}
