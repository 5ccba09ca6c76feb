//! Patterns of a script: JavaScript regular expressions, and the filling in of what their named groups found.
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Named groups and what they found; one that took no part is empty.
pub(super) type Groups = BTreeMap<String, String>;

/// A pattern that is searched in a text.
#[derive(Debug, Clone)]
pub(super) struct Pattern(regress::Regex);

impl Pattern {
    /// Compiles a pattern. It may begin with flags, `(?ims)`, which JavaScript has no place for inside a pattern.
    pub(super) fn parse(text: &str) -> Result<Pattern, regress::Error> {
        let flagged = text
            .strip_prefix("(?")
            .and_then(|rest| rest.split_once(')'))
            .filter(|(flags, _)| !flags.is_empty() && flags.chars().all(|flag| matches!(flag, 'i' | 'm' | 's')));
        let (flags, body) = flagged.unwrap_or(("", text));
        regress::Regex::with_flags(body, format!("{flags}u").as_str()).map(Pattern)
    }

    /// Searches `text`; `None` where nothing is found.
    pub(super) fn find(&self, text: &str) -> Option<Groups> {
        let found = self.0.find(text)?;
        Some(found.named_groups().map(|(name, range)| (name.to_owned(), range.map_or("", |range| &text[range]).to_owned())).collect())
    }
}

/// Fills `${name}` in for every known name; other text is left alone, `${HOME}` of a shell command say.
pub(super) fn fill(template: &str, groups: &Groups) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let known = from[2..].split_once('}').and_then(|(name, after)| Some((groups.get(name)?, after)));
        if let Some((value, after)) = known {
            out.push_str(value);
            rest = after;
        } else {
            out.push_str("${");
            rest = &from[2..];
        }
    }
    out.push_str(rest);
    out
}

/// Fills in every string of a value; keys are left alone.
pub(super) fn fill_value(value: &Value, groups: &Groups) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, groups)),
        Value::Array(values) => Value::Array(values.iter().map(|value| fill_value(value, groups)).collect()),
        Value::Object(fields) => Value::Object(fields.iter().map(|(key, value)| (key.clone(), fill_value(value, groups))).collect::<Map<_, _>>()),
        other => other.clone(),
    }
}
