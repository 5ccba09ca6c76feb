//! The workflow's schemas, each made whole, and what is known of their fields.
use super::{
    findings::{Findings, SCHEMA},
    unsound,
};
use crate::{
    prompts::{ENTRY, VALUE},
    source::{Span, Spanned, codes},
    workflow::{Entries, Workflow},
};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// How a schema names another one of the workflow.
const PREFIX: &str = "#/schemas/";
/// How deep references are followed when a field is looked up.
const MAX_HOPS: usize = 64;

/// Values that all schemas may have together, with what they refer to.
const MAX_VALUES: usize = 1_000_000;
/// How often one value may be held against parts of its schema, those counted again that are referred to again.
const MAX_CHECKS: u64 = 100_000;
/// How long a chain of parts inside parts may be, over references.
const MAX_CHAIN: usize = 512;
const NARROWER: &str = "name each schema once: a list of references to a list of references multiplies";

/// Misfits of one value that are told, and letters of each.
const TOLD: usize = 8;
const MISFIT_CHARS: usize = 500;

/// Holds a value against a schema.
///
/// # Errors
/// Where it does not fit, a few of the places, for a message.
pub fn fits(schema: &Value, value: &Value) -> Result<(), String> {
    let validator = jsonschema::validator_for(schema).map_err(|error| format!("the schema itself is wrong: {error}"))?;
    let misfits: Vec<String> = validator.iter_errors(value).take(TOLD).map(|error| misfit(&error)).collect();
    if misfits.is_empty() { Ok(()) } else { Err(misfits.join("; ")) }
}

/// Says of one misfit where it is, and what: the value, which stands in it, may be of any size.
fn misfit(error: &jsonschema::ValidationError<'_>) -> String {
    let said = error.to_string();
    let end = said.char_indices().nth(MISFIT_CHARS).map_or(said.len(), |(at, _)| at);
    let more = if end < said.len() { " …" } else { "" };
    let place = error.instance_path().to_string();
    if place.is_empty() { format!("{}{more}", &said[..end]) } else { format!("at `{place}`: {}{more}", &said[..end]) }
}

/// Every schema by name, references resolved into `$defs` of its own, checked to be JSON Schema. What is wrong with one does not
/// keep the others from being judged, but for those that refer to it.
pub(super) fn resolve(workflow: &Workflow, findings: &mut Findings<'_>) -> BTreeMap<String, Arc<Value>> {
    if workflow.flaws.within("schemas") {
        return BTreeMap::new();
    }
    let (mut unsound, mut flaws) = (BTreeSet::new(), Vec::new());
    for (name, schema) in &workflow.schemas {
        let own = unsound::flaws(&schema.value, &["schemas", name.as_str()], name.span);
        if !check_references(&workflow.schemas, schema, findings) || !own.is_empty() {
            unsound.insert(name.as_str());
        }
        flaws.extend(own);
    }
    let mut resolved = BTreeMap::new();
    let mut left = MAX_VALUES;
    for (name, schema) in &workflow.schemas {
        let Some(whole) = whole(name, &workflow.schemas, &mut left) else {
            let error = findings.error(codes::BAD_SCHEMA, schema.span, "the schemas hold too much: each holds all that it refers to");
            findings.report(error.help(format!("all of them together may have {MAX_VALUES} values, those counted again that several refer to")));
            break;
        };
        let Whole { schema: whole, needed } = whole;
        if needed.iter().chain([&name.as_str()]).any(|name| unsound.contains(name)) {
            continue;
        }
        let circles = unsound::circles(&schema.value, &whole, &["schemas", name.as_str()], name.span);
        if !circles.is_empty() {
            flaws.extend(circles);
            continue;
        }
        if let Err(why) = check_work(&whole) {
            findings.report(findings.error(codes::BAD_SCHEMA, schema.span, format!("`{}` {why}", name.value)).help(NARROWER));
            continue;
        }
        match jsonschema::validator_for(&whole) {
            Ok(_) => drop(resolved.insert(name.value.clone(), Arc::new(whole))),
            Err(error) => {
                let at = error.instance_path().to_string();
                let place = if at.is_empty() { String::new() } else { format!(", at `{at}`") };
                findings.report(findings.error(codes::BAD_SCHEMA, schema.span, format!("`{}` is not a JSON Schema: {error}{place}", name.value)));
            }
        }
    }
    unsound::report(flaws, findings);
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

/// Says why a schema would cost too much to hold a value against: its parts are counted as often as they are come to.
///
/// # Errors
/// What is to be said behind its name.
pub(super) fn check_work(schema: &Value) -> Result<(), String> {
    let mut weigher = Weigher { root: schema, known: HashMap::new() };
    match weigher.weigh(schema, 0) {
        None => Err(format!("nests its parts more than {MAX_CHAIN} deep, over references")),
        Some(checks) if checks > MAX_CHECKS => Err(format!("would hold one value against more than {MAX_CHECKS} parts of it")),
        Some(_) => Ok(()),
    }
}

struct Weigher<'s> {
    root: &'s Value,
    /// What each part weighs, by its address; of one that is being weighed 1, so that what holds itself ends.
    known: HashMap<*const Value, u64>,
}

