//! Diagnostics as a person reads them, and as a program does.
use super::{Diagnostic, Severity, Span};
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use serde_json::{Value, json};
use std::fmt;

/// The width of a report in columns, whatever the terminal's: what is tested is what is seen.
const WIDTH: usize = 100;

/// The most bytes of a source that are drawn at one place; a finding in longer lines is told in one line of its own.
const MOST_DRAWN: usize = 6_000;

/// The most places of one finding that are drawn.
const MOST_LABELS: usize = 100;

/// Writes diagnostics as reports with the lines they point at, in the order given.
pub fn render(diagnostics: &[Diagnostic], color: bool) -> String {
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(WIDTH).with_links(false).with_context_lines(1);
    let mut text = String::new();
    for (at, diagnostic) in diagnostics.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        if !drawable(diagnostic) || handler.render_report(&mut text, &Report::new(diagnostic)).is_err() {
            text.push_str(&listed(diagnostic));
        }
    }
    text
}

/// Writes a diagnostic without the lines it points at, each place on a line of its own.
fn listed(diagnostic: &Diagnostic) -> String {
    let mut text = format!("{diagnostic}\n");
    let position = diagnostic.source.positions();
    for label in diagnostic.labels.iter().enumerate().filter(|(at, label)| *at > 0 || !label.text.is_empty()).map(|(_, label)| label) {
        let (line, column) = position(label.span.start);
        text.push_str(&format!("  {line}:{column}: {}\n", label.text));
    }
    text + &diagnostic.help.as_ref().map(|help| format!("  help: {help}\n")).unwrap_or_default()
}

/// Returns whether the lines that a diagnostic points at can be shown: a report draws them whole, with those around them.
fn drawable(diagnostic: &Diagnostic) -> bool {
    let text = diagnostic.source.text.as_str();
    diagnostic.labels.len() <= MOST_LABELS
        && diagnostic.labels.iter().all(|label| {
            let (start, end) = (text.floor_char_boundary(label.span.start), text.floor_char_boundary(label.span.end.max(label.span.start)));
            let before: usize = text[..start].rsplit('\n').take(2).map(str::len).sum();
            let after: usize = text[end..].split_inclusive('\n').take(2).map(str::len).sum();
            before + (end - start) + after <= MOST_DRAWN
        })
}

/// Writes diagnostics as JSON: code, severity, message, file, help, the fix as an edit of bytes, and labels with bytes and
/// positions.
pub fn to_json(diagnostics: &[Diagnostic]) -> Value {
    let one = |diagnostic: &Diagnostic| {
        let position = diagnostic.source.positions();
        let labels: Vec<Value> = diagnostic
            .labels
            .iter()
            .map(|label| {
                let ((line, column), (end_line, end_column)) = (position(label.span.start), position(label.span.end));
                json!({
                    "start": label.span.start, "end": label.span.end, "line": line, "column": column,
                    "end_line": end_line, "end_column": end_column, "text": label.text,
                })
            })
            .collect();
        json!({
            "code": diagnostic.code,
            "severity": match diagnostic.severity { Severity::Error => "error", Severity::Warning => "warning" },
            "message": diagnostic.message,
            "file": diagnostic.source.name,
            "help": diagnostic.help,
            "fix": diagnostic.fix.as_ref().map(|edit| json!({"start": edit.span.start, "end": edit.span.end, "text": edit.text})),
            "labels": labels,
        })
    };
    diagnostics.iter().map(one).collect()
}

/// A diagnostic in the shape that miette draws.
struct Report<'a> {
    diagnostic: &'a Diagnostic,
    text: NamedSource<String>,
}

impl Report<'_> {
    fn new(diagnostic: &Diagnostic) -> Report<'_> {
        Report { diagnostic, text: NamedSource::new(&diagnostic.source.name, diagnostic.source.text.clone()) }
    }

    /// Returns a span that the text has, so that a report is drawn whatever it was given.
    fn within(&self, span: Span) -> std::ops::Range<usize> {
        let length = self.diagnostic.source.text.len();
        let start = span.start.min(length);
        start..span.end.clamp(start, length)
    }
}

impl fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.diagnostic, f)
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostic.message)
    }
}

impl std::error::Error for Report<'_> {}

impl miette::Diagnostic for Report<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.diagnostic.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.diagnostic.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.text)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let labels = self.diagnostic.labels.iter().enumerate().map(|(at, label)| {
            let text = (!label.text.is_empty()).then(|| label.text.clone());
            let range = self.within(label.span);
            if at == 0 { LabeledSpan::new_primary_with_span(text, range) } else { LabeledSpan::new_with_span(text, range) }
        });
        Some(Box::new(labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use std::sync::Arc;

    fn example() -> Diagnostic {
        let source = Arc::new(Source { name: "a.yaml".to_owned(), text: "näme: x\nsteps:\n  a: {nedes: []}\n".to_owned() });
        Diagnostic::error("E010", &source, Span { start: 22, end: 27 }, "there is no key `nedes` here").label("unknown").help("write `needs`")
    }

    #[test]
    fn a_report_shows_the_line_the_code_and_the_help() {
        let text = render(&[example()], false);
        assert!(text.contains("E010") && text.contains("a.yaml:3:7") && text.contains("a: {nedes: []}") && text.contains("help: write `needs`"), "{text}");
        assert!(!text.contains('\u{1b}'));
        assert!(render(&[example()], true).contains('\u{1b}'));
    }

    #[test]
    fn a_span_outside_the_text_or_inside_a_letter_is_still_drawn() {
        for span in [Span { start: 900, end: 1000 }, Span { start: 2, end: 2 }, Span { start: 5, end: 1 }] {
            let mut bad = example();
            bad.labels[0].span = span;
            assert!(render(std::slice::from_ref(&bad), false).contains("E010"));
            assert_eq!(to_json(&[bad])[0]["code"], "E010");
        }
    }

    #[test]
    fn json_has_bytes_and_positions() {
        let value = to_json(&[example()]);
        assert_eq!(value[0]["labels"][0]["line"], 3);
        assert_eq!(value[0]["labels"][0]["column"], 7);
        assert_eq!(value[0]["labels"][0]["start"], 22);
    }
}
