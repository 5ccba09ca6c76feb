//! Fits a JSON Schema to what providers take for constrained answers.
//!
//! They take a part of JSON Schema: objects closed, no recursion, no bounds on numbers or lengths. What is sent is never
//! narrower than what was asked for, except that objects are closed; the answer is always checked against the whole schema.
use serde_json::{Map, Value};

/// Words whose meaning a provider's grammar has.
const KEPT: &[&str] =
    &["type", "title", "description", "enum", "const", "default", "required", "properties", "items", "anyOf", "allOf", "additionalProperties"];
/// Words that only narrow: leaving them out lets more through, which is then checked by us.
const RELAXED: &[&str] = &[
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "examples",
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "deprecated",
    "readOnly",
    "writeOnly",
];
/// The number of sub-schemas after which a schema is too large, references followed.
const MAX_NODES: usize = 2_000;
const MAX_DEPTH: usize = 24;

/// Returns the form of `schema` that can be sent; `None` where there is none (recursion, open objects, other words).
pub(super) fn sendable(schema: &Value) -> Option<Value> {
    let mut nodes = 0;
    relax(schema, schema, 0, &mut nodes)
}

/// Returns whether every property of every object is required, as OpenAI's strict mode wants.
pub(super) fn requires_all(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            let required = object.get("required").and_then(Value::as_array).map_or(0, Vec::len);
            let properties = object.get("properties").and_then(Value::as_object);
            let closed = properties.is_none_or(|properties| properties.len() == required);
            closed && object.iter().all(|(key, value)| matches!(key.as_str(), "enum" | "const" | "default" | "required") || requires_all(value))
        }
        Value::Array(values) => values.iter().all(requires_all),
        _ => true,
    }
}

fn relax(schema: &Value, root: &Value, depth: usize, nodes: &mut usize) -> Option<Value> {
    *nodes += 1;
    if *nodes > MAX_NODES || depth > MAX_DEPTH {
        return None;
    }
    let object = schema.as_object()?;
    if let Some(reference) = object.get("$ref") {
        // A reference that leads into itself goes too deep and ends there.
        return relax(root.pointer(reference.as_str()?.strip_prefix('#')?)?, root, depth + 1, nodes);
    }
    let mut out = Map::new();
    for (key, value) in object {
        let value = match key.as_str() {
            word if RELAXED.contains(&word) => continue,
            "properties" => Value::Object(
                value.as_object()?.iter().map(|(name, sub)| Some((name.clone(), relax(sub, root, depth + 1, nodes)?))).collect::<Option<Map<_, _>>>()?,
            ),
            "items" => relax(value, root, depth + 1, nodes)?,
            "anyOf" | "allOf" => Value::Array(value.as_array()?.iter().map(|sub| relax(sub, root, depth + 1, nodes)).collect::<Option<Vec<_>>>()?),
            "additionalProperties" if value != &Value::Bool(false) => return None,
            word if KEPT.contains(&word) => value.clone(),
            _ => return None,
        };
        out.insert(key.clone(), value);
    }
    let is_object = out.get("type").is_some_and(|kind| kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object")));
    if is_object {
        // An object without named properties holds anything, which a closed one cannot.
        out.get("properties")?;
        out.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    Some(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bounds_are_left_out_objects_closed_and_references_followed() {
        let schema = json!({
            "type": "object", "required": ["a"],
            "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "array", "items": {"$ref": "#/$defs/B"}, "minItems": 2}},
            "$defs": {"B": {"type": "object", "properties": {"c": {"type": "string", "pattern": "x"}}, "required": ["c"]}}
        });
        let sent = sendable(&schema).unwrap();
        assert_eq!(
            sent.to_string(),
            r#"{"type":"object","required":["a"],"properties":{"a":{"type":"integer"},"b":{"type":"array","items":{"type":"object","properties":{"c":{"type":"string"}},"required":["c"],"additionalProperties":false}}},"additionalProperties":false}"#
        );
        assert!(!requires_all(&sent) && requires_all(&sent["properties"]["b"]));
    }

    #[test]
    fn what_cannot_be_said_is_not_sent() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"type": "object", "properties": {"next": {"$ref": "#"}}}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}),
            json!({"not": {}}),
            json!({"$ref": "#/nowhere"}),
            json!({"$ref": "https://example.com/x.json"}),
            json!(true),
        ] {
            assert_eq!(sendable(&schema), None, "{schema}");
        }
    }

    #[test]
    fn references_that_multiply_end() {
        let mut defs = Map::new();
        for n in 0..20 {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            defs.insert(format!("d{n}"), json!({"anyOf": [next.clone(), next]}));
        }
        defs.insert("d20".to_owned(), json!({"type": "string"}));
        assert_eq!(sendable(&json!({"$defs": defs, "$ref": "#/$defs/d0"})), None);
    }
}
