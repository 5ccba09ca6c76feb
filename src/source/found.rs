//! What was found in one file: each thing once, all of it counted, and the first of it kept.
use super::{Diagnostic, Diagnostics, Severity};
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// The most errors, and the most warnings, that are kept of one file.
pub const MOST: usize = 200;

/// Findings about one file.
#[derive(Debug, Default)]
pub struct Found {
    kept: Vec<Diagnostic>,
    /// Hashes of all there were.
    seen: HashSet<u64>,
    errors: usize,
    warnings: usize,
    is_left: bool,
}

impl Found {
    /// Takes a finding, once.
    pub fn report(&mut self, diagnostic: Diagnostic) {
        let span = diagnostic.labels.first().map(|label| label.span);
        let mut hasher = DefaultHasher::new();
        (diagnostic.code, &diagnostic.source.name, span.map(|span| (span.start, span.end)), &diagnostic.message).hash(&mut hasher);
        if !self.seen.insert(hasher.finish()) {
            return;
        }
        let count = match diagnostic.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= MOST {
            self.kept.push(diagnostic);
        }
    }

    /// Notes that not everything was looked at, since as many errors are kept as may be.
    pub fn leave(&mut self) {
        self.is_left = true;
    }

    /// Returns whether no more errors are kept.
    pub fn is_full(&self) -> bool {
        self.errors >= MOST
    }

    /// Returns whether there is an error.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Takes over what another one has found.
    pub fn absorb(&mut self, other: Found) {
        other.kept.into_iter().for_each(|diagnostic| self.report(diagnostic));
        self.errors += other.errors.saturating_sub(MOST);
        self.is_left |= other.is_left;
    }

    /// Takes over the errors of a file.
    pub fn add(&mut self, errors: Diagnostics) {
        errors.found.into_iter().for_each(|diagnostic| self.report(diagnostic));
        self.errors += errors.more;
        self.is_left |= errors.is_left;
    }

    /// Returns the warnings, or all errors where there is one, in the order in which they are kept after `sort`.
    ///
    /// # Errors
    /// The errors.
    pub fn into_warnings<K: Ord>(self, sort: impl Fn(&Diagnostic) -> K) -> Result<Vec<Diagnostic>, Diagnostics> {
        let (mut errors, mut warnings): (Vec<_>, Vec<_>) = self.kept.into_iter().partition(|found| found.severity == Severity::Error);
        errors.sort_by_cached_key(&sort);
        warnings.sort_by_cached_key(&sort);
        let more = self.errors - errors.len();
        if errors.is_empty() { Ok(warnings) } else { Err(Diagnostics { found: errors, more, is_left: self.is_left }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Source, Span};
    use std::sync::Arc;

    #[test]
    fn all_is_counted_once_and_warnings_hide_no_error() {
        let source = Arc::new(Source { name: "f".to_owned(), text: "x".repeat(1_000) });
        let at = |start| Span { start, end: start + 1 };
        let mut found = Found::default();
        for round in 0..2 {
            for place in 0..300 {
                found.report(Diagnostic::warning("E001", &source, at(place), "w"));
            }
            assert!(!found.is_full() || round == 1);
            for place in (0..300).rev() {
                found.report(Diagnostic::error("E002", &source, at(place), "e"));
            }
        }
        found.add(Diagnostics { found: vec![Diagnostic::error("E002", &source, at(300), "e")], more: 7, is_left: false });
        let told = found.into_warnings(|found| found.labels[0].span.start).unwrap_err();
        assert_eq!((told.found.len(), told.more, told.is_left), (MOST, 108, false));
        assert!(told.found.is_sorted_by_key(|found| found.labels[0].span.start));
    }
}
