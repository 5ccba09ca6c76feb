//! YAML as a tree of our own: every key and value with the bytes it stands on.
//!
//! The parser is `serde-saphyr`; this file only keeps what a decoder and its diagnostics need. Budgets bound the size,
//! the depth and what aliases may multiply, so that a hostile file is refused before it costs anything.
use super::duration::parse_duration;
use crate::source::{Diagnostic, Source, Span, Spanned, codes};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use std::{fmt, sync::Arc, time::Duration};

/// The longest file that is read, in bytes.
const MAX_BYTES: usize = 8 << 20;
/// Nesting of lists and maps.
const MAX_DEPTH: usize = 48;
/// Nodes of the whole tree, those that aliases repeat included.
const MAX_NODES: usize = 400_000;
/// Parts of the tree that aliases repeat, in all; merge keys count.
const MAX_REPEATED: usize = 20_000;

/// A value of the file and where it stands.
pub(super) type Node = Spanned<Yaml>;

/// The value itself. Text that was quoted is never a number or `true`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Yaml {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One entry of a map.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: Spanned<String>,
    pub(super) value: Node,
}

impl Yaml {
    /// Returns what it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Yaml::Null => "nothing",
            Yaml::Bool(_) => "`true` or `false`",
            Yaml::Number(_) => "a number",
            Yaml::Text(_) => "text",
            Yaml::List(_) => "a list",
            Yaml::Map(_) => "a map",
        }
    }

    /// Returns it as JSON.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Yaml::Null => Value::Null,
            Yaml::Bool(flag) => Value::Bool(*flag),
            Yaml::Number(number) => Value::Number(number.clone()),
            Yaml::Text(text) => Value::String(text.clone()),
            Yaml::List(nodes) => nodes.iter().map(|node| node.value.to_json()).collect(),
            Yaml::Map(entries) => Value::Object(entries.iter().map(|entry| (entry.key.value.clone(), entry.value.value.to_json())).collect::<Map<_, _>>()),
        }
    }

    /// Returns it as a whole number that is not negative. `010` is ten, as YAML 1.2 has it.
    pub(super) fn whole(&self) -> Option<u64> {
        let Yaml::Number(number) = self else { return None };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "only whole numbers that fit go through the cast")]
        number.as_u64().or_else(|| number.as_f64().filter(|n| n.fract() == 0.0 && (0.0..9e15).contains(n)).map(|n| n as u64))
    }

    /// Returns it as a duration: a number is seconds.
    pub(super) fn duration(&self, source: &Source, span: Span) -> Option<Duration> {
        match self {
            Yaml::Number(_) => parse_duration(&self.whole()?.to_string()),
            scalar => scalar.scalar(source, span).as_deref().and_then(parse_duration),
        }
    }

    /// Returns a scalar as its author wrote it: `8080` and `true` keep their letters.
    pub(super) fn scalar(&self, source: &Source, span: Span) -> Option<String> {
        let written = || source.text.get(span.range()).filter(|raw| !raw.is_empty() && !raw.starts_with(['"', '\''])).map(str::to_owned);
        match self {
            Yaml::Text(text) => Some(text.clone()),
            Yaml::Bool(flag) => Some(written().unwrap_or_else(|| flag.to_string())),
            Yaml::Number(number) => Some(written().unwrap_or_else(|| number.to_string())),
            Yaml::Null | Yaml::List(_) | Yaml::Map(_) => None,
        }
    }
}

/// Reads a whole file; the error is of YAML itself.
pub(super) fn parse(source: &Arc<Source>) -> Result<Node, Box<Diagnostic>> {
    if source.text.len() > MAX_BYTES {
        let message = format!("the file is longer than {MAX_BYTES} bytes");
        return Err(Box::new(Diagnostic::error(codes::TOO_MUCH, source, Span::default(), message)));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: MAX_NODES * 3,
            max_total_scalar_bytes: 2 * MAX_BYTES,
            max_documents: 1,
            max_aliases: 2_000,
            max_anchors: 2_000,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPEATED },
        // Told by this module, all of them and with both places.
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        strict_booleans: true,
        with_snippet: false,
    };
    let tree: serde_saphyr::Spanned<Loose> = serde_saphyr::from_str_with_options(&source.text, options).map_err(|error| Box::new(explain(source, &error)))?;
    Ok(place(tree))
}

