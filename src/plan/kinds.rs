//! What kind of value stands at the end of a path, as far as it is known before the run.
use super::{
    schemas,
    shapes::{Shape, Shapes},
};
use crate::prompts::Kind;
use serde_json::Value;

impl Shapes<'_> {
    /// Returns what kind of value a shape is, where that is known.
    pub(super) fn kind(&self, shape: Shape<'_>) -> Option<Kind> {
        match shape {
            Shape::Unknown | Shape::OneOf(_) => None,
            Shape::Output(at) => match self.output(at) {
                Shape::Output(_) => Some(Kind::Map),
                known => self.kind(known),
            },
            Shape::Step(_) | Shape::Result(_) => Some(Kind::Map),
            Shape::Results(_) | Shape::Lines => Some(Kind::List),
            Shape::Plain => Some(Kind::TextOrNumber),
            Shape::Schema { root, at, .. } | Shape::Built { root, at } => of_schema(schemas::resolved(root, at)?),
        }
    }
}

/// Returns the kind of all values that a schema takes, where it says so by their type or one by one.
fn of_schema(schema: &Value) -> Option<Kind> {
    if let Some(word) = schema.get("type").and_then(Value::as_str) {
        return match word {
            "string" => Some(Kind::Text),
            "integer" | "number" => Some(Kind::Number),
            "array" => Some(Kind::List),
            "object" => Some(Kind::Map),
            "boolean" => Some(Kind::Flag),
            _ => None,
        };
    }
    let mut kinds = match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => std::slice::from_ref(value).iter(),
        (None, Some(Value::Array(values))) => values.iter(),
        (None, _) => return None,
    };
    let kind = |value: &Value| match value {
        Value::Null => Kind::Null,
        Value::Bool(_) => Kind::Flag,
        Value::Number(_) => Kind::Number,
        Value::String(_) => Kind::Text,
        Value::Array(_) => Kind::List,
        Value::Object(_) => Kind::Map,
    };
    let first = kinds.next().map(kind)?;
    kinds.all(|value| kind(value) == first).then_some(first)
}
