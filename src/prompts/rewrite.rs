//! Makes from a template the text that Tera runs: the same, with a guard on every access that must be defined, a counter on
//! every loop and a fixed form for every output. Places in the result lead back to places in the template.
use super::outline::{Outline, Piece};
use std::ops::Range;

/// What becomes of the value of a `{{ }}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Text: strings as they are, lists and maps as JSON.
    Text,
    /// JSON of any value.
    Json,
}

/// The text for Tera.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) text: String,
    /// Where in the template something was inserted, and how much; sorted.
    inserted: Vec<(usize, usize)>,
}

impl Rewritten {
    pub(super) fn new(text: &str, outline: &Outline, mode: Mode) -> Rewritten {
        let mut edits: Vec<(usize, String)> = Vec::new();
        for (number, chain) in outline.chains.iter().enumerate() {
            edits.extend(chain.links.iter().map(|at| (*at, "?".to_owned())));
            if !chain.optional {
                edits.push((chain.span.start, "(".to_owned()));
                edits.push((chain.span.end, format!(" | __known(at={number}))")));
            }
        }
        for sign in &outline.signs {
            edits.push((*sign, "{{\"".to_owned()));
            edits.push((sign + 2, "\"}}".to_owned()));
        }
        for target in &outline.loops {
            edits.push((target.start, "((".to_owned()));
            edits.push((target.end, ") | __steps)".to_owned()));
        }
        let form = match mode {
            Mode::Text => ") | __text",
            Mode::Json => ") | __json",
        };
        for piece in &outline.pieces {
            if let Piece::Output { span, .. } = piece {
                edits.push((span.start, "(".to_owned()));
                edits.push((span.end, form.to_owned()));
            }
        }
        // Stable: of two closings at one place the inner one, found first, stays first. Openings are alike.
        edits.sort_by_key(|(at, _)| *at);
        let mut result = Rewritten { text: String::with_capacity(text.len() + 32 * edits.len()), inserted: Vec::new() };
        let mut from = 0;
        for (at, insert) in edits {
            result.text.push_str(&text[from..at]);
            result.text.push_str(&insert);
            result.inserted.push((at, insert.len()));
            from = at;
        }
        result.text.push_str(&text[from..]);
        result
    }

    /// Leads a place in the rewritten text back to the template.
    pub(super) fn original(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.original_offset(span.start);
        start..self.original_offset(span.end).max(start)
    }

    fn original_offset(&self, offset: usize) -> usize {
        let mut shift = 0;
        for (at, length) in &self.inserted {
            if at + shift >= offset {
                break;
            }
            if at + shift + length > offset {
                return *at;
            }
            shift += length;
        }
        offset - shift
    }
}
