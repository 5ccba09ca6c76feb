//! The JSON Schema of the workflow file, for editors: written from the same table that checks it.
use super::{
    duration::MAX_DURATION,
    keys::{FILE, MAX_NAME, Object, STEP, Shape, WORKSPACE},
    verbs::{CHECKED, VERBS, VerbKeys},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Returns the JSON Schema (draft 2020-12) of a workflow file.
pub fn json_schema() -> Value {
    let mut objects = BTreeMap::new();
    collect(&FILE, &mut objects);
    let definitions: Map<String, Value> = objects.values().map(|object| (object.name.to_owned(), of_object(object))).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Spinney workflow",
        "$ref": format!("#/$defs/{}", FILE.name),
        "$defs": definitions,
    })
}

/// Gathers every object that can be reached from one.
fn collect(object: &'static Object, found: &mut BTreeMap<&'static str, &'static Object>) {
    fn inside(shape: &'static Shape, found: &mut BTreeMap<&'static str, &'static Object>) {
        match shape {
            Shape::Object(object) => collect(object, found),
            Shape::List { of, .. } | Shape::Map { of, .. } => inside(of, found),
            Shape::Either(shapes) => shapes.iter().for_each(|shape| inside(shape, found)),
            Shape::Any
            | Shape::Schema
            | Shape::Text
            | Shape::Expression
            | Shape::Flag
            | Shape::Whole { .. }
            | Shape::Amount
            | Shape::Number
            | Shape::Duration { .. }
            | Shape::Word { .. }
            | Shape::Name(_)
            | Shape::Version
            | Shape::Later => {}
        }
    }
    if found.insert(object.name, object).is_none() {
        object.keys.iter().map(|key| &key.shape).chain(object.others.as_ref().map(|others| &others.of)).for_each(|shape| inside(shape, found));
    }
}

fn of_object(object: &Object) -> Value {
    let built = || object.keys.iter().filter(|key| !matches!(key.shape, Shape::Later));
    let properties: Map<String, Value> = built()
        .map(|key| {
            let mut schema = of_shape(&key.shape);
            if let Value::Object(words) = &mut schema {
                words.insert("description".to_owned(), key.doc.into());
            }
            (key.name.to_owned(), schema)
        })
        .collect();
    let required: Vec<&str> = built().filter(|key| key.required).map(|key| key.name).collect();
    let mut schema = json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties});
    if let Some(others) = &object.others {
        schema["additionalProperties"] = of_shape(&others.of);
        schema["propertyNames"] = json!({"pattern": others.names.pattern(), "maxLength": MAX_NAME});
        let own: Vec<&str> = built().map(|key| key.name).collect();
        schema["not"] = json!({"propertyNames": {"enum": own}});
    }
    if object.name == STEP.name {
        schema["oneOf"] = VERBS.iter().map(of_verb).collect();
    }
    schema
}

fn of_verb(verb: &VerbKeys) -> Value {
    let required: Vec<&str> = std::iter::once(verb.key).chain(verb.beside.map(|(key, _)| key)).collect();
    let mut properties: Map<String, Value> = verb.says_nothing().map(|key| (key.to_owned(), json!(false))).collect();
    if verb.only_checks() {
        let others = WORKSPACE.keys.iter().filter(|key| !CHECKED.contains(&key.name));
        let others: Map<String, Value> = others.map(|key| (key.name.to_owned(), json!(false))).collect();
        properties.insert("workspace".to_owned(), json!({"type": "object", "properties": others}));
    }
    json!({"required": required, "properties": properties})
}

fn of_shape(shape: &Shape) -> Value {
    match shape {
        Shape::Any => json!({}),
        Shape::Schema => json!({"type": ["object", "boolean"]}),
        Shape::Text => json!({"type": ["string", "number", "boolean"]}),
        Shape::Expression => json!({"type": "string", "pattern": r"^\s*\{\{"}),
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Whole { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Shape::Amount => json!({"type": "number", "exclusiveMinimum": 0}),
        Shape::Number => json!({"type": "number"}),
        Shape::Duration { zero } => {
            let least = if *zero { "(?=.)" } else { "(?=.*[1-9])" };
            json!({"anyOf": [
                {"type": "integer", "minimum": i32::from(!*zero), "maximum": MAX_DURATION.as_secs()},
                {"type": "string", "pattern": format!("^{least}([0-9]+|([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$")},
            ]})
        }
        Shape::Word { words, .. } => json!({"enum": words}),
        Shape::Name(name) => json!({"type": "string", "pattern": name.pattern(), "maxLength": MAX_NAME}),
        Shape::List { of, min } => json!({"type": "array", "items": of_shape(of), "minItems": min}),
        Shape::Map { names, of, min } => {
            json!({"type": "object", "minProperties": min, "propertyNames": {"pattern": names.pattern(), "maxLength": MAX_NAME}, "additionalProperties": of_shape(of)})
        }
        Shape::Object(object) => json!({"$ref": format!("#/$defs/{}", object.name)}),
        Shape::Either(shapes) => {
            // The first that takes a value decides: a number is not text where it may be one.
            let counts = shapes.iter().any(|shape| matches!(shape, Shape::Whole { .. } | Shape::Amount | Shape::Number));
            let one = |shape: &Shape| if counts && matches!(shape, Shape::Text) { json!({"type": ["string", "boolean"]}) } else { of_shape(shape) };
            json!({"anyOf": shapes.iter().filter(|shape| !matches!(shape, Shape::Later)).map(one).collect::<Vec<_>>()})
        }
        Shape::Version => json!({"const": 1}),
        Shape::Later => json!(false),
    }
}
