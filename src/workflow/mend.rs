//! Changes of a workflow file that a machine can make: what they put where, in the style that the place is written in.
use super::types::Step;
use crate::source::{Edit, Source, Span};

impl Step {
    /// Returns the change that makes this step need another one; `None` where its place is written in a way of its own.
    pub fn need(&self, source: &Source, other: &str) -> Option<Edit> {
        let text = &source.text;
        let Some(needs) = self.place.needs else {
            let map = self.place.map.start;
            return match text[map..].chars().next()? {
                '{' => Some(put(map + 1, format!(" needs: [{other}],"))),
                // An anchor, a tag or an alias stands before the map, or for it.
                '&' | '!' | '*' => None,
                _ => Some(put(map, format!("needs: [{other}]{}", new_line(text, map)))),
            };
        };
        let written = &text[needs.range()];
        if text[needs.start..].starts_with('[') {
            let empty = text[needs.start + 1..].trim_start().starts_with(']');
            return Some(put(needs.start + 1, if empty { other.to_owned() } else { format!("{other}, ") }));
        }
        if written.is_empty() || written.starts_with("- ") {
            // Of a list that is indented like its key the parser knows no place, but of its entries.
            let first = self.needs.first()?.step.span.start;
            let line = text[..first].rfind('\n').map_or(0, |newline| newline + 1);
            let dash = line + text[line..first].find("- ").filter(|dash| text[line..line + dash].trim().is_empty())?;
            return Some(put(dash, format!("- {other}{}", new_line(text, dash))));
        }
        let plain = !written.contains('\n') && !written.starts_with(['&', '!', '*', '-', '|', '>']);
        plain.then(|| Edit { span: needs, text: format!("[{}, {other}]", written.trim()) })
    }
}

fn put(at: usize, text: String) -> Edit {
    Edit { span: Span { start: at, end: at }, text }
}

/// Returns the end of a line as this file has it, and the indentation of what stands at a place.
fn new_line(text: &str, at: usize) -> String {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = if text[..start].ends_with("\r\n") { "\r\n" } else { "\n" };
    format!("{end}{}", " ".repeat(text[start..at].chars().count()))
}