impl<'s> Weigher<'s> {
    fn weigh(&mut self, part: &'s Value, depth: usize) -> Option<u64> {
        if let Some(known) = self.known.get(&std::ptr::from_ref(part)) {
            return Some(*known);
        }
        if depth > MAX_CHAIN {
            return None;
        }
        self.known.insert(part, 1);
        let mut weight = 1_u64;
        match part {
            Value::Object(words) => {
                let target = words.get("$ref").and_then(Value::as_str).and_then(|reference| self.root.pointer(reference.trim_start_matches('#')));
                let inner = words.iter().filter(|(word, _)| !["enum", "const", "default", "examples", "$defs", "definitions"].contains(&word.as_str()));
                for value in inner.map(|(_, value)| value).chain(target) {
                    weight = weight.saturating_add(self.weigh(value, depth + 1)?);
                }
            }
            Value::Array(values) => {
                for value in values {
                    weight = weight.saturating_add(self.weigh(value, depth + 1)?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => weight = 0,
        }
        self.known.insert(part, weight);
        Some(weight)
    }
}

/// A schema that stands alone.
struct Whole<'s> {
    schema: Value,
    /// The others that it has taken in.
    needed: BTreeSet<&'s str>,
}

/// Makes one schema self-contained: what it needs of others stands in its `$defs`. `None` where that has more values than are
/// `left`.
fn whole<'s>(name: &str, schemas: &'s Entries<Spanned<Value>>, left: &mut usize) -> Option<Whole<'s>> {
    let of = |name: &str| schemas.iter().find(|(known, _)| known.value == name).map(|(_, schema)| &schema.value);
    let Some(root) = of(name) else { return Some(Whole { schema: Value::Bool(true), needed: BTreeSet::new() }) };
    let mut needed = BTreeSet::new();
    let mut open = vec![root];
    while let Some(schema) = open.pop() {
        *left = left.checked_sub(size(schema))?;
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
            for &other in &needed {
                definitions.insert(renamed(other), of(other).map(|schema| rewrite(schema, &link(other), &link)).unwrap_or_default());
            }
        }
    }
    Some(Whole { schema: whole, needed })
}

