//! Changes of a workflow file that a machine can make: what they put where, in the style that the place is written in.
use super::types::Step;
use crate::source::{Edit, Source, Span};

impl Step {
    /// Returns the change that makes this step need another one.
    pub fn need(&self, source: &Source, other: &str) -> Edit {
        let text = &source.text;
        match self.place.needs {
            Some(needs) if text[needs.start..].starts_with('[') => {
                let empty = text[needs.start + 1..].trim_start().starts_with(']');
                put(needs.start + 1, if empty { other.to_owned() } else { format!("{other}, ") })
            }
            Some(needs) if text[needs.start..].starts_with("- ") => put(needs.start, format!("- {other}{}", new_line(text, needs.start))),
            Some(needs) => Edit { span: needs, text: format!("[{}, {other}]", text[needs.range()].trim()) },
            None if text[self.place.map.start..].starts_with('{') => put(self.place.map.start + 1, format!(" needs: [{other}],")),
            None => put(self.place.map.start, format!("needs: [{other}]{}", new_line(text, self.place.map.start))),
        }
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
