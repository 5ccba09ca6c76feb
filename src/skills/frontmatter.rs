//! The head of a Markdown file: YAML between two lines of `---`, read as leniently as it is written.
//!
//! Strict YAML first. One file in twenty is not YAML, mostly because a description holds `: ` unquoted; then a scan for
//! lines that begin with a known key gives the values. A file whose head gives nothing keeps its body.
use crate::source::read_yaml;
use serde_json::{Map, Value};

/// The longest head that is read, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// A file's head and body.
#[derive(Debug, Default)]
pub(super) struct Front {
    values: Map<String, Value>,
    pub(super) body: String,
    pub(super) warnings: Vec<String>,
}

impl Front {
    /// Splits a file and reads its head; `keys` are those that the scan looks for.
    pub(super) fn read(text: &str, keys: &[&str]) -> Front {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let Some((head, body)) = split(text) else {
            return Front { body: text.to_owned(), warnings: vec!["it has no head between two lines of `---`".to_owned()], ..Front::default() };
        };
        let mut front = Front { body: body.to_owned(), ..Front::default() };
        if head.len() > MAX_HEAD_BYTES {
            front.warn(format!("its head is longer than {MAX_HEAD_BYTES} bytes and is not read"));
            return front;
        }
        match read_yaml::<Value>(head) {
            Ok(Value::Object(values)) => front.values = values,
            Ok(Value::Null) => {}
            Ok(_) => front.warn("its head is not a map of keys and values".to_owned()),
            Err(error) => {
                front.values = scan(head, keys);
                let reason = error.to_string();
                let reason = reason.lines().next().unwrap_or_default();
                front.warn(if front.values.is_empty() {
                    format!("its head is not YAML and is not read: {reason}")
                } else {
                    format!("its head is not YAML; what stands behind known keys was taken as text: {reason}")
                });
            }
        }
        front
    }

    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Returns whether a key has a value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(|value| !value.is_null())
    }

    /// Returns a value as it stands.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Returns a value as text; numbers and truth values count as what they are written as.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        match self.values.get(key)? {
            Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Returns a truth value in any of the spellings in use.
    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        flag(&self.text(key)?)
    }

    /// Returns a list, written as a list, or as text parted by commas or else by spaces.
    pub(super) fn list(&self, key: &str) -> Vec<String> {
        match self.values.get(key) {
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect(),
            Some(Value::String(text)) => parted(text),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
        }
    }
}

/// Reads a truth value in any of the spellings in use.
pub(super) fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Parts text at commas, or else at white space; not inside parentheses.
fn parted(text: &str) -> Vec<String> {
    let text = text.trim();
    // A scanned value may still wear the brackets of its YAML list.
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let cut = |at: &dyn Fn(char) -> bool| {
        let mut depth = 0_usize;
        let mut parts = vec![String::new()];
        for c in text.chars() {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            match parts.last_mut() {
                Some(part) if depth > 0 || !at(c) => part.push(c),
                Some(_) | None => parts.push(String::new()),
            }
        }
        parts
    };
    let by_commas = cut(&|c| c == ',');
    let parts = if by_commas.len() > 1 { by_commas } else { cut(&char::is_whitespace) };
    parts.iter().map(|part| part.trim().trim_matches(['"', '\'']).trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Splits a text after its head.
fn split(text: &str) -> Option<(&str, &str)> {
    let first = text.lines().next()?;
    if first.trim_end() != "---" {
        return None;
    }
    let start = (first.len() + 1 + usize::from(text[first.len()..].starts_with('\r'))).min(text.len());
    let mut at = start;
    for line in text[start..].split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&text[start..at], text[at + line.len()..].trim_start_matches(['\n', '\r'])));
        }
        at += line.len();
    }
    None
}

