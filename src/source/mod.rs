//! Source files with spans, and the diagnostics that point into them.
pub mod codes;
mod edit;
mod found;
mod locate;
pub mod pages;
mod render;
mod sarif;
mod yaml;

pub use edit::{Edit, apply};
pub use found::{Found, MOST};
pub use render::{render, to_json};
pub use sarif::to_sarif;
use std::{fmt, ops::Range, sync::Arc};
pub use yaml::read_yaml;

/// A file's text and the name it is shown by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// A path as the user would write it, or `<built-in>/…`.
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// Returns line and column of a byte, both from 1, the column in characters; a byte inside a letter counts as the
    /// letter's first.
    pub fn position(&self, byte: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(byte)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// Returns [`Source::position`] for many bytes.
    fn positions(&self) -> impl Fn(usize) -> (usize, usize) {
        let starts: Vec<usize> = std::iter::once(0).chain(self.text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        move |byte| {
            let byte = self.text.floor_char_boundary(byte);
            let line = starts.partition_point(|start| *start <= byte);
            (line, self.text[starts[line - 1]..byte].chars().count() + 1)
        }
    }

    /// Returns where a word stands whole inside a span, where it does so once.
    pub fn find(&self, within: Span, word: &str) -> Option<Span> {
        edit::find_word(&self.text, within, word)
    }
}

/// A byte range in a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

impl Span {
    /// Returns the span as a range.
    pub fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

/// A value and where it stands. Equality looks at the value only.
#[derive(Debug, Clone, Default)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// Joins a value with its place.
    pub fn new(value: T, span: Span) -> Spanned<T> {
        Spanned { value, span }
    }
}

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Spanned<T>) -> bool {
        self.value == other.value
    }
}

impl<T> std::ops::Deref for Spanned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Nothing is run.
    Error,
    /// It runs, but somebody should look.
    Warning,
}

/// A place and what is to be said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// A short fragment; may be empty.
    pub text: String,
}

/// One finding about a source: a stable code, the places involved, what to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostic {
    /// `E001`…, stable for ever.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence without a full stop.
    pub message: String,
    /// The file that the labels point into.
    pub source: Arc<Source>,
    /// The places; the first is the main one.
    pub labels: Vec<Label>,
    /// What to do, where that is known.
    pub help: Option<String>,
    /// The same as a change of the source, where a machine can do it.
    pub fix: Option<Edit>,
}

impl Diagnostic {
    /// Makes an error with one label.
    pub fn error(code: &'static str, source: &Arc<Source>, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: Severity::Error,
            message: message.into(),
            source: source.clone(),
            labels: vec![Label { span, text: String::new() }],
            help: None,
            fix: None,
        }
    }

    /// Makes a warning with one label.
    pub fn warning(code: &'static str, source: &Arc<Source>, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, source, span, message) }
    }

    /// Sets the text of the first label.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Diagnostic {
        if let Some(first) = self.labels.first_mut() {
            first.text = text.into();
        }
        self
    }

    /// Adds a further place.
    #[must_use]
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// Sets what to do.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Diagnostic {
        self.help = Some(text.into());
        self
    }

    /// Sets what to do as a change of the source.
    #[must_use]
    pub fn fix(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.fix = Some(Edit { span, text: text.into() });
        self
    }

    /// Says what was probably meant by a word at the first label: the nearest of what is known, or else all of that where it
    /// is little; nothing where nothing is known.
    #[must_use]
    pub fn suggest<'n>(self, word: &str, known: impl Iterator<Item = &'n str> + Clone, what: &str) -> Diagnostic {
        match nearest(word, known.clone()) {
            Some(near) => self.meant(word, near),
            None => suggestion(word, known, what).into_iter().fold(self, Diagnostic::help),
        }
    }

    /// Says what was meant by a word at the first label, and puts it there where the word stands there once.
    #[must_use]
    pub fn meant(self, word: &str, near: &str) -> Diagnostic {
        let place = self.labels.first().and_then(|label| edit::find_word(&self.source.text, label.span, word));
        let told = self.help(format!("did you mean `{near}`?"));
        if let Some(place) = place { told.fix(place, near) } else { told }
    }

    /// Returns line and column of the first label, both from 1, the column in characters.
    pub fn position(&self) -> (usize, usize) {
        self.source.position(self.labels.first().map_or(0, |label| label.span.start))
    }
}

impl fmt::Display for Diagnostic {
    /// Writes one line: `file:line:column: code: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.position();
        write!(f, "{}:{line}:{column}: {}: {}", self.source.name, self.code, self.message)
    }
}

/// Every error of a file, found in one pass; never empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostics {
    /// The first of them.
    pub found: Vec<Diagnostic>,
    /// How many more there are.
    pub more: usize,
    /// Whether there may be still more, since not everything was looked at.
    pub is_left: bool,
}

impl From<Vec<Diagnostic>> for Diagnostics {
    fn from(found: Vec<Diagnostic>) -> Diagnostics {
        Diagnostics { found, more: 0, is_left: false }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, diagnostic) in self.found.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// Says what was probably meant, or what there is where that is little; `None` where there is nothing.
pub fn suggestion<'n>(name: &str, known: impl Iterator<Item = &'n str> + Clone, what: &str) -> Option<String> {
    const SHOWN: usize = 8;
    if let Some(near) = nearest(name, known.clone()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let some: Vec<String> = known.clone().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = known.count().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!some.is_empty()).then(|| format!("the {what} are {}{more}", some.join(", ")))
}

/// Returns the candidate nearest to `word`, where one is near enough to be what was meant: at most a third of its
/// letters away, and not another word altogether.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().collect();
    let limit = (word.len() / 3).max(1).min(word.len().saturating_sub(1));
    candidates.into_iter().filter_map(|candidate| Some((distance(&word, candidate, limit)?, candidate))).min().map(|(_, candidate)| candidate)
}

/// Edit distance with transpositions of neighbours as one edit, where it is at most `limit`.
fn distance(a: &[char], b: &str, limit: usize) -> Option<usize> {
    if b.len() < a.len().saturating_sub(limit) || b.chars().take(a.len() + limit + 1).count() > a.len() + limit {
        return None;
    }
    let b: Vec<char> = b.chars().collect();
    let (mut before, mut last): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        if row.iter().min().is_some_and(|nearest| *nearest > limit) {
            return None;
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().filter(|distance| *distance <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_what_was_meant_and_nothing_wild() {
        assert_eq!(nearest("promt", ["prompt", "agent"]), Some("prompt"));
        assert_eq!(nearest("nedes", ["needs", "env"]), Some("needs"));
        assert_eq!(nearest("xyz", ["needs", "env"]), None);
        assert_eq!(nearest("c", ["a", "b"]), None);
        assert_eq!(nearest("", ["a"]), None);
        assert_eq!(nearest("grüße", ["grüsse", "gruße"]), Some("gruße"));
    }
}
