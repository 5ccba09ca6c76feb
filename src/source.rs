//! Source files with spans, and the diagnostics that point into them.
use std::{fmt, ops::Range, sync::Arc};

/// A file's text and the name it is shown by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// A path as the user would write it, or `<built-in>/…`.
    pub name: String,
    /// The whole text.
    pub text: String,
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
        }
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

    /// Returns line and column of the first label, both from 1, the column in characters.
    pub fn position(&self) -> (usize, usize) {
        let start = self.labels.first().map_or(0, |label| label.span.start).min(self.source.text.len());
        let before = self.source.text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
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
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, diagnostic) in self.0.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// Returns the candidate nearest to `word`, where one is near enough to be what was meant (a third of its letters).
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edit distance with transpositions of neighbours as one edit.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_what_was_meant_and_nothing_wild() {
        assert_eq!(nearest("promt", ["prompt", "agent"]), Some("prompt"));
        assert_eq!(nearest("nedes", ["needs", "env"]), Some("needs"));
        assert_eq!(nearest("xyz", ["needs", "env"]), None);
    }
}