/// Returns where the last value of a way stands that is there: itself where it is one scalar, else its key.
pub(super) fn place_at(root: &Node, path: &[String]) -> Option<Span> {
    let (mut node, mut place) = (root, None);
    for part in path {
        let next = match &node.value {
            Yaml::Map(entries) => entries.iter().find(|entry| entry.key.value == *part).map(|entry| (&entry.value, entry.key.span)),
            Yaml::List(nodes) => part.parse::<usize>().ok().and_then(|at| nodes.get(at)).map(|node| (node, place.unwrap_or_default())),
            Yaml::Null | Yaml::Bool(_) | Yaml::Number(_) | Yaml::Text(_) => None,
        };
        let Some((inner, key)) = next else { break };
        let is_scalar = !matches!(inner.value, Yaml::List(_) | Yaml::Map(_));
        place = Some(if is_scalar && inner.span != Span::default() { inner.span } else { key });
        node = inner;
    }
    place
}

/// Turns the parser's error into one of ours.
fn explain(source: &Arc<Source>, error: &serde_saphyr::Error) -> Diagnostic {
    use serde_saphyr::Error;
    let mut inner = error;
    while let Error::AliasError { error, .. } | Error::WithSnippet { error, .. } = inner {
        inner = error;
    }
    let at = error.location().or_else(|| inner.location()).map(|at| place_of_error(source, at)).unwrap_or_default();
    let told = match inner {
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::RecursiveReferencesRequireWeakTypes { .. } => too_much(source, at),
        Error::UnknownAnchor { .. } => Diagnostic::error(codes::SYNTAX, source, at, "no anchor has this name before this place"),
        Error::Unexpected { .. } | Error::NullIntoString { .. } => Diagnostic::error(codes::SYNTAX, source, at, "the key of a map must be text"),
        // The scanner's own bound on brackets inside brackets has no error of its own.
        _ if inner.to_string().contains("recursion limit exceeded") => too_much(source, at),
        _ => {
            let whole = inner.to_string();
            let message = whole.rfind(" at line ").map_or(whole.as_str(), |end| &whole[..end]);
            let told = Diagnostic::error(codes::SYNTAX, source, at, format!("the file is not YAML: {message}"));
            let line = source.text.get(..at.start).unwrap_or_default().rfind('\n').map_or(0, |newline| newline + 1);
            if source.text[line..].trim_start_matches(' ').starts_with('\t') { told.help("indent with spaces: YAML has no tabs there") } else { told }
        }
    };
    if told.code == codes::SYNTAX && opens_with_template(source, at) {
        told.help("quote a value that begins so: `\"{{ … }}\"`; to YAML `{` opens a map")
    } else {
        told
    }
}

/// Returns whether a value begins with `{{` and is not quoted, on the line of an error or on that before it.
fn opens_with_template(source: &Source, at: Span) -> bool {
    let last = source.text.get(..at.start).unwrap_or_default().lines().count().max(1);
    source.text.lines().take(last).skip(last.saturating_sub(2)).any(|line| {
        let opened = |sign: &str| line.match_indices(sign).any(|(at, _)| line[..at].matches(['"', '\'']).count() % 2 == 0);
        [": {{", "- {{", "[{{"].into_iter().any(opened)
    })
}

fn too_much(source: &Arc<Source>, at: Span) -> Diagnostic {
    let message = "the file holds more than a workflow may: too many values, too deep, several documents, or aliases that multiply it";
    Diagnostic::error(codes::TOO_MUCH, source, at, message)
        .help(format!("one document of at most {MAX_NODES} values and {MAX_DEPTH} levels, of which aliases repeat {MAX_REPEATED}, none inside itself"))
}

/// Finds the bytes of an error; the scanner knows line and column only.
fn place_of_error(source: &Source, at: serde_saphyr::Location) -> Span {
    if at.span().byte_offset().is_some() {
        return span(at);
    }
    let (line, column) = (usize::try_from(at.line()).unwrap_or(1), usize::try_from(at.column()).unwrap_or(1));
    let mut start = 0;
    for line in source.text.split_inclusive('\n').take(line.saturating_sub(1)) {
        start += line.len();
    }
    let rest = &source.text[start..];
    let start = start + rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |(offset, _)| offset);
    Span { start, end: start }
}

