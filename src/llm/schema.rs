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
/// What Anthropic's grammar bears of properties that may be left out, and of places that may hold things of different types.
const MAX_OPTIONAL: usize = 24;
const MAX_UNIONS: usize = 16;
/// What OpenAI's strict mode bears of properties, of levels, and of values in enumerations.
const STRICT_PROPERTIES: usize = 5_000;
const STRICT_DEPTH: usize = 10;
const STRICT_VALUES: usize = 1_000;
/// The number of sub-schemas after which a schema is too large, references followed.
const MAX_NODES: usize = 2_000;
const MAX_DEPTH: usize = 24;

/// Returns the form of `schema` that every provider takes; `None` where there is none: recursion, open objects, other words, more than
/// their grammars bear, and whatever is not an object and nothing but one.
pub(super) fn sendable(schema: &Value) -> Option<Value> {
    let mut nodes = 0;
    let sent = relax(schema, schema, 0, &mut nodes)?;
    let is_plain = sent["type"] == "object" && ["anyOf", "allOf", "enum", "const"].iter().all(|word| sent.get(word).is_none());
    let size = Size::of(&sent);
    (is_plain && size.optional <= MAX_OPTIONAL && size.unions <= MAX_UNIONS).then_some(sent)
}

/// Words that Gemini knows, and whose meaning needs no rewriting.
const GEMINI: &[&str] =
    &["type", "format", "title", "description", "minItems", "maxItems", "minimum", "maximum", "required", "$id", "$anchor", "propertyOrdering"];

/// Returns a schema in the words that Gemini has: a constant as an enumeration of one, what must hold together in one place, and no
/// words that it refuses. That may let more through, which is then checked by us.
pub(super) fn plainer(schema: &Value) -> Value {
    let Some(object) = schema.as_object() else { return schema.clone() };
    let each = |schemas: &Value| match schemas {
        Value::Array(schemas) => schemas.iter().map(plainer).collect(),
        Value::Object(schemas) => schemas.iter().map(|(name, one)| (name.clone(), plainer(one))).collect(),
        other => other.clone(),
    };
    let is_listable = |value: &Value| value.is_string() || value.is_number();
    let mut out = Map::new();
    for (word, value) in object {
        match word.as_str() {
            "properties" | "$defs" | "anyOf" | "oneOf" | "prefixItems" => drop(out.insert(word.clone(), each(value))),
            "definitions" => drop(out.insert("$defs".to_owned(), each(value))),
            "items" | "additionalProperties" => drop(out.insert(word.clone(), plainer(value))),
            "const" if is_listable(value) => drop(out.insert("enum".to_owned(), Value::from(vec![value.clone()]))),
            "enum" if value.as_array().is_some_and(|values| values.iter().all(is_listable)) => drop(out.insert(word.clone(), value.clone())),
            "$ref" => {
                let target = value.as_str().unwrap_or_default().replace("#/definitions/", "#/$defs/");
                out.insert(word.clone(), target.into());
            }
            word if GEMINI.contains(&word) => drop(out.insert(word.to_owned(), value.clone())),
            _ => {}
        }
    }
    for part in object.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        if let Value::Object(part) = plainer(part) {
            join(&mut out, part);
        }
    }
    // Beside a reference nothing else may be said.
    if out.contains_key("$ref") {
        out.retain(|word, _| word.starts_with('$'));
    }
    Value::Object(out)
}

/// Adds what must hold too; what both say stays as it is.
fn join(out: &mut Map<String, Value>, more: Map<String, Value>) {
    for (word, value) in more {
        match (out.get_mut(&word), value) {
            (Some(Value::Object(have)), Value::Object(more)) if word == "properties" || word == "$defs" => {
                for (name, one) in more {
                    have.entry(name).or_insert(one);
                }
            }
            (Some(Value::Array(have)), Value::Array(more)) if word == "required" => {
                let new: Vec<Value> = more.into_iter().filter(|name| !have.contains(name)).collect();
                have.extend(new);
            }
            (Some(_), _) => {}
            (None, value) => drop(out.insert(word, value)),
        }
    }
}

/// Returns whether OpenAI's strict mode takes a schema that is sent: every property of every object is required, and it has no word
/// and no size beyond what that bears.
pub(super) fn is_strict(schema: &Value) -> bool {
    let size = Size::of(schema);
    requires_all(schema) && !size.is_loose && size.properties <= STRICT_PROPERTIES && size.depth <= STRICT_DEPTH && size.values <= STRICT_VALUES
}

/// How large a schema is.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    properties: usize,
    optional: usize,
    unions: usize,
    values: usize,
    depth: usize,
    /// Whether it has words that strict mode does not know.
    is_loose: bool,
}

impl Size {
    fn of(schema: &Value) -> Size {
        let mut size = Size::default();
        size.add(schema, 1);
        size
    }

    fn add(&mut self, schema: &Value, depth: usize) {
        let Some(object) = schema.as_object() else { return };
        self.depth = self.depth.max(depth);
        let length = |word: &str| object.get(word).and_then(Value::as_array).map_or(0, Vec::len);
        self.values += length("enum");
        self.unions += usize::from(object.contains_key("anyOf") || length("type") > 1);
        self.is_loose |= object.contains_key("allOf") || object.contains_key("default") || !["type", "anyOf"].iter().any(|word| object.contains_key(*word));
        if let Some(properties) = object.get("properties").and_then(Value::as_object) {
            self.properties += properties.len();
            self.optional += properties.len().saturating_sub(length("required"));
            properties.values().for_each(|property| self.add(property, depth + 1));
        }
        for word in ["anyOf", "allOf"] {
            object.get(word).and_then(Value::as_array).into_iter().flatten().for_each(|one| self.add(one, depth));
        }
        if let Some(items) = object.get("items") {
            self.add(items, depth + 1);
        }
    }
}

