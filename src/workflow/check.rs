//! Checks a tree against the table of keys: everything that can be said of a file without knowing what it means.
use super::{
    keys::{MAX_NAME, Name, Object, Shape},
    yaml::{Entry, Node, Yaml},
};
use crate::source::{Diagnostic, Diagnostics, Found, Source, Span, codes, nearest};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// What a value is called in messages, and where that name stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    name: &'a str,
    /// Whether it is an entry of the list of that name.
    entry: bool,
    span: Span,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}`{}`", if self.entry { "an entry of " } else { "" }, self.name)
    }
}

/// Checks a whole file.
pub(super) fn check(source: &Arc<Source>, root: &Node, object: &'static Object) -> Found {
    let mut checker = Checker { source, found: Found::default() };
    checker.duplicates(root);
    match &root.value {
        Yaml::Map(entries) => checker.object(entries, object, Place { name: object.what, entry: false, span: root.span }),
        other => {
            let message = format!("{} is a map, but the file holds {}", object.what, other.kind());
            checker.found.report(Diagnostic::error(codes::WRONG_TYPE, source, root.span, message).help("begin with `version: 1` and `name:`"));
        }
    }
    checker.found
}

/// Returns the warnings, or all errors where there is one, in the order of their file.
pub(super) fn in_order(found: Found) -> Result<Vec<Diagnostic>, Diagnostics> {
    found.into_warnings(|diagnostic| (diagnostic.labels.first().map(|label| label.span), diagnostic.code))
}

/// Joins words for a message: `` `a`, `b` ``.
pub(super) fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Makes the warning for what this version does in a simpler way.
fn simpler(source: &Arc<Source>, span: Span, what: &str, instead: &str) -> Diagnostic {
    Diagnostic::warning(codes::SIMPLER, source, span, format!("`{what}` has no effect of its own in this version: {instead}"))
}

/// Makes the error for what this version does not build.
pub(super) fn later(source: &Arc<Source>, span: Span, what: &str) -> Diagnostic {
    Diagnostic::error(codes::LATER, source, span, format!("`{what}` is part of the language but not of this version"))
}

struct Checker<'a> {
    source: &'a Arc<Source>,
    found: Found,
}