/// The visitor's target: a tree whose children have their places, while its own comes from around it.
struct Loose(Yaml);

fn place(node: serde_saphyr::Spanned<Loose>) -> Node {
    Spanned::new(node.value.0, span(node.defined))
}

fn span(at: serde_saphyr::Location) -> Span {
    let byte = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    match (at.span().byte_offset(), at.span().byte_len()) {
        (Some(start), Some(length)) => Span { start: byte(start), end: byte(start + length) },
        _ => Span::default(),
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Loose, D::Error> {
        #[cfg(test)]
        tests::VISITED.set(tests::VISITED.get() + 1);
        deserializer.deserialize_any(Build).map(Loose)
    }
}

struct Build;

impl<'de> Visitor<'de> for Build {
    type Value = Yaml;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_bool<E>(self, flag: bool) -> Result<Yaml, E> {
        Ok(Yaml::Bool(flag))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Yaml, E> {
        Ok(Yaml::Number(number.into()))
    }
    fn visit_u64<E>(self, number: u64) -> Result<Yaml, E> {
        Ok(Yaml::Number(number.into()))
    }
    fn visit_f64<E>(self, number: f64) -> Result<Yaml, E> {
        Ok(Number::from_f64(number).map_or_else(|| Yaml::Text(number.to_string()), Yaml::Number))
    }
    fn visit_str<E>(self, text: &str) -> Result<Yaml, E> {
        Ok(Yaml::Text(text.to_owned()))
    }
    fn visit_unit<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }
    fn visit_none<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Yaml, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element::<serde_saphyr::Spanned<Loose>>()? {
            nodes.push(place(node));
        }
        Ok(Yaml::List(nodes))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Yaml, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<serde_saphyr::Spanned<String>>()? {
            let value = map.next_value::<serde_saphyr::Spanned<Loose>>()?;
            entries.push(Entry { key: Spanned::new(key.value, span(key.defined)), value: place(value) });
        }
        Ok(Yaml::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    thread_local! {
        /// How many values were looked at, by this thread.
        pub(super) static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    fn source(text: &str) -> Arc<Source> {
        Arc::new(Source { name: "t.yaml".to_owned(), text: text.to_owned() })
    }

    /// Every scalar and key of a tree with the text it stands on.
    fn places(text: &str) -> Vec<(String, String)> {
        fn walk(node: &Node, text: &str, found: &mut Vec<(String, String)>) {
            match &node.value {
                Yaml::List(nodes) => nodes.iter().for_each(|node| walk(node, text, found)),
                Yaml::Map(entries) => entries.iter().for_each(|entry| {
                    found.push((entry.key.value.clone(), text[entry.key.span.range()].to_owned()));
                    walk(&entry.value, text, found);
                }),
                scalar => found.push((scalar.to_json().to_string(), text[node.span.range()].to_owned())),
            }
        }
        let mut found = Vec::new();
        walk(&parse(&source(text)).expect("the text is YAML"), text, &mut found);
        found
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(value, raw)| ((*value).to_owned(), (*raw).to_owned())).collect()
    }

    #[test]
    fn spans_are_exact_with_crlf_letters_beyond_ascii_and_every_style() {
        let text = "é: \"ü\\n\"\r\nc: 'it''s'\r\nd: |\r\n  lit é\r\n  two\r\n\r\ne: >-\r\n  fold\r\n  ed\r\nf: plain\r\n  multi\r\ng: [a, {b: 1}]\r\n";
        let expected = [
            ("é", "é"),
            ("\"ü\\n\"", "\"ü\\n\""),
            ("c", "c"),
            ("\"it's\"", "'it''s'"),
            ("d", "d"),
            ("\"lit é\\ntwo\\n\"", "lit é\r\n  two\r\n\r\n"),
            ("e", "e"),
            ("\"fold ed\"", "fold\r\n  ed\r\n"),
            ("f", "f"),
            ("\"plain multi\"", "plain\r\n  multi"),
            ("g", "g"),
            ("\"a\"", "a"),
            ("b", "b"),
            ("1", "1"),
        ];
        assert_eq!(places(text), pairs(&expected));
    }

    #[test]
    fn an_alias_stands_where_its_anchor_was_defined_and_merge_keys_give_way() {
        let text = "x: &a {k: v}\ny: *a\nz: {<<: *a, k: w, l: 2}\n\"q\": !!str 5\n1: ~\n";
        let expected = [
            ("x", "x"),
            ("k", "k"),
            ("\"v\"", "v"),
            ("y", "y"),
            ("k", "k"),
            ("\"v\"", "v"),
            ("z", "z"),
            ("k", "k"),
            ("\"w\"", "w"),
            ("l", "l"),
            ("2", "2"),
            ("q", "\"q\""),
            ("\"5\"", "5"),
            ("1", "1"),
            ("null", "~"),
        ];
        assert_eq!(places(text), pairs(&expected));
    }

    #[test]
    fn yaml_is_1_2() {
        let values: Vec<String> =
            places("a: yes\nb: on\nc: true\nd: 0o17\ne: 2026-01-01\nf: .inf\ng: 4_000\n").into_iter().skip(1).step_by(2).map(|(value, _)| value).collect();
        assert_eq!(values, ["\"yes\"", "\"on\"", "true", "15", "\"2026-01-01\"", "\".inf\"", "4000"]);
    }

    #[test]
    fn a_bomb_costs_no_more_than_its_budget_before_it_is_refused() {
        let levels = |of: &str, open: char, close: char| {
            (1..30).fold(format!("a0: &a0 {open}{}{close}\n", of.replace('@', "x")), |text, level| {
                text + &format!("a{level}: &a{level} {open}{}{close}\n", of.replace('@', &format!("*a{}", level - 1)))
            })
        };
        let merging = (1..30).fold("a0: &a0 {x: 1}\n".to_owned(), |text, level| {
            text + &format!("a{level}: &a{level} {{<<: [*a{0}, *a{0}, *a{0}, *a{0}], y: *a{0}}}\n", level - 1)
        });
        let flat = format!("a: &a [{}]\nb: [{}]\n", "x, ".repeat(1_000), "*a, ".repeat(100_000));
        for bomb in [levels("@, @, @, @, @, @, @, @, @", '[', ']'), levels("a: @, b: @, c: @", '{', '}'), merging, flat] {
            VISITED.set(0);
            assert_eq!(parse(&source(&bomb)).expect_err("it is refused").code, codes::TOO_MUCH);
            assert!(VISITED.get() <= 2 * MAX_REPEATED, "{} values were looked at", VISITED.get());
        }
    }

    #[test]
    fn bombs_are_refused() {
        let mut bomb = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x, x]".to_owned()];
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push(format!("a{level}: &a{level} [{aliases}]"));
        }
        let bomb = bomb.join("\n");
        let deep = format!("a: {}{}", "[".repeat(200), "]".repeat(200));
        let deep_block = (0..200).fold(String::new(), |text, depth| text + &" ".repeat(depth) + "a:\n");
        let long = "x".repeat(MAX_BYTES + 1);
        for text in [&bomb, &deep, &deep_block, &long, "a: &a [*a]", "--- 1\n--- 2\n"] {
            let error = parse(&source(text)).expect_err("it is refused");
            assert_eq!(error.code, codes::TOO_MUCH, "{error}");
        }
    }

    #[test]
    fn broken_yaml_is_told_with_its_place() {
        for text in ["a: {b: 1", "a: [1, 2\nb: 3", "a: b: c", "a: *nope", "[a]: 1", "a: \"\\q\"\n", "a: \u{0}\n", "~: 2\n"] {
            let error = parse(&source(text)).expect_err("it is broken");
            assert_eq!(error.code, codes::SYNTAX, "{text:?}: {error}");
            assert!(!error.message.contains(" line "), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = parse(&source(&text));
        }

        #[test]
        fn yaml_like_text_is_read_or_refused_and_spans_are_within(text in "([a-c&*!|>'\"\\[\\]{}:,#?~<é \\-\r\n\t]{0,60})") {
            fn within(node: &Node, text: &str) {
                assert!(text.get(node.span.range()).is_some(), "{:?} of {text:?}", node.span);
                match &node.value {
                    Yaml::List(nodes) => nodes.iter().for_each(|node| within(node, text)),
                    Yaml::Map(entries) => entries.iter().for_each(|entry| {
                        assert!(text.get(entry.key.span.range()).is_some());
                        within(&entry.value, text);
                    }),
                    _ => {}
                }
            }
            if let Ok(tree) = parse(&source(&text)) {
                within(&tree, &text);
            }
        }
    }
}