/// Makes a part of a schema stand alone, with all that it may refer to.
pub(super) fn alone(root: &Value, at: &Value) -> Option<Value> {
    fn pointer(of: &Value, at: &Value) -> Option<String> {
        if std::ptr::eq(of, at) {
            return Some(String::new());
        }
        match of {
            Value::Object(words) => words.iter().find_map(|(word, value)| Some(format!("/{word}{}", pointer(value, at)?))),
            Value::Array(values) => values.iter().enumerate().find_map(|(place, value)| Some(format!("/{place}{}", pointer(value, at)?))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
    if std::ptr::eq(root, at) {
        return Some(root.clone());
    }
    // What a reference would have to escape is not referred to.
    let place = pointer(root, at).filter(|place| place.chars().all(|c| c.is_ascii_alphanumeric() || "/_-$".contains(c)))?;
    let whole = rewrite(root, "#/$defs/whole", &|other| format!("{PREFIX}{other}"));
    Some(json!({"$ref": format!("#/$defs/whole{place}"), "$defs": {"whole": whole}}))
}

/// Makes a schema of what some values have in common: their type, and of maps the fields that all of them have.
pub(super) fn common(values: &[Value]) -> Option<Value> {
    let word = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let (first, others) = values.split_first()?;
    if others.iter().any(|other| word(other) != word(first)) {
        return None;
    }
    let Value::Object(fields) = first else { return Some(json!({"type": word(first)})) };
    let required: Vec<&String> = fields.keys().filter(|name| others.iter().all(|other| other.get(name.as_str()).is_some())).collect();
    Some(json!({"type": "object", "required": required}))
}

/// How many values there are in one.
fn size(value: &Value) -> usize {
    let mut count = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        count += 1;
        match value {
            Value::Object(words) => open.extend(words.values()),
            Value::Array(values) => open.extend(values),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    count
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

/// Parts of a schema that are looked at to find one part of a value.
const MAX_LOOKED: usize = 1_000;

/// Looks one part up, at a place `at` inside of `schema`. What is described by `properties` and `items` is known, also behind
/// references, `allOf`, `anyOf` and `oneOf`; patterns, conditions and open objects that say so are not judged.
pub(super) fn part<'s>(schema: &'s Value, at: &'s Value, name: &str) -> Part<'s> {
    match (Search { schema, name, left: MAX_LOOKED }).at(at, 0) {
        Found::Part(part) => part,
        Found::Silent => Part::Possible,
    }
}

/// What a part of a schema says of a part of a value.
enum Found<'s> {
    Part(Part<'s>),
    /// Nothing at all: what stands beside it decides.
    Silent,
}

struct Search<'s, 'n> {
    schema: &'s Value,
    name: &'n str,
    left: usize,
}

impl<'s> Search<'s, '_> {
    fn at(&mut self, at: &'s Value, hops: usize) -> Found<'s> {
        const POSSIBLE: Found<'_> = Found::Part(Part::Possible);
        let Some(words) = at.as_object() else { return if at == &Value::Bool(true) { Found::Silent } else { POSSIBLE } };
        let Some(left) = self.left.checked_sub(1).filter(|_| hops <= MAX_HOPS) else { return POSSIBLE };
        self.left = left;
        let open = ["$dynamicRef", "if", "patternProperties", "dependentSchemas"];
        let is_open = words.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
        if open.iter().any(|word| words.contains_key(*word)) {
            return POSSIBLE;
        }
        let mut all = vec![self.own(words, is_open)];
        if let Some(reference) = words.get("$ref").and_then(Value::as_str) {
            all.push(self.schema.pointer(reference.trim_start_matches('#')).map_or(POSSIBLE, |target| self.at(target, hops + 1)));
        }
        for inner in words.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            all.push(self.at(inner, hops + 1));
        }
        for word in ["anyOf", "oneOf"] {
            let Some(any) = words.get(word).and_then(Value::as_array) else { continue };
            let any: Vec<Found<'s>> = any.iter().map(|inner| self.at(inner, hops + 1)).collect();
            all.push(any_of(any));
        }
        all_of(all)
    }

    /// Looks at what a schema itself says, without what it is combined of.
    fn own(&self, words: &'s Map<String, Value>, is_open: bool) -> Found<'s> {
        if self.name == ENTRY {
            return words.get("items").map_or(Found::Silent, |items| Found::Part(Part::Known(items)));
        }
        if self.name == VALUE {
            return value_of(words);
        }
        match words.get("properties").and_then(Value::as_object) {
            Some(properties) => match properties.get(self.name) {
                Some(known) => Found::Part(Part::Known(known)),
                None if is_open => Found::Part(Part::Possible),
                None => Found::Part(Part::Never(properties.keys().cloned().collect())),
            },
            None if is_open => Found::Part(Part::Possible),
            None if scalar(words) => Found::Part(Part::Never(Vec::new())),
            None => Found::Silent,
        }
    }
}

/// Returns what any value of a map looks like, where one schema says it of all of them.
fn value_of(words: &Map<String, Value>) -> Found<'_> {
    let others = words.get("additionalProperties").filter(|others| **others != Value::Bool(false));
    let mut all = words.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values).chain(others);
    match all.next() {
        Some(first) if first.is_object() && all.all(|other| other == first) => Found::Part(Part::Known(first)),
        _ => Found::Part(Part::Possible),
    }
}

/// Joins what is said of a part by schemas that all hold.
fn all_of(said: Vec<Found<'_>>) -> Found<'_> {
    let (mut never, mut possible): (Option<Vec<String>>, bool) = (None, false);
    for found in said {
        match found {
            Found::Part(Part::Known(known)) => return Found::Part(Part::Known(known)),
            Found::Part(Part::Possible) => possible = true,
            Found::Part(Part::Never(known)) => never.get_or_insert_default().extend(known),
            Found::Silent => {}
        }
    }
    match never {
        _ if possible => Found::Part(Part::Possible),
        Some(known) => Found::Part(Part::Never(known)),
        None => Found::Silent,
    }
}

/// Joins what is said of a part by schemas of which one holds.
fn any_of(said: Vec<Found<'_>>) -> Found<'_> {
    let (mut never, mut known): (Vec<String>, Vec<&Value>) = (Vec::new(), Vec::new());
    for found in said {
        match found {
            Found::Part(Part::Known(one)) => known.push(one),
            Found::Part(Part::Possible) | Found::Silent => return Found::Part(Part::Possible),
            Found::Part(Part::Never(others)) => never.extend(others),
        }
    }
    match known.as_slice() {
        [] => Found::Part(Part::Never(never)),
        [first, others @ ..] if others.iter().all(|other| other == first) => Found::Part(Part::Known(first)),
        _ => Found::Part(Part::Possible),
    }
}

/// Returns whether null fits a schema that says so: by its type, its values, or one of several schemas.
pub(super) fn takes_null(schema: &Value, at: &Value) -> bool {
    let Some(Value::Object(words)) = resolved(schema, at) else { return false };
    let of_type = words.get("type").is_some_and(|kind| kind == "null" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "null")));
    let of_values =
        words.get("const").is_some_and(Value::is_null) || words.get("enum").and_then(Value::as_array).is_some_and(|values| values.contains(&Value::Null));
    let null = |word: &str| {
        words.get(word).and_then(Value::as_array).is_some_and(|any| any.iter().any(|one| resolved(schema, one).is_some_and(|one| one["type"] == "null")))
    };
    of_type || of_values || null("anyOf") || null("oneOf")
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
        let whole = whole("a", &schemas, &mut MAX_VALUES.clone()).expect("it is small").schema;
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
        let combined = json!({
            "allOf": [{"$ref": "#/$defs/a"}, {"required": ["x"]}],
            "properties": {"own": {}, "either": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}, "some": {"oneOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}},
            "$defs": {"a": {"properties": {"x": {}}}},
        });
        let either = &combined["properties"]["either"];
        assert_eq!(part(&combined, &combined, "z"), Part::Never(vec!["own".into(), "either".into(), "some".into(), "x".into()]));
        assert!(matches!(part(&combined, &combined, "x"), Part::Known(_)) && matches!(part(&combined, either, "x"), Part::Known(_)));
        assert_eq!(part(&combined, either, "z"), Part::Never(vec!["x".into()]));
        assert_eq!(part(&combined, &combined["properties"]["some"], "z"), Part::Possible);
        let knot = json!({"$ref": "#/$defs/loop", "$defs": {"loop": {"$ref": "#/$defs/loop"}}});
        assert_eq!(part(&knot, &knot, "a"), Part::Possible);
    }
}