fn requires_all(schema: &Value) -> bool {
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
    if !out.contains_key("type")
        && let Some(kind) = kind_of_values(&out)
    {
        out.insert("type".to_owned(), kind);
    }
    let is_object = out.get("type").is_some_and(|kind| kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object")));
    if is_object {
        // An object without named properties holds anything, which a closed one cannot.
        out.get("properties")?;
        out.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    Some(Value::Object(out))
}

/// Returns the type that the values of an `enum` or a `const` are of: strict grammars want one beside them.
fn kind_of_values(schema: &Map<String, Value>) -> Option<Value> {
    let listed = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    let values = listed.or_else(|| schema.get("const").map(std::slice::from_ref))?;
    let kind = |value: &Value| match value {
        Value::Null => Some("null"),
        Value::Bool(_) => Some("boolean"),
        Value::Number(number) => Some(if number.is_f64() { "number" } else { "integer" }),
        Value::String(_) => Some("string"),
        Value::Array(_) | Value::Object(_) => None,
    };
    let mut kinds: Vec<&str> = values.iter().map(kind).collect::<Option<_>>()?;
    kinds.sort_unstable();
    kinds.dedup();
    match kinds.as_slice() {
        [] => None,
        [one] => Some(Value::from(*one)),
        many => Some(Value::from(many.to_vec())),
    }
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
    fn what_a_providers_grammar_does_not_bear_is_not_sent() {
        let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
        let many = |count: usize, of: Value| Value::Object((0..count).map(|n| (format!("p{n}"), of.clone())).collect());
        let names = |count: usize| Value::from((0..count).map(|n| format!("p{n}")).collect::<Vec<_>>());
        let text = json!({"type": "string"});
        let either = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
        let nested = |inner: Value| object(json!({"a": {"type": "array", "items": inner}}), json!(["a"]));
        for (schema, is_sent) in [
            (object(many(24, text.clone()), json!([])), true),
            (object(many(25, text.clone()), json!([])), false),
            (object(many(25, text.clone()), names(25)), true),
            (nested(object(many(25, text.clone()), json!([]))), false),
            (object(many(16, either.clone()), names(16)), true),
            (object(many(17, either), names(17)), false),
            (object(many(17, json!({"type": ["string", "null"]})), names(17)), false),
            (json!({"type": "array", "items": text}), false),
            (json!({"anyOf": [object(json!({}), json!([]))]}), false),
            (json!({"type": "object", "properties": {}, "anyOf": [object(json!({}), json!([]))]}), false),
            (json!({"type": ["object", "null"], "properties": {}}), false),
            (json!({"type": "string"}), false),
        ] {
            assert_eq!(sendable(&schema).is_some(), is_sent, "{schema}");
        }
    }

    #[test]
    fn values_that_are_listed_get_their_type() {
        for (listed, kind) in [
            (json!({"enum": ["a", "b"]}), json!("string")),
            (json!({"const": 1}), json!("integer")),
            (json!({"enum": [1.5, null]}), json!(["null", "number"])),
            (json!({"enum": [[1]]}), Value::Null),
        ] {
            let sent = sendable(&json!({"type": "object", "properties": {"a": listed}, "required": ["a"]})).unwrap();
            assert_eq!(sent["properties"]["a"]["type"], kind, "{sent}");
        }
    }

    #[test]
    fn strict_is_only_said_of_what_strict_mode_takes() {
        let whole = |inner: Value| json!({"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": false});
        let deep = |levels: usize| (0..levels).fold(json!({"type": "string"}), |inner, _| whole(inner));
        for (schema, strict) in [
            (deep(1), true),
            (json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": []}), false),
            (whole(json!({"allOf": [{"type": "string"}]})), false),
            (whole(json!({"type": "string", "default": "x"})), false),
            (whole(json!({"type": "integer", "enum": vec![1; 1_001]})), false),
            (whole(json!({"enum": ["x"]})), false),
            (whole(json!({"description": "anything"})), false),
            (deep(9), true),
            (deep(10), false),
        ] {
            assert_eq!(is_strict(&schema), strict, "{schema}");
        }
    }

    #[test]
    fn what_gemini_refuses_is_said_in_its_words() {
        for (schema, wanted) in [
            (json!({"const": "a", "default": "a"}), json!({"enum": ["a"]})),
            (json!({"type": "boolean", "const": true, "default": false, "readOnly": true}), json!({"type": "boolean"})),
            (json!({"type": ["string", "null"], "enum": ["a", null]}), json!({"type": ["string", "null"]})),
            (json!({"items": {"const": 1}, "minItems": 1, "uniqueItems": true}), json!({"items": {"enum": [1]}, "minItems": 1})),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}, "required": ["a"], "allOf": [
                    {"properties": {"a": {"type": "integer"}, "b": {"const": 2}}, "required": ["b", "a"]},
                    {"additionalProperties": false}
                ]}),
                json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": [2]}}, "required": ["a", "b"], "additionalProperties": false}),
            ),
            (
                json!({"definitions": {"d": {"default": 1}}, "properties": {"x": {"description": "x", "allOf": [{"$ref": "#/definitions/d"}]}}}),
                json!({"$defs": {"d": {}}, "properties": {"x": {"$ref": "#/$defs/d"}}}),
            ),
        ] {
            assert_eq!(plainer(&schema), wanted, "{schema}");
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
