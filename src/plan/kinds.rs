//! What kind of value stands at the end of a path, as far as it is known before the run.
use super::{
    schemas,
    shapes::{Shape, Shapes},
};
use serde_json::Value;

/// A kind of value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Map,
    List,
    Text,
    Number,
    Flag,
    TextOrNumber,
}

impl Kind {
    /// Returns the words for it.
    pub(super) fn words(self) -> &'static str {
        match self {
            Kind::Map => "a map",
            Kind::List => "a list",
            Kind::Text => "text",
            Kind::Number => "a number",
            Kind::Flag => "true or false",
            Kind::TextOrNumber => "text or a number",
        }
    }

    /// Returns whether it may be a whole number; text that says one counts, where nobody said that it is text.
    pub(super) fn may_count(self) -> bool {
        matches!(self, Kind::Number | Kind::TextOrNumber)
    }
}

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
            Shape::Schema { root, at, .. } | Shape::Built { root, at } => match schemas::resolved(root, at)?.get("type").and_then(Value::as_str)? {
                "string" => Some(Kind::Text),
                "integer" | "number" => Some(Kind::Number),
                "array" => Some(Kind::List),
                "object" => Some(Kind::Map),
                "boolean" => Some(Kind::Flag),
                _ => None,
            },
        }
    }
}