impl Checker<'_> {
    fn report(&mut self, diagnostic: Diagnostic) {
        self.found.report(diagnostic);
    }

    fn error(&mut self, code: &'static str, span: Span, message: String) {
        self.report(Diagnostic::error(code, self.source, span, message));
    }

    /// Reports keys that stand twice in a map, wherever the map stands.
    fn duplicates(&mut self, node: &Node) {
        match &node.value {
            Yaml::List(nodes) => nodes.iter().for_each(|node| self.duplicates(node)),
            Yaml::Map(entries) => {
                let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
                for Entry { key, value } in entries {
                    if let Some(first) = seen.insert(key, key.span) {
                        let message = format!("the key `{}` stands twice in one map", key.value);
                        let twice = Diagnostic::error(codes::DUPLICATE_KEY, self.source, key.span, message).label("again here");
                        self.report(twice.also(first, "first here"));
                    }
                    self.duplicates(value);
                }
            }
            Yaml::Null | Yaml::Bool(_) | Yaml::Number(_) | Yaml::Text(_) => {}
        }
    }

    fn object(&mut self, entries: &[Entry], object: &'static Object, place: Place<'_>) {
        for Entry { key, value } in entries {
            match object.key(key) {
                Some(known) if matches!(known.shape, Shape::Later) => self.report(later(self.source, key.span, key)),
                Some(known) => {
                    if let Some(instead) = known.instead {
                        self.report(simpler(self.source, key.span, key, instead));
                    }
                    self.value(value, &known.shape, Place { name: key, entry: false, span: key.span });
                }
                None => match &object.others {
                    Some(others) if takes(&others.of, &value.value) || nearest(key, object.keys.iter().map(|key| key.name)).is_none() => {
                        self.name(key, key.span, others.names);
                        self.value(value, &others.of, Place { name: key, entry: false, span: key.span });
                    }
                    Some(_) | None => self.unknown_key(&key.value, key.span, object),
                },
            }
        }
        if let Some(others) = object.others.as_ref().filter(|_| entries.iter().all(|entry| object.key(&entry.key).is_some())) {
            self.error(codes::MISSING_KEY, place.span, format!("{} needs at least {}", object.what, others.what));
        }
        for key in object.keys.iter().filter(|key| key.required) {
            // One that is misspelt is told as an unknown key, with what was meant.
            let misspelt = |written: &str| object.key(written).is_none() && nearest(written, object.keys.iter().map(|key| key.name)) == Some(key.name);
            if !entries.iter().any(|entry| entry.key.value == key.name || misspelt(&entry.key)) {
                let message = format!("{} needs the key `{}`", object.what, key.name);
                self.report(Diagnostic::error(codes::MISSING_KEY, self.source, place.span, message).help(format!("`{}`: {}", key.name, key.doc)));
            }
        }
    }

    fn unknown_key(&mut self, name: &str, span: Span, object: &Object) {
        let known = || object.keys.iter().map(|key| key.name);
        let here = || object.keys.iter().filter(|key| !matches!(key.shape, Shape::Later)).map(|key| key.name);
        let message = format!("{} has no key `{name}`", object.what);
        let unknown = Diagnostic::error(codes::UNKNOWN_KEY, self.source, span, message).label("unknown key");
        self.report(match nearest(name, known()) {
            Some(near) => unknown.meant(name, near),
            None => unknown.help(format!("the keys here are {}", quoted(here()))),
        });
    }

    fn value(&mut self, node: &Node, shape: &'static Shape, place: Place<'_>) {
        match (shape, &node.value) {
            (Shape::Any, _)
            | (Shape::Schema, Yaml::Map(_) | Yaml::Bool(_))
            | (Shape::Text, Yaml::Text(_) | Yaml::Bool(_) | Yaml::Number(_))
            | (Shape::Flag, Yaml::Bool(_))
            | (Shape::Number, Yaml::Number(_)) => {}
            (Shape::Expression, Yaml::Text(text)) if text.trim_start().starts_with("{{") => {}
            (Shape::Either(shapes), value) => match shapes.iter().find(|shape| takes(shape, value)) {
                Some(Shape::Later) => {
                    let message = format!("{} for {place} is part of the language but not of this version", node.value.kind());
                    self.report(Diagnostic::error(codes::LATER, self.source, node.span, message).help(format!("write {shape}")));
                }
                Some(Shape::Word { words, instead }) if shapes.iter().any(|shape| matches!(shape, Shape::List { .. })) => {
                    if let Yaml::Text(word) = value {
                        self.word((word, node.span), (words, instead), ", or a list");
                    }
                }
                Some(shape) => self.value(node, shape, place),
                None => self.wrong_type(node, shape, place),
            },
            (Shape::Later, _) => self.report(later(self.source, place.span, place.name)),
            (Shape::Whole { min, max }, Yaml::Number(_)) => self.whole(node, *min..=*max, place),
            (Shape::Amount, Yaml::Number(number)) => {
                if !number.as_f64().is_some_and(|number| number > 0.0) {
                    self.error(codes::OUT_OF_RANGE, node.span, format!("{place} must be above 0"));
                }
            }
            (Shape::Duration { zero }, Yaml::Text(_) | Yaml::Number(_)) => self.duration(node, *zero, place),
            (Shape::Word { words, instead }, Yaml::Text(word)) => self.word((word, node.span), (words, instead), ""),
            (Shape::Name(kind), Yaml::Text(name)) => self.name(name, node.span, *kind),
            (Shape::List { of, min }, Yaml::List(nodes)) => {
                if nodes.len() < *min {
                    self.error(codes::OUT_OF_RANGE, node.span, format!("{place} must not be empty"));
                }
                for node in nodes {
                    self.value(node, of, Place { name: place.name, entry: true, span: node.span });
                }
            }
            (Shape::Map { names, of, min }, Yaml::Map(entries)) => {
                if entries.len() < *min {
                    self.error(codes::OUT_OF_RANGE, place.span, format!("{place} must not be empty"));
                }
                for Entry { key, value } in entries {
                    self.name(key, key.span, *names);
                    self.value(value, of, Place { name: key, entry: false, span: key.span });
                }
            }
            (Shape::Object(object), Yaml::Map(entries)) => self.object(entries, object, place),
            (Shape::Version, Yaml::Number(number)) => {
                if node.value.whole() != Some(1) {
                    let message = format!("version {number} of the language is not known here");
                    self.report(Diagnostic::error(codes::VERSION, self.source, node.span, message).help("this program reads `version: 1`"));
                }
            }
            (shape, _) => self.wrong_type(node, shape, place),
        }
    }

    fn wrong_type(&mut self, node: &Node, shape: &Shape, place: Place<'_>) {
        let span = if node.span.start == node.span.end { place.span } else { node.span };
        let message = format!("{place} must be {shape}, not {}", node.value.kind());
        let wrong = Diagnostic::error(codes::WRONG_TYPE, self.source, span, message);
        let is_quoted = self.source.text[node.span.start..].starts_with(['"', '\'']);
        let flag = matches!(shape, Shape::Flag);
        let number = matches!(shape, Shape::Whole { .. } | Shape::Amount | Shape::Number | Shape::Version);
        self.report(match &node.value {
            Yaml::Text(text)
                if is_quoted && ((number && text.parse::<f64>().is_ok_and(f64::is_finite)) || (flag && matches!(text.as_str(), "true" | "false"))) =>
            {
                wrong.help("quotes make it text: leave them out").fix(node.span, text.clone())
            }
            _ => wrong,
        });
    }

    fn whole(&mut self, node: &Node, range: std::ops::RangeInclusive<u64>, place: Place<'_>) {
        match node.value.whole() {
            Some(number) if range.contains(&number) => {}
            Some(_) => {
                let message = format!("{place} must be between {} and {}", range.start(), range.end());
                self.error(codes::OUT_OF_RANGE, node.span, message);
            }
            None => self.error(codes::WRONG_TYPE, node.span, format!("{place} must be a whole number, not below 0")),
        }
    }

    fn duration(&mut self, node: &Node, zero: bool, place: Place<'_>) {
        match node.value.duration(self.source, node.span) {
            Some(duration) if zero || !duration.is_zero() => {}
            Some(_) => self.error(codes::OUT_OF_RANGE, node.span, format!("{place} must be above 0")),
            None => {
                let message = format!("{place} is not a duration");
                let bad = Diagnostic::error(codes::BAD_DURATION, self.source, node.span, message);
                self.report(bad.help("write it as `90s`, `30m`, `2h`, `1h30m`, `7d` or `250ms`; a bare number is seconds"));
            }
        }
    }

    /// Checks a word; `or` is what else could stand there.
    fn word(&mut self, (word, span): (&str, Span), (words, instead): (&[&'static str], &[(&'static str, &'static str)]), or: &str) {
        if let Some((_, instead)) = instead.iter().find(|(simple, _)| *simple == word) {
            self.report(simpler(self.source, span, word, instead));
        } else if !words.contains(&word) {
            let unknown = Diagnostic::error(codes::UNKNOWN_WORD, self.source, span, format!("`{word}` is not a word for this place"));
            self.report(match nearest(word, words.iter().copied()) {
                Some(near) => unknown.meant(word, near),
                None => unknown.help(format!("one of {}{or}", quoted(words.iter().copied()))),
            });
        }
    }

    fn name(&mut self, name: &str, span: Span, kind: Name) {
        if !kind.fits(name) {
            let shown: String = name.chars().take(MAX_NAME).collect();
            let help = match kind {
                Name::Workflow => "a small letter, then small letters, digits and `-`",
                Name::Step => "a small letter, then small letters, digits, `_` and `-`",
                Name::Variable => "a letter or `_`, then letters, digits and `_`",
                Name::Free => "letters, digits, `_`, `-` and `.`",
                Name::Model => "the model's id: letters, digits, `_`, `-`, `.`, `:`, `/` and `@`",
            };
            let bad = Diagnostic::error(codes::BAD_NAME, self.source, span, format!("`{shown}` cannot be a name here"));
            self.report(bad.help(format!("{help}, at most {MAX_NAME} characters")));
        }
    }
}

/// Returns whether a shape takes this kind of YAML value; which is all that chooses between alternatives.
fn takes(shape: &Shape, value: &Yaml) -> bool {
    match shape {
        Shape::Any => true,
        Shape::Schema => matches!(value, Yaml::Map(_) | Yaml::Bool(_)),
        Shape::Text => matches!(value, Yaml::Text(_) | Yaml::Number(_) | Yaml::Bool(_)),
        Shape::Expression => matches!(value, Yaml::Text(text) if text.trim_start().starts_with("{{")),
        Shape::Flag => matches!(value, Yaml::Bool(_)),
        Shape::Whole { .. } | Shape::Amount | Shape::Number | Shape::Version => matches!(value, Yaml::Number(_)),
        Shape::Duration { .. } => matches!(value, Yaml::Text(_) | Yaml::Number(_)),
        Shape::Word { .. } | Shape::Name(_) => matches!(value, Yaml::Text(_)),
        Shape::List { .. } | Shape::Later => matches!(value, Yaml::List(_)),
        Shape::Map { .. } | Shape::Object(_) => matches!(value, Yaml::Map(_)),
        Shape::Either(shapes) => shapes.iter().any(|shape| takes(shape, value)),
    }
}