/// Takes what stands behind known keys at the beginning of a line, up to the next of them.
fn scan(head: &str, keys: &[&str]) -> Map<String, Value> {
    let mut values: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in head.lines() {
        let known = line.split_once(':').map(|(key, rest)| (key.trim_end(), rest)).filter(|(key, _)| keys.contains(key));
        match (known, values.last_mut()) {
            (Some((key, rest)), _) => values.push((key, vec![rest])),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    let mut map = Map::new();
    for (key, lines) in values {
        map.entry(key).or_insert_with(|| scanned(&lines));
    }
    map
}

/// Reads a value from its lines: a list of `- item`, a block, or text.
fn scanned(lines: &[&str]) -> Value {
    let (first, rest) = lines.split_first().map_or(("", lines), |(first, rest)| (first.trim(), rest));
    let items: Vec<&str> = rest.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    if first.is_empty() && !items.is_empty() && items.iter().all(|item| item.starts_with("- ")) {
        return items.iter().map(|item| Value::String(unquoted(item[2..].trim()))).collect();
    }
    let block = matches!(first.trim_end_matches(['-', '+', '1', '2', '4']), "|" | ">");
    let mut text: Vec<&str> = if block { Vec::new() } else { vec![first] };
    text.extend(rest.iter().map(|line| line.trim_end()).map(|line| if block { line.trim_start() } else { line }));
    Value::String(unquoted(text.join("\n").trim()))
}

/// Takes the quotes off a text that has them at both ends.
fn unquoted(text: &str) -> String {
    let inside = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    if let Some(inside) = inside('"') {
        return inside.replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\");
    }
    inside('\'').map_or_else(|| text.to_owned(), |inside| inside.replace("''", "'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn front(text: &str) -> Front {
        Front::read(text, &["name", "description", "tools", "model"])
    }

    #[test]
    fn strict_yaml_is_read_as_it_is() {
        let front = front("---\nname: x\ndescription: >\n  two\n  lines\ntools: [Read, \"Bash(git add *)\"]\nextra: {a: 1}\n---\n\n# Body\n---\nmore\n");
        assert_eq!(front.text("description").as_deref(), Some("two lines"));
        assert_eq!(front.list("tools"), ["Read", "Bash(git add *)"]);
        assert_eq!(front.value("extra"), Some(&json!({"a": 1})));
        assert_eq!(front.body, "# Body\n---\nmore\n");
        assert!(front.warnings.is_empty());
    }

    #[test]
    fn what_is_not_yaml_is_scanned_for_known_keys() {
        let text = "---\nname: reviewer\ndescription: Use it when. Examples:\n<example>Context: a user: \"x\"</example>\ntools: Read, Bash(git log: *), Grep\nmodel: \"opus\"\nother: ignored: text\n---\nBody";
        let front = front(text);
        assert_eq!(front.text("name").as_deref(), Some("reviewer"));
        assert_eq!(front.text("description").as_deref(), Some("Use it when. Examples:\n<example>Context: a user: \"x\"</example>"));
        assert_eq!(front.list("tools"), ["Read", "Bash(git log: *)", "Grep"]);
        assert!(front.text("model").unwrap().starts_with("\"opus\"") || front.text("model").as_deref() == Some("opus"));
        assert_eq!(front.body, "Body");
        assert_eq!(front.warnings.len(), 1);
    }

    #[test]
    fn scanned_values_may_be_lists_blocks_and_quoted() {
        let front = front("---\nname: 'it''s'\ntools:\n  - Read\n  - \"Edit\"\ndescription: |\n  one: two\n    three\nmodel: [a: b, c]: d\n---\n");
        assert_eq!(front.text("name").as_deref(), Some("it's"));
        assert_eq!(front.list("tools"), ["Read", "Edit"]);
        assert_eq!(front.text("description").as_deref(), Some("one: two\nthree"));
    }

    #[test]
    fn lists_are_parted_at_commas_or_else_at_spaces() {
        assert_eq!(parted("Read, Bash(a, b c) ,Edit,"), ["Read", "Bash(a, b c)", "Edit"]);
        assert_eq!(parted("Read  Bash(git add *)\nEdit"), ["Read", "Bash(git add *)", "Edit"]);
        assert_eq!(parted("[\"Read\", 'Edit']"), ["Read", "Edit"]);
        assert_eq!(parted(""), Vec::<String>::new());
        assert_eq!(parted("a) b, c("), ["a) b", "c("]);
    }

    #[test]
    fn heads_that_are_none_leave_the_body() {
        for text in ["", "# Title\n", "---", "---\nname: x\n", "--- \u{0}", " ---\nname: x\n---\n"] {
            let front = front(text);
            assert_eq!(front.body, text);
            assert_eq!(front.warnings.len(), 1, "{text:?}");
        }
        assert_eq!(front("---\n---\nBody").body, "Body");
        assert_eq!(front("\u{feff}---\r\nname: x\r\n---\r\nBody").text("name").as_deref(), Some("x"));
        assert_eq!(front("---\n- a\n- b\n---\nBody").body, "Body");
        assert_eq!(front("---\njust text\n---\nBody").warnings.len(), 1);
    }

    #[test]
    fn bombs_and_noise_are_survived() {
        let bomb = "---\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nname: x\n---\nBody";
        assert_eq!(front(bomb).text("name").as_deref(), Some("x"));
        let deep = format!("---\nname: {}\n---\nBody", "[".repeat(20_000));
        assert_eq!(front(&deep).body, "Body");
        let long = format!("---\nname: {}\n---\nBody", "x".repeat(MAX_HEAD_BYTES));
        assert!(!front(&long).has("name"));
        assert_eq!(front("---\nname: x\nname: y\n---\n").text("name").as_deref(), Some("x"));
    }
}
